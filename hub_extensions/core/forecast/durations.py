"""Draw how long a server holds its GPU from finished uses, given the user, the offer and the time held so far.

The draw is a mixture of sources: the user's last two uses, the user's recent uses of this offer or of any, uses of the
same burst, the pool's recent uses of this offer, and the whole pool (Kaplan-Meier, which includes running uses). The
weight of each source follows from how well it predicted earlier uses. Times are seconds; a draw is an array's column.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from hub_extensions.core.forecast.curves import Curve, FloatArray, PastUse, PoolCurves

Seed = int | Sequence[int]

OF_A_USER = 40
"""Number of a user's finished uses, each weighted by exp(-rank / 10) (the reference algorithm)."""
RANKS = 10.0
OF_THE_POOL = 1000
"""Number of a pool's finished uses (the reference algorithm)."""
OF_THE_CURVE = 4000
"""The same for a simulation by the pool's curve alone, which shows the long run."""
OF_AN_OFFER = 50
"""Number of the pool's last uses of one offer, as in the field's "median of the last 50"."""
SIBLINGS = 8
"""Number of lives drawn before for servers of the same user that are considered (the reference algorithm)."""
FADING = tuple(float(weight) for weight in np.exp(-np.arange(OF_A_USER + SIBLINGS) / RANKS))
"""The weight of each rank."""
BURST_SECONDS = 3600.0
"""Uses that one user asked for within an hour of each other are of one burst."""
COPY = 0.08
"""Relative deviation of a repeated life (the reference algorithm)."""
FORGET = 1 / 200
"""Rate at which the weights of the sources follow finished uses: about the last 200 count."""
TOLERANCE = 0.3
"""A length that is 30 % off counts half as much as an equal one."""
SHORTEST = 1.0

SOURCES = LAST_TWO, OFFER, USER, BURST, POOL_OFFER, POOL = range(6)
LATELY = 200
"""Number of the pool's uses with which its prediction of a finished use is judged."""
PEOPLE = 3
"""With a lower effective number of people, user names are ignored."""
KNOWN = (3, 10)
"""Numbers of finished uses at which a user gets into the next class, which has its own weights of the sources."""


@dataclass(frozen=True, slots=True)
class Left:
    """The announced end of a server, from a progress report or a cull countdown.

    Attributes:
        seconds: from now to the end.
        spread: relative deviation; 0 if the end is exact.
    """

    seconds: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class UseHolder:
    """A use that has not ended.

    Attributes:
        asked: when it was asked for.
        age: seconds since it began. None if it still waits.
        limit: maximum duration. None if no limit is enforced.
        left: its announced end. None if there is none.
    """

    user: str
    offer: Hashable
    asked: float
    age: float | None = None
    limit: float | None = None
    left: Left | None = None


class DurationHistory:
    """The finished uses of one pool, of which a fixed number is kept, and the weights of the sources."""

    def __init__(self, uses: Iterable[PastUse] = ()) -> None:
        self.finished = 0
        self._users: dict[str, deque[PastUse]] = {}
        self._counts: Counter[str] = Counter()
        self._squares = 0
        self._offers: dict[Hashable, deque[PastUse]] = {}
        self._pool: deque[PastUse] = deque(maxlen=OF_THE_CURVE)
        self._trust: defaultdict[int, FloatArray] = defaultdict(lambda: np.full(len(SOURCES), 1 / len(SOURCES)))
        for use in uses:
            self.add(use)

    def add(self, use: PastUse) -> None:
        """Record a finished use: increase the weights of the sources that predicted it, and add it to the history."""
        self._learn(use)
        self.finished += 1
        self._squares += 2 * self._counts[use.user] + 1
        self._counts[use.user] += 1
        self._users.setdefault(use.user, deque(maxlen=OF_A_USER)).appendleft(use)
        self._offers.setdefault(use.offer, deque(maxlen=OF_AN_OFFER)).appendleft(use)
        self._pool.appendleft(use)

    @property
    def distinguishes_people(self) -> bool:
        """Whether users are told apart: by the effective number of people (the inverse Simpson index, 1949)."""
        return self.finished**2 >= PEOPLE * self._squares

    def trust(self, user: str) -> FloatArray:
        """Return the weights of the sources for a user with as many finished uses."""
        return self._trust[self._class(user)]

    def of(self, user: str) -> Sequence[PastUse]:
        """Return a user's finished uses, the latest first."""
        return tuple(self._users.get(user, ()))

    def of_offer(self, offer: Hashable) -> Sequence[PastUse]:
        """Return the pool's last uses of an offer, the latest first."""
        return tuple(self._offers.get(offer, ()))

    def pool(self, most: int = OF_THE_POOL) -> Sequence[PastUse]:
        """Return the pool's last uses, the latest first."""
        return tuple(islice(self._pool, most))

    def _class(self, user: str) -> int:
        return bisect_right(KNOWN, len(self._users.get(user, ())))

    def _learn(self, use: PastUse) -> None:
        """Update the weights of the sources that had data, by one step of expectation maximisation."""
        own, same = self._users.get(use.user, ()), self._offers.get(use.offer, ())
        weights = profiles(use.offer, use.asked, [(u.offer, u.asked) for u in own], [True] * len(own))
        hits, there = np.zeros(len(SOURCES)), np.zeros(len(SOURCES), dtype=bool)
        if own:
            near = self._near(own, use)
            hits[:4], there[:4] = weights @ near, weights.sum(axis=1) > 0
        if same:
            hits[POOL_OFFER], there[POOL_OFFER] = self._near(same, use).mean(), True
        if self._pool:
            recent = tuple(islice(self._pool, LATELY))
            hits[POOL], there[POOL] = self._near(recent, use).mean(), True
        trust = self._trust[self._class(use.user)]
        believed = np.where(there, trust, 0.0)
        found = believed * (hits + 1e-3)
        believed_share = believed.sum()
        step = max(FORGET, 1 / (self.finished + 20))
        trust[there] += step * (found[there] / found.sum() * believed_share - trust[there])

    @staticmethod
    def _near(uses: Iterable[PastUse], use: PastUse) -> FloatArray:
        """Return how near each use was: 1 for an equal length, 1/2 for one that is `TOLERANCE` off.

        Two uses that were ended by their limits count as equally long.
        """
        lasted = np.log(np.array([use.lasted if u.at_limit and use.at_limit else u.lasted for u in uses]) + SHORTEST)
        off = (lasted - np.log(use.lasted + SHORTEST)) / np.log1p(TOLERANCE)
        near: FloatArray = 1 / (1 + off * off)
        return near


def profiles(offer: Hashable, asked: float, own: Sequence[tuple[Hashable, float]], over: Sequence[bool]) -> FloatArray:
    """Return the weights of one user's uses for each of the user's four sources; a row adds up to 1, or is 0.

    Args:
        own: offer and time of asking of each use, in any order; the latest counts most.
        over: whether each has ended. Only ended uses count as the last two, because a drawn life must not be one of
            the last two for the next draw.
    """
    order = sorted(range(len(own)), key=lambda at: -own[at][1])
    rows = [[0.0] * len(own) for _ in range(4)]
    alike = ended = 0
    for rank, at in enumerate(order):
        kind, when = own[at]
        weight = FADING[rank]
        rows[USER][at] = weight
        if over[at] and ended < 2:
            ended += 1
            rows[LAST_TWO][at] = 1.0
        if kind == offer:
            rows[OFFER][at] = FADING[alike]
            alike += 1
            if abs(asked - when) <= BURST_SECONDS:
                rows[BURST][at] = weight
    found = np.array(rows)
    sums = found.sum(axis=1, keepdims=True)
    shares: FloatArray = np.divide(found, sums, out=np.zeros_like(found), where=sums > 0)
    return shares


class Draws:
    """Draws `count` lives for each server in a pool and its line, in the order in which they were asked for.

    A drawn life counts as the latest use of its user for the next draw, so servers of one burst end alike.

    Args:
        by_curve: draw all lives from the curves of the offers, without regard to users.
    """

    def __init__(
        self,
        history: DurationHistory,
        holders: Sequence[UseHolder],
        count: int,
        seed: Seed,
        by_curve: bool = False,
    ) -> None:
        self._history = history
        self._by_curve = by_curve
        self._count = count
        self._random = np.random.default_rng(seed)
        self._drawn: dict[str, list[tuple[Hashable, float, FloatArray]]] = {}
        self._known: dict[Hashable, tuple[FloatArray, NDArray[np.bool_]]] = {}
        self._limited: dict[tuple[Hashable, float], FloatArray] = {}
        running = [(holder.offer, holder.age) for holder in holders if holder.age is not None]
        self._curves = PoolCurves(history.pool(OF_THE_CURVE if by_curve else OF_THE_POOL), running)

    def life(self, holder: UseHolder) -> FloatArray:
        """Return the whole duration of a use in each draw, between its age and its limit.

        A use that is predicted to reach its limit ends exactly there; other lives vary around the life they repeat.
        """
        age = holder.age or 0.0
        predicted: FloatArray
        if holder.left is not None:
            spread = self._random.standard_normal(self._count) * holder.left.spread
            left = max(holder.left.seconds, 0.0)
            predicted, lives = np.full(self._count, age + left), age + left * np.exp(spread)
        else:
            predicted = self._picked(holder, age)
            lives = predicted * np.exp(COPY * self._random.standard_normal(self._count))
            lives = np.maximum(lives, age + SHORTEST if holder.age is not None else SHORTEST)
        if holder.limit is not None:
            lives = _up_to_limit(predicted, lives, holder.limit, age)
        if self._by_curve:
            return lives
        siblings = self._drawn.setdefault(holder.user, [])
        siblings.insert(0, (holder.offer, holder.asked, lives))
        del siblings[SIBLINGS:]
        return lives

    def lives(self, holders: Sequence[UseHolder]) -> list[FloatArray]:
        """Return the durations of many uses, in this order. Draws by the curve alone are made at once."""
        alike = [self._is_of_the_curve(each) for each in holders]
        alone = [None if together else self.life(each) for each, together in zip(holders, alike, strict=True)]
        some = [each for each, together in zip(holders, alike, strict=True) if together]
        drawn = iter(self._many_of_the_curve(some) if some else ())
        return [next(drawn) if each is None else each for each in alone]

    def _curve(self, holder: UseHolder) -> Curve:
        return self._curves.of(holder.offer) if self._by_curve else self._curves.whole

    def _is_of_the_curve(self, holder: UseHolder) -> bool:
        return self._by_curve and holder.left is None and self._curve(holder).beyond(holder.age or 0.0) > 0

    def _many_of_the_curve(self, holders: Sequence[UseHolder]) -> FloatArray:
        drawn = np.array([(self._even(), self._random.standard_normal(self._count)) for _ in holders])
        ages = np.array([each.age or 0.0 for each in holders])[:, None]
        limits = np.array([np.inf if each.limit is None else each.limit for each in holders])[:, None]
        waits = np.array([each.age is None for each in holders])[:, None]
        lives = np.empty_like(drawn[:, 0])
        of_offer: dict[Hashable, list[int]] = {}
        for row, each in enumerate(holders):
            of_offer.setdefault(each.offer, []).append(row)
        for offer, rows in of_offer.items():
            lives[rows] = self._curves.of(offer).lives(drawn[rows, 0], ages[rows])
        predicted = lives
        lives = np.maximum(lives * np.exp(COPY * drawn[:, 1]), np.where(waits, SHORTEST, ages + SHORTEST))
        return _up_to_limit(predicted, lives, limits, ages)

    def _picked(self, holder: UseHolder, age: float) -> FloatArray:
        """Pick one past life for each draw, longer than the use has lasted."""
        if self._by_curve:
            return (
                self._of_the_curve(self._even(), holder) if self._curve(holder).beyond(age) > 0 else self._beyond(age)
            )
        history, limit = self._history, holder.limit
        siblings = self._drawn.get(holder.user, [])
        own, same = history.of(holder.user), history.of_offer(holder.offer)
        looked = [(o, asked) for o, asked, _ in siblings] + [(u.offer, u.asked) for u in own]
        trust = history.trust(holder.user)
        over = [False] * len(siblings) + [True] * len(own)
        weights = trust[:4] @ profiles(holder.offer, holder.asked, looked, over)
        of_same = np.full(len(same), trust[POOL_OFFER]) / len(same)
        lives = np.concatenate(
            (self._lives(("user", holder.user), own, limit), self._lives(("offer", holder.offer), same, limit))
        )
        sure = (np.concatenate((weights[len(siblings) :], of_same)) * (lives > age)).cumsum()
        of_curve = trust[POOL] * self._curve(holder).beyond(age) if limit is None or age < limit else 0.0
        total = (sure[-1] if len(sure) else 0.0) + of_curve
        drawn = self._even()
        if not siblings:
            return self._from(lives, sure, drawn * total, total, holder)
        of_siblings = np.array([each for _, _, each in siblings])
        steps = ((of_siblings > age) * weights[: len(siblings), None]).cumsum(axis=0)
        point = drawn * (steps[-1] + total)
        chosen = np.minimum((steps <= point).sum(axis=0), len(siblings) - 1)
        copied = of_siblings[chosen, np.arange(self._count)]
        others = self._from(lives, sure, np.maximum(point - steps[-1], 0.0), total, holder)
        picked: FloatArray = np.where(point < steps[-1], copied, others)
        return picked

    def _from(
        self, lives: FloatArray, sure: FloatArray, points: FloatArray, total: float, holder: UseHolder
    ) -> FloatArray:
        """Return the life at each point up to `total`: first these, up to the last of `sure`, then the curve's."""
        if not total > 0:
            return self._beyond(holder.age or 0.0)
        known = sure[-1] if len(sure) else 0.0
        if not total > known:
            return lives[np.minimum(sure.searchsorted(points, side="right"), len(lives) - 1)]
        by_curve = self._of_the_curve(np.maximum(points - known, 0.0) / (total - known), holder)
        if not known > 0:
            return by_curve
        found: FloatArray = np.where(
            points < known, lives[np.minimum(sure.searchsorted(points, side="right"), len(lives) - 1)], by_curve
        )
        return found

    def _of_the_curve(self, points: FloatArray, holder: UseHolder) -> FloatArray:
        return _clipped(self._curve(holder).lives(points, holder.age or 0.0), holder.limit)

    def _even(self) -> FloatArray:
        """Return a number from 0 to 1 for each world, one in each `count`-th part (Latin hypercube, McKay et al. 1979).

        With it a few worlds cover the whole range of each life, whatever the seed is.
        """
        parts: FloatArray = self._random.permutation(self._count) + self._random.random(self._count)
        return parts / self._count

    def _lives(self, whose: Hashable, uses: Sequence[PastUse], limit: float | None) -> FloatArray:
        """Return the lives for a use with this limit: uses that reached their own limit reach this one."""
        known = self._known.get(whose)
        if known is None:
            lasted = np.array([use.lasted for use in uses], dtype=np.float64)
            known = self._known[whose] = lasted, np.array([use.at_limit for use in uses], dtype=np.bool_)
        if limit is None:
            return known[0]
        if (whose, limit) not in self._limited:
            self._limited[whose, limit] = np.where(known[1], limit, np.minimum(known[0], limit))
        return self._limited[whose, limit]

    def _beyond(self, age: float) -> FloatArray:
        """Return lives for a use that is older than all known ones: about twice its age (median of a power-1 tail)."""
        return max(age, 60.0) / np.maximum(self._random.random(self._count), 0.02)


def _up_to_limit(
    predicted: FloatArray, lives: FloatArray, limit: float | FloatArray, age: float | FloatArray
) -> FloatArray:
    """Return the lives cut at the limit; a use that is predicted to reach the limit ends exactly there."""
    ends = np.maximum(limit, age)
    found: FloatArray = np.where(predicted >= limit, ends, np.minimum(lives, ends))
    return found


def _clipped(lives: FloatArray, limit: float | None) -> FloatArray:
    return lives if limit is None else np.minimum(lives, limit)
