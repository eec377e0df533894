"""Tickets (users' places in line): joining, admission, start and leaving, and the streams of their changes.

Every decision is made under one lock: read the state, decide in ``core``, write the state, publish it. A status is
published only after it has been written.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Iterable, Sequence
from dataclasses import replace
from datetime import datetime

from hub_extensions.adapters.hub.jupyterhub_api import HubApi
from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow, StoreUnavailable, TicketRow
from hub_extensions.core import messages
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue import lifecycle
from hub_extensions.core.queue.admission import admit, refuse_to_join
from hub_extensions.core.queue.lifecycle import Event
from hub_extensions.core.queue.model import (
    Admission,
    Lease,
    Ticket,
    TicketState,
)
from hub_extensions.core.text.reasons import Reason, as_text, explain
from hub_extensions.hub_service.engine.line.rights import UNANSWERED, Rights
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import Transaction, Transactions, possible
from hub_extensions.hub_service.engine.stops.stop_records import end_of_report
from hub_extensions.hub_service.engine.uses.usage import record_late_report, size_sentences
from hub_extensions.hub_service.engine.views import presenters
from hub_extensions.hub_service.engine.views.queue_view import QueueView, content_of

log = logging.getLogger("hub_extensions.hub_service")

RIGHT_LOST = "not-your-group-any-more"
"""Reason for which a ticket (place in line) loses one offer and keeps the others. Any other reason ends the ticket."""
PLACE_ENDED = explain("ended", log_message="asked for a ticket that ended")
NONE_THERE = explain("offers-gone", log_message="offers gone")
NOT_READ = explain("cluster-not-read", log_message="the cluster has not been read yet")
HUB_AWAY = explain("hub-away", log_message="the hub does not answer")


SLICE = 50
"""Tickets whose status is computed before other tasks of the event loop run."""


class Tickets:
    """Creates, admits and ends tickets (users' places in line), and publishes changes of their statuses.

    Args:
        state: the state of the line, of servers and of devices.
        hub: the hub's API, to check at admission whether the user still has the right to the offer.
        service_url: URL of this service, which the extension in each user's server calls.
        simulate: the layout of simulated GPUs, for the servers' extensions. `None` if the GPUs are real.
    """

    def __init__(self, state: State, hub: HubApi, *, service_url: str, simulate: str | None) -> None:
        self.state = state
        self.hub = hub
        self.service_url = service_url
        self.simulate = simulate
        self._unjudged: dict[str, tuple[OfferId, ...]] = {}
        self._listeners: set[asyncio.Queue[messages.TicketStatus]] = set()
        self._published: dict[str, tuple[object, ...]] = {}
        self.rights = Rights(state, hub)
        self._changed = asyncio.Event()
        self._published_revision: int | None = None
        self.transaction = Transactions(state, self.admit_waiting, self._send)

    # -------------------------------------------------------------- hub: ask, started, ended

    async def ask_all(self, asks: Sequence[messages.Ask]) -> tuple[messages.TicketStatus, ...]:
        """Handle the hub's requests to start servers: create their tickets (places in line), or find those that exist.

        A server has one ticket. If the hub asks again for the same server with other offers, the offers that the ticket
        already has keep their places, and new offers get a place at the end of their lines. If the ticket was admitted
        to an offer that is not requested any more, the ticket loses all its places.

        Args:
            asks: the requests. New tickets join the line in the order in which the hub accepted them.

        Returns:
            The statuses of the tickets, in the order of `asks`.

        Raises:
            Refused: 503 while the store cannot be written. Some servers may have joined; the next request finds their
                tickets.
        """
        answers: dict[int, messages.TicketStatus | Ticket] = {}
        async with self.transaction() as transaction:
            # as the hub accepted them; requests without a time come last
            for ask in sorted(asks, key=lambda ask: (ask.accepted is None, ask.accepted or datetime.min)):
                answers[id(ask)] = await self._ask(ask, transaction, alone=len(asks) == 1)
        view = QueueView.of(self.state) if len(asks) > 1 else None
        return tuple(self._status(answers[id(ask)], view) for ask in asks)

    async def _ask(self, ask: messages.Ask, transaction: Transaction, *, alone: bool) -> messages.TicketStatus | Ticket:
        """Handle the hub's request to start one server.

        Args:
            ask: the request.
            transaction: writes the ticket (the user's place in line).
            alone: whether it is the hub's only request at this moment. Otherwise the ticket does not note which offers
                are free, because finding that out for each of hundreds of requests would take too long.

        Returns:
            The status, if the request is refused or its ticket has ended. Otherwise the ticket, whose status is
            computed after the transaction.
        """
        now, server = self.state.clock.now(), (ask.user, ask.server)
        if not ask.kept:
            transaction.state.touch(*server)
        self.rights.remember(ask.user, ask.groups)
        transaction.state.note_groups(ask.user, ask.groups)
        live = self.state.live_ticket(*server)
        is_new = ask.kept and live is None
        runs = is_new and (server in self.state.facts or self.state.lease_of(*server) is not None)
        if runs or (ask.ticket and (live is None or live.id != ask.ticket)):
            gone = Ticket(ask.ticket, *server, (), now)
            return presenters.over(gone, "ended", PLACE_ENDED, self.state.clock)
        had = [choice.offer for choice in live.wanted_offers] if live is not None else []
        if live is not None and (ask.kept or (ask.ticket and had == list(ask.offers))):
            return live  # it has its place, so nothing changes
        # offers that the ticket has already may be missing while the cluster is unread
        judged = [offer for offer in ask.offers if offer not in had or self.state.offer(offer) is not None]
        refusal = refuse_to_join(self.state.queue_snapshot(ask.offers), *server, judged, ask.groups)
        if refusal is None:
            return await self._write_ask(ask, live, now, transaction, self._free_offers() if alone else None)
        self.state.count("refused", refusal.reason)
        if live is not None:
            await transaction.end_ticket(live, Event.REFUSED, refusal)
        elif ask.kept:  # nobody waits for the answer
            notice = NoticeRow.because(self.state.clock.utc_now(), *server, refusal)
            await transaction.write(Changes(notices=(notice,)))
        new = transaction.state.new_place
        unborn = live or Ticket("", *server, lifecycle.wanted_offers_of(ask.offers, None, new), now)
        return presenters.over(unborn, "refuse", refusal, self.state.clock)

    def _status(self, answer: messages.TicketStatus | Ticket, view: QueueView | None) -> messages.TicketStatus:
        if isinstance(answer, messages.TicketStatus):
            return answer
        ticket = self.state.tickets.get(answer.id)
        if ticket is None:
            return presenters.over(answer, "ended", PLACE_ENDED, self.state.clock)
        return self._state(ticket, view)

    def dead_start(self, ask: messages.Ask) -> Lease | None:
        """Return the lease of a server that the hub starts again although its ticket (place in line) is admitted.

        That happens after the hub was killed during the first start, which may have left processes behind.

        Args:
            ask: the hub's request to start the server.

        Returns:
            `None` for every other request, and for CPU only.
        """
        live = self.state.live_ticket(ask.user, ask.server)
        if live is None or ask.ticket or ask.kept or live.admitted_offer not in ask.offers:
            return None
        return self.state.lease_of_ticket(live.id)

    def _free_offers(self) -> tuple[OfferId, ...]:
        """Return the GPU offers (options of the spawn form) with which a server could start at once."""
        return tuple(each.offer.id for each in self.state.availability() if each.wait.now and each.offer.id != CPU)

    async def _write_ask(
        self,
        ask: messages.Ask,
        live: Ticket | None,
        now: datetime,
        transaction: Transaction,
        free: tuple[OfferId, ...] | None,
    ) -> Ticket:
        takes = self.state.notices.take_up_places
        left, noted = takes(ask.user, ask.server, ask.offers, now) if live is None else ((), {})
        wanted = Ticket(
            id=secrets.token_hex(8),
            user=ask.user,
            server=ask.server,
            wanted_offers=lifecycle.wanted_offers_of(ask.offers, live, transaction.state.new_place, left),
            joined=now,
            groups=ask.groups,
            options=ask.options,
            asked=self.state.clock.utc_now(),
            demands=ask.demands,
            free_when_asked=free,
        )
        lease = self.state.lease_of(ask.user, ask.server) if live is None else self.state.lease_of_ticket(live.id)
        step = lifecycle.ask(live, lease, wanted)
        ticket = step.ticket
        kind = "joined" if live is None else "asked-again"
        await transaction.write(
            Changes(
                tickets=(TicketRow(ticket),),
                leases=step.leases,
                journal=(transaction.ticket_row(kind, ticket, ", ".join(ask.offers), actor="user"),),
                meta=noted,
            )
        )
        if self.state.unread:
            had = {choice.offer for choice in live.wanted_offers} if live is not None else set()
            fresh = tuple(offer for offer in ask.offers if offer not in had)
            self._unjudged[ticket.id] = (*self._unjudged.get(ticket.id, ()), *fresh)
        return ticket

    async def started(self, ticket_id: str, report: messages.Started) -> messages.TicketStatus:
        """Record that a server's process was started, or that the hub found the server ready.

        A ready server ends its ticket (place in line).

        Args:
            ticket_id: id of the ticket.
            report: the hub's report, with the number of the try to start the server (`attempt`).

        Returns:
            The ticket's status after that.

        Raises:
            Refused: 404 if the ticket does not exist, or the report is about another try than the last one.
        """
        async with self.transaction() as transaction:
            ticket = self.state.tickets.get(ticket_id)
            if ticket is None or ticket.attempt != report.attempt:
                raise Refused.because(404, explain("unknown-ticket"), "ticket")
            transaction.state.touch(ticket.user, ticket.server)
            lease = self.state.lease_of_ticket(ticket.id)
            if lease is not None:
                lease = possible(lifecycle.start(lease, report.pid, report.pid_started))
            if report.ready:
                return await transaction.ready(ticket, lease)
            if lease is not None:
                await transaction.write(Changes(leases=(lease,)))
        return self._state(ticket)

    async def ended(self, ticket_id: str, report: messages.Ended) -> None:
        """Record that a try to start a server was cancelled (``left``) or has failed (``failed``).

        Only a report about the last try counts, with one exception. If the service itself has asked the hub for the
        last try, because the report about the try before had not arrived yet, a late report about that earlier try
        counts too.

        Args:
            ticket_id: id of the server's ticket (place in line).
            report: the hub's report, with the number of the try (`attempt`).
        """
        async with self.transaction() as transaction:
            ticket = self.state.tickets.get(ticket_id)
            if ticket is None:
                return
            unwanted = self.state.resumed.get(ticket_id) == report.attempt == ticket.attempt - 1
            if ticket.attempt != report.attempt and not unwanted:
                return
            if report.how == "failed":
                if ticket.state is TicketState.ADMITTED:
                    await transaction.start_failed(ticket, report)
            else:
                await transaction.end_ticket(ticket, Event.LEFT, explain("left", log_message="left"), actor="user")

    async def stopped(self, report: messages.Stopped) -> None:
        """Record that the hub reports a server as stopped.

        The lease (the server's right to its GPU) is then ending until it is proved that nothing uses the device. The
        user gets a notice if the report has a reason.
        """
        async with self.transaction() as transaction:
            transaction.state.touch(report.user, report.server)
            notices: tuple[NoticeRow, ...] = ()
            server, end = (report.user, report.server), end_of_report(self.state, report)
            lease = self.state.lease_of(*server)
            message = as_text(report.reasons) or report.message
            if message:
                now = self.state.clock.utc_now()
                size = size_sentences(self.state, lease.id, end) if lease is not None and report.reasons else ()
                told = (*report.reasons, *size)
                notices = (NoticeRow(now, report.user, report.server, as_text(told) or message, told),)
                self.state.count("server-end", report.reason or "unknown")
            gone = (server,) if server in self.state.facts else ()
            why = message or "the hub stopped its server"
            how = "the hub ends" if report.closing else "it was asked to" if report.asked else "it ended by itself"
            about = {"actor": "hub", "evidence": report.reason or how}
            if lease is not None and not isinstance(ending := lifecycle.move(lease, Event.SERVER_GONE), Reason):
                row = transaction.lease_row("stopped", lease, why, **about)
                changes = Changes(leases=(ending,), gone_facts=gone, journal=(row,), notices=notices, end=end)
            elif lease is None:
                rows = (transaction.server_row("stopped", server, why, **about),) if gone else ()
                late = record_late_report(self.state, server, end)
                changes = replace(late, gone_facts=gone, journal=rows, notices=notices, end=end)
            else:
                changes = Changes(notices=notices)
            if not changes.empty:
                await transaction.write(changes)

    # -------------------------------------------------------------- users

    async def leave(self, ticket_id: str, user: str | None, admin: str = "", why: str = "") -> None:
        """End a waiting ticket (place in line), because its user leaves the line or an administrator removes the user.

        Args:
            ticket_id: the ticket.
            user: the user who leaves. `None` if an administrator ends the ticket.
            admin: the administrator's name; "" if the user leaves.
            why: the administrator's reason, which the user sees; "" if none is given.

        Raises:
            Refused: 404 if the ticket is not the user's; 409 if its server is already starting.
        """
        async with self.transaction() as transaction:
            ticket = self.state.tickets.get(ticket_id)
            if ticket is None or (user is not None and ticket.user != user):
                raise Refused.because(404, explain("not-your-ticket"), "ticket")
            if ticket.state is TicketState.ADMITTED:
                raise Refused.because(409, explain("starting"), "ticket")
            reason = explain("left" if user else "ended-by-admin", log_message="left by the API")
            if user is None and why:
                log_message = f"taken out of the line: {why}"
                reason = explain("ended-by-admin-because", why=why, log_message=log_message)
            who = "user" if user else f"admin {admin}".strip()
            await transaction.end_ticket(ticket, Event.LEFT, reason, actor=who)

    # -------------------------------------------------------------- admission

    async def admit_waiting(self, transaction: Transaction) -> None:
        """Admit all tickets (places in line) that can start, and have changed statuses published soon.

        This method is called at the end of a transaction.
        """
        began = asyncio.get_running_loop().time()
        if self._unjudged and not self.state.unread:
            await self._judge(transaction)
        if self.state.hub_view.is_up:
            while await self._admit_once(transaction):
                # each round removes an offer from a ticket, so the loop ends
                log.debug("a right was lost, so others may be able to start")
        self.state.note_admission_time(asyncio.get_running_loop().time() - began)
        if self.state.revision != self._published_revision:
            self._changed.set()

    async def _judge(self, transaction: Transaction) -> None:
        """Check the tickets (places in line) that joined before the cluster was read, and end those to be refused.

        A ticket is refused, for example, if it wants an offer (an option of the spawn form) that does not exist.
        """
        for ticket_id, fresh in tuple(self._unjudged.items()):
            ticket = self.state.tickets.get(ticket_id)
            if ticket is not None and ticket.state is TicketState.WAITING:
                asked = [choice.offer for choice in ticket.wanted_offers if choice.offer in fresh]
                reason = refuse_to_join(self.state.queue_snapshot(), ticket.user, ticket.server, asked, ticket.groups)
                if reason is not None:
                    self.state.count("refused", reason.reason)
                    await transaction.end_ticket(ticket, Event.REFUSED, reason)
            del self._unjudged[ticket_id]

    async def _admit_once(self, transaction: Transaction) -> bool:
        """Admit the tickets (places in line) that can start now, if their users still have the right to the offers.

        Returns:
            Whether a user lost the right to an offer. Another ticket may then be able to start instead.
        """
        again = False
        admissions = admit(self.state.queue_snapshot())
        self.rights.begin()
        given: list[tuple[Admission, Ticket]] = []
        for admission in admissions:
            ticket = self.state.tickets[admission.ticket]
            verdict = await self.rights.ask(ticket, admission.offer)
            if verdict is UNANSWERED:
                continue
            if isinstance(verdict, Reason):
                await self._lose_right(ticket, admission.offer, verdict, transaction)
                again = True
                continue
            given.append((admission, ticket))
        if given:
            try:
                await transaction.write(self._admissions(given, transaction))
            except StoreUnavailable as problem:
                log.debug("nobody is admitted: %s", problem.message)
                return False
            for admission, _ in given:
                self.state.count("admitted", admission.offer)
                self._publish_if_changed(self._state(self.state.tickets[admission.ticket]))
        return again

    async def _lose_right(self, ticket: Ticket, offer: OfferId, why: Reason, transaction: Transaction) -> None:
        """Remove an offer (an option of the spawn form) from a ticket whose user may no longer have it.

        If no offer is left, the ticket ends.

        Args:
            ticket: the user's place in line.
            offer: id of the offer.
            why: the reason for the user.
            transaction: writes the change.
        """
        step = lifecycle.lose_right(ticket, offer)
        if isinstance(step, Reason) or why.reason != RIGHT_LOST:
            await transaction.end_ticket(ticket, Event.REFUSED, why)
            return
        kept = explain("right-lost", offer=why.params["offer"])
        notice = NoticeRow.because(self.state.clock.utc_now(), ticket.user, ticket.server, kept)
        row = transaction.ticket_row("right-lost", step.ticket, offer, evidence=why.log_message)
        await transaction.write(Changes(tickets=(TicketRow(step.ticket),), journal=(row,), notices=(notice,)))

    def _admissions(self, given: Sequence[tuple[Admission, Ticket]], transaction: Transaction) -> Changes:
        """Return the changes that admit these tickets: their leases, and a row for each in the journal.

        The row in the journal (the store's log of decisions) has the time waited, how long ago the GPUs were read, and
        the user's groups.

        Args:
            given: the admissions, each with its ticket (the user's place in line).
            transaction: makes the rows of the journal.
        """
        now, age = self.state.clock.now(), self.state.inventory_age()
        read = "GPUs not read" if age is None else f"GPUs read {age.total_seconds():.0f} s ago"
        tickets, leases, journal = list[TicketRow](), list[Lease](), list[JournalRow]()
        for admission, ticket in given:
            device = self.state.device(admission.device) if admission.device else None  # None on a cluster, too
            offer = self.state.offer(admission.offer)
            step = possible(
                lifecycle.admit(
                    ticket,
                    admission,
                    now,
                    lease_id=secrets.token_hex(8),
                    uuid=device.uuid if device else "",
                    pool=device.pool if device else admission.device or "",
                    share=offer.share if offer else WHOLE,
                )
            )
            lease = step.lease
            if lease is not None:
                step = replace(step, lease=replace(lease, ends_at=self.state.end_of(lease)))
            tickets.append(TicketRow(step.ticket))
            leases.extend(step.leases)
            what = f"{admission.offer} on {lease.uuid}" if lease and lease.uuid else admission.offer
            groups = ", ".join(self.rights.groups_of(ticket)) or "none"
            seen = f"waited {(now - ticket.joined).total_seconds():.0f} s, {read}, groups: {groups}"
            row = transaction.ticket_row("admitted", step.ticket, what, evidence=seen)
            journal.append(replace(row, lease=lease.id if lease else None))
        return Changes(tickets=tuple(tickets), leases=tuple(leases), journal=tuple(journal))

    # -------------------------------------------------------------- publishing

    async def changes(self) -> AsyncGenerator[messages.TicketStatus, None]:
        """Stream the statuses of tickets (places in line): first of every live ticket, then each status that changes.

        Changes are queued without a limit, so the caller has to close the stream of a client that does not read.
        """
        queue: asyncio.Queue[messages.TicketStatus] = asyncio.Queue()
        self._listeners.add(queue)
        try:
            async for _, state in self.all_states():
                if not self._publish_if_changed(state):
                    queue.put_nowait(state)
            while True:
                yield await queue.get()
        finally:
            self._listeners.discard(queue)

    @property
    def listeners(self) -> int:
        """The number of clients that follow the statuses of tickets (places in line): the open streams of `changes`."""
        return len(self._listeners)

    def states(self) -> tuple[messages.TicketStatus, ...]:
        """Return the status of every live ticket (place in line)."""
        return self.states_of(self.state.tickets.values())

    def states_of(self, tickets: Iterable[Ticket]) -> tuple[messages.TicketStatus, ...]:
        """Return the statuses of these live tickets (places in line), in the same order."""
        view = QueueView.of(self.state)
        return tuple(self._state(ticket, view) for ticket in tickets)

    async def all_states(self) -> AsyncGenerator[tuple[Ticket, messages.TicketStatus], None]:
        """Yield each live ticket (place in line) with its status, in batches between which other tasks run."""
        view = QueueView.of(self.state)
        for number, ticket_id in enumerate(tuple(self.state.tickets)):
            if number % SLICE == SLICE - 1:
                await asyncio.sleep(0)
                view = view if view.revision == self.state.revision else QueueView.of(self.state)
            ticket = self.state.tickets.get(ticket_id)
            if ticket is not None:
                yield ticket, self._state(ticket, view)

    async def publish_changed(self) -> None:
        """Send the statuses of tickets (places in line) that have changed to all open streams of `changes`.

        A status counts as changed if it differs from the last published one.
        """
        self._published_revision = self.state.revision
        if self._listeners:
            async for _, state in self.all_states():
                self._publish_if_changed(state)
        if len(self._published) > 2 * len(self.state.tickets) + 100:
            live = self.state.tickets
            self._published = {ticket: what for ticket, what in self._published.items() if ticket in live}

    def figures_changed(self) -> None:
        """Have changed statuses of tickets (places in line) published soon: values such as forecasts have changed."""
        self._changed.set()

    async def publish_changes(self) -> None:
        """Publish changed statuses of tickets (places in line) after each change of the state, until cancelled.

        That happens at most five times a second. If the state does not change, it happens every 15 s, because waits
        change with time.
        """
        while True:
            try:
                await with_timeout(15.0, self._changed.wait())
            except asyncio.TimeoutError:
                log.debug("nothing changed for 15 s")
            self._changed.clear()
            began = asyncio.get_running_loop().time()
            await self.publish_changed()
            took = asyncio.get_running_loop().time() - began
            await asyncio.sleep(max(0.2, 4 * took))  # a very long line is published less often

    def _publish_if_changed(self, state: messages.TicketStatus) -> bool:
        key = content_of(state)
        if self._published.get(state.ticket) == key:
            return False
        self._published[state.ticket] = key
        self._send(state)
        return True

    def _send(self, state: messages.TicketStatus) -> None:
        for queue in self._listeners:
            queue.put_nowait(state)

    def _state(self, ticket: Ticket, view: QueueView | None = None) -> messages.TicketStatus:
        if ticket.state is TicketState.ADMITTED:
            lease = self.state.lease_of_ticket(ticket.id)
            chosen = ticket.admitted_offer or CPU
            offer = self.state.offer(chosen)
            title = offer.plain_name if offer else chosen
            asked = self.state.ask_of(chosen)
            if (
                lease is not None and not lease.uuid and asked is None
            ):  # a lease on a cluster that has not been read yet
                return presenters.not_there(ticket, NOT_READ, self.state.clock)
            given = presenters.grant(lease, chosen, self.service_url, self.simulate, asked)
            simulated = bool(offer and offer.simulated)
            usual = self.state.forecasts.past.usual_start(chosen)
            return presenters.admitted(ticket, given, title, simulated, self.state.clock, usual)
        view = view or QueueView.of(self.state)
        verdict = view.verdicts.of(ticket)
        if verdict is None:
            return presenters.not_there(ticket, NONE_THERE, self.state.clock)
        offer = None if verdict.offer is None else self.state.offer(verdict.offer)
        if offer is not None:
            verdict = self.state.forecasts.of_ticket(ticket, verdict, offer, self.state.clock)
        if not self.state.hub_view.is_up:
            verdict = replace(verdict, reason=HUB_AWAY)
        return presenters.waiting(ticket, verdict, *view.besides(ticket, verdict.forecast), self.state.clock)
