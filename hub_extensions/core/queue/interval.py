"""Worlds become an interval, and the interval learns from what came true.

A played P90 covers too little: lives in a burst are alike, and habits drift. Of the last forecasts that came true the
error in log time is kept; its quantile moves the next P10 and P90 (online conformal prediction). Who waits longer than
he was told already is an error that is known before it is over. Where most uses last to their limit the limit itself
foretells best: it is told where it did lately (following the better of two experts). Pure. Times are seconds.
"""

from __future__ import annotations

import math
from collections import deque
from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace

MATURED = 150
"""Forecasts that came true which the correction looks at (the reference algorithm)."""
FEWEST_MATURED = 20
"""With fewer nothing is corrected: a 0.9 quantile of less than 20 is a guess."""
CLIP = 2.5
"""The correction in log time at most (the reference algorithm)."""
UNIT = 60.0
"""log1p of minutes: an error of seconds is none."""
LOW, HIGH = 0.1, 0.9
SOON = (900.0, 3600.0, 14400.0)
"""Started within 15 min, 1 h, 4 h."""


@dataclass(frozen=True, slots=True)
class Interval:
    """Seconds from now; `within`: the probability to start within each of `SOON`."""

    p10: float
    p50: float
    p90: float
    within: tuple[float, ...] = ()


def read(starts: Iterable[float]) -> Interval | None:
    """The quantiles of the worlds; None where too many of them never start."""
    ordered = sorted(starts)
    count = len(ordered)
    if not count or math.isinf(_at(ordered, HIGH)):
        return None
    within = tuple(sum(1 for start in ordered if start <= soon) / count for soon in SOON)
    return Interval(_at(ordered, LOW), _at(ordered, 0.5), _at(ordered, HIGH), within)


def _at(ordered: Sequence[float], share: float) -> float:
    """Between the two nearest ranks."""
    place = share * (len(ordered) - 1)
    below = int(place)
    above = min(below + 1, len(ordered) - 1)
    low, high = ordered[below], ordered[above]
    return low if low == high else low + (high - low) * (place - below)


class Correction:
    """What came true of one pool's forecasts, the last of them."""

    def __init__(self) -> None:
        self._errors: deque[tuple[float, float]] = deque(maxlen=MATURED)
        self._worse: deque[float] = deque(maxlen=MATURED)

    def matured(self, shown: Interval, waited: float, at_most: float | None = None) -> None:
        """A forecast came true: what was played, before any correction, the real wait, and what was enforced."""
        if at_most is not None:
            own = corrected(shown, self.moves(), at_most)
            self._worse.append(_loss(waited, own.p90) - _loss(waited, at_most))
        self._errors.append(self._error(shown, waited))

    @property
    def by_limit(self) -> bool:
        """Whether what is enforced was a better P90 than the played one, of those that came true with a limit."""
        return len(self._worse) >= FEWEST_MATURED and sum(self._worse) > 0

    @staticmethod
    def _error(shown: Interval, waited: float) -> tuple[float, float]:
        return _log(waited) - _log(shown.p10), _log(waited) - _log(shown.p90)

    def correct(
        self, played: Interval, waiting: Iterable[tuple[Interval, float]] = (), at_most: float | None = None
    ) -> Interval:
        """The interval that is told: see `moves` and `corrected`."""
        return corrected(played, self.moves(waiting), at_most, self.by_limit)

    def moves(self, waiting: Iterable[tuple[Interval, float]] = ()) -> tuple[float, float] | None:
        """By how much P10 and P90 are moved now, in log time: the same for everybody. None: too little came true yet.

        Args:
            waiting: of those who still wait, what was played for them and how long they have waited.
        """
        if len(self._errors) < FEWEST_MATURED:
            return None
        lows, highs = sorted(-e for e, _ in self._errors), sorted(e for _, e in self._errors)
        usual = _rank(highs, HIGH)
        late = [error for shown, waited in waiting if (error := self._error(shown, waited)[1]) > usual]
        return -_rank(lows, HIGH), _rank(sorted([*highs, *late]), HIGH)


def corrected(
    played: Interval,
    moves: tuple[float, float] | None,
    at_most: float | None = None,
    by_limit: bool = False,
) -> Interval:
    """The interval that is told.

    Args:
        moves: as `Correction.moves` says. at_most: what is enforced; nothing goes beyond.
        by_limit: as `Correction.by_limit` says.
    """
    p10, p90 = played.p10, played.p90
    if moves is not None:
        p10, p90 = _moved(p10, moves[0]), _moved(p90, moves[1])
    return limited(Interval(p10, played.p50, max(p90, played.p50), played.within), at_most, by_limit)


def limited(shown: Interval, at_most: float | None, by_limit: bool) -> Interval:
    """Nothing goes beyond what is enforced, and where that was the better P90 lately, it is told itself."""
    if at_most is None:
        return replace(shown, p10=min(shown.p10, shown.p50))
    p50 = min(shown.p50, at_most)
    return Interval(min(shown.p10, p50), p50, at_most if by_limit else min(shown.p90, at_most), shown.within)


def _loss(waited: float, shown: float) -> float:
    """The pinball loss of a P90."""
    return max(HIGH * (waited - shown), (1 - HIGH) * (shown - waited))


def _rank(ordered: Sequence[float], share: float) -> float:
    """The quantile that conformal prediction asks for: one of n+1 is the next."""
    return ordered[math.ceil(share * (len(ordered) + 1)) - 1]


def _log(seconds: float) -> float:
    return math.log1p(max(0.0, seconds) / UNIT)


def _moved(seconds: float, by: float) -> float:
    return max(0.0, math.expm1(_log(seconds) + max(-CLIP, min(CLIP, by))) * UNIT)
