"""What is told of a likely wait, and how a pool's forecasts are judged."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.forecast import WaitForecast, starts_now, unknown
from hub_extensions.core.queue.interval import Interval
from hub_extensions.core.queue.outlook import Given, Likely, PoolView, accuracy_of, usual_ends, with_likely
from hub_extensions.core.reasons import Reason, explain

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


def test_forecasts_are_judged_by_what_came_true() -> None:
    found = accuracy_of("p", [given(50.0), given(200.0), given(250.0), given(900.0)])
    assert (found.matured, found.coverage_90, found.coverage_80, found.median_error) == (4, 0.75, 0.5, 100.0)
    assert not found.rough
    assert accuracy_of("p", [given(200.0), given(250.0), given(900.0)]).median_error == 50.0


def test_who_left_is_no_error() -> None:
    assert accuracy_of("p", [given(None, "left"), given(None, "changed"), given(None, "")]).matured == 0


@pytest.mark.parametrize(
    ("hits", "misses", "rough"),
    [(0, 49, False), (0, 50, True), (40, 10, False), (39, 11, True), (97, 3, False), (98, 2, True), (50, 0, True)],
)
def test_fifty_that_miss_too_often_or_too_seldom_are_rough(hits: int, misses: int, rough: bool) -> None:
    assert accuracy_of("p", [given(150.0)] * hits + [given(900.0)] * misses).rough is rough


def test_only_the_last_two_hundred_count() -> None:
    found = accuracy_of("p", [given(900.0)] * 500 + [given(150.0)] * 180 + [given(900.0)] * 20)
    assert (found.matured, found.coverage_90, found.rough) == (200, 0.9, False)
