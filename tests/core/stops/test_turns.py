"""When stops begin: how many at once and in two minutes, who first, and the pause after one that failed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.culling import CullPolicy
from hub_extensions.core.stops import DueStop, StopPause, pause_after, stops_to_begin

NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
SECOND = timedelta(seconds=1)
POLICY = (3, 2)
SHIPPED = (CullPolicy().concurrent_stop_limit, CullPolicy().stops_per_minute)
FOUR = [DueStop((name, ""), NOW - n * SECOND) for n, name in enumerate(("ada", "ben", "eve", "kim"))]


@pytest.mark.parametrize(
    ("under_way", "begun", "expected"),
    [
        (0, [], ["kim", "eve", "ben"]),
        (2, [], ["kim"]),
        (3, [], []),
        (4, [], []),
        (0, [119, 1], ["kim", "eve"]),
        (0, [120, 120, 119], ["kim", "eve", "ben"]),
        (0, [70, 4, 3, 2], []),
        (2, [5, 4, 3], ["kim"]),
    ],
)
def test_so_many_stops_begin_at_once_and_in_two_minutes(under_way: int, begun: list[int], expected: list[str]) -> None:
    moments = [NOW - ago * SECOND for ago in begun]
    assert [user for user, _ in stops_to_begin(FOUR, under_way, moments, {}, *POLICY, NOW)] == expected


def test_the_gpu_that_is_wanted_most_is_freed_first_then_the_largest_then_who_is_due_longest() -> None:
    due = [
        DueStop(("cpu", ""), NOW - 9 * SECOND),
        DueStop(("part", ""), NOW, share=250),
        DueStop(("whole", ""), NOW, share=1000),
        DueStop(("older", ""), NOW - SECOND, share=1000),
        DueStop(("wanted", ""), NOW, share=143, waiting=2),
    ]
    order = [user for user, _ in stops_to_begin(due, 0, [], {}, 9, 9, NOW)]
    assert order == ["wanted", "older", "whole", "part", "cpu"]


@pytest.mark.parametrize(("until", "begins"), [(1, False), (0, True), (-1, True)])
def test_a_stop_that_failed_waits_for_its_pause_and_gives_its_turn_to_others(until: int, begins: bool) -> None:
    pauses = {("kim", ""): StopPause(1, NOW + until * SECOND)}
    chosen = [user for user, _ in stops_to_begin(FOUR, 0, [], pauses, *POLICY, NOW)]
    assert chosen == (["kim", "eve", "ben"] if begins else ["eve", "ben", "ada"])


def test_the_pause_doubles_up_to_five_minutes() -> None:
    pause, lengths = None, []
    for _ in range(9):
        pause = pause_after(pause, NOW)
        lengths.append((pause.until - NOW).total_seconds())
    assert lengths == [5, 10, 20, 40, 80, 160, 300, 300, 300]


@pytest.mark.parametrize(("asked", "waits"), [(0, 5), (7, 7), (90, 90), (86_400, 3600)])
def test_a_hub_that_says_when_to_come_back_is_believed_within_reason(asked: int, waits: int) -> None:
    assert pause_after(None, NOW, asked * SECOND).until == NOW + waits * SECOND


def test_forty_that_fall_due_together_after_a_quiet_minute_are_stopped_ten_by_ten_without_a_pause() -> None:
    due = [DueStop((f"u{n}", ""), NOW) for n in range(70)]
    begun: list[datetime] = []
    for turn in range(7):
        now = NOW + turn * 5 * SECOND
        chosen = stops_to_begin(due[len(begun) :], 0, begun, {}, *SHIPPED, now)
        begun += [now] * len(chosen)
    assert len(begun) == 60, "and the last ten wait: thirty a minute, as a mean of two"


@pytest.mark.slow
@given(st.lists(st.integers(0, 150), max_size=70), st.integers(0, 12), st.integers(0, 40))
def test_there_are_never_more_than_allowed(begun: list[int], under_way: int, due: int) -> None:
    policy = CullPolicy()
    stops = [DueStop((f"u{n}", ""), NOW) for n in range(due)]
    moments = [NOW - ago * SECOND for ago in begun]
    chosen = stops_to_begin(stops, under_way, moments, {}, *SHIPPED, NOW)
    lately = sum(1 for ago in begun if ago < 120)
    assert not chosen or under_way + len(chosen) <= policy.concurrent_stop_limit
    assert not chosen or lately + len(chosen) <= 2 * policy.stops_per_minute
