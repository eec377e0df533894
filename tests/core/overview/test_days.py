"""Statistics of the last day, week and month: each hour of a use is counted once, in the right bar."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.overview.days import CountedUse, Span, WaitFigures, days_of

NOW = datetime(2026, 1, 31, 12, tzinfo=timezone.utc)
HOUR, DAY = timedelta(hours=1), timedelta(days=1)
USE = CountedUse(OfferId("gpu"), ("ml",), NOW - 3 * HOUR, NOW - HOUR, "idle", True, 1.0, 60.0)


def test_hours_fall_into_the_bars_in_which_they_were() -> None:
    days = days_of((USE,), Span.DAY, NOW)
    assert days.by_offer[0].hours[-4:] == (0.0, 1.0, 1.0, 0.0)
    week = days_of((replace(USE, began=NOW - 2 * DAY - 2 * HOUR, ended=NOW - DAY, devices=0.5),), Span.WEEK, NOW)
    assert week.by_offer[0].hours == (0.0, 0.0, 0.0, 0.0, 1.0, 12.0, 0.0)
    assert len(week.bounds) == 8 and week.bounds[-1] == NOW


def test_a_running_use_counts_until_now_and_has_no_end() -> None:
    days = days_of((replace(USE, ended=None, end=""),), Span.DAY, NOW)
    assert days.by_offer[0].total == 3.0 and days.ends == ()


def test_who_is_in_two_groups_counts_in_both_and_who_is_in_none_is_not_lost() -> None:
    days = days_of((replace(USE, groups=("a", "b")), replace(USE, groups=())), Span.DAY, NOW)
    assert {course.name: course.total for course in days.by_group} == {"a": 2.0, "b": 2.0, "": 2.0}
    assert days.by_offer[0].total == 4.0


def test_a_start_that_failed_is_no_use_that_ended() -> None:
    failed = replace(USE, ready=False, end="failed", began=NOW - HOUR, ended=NOW - HOUR, waited_seconds=None)
    left = replace(failed, end="left")
    days = days_of((USE, failed, left, failed), Span.DAY, NOW)
    assert days.ends == (("idle", 1),) and sum(days.failed) == 2 and days.failed[-1] == 2


@pytest.mark.parametrize(
    ("seconds", "expected"),
    [
        ((), WaitFigures(0, None, None)),
        ((5.0,), WaitFigures(1, 5.0, 5.0)),
        ((1.0, 9.0, 3.0, 7.0), WaitFigures(4, 3.0, 9.0)),
    ],
)
def test_waits_have_a_middle_and_a_longest(seconds: tuple[float, ...], expected: WaitFigures) -> None:
    days = days_of([replace(USE, waited_seconds=each) for each in seconds], Span.DAY, NOW)
    assert days.all_waits == expected and days.waits[-3] == expected


@given(began=st.integers(-100, 1000), length=st.integers(0, 2000), span=st.sampled_from(list(Span)))
def test_no_hour_is_lost_or_counted_twice(began: int, length: int, span: Span) -> None:
    start, end = NOW - began * HOUR, NOW - began * HOUR + length * HOUR
    days = days_of((replace(USE, began=start, ended=end),), span, NOW)
    inside = max(timedelta(0), min(end, NOW) - max(start, NOW - span.length)) / HOUR
    assert sum(course.total for course in days.by_offer) == pytest.approx(inside)
