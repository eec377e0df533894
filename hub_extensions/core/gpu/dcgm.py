"""Find out which series of dcgm-exporter measures which lease or device, and convert the values to percent and bytes.

On a cluster, a series belongs to a lease (a server's right to a GPU) if it names the lease's pod, as the kubelet
reported it to the exporter. The series is checked against the pod's uid and age, its node and its MIG profile. On one
machine, a series belongs to a device by the card's UUID and NVML's id of the GPU instance. A card that several servers
share is measured as a whole, so its use is never attributed to one server.

Labels and names are those of dcgm-exporter 2.4 to 4.9 (``transformation/kubernetes.go``, ``etc/default-counters.csv``,
release notes of 4.9.0), and what OpenTelemetry and Datadog make of them on the way to Prometheus.
"""

from __future__ import annotations

from collections import Counter, defaultdict
from collections.abc import Collection, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime, timedelta
from enum import Enum
from itertools import chain

from hub_extensions.core.gpu.samples import Counters

SOURCE = "dcgm"
FRESH = timedelta(seconds=60)
"""A sample that is older than this, or further in the future, is not used."""
SAME_PERCENT = 1.0
"""Two series of one device agree if they differ by at most this."""
MOST_PERCENT = 1000.0
"""DCGM's blank values are huge (140737488355328.0); a ratio a little above 1 is real (NVIDIA/DCGM#152)."""
MOST_BYTES = 2.0**43
MIB = 2**20


class Field(Enum):
    """The quantity that a series of dcgm-exporter measures."""

    ENGINE = "engine"
    """Share of time in which the compute engine of this device is active. This is the preferred field."""
    CARD = "card"
    """NVML's use of a whole card. It does not exist for MIG devices, and with time-slicing it is per program."""
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
"""Name of a metric -> its field, and the factor that converts it to percent or bytes. The second name of each pair is
the one since dcgm-exporter 4.9 (DCGM 4.7)."""

SPELLINGS: Mapping[str, str] = {
    "uuid": "UUID",
    "gpu_uuid": "UUID",
    "hw_id": "UUID",
    "gpu_i_id": "GPU_I_ID",
    "gpu_i_profile": "GPU_I_PROFILE",
}
"""Other spellings of an exporter's labels -> ours: old exporters (``--use-old-namespace``), and agents that relabel.
``hw.id`` is OpenTelemetry's identifier of a component: it can be an index instead of a UUID, and is ignored then."""
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
    "kube_node",
    "host_name",
    "host",
    "instance",
)
"""Labels that may name the node: the exporter's own, those that Prometheus is usually configured to add, and those of
Datadog (``kube_node``) and OpenTelemetry (``k8s.node.name``, ``host.name``)."""
OWNERS = (
    ("exported_namespace", "exported_pod"),
    ("namespace", "pod"),
    ("pod_namespace", "pod_name"),
    ("kube_namespace", "pod_name"),
    ("k8s_namespace_name", "k8s_pod_name"),
)
"""Labels of namespace and pod: as renamed by Prometheus, of the exporter itself, of an old exporter, of Datadog and of
OpenTelemetry. The last are used last, because a collector also gives them the exporter's own pod."""

PERCENT_NAME = "DCGM_FI_DEV_GPU_UTIL"
"""The only metric of use that is in percent; the others are ratios."""
USE_NAMES = tuple(name for name, (meant, _) in FIELDS.items() if meant in (Field.ENGINE, Field.CARD))
"""Metrics of which at least one is required."""

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
    "no-card": "the series that name its pod have no UUID of the card (label UUID, uuid or gpu_uuid), so it cannot be "
    "told whether others use the card too: let the collector between dcgm-exporter and Prometheus keep UUID",
    "older-pod": "the series that name its pod are of an older pod of that name",
    "other-node": "the series that name its pod come from another node than the one it runs on",
    "other-profile": "the series that name its pod are of another MIG profile than its own",
    "whole-card": "the series that name its pod are of the whole card its MIG device was cut from, where others work "
    "too: dcgm-exporter has to name GPU instances (GPU_I_ID)",
    "partly": "not all of its GPUs have a figure",
}
"""Code of why it is not known how busy a device is -> text for administrators."""


@dataclass(frozen=True, slots=True)
class MetricSeries:
    """A Prometheus time series and its newest sample.

    Attributes:
        metric: name of the metric.
        at: time of the sample.
        value: value of the sample; None if it is not a finite number.
    """

    metric: str
    labels: Mapping[str, str]
    at: datetime
    value: float | None


@dataclass(frozen=True, slots=True)
class DcgmUse:
    """DCGM's measurement of a device: how busy it is, and its memory in use.

    Attributes:
        uuid: the device's UUID; "" if only its card is known (a MIG device of a cluster).
        at: time of the measurement, by the clock of Prometheus.
        used_percent: use of this device alone, 0 to 100; None if several servers share it.
        source: ``dcgm``.
        counters: further counters of the device; None if none is known.
        memory_bytes: memory in use; None if not known.
        card_percent: for a device that several servers share, their use together, an upper bound of each server's use.
            None if the device is not shared.
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
    """The facts about the GPU of one server on a cluster by which the series (of Prometheus) that measure it are found.

    Attributes:
        lease: id of the server's lease (its right to the GPU).
        namespace, pod: the server's pod.
        node: the pod's node; "" before it is scheduled.
        uid: the pod's uid; "" if not known.
        since: the pod's start; None if not known.
        profile: the MIG profile's name; None for whole cards.
        devices: number of devices.
        shared: whether other pods may use the same device (time-slicing, MPS, a fraction).
        factor: factor that converts a measured value to a value of the device alone; None if not known.
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
    """The facts about one device of this machine by which the series (of Prometheus) that measure it are found.

    Attributes:
        uuid: UUID of the device.
        card: UUID of its card.
        instance: NVML's id of its GPU instance; "" for a whole card.
        factor: factor that converts a measured value to a value of the device alone; None if not known.
        shared: whether other devices share the GPU instance.
    """

    uuid: str
    card: str
    instance: str
    factor: float | None = 1.0
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Measured:
    """Devices of one kind that a dcgm-exporter measures now.

    Attributes:
        hosts: values of those labels that may name the devices' node.
        profile: MIG profile; "" for whole cards.
    """

    hosts: frozenset[str]
    profile: str


@dataclass(frozen=True)
class Joined:
    """The measurement of each GPU, or the reason why it is missing. The keys are lease ids on a cluster, and UUIDs on
    one machine.

    Attributes:
        uses: GPU -> its measurement.
        missing: GPU without a measurement -> the reason, a key of `WHY`.
        named: whether labels of the series contain names of nodes, so that a series of another node can be recognised.
    """

    uses: Mapping[str, DcgmUse] = field(default_factory=dict)
    missing: Mapping[str, str] = field(default_factory=dict)
    named: bool = False


def join_cards(series: Iterable[MetricSeries], wanted: Iterable[CardGpu], now: datetime) -> Joined:
    """Find the measurement of each of these devices of one machine among the time series.

    Args:
        series: the time series of the exporter.
        wanted: the devices, each with its card and its GPU instance.
        now: the present time, by which the age of measurements is judged.
    """
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
    """Find the measurement of each lease's GPU on a cluster among the series.

    Args:
        series: the series of GPU use and memory that Prometheus has now.
        wanted: the GPUs of the leases.
        nodes: names of all known nodes.
        named: whether labels of earlier series contained names of nodes. If so, the node is checked even if no label
            names a node now.
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
    """Return whether an exporter measures devices of a MIG profile on one of these nodes.

    If no label of a series is the name of any node in `every`, exporters do not report nodes. Then the node is not
    checked, and the profile alone decides.

    Args:
        kinds: the devices that exporters measure now.
        profile: the MIG profile; None for whole cards.
        nodes: names of the nodes in question.
        every: names of all nodes of the cluster; if empty, `nodes` are taken for all.
    """
    known, all_known = _spellings_of(nodes), _spellings_of(every or nodes)
    spelled = [(kind, frozenset(chain.from_iterable(map(_spellings_of_host, kind.hosts)))) for kind in kinds]
    named = any(not hosts.isdisjoint(all_known) for _, hosts in spelled)
    return any(
        _plain(kind.profile) == _plain(profile or "") and (not named or not hosts.isdisjoint(known))
        for kind, hosts in spelled
    )


def hosts_of(labels: Mapping[str, str]) -> frozenset[str]:
    """Return the values of those labels that may name the node.

    In such a label, some exporters write the name of their own pod instead of the node's.
    """
    found = {labels[name] for name in HOST_LABELS if labels.get(name)}
    return frozenset({*found, labels["instance"].rpartition(":")[0]} if ":" in labels.get("instance", "") else found)


def names_a_node(hosts: Iterable[str], nodes: Iterable[str]) -> bool:
    """Return whether one of the `hosts` is the name of a node, ignoring case and domain."""
    known = _spellings_of(nodes)
    return any(not _spellings_of_host(host).isdisjoint(known) for host in hosts)


def _spellings_of(nodes: Iterable[str]) -> frozenset[str]:
    """Return the names of the nodes in lower case, for comparison with labels.

    For a name with a domain, such as ``a.example.org``, ``a/`` is added too, which stands for ``a`` in any domain.
    """
    known = {name.lower() for name in nodes}
    return frozenset(known | {f"{name.partition('.')[0]}/" for name in known if "." in name})


def _spellings_of_host(host: str) -> frozenset[str]:
    name = host.lower()
    front, dot, _ = name.partition(".")
    return frozenset((name, front) if dot and not front.isdecimal() else (name, f"{name}/"))


def _spelled(series: MetricSeries) -> MetricSeries:
    """Return a series with normalized names of its labels (`SPELLINGS`), and without empty labels."""
    labels = {SPELLINGS.get(name, name): text for name, text in series.labels.items() if text and _names(name, text)}
    return series if labels.keys() == series.labels.keys() else replace(series, labels={**labels, **_own(series)})


def _names(label: str, text: str) -> bool:
    return label != "hw_id" or text.startswith("GPU-")


def _own(series: MetricSeries) -> dict[str, str]:
    """Return those labels of a series whose names are already in the form that we use (the values of `SPELLINGS`).

    They take precedence over labels in another spelling.
    """
    return {name: text for name, text in series.labels.items() if text and name in SPELLINGS.values()}


def owner_of(labels: Mapping[str, str]) -> tuple[str, str] | None:
    """Return namespace and name of the pod that uses the device of a series, or None if the series names no pod.

    If Prometheus adds its own labels for the exporter's pod, it renames the exporter's labels to ``exported_…``.
    """
    known = [(labels.get(namespace, ""), labels[pod]) for namespace, pod in OWNERS if labels.get(pod)]
    return next((owner for owner in known if owner[0]), known[0] if known else None)


OTHER_NAMES: Mapping[str, str] = {
    "hw_gpu_utilization_ratio": "OpenTelemetry's collector of GPUs",
    "hw_gpu_utilization": "OpenTelemetry's collector of GPUs",
    "dcgm_gpu_utilization": "Datadog's check of dcgm-exporter",
    "gpu_utilization": "an agent of its own",
    "nvidia_smi_utilization_gpu_ratio": "nvidia_gpu_exporter",
    "nvidia_gpu_duty_cycle": "an exporter from before dcgm-exporter",
}
"""Metrics of GPU use that are not DCGM's -> program that writes them. Their series name cards but no pods."""


def describe(series: Iterable[Mapping[str, str]]) -> tuple[str, ...]:
    """Return sentences for administrators about the series of GPU use in Prometheus.

    Each sentence explains whether such series can be used, and if not, why. There is one sentence for each metric and
    set of labels. If some series name pods, those without a pod are left out, because they are of cards that no pod
    uses.

    Args:
        series: labels of the series, with the metric's name as ``__name__``.
    """
    found = Counter(_described(labels) for labels in series)
    names_pods = any(names_pod for names_pod, _ in found)
    kinds = [(text, count) for (names_pod, text), count in found.items() if names_pod or not names_pods]
    return tuple(f"{text} ({count} series)." for text, count in sorted(kinds))


def _described(labels: Mapping[str, str]) -> tuple[bool, str]:
    """Return whether a series of GPU use names a pod that uses the device, and a sentence about the series.

    The sentence is for administrators. It explains whether such a series can be used, and if not, what to change. A
    series of another program than dcgm-exporter counts as naming no pod.

    Args:
        labels: labels of the series, with the metric's name as ``__name__``.
    """
    metric = labels.get("__name__", "")
    names = ", ".join(sorted(name for name, text in labels.items() if text and name != "__name__")) or "none"
    unusable = f"{metric} with the labels {names} cannot be used"
    if metric not in USE_NAMES:
        writer = OTHER_NAMES.get(metric, "another program")
        return False, (
            f"{unusable}: {writer} writes it, about cards and no pods. Let Prometheus read dcgm-exporter itself, or a "
            "collector that keeps its metrics and labels"
        )
    spelled = _spelled(MetricSeries(metric, labels, datetime.min, None)).labels
    namespace, pod = next(((one, two) for one, two in OWNERS if labels.get(one) and labels.get(two)), ("", ""))
    nameless = next((name for _, name in OWNERS if labels.get(name)), "")
    if not pod and nameless:
        return (
            True,
            f"{unusable}: {nameless} is a pod, and no label its namespace. Let the collector keep namespace and pod",
        )
    if not pod or "dcgm-exporter" in labels[pod]:
        found = f"the exporter's own pod in {pod}" if pod else "no pod"
        return False, (
            f"{metric} with the labels {names} has {found}: either nobody uses the card, or dcgm-exporter lacks "
            "DCGM_EXPORTER_KUBERNETES=true, or a collector does not keep its labels namespace and pod"
        )
    if "UUID" not in spelled:
        return True, f"{unusable}: no label is the UUID of the card. Let the collector keep UUID"
    card = next(name for name in ("UUID", *SPELLINGS) if name in labels and SPELLINGS.get(name, name) == "UUID")
    node = next((f"the node is in {name}" for name in HOST_LABELS if labels.get(name)), "no label is the node")
    return True, f"{metric} can be used: the pod is in {pod}, its namespace in {namespace}, the card in {card}; {node}"


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
    """Facts about the cluster against which the series of each pod are checked.

    Attributes:
        nodes: names of all nodes.
        crowded: (UUID of the card, id of the GPU instance) of devices that several pods use.
        named: whether labels contain names of nodes. If so, a series with another name is of another node or cluster.
    """

    nodes: frozenset[str]
    crowded: frozenset[tuple[str, str]]
    named: bool


def _of_pod(gpu: PodGpu, known: Sequence[MetricSeries], around: _Around, now: datetime) -> DcgmUse | str:
    """Return the use of a pod's GPUs, or a key of `WHY` if it is not known.

    Args:
        gpu: the pod and its GPUs.
        known: the series that name the pod.
        around: facts about the cluster.
        now: the present time, by which the age of measurements is judged.
    """
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
    if any(not card for card, _ in by_device):
        return "no-card"
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
    """Return why a series that names the pod does not measure its GPU, as a key of `WHY`; "" if it does.

    Args:
        series: a time series of an exporter.
        gpu: the pod and its GPU.
        around: facts about the cluster against which series are checked.
    """
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
    """Return a MIG profile in the form of resource names, ``1g.10gb.me`` for ``1g.10gb+me``."""
    return profile.strip().lower().replace("+", ".").removeprefix("mig").lstrip(" -")


# ------------------------------------------------------------------ a device


def _of_device(series: Sequence[MetricSeries], uuid: str, factor: float | None, now: datetime) -> DcgmUse | str:
    """Return the use of a device, or a key of `WHY` if it is not known.

    Args:
        series: all series of the device.
        uuid: UUID of the device, for the result.
        factor: factor that converts a value to one of the device alone; None if it is not known.
        now: the present time, by which the age of measurements is judged.
    """
    if factor is None:
        return "no-scale"
    by_field: dict[Field, list[MetricSeries]] = defaultdict(list)
    for each in series:
        by_field[FIELDS[each.metric][0]].append(each)
    engine = _agreed(by_field[Field.ENGINE], now)
    # series of single programs have the pod's uid, and are 0 if unknown: only those of the whole card count
    of_a_part = {"vgpu", "pod_uid", "GPU_I_ID"}
    card = _agreed([each for each in by_field[Field.CARD] if not of_a_part & each.labels.keys()], now)
    first = card if engine == "none" else engine
    if isinstance(first, str):
        return first

    def percent(answer: tuple[datetime, float] | str) -> float | None:
        return None if isinstance(answer, str) else min(100.0, answer[1] * factor)

    counters = Counters(*(percent(_agreed(by_field[meant], now)) for meant in (Field.SM, Field.TENSOR, Field.DRAM)))
    # Multiprocessors work only while the engine does. With MIG, some versions report too little use of the engine
    # (NVIDIA/DCGM#138), and after weeks 0 for a busy card (NVIDIA/dcgm-exporter#662). The highest value is the most
    # accurate one, and keeps a server running.
    used = max(value or 0.0 for value in (percent(first), counters.sm_percent, percent(card)))
    memory = _agreed(by_field[Field.MEMORY], now, same=MOST_BYTES)
    size = None if isinstance(memory, str) else int(memory[1])
    return DcgmUse(uuid, first[0], used, counters=None if counters == Counters() else counters, memory_bytes=size)


def _agreed(found: Sequence[MetricSeries], now: datetime, same: float = SAME_PERCENT) -> tuple[datetime, float] | str:
    """Return time and value (percent or bytes) on which the series of one field and device agree.

    If they do not agree, or none has a usable value, the reason is returned instead, as a key of the texts in `WHY`.
    Series of different metrics, such as the old and the new name of one field, may differ: the greater value counts.

    Args:
        found: the series.
        now: the present time, by which their age is judged.
        same: largest difference between two series of one metric; if they differ more, they contradict each other.
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
    """Return the value in percent or bytes, or None if it is not plausible."""
    meant, unit = FIELDS[series.metric]
    if series.value is None:
        return None
    if is_ratio_for_percent(series.metric, series.value):
        return None
    most = MOST_BYTES if meant is Field.MEMORY else MOST_PERCENT
    value = series.value * unit
    return value if 0.0 <= value <= most else None


def is_ratio_for_percent(metric: str, value: float) -> bool:
    """Return whether a value of NVML's metric of use is a ratio instead of a percentage.

    NVML reports whole percent, so a value between 0 and 1 must be a ratio: 0.9 means a busy card.
    """
    return metric == PERCENT_NAME and 0.0 < value < 1.0


def _device_of(series: MetricSeries) -> tuple[str, str]:
    """Return (UUID of the card, id of the GPU instance). The id is "" for a whole card.

    Each is also "" if the series lacks the label.
    """
    return series.labels.get("UUID", ""), series.labels.get("GPU_I_ID", "")
