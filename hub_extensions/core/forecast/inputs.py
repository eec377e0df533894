"""Make the input of the simulation from a snapshot of the queue.

The input has the same devices, leases (servers' rights to devices), tickets (users' places in line) and limits that
admission reads. Pools (all devices of one kind) of which the hub knows too little are left out: MIG instances that are
created on request, and pools of which not all servers may use all nodes.
"""

from __future__ import annotations

from collections.abc import Hashable
from functools import lru_cache

from hub_extensions.core.forecast.durations import Left, UseHolder
from hub_extensions.core.forecast.results import ForecastInputs
from hub_extensions.core.forecast.simulate import Brake, HeldShares, SimulationState, Waiting, Wish
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.bounds import end_of, no_bound
from hub_extensions.core.queue.capacity import Capacity
from hub_extensions.core.queue.discipline import slots
from hub_extensions.core.queue.heads import PoolQueues
from hub_extensions.core.queue.model import Lease, LeaseState, Ticket, TicketState

MAX_TICKETS = 1000
"""Number of tickets that are simulated, from the front of the line. Tickets behind get an upper bound only."""
ENDING = Left(15.0, 0.5)
"""Time until the device of a server that is gone is free: its processes get SIGTERM, and after 10 s SIGKILL."""


@lru_cache  # equal keys are one object: the history has thousands
def kind_of_use(devices: int, share: int, limit: float | None = None) -> Hashable:
    """Return the key that similar uses have in common. Durations of uses are learned separately for each key.

    Args:
        devices: number of devices of the server.
        share: thousandths of each device.
        limit: time limit in seconds that the user asked for. None if users do not ask for one.
    """
    return (devices, share) if limit is None else (devices, share, limit)


def simulation_state(inputs: ForecastInputs, starting: float) -> tuple[SimulationState, dict[OfferId, Wish]]:
    """Return the input of the simulation.

    Args:
        inputs: the snapshot of the queue, and the announced ends of servers.
        starting: seconds that a start takes.

    Returns:
        The lines to simulate, and for each offer the wish of an additional user who joins its line last.
    """
    return _StateBuilder(inputs).build(starting)


class _StateBuilder:
    def __init__(self, inputs: ForecastInputs) -> None:
        self._inputs = inputs
        self._snapshot = snapshot = inputs.snapshot
        self._capacity = Capacity(snapshot)
        self._queues = PoolQueues(snapshot, self._capacity)
        self._offers = {offer.id: offer for offer in snapshot.offers}
        self._counted = snapshot.pools is not None
        self._leases: dict[str, list[Lease]] = {}
        for lease in snapshot.leases:
            if lease.state is not LeaseState.ENDED:
                self._leases.setdefault(lease.pool, []).append(lease)
        self._shown = set[str]()
        self._pools: dict[str, tuple[str, ...]] = {}
        for pool in dict.fromkeys(offer.pool for offer in snapshot.offers if offer.pool):
            if pool in self._capacity.by_node or (self._counted and len(self._shares(pool)) > 1):
                continue
            why = no_bound(snapshot, self._capacity, pool)
            if why is None:
                self._shown.add(pool)
            elif self._counted or why.reason not in ("free-one-silent", "free-one-taken-outside"):
                continue  # on one machine offers are held up one by one, so their pool is simulated
            self._pools[pool] = self._devices(pool)

    def build(self, starting: float) -> tuple[SimulationState, dict[OfferId, Wish]]:
        waiting = {ticket.id: ticket for line in self._queues.queues.values() for ticket in line.tickets}
        tickets = sorted(waiting.values(), key=lambda ticket: (ticket.first_place, ticket.id))[:MAX_TICKETS]
        brake = self._brake(starting, len(tickets))
        held = [self._held(lease) for pool in self._pools for lease in self._leases.get(pool, ())]
        users = {ticket.user for ticket in tickets if not ticket.is_cpu}
        held += [
            self._held(lease)
            for pool, leases in self._leases.items()
            for lease in leases
            if pool not in self._pools and lease.user in users
        ]  # they count against their users' own limit
        # CPU only takes a start. Without a brake its line matters to tickets that would also take a GPU
        cpu_queue = brake is not None or any(not ticket.is_cpu and _accepts_cpu(ticket) for ticket in tickets)
        state = SimulationState(
            self._pools,
            tuple(held),
            tuple(each for ticket in tickets if (each := self._waiting(ticket, cpu_queue)) is not None),
            brake,
            limit=self._snapshot.config.gpu_leases_per_user,
        )
        at = self._inputs.now.timestamp()
        return state, {
            offer.id: Wish(offer.pool, self._share(offer.share), UseHolder("", kind_of_use(1, offer.share), at))
            for offer in self._snapshot.offers
            if offer.pool in self._shown
        }

    def _shares(self, pool: str) -> set[int]:
        offered = {offer.share for offer in self._snapshot.offers if offer.pool == pool}
        return offered | {lease.share for lease in self._leases.get(pool, ())}

    def _devices(self, pool: str) -> tuple[str, ...]:
        """Return names of a pool's devices.

        Devices of a cluster have no names, so names are made up: one for each lease, and one for each further server
        that could get a device now, up to one more than the line has tickets.
        """
        if not self._counted:
            return self._capacity.devices(pool)
        (share,) = self._shares(pool)
        free = sum(slots(room, share) * count for room, count in self._capacity.room(pool).items())
        most = min(free, self._queues.length(pool) + 1)
        return (*(lease.id for lease in self._leases.get(pool, ())), *(f"free {number}" for number in range(most)))

    def _share(self, share: int) -> int:
        return WHOLE if self._counted else share

    def _held(self, lease: Lease) -> HeldShares:
        now = self._inputs.now
        age = max(0.0, (now - lease.since).total_seconds())
        late = lease.ends_at is not None and end_of(self._snapshot, lease, now) is None
        known = self._inputs.ends.get(lease.id)
        left = None if known is None else Left(known.seconds, known.spread)
        holder = UseHolder(
            lease.user,
            kind_of_use(1, lease.share),
            self._inputs.asked.get(lease.id, lease.since.timestamp()),
            age,
            None if lease.ends_at is None else (lease.ends_at - lease.since).total_seconds(),
            ENDING if lease.state is LeaseState.ENDING else left,
        )
        share = (lease.id if self._counted else lease.device, self._share(lease.share))
        counts = lease.state in (LeaseState.STARTING, LeaseState.RUNNING)
        frees = not late and self._capacity.comes_back(lease)
        return HeldShares(lease.id, holder, (share,), frees, lease.pool, lease.server if counts else None)

    def _waiting(self, ticket: Ticket, cpu_queue: bool) -> Waiting | None:
        """Return the ticket in the form of the simulation, or None if none of its offers is in a simulated pool.

        Args:
            cpu_queue: whether the line for servers without a GPU is simulated too.
        """
        lifetime = self._snapshot.lifetime
        limit = None if lifetime is None else (self._snapshot.start_allowance + lifetime).total_seconds()
        asked = self._inputs.asked.get(ticket.id, ticket.joined.timestamp())
        wishes = []
        for choice in ticket.wanted_offers:
            offer = self._offers.get(choice.offer)
            pool = None if offer is None else offer.pool or CPU
            if offer is None or pool is None or (pool != CPU and pool not in self._pools):
                continue
            wishes.append(
                Wish(
                    pool,
                    self._share(offer.share) if offer.pool else 0,
                    UseHolder(ticket.user, kind_of_use(1, offer.share), asked, None, limit),
                    place=choice.place,
                    held_up=offer.id in self._snapshot.held_up,
                    shown=not _accepts_cpu(ticket) and self._is_shown(offer, ticket),
                )
            )
        if not wishes or (not cpu_queue and all(wish.pool == CPU for wish in wishes)):
            return None
        waited = max(0.0, (self._inputs.now - ticket.joined).total_seconds())
        return Waiting(ticket.id, tuple(wishes), waited, ticket.server)

    def _is_shown(self, offer: GpuOffer, ticket: Ticket) -> bool:
        """Return whether a likely wait for an offer may be shown to the ticket's user.

        False if the waits for the offer's pool have no longest value (`no_bound`), or if this wait depends on when the
        same user stops another server.
        """
        if offer.pool not in self._shown:
            return False
        return not self._queues.is_passed(offer.pool, ticket) and not self._queues.can_be_overtaken(offer.pool, ticket)

    def _brake(self, starting: float, waiting: int) -> Brake | None:
        most = self._snapshot.config.max_starting
        if self._snapshot.starting + waiting <= most:
            return None
        now = self._inputs.now
        under_way = (
            max(0.0, starting - (now - (ticket.admitted_at or now)).total_seconds())
            for ticket in self._snapshot.tickets
            if ticket.state is TicketState.ADMITTED and ticket.id not in self._snapshot.held_back
        )
        return Brake(most, starting, tuple(under_way))


def _accepts_cpu(ticket: Ticket) -> bool:
    return any(choice.offer == CPU for choice in ticket.wanted_offers)
