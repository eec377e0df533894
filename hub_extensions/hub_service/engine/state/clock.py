"""The running clock: time in which hub and service were both up.

Every deadline that runs against a user is kept on it, so an outage moves each deadline by its length and a wall clock
that is set back moves none. Wall-clock time is for people: `wall` converts at the moment of speaking.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime, timedelta, timezone


class RunningClock:
    """Reads like a clock, stands still while paused, and goes on after a restart from where it was stored.

    Args:
        at: the reading that was stored last; None: a new store, the clock starts at wall-clock time.
        monotonic, utc_now: the machine's clocks (arguments so that tests can hold them).
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
        """Running time as an aware datetime; at most the wall clock, behind it by all outages."""
        if self._since is None:
            return self._base
        return self._base + timedelta(seconds=self._monotonic() - self._since)

    def elapsed(self) -> float:
        """Seconds of the machine's monotonic clock, which no outage of the hub stops."""
        return self._monotonic()

    @property
    def paused(self) -> bool:
        """The hub is away and the clock stands still."""
        return self._since is None

    def pause(self) -> None:
        """The hub is away: no deadline comes nearer."""
        self._base = self.now()
        self._since = None

    def resume(self) -> None:
        """The hub is back: the clock goes on from where it stood."""
        if self._since is None:
            self._since = self._monotonic()

    def wall(self, running: datetime) -> datetime:
        """Wall-clock time of a running-clock time, if nothing goes down in between."""
        return self._utc_now() + (running - self.now())

    def running(self, wall: datetime) -> datetime:
        """The other way round: running-clock time of a moment that has been, by the wall clock."""
        return self.now() - (self._utc_now() - wall)

    def utc_now(self) -> datetime:
        """Wall-clock time, for journals and records."""
        return self._utc_now()
