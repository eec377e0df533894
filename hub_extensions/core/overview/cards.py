"""Cards as administrators see them: their pieces side by side, the lease of each, and when a card will be empty.

A piece is what one server can be given: a MIG device, a part of a shared card, or a whole card. On a cluster a piece is
one of several equal devices of a node, because it is unknown which card a server has. An order is an administrator's
instruction to drain a card or node, so that nothing new starts there (`Cordon`).
"""

from __future__ import annotations

from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from hub_extensions.core.gpu.devices import WHOLE, Device, DeviceState, Foreign
from hub_extensions.core.messages import NodePart, PoolInfo
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.cordons import MACHINE, Cordon, card_of, cordon_of
from hub_extensions.core.text.reasons import Reason

SLICES = 7  # compute slices of a card in MIG mode


class PieceState(Enum):
    """The state of a piece (what one server can be given), such as busy, ending or free.

    A piece is *held* if a lease of this hub covers it.
    """

    BUSY = "busy"
    IDLE = "idle"
    """Held, and measured as idle."""
    USE_UNKNOWN = "use-unknown"
    """Held; its use is not measured."""
    STARTING = "starting"
    ENDING = "ending"
    LOST = "lost"
    """Gone from the machine while a server held it."""
    OTHERS = "others"
    """Used by programs that this hub did not start."""
    CLOSED = "closed"
    """Free, but not given to anybody new."""
    UNUSABLE = "unusable"
    NOT_KNOWN = "not-known"
    """It is unknown whether it is free."""
    FREE = "free"


HELD = frozenset(
    {
        PieceState.BUSY,
        PieceState.IDLE,
        PieceState.USE_UNKNOWN,
        PieceState.STARTING,
        PieceState.ENDING,
        PieceState.LOST,
    }
)
"""The states in which a server of this hub holds the piece."""


@dataclass(frozen=True, slots=True)
class PieceHolder:
    """The lease that covers a piece of a card (what one server can be given), for the administrators' overview.

    It shows which server has the piece, how busy that server is, and when the lease ends.

    Attributes:
        lease: id of the lease.
        place: where the device is: `Device.identity` on one machine, (node, pool of equal devices) on a cluster.
        share: thousandths of the device that the lease covers.
        state: state of the lease: ``starting``, ``running``, ``ending``, or ``lost`` if the device is gone from the
            machine.
        since: when the lease began.
        use_percent: last measured use of the GPU in percent; `None` if it is not known.
        idle_below: GPU use in percent below which the server counts as idle.
        ends_at: wall-clock time at which a limit ends the lease at the latest; `None` without a limit.
    """

    lease: str
    user: str
    server: str
    offer: OfferId
    place: str | tuple[str, str]
    share: int
    state: str
    since: datetime
    use_percent: float | None
    idle_below: float
    ends_at: datetime | None


@dataclass(frozen=True, slots=True)
class Piece:
    """One piece of a card: a MIG device, a part of a shared card, a whole card, or one device of a node.

    Attributes:
        name: the MIG profile, or "" for a whole card; on a cluster, the name of the pool of equal devices.
        width: thousandths of the card that the piece covers, so that the page draws it that wide.
        state: whether a server has the piece and is busy or idle, or whether the piece is free.
        uuid: UUID of the device that the piece is or belongs to; "" on a cluster, where it is not known.
        holder: the lease on the piece; `None` if no server of this hub holds it.
    """

    name: str
    width: int
    state: PieceState
    uuid: str = ""
    holder: PieceHolder | None = None


@dataclass(frozen=True, slots=True)
class Card:
    """One card, or on a cluster all equal devices of one node.

    Attributes:
        place: the name that an order to drain uses for it: the card's UUID on one machine, the node on a cluster.
        uuid: UUID of the card; "" on a cluster.
        node: name of the node; "" on one machine.
        product: the card's name as its driver gives it; "" if unknown.
        pieces: what servers can be given of the card, in physical order on one machine. On a cluster, the devices with
            a lease come first.
        simulated: whether the card is simulated.
        cordon: the administrator's order that nothing new starts here; `None` without such an order.
        barred: on a cluster, why the node's devices are not offered. `None` if they are offered, and always on one
            machine.
        cordoned: whether the node is cordoned in Kubernetes, by this product or by others.
    """

    place: str
    uuid: str
    node: str
    product: str
    pieces: tuple[Piece, ...]
    simulated: bool = False
    cordon: Cordon | None = None
    barred: Reason | None = None
    cordoned: bool = False

    @property
    def holders(self) -> tuple[PieceHolder, ...]:
        """The leases (servers' rights to a share of a device) on this card."""
        return tuple(piece.holder for piece in self.pieces if piece.holder is not None)


@dataclass(frozen=True, slots=True)
class Emptying:
    """When the last lease on a device or node ends.

    Attributes:
        left: number of leases that have not ended.
        at: when the last lease ends at the latest; `None` if no limit enforces the end of at least one of the leases,
            or if no lease is left.
    """

    left: int
    at: datetime | None


def emptying(holders: Iterable[PieceHolder]) -> Emptying:
    """Count the leases that are left, and find when the last of them ends at the latest.

    Args:
        holders: the leases on one device, card, node or machine.
    """
    ends = [holder.ends_at for holder in holders]
    known = [end for end in ends if end is not None]
    return Emptying(len(ends), max(known) if known and len(known) == len(ends) else None)


def state_of(holder: PieceHolder) -> PieceState:
    """Return the state of the piece that this lease covers.

    While the server runs, the state follows the measured use: busy, idle or unknown. Otherwise it is the state of the
    lease.

    Args:
        holder: the lease.
    """
    if holder.state != "running":
        return PieceState(holder.state)
    if holder.use_percent is None:
        return PieceState.USE_UNKNOWN
    return PieceState.BUSY if holder.use_percent >= holder.idle_below else PieceState.IDLE


def cards_of_machine(
    devices: Iterable[DeviceState], holders: Iterable[PieceHolder], cordons: Sequence[Cordon]
) -> tuple[Card, ...]:
    """Return the cards of one machine, sorted by UUID, each with its pieces in physical order.

    A piece is the part of a device that one lease covers, or the part that no lease covers. A device is a whole card or
    a MIG device.

    Args:
        devices: all devices of the machine; a card in MIG mode has several.
        holders: the leases, with `Device.identity` as their place.
        cordons: the administrators' orders that nothing new starts on a card or on the machine.
    """
    by_device: dict[object, list[PieceHolder]] = {}
    for holder in holders:
        by_device.setdefault(holder.place, []).append(holder)
    by_card: dict[str, list[DeviceState]] = {}
    for state in devices:
        by_card.setdefault(card_of(state.device), []).append(state)
    closed = {each.place: each for each in cordons}
    return tuple(
        _card(uuid, sorted(states, key=_order), by_device, cordon_of(closed, uuid))
        for uuid, states in sorted(by_card.items())
    )


def cards_of_cluster(
    pools: Iterable[PoolInfo],
    holders: Iterable[PieceHolder],
    cordons: Iterable[Cordon] = (),
    cordoned: Collection[str] = (),
) -> tuple[Card, ...]:
    """Return one `Card` for each node and pool (equal devices that share one line), sorted by node and pool.

    Args:
        pools: the pools of the cluster, with the nodes of each.
        holders: the leases, with (node, pool) as their place.
        cordons: the administrators' orders in force to drain a node.
        cordoned: the nodes that are cordoned in Kubernetes, by this product or by others.
    """
    closed = {each.place: each for each in cordons}
    by_place: dict[object, list[PieceHolder]] = {}
    for holder in holders:
        by_place.setdefault(holder.place, []).append(holder)
    parts = [(part.node, pool.pool, pool, part) for pool in pools for part in pool.nodes]
    return tuple(
        replace(
            _row_of_node(pool, part, by_place.get((node, name), ())),
            cordon=closed.get(node),
            cordoned=node in cordoned,
        )
        for node, name, pool, part in sorted(parts, key=lambda each: each[:2])
    )


def _card(
    uuid: str, states: Sequence[DeviceState], held: Mapping[object, list[PieceHolder]], cordon: Cordon | None
) -> Card:
    pieces = [piece for state in states for piece in _pieces(state, held.get(state.device.identity, ()), cordon)]
    first = states[0].device
    return Card(uuid, uuid, "", first.product, tuple(pieces), first.simulated, cordon)


def _order(state: DeviceState) -> tuple[int, str]:
    place = state.device.placement
    return (0 if place is None else place.start, state.device.identity)


def _width(device: Device) -> int:
    """Return how many thousandths of its card a device covers.

    A whole card covers 1000. The part of a MIG device follows from its compute slices, which are sevenths of a card. If
    their number is not known, it counts as one.
    """
    return WHOLE if device.profile is None else WHOLE * (device.compute_slices or 1) // SLICES


def _pieces(state: DeviceState, holders: Sequence[PieceHolder], cordon: Cordon | None) -> list[Piece]:
    """Return the pieces of a device: one for each of its leases, and one for the part that no lease covers.

    Args:
        state: the device.
        holders: the leases on the device.
        cordon: the order that nothing new starts on the device's card; `None` without such an order.
    """
    device, width = state.device, _width(state.device)
    name, uuid = device.profile or "", device.uuid
    pieces = [
        Piece(name, width * holder.share // WHOLE, state_of(holder), uuid, holder)
        for holder in sorted(holders, key=lambda each: each.since)
    ]
    left = WHOLE - sum(holder.share for holder in holders)
    if left > 0 and (state.present or not holders):
        pieces.append(Piece(name, width * left // WHOLE, _left_over(state, bool(holders), cordon), uuid))
    return pieces


def _left_over(state: DeviceState, shared: bool, cordon: Cordon | None) -> PieceState:
    if not state.present:
        return PieceState.NOT_KNOWN
    if not state.device.usable:
        return PieceState.UNUSABLE
    if state.foreign is Foreign.SOME and not shared:
        return PieceState.OTHERS
    return PieceState.FREE if cordon is None else PieceState.CLOSED


def _row_of_node(pool: PoolInfo, part: NodePart, holders: Collection[PieceHolder]) -> Card:
    """Build the `Card` of a node's devices in one pool.

    Its pieces are first the devices with a lease, then those that other programs use, then those that are left.

    Args:
        pool: the pool (equal devices that share one line).
        part: the number of the pool's devices on the node.
        holders: the leases on these devices.
    """
    width = WHOLE // max(1, part.total)
    pieces = [
        Piece(pool.pool, width, state_of(holder), "", holder) for holder in sorted(holders, key=lambda each: each.since)
    ]
    others = max(0, part.total - part.free - len(pieces)) if not part.why else 0
    left = max(0, part.total - others - len(pieces))
    state = PieceState.CLOSED if part.why else PieceState.NOT_KNOWN if pool.free is None else PieceState.FREE
    pieces += [Piece(pool.pool, width, PieceState.OTHERS)] * others + [Piece(pool.pool, width, state)] * left
    why = part.reason or (Reason("", part.why) if part.why else None)
    return Card(part.node, "", part.node, pool.product, tuple(pieces), barred=why)


def holders_on(cards: Iterable[Card], place: str) -> tuple[PieceHolder, ...]:
    """Return the leases on the place that an order to drain names.

    Args:
        cards: all cards of the machine or cluster.
        place: `Card.place` of a card or node, or `MACHINE` for the whole machine.
    """
    return tuple(holder for card in cards if place in (MACHINE, card.place) for holder in card.holders)
