"""Cards and nodes on which nothing new starts, because an admin empties them: what is closed, and what may be.

Who is on such a place stays until the own end comes. On a cluster the scheduler places the servers, and only a cordon
of its own keeps it from a node: an order of ours stands there as long as the node is cordoned. Not here: who holds what
(``core/overview``), and who cordons (``hub_service/engine/stops/node_drains.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hub_extensions.core.gpu.devices import Device, DeviceState
from hub_extensions.core.text.reasons import Reason, explain

MACHINE = "machine"
"""The place that is the whole machine; any other is a card, by its UUID, or a node of a cluster, by its name."""
SEEN_LATE = timedelta(seconds=60)
"""So long after an order its node may still be seen as it was before."""


@dataclass(frozen=True, slots=True)
class Cordon:
    """An order of an admin: nothing new starts here.

    Attributes:
        place: `MACHINE`, the UUID of a card, or the name of a node.
        why: in the admin's words. since: by the wall clock.
    """

    place: str
    admin: str
    why: str
    since: datetime


def card_of(device: Device) -> str:
    """The UUID of the card that a device is, or was cut from."""
    return device.parent_uuid or device.uuid


def cordon_of(cordons: Mapping[str, Cordon], card: str) -> Cordon | None:
    """The order under which a card is closed, its own before the machine's; None: it is open.

    Args:
        cordons: by their places.
    """
    return cordons.get(card) or cordons.get(MACHINE)


def closed_devices(cordons: Sequence[Cordon], devices: Iterable[DeviceState]) -> frozenset[str]:
    """`Device.identity` of all that nobody new is given."""
    if not cordons:
        return frozenset()
    places = {each.place for each in cordons}
    return frozenset(state.device.identity for state in devices if MACHINE in places or card_of(state.device) in places)


@dataclass(frozen=True, slots=True)
class Closing:
    """How much of a pool is closed by administrators.

    Attributes:
        count: devices. since, why: of the oldest order; `None` and "" where somebody closed it without an order here.
    """

    count: int
    since: datetime | None
    why: str


def closings(cordons: Sequence[Cordon], devices: Iterable[DeviceState]) -> Mapping[str, Closing]:
    """What is closed of each pool of one machine; a pool of which nothing is closed is left out."""
    by_place = {each.place: each for each in cordons}
    found: dict[str, list[Cordon | None]] = {}
    for state in devices:
        cordon = cordon_of(by_place, card_of(state.device))
        if cordon is not None and state.present and state.device.usable:
            found.setdefault(state.device.pool, []).append(cordon)
    return {pool: _closing(orders, len(orders)) for pool, orders in found.items()}


def closings_of_nodes(cordons: Iterable[Cordon], cordoned: Iterable[tuple[str, str, int]]) -> Mapping[str, Closing]:
    """What is closed of each pool of a cluster.

    Args:
        cordoned: pool, node, and how many devices of the pool a node has on which nothing new is placed.
    """
    by_place, orders, counts = {each.place: each for each in cordons}, dict[str, list[Cordon | None]](), Counter[str]()
    for pool, node, count in cordoned:
        orders.setdefault(pool, []).append(by_place.get(node))
        counts[pool] += count
    return {pool: _closing(found, counts[pool]) for pool, found in orders.items()}


def _closing(orders: Iterable[Cordon | None], count: int) -> Closing:
    known = [each for each in orders if each is not None]
    oldest = min(known, key=lambda each: each.since, default=None)
    return Closing(count, None, "") if oldest is None else Closing(count, oldest.since, oldest.why)


def refuse_to_close(place: str, cordons: Iterable[Cordon], devices: Iterable[DeviceState]) -> Reason | None:
    """Why this card or machine cannot be closed; None: it can."""
    if any(each.place == place for each in cordons):
        return explain("cordoned-already")
    if place != MACHINE and all(card_of(state.device) != place for state in devices):
        return explain("no-such-card")
    return None


def refuse_to_close_node(node: str, nodes: Mapping[str, bool], *, may_cordon: bool) -> Reason | None:
    """Why this node of a cluster cannot be closed; None: it can.

    Args:
        nodes: those with devices -> whether nothing new is placed there. may_cordon: the site lets this service do it.
    """
    if not may_cordon:
        return explain("cordon-on-cluster", node=node)
    if node not in nodes:
        return explain("no-such-node")
    return explain("cordoned-already") if nodes[node] else None


def standing_on_nodes(cordons: Iterable[Cordon], nodes: Mapping[str, bool]) -> tuple[Cordon, ...]:
    """The orders whose nodes are cordoned."""
    return tuple(each for each in cordons if nodes.get(each.place))


def undone_elsewhere(cordons: Iterable[Cordon], nodes: Mapping[str, bool], now: datetime) -> tuple[Cordon, ...]:
    """The orders that somebody undid at the cluster itself. Of a node that is not seen nobody knows: it stands."""
    return tuple(each for each in cordons if nodes.get(each.place) is False and now - each.since > SEEN_LATE)
