"""The present state of the line, of servers and of devices, in memory and in the store.

`State.commit` writes to the store first and changes memory afterwards. If the store cannot be written, nothing has
changed. `transaction.py` is the only caller of the methods that change the state.
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import InitVar, dataclass, field, replace
from datetime import datetime, timedelta

from hub_extensions.adapters.linux.timeouts import shielded
from hub_extensions.adapters.store import Changes, NoticeRow, Store, Stored, StoreUnavailable
from hub_extensions.core.culling import (
    DAY,
    Cause,
    CullPolicy,
    CullRule,
    RoutesRenewed,
    RuledServer,
    ServerFacts,
    recent_keeps,
)
from hub_extensions.core.culling.lease_end import enforced_end, limit_end, shown_end
from hub_extensions.core.forecast.results import LikelyWaits
from hub_extensions.core.gpu.devices import DeviceState, InventoryReading
from hub_extensions.core.gpu.samples import ServerReport
from hub_extensions.core.messages import UsageRecord, WithoutSessions
from hub_extensions.core.notices import NoticeConfig
from hub_extensions.core.offers.model import GpuOffer, OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue import quota_holds
from hub_extensions.core.queue.admission import availability
from hub_extensions.core.queue.heads import lengths, pools_of
from hub_extensions.core.queue.model import (
    Availability,
    Lease,
    LeaseState,
    QueueLimits,
    QueueSnapshot,
    Ticket,
    TicketState,
)
from hub_extensions.core.queue.wait_bound import START_ALLOWANCE
from hub_extensions.core.stops import ServerReturn, StopCause, StopKey, StopRecord, lifecycle, with_earlier
from hub_extensions.core.usage import Use, UseEnd
from hub_extensions.hub_service.engine.forecasts.forecast_state import ForecastState
from hub_extensions.hub_service.engine.state.clock import RunningClock
from hub_extensions.hub_service.engine.state.inventory import Inventory
from hub_extensions.hub_service.engine.state.meta import (
    CLOCK,
    MISSED_ENDS,
    OFFERS,
    POOL_NAMES,
    ROUTES_RENEWED,
    STOPS,
    TOKEN_NAME,
    WITHOUT_SESSION,
    read_missed_ends,
    read_routes_renewed,
    read_stops,
    read_without_session,
    write_offers,
    write_stops,
)
from hub_extensions.hub_service.engine.state.snapshots import ClusterSnapshot, HubView, ServerKey
from hub_extensions.hub_service.engine.state.ticket_index import TicketIndex
from hub_extensions.hub_service.engine.stops.policies import Policies
from hub_extensions.hub_service.engine.uses.user_notices import NOTICES_LAST, UserNotices

log = logging.getLogger("hub_extensions.hub_service")


@dataclass(eq=False, kw_only=True)
class State(Inventory):
    """The state that the parts of the engine share: tickets (places in line), leases, servers, devices and offers.

    The service has one instance, which `open` creates from the content of the store.
    """

    store: Store
    """The database."""
    config: QueueLimits
    """The limits of the line."""
    cull_policy: InitVar[CullPolicy]
    policies: Policies = field(init=False)
    """The limits of culling: those of the configuration, and the rules of the policy file."""
    start_allowance: timedelta
    """Maximum duration of a start."""
    notices: UserNotices
    """Notices for users without an open page."""
    revision: int = 0
    """Grows with every change. A value computed from the state may be cached while the revision is the same."""

    # people in line
    tickets: dict[str, Ticket] = field(default_factory=dict)
    """Waiting and admitted tickets (users' places in line), by id."""
    ticket_index: TicketIndex = field(default_factory=TicketIndex)
    next_place: int = 1
    """The serial number that the next place in line gets."""
    last_offers_by_user: dict[str, tuple[OfferId, ...]] = field(default_factory=dict)
    """User -> the offers that the user requested last, as a suggestion on the spawn form."""
    resumed: dict[str, int] = field(default_factory=dict)
    """Ticket id -> `Ticket.attempt`, for servers whose start a restarted hub had forgotten.

    The service has asked the hub to start these servers again."""
    forecasts: ForecastState = field(default_factory=ForecastState)
    """The wait forecasts, and the past and present uses of GPUs from which they are computed."""

    # servers
    leases: dict[str, Lease] = field(default_factory=dict)
    """Leases (servers' rights to their GPUs) that have not ended, by id."""
    facts: dict[ServerKey, ServerFacts] = field(default_factory=dict)
    """The facts about each running server on which culling decides."""
    uses: dict[str, Use] = field(default_factory=dict)
    """Uses (one server's time with a GPU, or without one) that have not ended, by key, as measured so far."""
    last_uses: dict[ServerKey, UsageRecord] = field(default_factory=dict)
    """The last usage record of each server, kept for a minute if it is unknown why the server ended.

    The hub may still report the reason."""
    reports: dict[ServerKey, tuple[ServerReport, datetime]] = field(default_factory=dict)
    """The last report of the extension in each user's server, and when it came, by `clock`."""
    routes_renewed: RoutesRenewed | None = None
    """When the proxy was last restarted and got its routes again. `None` if no restart was seen."""
    stops: dict[StopKey, StopRecord] = field(default_factory=dict)
    """The stops that are announced or have begun, one per run of a server, until nothing of them is left to do."""
    without_session: WithoutSessions = field(default_factory=lambda: WithoutSessions(()))
    """Users without a sign-in session at the hub, whose accounts may no longer exist, as the hub reported last."""
    _no_session: dict[str, datetime] = field(default_factory=dict)
    keeps: dict[str, tuple[datetime, ...]] = field(default_factory=dict)
    """User -> when *Keep* was pressed in the last 24 hours, for any server. It is restored from the journal."""

    # the hub
    hub_view: HubView = field(default_factory=HubView)
    """The hub's servers and users as it listed them last, and whether it answers."""
    token_name: str = ""
    """The name that the hub gave to this service's token; it changes when the hub has forgotten the service."""
    touched: dict[ServerKey, float] = field(default_factory=dict)
    """When the last message about each server came, in seconds of the machine's monotonic clock.

    A list of the hub's servers that was requested before that time is out of date for this server."""
    quota_holds: quota_holds.Holds = field(default_factory=dict)
    """Offer -> why and since when it is held back: the cluster refused its last pod because of a quota."""

    # this service
    pool_names: Mapping[str, str] = field(default_factory=dict)
    """Key of each pool (devices of one kind) that the cluster ever had -> its id, which no other pool gets."""
    first_start: bool = False
    """Whether the store was new when the service started."""
    store_problem: str = ""
    """Why the store cannot be written now; "" if it can be."""
    counts: dict[tuple[str, str], int] = field(default_factory=dict)
    """(Kind of event, label) -> its count since the service's start, for the metrics."""
    culls: Counter[tuple[str, str]] = field(default_factory=Counter)
    """(Cause, rule of the policy file) -> number of servers stopped since the service's start, for the metrics."""
    last_admission_seconds: float = 0.0
    """Duration of the last search for tickets that can be admitted, for the metrics."""

    _lease_of_ticket: dict[str, str] = field(default_factory=dict)
    _availability: tuple[int, LikelyWaits | None, datetime, tuple[Availability, ...]] | None = None
    _sharers: tuple[int, Counter[str]] = field(default_factory=lambda: (-1, Counter()))
    _waiting: tuple[int, Mapping[OfferId, int]] = field(default_factory=lambda: (-1, {}))

    def __post_init__(self, cull_policy: CullPolicy) -> None:
        super().__post_init__()
        self.policies = Policies(cull_policy)

    @classmethod
    async def open(
        cls,
        store: Store,
        config: QueueLimits,
        policy: CullPolicy,
        offers: OfferConfig,
        start_allowance: timedelta = START_ALLOWANCE,
        notice_config: NoticeConfig | None = None,
        *,
        on_cluster: bool = False,
    ) -> State:
        """Create the state from the content of the store, and read the policy file. A new store gives an empty state.

        Args:
            store: the database.
            config: the limits of the line.
            policy: the limits of ``c.GpuCulling``.
            offers: the settings of the offers.
            start_allowance: how long a start may take.
            notice_config: how notices are sent. `None` for the defaults, with which none is sent.
            on_cluster: whether the GPUs are those of a cluster.

        Raises:
            PolicyFileError: the policy file cannot be used.
        """
        stored = await store.load()
        kept = stored.meta.get(CLOCK)
        clock = RunningClock(datetime.fromisoformat(kept) if kept else None)
        notices = UserNotices(notice_config or NoticeConfig())
        state = cls(
            store=store,
            clock=clock,
            config=config,
            cull_policy=policy,
            offer_config=offers,
            start_allowance=start_allowance,
            notices=notices,
        )
        state.policies.read_first()
        state._restore(stored)
        state.last_offers_by_user = dict(await store.last_offers_by_user())
        notices.load(stored, await store.notices(None, clock.utc_now() - NOTICES_LAST))
        wall, now = state.clock.utc_now(), state.clock.now()
        for user, at in await store.keeps(wall - DAY):
            if at <= wall:  # otherwise the clock was set back since
                state._note_keep(user, now - (wall - at))
        state.first_start = not kept
        state.store_problem = store.read_only
        state.forecasts.past.learn((await store.usage()).uses)
        if on_cluster:
            state.expect_cluster()
        return state

    def _restore(self, stored: Stored) -> None:
        for ticket in stored.tickets:
            self._remember_ticket(ticket)
        self.facts = {(facts.user, facts.server): facts for facts in stored.facts}
        self.uses = {use.key: use for use in stored.uses}
        for lease in stored.leases:
            self.leases[lease.id] = self._ending(lease)
            self._index(lease)
        self.forecasts.restore(stored.forecasts, read_missed_ends(stored.meta.get(MISSED_ENDS, "{}")))
        self.next_place = stored.next_place
        self.pool_names = json.loads(stored.meta.get(POOL_NAMES, "{}"))
        self.token_name = stored.meta.get(TOKEN_NAME, "")
        self._take_notes(stored.meta)
        self._take_without_session(read_without_session(stored.meta.get(WITHOUT_SESSION, "")))
        earlier = {stop.key: stop for stop in stored.earlier_stops}
        noted = (with_earlier(stop, earlier) for stop in read_stops(stored.meta.get(STOPS, "[]")))
        self.stops = {**earlier, **{stop.key: stop for stop in noted}}
        self.routes_renewed = read_routes_renewed(stored.meta.get(ROUTES_RENEWED, ""))

    # -------------------------------------------------------------- the one way to change

    async def commit(self, changes: Changes) -> None:
        """Write changes to the store, then apply them in memory.

        Raises:
            StoreUnavailable: the store cannot be written. Nothing has changed, in memory or in the store.
        """
        await shielded(self._commit(changes))  # a cancelled caller must not interrupt it

    async def _commit(self, changes: Changes) -> None:
        stamp = {CLOCK: self.clock.now().isoformat()}
        if changes.stops or changes.gone_stops:
            stamp[STOPS] = write_stops(self._stops_after(changes).values())
        try:
            await self.store.commit(replace(changes, meta={**changes.meta, **stamp}))
        except StoreUnavailable as problem:
            if not self.store_problem:
                log.error("nothing can be written; GPU tickets wait until it can: %s", problem.message)
            self.store_problem = problem.message
            raise
        if self.store_problem:
            log.warning("the store can be written again")
        self.store_problem = ""
        self._remember(changes)

    def _remember(self, changes: Changes) -> None:
        for row in changes.tickets:
            self.last_offers_by_user[row.ticket.user] = tuple(choice.offer for choice in row.ticket.wanted_offers)
            if row.end is None:
                self._remember_ticket(row.ticket)
            else:
                self._drop(row.ticket)
        for lease in changes.leases:
            if lease.state is LeaseState.ENDED:
                self.leases.pop(lease.id, None)
            else:
                self.leases[lease.id] = lease
            self._index(lease)
        for user, server in changes.gone_facts:
            self.facts.pop((user, server), None)
            self.reports.pop((user, server), None)
        for facts in changes.facts:
            self.facts[(facts.user, facts.server)] = facts
        for key in changes.gone_uses:
            self.uses.pop(key, None)
        for use in changes.uses:
            self.uses[use.key] = use
        for record in changes.usage:
            self._remember_last(record)
        for written in changes.journal:
            if written.kind == "kept" and written.user:
                self._note_keep(written.user, self.clock.now())
        if POOL_NAMES in changes.meta:
            self.pool_names = json.loads(changes.meta[POOL_NAMES])
        self._take_notes(changes.meta)
        if WITHOUT_SESSION in changes.meta:
            self._take_without_session(read_without_session(changes.meta[WITHOUT_SESSION]))
        ends_before, self.stops = self._ordered_ends(), self._stops_after(changes)
        if ROUTES_RENEWED in changes.meta:
            self.routes_renewed = read_routes_renewed(changes.meta[ROUTES_RENEWED])
        self.token_name = changes.meta.get(TOKEN_NAME, self.token_name)
        self.notices.remember(changes)
        self.forecasts.remember(changes)
        shown = replace(changes, forecasts=(), meta={}, stops=(), gone_stops=())
        # forecasts, notes and steps of a stop change nothing that is shown
        if not shown.empty or ends_before != self._ordered_ends():
            self.revision += 1

    def _ordered_ends(self) -> frozenset[tuple[StopKey, datetime]]:
        """Return for every order to stop a server: the key of the stop, and the time at which the server is to stop.

        The waits of users in line depend on these times.
        """
        return frozenset((stop.key, each.at) for stop in self.stops.values() for each in stop.orders)

    def _stops_after(self, changes: Changes) -> dict[StopKey, StopRecord]:
        if not changes.stops and not changes.gone_stops:
            return self.stops
        left = {key: stop for key, stop in self.stops.items() if key not in changes.gone_stops}
        return {**left, **{stop.key: stop for stop in changes.stops}}

    def no_session_since(self, user: str) -> datetime | None:
        """Return when the user's last sign-in session at the hub ended. The account may have been deleted since then.

        `None` if the hub does not report the user as without a session.
        """
        return self._no_session.get(user)

    def _take_without_session(self, reported: WithoutSessions) -> None:
        self.without_session = reported
        self._no_session = {each.user: each.since for each in reported.people}

    def _note_keep(self, user: str, at: datetime) -> None:
        self.keeps[user] = (*recent_keeps(self.clock.now(), self.keeps.get(user, ())), at)

    def _remember_last(self, record: UsageRecord) -> None:
        """Keep a usage record for a minute if it is unknown why the server ended.

        The hub may still report the reason.
        """
        lately = record.ended - timedelta(minutes=1)
        self.last_uses = {server: last for server, last in self.last_uses.items() if last.ended > lately}
        self.last_uses.pop((record.user, record.server), None)
        if record.end == UseEnd.UNKNOWN.value:
            self.last_uses[record.user, record.server] = record

    def _remember_ticket(self, ticket: Ticket) -> None:
        self.tickets[ticket.id] = ticket
        self.ticket_index.put(ticket)

    def _drop(self, ticket: Ticket) -> None:
        self.tickets.pop(ticket.id, None)
        self.ticket_index.drop(ticket)

    def _index(self, lease: Lease) -> None:
        if lease.state not in (LeaseState.ENDING, LeaseState.ENDED):
            self._lease_of_ticket[lease.ticket] = lease.id
        elif self._lease_of_ticket.get(lease.ticket) == lease.id:
            del self._lease_of_ticket[lease.ticket]

    # -------------------------------------------------------------- changes that are not stored

    def take_hub_view(self, view: HubView) -> None:
        """Replace what the hub listed last. While the hub is away, the running clock is paused.

        Deadlines of users are counted on that clock.

        Args:
            view: the servers and users that the hub listed now, and whether it answers.
        """
        before, self.hub_view = self.hub_view, view
        if view.is_up:
            self.clock.resume()
        else:
            self.clock.pause()
        if self.policies.rules and before.people != view.people:
            self._renew_ends()  # the rules of the policy file may depend on groups

    def note_groups(self, user: str, groups: tuple[str, ...]) -> None:
        """Record the groups that the hub sent with a user's request to start a server."""
        people = self.hub_view.people
        known, admin = people.get(user, (None, False))
        if known != groups:
            self.hub_view = replace(self.hub_view, people={**people, user: (groups, admin)})

    def touch(self, user: str, server: str) -> None:
        """Record that the hub has just sent a message about this server.

        A list of servers that was requested from the hub earlier is out of date for this server.
        """
        self.touched[user, server] = self.clock.elapsed()

    def forget_touched(self, before: float) -> frozenset[ServerKey]:
        """Forget the messages of the hub about servers that came before a list of servers was requested.

        Args:
            before: when the list was requested, in seconds of the machine's monotonic clock.

        Returns:
            The servers with later messages, for which the list is out of date.
        """
        self.touched = {server: at for server, at in self.touched.items() if at >= before}
        return frozenset(self.touched)

    def note_resumed(self, ticket: Ticket, *, asked: bool = True) -> None:
        """Record that the service asks the hub to start a server again, because the hub had forgotten the start.

        Args:
            ticket: the place in line of the server's user.
            asked: False to remove the record, because the hub did not start the server.
        """
        self.resumed = {other: attempt for other, attempt in self.resumed.items() if other in self.tickets}
        self.resumed.pop(ticket.id, None)
        if asked:
            self.resumed[ticket.id] = ticket.attempt

    def take_report(self, server: ServerKey, report: ServerReport) -> None:
        """Keep the newest report of the extension in a user's server (activity, use of its GPU), and when it came."""
        self.reports[server] = report, self.clock.now()

    def forget_report(self, server: ServerKey) -> None:
        """Remove the last report of the extension in a user's server, because the server is gone."""
        self.reports.pop(server, None)

    def take_measured(self, uses: Mapping[str, Use]) -> None:
        """Replace the uses (one server's time with a GPU) that have not ended by the same uses with newer measurements.

        They are not written to the store here; that happens once a minute.

        Args:
            uses: key of the use -> the use.
        """
        self.uses.update(uses)

    # -------------------------------------------------------------- counters, which nothing depends on

    def count(self, what: str, reason: str) -> None:
        """Increment a counter of the metrics.

        Args:
            what: the kind of event, such as ``admitted`` or ``refused``.
            reason: the label of the counter, such as the offer or the code of the reason.
        """
        self.counts[(what, reason)] = self.counts.get((what, reason), 0) + 1

    def count_cull(self, cause: Cause | None, rule: str) -> None:
        """Count a server that was stopped, for the metrics.

        Args:
            cause: why the server was stopped. `None` if it is not known.
            rule: name of the policy file's rule that set the server's limits; "" if no rule applied.
        """
        self.culls[cause.value if cause else "unknown", rule] += 1

    def note_admission_time(self, seconds: float) -> None:
        """Record how long the last search for tickets (places in line) that can start took, for the metrics."""
        self.last_admission_seconds = seconds

    def new_place(self) -> int:
        """Return the next place in line, a serial number that is never used twice."""
        self.next_place += 1
        return self.next_place - 1

    # -------------------------------------------------------------- limits

    @property
    def policy(self) -> CullPolicy:
        """The limits of culling (idle time, lifetime and others) in the configuration.

        The policy file may set other limits for a server; `policy_of` returns the limits that apply to one server.
        """
        return self.policies.base

    def policy_of(self, user: str, offer: OfferId) -> CullPolicy:
        """Return the limits (idle time, lifetime and others) that configuration and policy file set now for a server.

        Args:
            user: owner of the server.
            offer: the offer with which the server runs.
        """
        if not self.policies.rules and not self.policy.idle_by_offer:
            return self.policy
        return self.policies.of(self.ruled(user, offer), self.clock.utc_now())[0]

    def rule_of(self, user: str, offer: OfferId) -> str:
        """Return the name of the policy file's rule that sets the limits of a server now; "" if no rule does.

        Args:
            user: owner of the server.
            offer: the offer with which the server runs.
        """
        return self.policies.of(self.ruled(user, offer), self.clock.utc_now())[1]

    def ruled(self, user: str, offer: OfferId) -> RuledServer:
        """Return what the rules of the policy file may depend on: user, groups, offer and pool of a server.

        A pool is the devices of one kind.

        Args:
            user: owner of the server.
            offer: the offer with which the server runs.
        """
        known, found = self.hub_view.people.get(user), self.offer(offer)
        groups = None if known is None else frozenset(known[0])
        return RuledServer(user, groups, offer, found.pool if found is not None else "")

    def take_rules(self, rules: Sequence[CullRule]) -> None:
        """Put the rules of the policy file in force.

        Each lease (a server's right to its GPU) gets the end that they set.
        """
        self.policies.take(rules)
        self._renew_ends()

    def _renew_ends(self) -> None:
        """Compute again when each lease (a server's right to its GPU) ends at the latest.

        Rules of the policy file, or groups of users on which the rules depend, have changed.
        """
        self.leases = {lease.id: self._ending(lease) for lease in self.leases.values()}
        self.revision += 1

    def end_of(self, lease: Lease) -> datetime | None:
        """Return when the maximum lifetime ends a lease (a server's right to its GPU), by the present limits.

        `None` if no end is enforced.
        """
        return limit_end(lease, self.policies.longest(self.ruled(lease.user, lease.offer)), self.start_allowance)

    def _ending(self, lease: Lease) -> Lease:
        """Return the lease (a server's right to its GPU) with the end that the present limits set.

        If the user was shown a later end before, the lease has that later end.
        """
        return replace(lease, ends_at=shown_end(self.end_of(lease), self._facts_of(lease)))

    def as_enforced(self, lease: Lease) -> Lease:
        """Return the lease (a server's right to its GPU) with the time at which its server really ends at the latest.

        That time is later than `Lease.ends_at` if the user was warned of or promised a later one. It is earlier if
        somebody has ordered an earlier stop.
        """
        facts = self._facts_of(lease)
        if facts is None:
            return lease
        policy = self.policy_of(lease.user, lease.offer)
        end = enforced_end(lease.ends_at, facts, self.orders_of(facts), policy, self.clock.now())
        return lease if end == lease.ends_at else replace(lease, ends_at=end)

    def _facts_of(self, lease: Lease) -> ServerFacts | None:
        """Return the facts by which culling decides about the server of a lease (right to a GPU).

        `None` if that server does not run.
        """
        facts = self.facts.get((lease.user, lease.server))
        return facts if facts is not None and facts.lease == lease.id else None

    # -------------------------------------------------------------- the inventory

    def take_reading(self, reading: InventoryReading, devices: dict[str, DeviceState]) -> None:
        """Replace devices and measurements by a new reading of this machine's GPUs.

        Args:
            reading: the devices and measurements that the driver has just reported.
            devices: `Device.identity` -> the device. Devices that are gone are kept while a lease (a server's
                right to its GPU) names them.
        """
        if self._take_reading(reading, devices):
            self._note_other_offers()

    async def take_cluster(self, snapshot: ClusterSnapshot) -> None:
        """Replace what was read last from the cluster, and store its offers and the names of its pools.

        Args:
            snapshot: what was read now.

        Raises:
            StoreUnavailable: the name of a new pool (devices of one kind) cannot be stored, so the pool is not offered
                yet; nothing has changed.
        """
        if dict(snapshot.survey.names) != dict(self.pool_names):
            await self.commit(Changes(meta={POOL_NAMES: json.dumps(dict(snapshot.survey.names))}))
        if snapshot.offers.offers != self.offers_before:
            await self._store_offers(snapshot.offers.offers)
        if self._take_cluster(snapshot):
            self.ticket_index.see_nodes(snapshot.nodes, snapshot.volumes, self.tickets.values())
            self._note_other_offers()

    def _note_other_offers(self) -> None:
        self.revision += 1
        self.forecasts.note_change()

    async def _store_offers(self, offers: tuple[GpuOffer, ...]) -> None:
        """Store the cluster's offers (options of the spawn form) for the time after the next start of this service.

        Users may come then before the cluster can be read.
        """
        try:
            await self.commit(Changes(meta={OFFERS: write_offers(offers)}))
        except StoreUnavailable as problem:
            log.debug("the offers are not kept: %s", problem.message)
            return
        self.offers_before = offers

    # -------------------------------------------------------------- views

    def queue_snapshot(self, asked: Sequence[OfferId] = ()) -> QueueSnapshot:
        """Return everything from which an admission decides who may start: offers, devices, tickets, leases and limits.

        Args:
            asked: ids of offers that a user requests now. While the cluster has not been read, a user can join the
                lines of these offers too.
        """
        offers = (*self.offers, *self.by_name([*asked, *self._asked_for()])) if self.unread else self.offers
        line = QueueSnapshot(
            offers,
            self.known_devices(),
            tuple(self.tickets.values()),
            tuple(map(self.as_enforced, self.leases.values())),
            self.config,
            self.policies.longest_of_all(),
            self.start_allowance,
            queues=self.ticket_index.queues(pools_of(offers), self.tickets.values()),
            closed=self.closed,
            over_quota={offer: hold.why for offer, hold in self.quota_holds.items()},
            tried=quota_holds.to_try(self.quota_holds, self.tickets.values(), self.clock.now()),
        )
        snapshot = self.cluster
        if snapshot is None:
            return line
        known = snapshot.survey.known and self.is_fresh()
        return replace(
            line,
            pools=snapshot.survey.pools if known else None,
            bound=snapshot.survey.bound,
            queue=snapshot.queue,
            held_up=snapshot.held_up,
            held_up_on=snapshot.held_up_on,
            held_back=snapshot.held_back,
            node_sets=dict(self.ticket_index.node_sets),
            node_of=snapshot.node_of,
        )

    def _asked_for(self) -> Iterable[OfferId]:
        return (choice.offer for ticket in self.tickets.values() for choice in ticket.wanted_offers)

    def availability(self) -> tuple[Availability, ...]:
        """Return for every offer (option of the spawn form) how many devices are free, and how long a user would wait.

        The result is cached for a second while nothing changes.
        """
        now, likely, kept = self.clock.now(), self.forecasts, self._availability
        same = kept is not None and kept[0] == self.revision and kept[1] is likely.waits
        if kept is not None and same and now - kept[2] < timedelta(seconds=1):
            return kept[3]
        here = {offer.id for offer in self.offers}
        found = (each for each in availability(self.queue_snapshot(), now) if each.offer.id in here)
        fresh = tuple(likely.of_offer(each, self.clock) for each in found)
        self._availability = (self.revision, likely.waits, now, fresh)
        return fresh

    def stop_of(self, facts: ServerFacts) -> StopRecord | None:
        """Return the stop of this run of a server; `None` if no stop is announced or under way.

        Args:
            facts: what culling knows about the running server.
        """
        found = self.stops.get((facts.user, facts.server, facts.lease or ""))
        return found if found is not None and found.run == facts.started else None

    def ordered(self, facts: ServerFacts, new: StopCause) -> StopRecord | None:
        """Return the record of the stop of this run of a server with one more order. The record is not stored here.

        Args:
            facts: what culling knows about the running server.
            new: the order to stop it.

        Returns:
            `None` if the order changes nothing.
        """
        key = (facts.user, facts.server, facts.lease or "")
        before = self.stop_of(facts) or lifecycle.running(key, facts.started)
        after = lifecycle.order(before, new, self.clock.now())
        return None if after is before else after

    def orders_of(self, facts: ServerFacts) -> tuple[StopCause, ...]:
        """Return the orders (of the user, an administrator or the hub) to stop this run of a server; may be empty.

        Args:
            facts: what culling knows about the running server.
        """
        stop = self.stop_of(facts)
        return () if stop is None else stop.orders

    def is_being_stopped(self, user: str, server: str) -> bool:
        """Whether the running server is being stopped: its notebooks are saved, or the hub was asked to stop it."""
        facts = self.facts.get((user, server))
        stop = None if facts is None else self.stop_of(facts)
        return stop is not None and stop.began is not None

    @property
    def returns(self) -> Mapping[ServerKey, ServerReturn]:
        """Servers that start again, or have started again, without a GPU, because their GPU was taken or given back."""
        return {(stop.user, stop.server): stop.back for stop in self.stops.values() if stop.back is not None}

    def live_ticket(self, user: str, server: str) -> Ticket | None:
        """Return the waiting or admitted ticket (place in line) of a server. `None` without such a ticket."""
        return self.tickets.get(self.ticket_index.of_server(user, server))

    def lease_of(self, user: str, server: str) -> Lease | None:
        """Return the lease (the right to a GPU) under which a server runs or starts.

        `None` without a lease, or if the lease is ending.
        """
        live = (LeaseState.STARTING, LeaseState.RUNNING, LeaseState.LOST)
        own = (item for item in self.leases.values() if (item.user, item.server) == (user, server))
        return next((item for item in own if item.state in live), None)

    def sharers(self, device: str) -> int:
        """Return how many leases (servers' rights) share a device (`Device.identity`).

        Cached until the state changes.
        """
        if self._sharers[0] != self.revision:
            self._sharers = (self.revision, Counter(lease.device for lease in self.leases.values()))
        return self._sharers[1][device]

    def lists(self, lease: Lease) -> bool | None:
        """Return whether the hub's list of servers contains this run of the server of a lease (right to a GPU).

        A listed server with the lease's pid is this run, whatever its name. Otherwise a listed server of the same name
        is this run, unless a later run is known.

        Returns:
            `None` if the list is unknown, because the hub does not answer.
        """
        server, listed = (lease.user, lease.server), self.hub_view.listed
        if listed is None:
            return None
        named = {listed[server].pid} if server in listed else set[int | None]()
        if lease.pid is not None and any(each.pid == lease.pid for each in listed.values()):
            return True
        if not named or (lease.pid is not None and None not in named):
            return False
        facts = self.facts.get(server)
        later = self.lease_of(*server) or self.live_ticket(*server) or facts
        return later is None or later is lease or (facts is later and facts.lease == lease.id)

    def lease_of_ticket(self, ticket: str) -> Lease | None:
        """Return the lease (the right to a GPU) that a ticket (place in line) has got.

        `None` if the ticket waits or is for CPU only, or if the lease is ending.
        """
        return self.leases.get(self._lease_of_ticket.get(ticket, ""))

    def waiting_for(self, offer: OfferId) -> int:
        """Return how many tickets (places in line) wait for an offer (an option of the spawn form).

        The counts are cached until the state changes.
        """
        if self._waiting[0] != self.revision:
            self._waiting = (self.revision, lengths(self.offers, self.tickets.values()))
        return self._waiting[1].get(offer, 0)

    def waiting(self) -> int:
        """Return how many tickets (places in line) wait, for all offers together."""
        return sum(1 for ticket in self.tickets.values() if ticket.state is TicketState.WAITING)

    def recent_notices(self, user: str) -> tuple[NoticeRow, ...]:
        """Return the notices of the last 24 h, which the next page of this user shows."""
        return self.notices.recent(user, self.clock.utc_now())
