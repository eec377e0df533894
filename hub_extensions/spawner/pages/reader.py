"""Which language whoever reads a page of the hub has asked for, and what the waiting page's script says in it.

Not here: the texts themselves (``hub_extensions/locale``), and what a page says.
"""

from __future__ import annotations

import asyncio
import functools
import re
from collections.abc import Callable, Mapping
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from hub_extensions.adapters.files.catalogues import catalogue_of
from hub_extensions.core.text import glossary
from hub_extensions.core.text.sentence_pieces import Pieces
from hub_extensions.core.text.translation import Catalogue, halves
from hub_extensions.spawner import spawn_errors
from hub_extensions.spawner.pages.overview import (
    KEPT,
    HomeEntry,
    NotRunningView,
    ended_view,
    failed_view,
    home_entries,
    hub_pieces,
    last_offers,
    overview_of,
    place_in,
)

REPORTED_SECONDS = 1.0
"""So long the page of a failed start waits for its report, with which its place is kept."""
TELLING: set[asyncio.Future[Any]] = set()
"""What is under way is kept here, or it could be dropped."""
SCRIPTS = tuple(Path(__file__).parent / "templates" / f"{name}.js" for name in ("gpu_waiting", "gpu_card"))


class PageReader:
    """The part of a spawner that the hub's pages ask."""

    def gpu_catalogue(self, static_url: object) -> Catalogue:
        """The language of whoever reads a page of the hub.

        Args:
            static_url: of the names that every page of the hub has the one that is a method of its request.
        """
        return catalogue_of(getattr(static_url, "__self__", None))

    async def gpu_not_running(self, hub_message: str | None, t: Catalogue) -> NotRunningView:
        """What ``not_running.html`` shows. `hub_message`: why this hub's last start failed; "" where none did."""
        spawner: Any = self
        start = spawner._gpu_start
        if start is not None and start.reported is not None and not start.reported.done():
            await asyncio.wait({start.reported}, timeout=REPORTED_SECONDS)
        if spawner._gpu_record is not None:
            return NotRunningView(KEPT)
        known = await overview_of(spawner)
        starts, options = known.failed if known is not None else (), spawner.gpu_saved(spawner.user_options)
        reasons = spawn_errors.spawn_reasons(spawner._spawn_future)
        failed = failed_view(starts, spawner.name, hub_message or "", options, t, hub_reasons=reasons)
        ended = None if failed else ended_view(known, spawner.name, t)
        return NotRunningView(place_in(known, spawner.name, last_offers(spawner)), failed, ended)

    def gpu_refusal(self, message: str, t: Catalogue) -> Pieces:
        """What ``spawn.html`` shows of the error that the hub hands to it."""
        return hub_pieces(message, getattr(message, "reasons", ()), t)

    async def gpu_home(self, t: Catalogue) -> tuple[HomeEntry, ...]:
        """The block of the hub's home."""
        spawner: Any = self
        if not spawner.gpu_service_url:
            return ()
        known = await overview_of(spawner, t.language)
        return home_entries(known, spawner._gpu_service.titles, datetime.now(timezone.utc), t)

    def gpu_spoken(self, t: Catalogue, static_url: object) -> None:
        """Its user reads the waiting page in this language, which the service is told; the page does not wait."""
        spawner: Any = self
        if spawner.gpu_service_url and (language := spoken_by(getattr(static_url, "__self__", None), spawner, t)):
            telling = asyncio.ensure_future(overview_of(spawner, language))
            TELLING.add(telling)
            telling.add_done_callback(TELLING.discard)

    @staticmethod
    def gpu_halves(text: str) -> tuple[str, str]:
        """What stands before and behind the time in a text."""
        return halves(text)

    def gpu_explainer(self, t: Catalogue) -> Callable[[str], list[tuple[str, str]]]:
        """Finds the words of a page that have a sentence."""
        return glossary.explainer(t)

    def gpu_glossary(self, t: Catalogue) -> list[tuple[str, str, str]]:
        """Those words and their sentences."""
        return glossary.listed(t)

    def gpu_words(self, t: Catalogue) -> Mapping[str, str]:
        """What the waiting page's script says, in another language; what is missing stays English there."""
        known = ((text, t.known(text)) for text in texts_of_script())
        return {text: found for text, found in known if found is not None}


def spoken_by(handler: object, spawner: Any, t: Catalogue) -> str:
    """The language of a page that a spawner's own user reads; "" where an admin does."""
    reader = getattr(handler, "current_user", None)
    return t.language if reader is not None and reader.name == spawner.user.name else ""


@functools.cache
def texts_of_script() -> tuple[str, ...]:
    """Every text that the waiting page's script says by itself."""
    said = (re.findall(r'\bt\("([^"\\]+)"', script.read_text(encoding="utf-8")) for script in SCRIPTS)
    return tuple(dict.fromkeys(text for texts in said for text in texts))
