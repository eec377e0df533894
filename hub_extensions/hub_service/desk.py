"""The desk: everything the service's HTTP routes can ask for, and the loops behind it.

It puts the parts together (``tickets.py``, ``releases.py``, ``culler.py``, ``reconcile.py`` over one ``book.py``) and
adds nothing of its own but the views for people.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Sequence
from contextlib import aclosing
from datetime import timedelta
from typing import TYPE_CHECKING, Any, cast

from hub_extensions import __version__
from hub_extensions.adapters.hub_api import HubApi, HubAway, HubRefused
from hub_extensions.adapters.store import Store, StoreUnavailable
from hub_extensions.core import culling, messages
from hub_extensions.core.inventory import WHOLE
from hub_extensions.core.line import Lease, LeaseState, TicketState
from hub_extensions.hub_service import telling
from hub_extensions.hub_service.book import Book
from hub_extensions.hub_service.culler import Culler
from hub_extensions.hub_service.dcgm import Dcgm, open_prometheus
from hub_extensions.hub_service.reconcile import Reconciler
from hub_extensions.hub_service.refused import Refused
from hub_extensions.hub_service.releases import Gpus, Releases
from hub_extensions.hub_service.settings import Settings
from hub_extensions.hub_service.tickets import Tickets

if TYPE_CHECKING:
    from hub_extensions.hub_service.pods import Cluster, Pods

log = logging.getLogger("hub_extensions.hub_service")

PRUNE_EVERY = 6 * 3600.0
UNREAD = "The cluster has not been read yet, so it is not known which GPUs are free. You can join the line already."
"""Says the form of a service that started while the cluster cannot be read."""
AGAIN = 5.0
"""Seconds until a loop that failed is begun anew."""


class Desk:
    """One running service: made by :meth:`open`, working between :meth:`start` and :meth:`stop`."""

    def __init__(self, settings: Settings, store: Store, book: Book, hub: HubApi, gpus: Gpus | Cluster) -> None:
        self.settings = settings
        self.store = store
        self.book = book
        self.hub = hub
        self.line = Tickets(book, hub, service_url=settings.servers_url, simulate=settings.simulate)
        self.releases: Releases | Pods
        self.pods: Pods | None = None
        if settings.cluster is not None:
            from hub_extensions.hub_service.pods import Pods  # one machine needs no library of Kubernetes

            self.releases = self.pods = Pods(book, self.line, cast("Cluster", gpus), settings.cluster)
        else:
            self.releases = Releases(book, self.line, cast(Gpus, gpus))
        self.dcgm = Dcgm(book, open_prometheus(settings))
        self.culler = Culler(book, self.line, hub, self.dcgm)
        self.reconciler = Reconciler(book, self.line, self.culler, hub, self.pods)
        self._loops: list[asyncio.Task[None]] = []
        self._failed_at: float | None = None

    @classmethod
    async def open(cls, settings: Settings, store: Store, hub: HubApi, gpus: Gpus | Cluster) -> Desk:
        """Read the store and look at the machine once. GPUs that cannot be read are an answer, not an error."""
        allowance = timedelta(seconds=settings.start_seconds)
        book = await Book.open(store, settings.line, settings.culling, settings.offers, allowance)
        desk = cls(settings, store, book, hub, gpus)
        await desk.releases.look()
        return desk

    def start(self) -> None:
        """Begin to look, decide, reconcile and tell."""
        self._loops = [
            asyncio.ensure_future(self._keep_on(what, work))
            for what, work in (
                ("looking at the machine", self.releases.keep_looking),
                ("asking Prometheus", self.dcgm.keep_asking),
                ("deciding about idle servers", self.culler.keep_deciding),
                ("comparing with the hub", self.reconciler.keep_reconciling),
                ("telling", self.line.keep_telling),
                ("forgetting what is old", self._keep_pruning),
            )
        ]

    async def stop(self) -> None:
        """End the loops. What is written stays; nothing is given up."""
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        self.dcgm.close()

    async def _keep_on(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """A fault of ours in one loop ends neither the loop nor the others: it is logged, shown, and tried again."""
        while True:
            try:
                await work()
            except Exception:
                self._failed_at = asyncio.get_running_loop().time()
                log.exception("%s failed; it goes on in %g s", what, AGAIN)
            await asyncio.sleep(AGAIN)

    async def _keep_pruning(self) -> None:
        while True:
            try:
                await self.store.prune(self.book.clock.utc_now())
                await self._forget_deleted_users()
            except (StoreUnavailable, HubAway, HubRefused) as problem:
                log.debug("nothing is forgotten: %s", problem)
            self.book.notices = {
                user: rows for user in self.book.notices if (rows := [*self.book.recent_notices(user)])
            }
            await asyncio.sleep(PRUNE_EVERY)

    async def _forget_deleted_users(self) -> None:
        """Whoever is no user of the hub any more loses the name in the records. An empty list is no answer."""
        users = {user.name for user in await self.hub.users()}
        for gone in sorted(set(await self.store.users()) - users) if users else ():
            await self.store.forget_user(gone)
            log.info("a deleted user's records were anonymised")

    # -------------------------------------------------------------- the hub

    async def ask(self, ask: messages.Ask) -> messages.TicketState:
        """See `Tickets.ask`."""
        self.reconciler.hub_spoke()
        self.culler.people[ask.user] = (ask.groups, self.culler.people.get(ask.user, ((), False))[1])
        return await self.line.ask(ask)

    async def started(self, ticket: str, told: messages.Started) -> messages.TicketState:
        """See `Tickets.started`."""
        self.reconciler.hub_spoke()
        return await self.line.started(ticket, told)

    async def ended(self, ticket: str, told: messages.Ended) -> None:
        """See `Tickets.ended`."""
        await self.line.ended(ticket, told)
        self.releases.look_soon()

    async def stopped(self, told: messages.Stopped) -> None:
        """See `Tickets.stopped`."""
        await self.line.stopped(told)
        self.releases.look_soon()

    async def changes(self) -> AsyncIterator[messages.TicketState]:
        """All live tickets, then every change; the end of it means that the hub may have been restarted."""
        self.reconciler.hub_spoke()
        try:
            async with aclosing(self.line.changes()) as changes:
                async for state in changes:
                    yield state
        finally:
            self.reconciler.hub_connection_lost()

    # -------------------------------------------------------------- users

    def form(self, user: str, server: str, groups: Sequence[str], admin: bool) -> messages.FormState:
        """Everything the spawn form of this user needs."""
        stands = telling.allowed(self.book.availability(), groups, admin)
        at = self.book.clock.wall(self.book.read_at) if self.book.read_at else None
        held = (LeaseState.STARTING, LeaseState.RUNNING)
        offers = {a.offer.id for a in stands}
        return messages.FormState(
            offers=tuple(telling.offer_state(a) for a in stands),
            simulated=any(a.offer.simulated for a in stands),
            as_of=at,
            culling=culling.culling_sentence(self.book.policy),
            gpu_servers=tuple(
                lease.server for lease in self.book.leases.values() if lease.user == user and lease.state in held
            ),
            notices=tuple(messages.Notice(n.at, n.server, n.text) for n in self.book.recent_notices(user)),
            last_offers=tuple(offer for offer in self.book.last_choices.get(user, ()) if offer in offers),
            caution=self._caution(),
        )

    def _caution(self) -> str:
        if self.book.unread:
            return UNREAD
        return self.book.cluster.caution if self.book.cluster is not None else ""

    def tickets(self, user: str | None) -> tuple[messages.TicketInfo, ...]:
        """Live tickets of one user; None: of all (for admins)."""
        told = {state.ticket: state for state in self.line.states()}
        return tuple(
            messages.TicketInfo(
                ticket=ticket.id,
                user=ticket.user,
                server=ticket.server,
                state=ticket.state.value,
                offers=tuple(choice.offer for choice in ticket.choices),
                position=told[ticket.id].position,
                since=self.book.clock.wall(ticket.joined),
                reason=told[ticket.id].reason,
            )
            for ticket in sorted(self.book.tickets.values(), key=lambda t: min(c.place for c in t.choices))
            if user is None or ticket.user == user
        )

    async def leave(self, ticket: str, user: str | None) -> None:
        """See `Tickets.leave`."""
        await self.line.leave(ticket, user)
        self.releases.look_soon()

    # -------------------------------------------------------------- servers

    def server_state(self, user: str, server: str) -> messages.ServerState | None:
        """What a server is told about itself; None: it is not known here."""
        lease = self.book.lease_of(user, server)
        trespassed = bool(lease and self.releases.trespassers.get(lease.device))
        return self.culler.server_state(user, server, trespassed)

    def servers_of(self, user: str) -> tuple[messages.ServerState, ...]:
        """This user's running servers, CPU only included, the default one first."""
        known = {key for key in self.book.facts if key[0] == user}
        known |= {(lease.user, lease.server) for lease in self.book.leases.values() if lease.user == user}
        states = (self.server_state(*key) for key in sorted(known))
        return tuple(state for state in states if state is not None)

    async def report(self, user: str, server: str, told: messages.Report) -> messages.ServerState:
        """Take a report, answer with the state. Raises Refused (404) when it is not known here."""
        await self.culler.take_report(user, server, told)
        return self._state_of(user, server)

    async def keep(self, user: str, server: str) -> messages.ServerState:
        """Keep a server for a while. Raises Refused: nothing to keep, or the budget is used up."""
        await self.culler.keep(user, server)
        return self._state_of(user, server)

    def _state_of(self, user: str, server: str) -> messages.ServerState:
        state = self.server_state(user, server)
        if state is None:
            raise Refused(404, "This server is not known to the GPU service yet.", "server", "unknown-server")
        return state

    # -------------------------------------------------------------- admins

    def leases(self) -> tuple[messages.LeaseInfo, ...]:
        """All leases that have not ended, for admins."""
        return tuple(self._lease_info(lease) for lease in self.book.leases.values())

    def _lease_info(self, lease: Lease) -> messages.LeaseInfo:
        device = self.book.device(lease.device)
        facts = self.book.facts.get((lease.user, lease.server))
        decision = self.culler.decision(facts) if facts else None
        wall = self.book.clock.wall
        left = self.releases.leftovers.get(lease.id, ()) if lease.state is LeaseState.ENDING else ()
        used, source = self.culler.measured(lease)
        pod = self.pods.pod_of(lease) if self.pods is not None else None
        return messages.LeaseInfo(
            lease=lease.id,
            user=lease.user,
            server=lease.server,
            offer=lease.offer,
            uuid=lease.uuid,
            profile=device.profile if device else None,
            share=lease.share / WHOLE,
            state=lease.state.value,
            since=wall(lease.since),
            ready_at=wall(lease.ready_at) if lease.ready_at else None,
            pid=lease.pid,
            last_use_percent=used,
            stops_at=wall(decision.stops_at) if decision and decision.stops_at else None,
            stop_reason=decision.reason if decision else "",
            adopted=lease.adopted,
            processes=tuple(f"{p.command} (pid {p.pid}, {p.owner})" for p in left),
            use_source=source,
            pod=pod.name if pod else "",
            node=pod.node if pod else "",
        )

    def cluster(self) -> messages.ClusterInfo | None:
        """The cluster, for admins; None: this is one machine."""
        return self.pods.info() if self.pods is not None else None

    async def give_up(self, lease: str) -> None:
        """See `Pods.give_up`. Raises Refused: 404 on one machine, where no lease can be given up."""
        if self.pods is None:
            raise Refused(404, "There is no cluster here: a lease ends when nothing runs on its GPU.", "lease", "local")
        await self.pods.give_up(lease)

    def health(self) -> messages.Health:
        """How the service is; `ready` is all a stranger may see."""
        age = self.book.inventory_age()
        away = self.reconciler.away_since
        failing = self._failed_at is not None and asyncio.get_running_loop().time() - self._failed_at < 3 * AGAIN
        ready = not self.book.store_problem and bool(self._loops) and not failing
        return messages.Health(
            ready=ready,
            store=self.book.store_problem or self.store.state,
            hub="answers" if away is None else f"does not answer since {away.isoformat(timespec='seconds')}",
            inventory_age_seconds=None if age is None else age.total_seconds(),
            version=__version__,
            prometheus=self.dcgm.state(),
            prometheus_answers=self.dcgm.answers(),
        )

    @property
    def counts(self) -> dict[tuple[str, str], int]:
        """(what, word) -> how often since the start: ``admitted``, ``refused``, ``ended``, ``culled``."""
        return self.line.counts

    @property
    def last_round_seconds(self) -> float:
        """How long the last round of admissions took."""
        return self.line.last_round_seconds

    def waiting(self) -> int:
        """How many tickets wait."""
        return sum(1 for t in self.book.tickets.values() if t.state is TicketState.WAITING)


__all__ = ["Desk", "Refused"]
