"""What is shown and reported of the training runs of a server."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone
from typing import Any

import pytest

from hub_extensions.core.forecast.training import ABOUT, AT_LEAST, AT_MOST, TimeLeft, TrainingRun
from hub_extensions.core.forecast.training_runs import (
    Followed,
    Trace,
    followed,
    in_order,
    is_shown,
    next_report,
    state_of,
    training_of,
)
from hub_extensions.core.messages import Progress

NOW = datetime(2026, 11, 29, 12, 0, tzinfo=timezone.utc)


def seconds(number: float) -> timedelta:
    return timedelta(seconds=number)


def a_run(**changes: Any) -> TrainingRun:
    run = TrainingRun(
        "a" * 16,
        "mnist",
        "loop",
        "running",
        NOW - seconds(1000),
        NOW,
        steps=501,
        start=0,
        total=2000,
        epochs=20,
        epoch_steps=100,
        first_seconds=3.0,
        group_steps=100,
        groups=(100.0,) * 5,
        rest_steps=0,
        rest_seconds=0.0,
    )
    return replace(run, **changes)


LOOK = 5.0
PIECES = {"+": (True, True), "o": (True, False), "-": (False, False), "?": (None, False)}
"""What a look finds: a process of this server, of another, none, or nothing that can be seen."""


def looked(looks: str, *, updated: bool, **changes: Any) -> Trace:
    """The trace after these looks, 5 s apart; `updated`: the file is updated at each of them."""
    trace = Trace()
    for number, look in enumerate(looks):
        now = NOW + seconds(LOOK * number)
        run = a_run(**changes) if not updated else a_run(at=now)
        trace = followed(trace, run, *PIECES[look], now)
    return trace


@pytest.mark.parametrize(
    ("looks", "updated", "gone", "outside"),
    [
        pytest.param("+", True, False, False, id="a process of this server"),
        pytest.param("+-", False, True, False, id="killed"),
        pytest.param("++o", True, False, False, id="a daemon that left its terminal"),
        pytest.param("++o-", True, True, False, id="a daemon that was killed"),
        pytest.param("o", True, False, True, id="of somebody else"),
        pytest.param("o-", False, True, True, id="of somebody else, killed"),
        pytest.param("o---", False, True, True, id="it stays so"),
        pytest.param("-", False, False, False, id="never seen: the first look"),
        pytest.param("--", False, False, False, id="never seen: it may write in a moment"),
        pytest.param("---", False, True, False, id="never seen, and silent for 10 s"),
        pytest.param("---", True, False, True, id="it writes and is not here: another container"),
        pytest.param("-----" * 50, True, False, True, id="and stays there"),
        pytest.param("?", False, False, False, id="no /proc"),
        pytest.param("????????????????????", False, False, False, id="never told to be gone"),
    ],
)
def test_whether_a_process_is_gone_or_outside_follows_from_the_looks(
    looks: str, updated: bool, gone: bool, outside: bool
) -> None:
    trace = looked(looks, updated=updated)
    assert (trace.gone, trace.outside) == (gone, outside)


def test_a_process_of_another_container_that_was_taken_for_gone_comes_back_when_it_writes() -> None:
    trace = looked("---", updated=False)
    assert state_of(a_run(), trace) == "vanished"
    later = NOW + seconds(20)
    trace = followed(trace, a_run(at=later), False, False, later)
    assert (state_of(a_run(at=later), trace), trace.outside) == ("running", True)


def test_a_slow_run_of_another_container_has_time_for_two_steps() -> None:
    slow = {"group_steps": 1, "groups": (60.0, 60.0), "rest_steps": 0}
    assert not looked("-" * 20, updated=False, **slow).gone
    assert looked("-" * 30, updated=False, **slow).gone


@pytest.mark.parametrize("state", ["done", "left", "failed"])
def test_a_run_that_ended_by_itself_is_not_vanished(state: str) -> None:
    assert state_of(a_run(state=state), looked("+-", updated=False)) == state


@pytest.mark.parametrize(
    ("state", "alive", "age", "shown"),
    [
        ("running", True, 3600, True),
        ("running", False, 500, True),
        ("running", None, 500, True),
        ("running", None, 700, False),
        ("running", False, 700, False),
        ("done", False, 11 * 3600, True),
        ("done", True, 13 * 3600, False),
    ],
)
def test_without_its_process_a_run_is_shown_while_its_file_is_updated(
    state: str, alive: bool | None, age: float, shown: bool
) -> None:
    assert is_shown(a_run(state=state), Trace(), alive, NOW + seconds(age)) is shown


@pytest.mark.parametrize(
    ("changes", "epoch"),
    [
        ({"steps": 0}, 1),
        ({"steps": 99}, 1),
        ({"steps": 100}, 2),
        ({"steps": 50, "start": 950}, 11),
        ({"steps": 2000, "state": "done"}, 20),
        ({"steps": 150, "epoch_steps": None}, 2),
        ({"steps": 150, "epoch_steps": None, "total": None}, None),
        ({"steps": 150, "epochs": None, "total": None}, 2),
    ],
)
def test_the_epoch_counts_from_one(changes: dict[str, Any], epoch: int | None) -> None:
    assert training_of(Followed(a_run(**changes), Trace(), "running")).epoch == epoch


def left(seconds: float = 1000.0, bound: str = ABOUT, spread: float = 0.1) -> TimeLeft:
    return TimeLeft(seconds, seconds / 1.1, seconds * 1.1, spread, bound)


def run(name: str = "a", time_left: TimeLeft | None = None, state: str = "running", **changes: Any) -> Followed:
    trace = changes.pop("trace", Trace(seen=True))
    return Followed(a_run(run=name * 16, state=state, **changes), trace, state, time_left)


def test_a_run_is_shown_with_its_steps_and_time_left() -> None:
    shown = training_of(run(time_left=left()))
    assert (shown.steps, shown.total_steps, shown.epoch, shown.step_seconds) == (501, 2000, 6, 1.0)
    assert (shown.left_seconds, shown.bound, shown.usual_step_seconds, shown.ended_at) == (1000.0, "about", None, None)
    resumed = training_of(run(start=200))
    assert (resumed.steps, resumed.left_seconds, resumed.bound) == (701, None, "")
    assert training_of(run(state="done")).ended_at == NOW


def test_a_run_that_became_slower_shows_both_rates() -> None:
    shown = training_of(run(groups=(40.0,) * 18 + (90.0,) * 6))
    assert (shown.step_seconds, shown.usual_step_seconds) == (0.9, 0.4)
    ended = training_of(run(groups=(40.0,) * 18 + (90.0,) * 6, state="done"))
    assert (ended.step_seconds, ended.usual_step_seconds) == (0.525, None)


def test_the_most_time_left_comes_first_and_ended_runs_last() -> None:
    runs = [
        run("1", state="done", at=NOW - seconds(60)),
        run("2", left(100)),
        run("3"),
        run("4", left(5000)),
        run("5", state="failed", at=NOW - seconds(5)),
    ]
    assert [each.run.run[0] for each in in_order(runs)] == ["4", "2", "3", "5", "1"]


# ------------------------------------------------------------------ reports

TOLD = Progress(NOW, 1000.0, 0.1)


@pytest.mark.parametrize(
    ("runs", "told"),
    [
        pytest.param([], None, id="no run"),
        pytest.param([run()], None, id="no end"),
        pytest.param([run(time_left=left(bound=AT_LEAST))], None, id="at least"),
        pytest.param([run(time_left=left())], (1000.0, 0.1), id="about"),
        pytest.param([run(time_left=left(bound=AT_MOST, spread=0.5))], (1000.0, 0.5), id="at most"),
        pytest.param([run(time_left=left(bound=AT_MOST, spread=0.7))], (1000.0, 0.7), id="at most, and less sure"),
        pytest.param([run(time_left=left(spread=9.0))], (1000.0, 1.0), id="a spread is at most 1"),
        pytest.param([run(time_left=left(1e12))], (30 * 86400.0, 0.1), id="at most 30 days"),
        pytest.param([run(time_left=left(0.0))], (1.0, 0.1), id="0 means that it has ended"),
        pytest.param([run("a", left(10)), run("b", left(5000))], (5000.0, 0.1), id="the one with the most left"),
        pytest.param([run("a", left(10)), run("b")], None, id="one of them has no known end"),
        pytest.param([run(state="done"), run("b", left(70))], (70.0, 0.1), id="one has ended"),
        pytest.param([run(time_left=left(), trace=Trace(seen=True, outside=True))], None, id="from outside"),
        pytest.param([run(time_left=left(), trace=Trace())], None, id="of a process that was not seen"),
    ],
)
def test_the_end_of_the_run_with_the_most_time_left_is_reported(
    runs: list[Followed], told: tuple[float, float] | None
) -> None:
    progress = next_report(None, runs, NOW, 1e9)
    assert (None if progress is None else (progress.left_seconds, progress.spread)) == told


@pytest.mark.parametrize(
    ("after", "time_left", "due"),
    [
        (5.0, 995.0, False),
        (5.0, 1080.0, False),
        (5.0, 1100.0, True),
        (5.0, 890.0, True),
        (29.0, 971.0, False),
        (30.0, 970.0, True),
    ],
)
def test_a_report_is_due_every_30_s_or_if_the_end_moved_by_a_tenth(after: float, time_left: float, due: bool) -> None:
    now = NOW + seconds(after)
    runs = [run(time_left=left(time_left), at=now)]
    assert (next_report(TOLD, runs, now, after) is not None) is due


def test_nothing_new_is_not_reported_again() -> None:
    assert next_report(TOLD, [run(time_left=left())], NOW + seconds(60), 60.0) is None


def test_a_run_with_slow_steps_is_reported_again_every_5_minutes_for_a_service_that_restarted() -> None:
    runs = [run(time_left=left())]
    assert next_report(TOLD, runs, NOW + seconds(299), 299.0) is None
    assert next_report(TOLD, runs, NOW + seconds(300), 300.0) == TOLD


def test_a_report_is_never_dated_before_the_last_one() -> None:
    later = run("b", left(5000), at=NOW - seconds(20))
    found = next_report(TOLD, [run(time_left=left()), later], NOW, 5.0)
    assert found == Progress(NOW, 4980.0, 0.1)


def test_the_end_of_the_last_run_is_reported_once() -> None:
    now = NOW + seconds(900)
    ended = run(state="done", at=now - seconds(10))
    assert next_report(TOLD, [ended, run("b", at=now)], now, 5.0) != Progress(now, 0.0)
    assert next_report(TOLD, [ended], now, 5.0) == Progress(now, 0.0)
    assert next_report(Progress(now, 0.0), [ended], now + seconds(60), 60.0) is None
    again = next_report(Progress(now, 0.0), [ended, run("b", left(70), at=now)], now, 1.0)
    assert again == Progress(now, 70.0, 0.1)


def test_a_loop_of_trainings_has_no_end_between_two_of_them() -> None:
    """Otherwise each of many short ends would be true, and the server would never be done."""
    ended = run(state="done", at=NOW + seconds(1000))
    assert next_report(TOLD, [ended], NOW + seconds(1005), 1e9) is None
    now = NOW + seconds(1009)
    assert next_report(TOLD, [ended, run("b", left(1000), at=now)], now, 5.0) == Progress(now, 1000.0, 0.1)


@pytest.mark.parametrize("state", ["left", "failed", "vanished"])
def test_an_interruption_withdraws_the_reported_end_at_once(state: str) -> None:
    """A user who stops a training early has not reported a wrong end."""
    now = NOW + seconds(300)
    interrupted = run(state=state, at=now - seconds(1))
    found = next_report(TOLD, [interrupted], now, 5.0)
    assert found == Progress(now, 0.0, 1.0)
    assert next_report(found, [interrupted], now + seconds(60), 60.0) is None
    again = [interrupted, run("b", left(3000), at=now)]
    found = next_report(TOLD, again, now, 5.0)
    assert found == Progress(now, 700.0, 1.0), "the next run does not inherit the reported end"
    assert next_report(found, again, now + seconds(2), 2.0) == Progress(now, 3000.0, 0.1)


def test_an_earlier_interruption_does_not_withdraw_a_later_end() -> None:
    now = NOW + seconds(100)
    runs = [run(state="left", at=NOW - seconds(500)), run("b", state="done", at=NOW + seconds(50))]
    assert next_report(TOLD, runs, now, 60.0) == Progress(now, 0.0)


def test_an_end_is_withdrawn_if_the_file_of_the_run_was_removed() -> None:
    assert next_report(TOLD, [], NOW + seconds(5), 5.0) == Progress(NOW + seconds(5), 0.0, 1.0)


def test_an_end_is_withdrawn_when_a_second_run_has_no_known_end() -> None:
    now = NOW + seconds(100)
    both = [run(time_left=left(900), at=now), run("b", at=now)]
    found = next_report(TOLD, both, now, 5.0)
    assert found == Progress(now, 900.0, 1.0)
    assert next_report(found, both, now + seconds(60), 60.0) is None
    known = [run(time_left=left(900), at=now), run("b", left(2000), at=now)]
    assert next_report(found, known, now, 5.0) == Progress(now, 2000.0, 0.1)


def test_a_run_that_is_silent_beyond_its_end_still_has_a_second_left() -> None:
    found = next_report(TOLD, [run(time_left=left(20)), run("b", left(10), at=NOW + seconds(40))], NOW, 60.0)
    assert found is not None
    assert found.left_seconds > 0
