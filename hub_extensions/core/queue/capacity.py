"""What can still be given: devices of one machine by name, devices of a cluster by count; leases taken off.

Not here: who is given it (``admission.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping

from hub_extensions.core.gpu.devices import WHOLE, Foreign
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.queue.model import Admission, LeaseState, QueueSnapshot


class Capacity:
    """The shares of devices that can still be given: leases and what others use taken off.

    Attributes:
        known: False: nothing can be said of what is free.
        unknown: pools of a cluster of which a part is not known.
        total, foreign: pool -> devices there are, devices that others use.
        cut: pools whose devices are the same as another's, or cut from the same cards: what is given of the one is
            missing to the other.
    """

    def __init__(self, snapshot: QueueSnapshot) -> None:
        self.offers = {offer.id: offer for offer in snapshot.offers}
        self.known = snapshot.devices is not None or snapshot.pools is not None
        self.queue = snapshot.queue
        self.held_up = snapshot.held_up
        self.held: dict[str, int] = {}
        self._pools: dict[str, list[str]] = {}
        self._free: dict[str, int] = {}
        self.total: dict[str, int] = {}
        self.foreign: dict[str, int] = {}
        self.unknown: set[str] = set()
        self._room: dict[str, Counter[int]] = {}
        self._costs: dict[str, Mapping[str, int]] = {}
        self._promised: set[str] = set()
        self.cut: set[str] = set()
        for lease in snapshot.leases:
            if lease.state is not LeaseState.ENDED:
                self.held[lease.device] = self.held.get(lease.device, 0) + lease.share
        self._name_devices(snapshot)
        self._count_pools(snapshot)

    def _name_devices(self, snapshot: QueueSnapshot) -> None:
        for state in snapshot.devices or ():
            device = state.device
            if not state.present or not device.usable:
                continue
            self.total[device.pool] = self.total.get(device.pool, 0) + 1
            if state.foreign is Foreign.SOME:
                if device.identity not in self.held:
                    self.foreign[device.pool] = self.foreign.get(device.pool, 0) + 1
                continue
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
        for lease in snapshot.leases:
            if lease.state is not LeaseState.ENDED and lease.id not in snapshot.bound and lease.pool in self._room:
                self._take_counted(lease.pool, lease.share)

    def fit(self, offer: GpuOffer) -> tuple[bool, str | None]:
        """Whether the offer can be given now, and of which device (or pool): the fullest that still fits."""
        if not offer.pool:
            return True, None
        if self.queue:
            return True, offer.pool  # the line is theirs: never two queues in a row
        if offer.id in self.held_up:
            return False, None
        if offer.pool in self._room:
            fits = self._best(offer.pool, offer.share) is not None and self._spares(offer.pool) > 0
            return fits, offer.pool if fits else None
        best: tuple[int, str] | None = None
        for identity in self._pools.get(offer.pool, ()):
            held = self.held.get(identity, 0)
            if held + offer.share <= WHOLE and (best is None or held > best[0]):
                best = (held, identity)
        return best is not None, best[1] if best else None

    def costing(self, pool: str) -> frozenset[str]:
        """Pools of which one that is given may cost this one a device."""
        return frozenset(other for other, costs in self._costs.items() if pool in costs)

    def costed(self, pool: str) -> frozenset[str]:
        """Pools that one of this may cost a device."""
        return frozenset(self._costs.get(pool, ()))

    def take(self, admission: Admission) -> None:
        """Take off what was just given."""
        if admission.device is None:
            return
        offer = self.offers[admission.offer]
        self._free.clear()
        if offer.pool in self._room:
            self._take_counted(offer.pool, offer.share)
            return
        self.held[admission.device] = self.held.get(admission.device, 0) + offer.share

    def free(self, offer: GpuOffer) -> int:
        """How many servers could be given this offer now."""
        if offer.id not in self._free:
            self._free[offer.id] = self._count_free(offer)
        return self._free[offer.id]

    def devices(self, pool: str) -> tuple[str, ...]:
        """Identities of the named devices of a pool that are ours to give (free or leased)."""
        return tuple(self._pools.get(pool, ()))

    def room(self, pool: str) -> Mapping[int, int]:
        """Of a counted pool: free share of a device (thousandths) -> how many devices have it."""
        return self._room.get(pool, {})

    def _count_free(self, offer: GpuOffer) -> int:
        if offer.pool in self._room:
            here = sum(room // offer.share * count for room, count in self._room[offer.pool].items() if room > 0)
            return min(here, self._spares(offer.pool)) if here else 0
        rooms = (WHOLE - self.held.get(identity, 0) for identity in self._pools.get(offer.pool, ()))
        return sum(max(0, left) // offer.share for left in rooms)

    def _best(self, pool: str, share: int) -> int | None:
        return min((room for room, count in self._room[pool].items() if count > 0 and room >= share), default=None)

    def _spares(self, pool: str) -> int:
        """How many can be given with what others were promised still to be had, wherever the scheduler puts them."""
        promised = (each for each in self._costs.get(pool, {}).items() if each[0] in self._promised)
        return min((self._room[other][WHOLE] // cost for other, cost in promised), default=WHOLE * WHOLE)

    def _take_counted(self, pool: str, share: int) -> None:
        """The scheduler will pick one; we count it off where it fits best. More than there is is simply none left.

        Of the pools that it may be cut from too, as many are gone as it can cost them at worst.
        """
        self._promised.add(pool)
        for other, cost in self._costs.get(pool, {}).items():
            if other in self._room:
                self._room[other][WHOLE] = max(0, self._room[other][WHOLE] - cost)
        best = self._best(pool, share)
        if best is None:
            return
        self._room[pool][best] -= 1
        if best > share:
            self._room[pool][best - share] += 1
