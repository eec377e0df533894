"""Convert JSON of the Kubernetes API to the small values of ``core/cluster/model.py``, or None for objects to ignore.

A malformed part is ignored and never raises an error, because one bad object must not hide the others. The names are
those of Kubernetes 1.34 to 1.36 (``v1``, ``resource.k8s.io/v1``), NVIDIA k8s-device-plugin v0.20, NVIDIA DRA driver
v0.4, HAMi v2.10, KAI-Scheduler v0.17 and KubeSpawner 7.
"""

from __future__ import annotations

import re
from collections.abc import Container, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime, timezone
from functools import lru_cache
from sys import intern
from typing import Any, TypeAlias

from hub_extensions.core.cluster.model import (
    ClaimFacts,
    CounterFacts,
    NodeFacts,
    PodFacts,
    SliceDevice,
    Taint,
    TemplateFacts,
    VolumeFacts,
)
from hub_extensions.core.cluster.placement import volume_of
from hub_extensions.core.offers.pod_request import KAI_FRACTION, KAI_MEMORY, LEASE_LABEL, OFFER_LABEL

Json: TypeAlias = Mapping[str, Any]

NVIDIA = "nvidia.com/"
HAMI = "hami.io/"
HAMI_NODE = "hami.io/node-nvidia-register"
HAMI_POD = "hami.io/vgpu-devices-allocated"
KAI_GROUP = "runai-gpu-group"
KAI_RESERVATION = "kai-resource-reservation"
USER = "hub.jupyter.org/username"
SERVER = "hub.jupyter.org/servername"
COMPONENT = ("component", "singleuser-server")
PLACEHOLDER = ("component", "user-placeholder")
DRA_DRIVER = "gpu.nvidia.com"
MOST = 2**62  # more than any counter has

_NVIDIA_CARD = re.compile(r"feature\.node\.kubernetes\.io/pci-(?:\w+_)?10de(?:_\w+)?\.present")
_QUANTITY = re.compile(r"(?P<number>[0-9]+(?:\.[0-9]+)?)(?P<unit>[KMGTPE]i|[kMGTPE]|)")
_UNITS: dict[str, int] = {"": 1, "k": 10**3, **{unit: 10 ** (3 * power) for power, unit in enumerate("MGTPE", 2)}}
_UNITS |= {f"{unit}i": 2 ** (10 * power) for power, unit in enumerate("KMGTPE", 1)}


@dataclass(frozen=True, slots=True)
class SliceFacts:
    """A ResourceSlice of NVIDIA's DRA driver: some devices of a pool (in DRA, the devices that a driver lists
    together).

    A pool may have several slices. Only the slices of its newest generation are valid (``resource.k8s.io/v1``).

    Attributes:
        counters: (counter set, counter, value). Kubernetes 1.35 and newer has them in separate slices, 1.34 in the
            slice of the devices.
        count: number of slices of the pool; 0 if not known. The scheduler uses a pool only if all slices exist.
    """

    driver: str
    pool: str
    generation: int
    devices: tuple[SliceDevice, ...]
    counters: tuple[tuple[str, str, int], ...] = ()
    count: int = 0


def node_of(raw: Json, known: Container[str] = ()) -> NodeFacts | None:
    """Parse a node that has, or once had, a GPU; `None` for other nodes.

    A node counts if it has a resource or label below ``nvidia.com/`` (also with a count of 0), HAMi's annotation, or a
    label of Node Feature Discovery for an NVIDIA card on the PCI bus.

    Args:
        known: names of nodes that count too, because their devices are known from resource slices.
    """
    about, spec, status = _part(raw, "metadata"), _part(raw, "spec"), _part(raw, "status")
    labels, hami = _texts(about, "labels"), _texts(about, "annotations").get(HAMI_NODE, "")
    allocatable = _extended(_part(status, "allocatable"))
    name = _text(about, "name")
    if not (allocatable or hami or name in known or any(_is_gpu_label(label) for label in labels)):
        return None
    return NodeFacts(
        name=intern(name),
        labels={intern(name): intern(value) for name, value in labels.items()},
        allocatable=allocatable,
        taints=tuple(
            Taint(intern(_text(taint, "key")), intern(_text(taint, "value")), intern(_text(taint, "effect")))
            for taint in _parts(spec, "taints")
        ),
        ready={"True": True, "False": False}.get(_text(_condition(status, "Ready"), "status")),
        cordoned=spec.get("unschedulable") is True,
        hami=hami,
    )


def pod_of(raw: Json) -> PodFacts | None:
    """Parse a pod that requests a GPU in any way, or is a server of a hub; `None` for other pods and for low-priority
    placeholders.
    """
    about, spec, status = _part(raw, "metadata"), _part(raw, "spec"), _part(raw, "status")
    labels, annotations = _texts(about, "labels"), _texts(about, "annotations")
    requests = _requests(spec)
    if not (requests or spec.get("resourceClaims") or _is_relevant(labels, annotations)):
        return None
    if labels.get(PLACEHOLDER[0]) == PLACEHOLDER[1] and _is_low_priority(spec):
        return None
    scheduled = _condition(status, "PodScheduled")
    waits = _text(scheduled, "status") == "False"
    target = next((one for kind in ("TerminationTarget", "DisruptionTarget") if (one := _true(status, kind))), {})
    return PodFacts(
        uid=_text(about, "uid"),
        namespace=intern(_text(about, "namespace")),
        name=_text(about, "name"),
        node=intern(_text(spec, "nodeName")),
        requests=requests,
        phase=intern(_text(status, "phase") or "Pending"),
        reason=intern(_text(status, "reason")),
        message=_text(status, "message"),
        lease=labels.get(LEASE_LABEL, ""),
        offer=intern(labels.get(OFFER_LABEL, "")),
        user=annotations.get(USER, ""),
        server=annotations.get(SERVER, ""),
        deleting=bool(about.get("deletionTimestamp")),
        unscheduled=intern(_text(scheduled, "reason")) if waits else "",
        unscheduled_why=_text(scheduled, "message") if waits else "",
        unscheduled_since=_time(scheduled.get("lastTransitionTime")) if waits else None,
        target=intern(_text(target, "reason")),
        target_why=_text(target, "message"),
        gates=tuple(intern(_text(gate, "name")) for gate in _parts(spec, "schedulingGates")),
        fraction=intern(annotations.get(KAI_FRACTION, "")),
        memory_mib=intern(annotations.get(KAI_MEMORY, "")),
        gpu_group=_gpu_group(labels),
        hami=annotations.get(HAMI_POD, ""),
        claims=_claims_of_pod(spec, status),
        ready=bool(_true(status, "Ready")),
        created=_time(about.get("creationTimestamp")),
    )


def slice_of(raw: Json) -> SliceFacts | None:
    """Parse a ResourceSlice of NVIDIA's driver; `None` for another driver's.

    Devices that are tainted against new pods are kept only if they consume shared counters.
    """
    spec = _part(raw, "spec")
    pool, driver, node = _part(spec, "pool"), _text(spec, "driver"), intern(_text(spec, "nodeName"))
    if driver != DRA_DRIVER:
        return None
    name, generation = _text(pool, "name"), pool.get("generation")
    every = (_device(driver, name, node, one) for one in _parts(spec, "devices"))
    return SliceFacts(
        driver,
        name,
        generation if isinstance(generation, int) else 0,
        tuple(one for one in every if one.draws or not one.closed),
        _counters(_parts(spec, "sharedCounters"), "name", 0),
        count if isinstance(count := pool.get("resourceSliceCount"), int) else 0,
    )


def claim_of(raw: Json) -> ClaimFacts | None:
    """Parse an allocated ResourceClaim; `None` if nothing is allocated to it. Devices with ``adminAccess`` are ignored,
    because they stay available for other claims.
    """
    about, status = _part(raw, "metadata"), _part(raw, "status")
    results = _parts(_part(_part(status, "allocation"), "devices"), "results")
    devices = tuple(
        (intern(_text(one, "driver")), intern(_text(one, "pool")), intern(_text(one, "device")))
        for one in results
        if one.get("adminAccess") is not True
    )
    if not devices:
        return None
    users = [_text(user, "name") for user in _parts(status, "reservedFor") if _text(user, "resource") == "pods"]
    owners = [_text(owner, "name") for owner in _parts(about, "ownerReferences") if _text(owner, "kind") == "Pod"]
    pod = (users + owners + [""])[0]
    return ClaimFacts(intern(_text(about, "namespace")), _text(about, "name"), devices, pod)


def template_of(raw: Json) -> TemplateFacts | None:
    """Parse a ResourceClaimTemplate. Return `None` if it requests no device. Alternative device classes are joined with
    "or". A request for all devices is counted as 0.
    """
    inner = _part(_part(raw, "spec"), "spec")
    requests = _parts(_part(inner, "devices"), "requests")
    classes: list[str] = []
    selectors: list[str] = []
    count = 0
    for request in requests:
        choices = _parts(request, "firstAvailable") or [_part(request, "exactly")]
        classes.append(" or ".join(_text(choice, "deviceClassName") for choice in choices))
        found = (_text(_part(one, "cel"), "expression") for choice in choices for one in _parts(choice, "selectors"))
        selectors.extend(found)
        count += _wanted_count(choices[0])
    if not requests:
        return None
    return TemplateFacts(
        name=_text(_part(raw, "metadata"), "name"),
        device_class=" and ".join(dict.fromkeys(classes)),
        count=count,
        selectors=tuple(selectors),
        shared=any(_is_sharing(one) for one in _parts(_part(inner, "devices"), "config")),
    )


def volume_kept(raw: Json) -> VolumeFacts | None:
    """Parse a PersistentVolume that only some nodes can use; `None` for other volumes. A restriction that cannot be
    read is ignored.
    """
    try:
        return volume_of(raw)
    except (AttributeError, KeyError, TypeError, ValueError):
        return None


def bound_volume(raw: Json) -> str | None:
    """Return the name of the volume that a PersistentVolumeClaim is bound to; `None` if it is not bound yet."""
    return _text(_part(raw, "spec"), "volumeName") or None


def newest(slices: Iterable[SliceFacts]) -> tuple[SliceDevice, ...]:
    """Return the devices in the newest generation of each complete pool (in DRA, the devices that a driver lists
    together).
    """
    return tuple(device for pool in _pools(slices) for one in pool for device in one.devices)


def counters_of(slices: Iterable[SliceFacts]) -> tuple[CounterFacts, ...]:
    """Return the shared counters in the newest generation of each complete DRA pool, which devices draw from."""
    found = ((pool[0], tuple(counter for one in pool for counter in one.counters)) for pool in _pools(slices))
    return tuple(CounterFacts(first.driver, first.pool, counters) for first, counters in found if counters)


def _pools(slices: Iterable[SliceFacts]) -> Iterable[Sequence[SliceFacts]]:
    """Return for each DRA pool the slices of its newest generation.

    Pools of which slices are missing are left out, because the scheduler does not use them either.
    """
    pools: dict[tuple[str, str], list[SliceFacts]] = {}
    for one in slices:
        pool = pools.setdefault((one.driver, one.pool), [one])
        if one.generation > pool[0].generation:
            pool[:] = [one]
        elif one.generation == pool[0].generation and one is not pool[0]:
            pool.append(one)
    return [pool for pool in pools.values() if len(pool) >= pool[0].count]


def _is_gpu_label(label: str) -> bool:
    return label.startswith(NVIDIA) or _NVIDIA_CARD.fullmatch(label) is not None


def _is_relevant(labels: Mapping[str, str], annotations: Mapping[str, str]) -> bool:
    return (
        LEASE_LABEL in labels
        or labels.get(COMPONENT[0]) == COMPONENT[1]
        or labels.get("app") == KAI_RESERVATION
        or any(label.startswith(KAI_GROUP) for label in labels)
        or any(name in (KAI_FRACTION, KAI_MEMORY) or name.startswith(HAMI) for name in annotations)
    )


def _gpu_group(labels: Mapping[str, str]) -> str:
    """Return KAI-Scheduler's GPU group of a pod, which names the card that the pod shares with other pods. Groups of
    several cards are joined with commas; "" without a group.
    """
    if KAI_GROUP in labels:
        return intern(labels[KAI_GROUP])
    return intern(",".join(sorted(name.partition("/")[2] for name in labels if name.startswith(f"{KAI_GROUP}/"))))


def _is_low_priority(spec: Json) -> bool:
    """Return whether a pod has a negative priority, so that the scheduler evicts it for a server.

    The placeholders of the chart's ``podPriority`` are such pods.
    """
    priority = spec.get("priority")
    return isinstance(priority, int) and priority < 0


def _requests(spec: Json) -> Mapping[str, int]:
    """Return the resources that the scheduler counts for a pod (Kubernetes v1.36 ``component-helpers/resource``).

    The result is the larger of two numbers. The first is the sum over the containers and the restartable init
    containers. The second is the request of one init container, plus those of the restartable init containers before
    it.
    """
    together: dict[str, int] = {}
    largest: dict[str, int] = {}
    for container in _parts(spec, "initContainers"):
        asked = _asked(container)
        restartable = container.get("restartPolicy") == "Always"
        for resource, number in asked.items():
            at_once = together.get(resource, 0) + number
            largest[resource] = max(largest.get(resource, 0), at_once)
            if restartable:
                together[resource] = at_once
    for container in _parts(spec, "containers"):
        for resource, number in _asked(container).items():
            together[resource] = together.get(resource, 0) + number
    counted = {resource: max(together.get(resource, 0), largest.get(resource, 0)) for resource in together | largest}
    return _interned(tuple(sorted((resource, number) for resource, number in counted.items() if number)))


def _asked(container: Json) -> Mapping[str, int]:
    resources = _part(container, "resources")
    # for extended resources, request and limit are equal; the API server adds a missing request
    return _extended({**_part(resources, "limits"), **_part(resources, "requests")})


def _extended(quantities: Json) -> Mapping[str, int]:
    found = ((name, _whole(value)) for name, value in quantities.items() if name.startswith(NVIDIA))
    return _interned(tuple(sorted((intern(name), number) for name, number in found if number is not None)))


@lru_cache(maxsize=4096)
def _interned(items: tuple[tuple[str, int], ...]) -> Mapping[str, int]:
    """Return one shared mapping object for equal contents, which saves memory. It must not be modified."""
    return dict(items)


def _whole(value: object) -> int | None:
    """Parse a quantity as a whole number (``5``, ``1k``, ``40Gi``); `None` if it is invalid or not whole."""
    found = _QUANTITY.fullmatch(str(value))
    if found is None:
        return None
    exact = float(found["number"]) * _UNITS[found["unit"]] if "." in found["number"] else None
    if exact is None:
        return int(found["number"]) * _UNITS[found["unit"]]
    return int(exact) if exact.is_integer() else None


def _claims_of_pod(spec: Json, status: Json) -> tuple[str, ...]:
    named = [_text(one, "resourceClaimName") for one in _parts(spec, "resourceClaims")]
    made = [_text(one, "resourceClaimName") for one in _parts(status, "resourceClaimStatuses")]
    extended = _text(_part(status, "extendedResourceClaimStatus"), "resourceClaimName")
    return tuple(dict.fromkeys(name for name in [*named, *made, extended] if name))


def _device(driver: str, pool: str, node: str, raw: Json) -> SliceDevice:
    attributes, capacity = _part(raw, "attributes"), _part(raw, "capacity")

    def attribute(name: str) -> str:
        return intern(_text(_qualified(attributes, driver, name), "string"))

    return SliceDevice(
        driver=intern(driver),
        pool=intern(pool),
        name=intern(_text(raw, "name")),
        node=node or intern(_text(raw, "nodeName")),
        kind=attribute("type"),
        product=attribute("productName"),
        profile=attribute("profile"),
        memory_bytes=_whole(_qualified(capacity, driver, "memory").get("value")) or None,
        multiprocessors=_whole(_qualified(capacity, driver, "multiprocessors").get("value")),
        draws=_counters(_parts(raw, "consumesCounters"), "counterSet", MOST),
        closed=_tainted(raw),
        uuid=attribute("uuid"),
    )


def _counters(sets: Iterable[Json], name: str, unknown: int) -> tuple[tuple[str, str, int], ...]:
    """Return (counter set, counter, number) of each counter above 0.

    Args:
        sets: the counter sets, as in the JSON of a ResourceSlice.
        name: the JSON field that has the name of the set.
        unknown: the number for a counter whose own number cannot be read.
    """
    found = []
    for one in sets:
        for counter, count in _part(one, "counters").items():
            number = _whole(count.get("value")) if isinstance(count, dict) else None
            found.append((_text(one, name), counter, unknown if number is None else number))
    return _interned_counters(tuple(sorted(each for each in found if each[2])))


@lru_cache(maxsize=4096)
def _interned_counters(counters: tuple[tuple[str, str, int], ...]) -> tuple[tuple[str, str, int], ...]:
    """Return one shared tuple object for equal contents, which saves memory."""
    return counters


def _qualified(values: Json, driver: str, name: str) -> Json:
    """Return an attribute or capacity of a device. Its name may be written with or without the driver's domain.

    Args:
        values: the attributes or capacities of the device.
        driver: the driver's domain.
        name: name without the domain.
    """
    return _part(values, name) or _part(values, f"{driver}/{name}")


def _tainted(device: Json) -> bool:
    return any(_text(taint, "effect") in ("NoSchedule", "NoExecute") for taint in _parts(device, "taints"))


def _wanted_count(request: Json) -> int:
    if _text(request, "allocationMode") == "All":
        return 0
    count = request.get("count", 1)
    return count if isinstance(count, int) else 0


def _is_sharing(configuration: Json) -> bool:
    parameters = _part(_part(configuration, "opaque"), "parameters")
    return bool(_text(_part(parameters, "sharing"), "strategy"))


def _condition(status: Json, kind: str) -> Json:
    return next((one for one in _parts(status, "conditions") if one.get("type") == kind), {})


def _true(status: Json, kind: str) -> Json:
    found = _condition(status, kind)
    return found if _text(found, "status") == "True" else {}


def _part(raw: Json, name: str) -> Json:
    value = raw.get(name)
    return value if isinstance(value, dict) else {}


def _parts(raw: Json, name: str) -> Sequence[Json]:
    value = raw.get(name)
    return [one for one in value if isinstance(one, dict)] if isinstance(value, list) else []


def _text(raw: Json, name: str) -> str:
    value = raw.get(name)
    return value if isinstance(value, str) else ""


def _texts(raw: Json, name: str) -> Mapping[str, str]:
    return {key: value for key, value in _part(raw, name).items() if isinstance(value, str)}


def _time(value: object) -> datetime | None:
    """Parse a time of the API server (RFC 3339 in UTC); `None` for any other text."""
    if not isinstance(value, str):
        return None
    # Python 3.10 parses neither the Z nor fractions that do not have three or six digits
    whole, _, fraction = value.removesuffix("Z").partition(".")
    try:
        read = datetime.fromisoformat(f"{whole}.{fraction:0<6.6}" if fraction else whole)
    except ValueError:
        return None
    return read.replace(tzinfo=timezone.utc) if read.tzinfo is None else read.astimezone(timezone.utc)
