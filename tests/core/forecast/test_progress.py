"""Which reports of progress are believed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.forecast.progress import (
    ACCEPTED,
    is_at_work,
    is_end_known,
    is_missed,
    is_too_long,
    is_trusted,
    judged,
    outcome,
    still_remembered,
    with_missed,
)
from hub_extensions.core.messages import Progress

NOW = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
MINUTE = timedelta(minutes=1)
BEFORE = Progress(NOW - 5 * MINUTE, 600.0)


@pytest.mark.parametrize(
    "report",
    [
        Progress(NOW, 600.0),
        Progress(NOW, 0.0),
        Progress(NOW - 5 * MINUTE, 300.0, 1.0),
        Progress(NOW + MINUTE, 30 * 86400.0),
        Progress(NOW, 600.0, 0.0),
    ],
)
def test_a_later_report_counts(report: Progress) -> None:
    assert outcome(BEFORE, report, NOW, NOW - 60 * MINUTE) == ACCEPTED
    assert outcome(None, report, NOW, NOW - 60 * MINUTE) == ACCEPTED


@pytest.mark.parametrize(
    ("report", "why"),
    [
        (Progress(NOW - 6 * MINUTE, 1.0), "older"),
        (Progress(NOW + 2 * MINUTE, 1.0), "ahead"),
        (Progress(NOW, -1.0), "impossible"),
        (Progress(NOW, 31 * 86400.0), "impossible"),
        (Progress(NOW, float("nan")), "impossible"),
        (Progress(NOW, 1.0, 1.1), "impossible"),
        (Progress(NOW, 1.0, -0.1), "impossible"),
        (Progress(NOW.replace(tzinfo=None), 1.0), "impossible"),
        (Progress(NOW - 61 * MINUTE, 1.0), "before-start"),
    ],
)
def test_what_cannot_be_changes_nothing(report: Progress, why: str) -> None:
    assert outcome(BEFORE, report, NOW, NOW - 60 * MINUTE) == why


def test_a_report_of_before_the_server_was_ready_is_of_another_run() -> None:
    assert outcome(None, Progress(NOW - MINUTE, 1.0), NOW, NOW) == "before-start"
    assert outcome(None, Progress(NOW, 1.0), NOW, NOW) == ACCEPTED


# ------------------------------------------------------------------ which reported ends were missed


HOUR = 60 * MINUTE


@pytest.mark.parametrize(
    ("left", "spread", "after", "ended", "missed"),
    [
        (3600.0, 0.1, HOUR, True, False),
        (3600.0, 0.1, 2 * HOUR + MINUTE, True, False),
        (3600.0, 0.1, 2 * HOUR + 2 * MINUTE, True, True),
        (3600.0, 0.1, 2 * HOUR + 2 * MINUTE, False, True),
        (3600.0, 0.1, HOUR, False, False),
        (3600.0, 0.1, 29 * MINUTE, True, False),
        (3600.0, 0.1, 28 * MINUTE, True, True),
        (3600.0, 0.1, 28 * MINUTE, False, False),
        (3600.0, 0.49, 28 * MINUTE, True, True),
        (3600.0, 0.5, 1 * MINUTE, True, False),
        (3600.0, 0.5, 3 * HOUR, True, True),
        (3600.0, 1.0, 9 * HOUR, False, False),
        (60.0, 0.0, 3 * MINUTE, False, False),
        (60.0, 0.0, 3 * MINUTE + MINUTE / 60, False, True),
        (60.0, 0.0, 0 * MINUTE, True, False),
        (5.0, 0.0, MINUTE, False, False),
        (30 * 86400.0, 0.0, HOUR, True, True),
        (30 * 86400.0, 0.0, 24 * HOUR, False, False),
    ],
)  # fmt: skip
def test_an_end_is_missed_by_more_than_a_factor_of_two(
    left: float, spread: float, after: timedelta, ended: bool, missed: bool
) -> None:
    assert is_missed(Progress(NOW - after, left, spread), NOW, ended=ended) is missed


def misses(*reports: tuple[float, ...]) -> list[float]:
    """At which minutes an end is found to be missed, of reports (minute, seconds left, spread if it is not 0.1)."""
    claim, found = None, []
    for minute, left, *spread in reports:
        now = NOW + minute * MINUTE
        claim, missed = judged(claim, Progress(now, left, *(spread or [0.1])), now)
        found += [minute] if missed else []
    return found


@pytest.mark.parametrize(
    ("reports", "found"),
    [
        ([(0, 3600), (30, 1800), (60, 0)], []),
        ([(0, 3600), (30, 3600), (90, 3600), (120, 60), (121, 0)], []),
        ([(0, 3600), (60, 7200), (122, 60), (123, 0)], [122]),
        ([(0, 3600), (10, 600), (20, 0)], []),
        ([(0, 3600), (10, 0)], [10]),
        ([(0, 3600), (10, 0), (11, 600), (21, 0)], [10]),
        ([(0, 3600), (50, 10), (52, 10), (54, 10), (56, 0)], []),
        ([(minute, 60) for minute in range(13)], [4, 8, 12]),
        ([(minute, 0 if minute % 2 else 60) for minute in range(20)], []),
        ([(0, 0), (1, 0)], []),
        ([(0, 3600), (5, 3300, 1.0), (300, 0)], []),
        ([(0, 3600), (5, 3300, 1.0), (300, 3600), (310, 0)], [310]),
        ([(0, 3600), (122, 60, 1.0), (300, 0)], [122]),
        ([(0, 3600), (10, 0, 1.0)], []),
        ([(0, 3600), (122, 0, 1.0)], [122]),
    ],
    ids=["right", "half as fast", "slower than half", "got faster", "left early", "left early, then right",
         "waits at its end", "always a minute", "one short run after the other", "nothing",
         "withdrawn", "withdrawn, and another end reported", "withdrawn too late", "interrupted",
         "interrupted too late"],
)  # fmt: skip
def test_the_first_report_of_a_run_is_judged_by_those_that_follow(
    reports: list[tuple[float, ...]], found: list[float]
) -> None:
    assert misses(*reports) == found


def test_after_two_missed_ends_a_persons_reports_say_nothing_for_thirty_days() -> None:
    day = timedelta(days=1)
    one = with_missed((), NOW)
    two = with_missed(one, NOW + 10 * day)
    assert is_trusted((), NOW) and is_trusted(one, NOW)
    for days, trusted in ((10, False), (39, False), (40, True)):
        assert is_trusted(two, NOW + days * day) is trusted
        assert still_remembered(two, NOW + days * day) is not trusted
    assert with_missed(one, NOW + 30 * day) == (NOW + 30 * day,), "the first one is forgotten by then"
    assert with_missed(two, NOW + 20 * day) == (NOW + 10 * day, NOW + 20 * day)


@pytest.mark.parametrize(
    ("left", "spread", "known"), [(60.0, 0.0, True), (60.0, 0.99, True), (60.0, 1.0, False), (0.0, 0.0, False)]
)
def test_a_report_of_an_end_that_is_reached_or_not_known_moves_nobodys_wait(
    left: float, spread: float, known: bool
) -> None:
    assert is_end_known(Progress(NOW, left, spread)) is known


@pytest.mark.parametrize(
    ("left", "age", "works"), [(60.0, 0, True), (60.0, 600, True), (60.0, 601, False), (0, 0, False)]
)
def test_a_report_is_a_sign_of_work_while_it_is_new(left: float, age: int, works: bool) -> None:
    assert is_at_work(Progress(NOW - timedelta(seconds=age), left, 1.0), NOW) is works


@pytest.mark.parametrize(
    ("left", "spread", "stops", "warned"),
    [
        (3600, 0.1, 30, True),
        (3600, 0.1, 54, True),
        (3600, 0.1, 55, False),
        (3600, 0.0, 59, True),
        (3600, 0.0, 60, False),
        (3600, 0.5, 37, False),
        (3600, 0.5, 36, True),
        (3600, 1.0, 1, False),
        (0, 0.0, -1, False),
    ],
)
def test_a_training_is_too_long_if_even_its_early_end_is_after_the_servers(
    left: float, spread: float, stops: int, warned: bool
) -> None:
    report = Progress(NOW, left, spread)
    assert is_too_long(report, NOW + timedelta(seconds=left), NOW + stops * MINUTE) is warned
