"""The values that go into the store and come out of it. All times are aware UTC."""

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
    """The values that the service needs after a restart.

    Attributes:
        tickets: waiting and admitted tickets, in the order in which they joined.
        leases: leases that have not ended, also those of lost devices.
        facts: of the running servers.
        uses: open uses.
        next_place: larger than the place of any stored ticket; 1 in a new store.
        meta: small values of the service, by name.
        deliveries: notices that are being sent to users.
        forecasts: forecasts whose outcome is still open.
        earlier_stops: orders and stops of an earlier version; later ones are in `meta`.
    """

    tickets: tuple[Ticket, ...]
    leases: tuple[Lease, ...]
    facts: tuple[ServerFacts, ...]
    uses: tuple[Use, ...]
    next_place: int
    meta: Mapping[str, str]
    deliveries: tuple[Delivery, ...] = ()
    forecasts: tuple[Given, ...] = ()
    earlier_stops: tuple[StopRecord, ...] = ()


@dataclass(frozen=True, slots=True)
class TicketRow:
    """A ticket, and how and why it ended if it has ended."""

    ticket: Ticket
    end: TicketEnd | None = None
    reason: str = ""
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JournalRow:
    """One decision, as a text for administrators.

    Attributes:
        ticket, lease, user, server: `None` if it is not about one.
        kind: a code (``admitted``, ``stopped``).
        text: why.
        actor: ``user``, ``admin <name>``, ``hub`` or ``service``; "" if unknown.
        evidence: figures, their age, and who measured them; "" if there is nothing to add.
        reasons: the reasons that `text` was made from, for readers of other languages; empty if it was not made from
            any.
        grounds: the same for `evidence`.
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
        """Create a row whose texts are made of reasons.

        Args:
            about: lease, user and server.
        """
        text, evidence = as_text(reasons), as_text(grounds, ", ")
        return cls(at, kind, None, *about, text, actor, evidence, tuple(reasons), tuple(grounds))


@dataclass(frozen=True, slots=True)
class JournalFilter:
    """Selects rows of the journal, from `since` (included) to `until` (excluded).

    Attributes:
        words: part of the text, the evidence, the user, the server or the actor; case is ignored.
        codes: rows with one of these reasons match too, because `words` may be in another language.
    """

    since: datetime | None = None
    until: datetime | None = None
    user: str | None = None
    kinds: tuple[str, ...] = ()
    words: str = ""
    codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """A notice for the next page of a user.

    Attributes:
        server: "" for the default server.
        reasons: as those of `JournalRow`.
    """

    at: datetime
    user: str
    server: str
    text: str
    reasons: tuple[Reason, ...] = ()

    @classmethod
    def because(cls, at: datetime, user: str, server: str, *reasons: Reason) -> NoticeRow:
        """Create a notice whose text is made of reasons, without what they add for the log."""
        return cls(at, user, server, as_text(reasons), tuple(replace(each, log_message="") for each in reasons))


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one decision, written together or not at all.

    A value with a key replaces the stored one: a ticket and a lease (id), facts (user and server), an open use and a
    usage record (key), a sample (use and minute), a delivery (id and channel), a forecast (id), a small value in `meta`
    (name). A lease whose state is ``ENDED`` is removed: its usage record and the journal are its history. Journal rows
    and notices are added.

    Attributes:
        gone_facts: (user, server) of facts to remove. Facts of the same server in `facts` win.
        gone_uses: keys of open uses to remove, because they have ended.
        end: how the uses end that end by these changes; `None` if the engine derives it (``engine/uses/usage.py``).
        delivered: (id, channel) of deliveries to remove: accepted, given up, or not true any more.
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
        """Whether there is nothing to write."""
        return not any(getattr(self, each.name) for each in fields(self) if each.name != "end")
