"""Lives are drawn, and sources believed, as the plain algorithm says: here in loops, one number after the other."""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from hub_extensions.core.forecast.curves import Curve, PastUse, PoolCurves, kaplan_meier
from hub_extensions.core.forecast.durations import Draws, DurationHistory, Left, UseHolder, source_shares
from tests.examples import many

HOUR = 3600.0
ONE, TWO = (1, 1000), (2, 1000)


def weights(offer: object, asked: float, own: list[tuple[object, float]], over: list[bool]) -> list[list[float]]:
    """See `source_shares`: last two, of this offer, all, of this burst."""
    found = [[0.0] * len(own) for _ in range(4)]
    order = sorted(range(len(own)), key=lambda n: -own[n][1])
    same = [n for n in order if own[n][0] == offer]
    for n in [n for n in order if over[n]][:2]:
        found[0][n] = 1.0
    for rank, n in enumerate(same):
        found[1][n] = math.exp(-rank / 10)
    for rank, n in enumerate(order):
        found[2][n] = math.exp(-rank / 10)
        if n in same and abs(own[n][1] - asked) <= HOUR:
            found[3][n] = math.exp(-rank / 10)
    return [[each / sum(row) if sum(row) else 0.0 for each in row] for row in found]


class Plain:
    """What finished uses taught, and a life."""

    def __init__(self, uses: Sequence[PastUse]) -> None:
        self.uses: list[PastUse] = []
        self.believed = [[1 / 6] * 6 for _ in range(3)]
        for use in uses:
            self.learn(use)
            self.uses.insert(0, use)

    def of(self, user: str) -> list[PastUse]:
        return [use for use in self.uses if use.user == user][:40]

    def of_offer(self, offer: object) -> list[PastUse]:
        return [use for use in self.uses if use.offer == offer][:50]

    def trust(self, user: str) -> list[float]:
        count = len(self.of(user))
        return self.believed[0 if count < 3 else 1 if count < 10 else 2]

    def learn(self, use: PastUse) -> None:
        def near(other: PastUse) -> float:
            if other.at_limit and use.at_limit:
                return 1.0
            off = (math.log(other.lasted + 1) - math.log(use.lasted + 1)) / math.log(1.3)
            return 1 / (1 + off**2)

        own, same, recent = self.of(use.user), self.of_offer(use.offer), self.uses[:200]
        hits: list[float | None] = [None] * 6
        for source, row in enumerate(weights(use.offer, use.asked, [(u.offer, u.asked) for u in own], [True] * 40)):
            if any(row):
                hits[source] = sum(weight * near(u) for weight, u in zip(row, own, strict=True))
        for source, uses in ((4, same), (5, recent)):
            if uses:
                hits[source] = sum(map(near, uses)) / len(uses)
        trust = self.trust(use.user)
        there = [source for source, hit in enumerate(hits) if hit is not None]
        share, step = sum(trust[n] for n in there), max(1 / 200, 1 / (len(self.uses) + 20))
        found = {n: trust[n] * ((hits[n] or 0.0) + 0.001) for n in there}
        for n in there:
            trust[n] += step * (found[n] / sum(found.values()) * share - trust[n])


def lasted(ended: Sequence[PastUse], running: Sequence[float]) -> list[tuple[float, float]]:
    """See `kaplan_meier`: (life, mass)."""
    if not ended:
        return []
    rows = sorted([(u.lasted, u.at_limit) for u in ended] + [(age, True) for age in running])
    kept, found = 1.0, []
    for n, (life, goes_on) in enumerate(rows):
        mass = 0.0 if goes_on else kept / (len(rows) - n)
        kept -= mass
        found.append((life, mass))
    found[-1] = (found[-1][0], found[-1][1] + kept)
    return [(life, mass) for life, mass in found if mass > 1e-12]


def drawn(plain: Plain, holders: Sequence[UseHolder], count: int, seed: int) -> list[list[float]]:
    """See `Draws`: the lives of each, one after the other."""
    random = np.random.default_rng(seed)
    pool = lasted(plain.uses, [each.age for each in holders if each.age is not None])
    before: list[tuple[UseHolder, list[float]]] = []
    found = []
    for holder in holders:
        age, limit = holder.age or 0.0, holder.limit
        if holder.left is not None:
            foretold = [age + max(0.0, holder.left.seconds)] * count
            lives = [
                age + max(0.0, holder.left.seconds) * math.exp(each * holder.left.spread)
                for each in random.standard_normal(count)
            ]
        else:
            foretold = picked(
                plain, holder, [each for each in before if each[0].user == holder.user][:8], pool, random, count
            )
            least = 1.0 if holder.age is None else age + 1
            lives = [
                max(least, life * math.exp(0.08 * each))
                for life, each in zip(foretold, random.standard_normal(count), strict=True)
            ]
        if limit is not None:
            end = max(limit, age)
            lives = [end if life >= limit else min(near, end) for life, near in zip(foretold, lives, strict=True)]
        before.insert(0, (holder, lives))
        found.append(lives)
    return found


def picked(
    plain: Plain,
    holder: UseHolder,
    siblings: list[tuple[UseHolder, list[float]]],
    pool: list[tuple[float, float]],
    random: np.random.Generator,
    count: int,
) -> list[float]:
    age, limit = holder.age or 0.0, holder.limit
    own, same, trust = plain.of(holder.user), plain.of_offer(holder.offer), plain.trust(holder.user)

    def to_the_limit(use: PastUse) -> float:
        return use.lasted if limit is None else limit if use.at_limit else min(use.lasted, limit)

    asked = [(each.offer, each.asked) for each, _ in siblings] + [(use.offer, use.asked) for use in own]
    rows = weights(holder.offer, holder.asked, asked, [False] * len(siblings) + [True] * len(own))
    mass = [sum(trust[source] * rows[source][n] for source in range(4)) for n in range(len(asked))]
    sure = [(to_the_limit(use), mass[len(siblings) + n]) for n, use in enumerate(own)]
    sure += [(to_the_limit(use), trust[4] / len(same)) for use in same]
    sure += [(life if limit is None else min(life, limit), trust[5] * part) for life, part in pool]
    sure = [(life, part) for life, part in sure if life > age and part > 0]
    parts = random.permutation(count).tolist()  # each world has one part of the range to itself
    points = [(parts[world] + off) / count for world, off in enumerate(random.random(count).tolist())]
    tail = random.random(count) if not sure else points
    found = []
    for world in range(count):
        copies = [(lives[world], mass[n]) for n, (_, lives) in enumerate(siblings) if lives[world] > age]
        beyond = max(age, 60.0) / max(tail[world], 0.02)
        at = points[world] * (sum(part for _, part in copies) + sum(part for _, part in sure))
        for life, part in [*copies, *sure]:
            at -= part
            if at < 0:
                found.append(life)
                break
        else:
            found.append(beyond)
    return found


def past(count: int, *, seed: int = 3) -> list[PastUse]:
    """Of five users, some of whom use much: lives near and far, some to a limit, some asked for within the hour."""
    random = np.random.default_rng(seed)
    return [
        PastUse(
            "ada" if n % 2 else f"u{random.integers(0, 4)}",
            ONE if random.random() < 0.6 else TWO,
            n * 1800.0,
            float(random.integers(60, 20_000)) if n % 7 else 7200.0,
            n % 7 == 0,
        )
        for n in range(count)
    ]


@pytest.mark.slow
@pytest.mark.parametrize("count", [0, 1, 2, 3, 4, 6, 8, 19, 20, 21, 60, 260])
def test_sources_are_believed_as_far_as_they_foretold_what_ended(count: int) -> None:
    uses = past(count)
    history, plain = DurationHistory(uses), Plain(uses)
    for user in ("ada", "u0", "u1", "u2", "u3", "nobody"):
        assert history.trust(user).tolist() == pytest.approx(plain.trust(user), rel=1e-9)
        assert history.of(user).asked.tolist() == [use.asked for use in plain.of(user)]
    assert history.finished == count
    assert history.of_offer(ONE).asked.tolist() == [use.asked for use in plain.of_offer(ONE)]


TIMES = st.integers(0, 40).map(lambda n: n * 600.0)
EARLIER = st.lists(st.tuples(st.sampled_from([ONE, TWO]), TIMES, st.booleans()), max_size=12)


@many(80)
@given(st.lists(st.tuples(TIMES, EARLIER), min_size=1, max_size=4))
def test_the_shares_of_each_source(holders: list[tuple[float, list[tuple[tuple[int, int], float, bool]]]]) -> None:
    """Many at once give the same as one after the other, however many earlier uses each has."""
    most = max(len(own) for _, own in holders)
    filled = [[*own, *[(ONE, 0.0, True)] * (most - len(own))] for _, own in holders]

    def flags(of: Callable[[tuple[tuple[int, int], float, bool]], bool]) -> NDArray[np.bool_]:
        return np.array([[of(use) for use in row] for row in filled], dtype=bool)

    found = source_shares(
        np.array([asked for asked, _ in holders]),
        np.array([[when for _, when, _ in row] for row in filled]),
        flags(lambda use: use[0] == ONE),
        flags(lambda use: use[2]),
        np.array([[at < len(own) for at in range(most)] for _, own in holders], dtype=bool),
    )
    assert found.shape == (len(holders), 4, most)
    for shares, (asked, own) in zip(found, holders, strict=True):
        expected = weights(ONE, asked, [(offer, when) for offer, when, _ in own], [over for _, _, over in own])
        assert shares[:, : len(own)].tolist() == [pytest.approx(row) for row in expected]  # type: ignore[comparison-overlap]
        assert not shares[:, len(own) :].any()


@many(80)
@given(
    st.lists(st.tuples(st.integers(1, 9).map(float), st.booleans()), max_size=9),
    st.lists(st.integers(1, 10).map(float), max_size=5),
)
def test_who_still_runs_and_whom_a_limit_ended_would_have_lasted_longer(
    ended: list[tuple[float, bool]], running: list[float]
) -> None:
    uses = [PastUse("ada", ONE, 0.0, life, at_limit) for life, at_limit in ended]
    lives, masses = kaplan_meier(uses, running)
    expected = lasted(uses, running)
    assert lives.tolist() == [life for life, _ in expected]
    assert masses.tolist() == pytest.approx([mass for _, mass in expected])


def holders() -> list[UseHolder]:
    """Of each kind: who waits, who runs (and how long already), with a limit, beyond it, with an end that is known."""
    return [
        UseHolder("ada", ONE, 3000 * HOUR),
        UseHolder("ada", ONE, 3000 * HOUR + 60, 7200.0),
        UseHolder("ada", TWO, 3001 * HOUR, 30.0, limit=5000.0),
        UseHolder("ada", ONE, 3000 * HOUR + 90, 6000.0, limit=5000.0),
        UseHolder("u1", ONE, 3001 * HOUR, 10 * HOUR),
        UseHolder("u1", ONE, 3002 * HOUR, 10 * HOUR),
        UseHolder("new", ONE, 3002 * HOUR, 12 * HOUR),
        UseHolder("new", "never seen", 3002 * HOUR, 1.0),
        UseHolder("u2", ONE, 3002 * HOUR, 100.0, left=Left(600.0, 0.5)),
        UseHolder("u2", ONE, 3002 * HOUR, 100.0, left=Left(-600.0, 0.5)),
        UseHolder("u2", ONE, 3003 * HOUR, limit=100.0),
        *(UseHolder("many", (ONE, TWO)[n % 3 == 0], 3000 * HOUR + 2000 * n) for n in range(12)),
    ]


@pytest.mark.slow
@pytest.mark.parametrize("together", [1, 5, 100])
@pytest.mark.parametrize("count", [0, 1, 5, 40])
def test_lives_are_drawn_one_after_the_other_each_from_what_is_known_of_it(count: int, together: int) -> None:
    """However many are drawn by one call."""
    uses, some = past(count), holders()
    draws = Draws(DurationHistory(uses), some, 30, 7)
    found = [lives for at in range(0, len(some), together) for lives in draws.lives(some[at : at + together])]
    for real, plain in zip(found, drawn(Plain(uses), some, 30, 7), strict=True):
        assert real.tolist() == pytest.approx(plain)
    assert draws.lives([]) == []


def test_whom_nobody_outlasted_lasts_as_long_again() -> None:
    history = DurationHistory([PastUse("ada", ONE, 0.0, 60.0)])
    found = np.median(Draws(history, [], 400, 1).lives([UseHolder("ben", ONE, 0.0, 7200.0)])[0])
    assert 2 * 7200.0 * 0.8 < found < 2 * 7200.0 * 1.25


def test_people_are_distinguished_where_they_are_three_in_effect() -> None:
    def apart(*counts: int) -> bool:
        return DurationHistory(
            [PastUse(f"u{user}", ONE, 0.0, 60.0) for user, count in enumerate(counts) for _ in range(count)]
        ).distinguishes_people

    assert [apart(30), apart(15, 15), apart(59, 40, 1), apart(10, 10, 10), apart(14, 8, 4, 4), apart(20, 9, 9, 9)] == [
        False, False, False, True, True, True,
    ]  # fmt: skip


def beyond(curve: Curve, age: float) -> float:
    return float(curve.total - curve.up_to(np.array(age)))


def test_the_curve_of_an_offer_has_the_pools_as_a_hundred_uses_of_its_own() -> None:
    """Of 50 short and 150 long uses: of the short offer's curve a third is its own, of the long one's three fifths."""
    uses = [PastUse("ada", (ONE, TWO)[n % 4 > 0], n * HOUR, (60.0, 6000.0)[n % 4 > 0]) for n in range(200)]
    pool = PoolCurves(uses, [])
    short = 1 / 3 + 2 / 3 * 1 / 4
    assert beyond(pool.whole, 100.0) == pytest.approx(3 / 4)
    assert beyond(pool.of(ONE), 100.0) == pytest.approx(1 - short)
    assert beyond(pool.of(TWO), 100.0) == pytest.approx(3 / 5 + 2 / 5 * 3 / 4)
    assert pool.of("never used") is pool.whole
    holders = [UseHolder("ada", offer, 0.0) for offer in (ONE, TWO, ONE)]
    found = Draws(DurationHistory(uses), [], 400, 5, by_curve=True).lives(holders)
    assert [(lives < 100).mean() for lives in found] == pytest.approx([short, 1 / 10, short], abs=0.01)


def test_who_still_runs_on_an_offer_counts_in_its_curve() -> None:
    uses = [PastUse("ada", ONE, 0.0, 60.0) for _ in range(10)]
    other, same = (PoolCurves(uses, [(offer, 90.0)] * 10).of(ONE) for offer in (TWO, ONE))
    assert beyond(other, 60.0) < beyond(same, 60.0)


@pytest.mark.whole
@pytest.mark.slow
def test_the_curve_alone_looks_further_back() -> None:
    history = DurationHistory([PastUse("ada", ONE, n * HOUR, 60.0 if n < 3000 else 6000.0) for n in range(6000)])
    assert (len(history.pool()), len(history.pool(5000)), history.finished) == (1000, 4000, 6000)
    lives = Draws(history, [], 400, 5, by_curve=True).lives([UseHolder("ada", ONE, 0.0)])[0]
    assert (lives < 100).mean() == pytest.approx(1 / 4, abs=0.01)


def test_by_the_pool_alone_a_life_is_of_the_curve_of_those_that_lasted_longer() -> None:
    uses = [PastUse("ada", ONE, n * HOUR, 60.0 * (n + 1)) for n in range(20)]
    draws = Draws(DurationHistory(uses), [UseHolder("ada", ONE, 0.0, 630.0)], 2000, 3, by_curve=True)
    lives = draws.lives([UseHolder("ada", ONE, 0.0, 630.0)])[0]
    curve = [(life, mass) for life, mass in lasted(list(reversed(uses)), [630.0]) if life > 630]
    mean = sum(life * mass for life, mass in curve) / sum(mass for _, mass in curve)
    assert lives.mean() == pytest.approx(mean, rel=0.01) and lives.min() > 630
    assert draws.lives([UseHolder("ada", ONE, 0.0, 630.0, limit=700.0)])[0].max() <= 700
    assert (
        Draws(DurationHistory(uses), [], 9, 3, by_curve=True).lives([UseHolder("b", ONE, 0.0, 9 * HOUR)])[0].min()
        >= 9 * HOUR
    )
