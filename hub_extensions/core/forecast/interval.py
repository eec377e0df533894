"""The likely wait as an interval: quantiles of the simulated waits, and the functions that correct them.

Times are seconds, errors are in log time.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

UNIT = 60.0
"""Log time is log(1 + minutes), so an error of seconds counts as none."""
LOW, HIGH = 0.1, 0.9
SOON = (900.0, 3600.0, 14400.0)
"""A forecast has the probability to start within 15 min, 1 h and 4 h."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Seconds from now; `within`: the probability to start within each of `SOON`."""

    p10: float
    p50: float
    p90: float
    within: tuple[float, ...] = ()


def quantiles(starts: Iterable[float], others: Iterable[float] = ()) -> Interval | None:
    """Return the quantiles of simulated starts, or None if too many of the simulated lines never reach the start.

    Args:
        others: starts of a second simulation, which count like the first.
    """
    ordered = sorted([*starts, *others])
    count = len(ordered)
    if not count or math.isinf(_at(ordered, HIGH)):
        return None
    within = tuple(bisect_right(ordered, soon) / count for soon in SOON)
    return Interval(_at(ordered, LOW), _at(ordered, 0.5), _at(ordered, HIGH), within)


def _at(ordered: Sequence[float], share: float) -> float:
    """Interpolate between the two nearest ranks."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    return low if low == high else low + (high - low) * (place - below)


def log_time(seconds: float) -> float:
    """Return a wait in log time, in which errors are compared."""
    return math.log1p(max(0.0, seconds) / UNIT)


def shifted(seconds: float, by: float) -> float:
    """Move a wait by so much log time."""
    return max(0.0, math.expm1(log_time(seconds) + by) * UNIT)


def loss_90(p90: float, waited: float) -> float:
    """Return the loss of a P90 in log time: a wait beyond it costs nine times as much as one below it."""
    beyond = log_time(waited) - log_time(p90)
    return max(HIGH * beyond, (HIGH - 1) * beyond)


def widened(simulated: Interval, by: float) -> Interval:
    """Move P10 down and P90 up by so much log time."""
    return replace(simulated, p10=shifted(simulated.p10, -by), p90=shifted(simulated.p90, by))


def with_first(shown: Interval, first: float, waited: float = 0.0) -> Interval:
    """Replace the median by its mean, in log time, with the time that the first in line has waited.

    At the join both have the same weight; the longer this ticket has waited, the less the first one's wait counts.

    Args:
        first: seconds that the first in line has waited.
        waited: seconds that this ticket has waited.
    """
    if not 0.0 <= waited < first:
        return shown
    share = (1 - waited / first) / 2
    p50 = math.expm1((1 - share) * log_time(shown.p50) + share * log_time(first - waited)) * UNIT
    return replace(shown, p10=min(shown.p10, p50), p50=p50, p90=max(shown.p90, p50))


def limited(shown: Interval, at_most: float | None, limit_is_p90: bool = False) -> Interval:
    """Let nothing exceed the enforced limit; `limit_is_p90`: where there is one, it is the P90."""
    if at_most is None:
        return shown
    p50 = min(shown.p50, at_most)
    return replace(shown, p10=min(shown.p10, p50), p50=p50, p90=at_most if limit_is_p90 else min(shown.p90, at_most))
