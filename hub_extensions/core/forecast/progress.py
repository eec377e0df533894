"""Decide which reports of a training program about its remaining time the wait forecast accepts."""

from __future__ import annotations

from datetime import datetime, timedelta

from hub_extensions.core.messages.server import Progress

LONGEST = timedelta(days=30)
"""Longest remaining time that a report may give."""
AHEAD = timedelta(minutes=1)
"""Longest time by which the clock of a server, and so its report, may be ahead."""
OVERDUE = timedelta(minutes=10)
"""Time after the reported end from which the report is ignored, because it was wrong."""


def taken(before: Progress | None, report: Progress, now: datetime, started: datetime) -> Progress | None:
    """Return `report` if it is accepted; None if the earlier report stays in use.

    A report is accepted if its numbers are possible, and if its time is not in the future, not before the server was
    ready, and not before the earlier report.

    Args:
        before: the report that was used until now. None for the first report.
        report: the new report.
        now: wall-clock time.
        started: wall-clock time at which the server was ready.
    """
    if (
        report.at.tzinfo is None
        or not 0 <= report.left_seconds <= LONGEST.total_seconds()
        or not 0 <= report.spread <= 1
    ):
        return None
    if report.at > now + AHEAD or report.at < started:
        return None
    return None if before is not None and report.at < before.at else report
