"""What goes into the store and what comes out: frozen values over the types of ``core``.

Not here: tables, SQL, and what a row means for a decision. All times are aware UTC.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from datetime import datetime

from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease, Ticket, TicketEnd


@dataclass(frozen=True, slots=True)
class Stored:
    """Everything the service goes on with after a restart.

    Attributes:
        tickets: waiting and admitted ones, in the order in which they joined.
        leases: those that have not ended, a lost device's included.
        facts: of the running servers.
        next_place: larger than any place that was ever given to a ticket which is still stored; 1 in a new store.
        meta: the service's own notes to itself, by name.
    """

    tickets: tuple[Ticket, ...]
    leases: tuple[Lease, ...]
    facts: tuple[ServerFacts, ...]
    next_place: int
    meta: Mapping[str, str]


@dataclass(frozen=True, slots=True)
class TicketRow:
    """A ticket, and how and why it ended once it did."""

    ticket: Ticket
    end: TicketEnd | None = None
    reason: str = ""
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JournalRow:
    """One decision, as a text for an admin. `kind` is a code (``admitted``, ``stopped``); None: not about one."""

    at: datetime
    kind: str
    ticket: str | None
    lease: str | None
    user: str | None
    server: str | None
    text: str


@dataclass(frozen=True, slots=True)
class UsageRecord:
    """One use of a lease, kept as history. A deleted user's records stay, with an empty user and server.

    Attributes:
        share: thousandths of a device.
        joined: when its ticket joined the line; None: it had none (a server that was adopted).
        ready: None: it never was.
        end: a code: why it ended.
        waited_seconds: from joined to admitted, in running time; None is not known.
        peak_memory_bytes, mean_use_percent: over the whole use; None is not known.
    """

    lease: str
    user: str
    server: str
    offer: OfferId
    pool: str
    share: int
    joined: datetime | None
    admitted: datetime
    ready: datetime | None
    ended: datetime
    end: str
    waited_seconds: float | None = None
    peak_memory_bytes: int | None = None
    mean_use_percent: float | None = None


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """Something to tell a user at the next page. `server` is "" for the default server."""

    at: datetime
    user: str
    server: str
    text: str


@dataclass(frozen=True, slots=True)
class Changes:
    """What one decision changes: written together or not at all.

    What has a key replaces what is stored under it: a ticket and a lease (id), facts (user and server), a usage record
    (lease), a sample (device and time), a note in `meta`. A lease whose state is ``ENDED`` is removed: its usage
    record and the journal are its history. Journal rows and notices are added.

    Attributes:
        gone_facts: (user, server) of facts to remove; facts of the same server in `facts` win.
    """

    tickets: tuple[TicketRow, ...] = ()
    leases: tuple[Lease, ...] = ()
    facts: tuple[ServerFacts, ...] = ()
    gone_facts: tuple[tuple[str, str], ...] = ()
    journal: tuple[JournalRow, ...] = ()
    notices: tuple[NoticeRow, ...] = ()
    usage: tuple[UsageRecord, ...] = ()
    samples: tuple[DeviceSample, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)

    @property
    def empty(self) -> bool:
        """Nothing to write."""
        return not any(getattr(self, each.name) for each in fields(self))
