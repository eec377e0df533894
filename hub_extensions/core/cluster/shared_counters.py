"""Count how many of DRA's partitionable devices, which are created on a card when they are claimed, are available.

Such a card has counters (memory slices, cores, engines), and each device consumes some of them. A device blocks another
one if both consume the same counter and not enough of it is left. Kubernetes does not define which of several fitting
devices it allocates, so this counts how many can be allocated in the worst case. The count is exact for devices that
consume the same amounts and differ only in their slices, such as all devices of one MIG profile on a card. For others
it is a lower bound.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

CounterDraws: TypeAlias = tuple[tuple[str, str, int], ...]
"""(counter set, counter, amount) of each counter that a device consumes. Amounts are above 0."""

Counter: TypeAlias = tuple[str, str]
"""Name of the counter set, and name of the counter in it."""


def own_counter(device: str) -> Counter:
    """Return the name of a counter that only this device consumes, because each device can be allocated only once."""
    return "", device


@dataclass(frozen=True, slots=True)
class Shape:
    """The ways in which the devices that an offer selects on one card can block each other.

    Attributes:
        common: counter of which every device consumes the same amount, such as engines -> that amount.
        groups: for each device, the number of its group. Devices of different groups have no counters in common except
            those in `common`. So they do not block each other as long as enough is left of the counters in `common`.
        widths: for each group, how many of its devices become unavailable, at most, when one of them is allocated; the
            device itself counts.
        users: counter that is not in `common` -> numbers of the devices that consume it.
    """

    common: Mapping[Counter, int]
    groups: tuple[int, ...]
    widths: tuple[int, ...]
    users: Mapping[Counter, tuple[int, ...]]


@lru_cache(maxsize=4096)
def shape_of(devices: tuple[CounterDraws, ...]) -> Shape:
    """Return how these devices of one card can block each other: devices do if they consume the same counter.

    Args:
        devices: for each device, the counters that it consumes.
    """
    amounts: dict[Counter, set[int]] = {}
    users: dict[Counter, list[int]] = {}
    for number, draws in enumerate(devices):
        for counter_set, counter, amount in draws:
            amounts.setdefault((counter_set, counter), set()).add(amount)
            users.setdefault((counter_set, counter), []).append(number)
    common = {
        counter: min(found)
        for counter, found in amounts.items()
        if len(found) == 1 and len(users[counter]) == len(devices)
    }
    others = {counter: tuple(found) for counter, found in users.items() if counter not in common}
    beside: list[set[int]] = [{number} for number in range(len(devices))]
    for numbers in others.values():
        for number in numbers:
            beside[number].update(numbers)
    groups = _groups(beside)
    widths = tuple(
        max(len(beside[number]) for number, of in enumerate(groups) if of == group) for group in sorted(set(groups))
    )
    return Shape(common, groups, widths, others)


def _groups(beside: Sequence[Iterable[int]]) -> tuple[int, ...]:
    found: dict[int, int] = {}
    count = 0
    for first in range(len(beside)):
        if first in found:
            continue
        reached = [first]
        while reached:
            number = reached.pop()
            if number not in found:
                found[number] = count
                reached.extend(beside[number])
        count += 1
    return tuple(found[number] for number in range(len(beside)))


def available_count(devices: tuple[CounterDraws, ...], left: Mapping[Counter, int]) -> int:
    """Return how many of these devices of a card can be allocated one after another, in the worst order.

    The number is the smaller of two limits. (1) The devices form groups that block each other. In one group, an
    allocation makes at most a known number of its devices unavailable (`Shape.widths`). So of n devices that fit now,
    at least n divided by that number, rounded up, can be allocated. These numbers are added over all groups. (2) Each
    device consumes the same amount of a common counter, so what is left of the counter suffices for a fixed number of
    devices.

    Args:
        devices: for each device that the offer selects on the card, the counters it consumes.
        left: remaining amount of each counter; a missing counter has 0.
    """
    shape = shape_of(devices)
    fitting = [0] * len(shape.widths)
    for number, draws in enumerate(devices):
        if all(left.get((counter_set, counter), 0) >= amount for counter_set, counter, amount in draws):
            fitting[shape.groups[number]] += 1
    spread = sum(-(-count // width) for count, width in zip(fitting, shape.widths, strict=True))
    enough = (left.get(counter, 0) // amount for counter, amount in shape.common.items())
    return max(0, min([spread, *enough]))


@lru_cache(maxsize=4096)
def most_blocked(given: tuple[CounterDraws, ...], wanted: tuple[CounterDraws, ...]) -> int:
    """Return how many of the devices `wanted` become unavailable, at most, when one of the devices `given` is
    allocated.

    The number is by how much the result of `available_count` for `wanted` decreases, at most.

    Args:
        given: for each of the devices of which one is allocated, the counters that it consumes.
        wanted: for each of the devices that may become unavailable, the counters that it consumes.
    """
    shape = shape_of(wanted)
    return max((_lost(draws, shape) for draws in given), default=0)


def _lost(draws: CounterDraws, shape: Shape) -> int:
    touched: set[int] = set()
    by_common = []
    for counter_set, counter, amount in draws:
        touched.update(shape.users.get((counter_set, counter), ()))
        if (counter_set, counter) in shape.common:
            by_common.append(-(-amount // shape.common[counter_set, counter]))
    in_group = [0] * len(shape.widths)
    for number in touched:
        in_group[shape.groups[number]] += 1
    spread = sum(-(-count // width) for count, width in zip(in_group, shape.widths, strict=True))
    return max([spread, *by_common])
