"""What the limits that are enforced prove of a line: the longest wait of each of its places, or why none is known.

Pure. Not here: how a line is played forward (``wait_bound.py``), and who is told (``admission.py``).
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
    """The start brake as it is set."""
    return StartBrake(snapshot.config.max_starting, snapshot.start_allowance)


def bounds_of(
    snapshot: QueueSnapshot, capacity: Capacity, pool: str, shares: Collection[int], places: int, now: datetime
) -> QueueForecast:
    """Of one pool's line.

    Args:
        shares: all that anybody in line may be given of a device. places: how many of its places will be asked for.
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
    """Why nothing can be said of a pool's waits; None when something can."""
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
    """Counted devices have no names: each lease that comes back is one, and each that is free. Only equal shares are
    equal slots."""
    different = {*shares, *(lease.share for lease in held)}
    if len(different) > 1:
        return silent(explain("parts-differ"))
    share = min(different, default=WHOLE)
    free = sum(slots(room, share) * count for room, count in capacity.room(pool).items())
    back = [lease for lease in held if capacity.comes_back(lease)]
    known = (snapshot.pools or {}).get(OfferId(pool))
    there = sum(slots(room, share) * count for room, count in known.room.items()) if known else 0
    if sum(1 for lease in back if lease.id not in snapshot.bound) > there - free:
        return silent(explain("free-one-taken-outside"))  # who was let in and has no place takes what comes back first
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
    """As of a pool, of its nodes alone: whoever may use one of them is ahead on all, which can only be later.

    As long as somebody waits for these nodes, none of their devices is idle, and everybody ahead has one for a turn.
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
    # of those that may be placed elsewhere, as many as there is room for, and those that stay longest
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
    """The enforced end; None where it was not enforced: a stop is refused, left-overs stay, a start lasts too long."""
    if lease.state is LeaseState.STARTING and now > lease.since + snapshot.start_allowance + RELEASE_ALLOWANCE:
        return None
    late = lease.ends_at is not None and now > lease.ends_at + RELEASE_ALLOWANCE
    return None if late else lease.ends_at
