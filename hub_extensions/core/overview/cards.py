"""Cards as an admin sees them: their pieces side by side, who holds each, and when a card is empty.

A piece is what one server can be given: a MIG device, a part of a shared card, a whole card; on a cluster, where nobody
says which card of a node a server has, one of so many equal devices of that node. Not here: words and colours.
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

SLICES = 7
"""A card that is cut has so many compute slices."""


class PieceState(Enum):
    """What a piece is doing now."""

    BUSY = "busy"
    IDLE = "idle"
    """Held, and known to do nothing."""
    USE_UNKNOWN = "use-unknown"
    """Held; nobody can tell what it does."""
    STARTING = "starting"
    ENDING = "ending"
    LOST = "lost"
    """Gone from the machine under its server."""
    OTHERS = "others"
    """Used by programs that this hub did not start."""
    CLOSED = "closed"
    """Free, and nobody new is given it."""
    UNUSABLE = "unusable"
    NOT_KNOWN = "not-known"
    """Nobody can tell whether it is free."""
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
"""A server of ours has it."""


@dataclass(frozen=True, slots=True)
class PieceHolder:
    """A lease as the page needs it.

    Attributes:
        place: `Device.identity`; on a cluster (node, pool), with which `card_of_node` is found.
        use_percent: None: not known. idle_below: what counts as idle.
        ends_at: when a limit ends it at the latest; None: nothing does. Wall-clock time.
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
    """One thing on a card.

    Attributes:
        width: how much of the card it is, in thousandths. uuid: "" where it has none of its own.
        holder: who has it; None: nobody of ours.
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
        place: what an order about it names: the UUID; of a cluster the node. uuid: "" on a cluster.
        node: "" on one machine. product: as its driver names it; "" where nobody says.
        cordon: the order under which nothing new starts here. barred: why it does not count, on a cluster.
        cordoned: the node is, by whomever.
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
        """Who is on it."""
        return tuple(piece.holder for piece in self.pieces if piece.holder is not None)


@dataclass(frozen=True, slots=True)
class Emptying:
    """When a place is empty.

    Attributes:
        left: how many are still on it. at: when the last of them ends at the latest; None with somebody left: at least
            one has no end that is enforced, so nobody can say.
    """

    left: int
    at: datetime | None


def emptying(holders: Iterable[PieceHolder]) -> Emptying:
    """When the last of these has ended, at the latest."""
    ends = [holder.ends_at for holder in holders]
    known = [end for end in ends if end is not None]
    return Emptying(len(ends), max(known) if known and len(known) == len(ends) else None)


def state_of(holder: PieceHolder) -> PieceState:
    """What a piece that is held is doing."""
    if holder.state != "running":
        return PieceState(holder.state)
    if holder.use_percent is None:
        return PieceState.USE_UNKNOWN
    return PieceState.BUSY if holder.use_percent >= holder.idle_below else PieceState.IDLE


def cards_of_machine(
    devices: Iterable[DeviceState], holders: Iterable[PieceHolder], cordons: Sequence[Cordon]
) -> tuple[Card, ...]:
    """The cards of one machine in the order of their UUIDs, and of each its pieces as they lie on it."""
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
    """Of each node its equal devices as one row, by node and pool.

    Args:
        cordons: the orders that stand. cordoned: the nodes on which nothing new is placed, by whomever.
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
    """Of a card: its compute slices; one whose slices nobody tells is as wide as one slice."""
    return WHOLE if device.profile is None else WHOLE * (device.compute_slices or 1) // SLICES


def _pieces(state: DeviceState, holders: Sequence[PieceHolder], cordon: Cordon | None) -> list[Piece]:
    """Those who hold parts of a device, and what is left of it."""
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
    """Ours by their leases; what is neither ours nor free is others'."""
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
    """Who is on a place: a card, a node, or the whole machine."""
    return tuple(holder for card in cards if place in (MACHINE, card.place) for holder in card.holders)
