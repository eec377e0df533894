"""What came true counts by busy episode: however many tickets an episode had, it is one experiment."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.forecast.episodes import EPISODES, FEWEST_EPISODES, BusyEpisodes, Rules, shift_of, weighted
from hub_extensions.core.forecast.interval import Interval, log_time, shifted
from tests.examples import many

HOUR = 3600.0
SIMULATED = Interval(HOUR, 2 * HOUR, 3 * HOUR)

Wait = tuple[float, float, "float | None"]
"""When it began, how long it was, and the limit."""


def recorded(*waits: Wait, simulated: Interval = SIMULATED, times: int = 1, rules: Rules | None = None) -> BusyEpisodes:
    found = BusyEpisodes() if rules is None else BusyEpisodes(rules)
    for joined, waited, limit in sorted(waits, key=lambda wait: wait[0] + wait[1]):
        for _ in range(times):
            found.matured(simulated, waited, limit, joined)
    return found


def burst(at: float, tickets: int, waited: float, limit: float | None = None) -> list[Wait]:
    """One busy episode: so many tickets, a second after another."""
    return [(at + number, waited, limit) for number in range(tickets)]


def test_before_anything_came_true_p90_is_a_fifth_wider() -> None:
    shown = BusyEpisodes().lessons.shown(SIMULATED, None)
    assert shown.p50 == SIMULATED.p50
    assert log_time(shown.p90) - log_time(SIMULATED.p90) == pytest.approx(0.2)
    assert log_time(SIMULATED.p10) - log_time(shown.p10) == pytest.approx(0.2)


@pytest.mark.parametrize("waited", [0.0, 60.0, 12 * HOUR, 100 * HOUR])
@pytest.mark.parametrize("tickets", [1, 20, 150])
@pytest.mark.parametrize("limit", [None, 12 * HOUR, 100 * HOUR])
def test_one_long_episode_moves_no_middle_of_the_next_one(tickets: int, waited: float, limit: float | None) -> None:
    """The guard: 150 tickets of one episode at the limit, and then a quiet one."""
    lessons = recorded(*burst(0.0, tickets, waited, limit)).lessons
    quiet = 1000 * HOUR
    for first in (None, quiet - HOUR):
        shown = lessons.shown(SIMULATED, limit, first, quiet)
        assert shown.p50 == min(SIMULATED.p50, math.inf if limit is None else limit)
    assert not lessons.limit_is_p90 and lessons.shift <= (20 * 0.2 + 2.6) / 21 + 0.1


@many(60)
@given(st.lists(st.tuples(st.floats(0, 1e5), st.floats(0, 1e5), st.one_of(st.none(), st.floats(0, 1e5))), max_size=40))
def test_every_ticket_given_three_times_changes_no_weight(waits: list[Wait]) -> None:
    once, thrice = recorded(*waits).lessons, recorded(*waits, times=3).lessons
    assert replace(once, shift=0.0) == replace(thrice, shift=0.0)
    assert once.shift == pytest.approx(thrice.shift)


@pytest.mark.parametrize(
    ("errors", "shift"),
    [
        ([], 0.2),
        ([[1.0]], (20 * 0.2 + 1.0) / 21),
        ([[1.0] * 150], (20 * 0.2 + 1.0) / 21),  # one episode is one, whatever it had
        ([[0.0] * 150] + [[1.0]] * 20, (20 * 0.2 + 21 * 1.0) / 41),
        ([[0.0]] * 19 + [[1.0] * 150], (20 * 0.2 + 20 * 0.0) / 40),
        ([[-3.0]] * 50, 0.1),
        ([[90.0]] * 50, 2.5),
        ([[0.0] * 9 + [1.0]] * 10, (20 * 0.2 + 10 * 0.0) / 30),  # nine of ten lie at 0
        ([[0.0] * 4 + [1.0]] * 10, (20 * 0.2 + 10 * 1.0) / 30),
    ],
)
def test_the_shift_of_p90_is_of_the_prior_and_of_each_episode_once(errors: list[list[float]], shift: float) -> None:
    for times in (1, 3):
        found = shift_of(weighted([each * times for each in errors]), len(errors))
        assert found == pytest.approx(shift)


def test_only_the_last_episodes_count() -> None:
    old = [(1000 * HOUR * number, 100 * HOUR, None) for number in range(50)]
    new = [(1000 * HOUR * (100 + number), SIMULATED.p90, None) for number in range(EPISODES)]
    assert recorded(*old).lessons.shift > 1
    assert recorded(*old, *new).lessons.shift == pytest.approx(20 * 0.2 / (20 + EPISODES), abs=0.05)


def rows(count: int, waited: float, limit: float) -> list[Wait]:
    """So many episodes, of 30 tickets each."""
    return [wait for number in range(count) for wait in burst(1000 * HOUR * number, 30, waited, limit)]


@pytest.mark.slow
@pytest.mark.parametrize(
    ("episodes", "waited", "known"),
    [
        (FEWEST_EPISODES, 12 * HOUR, True),  # all reached the limit, and less was simulated
        (FEWEST_EPISODES - 1, 12 * HOUR, False),
        (1, 12 * HOUR, False),
        (FEWEST_EPISODES, 2 * HOUR, False),  # the simulation was right
        (EPISODES, 2 * HOUR, False),
    ],
)
def test_the_limit_is_p90_where_it_was_better_over_eight_episodes_and_never_the_middle(
    episodes: int, waited: float, known: bool
) -> None:
    lessons = recorded(*rows(episodes, waited, 12 * HOUR)).lessons
    assert lessons.limit_is_p90 is known
    shown = lessons.shown(SIMULATED, 10 * HOUR)
    assert shown.p50 == SIMULATED.p50 and (shown.p90 == 10 * HOUR) is known
    assert lessons.shown(SIMULATED, None).p90 < 10 * HOUR


@pytest.mark.parametrize("without", [0, 30])
def test_episodes_without_a_limit_say_nothing_of_it(without: int) -> None:
    free = [(1e9 + 1000 * HOUR * number, 2 * HOUR, None) for number in range(without)]
    assert recorded(*rows(8, 12 * HOUR, 12 * HOUR), *free).lessons.limit_is_p90


def under_way(batches: int, *, better: bool = True, at: float = 0.0) -> list[Wait]:
    """One episode that goes on: each wait overlaps with the next, and is twice as long as that of the first in line.

    The simulation says 2 hours all the while: where they are 20, the first in line is the better guide.
    """
    length = 20 * HOUR if better else 2 * HOUR
    step = 0.5 * length
    return [(at + step * number, length, None) for number in range(1 + 2 * batches)]


@pytest.mark.parametrize(
    ("waits", "helps"),
    [
        (under_way(1), False),  # one batch is one experiment
        (under_way(2), True),
        (under_way(6), True),
        (under_way(6, better=False), False),  # the simulation is right
        (burst(0.0, 200, 20 * HOUR), False),  # all wait at once: one batch
        ([], False),
    ],
)
def test_the_first_in_line_counts_after_two_batches_of_the_episode_under_way(waits: list[Wait], helps: bool) -> None:
    lessons = recorded(*waits).lessons
    last = max((joined + waited for joined, waited, _ in waits), default=0.0)
    now, first = last, last - 10 * HOUR
    shown = lessons.shown(SIMULATED, None, first, now)
    assert (shown.p50 != SIMULATED.p50) is helps
    if helps:
        assert log_time(shown.p50) == pytest.approx((log_time(SIMULATED.p50) + log_time(10 * HOUR)) / 2)
    assert lessons.shown(SIMULATED, None, None, now).p50 == SIMULATED.p50  # nobody is ahead


@pytest.mark.parametrize("later", [0.0, 1.0, HOUR, 1000 * HOUR])
def test_once_the_line_was_empty_nothing_of_the_episode_counts(later: float) -> None:
    """Also before anything of the next one came true: the first in line joined after the last wait was over."""
    waits = under_way(6)
    over = max(joined + waited for joined, waited, _ in waits)
    shown = recorded(*waits).lessons.shown(SIMULATED, None, over + later, over + later + 10 * HOUR)
    assert shown.p50 == SIMULATED.p50
    begun = recorded(*waits, (over + later, HOUR, None)).lessons
    assert begun.first_until == -math.inf


@many(100)
@given(
    st.lists(st.tuples(st.floats(0, 1e6), st.floats(0, 1e5), st.one_of(st.none(), st.floats(0, 1e5))), max_size=60),
    st.floats(0, 1e5),
    st.floats(0, 1e6),
)
def test_a_limit_is_never_exceeded_whatever_came_true(waits: list[Wait], most: float, now: float) -> None:
    shown = recorded(*waits).lessons.shown(Interval(10.0, 600.0, 6000.0), most, now / 2, now)
    assert 0 <= shown.p10 <= shown.p50 <= shown.p90 <= most


def test_a_wait_of_no_length_that_is_reported_again_is_no_new_episode() -> None:
    late = shifted(SIMULATED.p90, 1.0)
    some = [(0.0, late, None), (2000 * HOUR, 0.0, None)]
    assert recorded(*some).lessons.shift == pytest.approx(recorded(*some, times=3).lessons.shift)
