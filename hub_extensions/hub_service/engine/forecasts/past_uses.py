"""What past uses say of the next one: how long a start usually takes, and how much memory a user needed last.

It follows the uses that are written, like the rest of the state. Not here: waits (``forecast_state.py``).
"""

from __future__ import annotations

from collections import deque
from collections.abc import Iterable
from statistics import median

from hub_extensions.adapters.store import Changes
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.usage import Use

STARTS = 20
"""The last starts of an offer that count."""
FEW = 3
"""Of fewer nothing is said."""
PEAKS = 3
"""The last uses of a user that count."""


class PastUses:
    """What is known of uses that began, and of those that are over."""

    def __init__(self) -> None:
        self._starts: dict[OfferId, deque[float]] = {}
        self._peaks: dict[str, deque[int]] = {}
        self._begun: set[str] = set()

    def learn(self, records: Iterable[UsageRecord]) -> None:
        """After a restart: the last records, those that ended last first."""
        for record in reversed(tuple(records)):
            if record.ready is not None and record.admitted is not None and not record.adopted:
                self._started(record.offer, (record.ready - record.admitted).total_seconds())
            self._ended(record)

    def remember(self, changes: Changes) -> None:
        """These were written."""
        for use in changes.uses:
            if use.ready is not None and not use.adopted and use.key not in self._begun:
                self._begun.add(use.key)
                self._started(use.offer, _seconds(use))
        for record in changes.usage:
            self._begun.discard(record.key)
            self._ended(record)

    def usual_start(self, offer: OfferId) -> float | None:
        """From admission until ready, as it usually was; None: not known."""
        known = self._starts.get(offer, ())
        return median(known) if len(known) >= FEW else None

    def peak_of(self, user: str) -> int | None:
        """The most memory that one of this user's last uses held; None: not known."""
        return max(self._peaks.get(user, ()), default=None)

    def forget(self, user: str) -> None:
        """A deleted user."""
        self._peaks.pop(user, None)

    def _started(self, offer: OfferId, seconds: float) -> None:
        if seconds >= 0:
            self._starts.setdefault(offer, deque(maxlen=STARTS)).append(seconds)

    def _ended(self, record: UsageRecord) -> None:
        if record.peak_memory_bytes is not None:
            self._peaks.setdefault(record.user, deque(maxlen=PEAKS)).append(record.peak_memory_bytes)


def _seconds(use: Use) -> float:
    return -1.0 if use.ready is None else (use.ready - use.admitted).total_seconds()
