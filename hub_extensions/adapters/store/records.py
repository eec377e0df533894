"""The objects in which the service's data are written to its database and read from it. All times are aware UTC."""

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
    """The records that the service reads from the store when it starts.

    Attributes:
        tickets: waiting and admitted tickets (users' places in the line), in the order in which they joined.
        leases: leases that have not ended, also those whose device is gone from the machine.
        facts: facts about the running servers.
        uses: uses (one server's time with its devices) that have not ended.
        next_place: the place number for the next ticket, larger than that of any stored ticket; 1 in a new store.
        meta: single values of the service, by name.
        deliveries: notices that are on their way to users.
        forecasts: wait forecasts of tickets that still wait.
        earlier_stops: stops of servers, ordered or already begun, that an earlier version of this product stored in
            columns of its own. This version stores stops in `meta`.
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
    """A ticket (a user's place in the line) as it is stored, with its end.

    Attributes:
        ticket: the ticket.
        end: how the ticket ended; `None` while it is live.
        reason: why it ended; "" if no reason was given, and while it is live.
        ended_at: when it ended; `None` while it is live.
    """

    ticket: Ticket
    end: TicketEnd | None = None
    reason: str = ""
    ended_at: datetime | None = None


@dataclass(frozen=True, slots=True)
class JournalRow:
    """One decision of the service, with its reason as text for administrators.

    Attributes:
        kind: what was decided, as a code (``admitted``, ``stopped``).
        ticket, lease, user, server: what the decision is about; `None` if it is not about one.
        text: why the service decided so.
        actor: who caused it: ``user``, ``admin <name>``, ``hub`` or ``service``; "" if unknown.
        evidence: the figures behind the decision, their age, and who measured them; "" without figures.
        reasons: the reasons (translatable sentences) from which `text` was made; empty if it was not made from reasons.
        grounds: the reasons from which `evidence` was made; empty if it was not made from reasons.
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
        """Create a row whose texts are made from reasons (sentences that pages can translate).

        Args:
            kind: a code, such as ``admitted``.
            about: lease, user and server that the decision is about; each is `None` if the decision is about none.
            reasons: the reasons from which `text` is made.
            actor: who caused the decision: ``user``, ``admin <name>``, ``hub`` or ``service``; "" if unknown.
            grounds: the reasons from which `evidence` is made; empty without figures.
        """
        text, evidence = as_text(reasons), as_text(grounds, ", ")
        return cls(at, kind, None, *about, text, actor, evidence, tuple(reasons), tuple(grounds))


@dataclass(frozen=True, slots=True)
class JournalFilter:
    """Selects rows of the journal (the service's decisions). The default selects all rows.

    Attributes:
        since: only rows from this time on; `None` for no limit.
        until: only rows from before this time; `None` for no limit.
        user: only rows about this user; `None` for all users.
        kinds: only rows of these kinds; empty for all.
        words: only rows in which this text occurs: in the text, the evidence, the user, the server or the actor. Case
            is ignored.
        codes: rows with one of these reasons match `words` too, because the words may be in another language than the
            stored text.
    """

    since: datetime | None = None
    until: datetime | None = None
    user: str | None = None
    kinds: tuple[str, ...] = ()
    words: str = ""
    codes: tuple[str, ...] = ()


@dataclass(frozen=True, slots=True)
class NoticeRow:
    """A notice: a text that is shown to a user at the next page.

    Attributes:
        server: the server that it is about; "" for the default server.
        reasons: the reasons (translatable sentences) from which `text` was made; empty if it was not made from reasons.
    """

    at: datetime
    user: str
    server: str
    text: str
    reasons: tuple[Reason, ...] = ()

    @classmethod
    def because(cls, at: datetime, user: str, server: str, *reasons: Reason) -> NoticeRow:
        """Create a notice whose text is made from reasons (sentences that pages can translate).

        Details that reasons have only for the log are left out.
        """
        return cls(at, user, server, as_text(reasons), tuple(replace(each, log_message="") for each in reasons))


@dataclass(frozen=True, slots=True)
class Changes:
    """The changes of one decision of the service, written together or not at all.

    A value with a key replaces the stored value: a ticket and a lease (id), facts (user and server), an open use and a
    usage record (key), a sample (use and minute), a delivery (id and channel), a forecast (id), a single value in
    `meta` (name). A lease whose state is ``ENDED`` is removed, because its usage record and the journal are its
    history. Journal rows and notices are added.

    Attributes:
        tickets: users' places in the line.
        leases: servers' rights to a share of a GPU.
        facts: facts about running servers.
        gone_facts: (user, server) of facts to remove. If `facts` has the same server, its facts are written.
        journal: decisions of the service.
        notices: texts that users see at the next page.
        uses: open uses: servers' times with their devices that have not ended.
        gone_uses: keys of open uses to remove, because they have ended.
        usage: records of uses that have ended.
        samples: measurements of uses by the minute.
        end: how the uses ended that these changes finish; `None` if the engine finds that out itself
            (``engine/uses/usage.py``).
        deliveries: notices on their way to users by mail or webhook.
        delivered: (id, channel) of deliveries to remove, because they were accepted, given up, or are out of date.
        forecasts: waits that were forecast for tickets.
        meta: single values of the service, by name.
        stops, gone_stops: stops of servers to keep, and to remove, by `StopRecord.key`. The store does not read these
            two: the engine's state writes all remaining stops as one value of `meta`.
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
        """Return whether these changes contain nothing that has to be written to the store."""
        return not any(getattr(self, each.name) for each in fields(self) if each.name != "end")
