"""The discipline of the queue: who is served next, who may overtake, and what an admission takes of the devices.

Plain values in, plain values out. Admission and the upper bound of a wait call these functions. The simulation of the
forecast (``core/forecast/simulate.py``) follows the same rules with arrays; ``benchmarks/discipline.py`` compares both.

Each pool has one line, first come, first served. Only the head of a line may be given something of its pool: whoever is
behind could use the same devices, so serving them first might delay the head. A later ticket may start first only if
that cannot delay an earlier one: in another pool, or on nodes that the earlier one cannot use.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Set
from dataclasses import dataclass

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.node_sets import NodeWish

Shares = tuple[tuple[str, int], ...]
"""What an admission takes: (device, thousandths) of each device; empty for CPU only.

Where the scheduler of a cluster picks the device, the pool's id stands for it.
"""

# ------------------------------------------------------------------ what an admission takes


def slots(room: int, share: int) -> int:
    """Return how many servers with this share fit into what is free of a device (both in thousandths)."""
    return max(0, room) // share


def fullest_fit(
    devices: Iterable[str], held: Mapping[str, int], share: int, count: int = 1, whole: int = WHOLE
) -> Shares | None:
    """Return the shares of the fullest `count` devices that still fit, or None if fewer fit.

    Of equally full devices the first is taken.

    Args:
        held: device -> thousandths that are taken. A device that is missing is free.
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
    """Return how many servers with a GPU a user may still start, this one included; below 1 a ticket is passed over.

    Args:
        held: the user's servers that hold a GPU. `server` itself does not count.
        most: the limit per user.
    """
    return most - len(held - {server})


def starts_left(most: int, starting: int) -> int:
    """Return how many more servers may start now; negative if the limit was lowered."""
    return most - starting


# ------------------------------------------------------------------ who is next


@dataclass(frozen=True, slots=True)
class QueuedOffer:
    """One offer that a ticket accepts: in which line, and with which place there."""

    offer: OfferId
    queue: str
    place: int


@dataclass(frozen=True, slots=True)
class Head:
    """The position of a ticket at the head of a line.

    Attributes:
        place: the ticket's first place in the line.
        next_place: the place of the next ticket behind it that can be served.
        ahead: wish -> number of tickets ahead that may use other nodes. Empty where all may use the same nodes.
    """

    place: int
    next_place: int
    ahead: Mapping[NodeWish, int]


@dataclass(frozen=True, slots=True)
class Candidate:
    """A ticket that heads at least one line.

    Attributes:
        wanted_offers: in the user's order of preference.
        heads: line -> position at its head.
        claim: class of the claim; a lower class is served first.
        over_ratio: how far its owner is above the guaranteed share; within a class the lowest is served first.
    """

    ticket: str
    wanted_offers: tuple[QueuedOffer, ...]
    heads: Mapping[str, Head]
    claim: int = 0
    over_ratio: float = 0.0

    @property
    def order(self) -> tuple[int, float, int]:
        """The key by which candidates are served."""
        return self.claim, self.over_ratio, min(head.place for head in self.heads.values())


@dataclass(frozen=True, slots=True)
class Grant:
    """The next admission."""

    ticket: str
    wanted: QueuedOffer
    shares: Shares


def next_grant(
    candidates: Iterable[Candidate],
    fit: Callable[[Candidate, QueuedOffer], Shares | None],
    reserves: Callable[[str], Set[str]],
) -> Grant | None:
    """Return the first candidate that can be given something, with the first of its choices that it can have.

    A choice counts only if it comes before everybody behind its ticket: a ticket that asked for a second offer of a
    pool later has a later place for it.

    Args:
        fit: returns what the choice would take, or None if it cannot be given now.
        reserves: line -> lines of which nobody behind may be given anything while a candidate waits in this one,
            because their devices are cut from the same cards.
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
