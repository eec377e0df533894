"""The service trusts facts, not messages: what the hub really runs is compared with the book, every 30 s and more.

Waiting tickets whose spawn the hub forgot (it was restarted) are started again, admitted ones first, five at a time.
Servers that ran before this product did are adopted. A ticket that nobody wants any more ends, and so does one from
before the hub ran without us for a while: its user has chosen something else since, or has gone.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from dataclasses import replace
from datetime import datetime
from typing import TYPE_CHECKING

from hub_extensions.adapters import processes
from hub_extensions.adapters.hub_api import HubApi, HubAway, HubRefused, HubServer
from hub_extensions.adapters.store import Changes, JournalRow, StoreUnavailable
from hub_extensions.adapters.within import within
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.inventory import Device
from hub_extensions.core.line import Lease, LeaseState, Reason, Ticket, TicketEnd, TicketState
from hub_extensions.hub_service.adoption import adopted_lease
from hub_extensions.hub_service.book import TOKEN_NAME, Book
from hub_extensions.hub_service.culler import Culler
from hub_extensions.hub_service.refused import Refused
from hub_extensions.hub_service.tickets import Tickets

if TYPE_CHECKING:
    from hub_extensions.hub_service.pods import Pods

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 30.0
WHILE_AWAY = 1.0
"""Seconds between looks at a hub that does not answer."""
AT_A_TIME = 5
LINE_WAS_OFF = Reason(
    "This hub ran without its line for GPUs for a while, so your place in it has ended. Join again, or choose another "
    "offer.",
    "the hub ran without this service in between",
    "line-was-off",
)

Servers = Mapping[tuple[str, str], HubServer]


class Reconciler:
    """Compares the book with the hub's server list and mends the difference.

    Attributes:
        away_since: wall-clock time since which the hub does not answer; None: it answers.
        superseded: asked after every listing, with whether the hub may be a new one; True: this service ends, and does
            nothing more. None: the hub itself ends the service.
        refused: told when the hub refuses to answer.
    """

    def __init__(self, book: Book, tickets: Tickets, culler: Culler, hub: HubApi, pods: Pods | None = None) -> None:
        self.pods = pods
        self.book = book
        self.tickets = tickets
        self.culler = culler
        self.hub = hub
        self.away_since: datetime | None = None
        self.superseded: Callable[[bool], Awaitable[bool]] | None = None
        self.refused: Callable[[HubRefused], None] | None = None
        self._resume = True
        self._unattended: dict[str, datetime] = {}
        self._changed_since: set[tuple[str, str]] = set()
        self._starting: asyncio.Task[None] | None = None
        self._soon = asyncio.Event()

    def hub_connection_lost(self) -> None:
        """The hub's event stream ended: it may have been restarted."""
        self._resume = True
        self._soon.set()

    def hub_spoke(self) -> None:
        """A request of the hub came in: it is up."""
        if self.away_since is not None:
            self._soon.set()

    async def keep_reconciling(self) -> None:
        """Reconcile every 30 s until cancelled; every second while the hub is away."""
        while True:
            await self.reconcile()
            try:
                await within(WHILE_AWAY if self.away_since else EVERY, self._soon.wait())
            except asyncio.TimeoutError:
                continue
            finally:
                self._soon.clear()

    async def reconcile(self) -> None:
        """One comparison. A hub that does not answer stops the running clock; nothing else happens then."""
        listed_at = self.book.clock.elapsed()
        try:
            servers = {(item.user, item.server): item for item in await self.hub.servers()}
            token_name = await self.hub.own_token() if self._resume else self.book.token_name
        except (HubAway, HubRefused) as problem:
            self._hub_is_away(str(problem))
            if self.refused is not None and isinstance(problem, HubRefused):
                self.refused(problem)
            return
        if self.superseded is not None and await self.superseded(self._resume):
            return
        self._hub_is_back()
        if self.pods is not None:
            self.pods.listed = frozenset(servers)
            self.pods.listed_pods = frozenset(item.pod for item in servers.values())
        resume, self._resume = self._resume, False
        try:
            async with self.tickets.lock:
                self._take_in_activity(servers)
                self._changed_since = {key for key, at in self.tickets.touched.items() if at >= listed_at}
                self.tickets.touched = {key: self.tickets.touched[key] for key in self._changed_since}
                await self._end_old_line(servers, token_name)
                await self._servers(servers)
                forgotten = await self._tickets(servers)
                self.tickets.compared = True
                await self.tickets.round()
        except (StoreUnavailable, Refused) as problem:
            log.debug("not reconciled: %s", problem)
            self._resume = self._resume or resume
            return
        if resume and forgotten:
            if self._starting is not None and not self._starting.done():
                self._resume = True  # the last round of starts is still on its way
                return
            self._starting = asyncio.ensure_future(self._start_again(forgotten))

    def _hub_is_away(self, why: str) -> None:
        if self.away_since is None:
            self.away_since = self.book.clock.utc_now()
            self.book.clock.pause()
            self.tickets.hub_up = False
            if self.pods is not None:
                self.pods.hub_is_away()
            self._resume = True
            log.warning("the hub does not answer: %s", why)

    def _hub_is_back(self) -> None:
        if self.away_since is not None:
            log.warning("the hub answers again, away since %s", self.away_since.isoformat(timespec="seconds"))
        self.away_since = None
        self.book.clock.resume()
        self.tickets.hub_up = True

    def _running(self, wall: datetime) -> datetime:
        """A hub's wall-clock time on the running clock (never in the future: a user can forge it)."""
        now = self.book.clock.now()
        return min(now, now - (self.book.clock.utc_now() - wall))

    def _take_in_activity(self, servers: Servers) -> None:
        """The hub's figures, but for servers whose notebooks are being saved: the saving itself is activity.

        And who is in which group: the panel shows the waits of the offers that its reader may have.
        """
        fresh = {key: self._running(item.last_activity) for key, item in servers.items() if item.last_activity}
        saving = {key: at for key, at in self.culler.activity.items() if key in self.culler.saving}
        self.culler.activity = {**fresh, **saving}
        listed = {item.user: (item.groups, item.admin) for item in servers.values()}
        in_line = {ticket.user for ticket in self.book.tickets.values()}
        asked = {user: known for user, known in self.culler.people.items() if user in in_line}
        self.culler.people = {**asked, **listed}

    # -------------------------------------------------------------- tickets

    async def _end_old_line(self, servers: Servers, token_name: str) -> None:
        """The hub has forgotten us and knows us anew: it ran without this product, so nobody waits any more.

        A hub that was only restarted calls our token by the name it always had.
        """
        if not token_name or token_name == self.book.token_name:
            return
        if self.book.token_name:
            for ticket in tuple(self.book.tickets.values()):
                server = servers.get((ticket.user, ticket.server))
                started = server is not None and server.ready and ticket.state is TicketState.ADMITTED
                if not started and (server is None or server.pending != "spawn"):
                    await self.tickets.end_ticket(ticket, TicketEnd.ABANDONED, LINE_WAS_OFF)
        await self.book.write(Changes(meta={TOKEN_NAME: token_name}))

    async def _tickets(self, servers: Servers) -> tuple[Ticket, ...]:
        """End what is over; return the tickets whose spawn the hub does not know."""
        now = self.book.clock.now()
        forgotten: list[Ticket] = []
        self._unattended = {ticket: at for ticket, at in self._unattended.items() if ticket in self.book.tickets}
        for ticket in tuple(self.book.tickets.values()):
            key = (ticket.user, ticket.server)
            if key in self._changed_since:
                continue  # the listing is older than the last word about it
            server = servers.get(key)
            if server is not None and server.ready and ticket.state is TicketState.ADMITTED:
                await self.tickets.ready(ticket, self.book.lease_of_ticket(ticket.id))
                continue
            if ticket.state is TicketState.WAITING and now - ticket.joined > self.book.config.max_wait:
                hours = self.book.config.max_wait.total_seconds() / 3600
                reason = Reason(
                    f"Your place in line ended after {hours:g} h. Join again, or choose another offer.",
                    "max_wait is over",
                    "max-wait",
                )
                await self.tickets.end_ticket(ticket, TicketEnd.MAX_WAIT, reason)
                continue
            if server is not None and server.pending == "spawn":
                self._unattended.pop(ticket.id, None)
                continue
            since = self._unattended.setdefault(ticket.id, now)
            if now - since > self.book.config.abandon_after:
                reason = Reason(
                    "Nobody was waiting for this server any more, so its place in line ended.",
                    "the hub has no pending spawn for it",
                    "abandoned",
                )
                self._unattended.pop(ticket.id, None)
                await self.tickets.end_ticket(ticket, TicketEnd.ABANDONED, reason)
                continue
            forgotten.append(ticket)
        return tuple(forgotten)

    async def _start_again(self, forgotten: tuple[Ticket, ...]) -> None:
        """Resume the starts a restarted hub forgot: admitted ones first, then in order, five at a time."""
        order = sorted(
            forgotten, key=lambda t: (t.state is not TicketState.ADMITTED, min(choice.place for choice in t.choices))
        )
        gate = asyncio.Semaphore(AT_A_TIME)
        resumed = self.tickets.resumed = {
            ticket: attempt for ticket, attempt in self.tickets.resumed.items() if ticket in self.book.tickets
        }

        async def start(ticket: Ticket) -> None:
            async with gate:
                now = self.book.tickets.get(ticket.id)
                if now is None or now.attempt != ticket.attempt:
                    return  # its user has left, or has asked again, while others were started
                resumed[ticket.id] = ticket.attempt
                try:
                    if await self.hub.start(ticket.user, ticket.server, ticket.options):
                        log.info("start resumed", extra={"ticket": ticket.id, "server": ticket.server})
                    else:
                        del resumed[ticket.id]  # its user was quicker
                except (HubAway, HubRefused) as problem:
                    resumed.pop(ticket.id, None)
                    self._resume = True
                    log.warning("start not resumed: %s", problem, extra={"ticket": ticket.id})

        await asyncio.gather(*(start(ticket) for ticket in order))
        if self._resume:
            asyncio.get_running_loop().call_later(WHILE_AWAY * 5, self._soon.set)

    # -------------------------------------------------------------- servers

    async def _servers(self, servers: Servers) -> None:
        """Servers nobody told us of get facts; facts and leases of servers that are gone go."""
        changes = []
        for key, server in servers.items():
            if key in self._changed_since:
                continue
            if server.ready and key not in self.book.facts and self.book.live_ticket(*key) is None:
                changes.append(self._adopt(server))
            elif server.ready and key in self.book.facts:
                changes.append(self._adopt_late(server))
        for key, facts in tuple(self.book.facts.items()):
            server_now = servers.get(key)
            if key in self._changed_since:
                continue
            if server_now is None or not (server_now.ready or server_now.pending):
                changes.append(self._forget(facts))
        for lease in tuple(self.book.leases.values()):
            key = (lease.user, lease.server)
            if key in self._changed_since:
                continue
            if lease.state is LeaseState.RUNNING and lease.pid is None and key not in servers:
                changes.append(Changes(leases=(replace(lease, state=LeaseState.ENDING),)))
        for change in changes:
            if not change.empty:
                await self.book.write(change)

    def _adopt(self, server: HubServer) -> Changes:
        """A running server the book does not know: started before this product, or while the service was away."""
        now = self.book.clock.now()
        known = self.book.lease_of(server.user, server.server) or self._ending_but_alive(server)
        if known is not None:
            if known.state is LeaseState.ENDING:  # a stop that failed: it holds its device as before
                known = replace(known, state=LeaseState.RUNNING)
            facts = ServerFacts(server.user, server.server, known.offer, now, lease=known.id, adopted=known.adopted)
            return Changes(facts=(facts,), leases=(known,))
        if self.pods is not None and self.pods.is_going(server):
            return Changes()  # a stop that the hub has not heard the end of
        lease = self._lease_of_a_stranger(server, now)
        offer = lease.offer if lease else "cpu"
        facts = ServerFacts(server.user, server.server, offer, now, lease=lease.id if lease else None, adopted=True)
        what = f"a server that was started before, on {lease.uuid}" if lease else "a server without a GPU of ours"
        row = JournalRow(self.book.clock.utc_now(), "adopted", None, facts.lease, server.user, server.server, what)
        return Changes(facts=(facts,), leases=(lease,) if lease else (), journal=(row,))

    def _ending_but_alive(self, server: HubServer) -> Lease | None:
        """A lease given up too early: the hub says the server is ready, and its process lives."""
        mine = (each for each in self.book.leases.values() if (each.user, each.server) == (server.user, server.server))
        ending = next((each for each in mine if each.state is LeaseState.ENDING), None)
        if ending is not None and self.pods is not None:
            return ending if self.pods.lives(ending) else None
        alive = ending is not None and ending.pid is not None and processes.alive(ending.pid, ending.pid_started or 0)
        return ending if alive else None

    def _adopt_late(self, server: HubServer) -> Changes:
        """An adopted server without a GPU may begin to use one: then it holds it."""
        facts = self.book.facts[(server.user, server.server)]
        if not facts.adopted or facts.lease is not None:
            return Changes()
        lease = self._lease_of_a_stranger(server, self.book.clock.now())
        if lease is None:
            return Changes()
        return Changes(
            facts=(replace(facts, lease=lease.id, offer=lease.offer, started=self.book.clock.now()),), leases=(lease,)
        )

    def _lease_of_a_stranger(self, server: HubServer, now: datetime) -> Lease | None:
        """The device a server that we did not start is on: by its environment, or by the driver's process list."""
        if self.pods is not None:
            return self.pods.lease_of_a_stranger(server, now)
        if server.pid is None:
            return None
        process = processes.describe(server.pid)
        if process is None:
            return None
        device = self._named(process.device) or self._used_below(server.pid)
        if device is None or any(lease.device == device.identity for lease in self.book.leases.values()):
            return None
        return adopted_lease(server, device, now, self.book.end_of, process.started)

    def _named(self, visible: str | None) -> Device | None:
        if not visible:
            return None
        first = visible.split(",")[0].strip()
        return next((s.device for s in self.book.devices.values() if s.device.uuid == first and s.present), None)

    def _used_below(self, pid: int) -> Device | None:
        """The device that the driver lists this process or a descendant of it on."""
        for state in self.book.devices.values():
            sample = self.book.samples.get(state.device.uuid)
            for user in sample.pids or () if sample else ():
                if _descends(user, pid):
                    return state.device
        return None

    def _forget(self, facts: ServerFacts) -> Changes:
        self.culler.reports.pop((facts.user, facts.server), None)
        lease = self.book.leases.get(facts.lease) if facts.lease else None
        if lease is not None and lease.pid is not None and processes.alive(lease.pid, lease.pid_started or 0):
            return Changes()  # the hub forgot it, but it runs: it keeps its device, and an admin sees it
        return Changes(gone_facts=((facts.user, facts.server),))


def _descends(pid: int, ancestor: int) -> bool:
    for _ in range(64):
        if pid == ancestor:
            return True
        process = processes.describe(pid)
        if process is None or process.ppid <= 1:
            return False
        pid = process.ppid
    return False
