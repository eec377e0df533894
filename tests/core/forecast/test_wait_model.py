"""The line played forward: exact where the ends are known, fair to who stands where, sure only of what it saw."""

from __future__ import annotations

import heapq
from dataclasses import replace
from datetime import timedelta

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.forecast.curves import PastUse, kaplan_meier
from hub_extensions.core.forecast.durations import Draws, DurationHistory, Left, UseHolder
from hub_extensions.core.forecast.episodes import BusyEpisodes
from hub_extensions.core.forecast.interval import Interval, log_time, quantiles
from hub_extensions.core.forecast.results import PoolView, with_likely
from hub_extensions.core.forecast.simulate import (
    Brake,
    HeldShares,
    SimulationState,
    Waiting,
    Wish,
    draws_for,
    equal_slots,
    simulate,
    simulate_lives,
)
from hub_extensions.core.forecast.wait_model import likely_waits
from hub_extensions.core.queue.wait_bound import WaitForecast
from tests.examples import many

WHOLE = 1000
HOUR = 3600.0


def person(user: str = "ada", asked: float = 0.0, age: float | None = None, **more: object) -> UseHolder:
    return UseHolder(user, "gpu", asked, age, **more)  # type: ignore[arg-type]


def starts(devices: int, left: list[tuple[int, int, float]], asks: list[tuple[int, int, float]]) -> list[float]:
    """The play with everything known: (device, share, left) of who runs, (share, devices, life) of who waits."""
    held = tuple(HeldShares(f"h{n}", person(), ((str(device), share),)) for n, (device, share, _) in enumerate(left))
    waiting = tuple(
        Waiting(f"w{n}", (Wish("p", share, person(asked=n), count),)) for n, (share, count, _) in enumerate(asks)
    )
    lives = {f"h{n}": np.array([each[2]]) for n, each in enumerate(left)}
    line = SimulationState({"p": tuple(str(n) for n in range(devices))}, held, waiting)
    found, _ = simulate_lives(line, lives, lambda wish: np.array([asks[int(wish.holder.asked)][2]]), 1)
    return [float(found[f"w{n}"][0]) for n in range(len(asks))]


def real(devices: int, left: list[tuple[int, int, float]], asks: list[tuple[int, int, float]]) -> list[float]:
    """The same, one event after another, with no arrays: the head takes the fullest that fit, or blocks."""
    free = [WHOLE] * devices
    ends = [(end, n, ((device, share),)) for n, (device, share, end) in enumerate(left)]
    for device, share, _ in left:
        free[device] -= share
    heapq.heapify(ends)
    now, found = 0.0, []
    for n, (share, count, life) in enumerate(asks):
        while sum(room >= share for room in free) < count:
            now = max(now, ends[0][0])
            while ends and ends[0][0] <= now:
                for device, freed in heapq.heappop(ends)[2]:
                    free[device] += freed
        chosen = sorted((room, device) for device, room in enumerate(free) if room >= share)[:count]
        for _, device in chosen:
            free[device] -= share
        heapq.heappush(ends, (now + life, len(left) + n, tuple((device, share) for _, device in chosen)))
        found.append(now)
    return found


@st.composite
def lines(
    draw: st.DrawFn, equal: bool = False
) -> tuple[int, list[tuple[int, int, float]], list[tuple[int, int, float]]]:
    devices = draw(st.integers(1, 4))
    shares = st.just(WHOLE) if equal else st.sampled_from([125, 250, 500, WHOLE])
    times = st.integers(1, 500).map(float)
    free = [WHOLE] * devices
    left = []
    for device, share, end in draw(st.lists(st.tuples(st.integers(0, devices - 1), shares, times), max_size=8)):
        if free[device] >= share:
            free[device] -= share
            left.append((device, share, end))
    counts = st.just(1) if equal else st.integers(1, devices)
    return devices, left, draw(st.lists(st.tuples(shares, counts, times), min_size=1, max_size=12))


@pytest.mark.whole
@pytest.mark.slow
@many(80)
@given(lines() | lines(equal=True))
def test_with_the_true_ends_the_play_is_what_happens(line) -> None:  # type: ignore[no-untyped-def]
    assert starts(*line) == real(*line)


@many(60)
@given(lines(equal=True), st.integers(1, 500))
def test_one_more_in_line_shortens_nobodys_wait_and_freeing_lengthens_nobodys(line, life: int) -> None:  # type: ignore[no-untyped-def]
    devices, left, asks = line
    before = starts(devices, left, asks)
    assert starts(devices, left, [*asks, (WHOLE, 1, float(life))])[: len(asks)] == before
    assert all(
        new >= old for new, old in zip(starts(devices, left, [(WHOLE, 1, float(life)), *asks])[1:], before, strict=True)
    )
    assert all(new <= old for new, old in zip(starts(devices, left[1:], asks), before, strict=True))


def test_of_parts_of_different_sizes_an_earlier_end_may_lengthen_a_wait() -> None:
    """The counter-example: freed sooner, the empty device is taken by a half, and the whole one waits for its end.

    What is promised then is the limit: at most as long as what is enforced says.
    """
    asks = [(500, 1, 1000.0), (WHOLE, 1, 10.0)]
    others = [(1, 750, 20.0), (1, 250, 1000.0)]
    assert starts(2, [(0, WHOLE, 30.0), *others], asks) == [20, 30]
    assert starts(2, [(0, WHOLE, 15.0), *others], asks) == [15, 1000]


def history(lasted: float = HOUR, users: int = 10, each: int = 4) -> DurationHistory:
    return DurationHistory(
        PastUse(f"u{user}", "gpu", float(number), lasted * (1 + 0.1 * (number % 3)))
        for number in range(each)
        for user in range(users)
    )


def full(devices: int = 3, waiting: int = 2, names: str = "u{}") -> SimulationState:
    held = tuple(
        HeldShares(f"h{n}", person(names.format(n), 100.0 + n, 600.0 * n, limit=12 * HOUR), ((str(n), WHOLE),))
        for n in range(devices)
    )
    line = tuple(
        Waiting(f"w{n}", (Wish("p", WHOLE, person(names.format(n + 5), 200.0 + n, limit=12 * HOUR)),))
        for n in range(waiting)
    )
    return SimulationState({"p": tuple(map(str, range(devices)))}, held, line)


def waits(
    line: SimulationState, seed: int = 1, past: DurationHistory | None = None, **more: object
) -> dict[str, Interval | None]:
    found = likely_waits(line, {"p": past or history()}, {"p": BusyEpisodes()}, seed=seed, **more)  # type: ignore[arg-type]
    return {name: likely and likely.shown for name, likely in found.tickets.items()}


def test_a_seed_is_an_answer_and_the_order_of_leases_none() -> None:
    line = full()
    assert waits(line) == waits(line)
    assert waits(replace(line, held=line.held[::-1])) == waits(line)
    assert waits(line) != waits(line, seed=2)


def test_names_are_only_compared() -> None:
    renamed = DurationHistory(
        PastUse(f"zoe-{9 - user}", "gpu", float(number), HOUR * (1 + 0.1 * (number % 3)))
        for number in range(4)
        for user in range(10)
    )
    other = full()
    held = tuple(replace(h, holder=replace(h.holder, user=f"zoe-{9 - n}")) for n, h in enumerate(other.held))
    line = tuple(
        replace(w, wishes=tuple(replace(wish, holder=replace(wish.holder, user=f"zoe-{4 - n}")) for wish in w.wishes))
        for n, w in enumerate(other.waiting)
    )
    assert waits(replace(other, held=held, waiting=line), past=renamed) == waits(full())


def test_with_few_finished_uses_nothing_is_said() -> None:
    assert waits(full(), past=history(users=4))["w0"] is None
    assert waits(full(), past=history(users=5))["w0"] is not None


@pytest.mark.slow
@many(30)
@given(st.integers(1, 4), st.integers(1, 6), st.floats(1, 1e5), st.integers(0, 9))
def test_the_interval_is_in_order_and_below_what_is_enforced(
    devices: int, waiting: int, most: float, seed: int
) -> None:
    line = full(devices, waiting)
    episodes = BusyEpisodes()
    for number in range(40):
        episodes.matured(Interval(10.0, 60.0, 600.0), 100.0 * number, None, 1e6 * number)
    found = likely_waits(line, {"p": history()}, {"p": episodes}, seed=seed, at_most={w.id: most for w in line.waiting})
    for likely in found.tickets.values():
        assert likely is not None
        assert 0 <= likely.shown.p10 <= likely.shown.p50 <= likely.shown.p90 <= most


def test_the_longer_it_has_lasted_the_longer_it_lasts() -> None:
    """Of uses of one or ten hours one that has lasted two is one of the long ones."""
    past = DurationHistory(PastUse("ada", "gpu", float(n), (HOUR, 10 * HOUR)[n % 2]) for n in range(40))
    draws = Draws(past, [], 200, 1)
    assert np.median(draws.lives([person(age=2 * HOUR)])[0]) > 9 * HOUR
    assert (Draws(past, [], 200, 1).lives([person()])[0] < 2 * HOUR).mean() > 0.3


def test_each_life_is_drawn_as_often_as_it_is_likely_whatever_the_seed_is() -> None:
    past = DurationHistory(PastUse("ada", "gpu", float(n), (HOUR, 10 * HOUR)[n % 2]) for n in range(40))
    short = [(Draws(past, [], 200, seed).lives([person("ben")])[0] < 2 * HOUR).sum() for seed in range(50)]
    assert all(abs(each - 100) <= 6 for each in short)  # drawn by chance alone they are up to 20 off


def test_a_use_that_its_limit_ended_says_that_the_next_runs_to_its_limit() -> None:
    past = DurationHistory(PastUse("ada", "gpu", float(n), HOUR, at_limit=True) for n in range(40))
    assert np.median(Draws(past, [], 200, 1).lives([person(limit=5 * HOUR)])[0]) > 4 * HOUR


LIMIT = 5 * HOUR


@pytest.mark.slow
@pytest.mark.parametrize("by_curve", [False, True])
@pytest.mark.parametrize("age", [None, 0.0, HOUR, LIMIT - 1, LIMIT, 2 * LIMIT])
@pytest.mark.parametrize(
    "uses",
    [
        [PastUse("ada", "gpu", float(n), 9 * HOUR) for n in range(40)],  # longer than the limit
        [PastUse(f"u{n % 9}", "gpu", float(n), LIMIT, at_limit=True) for n in range(40)],
        [PastUse("ben", "other", float(n), LIMIT) for n in range(40)],  # exactly as long, and not ended by it
    ],
)
def test_who_is_predicted_to_reach_the_limit_ends_exactly_there(
    uses: list[PastUse], age: float | None, by_curve: bool
) -> None:
    """Alone and together with others (drawn at once by the pool's curve); whoever is beyond it ends now."""
    past, holder = DurationHistory(uses), person(age=age, limit=LIMIT)
    ends = max(LIMIT, age or 0.0)
    assert set(Draws(past, [], 200, 1, by_curve).lives([holder])[0].tolist()) == {ends}
    for lives in Draws(past, [], 200, 1, by_curve).lives([holder, person("cyd", age=age, limit=LIMIT)]):
        assert set(lives.tolist()) == {ends}


def test_who_is_not_predicted_to_reach_the_limit_varies_below_it() -> None:
    """One half lasts to the limit: so many end there to the second, and the others around what they repeat."""
    past = DurationHistory(PastUse("ada", "gpu", float(n), (4.8 * HOUR, LIMIT)[n % 2], n % 2 == 1) for n in range(40))
    lives = Draws(past, [], 200, 1).lives([person(limit=LIMIT)])[0]
    assert 0.3 < (lives == LIMIT).mean() < 0.85 and lives.max() == LIMIT
    assert len(set(lives[lives < LIMIT].tolist())) > 20


@pytest.mark.parametrize("left", [HOUR, HOUR + 1, 9 * HOUR])
def test_who_reports_an_end_beyond_the_limit_ends_exactly_there(left: float) -> None:
    holder = person(age=4 * HOUR, limit=LIMIT, left=Left(left, 0.2))
    assert set(Draws(history(), [], 200, 1).lives([holder])[0].tolist()) == {LIMIT}


def test_a_known_end_is_taken_as_it_is() -> None:
    past = history()
    assert set(Draws(past, [], 50, 1).lives([person(age=HOUR, left=Left(120.0))])[0]) == {HOUR + 120}
    assert set(Draws(past, [], 50, 1).lives([person(age=HOUR, limit=HOUR + 60, left=Left(120.0))])[0]) == {HOUR + 60}


def test_of_several_offers_the_first_that_can_be_had_is_taken_and_both_lines_go_on() -> None:
    held = (HeldShares("a", person(), (("a", WHOLE),)), HeldShares("b", person(), (("b", WHOLE),)))
    either = Waiting("1", (Wish("x", WHOLE, person()), Wish("y", WHOLE, person())))
    behind = tuple(Waiting(n, (Wish(pool, WHOLE, person()),)) for n, pool in (("2", "x"), ("3", "y")))
    line = SimulationState({"x": ("a",), "y": ("b",)}, held, (either, *behind))
    left = {"a": np.array([100.0, 10.0]), "b": np.array([50.0, 20.0])}
    found, asked = simulate_lives(line, left, lambda wish: np.full(2, 5.0), 2, (Wish("x", WHOLE, person()),))
    assert found["1"].tolist() == [50, 10]
    assert found["2"].tolist() == [100, 15] and found["3"].tolist() == [55, 20]
    assert asked[0].tolist() == [105, 20]


def test_the_start_brake_holds_back_also_where_a_device_is_free() -> None:
    waiting = tuple(Waiting(str(n), (Wish("p", WHOLE, person()),)) for n in range(3))
    line = SimulationState({"p": ("a", "b", "c")}, (), (Waiting("cpu", ()), *waiting), Brake(2, 60.0, (30.0,)))
    found, _ = simulate_lives(line, {}, lambda wish: np.full(1, HOUR), 1)
    assert [found[name][0] for name in ("cpu", "0", "1", "2")] == [0, 30, 60, 90]


def test_an_offer_has_the_wait_of_who_comes_last_and_two_of_them_take_nothing_from_each_other() -> None:
    held = (HeldShares("a", person(), (("a", WHOLE),)),)
    line = SimulationState({"p": ("a",), "q": ("b",)}, held, (Waiting("cpu", ()),), Brake(1, 60.0, (30.0,)))
    asks = (Wish("p", WHOLE, person()), Wish("q", WHOLE, person()), Wish("q", WHOLE, person()), Wish("r", 1, person()))
    left = {"a": np.array([500.0])}
    found, asked = simulate_lives(line, left, lambda wish: np.full(1, HOUR), 1, asks)
    assert found["cpu"].tolist() == [30] and [each.tolist() for each in asked] == [[500], [90], [90], [np.inf]]
    found, asked = simulate_lives(replace(line, brake=None), left, lambda wish: np.full(1, HOUR), 1, asks)
    assert found["cpu"].tolist() == [0] and [each.tolist() for each in asked] == [[500], [0], [0], [np.inf]]
    stopped = replace(line, brake=None, held_up=frozenset({"q"}))
    assert [at.tolist() for at in simulate_lives(stopped, left, lambda wish: np.full(1, HOUR), 1, asks)[1]] == [
        [500], [np.inf], [np.inf], [np.inf],
    ]  # fmt: skip


def test_of_offers_that_are_free_at_once_the_preferred_is_taken_and_one_that_is_held_up_is_none() -> None:
    both = Waiting("1", (Wish("x", WHOLE, person()), Wish("y", WHOLE, person())))
    behind = tuple(Waiting(f"of {pool}", (Wish(pool, WHOLE, person()),)) for pool in ("x", "y"))
    line = SimulationState({"x": ("a",), "y": ("b",)}, (), (both, *behind))
    found, _ = simulate_lives(line, {}, lambda wish: np.full(3, 5.0), 3)
    assert {name: at.tolist() for name, at in found.items()} == {"1": [0] * 3, "of x": [5] * 3, "of y": [0] * 3}
    found, _ = simulate_lives(replace(line, held_up=frozenset({"x"})), {}, lambda wish: np.full(3, 5.0), 3)
    assert {name: at.tolist() for name, at in found.items()} == {"1": [0] * 3, "of x": [np.inf] * 3, "of y": [5] * 3}


def test_a_device_that_is_not_ours_any_more_is_waited_for_by_nobody() -> None:
    """Who holds two of which one is gone ends with the one that is there."""
    both = HeldShares("both", person(age=600.0, left=Left(120.0)), (("gone", WHOLE), ("a", WHOLE)))
    line = SimulationState({"p": ("a",)}, (both,), (Waiting("w", (Wish("p", WHOLE, person()),)),))
    assert simulate(line, {"p": history()}, 1).starts["w"].tolist() == [120.0] * 200
    other = replace(both, shares=(("a", WHOLE), ("gone", WHOLE)))
    assert simulate(replace(line, held=(other,)), {"p": history()}, 1).starts["w"].tolist() == [120.0] * 200


def test_so_many_worlds_are_played_as_holders_and_tickets_allow() -> None:
    held = tuple(HeldShares(f"h{n}", person(age=1.0, left=Left(60.0)), ((f"d{n}", WHOLE),)) for n in range(300))
    tickets = tuple(Waiting(f"w{n}", ()) for n in range(100))
    line = SimulationState({"p": tuple(f"d{n}" for n in range(300))}, held, tickets)
    assert {len(at) for at in simulate(line, {"p": history()}, 1).starts.values()} == {75}


def test_of_two_lines_each_has_worlds_of_its_own() -> None:
    past = {"p": history(), "q": history()}
    held = tuple(HeldShares(pool, person(age=1.0), ((f"of {pool}", WHOLE),)) for pool in past)
    line = SimulationState({pool: (f"of {pool}",) for pool in past}, held, ())
    left = simulate(line, past, 1).left
    assert left["p"].tolist() != left["q"].tolist()
    assert simulate(line, {"p": history()}, 1).left["p"].tolist() == left["p"].tolist()


@pytest.mark.parametrize(
    ("held", "wishes", "slots"),
    [
        ([("a", 500), ("a", 500), ("b", 500)], [(500, 1)], 6),
        ([("a", 500), ("b", 1000)], [(500, 1)], 0),
        ([], [(500, 1), (250, 1)], 0),
        ([], [(500, 2)], 0),
        ([], [(500, 1), (500, 2)], 0),
        ([("a", 500), ("a", 500), ("a", 500)], [(500, 1)], 0),
        ([("a", 500), ("a", 500), ("a", 500), ("b", 500)], [(500, 1)], 0),
        ([("a", 300)] * 3, [(300, 1)], 9),
        ([("a", 1000)], [], 3),
        ([], [(1000, 1)], 3),
        ([], [(1001, 1)], 0),
        ([], [], 0),
    ],
)
def test_equal_shares_of_one_device_are_slots(
    held: list[tuple[str, int]], wishes: list[tuple[int, int]], slots: int
) -> None:
    holders = [HeldShares(str(n), person(), (share,)) for n, share in enumerate(held)]
    asked = [Wish("p", share, person(), devices) for share, devices in wishes]
    assert equal_slots(("a", "b", "c"), holders, asked) == slots


def test_who_holds_two_devices_holds_no_slot() -> None:
    two, one = ((("a", 500), ("b", 500)), (("a", 500),))
    holders = [HeldShares(str(n), person(), shares) for n, shares in enumerate((two, one))]
    assert equal_slots(("a", "b"), holders, [Wish("p", 500, person())]) == 0
    assert equal_slots(("a", "b"), holders[1:], [Wish("p", 500, person())]) == 4


@pytest.mark.parametrize("pools", [{"p": ("a",)}, {"p": ()}, {"q": ("a",)}])
def test_what_nothing_frees_has_no_wait(pools: dict[str, tuple[str, ...]]) -> None:
    """A holder without an end (lost, held by others), a pool without devices, a pool that is not there."""
    line = SimulationState(
        pools,
        (HeldShares("a", person(), (("a", WHOLE),), frees=False),),
        (Waiting("w", (Wish("p", WHOLE, person()),)),),
    )
    assert waits(line) == {"w": None}


def test_who_still_runs_counts_as_lasting_longer() -> None:
    uses = [PastUse("ada", "gpu", 0, float(n)) for n in (1, 2, 3)]
    assert kaplan_meier(uses, [2.5])[1].tolist() == pytest.approx([1 / 4, 1 / 4, 1 / 2])
    lives, masses = kaplan_meier(uses, [2.5, 9.0])
    assert masses.sum() == pytest.approx(1) and masses[lives > 2].sum() > 0.5


NOW = 1000 * HOUR
SINCE = (20 * HOUR, 10 * HOUR, 0.0)
"""How long those in line have waited."""


def busy(until: float) -> BusyEpisodes:
    """A busy episode in which everybody waits for 20 hours, where 3 are simulated; the last wait ends then."""
    found = BusyEpisodes()
    for number in range(9):
        ended = until - 10 * HOUR * (8 - number)
        found.matured(Interval(HOUR, 3 * HOUR, 9 * HOUR), 20 * HOUR, None, ended - 20 * HOUR)
    return found


def test_the_median_counts_the_first_in_line_as_long_as_the_line_was_not_empty() -> None:
    """Also where people are not told apart; never for the first in line."""
    line = full(waiting=3)
    waiting = tuple(replace(each, waited=by) for each, by in zip(line.waiting, SINCE, strict=True))
    line, asks = replace(line, waiting=waiting), (Wish("p", WHOLE, person()),)
    for users in (10, 1):
        past = {"p": history(users=users, each=40 // users)}
        for until, counts in ((NOW - 19 * HOUR, True), (NOW - 20 * HOUR, False), (NOW - 30 * HOUR, False)):
            found = likely_waits(line, past, {"p": busy(until)}, seed=1, now=NOW, asks=asks)
            shown = [*(found.tickets[f"w{n}"] for n in range(3)), found.asks[0]]
            for place, likely in enumerate(shown):
                assert likely is not None
                assert (likely.shown.p50 != likely.played.p50) is (counts and place > 0)
            last = shown[2]
            if counts and last is not None:
                both = (log_time(last.played.p50) + log_time(20 * HOUR)) / 2
                assert log_time(last.shown.p50) == pytest.approx(both)


def test_without_a_clock_nothing_of_the_busy_episode_counts() -> None:
    found = likely_waits(full(), {"p": history()}, {"p": busy(NOW)}, seed=1).tickets["w1"]
    assert found is not None and found.shown.p50 == found.played.p50


def test_what_is_told_is_never_beyond_what_is_enforced() -> None:
    bound = WaitForecast(False, None, None, None, timedelta(minutes=3), None)
    found = likely_waits(full(), {"p": history()}, {"p": BusyEpisodes()}, seed=1).tickets
    view = PoolView(finished=30, held=3, people=4, ending=1)
    assert with_likely(bound, found["w0"], view).p90 == timedelta(minutes=3)
    assert with_likely(bound, None, view) == bound


@pytest.mark.parametrize(
    ("servers", "worlds"), [(0, 200), (1, 200), (150, 200), (200, 150), (300, 100), (400, 75), (469, 64), (10_000, 64)]
)
def test_fewer_worlds_are_played_where_many_lives_have_to_be_drawn(servers: int, worlds: int) -> None:
    assert draws_for(servers) == worlds


def test_where_nobody_is_distinguished_all_is_of_a_second_play_by_the_pool_too() -> None:
    """One person's last uses were long: it holds the device, and what the pool was like counts as much."""
    uses = [PastUse("one", "gpu", n * HOUR, 600.0) for n in range(60)] + [
        PastUse("one", "gpu", 100 * HOUR + n, 9000.0) for n in range(8)
    ]
    named = [replace(use, user=f"u{n % 9}") if use.lasted < 9000 else use for n, use in enumerate(uses)]
    running = UseHolder("one", "gpu", 110 * HOUR, 0.0)
    line = SimulationState(
        {"p": ("a",)},
        (HeldShares("h", running, (("a", WHOLE),)),),
        (Waiting("w", (Wish("p", WHOLE, person("other", 111 * HOUR)),)),),
    )
    found = {}
    for name, some in (("alone", uses), ("told apart", named)):
        past = DurationHistory(some)
        assert past.distinguishes_people is (name == "told apart")
        found[name] = likely_waits(line, {"p": past}, {}, seed=1, asks=(Wish("p", WHOLE, person("x")),))
        both = [simulate(line, {"p": past}, 1, (), lambda: True, curve).starts["w"].tolist() for curve in ((), ("p",))]
        expected = quantiles(*both) if name == "alone" else quantiles(both[0])
        likely = found[name].tickets["w"]
        assert likely is not None and likely.played == expected
    assert found["alone"].asks[0] is not None
