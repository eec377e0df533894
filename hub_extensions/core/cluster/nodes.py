"""What one node of a cluster gives: its kinds of devices by the names of its resources and by its labels, counted.

Free = what the node can give (allocatable) less what the pods bound to it ask for, whoever's they are. Labels: NVIDIA
k8s-device-plugin v0.20 and its GPU Feature Discovery; KAI-Scheduler v0.17; HAMi v2.10; GKE, EKS, AKS and Karpenter as
of 2026. Not here: nodes put together to pools (``pools.py``).
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from hub_extensions.core.cluster.model import ClusterConfig, NodeFacts, PodFacts, Taint
from hub_extensions.core.cluster.placement import any_term, terms_text
from hub_extensions.core.cluster.shared_gpus import KAI_RESERVATIONS, hami_cards, kai_room
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.gpu.mig import MigProfile, MigProfileError
from hub_extensions.core.offers.offer_id import GPU, OfferId
from hub_extensions.core.offers.pod_request import (
    GPU_RESOURCE,
    GPU_TAINT,
    NODE_PRODUCT,
    PARTS,
    Mechanism,
    is_gpu_resource,
)
from hub_extensions.core.text.reasons import Reason, explain

MIB = 2**20
MIG_RESOURCE = "nvidia.com/mig-"
PASSING_TAINTS = ("node.kubernetes.io/", "node.cloudprovider.kubernetes.io/")
"""Taints of the cluster's own: cordoned, not ready, under pressure, not set up yet."""
SHARED = ".shared"
MIG_STATE = "nvidia.com/mig.config.state"
NOT_HEARD_OF, NOT_READY = explain("node-silent"), explain("node-not-ready")

GKE_ACCELERATOR = "cloud.google.com/gke-accelerator"
GKE_SHARING = "cloud.google.com/gke-gpu-sharing-strategy"
GKE_CLIENTS = "cloud.google.com/gke-max-shared-clients-per-gpu"
GKE_PARTITION = "cloud.google.com/gke-gpu-partition-size"
PRODUCT_LABELS = (
    GKE_ACCELERATOR,
    "eks.amazonaws.com/instance-gpu-name",
    "karpenter.k8s.aws/instance-gpu-name",
    "karpenter.azure.com/sku-gpu-name",
    "k8s.amazonaws.com/accelerator",
    "gpu.nvidia.com/model",
    "gpu.nvidia.com/class",
)
"""Labels that name the cards where GPU Feature Discovery does not run: of GKE, EKS, Karpenter, CoreWeave."""
COUNT_LABELS = (
    "nvidia.com/gpu.count",
    "cloud.google.com/gke-accelerator-count",
    "eks.amazonaws.com/instance-gpu-count",
    "karpenter.k8s.aws/instance-gpu-count",
    "karpenter.azure.com/sku-gpu-count",
    "gpu.nvidia.com/count",
)
"""Labels that say how many cards a node has."""
MEMORY_LABELS = ("eks.amazonaws.com/instance-gpu-memory", "karpenter.k8s.aws/instance-gpu-memory")
"""MiB of a card, where GPU Feature Discovery does not run."""
MACHINE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
HAMI_NODE = "gpu"
"""The label, with the value ``on``, of a node whose cards HAMi shares out (HAMi v2.10)."""
HOSTNAME = "kubernetes.io/hostname"

_SINGLE = re.compile(r"(?P<product>.+)-MIG-(?P<profile>[0-9].*)")
_NAMES_CARDS = re.compile(
    r"(?:.*[/._-])?(?:gpu|accelerator|graphics)(?:[._-]?(?:type|model|product|name|class|card|kind|sku))?",
    re.IGNORECASE,
)
"""Labels of an administrator's own that name the cards: ``gpu-type``, ``example.com/accelerator``."""
_NAMES_NOTHING = re.compile(r"|true|false|yes|no|on|off|enabled|present|any|none|nvidia|gpu|cuda|[0-9]+", re.IGNORECASE)
_VIRTUAL = re.compile(
    r"GRID[ -](?!K\d)(?:.+)|(?:NVIDIA[ -])?.+-(?:\d-)?\d+(?:Q|C|CME|A|B\d?)(?:-SHARED)?", re.IGNORECASE
)
"""vGPU profiles: ``GRID-T4-8Q``, ``NVIDIA-A100-3-20C``, ``NVIDIA-A16-2B4``. GRID K1, K2 and K520 were real cards."""
_VIRTUAL_MACHINES = re.compile(
    r"g\d+f\..+|gr\d+f\..+|Standard_NV(?:6|12|18)ads_A10_v5|g4-standard-(?:6|12|24)", re.IGNORECASE
)
"""Machines that are sold with a part of a card (AWS g6f, Azure NVadsA10 v5, Google's small G4)."""
_SLICES = 7
_FOUR_SLICES = re.compile(r"\bA30\b|RTX-PRO-6000", re.IGNORECASE)
"""Cards of four compute slices; the others that can be cut have seven (NVIDIA MIG user guide)."""


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
        marks: (label, value) of what tells its nodes from others that have the same resource; those that are named
            first are demanded of every node, the others only where they tell nodes apart.
        replicas: over how many servers one device is shared out here; 1 when it is not.
        other_product: the product by other labels than NVIDIA's, which its pool was known by before.
        virtual: a hypervisor gives a part of a card to this machine.
        doubted: no label says whether the cards are shared.
        wanted_id: the id that an administrator wrote for the resource; "" without.
        key: of its pool; made once, for it is asked for at each count.
    """

    base: str
    product: str
    resource: str
    mechanism: Mechanism
    marks: tuple[tuple[str, str], ...] = ()
    replicas: int = 1
    other_product: str = ""
    virtual: bool = False
    doubted: bool = False
    wanted_id: str = ""
    key: str = field(init=False, compare=False)

    @property
    def label(self) -> str:
        """The product's label as it is."""
        return self.mark(NODE_PRODUCT)

    def mark(self, label: str) -> str:
        """Its value of a label; "" where the label is not there."""
        return dict(self.marks).get(label, "")

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
        host: the node's label of its host name; "" without.
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
    host: str = ""


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
    for found in _kinds_of(node, config.resources):
        if isinstance(found, LeftOut):
            left_out.append(found)
        elif why_none(node)[0]:
            parts.append(replace(_without(found, node, why, unknown), closed=_is_for_others(node, config)))
        elif odd := _odd_counts(node, found):
            parts.append(_without(found, node, odd, True))
            left_out.append(LeftOut(f"{found.resource} of node {node.name}", odd.message, odd))
        else:
            part = _counted(found, node, pods, ours, config)
            parts.append(_barred(part, why, _is_for_others(node, config)) if why else part)
    return NodeReading(tuple(parts), tuple(left_out))


def _unlabelled(node: NodeFacts, before: Mapping[str, str], config: ClusterConfig) -> NodeReading:
    """What it had by its labels of before; nobody knows how many of that there are."""
    why, there = explain("node-unlabelled", label=NODE_PRODUCT), replace(node, labels={**before, **node.labels})
    kinds, closed = _kinds_of(there, config.resources), _is_for_others(there, config)
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


def _kinds_of(node: NodeFacts, resources: Mapping[str, str]) -> Iterable[DeviceKind | LeftOut]:
    """The kinds of devices of one node. `resources`: names of the cluster's own -> the id of an offer."""
    if node.labels.get(NODE_PRODUCT, "").endswith("-MIG-INVALID"):  # the plugin advertises nothing then, or 0
        why = "its GPUs are not all cut the same way, or one is not cut at all, which the single strategy needs"
        yield LeftOut(f"node {node.name}", why)
        return
    yield from _old_counts(node)
    for resource in sorted(node.allocatable):
        if not _believed(node, resource) and not _comes_back(node, resource, resources):
            continue
        if resource in resources:
            yield _renamed(node, resource, OfferId(resources[resource]))
        elif resource.startswith(MIG_RESOURCE):
            yield _mig(node, resource)
        elif resource in (GPU_RESOURCE, GPU_RESOURCE + SHARED):
            yield _gpu(node, resource)
        elif _is_own_name(resource):
            why = (
                "a resource of this name is not known: c.GpuOffers.resources says which offer it is, if it is for pods"
            )
            yield LeftOut(f"{resource} of node {node.name}", why)


def _is_own_name(resource: str) -> bool:
    """It hands out GPUs under a name that NVIDIA's device plugin has from its configuration."""
    plain = resource in (GPU_RESOURCE, GPU_RESOURCE + SHARED) or resource.startswith(MIG_RESOURCE)
    return is_gpu_resource(resource) and resource not in PARTS and not plain


def own_names(nodes: Iterable[NodeFacts]) -> Mapping[str, int]:
    """Resources under names of the cluster's own that hand out GPUs: how many there are on all nodes."""
    found: Counter[str] = Counter()
    for node in nodes:
        found.update({name: count for name, count in node.allocatable.items() if count and _is_own_name(name)})
    return found


def gives_nothing(node: NodeFacts) -> Iterable[LeftOut]:
    """Why a node offers nothing though its labels count cards, where no other reason is known."""
    cards = _cards(node)
    if cards and node.labels.get("nvidia.com/gpu.replicas") == "0":
        why = (
            "MIG is switched on and nothing is cut: nobody can use its cards until they are cut (label "
            "nvidia.com/mig.config, or nvidia-smi mig -cgi … -C), or MIG is switched off"
        )
        yield LeftOut(f"node {node.name}", why)
    elif cards:
        why = f"its labels count {cards} GPUs, and it gives none: see its device plugin"
        yield LeftOut(f"node {node.name}", why)


# ------------------------------------------------------------------ counts that can be


def _cards(node: NodeFacts) -> int | None:
    """How many cards its labels count; None: none does. Under the single strategy these are MIG devices."""
    return next((count for label in COUNT_LABELS if (count := _number(node.labels.get(label))) is not None), None)


def _is_single(node: NodeFacts) -> bool:
    return _SINGLE.fullmatch(node.labels.get(NODE_PRODUCT, "")) is not None


def _per_card(node: NodeFacts) -> int:
    return 4 if _FOUR_SLICES.search(node.labels.get(NODE_PRODUCT, "")) else _SLICES


def _cut(node: NodeFacts) -> dict[str, tuple[MigProfile, int]]:
    """MIG devices of the node by their resource: profile, and how many of them; a shared one counts once."""
    found = {}
    for resource, count in node.allocatable.items():
        if resource.startswith(MIG_RESOURCE) and count:
            plain = resource.removesuffix(SHARED)
            try:
                profile = MigProfile.parse(plain)
            except MigProfileError:
                continue
            places = max(_number(node.labels.get(f"{plain}.replicas")) or 1, 1)
            found[resource] = profile, ceil(count / places)
    return found


def _slices(cut: Iterable[tuple[MigProfile, int]]) -> int:
    return sum(profile.slices * count for profile, count in cut)


def _stale_pieces(node: NodeFacts) -> frozenset[str]:
    """MIG resources of a layout of before: they are too many together, and the labels count the others only."""
    cards, cut = _cards(node), _cut(node)
    if cards is None or _is_single(node) or _slices(cut.values()) <= cards * _per_card(node):
        return frozenset()
    counted = {each for each in cut if _number(node.labels.get(f"{each.removesuffix(SHARED)}.count"))}
    return frozenset(cut.keys() - counted) if counted else frozenset()


def _room_for_whole(node: NodeFacts) -> int | None:
    """How many whole cards the pieces and places of the node's other resources leave; None: nothing says that."""
    if _is_single(node):
        return 0 if _cut(node) else None
    cards = _cards(node)
    pieces = [found for resource, found in _cut(node).items() if resource not in _stale_pieces(node)]
    if node.labels.get("nvidia.com/gpu.replicas") == "0" and not _sharing(node)[0]:  # MIG is on on every card
        return 0
    if cards is None:
        return None
    per_card = _per_card(node)
    cut = max([ceil(_slices(pieces) / per_card), *(ceil(n / max(1, per_card // p.slices)) for p, n in pieces)])
    renamed = own_names([node]).values()
    places = max(_number(node.labels.get("nvidia.com/gpu.replicas")) or 1, 1)
    whole = node.allocatable.get(GPU_RESOURCE, 0)  # with none it is not an old count beside the shared ones
    shared = ceil(node.allocatable.get(GPU_RESOURCE + SHARED, 0) / places) if whole else 0
    return max(0, cards - cut - sum(renamed) - shared) if pieces or renamed or shared else None


def _believed(node: NodeFacts, resource: str) -> int:
    """How many of a resource there can be: a kubelet keeps the count of a resource that its plugin has given up."""
    count = node.allocatable[resource]
    if resource in _stale_pieces(node):
        return 0
    room = _room_for_whole(node) if resource == GPU_RESOURCE and count else None
    if room is None:
        return count
    places = max(_number(node.labels.get("nvidia.com/gpu.replicas")) or 1, 1)
    return min(count, room * places)


def _old_counts(node: NodeFacts) -> Iterable[LeftOut]:
    """What is advertised, and cannot be there."""
    pieces = [(profile, count) for name, (profile, count) in _cut(node).items() if name not in _stale_pieces(node)]
    cut = " and ".join(f"{count} x {profile.name}" for profile, count in pieces)
    for resource in sorted(node.allocatable):
        lost = node.allocatable[resource] - _believed(node, resource)
        if lost <= 0:
            continue
        what = f"{lost} of {node.allocatable[resource]} {resource} of node {node.name}"
        if resource != GPU_RESOURCE:
            yield LeftOut(what, f"its labels do not count them, and its cards hold no more than {cut}: an old count")
        elif _is_single(node):
            yield LeftOut(
                what, f"its label {NODE_PRODUCT} is of the single strategy, and it has {cut} by the mixed one"
            )
        else:
            there = f"its cards are cut ({cut})" if cut else "MIG is on on its cards, or they have another name"
            yield LeftOut(what, f"{there}: an old count, which its kubelet keeps until its device plugin starts anew")


def _odd_counts(node: NodeFacts, kind: DeviceKind) -> Reason | None:
    """Several kinds of MIG devices that are too many together, and nothing says which of them are there."""
    cards, cut = _cards(node), _cut(node)
    cut = {name: found for name, found in cut.items() if name not in _stale_pieces(node)}
    if kind.resource not in cut or len(cut) < 2 or cards is None or _is_single(node):
        return None
    if _slices(cut.values()) <= cards * _per_card(node):
        return None
    counts = ", ".join(f"{count} x {profile.name}" for profile, count in cut.values())
    return explain("node-counts", counts=counts, cards=cards)


def _comes_back(node: NodeFacts, resource: str, resources: Mapping[str, str]) -> bool:
    """Nothing now, but its labels count some: the device plugin is away.

    Not so for cards that are all cut or that have another name now, for pieces that the labels of another strategy
    count, and for the name that was left when sharing was turned on or off: a kubelet keeps it, with 0, for ever.
    """
    plain = resource.removesuffix(SHARED)
    if node.allocatable[resource]:
        return False  # an old count
    if resource in resources and not resource.startswith(MIG_RESOURCE):
        return bool(_cards(node)) and not any(node.allocatable.values())
    if not _number(node.labels.get(f"{plain}.count")):
        return False
    if resource == GPU_RESOURCE and (_room_for_whole(node) == 0 or any(name in resources for name in node.allocatable)):
        return False
    if resource.startswith(MIG_RESOURCE) and (
        _is_single(node) or node.allocatable.get(GPU_RESOURCE, 0) >= (_cards(node) or 1)
    ):
        return False
    if resource == plain:
        return plain + SHARED not in node.allocatable or _keeps_its_name(node, plain)
    return plain not in node.allocatable or not (node.allocatable[plain] or _keeps_its_name(node, plain))


def _keeps_its_name(node: NodeFacts, plain: str) -> bool:
    """It is not shared, or shared and not renamed."""
    shared = node.labels.get(f"{plain}.sharing-strategy", "none") != "none"
    return not shared or node.labels.get(f"{plain}.product", "").endswith("-SHARED")


# ------------------------------------------------------------------ what a resource is


def _other_product(node: NodeFacts) -> tuple[str, str, str]:
    """(product, label, value) by labels that others than NVIDIA write; three times "" without any."""
    own = sorted(name for name in node.labels if _NAMES_CARDS.fullmatch(name) and not name.startswith("nvidia.com/"))
    for label in (*PRODUCT_LABELS, *own):
        value = node.labels.get(label, "")
        if not _NAMES_NOTHING.fullmatch(value):
            return _product_name(value), label, value
    for label in MACHINE_LABELS:
        if value := node.labels.get(label, ""):
            return _machine_family(value), label, value
    return "", "", ""


def _product_name(value: str) -> str:
    """A cloud's name for a card, as NVIDIA writes it: ``nvidia-tesla-t4`` -> ``Tesla-T4``, ``l4`` -> ``NVIDIA-L4``."""
    plain = re.sub(r"^nvidia[-_. ]", "", value, flags=re.IGNORECASE).replace("_", "-").replace(" ", "-")
    if plain.lower().startswith("tesla-"):
        return "Tesla-" + plain[6:].upper()
    return "NVIDIA-" + (plain.upper() if plain == plain.lower() else plain)


def _machine_family(value: str) -> str:
    """What machines with the same cards have in common: ``g5`` of ``g5.2xlarge``, ``NCas_T4_v3`` of ``NC8as_T4_v3``.

    ``VM.GPU.A10`` of ``VM.GPU.A10.2`` at Oracle. A machine that is sold with a part of a card is of its own kind, and
    so is one of another maker: what the first word of its name says is not known.
    """
    if _VIRTUAL_MACHINES.fullmatch(value):
        return value
    azure = re.fullmatch(r"(Standard_[A-Z]+)\d+(?:-\d+)?([a-z]*_.*)", value)
    if azure is not None:
        return azure[1] + azure[2]
    oracle = re.fullmatch(r"((?:VM|BM)\.GPU.*)\.\d+", value)
    google = re.fullmatch(r"([a-z]\d+[a-z]*-[a-z]+)-\d+g?", value)
    amazon = re.fullmatch(r"([a-z]+\d[a-z0-9-]*)\.[a-z0-9-]+", value)
    found = oracle or google or amazon
    return value if found is None else found[1]


def _marks(node: NodeFacts, resource: str) -> tuple[tuple[str, str], ...]:
    """What tells this node from others that have the resource, by its labels."""
    _, label, value = _other_product(node)
    found = {name: node.labels.get(name, "") for name in (NODE_PRODUCT, GKE_ACCELERATOR, GKE_PARTITION, GKE_SHARING)}
    sharing = f"{resource.removesuffix(SHARED)}.sharing-strategy"
    found |= {sharing: node.labels.get(sharing, ""), label: value, HAMI_NODE: "on" if node.hami else ""}
    return tuple((name, text) for name, text in found.items() if name and text)


def _renamed(node: NodeFacts, resource: str, offer: OfferId) -> DeviceKind | LeftOut:
    """A resource of the cluster's own name, as the administrator maps it."""
    found = _mig(node, resource, offer.mig) if offer.mig is not None else _gpu(node, resource)
    if isinstance(found, LeftOut):
        return found
    if offer.base.endswith(SHARED) and not found.base.endswith(SHARED):
        found = replace(found, base=offer.base, mechanism=Mechanism.TIME_SLICING, doubted=False)
    return replace(found, wanted_id=str(offer) if offer.base == found.base else "")


def _mig(node: NodeFacts, resource: str, mapped: MigProfile | None = None) -> DeviceKind | LeftOut:
    """The *mixed* strategy: one resource a profile, ``.shared`` behind it where it is time-sliced."""
    plain = resource.removesuffix(SHARED)
    try:
        profile = mapped or MigProfile.parse(plain)
    except MigProfileError as error:
        return LeftOut(f"{resource} of node {node.name}", str(error))
    sharing = node.labels.get(f"{plain}.sharing-strategy", "")
    replicas = _number(node.labels.get(f"{plain}.replicas")) or 1
    places = _places(node, resource, _most_pieces(node, plain, profile), replicas)
    sliced = resource.endswith(SHARED) or sharing == "time-slicing" or places > replicas
    own, *_ = _other_product(node)
    label = node.labels.get(NODE_PRODUCT, "")
    single = _SINGLE.fullmatch(label)  # written by hand: the resource says that this is the mixed strategy
    return DeviceKind(
        base=profile.resource + (SHARED if sliced else ""),
        product=(single["product"] if single else label) or own,
        resource=resource,
        mechanism=Mechanism.TIME_SLICING if sliced else Mechanism.MIG,
        marks=_marks(node, resource),
        replicas=places if sliced else 1,
        other_product=own,
    )


def _most_pieces(node: NodeFacts, plain: str, profile: MigProfile) -> int | None:
    """How many devices of a profile there can be; None is not known."""
    counted = _number(node.labels.get(f"{plain}.count"))
    if counted:
        return counted
    cards = None if _is_single(node) else _cards(node)
    return None if cards is None else cards * max(1, _per_card(node) // profile.slices)


def _places(node: NodeFacts, resource: str, devices: int | None, replicas: int) -> int:
    """Over how many servers a device is shared out: more than the labels say where there are more than devices.

    GPU Feature Discovery does not see the device plugin's configuration where they are installed apart
    (NVIDIA/k8s-device-plugin#732).
    """
    if not devices or node.allocatable[resource] <= devices * max(replicas, 1):
        return replicas
    return ceil(node.allocatable[resource] / devices)


def _gpu(node: NodeFacts, resource: str) -> DeviceKind | LeftOut:
    """``nvidia.com/gpu``: a card, a MIG device (*single* strategy) or a share of a card; the labels say which."""
    label = node.labels.get(NODE_PRODUCT, "")
    own, *_ = _other_product(node)
    single, partition = _SINGLE.fullmatch(label), node.labels.get(GKE_PARTITION, "")
    product = (single["product"] if single else label.removesuffix("-SHARED")) or own
    kind = DeviceKind(GPU, product, resource, Mechanism.WHOLE, _marks(node, resource), other_product=own)
    cards = _cards(node)
    if single is not None or partition:
        try:
            profile = MigProfile.parse(single["profile"].removesuffix("-SHARED") if single else partition)
        except MigProfileError as error:
            return LeftOut(f"node {node.name}", str(error))
        kind = replace(kind, base=profile.resource, mechanism=Mechanism.MIG_SINGLE)
        if single is None and cards is not None:
            cards *= max(1, _SLICES // profile.slices)
    elif node.hami:
        return replace(kind, mechanism=Mechanism.HAMI)
    sharing, replicas = _sharing(node)
    places = _places(node, resource, cards, replicas)
    is_more = bool(cards) and node.allocatable[resource] > (cards or 0)
    if resource.endswith(SHARED) or label.endswith("-SHARED") or sharing or is_more:
        by = Mechanism.MPS if sharing == "mps" else Mechanism.TIME_SLICING
        return replace(kind, base=kind.base + SHARED, mechanism=by, replicas=places)
    virtual, told = _is_virtual(node), bool(label or partition or cards or GKE_ACCELERATOR in node.labels)
    doubted = not told or replicas > 1 or (not cards and any(name in node.labels for name in COUNT_LABELS))
    return replace(kind, virtual=virtual, doubted=not virtual and doubted)


def _sharing(node: NodeFacts) -> tuple[str, int]:
    """(``time-slicing``, ``mps`` or "", over how many servers) as the node's labels say."""
    gke, clients = node.labels.get(GKE_SHARING, ""), _number(node.labels.get(GKE_CLIENTS))
    if gke and clients != 1:
        return "mps" if gke == "mps" else "time-slicing", clients or 1
    sharing = node.labels.get("nvidia.com/gpu.sharing-strategy", "")
    return sharing if sharing in ("time-slicing", "mps") else "", _number(
        node.labels.get("nvidia.com/gpu.replicas")
    ) or 1


def _is_virtual(node: NodeFacts) -> bool:
    """A hypervisor gives the machine a part of a card."""
    labels = node.labels
    return (
        labels.get("nvidia.com/vgpu.present") == "true"
        or any(name.startswith("nvidia.com/vgpu.host-driver") and text for name, text in labels.items())
        or _VIRTUAL.fullmatch(labels.get(NODE_PRODUCT, "")) is not None
        or any(_VIRTUAL_MACHINES.fullmatch(labels.get(name, "")) for name in MACHINE_LABELS)
    )


# ------------------------------------------------------------------ counting


def _without(kind: DeviceKind, node: NodeFacts, why: Reason | None, unknown: bool) -> NodeShare:
    count = NodeCount(node.name, _believed(node, kind.resource), 0, why)
    host = node.labels.get(HOSTNAME, "")
    return NodeShare(kind, count, {}, 0, unknown, _memory(node, kind), _sms(node, kind), host=host)


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
    host = node.labels.get(HOSTNAME, "")
    return NodeShare(kind, count, room, foreign, False, memory, _sms(node, kind), host=host)


def _counted_resource(
    kind: DeviceKind, node: NodeFacts, pods: Sequence[PodFacts], ours: Collection[str]
) -> tuple[int, Mapping[int, int], int]:
    """Allocatable less the requests of the pods bound here."""
    total = _believed(node, kind.resource)
    used = foreign = 0
    for pod in pods:
        asked = pod.requests.get(kind.resource, 0)
        used += asked
        if pod.uid not in ours and pod.namespace != KAI_RESERVATIONS:
            foreign += asked
    return total, {WHOLE: max(0, total - used)}, min(foreign, total)


def _memory(node: NodeFacts, kind: DeviceKind) -> int | None:
    """Bytes of one device, by the labels in MiB; of a shared one its part.

    A card that shares its memory with the processor (GB10, Grace) has 0 there: that is not known.
    """
    labels = [f"{kind.resource.removesuffix(SHARED)}.memory"]
    if kind.base.removesuffix(SHARED) == GPU:
        labels += [f"{GPU_RESOURCE}.memory", *MEMORY_LABELS]
    mib = next((found for label in labels if (found := _number(node.labels.get(label)))), None)
    return None if mib is None else mib * MIB // kind.replicas


def _sms(node: NodeFacts, kind: DeviceKind) -> int | None:
    if kind.base.endswith(SHARED):
        return None  # none of them are its own
    return _number(node.labels.get(f"{kind.resource.removesuffix(SHARED)}.multiprocessors"))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
