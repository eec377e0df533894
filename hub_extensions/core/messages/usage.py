"""What is kept of one use of a GPU, or of a server without one, once it is over; and a page of such records."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.offers.offer_id import OfferId

OWN = "own"
"""The source of a record that this service wrote itself."""


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """One use, kept as history. Moments are UTC, durations running time of hub and service; None is not known.

    Attributes:
        key: the lease's id; of a server without a GPU its ticket's, or one made for it. Of an imported row: where it
            is from.
        user: a deleted user's records have ``deleted/<number>`` instead, another number for each.
        share: thousandths of each of `devices` devices; both are 0 with CPU only.
        ended: when nothing of its server was left. end: how, a word of ``core.usage.UseEnd``.
        asked: when its place in line was asked for; None for a server that was adopted. ready: None: it never was, so
            it was a start and no use.
        groups: of the user when it was asked for. choice: image or profile, as the form names them.
        device_class: the card, as its driver names it. device: its UUID, or what a cluster calls it.
        first_used, last_used: of the GPU, as far as it was measured.
        lifetime_seconds: the limit in force; None: none was. adopted: it ran before this product did.
        waited_seconds: asked until admitted. held_seconds: admitted until ended. ran_seconds: ready until ended.
        outage_seconds: how much longer the last but one took by the wall clock: hub or service were away.
        mean_use_percent, highest_use_percent: of the GPU, over what was measured. use_measured: for which part of
            `ran_seconds` it was, 0 to 1. memory_measured: the same of `peak_memory_bytes`.
        keeps, warnings: how often *keep* was pressed, and a warning given.
        source: ``own``, or what it was imported from: ``csv``, ``sacct``, ``swf``.
    """

    key: str
    user: str
    server: str
    offer: OfferId
    pool: str
    share: int
    ended: datetime
    end: str
    devices: int = 1
    ticket: str = ""
    groups: tuple[str, ...] = ()
    choice: str = ""
    device_class: str = ""
    node: str = ""
    device: str = ""
    asked: datetime | None = None
    admitted: datetime | None = None
    ready: datetime | None = None
    first_used: datetime | None = None
    last_used: datetime | None = None
    lifetime_seconds: float | None = None
    adopted: bool = False
    waited_seconds: float | None = None
    held_seconds: float | None = None
    ran_seconds: float | None = None
    outage_seconds: float | None = None
    mean_use_percent: float | None = None
    highest_use_percent: float | None = None
    use_measured: float | None = None
    peak_memory_bytes: int | None = None
    memory_measured: float | None = None
    keeps: int | None = None
    warnings: int | None = None
    source: str = OWN

    @property
    def began(self) -> datetime:
        """The first moment that is known of it."""
        return self.asked or self.admitted or self.ready or self.ended


@dataclass(frozen=True, slots=True)
class UsagePage:
    """Records, those that ended last first. `next`: what to give as ``before`` for the next page; None: no more."""

    uses: tuple[UsageRecord, ...]
    next: str | None
