"""Correct the next forecast of a pool by the errors of earlier ones, counted by busy episode.

A busy episode lasts from the first ticket that waits until the line is empty. The waits of one episode are alike, so
each episode counts once, however many tickets it had. Times are seconds, errors are in log time.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Collection, Iterable
from dataclasses import dataclass, field, replace

from hub_extensions.core.forecast.interval import HIGH, Interval, limited, log_time, loss_90, widened, with_first

EPISODES = 50
"""Busy episodes that are remembered."""
IN_ONE = 1000
"""Tickets of one episode that are remembered, the last ones."""
FEWEST_EPISODES = 8
"""Minimum number of busy episodes for a forecast that is not rough, and for showing the limit as P90."""
MOST_SHIFT = 2.5


@dataclass(frozen=True, slots=True)
class Rules:
    """The constants, which were chosen by leaving out one log after the other.

    Attributes:
        shift: what a simulated P90 lacks before anything is known.
        shift_counts: as how many busy episodes that counts.
        least_shift: P90 is moved up by at least this.
        batches: the wait of the first in line counts after so many batches of waits, of which no two share a moment.
        limit_after: the limit may be shown as P90 after so many busy episodes.
    """

    shift: float = 0.2
    shift_counts: int = 20
    least_shift: float = 0.1
    batches: int = 2
    limit_after: int = FEWEST_EPISODES


RULES = Rules()


@dataclass(frozen=True, slots=True)
class Lessons:
    """The corrections of a forecast that follow from earlier ones.

    Attributes:
        shift: log time by which P90 is moved up and P10 down.
        limit_is_p90: where a limit is enforced, it is the P90.
        first_until: the wait of the first in line counts if it joined before this moment; later the line was empty.
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
        """Return the interval to show.

        Args:
            at_most: the limit that is enforced, if any.
            first_joined: when the first in line joined. None if nobody is ahead.
            now: by the same clock.
            waited: seconds that this ticket has waited.
        """
        found = widened(simulated, self.shift)
        if first_joined is not None and first_joined < self.first_until:
            found = with_first(found, now - first_joined, waited)
        return limited(found, at_most, self.limit_is_p90)


@dataclass(slots=True)
class _Mean:
    """A running mean."""

    total: float = 0.0
    count: int = 0

    def add(self, value: float) -> None:
        self.total, self.count = self.total + value, self.count + 1

    @property
    def value(self) -> float:
        return self.total / self.count


@dataclass(slots=True)
class _Episode:
    """One busy episode.

    Attributes:
        began: when its first ticket joined.
        errors: of each wait, how far it was beyond the simulated P90.
        limit: of the waits with a limit, by how much the limit was the better P90.
    """

    began: float
    errors: deque[float] = field(default_factory=lambda: deque(maxlen=IN_ONE))
    limit: _Mean = field(default_factory=_Mean)


@dataclass(slots=True)
class _Batch:
    """Waits that share a moment with the first of them; by how much the first in line was the better guide."""

    joined: float
    ended: float
    gain: _Mean = field(default_factory=_Mean)


class BusyEpisodes:
    """The record of one pool's forecasts."""

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
        """Record a wait that is over.

        Args:
            simulated: the simulated interval at the join.
            at_most: the upper bound at the join, if any.
            joined: time of the join by any clock. Infinite if not known; all such waits belong to one episode.
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
        """Return the corrections for the next forecast."""
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
    """Whether a ticket found an empty line; `until`, `began`: the end of the last wait, the start of the last episode.

    A wait of no length that is reported twice is one.
    """
    return joined >= until and joined > began


def weighted(episodes: Iterable[Collection[float]]) -> list[tuple[float, float]]:
    """Return the errors of all episodes, the smallest first, each with its weight; an episode's add up to 1."""
    return sorted((error, 1 / len(errors)) for errors in episodes for error in errors)


def shift_of(errors: Iterable[tuple[float, float]], count: int, rules: Rules = RULES) -> float:
    """Return how far P90 is moved: what is known beforehand, and the 0.9 quantile of the errors by their weights.

    Args:
        errors: how far waits were beyond the simulated P90, as `weighted` returns them. count: episodes.
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
