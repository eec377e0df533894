"""Transactions: the only way in which the shared state changes.

    async with self.transaction() as transaction:
        await transaction.write(Changes(...))

A transaction has the state for itself. It writes to the store first, and changes the state afterwards. At its end,
tickets (users' places in line) that can start now are admitted, and the hub and open pages are sent the changed
statuses. Values that are not stored are changed by the methods of ``transaction.state``; outside a transaction the
state is only read.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from contextlib import asynccontextmanager
from dataclasses import replace
from datetime import datetime
from typing import TypeVar

from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow, StoreUnavailable, TicketRow
from hub_extensions.core import messages
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.messages.offer_texts import default_title
from hub_extensions.core.notices import Delivery, channels_of, turn_notices
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue import failed_starts, lifecycle, quota_holds
from hub_extensions.core.queue.lifecycle import ENDS, Event
from hub_extensions.core.queue.model import Lease, LeaseState, Ticket, TicketEnd
from hub_extensions.core.text.reasons import Reason, as_text, explain
from hub_extensions.hub_service.engine.forecasts.outcomes import with_outcomes
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.meta import FAILED_STARTS, write_failures
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.stops.stop_records import with_stops
from hub_extensions.hub_service.engine.uses.usage import with_uses
from hub_extensions.hub_service.engine.views import presenters

log = logging.getLogger("hub_extensions.hub_service")
T = TypeVar("T")

STORE_AWAY = explain("store-unavailable", log_message="the store cannot be written")
SERVICE = "service"  # the actor, in the journal, if this service decided by its rules
# ends that the user may not be watching; the next page shows a notice
NOTIFIED_LATER = (TicketEnd.MAX_WAIT, TicketEnd.ABANDONED, TicketEnd.REFUSED)


class Transactions:
    """Opens transactions on the state, one at a time: ``async with self.transaction() as transaction``.

    Args:
        state: the state that is changed.
        admit: admits the tickets (places in line) that can start.
        publish: sends the status of a ticket to the hub and to open pages.
    """

    def __init__(
        self,
        state: State,
        admit: Callable[[Transaction], Awaitable[None]],
        publish: Callable[[messages.TicketStatus], None],
    ) -> None:
        self._state = state
        self._admit = admit
        self._publish = publish
        self._lock = asyncio.Lock()

    @asynccontextmanager
    async def __call__(self, *, admit: bool = False) -> AsyncIterator[Transaction]:
        """Open a transaction. At its end, admit tickets (places in line) that can start, and publish changed statuses.

        Args:
            admit: whether to look for tickets that can start even if the transaction wrote no ticket and no lease.

        Raises:
            Refused: 503, the store cannot be written. The state changes only after a successful write.
        """
        async with self._lock:
            transaction = Transaction(self._state)
            try:
                yield transaction
                if admit or transaction.moved:
                    await self._admit(transaction)
            except StoreUnavailable as problem:
                self._state.count("store", "write")
                raise Refused(503, f"{STORE_AWAY.message} ({problem.message})", "", STORE_AWAY.reason) from problem
            finally:
                for message in transaction.published:
                    self._publish(message)


class Transaction:
    """Exclusive access to the state, from the entry to the exit of an ``async with`` block of `Transactions`.

    Attributes:
        published: statuses of tickets (places in line) that are sent out at the end of the transaction.
        moved: whether a ticket or a lease (right to a GPU) was written. Another ticket may then be able to start.
    """

    def __init__(self, state: State) -> None:
        self.state = state
        self.published: list[messages.TicketStatus] = []
        self.moved = False

    async def write(self, changes: Changes) -> None:
        """Write changes to the store, then apply them to the state.

        Raises:
            StoreUnavailable: the store cannot be written. Nothing has changed, in memory or in the store.
        """
        changes = with_stops(self.state, changes)
        await self.state.commit(with_outcomes(self.state, with_uses(self.state, changes)))
        self.moved = self.moved or bool(changes.tickets or changes.leases)
        if self.state.quota_holds and (changes.gone_facts or any(_is_over(lease) for lease in changes.leases)):
            self.state.quota_holds = quota_holds.server_ended(self.state.quota_holds)

    def publish(self, message: messages.TicketStatus) -> None:
        """Send the status of a ticket (place in line) to the hub and to open pages when the transaction ends."""
        self.published.append(message)

    # -------------------------------------------------------------- tickets

    async def end_ticket(
        self,
        ticket: Ticket,
        event: Event,
        reason: Reason,
        *,
        actor: str = SERVICE,
        evidence: str = "",
        meta: Mapping[str, str] | None = None,
        then: tuple[Reason, ...] = (),
    ) -> None:
        """End a ticket (place in line) whose server did not start.

        If the ticket was admitted, its lease (right to a GPU) ends too.

        Args:
            ticket: the place in line of a server's user.
            event: what ended the ticket.
            reason: the sentence for the user.
            actor: the person or program that ended it, for the journal (the store's log of decisions).
            evidence: what supports the reason, for the journal.
            meta: name -> JSON of single values to store in the same commit (`engine.state.meta`). `None` without such
                values.
            then: further sentences after `reason`, which the page of the start and the journal show.

        Raises:
            Refused: the ticket has already ended.
        """
        step = possible(lifecycle.end(ticket, self.state.lease_of_ticket(ticket.id), event))
        now, how = self.state.clock.utc_now(), ENDS[event]
        notices = (NoticeRow.because(now, ticket.user, ticket.server, reason),) if how in NOTIFIED_LATER else ()
        row = self.ticket_row(how.value, ticket, reason.log_message, actor=actor, evidence=evidence)
        row = replace(row, reasons=(reason, *then))
        await self.write(
            Changes(
                tickets=(TicketRow(step.ticket, step.end, reason.log_message, now),),
                leases=step.leases,
                journal=(row,),
                notices=notices,
                meta=meta or {},
            )
        )
        self.state.count("ended", how.value)
        answer = "ended" if how is TicketEnd.LEFT else "refuse"
        whole = replace(reason, message=as_text((reason, *then)))  # a client that knows no codes shows the whole text
        self.publish(presenters.over(ticket, answer, whole, self.state.clock))

    async def start_failed(self, ticket: Ticket, report: messages.Ended) -> None:
        """End an admitted ticket (place in line) because its server failed to start.

        After a first failure that was not the user's fault, the place is kept for the user's next start. If a cluster's
        quota caused the failure, the offer is held back.

        Args:
            ticket: the place in line of a server's user.
            report: the hub's report of the failure.
        """
        reason, *then = failed_starts.reasons_of(report)
        chosen = ticket.admitted_offer or CPU
        offer, clock = self.state.offer(chosen), self.state.clock
        start = messages.FailedStart(
            at=clock.utc_now(),
            user=ticket.user,
            server=ticket.server,
            offer=chosen,
            title=offer.plain_name if offer else default_title(chosen),
            reason=replace(reason, log_message=""),
            cause=report.reason,
            log=report.log[-failed_starts.LOG_LENGTH :],
            then=tuple(then),
        )
        places = lifecycle.places_left(ticket)
        kept = failed_starts.with_failure(
            self.state.notices.failures, start, places, clock.now() + failed_starts.KEPT_FOR
        )
        self.state.count("start-failed", report.reason or "unknown")
        meta = {FAILED_STARTS: write_failures(kept)}
        about = {"actor": "hub", "evidence": report.reason}
        await self.end_ticket(ticket, Event.FAILED, reason, **about, meta=meta, then=tuple(then))
        holds, now = self.state.quota_holds, clock.now()
        self.hold_back(quota_holds.refused(holds, chosen, report.reason, (reason, *then), now))

    def hold_back(self, holds: quota_holds.Holds) -> None:
        """Replace the offers that are held back: no ticket (place in line) is admitted to them.

        The cluster's quota refused the last pod of each of these offers.

        Args:
            holds: offer (an option of the spawn form) -> why and since when it is held back.
        """
        before, self.state.quota_holds = self.state.quota_holds, holds
        if holds.keys() != before.keys():
            self.state.revision += 1
        for offer in holds.keys() - before.keys():
            log.warning("%s is held back: %s", offer, holds[offer].why.message)
        for offer in before.keys() - holds.keys():
            log.info("%s is not held back any more: the cluster took a pod of it", offer)

    def _after_ready(self, ticket: Ticket) -> Mapping[str, str]:
        """Return the values to store so that earlier failed starts of a server that is now ready are not shown.

        Empty if the server has no failed starts.
        """
        kept = self.state.notices.failures
        after = failed_starts.after_ready(kept, ticket.user, ticket.server)
        return {} if after == kept else {FAILED_STARTS: write_failures(after)}

    async def ready(self, ticket: Ticket, lease: Lease | None) -> messages.TicketStatus:
        """End a ticket (place in line) because its server is ready, and return the ticket's last status.

        Args:
            ticket: the place in line of a server's user.
            lease: the server's right to its GPU, which is running from now on. `None` for CPU only.
        """
        now = self.state.clock.now()
        step = possible(lifecycle.ready(ticket, lease, now, self.state.end_of))
        offer = ticket.admitted_offer or CPU
        facts = ServerFacts(ticket.user, ticket.server, offer, now, lease=lease.id if lease else None)
        await self.write(
            Changes(
                tickets=(TicketRow(step.ticket, step.end, "", self.state.clock.utc_now()),),
                leases=step.leases,
                facts=(facts,),
                journal=(self.ticket_row("ready", ticket, ticket.admitted_offer or "", actor="hub"),),
                deliveries=self._turn_notices(ticket, facts),
                meta=self._after_ready(ticket),
            )
        )
        self.state.count("ended", TicketEnd.READY.value)
        self.pod_taken(offer, ticket.admitted_at)
        ready = explain("ready", log_message="ready")
        message = presenters.over(ticket, "ended", ready, self.state.clock)
        self.publish(message)
        return message

    def _turn_notices(self, ticket: Ticket, facts: ServerFacts) -> tuple[Delivery, ...]:
        """Return the notices that a user's turn in line has come and the server is ready, one for each channel.

        They are sent by webhook or e-mail if the user does not open the server. They are stored in the same commit as
        the end of the ticket (place in line), so that no notice is lost. Empty if the user did not ask for a notice.

        Args:
            ticket: the place in line of a server's user.
            facts: what culling knows about the server.
        """
        notice_config, offer = self.state.notices.config, self.state.offer(facts.offer)
        return turn_notices(
            ticket,
            facts,
            offer.plain_name if offer else facts.offer,
            self.state.policy_of(ticket.user, facts.offer),
            notice_config.notice_after,
            channels_of(notice_config),
            id=secrets.token_hex(8),
        )

    def pod_taken(self, offer: OfferId, admitted: datetime | None) -> None:
        """Admit tickets (places in line) to an offer again, because the cluster has accepted a pod of this offer.

        An offer (option of the spawn form) is held back while the quota of the cluster rejects its pods. Nothing
        changes if this offer is not held back.

        Args:
            offer: the offer of the pod.
            admitted: when the pod's ticket was admitted. `None` if unknown; nothing changes then.
        """
        if self.state.quota_holds and admitted is not None:
            self.hold_back(quota_holds.accepted(self.state.quota_holds, offer, admitted))

    # -------------------------------------------------------------- leases

    async def refresh_leases(
        self,
        after: Callable[[Lease], Lease],
        cause: Callable[[Lease, Lease], tuple[str, str]],
        notice_of_loss: Callable[[Lease], Reason],
    ) -> None:
        """Update every lease (a server's right to its GPU) in one write, after machine or cluster were read.

        If a lease ends, the facts about its server are removed.

        Args:
            after: returns the lease as it is after the reading; the same object if nothing changed.
            cause: returns why the lease changed and the evidence, for the journal, from the lease before and after.
            notice_of_loss: returns the notice for the user of a lost lease, whose device is gone.
        """
        seen = [(lease, after(lease)) for lease in tuple(self.state.leases.values())]
        changed = [(before, now) for before, now in seen if now is not before]
        if not changed:
            return
        at = self.state.clock.utc_now()
        gone = [
            (lease.user, lease.server)
            for _, lease in changed
            if lease.state in (LeaseState.ENDED, LeaseState.ENDING)
            and (facts := self.state.facts.get((lease.user, lease.server))) is not None
            and facts.lease == lease.id
        ]
        lost = [lease for _, lease in changed if lease.state is LeaseState.LOST]
        await self.write(
            Changes(
                leases=tuple(lease for _, lease in changed),
                gone_facts=tuple(gone),
                journal=tuple(self._changed_row(before, now, *cause(before, now)) for before, now in changed),
                notices=tuple(NoticeRow.because(at, lease.user, lease.server, notice_of_loss(lease)) for lease in lost),
            )
        )

    def _changed_row(self, before: Lease, now: Lease, why: str, evidence: str) -> JournalRow:
        return self.lease_row(now.state.value, before, why, evidence=evidence)

    # -------------------------------------------------------------- the journal

    def ticket_row(
        self, kind: str, ticket: Ticket, text: str, *, actor: str = SERVICE, evidence: str = ""
    ) -> JournalRow:
        """Return a row about a ticket (place in line) for the journal (the store's log of decisions).

        The text of the row is written to the service's log, too.

        Args:
            kind: what was decided, as a code such as ``admitted``.
            ticket: the place in line of a server's user.
            text: why it was decided.
            actor: who caused it: ``user``, ``admin <name>``, ``hub`` or ``service``.
            evidence: the figures behind the decision; "" without figures.
        """
        log.info("%s: %s", kind, text, extra={"ticket": ticket.id, "user": ticket.user, "server": ticket.server})
        at = self.state.clock.utc_now()
        return JournalRow(at, kind, ticket.id, None, ticket.user, ticket.server, text, actor, evidence)

    def server_row(
        self, kind: str, server: tuple[str, str], text: str, *, actor: str = SERVICE, evidence: str = ""
    ) -> JournalRow:
        """Return a row about a server without a GPU for the journal (the store's log of decisions).

        The text of the row is written to the service's log, too.

        Args:
            kind: what was decided, as a code such as ``stopped``.
            server: name of the user and of the server.
            text: why it was decided.
            actor: who caused it: ``user``, ``admin <name>``, ``hub`` or ``service``.
            evidence: the figures behind the decision; "" without figures.
        """
        log.info("%s: %s", kind, text, extra={"user": server[0], "server": server[1]})
        return JournalRow(self.state.clock.utc_now(), kind, None, None, *server, text, actor, evidence)

    def lease_row(self, kind: str, lease: Lease, text: str, *, actor: str = SERVICE, evidence: str = "") -> JournalRow:
        """Return a row about a lease (a server's right to its GPU) for the journal (the store's log of decisions).

        The text of the row is written to the service's log, too.

        Args:
            kind: what was decided, as a code such as ``stopped``.
            lease: a server's right to its GPU.
            text: why it was decided.
            actor: who caused it: ``user``, ``admin <name>``, ``hub`` or ``service``.
            evidence: the figures behind the decision; "" without figures.
        """
        log.info("%s: %s", kind, text, extra={"lease": lease.id, "user": lease.user, "server": lease.server})
        at = self.state.clock.utc_now()
        return JournalRow(at, kind, lease.ticket, lease.id, lease.user, lease.server, text, actor, evidence)


def _is_over(lease: Lease) -> bool:
    return lease.state is LeaseState.ENDED


def possible(step: T | Reason) -> T:
    """Return the changed ticket (place in line) or lease (right to a GPU), or raise if the change is not possible.

    Args:
        step: the changed ticket or lease, or the reason why the change is not possible any more.

    Raises:
        Refused: 409: `step` is such a reason.
    """
    if isinstance(step, Reason):
        raise Refused.because(409, step, "ticket")
    return step
