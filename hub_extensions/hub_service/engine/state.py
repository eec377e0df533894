"""The state: what is true now, in memory, and written to the store before anybody is told.

`State.write` is the one place where anything changes: the store's transaction first, then memory. When the store cannot
write, nothing has changed. Not here: what to change (``tickets.py``, ``local_leases.py``, ``culler.py``,
``reconcile.py``).
"""

from __future__ import annotations

import json
import logging
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.adapters.mig_tables import sm_of_product
from hub_extensions.adapters.store import Changes, NoticeRow, Store, StoreUnavailable
from hub_extensions.adapters.timeouts import unbroken
from hub_extensions.core.cluster.placement import NodeSets
from hub_extensions.core.culling import DAY, CullPolicy, RuledServer, ServerFacts, lifetime_end, recent_keeps
from hub_extensions.core.gpu.devices import Device, DeviceState, InventoryReading
from hub_extensions.core.gpu.samples import DeviceSample, ServerReport
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.notices import Delivery, NoticeConfig, Sending
from hub_extensions.core.offers.model import GpuOffer, OfferConfig, arranged, cpu_offer, derive_offers, named_offer
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.offers.pod_request import PodAsk
from hub_extensions.core.queue.admission import availability
from hub_extensions.core.queue.forecast import START_ALLOWANCE
from hub_extensions.core.queue.heads import pools_of
from hub_extensions.core.queue.model import (
    Availability,
    Lease,
    LeaseState,
    QueueLimits,
    QueueSnapshot,
    Ticket,
    TicketState,
)
from hub_extensions.core.queue.outlook import LikelyWaits
from hub_extensions.core.queue.pool_queue import PoolQueueIndex
from hub_extensions.core.usage import OpenUse, UseEnd
from hub_extensions.hub_service.engine.clock import RunningClock
from hub_extensions.hub_service.engine.foresight import Foresight
from hub_extensions.hub_service.engine.meta import (
    CLOCK,
    OFFERS,
    POOL_NAMES,
    SENDINGS,
    TOKEN_NAME,
    read_offers,
    read_sendings,
    write_offers,
)
from hub_extensions.hub_service.engine.policies import Policies
from hub_extensions.hub_service.engine.snapshots import ClusterSnapshot, Listing

log = logging.getLogger("hub_extensions.hub_service")

ServerKey = tuple[str, str]
INVENTORY_GOES_STALE = timedelta(seconds=60)
NOTICES_LAST = timedelta(hours=24)


class State:
    """Tickets, leases, facts of servers, devices and offers.

    Attributes:
        tickets: live ones (waiting, admitted) by id. leases: not ended, by id. facts: by (user, server).
        uses: not over, by key, with what was measured by now. last_uses: of each server the record that was written
            last, while it is not known how it ended.
        reading: the last inventory that could be read; None: none yet. read_at: running time of it.
        highest_use: of each device, of all readings since the last decision about idle servers.
        problem: why the inventory cannot be read now; "" when it can.
        on_cluster: devices are a cluster's. cluster: as it was read last; None: it has not been read yet.
        hub_up: the hub answers; hub_back: again since then, None: it was never away. listed: the servers it has, as its
            list said last, None: not known; listing: with their processes; listed_pods: the names of their pods.
            people: user -> groups and admin or not, as it said last. activity: of each server. hub_clock_ahead: by how
            much the hub's clock is, None: not known. gone_unseen: servers that went while hub or service was away: the
            first list after it lacked them, and each one since.
        node_sets: ticket -> the nodes of the cluster that its server may use, where that is known.
        touched: servers of which something was said, and when (the machine's seconds): an older listing knows less.
        compared: what the hub runs was compared with this at least once: else a lease may be of a server long gone.
        resumed: ticket -> the attempt after which the hub was asked to start its server again, by us.
        notice_config: how users are told who have no page open. deliveries: the notices on their way there, by their
            keys.
            sendings: channel -> how the last ones went.
        reports: what each server's own extension said last, and when. saving: since when its notebooks are being saved.
        keeps: user -> when *keep* was pressed in the last 24 hours, for whatever server (the journal has it).
        foresight: what is known of likely waits.
        counts: (what, reason) -> how often since the start; last_admission_seconds: how long the last admission
            took. Both for the metrics.
        revision: grows with every change; what is computed from the state may be kept as long as it stands.
    """

    def __init__(
        self,
        store: Store,
        clock: RunningClock,
        config: QueueLimits,
        policy: CullPolicy,
        offers: OfferConfig,
        start_allowance: timedelta = START_ALLOWANCE,
        notice_config: NoticeConfig | None = None,
    ) -> None:
        self.store = store
        self.clock = clock
        self.config = config
        self.policies = Policies(policy, self.renew_ends)
        self.offer_config = offers
        self.start_allowance = start_allowance
        self.notice_config = notice_config or NoticeConfig()
        self.deliveries: dict[tuple[str, str], Delivery] = {}
        self.sendings: Mapping[str, Sending] = {}
        self.tickets: dict[str, Ticket] = {}
        self._ticket_of: dict[ServerKey, str] = {}
        self._queues = PoolQueueIndex({})
        self._matched = NodeSets()
        self.node_sets: dict[str, frozenset[str]] = {}
        self.leases: dict[str, Lease] = {}
        self._lease_of_ticket: dict[str, str] = {}
        self.facts: dict[tuple[str, str], ServerFacts] = {}
        self.uses: dict[str, OpenUse] = {}
        self.last_uses: dict[ServerKey, UsageRecord] = {}
        self.notices: dict[str, list[NoticeRow]] = {}
        self.last_offers_by_user: dict[str, tuple[OfferId, ...]] = {}
        self.next_place = 1
        self.offers: tuple[GpuOffer, ...] = derive_offers((), offers, sm_of_product=sm_of_product)
        self.devices: dict[str, DeviceState] = {}
        self.samples: Mapping[str, DeviceSample] = {}
        self.highest_use: dict[str, float] = {}
        self.reading: InventoryReading | None = None
        self.read_at: datetime | None = None
        self.on_cluster = False
        self.cluster: ClusterSnapshot | None = None
        self._offers_before: tuple[GpuOffer, ...] = ()
        self.pool_names: Mapping[str, str] = {}
        self.token_name = ""
        self.problem = ""
        self.first_start = False
        self.revision = 0
        self.store_problem = ""
        self.port_problem = ""
        self.hub_up = True
        self.hub_back: datetime | None = None
        self.counts: dict[tuple[str, str], int] = {}
        self.last_admission_seconds = 0.0
        self.touched: dict[ServerKey, float] = {}
        self.resumed: dict[str, int] = {}
        self.people: dict[str, tuple[tuple[str, ...], bool]] = {}
        self.reports: dict[ServerKey, tuple[ServerReport, datetime]] = {}
        self.activity: dict[ServerKey, datetime] = {}
        self.hub_clock_ahead: timedelta | None = None
        self.saving: dict[ServerKey, datetime] = {}
        self.keeps: dict[str, tuple[datetime, ...]] = {}
        self.listed: frozenset[ServerKey] | None = None
        self.gone_unseen: frozenset[ServerKey] = frozenset()
        self.listing: Listing | None = None
        self.listed_pods: frozenset[str] = frozenset()
        self.foresight = Foresight()
        self._availability: tuple[int, LikelyWaits | None, datetime, tuple[Availability, ...]] | None = None
        self._sharers: tuple[int, Counter[str]] = (-1, Counter())

    @classmethod
    async def open(
        cls,
        store: Store,
        config: QueueLimits,
        policy: CullPolicy,
        offers: OfferConfig,
        start_allowance: timedelta = START_ALLOWANCE,
        notice_config: NoticeConfig | None = None,
    ) -> State:
        """Read what the store kept; a new store makes a new state."""
        stored = await store.load()
        kept = stored.meta.get(CLOCK)
        clock = RunningClock(datetime.fromisoformat(kept) if kept else None)
        state = cls(store, clock, config, policy, offers, start_allowance, notice_config)
        for ticket in stored.tickets:
            state._remember_ticket(ticket)
        state.sendings = read_sendings(stored.meta.get(SENDINGS, "{}"))
        state.deliveries = {each.key: each for each in stored.deliveries}
        state.facts = {(facts.user, facts.server): facts for facts in stored.facts}
        state.uses = {use.key: use for use in stored.uses}
        for lease in stored.leases:
            state.leases[lease.id] = state._ending(lease)
            state._index(lease)
        state.foresight.goes_on_with(stored.forecasts)
        state.next_place = stored.next_place
        state.pool_names = json.loads(stored.meta.get(POOL_NAMES, "{}"))
        state.token_name = stored.meta.get(TOKEN_NAME, "")
        state._offers_before = read_offers(stored.meta.get(OFFERS, "[]"))
        state.last_offers_by_user = dict(await store.last_offers_by_user())
        for notice in reversed(await store.notices(None, state.clock.utc_now() - NOTICES_LAST)):
            state.notices.setdefault(notice.user, []).append(notice)
        wall, now = state.clock.utc_now(), state.clock.now()
        for user, at in await store.keeps(wall - DAY):
            if at <= wall:  # else the clock was set back since
                state._note_keep(user, now - (wall - at))
        state.first_start = not kept
        return state

    # -------------------------------------------------------------- the one way to change

    async def commit(self, changes: Changes) -> None:
        """Store, then remember.

        Raises:
            StoreUnavailable: nothing has changed, in memory or in the store.
        """
        await unbroken(self._commit(changes))  # a caller that goes away tears nothing

    async def _commit(self, changes: Changes) -> None:
        stamp = {CLOCK: self.clock.now().isoformat()}
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
        for facts in changes.facts:
            self.facts[(facts.user, facts.server)] = facts
        for key in changes.gone_uses:
            self.uses.pop(key, None)
        for use in changes.uses:
            self.uses[use.key] = use
        for record in changes.usage:
            self._remember_last(record)
        for delivered in changes.delivered:
            self.deliveries.pop(delivered, None)
        for delivery in changes.deliveries:
            self.deliveries[delivery.key] = delivery
        for notice in changes.notices:
            self.notices.setdefault(notice.user, []).append(notice)
        for written in changes.journal:
            if written.kind == "kept" and written.user:
                self._note_keep(written.user, self.clock.now())
        if POOL_NAMES in changes.meta:
            self.pool_names = json.loads(changes.meta[POOL_NAMES])
        if SENDINGS in changes.meta:
            self.sendings = read_sendings(changes.meta[SENDINGS])
        self.token_name = changes.meta.get(TOKEN_NAME, self.token_name)
        self.foresight.remember(changes)
        if not replace(changes, forecasts=(), meta={}).empty:  # what was foretold, or noted, changes nothing
            self.revision += 1

    def _note_keep(self, user: str, at: datetime) -> None:
        self.keeps[user] = (*recent_keeps(self.clock.now(), self.keeps.get(user, ())), at)

    def _remember_last(self, record: UsageRecord) -> None:
        """For a minute the hub may still say how it ended."""
        lately = record.ended - timedelta(minutes=1)
        self.last_uses = {server: last for server, last in self.last_uses.items() if last.ended > lately}
        self.last_uses.pop((record.user, record.server), None)
        if record.end == UseEnd.UNKNOWN.value:
            self.last_uses[record.user, record.server] = record

    def _remember_ticket(self, ticket: Ticket) -> None:
        self.tickets[ticket.id] = ticket
        self._ticket_of[ticket.user, ticket.server] = ticket.id
        self._queues.put(ticket)
        self._match(ticket)

    def _match(self, ticket: Ticket) -> None:
        """Find the nodes that its server may use, as far as they are known."""
        found = None if self.cluster is None else self._matched.of(ticket.demands)
        if found is None:
            self.node_sets.pop(ticket.id, None)
        else:
            self.node_sets[ticket.id] = found

    def _drop(self, ticket: Ticket) -> None:
        self.tickets.pop(ticket.id, None)
        if self._ticket_of.get((ticket.user, ticket.server)) == ticket.id:
            del self._ticket_of[ticket.user, ticket.server]
        self._queues.drop(ticket.id)
        self.node_sets.pop(ticket.id, None)

    def _index(self, lease: Lease) -> None:
        if lease.state not in (LeaseState.ENDING, LeaseState.ENDED):
            self._lease_of_ticket[lease.ticket] = lease.id
        elif self._lease_of_ticket.get(lease.ticket) == lease.id:
            del self._lease_of_ticket[lease.ticket]

    @property
    def policy(self) -> CullPolicy:
        """The settings of culling. What one server's limits are is said by `policy_of`."""
        return self.policies.base

    def policy_of(self, user: str, offer: OfferId) -> CullPolicy:
        """The limits of a server now."""
        if not self.policies.rules and not self.policy.idle_by_offer:
            return self.policy
        return self.policies.of(self.ruled(user, offer), self.clock.utc_now())[0]

    def ruled(self, user: str, offer: OfferId) -> RuledServer:
        """What the rules ask about a server."""
        known, found = self.people.get(user), self.offer(offer)
        groups = None if known is None else frozenset(known[0])
        return RuledServer(user, groups, offer, found.pool if found is not None else "")

    def renew_ends(self) -> None:
        """Other rules are in force, or fit others: leases end by them."""
        self.leases = {lease.id: self._ending(lease) for lease in self.leases.values()}
        self.revision += 1

    def _ending(self, lease: Lease) -> Lease:
        """A lease with the end that the limits of today give it, and no earlier one than its user was shown."""
        ends, facts = self.end_of(lease), self.facts.get((lease.user, lease.server))
        if ends is None or facts is None or facts.lease != lease.id:
            return replace(lease, ends_at=ends)
        return replace(lease, ends_at=max(ends, facts.ends_at or ends, facts.promised or ends))

    def end_of(self, lease: Lease) -> datetime | None:
        """When the lifetime ends a lease at the latest, by the limits of today; None: nothing enforces an end."""
        longest = self.policies.longest(self.ruled(lease.user, lease.offer))
        if longest is None:
            return None
        begins = lease.since + self.start_allowance if lease.ready_at is None else lease.ready_at
        return begins + longest

    def _as_enforced(self, lease: Lease) -> Lease:
        """A lease with the end that its server really has: none comes before its warning, or before a promised one."""
        facts = self.facts.get((lease.user, lease.server))
        if facts is not None and facts.lease == lease.id and facts.drain is not None:
            return replace(lease, ends_at=min(facts.drain.at, lease.ends_at or facts.drain.at))
        if lease.ends_at is None or facts is None or facts.lease != lease.id:
            return lease
        now, policy = self.clock.now(), self.policy_of(lease.user, lease.offer)
        known = max(lease.ends_at, facts.ends_at or lease.ends_at)
        if facts.promised is None and known > now + policy.warn:
            return lease if known == lease.ends_at else replace(lease, ends_at=known)  # as far away as it looks
        end = max(known, lifetime_end(facts, policy, now) or known)
        return lease if end == lease.ends_at else replace(lease, ends_at=end)

    def touch(self, user: str, server: str) -> None:
        """Something was said of this server just now: a listing of the hub from before knows nothing of it."""
        self.touched[(user, server)] = self.clock.elapsed()

    def count(self, what: str, reason: str) -> None:
        """Count something for the metrics."""
        self.counts[(what, reason)] = self.counts.get((what, reason), 0) + 1

    def new_place(self) -> int:
        """The next place in line (a serial number, never used twice)."""
        self.next_place += 1
        return self.next_place - 1

    # -------------------------------------------------------------- the inventory

    def see(self, reading: InventoryReading, states: dict[str, DeviceState]) -> None:
        """Take in a reading of the GPUs. `states` (by `Device.identity`) keeps devices that are gone under a lease."""
        changed = states != self.devices
        self.reading = reading
        self.samples = reading.samples
        for uuid, sample in reading.samples.items():
            if sample.used_percent is not None:
                self.highest_use[uuid] = max(sample.used_percent, self.highest_use.get(uuid, 0.0))
        self.read_at = self.clock.now()
        self.problem = " ".join(reading.problems)
        if not changed and self.offers:
            return
        self.devices = states
        self.offers = derive_offers(
            [s.device for s in states.values() if s.present], self.offer_config, sm_of_product=sm_of_product
        )
        self.revision += 1
        self.foresight.note_change()

    def expect_cluster(self) -> None:
        """The devices are a cluster's. Until it has been read, its offers are those of before, and none is counted."""
        self.on_cluster = True
        before = [each for each in self._offers_before if each.id != CPU and each.id not in self.offer_config.hidden]
        self.offers = arranged([*before, cpu_offer()], self.offer_config)

    @property
    def unread(self) -> bool:
        """On a cluster that has not been read yet: what is offered there is not known, which is not *nothing*."""
        return self.on_cluster and self.cluster is None

    async def see_cluster(self, snapshot: ClusterSnapshot) -> None:
        """Take in a snapshot of a cluster.

        Raises:
            StoreUnavailable: a new pool's name cannot be kept, so it is not offered yet; nothing has changed.
        """
        if dict(snapshot.survey.names) != dict(self.pool_names):
            await self.commit(Changes(meta={POOL_NAMES: json.dumps(dict(snapshot.survey.names))}))
        if snapshot.offers.offers != self._offers_before:
            await self._store_offers(snapshot.offers.offers)
        self.read_at = self.clock.now()
        self.problem = ""
        if snapshot == self.cluster:
            return
        self.cluster = snapshot
        if self._matched.know(snapshot.nodes, snapshot.volumes):
            for ticket in self.tickets.values():
                self._match(ticket)
        self.offers = snapshot.offers.offers
        self.revision += 1
        self.foresight.note_change()

    async def _store_offers(self, offers: tuple[GpuOffer, ...]) -> None:
        """For the next start of this service, which may come before the cluster can be read."""
        try:
            await self.commit(Changes(meta={OFFERS: write_offers(offers)}))
        except StoreUnavailable as problem:
            log.debug("the offers are not kept: %s", problem.message)
            return
        self._offers_before = offers

    def ask_of(self, offer: OfferId) -> PodAsk | None:
        """What an offer asks of a pod; None: this is one machine, or there is no such offer."""
        return self.cluster.offers.asks.get(offer) if self.cluster is not None else None

    def inventory_age(self) -> timedelta | None:
        """Running time since the GPUs were last read; None: never yet."""
        return None if self.read_at is None else self.clock.now() - self.read_at

    def known_devices(self) -> tuple[DeviceState, ...] | None:
        """The devices, or None while they are not known."""
        if self.cluster is not None or not self._fresh():
            return None
        return tuple(self.devices.values())

    def _fresh(self) -> bool:
        age = self.inventory_age()
        return age is not None and age <= INVENTORY_GOES_STALE

    def device(self, identity: str) -> Device | None:
        """A device by `Device.identity`, gone ones under a lease included."""
        state = self.devices.get(identity)
        return state.device if state else None

    # -------------------------------------------------------------- views

    def queue_snapshot(self, asked: Sequence[OfferId] = ()) -> QueueSnapshot:
        """What an admission decides on.

        Args:
            asked: ids of offers that somebody asks for now. On a cluster that has not been read yet they have a line,
                as those have that anybody waits for.
        """
        offers = (*self.offers, *self._by_name(asked)) if self.unread else self.offers
        pools = pools_of(offers)
        if pools != self._queues.pool_of:
            self._queues = PoolQueueIndex(pools, self.tickets.values())
        line = QueueSnapshot(
            offers,
            self.known_devices(),
            tuple(self.tickets.values()),
            tuple(map(self._as_enforced, self.leases.values())),
            self.config,
            self.policies.longest_of_all(),
            self.start_allowance,
            queues=self._queues.queues(),
        )
        snapshot = self.cluster
        if snapshot is None:
            return line
        known = snapshot.survey.known and self._fresh()
        return replace(
            line,
            pools=snapshot.survey.pools if known else None,
            bound=snapshot.survey.bound,
            queue=snapshot.queue,
            held_up=snapshot.held_up,
            held_up_on=snapshot.held_up_on,
            held_back=snapshot.held_back,
            node_sets=dict(self.node_sets),
            node_of=snapshot.node_of,
        )

    def _by_name(self, asked: Sequence[OfferId]) -> tuple[GpuOffer, ...]:
        """Offers that are asked for and not known, by their ids; what the admin hides is none."""
        wanted = [*asked, *(choice.offer for ticket in self.tickets.values() for choice in ticket.wanted_offers)]
        unknown = set(wanted) - {offer.id for offer in self.offers} - set(self.offer_config.hidden)
        return arranged(map(named_offer, unknown), self.offer_config)

    def availability(self) -> tuple[Availability, ...]:
        """How every offer stands; kept for a second as long as nothing changes."""
        now, likely, kept = self.clock.now(), self.foresight, self._availability
        same = kept is not None and kept[0] == self.revision and kept[1] is likely.waits
        if kept is not None and same and now - kept[2] < timedelta(seconds=1):
            return kept[3]
        here = {offer.id for offer in self.offers}
        found = (each for each in availability(self.queue_snapshot(), now) if each.offer.id in here)
        fresh = tuple(likely.of_offer(each, self.clock) for each in found)
        self._availability = (self.revision, likely.waits, now, fresh)
        return fresh

    def offer(self, offer_id: OfferId) -> GpuOffer | None:
        """An offer by its id; None: there is none."""
        return next((offer for offer in self.offers if offer.id == offer_id), None)

    def live_ticket(self, user: str, server: str) -> Ticket | None:
        """The ticket of a server that waits or starts; None: there is none."""
        return self.tickets.get(self._ticket_of.get((user, server), ""))

    def lease_of(self, user: str, server: str) -> Lease | None:
        """The lease a server runs or starts under (not one that is ending)."""
        live = (LeaseState.STARTING, LeaseState.RUNNING, LeaseState.LOST)
        return next(
            (
                item
                for item in self.leases.values()
                if (item.user, item.server) == (user, server) and item.state in live
            ),
            None,
        )

    def sharers(self, device: str) -> int:
        """How many leases a device has; counted once for every state."""
        if self._sharers[0] != self.revision:
            self._sharers = (self.revision, Counter(lease.device for lease in self.leases.values()))
        return self._sharers[1][device]

    def lease_of_ticket(self, ticket: str) -> Lease | None:
        """The lease a ticket has; None: none (it waits, or CPU only). One it gave up, and that is ending, is not it."""
        return self.leases.get(self._lease_of_ticket.get(ticket, ""))

    def waiting(self) -> int:
        """How many tickets wait."""
        return sum(1 for ticket in self.tickets.values() if ticket.state is TicketState.WAITING)

    def recent_notices(self, user: str) -> tuple[NoticeRow, ...]:
        """What this user is to be told at the next page (the last 24 h)."""
        since = self.clock.utc_now() - NOTICES_LAST
        kept = [notice for notice in self.notices.get(user, []) if notice.at >= since]
        self.notices[user] = kept
        return tuple(kept)
