"""Correct the next forecast for a pool by the errors of earlier forecasts, counted by busy episode.

A busy episode lasts from the first ticket (a user's place in line) that waits until the line is empty. The waits of one
episode are alike, so each episode counts once, however many tickets it had. Times are seconds. Errors are in log time,
log(1 + minutes). P10 and P90 are the ends of the forecast interval: 10 % and 90 % of the waits should be shorter.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from hub_extensions.core.forecast.interval import HIGH, Interval, limited, log_time, loss_90, widened, with_first

EPISODES = 50
"""Number of busy episodes that are remembered."""
IN_ONE = 1000
"""Number of tickets of one episode that are remembered, the last ones."""
FEWEST_EPISODES = 8
"""Minimum number of busy episodes until forecasts are not marked as rough, and until a limit may be shown as P90."""
MOST_SHIFT = 2.5
"""Maximum by which P90 is moved up, in log time."""


@dataclass(frozen=True, slots=True)
class Rules:
    """The constants of the corrections, which were chosen by cross-validation over logs of several clusters.

    Log time is log(1 + minutes). A busy episode lasts from the first waiting ticket until the line is empty.

    Attributes:
        shift: log time by which a simulated P90 is assumed to be too low, as long as no wait is known.
        shift_counts: weight of that assumption, as a number of busy episodes.
        least_shift: the least log time by which P90 is raised.
        batches: number of batches of waits from which it can be learned whether the wait of the first ticket in line
            improves forecasts. Waits that overlap in time are one batch.
        limit_after: number of busy episodes after which the enforced limit may be shown as P90.
    """

    shift: float = 0.2
    shift_counts: int = 20
    least_shift: float = 0.1
    batches: int = 2
    limit_after: int = FEWEST_EPISODES


RULES = Rules()


@dataclass(frozen=True, slots=True)
class Lessons:
    """The corrections of a simulated forecast, learned from the errors of earlier forecasts.

    Attributes:
        shift: log time, log(1 + minutes), by which P90 is raised and P10 lowered.
        limit_is_p90: True if the enforced limit of a wait, where there is one, is shown as P90, because it was the
            better P90 so far.
        first_until: the wait of the first ticket in line corrects the median only if that ticket joined before this
            time, at which the last wait with a known end was over. Otherwise the line was empty in between, and a new
            busy episode has begun. Minus infinity means that the median is never corrected.
    """

    shift: float = RULES.shift
    limit_is_p90: bool = False
    first_until: float = -math.inf

    def shown(
        self,
        simulated: Interval,
        at_most: float | None,
        first_joined: float | None = None,
        now: float = 0.0,
        waited: float = 0.0,
    ) -> Interval:
        """Return the interval to show for a ticket: the simulated one with these corrections.

        Args:
            simulated: the interval as it was simulated.
            at_most: the longest wait that enforced limits allow. None without a limit.
            first_joined: when the first ticket in line joined. None if the ticket itself is the first, or the line is
                empty.
            now: the present time, by the clock of `first_joined`.
            waited: seconds that the ticket itself has waited.
        """
        found = widened(simulated, self.shift)
        if first_joined is not None and first_joined < self.first_until:
            found = with_first(found, now - first_joined, waited)
        return limited(found, at_most, self.limit_is_p90)


@dataclass(slots=True)
class _Mean:
    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total, self.count = self.total + value, self.count + 1

    @property
    def value(self) -> float:
        return self.total / self.count


@dataclass(slots=True)
class _Episode:
    """One busy episode (a time in which somebody waits): by how much its forecasts were wrong.

    Attributes:
        began: when its first ticket joined.
        errors: for each wait, log time, log(1 + minutes), by which it was longer than the simulated P90 (negative if
            shorter).
        limit: how much better the enforced limit would have been as P90 than the forecast P90: the quantile loss of
            the forecast minus that of the limit, as a mean over the waits with such a limit.
    """

    began: float
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=IN_ONE))
    limit: _Mean = field(default_factory=_Mean)


@dataclass(slots=True)
class _Batch:
    """A wait, together with other waits that overlap with it in time. They count as one observation.

    Attributes:
        joined, ended: beginning and end of the first of these waits.
        gain: by how much the error of the median would have been smaller if it had been corrected by the wait of the
            first ticket in line, in log time (log(1 + minutes)), as a mean over these waits.
    """

    joined: float
    ended: float
    gain: _Mean = field(default_factory=_Mean)


class BusyEpisodes:
    """The errors of the forecasts for one pool, grouped by busy episode, and the corrections that follow from them.

    A busy episode lasts from the first ticket that waits until the line is empty.
    """

    def __init__(self, rules: Rules = RULES) -> None:
        self._rules = rules
        self._episodes: deque[_Episode] = deque(maxlen=EPISODES)
        self._until = -math.inf
        self._closed: list[tuple[float, float]] = []
        self._spans: deque[tuple[float, float]] = deque(maxlen=IN_ONE)
        self._batches: list[_Batch] = []
        self._lessons: Lessons | None = Lessons(max(rules.least_shift, rules.shift))

    def matured(
        self, simulated: Interval, waited: float, at_most: float | None = None, joined: float = math.inf
    ) -> None:
        """Record a wait that is over because the server has started, together with its forecast.

        Args:
            simulated: the interval that was simulated when the ticket joined the line.
            waited: seconds that the ticket waited.
            at_most: the longest wait, in seconds, that enforced limits allowed when the ticket joined. None without a
                limit.
            joined: when the ticket joined, by any clock. Infinite if not known; all such waits count as one episode.
        """
        lessons, ended = self.lessons, joined + waited
        if is_new_episode(joined, self._until, self._episodes[-1].began if self._episodes else -math.inf):
            self._episodes.append(_Episode(joined))
            self._closed = weighted(each.errors for each in list(self._episodes)[:-1])
            self._spans.clear()
            self._batches = []
        episode = self._episodes[-1]
        episode.errors.append(log_time(waited) - log_time(simulated.p90))
        if at_most is not None:
            shown = replace(lessons, limit_is_p90=False).shown(simulated, at_most)
            gain = loss_90(shown.p90, waited) - loss_90(at_most, waited)
            episode.limit.add(max(-1.0, min(1.0, gain)))
        first = min((began for began, over in self._spans if began < joined < over), default=None)
        if first is not None:
            plain, both = (limited(each, at_most) for each in (simulated, with_first(simulated, joined - first)))
            if not self._batches or is_new_episode(joined, self._batches[-1].ended, self._batches[-1].joined):
                self._batches.append(_Batch(joined, ended))
            self._batches[-1].gain.add(_off(plain, waited) - _off(both, waited))
        self._spans.append((joined, ended))
        self._until = max(self._until, ended)
        self._lessons = None

    @property
    def lessons(self) -> Lessons:
        """The corrections for the next forecast that follow from the errors of earlier ones."""
        if self._lessons is None:
            rules, count = self._rules, len(self._batches)
            first_helps = count >= rules.batches and sum(each.gain.value for each in self._batches) > 0
            limits = [each.limit.value for each in self._episodes if each.limit.count]
            errors = sorted([*self._closed, *weighted([self._episodes[-1].errors])])
            self._lessons = Lessons(
                shift_of(errors, len(self._episodes), rules),
                len(limits) >= rules.limit_after and sum(limits) > 0,
                self._until if first_helps else -math.inf,
            )
        return self._lessons


def is_new_episode(joined: float, until: float, began: float) -> bool:
    """Return whether a ticket joined an empty line, so that a new busy episode begins.

    Args:
        joined: when the ticket joined.
        until: when the last of the earlier waits ended.
        began: when the last episode began. A ticket that joined at that very time belongs to the last episode.
    """
    return joined >= until and joined > began


def weighted(episodes: Iterable[Collection[float]]) -> list[tuple[float, float]]:
    """Return (error, weight) of the forecasts of all waits, the smallest error first.

    A busy episode is a time in which somebody waits. The weights of the waits of one episode add up to 1.

    Args:
        episodes: the errors of each busy episode.
    """
    return sorted((error, 1 / len(errors)) for errors in episodes for error in errors)


def shift_of(errors: Iterable[tuple[float, float]], count: int, rules: Rules = RULES) -> float:
    """Return by how much a simulated P90 is raised, in log time (log(1 + minutes)).

    It is the weighted mean of the initial assumption (`Rules.shift`) and of the 0.9 quantile of the errors.

    Args:
        errors: (error, weight) as `weighted` returns them. An error is how much longer a wait was than its simulated
            P90.
        count: number of busy episodes (times in which somebody waited).
        rules: the constants.
    """
    left, quantile = HIGH * count, 0.0
    for error, weight in errors:
        if left <= 1e-9:  # the weights of one episode add up to 1 but for rounding
            break
        left, quantile = left - weight, error
    shift = (rules.shift_counts * rules.shift + count * quantile) / (rules.shift_counts + count)
    return max(rules.least_shift, min(MOST_SHIFT, shift))


def _off(shown: Interval, waited: float) -> float:
    return abs(log_time(shown.p50) - log_time(waited))
