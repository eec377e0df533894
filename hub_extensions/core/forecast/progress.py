"""Which reports of a server's progress are believed. Pure. Not here: what follows from one (``wait_model.py``)."""

from __future__ import annotations

from datetime import datetime, timedelta

from hub_extensions.core.messages.server import Progress

LONGEST = timedelta(days=30)
"""No training is said to take longer."""
AHEAD = timedelta(minutes=1)
"""A server's clock may be ahead of ours by so much."""
OVERDUE = timedelta(minutes=10)
"""So long after the end that it named a report says nothing any more."""


def taken(before: Progress | None, report: Progress, now: datetime, started: datetime) -> Progress | None:
    """The report that counts from now on; None: it changes nothing, and what was known before stays.

    Args:
        before: what counts until now. now: wall clock. started: when the server was ready, by the wall clock.
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
