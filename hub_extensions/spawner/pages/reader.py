"""Which language whoever reads a page of the hub has asked for, and what the waiting page's script says in it.

Not here: the texts themselves (``hub_extensions/locale``), and what a page says.
"""

from __future__ import annotations

import functools
import re
from collections.abc import Mapping
from pathlib import Path

from hub_extensions.adapters.catalogues import catalogue_for
from hub_extensions.core.translation import Catalogue

SCRIPT = Path(__file__).parent / "templates" / "gpu_waiting.js"


class PageReader:
    """The part of a spawner that the hub's pages ask."""

    def gpu_catalogue(self, static_url: object) -> Catalogue:
        """The language of whoever reads a page of the hub.

        Args:
            static_url: of the names that every page of the hub has the one that is a method of its request.
        """
        return catalogue_of(getattr(static_url, "__self__", None))

    def gpu_words(self, t: Catalogue) -> Mapping[str, str]:
        """What the waiting page's script says, in another language; what is missing stays English there."""
        known = ((text, t.known(text)) for text in texts_of_script())
        return {text: found for text, found in known if found is not None}


def catalogue_of(handler: object) -> Catalogue:
    """The language that the browser of a request asks for; English where no request is known."""
    request = getattr(handler, "request", None)
    return catalogue_for(request.headers.get("Accept-Language", "") if request is not None else "")


@functools.cache
def texts_of_script() -> tuple[str, ...]:
    """Every text that the waiting page's script says by itself."""
    return tuple(dict.fromkeys(re.findall(r'\bt\("([^"\\]+)"', SCRIPT.read_text(encoding="utf-8"))))
