"""Simple methods of forecasting a wait, with which the service's forecast is compared.

Each method uses only what happened before the session that it forecasts joined the line.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field

from hub_extensions.core.forecast.interval import HIGH, Interval, log_time, shifted
from hub_extensions.tools.backtest.world import LogSession, Running, World

TSAFRIR = "user's last two, played"
LIMITS = "limits, played"
PAST_MEAN = "past mean, played"
LAST_FIFTY = "median of the last 50"
MATURED = 150
"""The interval of a simple method is computed from at most this many of its last errors."""
FEWEST_MATURED = 20
"""Minimum number of errors for an interval. With fewer, a simple method gives only its point forecast."""
CLIP = 2.5
"""The interval extends at most this far to either side of the forecast, in the logarithm of time."""

_Life = Callable[[LogSession], float]


@dataclass
class Baselines:
    """All simple methods of forecasting a wait, with the past events that they use. A `Recorder` reports the events.

    Attributes:
        waits: the last 50 waits, in seconds.
        all_waits: the last 1000 waits, for `bound`.
        ends: times at which the last 50 sessions ended.
        lives: user -> durations of the user's last two sessions, in seconds.
        lived, count: total duration and number of the sessions that have ended.
    """

    waits: deque[float] = field(default_factory=lambda: deque(maxlen=50))
    all_waits: deque[float] = field(default_factory=lambda: deque(maxlen=1000))
    ends: deque[float] = field(default_factory=lambda: deque(maxlen=50))
    lives: dict[str, deque[float]] = field(default_factory=dict)
    lived: float = 0.0
    count: int = 0

    def started(self, wait: float) -> None:
        """Record the wait (in seconds) of a session that has just started."""
        self.waits.append(wait)
        self.all_waits.append(wait)

    def ended(self, session: LogSession, lasted: float, now: float) -> None:
        """Record a session that has just ended.

        Args:
            session: the session.
            lasted: its duration in seconds.
            now: the time of its end.
        """
        self.ends.append(now)
        self.lives.setdefault(session.user, deque(maxlen=2)).append(lasted)
        self.lived += lasted
        self.count += 1

    def predict(self, world: World, session: LogSession, now: float) -> dict[str, float]:
        """Return name of a simple method -> how long the session will wait according to it, in seconds from `now`.

        Args:
            world: the pool, in whose line the session is the last.
            session: the session, which has just joined the line.
            now: the current time of the replay.
        """
        last = self.waits[-1] if self.waits else 0.0
        ahead = len(world.waiting) - 1
        rate = len(self.ends) / max(1.0, now - self.ends[0]) if self.ends else 0.0
        return {
            LAST_FIFTY: sorted(self.waits)[len(self.waits) // 2] if self.waits else 0.0,
            "last to enter service": last,
            "head of line": now - world.waiting[0].submit if ahead else last,
            "queue / completion rate": (ahead + 1) / rate if rate else last,
            LIMITS: self._planned(world, now, session, _limit),
            PAST_MEAN: self._planned(world, now, session, lambda s: self._mean()),
            TSAFRIR: self._planned(world, now, session, self._last_two),
        }

    def bound(self) -> float | None:
        """Return the upper bound of a wait by the method QBETS, in seconds: at least 90 % of the waits are shorter.

        The bound has a confidence of 95 %. None if too few waits are known.
        """
        count = len(self.all_waits)
        rank = math.ceil(0.9 * count + 1.645 * math.sqrt(0.09 * count))
        return sorted(self.all_waits)[rank - 1] if 0 < rank <= count else None

    def _mean(self) -> float:
        return self.lived / self.count if self.count else 3600.0

    def _last_two(self, session: LogSession) -> float:
        own = self.lives.get(session.user)
        return sum(own) / len(own) if own else self._mean()

    def _planned(self, world: World, now: float, session: LogSession, life: _Life) -> float:
        """Return how long a session waits, in seconds, if all sessions have the durations that a simple method guesses.

        A running session that has exceeded its guess is assumed to last twice its current age. No session exceeds its
        limit.

        Args:
            world: the pool with its running and waiting sessions.
            now: the current time of the replay.
            session: the waiting session.
            life: returns the guessed duration of a session.
        """

        def whole(each: LogSession) -> float:
            return min(life(each), _limit(each))

        def left(running: Running) -> float:
            age, guess = now - running.since, whole(running.session)
            return guess - age if guess > age else min(age, max(0.0, _limit(running.session) - age))

        return world.planned(now, left, whole, session.number)


class PointCorrection:
    """Makes an interval around each point forecast of a simple method, by the errors of its last forecasts.

    An error is the logarithm of the real wait minus the logarithm of the forecast. All errors have the same weight.
    """

    def __init__(self) -> None:
        self._errors: deque[float] = deque(maxlen=MATURED)

    def matured(self, point: float, waited: float) -> None:
        """Record the error of a past forecast, because its session has started and its real wait is known.

        Args:
            point: the forecast, in seconds.
            waited: the real wait, in seconds.
        """
        self._errors.append(log_time(waited) - log_time(point))

    def around(self, point: float) -> Interval:
        """Return an interval around a point forecast (in seconds), which is its median.

        If fewer than `FEWEST_MATURED` errors are known, all its quantiles are `point`.
        """
        count = len(self._errors)
        if count < FEWEST_MATURED:
            return Interval(point, point, point)
        ordered, at = sorted(self._errors), math.ceil(HIGH * (count + 1)) - 1
        p10, p90 = (shifted(point, max(-CLIP, min(CLIP, by))) for by in (ordered[-1 - at], ordered[at]))
        return Interval(min(p10, point), point, max(p90, point))


def _limit(session: LogSession) -> float:
    return 30 * 86400.0 if session.limit is None else session.limit
