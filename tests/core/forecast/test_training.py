"""How long a training still takes: the level, the interval and its correction, "at least" and "at most"."""

from __future__ import annotations

import math
import random
from collections.abc import Sequence
from dataclasses import replace
from statistics import NormalDist

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.forecast.training import (
    ABOUT,
    AT_LEAST,
    AT_MOST,
    MARKS,
    NotedForecast,
    PastForecast,
    TrainingRun,
    forecast_to_note,
    past_forecasts,
    present_step_seconds,
    time_left,
)
from tests.examples import many
from tests.fakes.training_report import STARTED, reported


def test_the_level_is_the_mean_without_the_first_step() -> None:
    found = time_left(reported([30.0, *[2.0] * 99], 400))
    assert found is not None and found.seconds == pytest.approx(600) and found.bound == ABOUT
    assert found.low_seconds < 600 < found.high_seconds


@pytest.mark.parametrize("seed", range(5))
def test_a_fifth_of_a_training_with_even_steps_tells_the_rest_within_a_tenth(seed: int) -> None:
    rng = random.Random(seed)
    steps = [12.0, *(0.5 * rng.gauss(1, 0.1) for _ in range(2999))]
    found = time_left(reported(steps[:600], 3000))
    assert found is not None and found.seconds == pytest.approx(sum(steps[600:]), rel=0.1)


@pytest.mark.parametrize(
    ("run", "why"),
    [
        (reported([3.0] * 10), "no total"),
        (reported([3.0] * 5, 3), "more steps than announced"),
        (reported([], 20), "no step"),
        (reported([30.0], 20), "the first step alone"),
        (reported([3.0] * 10, 20, state="done"), "over"),
        (reported([3.0] * 10, 20, state="vanished"), "over"),
    ],
)
def test_an_unknown_end_has_no_time_left(run: TrainingRun, why: str) -> None:
    assert time_left(run) is None, why


@pytest.mark.parametrize(
    ("fields", "steps", "bound"),
    [
        ({"epochs": 8, "epoch_steps": 50}, 50, AT_LEAST),
        ({"epochs": 8, "epoch_steps": 50}, 51, ABOUT),
        ({"epochs": 8}, 50, AT_LEAST),
        ({"epochs": 8}, 51, ABOUT),
        ({"epochs": 1, "epoch_steps": 400}, 80, AT_LEAST),
        ({"epochs": 1, "epoch_steps": 400}, 81, ABOUT),
        ({}, 80, AT_LEAST),
        ({}, 81, ABOUT),
        ({"epochs": 8, "epoch_steps": 50, "start": 300}, 50, AT_LEAST),
        ({"epochs": 8, "epoch_steps": 50, "start": 300}, 51, ABOUT),
        ({"epochs": 8, "epoch_steps": 50, "patience": 3}, 10, AT_MOST),
        ({"epochs": 8, "epoch_steps": 50, "patience": 3}, 200, AT_MOST),
    ],
)
def test_the_bound_is_at_least_until_an_epoch_is_over_and_at_most_with_patience(
    fields: dict[str, int], steps: int, bound: str
) -> None:
    found = time_left(reported([1.0] * steps, 400, **fields))
    assert found is not None and found.bound == bound


def test_resumed_steps_are_neither_done_nor_left() -> None:
    fresh, resumed = time_left(reported([1.0] * 100, 400)), time_left(reported([1.0] * 100, 1400, start=1000))
    assert fresh == resumed and fresh is not None and fresh.seconds == pytest.approx(300)


def test_after_the_last_step_nothing_is_left() -> None:
    found = time_left(reported([1.0] * 400, 400))
    assert found is not None and (found.seconds, found.low_seconds, found.high_seconds) == (0, 0, 0)


def alternating(lengths: Sequence[int]) -> list[float]:
    """Step times that are 1 s and 2 s by turns, each for so many steps."""
    return [1.0 + at % 2 for at, length in enumerate(lengths) for _ in range(length)]


def test_long_stretches_of_slow_steps_widen_the_interval_more_than_short_ones() -> None:
    spreads = [
        found.spread
        for length in (1, 5, 20, 50)
        if (found := time_left(reported(alternating([length] * (200 // length)), 400)))
    ]
    assert len(spreads) == 4 and spreads == sorted(spreads) and spreads[0] < 0.6 * spreads[-1]


def test_early_stopping_makes_it_at_most_the_upper_end_and_at_least_the_patience() -> None:
    known = {"epochs": 40, "epoch_steps": 20}
    about, most = (time_left(reported([1.0] * 41, 800, patience=n, **known)) for n in (None, 3))
    assert about is not None and most is not None
    assert most.seconds == most.high_seconds == about.high_seconds and most.spread >= 0.5
    assert most.low_seconds == pytest.approx(about.low_seconds * 39 / 759)


def test_at_most_leaves_room_for_the_first_validation() -> None:
    found = time_left(reported([1.0] * 10, 800, epochs=40, epoch_steps=20, patience=3))
    assert found is not None and found.seconds > 2 * 790


def earlier(errors: Sequence[float], spread: float, progress: float = 0.5) -> list[PastForecast]:
    """Forecasts of 1,000 s of earlier runs that were wrong by these logarithms."""
    return [PastForecast(progress, 1000.0, spread, 1000.0 * math.exp(error)) for error in errors]


RUN = reported([1.0] * 200, 400)


@pytest.mark.parametrize("count", [8, 20, 60, 200])
@pytest.mark.parametrize("error", [0.01, 0.1, 0.5])
def test_the_interval_is_as_wide_as_the_errors_of_earlier_runs(count: int, error: float) -> None:
    plain = time_left(RUN)
    assert plain is not None
    errors = [NormalDist(0, error).inv_cdf((at + 0.5) / count) for at in range(count)]
    random.Random(count).shuffle(errors)
    found = time_left(RUN, earlier(errors, plain.spread))
    assert found is not None and found.seconds == plain.seconds
    assert (found.spread < plain.spread) == (error < 0.3)
    assert 0.4 * error < found.spread < 2.2 * error


def test_four_of_five_runs_end_within_the_interval_whatever_it_was_before() -> None:
    """Runs one after the other, each corrected by those before; uncorrected, the interval is far too wide or narrow."""
    rng, plain = random.Random(7), time_left(RUN)
    assert plain is not None
    for error in (0.02, 0.5):
        past: list[PastForecast] = []
        hits = 0
        for _ in range(108):
            found = time_left(RUN, past)
            assert found is not None
            actual = found.seconds * math.exp(rng.gauss(0, error))
            hits += len(past) >= 8 and found.low_seconds <= actual <= found.high_seconds
            past.append(PastForecast(0.5, found.seconds, plain.spread, actual))
        assert 75 <= hits <= 88


@pytest.mark.parametrize(
    "past",
    [
        earlier([0.5] * 7, 0.2),
        earlier([0.5] * 60, 0.2, progress=0.1),
        earlier([0.5] * 60, 0.0),
        [PastForecast(0.5, 0.0, 0.2, 100.0)] * 60,
        [PastForecast(0.5, 100.0, 0.2, 0.0)] * 60,
    ],
    ids=["too few", "of another progress", "no spread", "nothing forecast", "nothing left"],
)
def test_earlier_runs_that_say_nothing_correct_nothing(past: list[PastForecast]) -> None:
    assert time_left(RUN, past) == time_left(RUN)


def test_the_last_sixty_count() -> None:
    assert time_left(RUN, [*earlier([0.9] * 60, 0.2), *earlier([0.01] * 60, 0.2)]) == time_left(
        RUN, earlier([0.01] * 60, 0.2)
    )


def test_forecasts_are_noted_once_at_each_mark_and_become_past_ones_when_the_run_is_done() -> None:
    noted: list[NotedForecast] = []
    for done in range(1, 401):
        if (found := forecast_to_note(reported([2.0] * done, 400), noted)) is not None:
            noted.append(found)
    assert [each.progress for each in noted] == pytest.approx(MARKS)
    done = reported([2.0] * 400, 400, state="done")
    assert [(each.progress, each.actual_seconds) for each in past_forecasts(done, noted)] == [
        (each.progress, pytest.approx(each.left_seconds)) for each in noted
    ]


def test_a_look_that_passes_two_marks_notes_one_forecast() -> None:
    noted = forecast_to_note(reported([2.0] * 120, 400))
    assert noted is not None and forecast_to_note(reported([2.0] * 121, 400), [noted]) is None


@pytest.mark.parametrize("fields", [{"state": "failed"}, {"state": "left"}, {"total": 500}, {"total": None}])
def test_a_run_that_did_not_reach_its_end_teaches_nothing(fields: dict[str, object]) -> None:
    noted = forecast_to_note(reported([2.0] * 100, 400))
    assert noted is not None
    done = reported([2.0] * 400, 400, state="done")
    assert past_forecasts(done, [noted]) and past_forecasts(replace(done, **fields), [noted]) == ()


@pytest.mark.parametrize(
    ("steps", "found"),
    [
        ([30.0], None),
        ([30.0, 0.4], (0.4, None)),
        ([30.0, *[0.4] * 200], (0.4, None)),
        ([30.0, *[0.4] * 200, *[0.9] * 60], (0.9, 0.4)),
        ([30.0, *[0.9] * 200, *[0.4] * 60], (0.4, None)),
        ([30.0, *[0.4] * 200, 60.0, *[0.4] * 5], (0.4, None)),
        ([30.0, *([*[0.4] * 7, 4.0] * 20)], (0.85, None)),
    ],
    ids=["first step", "second step", "even", "slower", "faster", "one pause", "a validation in each group"],
)
def test_slower_than_before(steps: list[float], found: tuple[float, float | None] | None) -> None:
    now = present_step_seconds(reported(steps, 1000))
    assert now == (found and (pytest.approx(found[0]), found[1] and pytest.approx(found[1])))


DURATIONS = st.floats(0, 1e9, allow_nan=False) | st.sampled_from([0.0, 1e-9, 1e300])


def test_a_spread_that_no_forecast_has_counts_as_the_largest() -> None:
    run = reported([1.0, 1.0, 1.0], 13)
    past = [PastForecast(0.15, 1.0, 1.0, 1.0)] * 7
    found = time_left(run, [*past, PastForecast(0.15, 1.0, 1e300, 1.0)])
    assert found is not None and found == time_left(run, [*past, past[0]])


@many(60)
@given(
    st.lists(DURATIONS, max_size=150),
    st.none() | st.integers(0, 2_000_000),
    st.integers(0, 1000),
    st.none() | st.integers(0, 50),
    st.none() | st.integers(0, 2000),
    st.none() | st.integers(0, 10),
    st.lists(st.tuples(st.floats(0, 1), *[st.floats(0, 1e300)] * 3), max_size=20),
)
def test_every_report_has_an_ordered_finite_answer(
    steps: list[float],
    total: int | None,
    start: int,
    epochs: int | None,
    epoch_steps: int | None,
    patience: int | None,
    past: list[tuple[float, float, float, float]],
) -> None:
    run = reported(steps, total, start=start, epochs=epochs, epoch_steps=epoch_steps, patience=patience, at=STARTED)
    found = time_left(run, [PastForecast(*each) for each in past])
    assert found is None or 0 <= found.low_seconds <= found.high_seconds < math.inf
    assert found is None or (found.low_seconds <= found.seconds <= found.high_seconds and 0 < found.spread < math.inf)
    now = present_step_seconds(run)
    assert now is None or 0 <= now[0] < math.inf
    forecast_to_note(run)
