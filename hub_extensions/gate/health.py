"""Checks every 30 s whether each app answers, so that the front page does not have to wait.

Only the status of the answer is read, and redirects are not followed.
"""

from __future__ import annotations

import asyncio
from collections.abc import Mapping, Sequence
from datetime import datetime, timezone

from hub_extensions.adapters.apps.raw_http import HttpTarget, request_raw
from hub_extensions.core.sign_on.apps import App
from hub_extensions.core.sign_on.portal import HEALTH_EVERY, NOT_CHECKED, AppHealth, next_health

ASK_SECONDS = 2.0
AT_ONCE = 16
"""Number of simultaneous checks: 200 apps that do not answer take 25 s."""


class HealthWatch:
    """Checks periodically whether the apps answer. Apps without a health path are not checked.

    Attributes:
        states: name of an app -> its health, which the front page shows.
    """

    def __init__(self, apps: Sequence[App]) -> None:
        self._apps = tuple(apps)
        self.states: Mapping[str, AppHealth] = {}

    def use(self, apps: Sequence[App]) -> None:
        """Replace the apps that are checked.

        The known health of an app is discarded if its address or health path has changed.
        """
        moved = {app.name for app in self._apps} & {app.name for app in apps} - {
            new.name for new in apps for old in self._apps if _asked_at(new) == _asked_at(old) and new.name == old.name
        }
        self._apps = tuple(apps)
        names = {app.name for app in apps} - moved
        self.states = {name: state for name, state in self.states.items() if name in names}

    async def run(self) -> None:
        """Check periodically whether the apps answer, until cancelled."""
        while True:
            await self.check_all()
            await asyncio.sleep(HEALTH_EVERY.total_seconds())

    async def check_all(self) -> None:
        """Check each app that has a health path once, and update `states`."""
        few = asyncio.Semaphore(AT_ONCE)

        async def one(app: App) -> tuple[App, int | None]:
            async with few:
                return app, await _status_of(app)

        asked = await asyncio.gather(*(one(app) for app in self._apps if app.health))
        now, current = datetime.now(timezone.utc), set(self._apps)
        found = dict(self.states)
        for app, status in asked:
            if app in current:  # otherwise it was removed during the check
                found[app.name] = next_health(found.get(app.name, NOT_CHECKED), status, now)
        self.states = found


async def _status_of(app: App) -> int | None:
    """Return the HTTP status with which an app answers at its health path; `None` if it does not answer in time."""
    place = HttpTarget.of(app.upstream)
    headers = [(b"Host", place.host.encode()), (b"User-Agent", b"jupyterhub-gpu-gate"), (b"Connection", b"close")]
    try:
        return (await request_raw(place, "GET", app.health, headers, ASK_SECONDS, head=True)).status
    except OSError:
        return None


def _asked_at(app: App) -> tuple[str, ...]:
    return app.upstream, app.health
