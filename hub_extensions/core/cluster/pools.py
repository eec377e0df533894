"""Combine the devices of all nodes to pools of equal devices, with permanent ids, and count how many are free.

A pool is all devices of one kind, for which users wait in one line. Devices are only counted, because the scheduler
selects them. Nodes that have not changed are not counted again.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hub_extensions.core.cluster.dra import DraPool, dra_pools
from hub_extensions.core.cluster.model import ClusterConfig, ClusterView, PodFacts
from hub_extensions.core.cluster.nodes import (
    GKE_ACCELERATOR,
    GKE_PARTITION,
    GKE_SHARING,
    HAMI_NODE,
    HOSTNAME,
    SHARED,
    LeftOut,
    NodeCount,
    NodeReadings,
    NodeShare,
    explain_no_devices,
    reason_not_for_all,
)
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import OfferConfig, check_config
from hub_extensions.core.offers.offer_id import OfferId, OfferIdError
from hub_extensions.core.offers.pod_request import NODE_PRODUCT, Mechanism
from hub_extensions.core.text.reasons import Reason

SLUG_LENGTH = 48
AHEAD = 100
VOLUMES_UNREAD = LeftOut(
    "volumes of users' files",
    "this hub may not read them: a server whose files only some nodes reach is let in as if all did",
)
DOUBTED = (
    "no label says how many cards its machines have, or whether they are shared, so nothing is promised of them; GPU "
    "Feature Discovery writes such labels (nvidia.com/gpu.count, nvidia.com/gpu.product)"
)
_SLUG = re.compile(r"[^a-z0-9]+")
_NOT_IN_ID = re.compile(r"[^a-z0-9.-]+")


@dataclass(frozen=True, slots=True)
class NodeRoom:
    """The devices of a pool on one node.

    Attributes:
        total: number of devices that can be given to servers now.
        room: free share of a device in thousandths -> number of devices that have it free.
        foreign: number of devices held by pods that this hub did not start.
        barred: True if only servers with tolerations or selectors of their own can use the node, so that its devices
            count only for them.
        unknown: whether the number of devices is not known.
        silent: whether the node does not answer.
    """

    total: int
    room: Mapping[int, int]
    foreign: int = 0
    barred: bool = False
    unknown: bool = False
    silent: bool = False


@dataclass(frozen=True, slots=True)
class Pool:
    """All devices of one kind, for which users wait in one line.

    Attributes:
        id: id of the pool, such as ``mig-1g.5gb`` or ``gpu@a100-sxm4-40gb``.
        base: the id without ``@`` and the card.
        product: the product label of its nodes, without suffixes.
        resource: the extended resource that a pod requests; "" for DRA.
        mechanism: how the cluster assigns the devices.
        total: number of devices that can be given to servers now.
        room: free share of a device in thousandths -> number of devices that have it free.
        foreign: number of devices held by pods that this hub did not start.
        unknown: whether some nodes cannot be counted. If so, and no device is counted as free, it is not known whether
            one is free.
        memory_bytes, sm_count: size of the smallest device; None if not known.
        sm_total: SMs (streaming multiprocessors) of the whole card; None if not known.
        replicas: highest number of pods that share a device; 1 if it is not shared.
        virtual: whether some nodes have only a part of a card from a hypervisor.
        doubted: whether on some nodes the labels leave open if the cards are shared.
        node_labels: node affinity with which a pod gets a device of this pool and no other.
        claim_template: name of the ResourceClaimTemplate for DRA; "" otherwise.
        nodes: the number of all and of free devices on each node, for administrators.
        costs: id of another pool -> the largest number of that pool's devices that become unavailable when a device of
            this pool is given. The two pools have the same devices, or devices on the same cards.
        rooms: node name -> its devices; empty if not known.
    """

    id: OfferId
    base: str
    product: str
    resource: str
    mechanism: Mechanism
    total: int = 0
    room: Mapping[int, int] = field(default_factory=dict)
    foreign: int = 0
    unknown: bool = False
    memory_bytes: int | None = None
    sm_count: int | None = None
    sm_total: int | None = None
    replicas: int = 1
    virtual: bool = False
    doubted: bool = False
    node_labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    claim_template: str = ""
    nodes: tuple[NodeCount, ...] = ()
    costs: Mapping[str, int] = field(default_factory=dict)
    rooms: Mapping[str, NodeRoom] = field(default_factory=dict)

    @property
    def free(self) -> int:
        """Number of whole devices of this pool that are free."""
        return self.room.get(WHOLE, 0)

    @property
    def silent(self) -> bool:
        """Whether a node that has devices of this pool does not answer."""
        return any(count.silent for count in self.nodes)


@dataclass(frozen=True)
class PoolSurvey:
    """All pools of a cluster, counted at one moment.

    Attributes:
        pools: pools by id.
        bound: ids of leases (rights of servers to a device) whose pods are bound to a node, so that their devices are
            already counted as used.
        names: key of each pool that ever existed -> its id. The key is an internal text that describes the kind of its
            devices (`DeviceKind.key`); the id is the name that users and settings use. The next survey needs `names`,
            because an id is never given to other devices.
        left_out: nodes and resources whose devices are not offered, for administrators.
        configured: True if the totals come from the administrator's settings, because the hub is not allowed to read
            nodes, or pods of other namespaces.
        known: False if free devices cannot be counted.
    """

    pools: Mapping[OfferId, Pool]
    bound: frozenset[str]
    names: Mapping[str, str]
    left_out: tuple[LeftOut, ...] = ()
    configured: bool = False
    known: bool = True


def survey_pools(
    view: ClusterView,
    offers: OfferConfig,
    config: ClusterConfig,
    *,
    names: Mapping[str, str],
    leases: Collection[str],
    ours: Collection[str] = (),
    kept: NodeReadings | None = None,
) -> PoolSurvey:
    """Count the devices of a cluster, and how many are free.

    Args:
        view: the objects of the cluster.
        offers, config: the settings.
        names: key of each pool that existed in any earlier survey -> its id (`PoolSurvey.names` of the last survey). A
            key describes the kind of the pool's devices; an id is what users and settings call the pool. Empty for the
            first survey.
        leases: ids of this hub's leases. A pod whose label has another lease, or none, is not a server of this hub.
        ours: uids of further pods that are servers of this hub: those of adopted servers, which the service found
            already running.
        kept: a cache of the devices of each node; None counts every node again.
    """
    check_config(offers)
    config = replace(config, resources=offers.resources)
    holders = _Holders(view, leases, ours)
    if view.nodes is None:
        return _configured(view, config, names, holders)
    kept = kept if kept is not None else NodeReadings()
    kept.forget_other_nodes(view.nodes)
    parts: dict[str, list[NodeShare]] = {}
    left_out: list[LeftOut] = []
    by_claim = {device.node for device in view.slices or ()}
    for name in sorted(view.nodes):
        reading = kept.read(view.nodes[name], holders.on(name), holders.ours_on(name), config)
        left_out.extend(reading.left_out)
        if not reading.parts and not reading.left_out and name not in by_claim:
            left_out.extend(explain_no_devices(view.nodes[name]))
        for part in reading.parts:
            parts.setdefault(part.kind.key, []).append(part)
    # a kind that was never usable is not offered; one that was stays in the form without devices
    parts = {key: found for key, found in parts.items() if key in names or not all(part.closed for part in found)}
    claimed, unread = dra_pools(view, _why_not(view, config), holders.our_names)
    left_out.extend(LeftOut(what, why) for what, why in unread)
    ids, names = _name(parts, claimed, names)
    pools = {ids[key]: _make_pool(ids[key], parts, key) for key in parts}
    left_out.extend(LeftOut(pool.id, DOUBTED) for pool in pools.values() if pool.doubted)
    if view.own_pods_only:
        pools = {pool.id: _by_capacity(pool, config.capacity) for pool in pools.values()}
        why = "this hub may not read them: the totals are what c.GpuCluster.capacity says, and without it not known"
        left_out.append(LeftOut("pods of other namespaces", why))
    if view.volumes.unread:
        left_out.append(VOLUMES_UNREAD)
    by_template = {pool.template: ids[_dra_key(pool)] for pool in claimed}
    pools.update((by_template[pool.template], _make_claim_pool(by_template, pool)) for pool in claimed)
    return PoolSurvey(
        pools,
        frozenset(holders.bound),
        names,
        tuple(left_out),
        configured=view.own_pods_only,
        known=view.pods is not None,
    )


def read_in_steps(
    view: ClusterView,
    config: ClusterConfig,
    *,
    leases: Collection[str],
    ours: Collection[str] = (),
    kept: NodeReadings,
    resources: Mapping[str, str] | None = None,
) -> Iterator[None]:
    """Fill the cache `kept` and yield after every hundred nodes, so that `survey_pools` does not block for long.

    Args:
        view: the objects of the cluster.
        leases: ids of this hub's leases. A pod whose label has another lease, or none, is not a server of this hub.
        ours: uids of further pods that are servers of this hub: those of adopted servers, which the service found
            already running.
        kept: the cache of the devices of each node.
        resources: renamed resource -> offer id (`OfferConfig.resources`); None if the settings rename none.
    """
    config = replace(config, resources=resources or {})
    holders = _Holders(view, leases, ours)
    for number, node in enumerate(tuple((view.nodes or {}).values())):
        if number % AHEAD == 0:
            yield
        kept.read(node, holders.on(node.name), holders.ours_on(node.name), config)


def _why_not(view: ClusterView, config: ClusterConfig) -> Callable[[str], Reason | None]:
    """Return a function that gives the reason why a node accepts no new servers.

    It takes the node's name and returns the reason, or None if the node accepts some servers. A node that is not known
    counts as accepting servers.

    Args:
        view: the objects of the cluster.
        config: the settings of the cluster.
    """
    nodes = view.nodes or {}
    reasons: dict[str, Reason | None] = {}

    def why(name: str) -> Reason | None:
        if name not in reasons:
            reasons[name] = reason_not_for_all(nodes[name], config)[0] if name in nodes else None
        return reasons[name]

    return why


def caution_of(view: ClusterView) -> str:
    """Return a sentence for users about what the numbers of GPUs do not include; "" if they include everything."""
    sentences = []
    if view.nodes is None:
        sentences.append("How many GPUs there are is what an administrator wrote down.")
    if view.own_pods_only:
        sentences.append("What others in the cluster use is not counted, so fewer may be free.")
    return " ".join(sentences)


class _Holders:
    """The pods that hold devices: they are bound to a node and have not ended.

    Attributes:
        pods: all of these pods.
        our_names: (namespace, name) of the pods that are servers of this hub.
        bound: ids of the leases (servers' rights to a device) whose devices are counted as used.
    """

    def __init__(self, view: ClusterView, leases: Collection[str], ours: Collection[str]) -> None:
        self.pods: list[PodFacts] = []
        self.our_names: set[tuple[str, str]] = set()
        self.bound: set[str] = set()
        self._on: dict[str, list[PodFacts]] = {}
        self._ours: dict[str, list[str]] = {}
        allocated = {(claim.namespace, claim.name) for claim in view.claims or ()}
        for pod in (view.pods or {}).values():
            if pod.phase in ("Succeeded", "Failed"):
                continue
            if pod.node:
                self.pods.append(pod)
                self._on.setdefault(pod.node, []).append(pod)
            if pod.lease and _is_counted_as_used(pod, allocated):
                self.bound.add(pod.lease)
            if (pod.lease and pod.lease in leases) or pod.uid in ours:
                self.our_names.add((pod.namespace, pod.name))
                self._ours.setdefault(pod.node, []).append(pod.uid)

    def on(self, node: str) -> Sequence[PodFacts]:
        """Return the pods on a node that hold devices."""
        return self._on.get(node, ())

    def ours_on(self, node: str) -> frozenset[str]:
        """Return the uids of those pods on a node that are servers of this hub."""
        found = self._ours.get(node)
        return frozenset(found) if found else _NOBODY

    def ours(self, pod: PodFacts) -> bool:
        return pod.uid in self._ours.get(pod.node, ())


_NOBODY: frozenset[str] = frozenset()


def _is_counted_as_used(pod: PodFacts, allocated: Collection[tuple[str, str]]) -> bool:
    """Return whether a pod's devices are counted as used.

    With DRA they are if its claims are allocated, otherwise if the pod is bound to a node.

    Args:
        allocated: (namespace, name) of the allocated claims.
    """
    if pod.claims and not pod.requests:
        return all((pod.namespace, claim) in allocated for claim in pod.claims)
    return bool(pod.node)


# ------------------------------------------------------------------ names


def _name(
    parts: Mapping[str, Sequence[NodeShare]], claimed: Iterable[DraPool], names: Mapping[str, str]
) -> tuple[dict[str, OfferId], dict[str, str]]:
    """Return key -> id of all existing pools, and key -> id of all pools that ever existed.

    A key describes the kind of a pool's devices. An id is what users and settings call the pool. A pool keeps its id,
    even if its cards get a product label later, when GPU Feature Discovery is installed. A new pool gets the plain id
    if it is the only one of its kind, otherwise an id with its product. A pool of a claim template is named after the
    template, and a pool of a renamed resource gets the administrator's id.

    Args:
        parts: key of a pool -> its devices on each node.
        claimed: the pools of claim templates.
        names: key -> id of all pools that existed before.
    """
    kept = dict(names)
    taken = set(kept.values())
    fresh = [(key, found[0].kind) for key, found in sorted(parts.items()) if key not in kept]
    kinds = Counter(kind.base for _, kind in fresh)
    for key, kind in fresh:
        before = [replace(kind, product=kind.other_product).key] if kind.other_product else []
        before += [replace(kind, product="").key] if kinds[kind.base] == 1 else []
        known = next((each for each in before if each in kept and each not in parts), None)
        if known is not None:
            kept[key] = kept.pop(known)
            continue
        if kind.wanted_id and kind.wanted_id not in taken:
            kept[key] = _free_id(kind.wanted_id, "", taken)
            continue
        alone = kinds[kind.base] == 1 and kind.base not in taken
        kept[key] = _free_id(kind.base, "" if alone else _slug(kind.product), taken)
    for pool in claimed:
        if _dra_key(pool) not in kept:
            kept[_dra_key(pool)] = _free_id(pool.base, _shortened(_NOT_IN_ID.sub("-", pool.template)), taken)
    here = [*parts, *map(_dra_key, claimed)]
    return {key: OfferId(kept[key]) for key in here}, kept


def _free_id(base: str, which: str, taken: set[str]) -> str:
    number, found = 2, f"{base}@{which}" if which else base
    while found in taken:
        found, number = f"{base}@{which}-{number}", number + 1
    taken.add(found)
    return found


def _dra_key(pool: DraPool) -> str:
    return "|".join((pool.base, pool.template, "", Mechanism.DRA.value))


def _slug(product: str) -> str:
    """Return a product as part of an id: ``NVIDIA-A100-SXM4-40GB`` -> ``a100-sxm4-40gb``."""
    return _shortened(_SLUG.sub("-", product.lower().removeprefix("nvidia-")))


def _shortened(text: str) -> str:
    return text.strip("-.")[:SLUG_LENGTH].strip("-.") or "other"


# ------------------------------------------------------------------ pools


def _make_pool(pool_id: OfferId, every: Mapping[str, Sequence[NodeShare]], key: str) -> Pool:
    parts = every[key]
    kind = parts[0].kind
    room: Counter[int] = Counter()
    total = foreign = 0
    for part in parts:
        if not part.count.why:
            total += part.count.total
            foreign += part.foreign
            for share, count in part.room.items():
                room[share] += count
    return Pool(
        id=pool_id,
        base=kind.base,
        product=kind.product,
        resource=kind.resource,
        mechanism=kind.mechanism,
        total=total,
        room=dict(room),
        foreign=foreign,
        unknown=any(part.unknown for part in parts),
        memory_bytes=_least([part.memory_bytes for part in parts]),
        sm_count=_least([part.sm_count for part in parts]),
        replicas=max(part.kind.replicas for part in parts),
        virtual=any(part.kind.virtual for part in parts),
        doubted=any(part.kind.doubted for part in parts),
        node_labels=_node_affinity(every, key),
        nodes=tuple([part.count for part in parts]),
        rooms={part.count.node: _room_of(part) for part in parts},
    )


def _room_of(part: NodeShare) -> NodeRoom:
    """Convert the devices of one kind on a node to the form in which a pool has them.

    The total is 0 if no server can use the node now.
    """
    total = part.count.total if part.barred or not part.count.why else 0
    return NodeRoom(total, part.room, part.foreign, part.barred, part.unknown, part.count.silent)


def _node_affinity(every: Mapping[str, Sequence[NodeShare]], key: str) -> Mapping[str, tuple[str, ...]]:
    """Return the node affinity with which a pod gets a device of this pool and of no other: label -> accepted values.

    It is necessary because the same resource can be a card on one node and a MIG device or a shared card on another.
    Labels that name the cards are always required. Other labels are required if they distinguish the nodes of this
    pool. If no label does, the host names are required.

    Args:
        every: key of a pool -> its devices on each node.
        key: key of this pool.
    """
    mine = {part.kind for part in every[key]}
    resource = every[key][0].kind.resource  # all parts of one key have the same resource
    others = [part for name, found in every.items() if name != key for part in found if part.kind.resource == resource]
    rivals = {part.kind for part in others}
    lasting = (NODE_PRODUCT, GKE_ACCELERATOR, GKE_PARTITION, GKE_SHARING)
    sharing = f"{resource.removesuffix(SHARED)}.sharing-strategy"
    labels = dict.fromkeys((*lasting, sharing, HAMI_NODE))
    labels |= dict.fromkeys(sorted({label for kind in mine | rivals for label, _ in kind.marks}))
    found: dict[str, tuple[str, ...]] = {}
    for label in labels:
        own = {kind.mark(label) for kind in mine}
        apart = {kind for kind in rivals if kind.mark(label) not in own}
        if (apart or (label in lasting and any(own))) and ("" not in own or len(own) == 1):
            found[label] = tuple(sorted(own - {""}))
            rivals -= apart
    if rivals:
        hosts = {part.host for part in every[key]}
        if "" not in hosts and hosts.isdisjoint({part.host for part in others if part.kind in rivals}):
            found[HOSTNAME] = tuple(sorted(hosts))
    return found


def _least(values: Sequence[int | None]) -> int | None:
    known = [value for value in values if value is not None]
    return min(known) if known and len(known) == len(values) else None


def _make_claim_pool(ids: Mapping[str, OfferId], found: DraPool) -> Pool:
    return Pool(
        id=ids[found.template],
        base=found.base,
        product=found.product,
        resource="",
        mechanism=Mechanism.DRA,
        total=found.total,
        room={} if found.free is None else {WHOLE: found.free},
        foreign=found.foreign,
        unknown=found.free is None,
        memory_bytes=found.memory_bytes,
        sm_count=found.sm_count,
        claim_template=found.template,
        nodes=found.nodes,
        rooms={} if found.free is None else {count.node: _room_of_claims(count) for count in found.nodes},
        costs={ids[template]: cost for template, cost in found.costs.items()},
    )


def _room_of_claims(count: NodeCount) -> NodeRoom:
    return NodeRoom(0 if count.why else count.total, {WHOLE: 0 if count.why else count.free}, silent=count.silent)


# ------------------------------------------------------------------ not everything may be read


def _by_capacity(pool: Pool, capacity: Mapping[str, int]) -> Pool:
    """Count a pool by the administrator's capacity minus this hub's own pods, because other pods cannot be read.

    If the settings give no capacity for the pool, the number of free devices is not known. The total is never more than
    the nodes have.

    Args:
        capacity: id of a pool -> number of its devices for this hub, from the settings.
    """
    if pool.id not in capacity:
        return replace(pool, room={}, foreign=0, unknown=True, rooms={})
    used = sum(count.total - count.free for count in pool.nodes if not count.why)
    total = min(capacity[pool.id], pool.total)
    return replace(pool, total=total, room={WHOLE: max(0, total - used)}, foreign=0, rooms={})


def _configured(view: ClusterView, config: ClusterConfig, names: Mapping[str, str], holders: _Holders) -> PoolSurvey:
    """Count all pools by the administrator's capacity minus the visible pods, because the nodes may not be read.

    Args:
        view: the objects of the cluster.
        config: the settings, with the number of devices for each pool's id.
        names: key of each pool that existed in any earlier survey -> its id. A key describes the kind of the pool's
            devices; an id is what users and settings call the pool. The result has the same `names`.
        holders: the pods that hold devices.
    """
    why = "this hub may not read the nodes: the totals are what c.GpuCluster.capacity says"
    left_out = [LeftOut("all nodes", why)]
    pools: dict[OfferId, Pool] = {}
    for name, total in config.capacity.items():
        pool_id = _device(name)
        if pool_id is None:
            left_out.append(LeftOut(f"capacity[{name!r}]", "it counts devices: write gpu, gpu.shared or mig-1g.5gb"))
            continue
        base = pool_id.base
        resource = f"nvidia.com/{base}"
        used = sum(pod.requests.get(resource, 0) for pod in holders.pods)
        others = sum(pod.requests.get(resource, 0) for pod in holders.pods if not holders.ours(pod))
        mechanism = Mechanism.TIME_SLICING if base.endswith(SHARED) else Mechanism.MIG
        if base == "gpu":
            mechanism = Mechanism.HAMI if config.fraction_scheduler == "hami" else Mechanism.WHOLE
        room = {WHOLE: max(0, total - used)}
        pools[pool_id] = Pool(pool_id, base, "", resource, mechanism, total, room, min(others, total))
    return PoolSurvey(
        pools,
        frozenset(holders.bound),
        dict(names),
        tuple(left_out),
        configured=True,
        known=view.pods is not None,
    )


def _device(name: str) -> OfferId | None:
    """Parse the id of a whole device; None for any other text."""
    try:
        found = OfferId(name)
    except OfferIdError:
        return None
    return found if found.is_device else None
