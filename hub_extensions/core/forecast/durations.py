"""Draw at random how long a server holds its GPU, given the user, the offer and the time that it has held it so far.

A use is one server's time with a GPU; its length is called its life. A life is drawn from past uses of several sources:
the user's last two uses; the user's recent uses of this offer; the user's recent uses of any offer; the user's uses
that were asked for within an hour of this one (a burst); recent uses of this offer by anybody; and all uses of the pool
(Kaplan-Meier, with those that still go on). Each source has a weight, which follows from how well it predicted earlier
uses.

Times are seconds. Lives are drawn for many worlds (possible futures) at once: an array has one column per world.
"""

from __future__ import annotations

from bisect import bisect_right
from collections import Counter, defaultdict, deque
from collections.abc import Hashable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from hub_extensions.core.forecast.curves import Curve, Flags, FloatArray, PastUse, Places, PoolCurves

Seed = int | Sequence[int]

OF_A_USER = 40
"""Number of a user's last uses that are considered, each weighted by exp(-rank / 10) (the reference algorithm)."""
RANKS = 10.0
"""The weight of a user's earlier uses falls to 1/e within this number of ranks."""
OF_THE_POOL = 1000
"""Number of a pool's last uses that are considered (the reference algorithm)."""
OF_THE_CURVE = 4000
"""Number of a pool's last uses for a simulation by the pool's survival curve alone, without regard to users."""
OF_AN_OFFER = 50
"""Number of a pool's last uses of one offer that are considered, as in the common forecast "median of the last 50"."""
SIBLINGS = 8
"""Number of lives just drawn for the user's other servers that are considered (the reference algorithm)."""
FADING: FloatArray = np.exp(-np.arange(OF_A_USER + SIBLINGS) / RANKS)
"""Weight of a use by its rank, the latest first."""
BURST_SECONDS = 3600.0
"""Longest time between two requests of one user that belong to one burst, whose uses often have similar lengths."""
COPY = 0.08
"""Relative standard deviation of a drawn life from the past life that it repeats (the reference algorithm)."""
FORGET = 1 / 200
"""Rate at which the weights of the sources change with each finished use, so that about the last 200 matter."""
TOLERANCE = 0.3
"""Relative error of a predicted length at which the prediction counts half as much as an exact one."""
SHORTEST = 1.0
"""Minimum remaining seconds of a drawn life."""

SOURCES = LAST_TWO, OFFER, USER, BURST, POOL_OFFER, POOL = range(6)
"""Indices of the sources of a life: see the module's docstring."""
ONLY_POOL: FloatArray = np.eye(len(SOURCES))[POOL]
LATELY = 200
"""Number of the pool's last uses from which the source *pool* predicts, when the weights of the sources are updated."""
PEOPLE = 3
"""Lowest effective number of users (inverse Simpson index) at which users are distinguished."""
KNOWN = (3, 10)
"""Users are in one of three classes by their number of finished uses, divided at these numbers. Each class has its own
weights of the sources, because those about the user are useless for newcomers."""


@dataclass(frozen=True, slots=True)
class Left:
    """When a server will end, if that is known from a progress report of its program or from a countdown to its stop.

    Attributes:
        seconds: time from now to the end.
        spread: relative standard deviation of that time; 0 if it is exact.
    """

    seconds: float
    spread: float = 0.0


@dataclass(frozen=True, slots=True)
class UseHolder:
    """A server that has a GPU now, or waits for one, and for which the length of its use has to be drawn.

    Attributes:
        user: name of the user.
        offer: key that similar uses have in common (`kind_of_use`).
        asked: when the user asked for the server, in seconds of the wall clock.
        age: seconds for which it has had its GPU. None if it still waits.
        limit: longest time in seconds for which it may have the GPU. None if no limit is enforced.
        left: when it will end, if that is known. None otherwise.
    """

    user: str
    offer: Hashable
    asked: float
    age: float | None = None
    limit: float | None = None
    left: Left | None = None


USE = np.dtype([("asked", np.float64), ("lasted", np.float64), ("offer", np.int32), ("at_limit", np.bool_)])
"""A finished use in an array, in 21 bytes. The offer is the number that stands for it in this pool."""


class UsesOf:
    """The latest finished uses of one user, or of one offer, as arrays, the latest first.

    Args:
        uses: one row of the type `USE` (time asked, length, offer, whether a limit ended it) for each use.
    """

    __slots__ = ("_limited", "_uses")

    def __init__(self, uses: NDArray[np.void]) -> None:
        self._uses = uses
        self._limited: tuple[float, FloatArray] | None = None

    def __len__(self) -> int:
        return len(self._uses)

    @property
    def asked(self) -> FloatArray:
        """When the server of each use was asked for, in seconds of the wall clock."""
        return self._uses["asked"]

    @property
    def offers(self) -> NDArray[np.int32]:
        """The number of the offer of each use (`DurationHistory.number_of`)."""
        return self._uses["offer"]

    @property
    def lasted(self) -> FloatArray:
        """The lengths of the uses in seconds."""
        return self._uses["lasted"]

    @property
    def at_limit(self) -> Flags:
        """Whether an enforced limit ended each use, so that it would have lasted longer."""
        return self._uses["at_limit"]

    def with_latest(self, use: NDArray[np.void], most: int) -> UsesOf:
        """Return these uses and a later one, at most `most` in all.

        Args:
            use: the later use, as an array with one row of the type `USE`.
            most: the oldest uses beyond this number are left out.
        """
        return UsesOf(np.concatenate((use, self._uses[: most - 1])))

    def lives(self, limit: float | None) -> FloatArray:
        """Return the lengths of the uses as if `limit` had been enforced for each of them.

        A use that an enforced limit ended is assumed to last until `limit`. No returned length exceeds `limit`.

        Args:
            limit: seconds; None returns the lengths unchanged.
        """
        if limit is None:
            return self.lasted
        if self._limited is None or self._limited[0] != limit:
            self._limited = limit, np.where(self.at_limit, limit, np.minimum(self.lasted, limit))
        return self._limited[1]


NO_USES = UsesOf(np.empty(0, USE))


class DurationHistory:
    """The last finished uses of one pool, and the weights of the sources from which lives (lengths of uses) are drawn.

    Attributes:
        finished: number of all uses that were added.
    """

    def __init__(self, uses: Iterable[PastUse] = ()) -> None:
        self.finished = 0
        self._users: dict[str, UsesOf] = {}
        self._counts: Counter[str] = Counter()
        self._squares = 0
        self._offers: dict[Hashable, UsesOf] = {}
        self._numbers: dict[Hashable, int] = {}
        self._pool: deque[PastUse] = deque(maxlen=OF_THE_CURVE)
        self._trust: defaultdict[int, FloatArray] = defaultdict(lambda: np.full(len(SOURCES), 1 / len(SOURCES)))
        for use in uses:
            self.add(use)

    def add(self, use: PastUse) -> None:
        """Add a finished use. Before that, raise the weights of the sources that would have predicted its length.

        A source is a kind of past uses, such as those of the same user.
        """
        self._learn(use)
        self.finished += 1
        self._squares += 2 * self._counts[use.user] + 1
        self._counts[use.user] += 1
        row = np.array([(use.asked, use.lasted, self.number_of(use.offer), use.at_limit)], USE)
        self._users[use.user] = self.of(use.user).with_latest(row, OF_A_USER)
        self._offers[use.offer] = self.of_offer(use.offer).with_latest(row, OF_AN_OFFER)
        self._pool.appendleft(use)

    @property
    def distinguishes_people(self) -> bool:
        """Whether the pool has enough different users, so that a user's own past uses help to predict the next use.

        The effective number of users (inverse Simpson index, 1949) has to be at least `PEOPLE`.
        """
        return self.finished**2 >= PEOPLE * self._squares

    def trust(self, user: str) -> FloatArray:
        """Return how much each source counts when a user's lives (lengths of uses) are drawn.

        A source is a kind of past uses, such as those of the same user. The weights depend on the user's number of
        finished uses (`KNOWN`).
        """
        return self._trust[self._class(user)]

    def of(self, user: str) -> UsesOf:
        """Return the latest finished uses (servers' times with a GPU) of a user; empty before the first."""
        return self._users.get(user, NO_USES)

    def of_offer(self, offer: Hashable) -> UsesOf:
        """Return the pool's latest finished uses (servers' times with a GPU) of an offer; empty before the first."""
        return self._offers.get(offer, NO_USES)

    def number_of(self, offer: Hashable) -> int:
        """Return the number that stands for an offer in the arrays of uses. A new offer gets the next number."""
        return self._numbers.setdefault(offer, len(self._numbers))

    def pool(self, most: int = OF_THE_POOL) -> Sequence[PastUse]:
        """Return the pool's last finished uses (servers' times with a GPU), at most `most`, the latest first."""
        return tuple(islice(self._pool, most))

    def _class(self, user: str) -> int:
        return bisect_right(KNOWN, len(self.of(user)))

    def _learn(self, use: PastUse) -> None:
        """Update the weights of the sources from a finished use, by one step of expectation maximisation.

        A source is a kind of past uses, such as those of the same user. The weights change by how near the past uses of
        each source are to the length of the finished use. A source without any past uses keeps its weight.
        """
        own, same = self.of(use.user), self.of_offer(use.offer)
        over = np.ones((1, len(own)), dtype=bool)
        alike = own.offers[None] == self.number_of(use.offer)
        weights = source_shares(np.array([use.asked]), own.asked[None], alike, over, over)[0]
        hits, there = np.zeros(len(SOURCES)), np.zeros(len(SOURCES), dtype=bool)
        if own:
            near = _near(own.lasted, own.at_limit, use)
            hits[:4], there[:4] = weights @ near, weights.sum(axis=1) > 0
        if same:
            hits[POOL_OFFER], there[POOL_OFFER] = _near(same.lasted, same.at_limit, use).mean(), True
        if self._pool:
            recent = list(islice(self._pool, LATELY))
            lasted, at_limit = np.array([(each.lasted, each.at_limit) for each in recent]).T
            hits[POOL], there[POOL] = _near(lasted, at_limit > 0, use).mean(), True
        trust = self._trust[self._class(use.user)]
        believed = np.where(there, trust, 0.0)
        found = believed * (hits + 1e-3)
        believed_share = believed.sum()
        step = max(FORGET, 1 / (self.finished + 20))
        trust[there] += step * (found[there] / found.sum() * believed_share - trust[there])


def _near(lasted: FloatArray, at_limit: Flags, use: PastUse) -> FloatArray:
    """Return, for each earlier use, how near its length is to the length of a finished use.

    The value is 1 for an equal length, and 1/2 for a length that is `TOLERANCE` off. Two uses that were ended by
    their limits count as equally long.

    Args:
        lasted: lengths of the earlier uses in seconds.
        at_limit: whether a limit ended each of them.
    """
    lengths = np.log(np.where(at_limit & use.at_limit, use.lasted, lasted) + SHORTEST)
    off = (lengths - np.log(use.lasted + SHORTEST)) / np.log1p(TOLERANCE)
    near: FloatArray = 1 / (1 + off * off)
    return near


def source_shares(asked: FloatArray, earlier: FloatArray, alike: Flags, over: Flags, there: Flags) -> FloatArray:
    """Return how much each earlier use of a user counts in each of the four sources about the user.

    A source is a kind of past uses from which a life (length of a use) is drawn: the user's last two uses, uses of the
    same offer, all uses, and uses of the same burst (asked for within an hour of this one). The shares of one source
    add up to 1, or are all 0 for a source without uses.

    Args:
        asked: for each use whose life is drawn, when its server was asked for. The other arrays have one row per such
            use.
        earlier: when the servers of the same user's earlier uses were asked for, in any order; the latest counts most.
        alike: whether an earlier use was of the same offer.
        over: whether an earlier use has ended. Only ended uses count as the last two; uses whose life was just drawn do
            not.
        there: False for the unused end of a row, because users have different numbers of uses.

    Returns:
        Shares of the shape (use, source, earlier use).
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
    """The past uses from which the lives of some servers are drawn, as arrays with one row for each server.

    A life is the length of a use. Lives that were drawn for the user's other servers in the same simulation are kept in
    `Draws` instead.

    Attributes:
        trust: for each server, the weight of each kind of past uses, such as those of the same user
            (`DurationHistory.trust`).
        curves: the survival curve of each server's offer.
        ages: seconds for which each server has held its GPU; 0 if it waits.
        limits: longest time in seconds for which each server may have its GPU; infinite without a limit.
        asked, offers: when the user's finished uses were asked for, and the numbers of their offers.
        there: False for the unused end of a row, because users have different numbers of uses.
        lives: lengths of the user's finished uses, then of the uses of the same offer by anybody.
        longer: whether each of `lives` is longer than the server has held its GPU already.
        in_offer: weight of each past use of the same offer by anybody.
        last: for each server, the last column of `lives` that holds a life, because servers have different numbers of
            past uses.
        below: for each server, the probability of a life that is not longer than its age, by the survival curve of its
            offer.
        beyond: for each server, the total weight of those lives of the survival curve that are longer than its age.
    """

    def __init__(
        self,
        holders: Sequence[UseHolder],
        trust: Sequence[FloatArray],
        own: Sequence[UsesOf],
        same: Sequence[UsesOf],
        curves: Sequence[Curve],
    ) -> None:
        count, most = len(holders), max(map(len, own))
        columns = most + max(1, *map(len, same))
        self.trust, self.curves = np.array(trust), curves
        self.ages = np.array([holder.age or 0.0 for holder in holders])
        self.limits = np.array([np.inf if holder.limit is None else holder.limit for holder in holders])
        self.asked, self.there = np.zeros((count, most)), np.zeros((count, most), dtype=bool)
        self.offers = np.zeros((count, most), dtype=np.int64)
        self.lives, self.in_offer = np.zeros((count, columns)), np.zeros((count, columns - most))
        self.last = np.zeros(count, dtype=np.int64)
        for row, (holder, user, offer) in enumerate(zip(holders, own, same, strict=True)):
            self.asked[row, : len(user)], self.offers[row, : len(user)] = user.asked, user.offers
            self.there[row, : len(user)] = True
            self.lives[row, : len(user)] = user.lives(holder.limit)
            self.lives[row, most : most + len(offer)] = offer.lives(holder.limit)
            if len(offer):
                self.in_offer[row, : len(offer)] = trust[row][POOL_OFFER] / len(offer)
            self.last[row] = most + len(offer) - 1 if len(offer) else len(user) - 1
        self.longer = self.lives > self.ages[:, None]
        self.below, above = np.zeros(count), np.zeros(count)
        for curve, rows in self.by_curve(np.arange(count)):
            self.below[rows] = curve.up_to(self.ages[rows])
            above[rows] = curve.total - self.below[rows]
        self.beyond = self.trust[:, POOL] * above

    def by_curve(self, rows: Places) -> Iterator[tuple[Curve, Flags]]:
        """Yield each survival curve of these servers once, with a mask of those rows whose servers have this curve.

        Args:
            rows: the rows of the servers.
        """
        curves = [self.curves[row] for row in rows.tolist()]
        for curve in dict.fromkeys(curves):
            yield curve, np.array([each is curve for each in curves])


class Draws:
    """Draws the lives (lengths of uses) of the servers that have a GPU of one pool or wait for one.

    They are drawn in the order of the requests. A drawn life counts as the latest use of its user for the next draw. So
    the servers that a user asks for at about the same time get similar lives.

    Args:
        history: the pool's finished uses.
        holders: the servers that have a GPU of the pool now.
        count: number of worlds (possible futures); one life is drawn for each.
        seed: seed of the random numbers.
        by_curve: whether to draw all lives from the survival curves of the offers, without regard to users.
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
        """Return how long each of these servers holds its GPU (its life), in each world (possible future).

        A life is between the time for which the server has held its GPU so far and the server's limit. A server that is
        predicted to reach its limit ends exactly at the limit. Other lives differ a little from the past life that they
        repeat.

        Args:
            holders: the servers.
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
        """Draw the random numbers by which `lives` picks past uses for these servers.

        A column stands for one world (possible future). Each life (length of a use) is picked by numbers of its own.

        Args:
            sources: the past uses of which one is picked for each server, one row for each server.
            known: for each server, whether its end is known, so that no past life is picked for it.

        Returns:
            Three arrays with one row for each server and one column for each world. First, numbers from 0 to 1 that
            pick a past life. Second, numbers from 0 to 1 that make a life if the server has held its GPU longer than
            any past life. Third, standard normal deviates, by which a life varies.
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
        """Return one random number from 0 to 1 for each world (possible future), evenly spread over that range.

        The range is divided into as many parts as there are worlds, and each part gets one number (Latin hypercube,
        McKay et al. 1979). So a few worlds cover the whole range, whatever the seed is.
        """
        parts: FloatArray = self._random.permutation(self._count) + self._random.random(self._count)
        return parts / self._count

    def _picked(
        self, holders: Sequence[UseHolder], sources: _Sources, rows: Places, points: FloatArray, tails: FloatArray
    ) -> FloatArray:
        """Return a past life (length of a use) for each of these servers in each world (possible future).

        Each is longer than the server has held its GPU so far.

        Args:
            holders: the servers.
            sources: the past uses from which the lives are picked.
            rows: rows of the servers in `sources`.
            points: numbers from 0 to 1 that pick a past life, one row for each of `rows`.
            tails: numbers from 0 to 1 for servers that have held their GPU longer than any past life, one row per
                server.
        """
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
        """Return, for each server, the weights with which lives (lengths of uses) of its user are picked.

        The lives that were just drawn for the user's other servers come first, then those of the user's finished uses.

        Args:
            holders: the servers.
            sources: the past uses from which the lives are picked.
            rows: rows of the servers in `sources`.
            siblings: for each server, the other servers of its user whose lives were just drawn. Each is given as
                (number of its offer, when it was asked for, its life in each world).
            most: the largest number of `siblings` of one server.
        """
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
        """Return the past lives (lengths of uses) that the random numbers pick.

        The result has one row for each server and one column for each world (possible future).

        Args:
            sources: the past uses from which the lives are picked.
            rows: rows of the servers in `sources`.
            sure: cumulative weights of the finished uses, one row for each server.
            points: random numbers, from 0 to the total weight. Above the last of `sure`, they pick a life of the
                survival curve.
            tails: random numbers for servers that have held their GPU longer than all known lives.
        """
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
    """Divide the servers into rounds, so that no round has two servers of one user, and return their indices.

    Lives (lengths of uses) are drawn round by round, because a drawn life influences the next one of the same user.
    """
    seen, rounds = Counter[str](), list[list[int]]()
    for number, holder in enumerate(holders):
        if seen[holder.user] == len(rounds):
            rounds.append([])
        rounds[seen[holder.user]].append(number)
        seen[holder.user] += 1
    return [np.array(some) for some in rounds]


def _up_to_limit(predicted: FloatArray, lives: FloatArray, limit: FloatArray, age: FloatArray) -> FloatArray:
    """Return the lives (lengths of uses), cut at the limit.

    Args:
        predicted: the lives before random variation. If one reaches the limit, the server ends exactly at the limit.
        lives: the lives with variation.
        limit: longest life; infinite without a limit.
        age: seconds for which the server has held its GPU, below which no life is cut.
    """
    ends = np.maximum(limit, age)
    found: FloatArray = np.where(predicted >= limit, ends, np.minimum(lives, ends))
    return found
