"""Whose GPU a series of dcgm-exporter is about, in which unit it is written, and when it says nothing of a lease.

On a cluster a series is a lease's by the names of its pod, which the kubelet told the exporter, and is checked against
what else is known: the pod's uid and age, its node, its MIG profile. On one machine it is a device's by the card's UUID
and NVML's id of the GPU instance. A card that several servers share is measured as a whole: its use is never one
server's. Pure. Not here: how Prometheus is asked (``adapters/prometheus.py``).

Labels and names are those of dcgm-exporter 2.4 to 4.9 (``transformation/kubernetes.go``, ``etc/default-counters.csv``,
release notes of 4.9.0).
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from itertools import chain

from hub_extensions.core.gpu.samples import Counters

SOURCE = "dcgm"
FRESH = timedelta(seconds=60)
"""A sample older than this, or that far in the future, says nothing about now."""
SAME_PERCENT = 1.0
"""Two series of one device that are this near each other say the same."""
MOST_PERCENT = 1000.0
"""DCGM's blank values are huge (140737488355328.0); a ratio a little above 1 is real (NVIDIA/DCGM#152)."""
MOST_BYTES = 2.0**43
MIB = 2**20


class Field(Enum):
    """What a series measures."""

    ENGINE = "engine"
    """Share of time in which the compute engine works, of this very device. The one that counts."""
    CARD = "card"
    """NVML's use of a whole card. Not there for MIG devices; with time-slicing it is of single programs."""
    SM = "sm"
    TENSOR = "tensor"
    DRAM = "dram"
    MEMORY = "memory"


FIELDS: Mapping[str, tuple[Field, float]] = {
    "DCGM_FI_PROF_GR_ENGINE_ACTIVE": (Field.ENGINE, 100.0),
    "DCGM_FI_PROF_GR_ENGINE_UTIL_RATIO": (Field.ENGINE, 100.0),
    "DCGM_FI_DEV_GPU_UTIL": (Field.CARD, 1.0),
    "DCGM_FI_DEV_GPU_UTIL_RATIO": (Field.CARD, 100.0),
    "DCGM_FI_PROF_SM_ACTIVE": (Field.SM, 100.0),
    "DCGM_FI_PROF_SM_UTIL_RATIO": (Field.SM, 100.0),
    "DCGM_FI_PROF_PIPE_TENSOR_ACTIVE": (Field.TENSOR, 100.0),
    "DCGM_FI_PROF_PIPE_TENSOR_UTIL_RATIO": (Field.TENSOR, 100.0),
    "DCGM_FI_PROF_DRAM_ACTIVE": (Field.DRAM, 100.0),
    "DCGM_FI_PROF_DRAM_UTIL_RATIO": (Field.DRAM, 100.0),
    "DCGM_FI_DEV_FB_USED": (Field.MEMORY, float(MIB)),
    "DCGM_FI_DEV_FB_USED_BYTES": (Field.MEMORY, 1.0),
}
"""Name of a metric -> what it is, and what its value is multiplied by to be percent or bytes. Of each pair the second
is the name since dcgm-exporter 4.9 (DCGM 4.7)."""

SPELLINGS: Mapping[str, str] = {
    "uuid": "UUID",
    "gpu_uuid": "UUID",
    "gpu_i_id": "GPU_I_ID",
    "gpu_i_profile": "GPU_I_PROFILE",
}
"""Other spellings of an exporter's labels -> ours: old exporters (``--use-old-namespace``), and agents that relabel."""
HOST_LABELS = (
    "Hostname",
    "hostname",
    "node",
    "exported_node",
    "kubernetes_node",
    "k8s_node_name",
    "node_name",
    "nodename",
    "kubernetes_io_hostname",
    "host",
    "instance",
)
"""Labels that may name the node: the exporter's own, and those that Prometheus is usually told to add."""
OWNERS = (("exported_namespace", "exported_pod"), ("namespace", "pod"), ("pod_namespace", "pod_name"))
"""Labels of namespace and pod: as Prometheus renames the exporter's, as the exporter writes them, and as an old one."""

PERCENT_NAME = "DCGM_FI_DEV_GPU_UTIL"
"""The one that is written in percent."""
USE_NAMES = tuple(name for name, (meant, _) in FIELDS.items() if meant in (Field.ENGINE, Field.CARD))
"""One of them has to be there."""

WHY: Mapping[str, str] = {
    "none": f"Prometheus has no {USE_NAMES[0]} of it: dcgm-exporter has to collect it, and Prometheus to read the "
    "exporter",
    "old": "its newest figure is more than 60 s old or in the future: let Prometheus read the exporter every 30 s or "
    "more often, and let the clocks agree",
    "no-number": "its figure is not a ratio",
    "differ": "several series of it disagree: one exporter has to be read for each card",
    "shared": "several devices share its GPU instance, and DCGM measures the whole instance",
    "no-scale": "its card's compute slices are not known: c.GpuService.dcgm_scale has to be 'instance' for it",
    "no-pod": "its pod has no place on a node yet",
    "pod-not-named": "Prometheus has no series that names its pod: dcgm-exporter needs DCGM_EXPORTER_KUBERNETES=true "
    "and the kubelet's pod-resources socket (for claims KUBERNETES_ENABLE_DRA=true too), and Prometheus to keep the "
    "labels pod and namespace (or exported_pod and exported_namespace, or pod_name and pod_namespace)",
    "older-pod": "the series that name its pod are of an older pod of that name",
    "other-node": "the series that name its pod come from another node than the one it runs on",
    "other-profile": "the series that name its pod are of another MIG profile than its own",
    "whole-card": "the series that name its pod are of the whole card its MIG device was cut from, where others work "
    "too: dcgm-exporter has to name GPU instances (GPU_I_ID)",
    "partly": "not all of its GPUs have a figure",
}
"""Why the use of a device is not known: reason -> text for an admin."""


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """One time series and its newest sample; `value` None: what was written is no finite number."""

    metric: str
    labels: Mapping[str, str]
    at: datetime
    value: float | None


@dataclass(frozen=True, slots=True)
class DcgmUse:
    """What DCGM measured of one lease's GPU, or of one device.

    Attributes:
        uuid: of the device; "" where only its card is known (a MIG device of a cluster).
        at: when, by the clock of Prometheus.
        used_percent: 0 to 100, of this device alone; None where others are on it too.
        card_percent: where others are on it too: the use of all of them together. The lease's own is at most that.
        memory_bytes: None is not known.
    """

    uuid: str
    at: datetime
    used_percent: float | None
    source: str = SOURCE
    counters: Counters | None = None
    memory_bytes: int | None = None
    card_percent: float | None = None


@dataclass(frozen=True, slots=True)
class PodGpu:
    """The GPU of a lease on a cluster, as far as the cluster tells.

    Attributes:
        uid, since: of the pod; None, "": not known. node: where it runs.
        profile: the MIG profile's name; None: whole cards. devices: how many it has.
        shared: others may be on the same device (time-slicing, MPS, a fraction).
        factor: what a figure is multiplied by to be one of the device; None is not known.
    """

    lease: str
    namespace: str
    pod: str
    node: str
    uid: str = ""
    since: datetime | None = None
    profile: str | None = None
    devices: int = 1
    shared: bool = False
    factor: float | None = 1.0


@dataclass(frozen=True, slots=True)
class CardGpu:
    """A device of this machine: the card's UUID and the GPU instance's id; "" for a whole card."""

    uuid: str
    card: str
    instance: str
    factor: float | None = 1.0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """One kind of device that exporters measure now: names of a host, and the MIG profile ("": whole cards)."""

    hosts: frozenset[str]
    profile: str


@dataclass(frozen=True)
class Joined:
    """What is known, and of what else why not (a key of `WHY`), by lease or by the device's UUID.

    Attributes:
        named: exporters here write the names of their nodes.
    """

    uses: Mapping[str, DcgmUse] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    named: bool = False


def join_cards(series: Iterable[MetricSeries], wanted: Iterable[CardGpu], now: datetime) -> Joined:
    """What the series say of devices of one machine."""
    by_device = defaultdict(list)
    for each in map(_spelled, series):
        by_device[_device_of(each)].append(each)
    return _joined(
        (gpu.uuid, "shared" if gpu.shared else _of_device(by_device[gpu.card, gpu.instance], gpu.uuid, gpu.factor, now))
        for gpu in wanted
    )


def join_pods(
    series: Iterable[MetricSeries],
    wanted: Iterable[PodGpu],
    nodes: Collection[str],
    now: datetime,
    *,
    named: bool = False,
) -> Joined:
    """What the series say of the GPUs of leases on a cluster.

    Args:
        nodes: the names of all nodes that are known.
        named: exporters here are known to write the names of their nodes, whether these series show it or not.
    """
    by_pod = defaultdict(list)
    pods_on: dict[tuple[str, str], set[tuple[str, str]]] = defaultdict(set)
    for each in map(_spelled, series):
        if (owner := owner_of(each.labels)) is not None:
            by_pod[owner].append(each)
            if _is_fresh(each, now):
                pods_on[_device_of(each)].add(owner)
    crowded = frozenset(device for device, pods in pods_on.items() if len(pods) > 1)
    named = named or names_a_node({host for each in chain(*by_pod.values()) for host in hosts_of(each.labels)}, nodes)
    around = _Around(frozenset(nodes), crowded, named)
    answers = ((gpu.lease, _of_pod(gpu, by_pod.get((gpu.namespace, gpu.pod), ()), around, now)) for gpu in wanted)
    return replace(_joined(answers), named=named)


def measures(
    kinds: Collection[Measured], profile: str | None, nodes: Collection[str], every: Collection[str] = ()
) -> bool:
    """Some exporter measures devices of this profile (None: whole cards) on one of these nodes.

    `every`: the names of all nodes. Where exporters write other names, on which node it is cannot be told.
    """
    known, all_known = _spellings_of(nodes), _spellings_of(every or nodes)
    spelled = [(kind, frozenset(chain.from_iterable(map(_spellings_of_host, kind.hosts)))) for kind in kinds]
    named = any(not hosts.isdisjoint(all_known) for _, hosts in spelled)
    return any(
        _plain(kind.profile) == _plain(profile or "") and (not named or not hosts.isdisjoint(known))
        for kind, hosts in spelled
    )


def hosts_of(labels: Mapping[str, str]) -> frozenset[str]:
    """Names that may be its node's. An exporter writes its host's: the node's, or its own pod's, which says nothing."""
    found = {labels[name] for name in HOST_LABELS if labels.get(name)}
    return frozenset({*found, labels["instance"].rpartition(":")[0]} if ":" in labels.get("instance", "") else found)


def names_a_node(hosts: Iterable[str], nodes: Iterable[str]) -> bool:
    """One of these names is one of the nodes', in whichever case, with its domain or without."""
    known = _spellings_of(nodes)
    return any(not _spellings_of_host(host).isdisjoint(known) for host in hosts)


def _spellings_of(nodes: Iterable[str]) -> frozenset[str]:
    """Their names, and with a mark those of which the domain is taken off."""
    known = {name.lower() for name in nodes}
    return frozenset(known | {f"{name.partition('.')[0]}/" for name in known if "." in name})


def _spellings_of_host(host: str) -> frozenset[str]:
    name = host.lower()
    front, dot, _ = name.partition(".")
    return frozenset((name, front) if dot and not front.isdecimal() else (name, f"{name}/"))


def _spelled(series: MetricSeries) -> MetricSeries:
    """With its labels in our spelling, and without empty ones."""
    if not any(name in SPELLINGS or not text for name, text in series.labels.items()):
        return series
    labels = {SPELLINGS.get(name, name): text for name, text in series.labels.items() if text}
    return replace(series, labels=labels)


def owner_of(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """(namespace, pod) that has the device of a series; None: it names none.

    Where Prometheus puts labels of its own for the exporter's pod, those of the exporter are called ``exported_…``.
    """
    for namespace, pod in OWNERS:
        if labels.get(pod):
            return labels.get(namespace, ""), labels[pod]
    return None


def _joined(answers: Iterable[tuple[str, DcgmUse | str]]) -> Joined:
    uses: dict[str, DcgmUse] = {}
    missing: dict[str, str] = {}
    for key, answer in answers:
        if isinstance(answer, DcgmUse):
            uses[key] = answer
        else:
            missing[key] = answer
    return Joined(uses, missing)


# ------------------------------------------------------------------ a pod


@dataclass(frozen=True, slots=True)
class _Around:
    """What one pod's series are held against.

    Attributes:
        nodes: the names of all nodes. crowded: devices that several pods have.
        named: exporters here write the names of their nodes, so another name is another node, or another cluster.
    """

    nodes: frozenset[str]
    crowded: frozenset[tuple[str, str]]
    named: bool


def _of_pod(gpu: PodGpu, known: Sequence[MetricSeries], around: _Around, now: datetime) -> DcgmUse | str:
    """The use of one pod's GPUs, or why it is not known."""
    if not gpu.node:
        return "no-pod"
    if not known:
        return "pod-not-named"
    own = [each for each in known if not _not_its_own(each, gpu, around)]
    if not own:
        return _not_its_own(max(known, key=lambda each: each.at), gpu, around)
    by_device = defaultdict(list)
    for each in own:
        by_device[_device_of(each)].append(each)
    shared = gpu.shared or any(device in around.crowded for device in by_device) or any("vgpu" in s.labels for s in own)
    uses = []
    for device, series in sorted(by_device.items()):
        found = _of_device(series, device[0], gpu.factor, now)
        if isinstance(found, str):
            return found
        uses.append(found)
    busiest = max(uses, key=lambda use: use.used_percent or 0.0)
    at = min(use.at for use in uses)
    if shared:
        return DcgmUse("", at, None, card_percent=busiest.used_percent)
    if len(uses) < gpu.devices:
        return "partly"
    sizes = [use.memory_bytes for use in uses if use.memory_bytes is not None]
    memory = sum(sizes) if len(sizes) == len(uses) else None
    uuid = busiest.uuid if gpu.profile is None and len(uses) == 1 else ""
    return DcgmUse(uuid, at, busiest.used_percent, counters=busiest.counters, memory_bytes=memory)


def _not_its_own(series: MetricSeries, gpu: PodGpu, around: _Around) -> str:
    """Why a series that names the pod is not about its GPU; "" when it is."""
    labels = series.labels
    if gpu.uid and labels.get("pod_uid", gpu.uid) != gpu.uid:
        return "older-pod"
    if gpu.since is not None and series.at < gpu.since:
        return "older-pod"
    if around.named and not names_a_node(hosts_of(labels), (gpu.node,)):
        return "other-node"
    if gpu.profile is None:
        return "other-profile" if "GPU_I_ID" in labels else ""
    if "GPU_I_ID" not in labels:
        return "whole-card"
    profile = labels.get("GPU_I_PROFILE", gpu.profile)
    return "" if _plain(profile) == _plain(gpu.profile) else "other-profile"


def _plain(profile: str) -> str:
    """``1g.10gb+me`` as a resource writes it."""
    return profile.strip().lower().replace("+", ".").removeprefix("mig").lstrip(" -")


# ------------------------------------------------------------------ a device


def _of_device(series: Sequence[MetricSeries], uuid: str, factor: float | None, now: datetime) -> DcgmUse | str:
    """The use of one device, or why it is not known."""
    if factor is None:
        return "no-scale"
    by_field: dict[Field, list[MetricSeries]] = defaultdict(list)
    for each in series:
        by_field[FIELDS[each.metric][0]].append(each)
    engine = _agreed(by_field[Field.ENGINE], now)
    card = _agreed([each for each in by_field[Field.CARD] if _is_of_the_card(each)], now)
    first = card if engine == "none" else engine
    if isinstance(first, str):
        return first

    def percent(answer: tuple[datetime, float] | str) -> float | None:
        return None if isinstance(answer, str) else min(100.0, answer[1] * factor)

    counters = Counters(*(percent(_agreed(by_field[meant], now)) for meant in (Field.SM, Field.TENSOR, Field.DRAM)))
    # A multiprocessor works only while the engine does. On MIG some versions show less of the engine than there was
    # (NVIDIA/DCGM#138), and after weeks 0 of a busy card (NVIDIA/dcgm-exporter#662): then the greatest is nearest to
    # the truth, and keeps a server running.
    used = max(value or 0.0 for value in (percent(first), counters.sm_percent, percent(card)))
    memory = _agreed(by_field[Field.MEMORY], now, same=MOST_BYTES)
    size = None if isinstance(memory, str) else int(memory[1])
    return DcgmUse(uuid, first[0], used, counters=None if counters == Counters() else counters, memory_bytes=size)


def _is_of_the_card(series: MetricSeries) -> bool:
    """Not of single programs: those are written with the uid of their pod, and 0 where no program could be found."""
    return "vgpu" not in series.labels and "pod_uid" not in series.labels and "GPU_I_ID" not in series.labels


def _agreed(found: Sequence[MetricSeries], now: datetime, same: float = SAME_PERCENT) -> tuple[datetime, float] | str:
    """The one thing these series of one field and device say now (percent or bytes), or a key of `WHY`.

    Names of both generations at once are one field: the greater counts.
    """
    if not found:
        return "none"
    fresh = [each for each in found if _is_fresh(each, now)]
    if not fresh:
        return "old"
    known = [(each.at, value, each.metric) for each in fresh if (value := _value(each)) is not None]
    if len(known) < len(fresh):
        return "no-number"
    for metric in {metric for _, _, metric in known}:
        values = [value for _, value, name in known if name == metric]
        if max(values) - min(values) > same:
            return "differ"
    return max(at for at, _, _ in known), max(value for _, value, _ in known)


def _is_fresh(series: MetricSeries, now: datetime) -> bool:
    return abs(now - series.at) <= FRESH


def _value(series: MetricSeries) -> float | None:
    """In percent or bytes; None: nothing of the kind."""
    meant, unit = FIELDS[series.metric]
    if series.value is None:
        return None
    if is_ratio_for_percent(series.metric, series.value):
        return None
    most = MOST_BYTES if meant is Field.MEMORY else MOST_PERCENT
    value = series.value * unit
    return value if 0.0 <= value <= most else None


def is_ratio_for_percent(metric: str, value: float) -> bool:
    """A part of one percent, where NVML counts whole ones: somebody has made a ratio of it, and 0.9 is a busy card."""
    return metric == PERCENT_NAME and 0.0 < value < 1.0


def _device_of(series: MetricSeries) -> tuple[str, str]:
    """(the card's UUID, the GPU instance's id; "" for a whole card)."""
    return series.labels.get("UUID", ""), series.labels.get("GPU_I_ID", "")
