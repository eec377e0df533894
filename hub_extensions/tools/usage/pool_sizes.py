"""Finds the number of devices in each pool of an export. A pool is the devices of one kind that one line serves.

It is the number that the service saw last. For a pool that the service never saw, as after an import, it is the largest
number of devices that were in use at the same time. Only uses that have not ended are kept in memory, because a history
can be larger than memory.
"""

from __future__ import annotations

from bisect import bisect_left
from collections import defaultdict
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from itertools import accumulate

from hub_extensions.core.gpu.devices import WHOLE

OF_A_USE = ("pool", "num_gpu", "slices", "asked", "admitted", "ready", "ended")
UseRow = tuple[str, int, int, str | None, str | None, str | None, str]
"""The columns `OF_A_USE` of a usage record. Times are texts in ISO form, whose alphabetical order is that of time."""


class PoolSizes:
    """Counts the devices of each pool while the usage records of an export are written."""

    def __init__(self, known: Mapping[str, int]) -> None:
        """Start from the pools in `known`: pool -> number of devices, as the GPU service saw them."""
        self._known = known
        self._pools: defaultdict[str, _Held] = defaultdict(_Held)

    def add(self, uses: Iterable[UseRow]) -> None:
        """Count these usage records. They must be in the order in which they began, also over several calls."""
        began = ""
        for pool, devices, share, asked, admitted, ready, ended in uses:
            began = asked or admitted or ready or ended
            if devices:
                changes = self._pools[pool].changes
                if pool not in self._known:
                    part = devices * share
                    changes += ((admitted or began, part), (ended, -part))
        for held in self._pools.values():
            held.count(began)

    def sizes(self) -> dict[str, int]:
        """Return pool -> number of devices, for every pool in the usage records that were added."""
        return {pool: self._known.get(pool) or held.devices() for pool, held in sorted(self._pools.items())}


@dataclass(slots=True)
class _Held:
    """The part of one pool that is in use, in thousandths of a device, while its usage records are counted.

    Attributes:
        now: in use at the last counted time.
        most: the largest amount that was in use at the same time.
        changes: time and change of the amount in use, not counted yet.
    """

    now: int = 0
    most: int = 0
    changes: list[tuple[str, int]] = field(default_factory=list)

    def count(self, until: str | None = None) -> None:
        """Apply the changes before a time to `now` and `most`. At equal times, ends are applied before beginnings.

        Args:
            until: the time; None applies all changes.
        """
        self.changes.sort()
        end = len(self.changes) if until is None else bisect_left(self.changes, (until,))
        held = list(accumulate((change for _, change in self.changes[:end]), initial=self.now))
        self.now, self.most = held[-1], max(self.most, *held)
        del self.changes[:end]

    def devices(self) -> int:
        """Return how many whole devices of a pool the largest amount in use needs, at least one."""
        self.count()
        return max(1, -(-self.most // WHOLE))
