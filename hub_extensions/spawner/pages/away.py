"""What the hub says where its proxy does not reach the GPU service: a page for people, a ``Problem`` for programs.

The proxy asks the hub for it without the reader's headers. So the page has all languages, and its script takes the
browser's; and a program is known by the address that it asked, or by ``Accept`` where a proxy hands that on. Not here:
the page itself (``templates/gpu_away.html``).
"""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Mapping
from typing import Any

from hub_extensions.adapters.files.catalogues import catalogues
from hub_extensions.core.messages import Problem
from hub_extensions.core.text.reasons import explain
from hub_extensions.core.text.translation import ENGLISH, Catalogue

PROGRAMS = ("api/", "hub/", "health", "metrics")
"""Addresses of the service that no person opens."""


@dataclasses.dataclass(frozen=True, slots=True)
class AwayAnswer:
    """What is said: `languages` of the page; for a program the `problem` instead."""

    languages: tuple[Catalogue, ...] = ()
    problem: Mapping[str, Any] | None = None


def away_page(path: str) -> Callable[[object], Callable[[Any], AwayAnswer | None]]:
    """A value for ``c.JupyterHub.template_vars``: JupyterHub calls it for each page, with its reader.

    Args:
        path: of the service below the hub's base URL.
    """

    def of_page(static_url: Any) -> AwayAnswer | None:
        """What our page says, with its kind as the answer's; None: what was asked for is not the service's.

        `static_url` is, of the names that every page of the hub has, the one that is a method of its request.
        """
        handler = static_url.__self__
        prefix = f"{handler.base_url.rstrip('/')}{path}"
        asked = handler.get_argument("url", "").partition("?")[0]
        if asked != prefix and not asked.startswith(f"{prefix}/"):
            return None
        if not is_for_program(asked.removeprefix(prefix).removeprefix("/"), handler.request.headers.get("Accept", "")):
            return AwayAnswer((ENGLISH, *catalogues().values()))
        handler.set_header("Content-Type", "application/json")
        return AwayAnswer(problem=dataclasses.asdict(Problem.of(explain("away"))))

    return lambda reader: of_page


def is_for_program(asked: str, accept: str) -> bool:
    """Whether a program asks for this address of the service; who accepts a page is a person."""
    return "text/html" not in accept and ("application/json" in accept or asked.startswith(PROGRAMS))
