"""Cards as administrators see them: their pieces side by side, the holder of each, and when a card will be empty.

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
    """The state of a piece now. *Held* means that a lease of this hub's servers covers the piece."""

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
    """The lease of a piece: who holds it, how busy it is, and when it ends.

    Attributes:
        place: where the device is: `Device.identity`; on a cluster, (node, pool of equal devices).
        share: thousandths of the device that the lease covers.
        state: ``starting``, ``running``, ``ending`` or ``lost``.
        use_percent: last measured use of the GPU; `None` if it is not known.
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
    """One piece of a card.

    Attributes:
        width: thousandths of the card that the piece covers, so that the page draws it that wide.
        uuid: UUID of the device that the piece is or belongs to; "" on a cluster, where it is not known.
        holder: `None` if no server of this hub holds it.
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
        place: name by which an order to drain refers to it: the card's UUID; on a cluster, the node.
        uuid: UUID of the card; "" on a cluster.
        node: name of the node; "" on one machine.
        product: the card's name as its driver gives it; "" if unknown.
        cordon: the administrator's order that nothing new starts here; `None` without such an order.
        barred: on a cluster, why the node's devices are not offered; `None` if they are, and on one machine.
        cordoned: whether the node is cordoned, by this product or by others.
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
        """The leases on this card."""
        return tuple(piece.holder for piece in self.pieces if piece.holder is not None)


@dataclass(frozen=True, slots=True)
class Emptying:
    """When the last lease on a device or node ends.

    Attributes:
        left: number of leases that have not ended.
        at: when the last lease ends at the latest; `None` if nothing enforces the end of at least one, or none is left.
    """

    left: int
    at: datetime | None


def emptying(holders: Iterable[PieceHolder]) -> Emptying:
    """Return how many leases are left, and when the last of them ends at the latest."""
    ends = [holder.ends_at for holder in holders]
    known = [end for end in ends if end is not None]
    return Emptying(len(ends), max(known) if known and len(known) == len(ends) else None)


def state_of(holder: PieceHolder) -> PieceState:
    """Return the state of a piece with this lease: the lease's own, and busy or idle while its server runs."""
    if holder.state != "running":
        return PieceState(holder.state)
    if holder.use_percent is None:
        return PieceState.USE_UNKNOWN
    return PieceState.BUSY if holder.use_percent >= holder.idle_below else PieceState.IDLE


def cards_of_machine(
    devices: Iterable[DeviceState], holders: Iterable[PieceHolder], cordons: Sequence[Cordon]
) -> tuple[Card, ...]:
    """Return the cards of one machine in the order of their UUIDs, with their pieces in physical order."""
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
    """Return the equal devices of each node as one row, sorted by node and pool.

    Args:
        holders: the leases, with (node, pool) as their place.
        cordons: the orders to drain a node that are in force.
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
    """Return the thousandths of its card that a device covers, from its compute slices; one slice if not known."""
    return WHOLE if device.profile is None else WHOLE * (device.compute_slices or 1) // SLICES


def _pieces(state: DeviceState, holders: Sequence[PieceHolder], cordon: Cordon | None) -> list[Piece]:
    """Return the pieces of a device: one for each of its leases, and one for the free rest."""
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
    """Return a node's devices of one pool: those with a lease, those that others use, and those that are left."""
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
    """Return the leases on a place, which an order to drain names: a card, a node, or the whole machine."""
    return tuple(holder for card in cards if place in (MACHINE, card.place) for holder in card.holders)
