"""Orders of administrators to drain a card, a node or the machine: servers there go on, but nothing new starts.

On a cluster only a cordon of Kubernetes keeps the scheduler from a node, so an order for a node is in force only as
long as the node is cordoned.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timedelta

from hub_extensions.core.gpu.devices import Device, DeviceState
from hub_extensions.core.text.reasons import Reason, explain

MACHINE = "machine"
"""Value of `Cordon.place` for the whole machine. Other values are the UUID of a card or the name of a node."""
SEEN_LATE = timedelta(seconds=60)
"""Time after an order in which its node may still be reported as not cordoned, because the change is not seen yet."""


@dataclass(frozen=True, slots=True)
class Cordon:
    """An administrator's order that nothing new starts at a place, so that it drains; servers there go on.

    Attributes:
        place: `MACHINE`, the UUID of a card, or the name of a node.
        admin: who gave the order.
        why: the administrator's text.
        since: wall-clock time of the order.
    """

    place: str
    admin: str
    why: str
    since: datetime


def card_of(device: Device) -> str:
    """Return the UUID of the card that a device is or belongs to."""
    return device.parent_uuid or device.uuid


def cordon_of(cordons: Mapping[str, Cordon], card: str) -> Cordon | None:
    """Return the order to drain a card: the order for this card, or else the order for the whole machine.

    Args:
        cordons: place (a card's UUID, or `MACHINE`) -> the order to drain it.
        card: UUID of the card.
    """
    return cordons.get(card) or cordons.get(MACHINE)


def closed_devices(cordons: Sequence[Cordon], devices: Iterable[DeviceState]) -> frozenset[str]:
    """Return `Device.identity` of the drained devices, which no new server gets.

    An administrator has given the order to drain their card or the whole machine.

    Args:
        cordons: the orders to drain a card or the machine.
        devices: all devices of the machine.
    """
    if not cordons:
        return frozenset()
    places = {each.place for each in cordons}
    return frozenset(state.device.identity for state in devices if MACHINE in places or card_of(state.device) in places)


@dataclass(frozen=True, slots=True)
class Closing:
    """The drained devices of one pool: no new server gets them, because their card or node is being drained.

    Attributes:
        count: number of devices.
        since: time of the oldest order; `None` if the nodes were cordoned in the cluster without an order here.
        why: text of that order; "" without an order.
    """

    count: int
    since: datetime | None
    why: str


def closings(cordons: Sequence[Cordon], devices: Iterable[DeviceState]) -> Mapping[str, Closing]:
    """Return pool (devices of one kind) -> its drained devices on one machine.

    No new server gets a drained device, because of an administrator's order for its card or for the machine. Only
    devices that are present and usable count. Pools without drained devices are left out.

    Args:
        cordons: the orders to drain a card or the machine.
        devices: all devices of the machine.
    """
    by_place = {each.place: each for each in cordons}
    found: dict[str, list[Cordon | None]] = {}
    for state in devices:
        cordon = cordon_of(by_place, card_of(state.device))
        if cordon is not None and state.present and state.device.usable:
            found.setdefault(state.device.pool, []).append(cordon)
    return {pool: _closing(orders, len(orders)) for pool, orders in found.items()}


def closings_of_nodes(cordons: Iterable[Cordon], cordoned: Iterable[tuple[str, str, int]]) -> Mapping[str, Closing]:
    """Return pool (all devices of one kind) -> its drained devices on a cluster.

    No new server gets a drained device, because its node is cordoned. Pools without drained devices are left out.

    Args:
        cordons: the orders to drain a node.
        cordoned: (pool, cordoned node, number of the pool's devices on the node).
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
    """Return why an order to drain a card or the machine is refused, or None if it is accepted.

    It is refused if there is an order for the same place already, or if the machine does not have the card.

    Args:
        place: UUID of the card, or `MACHINE`.
        cordons: the orders that are in force already.
        devices: all devices of the machine.
    """
    if any(each.place == place for each in cordons):
        return explain("cordoned-already")
    if place != MACHINE and all(card_of(state.device) != place for state in devices):
        return explain("no-such-card")
    return None


def refuse_to_close_node(node: str, nodes: Mapping[str, bool], *, may_cordon: bool) -> Reason | None:
    """Return why an order to drain this node of a cluster is refused, or None if it is accepted.

    It is refused if the service may not cordon nodes, or if the node has no devices or is cordoned already.

    Args:
        nodes: node with devices -> whether it is cordoned.
        may_cordon: whether the settings allow this service to cordon nodes.
    """
    if not may_cordon:
        return explain("cordon-on-cluster", node=node)
    if node not in nodes:
        return explain("no-such-node")
    return explain("cordoned-already") if nodes[node] else None


def standing_on_nodes(cordons: Iterable[Cordon], nodes: Mapping[str, bool]) -> tuple[Cordon, ...]:
    """Return the orders that are in force because their nodes are cordoned.

    Args:
        nodes: node with devices -> whether it is cordoned.
    """
    return tuple(each for each in cordons if nodes.get(each.place))


def undone_elsewhere(cordons: Iterable[Cordon], nodes: Mapping[str, bool], now: datetime) -> tuple[Cordon, ...]:
    """Return the orders whose nodes somebody has uncordoned in the cluster, so that the orders have to be deleted.

    Args:
        nodes: node with devices -> whether it is cordoned. Orders for nodes that are missing here are not returned.
    """
    return tuple(each for each in cordons if nodes.get(each.place) is False and now - each.since > SEEN_LATE)
