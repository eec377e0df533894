"""Count the devices that a claim template can still get (DRA, ``resource.k8s.io/v1``, NVIDIA DRA driver v0.4).

An offer is a ResourceClaimTemplate in the hub's namespace that requests one device. Its devices are found from
selectors of the form ``device.attributes['gpu.nvidia.com'].profile == '1g.10gb'``. A template with any other CEL
expression is left out, because only the scheduler can evaluate it. Several templates may select the same devices, or
devices that are created on the same cards. Allocating a device for one offer may then make devices of another offer
unavailable. `DraPool.costs` has the largest number of such devices for each pair of offers.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Generic, TypeAlias, TypeVar

from hub_extensions.core.cluster.model import ClusterView, CounterFacts, PodFacts, SliceDevice, TemplateFacts
from hub_extensions.core.cluster.nodes import NodeCount
from hub_extensions.core.cluster.shared_counters import (
    Counter,
    CounterDraws,
    available_count,
    most_blocked,
    own_counter,
)
from hub_extensions.core.gpu.mig import MigProfile, MigProfileError
from hub_extensions.core.text.reasons import Reason

T = TypeVar("T")

DRIVER = "gpu.nvidia.com"
NO_NODE = "devices of no single node"
KINDS = {"gpu.nvidia.com": "gpu", "mig.nvidia.com": "mig"}
"""Device class -> attribute ``type`` of the devices it selects."""
_EQUALS = re.compile(
    r"\s*device\.attributes\[(?:'|\")gpu\.nvidia\.com(?:'|\")\]\.(?P<name>profile|productName|type)"
    r"\s*==\s*(?:'|\")(?P<value>[^'\"]+)(?:'|\")\s*"
)
_DRIVER = re.compile(r"\s*device\.driver\s*==\s*(?:'|\")gpu\.nvidia\.com(?:'|\")\s*")


@dataclass(frozen=True, slots=True)
class DraPool:
    """The devices that one claim template selects.

    Attributes:
        base: id of the offer without ``@`` and the card.
        template: name of the ResourceClaimTemplate.
        product: name of the cards; "" if there are several kinds.
        total: number of devices that can be allocated at the same time.
        free: number of devices that are available now. None if the hub is not allowed to read the claims.
        foreign: number of devices that are not available because of claims of pods that this hub did not start.
        memory_bytes, sm_count: memory and SMs (streaming multiprocessors) of the smallest device; None if not known.
        nodes: the number of all and of free devices on each node, for administrators.
        costs: name of another template -> the largest number of that template's devices that become unavailable when a
            device of this template is allocated. The two templates select the same devices, or devices on the same
            cards.
    """

    base: str
    template: str
    product: str
    total: int
    free: int | None
    foreign: int
    memory_bytes: int | None
    sm_count: int | None
    nodes: tuple[NodeCount, ...] = ()
    costs: Mapping[str, int] = field(default_factory=dict)


def dra_pools(
    view: ClusterView, why_not: Callable[[str], Reason | None], ours: Collection[tuple[str, str]]
) -> tuple[list[DraPool], list[tuple[str, str]]]:
    """Count the devices of each claim template.

    Args:
        view: the objects of the cluster.
        why_not: returns the reason why a node accepts no new servers, or None if it accepts some. The name is "" for
            devices that do not belong to a single node.
        ours: (namespace, name) of the pods that are servers of this hub.

    Returns:
        The pools, and (template, reason) of each template that is left out. Both are empty if DRA is not used or may
        not be read.
    """
    left_out: list[tuple[str, str]] = []
    if view.slices is None or view.templates is None:
        return [], left_out
    cards = _cards(_Same(view.slices), _Same(view.counters))
    count = _Count(view, ours)
    found: dict[str, _Selected] = {}
    seen: dict[tuple[tuple[str, str], ...], str] = {}
    for template in view.templates:
        wanted = _wanted(template)
        if isinstance(wanted, str):
            left_out.append((f"claim template {template.name}", wanted))
            continue
        base = _base(wanted)
        if base is None:
            left_out.append((f"claim template {template.name}", "it names no MIG profile: say which one"))
            continue
        first = seen.setdefault(tuple(sorted(wanted.items())), template.name)
        if first != template.name:
            why = f"it selects the same devices as {first}, and they are given once: delete one of the two"
            left_out.append((f"claim template {template.name}", why))
            continue
        found[template.name] = cards.selected(base, wanted)
    pools = []
    for name, mine in found.items():
        costs = {other: cost for other, its in found.items() if other != name and (cost := cards.cost(mine, its))}
        pools.append(_pool(name, mine, count, why_not, costs))
    return pools, left_out


def devices_given(view: ClusterView, pods: Mapping[str, PodFacts]) -> Mapping[str, str]:
    """Return lease -> the devices allocated to the claims of its pod, as one text.

    Each device is named by its UUID, or by the driver's name if it has no UUID. Leases without a device are left out.

    Args:
        view: the objects of the cluster.
        pods: lease -> its pod.
    """
    wanted = {(pod.namespace, claim) for pod in pods.values() for claim in pod.claims}
    if not wanted:
        return {}
    claims = {(each.namespace, each.name): each.devices for each in view.claims or ()}
    given = {place: claims[place] for place in wanted if place in claims}
    names = {device: "/".join(device[1:]) for devices in given.values() for device in devices}
    for each in view.slices or ():
        if each.uuid and (device := (each.driver, each.pool, each.name)) in names:
            names[device] = each.uuid
    found = {
        lease: " ".join(names[device] for claim in pod.claims for device in given.get((pod.namespace, claim), ()))
        for lease, pod in pods.items()
    }
    return {lease: devices for lease, devices in found.items() if devices}


def _pool(
    name: str, mine: _Selected, count: _Count, why_not: Callable[[str], Reason | None], costs: Mapping[str, int]
) -> DraPool:
    stands: dict[str, list[int]] = {}
    total = free = foreign = 0
    for card, (devices, there) in mine.on.items():
        stand = stands.setdefault(card.node, [0, 0])
        stand[0] += there
        if not why_not(card.node):
            left, without_ours = count.of(card, devices, there)
            stand[1] += left
            total, free, foreign = total + there, free + left, foreign + there - without_ours
    return DraPool(
        base=mine.base,
        template=name,
        product=next(iter(mine.products)) if len(mine.products) == 1 else "",
        total=total,
        free=free if count.known else None,
        foreign=foreign,
        memory_bytes=_least(mine.memory),
        sm_count=_least(mine.multiprocessors),
        nodes=tuple(
            NodeCount(node or NO_NODE, there, left, why_not(node)) for node, (there, left) in sorted(stands.items())
        ),
        costs=costs,
    )


# ------------------------------------------------------------------ cards


Kind: TypeAlias = tuple[str, str, str]
"""Attributes ``type``, ``profile`` and ``productName``."""


class _CounterCard:
    """A card with counters (memory slices, cores); each device that is created on the card consumes a part of them.

    A device that consumes no counters counts as a card by itself.

    Attributes:
        driver, pool, node: DRA driver, DRA pool and node of the card.
        counters: the card's counters and their amounts.
        devices: kind of device -> for each device of the kind that can be allocated, the counters it consumes.
        names: name of a device -> the counters it consumes. Devices that cannot be allocated any more are included.
        memory, sms: kind of device -> memory and SMs (streaming multiprocessors) of the smallest; None if not known.
    """

    __slots__ = ("counters", "devices", "driver", "memory", "names", "node", "pool", "sms")

    def __init__(self, driver: str, pool: str, node: str, counters: Mapping[Counter, int]) -> None:
        self.driver, self.pool, self.node, self.counters = driver, pool, node, counters
        self.devices: dict[Kind, tuple[CounterDraws, ...]] = {}
        self.names: dict[str, CounterDraws] = {}
        self.memory: dict[Kind, int | None] = {}
        self.sms: dict[Kind, int | None] = {}

    def add(self, device: SliceDevice) -> None:
        draws = _with_own(device.name, device.draws)
        self.names[device.name] = draws
        if device.closed:
            return
        kind = (device.kind, device.profile, device.product)
        known = kind in self.devices
        self.devices[kind] = (*self.devices.get(kind, ()), draws)
        self.memory[kind] = _least([*([self.memory[kind]] if known else []), device.memory_bytes])
        self.sms[kind] = _least([*([self.sms[kind]] if known else []), device.multiprocessors])

    def left(self, taken: Iterable[str]) -> Mapping[Counter, int]:
        """Return counter -> how much of it is left if some devices of the card are allocated.

        Args:
            taken: names of these devices.
        """
        found = {own_counter(name): 1 for name in self.names} | dict(self.counters)
        for name in taken:
            for counter_set, counter, amount in self.names[name]:
                found[counter_set, counter] = found.get((counter_set, counter), 0) - amount
        return found


@lru_cache(maxsize=65536)
def _with_own(name: str, draws: CounterDraws) -> CounterDraws:
    """Return the counters that a device consumes, and in addition one for the device itself.

    The additional counter ensures that the device can be allocated only once. The result is the same object for devices
    of the same name on all nodes, so that counts can be cached by identity.

    Args:
        name: name of the device.
        draws: the counters that the device consumes on its card, with the amounts.
    """
    return ((*own_counter(name), 1), *draws)


class _Same(Generic[T]):
    """A wrapper that compares by identity, so that a large value can be the key of a cache."""

    __slots__ = ("value",)

    def __init__(self, value: T) -> None:
        self.value = value

    def __hash__(self) -> int:
        return id(self.value)

    def __eq__(self, other: object) -> bool:
        return getattr(other, "value", None) is self.value


class _Cards:
    """All cards of the cluster. Caches which devices of each card a ResourceClaimTemplate selects."""

    def __init__(self, every: Iterable[_CounterCard]) -> None:
        self._every = tuple(every)
        self._selected: dict[frozenset[tuple[str, str]], _Selected] = {}
        self._costs: dict[tuple[int, int], int] = {}

    def selected(self, base: str, wanted: Mapping[str, str]) -> _Selected:
        """Return the devices that a template with these attributes selects.

        Args:
            base: id of the offer without ``@`` and the card.
            wanted: name of an attribute -> required value.
        """
        key = frozenset(wanted.items())
        if key not in self._selected:
            self._selected[key] = _Selected(base, wanted, self._every)
        return self._selected[key]

    def cost(self, one: _Selected, other: _Selected) -> int:
        """Return how many devices of a template become unavailable, at most, if a device of another template is
        allocated.

        Args:
            one: the devices that the first template selects. One of them is allocated.
            other: the devices that the second template selects. Those of them that become unavailable are counted.
        """
        key = id(one), id(other)
        if key not in self._costs:
            both = ((mine[0], other.on[card][0]) for card, mine in one.on.items() if card in other.on)
            pairs = {(id(given), id(wanted)): (given, wanted) for given, wanted in both}
            self._costs[key] = max((most_blocked(given, wanted) for given, wanted in pairs.values()), default=0)
        return self._costs[key]


@lru_cache(maxsize=2)
def _cards(slices: _Same[tuple[SliceDevice, ...]], counters: _Same[tuple[CounterFacts, ...]]) -> _Cards:
    """Return the cards of the devices of NVIDIA's DRA driver. Devices with the same counter set are on one card.

    If a device consumes counters of several sets, all devices of its DRA pool count as one card.
    """
    values = {(each.driver, each.pool): each.counters for each in counters.value}
    mine = [device for device in slices.value if device.driver == DRIVER]
    tangled = {(device.driver, device.pool) for device in mine if len({draw[0] for draw in device.draws}) > 1}
    found: dict[tuple[str, str, str, str], _CounterCard] = {}
    for device in mine:
        pool = device.driver, device.pool
        where = "" if pool in tangled else device.draws[0][0] if device.draws else ""
        key = (*pool, where, "" if device.draws else device.name)
        card = found.get(key)
        if card is None:
            there = values.get(pool, ()) if device.draws else ()
            card = found[key] = _CounterCard(*pool, device.node, _of_set(there, where))
        card.add(device)
    return _Cards(found.values())


@lru_cache(maxsize=4096)
def _of_set(counters: tuple[tuple[str, str, int], ...], counter_set: str) -> Mapping[Counter, int]:
    """Return the counters of one counter set; of all sets if `counter_set` is ""."""
    return {(each, name): value for each, name, value in counters if counter_set in ("", each)}


class _Selected:
    """The devices that a template selects by their attributes.

    Attributes:
        base: id of the offer without ``@`` and the card.
        on: card -> the selected devices, and how many of them are available if nothing is allocated on the card.
        products: product names of the cards that the selected devices are on.
        memory: the different memory sizes of the selected devices in bytes; None for a size that is not known.
        multiprocessors: the different numbers of SMs (streaming multiprocessors) of the selected devices; None for a
            number that is not known.
    """

    def __init__(self, base: str, wanted: Mapping[str, str], cards: Iterable[_CounterCard]) -> None:
        self.base = base
        self.on: dict[_CounterCard, tuple[tuple[CounterDraws, ...], int]] = {}
        self.products: set[str] = set()
        self.memory: set[int | None] = set()
        self.multiprocessors: set[int | None] = set()
        matches: dict[Kind, bool] = {}
        alike: dict[tuple[int, ...], tuple[tuple[CounterDraws, ...], int]] = {}
        for card in cards:
            devices: tuple[CounterDraws, ...] = ()
            for kind, here in card.devices.items():
                if kind not in matches:
                    matches[kind] = _matches(kind, wanted)
                if matches[kind]:
                    devices += here
                    self.products.add(kind[2])
                    self.memory.add(card.memory[kind])
                    self.multiprocessors.add(card.sms[kind])
            if not devices:
                continue
            key = (id(card.counters), *map(id, devices))
            if key not in alike:
                alike[key] = devices, available_count(devices, card.left(()))
            self.on[card] = alike[key]


class _Count:
    """Counts the devices that are available now, considering the claims of all pods. Equal cards are counted once.

    Attributes:
        known: whether the hub is allowed to read the claims; if not, nothing counts as allocated.
    """

    def __init__(self, view: ClusterView, ours: Collection[tuple[str, str]]) -> None:
        self.known = view.claims is not None
        self._taken: dict[tuple[str, str], set[str]] = {}
        self._by_others: dict[tuple[str, str], set[str]] = {}
        for claim in view.claims or ():
            for driver, pool, device in claim.devices:
                self._taken.setdefault((driver, pool), set()).add(device)
                if (claim.namespace, claim.pod) not in ours:
                    self._by_others.setdefault((driver, pool), set()).add(device)
        self._of_card: dict[_CounterCard, tuple[frozenset[str], frozenset[str]]] = {}
        self._counted: dict[tuple[int, int, frozenset[str]], int] = {}

    def of(self, card: _CounterCard, devices: tuple[CounterDraws, ...], there: int) -> tuple[int, int]:
        """Return how many devices of a card are available: now, and if this hub's servers had no claims.

        Args:
            card: the card.
            devices: for each device of the card that a ResourceClaimTemplate selects, the counters that it consumes.
            there: how many of them are available if nothing is allocated on the card.
        """
        found = self._of_card.get(card)
        if found is None:
            found = self._of_card[card] = _here(card, self._taken), _here(card, self._by_others)
        taken, by_others = found
        if not taken:
            return there, there
        return self._count(card, devices, taken), self._count(card, devices, by_others) if by_others else there

    def _count(self, card: _CounterCard, devices: tuple[CounterDraws, ...], taken: frozenset[str]) -> int:
        key = id(card.counters), id(devices), taken
        if key not in self._counted:
            self._counted[key] = available_count(devices, card.left(taken))
        return self._counted[key]


def _here(card: _CounterCard, taken: Mapping[tuple[str, str], set[str]]) -> frozenset[str]:
    found = taken.get((card.driver, card.pool))
    return frozenset(found.intersection(card.names)) if found else _NOTHING


_NOTHING: frozenset[str] = frozenset()


# ------------------------------------------------------------------ templates


def _wanted(template: TemplateFacts) -> Mapping[str, str] | str:
    """Return name -> value of the attributes that a template requires; a sentence if they cannot be found out."""
    kind = KINDS.get(template.device_class)
    if kind is None:
        return f"its device class {template.device_class} is none of {', '.join(KINDS)}"
    if template.count != 1:
        return f"it asks for {template.count} devices: an offer is one"
    wanted = {"type": kind}
    for expression in template.selectors:
        for part in expression.split("&&"):
            found = _EQUALS.fullmatch(part)
            if found is None:
                if _DRIVER.fullmatch(part):
                    continue
                return f"only the scheduler can tell what this selects: {part.strip()[:120]}"
            name, value = found["name"], found["value"]
            if wanted.setdefault(name, value) != value:
                return f"it wants {name} to be {wanted[name]} and {value}, which no device is"
    return wanted


def _matches(kind: tuple[str, str, str], wanted: Mapping[str, str]) -> bool:
    has = dict(zip(("type", "profile", "productName"), kind, strict=True))
    return all(has[name] == value for name, value in wanted.items())


def _base(wanted: Mapping[str, str]) -> str | None:
    if wanted["type"] == "gpu":
        return "gpu"
    try:
        return MigProfile.parse(wanted.get("profile", "")).resource
    except MigProfileError:
        return None


def _least(values: Iterable[int | None]) -> int | None:
    known = list(values)
    return None if None in known or not known else min(value for value in known if value is not None)
