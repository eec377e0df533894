"""Usage records: one server's finished time with a GPU, or without one, and a page of such records."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.offers.offer_id import OfferId

OWN = "own"  # The source of a record that this service wrote itself
NONE_WOULD_DO = "none"  # `UsageRecord.smaller_would_do` if it is known that no smaller offer would have been enough


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """One server's time with one offer, from its admission to its end, kept as history.

    Points in time are UTC. Durations are in seconds of the running clock, which stands still while hub or service is
    down. `None` means that the value is not known.

    Attributes:
        key: id of the record. It is the id of the lease (the server's right to its devices). A server without a GPU has
            no lease, so it is the id of its ticket, or a new id without a ticket. For an imported row it names where
            the row came from.
        user: for a deleted user ``deleted/<number>``, with a new number for each user.
        pool: name of the pool (all devices of one kind) that the device belongs to; ``cpu`` for CPU only.
        share: thousandths of each of the `devices` devices; both are 0 for CPU only.
        ended: when no process or pod of the server was left.
        end: how the use ended, a value of ``core.usage.UseEnd``.
        ticket: id of the ticket (place in line); "" for a server without a ticket, or if it is not known.
        asked: when the user asked for the place in line; `None` for an adopted server.
        ready: when the server was ready; `None` if it never was, so that this was a start and not a use.
        groups: the user's groups at the time of asking.
        choice: the image or profile, as the form names it.
        device_class: the card, as its driver names it.
        node: the node of the server's pod; "" on one machine.
        device: the UUID of the device, or its name in the cluster.
        first_used, last_used: when the GPU was first and last used, as far as that was measured.
        lifetime_seconds: the limit in force; `None` without one.
        adopted: whether the service found the server already running. The server was started before this product was
            installed, or during an outage of the service.
        waited_seconds: from asking until admission.
        held_seconds: from admission until the end.
        ran_seconds: from ready until the end.
        outage_seconds: the part of the wall-clock time from admission to the end in which hub or service was down.
        mean_use_percent, highest_use_percent: use of the GPU over the time in which it was measured.
        use_measured: the part of `ran_seconds`, 0 to 1, in which GPU use was measured.
        memory_measured: the part of `ran_seconds`, 0 to 1, in which GPU memory was measured.
        keeps, warnings: how often the user pressed *keep*, and how many warnings were given.
        source: ``own``, or the format it was imported from: ``csv``, ``sacct``, ``swf``.
        smaller_would_do: id of the smallest offer that the user could have chosen and whose memory would have been
            enough; ``cpu`` if the GPU was not used, and ``none`` if no smaller offer would have been enough.
        advice: what the user was told about that, a kind of advice of ``core.usage.right_size``; "" for nothing.
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
    smaller_would_do: str | None = None
    advice: str = ""

    @property
    def began(self) -> datetime:
        """When the user asked for the server. If that is not known, the earliest known time of the use."""
        return self.asked or self.admitted or self.ready or self.ended


@dataclass(frozen=True, slots=True)
class UsagePage:
    """A page of usage records, sorted by their end, the latest first.

    Attributes:
        uses: the records.
        next: the value of ``before`` for the next page; `None` on the last page.
    """

    uses: tuple[UsageRecord, ...]
    next: str | None
