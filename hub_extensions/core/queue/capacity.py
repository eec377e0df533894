"""The devices that can still be given to servers during one admission.

Devices of one machine are known by name. Devices of a cluster are only counted, because its scheduler picks them. A
pool is all devices of one kind. If not all servers may use the same nodes of a pool, its devices are counted node by
node (``node_sets.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Collection, Mapping
from dataclasses import dataclass

from hub_extensions.core.cluster.dra import NO_NODE
from hub_extensions.core.cluster.pools import NodeRoom, Pool
from hub_extensions.core.gpu.devices import WHOLE, Foreign
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.queue.discipline import Shares, fullest_fit, slots
from hub_extensions.core.queue.model import Admission, Lease, LeaseState, QueueSnapshot, Ticket
from hub_extensions.core.queue.node_sets import NodeRooms, NodeWish, nodes_of

NOBODY: Mapping[NodeWish, int] = {}


@dataclass(frozen=True, slots=True)
class OfferRoom:
    """The devices of one offer on the nodes that one ticket's server may use.

    Attributes:
        total: number of devices.
        foreign: number of these devices that are held by pods this hub did not start.
        free: number of servers that could get a device now.
        unknown: whether the devices of some of these nodes cannot be counted.
        silent: whether a node with devices of the pool does not answer.
        held_up: whether an admitted server finds no device on these nodes, because something outside this hub took it.
        part: whether the requirements of the server's pod give it other nodes than a pod without requirements.
        closed: number of devices that no new server gets, because an administrator drains them.
    """

    total: int
    foreign: int
    free: int
    unknown: bool
    silent: bool
    held_up: bool
    part: bool = False
    closed: int = 0


class Capacity:
    """The devices, and shares of devices, that can still be given to servers during one admission.

    Devices that have a lease, or that others use, are already subtracted. `take` subtracts one admission after another.

    Attributes:
        held: device -> thousandths of it that leases cover.
        held_up: offers for which an admitted server finds no device, see `QueueSnapshot`.
        by_node: pool of which not all servers may use the same nodes -> its free devices, node by node.
        promised: pool of `by_node` -> nodes and shares of leases whose pods the scheduler has not placed yet.
        known: False if the machine or the cluster was never read, so that it is not known what is free.
        unknown: pools of a cluster of which a part cannot be counted.
        total, foreign, closed: pool -> number of all devices, of devices that others use, and of devices on which an
            administrator lets nothing new start.
        cut: pools whose MIG devices are created on the same cards as those of another pool, so that giving a device of
            one pool can cost the other pool a device.
    """

    def __init__(self, snapshot: QueueSnapshot) -> None:
        self.offers = {offer.id: offer for offer in snapshot.offers}
        self.known = snapshot.devices is not None or snapshot.pools is not None
        self.queue = snapshot.queue
        self.held_up = snapshot.held_up
        self._refused = set(snapshot.over_quota) - snapshot.tried
        self.by_node: dict[str, NodeRooms] = {}
        self.promised: dict[str, Counter[NodeWish]] = {}
        self._snapshot = snapshot
        self.held: dict[str, int] = {}
        self._pools: dict[str, list[str]] = {}
        self._free: dict[str, int] = {}
        self.total: dict[str, int] = {}
        self.foreign: dict[str, int] = {}
        self.closed: Counter[str] = Counter()
        self.unknown: set[str] = set()
        self._room: dict[str, Counter[int]] = {}
        self._costs: dict[str, Mapping[str, int]] = {}
        self._promised: set[str] = set()
        self._unplaced: Counter[str] = Counter()
        self._rooms: dict[str, Mapping[str, NodeRoom]] = {}
        self._takes_new: dict[str, Mapping[str, bool]] = {}
        self.cut: set[str] = set()
        for lease in snapshot.leases:
            if lease.state is not LeaseState.ENDED:
                self.held[lease.device] = self.held.get(lease.device, 0) + lease.share
        self._name_devices(snapshot)
        self._count_pools(snapshot)

    def _name_devices(self, snapshot: QueueSnapshot) -> None:
        leased: dict[str, set[str]] = {}
        for lease in snapshot.leases:
            if lease.state is not LeaseState.ENDED and lease.uuid:
                leased.setdefault(lease.uuid, set()).add(lease.device)
        for state in snapshot.devices or ():
            device = state.device
            if not state.present or not device.usable:
                continue
            self.total[device.pool] = self.total.get(device.pool, 0) + 1
            if state.foreign is Foreign.SOME:
                if device.identity not in self.held:
                    self.foreign[device.pool] = self.foreign.get(device.pool, 0) + 1
                continue
            if device.identity in snapshot.closed:
                self.closed[device.pool] += 1
                continue
            if leased.get(device.uuid, set()) - {device.identity}:
                continue  # a lease names this UUID with another profile
            self._pools.setdefault(device.pool, []).append(device.identity)

    def _count_pools(self, snapshot: QueueSnapshot) -> None:
        for pool in (snapshot.pools or {}).values():
            self.total[pool.id] = pool.total
            self.foreign[pool.id] = pool.foreign
            self._room[pool.id] = Counter(pool.room)
            if pool.costs:
                self._costs[pool.id] = pool.costs
                self.cut.update((pool.id, *pool.costs))
            if pool.unknown:
                self.unknown.add(pool.id)
            self._rooms[pool.id] = pool.rooms
            self._takes_new[pool.id] = {count.node: count.because is None for count in pool.nodes}
        sets = set(snapshot.node_sets.values())
        for pool in (snapshot.pools or {}).values():
            if pool.id not in self.cut and _differ(pool, sets):
                self.by_node[pool.id] = NodeRooms(pool.rooms)
                self.promised[pool.id] = Counter()
        for lease in snapshot.leases:
            if lease.state is not LeaseState.ENDED and lease.id not in snapshot.bound and lease.pool in self._room:
                self._take_counted(lease.pool, lease.share)
                if lease.pool in self.by_node:
                    self.promised[lease.pool][self.wish_of_lease(lease)] += 1

    def fit(
        self, offer: GpuOffer, ticket: Ticket | None = None, ahead: Mapping[NodeWish, int] = NOBODY
    ) -> Shares | None:
        """Return the device and share that a server with this offer would get now.

        Args:
            ticket: the ticket of the server; None for a server without requirements on its node.
            ahead: (nodes, share) that earlier tickets still wait for -> number of these tickets. Only for a pool that
                is counted node by node.

        Returns:
            () for CPU only; None if no device can be given now.
        """
        if not offer.pool:
            return ()
        if offer.id in self._refused:
            return None
        counted = ((offer.pool, offer.share),)
        if self.queue:
            return counted  # the queue is Kueue's or KAI's: never two queues in a row
        rooms = self.by_node.get(offer.pool)
        if offer.id in self.held_up and (rooms is None or offer.id not in self._snapshot.held_up_on):
            return None
        if rooms is not None:
            fits = rooms.fits(self.wish(offer, ticket), self.promised[offer.pool] + Counter(ahead))
            return counted if fits else None
        if offer.pool in self._room:
            fits = self._best(offer.pool, offer.share) is not None and self._spares(offer.pool) > 0
            if ticket is not None and offer.pool in self.cut:
                fits = fits and self._on_its_nodes(offer.pool, ticket)
            return counted if fits else None
        return fullest_fit(self._pools.get(offer.pool, ()), self.held, offer.share)

    def costing(self, pool: str) -> frozenset[str]:
        """Return the other pools of which a given device can make a device of this pool unavailable.

        The MIG devices of these pools are created on the same cards as those of this pool.
        """
        return frozenset(other for other, costs in self._costs.items() if pool in costs)

    def costed(self, pool: str) -> frozenset[str]:
        """Return the other pools that may lose a free device when a device of this pool is given.

        The MIG devices of these pools are created on the same cards as those of this pool.
        """
        return frozenset(self._costs.get(pool, ()))

    def take(self, admission: Admission, ticket: Ticket | None = None) -> None:
        """Subtract the share that an admission has just given. An admission for CPU only subtracts nothing.

        Args:
            ticket: the admitted ticket; None for a server without requirements on its node.
        """
        if admission.device is None:
            return
        offer = self.offers[admission.offer]
        self._free.clear()
        if offer.id in self._snapshot.over_quota:
            self._refused.add(offer.id)  # one ticket tries the quota, and nobody else
        if offer.pool in self.by_node:
            self.promised[offer.pool][self.wish(offer, ticket)] += 1
        if offer.pool in self._room:
            self._take_counted(offer.pool, offer.share)
            return
        self.held[admission.device] = self.held.get(admission.device, 0) + offer.share

    def free(self, offer: GpuOffer) -> int:
        """Return to how many servers this offer could be given now."""
        if offer.id not in self._free:
            self._free[offer.id] = 0 if offer.id in self._snapshot.over_quota else self._count_free(offer)
        return self._free[offer.id]

    def devices(self, pool: str) -> tuple[str, ...]:
        """Return the identities of a pool's devices that this hub may give to servers, whether free or leased."""
        return tuple(self._pools.get(pool, ()))

    def room(self, pool: str) -> Mapping[int, int]:
        """Return, for a pool of a cluster, free share of a device (thousandths) -> number of devices that have it free.

        Empty on one machine.
        """
        return self._room.get(pool, {})

    def comes_back(self, lease: Lease) -> bool:
        """Return whether the line gets a device when the lease ends.

        It gets none if the lease's device is lost, or if the device's node accepts no new servers.
        """
        if lease.state is LeaseState.LOST:
            return False
        nodes, node = self._takes_new.get(lease.pool, {}), self._snapshot.node_of.get(lease.id)
        if not nodes:
            return True  # one machine, or nodes that may not be read
        if node is None:
            return lease.id not in self._snapshot.bound or all(nodes.values())
        return nodes.get(node, NO_NODE in nodes)

    def seen_by(self, offer: GpuOffer, ticket: Ticket | None) -> OfferRoom:
        """Return the devices of an offer on the nodes that the ticket's server may use.

        Args:
            ticket: the ticket; None for a server without requirements on its node.
        """
        pool, held_up = offer.pool, offer.id in self.held_up
        if not pool:
            return OfferRoom(0, 0, 1, unknown=False, silent=False, held_up=held_up)  # CPU only
        rooms = self.by_node.get(pool)
        silent = self._snapshot.silent(pool)
        if rooms is None:
            counts = self.total.get(pool, 0), self.foreign.get(pool, 0), self.free(offer)
            return OfferRoom(*counts, pool in self.unknown, silent, held_up, closed=self.closed[pool])
        nodes = self._nodes(pool, ticket)
        here = [rooms.rooms[node] for node in nodes]
        wish = self.wish(offer, ticket)
        open_here = {node for node in wish.nodes if rooms.rooms[node].total}
        return OfferRoom(
            total=sum(room.total for room in here),
            foreign=sum(room.foreign for room in here if room.total),
            free=rooms.free(wish, self.promised[pool]),
            unknown=any(room.unknown for room in here),
            silent=any(room.silent for room in here),
            held_up=held_up and not open_here and any(room.total for room in here),
            part=_with_some(rooms.rooms, nodes) != _with_some(rooms.rooms, nodes_of(rooms.rooms, None)),
        )

    def wish(self, offer: GpuOffer, ticket: Ticket | None) -> NodeWish:
        """Return the nodes and the share of a device that the ticket asks for, in a pool that is counted node by node.

        Nodes on which an admitted server finds no device are left out.

        Args:
            offer: the offer of the pool that the ticket accepts.
            ticket: the ticket; None for a server without requirements on its node.
        """
        doubtful = self._snapshot.held_up_on.get(offer.id, frozenset()) if offer.id in self.held_up else frozenset()
        return NodeWish(self._nodes(offer.pool, ticket) - doubtful, offer.share)

    def wish_of_lease(self, lease: Lease) -> NodeWish:
        """Return the nodes and the share of a device that a lease needs while the scheduler has not placed its pod."""
        doubtful = self._snapshot.held_up_on.get(lease.offer, frozenset()) if lease.offer in self.held_up else set()
        return NodeWish(self._nodes_of(lease.pool, lease.ticket) - doubtful, lease.share)

    def _nodes(self, pool: str, ticket: Ticket | None) -> frozenset[str]:
        return self._nodes_of(pool, "" if ticket is None else ticket.id)

    def _nodes_of(self, pool: str, ticket: str) -> frozenset[str]:
        return nodes_of(self.by_node[pool].rooms, self._snapshot.node_sets.get(ticket))

    def _on_its_nodes(self, pool: str, ticket: Ticket) -> bool:
        """Return whether the ticket's nodes have a free device even if all pods not placed yet take one there.

        This is for pools whose devices are created on the same cards as those of another pool.
        """
        rooms, allowed = self._rooms[pool], self._snapshot.node_sets.get(ticket.id)
        if allowed is None or not rooms:
            return True
        here = nodes_of(rooms, allowed)
        return sum(rooms[node].room.get(WHOLE, 0) for node in here) > self._unplaced[pool]

    def _count_free(self, offer: GpuOffer) -> int:
        if offer.pool in self.by_node:
            return self.by_node[offer.pool].free(self.wish(offer, None), self.promised[offer.pool])
        if offer.pool in self._room:
            here = sum(slots(room, offer.share) * count for room, count in self._room[offer.pool].items())
            return min(here, self._spares(offer.pool)) if here else 0
        rooms = (WHOLE - self.held.get(identity, 0) for identity in self._pools.get(offer.pool, ()))
        return sum(slots(room, offer.share) for room in rooms)

    def _best(self, pool: str, share: int) -> int | None:
        return min((room for room, count in self._room[pool].items() if count > 0 and room >= share), default=None)

    def _spares(self, pool: str) -> int:
        """Return how many devices of a pool can be given while servers that are admitted already still find theirs.

        MIG devices of different profiles are pools on the same cards, so a device of one pool costs devices of another.
        A server that is admitted to such a pool, but that the scheduler has not placed yet, may need any of the cards.
        """
        promised = (each for each in self._costs.get(pool, {}).items() if each[0] in self._promised)
        return min((self._room[other][WHOLE] // cost for other, cost in promised), default=WHOLE * WHOLE)

    def _take_counted(self, pool: str, share: int) -> None:
        """Subtract a device that the scheduler will pick: of the devices that fit, one with the least room.

        Pools on the same cards lose as many devices as this can cost them in the worst case. No count goes below zero.
        """
        self._promised.add(pool)
        self._unplaced[pool] += 1
        for other, cost in self._costs.get(pool, {}).items():
            if other in self._room:
                self._room[other][WHOLE] = max(0, self._room[other][WHOLE] - cost)
        best = self._best(pool, share)
        if best is None:
            return
        self._room[pool][best] -= 1
        if best > share:
            self._room[pool][best - share] += 1


def _differ(pool: Pool, sets: Collection[frozenset[str]]) -> bool:
    """Return whether servers of a pool may use different nodes, so that the line has to count by nodes.

    Args:
        pool: the pool.
        sets: the sets of nodes to which some servers are restricted.
    """
    if not pool.rooms or not sets:
        return False
    everybodys = _with_some(pool.rooms, nodes_of(pool.rooms, None))
    return any(_with_some(pool.rooms, nodes_of(pool.rooms, nodes)) != everybodys for nodes in sets)


def _with_some(rooms: Mapping[str, NodeRoom], nodes: frozenset[str]) -> set[str]:
    return {node for node in nodes if rooms[node].total}
