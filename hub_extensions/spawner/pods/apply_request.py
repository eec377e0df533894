"""Change the pod that KubeSpawner made so that it gets the GPU of an offer: one function for each part of the pod.

The functions work on the models of the Kubernetes client (``kubernetes_asyncio``), as KubeSpawner does. A `PodAsk`
(``core/offers/pod_request.py``) describes what an offer asks of a pod: limits, labels, claims and so on.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Collection, Iterable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any

from kubernetes_asyncio.client import (
    CoreV1ResourceClaim,
    V1Affinity,
    V1Container,
    V1EmptyDirVolumeSource,
    V1EnvVar,
    V1NodeAffinity,
    V1NodeSelector,
    V1NodeSelectorRequirement,
    V1NodeSelectorTerm,
    V1Pod,
    V1PodResourceClaim,
    V1ResourceRequirements,
    V1Toleration,
    V1Volume,
    V1VolumeMount,
)
from kubespawner.utils import get_k8s_model

from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import (
    CLAIM,
    CONTAINER,
    KAI_FRACTION,
    KAI_MEMORY,
    LEASE_LABEL,
    OFFER_LABEL,
    VISIBLE,
    Mechanism,
    PodAsk,
    check_ask,
    is_gpu_resource,
    label_value,
)

SHM = "/dev/shm"
SHM_VOLUME = "jupyterhub-gpu-shm"
START_ANNOTATION = "jupyterhub-gpu/start"
"""Annotation of every pod with the token of its launch. By the token a launch recognises its own pod, because an
earlier pod may have the same name."""
CPU_ASK = PodAsk(Mechanism.CPU, environment=dict.fromkeys(VISIBLE, "void"))
"""The additions of a CPU-only offer to a pod; also used if a CPU-only server starts without the service."""


PodChange = Callable[[V1Pod], V1Pod]
"""A function that makes one change to a server's pod and returns the changed manifest. It may modify its argument,
whose containers are all of the type `V1Container`."""


@dataclass(frozen=True)
class Applied:
    """The result of `apply`.

    Attributes:
        pod: the changed pod.
        notes: lines for the hub's log: one for each setting of the administrator that was removed from the pod, and one
            for each further container that requests a GPU.
    """

    pod: V1Pod
    notes: tuple[str, ...] = ()


def apply(ask: PodAsk, pod: V1Pod, *, lease: str, offer: OfferId, shm: str, start: str | None = None) -> Applied:
    """Return the pod with everything that an offer asks for.

    Args:
        ask: what the offer asks of a pod.
        pod: KubeSpawner's manifest, which is not modified.
        lease: id of the lease; "" for CPU only.
        offer: id of the offer, with which the pod is labelled.
        shm: size of ``/dev/shm``, such as ``1Gi``; "" leaves the container's own.
        start: identifies the launch that creates the pod; None sets no annotation.

    Raises:
        AskError: the offer itself is wrong; the cluster would refuse the pod, or accept and never schedule it.
    """
    check_ask(ask)
    notes: list[str] = []
    changes: list[PodChange] = [
        partial(remove_own_gpus, ask=ask, note=notes.append),
        partial(keep_log_tail, lease=lease),
        partial(set_resources, ask=ask),
        partial(set_environment, ask=ask),
        partial(add_affinity, labels=ask.node_labels),
        partial(add_tolerations, keys=ask.tolerations),
        partial(set_metadata, ask=ask, lease=lease, offer=offer, start=start),
        partial(set_scheduler, ask=ask),
        partial(set_shared_memory, ask=ask, size=shm, note=notes.append),
    ]
    return Applied(changed(pod, changes), tuple(notes))


def changed(pod: V1Pod, changes: Iterable[PodChange]) -> V1Pod:
    """Return a copy of the pod with every change made to it, in order.

    Args:
        pod: the pod, which is not modified.
        changes: functions that take a pod and return the changed one.
    """
    pod = copy.deepcopy(pod)
    pod.spec.containers = [get_k8s_model(V1Container, container) for container in pod.spec.containers]
    for change in changes:
        pod = change(pod)
    return pod


def server_container(pod: V1Pod) -> V1Container:
    """Return the container of the server itself: the one that KubeSpawner names ``notebook``, or else the first."""
    return next((each for each in pod.spec.containers if each.name == CONTAINER), pod.spec.containers[0])


def remove_own_gpus(pod: V1Pod, *, ask: PodAsk, note: Callable[[str], None]) -> V1Pod:
    """Remove the administrator's own limits, requests and annotations for GPUs from the server's container.

    The GPU comes with the offer instead. Other containers are left unchanged.

    Args:
        ask: what the offer asks of a pod. A removed setting that the offer sets to the same value is not noted.
        note: takes a line for the hub's log. It is called for each removed setting, and for another container that
            requests a GPU, because no lease covers that GPU.
    """
    container = server_container(pod)
    resources = container.resources = get_k8s_model(V1ResourceRequirements, container.resources or {})
    for kind in ("limits", "requests"):
        values: dict[str, Any] = dict(getattr(resources, kind) or {})
        for resource in [name for name in values if is_gpu_resource(name)]:
            removed = values.pop(resource)
            if ask.limits.get(resource) != str(removed):
                note(f"{resource}={removed} of your own {kind} is left out: the GPU comes with the offer")
        setattr(resources, kind, values)
    annotations: dict[str, str] = dict(pod.metadata.annotations or {})
    for name in (KAI_FRACTION, KAI_MEMORY):
        if name in annotations and name not in ask.annotations:
            del annotations[name]
            note(f"your own annotation {name} is left out: the GPU comes with the offer")
    pod.metadata.annotations = annotations
    for other in (*pod.spec.containers, *(pod.spec.init_containers or ())):
        if other is container:
            continue
        wanted = _field(other, "resources") or {}
        asked = {**(_field(wanted, "requests") or {}), **(_field(wanted, "limits") or {})}
        if any(is_gpu_resource(name) for name in asked):
            note(f"container {_field(other, 'name')} asks for a GPU of its own, outside of every lease")
    return pod


def keep_log_tail(pod: V1Pod, *, lease: str) -> V1Pod:
    """Let Kubernetes put the last lines of a GPU server's log into the pod's status if the server fails.

    Then the hub can report them without the right to read logs.

    Args:
        lease: id of the lease; "" for CPU only, and the pod is left unchanged.
    """
    container = server_container(pod)
    if lease:
        container.termination_message_policy = container.termination_message_policy or "FallbackToLogsOnError"
    return pod


def set_resources(pod: V1Pod, *, ask: PodAsk) -> V1Pod:
    """Add the offer's limits to the server's container, and its resource claim to the pod if the offer uses DRA.

    Args:
        pod: the manifest of the pod, which is changed and returned.
        ask: what the offer asks of a pod.
    """
    container = server_container(pod)
    container.resources.limits.update(ask.limits)
    if ask.claim_template:
        claims = [claim for claim in (pod.spec.resource_claims or ()) if _field(claim, "name") != CLAIM]
        template = V1PodResourceClaim(name=CLAIM, resource_claim_template_name=ask.claim_template)
        pod.spec.resource_claims = [*claims, template]
        named = [claim for claim in (container.resources.claims or ()) if _field(claim, "name") != CLAIM]
        container.resources.claims = [*named, CoreV1ResourceClaim(name=CLAIM)]
    return pod


def set_environment(pod: V1Pod, *, ask: PodAsk) -> V1Pod:
    """Set the environment variables that the offer asks for.

    A CPU-only pod gets variables that hide all devices. From a pod with a GPU, the administrator's variables that
    select devices are removed, because the cluster selects them.
    """
    container = server_container(pod)
    wanted = {**(CPU_ASK.environment if ask.mechanism is Mechanism.CPU else {}), **ask.environment}
    ours = {*wanted, *VISIBLE}
    kept = [variable for variable in (container.env or ()) if _field(variable, "name") not in ours]
    container.env = [*kept, *(V1EnvVar(name=name, value=value) for name, value in wanted.items())]
    return pod


def add_affinity(pod: V1Pod, *, labels: Mapping[str, Collection[str]]) -> V1Pod:
    """Require that the pod runs on a node with these labels.

    Args:
        pod: the manifest of the pod, which is changed and returned.
        labels: label -> its accepted values. A label without values must be missing on the node.
    """
    if not labels:
        return pod
    affinity = pod.spec.affinity = get_k8s_model(V1Affinity, pod.spec.affinity or {})
    of_node = affinity.node_affinity = get_k8s_model(V1NodeAffinity, affinity.node_affinity or {})
    field = "required_during_scheduling_ignored_during_execution"
    required = getattr(of_node, field)
    selector = V1NodeSelector([]) if required is None else get_k8s_model(V1NodeSelector, required)
    setattr(of_node, field, selector)
    # terms are ORed, and the expressions of one term are ANDed: so ours are added to every term
    terms = [get_k8s_model(V1NodeSelectorTerm, term) for term in selector.node_selector_terms or ()]
    for term in terms:
        if term.match_expressions or term.match_fields:  # an empty term matches no node, and must stay empty
            term.match_expressions = [*(term.match_expressions or ()), *_requirements(labels)]
    selector.node_selector_terms = terms or [V1NodeSelectorTerm(match_expressions=_requirements(labels))]
    return pod


def _requirements(labels: Mapping[str, Collection[str]]) -> list[V1NodeSelectorRequirement]:
    return [
        V1NodeSelectorRequirement(key=label, operator="In", values=list(values))
        if values
        else V1NodeSelectorRequirement(key=label, operator="DoesNotExist")
        for label, values in labels.items()
    ]


def add_tolerations(pod: V1Pod, *, keys: Iterable[str]) -> V1Pod:
    """Let the pod tolerate taints with these keys and the effect NoSchedule, unless it already does."""
    tolerations = list(pod.spec.tolerations or ())
    for key in keys:
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            tolerations.append(V1Toleration(key=key, operator="Exists", effect="NoSchedule"))
    if tolerations:
        pod.spec.tolerations = tolerations
    return pod


def _tolerates(toleration: object, key: str) -> bool:
    return (
        _field(toleration, "operator") == "Exists"
        and _field(toleration, "key") in (key, None, "")
        and _field(toleration, "effect") in ("NoSchedule", None, "")
    )


def set_metadata(pod: V1Pod, *, ask: PodAsk, lease: str, offer: OfferId, start: str | None) -> V1Pod:
    """Add the labels and annotations that the offer asks for, and label the pod with its offer and lease.

    Args:
        pod: the manifest of the pod, which is changed and returned.
        ask: what the offer asks of a pod.
        lease: id of the lease; "" for CPU only, and the pod gets no label for it.
        offer: id of the offer.
        start: token of the launch, for an annotation; None sets no annotation.
    """
    labels: dict[str, str] = {**(pod.metadata.labels or {}), **ask.labels, OFFER_LABEL: label_value(offer)}
    labels.pop(LEASE_LABEL, None)
    if lease:
        labels[LEASE_LABEL] = label_value(lease)
    pod.metadata.labels = labels
    mark = {} if start is None else {START_ANNOTATION: start}
    pod.metadata.annotations = {**(pod.metadata.annotations or {}), **ask.annotations, **mark}
    return pod


def set_scheduler(pod: V1Pod, *, ask: PodAsk) -> V1Pod:
    """Set the scheduler and the runtime class that the offer asks for; if it asks for none, the pod's own are kept."""
    if ask.scheduler:
        # a webhook such as HAMi's names its own scheduler only if the pod names none
        named = ask.scheduler != "default-scheduler"
        pod.spec.scheduler_name = ask.scheduler if named else None  # type: ignore[assignment]  # None omits the field
    if ask.runtime_class:
        pod.spec.runtime_class_name = ask.runtime_class
    return pod


def set_shared_memory(pod: V1Pod, *, ask: PodAsk, size: str, note: Callable[[str], None]) -> V1Pod:
    """Mount ``/dev/shm`` with this size, unless the administrator's settings mount it.

    If the offer brings a mount of its own (`forbids_shm`), the administrator's is removed.

    Args:
        ask: what the offer asks of a pod.
        size: such as ``1Gi``; "" leaves the container's own.
        note: takes a line for the hub's log. It is called for each removed mount.
    """
    container = server_container(pod)
    mounts = list(container.volume_mounts or ())
    there = [mount for mount in mounts if str(_field(mount, "mount_path") or "").rstrip("/") == SHM]
    if ask.forbids_shm:
        container.volume_mounts = [mount for mount in mounts if mount not in there]
        _drop_unused_volumes(pod, {_field(mount, "name") for mount in there})
        for _ in there:
            note(f"your own mount of {SHM} is left out: this offer brings one")
    elif size and not there:
        empty = V1EmptyDirVolumeSource(medium="Memory", size_limit=size)
        pod.spec.volumes = [*(pod.spec.volumes or ()), V1Volume(name=SHM_VOLUME, empty_dir=empty)]
        container.volume_mounts = [*mounts, V1VolumeMount(name=SHM_VOLUME, mount_path=SHM)]
    return pod


def _drop_unused_volumes(pod: V1Pod, names: set[Any]) -> None:
    containers = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    used = {_field(mount, "name") for one in containers for mount in _field(one, "volume_mounts") or ()}
    pod.spec.volumes = [
        volume
        for volume in pod.spec.volumes or ()
        if _field(volume, "name") not in names or _field(volume, "name") in used
    ]


def _field(thing: object, name: str) -> Any:
    """Return a field of a model of the Kubernetes client, or of a dict as in an administrator's ``extra_pod_config``.

    A dict may have the name in snake case or in camel case.
    """
    if isinstance(thing, Mapping):
        parts = name.split("_")
        camel = parts[0] + "".join(part.capitalize() for part in parts[1:])
        return thing.get(name, thing.get(camel))
    return getattr(thing, name, None)
