"""Tickets: joining the line, being admitted, starting, leaving; and who listens to them.

Every decision is made here or in a sibling (``releases.py``, ``culler.py``, ``reconcile.py``) under one lock: look at
the book, decide in ``core``, write the book, tell everybody concerned. Nothing is told that is not written.
"""

from __future__ import annotations

import asyncio
import logging
import secrets
from collections.abc import AsyncGenerator, Awaitable, Callable, Sequence
from dataclasses import replace
from datetime import datetime

from hub_extensions.adapters.hub_api import HubApi
from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow, StoreUnavailable, TicketRow, UsageRecord
from hub_extensions.adapters.within import within
from hub_extensions.core import messages
from hub_extensions.core.admission import Admission, admit, over_own_limit, refuse_to_join, standing
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.line import Choice, Lease, LeaseState, Line, Reason, Ticket, TicketEnd, TicketState
from hub_extensions.hub_service import telling
from hub_extensions.hub_service.book import Book
from hub_extensions.hub_service.refused import Refused
from hub_extensions.hub_service.rights import UNANSWERED, Doubt, Rights

log = logging.getLogger("hub_extensions.hub_service")

PLACE_ENDED = Reason("Your place in line has ended. Choose again.", "asked for a ticket that ended", "ended")
NONE_THERE = Reason("None of your offers is there now.", "offers gone", "none-there")
NOT_READ = Reason(
    "The cluster cannot be read now. Your GPU is kept, and the start goes on as soon as it can.",
    "the cluster has not been read yet",
    "unknown-inventory",
)
STORE_AWAY = Reason(
    "The GPU service cannot write its records now. Your place is kept as soon as it can.",
    "the store cannot be written",
    "store-unavailable",
)
HUB_AWAY = Reason(
    "The GPU service does not reach the hub, so nobody's server is started now. Your place is kept.",
    "the hub does not answer",
    "hub-away",
)


class Tickets:
    """Joins, admissions, starts and ends of tickets; and who listens to them.

    Args:
        book: what is true. hub: to ask for rights again. service_url: what a server's extension calls.
        simulate: the layout's path for the servers' extensions, None on real GPUs.
    """

    def __init__(self, book: Book, hub: HubApi, *, service_url: str, simulate: str | None) -> None:
        self.book = book
        self.hub = hub
        self.lock = asyncio.Lock()
        self.service_url = service_url
        self.simulate = simulate
        self.hub_up = True
        self.counts: dict[tuple[str, str], int] = {}
        self.last_round_seconds = 0.0
        self._unjudged: dict[str, tuple[str, ...]] = {}
        self._listeners: set[asyncio.Queue[messages.TicketState]] = set()
        self._told: dict[str, tuple[object, ...]] = {}
        self.rights = Rights(book, hub)
        self._prepare: Callable[[Lease], Awaitable[None]] | None = None
        self._changed = asyncio.Event()
        self._told_revision = -1
        self.touched: dict[tuple[str, str], float] = {}
        self.compared = False
        """What the hub runs was compared with the book at least once: else a lease may be of a server long gone."""
        self.resumed: dict[str, int] = {}
        """Ticket -> the attempt after which the hub was asked to start its server again, by us and not by its user."""

    def before_a_restart_of(self, prepare: Callable[[Lease], Awaitable[None]]) -> None:
        """Called with the lease of an admitted ticket that is asked for again: a dead start may have left processes."""
        self._prepare = prepare

    # -------------------------------------------------------------- hub: ask, started, ended

    async def ask(self, ask: messages.Ask) -> messages.TicketState:
        """Join the line, or find one's ticket again.

        The same user and server always have one ticket. Asked again with other offers it is changed: an offer it had
        keeps its place, a new one joins its line at the end.

        Raises:
            Refused: 503 while the store cannot be written.
        """
        await self._clear_a_dead_start(ask)
        async with self.lock:
            now = self.book.clock.now()
            self.touch(ask.user, ask.server)
            self.rights.remember(ask.user, ask.groups)
            live = self.book.live_ticket(ask.user, ask.server)
            judged = self._to_be_judged(ask.offers, live)
            refusal = refuse_to_join(self.book.line(ask.offers), ask.user, ask.server, judged, ask.groups)
            if ask.ticket and (live is None or live.id != ask.ticket):
                gone = Ticket(ask.ticket, ask.user, ask.server, (), now)
                return telling.over(gone, "ended", PLACE_ENDED, self.book.clock)
            if ask.ticket and live is not None and [c.offer for c in live.choices] == list(ask.offers):
                return self._state(live)  # the same start looks after its place: nothing changes, nothing is written
            if refusal is not None:
                self._count("refused", refusal.word)
                unborn = live or Ticket("", ask.user, ask.server, self._choices(ask.offers, None), now)
                if live is not None:
                    await self._end(live, TicketEnd.REFUSED, refusal)
                return telling.over(unborn, "refuse", refusal, self.book.clock)
            ticket = await self._write_ask(ask, live, now)
            await self.round()
            return self._state(self.book.tickets[ticket.id])

    def _to_be_judged(self, offers: Sequence[str], live: Ticket | None) -> list[str]:
        """An offer that a ticket has may be gone for a while (the cluster cannot be read yet): no place ends for it."""
        had = {choice.offer for choice in live.choices} if live is not None else set()
        return [offer for offer in offers if offer not in had or self.book.offer(offer) is not None]

    async def _clear_a_dead_start(self, ask: messages.Ask) -> None:
        """An admitted ticket is asked for again: what its first start left behind ends, before the lock is taken."""
        live = self.book.live_ticket(ask.user, ask.server)
        dead = live is not None and not ask.ticket and live.admitted_offer in ask.offers
        lease = self.book.lease_of_ticket(live.id) if live is not None and dead else None
        if lease is not None and self._prepare is not None:
            await self._prepare(lease)

    def touch(self, user: str, server: str) -> None:
        """Something was said of this server just now: a listing of the hub from before knows nothing of it."""
        self.touched[(user, server)] = self.book.clock.elapsed()

    async def _write_ask(self, ask: messages.Ask, live: Ticket | None, now: datetime) -> Ticket:
        old_lease = None if live is None else self.book.lease_of_ticket(live.id)
        leases: tuple[Lease, ...] = ()
        if live is None:
            ticket = Ticket(
                id=secrets.token_hex(8),
                user=ask.user,
                server=ask.server,
                choices=self._choices(ask.offers, None),
                joined=now,
                groups=ask.groups,
                options=ask.options,
            )
            stale = self.book.lease_of(ask.user, ask.server)
            if stale is not None:
                leases = (replace(stale, state=LeaseState.ENDING),)
        else:
            ticket = replace(
                live,
                choices=self._choices(ask.offers, live),
                attempt=live.attempt + 1,
                groups=ask.groups,
                options=ask.options,
            )
            if live.state is TicketState.ADMITTED and live.admitted_offer not in ask.offers:
                ticket = replace(ticket, state=TicketState.WAITING, admitted_offer=None, admitted_at=None)
                leases = (replace(old_lease, state=LeaseState.ENDING),) if old_lease else ()
        kind = "joined" if live is None else "asked-again"
        await self._write(
            Changes(
                tickets=(TicketRow(ticket),), leases=leases, journal=(self._row(kind, ticket, ", ".join(ask.offers)),)
            )
        )
        if self.book.unread:
            had = {choice.offer for choice in live.choices} if live is not None else set()
            fresh = tuple(offer for offer in ask.offers if offer not in had)
            self._unjudged[ticket.id] = (*self._unjudged.get(ticket.id, ()), *fresh)
        return ticket

    def _choices(self, offers: Sequence[str], live: Ticket | None) -> tuple[Choice, ...]:
        """Places for the offers asked for; all new ones share one place."""
        had = {} if live is None else {choice.offer: choice.place for choice in live.choices}
        fresh = self.book.new_place() if any(offer not in had for offer in offers) else 0
        return tuple(Choice(offer, had.get(offer, fresh)) for offer in offers)

    async def started(self, ticket_id: str, told: messages.Started) -> messages.TicketState:
        """The server's process is known, or the hub found the server ready (which ends the ticket).

        Raises:
            Refused: 404: no such ticket, or another attempt of it.
        """
        async with self.lock:
            ticket = self._live(ticket_id, told.attempt)
            self.touch(ticket.user, ticket.server)
            lease = self.book.lease_of_ticket(ticket.id)
            if lease is not None:
                lease = replace(
                    lease,
                    pid=told.pid if told.pid is not None else lease.pid,
                    pid_started=told.pid_started if told.pid_started is not None else lease.pid_started,
                )
            if told.ready:
                return await self.ready(ticket, lease)
            if lease is not None:
                await self._write(Changes(leases=(lease,)))
            return self._state(ticket)

    async def ready(self, ticket: Ticket, lease: Lease | None) -> messages.TicketState:
        """End a ticket the good way: its server is ready. Called under the lock."""
        now = self.book.clock.now()
        if lease is not None:
            lease = replace(lease, state=LeaseState.RUNNING, ready_at=now)
            lease = replace(lease, ends_at=self.book.end_of(lease))
        facts = ServerFacts(
            ticket.user, ticket.server, ticket.admitted_offer or "cpu", now, lease=lease.id if lease else None
        )
        ended = replace(ticket, state=TicketState.ENDED)
        await self._write(
            Changes(
                tickets=(TicketRow(ended, TicketEnd.READY, "", self.book.clock.utc_now()),),
                leases=(lease,) if lease else (),
                facts=(facts,),
                journal=(self._row("ready", ticket, ticket.admitted_offer or ""),),
            )
        )
        self._count("ended", TicketEnd.READY.value)
        message = telling.over(ticket, "ended", Reason("Your server is ready.", "ready", "ready"), self.book.clock)
        self._publish(message)
        await self.round()
        return message

    async def ended(self, ticket_id: str, told: messages.Ended) -> None:
        """A confirmed stop (``left``) or a start that failed (``failed``). An older attempt's word changes nothing.

        But for the one that we took for forgotten, while this word of it could not reach us: nobody wanted the next.
        """
        async with self.lock:
            ticket = self.book.tickets.get(ticket_id)
            if ticket is None:
                return
            unwanted = self.resumed.get(ticket_id) == told.attempt == ticket.attempt - 1
            if ticket.attempt != told.attempt and not unwanted:
                return
            if told.how == "failed":
                if ticket.state is not TicketState.ADMITTED:
                    return
                reason = Reason(
                    told.reason or "The server did not start.", f"start failed: {told.reason}", "start-failed"
                )
                self._count("start-failed", told.word or "unknown")
                await self._end(ticket, TicketEnd.FAILED, reason)
            else:
                await self._end(ticket, TicketEnd.LEFT, Reason("You left the line.", "left", "left"))
            await self.round()

    async def stopped(self, told: messages.Stopped) -> None:
        """The hub stopped a server: look at once whether its device is free."""
        async with self.lock:
            self.touch(told.user, told.server)
            notices: tuple[NoticeRow, ...] = ()
            if told.reason:
                notices = (NoticeRow(self.book.clock.utc_now(), told.user, told.server, told.reason),)
                self._count("server-end", told.word or "unknown")
            lease = self.book.lease_of(told.user, told.server)
            gone = ((told.user, told.server),) if (told.user, told.server) in self.book.facts else ()
            if lease is not None and lease.state is not LeaseState.STARTING:
                row = self._row_of_lease("stopped", lease, told.reason or "the hub stopped its server")
                ending = (replace(lease, state=LeaseState.ENDING),)
                await self._write(Changes(leases=ending, gone_facts=gone, journal=(row,), notices=notices))
            elif (gone or notices) and lease is None:
                await self._write(Changes(gone_facts=gone, notices=notices))
            elif notices:
                await self._write(Changes(notices=notices))

    # -------------------------------------------------------------- users

    async def leave(self, ticket_id: str, user: str | None) -> None:
        """Leave the line; `user` None: an admin ends anybody's ticket.

        Raises:
            Refused: 404: no such ticket of this user; 409: it waits no more, its server is starting.
        """
        async with self.lock:
            ticket = self.book.tickets.get(ticket_id)
            if ticket is None or (user is not None and ticket.user != user):
                raise Refused(404, "There is no such ticket of yours.", "ticket", "unknown-ticket")
            if ticket.state is TicketState.ADMITTED:
                raise Refused(409, "Its server is starting. Stop the server instead.", "ticket", "starting")
            who = "You left the line." if user else "An administrator ended your place in line."
            await self._end(ticket, TicketEnd.LEFT, Reason(who, "left by the API", "left"))
            await self.round()

    # -------------------------------------------------------------- one round

    async def round(self) -> None:
        """Admit whoever can be admitted, tell everybody whose standing changed. Called under the lock."""
        began = asyncio.get_running_loop().time()
        if self._unjudged and not self.book.unread:
            await self._judge()
        if self.hub_up:
            for _ in range(len(self.book.tickets) + 1):
                if not await self._admit_once():
                    break
        self.last_round_seconds = asyncio.get_running_loop().time() - began
        if self.book.revision != self._told_revision:
            self._changed.set()

    async def _judge(self) -> None:
        """The cluster is read: who joined before it was is told now if what was asked for is not to be had here."""
        for ticket_id, fresh in tuple(self._unjudged.items()):
            ticket = self.book.tickets.get(ticket_id)
            if ticket is not None and ticket.state is TicketState.WAITING:
                asked = [choice.offer for choice in ticket.choices if choice.offer in fresh]
                reason = refuse_to_join(self.book.line(), ticket.user, ticket.server, asked, ticket.groups)
                if reason is not None:
                    self._count("refused", reason.word)
                    await self._end(ticket, TicketEnd.REFUSED, reason)
            del self._unjudged[ticket_id]

    async def _admit_once(self) -> bool:
        """One pass of admissions; True: a ticket was refused its rights, so look again."""
        again = False
        line = self.book.line()
        admissions = admit(line)
        self.rights.begin()
        given: list[tuple[Admission, Ticket]] = []
        for admission in admissions:
            ticket = self.book.tickets[admission.ticket]
            verdict = self._own_limit(line, admission, ticket, given) or await self.rights.ask(ticket, admission.offer)
            if verdict is UNANSWERED:
                continue
            if isinstance(verdict, Reason):
                await self._end(ticket, TicketEnd.REFUSED, verdict)
                again = True
                continue
            given.append((admission, ticket))
        if given:
            try:
                await self.book.write(self._admissions(given))
            except StoreUnavailable as problem:
                log.debug("nobody is admitted: %s", problem.sentence)
                return False
            for admission, _ in given:
                self._count("admitted", admission.offer)
                self._hear(self._state(self.book.tickets[admission.ticket]))
        return again

    def _own_limit(
        self, line: Line, admission: Admission, ticket: Ticket, given: Sequence[tuple[Admission, Ticket]]
    ) -> Reason | Doubt | None:
        """The user's own limit, asked again. A server that only starts may fail yet: until it runs the ticket waits."""
        if admission.device is None:
            return None
        servers = [other.server for one, other in given if one.device is not None and other.user == ticket.user]
        over = over_own_limit(line, ticket.user, ticket.server, servers)
        mine = (lease for lease in line.leases if lease.user == ticket.user and lease.server != ticket.server)
        if over is None:
            return None
        if not self.compared or servers or any(lease.state is LeaseState.STARTING for lease in mine):
            return UNANSWERED
        return replace(over, text=f"Your place in line has ended. {over.text}")

    def _admissions(self, given: Sequence[tuple[Admission, Ticket]]) -> Changes:
        now = self.book.clock.now()
        tickets, leases, journal = [], [], []
        for admission, ticket in given:
            started = replace(ticket, state=TicketState.ADMITTED, admitted_offer=admission.offer, admitted_at=now)
            lease = self._lease(admission, started, now)
            tickets.append(TicketRow(started))
            leases.extend([lease] if lease else [])
            where = f" on {lease.uuid}" if lease and lease.uuid else ""
            row = self._row("admitted", started, f"{admission.offer}{where}")
            journal.append(replace(row, lease=lease.id if lease else None))
        return Changes(tickets=tuple(tickets), leases=tuple(leases), journal=tuple(journal))

    def _lease(self, admission: Admission, ticket: Ticket, now: datetime) -> Lease | None:
        if admission.device is None:
            return None
        device = self.book.device(admission.device)  # None on a cluster, where the scheduler picks one
        offer = self.book.offer(admission.offer)
        lease = Lease(
            id=secrets.token_hex(8),
            ticket=ticket.id,
            user=ticket.user,
            server=ticket.server,
            offer=admission.offer,
            device=admission.device,
            uuid=device.uuid if device else "",
            pool=device.pool if device else admission.device,
            share=offer.share if offer else 1000,
            state=LeaseState.STARTING,
            since=now,
        )
        return replace(lease, ends_at=self.book.end_of(lease))

    # -------------------------------------------------------------- ends

    async def _end(self, ticket: Ticket, how: TicketEnd, reason: Reason) -> None:
        """End a ticket; the lease of an admitted one ends too. Called under the lock."""
        lease = self.book.lease_of_ticket(ticket.id)
        leases = (replace(lease, state=LeaseState.ENDING),) if lease and lease.state is LeaseState.STARTING else ()
        notices: tuple[NoticeRow, ...] = ()
        if how in (TicketEnd.MAX_WAIT, TicketEnd.ABANDONED, TicketEnd.REFUSED):
            notices = (NoticeRow(self.book.clock.utc_now(), ticket.user, ticket.server, reason.text),)
        ended = replace(ticket, state=TicketState.ENDED)
        await self._write(
            Changes(
                tickets=(TicketRow(ended, how, reason.log, self.book.clock.utc_now()),),
                leases=leases,
                journal=(self._row(how.value, ticket, reason.log),),
                notices=notices,
            )
        )
        self._count("ended", how.value)
        self._publish(telling.over(ticket, "ended" if how is TicketEnd.LEFT else "refuse", reason, self.book.clock))

    async def end_ticket(self, ticket: Ticket, how: TicketEnd, reason: Reason) -> None:
        """End a ticket from a sibling that holds the lock."""
        await self._end(ticket, how, reason)

    def usage_record(self, lease: Lease, end: str) -> UsageRecord:
        """The record of a lease that ends now."""
        wall = self.book.clock.wall
        return UsageRecord(
            lease=lease.id,
            user=lease.user,
            server=lease.server,
            offer=lease.offer,
            pool=lease.pool,
            share=lease.share,
            joined=None,
            admitted=wall(lease.since),
            ready=wall(lease.ready_at) if lease.ready_at else None,
            ended=self.book.clock.utc_now(),
            end=end,
        )

    async def _write(self, changes: Changes) -> None:
        try:
            await self.book.write(changes)
        except StoreUnavailable as problem:
            self._count("store", "write")
            raise Refused(503, f"{STORE_AWAY.text} ({problem.sentence})", "", STORE_AWAY.word) from problem

    # -------------------------------------------------------------- telling

    async def changes(self) -> AsyncGenerator[messages.TicketState, None]:
        """All live tickets as they stand, then every change. A listener that does not read is dropped by the caller."""
        queue: asyncio.Queue[messages.TicketState] = asyncio.Queue()
        self.tell()
        for state in self.states():
            queue.put_nowait(state)
        self._listeners.add(queue)
        try:
            while True:
                yield await queue.get()
        finally:
            self._listeners.discard(queue)

    @property
    def listeners(self) -> int:
        """How many listen to changes."""
        return len(self._listeners)

    def states(self) -> tuple[messages.TicketState, ...]:
        """What every live ticket is told now."""
        verdicts = standing(self.book.line(), self.book.clock.now())
        return tuple(self._state(ticket, verdicts) for ticket in self.book.tickets.values())

    def tell(self) -> None:
        """Publish the states that differ from what was told last: one event a change."""
        self._told_revision = self.book.revision
        states = self.states()
        for state in states:
            self._hear(state)
        if len(self._told) > 2 * len(states) + 100:
            self._told = {state.ticket: _heard(state) for state in states}

    async def keep_telling(self) -> None:
        """Tell soon after each round, a few times a second at most; and every 15 s, as waits change by themselves."""
        while True:
            try:
                await within(15.0, self._changed.wait())
            except asyncio.TimeoutError:
                log.debug("nothing changed for 15 s")
            self._changed.clear()
            began = asyncio.get_running_loop().time()
            self.tell()
            took = asyncio.get_running_loop().time() - began
            await asyncio.sleep(max(0.2, 4 * took))  # a very long line is told of less often

    def _hear(self, state: messages.TicketState) -> None:
        key = _heard(state)
        if self._told.get(state.ticket) != key:
            self._told[state.ticket] = key
            self._publish(state)

    def _publish(self, state: messages.TicketState) -> None:
        for queue in self._listeners:
            queue.put_nowait(state)

    def _state(self, ticket: Ticket, verdicts: object = None) -> messages.TicketState:
        if ticket.state is TicketState.ADMITTED:
            lease = self.book.lease_of_ticket(ticket.id)
            offer = self.book.offer(ticket.admitted_offer or "cpu")
            title = offer.title if offer else ticket.admitted_offer or "CPU only"
            chosen = ticket.admitted_offer or "cpu"
            asked = self.book.ask_of(chosen)
            if lease is not None and not lease.uuid and asked is None:  # a cluster's, which has not been read yet
                return telling.not_there(ticket, NOT_READ, self.book.clock)
            given = telling.grant(lease, chosen, self.service_url, self.simulate, asked)
            simulated = bool(offer and offer.simulated)
            return telling.admitted(ticket, given, title, simulated, self.book.clock)
        known = verdicts if isinstance(verdicts, dict) else standing(self.book.line(), self.book.clock.now())
        verdict = known.get(ticket.id)
        if verdict is None:
            return telling.not_there(ticket, NONE_THERE, self.book.clock)
        if not self.hub_up:
            verdict = replace(verdict, reason=HUB_AWAY)
        stands = telling.allowed(self.book.availability(), ticket.groups, False)
        smaller = telling.smaller_and_free([choice.offer for choice in ticket.choices], stands)
        simulated = any(a.offer.simulated for a in stands)
        return telling.waiting(ticket, verdict, smaller, simulated, self.book.clock)

    # -------------------------------------------------------------- small things

    def _live(self, ticket_id: str, attempt: int) -> Ticket:
        ticket = self.book.tickets.get(ticket_id)
        if ticket is None or ticket.attempt != attempt:
            raise Refused(404, "There is no such ticket any more.", "ticket", "unknown-ticket")
        return ticket

    def _row(self, kind: str, ticket: Ticket, text: str) -> JournalRow:
        log.info("%s: %s", kind, text, extra={"ticket": ticket.id, "user": ticket.user, "server": ticket.server})
        return JournalRow(self.book.clock.utc_now(), kind, ticket.id, None, ticket.user, ticket.server, text)

    def _row_of_lease(self, kind: str, lease: Lease, text: str) -> JournalRow:
        log.info("%s: %s", kind, text, extra={"lease": lease.id, "user": lease.user, "server": lease.server})
        return JournalRow(self.book.clock.utc_now(), kind, lease.ticket, lease.id, lease.user, lease.server, text)

    def journal_of_lease(self, kind: str, lease: Lease, text: str) -> JournalRow:
        """A journal row about a lease, logged too."""
        return self._row_of_lease(kind, lease, text)

    def _count(self, what: str, word: str) -> None:
        self.counts[(what, word)] = self.counts.get((what, word), 0) + 1

    def count(self, what: str, word: str) -> None:
        """Count something for the metrics."""
        self._count(what, word)


def _heard(state: messages.TicketState) -> tuple[object, ...]:
    """What makes a difference to whoever reads it: not the seconds that passed."""
    limit = state.wait.at_most_seconds is not None if state.wait else None
    free = tuple(offer.id for offer in state.alternatives)
    return (state.answer, state.attempt, state.offer, state.position, state.reason, limit, free, state.offers)
