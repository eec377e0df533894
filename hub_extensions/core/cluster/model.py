"""A cluster as far as GPUs go: what is kept of its nodes, pods, slices and claims, and what an admin says about it.

Values only, small ones: a cluster of 10,000 pods is kept whole in memory. Not here: how they are read
(``adapters/kubernetes/watch.py``), and what follows from them (``pools.py``).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint. `effect` is ``NoSchedule``, ``PreferNoSchedule`` or ``NoExecute``."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """What is kept of a node that has, or once had, a GPU; others are not kept.

    Attributes:
        labels: all of them (node selectors may name any), as they are.
        allocatable: extended resources of ``nvidia.com/`` only, resource -> count.
        ready: condition Ready is True; None: the kubelet has not been heard of (Unknown).
        cordoned: ``spec.unschedulable``.
        hami: the text of ``hami.io/node-nvidia-register``; "" without HAMi.
    """

    name: str
    labels: Mapping[str, str]
    allocatable: Mapping[str, int]
    taints: tuple[Taint, ...] = ()
    ready: bool | None = True
    cordoned: bool = False
    hami: str = ""


@dataclass(frozen=True, slots=True)
class PodFacts:
    """What is kept of a pod that asks for a GPU in any way, or that is a server of our hub; others are not kept.

    Attributes:
        node: where it is bound; "" while it is not.
        requests: extended resources of ``nvidia.com/`` it holds once bound: per resource the larger of the sum over its
            containers (with restartable init containers) and of the largest init container.
        phase: ``Pending``, ``Running``, ``Succeeded``, ``Failed``, ``Unknown``.
        reason, message: of the status, as the kubelet wrote them; "" without.
        lease, offer: our labels; "" on pods that are not ours.
        user, server: KubeSpawner's annotations; "" elsewhere.
        deleting: it has a deletion time.
        unscheduled: reason of condition PodScheduled=False (``Unschedulable``, ``SchedulingGated``); "" when scheduled
            or not judged yet. unscheduled_why: its message. unscheduled_since: since when.
        target: reason of condition TerminationTarget or DisruptionTarget with status True; target_why: its message.
        gates: names of its scheduling gates.
        fraction, memory_mib: KAI's annotations; gpu_group: KAI's label ``runai-gpu-group``.
        hami: the text of ``hami.io/vgpu-devices-allocated``.
        claims: names of the ResourceClaims made for it.
        ready: condition Ready is True.
        created: by the API server's clock.
    """

    uid: str
    namespace: str
    name: str
    node: str = ""
    requests: Mapping[str, int] = field(default_factory=dict)
    phase: str = "Pending"
    reason: str = ""
    message: str = ""
    lease: str = ""
    offer: str = ""
    user: str = ""
    server: str = ""
    deleting: bool = False
    unscheduled: str = ""
    unscheduled_why: str = ""
    unscheduled_since: datetime | None = None
    target: str = ""
    target_why: str = ""
    gates: tuple[str, ...] = ()
    fraction: str = ""
    memory_mib: str = ""
    gpu_group: str = ""
    hami: str = ""
    claims: tuple[str, ...] = ()
    ready: bool = False
    created: datetime | None = None

    @property
    def over(self) -> bool:
        """It ended and holds nothing any more, though its object is still there."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """One device of a ResourceSlice (``resource.k8s.io/v1``) of NVIDIA's DRA driver.

    Attributes:
        kind: attribute ``type``: ``gpu`` or ``mig``. profile: of a MIG device, e.g. ``1g.10gb``; "" else.
        memory_bytes, multiprocessors: capacities; None is not known.
        draws: it is cut from a card when it is claimed, and draws on counters that others draw on too
            (``consumesCounters``): (counter set, counter, amount) of each.
        closed: tainted against new pods. Kept only where it draws on counters: whoever has it goes on drawing.
    """

    driver: str
    pool: str
    name: str
    node: str
    kind: str
    product: str
    profile: str = ""
    memory_bytes: int | None = None
    multiprocessors: int | None = None
    draws: tuple[tuple[str, str, int], ...] = ()
    closed: bool = False


@dataclass(frozen=True, slots=True)
class CounterFacts:
    """The counters of one pool of devices that are cut on demand: (counter set, counter, value) of each."""

    driver: str
    pool: str
    counters: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """A ResourceClaim that was given devices: (driver, pool, device) of each; `pod`: name of the pod it is for."""

    namespace: str
    name: str
    devices: tuple[tuple[str, str, str], ...]
    pod: str = ""


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """A ResourceClaimTemplate of the hub's namespace that asks for one device.

    Attributes:
        device_class: ``gpu.nvidia.com`` or ``mig.nvidia.com`` as a rule. count: how many devices.
        selectors: CEL expressions, as they are. shared: it asks for time-slicing or MPS in its configuration.
    """

    name: str
    device_class: str
    count: int = 1
    selectors: tuple[str, ...] = ()
    shared: bool = False


@dataclass(frozen=True)
class ClusterView:
    """The cluster at one moment.

    Attributes:
        nodes, pods: None: this hub may not read them (403).
        own_pods_only: `pods` has the hub's own namespace only.
        slices, claims, templates: None: there is no DRA here, or it may not be read.
        counters: of the devices of `slices` that are cut on demand.
        namespace: where our servers' pods are; "" is not known.
        at: when the last word of the API server came in (wall clock).
        problem: why it cannot be read now, one sentence; "" when it can.
    """

    nodes: Mapping[str, NodeFacts] | None
    pods: Mapping[str, PodFacts] | None
    own_pods_only: bool = False
    namespace: str = ""
    slices: tuple[SliceDevice, ...] | None = None
    claims: tuple[ClaimFacts, ...] | None = None
    templates: tuple[TemplateFacts, ...] | None = None
    at: datetime | None = None
    problem: str = ""
    counters: tuple[CounterFacts, ...] = ()


@dataclass(frozen=True)
class ClusterConfig:
    """What an admin declares about the cluster. Without a word of it a standard cluster is found as it is.

    Attributes:
        namespace: of the servers' pods; "" is the service's own.
        kubeconfig: file to read instead of the pod's service account; "" for that.
        context: which context of it; "" is the current one.
        capacity: pool -> devices, used only where nodes, or pods of other namespaces, may not be read.
        node_labels: only nodes with all of these labels count (what the servers' node selector says).
        tolerated: taints that the servers' pods tolerate, beside ``nvidia.com/gpu:NoSchedule``: ``key``, ``key=value``,
            either with ``:effect`` behind it, or ``*`` for all.
        kueue_queue: name of a LocalQueue: the line is Kueue's then.
        kai_queue: name of a queue of KAI: the line is KAI's then. kai_scheduler: its scheduler's name.
        fractions_by: who shares a GPU out for `OfferConfig.fractions`: ``kai``, ``hami`` or "" for nobody.
        runtime_class: of pods with a GPU; "" for none.
        remove_forgotten: pods that the hub has forgotten are deleted after `forgotten_after`; else only shown.
        outside_after: an admitted pod that is not scheduled after this long: something outside this hub took the GPU.
        servers_url: where users' servers reach the service; "" is the service's own address.
    """

    namespace: str = ""
    kubeconfig: str = ""
    context: str = ""
    capacity: Mapping[str, int] = field(default_factory=dict)
    node_labels: Mapping[str, str] = field(default_factory=dict)
    tolerated: tuple[str, ...] = ()
    kueue_queue: str = ""
    kai_queue: str = ""
    kai_scheduler: str = "kai-scheduler"
    fractions_by: str = ""
    runtime_class: str = ""
    remove_forgotten: bool = False
    forgotten_after: timedelta = timedelta(minutes=5)
    outside_after: timedelta = timedelta(seconds=30)
    servers_url: str = ""


__all__ = [
    "ClaimFacts",
    "ClusterConfig",
    "ClusterView",
    "CounterFacts",
    "NodeFacts",
    "PodFacts",
    "SliceDevice",
    "Taint",
    "TemplateFacts",
]
