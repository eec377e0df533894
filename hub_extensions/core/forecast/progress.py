"""Decide which reports of a server's progress are accepted."""

from __future__ import annotations

from datetime import datetime, timedelta

from hub_extensions.core.messages.server import Progress

LONGEST = timedelta(days=30)
"""Maximum remaining time that a report may give."""
AHEAD = timedelta(minutes=1)
"""Maximum time by which a server's clock may be ahead."""
OVERDUE = timedelta(minutes=10)
"""A report is ignored once this much time has passed after the end that it gave."""


def taken(before: Progress | None, report: Progress, now: datetime, started: datetime) -> Progress | None:
    """Return the report that counts from now on, or None if the earlier one stays.

    Args:
        before: the report that counted until now.
        now: by the wall clock.
        started: when the server was ready, by the wall clock.
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
