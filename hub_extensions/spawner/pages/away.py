"""What the hub says where its proxy does not reach the GPU service: which page, and in which languages.

The proxy asks the hub for it without the reader's headers, so the page has all languages, and its script takes the
browser's. Not here: the page itself (``templates/gpu_away.html``).
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

from hub_extensions.adapters.catalogues import catalogues
from hub_extensions.core.translation import ENGLISH, Catalogue

AwayLanguages = Callable[[Any], tuple[Catalogue, ...]]


def away_page(path: str) -> Callable[[object], AwayLanguages]:
    """A value for ``c.JupyterHub.template_vars``: JupyterHub calls it for each page, with its reader.

    Args:
        path: of the service below the hub's base URL.
    """

    def of_page(static_url: Any) -> tuple[Catalogue, ...]:
        """The languages of our page; none: what was asked for is not the service's.

        `static_url` is, of the names that every page of the hub has, the one that is a method of its request.
        """
        handler = static_url.__self__
        prefix = f"{handler.base_url.rstrip('/')}{path}"
        asked = handler.get_argument("url", "").partition("?")[0]
        return (ENGLISH, *catalogues().values()) if asked == prefix or asked.startswith(f"{prefix}/") else ()

    return lambda reader: of_page
