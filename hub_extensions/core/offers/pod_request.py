"""An offer's additions to the pod of a server, by which the cluster gives it the right GPU, and checks of them.

The additions depend on the mechanism with which the cluster assigns GPUs, such as MIG, time-slicing or DRA.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from enum import Enum
from typing import Any


class Mechanism(Enum):
    """The mechanism by which a cluster assigns the GPU of an offer."""

    CPU = "cpu"
    WHOLE = "whole"
    MIG = "mig"
    """The device plugin's *mixed* strategy: one resource for each MIG profile."""
    MIG_SINGLE = "mig-single"
    """The device plugin's *single* strategy: ``nvidia.com/gpu`` is a MIG device, and a label of the node names it."""
    TIME_SLICING = "time-slicing"
    MPS = "mps"
    HAMI = "hami"
    KAI_FRACTION = "kai-fraction"
    KAI_MEMORY = "kai-memory"
    DRA = "dra"


NODE_PRODUCT = "nvidia.com/gpu.product"
"""Label by which GPU Feature Discovery names a node's GPUs."""
GPU_RESOURCE = "nvidia.com/gpu"
GPU_TAINT = "nvidia.com/gpu"
LEASE_LABEL = "jupyterhub-gpu/lease"
OFFER_LABEL = "jupyterhub-gpu/offer"
"""Labels of every server's pod: its lease, and the chosen offer."""
POD_MARK = "JUPYTERHUB_GPU_POD"
"""Environment variable of a pod with a lease: the mechanism. Only the cluster knows which device the pod has."""
KUEUE_QUEUE_LABEL = "kueue.x-k8s.io/queue-name"
KAI_QUEUE_LABEL = "kai.scheduler/queue"
KAI_FRACTION = "gpu-fraction"
KAI_MEMORY = "gpu-memory"
CONTAINER = "notebook"
"""Name of the server's own container in KubeSpawner's pods."""
CLAIM = "jupyterhub-gpu"
"""Name within the pod of the offer's ResourceClaim (DRA)."""
VISIBLE = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")

SHARED = frozenset({Mechanism.TIME_SLICING, Mechanism.MPS})
ALONE = frozenset({Mechanism.WHOLE, Mechanism.MIG, Mechanism.MIG_SINGLE, Mechanism.DRA})
"""Mechanisms that give the device to one pod only, enforced by hardware."""
ONE_ONLY = SHARED | {Mechanism.MIG, Mechanism.MIG_SINGLE}
"""Mechanisms of which a pod may request only one device: two shares of a card are not a larger share, and CUDA before
driver 570 uses only one MIG device in a process."""


@dataclass(frozen=True, slots=True)
class PodAsk:
    """An offer's additions to the pod of a server, by which the cluster gives it the right GPU.

    Attributes:
        mechanism: the mechanism with which the cluster assigns the GPU.
        limits: extended resources of the server's container, resource name -> quantity as text.
        node_labels: required node affinity: label -> accepted values. Without values the label must be absent.
        tolerations: keys of taints with the effect NoSchedule that are tolerated, with any value.
        labels, annotations: labels and annotations of the pod.
        environment: environment variables of the server's container.
        scheduler: the scheduler's name; "" keeps the administrator's, "default-scheduler" removes it.
        runtime_class: the runtime class; "" keeps the administrator's.
        claim_template: name of the ResourceClaimTemplate (``resource.k8s.io/v1``) for DRA; "" for none.
        forbids_shm: True if the mechanism mounts ``/dev/shm`` itself (MPS), so that nothing else may be mounted there.
        queue: the system that decides who starts when: ``Kueue``, ``KAI``, or "" for the GPU service.
    """

    mechanism: Mechanism
    limits: Mapping[str, str] = field(default_factory=dict)
    node_labels: Mapping[str, tuple[str, ...]] = field(default_factory=dict)
    tolerations: tuple[str, ...] = ()
    labels: Mapping[str, str] = field(default_factory=dict)
    annotations: Mapping[str, str] = field(default_factory=dict)
    environment: Mapping[str, str] = field(default_factory=dict)
    scheduler: str = ""
    runtime_class: str = ""
    claim_template: str = ""
    forbids_shm: bool = False
    queue: str = ""


def label_value(text: str) -> str:
    """Return an id as a valid Kubernetes label value: every character that labels do not allow becomes ``_``."""
    return re.sub(r"[^A-Za-z0-9._-]", "_", text)[:63].strip("._-")


class AskError(ValueError):
    """An error for additions to a pod that the cluster would refuse, or would accept and never schedule.

    Attributes:
        field: the wrong part of the `PodAsk`, such as ``limits['nvidia.com/gpu']``.
    """

    def __init__(self, field: str, text: str) -> None:
        super().__init__(f"{field}: {text}")
        self.field = field
        self.text = text


_QUANTITY = re.compile(r"[1-9][0-9]{0,8}")
_FRACTION = re.compile(r"0\.[0-9]{1,2}")
PARTS = frozenset({"nvidia.com/gpumem", "nvidia.com/gpumem-percentage", "nvidia.com/gpucores", "nvidia.com/priority"})
"""Resources of HAMi that describe how much of a card a pod gets."""
_NETWORK = re.compile(
    r"nvidia\.com/(?:.*[._-])?(?:hostdev|rdma|roce|sriov|switchdev|infiniband|ib|nics?|vfs?|pfs?|mlnx\w*|mofed|"
    r"cx\d\w*|bf\d\w*)(?:[._-].*)?",
    re.IGNORECASE,
)
"""Network devices under NVIDIA's domain (SR-IOV and RDMA device plugins of its network operator)."""
_GPUS = re.compile(
    r"nvidia\.com/.+|amd\.com/(?!xilinx).+|gpu\.intel\.com/.+|[^/]+/(?:.*[._-])?(?:v?gpus?|vcuda)(?:[._-].*)?",
    re.IGNORECASE,
)


def is_gpu_resource(name: str) -> bool:
    """Return whether an extended resource of Kubernetes gives GPUs or parts of one, under any name.

    Device plugins can rename resources (``nvidia.com/a100``), so every name under NVIDIA's domain counts unless it is
    known to be a network device.
    """
    return _GPUS.fullmatch(name) is not None and _NETWORK.fullmatch(name) is None


def check_ask(ask: PodAsk) -> None:
    """Refuse additions to a pod that are known to fail.

    The rules are those of NVIDIA k8s-device-plugin v0.20, KAI-Scheduler v0.17 and HAMi v2.10.

    Raises:
        AskError: the first thing that is wrong.
    """
    for resource, quantity in ask.limits.items():
        if not _QUANTITY.fullmatch(quantity):
            raise AskError(f"limits[{resource!r}]", f"a whole number above 0 is needed, not {quantity!r}")
    devices = [resource for resource in ask.limits if is_gpu_resource(resource) and resource not in PARTS]
    if len(devices) > 1:
        raise AskError("limits", f"one kind of GPU a server, not {' and '.join(sorted(devices))}")
    if ask.mechanism in ONE_ONLY and any(ask.limits[resource] != "1" for resource in devices):
        raise AskError(f"limits[{devices[0]!r}]", f"{ask.mechanism.value} gives exactly one")
    _check_kai(ask, devices)
    _check_hami(ask)
    if ask.mechanism is Mechanism.DRA and (devices or not ask.claim_template):
        raise AskError("claim_template", "DRA needs a claim template and no GPU among the limits")
    if ask.mechanism is not Mechanism.DRA and ask.claim_template:
        raise AskError("claim_template", f"{ask.mechanism.value} takes no claim")
    if ask.mechanism is Mechanism.CPU and ask.environment.get("NVIDIA_VISIBLE_DEVICES") != "void":
        raise AskError("environment", "CPU only has to set NVIDIA_VISIBLE_DEVICES=void, else it sees every GPU")
    if ask.mechanism is Mechanism.MPS and not ask.forbids_shm:
        raise AskError("forbids_shm", "MPS mounts /dev/shm itself")


def _check_kai(ask: PodAsk, devices: list[str]) -> None:
    fraction, memory = ask.annotations.get(KAI_FRACTION), ask.annotations.get(KAI_MEMORY)
    if fraction is None and memory is None:
        if ask.mechanism in (Mechanism.KAI_FRACTION, Mechanism.KAI_MEMORY):
            raise AskError("annotations", f"KAI needs {KAI_FRACTION} or {KAI_MEMORY}")
        return
    if devices or (fraction is not None and memory is not None):
        raise AskError("annotations", f"{KAI_FRACTION}, {KAI_MEMORY} and a GPU among the limits exclude one another")
    if fraction is not None and (not _FRACTION.fullmatch(fraction) or float(fraction) == 0):
        raise AskError(KAI_FRACTION, f"a number above 0 and below 1 with at most two decimals, not {fraction!r}")
    if memory is not None and not _QUANTITY.fullmatch(memory):
        raise AskError(KAI_MEMORY, f"a whole number of MiB without a unit, not {memory!r}")
    if ask.scheduler in ("", "default-scheduler"):
        raise AskError("scheduler", "KAI's scheduler has to be named, else nobody shares a GPU out")


def _check_hami(ask: PodAsk) -> None:
    if ask.mechanism is not Mechanism.HAMI:
        return
    if GPU_RESOURCE not in ask.limits or not {"nvidia.com/gpumem", "nvidia.com/gpumem-percentage"} & set(ask.limits):
        raise AskError("limits", "HAMi needs nvidia.com/gpu and nvidia.com/gpumem or nvidia.com/gpumem-percentage")
    if ask.scheduler not in ("hami-scheduler", "default-scheduler"):
        raise AskError("scheduler", "HAMi does nothing for a pod that names another scheduler")


# ------------------------------------------------------------------ the pod as it is going to be made


def gpu_differences(ask: PodAsk, pod: Mapping[str, Any]) -> tuple[str, ...]:
    """Return how the GPUs of a pod differ from those of its offer, one sentence each; empty if they are the same.

    Args:
        ask: what the offer adds to the pod.
        pod: the pod's JSON as it goes to the API server, after all hooks.
    """
    spec = pod.get("spec") or {}
    containers = spec.get("containers") or []
    server = next((each for each in containers if each.get("name") == CONTAINER), containers[0] if containers else {})
    found = list(_other_limits(ask, server))
    for each in (*containers, *(spec.get("initContainers") or ()), *(spec.get("ephemeralContainers") or ())):
        if each is not server:
            asked = _gpus_of(each)
            found.extend(f"container {each.get('name')} asks for {name}={asked[name]}" for name in sorted(asked))
        found.extend(_other_visible(ask if each is server else None, each))
    found.extend(_other_claims(ask, spec.get("resourceClaims") or ()))
    annotations = (pod.get("metadata") or {}).get("annotations") or {}
    for name in (KAI_FRACTION, KAI_MEMORY, f"{KAI_FRACTION}-num-devices"):
        there, wanted = annotations.get(name), ask.annotations.get(name)
        if there != wanted:
            found.append(f"its annotation {name} is {there or 'gone'}, and its lease gives {wanted or 'none'}")
    return tuple(found)


def _gpus_of(container: Mapping[str, Any]) -> dict[str, str]:
    resources = container.get("resources") or {}
    asked = {**(resources.get("requests") or {}), **(resources.get("limits") or {})}
    return {name: str(value) for name, value in asked.items() if is_gpu_resource(name) and str(value) != "0"}


def _other_limits(ask: PodAsk, server: Mapping[str, Any]) -> Iterator[str]:
    asked = _gpus_of(server)
    wanted = {name: value for name, value in ask.limits.items() if is_gpu_resource(name)}
    for name in sorted({*asked, *wanted}):
        there, right = asked.get(name), wanted.get(name)
        if there != right:
            has = f"asks for {name}={there}" if there else f"does not ask for {name}={right}"
            yield f"its server {has}, and its lease gives {f'{name}={right}' if right else 'no such GPU'}"


def _other_visible(ask: PodAsk | None, container: Mapping[str, Any]) -> Iterator[str]:
    """Yield a sentence if ``NVIDIA_VISIBLE_DEVICES`` of a container differs from the offer's value.

    With this variable the container runtime mounts GPUs, whatever resources the pod requests.

    Args:
        ask: what the offer adds to the pod; `None` for a container that gets no GPU.
    """
    name = VISIBLE[0]
    variables = [each for each in container.get("env") or () if each.get("name") == name]
    # of several of one name the last one counts; what is read elsewhere at the start is not known
    there = (variables[-1].get("value") or ("?" if variables[-1].get("valueFrom") else "")) if variables else None
    wanted = ask.environment.get(name) if ask is not None else None
    if there != wanted and there not in (None, "", "void", "none"):
        yield f"container {container.get('name')} has {name}={there}: it sees GPUs that it does not ask for"
    elif wanted is not None and not there:
        yield f"container {container.get('name')} lost {name}={wanted}: it may see every GPU of its machine"


def _other_claims(ask: PodAsk, claims: Any) -> Iterator[str]:
    own = {"name": CLAIM, "resourceClaimTemplateName": ask.claim_template} if ask.claim_template else None
    if own is not None and own not in claims:
        yield f"it lost the claim of the template {ask.claim_template}, which its lease gives"
    for claim in claims:
        if claim != own:
            of = claim.get("resourceClaimTemplateName") or claim.get("resourceClaimName") or "nothing"
            yield f"it has the claim {claim.get('name')} of {of}, and its lease gives none such"
