"""The running clock: it stands still while hub or service is down, and a restart does not reset it.

Deadlines of users are times on this clock. So an outage moves each deadline by its own length, and a change of the
machine's wall clock moves none. `RunningClock.wall` converts to wall-clock time when a time is shown.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone


class RunningClock:
    """The clock on which the deadlines of users are counted. It stands still while it is paused.

    After a restart of the service it continues from the time that was stored last.

    Args:
        at: the time of this clock that was stored last. `None` for a new store; the clock then starts at wall-clock
            time.
        monotonic, utc_now: the machine's clocks; tests replace them.
    """

    def __init__(
        self,
        at: datetime | None = None,
        *,
        monotonic: Callable[[], float] = time.monotonic,
        utc_now: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._monotonic = monotonic
        self._utc_now = utc_now
        self._base = at if at is not None else utc_now()
        self._since: float | None = monotonic()

    def now(self) -> datetime:
        """Return the time of the running clock. It is behind the wall clock by the length of all outages."""
        if self._since is None:
            return self._base
        return self._base + timedelta(seconds=self._monotonic() - self._since)

    def elapsed(self) -> float:
        """Return the machine's monotonic clock in seconds. It goes on while the running clock is paused."""
        return self._monotonic()

    @property
    def paused(self) -> bool:
        """Whether the running clock (on which users' deadlines are counted) stands still, because the hub is away."""
        return self._since is None

    def pause(self) -> None:
        """Stop the running clock (on which users' deadlines are counted), because the hub is away."""
        self._base = self.now()
        self._since = None

    def resume(self) -> None:
        """Let the running clock go on from where it stopped. Without effect if it is not paused.

        Users' deadlines are counted on this clock.
        """
        if self._since is None:
            self._since = self._monotonic()

    def wall(self, running: datetime) -> datetime:
        """Convert a time of the running clock to wall-clock time, to show it.

        The result is right only if no outage lies between `running` and now.
        """
        return self._utc_now() + (running - self.now())

    def running(self, wall: datetime) -> datetime:
        """Convert a past wall-clock time to a time of the running clock, which stands still while the hub is away.

        The result is right only if no outage lies between `wall` and now.
        """
        return self.now() - (self._utc_now() - wall)

    def utc_now(self) -> datetime:
        """Return the wall-clock time, for journals and records."""
        return self._utc_now()
