"""The rules of the queue: which ticket is admitted next, which may overtake, and what an admission takes.

A ticket is a server's place in line. Each pool (all devices of one kind) has one line, first come, first served. Only
the first ticket of a line may get a device of the pool. If a later ticket were served first, it could take a device
that the first one needs. A later ticket may start first only if that cannot delay an earlier one, because it is in the
line of another pool, or on nodes that the earlier one cannot use.

Admission and the upper bound of a wait call these functions. The simulation of the forecast
(``core/forecast/simulate.py``) follows the same rules with arrays; ``benchmarks/discipline.py`` compares both.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.node_sets import NodeWish

Shares = tuple[tuple[str, int], ...]
"""The shares that an admission takes: (device, thousandths) of each device; empty for CPU only.

On a cluster, whose scheduler picks the device, the id of the pool stands in its place.
"""

# ------------------------------------------------------------------ what an admission takes


def slots(room: int, share: int) -> int:
    """Return how many servers with this share fit into the free part of a device.

    Args:
        room: free thousandths of the device.
        share: thousandths of a device that each server needs.
    """
    return max(0, room) // share


def fullest_fit(
    devices: Iterable[str], held: Mapping[str, int], share: int, count: int = 1, whole: int = WHOLE
) -> Shares | None:
    """Choose the fullest devices that still have room for a share, so that empty devices stay whole.

    Args:
        devices: the devices, in the order in which equally full ones are taken.
        held: device -> thousandths that are taken. A device that is missing is free.
        share: thousandths of a device that are needed.
        count: number of devices that are needed, each with this share.
        whole: thousandths of a whole device.

    Returns:
        (device, share) of each chosen device; None if fewer than `count` devices have room.
    """
    fitting = [device for device in devices if held.get(device, 0) + share <= whole]
    if len(fitting) < count:
        return None
    if count == 1:
        return ((max(fitting, key=lambda device: held.get(device, 0)), share),)
    fitting.sort(key=lambda device: -held.get(device, 0))
    return tuple((device, share) for device in fitting[:count])


# ------------------------------------------------------------------ limits


def limit_left(held: Set[str], server: str, most: int) -> int:
    """Return how many more servers with a GPU a user may start, including `server`. Below 1, `server` has to wait.

    Args:
        held: the user's servers that hold a GPU. `server` itself does not count.
        most: the limit per user.
    """
    return most - len(held - {server})


def starts_left(most: int, starting: int) -> int:
    """Return how many more servers may start now. Negative if the limit was lowered below the number that is starting.

    Args:
        most: the limit of simultaneous starts.
        starting: number of servers that are starting.
    """
    return most - starting


# ------------------------------------------------------------------ who is next


@dataclass(frozen=True, slots=True)
class QueuedOffer:
    """One offer that a ticket accepts, with the ticket's place in the line of that offer.

    Attributes:
        queue: the line, named by its pool.
        place: the place as a serial number; the lowest was taken first.
    """

    offer: OfferId
    queue: str
    place: int


@dataclass(frozen=True, slots=True)
class Head:
    """The place of a ticket that may be served next in a line, and what it has to leave to other tickets there.

    Attributes:
        place: the earliest of the ticket's places in the line (a serial number).
        next_place: the place of the next ticket in line that may be served after this ticket. A number above every
            place if no other ticket may be served.
        ahead: (nodes, share) -> number of tickets ahead of this one that ask for the share on one of the nodes. A
            ticket ahead asks for other nodes or another share than this ticket. Empty in a pool of which all servers
            may use the same nodes.
    """

    place: int
    next_place: int
    ahead: Mapping[NodeWish, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A ticket at the head of at least one line, so that it may be admitted next.

    Attributes:
        ticket: id of the ticket.
        wanted_offers: the offers that the ticket accepts, in the user's order of preference.
        heads: line -> the ticket's position at its head.
        claim: how strong the ticket owner's claim to a GPU is, as the number of a class; the lowest class is served
            first.
        over_ratio: by which ratio the ticket's owner holds more than the share of the GPUs that is guaranteed to the
            owner. Within a class, the candidate with the lowest ratio is served first.
    """

    ticket: str
    wanted_offers: tuple[QueuedOffer, ...]
    heads: Mapping[str, Head]
    claim: int = 0
    over_ratio: float = 0.0

    @property
    def order(self) -> tuple[int, float, int]:
        """The sort key of candidates; the one with the lowest key is served first.

        It consists of `claim`, then `over_ratio`, then the earliest of the ticket's places at the head of a line.
        """
        return self.claim, self.over_ratio, min(head.place for head in self.heads.values())


@dataclass(frozen=True, slots=True)
class Grant:
    """The decision to admit one ticket.

    Attributes:
        ticket: id of the ticket.
        wanted: the offer that it gets.
        shares: the devices, and the share of each, that the admission takes.
    """

    ticket: str
    wanted: QueuedOffer
    shares: Shares


def next_grant(
    candidates: Iterable[Candidate],
    fit: Callable[[Candidate, QueuedOffer], Shares | None],
    reserves: Callable[[str], Set[str]],
) -> Grant | None:
    """Return the first candidate of which an offer is free, with the first such offer; None if no candidate has one.

    A ticket may have places for several offers in one line. An offer counts only if the ticket's place for this offer
    is before the place of the next ticket in that line. An offer that was added to the ticket later can have a place
    behind the next ticket.

    Args:
        candidates: the tickets at the head of a line.
        fit: returns the devices and shares that the offer would take, or None if it cannot be given now.
        reserves: returns, for a line, the other lines whose devices are created on the same cards. While a candidate
            waits in the line, later candidates get nothing from these other lines.
    """
    reserved: set[str] = set()
    for candidate in sorted(candidates, key=lambda each: each.order):
        waits_in: list[str] = []
        for wanted in candidate.wanted_offers:
            head = candidate.heads.get(wanted.queue)
            if head is None or wanted.place >= head.next_place:
                continue
            shares = fit(candidate, wanted)
            if shares is not None and wanted.queue not in reserved:
                return Grant(candidate.ticket, wanted, shares)
            waits_in.append(wanted.queue)
        for line in waits_in:
            reserved |= reserves(line)
    return None
