"""Count the GPUs of one node: of which kind they are, by its resources and labels, and how many are free.

A device is whatever one pod gets: a whole card, a MIG device, or a part of a shared card. The devices of one kind on
all nodes form a pool, for which users wait in one line.

Free devices are the allocatable ones minus the requests of all pods bound to the node. The labels are those of NVIDIA
k8s-device-plugin v0.20 with GPU Feature Discovery, KAI-Scheduler v0.17, HAMi v2.10, and GKE, EKS, AKS and Karpenter as
of 2026.
"""

from __future__ import annotations

import operator
import re
from collections import Counter
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from math import ceil

from hub_extensions.core.cluster.model import ClusterConfig, NodeFacts, PodFacts, Taint
from hub_extensions.core.cluster.placement import matches_any_term, terms_text
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
"""Prefixes of temporary taints that the cluster sets itself: cordoned, not ready, under pressure, not initialized."""
SHARED = ".shared"
MIG_STATE, MIG_CONFIG = "nvidia.com/mig.config.state", "nvidia.com/mig.config"
"""Labels of the MIG manager: what became of the layout, and the layout that an administrator wants."""
NO_MIG = "all-disabled"
NODE_SILENT, NOT_READY = explain("node-silent"), explain("node-not-ready")

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
"""Labels that name the cards without GPU Feature Discovery, on GKE, EKS, Karpenter and CoreWeave."""
COUNT_LABELS = (
    "nvidia.com/gpu.count",
    "cloud.google.com/gke-accelerator-count",
    "eks.amazonaws.com/instance-gpu-count",
    "karpenter.k8s.aws/instance-gpu-count",
    "karpenter.azure.com/sku-gpu-count",
    "gpu.nvidia.com/count",
)
"""Labels with the number of cards of a node."""
MEMORY_LABELS = ("eks.amazonaws.com/instance-gpu-memory", "karpenter.k8s.aws/instance-gpu-memory")
"""Labels with the memory of a card in MiB, without GPU Feature Discovery."""
MACHINE_LABELS = ("node.kubernetes.io/instance-type", "beta.kubernetes.io/instance-type")
HAMI_NODE = "gpu"
"""Label with the value ``on`` of a node whose cards are shared by HAMi (v2.10)."""
HOSTNAME = "kubernetes.io/hostname"

_SINGLE = re.compile(r"(?P<product>.+)-MIG-(?P<profile>[0-9].*)")
_NAMES_CARDS = re.compile(
    r"(?:.*[/._-])?(?:gpu|accelerator|graphics)(?:[._-]?(?:type|model|product|name|class|card|kind|sku))?",
    re.IGNORECASE,
)
"""An administrator's own labels that name the cards, such as ``gpu-type`` or ``example.com/accelerator``."""
_NAMES_NOTHING = re.compile(r"|true|false|yes|no|on|off|enabled|present|any|none|nvidia|gpu|cuda|[0-9]+", re.IGNORECASE)
_VIRTUAL = re.compile(
    r"GRID[ -](?!K\d)(?:.+)|(?:NVIDIA[ -])?.+-(?:\d-)?\d+(?:Q|C|CME|A|B\d?)(?:-SHARED)?", re.IGNORECASE
)
"""vGPU profiles: ``GRID-T4-8Q``, ``NVIDIA-A100-3-20C``, ``NVIDIA-A16-2B4``. GRID K1, K2 and K520 were real cards."""
_VIRTUAL_MACHINES = re.compile(
    r"g\d+f\..+|gr\d+f\..+|Standard_NV(?:6|12|18)ads_A10_v5|g4-standard-(?:6|12|24)", re.IGNORECASE
)
"""Machine types with a part of a card (AWS g6f, Azure NVadsA10 v5, Google's small G4)."""
_SLICES = 7
_FOUR_SLICES = re.compile(r"\bA30\b|RTX-PRO-6000", re.IGNORECASE)
"""Cards with four compute slices. All others with MIG have seven (NVIDIA MIG user guide)."""


@dataclass(frozen=True, slots=True)
class NodeCount:
    """The number of devices of one pool (all devices of one kind) on a node, for administrators.

    Attributes:
        because: why these devices are not given to servers; None if they are.
    """

    node: str
    total: int
    free: int
    because: Reason | None = None

    @property
    def why(self) -> str:
        """Why these devices are not given to servers, in English (`because`); "" if they are given."""
        return self.because.message if self.because else ""

    @property
    def silent(self) -> bool:
        """Whether the devices are not given to servers because the node does not answer, or is not ready."""
        return self.because in (NODE_SILENT, NOT_READY)


@dataclass(frozen=True, slots=True)
class LeftOut:
    """A node or resource whose devices are not offered, and why, for administrators.

    Attributes:
        what: name of the node or resource.
        why: the reason as a sentence.
        because: `why` as a reason with a code; None if `why` lacks a code.
    """

    what: str
    why: str
    because: Reason | None = None


@dataclass(frozen=True, slots=True)
class DeviceKind:
    """A kind of device on a node. Devices with equal keys on all nodes form one pool.

    Attributes:
        base: an offer's id without ``@`` and the card.
        product: the node's product label without its suffixes.
        resource: the extended resource that a pod requests.
        mechanism: how the cluster assigns the devices.
        marks: (label, value) pairs of the node, which can distinguish the node from nodes that have other cards under
            the same resource name.
        replicas: number of pods that share a device; 1 if it is not shared.
        other_product: the product by other labels than NVIDIA's; "" without such labels. The pool has its key from
            these labels if it was first seen before the node got NVIDIA's.
        virtual: whether the node has only a part of a card from a hypervisor.
        doubted: whether the labels leave open if the cards are shared.
        wanted_id: the offer's id that the administrator has chosen for the resource; "" without such a setting.
        key: a text of base, product, resource and mechanism that identifies the pool of such devices.
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
        """The node's value of NVIDIA's product label for these devices; "" if the node lacks it."""
        return self.mark(NODE_PRODUCT)

    def mark(self, label: str) -> str:
        """Return the node's value of a label that `marks` contains; "" if `marks` does not contain the label."""
        return dict(self.marks).get(label, "")

    def __post_init__(self) -> None:
        key = "|".join((self.base, self.product, self.resource, self.mechanism.value))
        object.__setattr__(self, "key", key)


@dataclass(frozen=True, slots=True)
class NodeShare:
    """The devices of one kind on one node.

    Attributes:
        kind: the kind of device.
        count: the number of all and of free devices, for administrators.
        room: free share of a device in thousandths -> number of devices with that much free; 1000 is a free device.
        foreign: number of devices held by pods that this hub did not start.
        unknown: True if the number of devices is not known, because MIG is being reconfigured; this does not mean zero.
        memory_bytes, sm_count: size of one device, or of a pod's part of a shared device; None if not known.
        closed: True if the node is barred permanently, and not only by a taint that the cluster itself sets for some
            time.
        barred: True if servers without tolerations or selectors of their own cannot use the node. Its free devices are
            counted in `room`, and `count` has the reason.
        host: the node's host name label; "" without one.
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
    """The result of counting the devices of one node.

    Attributes:
        parts: the devices, by kind.
        left_out: the resources whose devices are not offered, with the reasons.
    """

    parts: tuple[NodeShare, ...]
    left_out: tuple[LeftOut, ...]


class NodeReadings:
    """A cache of the counted devices of all nodes. A node is counted again only if it or one of its pods has changed.

    If a node has lost its product label, the number of its devices counts as not known. Otherwise its cards would
    become whole cards of another kind. A node that never had the label is counted normally.
    """

    def __init__(self) -> None:
        self._config: ClusterConfig | None = None
        self._kept: dict[str, tuple[NodeFacts, Sequence[PodFacts], frozenset[str], NodeReading]] = {}
        self._labels: dict[str, Mapping[str, str]] = {}

    def read(
        self, node: NodeFacts, pods: Sequence[PodFacts], ours: frozenset[str], config: ClusterConfig
    ) -> NodeReading:
        """Return the devices of a node: from the cache if nothing has changed, otherwise from `read_node`.

        Args:
            pods: pods that are bound to the node and have not ended.
            ours: uids of the pods that are servers of this hub.
        """
        if config != self._config:
            self._config = config
            self._kept.clear()
        kept = self._kept.get(node.name)
        if kept is not None and kept[0] is node and kept[2] == ours and _are_identical(kept[1], pods):
            return kept[3]
        if node.labels.get(NODE_PRODUCT):
            self._labels[node.name] = node.labels
        if node.labels.get(NODE_PRODUCT) or node.name not in self._labels:
            reading = read_node(node, pods, ours, config)
        else:
            reading = _unlabelled(node, self._labels[node.name], config)
        self._kept[node.name] = (node, pods, ours, reading)
        return reading

    def forget_other_nodes(self, nodes: Collection[str]) -> None:
        """Remove all nodes except these from the cache of counted devices."""
        self._kept = {name: kept for name, kept in self._kept.items() if name in nodes}
        self._labels = {name: labels for name, labels in self._labels.items() if name in nodes}


def _are_identical(before: Sequence[PodFacts], now: Sequence[PodFacts]) -> bool:
    return len(before) == len(now) and all(map(operator.is_, before, now))


def read_node(node: NodeFacts, pods: Sequence[PodFacts], ours: Collection[str], config: ClusterConfig) -> NodeReading:
    """Count the devices of a node.

    Args:
        pods: pods that are bound to the node and have not ended.
        ours: uids of the pods that are servers of this hub.
    """
    why, unknown = reason_not_for_all(node, config)
    left_out = [LeftOut(f"node {node.name}", why.message, why)] if why else []
    parts = []
    for found in _kinds_of(node, config.resources):
        if isinstance(found, LeftOut):
            left_out.append(found)
        elif reason_for_none(node)[0]:
            parts.append(replace(_uncounted_share(found, node, why, unknown), closed=_is_closed_for_good(node, config)))
        elif odd := _inconsistent_counts(node, found):
            parts.append(_uncounted_share(found, node, odd, True))
            left_out.append(LeftOut(f"{found.resource} of node {node.name}", odd.message, odd))
        else:
            part = _counted(found, node, pods, ours, config)
            parts.append(_barred(part, why, _is_closed_for_good(node, config)) if why else part)
    wanted = node.labels.get(MIG_CONFIG) or NO_MIG
    if parts and wanted != NO_MIG and not node.labels.get(MIG_STATE):
        remark = explain("node-cut-unheard", name=MIG_CONFIG, wanted=wanted, label=MIG_STATE)
        left_out.append(LeftOut(f"the layout of node {node.name}", remark.message, remark))
    return NodeReading(tuple(parts), tuple(left_out))


def _unlabelled(node: NodeFacts, before: Mapping[str, str], config: ClusterConfig) -> NodeReading:
    """Return the devices of a node that has lost its product label.

    They are of the kinds that the node had before, and their number counts as not known.

    Args:
        before: the labels of the node from the time when it still had its product label.
    """
    why, there = explain("node-unlabelled", label=NODE_PRODUCT), replace(node, labels={**before, **node.labels})
    kinds, closed = _kinds_of(there, config.resources), _is_closed_for_good(there, config)
    parts = (_uncounted_share(kind, there, why, True) for kind in kinds if isinstance(kind, DeviceKind))
    return NodeReading(
        tuple(replace(part, closed=closed) for part in parts), (LeftOut(f"node {node.name}", why.message, why),)
    )


def _barred(part: NodeShare, why: Reason, closed: bool) -> NodeShare:
    count = replace(part.count, free=0, because=part.count.because or why)
    return replace(part, count=count, barred=True, closed=closed)


def reason_not_for_all(node: NodeFacts, config: ClusterConfig) -> tuple[Reason | None, bool]:
    """Return why some or all servers cannot use a node now, and whether the number of its devices is unknown.

    The reason is None if all servers can use the node.
    """
    why, unknown = reason_for_none(node)
    return why or _reason_closed(node, config), unknown


def reason_for_none(node: NodeFacts) -> tuple[Reason | None, bool]:
    """Return why no server at all can use a node now, and whether the number of its devices is unknown.

    The reason is None if at least some servers can use the node.
    """
    state = node.labels.get(MIG_STATE, "")
    if state == "failed":
        return explain(
            "node-cut-failed", label=MIG_STATE, wanted=node.labels.get(MIG_CONFIG, "?"), name=MIG_CONFIG
        ), False
    if state in ("pending", "rebooting"):
        return explain("node-cut-anew", label=MIG_STATE, state=state), True
    if state not in ("success", ""):
        return explain("node-cut-state", label=MIG_STATE, state=state), True
    if node.ready is None:
        return NODE_SILENT, False
    if not node.ready:
        return NOT_READY, False
    if node.cordoned:
        return explain("node-cordoned"), False
    return None, False


def _reason_closed(node: NodeFacts, config: ClusterConfig) -> Reason | None:
    """Return why pods with the servers' configured selectors and tolerations cannot use a node; None if they can."""
    for key, value in config.node_labels.items():
        if node.labels.get(key) != value:
            return explain("node-selector", label=f"{key}={value}")
    if config.node_terms is not None and not matches_any_term(config.node_terms, node):
        return explain("node-selector", label=terms_text(config.node_terms))
    for taint in node.taints:
        if taint.effect in ("NoSchedule", "NoExecute") and not _tolerated(taint, config):
            return explain("node-taint", taint=f"{taint.key}={taint.value}:{taint.effect}")
    return None


def _is_closed_for_good(node: NodeFacts, config: ClusterConfig) -> bool:
    """Return whether a node is closed permanently. Taints that the cluster itself sets for some time are ignored."""
    lasting = tuple(taint for taint in node.taints if not taint.key.startswith(PASSING_TAINTS))
    return bool(_reason_closed(replace(node, taints=lasting), config))


def _tolerated(taint: Taint, config: ClusterConfig) -> bool:
    if (taint.key, taint.effect) == (GPU_TAINT, "NoSchedule"):
        return True  # every pod with a GPU tolerates it
    named = (taint.key, f"{taint.key}={taint.value}")
    wanted = {*named, *(f"{name}:{taint.effect}" for name in named), "*", f"*:{taint.effect}"}
    return not wanted.isdisjoint(config.tolerated)


# ------------------------------------------------------------------ kinds of devices


def _kinds_of(node: NodeFacts, resources: Mapping[str, str]) -> Iterable[DeviceKind | LeftOut]:
    """Yield the kinds of devices of a node, and a `LeftOut` for each resource that is not counted.

    Args:
        resources: renamed resource -> offer id, from the settings.
    """
    if node.labels.get(NODE_PRODUCT, "").endswith("-MIG-INVALID"):  # the plugin then advertises no devices
        why = "its GPUs are not all cut the same way, or one is not cut at all, which the single strategy needs"
        yield LeftOut(f"node {node.name}", why)
        return
    yield from _outdated_counts(node)
    for resource in sorted(node.allocatable):
        if not _plausible_count(node, resource) and not _is_plugin_away(node, resource, resources):
            continue
        if resource in resources:
            yield _renamed(node, resource, OfferId(resources[resource]))
        elif resource.startswith(MIG_RESOURCE):
            yield _mig(node, resource)
        elif resource in (GPU_RESOURCE, GPU_RESOURCE + SHARED):
            yield _gpu(node, resource)
        elif _is_renamed(resource):
            why = (
                "a resource of this name is not known: c.GpuOffers.resources says which offer it is, if it is for pods"
            )
            yield LeftOut(f"{resource} of node {node.name}", why)


def _is_renamed(resource: str) -> bool:
    """Return whether a resource gives GPUs under a name that the device plugin's configuration has changed."""
    plain = resource in (GPU_RESOURCE, GPU_RESOURCE + SHARED) or resource.startswith(MIG_RESOURCE)
    return is_gpu_resource(resource) and resource not in PARTS and not plain


def renamed_resources(nodes: Iterable[NodeFacts]) -> Mapping[str, int]:
    """Return resource -> number of its devices on all nodes, for the renamed GPU resources.

    A resource is renamed if the device plugin is configured to give it another name than its usual one.
    """
    found: Counter[str] = Counter()
    for node in nodes:
        found.update({name: count for name, count in node.allocatable.items() if count and _is_renamed(name)})
    return found


def explain_no_devices(node: NodeFacts) -> Iterable[LeftOut]:
    """Yield why a node offers no GPUs although its labels count cards. Call it only if no other reason is known."""
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
    """Return the node's number of cards by its labels; None without such a label.

    With the device plugin's *single* strategy, this is the number of MIG devices.
    """
    return next((count for label in COUNT_LABELS if (count := _number(node.labels.get(label))) is not None), None)


def _is_single(node: NodeFacts) -> bool:
    return _SINGLE.fullmatch(node.labels.get(NODE_PRODUCT, "")) is not None


def _slices_per_card(node: NodeFacts) -> int:
    return 4 if _FOUR_SLICES.search(node.labels.get(NODE_PRODUCT, "")) else _SLICES


def _mig_devices(node: NodeFacts) -> dict[str, tuple[MigProfile, int]]:
    """Return MIG resource -> (profile, number of its MIG devices on the node). A shared device counts once."""
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


def _outdated_resources(node: NodeFacts) -> frozenset[str]:
    """Return the MIG resources that a node still counts from an earlier layout of its cards.

    There are some if the MIG devices of all resources together do not fit on the node's cards. GPU Feature Discovery
    writes a label for each existing resource, so the resources without such a label are outdated.
    """
    cards, cut = _cards(node), _mig_devices(node)
    if cards is None or _is_single(node) or _slices(cut.values()) <= cards * _slices_per_card(node):
        return frozenset()
    counted = {each for each in cut if _number(node.labels.get(f"{each.removesuffix(SHARED)}.count"))}
    return frozenset(cut.keys() - counted) if counted else frozenset()


def _possible_whole_cards(node: NodeFacts) -> int | None:
    """Return how many whole cards can exist beside the node's MIG devices and other resources; None if not known."""
    if _is_single(node):
        return 0 if _mig_devices(node) else None
    cards = _cards(node)
    pieces = [found for resource, found in _mig_devices(node).items() if resource not in _outdated_resources(node)]
    if node.labels.get("nvidia.com/gpu.replicas") == "0" and not _sharing(node)[0]:  # MIG is enabled on every card
        return 0
    if cards is None:
        return None
    per_card = _slices_per_card(node)
    cut = max([ceil(_slices(pieces) / per_card), *(ceil(n / max(1, per_card // p.slices)) for p, n in pieces)])
    renamed = renamed_resources([node]).values()
    places = max(_number(node.labels.get("nvidia.com/gpu.replicas")) or 1, 1)
    whole = node.allocatable.get(GPU_RESOURCE, 0)  # if it is 0, it is not an outdated count beside the shared resource
    shared = ceil(node.allocatable.get(GPU_RESOURCE + SHARED, 0) / places) if whole else 0
    return max(0, cards - cut - sum(renamed) - shared) if pieces or renamed or shared else None


def _plausible_count(node: NodeFacts, resource: str) -> int:
    """Return a resource's count without devices that cannot exist any more.

    The kubelet keeps the counts of earlier layouts of the cards.
    """
    count = node.allocatable[resource]
    if resource in _outdated_resources(node):
        return 0
    room = _possible_whole_cards(node) if resource == GPU_RESOURCE and count else None
    if room is None:
        return count
    places = max(_number(node.labels.get("nvidia.com/gpu.replicas")) or 1, 1)
    return min(count, room * places)


def _outdated_counts(node: NodeFacts) -> Iterable[LeftOut]:
    """Yield the counts of resources that cannot be right, for administrators."""
    pieces = [
        (profile, count)
        for name, (profile, count) in _mig_devices(node).items()
        if name not in _outdated_resources(node)
    ]
    cut = " and ".join(f"{count} x {profile.name}" for profile, count in pieces)
    for resource in sorted(node.allocatable):
        lost = node.allocatable[resource] - _plausible_count(node, resource)
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


def _inconsistent_counts(node: NodeFacts, kind: DeviceKind) -> Reason | None:
    """Return the reason why the devices of this kind cannot be counted; None if they can.

    They cannot be counted if the MIG devices that the node advertises do not fit on its cards together, and it is not
    known which of these devices exist.
    """
    cards, cut = _cards(node), _mig_devices(node)
    cut = {name: found for name, found in cut.items() if name not in _outdated_resources(node)}
    if kind.resource not in cut or len(cut) < 2 or cards is None or _is_single(node):
        return None
    if _slices(cut.values()) <= cards * _slices_per_card(node):
        return None
    counts = ", ".join(f"{count} x {profile.name}" for profile, count in cut.values())
    return explain("node-counts", counts=counts, cards=cards)


def _is_plugin_away(node: NodeFacts, resource: str, resources: Mapping[str, str]) -> bool:
    """Return whether a resource's count is 0 only because the device plugin is away.

    In that case the labels still count devices. False in three cases: all cards use MIG or have another resource now;
    the labels are those of another strategy; or the name changed when sharing was enabled or disabled, because a
    kubelet keeps the old name with 0 forever.

    Args:
        resources: renamed resource -> offer id, from the settings.
    """
    plain = resource.removesuffix(SHARED)
    if node.allocatable[resource]:
        return False  # an outdated count
    if resource in resources and not resource.startswith(MIG_RESOURCE):
        return bool(_cards(node)) and not any(node.allocatable.values())
    if not _number(node.labels.get(f"{plain}.count")):
        return False
    if resource == GPU_RESOURCE and (
        _possible_whole_cards(node) == 0 or any(name in resources for name in node.allocatable)
    ):
        return False
    if resource.startswith(MIG_RESOURCE) and (
        _is_single(node) or node.allocatable.get(GPU_RESOURCE, 0) >= (_cards(node) or 1)
    ):
        return False
    if resource == plain:
        return plain + SHARED not in node.allocatable or _is_not_renamed(node, plain)
    return plain not in node.allocatable or not (node.allocatable[plain] or _is_not_renamed(node, plain))


def _is_not_renamed(node: NodeFacts, plain: str) -> bool:
    """Return whether the device plugin gives the resource under its plain name, without the suffix ``.shared``."""
    shared = node.labels.get(f"{plain}.sharing-strategy", "none") != "none"
    return not shared or node.labels.get(f"{plain}.product", "").endswith("-SHARED")


# ------------------------------------------------------------------ what a resource is


def _other_product(node: NodeFacts) -> tuple[str, str, str]:
    """Return (product, label, value) by other labels than NVIDIA's; three empty texts without such labels."""
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
    """Convert a cloud's name of a card to NVIDIA's: ``nvidia-tesla-t4`` -> ``Tesla-T4``, ``l4`` -> ``NVIDIA-L4``."""
    plain = re.sub(r"^nvidia[-_. ]", "", value, flags=re.IGNORECASE).replace("_", "-").replace(" ", "-")
    if plain.lower().startswith("tesla-"):
        return "Tesla-" + plain[6:].upper()
    return "NVIDIA-" + (plain.upper() if plain == plain.lower() else plain)


def _machine_family(value: str) -> str:
    """Return the part of a cloud's machine type that all types with the same cards have in common.

    This is ``g5`` for ``g5.2xlarge``, ``NCas_T4_v3`` for ``NC8as_T4_v3``, and ``VM.GPU.A10`` for Oracle's
    ``VM.GPU.A10.2``. A type with a part of a card is a family of its own, and so is a type of an unknown cloud.
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
    """Return (label, value) of those labels of a node that can distinguish its cards from other cards.

    Nodes with other cards may have the same resource.
    """
    _, label, value = _other_product(node)
    found = {name: node.labels.get(name, "") for name in (NODE_PRODUCT, GKE_ACCELERATOR, GKE_PARTITION, GKE_SHARING)}
    sharing = f"{resource.removesuffix(SHARED)}.sharing-strategy"
    found |= {sharing: node.labels.get(sharing, ""), label: value, HAMI_NODE: "on" if node.hami else ""}
    return tuple((name, text) for name, text in found.items() if name and text)


def _renamed(node: NodeFacts, resource: str, offer: OfferId) -> DeviceKind | LeftOut:
    """Return the kind of device that a renamed resource gives, by the offer that the administrator has assigned to it.

    A resource is renamed if the device plugin is configured to give it another name than its usual one.

    Args:
        node: the node that has the resource.
        resource: the changed name.
        offer: the offer that the settings name for this resource.
    """
    found = _mig(node, resource, offer.mig) if offer.mig is not None else _gpu(node, resource)
    if isinstance(found, LeftOut):
        return found
    if offer.base.endswith(SHARED) and not found.base.endswith(SHARED):
        found = replace(found, base=offer.base, mechanism=Mechanism.TIME_SLICING, doubted=False)
    return replace(found, wanted_id=str(offer) if offer.base == found.base else "")


def _mig(node: NodeFacts, resource: str, mapped: MigProfile | None = None) -> DeviceKind | LeftOut:
    """Return the kind of a MIG resource of the device plugin's *mixed* strategy.

    That strategy has one resource for each profile. The kind's base has the suffix ``.shared`` if the devices are
    time-sliced.

    Args:
        mapped: the profile of a renamed resource, from the settings; None takes the profile from the resource's name.
    """
    plain = resource.removesuffix(SHARED)
    try:
        profile = mapped or MigProfile.parse(plain)
    except MigProfileError as error:
        return LeftOut(f"{resource} of node {node.name}", str(error))
    sharing = node.labels.get(f"{plain}.sharing-strategy", "")
    replicas = _number(node.labels.get(f"{plain}.replicas")) or 1
    places = _pods_per_device(node, resource, _most_devices(node, plain, profile), replicas)
    sliced = resource.endswith(SHARED) or sharing == "time-slicing" or places > replicas
    own, *_ = _other_product(node)
    label = node.labels.get(NODE_PRODUCT, "")
    single = _SINGLE.fullmatch(label)  # set by hand: the name of the resource shows that this is the mixed strategy
    return DeviceKind(
        base=profile.resource + (SHARED if sliced else ""),
        product=(single["product"] if single else label) or own,
        resource=resource,
        mechanism=Mechanism.TIME_SLICING if sliced else Mechanism.MIG,
        marks=_marks(node, resource),
        replicas=places if sliced else 1,
        other_product=own,
    )


def _most_devices(node: NodeFacts, plain: str, profile: MigProfile) -> int | None:
    """Return the maximum number of MIG devices of a profile on the node; None if not known.

    Args:
        plain: name of the resource without the suffix ``.shared``.
    """
    counted = _number(node.labels.get(f"{plain}.count"))
    if counted:
        return counted
    cards = None if _is_single(node) else _cards(node)
    return None if cards is None else cards * max(1, _slices_per_card(node) // profile.slices)


def _pods_per_device(node: NodeFacts, resource: str, devices: int | None, replicas: int) -> int:
    """Return how many pods share a device: by the label, or more if the resource's count is higher.

    GPU Feature Discovery does not see the device plugin's configuration if they are installed separately
    (NVIDIA/k8s-device-plugin#732).

    Args:
        devices: number of devices on the node; None if not known, so that the label counts.
        replicas: number of pods per device by the label.
    """
    if not devices or node.allocatable[resource] <= devices * max(replicas, 1):
        return replicas
    return ceil(node.allocatable[resource] / devices)


def _gpu(node: NodeFacts, resource: str) -> DeviceKind | LeftOut:
    """Return what a device of the resource ``nvidia.com/gpu`` is on a node, by the node's labels.

    It is a card, a MIG device (*single* strategy) or a shared card.
    """
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
    places = _pods_per_device(node, resource, cards, replicas)
    is_more = bool(cards) and node.allocatable[resource] > (cards or 0)
    if resource.endswith(SHARED) or label.endswith("-SHARED") or sharing or is_more:
        by = Mechanism.MPS if sharing == "mps" else Mechanism.TIME_SLICING
        return replace(kind, base=kind.base + SHARED, mechanism=by, replicas=places)
    virtual, labelled = _is_virtual(node), bool(label or partition or cards or GKE_ACCELERATOR in node.labels)
    doubted = not labelled or replicas > 1 or (not cards and any(name in node.labels for name in COUNT_LABELS))
    return replace(kind, virtual=virtual, doubted=not virtual and doubted)


def _sharing(node: NodeFacts) -> tuple[str, int]:
    """Return (how cards are shared, number of pods that share a card) by the node's labels.

    The first is ``time-slicing``, ``mps``, or "" if cards are not shared.
    """
    gke, clients = node.labels.get(GKE_SHARING, ""), _number(node.labels.get(GKE_CLIENTS))
    if clients != 1 if gke else (clients or 1) > 1:
        return "mps" if gke == "mps" else "time-slicing", clients or 1
    sharing = node.labels.get("nvidia.com/gpu.sharing-strategy", "")
    return sharing if sharing in ("time-slicing", "mps") else "", _number(
        node.labels.get("nvidia.com/gpu.replicas")
    ) or 1


def _is_virtual(node: NodeFacts) -> bool:
    """Return whether the node has only a part of a card from a hypervisor."""
    labels = node.labels
    return (
        labels.get("nvidia.com/vgpu.present") == "true"
        or any(name.startswith("nvidia.com/vgpu.host-driver") and text for name, text in labels.items())
        or _VIRTUAL.fullmatch(labels.get(NODE_PRODUCT, "")) is not None
        or any(_VIRTUAL_MACHINES.fullmatch(labels.get(name, "")) for name in MACHINE_LABELS)
    )


# ------------------------------------------------------------------ counting


def _uncounted_share(kind: DeviceKind, node: NodeFacts, why: Reason | None, unknown: bool) -> NodeShare:
    count = NodeCount(node.name, _plausible_count(node, kind.resource), 0, why)
    host = node.labels.get(HOSTNAME, "")
    return NodeShare(kind, count, {}, 0, unknown, _memory(node, kind), _sms(node, kind), host=host)


def _counted(
    kind: DeviceKind, node: NodeFacts, pods: Sequence[PodFacts], ours: Collection[str], config: ClusterConfig
) -> NodeShare:
    memory = _memory(node, kind)
    if kind.mechanism is Mechanism.HAMI:
        cards = hami_cards(node, pods, ours)
        if cards is None:
            return _uncounted_share(kind, node, explain("node-hami"), True)
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
    """Count the devices of one kind on a node that is described by its resources.

    Free devices are the allocatable ones minus the requests of the pods that are bound to the node.

    Args:
        kind: the kind of device to count.
        node: the node.
        pods: the pods that are bound to the node.
        ours: uids of the pods that are servers of this hub.

    Returns:
        The number of all devices; free share of a device (thousandths) -> number of devices that have it free; and the
        number of devices held by pods that this hub did not start.
    """
    total = _plausible_count(node, kind.resource)
    used = foreign = 0
    for pod in pods:
        asked = pod.requests.get(kind.resource, 0)
        used += asked
        if pod.uid not in ours and pod.namespace != KAI_RESERVATIONS:
            foreign += asked
    return total, {WHOLE: max(0, total - used)}, min(foreign, total)


def _memory(node: NodeFacts, kind: DeviceKind) -> int | None:
    """Return the memory in bytes of a device, or of a pod's part of a shared device; None if not known.

    A card that shares its memory with the processor (GB10, Grace) has the label 0, which means not known.
    """
    labels = [f"{kind.resource.removesuffix(SHARED)}.memory"]
    if kind.base.removesuffix(SHARED) == GPU:
        labels += [f"{GPU_RESOURCE}.memory", *MEMORY_LABELS]
    mib = next((found for label in labels if (found := _number(node.labels.get(label)))), None)
    return None if mib is None else mib * MIB // kind.replicas


def _sms(node: NodeFacts, kind: DeviceKind) -> int | None:
    if kind.base.endswith(SHARED):
        return None  # a shared device gives a pod no SMs of its own
    return _number(node.labels.get(f"{kind.resource.removesuffix(SHARED)}.multiprocessors"))


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and text.isdecimal() else None
