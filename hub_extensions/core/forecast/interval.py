"""The likely wait as an interval: P10, P50 and P90 of the simulated waits, and corrections of these.

Times are seconds; errors are in log time, log(1 + minutes).
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

UNIT = 60.0
"""Seconds in the unit of log time, log(1 + minutes), in which an error of a few seconds is next to nothing."""
LOW, HIGH = 0.1, 0.9
"""The quantiles P10 and P90, the ends of the interval that is shown."""
SOON = (900.0, 3600.0, 14400.0)
"""Times, in seconds, for which a forecast has the probability of a start within them: 15 min, 1 h and 4 h."""


@dataclass(frozen=True, slots=True)
class Interval:
    """A likely wait in seconds from now.

    Attributes:
        p10, p50, p90: the wait is shorter than this with a probability of 10, 50 and 90 %.
        within: the probabilities of a start within 15 min, within 1 h and within 4 h (`SOON`).
    """

    p10: float
    p50: float
    p90: float
    within: tuple[float, ...] = ()


def quantiles(starts: Iterable[float], others: Iterable[float] = ()) -> Interval | None:
    """Return the quantiles of the simulated starts of a ticket.

    Args:
        starts: the ticket's start in each simulated world (possible future), infinite if it never starts.
        others: its starts in the worlds of a second simulation, which count like the first ones; empty without one.

    Returns:
        None if P90 would be infinite, because the ticket never starts in too many of the worlds.
    """
    ordered = sorted([*starts, *others])
    count = len(ordered)
    if not count or math.isinf(_at(ordered, HIGH)):
        return None
    within = tuple(bisect_right(ordered, soon) / count for soon in SOON)
    return Interval(_at(ordered, LOW), _at(ordered, 0.5), _at(ordered, HIGH), within)


def _at(ordered: Sequence[float], share: float) -> float:
    """Return a quantile of sorted values, interpolated between the two nearest values.

    Args:
        share: which quantile, from 0 to 1.
    """
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    return low if low == high else low + (high - low) * (place - below)


def log_time(seconds: float) -> float:
    """Convert a wait in seconds to log time, log(1 + minutes), in which errors are compared."""
    return math.log1p(max(0.0, seconds) / UNIT)


def shifted(seconds: float, by: float) -> float:
    """Return a wait in seconds, lengthened in log time; at least 0.

    Args:
        seconds: the wait.
        by: by how much `log_time` of the wait grows; negative to shorten it.
    """
    return max(0.0, math.expm1(log_time(seconds) + by) * UNIT)


def loss_90(p90: float, waited: float) -> float:
    """Return how bad a forecast P90 was for the real wait: the quantile loss, in log time (log(1 + minutes)).

    A wait that is longer than P90 costs nine times as much as one that is shorter by the same log time.

    Args:
        p90: the forecast, in seconds.
        waited: the real wait, in seconds.
    """
    beyond = log_time(waited) - log_time(p90)
    return max(HIGH * beyond, (HIGH - 1) * beyond)


def widened(simulated: Interval, by: float) -> Interval:
    """Return the interval with P10 lowered and P90 raised.

    Args:
        simulated: the interval as simulated.
        by: the change of each, as a difference of `log_time`.
    """
    return replace(simulated, p10=shifted(simulated.p10, -by), p90=shifted(simulated.p90, by))


def with_first(shown: Interval, first: float, waited: float = 0.0) -> Interval:
    """Correct the median of a ticket's likely wait by the time that the first ticket in line has waited.

    The waits of the tickets in one line are alike. So the new median is the weighted mean of the forecast median and
    the first ticket's wait, in log time (log(1 + minutes)). If the ticket has just joined, both have the same weight.
    The longer the ticket has waited, the less the first ticket's wait counts. If the ticket has waited as long as the
    first ticket, nothing is changed.

    Args:
        shown: the interval before the correction.
        first: seconds that the first ticket in line has waited.
        waited: seconds that the ticket itself has waited.
    """
    if not 0.0 <= waited < first:
        return shown
    share = (1 - waited / first) / 2
    p50 = math.expm1((1 - share) * log_time(shown.p50) + share * log_time(first - waited)) * UNIT
    return replace(shown, p10=min(shown.p10, p50), p50=p50, p90=max(shown.p90, p50))


def limited(shown: Interval, at_most: float | None, limit_is_p90: bool = False) -> Interval:
    """Return the interval cut at the longest wait that enforced limits allow.

    Args:
        shown: the interval before it is cut.
        at_most: that longest wait in seconds. None without a limit.
        limit_is_p90: whether to show the limit as P90.
    """
    if at_most is None:
        return shown
    p50 = min(shown.p50, at_most)
    return replace(shown, p10=min(shown.p10, p50), p50=p50, p90=at_most if limit_is_p90 else min(shown.p90, at_most))
