"""Which reports of a server's progress are believed. Pure. Not here: what follows from one (``foretell.py``)."""

from __future__ import annotations

from datetime import datetime, timedelta

from hub_extensions.core.messages.server import Progress

LONGEST = timedelta(days=30)
"""No training is said to take longer."""
AHEAD = timedelta(minutes=1)
"""A server's clock may be ahead of ours by so much."""
OVERDUE = timedelta(minutes=10)
"""So long after the end that it named a report says nothing any more."""


def taken(before: Progress | None, told: Progress, now: datetime, started: datetime) -> Progress | None:
    """The report that counts from now on; None: `told` changes nothing, and what was known before stays.

    Args:
        before: what counts until now. now: wall clock. started: when the server was ready, by the wall clock.
    """
    if told.at.tzinfo is None or not 0 <= told.left_seconds <= LONGEST.total_seconds() or not 0 <= told.spread <= 1:
        return None
    if told.at > now + AHEAD or told.at < started:
        return None
    return None if before is not None and told.at < before.at else told
