"""The hub's answer if its proxy cannot reach the GPU service: a page for people, a ``Problem`` in JSON for programs.

The proxy fetches this page from the hub without the client's headers, so the client's language is not known. The page
contains all languages, and its script selects the browser's. A program is recognised by the requested path, or by
``Accept`` if a proxy forwards it.
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
"""Beginnings of paths of the service that only programs request."""


@dataclasses.dataclass(frozen=True, slots=True)
class AwayAnswer:
    """Values for the template of the error page that is shown if the GPU service cannot be reached.

    Attributes:
        languages: for a person, the languages in which the page is shown; empty for a program.
        problem: for a program, the answer in JSON; None for a person.
    """

    languages: tuple[Catalogue, ...] = ()
    problem: Mapping[str, Any] | None = None


def away_page(path: str) -> Callable[[object], Callable[[Any], AwayAnswer | None]]:
    """Return a value for ``c.JupyterHub.template_vars``, by which the template of the error page gets its `AwayAnswer`.

    JupyterHub calls the value for each page with the current user, and the template calls the result.

    Args:
        path: path of the GPU service below the hub's base URL.
    """

    def of_page(static_url: Any) -> AwayAnswer | None:
        """Return the answer and set its content type. None if the requested path does not belong to the GPU service.

        Args:
            static_url: the template variable of this name. Its value is a method of the request's handler, from which
                the handler is taken.
        """
        handler = static_url.__self__
        prefix = f"{handler.base_url.rstrip('/')}{path}"
        asked = handler.get_argument("url", "").partition("?")[0]
        if asked != prefix and not asked.startswith(f"{prefix}/"):
            return None
        accept, inner = handler.request.headers.get("Accept", ""), asked.removeprefix(prefix).removeprefix("/")
        if "text/html" in accept or not ("application/json" in accept or inner.startswith(PROGRAMS)):
            return AwayAnswer((ENGLISH, *catalogues().values()))  # a client that accepts HTML is a person
        handler.set_header("Content-Type", "application/json")
        return AwayAnswer(problem=dataclasses.asdict(Problem.of(explain("away"))))

    return lambda reader: of_page
