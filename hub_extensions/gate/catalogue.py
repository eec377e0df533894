"""The gate's catalogue of apps at run time: its file is read again when it changes."""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Collection
from urllib.parse import urlsplit

from hub_extensions.adapters.apps.app_catalogue import CatalogueError, Check, WatchedCatalogue
from hub_extensions.core.sign_on.apps import AppCatalogue, check_catalogue
from hub_extensions.gate.settings import GateSettings

log = logging.getLogger("hub_extensions.gate")

CHECK_SECONDS = 5.0
"""Interval in seconds at which the file is checked for changes."""


def check_for(settings: GateSettings, groups: Collection[str] | None = None, *hub_inside: str) -> Check:
    """Return the function that checks a catalogue of apps against these settings, and returns its problems.

    Args:
        settings: the settings of the gate.
        groups: all groups that exist; `None` if they are not known, so that groups are not checked.
        hub_inside: further addresses of the hub, which no app may have.
    """
    inside = tuple(f"{place.scheme}://{place.netloc}" for place in map(urlsplit, (settings.hub_api_url, *hub_inside)))
    return lambda apps: check_catalogue(
        apps, settings.hub_url, settings.url, groups, hub_inside=inside, subdomain_host=settings.subdomain_host
    )


async def follow_catalogue(settings: GateSettings, use: Callable[[AppCatalogue], None]) -> None:
    """Follow the file of the catalogue until cancelled, and call `use` with its apps whenever they change.

    Returns at once if the apps are in the gate's settings and not in a file.

    Args:
        settings: the settings of the gate. Their `catalogue` has the apps that are in use at the start.
        use: makes the gate use these apps.
    """
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
        await asyncio.sleep(CHECK_SECONDS)
        if await asyncio.to_thread(watched.refresh):
            log.info("the catalogue was read: there are %d apps", len(watched.apps))
            change()


def _with_other_groups(at_start: AppCatalogue, now: AppCatalogue) -> list[str]:
    """Return the names of new apps, and of apps whose groups differ from those with which the hub was started.

    A warning names these apps, because the hub gives their groups access only when it starts.

    Args:
        at_start: the apps with which the hub was started.
        now: the current apps.
    """
    known = {app.name: frozenset(app.groups) for app in at_start}
    return [app.name for app in now if known.get(app.name) != frozenset(app.groups)]


async def _watched(settings: GateSettings, file: str) -> WatchedCatalogue:
    """Return the catalogue, which is read from a file and can be read again when the file changes.

    If the file has errors, the apps that the hub passed at its start are used. If the hub passed none, the function
    waits until the file is valid.
    """
    reported = ""
    while True:
        try:
            return await asyncio.to_thread(WatchedCatalogue, file, check_for(settings), settings.catalogue)
        except CatalogueError as problem:
            if str(problem) != reported:
                log.error("the catalogue cannot be used, so there are no apps: %s", problem)
            reported = str(problem)
        await asyncio.sleep(CHECK_SECONDS)
