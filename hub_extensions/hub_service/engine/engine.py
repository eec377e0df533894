"""The engine: the functions behind the HTTP routes of the service, and the loops that run in the background.

`Engine` creates the parts and connects them. It makes no decisions itself; it only collects from the parts what users,
administrators and metrics see.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import AsyncIterator, Callable, Coroutine, Iterator, Mapping, Sequence
from contextlib import aclosing, suppress
from dataclasses import replace
from datetime import datetime, timedelta
from operator import itemgetter
from typing import TYPE_CHECKING, Any, cast

from hub_extensions import __version__
from hub_extensions.adapters.files.policy_file import PolicyFileError
from hub_extensions.adapters.hub.jupyterhub_api import HubApi, HubAway, HubRefused
from hub_extensions.adapters.linux.server_processes import mark_of
from hub_extensions.adapters.store import Changes, JournalFilter, JournalRow, Store, StoreUnavailable
from hub_extensions.core import culling, messages
from hub_extensions.core.culling import CullPolicy, RuledServer
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.overview.days import Days, Span
from hub_extensions.core.overview.view import PEOPLE_A_PAGE, Asked, Overview, PageRows, paged
from hub_extensions.core.queue.model import Availability, LeaseState, Ticket, TicketState
from hub_extensions.core.stops import INTERRUPTED
from hub_extensions.core.usage.right_size import FittingHours
from hub_extensions.hub_service.engine.forecasts.forecast_worker import ForecastWorker
from hub_extensions.hub_service.engine.forecasts.forecaster import Forecaster
from hub_extensions.hub_service.engine.forecasts.outcomes import lost_forecasts
from hub_extensions.hub_service.engine.line.leases import LeaseWatcher
from hub_extensions.hub_service.engine.line.local_leases import Gpus, LocalLeases
from hub_extensions.hub_service.engine.line.orphans import Orphans
from hub_extensions.hub_service.engine.line.reconcile import Reconciler, ServiceApart
from hub_extensions.hub_service.engine.line.tickets import Tickets
from hub_extensions.hub_service.engine.state.errors import Refused
from hub_extensions.hub_service.engine.state.state import State
from hub_extensions.hub_service.engine.state.transaction import Transaction
from hub_extensions.hub_service.engine.stops import orders
from hub_extensions.hub_service.engine.stops.dcgm import EVERY as ASK_EVERY
from hub_extensions.hub_service.engine.stops.dcgm import Dcgm, open_prometheus
from hub_extensions.hub_service.engine.stops.policies import EVERY as POLICIES_EVERY
from hub_extensions.hub_service.engine.stops.runner import StopRunner
from hub_extensions.hub_service.engine.uses.notifier import Notifier
from hub_extensions.hub_service.engine.uses.usage import missing_uses
from hub_extensions.hub_service.engine.views import admin_view, lease_view, overview, presenters
from hub_extensions.hub_service.engine.views.cull_audit import culled_servers
from hub_extensions.hub_service.engine.views.lease_view import LeaseUse
from hub_extensions.hub_service.engine.views.offer_sources import offer_sources
from hub_extensions.hub_service.engine.views.server_view import ServerView
from hub_extensions.hub_service.engine.views.usage_days import COUNTED_FOR, is_current, usage_days
from hub_extensions.hub_service.setup.settings import Settings

if TYPE_CHECKING:
    from hub_extensions.hub_service.engine.forecasts.calculator import ForecastCalculator
    from hub_extensions.hub_service.engine.line.cluster_leases import Cluster, ClusterLeases

log = logging.getLogger("hub_extensions.hub_service")

PRUNE_EVERY = 6 * 3600.0  # seconds between two removals of old records
# the form's caution when the service has started and the cluster cannot be read
UNREAD = "The cluster has not been read yet, so it is not known which GPUs are free. You can join the line already."
# the form's caution when it offers only CPU although there are cards (not divided, or lost)
NONE_CAN_BE_GIVEN = "There are GPUs here that cannot be given to anybody now. The admins' page says why."
AGAIN = 5.0  # seconds until a loop that failed is started again


class Engine:
    """All parts of a running service and the connections between them; the HTTP routes call its methods.

    `open` creates it. Its background loops run between `start` and `stop`.

    Args:
        settings: the service's settings.
        store: the database.
        state: the state, as it was restored from the store.
        hub: the hub's API.
        gpus: reads this machine's GPUs, or the cluster.
        apart: watches the hub's settings, if the hub does not start this service. `None` if the hub starts it.
        calculator: computes the likely waits. If `None`, a worker process that starts with the first computation.
    """

    def __init__(
        self,
        settings: Settings,
        store: Store,
        state: State,
        hub: HubApi,
        gpus: Gpus | Cluster,
        apart: ServiceApart | None = None,
        calculator: ForecastCalculator | ForecastWorker | None = None,
    ) -> None:
        self.settings = settings
        self.store = store
        self.state = state
        self.hub = hub
        self.queue = Tickets(state, hub, service_url=settings.servers_url, simulate=settings.offers.simulate)
        transaction = self.queue.transaction
        self.watcher: LeaseWatcher
        self.cluster_leases: ClusterLeases | None = None
        if settings.cluster is not None:
            # one machine needs no library of Kubernetes
            from hub_extensions.hub_service.engine.line.cluster_leases import ClusterLeases

            self.cluster_leases = ClusterLeases(state, transaction, cast("Cluster", gpus), settings.cluster)
            self.watcher = self.cluster_leases
        else:
            self.watcher = LocalLeases(state, transaction, cast(Gpus, gpus))
        self.orphans = Orphans(
            state, self.queue.transaction, "" if settings.cluster is not None else mark_of(settings.hub_secret)
        )
        self.dcgm = Dcgm(state, open_prometheus(settings))
        self.stop_runner = StopRunner(state, transaction, hub, self.dcgm, self.watcher, self.queue.rights)
        self.notifier = Notifier(state, transaction, settings, self.stop_runner)
        self.servers = ServerView(state, transaction, self.stop_runner, self.notifier.can_notify)
        self.reconciler = Reconciler(state, transaction, hub, self.watcher, apart)
        self.forecaster = Forecaster(state, store, transaction, calculator or ForecastWorker(), self.queue)
        self.admin_orders = orders.AdminOrders(state, transaction, self.stop_runner, self.cluster_leases)
        self._loops: list[asyncio.Task[None]] = []
        self._failed_at: float | None = None
        self._port_problem = ""
        self._sources: dict[OfferId, messages.OfferEvidence] = {}
        self._days: dict[Span, Days] = {}
        self._fitting: tuple[datetime, tuple[FittingHours, ...]] | None = None

    @classmethod
    async def open(
        cls,
        settings: Settings,
        store: Store,
        hub: HubApi,
        gpus: Gpus | Cluster,
        apart: ServiceApart | None = None,
        calculator: ForecastCalculator | ForecastWorker | None = None,
    ) -> Engine:
        """Create the engine after reading the store and the GPUs once. If the GPUs cannot be read, `health` reports it.

        Args:
            settings: the service's settings.
            store: the database.
            hub: the hub's API.
            gpus: reads this machine's GPUs, or the cluster.
            apart: watches the hub's settings, if the hub does not start this service. `None` if the hub starts it.
            calculator: computes the likely waits. If `None`, a worker process that starts with the first computation.
        """
        allowance = timedelta(seconds=settings.start_seconds)
        on_cluster = settings.cluster is not None
        state = await State.open(
            store, settings.queue, settings.culling, settings.offers, allowance, settings, on_cluster=on_cluster
        )
        if not store.read_only:  # nobody else has the state yet, so no lock is needed
            ordered = tuple(facts for facts in state.facts.values() if state.orders_of(facts))
            await Transaction(state).write(
                Changes(
                    facts=ordered,  # written without the columns in which an earlier version kept orders
                    stops=tuple(state.stops.values()),
                    uses=missing_uses(state),
                    forecasts=lost_forecasts(state),
                )
            )
        engine = cls(settings, store, state, hub, gpus, apart, calculator)
        await engine.watcher.refresh()
        return engine

    def start(self) -> None:
        """Start the background loops.

        If the store is read-only, only the loops are started that read the devices, the measurements and the policy
        file, and that publish the statuses of tickets (places in line).
        """
        settings_file = self.settings.culling.policy_file
        deciding = (
            ("stopping servers", self.stop_runner.run),
            ("comparing with the hub", self.reconciler.run),
            ("forecasting waits", self.forecaster.run),
            *self.notifier.loops(),
            *([("ending orphans", self.orphans.run)] if self.orphans.mark else []),
            ("forgetting what is old", self._prune_old),
        )
        self._loops = [
            asyncio.ensure_future(self._run_loop(what, work))
            for what, work in (
                ("refreshing the leases", self.watcher.run),
                ("asking Prometheus", self._ask_prometheus),
                ("publishing", self.queue.publish_changes),
                *([("reading the policy file", self._read_policies)] if settings_file else []),
                *(() if self.store.read_only else deciding),
            )
        ]

    async def stop(self) -> None:
        """Cancel the background loops. Tickets (places in line) and leases (rights to GPUs) stay stored."""
        self.forecaster.close()
        for loop in self._loops:
            loop.cancel()
        await asyncio.gather(*self._loops, return_exceptions=True)
        self._loops = []
        self.dcgm.close()
        self.notifier.close()

    async def _run_loop(self, what: str, work: Callable[[], Coroutine[Any, Any, None]]) -> None:
        """Run a background loop, and again 5 s after it has failed, so that an error in it stops no loop for good.

        Args:
            what: the loop's name for the log.
            work: the loop.
        """
        while True:
            try:
                await work()
            except Exception:
                self._failed_at = asyncio.get_running_loop().time()
                log.exception("%s failed; it goes on in %g s", what, AGAIN)
            await asyncio.sleep(AGAIN)

    async def _ask_prometheus(self) -> None:
        while True:
            await self.dcgm.refresh()
            self.offer_sources()  # called regularly, because it records since when each source has been the same
            await asyncio.sleep(ASK_EVERY)

    async def _read_policies(self) -> None:
        policies = self.state.policies
        while True:
            await self.refresh_policies()
            offers = {each.id for each in self.state.offers}
            pools = {each.pool for each in self.state.offers if each.pool}
            groups = None if policies.has_groups else await self._groups()
            async with self.queue.transaction() as transaction:
                transaction.state.policies.note_doubts(groups, offers, pools)
            await asyncio.sleep(POLICIES_EVERY)

    async def refresh_policies(self) -> None:
        """Read the policy file again if it has changed, and put its rules in force."""
        found = await self.state.policies.read_changed()
        if found is None:
            return
        async with self.queue.transaction() as transaction:
            if isinstance(found, PolicyFileError):
                transaction.state.policies.reject(found)
                log.error("the policy file cannot be used, so the rules of before stay in force: %s", found)
            else:
                transaction.state.take_rules(found)
                log.info("the policy file was read: %d rule(s) are in force", len(found))

    async def _groups(self) -> frozenset[str] | None:
        try:
            return frozenset(group for user in await self.hub.users() for group in user.groups)
        except (HubAway, HubRefused) as problem:
            log.debug("the groups are not known: %s", problem)
            return None

    async def _prune_old(self) -> None:
        while True:
            try:
                await self._copy_store()
                await self.store.prune(self.state.clock.utc_now())
                await self.fitting_hours()
                await self._forget_deleted_users()
            except (StoreUnavailable, HubAway, HubRefused) as problem:
                log.debug("nothing is forgotten: %s", problem)
            async with self.queue.transaction() as transaction:
                transaction.state.notices.forget_old(self.state.clock.utc_now())
                await self._forget_trainings(transaction)
            await asyncio.sleep(PRUNE_EVERY)

    async def _forget_trainings(self, transaction: Transaction) -> None:
        """Remove what is stored of trainings and not needed any more: sent notices, and ends that were missed.

        Nothing is removed now if the store cannot be written.
        """
        state, now = self.state, self.state.clock.utc_now()
        meta = {**state.forecasts.forgotten_note(now), **state.notices.training_note(now, state.facts.values())}
        if meta:
            with suppress(StoreUnavailable):
                await transaction.write(Changes(meta=meta))

    async def _copy_store(self) -> None:
        try:
            made = await self.store.copy_of_today(self.settings.folder, self.state.clock.utc_now().date())
        except StoreUnavailable as problem:
            log.error("%s", problem.message)
        else:
            if made is not None:
                log.info("the store was copied to %s", made)

    async def _forget_deleted_users(self) -> None:
        """Anonymise the records of users whom the hub has deleted.

        Nothing is changed if the hub lists no users at all.
        """
        users = {user.name for user in await self.hub.users()}
        for gone in sorted(set(await self.store.users()) - users) if users else ():
            await self.store.forget_user(gone)
            async with self.queue.transaction() as transaction:
                transaction.state.forecasts.past.forget(gone)
                meta = self.state.forecasts.forgotten_note(self.state.clock.utc_now(), gone)
                without = self.state.notices.without_user(gone)
                await transaction.write(replace(without, meta={**without.meta, **meta}))
            self.forecaster.reload_soon()
            log.info("a deleted user's records were anonymised")

    # -------------------------------------------------------------- the hub

    async def ask(self, ask: messages.Ask) -> messages.TicketStatus:
        """Handle the hub's request to start one server, and return the status of its ticket (place in line).

        See `Tickets.ask_all`.
        """
        (state,) = await self.ask_all((ask,))
        return state

    async def ask_all(self, asks: Sequence[messages.Ask]) -> tuple[messages.TicketStatus, ...]:
        """Handle the hub's requests to start servers, and return the statuses of their tickets (places in line).

        See `Tickets.ask_all`. If a request is `Ask.kept`, its spawner ended with its hub, so nobody waits for the
        answer: the service asks the hub to start that server again.
        """
        self.reconciler.note_hub_contact()
        for ask in asks:
            if (lease := self.queue.dead_start(ask)) is not None:
                await self.watcher.clear_dead_start(lease)
        answers = await self.queue.ask_all(asks)
        if any(ask.kept for ask in asks):
            self.reconciler.resume_soon()
        return answers

    async def started(self, ticket: str, report: messages.Started) -> messages.TicketStatus:
        """Record the hub's report that a server's process was started, or that the server is ready.

        See `Tickets.started`.
        """
        self.reconciler.note_hub_contact()
        return await self.queue.started(ticket, report)

    async def ended(self, ticket: str, report: messages.Ended) -> None:
        """Record the hub's report that a try to start a server was cancelled or has failed. See `Tickets.ended`."""
        await self.queue.ended(ticket, report)
        self.watcher.refresh_soon()

    async def stopped(self, report: messages.Stopped) -> None:
        """Record the hub's report that a server has stopped. See `Tickets.stopped`."""
        self.watcher.hear_stop(report.user, report.server, report.polled)
        await self.queue.stopped(report)
        self.watcher.refresh_soon()

    async def signed_out(self, report: messages.SignedOut) -> messages.DrainState:
        """Stop the server of a user who was signed out at the hub. Return whether and when it stops.

        See `orders.stop_signed_out`.
        """
        drained = await orders.stop_signed_out(self.state, self.queue.transaction, report)
        self.stop_runner.turn_soon()
        return drained

    async def without_session(self, reported: messages.WithoutSessions) -> None:
        """Store which users have no sign-in session at the hub. Their accounts may no longer exist.

        See `orders.note_without_session`.
        """
        await orders.note_without_session(self.state, self.queue.transaction, reported)
        self.stop_runner.turn_soon()

    async def changes(self) -> AsyncIterator[messages.TicketStatus]:
        """Stream the statuses of tickets (places in line) to the hub's spawners: first all, then each that changes.

        A hub that disconnects may have been restarted and may have forgotten pending starts of servers. The service
        then asks the hub to start these servers again.
        """
        self.reconciler.note_hub_contact()
        try:
            async with aclosing(self.queue.changes()) as changes:
                async for state in changes:
                    yield state
        finally:
            self.reconciler.resume_soon()

    # -------------------------------------------------------------- users

    def form(self, user: str, server: str, groups: Sequence[str], admin: bool) -> messages.FormState:
        """Return everything that the spawn form of this user needs.

        Args:
            user: the user.
            server: name of the server that is to be started; not used.
            groups: the user's groups.
            admin: whether the user is an administrator, who sees all offers.
        """
        stands = presenters.allowed(self.state.availability(), groups, admin)
        policies = self._policies(user, groups, stands)
        at = self.state.clock.wall(self.state.read_at) if self.state.read_at else None
        held = (LeaseState.STARTING, LeaseState.RUNNING)
        offers, closed = {a.offer.id for a in stands}, self.state.closings()
        return messages.FormState(
            offers=tuple(presenters.offer_state(a, closed.get(a.offer.pool)) for a in stands),
            simulated=any(a.offer.simulated for a in stands),
            as_of=at,
            culling=culling.culling_sentence(*policies),
            gpu_servers=tuple(
                lease.server for lease in self.state.leases.values() if lease.user == user and lease.state in held
            ),
            notices=presenters.notices(self.state.recent_notices(user)),
            last_offers=tuple(offer for offer in self.state.last_offers_by_user.get(user, ()) if offer in offers),
            caution=self._caution(),
            in_line=tuple(ticket.server for ticket in self.state.tickets.values() if ticket.user == user),
            silent=tuple(a.offer.id for a in stands if a.offer.pool and self._is_silent(a.offer.pool)),
            default_offer=next((offer for offer in offers if offer == self.state.offer_config.default_offer), None),
            rule=culling.culling_rule(*policies),
            peak_memory_bytes=self.state.forecasts.past.peak_of(user),
            failed=overview.failed_of(self.state, user),
        )

    async def note_language(self, user: str, language: str) -> None:
        """Store the language of the user's last page, for mails. See `Notifier.note_language`."""
        await self.notifier.note_language(user, language)

    def _policies(self, user: str, groups: Sequence[str], stands: Sequence[Availability]) -> tuple[CullPolicy, ...]:
        """Return the limits that a server of this user would have now, for each offer with a GPU.

        Without such an offer, the limits of the configuration are returned.

        Args:
            user: the user.
            groups: the user's groups.
            stands: the offers that the user may see.
        """
        known, now = frozenset(groups), self.state.clock.utc_now()
        asked = (RuledServer(user, known, each.offer.id, each.offer.pool) for each in stands if each.offer.id != CPU)
        return tuple(self.state.policies.of(server, now)[0] for server in asked) or (self.state.policy,)

    def _is_silent(self, pool: str) -> bool:
        found = self.state.cluster.survey.pools.get(OfferId(pool)) if self.state.cluster is not None else None
        return found is not None and found.silent

    def _caution(self) -> str:
        if self.state.unread:
            return UNREAD
        said = self.state.cluster.caution if self.state.cluster is not None else ""
        return said or (NONE_CAN_BE_GIVEN if self._gives_nothing_of_what_is_there() else "")

    def _gives_nothing_of_what_is_there(self) -> bool:
        if any(offer.id != CPU for offer in self.state.offers) or self.state.offer_config.hidden:
            return False
        if self.state.cluster is not None:
            return any("node " in item.what for item in self.state.cluster.survey.left_out)
        reading = self.state.reading
        return reading is not None and bool(reading.problems or reading.devices)

    def tickets(self, user: str) -> tuple[messages.TicketInfo, ...]:
        """Return the live tickets (places in line) of one user, the earliest place first."""
        return self._tickets_info(self._tickets_of(user))

    def _tickets_of(self, user: str) -> list[Ticket]:
        mine = (ticket for ticket in self.state.tickets.values() if ticket.user == user)
        return sorted(mine, key=lambda ticket: ticket.first_place)

    def _tickets_info(self, tickets: Sequence[Ticket]) -> tuple[messages.TicketInfo, ...]:
        pairs = zip(tickets, self.queue.states_of(tickets), strict=True)
        return tuple(self._listed(*pair) for pair in pairs)

    async def all_tickets(self) -> tuple[messages.TicketInfo, ...]:
        """Return the live tickets (places in line) of all users, for administrators, the earliest place first.

        They are computed in batches between which other tasks run.
        """
        found = [(each.first_place, self._listed(each, status)) async for each, status in self.queue.all_states()]
        return tuple(info for _, info in sorted(found, key=itemgetter(0)))

    def _listed(self, ticket: Ticket, status: messages.TicketStatus) -> messages.TicketInfo:
        url = self.settings.server_url(ticket.user, ticket.server)
        return presenters.listed(ticket, status, url, self.state.clock)

    def owner_of(self, ticket: str) -> tuple[str, str] | None:
        """Return user and server of a live ticket (place in line). `None` if it has ended, or if it never existed."""
        found = self.state.tickets.get(ticket)
        return None if found is None else (found.user, found.server)

    def queue_figures(self) -> messages.QueueFigures:
        """Return figures about the tickets (places in line), for the metrics.

        They are the number of tickets in each state; and for each offer, since when that user has been waiting who
        joined first of all users whose first choice is this offer.
        """
        states: dict[str, int] = {}
        since: dict[str, datetime] = {}
        for ticket in self.state.tickets.values():
            states[ticket.state.value] = states.get(ticket.state.value, 0) + 1
            if ticket.state is TicketState.WAITING:
                offer = ticket.wanted_offers[0].offer
                since[offer] = min(ticket.joined, since.get(offer, ticket.joined))
        return messages.QueueFigures(states, {offer: self.state.clock.wall(at) for offer, at in since.items()})

    async def leave(self, ticket: str, user: str | None, admin: str = "", why: str = "") -> None:
        """Take a ticket (place in line) out of the line, for its user or an administrator. See `Tickets.leave`.

        Args:
            ticket: id of the ticket.
            user: the user who leaves. `None` if an administrator ends the ticket.
            admin: the administrator's name; "" if the user leaves.
            why: the administrator's reason, which the user sees; "" if none is given.
        """
        await self.queue.leave(ticket, user, admin, why)
        self.watcher.refresh_soon()

    # -------------------------------------------------------------- servers

    def server_state(self, user: str, server: str) -> messages.ServerState | None:
        """Return what the panel in a user's server shows: its GPU, limits, warnings and when it stops.

        `None` if the service does not know the server.
        """
        lease = self.state.lease_of(user, server)
        trespassed = bool(lease and self.watcher.trespassers.get(lease.device))
        return self.servers.server_state(user, server, trespassed)

    async def state_for_server(self, user: str, server: str) -> messages.ServerState | None:
        """Return the same as `server_state`, for the server's own extension.

        The answer may ask the extension to save its notebooks, because the server stops. If the user cannot withdraw
        the cause of this stop (`INTERRUPTED`), the extension also interrupts the kernels. The stop is then recorded as
        irrevocable before the answer is sent.

        Returns:
            `None` if the service does not know the server.
        """
        state = self.server_state(user, server)
        cause = "" if state is None or not state.save or state.countdown is None else state.countdown.cause
        if state is None or cause not in INTERRUPTED:
            return state
        try:
            if await self.stop_runner.note_interrupt(user, server):
                return state
        except Refused:  # nothing can be written, so nothing is interrupted
            return replace(state, save=False)
        return self.server_state(user, server)

    def servers_of(self, user: str) -> tuple[messages.ServerState, ...]:
        """Return the user's running servers, with and without a GPU. The default server comes first."""
        known = {key for key in self.state.facts if key[0] == user}
        known |= {(lease.user, lease.server) for lease in self.state.leases.values() if lease.user == user}
        states = (self.server_state(*key) for key in sorted(known))
        return tuple(state for state in states if state is not None)

    def overview(self, user: str) -> messages.UserOverview:
        """Return the user's tickets (places in line) and servers, for the hub's home page and the page of a start."""
        tickets = self.queue.states_of(self._tickets_of(user))
        return overview.overview(self.state, user, tickets, self.servers_of(user))

    async def report(self, user: str, server: str, report: messages.Report) -> messages.ServerState:
        """Store what the extension in a user's server reports about its activity, and return the state of the server.

        Raises:
            Refused: 404, the server is not known.
        """
        await self.servers.take_report(user, server, report)
        return await self._state_of(user, server)

    async def keep(self, user: str, server: str) -> messages.ServerState:
        """Postpone the stop of a server, because its user pressed *Keep*, and return its state.

        Raises:
            Refused: 404, no such server runs. 409, *Keep* would not help, or the user has pressed it too often.
        """
        await self.servers.keep(user, server)
        return await self._state_of(user, server)

    async def extend(self, user: str, server: str) -> messages.ServerState:
        """Put off the end of a server's lifetime, because its user asked for more time, and return its state.

        Raises:
            Refused: 404, no such server runs. 409, the lifetime cannot be extended now.
        """
        await self.servers.extend(user, server)
        return await self._state_of(user, server)

    async def training_ended(self, user: str, server: str, report: messages.TrainingEnded) -> None:
        """Send the notice that a training has ended, as its user wished. See `Notifier.training_ended`."""
        await self.notifier.training_ended(user, server, report)

    async def give_back(self, user: str, server: str, cpu: bool) -> messages.ServerState:
        """Give the GPU of a server back, because its user pressed the button: the server stops. See `orders`.

        Args:
            user, server: name of the user and of the server.
            cpu: whether the server is started again without a GPU.
        """
        await orders.give_back(self.state, self.queue.transaction, user, server, cpu)
        self.stop_runner.turn_soon()
        return await self._state_of(user, server)

    async def _state_of(self, user: str, server: str) -> messages.ServerState:
        state = await self.state_for_server(user, server)
        if state is None:
            raise Refused(404, "This server is not known to the GPU service yet.", "server", "unknown-server")
        return state

    # -------------------------------------------------------------- admins

    async def admin_overview(self, asked: Asked) -> Overview:
        """Return the requested part of the administrators' page: GPUs, their servers, people in line and health.

        Args:
            asked: the pages of the lists, the filter and the search that the administrator requested.
        """
        offers = self.form("", "", (), True).offers
        line = sorted(self.state.tickets.values(), key=lambda ticket: ticket.first_place)
        shown = paged(line, asked.people, PEOPLE_A_PAGE)
        people = PageRows(self._tickets_info(shown.shown), shown.found, shown.page, shown.pages)
        return await admin_view.admin_overview(
            self.state, self.stop_runner, self.watcher, self.cluster_leases, asked, offers, self.health(), people
        )

    async def days(self, span: Span) -> Days:
        """Return how the GPUs were used in the last day, week or month, for administrators; cached for a minute."""
        now = self.state.clock.utc_now()
        if not is_current(self._days.get(span), now):
            past = await self.store.uses_since(now - span.length)
            self._days[span] = await usage_days(self.state, past, span, now)
        return self._days[span]

    async def fitting_hours(self) -> tuple[FittingHours, ...]:
        """Return for how many hours of each pool in the last 30 days a smaller offer would have been enough.

        The pools are those of devices of one kind. The result is cached for a minute.
        """
        now = self.state.clock.utc_now()
        if self._fitting is None or not timedelta(0) <= now - self._fitting[0] < COUNTED_FOR:
            self._fitting = now, await self.store.fitting_hours(now - Span.MONTH.length)
        return self._fitting[1]

    def counted_fitting_hours(self) -> tuple[FittingHours, ...]:
        """Return what `fitting_hours` counted last, for the metrics. It is counted at least every 6 hours."""
        return () if self._fitting is None else self._fitting[1]

    def offer_sources(self) -> tuple[messages.OfferEvidence, ...]:
        """Return what measures how busy each offer's GPUs are (NVML, DCGM), for administrators."""
        found = offer_sources(self.state, self.stop_runner, self._sources)
        self._sources.update(found)
        return tuple(found.values())

    async def leases(self) -> tuple[messages.LeaseInfo, ...]:
        """Return all leases (servers' rights to their GPUs) that have not ended, for administrators."""
        return await lease_view.all_leases(self.state, self.stop_runner, self.watcher)

    def lease_states(self) -> Mapping[str, int]:
        """Return the number of leases (servers' rights to their GPUs) in each state, for the metrics."""
        return lease_view.lease_states(self.state)

    def lease_uses(self) -> Iterator[LeaseUse]:
        """Return how busy the device of each running lease (a server's right to its GPU) is, for the metrics."""
        return lease_view.lease_uses(self.state, self.stop_runner)

    async def culling(self) -> messages.CullingView:
        """Return the present culling decision about each running server, and the failed stops, for administrators."""
        servers = await culled_servers(self.state, self.stop_runner.decision, self.stop_runner.grounds)
        return messages.CullingView(self.state.clock.utc_now(), servers, self.failed_stops())

    def failed_stops(self) -> tuple[messages.FailedStop, ...]:
        """Return the stops that have passed their deadline, for administrators, the oldest first."""
        return self.stop_runner.failed_stops()

    async def journal(self, which: JournalFilter, most: int) -> tuple[JournalRow, ...]:
        """Return the newest rows of the journal (the store's log of the service's decisions), the newest first.

        Callers have to check the rights: only the user and administrators may see rows about a user.

        Args:
            which: filter of the rows.
            most: maximum number of rows.
        """
        return await self.store.journal(most, which)

    async def usage(self, user: str | None, before: str | None) -> messages.UsagePage:
        """Return a page of usage records, the newest first.

        Args:
            user: the user whose records are wanted. `None` for all users.
            before: `UsagePage.next` of the previous page. `None` for the first page.

        Raises:
            ValueError: `before` is not the end of a page.
        """
        return await self.store.usage(user, before)

    def cluster(self) -> messages.ClusterInfo | None:
        """Return pools (devices of one kind), nodes and forgotten pods of the cluster, for administrators.

        `None` on one machine.
        """
        return self.cluster_leases.info() if self.cluster_leases is not None else None

    async def give_up(self, lease: str, admin: str, why: str = "") -> None:
        """End a lease (a server's right to its GPU) on an administrator's order, without proof of its server's end.

        See `ClusterLeases.give_up` and `LocalLeases.give_up`.

        Args:
            lease: id of the lease.
            admin: name of the administrator.
            why: the administrator's reason; "" if none is given.
        """
        await self.watcher.give_up(lease, admin, why)

    def forecasts(self) -> messages.ForecastReport:
        """Return the accuracy of the wait forecasts for each pool (devices of one kind).

        The report also has the age of the last forecast.
        """
        return self.state.forecasts.report(self.state.clock)

    def distrusted(self) -> int:
        """Return the number of users whose reports of progress are not trusted now, for the metrics."""
        forecasts, now = self.state.forecasts, self.state.clock.utc_now()
        return sum(not forecasts.is_trusted(user, now) for user in forecasts.missed)

    async def progress(self, user: str, server: str, report: messages.Progress) -> bool:
        """Record a server's report of when its computation will be done, for the wait forecasts.

        Returns:
            Whether the report is used. It is not used, for example, if the server has no GPU, or if the service already
            has a later report of this server.

        Raises:
            Refused: 429, the last report of this server came less than a second ago.
        """
        return await self.servers.take_progress(user, server, report)

    def note_port_problem(self, problem: str) -> None:
        """Record why the service does not listen at its own port, for `health`; "" if it does."""
        self._port_problem = problem

    @property
    def read_only(self) -> str:
        """Why nothing can be changed: the disk of the store is full, so it is only read. "" if it can be written."""
        return self.store.read_only

    def health(self) -> messages.Health:
        """Return the health of the service. The route shows only `ready` of it to requests without a token."""
        age = self.state.inventory_age()
        away = self.state.hub_view.away_since
        failing = self._failed_at is not None and asyncio.get_running_loop().time() - self._failed_at < 3 * AGAIN
        ready = not self.state.store_problem and bool(self._loops) and not failing
        return messages.Health(
            ready=ready,
            store=self.state.store_problem or self.store.state,
            hub="answers" if away is None else f"does not answer since {away.isoformat(timespec='seconds')}",
            inventory_age_seconds=None if age is None else age.total_seconds(),
            version=__version__,
            prometheus=self.dcgm.status(),
            prometheus_up=self.dcgm.answers(),
            port=self._port_problem or "the service's own",
            evidence=self.offer_sources(),
            notices=self.notifier.status(),
            notices_sent=self.notifier.sent(),
            policy_file=self.state.policies.status(),
            policy_file_valid=self.state.policies.valid(),
            stops_failed=len(self.failed_stops()),
        )
