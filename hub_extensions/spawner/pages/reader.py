"""The methods of a spawner that the hub's page templates call, such as ``spawner.gpu_home(t)``.

In all of them, `t` is the catalogue (the texts in one language) of the page.
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
    place_in_queue,
)

REPORTED_SECONDS = 1.0
"""The page of a failed start waits at most this long until the service has the report of the failure.

Only then does the service know that the user's place in line is kept, which the page shows.
"""
BACKGROUND: set[asyncio.Future[Any]] = set()  # background requests, referenced so that they are not garbage collected
SCRIPTS = tuple(Path(__file__).parent / "templates" / f"{name}.js" for name in ("gpu_waiting", "gpu_card"))


class PageReader:
    """Mixin of our spawners with the methods for page templates. The page's reader may be an administrator."""

    def gpu_catalogue(self, static_url: object) -> Catalogue:
        """Return the catalogue (the texts in one language) for the person who reads a page.

        Args:
            static_url: the template variable of this name. Its value is a method of the request's handler, from which
                the handler is taken.
        """
        return catalogue_of(getattr(static_url, "__self__", None))

    async def gpu_not_running(self, hub_message: str | None, t: Catalogue) -> NotRunningView:
        """Return what ``not_running.html``, the page of a stopped server, shows.

        Args:
            hub_message: why the last start in this hub process failed; "" or None if it did not.
        """
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
        return NotRunningView(place_in_queue(known, spawner.name, last_offers(spawner)), failed, ended)

    def gpu_refusal(self, message: str, t: Catalogue) -> Pieces:
        """Return the error message that the hub passes to ``spawn.html``, translated.

        Args:
            message: the error's text; a `HubMessage` is translated by its reasons, a plain text as a whole.
        """
        return hub_pieces(message, getattr(message, "reasons", ()), t)

    async def gpu_home(self, t: Catalogue) -> tuple[HomeEntry, ...]:
        """Return the entries about the user's servers for the hub's home page; empty without a GPU service."""
        spawner: Any = self
        if not spawner.gpu_service_url:
            return ()
        known = await overview_of(spawner, t.language)
        return home_entries(known, spawner._gpu_service.titles, datetime.now(timezone.utc), t)

    def gpu_report_language(self, t: Catalogue, static_url: object) -> None:
        """Report to the GPU service, in the background, in which language the user reads the waiting page.

        Nothing is reported if an administrator reads the page.

        Args:
            static_url: the template variable of this name. Its value is a method of the request's handler, from which
                the handler is taken.
        """
        spawner: Any = self
        if spawner.gpu_service_url and (
            language := language_of_owner(getattr(static_url, "__self__", None), spawner, t)
        ):
            telling = asyncio.ensure_future(overview_of(spawner, language))
            BACKGROUND.add(telling)
            telling.add_done_callback(BACKGROUND.discard)

    @staticmethod
    def gpu_halves(text: str) -> tuple[str, str]:
        """Return the parts of a text before and after its parameter ``%1``, such as in ``ready at %1, or later``.

        A template renders the value of the parameter itself, between the two parts. For a text without ``%1``, return
        the whole text and "".
        """
        return halves(text)

    def gpu_explainer(self, t: Catalogue) -> Callable[[str], list[tuple[str, str]]]:
        """Return a function that splits a text where it uses terms of the glossary, so that the page can explain them.

        The function returns pairs of a piece of the text and the key of its term; the key is "" for a piece that is not
        a term.
        """
        return glossary.explainer(t)

    def gpu_glossary(self, t: Catalogue) -> list[tuple[str, str, str]]:
        """Return key, word and explanation of each term of the glossary, in the language of the page."""
        return glossary.listed(t)

    def gpu_words(self, t: Catalogue) -> Mapping[str, str]:
        """Return the translations for the script of the waiting page: English text -> its translation.

        Texts without a translation are left out.
        """
        known = ((text, t.known(text)) for text in texts_of_script())
        return {text: found for text, found in known if found is not None}


def language_of_owner(handler: object, spawner: Any, t: Catalogue) -> str:
    """Return the language of a page that the spawner's own user reads; "" if an administrator reads it."""
    reader = getattr(handler, "current_user", None)
    return t.language if reader is not None and reader.name == spawner.user.name else ""


@functools.cache
def texts_of_script() -> tuple[str, ...]:
    """Return every English text that the scripts of the waiting page pass to their function ``t``."""
    said = (re.findall(r'\bt\("([^"\\]+)"', script.read_text(encoding="utf-8")) for script in SCRIPTS)
    return tuple(dict.fromkeys(text for texts in said for text in texts))
