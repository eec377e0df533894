"""What is told of a likely wait, and how a pool's forecasts are judged."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.forecast.interval import Interval
from hub_extensions.core.forecast.results import Given, Likely, PoolView, accuracy_of, usual_ends, with_likely
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.wait_bound import WaitForecast, starts_now, unknown
from hub_extensions.core.text.reasons import Reason, explain

NOW = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
LIKELY = Likely(Interval(500.0, 1800.0, 3600.0), Interval(600.0, 1800.0, 4200.0, (0.1, 0.8, 1.0)))
VIEW = PoolView(finished=20, held=5, people=7, ending=3)
NO_LIMIT = unknown(explain("no-limit"))


def limited(minutes: float) -> WaitForecast:
    return WaitForecast(False, None, None, None, minutes * MINUTE, explain("limits-ahead"))


def given(waited: float | None, end: str = "started") -> Given:
    shown = Interval(100.0, 200.0, 300.0)
    return Given("id", "", "p", OfferId("gpu"), 0, NOW, NOW, 0, shown, shown, end=end, waited=waited)


def code(reason: Reason | None) -> str:
    return "" if reason is None else reason.reason


def test_the_likely_wait_stands_beside_the_limit() -> None:
    shown = with_likely(limited(90), LIKELY, VIEW, title="MIG 1g.5gb", as_of=NOW)
    assert (shown.p10, shown.p50, shown.p90, shown.at_most) == (10 * MINUTE, 30 * MINUTE, 70 * MINUTE, 90 * MINUTE)
    assert shown.as_of == NOW and shown.soon == (0.1, 0.8, 1.0) and shown.note == ""
    assert shown.reason is not None and shown.reason.message == "MIG 1g.5gb: 3 of 5 in use usually end within the hour."


def test_a_likely_wait_is_known_where_nothing_is_enforced() -> None:
    shown = with_likely(NO_LIMIT, LIKELY, VIEW, rough=True)
    assert shown.p90 == 70 * MINUTE and shown.at_most is None and shown.note == "rough"


def test_what_has_passed_since_is_taken_off() -> None:
    shown = with_likely(limited(60), LIKELY, VIEW, age=15 * MINUTE)
    assert (shown.p10, shown.p50, shown.p90) == (0 * MINUTE, 15 * MINUTE, 55 * MINUTE)


@pytest.mark.parametrize(
    ("bound", "note", "reason"),
    [
        (limited(60), "few-data", "limits-ahead"),
        (NO_LIMIT, "few-data", "few-data"),
        (unknown(explain("place-ends-first", hours=24)), "few-data", "place-ends-first"),
        (unknown(explain("cut-as-asked")), "", "cut-as-asked"),
        (unknown(explain("after-own-server")), "", "after-own-server"),
        (starts_now(explain("one-free")), "", "one-free"),
    ],
)
def test_few_data_are_named_where_more_would_help(bound: WaitForecast, note: str, reason: str) -> None:
    shown = with_likely(bound, LIKELY, PoolView(19, 5, 7, 3))
    assert (shown.note, code(shown.reason)) == (note, reason)
    assert shown.p90 == bound.p90


def test_nothing_is_said_of_what_was_not_computed() -> None:
    assert with_likely(limited(60), LIKELY, None) == limited(60)
    assert with_likely(limited(60), None, VIEW) == limited(60)


@pytest.mark.parametrize(
    ("view", "reason"),
    [
        (PoolView(99, 5, 3, 1), "usually-end"),
        (PoolView(99, 5, 3, 0), "usually-longer"),
        (PoolView(99, 2, 3, 1), "usually-end"),
        (PoolView(99, 5, 2, 3), ""),
        (PoolView(99, 1, 3, 1), ""),
        (PoolView(99, 0, 3, 0), ""),
    ],
)
def test_no_reason_is_about_one_person(view: PoolView, reason: str) -> None:
    assert code(usual_ends(view, "GPU")) == reason
    assert code(usual_ends(view, "GPU", ahead=2)) == (f"in-use-{reason}" if reason else "")
    assert code(with_likely(NO_LIMIT, LIKELY, view).reason) == reason
    assert code(with_likely(limited(90), LIKELY, view).reason) == (reason or "limits-ahead")


def test_a_place_that_ends_first_is_the_reason_whatever_is_usual() -> None:
    bound = unknown(explain("place-ends-first", hours=24))
    assert code(with_likely(bound, LIKELY, VIEW).reason) == "place-ends-first"


DAY = timedelta(days=1)


def episode(number: int, *waited: float, middle: float = 200.0, hour: int = 0) -> list[Given]:
    """The waits of one busy time: all begin at the same moment, and the last is over before the next day."""
    shown = Interval(middle / 2, middle, 1.5 * middle)
    return [
        replace(given(each), id=f"{number}.{place}", running=NOW + number * DAY, shown=shown, hour=hour)
        for place, each in enumerate(sorted(waited))
    ]


def test_each_busy_time_counts_once() -> None:
    """One has a hundred tickets that are all beyond P90, three have one each that is not."""
    rows = [*episode(0, *[900.0] * 100), *episode(1, 50.0), *episode(2, 200.0), *episode(3, 250.0)]
    found = accuracy_of("p", rows)
    assert (found.matured, found.episodes) == (103, 4)
    assert (found.coverage_90, found.coverage_80) == (pytest.approx(0.75), pytest.approx(0.5))
    assert found.median_error == 100.0  # of 0, 50, 150 and 700 seconds
    trebled = accuracy_of("p", [row for row in rows for _ in range(3)])
    assert replace(trebled, matured=103, coverage_90=0.75, coverage_80=0.5) == replace(
        found, coverage_90=0.75, coverage_80=0.5
    )


def test_who_left_is_no_error() -> None:
    found = accuracy_of("p", [given(None, "left"), given(None, "changed"), given(None, "")])
    assert (found.matured, found.episodes, found.coverage_90, found.rough) == (0, 0, None, True)


@pytest.mark.parametrize(
    ("busy", "tickets", "rough"),
    [(0, 0, True), (1, 500, True), (7, 30, True), (8, 1, False), (8, 30, False), (50, 1, True)],
)
def test_with_fewer_than_eight_busy_times_a_forecast_is_rough(busy: int, tickets: int, rough: bool) -> None:
    """Of fifty that are all covered P90 is too high."""
    rows = [row for number in range(busy) for row in episode(number, *[200.0] * tickets)]
    assert accuracy_of("p", rows).rough is rough


@pytest.mark.parametrize(
    ("hits", "misses", "rough"), [(16, 4, False), (15, 5, True), (45, 5, False), (49, 1, True), (39, 11, True)]
)
def test_a_p90_that_covers_too_few_busy_times_or_too_many_is_rough(hits: int, misses: int, rough: bool) -> None:
    rows = [row for number in range(hits) for row in episode(number, 200.0)]
    rows += [row for number in range(misses) for row in episode(100 + number, 900.0)]
    assert accuracy_of("p", rows).rough is rough


@pytest.mark.parametrize(("times", "worse"), [(1.0, False), (1.2, False), (10.0, True), (50.0, True)])
def test_a_record_that_is_worse_than_its_plain_median_is_rough(times: float, worse: bool) -> None:
    """Waits are of 10 to 80 minutes, of which the median knows nothing; P90 covers them all."""
    waits = [(number, 600.0 * 2 ** (number % 4)) for number in range(20)]
    rows = [row for number, waited in waits for row in episode(number, *[waited] * 3, middle=times * waited)]
    found = accuracy_of("p", rows)
    assert found.worse_than_plain is worse and found.rough is worse and found.coverage_90 == 1.0
    trebled = accuracy_of("p", [row for row in rows for _ in range(3)])
    assert trebled.worse_than_plain is worse


def test_the_plain_median_knows_only_what_was_over_at_the_join() -> None:
    """In each busy time all wait twice as long as in the one before; the forecast is a fifth off, the median a half."""
    rows = [row for number in range(12) for row in episode(number, *[60 * 2.0**number] * 5, middle=48 * 2.0**number)]
    assert not accuracy_of("p", rows).worse_than_plain


def test_forecasts_of_each_full_hour_are_of_the_busy_time_of_their_ticket() -> None:
    first = replace(given(8000.0), running=NOW)
    later = replace(given(4400.0), id="later", hour=1, running=NOW + timedelta(hours=1))
    assert accuracy_of("p", [first, later]).episodes == 1


def test_only_the_last_fifty_busy_times_count() -> None:
    rows = [row for number in range(80) for row in episode(number, *[900.0] * 5)]
    rows += [row for number in range(100, 145) for row in episode(number, 200.0)]
    rows += [row for number in range(200, 205) for row in episode(number, 900.0)]
    found = accuracy_of("p", rows)
    assert (found.matured, found.episodes, found.coverage_90) == (50, 50, pytest.approx(0.9))
