"""Devices that are cut from a card when they are claimed (DRA's partitionable devices): how many can be had at once.

Such a card has counters (slices of its memory, cores, engines), and each device draws on some of them. Kubernetes
takes whichever device fits first, and which that is it does not say; so what is counted here can be had *however* it
chooses. No search is made: of devices that draw the same, and differ only in the slices they lie on (all that one MIG
profile selects on one card), the count is exact; of anything odder it is a number that is surely there. Pure. Not
here: which devices an offer selects (``dra.py``).
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import TypeAlias

CounterDraws: TypeAlias = tuple[tuple[str, str, int], ...]
"""Of one device: (counter set, counter, amount) of each counter it draws on; none of the amounts is 0."""

Counter: TypeAlias = tuple[str, str]
"""Counter set and counter."""


def own_counter(device: str) -> Counter:
    """The counter that every device has by itself: it is given once."""
    return "", device


@dataclass(frozen=True, slots=True)
class Shape:
    """Devices that one offer selects on one card.

    Attributes:
        common: counters of which each of them draws the same.
        groups: of each device, its group: devices of different groups have no other counter in common.
        widths: group -> the most devices of it that one of them, itself included, can keep from being given.
        users: counter that is not common -> the devices (by number) that draw on it.
    """

    common: Mapping[Counter, int]
    groups: tuple[int, ...]
    widths: tuple[int, ...]
    users: Mapping[Counter, tuple[int, ...]]


@lru_cache(maxsize=4096)
def shape_of(devices: tuple[CounterDraws, ...]) -> Shape:
    """See `Shape`."""
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


def at_once(devices: tuple[CounterDraws, ...], left: Mapping[Counter, int]) -> int:
    """How many of these devices of one card can be given one after the other, whichever is taken first.

    Args:
        devices: all that the offer selects there. left: what is left of each counter; one that is not there has
            nothing.

    Whoever takes devices until none fits any more has, of each group, at least one for every `width` devices that fit
    now, unless a common counter ran out before; and that is after the same number, whichever were taken.
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
def most_lost(given: tuple[CounterDraws, ...], wanted: tuple[CounterDraws, ...]) -> int:
    """By how much at most `at_once` of `wanted` falls when one of `given` is taken, whatever else was taken before."""
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
