"""Values of a cluster: its nodes, pods, resource slices and claims as far as they concern GPUs, and the settings.

The values are small, because a cluster of 10,000 pods is kept in memory.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from typing import ClassVar, Literal, TypeAlias

from hub_extensions.core.settings import setting


@dataclass(frozen=True, slots=True)
class Taint:
    """A node's taint. `effect` is ``NoSchedule``, ``PreferNoSchedule`` or ``NoExecute``."""

    key: str
    value: str
    effect: str


@dataclass(frozen=True, slots=True)
class NodeFacts:
    """A node that has a GPU, or once had one. Other nodes are not kept.

    Attributes:
        labels: all labels, because a node selector may name any.
        allocatable: resource -> count, of extended resources below ``nvidia.com/`` only.
        ready: whether condition Ready is True; None if it is Unknown, because the kubelet does not report.
        cordoned: ``spec.unschedulable``.
        hami: annotation ``hami.io/node-nvidia-register``; "" without HAMi.
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
    """A pod that requests a GPU in any way, or that is a server of this hub. Other pods are not kept.

    Attributes:
        node: the node that the pod is bound to; "" before.
        requests: extended resources below ``nvidia.com/`` that the pod holds once it is bound. For each resource, this
            is the sum over its containers (with restartable init containers), or the largest init container if that is
            more.
        phase: ``Pending``, ``Running``, ``Succeeded``, ``Failed``, ``Unknown``.
        reason, message: reason and message of the status; "" if they are not set.
        lease, offer: values of this product's labels; "" on other pods. The offer is not an `OfferId`, because a label
            contains ``_`` instead of ``@``.
        user, server: values of KubeSpawner's annotations; "" if they are not set.
        deleting: whether the pod has a deletion timestamp.
        unscheduled: reason of condition PodScheduled=False (``Unschedulable``, ``SchedulingGated``); "" if the pod is
            scheduled or the scheduler has not tried yet.
        unscheduled_why: message of that condition.
        unscheduled_since: last transition of that condition; None if it is not known.
        target: reason of condition TerminationTarget or DisruptionTarget with status True; "" without such a condition.
        target_why: message of that condition.
        gates: names of the scheduling gates.
        fraction, memory_mib: KAI's annotations with the part of a card.
        gpu_group: KAI's label ``runai-gpu-group``.
        hami: annotation ``hami.io/vgpu-devices-allocated``.
        claims: names of the ResourceClaims that were created for the pod.
        ready: whether condition Ready is True.
        created: time of creation, by the API server's clock.
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
        """Whether the pod has ended and holds no resources, though its object still exists."""
        return self.phase in ("Succeeded", "Failed")


@dataclass(frozen=True, slots=True)
class SliceDevice:
    """A device of a ResourceSlice (``resource.k8s.io/v1``) of NVIDIA's DRA driver.

    Attributes:
        driver, pool, node: DRA driver, DRA pool and node of the device.
        kind: attribute ``type``: ``gpu`` or ``mig``.
        profile: profile of a MIG device, such as ``1g.10gb``; "" otherwise.
        memory_bytes, multiprocessors: capacities; None if not known.
        draws: (counter set, counter, amount) of each shared counter that the device consumes (``consumesCounters``).
            Only a device that is created on a card when it is claimed consumes counters.
        closed: whether the device is tainted against new pods. Such a device is kept only if it consumes counters,
            because the pod that has it still uses them up.
        uuid: UUID of an existing device; "" for one that is created when it is claimed.
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
    uuid: str = ""


@dataclass(frozen=True, slots=True)
class CounterFacts:
    """The shared counters of a DRA pool of devices that are created on demand.

    Attributes:
        counters: (counter set, counter, value) of each.
    """

    driver: str
    pool: str
    counters: tuple[tuple[str, str, int], ...]


@dataclass(frozen=True, slots=True)
class ClaimFacts:
    """A ResourceClaim to which devices are allocated.

    Attributes:
        devices: (DRA driver, DRA pool, name of the device) of each allocated device.
        pod: name of the pod that the claim is for; "" if it is for none.
    """

    namespace: str
    name: str
    devices: tuple[tuple[str, str, str], ...]
    pod: str = ""


@dataclass(frozen=True, slots=True)
class TemplateFacts:
    """A ResourceClaimTemplate in the hub's namespace.

    Attributes:
        device_class: usually ``gpu.nvidia.com`` or ``mig.nvidia.com``.
        count: number of devices that it requests.
        selectors: CEL expressions that select the devices.
        shared: whether its configuration asks for time-slicing or MPS.
    """

    name: str
    device_class: str
    count: int = 1
    selectors: tuple[str, ...] = ()
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement of a node selector term.

    Attributes:
        key: name of the label; ``metadata.name`` if `of_field` is True.
        operator: such as ``In`` or ``Exists``.
        of_field: True if the requirement is on the node's name, False if it is on a label.
    """

    key: str
    operator: str
    values: tuple[str, ...] = ()
    of_field: bool = False


Term: TypeAlias = tuple[Requirement, ...]
"""A node selector term, whose requirements all have to be met. An empty term matches no node."""


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    """The requirements of a persistent volume on the nodes that use it.

    Attributes:
        terms: required node affinity; None if the volume does not require any.
        zones: (label of zones or regions, accepted values) for each such label of the volume.
    """

    terms: tuple[Term, ...] | None = None
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Volumes:
    """Persistent volumes that restrict the nodes of their pods.

    Attributes:
        bound: claim as ``namespace/name`` -> name of its volume.
        volumes: name -> volume, for volumes with requirements.
        unread: True if the hub is not allowed to read them (403), so that both mappings are empty.
    """

    bound: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, VolumeFacts] = field(default_factory=dict)
    unread: bool = False

    def of(self, claims: Iterable[str]) -> tuple[VolumeFacts, ...]:
        """Return the volumes that restrict a pod with these claims.

        A claim that is not bound yet restricts nothing, because its volume will be made near the pod.

        Args:
            claims: ``namespace/name`` of each persistent volume claim.
        """
        found = (self.volumes.get(self.bound.get(claim, "")) for claim in claims)
        return tuple(dict.fromkeys(volume for volume in found if volume is not None))


@dataclass(frozen=True)
class ClusterView:
    """The objects of the cluster that the hub may read, at one moment.

    Attributes:
        nodes, pods: None if the hub is not allowed to read them (403).
        own_pods_only: whether `pods` contains only the hub's own namespace.
        slices, claims, templates: None if the cluster does not use DRA, or the hub is not allowed to read it.
        counters: shared counters of devices in `slices` that are created on demand.
        volumes: volumes of the pods, as far as the hub is allowed to read them.
        namespace: namespace of the pods of this hub's servers; "" if not known.
        at: wall-clock time of the last message from the API server; None before the first.
        problem: why the cluster cannot be read now, as a sentence; "" if it can.
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
    volumes: Volumes = Volumes()


@dataclass(frozen=True)
class ClusterConfig:
    """A Kubernetes cluster, where servers are pods (``c.JupyterHub.spawner_class = "gpu"``).

    A standard cluster needs none of the settings, because node labels and allocatable resources describe its GPUs.

    Attributes:
        namespace: namespace of the servers' pods; "" for the service's own.
        node_labels: the servers' node selector. Only nodes with all of these labels count.
        node_terms: the servers' required node affinity. Only nodes that match a term count; None for no restriction.
        tolerated: taints that the servers' pods tolerate in addition to ``nvidia.com/gpu:NoSchedule``: ``key`` or
            ``key=value``, each optionally followed by ``:effect``, or ``*`` for all.
        resources: GPU resource to which the device plugin gives another name than usual -> id of its offer.
    """

    section: ClassVar[str] = "GpuCluster"

    namespace: str = ""
    kubeconfig: str = setting(
        "", "Kubeconfig file to read the cluster with. Empty: the service account of the hub's own pod."
    )
    context: str = setting("", "Which context of the kubeconfig file. Empty: its current one.")
    capacity: Mapping[str, int] = setting(
        {},
        'How many devices there are, by offer: {"mig-1g.5gb": 5, "mig-2g.10gb": 1}. Used only where this hub may not '
        "read the cluster's nodes, or not the pods of other namespaces; where it can read the nodes, never more than "
        "the nodes that count really have.",
        least=0,
    )
    node_labels: Mapping[str, str] = field(default_factory=dict)
    node_terms: tuple[Term, ...] | None = None
    tolerated: tuple[str, ...] = ()
    resources: Mapping[str, str] = field(default_factory=dict)
    kueue_queue: str = setting(
        "", "Name of a LocalQueue of Kueue in the servers' namespace: Kueue decides then who is next."
    )
    kai_queue: str = setting(
        "", "Name of a queue of KAI-Scheduler: its scheduler places the servers and decides who is next."
    )
    kai_scheduler: str = setting("kai-scheduler", "Name of KAI's scheduler.")
    fraction_scheduler: Literal["kai", "hami", ""] = setting(
        "",
        "Who shares a GPU out for c.GpuOffers.fractions: 'kai', 'hami', or empty for nobody. Time-slicing and MPS of "
        "NVIDIA's device plugin need no word here.",
    )
    runtime_class: str = setting("", "RuntimeClass of servers with a GPU. Empty: the cluster's default.")
    delete_orphaned_pods: bool = setting(
        False,
        "True deletes a server's pod that the hub has forgotten; its user's files stay. False only shows it to admins: "
        "it goes on and keeps its GPU. Leave it off where two hubs have one namespace: they cannot tell their pods "
        "apart.",
    )
    forgotten_after: timedelta = setting(
        timedelta(minutes=5),
        "A forgotten pod is deleted after this long, where that is allowed.",
        name="orphaned_pod_minutes",
        least=0,
    )
    allow_node_drain: bool = setting(
        False,
        "Admins may drain a node on their page: the service cordons it, as kubectl cordon does, and uncordons it. "
        "Nothing new is placed there then, of no other program either. Needs the right to patch nodes "
        "(drain-nodes.yaml of helm-values/manifests); without this setting the page names the command.",
    )
    outside_after: timedelta = setting(
        timedelta(seconds=30),
        "An admitted server that finds no GPU for this long: something outside this hub took it. Nobody else is let "
        "past, and the waiting page says so.",
        name="unschedulable_seconds",
        least=0,
    )
    servers_url: str = setting(
        "",
        "Address at which users' servers reach the GPU service, ending in /services/gpu. Empty: through the hub's "
        "proxy by plain HTTP where the chart's service is there, else the service's own address. With the chart's "
        "proxy.https of the type manual or secret the proxy sends plain HTTP away: set https://your-host/services/gpu "
        "then.",
        name="service_connect_url",
    )
