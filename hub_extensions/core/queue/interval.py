"""Worlds become an interval, and the interval learns from what came true.

A played P90 covers too little: lives in a burst are alike, and habits drift. Of the last forecasts that came true the
error in log time is kept, and moves the next (online conformal prediction): those of waits of about this length count
most (localized: Guan 2023), and the play as it is counts as the fewest of them that are believed. Waits at the same
time err alike: as long as few came true one after the other, the play counts as off by the tolerance, to either side.
Where most uses last to their limit the limit itself foretells best. So the median is the mean of the play, the moved
play and the limit, each by how well it foretold lately (exponential weights: Cesa-Bianchi and Lugosi 2006), and P90 is
that of a wait that is at the limit as often as the limit is believed. How long the first in line has waited foretells
the wait of who joins, too (Ibrahim and Whitt 2009): where that was surely the better P90, it is told, and where a mean
with it was surely the better median, that. Pure. Times are seconds.
"""

from __future__ import annotations

import math
from bisect import bisect_right
from collections import deque
from collections.abc import Collection, Iterable, Sequence
from dataclasses import dataclass, field, replace
from operator import mul

MATURED = 150
"""Forecasts that came true which the correction looks at (the reference algorithm)."""
FEWEST_MATURED = 20
"""With fewer nothing is corrected: a 0.9 quantile of less than 20 is a guess."""
TOLERANCE = 0.3
"""A forecast that is 30 % off is still near (the tolerance of the protocol)."""
ALIKE = math.log(2)
"""Of twice or half the length a wait counts half as much as one of this length, and less the farther it is off."""
GRID = ALIKE / 2
"""Moves are reckoned for such steps of length, and lie between two of them on a line."""
CLIP = 2.5
"""The correction in log time at most (the reference algorithm)."""
UNIT = 60.0
"""log1p of minutes: an error of seconds is none."""
LOW, HIGH = 0.1, 0.9
SURE = 1.645
"""So many standard errors better is better by more than chance: 95 % of a normal distribution lie below."""
LONGEST_QUEUE = 1000
"""Waits among which the first in line is looked for: as many as are played."""
SOON = (900.0, 3600.0, 14400.0)
"""Started within 15 min, 1 h, 4 h."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Seconds from now; `within`: the probability to start within each of `SOON`."""

    p10: float
    p50: float
    p90: float
    within: tuple[float, ...] = ()


def read(starts: Iterable[float], others: Iterable[float] = ()) -> Interval | None:
    """The quantiles of the worlds; None where too many of them never start.

    Args:
        others: worlds that were played otherwise; the median is of both.
    """
    ordered = sorted(starts)
    other = sorted(others)
    count = len(ordered)
    if not count or math.isinf(_at(ordered, HIGH)) or (other and math.isinf(_at(other, HIGH))):
        return None
    within = tuple(bisect_right(ordered, soon) / count for soon in SOON)
    low, high = _at(ordered, LOW), _at(ordered, HIGH)
    middle = _at(sorted([*ordered, *other]), 0.5)
    return Interval(min(low, middle), middle, max(high, middle), within)


def _at(ordered: Sequence[float], share: float) -> float:
    """Between the two nearest ranks."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    return low if low == high else low + (high - low) * (place - below)


@dataclass(frozen=True, slots=True)
class Trust:
    """How far others than the play are believed.

    Attributes:
        moved: the share of the moved play in the median, the play itself has the rest.
        limit: the share of what is enforced in the median, before that.
        first: P90 is told by how long the first in line has waited.
    """

    moved: float = 0.0
    limit: float = 0.0
    first: bool = False

    @property
    def by_limit(self) -> bool:
        """What is enforced is told as P90: of all that is believed more than a tenth lies there."""
        return self.limit > 1 - HIGH and not self.first

    @property
    def share(self) -> float:
        """The quantile of the play that is P90 of all that is believed: what lies at the limit lies beyond the play."""
        return HIGH if self.by_limit else min(1.0, HIGH / (1 - self.limit))


PLAY_ALONE = Trust()

_Error = tuple[float, float]
"""How far a quantile was off, and how long it was, both in log time."""


@dataclass(slots=True)
class _Local:
    """By how much one quantile is moved, by its length: see `at`.

    Attributes:
        beyond: one more that is the worst of all (what conformal prediction asks for).
        unsure: of the errors that are added so many are off by `TOLERANCE`, half to either side; the rest are none.
    """

    errors: Sequence[_Error]
    share: float
    beyond: bool
    unsure: int = 0
    _known: dict[int, float] = field(default_factory=dict)

    def at(self, length: float) -> float:
        """For a quantile of this length, in log time."""
        step = int(length / GRID)
        over = length / GRID - step
        return (1 - over) * self._on_grid(step) + over * self._on_grid(step + 1)

    def _on_grid(self, step: int) -> float:
        if step not in self._known:
            self._known[step] = self._quantile(step * GRID)
        return self._known[step]

    def _quantile(self, length: float) -> float:
        weighted = [(off, 1 / (1 + ((long - length) / ALIKE) ** 2)) for off, long in self.errors]
        weighted.append((0.0, float(FEWEST_MATURED - self.unsure)))
        weighted += [(off, self.unsure / 2) for off in (math.log1p(TOLERANCE), -math.log1p(TOLERANCE))]
        if self.beyond:
            weighted.append((CLIP, 1.0))
        weighted.sort()
        left = self.share * sum(weight for _, weight in weighted)
        for off, weight in weighted:
            left -= weight
            if left <= 0:
                return off
        return weighted[-1][0]


@dataclass(frozen=True, slots=True)
class Moves:
    """By how much each quantile is moved now, in log time: P10 alike for everybody, the others by their length."""

    p10: float
    _p50: _Local
    _p90: _Local

    def moved(self, played: Interval) -> Interval:
        """All of it, each by itself."""
        p50, p90 = (_moved(old, by.at(_log(old))) for old, by in ((played.p50, self._p50), (played.p90, self._p90)))
        return Interval(_moved(played.p10, self.p10), p50, p90, played.within)


@dataclass(frozen=True, slots=True)
class _True:
    """What was played, and how long the wait was. `came`: when it was over."""

    shown: Interval
    waited: float
    came: float = math.inf


class _HeadOfQueue:
    """How well the wait of the first in line foretold the waits of those who joined behind him."""

    def __init__(self) -> None:
        self._spans: deque[tuple[float, float]] = deque(maxlen=LONGEST_QUEUE)
        self._errors: deque[tuple[float, float]] = deque(maxlen=MATURED)
        self._better: deque[float] = deque(maxlen=MATURED)
        self._closer: deque[float] = deque(maxlen=MATURED)

    def matured(self, joined: float, waited: float, shown: Interval, at_most: float | None, trust: Trust) -> None:
        """A wait is over; `shown`: what was told by the play, but for what is enforced."""
        first = min((began for began, over in self._spans if began < joined < over), default=None)
        self._spans.append((joined, joined + waited))
        if first is None:
            return
        by_first = self._p90(joined - first, joined)
        self._errors.append((_log(waited) - _log(joined - first), joined + waited))
        both = (shown, with_first(shown, joined - first))
        told, other = (limited(each, at_most, trust) for each in both)
        if by_first is not None:
            self._better.append(_loss(told.p90, waited) - _loss(by_first, waited))
        self._closer.append(abs(_log(told.p50) - _log(waited)) - abs(_log(other.p50) - _log(waited)))

    def _p90(self, waits: float, known: float = math.inf) -> float | None:
        errors = sorted(off for off, came in self._errors if came <= known)
        return None if len(errors) < FEWEST_MATURED else _moved(waits, _rank(errors, HIGH))

    def p90(self, waits: float) -> float | None:
        """Of the whole wait of who joins behind one who waits so long; None: the play is not surely worse."""
        return self._p90(waits) if surely_better(self._better) else None

    @property
    def helps(self) -> bool:
        """The mean with it was surely the better median: the play does not know all that it knows."""
        return surely_better(self._closer)


def with_first(shown: Interval, first: float, waited: float = 0.0) -> Interval:
    """The median becomes the mean, in log time, with what the first in line has waited, less what one has waited.

    At the join both count alike (Bates and Granger 1969); the nearer one is to the first, the less his wait says.
    """
    if not 0.0 <= waited < first:
        return shown
    share = (1 - waited / first) / 2
    p50 = math.expm1((1 - share) * _log(shown.p50) + share * _log(first - waited)) * UNIT
    return replace(shown, p10=min(shown.p10, p50), p50=p50, p90=max(shown.p90, p50))


def surely_better(gains: Collection[float]) -> bool:
    """A mean gain above 0 by more than chance (Diebold and Mariano 1995), in the order in which they came.

    Waits of one time are alike, so neighbours prove less than strangers do (Newey and West 1987; as many neighbours
    count as the cube root of all says).
    """
    count = len(gains)
    if count < FEWEST_MATURED:
        return False
    mean = sum(gains) / count
    off = [each - mean for each in gains]
    lags = int(count ** (1 / 3))
    spread = sum(map(mul, off, off))
    for lag in range(1, lags + 1):
        spread += 2 * (1 - lag / (lags + 1)) * sum(map(mul, off, off[lag:]))
    return mean > SURE * math.sqrt(max(0.0, spread)) / count


def _loss(p90: float, waited: float) -> float:
    """Of a P90, in log time: what lies beyond it costs nine times as much as what is left of it."""
    beyond = _log(waited) - _log(p90)
    return max(HIGH * beyond, (HIGH - 1) * beyond)


class Correction:
    """What came true of one pool's forecasts, the last of them."""

    def __init__(self) -> None:
        self._true: deque[_True] = deque(maxlen=MATURED)
        self._medians: deque[tuple[float, float, float]] = deque(maxlen=MATURED)
        self._limits: deque[tuple[float, float, float]] = deque(maxlen=MATURED)
        self._apart, self._apart_until = 0, -math.inf
        self._first = _HeadOfQueue()

    def matured(self, shown: Interval, waited: float, at_most: float | None = None, joined: float = math.inf) -> None:
        """A forecast came true.

        Args:
            shown: what was played, before any correction. waited: the real wait. at_most: what was enforced.
            joined: when it was given, by any clock: moves are judged by what was known then. Infinite: by all.
        """
        trust = self.trust
        moves = self._moves([each for each in self._true if each.came <= joined], self._unsure, trust.share)
        moved = shown if moves is None else moves.moved(shown)
        most = math.inf if at_most is None else at_most
        said = (min(shown.p50, most), min(moved.p50, most), shown.p50 if at_most is None else at_most)
        play, other, limit = (abs(_log(waited) - _log(each)) for each in said)
        self._medians.append((play, other, limit))
        if at_most is not None:
            self._limits.append((play, other, limit))
        self._true.append(_True(shown, waited, joined + waited))
        if math.isfinite(joined):
            self._first.matured(joined, waited, corrected(shown, moves, None, trust), at_most, trust)
        if joined >= self._apart_until:  # it has no moment in common with those that are counted
            self._apart, self._apart_until = self._apart + 1, joined + waited

    @property
    def _unsure(self) -> int:
        return max(0, FEWEST_MATURED - self._apart)

    def p90_behind(self, waits: float) -> float | None:
        """P90 of the whole wait of who joins behind one who waits so long; None: the play tells it as well."""
        return self._first.p90(waits)

    @property
    def first_helps(self) -> bool:
        """The mean with what the first in line has waited was surely the better median: see `with_first`."""
        return self._first.helps

    @property
    def trust(self) -> Trust:
        """By how well the play, the moved play and what was enforced foretold those that came true."""
        if len(self._true) < FEWEST_MATURED:
            return PLAY_ALONE
        play, moved, _ = weights(self._medians)
        known = len(self._limits) >= FEWEST_MATURED
        return Trust(moved / (play + moved), weights(self._limits)[2] if known else 0.0)

    def correct(self, played: Interval, at_most: float | None = None) -> Interval:
        """The interval that is told: see `moves` and `corrected`."""
        return corrected(played, self.moves(), at_most, self.trust)

    def moves(self) -> Moves | None:
        """By how much it is moved now: the same for everybody. None: too little came true yet."""
        return self._moves(self._true, self._unsure, self.trust.share)

    @staticmethod
    def _moves(known: Collection[_True], unsure: int = 0, share: float = HIGH) -> Moves | None:
        if len(known) < FEWEST_MATURED:
            return None
        lows = sorted(_log(each.shown.p10) - _log(each.waited) for each in known)
        p50 = _Local(_errors_of(known, "p50"), 0.5, beyond=False)
        p90 = _Local(_errors_of(known, "p90"), share, beyond=True, unsure=unsure)
        return Moves(-_rank(lows, HIGH), p50, p90)


def _errors_of(forecasts: Iterable[_True], quantile: str) -> list[_Error]:
    found = ((_log(getattr(each.shown, quantile)), _log(each.waited)) for each in forecasts)
    return [(waited - length, length) for length, waited in found]


def weights(losses: Sequence[Sequence[float]]) -> list[float]:
    """Of some experts by their losses (at least one row): exponential, at the rate that the theory asks for."""
    count = len(losses[0])
    sums = [sum(each[at] for each in losses) for at in range(count)]
    worst = max(max(each) for each in losses)
    rate = math.sqrt(8 * math.log(count) / len(losses)) / worst if worst > 0 else 0.0
    found = [math.exp(-rate * (each - min(sums))) for each in sums]
    return [each / sum(found) for each in found]


def corrected(
    played: Interval, moves: Moves | None, at_most: float | None = None, trust: Trust = PLAY_ALONE
) -> Interval:
    """The interval that is told.

    Args:
        moves: as `Correction.moves` says. at_most: what is enforced; nothing goes beyond.
        trust: as `Correction.trust` says.
    """
    if moves is None:
        return limited(replace(played, p90=max(played.p90, played.p50)), at_most, trust)
    moved = moves.moved(played)
    p50 = (1 - trust.moved) * played.p50 + trust.moved * moved.p50
    shown = Interval(moved.p10, p50, max(moved.p90, played.p50, p50), played.within)
    return limited(shown, at_most, trust)


def limited(shown: Interval, at_most: float | None, trust: Trust = PLAY_ALONE) -> Interval:
    """Nothing goes beyond what is enforced; where that foretold well lately, it has its share."""
    if at_most is None:
        return replace(shown, p10=min(shown.p10, shown.p50), p90=max(shown.p90, shown.p50))
    p50 = min(at_most, (1 - trust.limit) * min(shown.p50, at_most) + trust.limit * at_most)  # else by a rounding more
    p90 = at_most if trust.by_limit else min(max(shown.p90, p50), at_most)
    return Interval(min(shown.p10, p50), p50, p90, shown.within)


def _rank(ordered: Sequence[float], share: float) -> float:
    """The quantile that conformal prediction asks for: one of n+1 is the next."""
    return ordered[math.ceil(share * (len(ordered) + 1)) - 1]


def _log(seconds: float) -> float:
    return math.log1p(max(0.0, seconds) / UNIT)


def _moved(seconds: float, by: float) -> float:
    return max(0.0, math.expm1(_log(seconds) + max(-CLIP, min(CLIP, by))) * UNIT)
