"""Draw how long a server holds its GPU from finished uses, given the user, the offer and the time held so far.

The draw is a mixture of sources: the user's last two uses, the user's recent uses of this offer or of any, uses of the
same burst, the pool's recent uses of this offer, and the whole pool (Kaplan-Meier, which includes running uses). The
weight of each source follows from how well it predicted earlier uses. Times are seconds; a draw is an array's column.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Callable, Collection, Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np

from hub_extensions.core.forecast.curves import Curve, Flags, FloatArray, PastUse, Places, PoolCurves

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
FADING: FloatArray = np.exp(-np.arange(OF_A_USER + SIBLINGS) / RANKS)
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
ONLY_POOL: FloatArray = np.eye(len(SOURCES))[POOL]
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
        left: its announced end. None if the end is not announced.
    """

    user: str
    offer: Hashable
    asked: float
    age: float | None = None
    limit: float | None = None
    left: Left | None = None


class UsesOf:
    """The finished uses of one user or of one offer as arrays, the latest first.

    Args:
        number_of: returns the number of an offer.
    """

    def __init__(self, uses: Collection[PastUse], number_of: Callable[[Hashable], int]) -> None:
        self.count = len(uses)
        self.asked = np.array([use.asked for use in uses], dtype=np.float64)
        self.offers = np.array([number_of(use.offer) for use in uses], dtype=np.int64)
        self._lasted = np.array([use.lasted for use in uses], dtype=np.float64)
        self._at_limit = np.array([use.at_limit for use in uses], dtype=np.bool_)
        self._limited: tuple[float, FloatArray] | None = None

    def lives(self, limit: float | None) -> FloatArray:
        """Return the lives for a use with this limit: uses that reached their own limit reach this one."""
        if limit is None:
            return self._lasted
        if self._limited is None or self._limited[0] != limit:
            self._limited = limit, np.where(self._at_limit, limit, np.minimum(self._lasted, limit))
        return self._limited[1]


NO_USES = UsesOf((), hash)


class DurationHistory:
    """The finished uses of one pool, of which a fixed number is kept, and the weights of the sources."""

    def __init__(self, uses: Iterable[PastUse] = ()) -> None:
        self.finished = 0
        self._users: dict[str, deque[PastUse]] = {}
        self._counts: Counter[str] = Counter()
        self._squares = 0
        self._offers: dict[Hashable, deque[PastUse]] = {}
        self._numbers: dict[Hashable, int] = {}
        self._known: dict[tuple[str, Hashable], UsesOf] = {}
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
        for known in (("user", use.user), ("offer", use.offer)):
            self._known.pop(known, None)

    @property
    def distinguishes_people(self) -> bool:
        """Whether users are distinguished: by the effective number of people (the inverse Simpson index, 1949)."""
        return self.finished**2 >= PEOPLE * self._squares

    def trust(self, user: str) -> FloatArray:
        """Return the weights of the sources for a user with as many finished uses."""
        return self._trust[self._class(user)]

    def of(self, user: str) -> UsesOf:
        """Return a user's last uses."""
        return self._arrays(("user", user), self._users.get(user, ()))

    def of_offer(self, offer: Hashable) -> UsesOf:
        """Return the pool's last uses of an offer."""
        return self._arrays(("offer", offer), self._offers.get(offer, ()))

    def number_of(self, offer: Hashable) -> int:
        """Return a number for the offer, so that arrays of offers can be compared."""
        return self._numbers.setdefault(offer, len(self._numbers))

    def _arrays(self, whose: tuple[str, Hashable], uses: Collection[PastUse]) -> UsesOf:
        if not uses:
            return NO_USES
        if whose not in self._known:
            self._known[whose] = UsesOf(uses, self.number_of)
        return self._known[whose]

    def pool(self, most: int = OF_THE_POOL) -> Sequence[PastUse]:
        """Return the pool's last uses, the latest first."""
        return tuple(islice(self._pool, most))

    def _class(self, user: str) -> int:
        return bisect_right(KNOWN, len(self._users.get(user, ())))

    def _learn(self, use: PastUse) -> None:
        """Update the weights of the sources that had data, by one step of expectation maximisation."""
        own, same = self._users.get(use.user, ()), self._offers.get(use.offer, ())
        over = np.ones((1, len(own)), dtype=bool)
        alike = np.array([[each.offer == use.offer for each in own]], dtype=bool)
        asked = np.array([[each.asked for each in own]], dtype=np.float64)
        weights = source_shares(np.array([use.asked]), asked, alike, over, over)[0]
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


def source_shares(asked: FloatArray, earlier: FloatArray, alike: Flags, over: Flags, there: Flags) -> FloatArray:
    """Return the share of each earlier use of the same user in each of the user's four sources.

    The shape is (use, source, earlier use). The shares of a source add up to 1, or are all 0.

    Args:
        asked: when each use was asked for. The other arrays have one row for each use.
        earlier: when the earlier uses were asked for, in any order; the latest counts most.
        alike: whether each was of the same offer.
        over: whether each has ended. Only ended uses count as the last two, because a drawn life must not be one of
            the last two for the next draw.
        there: False where a row is filled up.
    """
    order = np.argsort(np.where(there, -earlier, np.inf), axis=1, kind="stable")
    earlier = np.take_along_axis(earlier, order, axis=1)
    alike, over, there = (np.take_along_axis(each & there, order, axis=1) for each in (alike, over, there))
    found = np.empty((len(asked), 4, order.shape[1]))
    found[:, USER] = FADING[: order.shape[1]] * there
    found[:, LAST_TWO] = over & (over.cumsum(axis=1) <= 2)
    found[:, OFFER] = FADING[alike.cumsum(axis=1) - 1] * alike
    found[:, BURST] = found[:, USER] * (alike & (np.abs(earlier - asked[:, None]) <= BURST_SECONDS))
    sums = found.sum(axis=2, keepdims=True)
    shares = np.empty_like(found)
    np.put_along_axis(shares, order[:, None, :], found / np.where(sums > 0, sums, 1.0), axis=2)
    return shares


class _Sources:
    """The sources of some holders' lives, but for the lives that are drawn. Arrays have a row for each holder.

    Attributes:
        trust: weights of the sources.
        asked, offers, there: of the user's finished uses. `there` is False where a row is filled up.
        lives: lives of these uses, then of the offer's uses.
        longer: whether each of `lives` is longer than the holder's age.
        in_offer: weight of each of `lives` as a use of the offer.
        last: column of the last of `lives`.
        below: mass of the holder's curve up to the age.
        beyond: weight of the longer lives of the curve.
    """

    def __init__(
        self,
        holders: Sequence[UseHolder],
        trust: Sequence[FloatArray],
        own: Sequence[UsesOf],
        same: Sequence[UsesOf],
        curves: Sequence[Curve],
    ) -> None:
        count, most = len(holders), max(uses.count for uses in own)
        columns = most + max(1, *(uses.count for uses in same))
        self.trust, self.curves = np.array(trust), curves
        self.ages = np.array([holder.age or 0.0 for holder in holders])
        self.limits = np.array([np.inf if holder.limit is None else holder.limit for holder in holders])
        self.asked, self.there = np.zeros((count, most)), np.zeros((count, most), dtype=bool)
        self.offers = np.zeros((count, most), dtype=np.int64)
        self.lives, self.in_offer = np.zeros((count, columns)), np.zeros((count, columns - most))
        self.last = np.zeros(count, dtype=np.int64)
        for row, (holder, user, offer) in enumerate(zip(holders, own, same, strict=True)):
            self.asked[row, : user.count], self.offers[row, : user.count] = user.asked, user.offers
            self.there[row, : user.count] = True
            self.lives[row, : user.count] = user.lives(holder.limit)
            self.lives[row, most : most + offer.count] = offer.lives(holder.limit)
            if offer.count:
                self.in_offer[row, : offer.count] = trust[row][POOL_OFFER] / offer.count
            self.last[row] = most + offer.count - 1 if offer.count else user.count - 1
        self.longer = self.lives > self.ages[:, None]
        self.below, above = np.zeros(count), np.zeros(count)
        for curve, rows in self.by_curve(np.arange(count)):
            self.below[rows] = curve.up_to(self.ages[rows])
            above[rows] = curve.total - self.below[rows]
        self.beyond = self.trust[:, POOL] * above

    def by_curve(self, rows: Places) -> Iterator[tuple[Curve, Flags]]:
        """Yield each curve, and which of these rows have it."""
        curves = [self.curves[row] for row in rows.tolist()]
        for curve in dict.fromkeys(curves):
            yield curve, np.array([each is curve for each in curves])


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
        self._drawn: dict[str, list[tuple[int, float, FloatArray]]] = {}
        running = [(holder.offer, holder.age) for holder in holders if holder.age is not None]
        self._curves = PoolCurves(history.pool(OF_THE_CURVE if by_curve else OF_THE_POOL), running)

    def lives(self, holders: Sequence[UseHolder]) -> list[FloatArray]:
        """Return the whole duration of each use in each draw, between its age and its limit.

        A use that is predicted to reach its limit ends exactly there; other lives vary around the life they repeat.
        """
        if not holders:
            return []
        sources = self._sources(holders)
        known = np.array([each.left is not None for each in holders])
        points, tails, noise = self._random_numbers(sources, known)
        left = np.array([0.0 if each.left is None else max(each.left.seconds, 0.0) for each in holders])
        spread = np.array([COPY if each.left is None else each.left.spread for each in holders])
        least = np.array([SHORTEST if each.age is None else each.age + SHORTEST for each in holders])
        varied = np.exp(spread[:, None] * noise)
        lives = np.empty_like(points)
        for rows in [np.arange(len(holders))] if self._by_curve else _rounds(holders):
            told, ages = known[rows, None], sources.ages[rows, None]
            predicted = self._picked(holders, sources, rows, points[rows], tails)
            found = np.where(
                told, ages + left[rows, None] * varied[rows], np.maximum(predicted * varied[rows], least[rows, None])
            )
            predicted = np.where(told, ages + left[rows, None], predicted)
            lives[rows] = _up_to_limit(predicted, found, sources.limits[rows, None], ages)
            for row in () if self._by_curve else rows.tolist():
                siblings = self._drawn.setdefault(holders[row].user, [])
                siblings.insert(0, (self._history.number_of(holders[row].offer), holders[row].asked, lives[row]))
                del siblings[SIBLINGS:]
        return list(lives)

    def _sources(self, holders: Sequence[UseHolder]) -> _Sources:
        if self._by_curve:
            nothing = [NO_USES] * len(holders)
            curves = [self._curves.of(each.offer) for each in holders]
            return _Sources(holders, [ONLY_POOL] * len(holders), nothing, nothing, curves)
        history = self._history
        found = _Sources(
            holders,
            [history.trust(each.user) for each in holders],
            [history.of(each.user) for each in holders],
            [history.of_offer(each.offer) for each in holders],
            [self._curves.whole] * len(holders),
        )
        found.beyond[found.ages >= found.limits] = 0.0
        return found

    def _random_numbers(self, sources: _Sources, known: Flags) -> tuple[FloatArray, FloatArray, FloatArray]:
        """Return numbers from 0 to 1 for the picks and for lives beyond all known ones, and standard normal deviates.

        Args:
            known: whether the end is announced, so nothing is picked.
        """
        points, tails, noise = (np.zeros((len(known), self._count)) for _ in range(3))
        outlasted = sources.longer.any(axis=1) | (sources.beyond > 0)
        order = np.arange(len(known))
        if self._by_curve:
            order = order[np.argsort(outlasted & ~known, kind="stable")]
        for row in order.tolist():
            if not known[row]:
                if outlasted[row] or not self._by_curve:
                    points[row] = self._even()
                if not outlasted[row]:
                    self._random.random(out=tails[row])
            self._random.standard_normal(out=noise[row])
        return points, tails, noise

    def _even(self) -> FloatArray:
        """Return a number from 0 to 1 for each world, one in each `count`-th part (Latin hypercube, McKay et al. 1979).

        With it a few worlds cover the whole range of each life, whatever the seed is.
        """
        parts: FloatArray = self._random.permutation(self._count) + self._random.random(self._count)
        return parts / self._count

    def _picked(
        self, holders: Sequence[UseHolder], sources: _Sources, rows: Places, points: FloatArray, tails: FloatArray
    ) -> FloatArray:
        """Pick a past life, longer than its age, for each of these holders in each world."""
        if self._by_curve:
            return self._past(sources, rows, np.zeros((len(rows), 1)), points * sources.beyond[rows, None], tails)
        siblings = [self._drawn.get(holders[row].user, ()) for row in rows.tolist()]
        drawn = np.zeros((len(rows), max(map(len, siblings)), self._count))
        for row, some in enumerate(siblings):
            for at, (_, _, lives) in enumerate(some):
                drawn[row, at] = lives
        weights = self._weights(holders, sources, rows, siblings, drawn.shape[1])
        mass = np.concatenate((weights[:, drawn.shape[1] :], sources.in_offer[rows]), axis=1)
        sure = (mass * sources.longer[rows]).cumsum(axis=1)
        known = sure[:, -1, None]
        total = known + sources.beyond[rows, None]
        if not drawn.shape[1]:
            return self._past(sources, rows, sure, points * total, tails)
        ages = sources.ages[rows, None, None]
        steps = ((drawn > ages) * weights[:, : drawn.shape[1], None]).cumsum(axis=1)
        points = points * (steps[:, -1] + total)
        chosen = np.minimum((steps <= points[:, None]).sum(axis=1), drawn.shape[1] - 1)
        copied = np.take_along_axis(drawn, chosen[:, None], axis=1)[:, 0]
        past = self._past(sources, rows, sure, np.maximum(points - steps[:, -1], 0.0), tails)
        return np.where(points < steps[:, -1], copied, past)

    def _weights(
        self,
        holders: Sequence[UseHolder],
        sources: _Sources,
        rows: Places,
        siblings: Sequence[Sequence[tuple[int, float, FloatArray]]],
        most: int,
    ) -> FloatArray:
        """Return the weight of each life that was drawn for the same user, then of each of the user's finished uses."""
        asked = np.array([holders[row].asked for row in rows.tolist()])
        offers = np.array([self._history.number_of(holders[row].offer) for row in rows.tolist()])
        earlier, kinds = np.zeros((len(rows), most)), np.zeros((len(rows), most), dtype=np.int64)
        there = np.arange(most) < np.array([len(some) for some in siblings])[:, None]
        for row, some in enumerate(siblings):
            for at, (kind, when, _) in enumerate(some):
                kinds[row, at], earlier[row, at] = kind, when
        over = np.concatenate((np.zeros_like(there), sources.there[rows]), axis=1)
        shares = source_shares(
            asked,
            np.concatenate((earlier, sources.asked[rows]), axis=1),
            np.concatenate((kinds, sources.offers[rows]), axis=1) == offers[:, None],
            over,
            np.concatenate((there, sources.there[rows]), axis=1),
        )
        found: FloatArray = (sources.trust[rows, None, :4] @ shares)[:, 0]
        return found

    def _past(
        self, sources: _Sources, rows: Places, sure: FloatArray, points: FloatArray, tails: FloatArray
    ) -> FloatArray:
        """Return the life at each point: first the finished uses, up to the last of `sure`, then the curve's lives."""
        found = np.empty_like(points)
        for at, row in enumerate(rows.tolist()):
            if sure[at, -1] > 0:
                nearest = sure[at].searchsorted(points[at], side="right")
                found[at] = sources.lives[row][np.minimum(nearest, sources.last[row])]
        known, beyond = sure[:, -1], sources.beyond[rows]
        total = known + beyond
        for curve, some in sources.by_curve(rows):
            row, world = np.nonzero((points >= known[:, None]) & ((total > known) & some)[:, None])
            share = (points[row, world] - known[row]) / (total - known)[row]
            lives = curve.lives(share, sources.below[rows][row])
            found[row, world] = np.minimum(lives, sources.limits[rows][row])
        for at in np.flatnonzero(total <= 0).tolist():
            found[at] = max(sources.ages[rows[at]], 60.0) / np.maximum(tails[rows[at]], 0.02)
        return found


def _rounds(holders: Sequence[UseHolder]) -> list[Places]:
    """Return the numbers of the holders in groups; of one user there is one in each group, in the given order."""
    seen, rounds = Counter[str](), list[list[int]]()
    for number, holder in enumerate(holders):
        if seen[holder.user] == len(rounds):
            rounds.append([])
        rounds[seen[holder.user]].append(number)
        seen[holder.user] += 1
    return [np.array(some) for some in rounds]


def _up_to_limit(predicted: FloatArray, lives: FloatArray, limit: FloatArray, age: FloatArray) -> FloatArray:
    """Return the lives cut at the limit; a use that is predicted to reach the limit ends exactly there."""
    ends = np.maximum(limit, age)
    found: FloatArray = np.where(predicted >= limit, ends, np.minimum(lives, ends))
    return found
