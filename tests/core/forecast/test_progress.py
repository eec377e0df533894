"""Which reports of progress are believed."""

from __future__ import annotations

from datetime import datetime, timedelta, timezone

import pytest

from hub_extensions.core.forecast.progress import taken
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
    assert taken(BEFORE, report, NOW, NOW - 60 * MINUTE) is report
    assert taken(None, report, NOW, NOW - 60 * MINUTE) is report


@pytest.mark.parametrize(
    "report",
    [
        Progress(NOW - 6 * MINUTE, 1.0),
        Progress(NOW + 2 * MINUTE, 1.0),
        Progress(NOW, -1.0),
        Progress(NOW, 31 * 86400.0),
        Progress(NOW, float("nan")),
        Progress(NOW, 1.0, 1.1),
        Progress(NOW, 1.0, -0.1),
        Progress(NOW.replace(tzinfo=None), 1.0),
    ],
    ids=["backwards", "ahead", "negative", "too long", "no number", "too wide", "too narrow", "no zone"],
)
def test_what_cannot_be_changes_nothing(report: Progress) -> None:
    assert taken(BEFORE, report, NOW, NOW - 60 * MINUTE) is None


def test_a_report_of_before_the_server_was_ready_is_of_another_run() -> None:
    assert taken(None, Progress(NOW - MINUTE, 1.0), NOW, NOW) is None
    assert taken(None, Progress(NOW, 1.0), NOW, NOW) == Progress(NOW, 1.0)
