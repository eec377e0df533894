"""The gate's apps while it runs: the catalogue's file is read again when it changes, and the last good apps stay.

Not here: what a catalogue may hold (``adapters/apps/app_catalogue.py``), and what is wrong (``core/sign_on/apps.py``).
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from hub_extensions.adapters.apps.app_catalogue import CatalogueError, Check, WatchedCatalogue
from hub_extensions.core.sign_on.apps import AppCatalogue, check_catalogue
from hub_extensions.gate.settings import GateSettings

log = logging.getLogger("hub_extensions.gate")

EVERY = 5.0
"""Seconds from one glance at the file to the next."""


def check_for(settings: GateSettings, groups: Collection[str] | None = None, *hub_inside: str) -> Check:
    """What a catalogue is checked by. `groups`: those that there are; `hub_inside`: more addresses of the hub."""
    inside = tuple(f"{place.scheme}://{place.netloc}" for place in map(urlsplit, (settings.hub_api_url, *hub_inside)))
    return lambda apps: check_catalogue(
        apps, settings.hub_url, settings.url, groups, hub_inside=inside, subdomain_host=settings.subdomain_host
    )


async def follow_catalogue(settings: GateSettings, use: Callable[[AppCatalogue], None]) -> None:
    """Have new apps used, until cancelled. `settings.catalogue` is in use already."""
    if not isinstance(settings.apps, str):
        return
    watched = await _watched(settings, settings.apps)

    def change() -> None:
        use(watched.apps)
        for name in _with_other_groups(settings.catalogue, watched.apps):
            log.warning("app %r has other groups, or is new: its groups are in force at the hub's next start", name)

    if watched.apps != settings.catalogue:
        change()
    reported = ""
    while True:
        if watched.problem and watched.problem != reported:
            log.error("the catalogue cannot be used, so the apps of before stay: %s", watched.problem)
        reported = watched.problem
        await asyncio.sleep(EVERY)
        if await asyncio.to_thread(watched.refresh):
            log.info("the catalogue was read: there are %d apps", len(watched.apps))
            change()


def _with_other_groups(at_start: AppCatalogue, now: AppCatalogue) -> list[str]:
    """Names of apps whose groups are not those that the hub was started with."""
    known = {app.name: frozenset(app.groups) for app in at_start}
    return [app.name for app in now if known.get(app.name) != frozenset(app.groups)]


async def _watched(settings: GateSettings, file: str) -> WatchedCatalogue:
    """The file, as soon as it can be used, where the gate has no apps of before."""
    reported = ""
    while True:
        try:
            return await asyncio.to_thread(WatchedCatalogue, file, check_for(settings), settings.catalogue)
        except CatalogueError as problem:
            if str(problem) != reported:
                log.error("the catalogue cannot be used, so there are no apps: %s", problem)
            reported = str(problem)
        await asyncio.sleep(EVERY)
