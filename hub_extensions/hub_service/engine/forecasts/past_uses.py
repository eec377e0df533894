"""What is known of past uses (one server's time with a GPU): how long starts took, and how much memory users needed.

Also after which uses they were advised to choose another size.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

from hub_extensions.adapters.store import Changes
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.usage import Use
from hub_extensions.core.usage.right_size import EVERY, counts_for_advice, may_advise

STARTS = 20
"""Number of an offer's latest starts whose median is the usual start time."""
FEW = 3
"""Minimum number of starts for a usual start time."""
PEAKS = 3
"""Number of a user's latest uses whose memory peaks are kept."""


class PastUses:
    """Keeps how long the latest starts with each offer (option of the spawn form) took, and users' GPU memory peaks."""

    def __init__(self) -> None:
        self._starts: dict[OfferId, deque[float]] = {}
        self._peaks: dict[str, deque[int]] = {}
        self._advice: dict[str, deque[str]] = {}
        self._begun: set[str] = set()

    def learn(self, records: Iterable[UsageRecord]) -> None:
        """Learn from stored usage records (one server's time with a GPU each) after a restart.

        Args:
            records: the records; the one that ended last comes first.
        """
        for record in reversed(tuple(records)):
            if record.ready is not None and record.admitted is not None and not record.adopted:
                self._started(record.offer, (record.ready - record.admitted).total_seconds())
            self._ended(record)

    def remember(self, changes: Changes) -> None:
        """Add the starts and the memory peaks in these changes, after a transaction has written the changes."""
        for use in changes.uses:
            if use.ready is not None and not use.adopted and use.key not in self._begun:
                self._begun.add(use.key)
                self._started(use.offer, _seconds(use))
        for record in changes.usage:
            self._begun.discard(record.key)
            self._ended(record)

    def usual_start(self, offer: OfferId) -> float | None:
        """Return the median of the seconds from admission until a server with this offer was ready.

        `None` if fewer than `FEW` starts are known.
        """
        known = self._starts.get(offer, ())
        return median(known) if len(known) >= FEW else None

    def peak_of(self, user: str) -> int | None:
        """Return the most GPU memory, in bytes, that any of this user's latest servers held.

        `None` if it was not measured.
        """
        return max(self._peaks.get(user, ()), default=None)

    def may_advise(self, user: str) -> bool:
        """Return whether the user may be advised after a use. After one advice, the next uses bring none."""
        return may_advise([*self._advice.get(user, ())])

    def forget(self, user: str) -> None:
        """Forget how much GPU memory a deleted user's servers have used, and what the user was advised."""
        self._peaks.pop(user, None)
        self._advice.pop(user, None)

    def _started(self, offer: OfferId, seconds: float) -> None:
        if seconds >= 0:
            self._starts.setdefault(offer, deque(maxlen=STARTS)).append(seconds)

    def _ended(self, record: UsageRecord) -> None:
        if record.peak_memory_bytes is not None:
            self._peaks.setdefault(record.user, deque(maxlen=PEAKS)).append(record.peak_memory_bytes)
        if counts_for_advice(record):
            self._advice.setdefault(record.user, deque(maxlen=EVERY - 1)).appendleft(record.advice)


def _seconds(use: Use) -> float:
    return -1.0 if use.ready is None else (use.ready - use.admitted).total_seconds()
