"""Cards on which nothing new starts, because an admin empties them: what is closed, and what may be.

Who is on such a card stays until the own end comes. On a cluster the scheduler places the servers, and only a cordon of
its own keeps it from a node: there nothing is closed by us. Not here: who holds what (``core/overview``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.gpu.devices import Device, DeviceState
from hub_extensions.core.reasons import Reason, explain

MACHINE = "machine"
"""The place that is the whole machine; any other is a card, by its UUID."""


@dataclass(frozen=True, slots=True)
class Cordon:
    """An order of an admin: nothing new starts here.

    Attributes:
        place: `MACHINE`, or the UUID of a card.
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


def refuse_to_close(
    place: str, cordons: Iterable[Cordon], devices: Iterable[DeviceState], *, on_cluster: bool
) -> Reason | None:
    """Why this place cannot be closed; None: it can."""
    if on_cluster:
        return explain("cordon-on-cluster", node=place)
    if any(each.place == place for each in cordons):
        return explain("cordoned-already")
    if place != MACHINE and all(card_of(state.device) != place for state in devices):
        return explain("no-such-card")
    return None
