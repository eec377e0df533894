"""What one node of a cluster gives: its kinds of devices by the names of its resources and by its labels, counted.

Free = what the node can give (allocatable) less what the pods bound to it ask for, whoever's they are. Labels: NVIDIA
k8s-device-plugin v0.20 and its GPU Feature Discovery; KAI-Scheduler v0.17; HAMi v2.10. Not here: nodes put together
to pools (``pools.py``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace

from hub_extensions.core.cluster.model import ClusterConfig, NodeFacts, PodFacts, Taint
from hub_extensions.core.cluster.placement import any_term, terms_text
from hub_extensions.core.cluster.shared_gpus import KAI_RESERVATIONS, hami_cards, kai_room
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.gpu.mig import MigProfile, MigProfileError
from hub_extensions.core.offers.pod_request import GPU_RESOURCE, GPU_TAINT, NODE_PRODUCT, Mechanism
from hub_extensions.core.reasons import Reason, explain

MIB = 2**20
MIG_RESOURCE = "nvidia.com/mig-"
PASSING_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints of the cluster's own: cordoned, not ready, under pressure, not set up yet."""
SHARED = ".shared"
MIG_STATE = "nvidia.com/mig.config.state"
NOT_HEARD_OF, NOT_READY = explain("node-silent"), explain("node-not-ready")

_SINGLE = re.compile(r"(?P<product>.+)-MIG-(?P<profile>[0-9].*)")


@dataclass(frozen=True, slots=True)
class NodeCount:
    """One node's part in a pool, for an admin: `because` says why nothing of it counts; None when it does."""

    node: str
    total: int
    free: int
    because: Reason | None = None

    @property
    def why(self) -> str:
        """The same in words; "" when it counts."""
        return self.because.message if self.because else ""

    @property
    def silent(self) -> bool:
        """Its machine does not answer."""
        return self.because in (NOT_HEARD_OF, NOT_READY)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """Something of the cluster that no offer counts, and why, for an admin; `because`: the same where it has a code."""

    what: str
    why: str
    because: Reason | None = None


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """One kind of device, as one node has it. Nodes with equal keys make one pool.

    Attributes:
        base: an offer's id without a part after ``@``. product: the node's label without its suffixes.
        label: the node's label as it is; strategy: the label that says how this resource is shared; "" without.
        replicas: over how many servers one device is shared out here; 1 when it is not.
        key: of its pool; made once, for it is asked for at each count.
    """

    base: str
    product: str
    resource: str
    mechanism: Mechanism
    label: str
    strategy: str = ""
    replicas: int = 1
    key: str = field(init=False, compare=False)

    def __post_init__(self) -> None:
        key = "|".join((self.base, self.product, self.resource, self.mechanism.value))
        object.__setattr__(self, "key", key)


@dataclass(frozen=True, slots=True)
class NodeShare:
    """What one node gives of one kind: devices, free share (thousandths) -> devices, devices that others hold.

    Attributes:
        unknown: the node is being cut anew: it is not known what it has, rather than nothing.
        barred: a server goes there only where its profile says more than the settings of all servers do; what is free
            there is counted, and `stand` says why it is not everybody's.
        closed: barred for good.
        memory_bytes, sm_count: of one device (of a shared one its part); None is not known.
    """

    kind: DeviceKind
    count: NodeCount
    room: Mapping[int, int]
    foreign: int
    unknown: bool
    memory_bytes: int | None
    sm_count: int | None
    closed: bool = False
    barred: bool = False


@dataclass(frozen=True, slots=True)
class NodeReading:
    """All of one node."""

    parts: tuple[NodeShare, ...]
    left_out: tuple[LeftOut, ...]


class NodeReadings:
    """Readings of the time before: a node whose facts and pods are the very same objects is not counted again.

    A node whose label of the product is gone is not known: its cards would be counted as whole ones, of another kind.
    One that never had it is counted as it is.
    """

    def __init__(self) -> None:
        self._config: ClusterConfig | None = None
        self._kept: dict[str, tuple[NodeFacts, Sequence[PodFacts], frozenset[str], NodeReading]] = {}
        self._labels: dict[str, Mapping[str, str]] = {}

    def read(
        self, node: NodeFacts, pods: Sequence[PodFacts], ours: frozenset[str], config: ClusterConfig
    ) -> NodeReading:
        """As `read_node`."""
        if config != self._config:
            self._config = config
            self._kept.clear()
        kept = self._kept.get(node.name)
        if kept is not None and kept[0] is node and kept[2] == ours and _same(kept[1], pods):
            return kept[3]
        if node.labels.get(NODE_PRODUCT):
            self._labels[node.name] = node.labels
        if node.labels.get(NODE_PRODUCT) or node.name not in self._labels:
            reading = read_node(node, pods, ours, config)
        else:
            reading = _unlabelled(node, self._labels[node.name], config)
        self._kept[node.name] = (node, pods, ours, reading)
        return reading

    def forget_all_but(self, nodes: Collection[str]) -> None:
        """Nodes that are gone are not kept for ever."""
        self._kept = {name: kept for name, kept in self._kept.items() if name in nodes}
        self._labels = {name: labels for name, labels in self._labels.items() if name in nodes}


def _same(before: Sequence[PodFacts], now: Sequence[PodFacts]) -> bool:
    return len(before) == len(now) and all(map(_is, before, now))


def _is(one: object, other: object) -> bool:
    return one is other


def read_node(node: NodeFacts, pods: Sequence[PodFacts], ours: Collection[str], config: ClusterConfig) -> NodeReading:
    """Count one node.

    Args:
        pods: those bound to it that are not over. ours: uids of those that are servers of this hub.
    """
    why, unknown = why_not(node, config)
    left_out = [LeftOut(f"node {node.name}", why.message, why)] if why else []
    parts = []
    for found in _kinds_of(node):
        if isinstance(found, LeftOut):
            left_out.append(found)
        elif why_none(node)[0]:
            parts.append(replace(_without(found, node, why, unknown), closed=_is_for_others(node, config)))
        else:
            part = _counted(found, node, pods, ours, config)
            parts.append(_barred(part, why, _is_for_others(node, config)) if why else part)
    return NodeReading(tuple(parts), tuple(left_out))


def _unlabelled(node: NodeFacts, before: Mapping[str, str], config: ClusterConfig) -> NodeReading:
    """What it had by its labels of before; nobody knows how many of that there are."""
    why, there = explain("node-unlabelled", label=NODE_PRODUCT), replace(node, labels={**before, **node.labels})
    kinds, closed = _kinds_of(there), _is_for_others(there, config)
    parts = (_without(kind, there, why, True) for kind in kinds if isinstance(kind, DeviceKind))
    return NodeReading(
        tuple(replace(part, closed=closed) for part in parts), (LeftOut(f"node {node.name}", why.message, why),)
    )


def _barred(part: NodeShare, why: Reason, closed: bool) -> NodeShare:
    count = replace(part.count, free=0, because=part.count.because or why)
    return replace(part, count=count, barred=True, closed=closed)


def why_not(node: NodeFacts, config: ClusterConfig) -> tuple[Reason | None, bool]:
    """Why nothing of a node can be given to everybody now (None: it can), and whether it is not known, not none."""
    why, unknown = why_none(node)
    return why or _closed(node, config), unknown


def why_none(node: NodeFacts) -> tuple[Reason | None, bool]:
    """The same where it can be given to nobody."""
    state = node.labels.get(MIG_STATE, "success")
    if state != "success":
        return explain("node-cut-anew", label=MIG_STATE, state=state), True
    if node.ready is None:
        return NOT_HEARD_OF, False
    if not node.ready:
        return NOT_READY, False
    if node.cordoned:
        return explain("node-cordoned"), False
    return None, False


def _closed(node: NodeFacts, config: ClusterConfig) -> Reason | None:
    """Why servers of this hub may not go there; None: they may."""
    for key, value in config.node_labels.items():
        if node.labels.get(key) != value:
            return explain("node-selector", label=f"{key}={value}")
    if config.node_terms is not None and not any_term(config.node_terms, node):
        return explain("node-selector", label=terms_text(config.node_terms))
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not _tolerated(taint, config):
            return explain("node-taint", taint=f"{taint.key}={taint.value}:{taint.effect}")
    return None


def _is_for_others(node: NodeFacts, config: ClusterConfig) -> bool:
    """Closed for good: not by what the cluster itself writes on a node that is cordoned or in trouble."""
    lasting = tuple(taint for taint in node.taints if not taint.key.startswith(PASSING_TAINTS))
    return bool(_closed(replace(node, taints=lasting), config))


def _tolerated(taint: Taint, config: ClusterConfig) -> bool:
    if (taint.key, taint.effect) == (GPU_TAINT, "NoSchedule"):
        return True  # every server with a GPU does
    named = (taint.key, f"{taint.key}={taint.value}")
    wanted = {*named, *(f"{name}:{taint.effect}" for name in named), "*", f"*:{taint.effect}"}
    return not wanted.isdisjoint(config.tolerated)


# ------------------------------------------------------------------ kinds of devices


def _kinds_of(node: NodeFacts) -> Iterable[DeviceKind | LeftOut]:
    label = node.labels.get(NODE_PRODUCT, "")
    if label.endswith("-MIG-INVALID"):  # the plugin advertises nothing then, or a count of 0
        yield LeftOut(f"node {node.name}", "its GPUs are not all cut the same way, which the single strategy needs")
        return
    for resource in sorted(node.allocatable):
        if not node.allocatable[resource] and not _comes_back(node, resource):
            continue
        if resource.startswith(MIG_RESOURCE):
            yield _mig(node, resource, label)
        elif resource in (GPU_RESOURCE, GPU_RESOURCE + SHARED):
            yield _gpu(node, resource, label)


def _comes_back(node: NodeFacts, resource: str) -> bool:
    """Nothing now, but its labels count some: the device plugin is away.

    Not so for cards that are all cut (they have no replicas), and for the name that was left when sharing was turned
    on or off: a kubelet keeps it, with 0, for ever.
    """
    plain = resource.removesuffix(SHARED)
    if not _number(node.labels.get(f"{plain}.count")):
        return False
    if resource == GPU_RESOURCE and node.labels.get("nvidia.com/gpu.replicas") == "0":
        return False
    if resource == plain:
        return plain + SHARED not in node.allocatable or _keeps_its_name(node, plain)
    return plain not in node.allocatable or not (node.allocatable[plain] or _keeps_its_name(node, plain))


def _keeps_its_name(node: NodeFacts, plain: str) -> bool:
    """It is not shared, or shared and not renamed."""
    shared = node.labels.get(f"{plain}.sharing-strategy", "none") != "none"
    return not shared or node.labels.get(f"{plain}.product", "").endswith("-SHARED")


def _mig(node: NodeFacts, resource: str, label: str) -> DeviceKind | LeftOut:
    """The *mixed* strategy: one resource a profile, ``.shared`` behind it where it is time-sliced."""
    plain = resource.removesuffix(SHARED)
    try:
        profile = MigProfile.parse(plain)
    except MigProfileError as error:
        return LeftOut(f"{resource} of node {node.name}", str(error))
    sharing = node.labels.get(f"{plain}.sharing-strategy", "")
    sliced = resource.endswith(SHARED) or sharing == "time-slicing"
    return DeviceKind(
        base=profile.resource + (SHARED if sliced else ""),
        product=label,
        resource=resource,
        mechanism=Mechanism.TIME_SLICING if sliced else Mechanism.MIG,
        label=label,
        strategy=sharing,
        replicas=_number(node.labels.get(f"{plain}.replicas")) or 1 if sliced else 1,
    )


def _gpu(node: NodeFacts, resource: str, label: str) -> DeviceKind | LeftOut:
    """``nvidia.com/gpu``: a card, a MIG device (*single* strategy) or a share of a card; the labels say which."""
    single = _SINGLE.fullmatch(label)
    sharing = node.labels.get("nvidia.com/gpu.sharing-strategy", "")
    shared = resource.endswith(SHARED) or label.endswith("-SHARED") or sharing in ("time-slicing", "mps")
    product = label.removesuffix("-SHARED")
    if single is not None:
        try:
            profile = MigProfile.parse(single["profile"].removesuffix("-SHARED"))
        except MigProfileError as error:
            return LeftOut(f"node {node.name}", str(error))
        base, mechanism = profile.resource, Mechanism.MIG_SINGLE
        product = single["product"]
    elif node.hami:
        return DeviceKind("gpu", product, resource, Mechanism.HAMI, label)
    else:
        base, mechanism = "gpu", Mechanism.WHOLE
    if not shared:
        return DeviceKind(base, product, resource, mechanism, label, sharing)
    by = Mechanism.MPS if sharing == "mps" else Mechanism.TIME_SLICING
    replicas = _number(node.labels.get("nvidia.com/gpu.replicas")) or 1
    return DeviceKind(base + SHARED, product, resource, by, label, sharing, replicas)


# ------------------------------------------------------------------ counting


def _without(kind: DeviceKind, node: NodeFacts, why: Reason | None, unknown: bool) -> NodeShare:
    count = NodeCount(node.name, node.allocatable[kind.resource], 0, why)
    return NodeShare(kind, count, {}, 0, unknown, _memory(node, kind), _sms(node, kind))


def _counted(
    kind: DeviceKind, node: NodeFacts, pods: Sequence[PodFacts], ours: Collection[str], config: ClusterConfig
) -> NodeShare:
    memory = _memory(node, kind)
    if kind.mechanism is Mechanism.HAMI:
        cards = hami_cards(node, pods, ours)
        if cards is None:
            return _without(kind, node, explain("node-hami"), True)
        total, room, foreign = cards
    else:
        total, room, foreign = _counted_resource(kind, node, pods, ours)
        if config.kai_queue and kind.base == "gpu":
            room = Counter(room) + Counter(kai_room(pods, memory))
    count = NodeCount(node.name, total, room.get(WHOLE, 0))
    return NodeShare(kind, count, room, foreign, False, memory, _sms(node, kind))


def _counted_resource(
    kind: DeviceKind, node: NodeFacts, pods: Sequence[PodFacts], ours: Collection[str]
) -> tuple[int, Mapping[int, int], int]:
    """Allocatable less the requests of the pods bound here."""
    total = node.allocatable[kind.resource]
    used = foreign = 0
    for pod in pods:
        asked = pod.requests.get(kind.resource, 0)
        used += asked
        if pod.uid not in ours and pod.namespace != KAI_RESERVATIONS:
            foreign += asked
    return total, {WHOLE: max(0, total - used)}, min(foreign, total)


def _memory(node: NodeFacts, kind: DeviceKind) -> int | None:
    """Bytes of one device, by the labels in MiB; of a shared one its part."""
    mib = _number(node.labels.get(f"{kind.resource.removesuffix(SHARED)}.memory"))
    return None if mib is None else mib * MIB // kind.replicas


def _sms(node: NodeFacts, kind: DeviceKind) -> int | None:
    if kind.base.endswith(SHARED):
        return None  # none of them are its own
    return _number(node.labels.get(f"{kind.resource.removesuffix(SHARED)}.multiprocessors"))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
