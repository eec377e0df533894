"""Compare the state with the servers that the hub really runs, every 30 s and after events.

If the hub was restarted and has forgotten the pending spawns of tickets (users' places in line), the service asks the
hub to start these servers again: admitted tickets first, five at a time. Running servers that the state does not know
are adopted, and get a lease if they use a GPU: they were started before this product was installed, or during an outage
of the service. A ticket ends if the hub has no pending spawn for it for a while. If the hub ran without this service
since the last comparison, all tickets end whose servers do not start. Their users have then chosen something else.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Mapping
from dataclasses import replace
from datetime import datetime, timedelta
from typing import Protocol

from hub_extensions.adapters.hub.jupyterhub_api import HubApi, HubAway, HubRefused, HubServer
from hub_extensions.adapters.linux.timeouts import with_timeout
from hub_extensions.adapters.store import Changes, JournalRow
from hub_extensions.core.culling import ServerFacts, activity_counts, is_forged, last_used, routes_renewed
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.queue import lifecycle
from hub_extensions.core.queue.lifecycle import Event
from hub_extensions.core.queue.model import Lease, LeaseState, Ticket, TicketState
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.core.text.wording import about
from hub_extensions.hub_service.engine.line.leases import LeaseWatcher
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.meta import ROUTES_RENEWED, TOKEN_NAME, write_routes_renewed
from hub_extensions.hub_service.engine.state.snapshots import HubView
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import SERVICE, Transaction, Transactions

log = logging.getLogger("hub_extensions.hub_service")

EVERY = 30.0
PART_OF_TIME = 50  # listing the servers takes at most one part in this many of the hub's time
SELDOM = 300.0  # maximum seconds between two lists, however long a list takes
MISSING = timedelta(seconds=60)  # a server that is missing from the lists for this long is forgotten
WHILE_AWAY = 1.0  # seconds between two requests to a hub that does not answer
AT_A_TIME = 5
IN_ONE_WRITE = 100  # servers; a hub may have thousands that are new to this service
# callers stay authenticated this long without the hub, so servers' reports continue
SHORT_OUTAGE = timedelta(seconds=15)
CAME_BACK = "back"  # the journal's kind for a lease that was ending and whose server goes on
QUEUE_WAS_OFF = explain("line-was-off", log_message="the hub ran without this service in between")

Servers = Mapping[tuple[str, str], HubServer]
Activity = Mapping[tuple[str, str], datetime]


class ServiceApart(Protocol):
    """Ends a service that the hub does not start itself, when its settings or its token are out of date.

    The service ends when the hub has other settings, or refuses the service's token. Its supervisor then starts it
    again.
    """

    async def has_changed(self, may_be_new: bool) -> bool:
        """Return whether the hub has other settings now. If so, this service is about to end.

        This method is called after every list of servers that the hub has sent.

        Args:
            may_be_new: whether the hub may have been restarted. If so, the hub is asked for its settings at once.
        """

    def refused(self, problem: HubRefused) -> None:
        """Record that the hub has refused a request. If it refuses the token for a while, this service ends.

        Args:
            problem: the refusal, which shows whether the token was the cause.
        """


class Reconciler:
    """Compares the state with the hub's list of servers, and corrects the state where they differ.

    Args:
        state: the state of the line, of servers and of devices.
        transaction: changes the state.
        hub: the hub's API.
        leases: finds out which processes or pods of servers are alive.
        apart: ends the service when the hub's settings change. `None` if the hub starts the service.
    """

    def __init__(
        self,
        state: State,
        transaction: Transactions,
        hub: HubApi,
        leases: LeaseWatcher,
        apart: ServiceApart | None = None,
    ) -> None:
        self.state = state
        self.transaction = transaction
        self.hub = hub
        self.leases = leases
        self._apart = apart
        self._resume = True
        self._unattended: dict[str, datetime] = {}
        self._missing: dict[tuple[str, str], datetime] = {}
        self._changed_since: frozenset[tuple[str, str]] = frozenset()
        self._starting: asyncio.Task[None] | None = None
        self._soon = asyncio.Event()
        self._clocks_agree = True
        self._forged: set[tuple[str, str]] = set()
        self._listing_took = 0.0

    def resume_soon(self) -> None:
        """Have `run` call `reconcile` at once, because the hub may have been restarted.

        `reconcile` then asks the hub to start the servers whose pending spawns the hub has forgotten.
        """
        self._resume = True
        self._soon.set()

    def note_hub_contact(self) -> None:
        """Record that the hub is up, because it has sent a request.

        If the hub did not answer before, the service asks it for its servers at once.
        """
        if not self.state.hub_view.is_up:
            self._soon.set()

    async def run(self) -> None:
        """Call `reconcile` every 30 s until cancelled, and every second while the hub does not answer.

        A hub with thousands of servers takes seconds for a list. Such a hub is asked less often, so that lists take at
        most a fiftieth of its time.
        """
        while True:
            await self.reconcile()
            rest = (
                WHILE_AWAY
                if not self.state.hub_view.is_up
                else min(max(EVERY, self._listing_took * PART_OF_TIME), SELDOM)
            )
            while await self._nothing_happens(min(rest, EVERY)):
                rest -= EVERY
                if rest <= 0 or not await self.hub.up():
                    break

    async def _nothing_happens(self, seconds: float) -> bool:
        """Wait for some seconds, and return True.

        Return False at once when an event requires a new list of the hub's servers.
        """
        try:
            await with_timeout(seconds, self._soon.wait())
        except asyncio.TimeoutError:
            return True
        finally:
            self._soon.clear()
        return False

    async def reconcile(self) -> None:
        """Get the hub's list of servers once, compare the state with it, and correct the state.

        If the hub does not answer, only the running clock is paused, on which deadlines are counted.
        """
        listed_at = self.state.clock.elapsed()
        try:
            servers = {(item.user, item.server): item for item in await self.hub.servers()}
            self._listing_took = self.state.clock.elapsed() - listed_at
            token_name = await self.hub.own_token() if self._resume else self.state.token_name
        except (HubAway, HubRefused) as problem:
            await self._mark_hub_away(str(problem))
            if self._apart is not None and isinstance(problem, HubRefused):
                self._apart.refused(problem)
            return
        if self._apart is not None and await self._apart.has_changed(self._resume):
            return
        resume, self._resume = self._resume, False
        try:
            async with self.transaction(admit=True) as transaction:
                self._changed_since = transaction.state.forget_touched(listed_at)
                await self._take_hub_view(servers, listed_at, transaction)
                await self._end_old_tickets(servers, token_name, transaction)
                await asyncio.sleep(0)  # comparing a long list takes long: let other tasks run
                await self._servers(servers, transaction)
                await asyncio.sleep(0)
                forgotten = await self._tickets(servers, transaction)
        except Refused as problem:
            log.debug("not reconciled: %s", problem)
            self._resume = self._resume or resume
            return
        if resume and forgotten:
            if self._is_starting:
                self._resume = True  # the last batch of starts is still on its way
                return
            self._starting = asyncio.ensure_future(self._start_again(forgotten))

    async def _mark_hub_away(self, why: str) -> None:
        if not self.state.hub_view.is_up:
            return
        async with self.transaction() as transaction:
            away_since = self.state.clock.utc_now()
            transaction.state.take_hub_view(replace(self.state.hub_view, away_since=away_since))
        self.leases.forget_hub_state()
        self._resume = True
        log.warning("the hub does not answer: %s", why)

    # -------------------------------------------------------------- what the hub reports

    async def _take_hub_view(self, servers: Servers, read_at: float, transaction: Transaction) -> None:
        """Replace what the hub listed last by a new list of its servers.

        If a user has forged times of activity in the new list, they are written to the journal (the log of decisions).

        Args:
            servers: the new list.
            read_at: when it was requested, in seconds of the machine's monotonic clock.
            transaction: writes the changes.
        """
        before, clock, in_line = self.state.hub_view, self.state.clock, {t.user for t in self.state.tickets.values()}
        back = before.back
        if before.away_since is not None:
            log.warning("the hub answers again, away since %s", before.away_since.isoformat(timespec="seconds"))
            if clock.utc_now() - before.away_since > SHORT_OUTAGE:
                back = clock.now()
        missing = frozenset(self._missing_for(servers))
        view = HubView(
            servers=servers,
            read_at=read_at,
            back=back,
            clock_ahead=self.hub.clock_ahead,
            people={
                **{user: known for user, known in before.people.items() if user in in_line},
                **{item.user: (item.groups, item.admin) for item in servers.values()},
            },
            activity=before.activity,
            gone_in_outage=missing if before.listed is None else missing & before.gone_in_outage,
        )
        # this resumes the running clock, to whose time activity is converted below
        transaction.state.take_hub_view(view)
        counts = self._compare_clocks(view.clock_ahead)
        active = {key: item.last_activity for key, item in servers.items() if item.last_activity and counts}
        activity = await self._last_uses(active, transaction)
        transaction.state.take_hub_view(replace(view, activity=activity))
        await self._note_forged(active, transaction)

    async def _last_uses(self, active: Activity, transaction: Transaction) -> Activity:
        """Return when each server was last used, by the running clock (it stands still while the hub is away).

        Activity that a restart of the proxy or the saving of notebooks before a stop caused does not count.

        Args:
            active: the hub's `last_activity` of each server.
            transaction: stores a restart of the proxy that is recognised here.
        """
        facts, now = self.state.facts, self.state.clock.now()
        # a user can forge a time: it is never later than now
        activity = {key: min(now, self.state.clock.running(at)) for key, at in active.items()}
        quiet = {key: each.idle_since for key, each in facts.items() if each.lease is None and each.idle_since}
        found, before = routes_renewed(quiet, activity), self.state.routes_renewed
        if found is not None and (before is None or found.first > before.last):
            log.warning("the proxy was restarted: that all %d quiet servers are active now counts for none", len(quiet))
            await transaction.write(Changes(meta={ROUTES_RENEWED: write_routes_renewed(found)}))
        renewed = self.state.routes_renewed
        used = {key: last_used(at, quiet.get(key), renewed, now) for key, at in activity.items()}
        saving = {key: at for key, at in self.state.hub_view.activity.items() if self.state.is_being_stopped(*key)}
        return {**used, **saving}

    def _compare_clocks(self, ahead: timedelta | None) -> bool:
        """Return whether the hub's clock agrees with ours. If not, no server is stopped because of `last_activity`.

        Args:
            ahead: how far the hub's clock is ahead of ours. `None` if unknown; the clocks then do not count as
                agreeing.
        """
        counts = activity_counts(ahead)
        if counts is self._clocks_agree:
            return counts
        self._clocks_agree = counts
        if counts:
            log.warning("the hub's clock is as this machine's again: its last_activity counts")
        else:
            by = "not known" if ahead is None else f"{about(abs(ahead).total_seconds())} apart from this machine's"
            log.warning("the hub's clock is %s: nobody is stopped by last_activity", by)
        return counts

    async def _note_forged(self, active: Activity, transaction: Transaction) -> None:
        """Write one row in the journal (the log of decisions) for each server whose `last_activity` is in the future.

        Only a user can cause that, by reporting a false activity to the hub.

        Args:
            active: the hub's `last_activity` of each server.
            transaction: writes the rows.
        """
        now = self.state.clock.utc_now()
        forged = {key for key, at in active.items() if is_forged(at, now)}
        new = forged - self._forged
        said = {key: [explain("activity-ahead", at=active[key])] for key in sorted(new)}
        rows = tuple(JournalRow.because(now, "future-activity", (None, *key), said[key], "user") for key in said)
        if rows:
            await transaction.write(Changes(journal=rows))
        self._forged = (self._forged | forged) & active.keys()

    # -------------------------------------------------------------- tickets

    async def _end_old_tickets(self, servers: Servers, token_name: str, transaction: Transaction) -> None:
        """End all tickets (places in line) whose servers do not start, if the hub has run without this product.

        A hub that ran without this product has forgotten the service, and then gives the service's token a new name. A
        hub that was only restarted still uses the old name.

        Args:
            servers: the hub's list.
            token_name: the present name of the service's token.
            transaction: writes the changes.
        """
        if not token_name or token_name == self.state.token_name:
            return
        if self.state.token_name:
            for ticket in tuple(self.state.tickets.values()):
                server = servers.get((ticket.user, ticket.server))
                started = server is not None and server.ready and ticket.state is TicketState.ADMITTED
                if not started and (server is None or server.pending != "spawn"):
                    await transaction.end_ticket(ticket, Event.ABANDONED, QUEUE_WAS_OFF)
        await transaction.write(Changes(meta={TOKEN_NAME: token_name}))

    async def _tickets(self, servers: Servers, transaction: Transaction) -> tuple[Ticket, ...]:
        """End the tickets (places in line) that are over: ready, too long in line, or long without a pending spawn.

        Returns:
            The tickets whose spawns the hub does not know. The hub has to be asked to start their servers again.
        """
        now = self.state.clock.now()
        forgotten: list[Ticket] = []
        self._unattended = {ticket: at for ticket, at in self._unattended.items() if ticket in self.state.tickets}
        for ticket in tuple(self.state.tickets.values()):
            key = (ticket.user, ticket.server)
            if key in self._changed_since:
                continue  # the list is older than the last message about it
            server = servers.get(key)
            lease = self.state.lease_of_ticket(ticket.id)
            ready = server is not None and server.ready
            if ready and ticket.state is TicketState.ADMITTED and (lease is None or self.leases.has_started(lease)):
                await transaction.ready(ticket, lease)
                continue
            if ticket.state is TicketState.WAITING and now - ticket.joined > self.state.config.max_wait:
                hours = self.state.config.max_wait.total_seconds() / 3600
                reason = explain("max-wait", hours=hours, log_message="max_wait is over")
                await transaction.end_ticket(ticket, Event.MAX_WAIT, reason)
                continue
            if server is not None and server.pending == "spawn":
                self._unattended.pop(ticket.id, None)
                continue
            if self._is_starting:
                self._unattended[ticket.id] = now  # it waits for its turn to be started again
            since = self._unattended.setdefault(ticket.id, now)
            if now - since > self.state.config.abandon_after:
                reason = explain("abandoned", log_message="the hub has no pending spawn for it")
                self._unattended.pop(ticket.id, None)
                await transaction.end_ticket(ticket, Event.ABANDONED, reason)
                continue
            if not ready:  # while its server runs, the hub cannot start it again
                forgotten.append(ticket)
        return tuple(forgotten)

    @property
    def _is_starting(self) -> bool:
        """Whether this service is still asking the hub for starts of servers that the hub has forgotten."""
        return self._starting is not None and not self._starting.done()

    async def _start_again(self, forgotten: tuple[Ticket, ...]) -> None:
        """Ask the hub to start the servers whose pending spawns it has forgotten, five at a time.

        Servers of admitted tickets come first, then those of waiting tickets in the order of their places in line.

        The hub answers each request when the start is done, or after its ``slow_spawn_timeout``. In a long line, the
        last tickets therefore wait for minutes; they do not count as abandoned meanwhile.
        """
        order = sorted(
            forgotten,
            key=lambda t: (t.state is not TicketState.ADMITTED, t.first_place),
        )
        gate = asyncio.Semaphore(AT_A_TIME)

        async def start(ticket: Ticket) -> None:
            async with gate:
                async with self.transaction() as transaction:
                    now = self.state.tickets.get(ticket.id)
                    if now is None or now.attempt != ticket.attempt:
                        return  # its user has left or asked again while others were started
                    transaction.state.note_resumed(ticket)
                started = False
                try:
                    started = await self.hub.start(ticket.user, ticket.server, ticket.options)
                    if started:
                        log.info("start resumed", extra={"ticket": ticket.id, "server": ticket.server})
                except (HubAway, HubRefused) as problem:
                    self._resume = True
                    log.warning("start not resumed: %s", problem, extra={"ticket": ticket.id})
                if not started:  # the hub refused, or the user was quicker
                    async with self.transaction() as transaction:
                        transaction.state.note_resumed(ticket, asked=False)

        await asyncio.gather(*(start(ticket) for ticket in order))
        if self._resume:
            asyncio.get_running_loop().call_later(WHILE_AWAY * 5, self._soon.set)

    # -------------------------------------------------------------- servers

    async def _servers(self, servers: Servers, transaction: Transaction) -> None:
        """Adopt listed servers that the state does not know, and remove what the state has about servers that are gone.

        A server is gone if the hub's lists have lacked it for a minute.
        """
        changes = []
        for key, server in servers.items():
            if key in self._changed_since:
                continue
            if server.ready and key not in self.state.facts and self.state.live_ticket(*key) is None:
                changes.append(self._adopt(server))
            elif server.ready and key in self.state.facts:
                changes.append(self._adopt_late(server))
        missing = self._missing_for(servers)
        for key, facts in tuple(self.state.facts.items()):
            if missing.get(key, timedelta(0)) >= MISSING:
                transaction.state.forget_report(key)
                changes.append(self._forget(facts))
        for lease in tuple(self.state.leases.values()):
            key = (lease.user, lease.server)
            if key in self._changed_since:
                continue
            missed = missing.get(key, timedelta(0)) >= MISSING
            known = lease.pid is not None and self.leases.lives(lease)  # the hub forgot it, but it runs
            if lease.state is LeaseState.RUNNING and missed and not known:
                ending = lifecycle.move(lease, Event.SERVER_GONE)
                changes.append(Changes(leases=() if isinstance(ending, Reason) else (ending,)))
        changes = [change for change in changes if not change.empty]
        for begin in range(0, len(changes), IN_ONE_WRITE):
            some = changes[begin : begin + IN_ONE_WRITE]
            await transaction.write(
                Changes(
                    leases=tuple(lease for each in some for lease in each.leases),
                    facts=tuple(facts for each in some for facts in each.facts),
                    gone_facts=tuple(server for each in some for server in each.gone_facts),
                    journal=tuple(row for each in some for row in each.journal),
                )
            )

    def _missing_for(self, servers: Servers) -> Mapping[tuple[str, str], timedelta]:
        """Return for how long each known server has been missing from the hub's lists. Listed servers are not included.

        A single list may be wrong, so a server is forgotten only after a while.
        """
        now = self.state.clock.now()
        here = self.state.facts.keys() | {(lease.user, lease.server) for lease in self.state.leases.values()}
        there = {key for key, server in servers.items() if server.ready or server.pending} | self._changed_since
        self._missing = {key: self._missing.get(key, now) for key in here - there}
        return {key: now - since for key, since in self._missing.items()}

    def _adopt(self, server: HubServer) -> Changes:
        """Adopt a running server that the state does not know: store facts for culling, and a lease if it uses a GPU.

        Culling decides by these facts when the server has to stop. A lease is a server's right to its GPU. The server
        was started before this product was installed, or during an outage of the service.

        Args:
            server: the server, as the hub lists it.

        Returns:
            The changes to write. Empty if the server has ended or is being stopped, although the hub lists it.
        """
        now = self.state.clock.now()
        if not self.leases.may_be(server):
            return Changes()  # the hub's next poll will find that it has ended
        known = self.state.lease_of(server.user, server.server) or self._ending_but_alive(server)
        if known is not None:
            return self._go_on_with(known, server)
        if self.leases.is_stopping(server):
            return Changes()  # it was stopped, and the hub does not know that yet
        lease = self.leases.lease_of_unknown_server(server, now)
        offer = lease.offer if lease else CPU
        facts = ServerFacts(server.user, server.server, offer, now, lease=lease.id if lease else None, adopted=True)
        what = explain("adopted-on", device=lease.uuid) if lease else explain("adopted-without")
        at, about = self.state.clock.utc_now(), (facts.lease, server.user, server.server)
        row = JournalRow.because(at, "adopted", about, [what], SERVICE, [_found(server)])
        return Changes(facts=(facts,), leases=(lease,) if lease else (), journal=(row,))

    def _go_on_with(self, lease: Lease, server: HubServer) -> Changes:
        """Keep the lease (right to a GPU) of a server that still runs, and create the facts by which culling decides.

        If a stop of the server had begun and failed, the lease was ending. The lease gets the state *running* again,
        and the journal (the log of decisions) gets a row.

        Args:
            lease: a server's right to its GPU.
            server: the server, as the hub lists it.

        Returns:
            The changes to write.
        """
        back, rows = lifecycle.move(lease, Event.SERVER_BACK), tuple[JournalRow, ...]()
        if not isinstance(back, Reason):
            lease, about = back, (lease.id, server.user, server.server)
            why, seen = [explain("stop-undone")], [_found(server)]
            row = JournalRow.because(self.state.clock.utc_now(), CAME_BACK, about, why, SERVICE, seen)
            rows = (replace(row, ticket=lease.ticket),)
        started = lease.ready_at or self.state.clock.now()  # its lifetime still counts from the first start
        facts = ServerFacts(server.user, server.server, lease.offer, started, lease=lease.id, adopted=lease.adopted)
        return Changes(facts=(facts,), leases=(lease,), journal=rows)

    def _ending_but_alive(self, server: HubServer) -> Lease | None:
        """Return the ending lease (right to a GPU) of a server whose process still lives.

        `None` without such a lease.
        """
        mine = (each for each in self.state.leases.values() if (each.user, each.server) == (server.user, server.server))
        ending = next((each for each in mine if each.state is LeaseState.ENDING), None)
        return ending if ending is not None and self.leases.lives(ending) else None

    def _adopt_late(self, server: HubServer) -> Changes:
        """Create a lease (right to a GPU) for an adopted server that had none and now uses a GPU.

        An adopted server is one that the service found running: it was started before this product was installed, or
        during an outage of the service.

        Args:
            server: the server, as the hub lists it.

        Returns:
            The changes to write. Empty if the server was not adopted, has a lease already, or uses no GPU.
        """
        facts = self.state.facts[(server.user, server.server)]
        if not facts.adopted or facts.lease is not None:
            return Changes()
        lease = self.leases.lease_of_unknown_server(server, self.state.clock.now())
        if lease is None:
            return Changes()
        return Changes(
            facts=(replace(facts, lease=lease.id, offer=lease.offer, started=self.state.clock.now(), idle_since=None),),
            leases=(lease,),
        )

    def _forget(self, facts: ServerFacts) -> Changes:
        lease = self.state.leases.get(facts.lease) if facts.lease else None
        if lease is not None and lease.pid is not None and self.leases.lives(lease):
            return Changes()  # the hub forgot it, but it runs: it keeps its device, and an admin sees it
        server, seen = (facts.user, facts.server), f"its lists have lacked it for {MISSING.total_seconds():.0f} s"
        row = JournalRow(
            self.state.clock.utc_now(), "gone", None, None, *server, "the hub lists it no more", SERVICE, seen
        )
        return Changes(gone_facts=(server,), journal=(row,) if facts.lease is None else ())


def _found(server: HubServer) -> Reason:
    if server.pid:
        return explain("seen-listed-pid", pid=str(server.pid))
    return explain("seen-listed-pod", pod=server.pod) if server.pod else explain("seen-listed")
