"""What earlier training runs of a user tell about the next one."""

from __future__ import annotations

from datetime import datetime, timezone

import pytest

from hub_extensions.core.forecast.training import FEWEST, PastForecast
from hub_extensions.core.forecast.training_history import MAX_RUNS, PastRun, TrainingHistory

AT = datetime(2026, 11, 29, 12, 0, tzinfo=timezone.utc)


def past(run: int, seconds: float = 600.0, name: str = "mnist", offer: str = "mig-1g.5gb", **changes: bool) -> PastRun:
    forecast = PastForecast(0.5, seconds / 2, 0.1, seconds / 2)
    return PastRun(f"{run:016x}", name, offer, AT, seconds, changes.get("resumed", False), (forecast,))


def history(*runs: PastRun) -> TrainingHistory:
    found = TrainingHistory()
    for run in runs:
        found = found.add(run)
    return found


@pytest.mark.parametrize(
    ("runs", "usual"),
    [
        ((), (None, 0)),
        ((past(1),), (None, 1)),
        ((past(1, 600), past(2, 800)), (700, 2)),
        ((past(1, 600), past(2, 800), past(3, 9000)), (800, 3)),
        ((past(1, 600), past(2, 800, "cifar"), past(3, 900, offer="gpu")), (None, 1)),
        ((past(1, 600), past(2, 10, resumed=True), past(3, 800)), (700, 2)),
        (tuple(past(n, 10) for n in range(20)) + tuple(past(100 + n, 600) for n in range(10)), (600, 10)),
    ],
)
def test_the_usual_length_is_the_median_of_the_last_runs_of_a_name_and_offer(
    runs: tuple[PastRun, ...], usual: tuple[float | None, int]
) -> None:
    assert history(*runs).usual("mnist", "mig-1g.5gb") == usual


def test_runs_without_a_name_have_no_usual_length() -> None:
    assert history(*(past(n, name="") for n in range(5))).usual("", "mig-1g.5gb") == (None, 0)


def test_a_run_is_kept_once_and_the_last_200_are_kept() -> None:
    full = history(*(past(n, n) for n in range(MAX_RUNS + 5)))
    assert [run.seconds for run in full.runs] == [*range(5, MAX_RUNS + 5)]
    assert full.add(past(MAX_RUNS)) is full


@pytest.mark.parametrize(("name", "seconds", "kept"), [("", 59.9, 0), ("", 60.0, 1), ("mnist", 1.0, 1)])
def test_short_loops_without_a_name_do_not_push_out_other_runs(name: str, seconds: float, kept: int) -> None:
    assert len(history(past(1, seconds, name)).runs) == kept


def test_intervals_are_corrected_by_runs_of_the_name_once_there_are_enough_of_them() -> None:
    others = [past(1000 + n, 60, "cifar") for n in range(20)]
    few = history(*others, *(past(n) for n in range(FEWEST - 1)))
    assert len(few.past("mnist", "mig-1g.5gb")) == 20 + FEWEST - 1
    enough = few.add(past(FEWEST))
    assert {each.actual_seconds for each in enough.past("mnist", "mig-1g.5gb")} == {300.0}
    assert enough.past("mnist", "gpu") == []
