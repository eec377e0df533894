"""The settings of a service that the hub does not start: wait until the hub sends them, and detect changes.

After a change the service ends, and its supervisor (systemd, Kubernetes) starts it again with the new settings. No
setting changes while the service runs.
"""

from __future__ import annotations

import asyncio
import logging
import time
from collections.abc import Callable
from typing import Any

from hub_extensions.adapters.hub.jupyterhub_api import HubApi, HubAway, HubRefused
from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.hub_service.process import Lifetime
from hub_extensions.hub_service.setup.service_info import ServiceEnvironment, from_info, settings_from
from hub_extensions.hub_service.setup.settings import SERVICE_NAME, Settings, SettingsError

log = logging.getLogger("hub_extensions.hub_service.setup.settings_client")

ASK_AGAIN = 60.0  # seconds between two checks whether the hub has other settings
FIRST_PAUSE, LONGEST_PAUSE = 1.0, 10.0  # seconds between two tries while the hub sends no settings
TOKEN_SECONDS = 30.0
"""If the hub refuses the token for this long, the service ends. A hub that was rolled back to a version without this
package forgets the token, and the chart creates another one later. The service gets the new token at its next start.
"""
EXIT_TOKEN_REFUSED = 77
"""Exit status (`EX_NOPERM` of sysexits.h) after which the supervisor process ends too: it has only the old token."""
WITHHELD_SECONDS = 60.0
"""If the hub accepts the token but sends no settings for this long, the service ends. The hub then starts a service
itself, and two services would manage its servers. A single refusal may come from a hub that is just starting.
"""


class RemoteSettings:
    """Gets the settings of a service that the hub does not start, and detects when the hub has other ones.

    Args:
        own: what the service knows without the hub: addresses, token and secrets.
        lifetime: ends the service.
        clock: monotonic seconds; tests replace it.
    """

    def __init__(
        self, own: ServiceEnvironment, lifetime: Lifetime, *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._own = own
        self._lifetime = lifetime
        self._clock = clock
        self._hub = HubApi(own.hub_api_url, own.api_token)
        self._current: dict[str, Any] | None = None
        self._asked_at = clock()
        self._refused_since: float | None = None
        self._withheld_since: float | None = None

    async def wait_for_settings(self) -> Settings | None:
        """Return the settings as soon as the hub sends valid ones. Each reason for waiting is logged once.

        Returns:
            `None` if the service has to stop before.
        """
        pause, logged, began = FIRST_PAUSE, "", self._clock()
        while not self._lifetime.stopping.is_set():
            settings, why = await self._settings()
            if settings is not None:
                if logged:
                    log.info("the hub sent the settings after %.0f s", self._clock() - began)
                return settings
            if why != logged:
                logged, pause = why, FIRST_PAUSE
                log.warning("waiting for the hub: %s", why)
            try:
                await with_timeout(pause, self._lifetime.stopping.wait())
            except asyncio.TimeoutError:
                pause = min(2 * pause, LONGEST_PAUSE)
        return None

    async def has_changed(self, may_be_new: bool) -> bool:
        """Ask the hub for the settings once a minute, and end this service if they have changed.

        Args:
            may_be_new: whether the hub may have been restarted. If so, the hub is asked at once.

        Returns:
            Whether the service ends.
        """
        now = self._clock()
        self._refused_since = None
        if not may_be_new and now - self._asked_at < ASK_AGAIN:
            return False
        self._asked_at = now
        try:
            received = from_info(await self._hub.service_info(SERVICE_NAME))
        except HubRefused as problem:
            return self._refused_settings(problem)
        except HubAway as problem:
            log.debug("the hub was not asked for the settings: %s", problem)
            return False
        self._withheld_since = None
        if received == self._current:
            return False
        if received is None:
            log.warning("the hub has no settings for a service apart from it any more")
        self._lifetime.stop("the hub has other settings; started again, the service takes them")
        return True

    def _refused_settings(self, problem: HubRefused) -> bool:
        """Handle a hub that refuses to send settings. If it has done so for `WITHHELD_SECONDS`, this service ends.

        Args:
            problem: the hub's refusal, which is logged.

        Returns:
            Whether the service ends.
        """
        log.debug("the hub does not send the settings: %s", problem)
        if problem.status not in (401, 403, 404):
            return False
        now = self._clock()
        if self._withheld_since is None:
            self._withheld_since = now
        if now - self._withheld_since < WITHHELD_SECONDS:
            return False
        log.warning(
            "the hub has not sent this service its settings for %.0f s (it answers %d): it may start the service "
            "itself now (c.GpuService.started_by_hub), and then this one is to be deleted",
            now - self._withheld_since,
            problem.status,
        )
        self._lifetime.stop("the hub does not send its settings; started again, the service asks for them anew")
        return True

    def refused(self, problem: HubRefused) -> None:
        """Handle a hub that refuses the service's token. If it has done so for `TOKEN_SECONDS`, this service ends.

        Args:
            problem: the hub's refusal of a request. A refusal for another reason than the token changes nothing.
        """
        if problem.status not in (401, 403):
            return
        now = self._clock()
        if self._refused_since is None:
            self._refused_since = now
        if now - self._refused_since >= TOKEN_SECONDS:
            why = "the hub does not know this service's token; started again from outside, the service reads it anew"
            self._lifetime.stop(why, EXIT_TOKEN_REFUSED)

    def close(self) -> None:
        self._hub.close()

    async def _settings(self) -> tuple[Settings | None, str]:
        try:
            received = from_info(await self._hub.service_info(SERVICE_NAME))
            if received is None:
                return None, (
                    "its configuration says nothing to this service: configure(c) has to be called there, and "
                    "c.GpuService.started_by_hub has to be False"
                )
            settings = settings_from(received, self._own)
        except HubAway:
            return None, "it does not answer"
        except HubRefused as problem:
            self.refused(problem)
            return None, (
                f"it answers {problem.status}: c.GpuService.started_by_hub is not False there, or "
                f"JUPYTERHUB_API_TOKEN is not the token of its service {SERVICE_NAME!r}"
            )
        except SettingsError as problem:
            return None, str(problem)
        self._current, self._asked_at = received, self._clock()
        return settings, ""
