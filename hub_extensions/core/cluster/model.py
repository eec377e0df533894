"""A cluster as far as GPUs go: what is kept of its nodes, pods, slices and claims, and what an admin says about it.

Values only, small ones: a cluster of 10,000 pods is kept whole in memory. Not here: how they are read
(``adapters/kubernetes/watch.py``), and what follows from them (``pools.py``).
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
        lease, offer: our labels; "" on pods that are not ours. No `OfferId`: a label has ``_`` for the ``@`` of one.
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
        uuid: of what is there already; "" of what is cut when it is claimed.
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


@dataclass(frozen=True, slots=True)
class Requirement:
    """One of a node's label, or of its name (`of_field` is True then, and `key` ``metadata.name``)."""

    key: str
    operator: str
    values: tuple[str, ...] = ()
    of_field: bool = False


Term: TypeAlias = tuple[Requirement, ...]
"""All of them have to hold; one without any holds nowhere. Of several terms one is enough."""


@dataclass(frozen=True, slots=True)
class VolumeFacts:
    """What a persistent volume demands of the nodes that use it. `terms` None: nothing.

    Attributes:
        zones: label -> the zones or regions that its own label names.
    """

    terms: tuple[Term, ...] | None = None
    zones: tuple[tuple[str, tuple[str, ...]], ...] = ()


@dataclass(frozen=True)
class Volumes:
    """What claims are bound to: ``namespace/name`` -> volume, and the volumes that constrain.

    Attributes:
        unread: some of it may not be read (403); it is empty then, and constrains nothing.
    """

    bound: Mapping[str, str] = field(default_factory=dict)
    volumes: Mapping[str, VolumeFacts] = field(default_factory=dict)
    unread: bool = False

    def of(self, claims: Iterable[str]) -> tuple[VolumeFacts, ...]:
        """What constrains a pod with these claims; one that is not bound yet is bound where the pod goes."""
        found = (self.volumes.get(self.bound.get(claim, "")) for claim in claims)
        return tuple(dict.fromkeys(volume for volume in found if volume is not None))


@dataclass(frozen=True)
class ClusterView:
    """The cluster at one moment.

    Attributes:
        nodes, pods: None: this hub may not read them (403).
        own_pods_only: `pods` has the hub's own namespace only.
        slices, claims, templates: None: there is no DRA here, or it may not be read.
        counters: of the devices of `slices` that are cut on demand.
        volumes: what claims are bound to, as far as it may be read.
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
    volumes: Volumes = Volumes()


@dataclass(frozen=True)
class ClusterConfig:
    """A Kubernetes cluster, where servers are pods (``c.JupyterHub.spawner_class = "gpu"``).

    A standard cluster needs none of the settings: what it has is found by node labels and allocatable resources.

    Attributes:
        namespace: of the servers' pods; "" is the service's own.
        node_labels: only nodes with all of these labels count (what the servers' node selector says).
        node_terms: only nodes that fit one of these count (the servers' required node affinity); None: there is none.
        tolerated: taints that the servers' pods tolerate, beside ``nvidia.com/gpu:NoSchedule``: ``key``, ``key=value``,
            either with ``:effect`` behind it, or ``*`` for all.
        resources: names of the cluster's own -> ids of offers, as `OfferConfig.resources` says.
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
    fractions_by: Literal["kai", "hami", ""] = setting(
        "",
        "Who shares a GPU out for c.GpuOffers.fractions: 'kai', 'hami', or empty for nobody. Time-slicing and MPS of "
        "NVIDIA's device plugin need no word here.",
    )
    runtime_class: str = setting("", "RuntimeClass of servers with a GPU. Empty: the cluster's default.")
    remove_forgotten: bool = setting(
        False,
        "True deletes a server's pod that the hub has forgotten; its user's files stay. False only shows it to admins: "
        "it goes on and keeps its GPU. Leave it off where two hubs have one namespace: they cannot tell their pods "
        "apart.",
    )
    forgotten_after: timedelta = setting(
        timedelta(minutes=5),
        "A forgotten pod is deleted after this long, where that is allowed.",
        name="forgotten_minutes",
        least=0,
    )
    drain_nodes: bool = setting(
        False,
        "Admins may drain a node on their page: the service cordons it, as kubectl cordon does, and uncordons it. "
        "Nothing new is placed there then, of no other program either. Needs the right to patch nodes "
        "(drain-nodes.yaml of helm-values/manifests); without this setting the page names the command.",
    )
    outside_after: timedelta = setting(
        timedelta(seconds=30),
        "An admitted server that finds no GPU for this long: something outside this hub took it. Nobody else is let "
        "past, and the waiting page says so.",
        name="outside_seconds",
        least=0,
    )
    servers_url: str = setting(
        "",
        "Address at which users' servers reach the GPU service, ending in /services/gpu. Empty: through the hub's "
        "proxy by plain HTTP where the chart's service is there, else the service's own address. With the chart's "
        "proxy.https of the type manual or secret the proxy sends plain HTTP away: set https://your-host/services/gpu "
        "then.",
    )
