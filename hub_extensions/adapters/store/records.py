"""What goes into the store and what comes out: frozen values over the types of ``core``.

Not here: tables, SQL, and what a row means for a decision. All times are aware UTC.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from datetime import datetime

from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.forecast.results import Given
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.notices import Delivery
from hub_extensions.core.queue.model import Lease, Ticket, TicketEnd
from hub_extensions.core.stops import StopKey, StopRecord
from hub_extensions.core.text.reasons import Reason, as_text
from hub_extensions.core.usage import Minute, Use, UseEnd


@dataclass(frozen=True, slots=True)
class Stored:
    """Everything the service goes on with after a restart.

    Attributes:
        tickets: waiting and admitted ones, in the order in which they joined.
        leases: those that have not ended, a lost device's included.
        facts: of the running servers.
        uses: those that are not over.
        next_place: larger than any place that was ever given to a ticket which is still stored; 1 in a new store.
        meta: the service's own notes to itself, by name.
        deliveries: notices on their way to users.
        forecasts: those of which it is not known yet what came true.
    """

    tickets: tuple[Ticket, ...]
    leases: tuple[Lease, ...]
    facts: tuple[ServerFacts, ...]
    uses: tuple[Use, ...]
    next_place: int
    meta: Mapping[str, str]
    deliveries: tuple[Delivery, ...] = ()
    forecasts: tuple[Given, ...] = ()


@dataclass(frozen=True, slots=True)
class TicketRow:
    """A ticket, and how and why it ended once it did."""

    ticket: Ticket
    end: TicketEnd | None = None
    reason: str = ""
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JournalRow:
    """One decision, as a text for an admin; None: not about one.

    Attributes:
        kind: a code (``admitted``, ``stopped``). text: why.
        actor: who did it: ``user``, ``admin <name>``, ``hub``, ``service``; "" in rows of before 0003.
        evidence: on what: figures, their age, who measured them; "" where there is nothing more to say.
        reasons: what `text` says, for readers of other languages; none: it is shown as it stands.
        grounds: the same of `evidence`.
    """

    at: datetime
    kind: str
    ticket: str | None
    lease: str | None
    user: str | None
    server: str | None
    text: str
    actor: str = ""
    evidence: str = ""
    reasons: tuple[Reason, ...] = ()
    grounds: tuple[Reason, ...] = ()

    @classmethod
    def because(
        cls,
        at: datetime,
        kind: str,
        about: tuple[str | None, str | None, str | None],
        reasons: Sequence[Reason],
        actor: str,
        grounds: Sequence[Reason] = (),
    ) -> JournalRow:
        """A row whose texts are made of reasons. `about`: lease, user and server."""
        text, evidence = as_text(reasons), as_text(grounds, ", ")
        return cls(at, kind, None, *about, text, actor, evidence, tuple(reasons), tuple(grounds))


@dataclass(frozen=True, slots=True)
class JournalFilter:
    """Which rows of the journal: from `since` (included) until `until` (not included), of a user, of some kinds.

    Attributes:
        words: part of the text, the evidence, the user, the server or who did it, in any case of letters.
        codes: or a reason of the row has one of these: a reader of another language means them with the words.
    """

    since: datetime | None = None
    until: datetime | None = None
    user: str | None = None
    kinds: tuple[str, ...] = ()
    words: str = ""
    codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """Something to tell a user at the next page.

    `server` is "" for the default server; `reasons` are as those of `JournalRow`.
    """

    at: datetime
    user: str
    server: str
    text: str
    reasons: tuple[Reason, ...] = ()

    @classmethod
    def because(cls, at: datetime, user: str, server: str, *reasons: Reason) -> NoticeRow:
        """A notice whose text is made of reasons; what they say in the log is not for users."""
        return cls(at, user, server, as_text(reasons), tuple(replace(each, log_message="") for each in reasons))


@dataclass(frozen=True, slots=True)
class Changes:
    """What one decision changes: written together or not at all.

    What has a key replaces what is stored under it: a ticket and a lease (id), facts (user and server), an open use and
    a usage record (key), a sample (use and minute), a delivery (id and channel), a forecast (id), a note in `meta`. A
    lease whose state is ``ENDED`` is removed: its usage record and the journal are its history. Journal rows and
    notices are added.

    Attributes:
        gone_facts: (user, server) of facts to remove; facts of the same server in `facts` win.
        gone_uses: keys of open uses to remove, which are over.
        end: how what ends by these changes ends; None: as the engine sees it (``engine/usage.py``).
        delivered: (id, channel) of deliveries to remove: taken, given up, or not true any more.
        stops, gone_stops: stops of servers to keep, and to remove, by `StopRecord.key`. The state writes all stops that
            are left as one note, so the store itself does not read these two.
    """

    tickets: tuple[TicketRow, ...] = ()
    leases: tuple[Lease, ...] = ()
    facts: tuple[ServerFacts, ...] = ()
    gone_facts: tuple[tuple[str, str], ...] = ()
    journal: tuple[JournalRow, ...] = ()
    notices: tuple[NoticeRow, ...] = ()
    uses: tuple[Use, ...] = ()
    gone_uses: tuple[str, ...] = ()
    usage: tuple[UsageRecord, ...] = ()
    samples: tuple[Minute, ...] = ()
    end: UseEnd | None = None
    deliveries: tuple[Delivery, ...] = ()
    delivered: tuple[tuple[str, str], ...] = ()
    forecasts: tuple[Given, ...] = ()
    meta: Mapping[str, str] = field(default_factory=dict)
    stops: tuple[StopRecord, ...] = ()
    gone_stops: tuple[StopKey, ...] = ()

    @property
    def empty(self) -> bool:
        """Nothing to write."""
        return not any(getattr(self, each.name) for each in fields(self) if each.name != "end")
