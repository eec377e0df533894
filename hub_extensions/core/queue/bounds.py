"""Compute the longest wait of each place in a line, which users see as "at most ...", from limits that are enforced.

Such limits are the maximum lifetime of a server and the maximum duration of a start. If these limits do not bound the
waits in a line, the result is the reason for that.
"""

from __future__ import annotations

from collections.abc import Collection, Sequence
from datetime import datetime, timezone

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.capacity import Capacity, OfferRoom
from hub_extensions.core.queue.discipline import slots
from hub_extensions.core.queue.model import Lease, LeaseState, QueueSnapshot
from hub_extensions.core.queue.node_sets import NodeWish
from hub_extensions.core.queue.wait_bound import (
    RELEASE_ALLOWANCE,
    Holding,
    QueueForecast,
    StartBrake,
    after_other_starts,
    forecast_queue,
    silent,
)
from hub_extensions.core.text.reasons import Reason, explain


def brake_of(snapshot: QueueSnapshot) -> StartBrake:
    """Return the limit of simultaneous starts (the start brake) from the snapshot."""
    return StartBrake(snapshot.config.max_starting, snapshot.start_allowance)


def bounds_of(
    snapshot: QueueSnapshot, capacity: Capacity, pool: str, shares: Collection[int], places: int, now: datetime
) -> QueueForecast:
    """Return the longest wait of each place in one pool's line, or why it is not bounded.

    Args:
        snapshot: everything on which an admission decides.
        capacity: the devices that can still be given.
        pool: id of the pool (all devices of one kind).
        shares: the shares of a device (thousandths) that tickets in this line ask for.
        places: number of places whose longest wait will be read.
        now: the present time of the running clock, which stands still while hub or service is down.
    """
    if pool == CPU:
        return lambda place, before: after_other_starts(brake_of(snapshot), before)
    why = no_bound(snapshot, capacity, pool)
    if why is not None:
        return silent(why)
    held = [lease for lease in snapshot.leases if lease.pool == pool and lease.state is not LeaseState.ENDED]
    if snapshot.pools is not None:
        return _counted_bounds(snapshot, capacity, pool, held, shares, places, now)
    return forecast_queue(
        devices=capacity.devices(pool),
        holdings=tuple(Holding(lease.device, lease.share, end_of(snapshot, lease, now)) for lease in held),
        shares=shares,
        places=places,
        lifetime=snapshot.lifetime,
        brake=brake_of(snapshot),
        now=now,
    )


def no_bound(snapshot: QueueSnapshot, capacity: Capacity, pool: str) -> Reason | None:
    """Return why the waits for a pool (all devices of one kind) are not bounded, or None if they are."""
    over = (
        snapshot.over_quota[offer.id]
        for offer in snapshot.offers
        if offer.pool == pool and offer.id in snapshot.over_quota
    )
    if (why := next(over, None)) is not None:
        return why
    if snapshot.queue:
        return explain("line-elsewhere", queue=snapshot.queue)
    if not capacity.known or pool in capacity.unknown:
        return explain("not-known-which-free")
    if pool in capacity.cut:
        return explain("cut-as-asked")
    if any(offer.pool == pool and offer.id in snapshot.held_up for offer in snapshot.offers):
        return explain("free-one-silent" if snapshot.silent(pool) else "free-one-taken-outside")
    return None


def _counted_bounds(
    snapshot: QueueSnapshot,
    capacity: Capacity,
    pool: str,
    held: Sequence[Lease],
    shares: Collection[int],
    places: int,
    now: datetime,
) -> QueueForecast:
    """Return the longest waits in a line whose devices are counted and not known by name, as on a cluster.

    Each lease that will be released, and each free device, stands for one device. The waits are bounded only if all
    servers have the same share of a device.

    Args:
        snapshot: everything on which an admission decides.
        capacity: the devices that can still be given.
        pool: id of the pool (all devices of one kind) of the line.
        held: the leases of its devices.
        shares: the shares of a device (thousandths) that tickets in the line ask for.
        places: number of places whose longest wait will be read.
        now: the present time of the running clock, which stands still while hub or service is down.
    """
    different = {*shares, *(lease.share for lease in held)}
    if len(different) > 1:
        return silent(explain("parts-differ"))
    share = min(different, default=WHOLE)
    free = sum(slots(room, share) * count for room, count in capacity.room(pool).items())
    back = [lease for lease in held if capacity.comes_back(lease)]
    known = (snapshot.pools or {}).get(OfferId(pool))
    there = sum(slots(room, share) * count for room, count in known.room.items()) if known else 0
    if sum(1 for lease in back if lease.id not in snapshot.bound) > there - free:
        return silent(
            explain("free-one-taken-outside")
        )  # admitted servers without a place take the next released devices
    return forecast_queue(
        devices=[lease.id for lease in back] + [f"free {number}" for number in range(min(free, places))],
        holdings=tuple(Holding(lease.id, WHOLE, end_of(snapshot, lease, now)) for lease in back),
        shares=(WHOLE,),
        places=places,
        lifetime=snapshot.lifetime,
        brake=brake_of(snapshot),
        now=now,
        by_others_too=True,
    )


def bounds_on_nodes(
    snapshot: QueueSnapshot,
    capacity: Capacity,
    pool: str,
    mine: tuple[NodeWish, OfferRoom],
    shares: Collection[int],
    places: int,
    now: datetime,
) -> QueueForecast:
    """Return the longest waits of tickets whose servers may use only some nodes of a pool.

    An earlier ticket that may use at least one of these nodes counts as if it took a device there. With this assumption
    the result can be longer than the longest real wait, but not shorter. As long as somebody waits for these nodes,
    each device on them is in use. The server of each ticket ahead holds one device for at most one turn (its start, its
    lifetime, and its release).

    Args:
        snapshot: everything on which an admission decides.
        capacity: the devices that can still be given.
        pool: id of the pool (all devices of one kind).
        mine: the nodes and the share that the tickets ask for, and the devices on these nodes.
        shares: the shares of a device that tickets for these nodes ask for.
        places: number of places whose longest wait will be read.
        now: the present time of the running clock, which stands still while hub or service is down.
    """
    wish, seen = mine
    why = _no_bound_on_nodes(snapshot, seen)
    gone = (LeaseState.ENDED, LeaseState.LOST)
    held = [lease for lease in snapshot.leases if lease.pool == pool and lease.state not in gone]
    rooms = capacity.by_node[pool].rooms
    taking_new = {node for node in wish.nodes if rooms[node].total}
    placed = [lease for lease in held if snapshot.node_of.get(lease.id) in taking_new]
    unplaced = [
        lease for lease in held if lease.id not in snapshot.bound and capacity.wish_of_lease(lease).nodes & wish.nodes
    ]
    if why is None and len({*shares, *(lease.share for lease in (*placed, *unplaced))}) > 1:
        why = explain("parts-differ")
    if why is not None:
        return silent(why)
    taken = capacity.by_node[pool].free(wish, {}) - seen.free
    ends = {lease.id: end_of(snapshot, lease, now) for lease in (*placed, *unplaced)}
    # leases without a place may be placed elsewhere: count as many as there is room for, those that stay longest
    unplaced.sort(key=lambda lease: ends[lease.id] or datetime.max.replace(tzinfo=timezone.utc), reverse=True)
    here = [lease.id for lease in (*placed, *unplaced[:taken])]
    return forecast_queue(
        devices=here + [f"free {number}" for number in range(min(seen.free, places))],
        holdings=tuple(Holding(lease, WHOLE, ends[lease]) for lease in here),
        shares=(WHOLE,),
        places=places,
        lifetime=snapshot.lifetime,
        brake=brake_of(snapshot),
        now=now,
        by_others_too=True,
    )


def _no_bound_on_nodes(snapshot: QueueSnapshot, seen: OfferRoom) -> Reason | None:
    if snapshot.queue:
        return explain("line-elsewhere", queue=snapshot.queue)
    if seen.unknown:
        return explain("not-known-which-free")
    if seen.held_up:
        return explain("free-one-silent" if seen.silent else "free-one-taken-outside")
    return None


def end_of(snapshot: QueueSnapshot, lease: Lease, now: datetime) -> datetime | None:
    """Return when a limit ends a lease at the latest.

    None without a limit. None also if the limit has passed without effect: the stop was refused, processes are left, or
    the start takes too long.
    """
    if lease.state is LeaseState.STARTING and now > lease.since + snapshot.start_allowance + RELEASE_ALLOWANCE:
        return None
    late = lease.ends_at is not None and now > lease.ends_at + RELEASE_ALLOWANCE
    return None if late else lease.ends_at
