"""What an offer does to a server's pod: a pure change of the pod that KubeSpawner made, and nothing else.

On KubeSpawner's own models (``kubernetes_asyncio``). What is asked stands in ``core/offers/pod_request.py``; when the
pod is made, and what becomes of it, in ``kube.py``.
"""

from __future__ import annotations

import copy
from collections.abc import Collection, Iterable, Mapping
from dataclasses import dataclass
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
CPU_ASK = PodAsk(Mechanism.CPU, environment=dict.fromkeys(VISIBLE, "void"))
"""What CPU only asks, also where the service could not be asked."""


@dataclass(frozen=True)
class Applied:
    """The pod as it is to be made, and what was taken from the admin's own settings: one line of the log each."""

    pod: V1Pod
    notes: tuple[str, ...] = ()


def apply(ask: PodAsk, pod: V1Pod, *, lease: str, offer: OfferId, shm: str) -> Applied:
    """The pod with what the offer asks; `pod` itself is left as it was.

    Args:
        lease: its id; "" for CPU only.
        shm: size of ``/dev/shm``, e.g. ``1Gi``; "" leaves it alone.

    Raises:
        AskError: the offer itself is wrong; the cluster would refuse it, or take it and never serve it.
    """
    check_ask(ask)
    pod = copy.deepcopy(pod)
    container = server_container(pod)
    notes = [
        *_take_gpus_out(ask, container),
        *_take_shares_out(ask, pod),
        *_note_other_containers(pod, container),
    ]
    if lease:  # the last lines of a server that ends come with its pod's status: no right to read logs is needed
        container.termination_message_policy = container.termination_message_policy or "FallbackToLogsOnError"
    _set_resources(ask, pod, container)
    _set_environment(ask, container)
    _add_affinity(ask.node_labels, pod)
    _add_tolerations(ask.tolerations, pod)
    _add_metadata(ask, pod, lease, offer)
    if ask.scheduler:
        # a webhook such as HAMi's names its own scheduler only where nobody else did
        named = ask.scheduler != "default-scheduler"
        pod.spec.scheduler_name = ask.scheduler if named else None  # type: ignore[assignment]  # None is no field
    if ask.runtime_class:
        pod.spec.runtime_class_name = ask.runtime_class
    notes.extend(_set_shm(ask, pod, container, shm))
    return Applied(pod, tuple(notes))


def server_container(pod: V1Pod) -> V1Container:
    """The container of the server itself, which KubeSpawner names ``notebook``."""
    pod.spec.containers = [get_k8s_model(V1Container, container) for container in pod.spec.containers]
    named = [container for container in pod.spec.containers if container.name == CONTAINER]
    return (named or pod.spec.containers)[0]


# ------------------------------------------------------------------ what an admin's settings had there


def _take_gpus_out(ask: PodAsk, container: V1Container) -> list[str]:
    """Limits and guarantees of GPUs that are not the offer's own."""
    resources = container.resources = get_k8s_model(V1ResourceRequirements, container.resources or {})
    notes = []
    for kind in ("limits", "requests"):
        values: dict[str, Any] = dict(getattr(resources, kind) or {})
        for resource in [name for name in values if is_gpu_resource(name)]:
            taken = values.pop(resource)
            if ask.limits.get(resource) != str(taken):
                notes.append(f"{resource}={taken} of your own {kind} is left out: the GPU comes with the offer")
        setattr(resources, kind, values)
    return notes


def _take_shares_out(ask: PodAsk, pod: V1Pod) -> list[str]:
    annotations: dict[str, str] = dict(pod.metadata.annotations or {})
    mine = [name for name in (KAI_FRACTION, KAI_MEMORY) if name in annotations and name not in ask.annotations]
    for name in mine:
        del annotations[name]
    pod.metadata.annotations = annotations
    return [f"your own annotation {name} is left out: the GPU comes with the offer" for name in mine]


def _note_other_containers(pod: V1Pod, container: V1Container) -> list[str]:
    """An admin's own side containers are left as they are, but a GPU of theirs is outside every lease."""
    notes = []
    for other in (*pod.spec.containers, *(pod.spec.init_containers or ())):
        if other is container:
            continue
        resources = _field(other, "resources") or {}
        asked = {**(_field(resources, "requests") or {}), **(_field(resources, "limits") or {})}
        if any(is_gpu_resource(name) for name in asked):
            notes.append(f"container {_field(other, 'name')} asks for a GPU of its own, outside of every lease")
    return notes


# ------------------------------------------------------------------ what the offer asks


def _set_resources(ask: PodAsk, pod: V1Pod, container: V1Container) -> None:
    container.resources.limits.update(ask.limits)
    if not ask.claim_template:
        return
    claims = [claim for claim in (pod.spec.resource_claims or ()) if _field(claim, "name") != CLAIM]
    template = V1PodResourceClaim(name=CLAIM, resource_claim_template_name=ask.claim_template)
    pod.spec.resource_claims = [*claims, template]
    named = [claim for claim in (container.resources.claims or ()) if _field(claim, "name") != CLAIM]
    container.resources.claims = [*named, CoreV1ResourceClaim(name=CLAIM)]


def _set_environment(ask: PodAsk, container: V1Container) -> None:
    """What the ask names; with a GPU nobody but the cluster says which devices are visible."""
    wanted = {**(CPU_ASK.environment if ask.mechanism is Mechanism.CPU else {}), **ask.environment}
    ours = {*wanted, *VISIBLE}
    kept = [variable for variable in (container.env or ()) if _field(variable, "name") not in ours]
    container.env = [*kept, *(V1EnvVar(name=name, value=value) for name, value in wanted.items())]


def _add_affinity(labels: Mapping[str, Collection[str]], pod: V1Pod) -> None:
    if not labels:
        return
    affinity = pod.spec.affinity = get_k8s_model(V1Affinity, pod.spec.affinity or {})
    of_node = affinity.node_affinity = get_k8s_model(V1NodeAffinity, affinity.node_affinity or {})
    field = "required_during_scheduling_ignored_during_execution"
    required = getattr(of_node, field)
    selector = V1NodeSelector([]) if required is None else get_k8s_model(V1NodeSelector, required)
    setattr(of_node, field, selector)
    # terms are or-ed, what stands in one term is and-ed: so ours goes into every one of them
    terms = [get_k8s_model(V1NodeSelectorTerm, term) for term in selector.node_selector_terms or ()]
    for term in terms:
        if term.match_expressions or term.match_fields:  # an empty one matches nothing, and has to go on doing so
            term.match_expressions = [*(term.match_expressions or ()), *_requirements(labels)]
    selector.node_selector_terms = terms or [V1NodeSelectorTerm(match_expressions=_requirements(labels))]


def _requirements(labels: Mapping[str, Collection[str]]) -> list[V1NodeSelectorRequirement]:
    return [
        V1NodeSelectorRequirement(key=label, operator="In", values=list(values))
        if values
        else V1NodeSelectorRequirement(key=label, operator="DoesNotExist")
        for label, values in labels.items()
    ]


def _add_tolerations(keys: Iterable[str], pod: V1Pod) -> None:
    tolerations = list(pod.spec.tolerations or ())
    for key in keys:
        if not any(_tolerates(toleration, key) for toleration in tolerations):
            tolerations.append(V1Toleration(key=key, operator="Exists", effect="NoSchedule"))
    if tolerations:
        pod.spec.tolerations = tolerations


def _tolerates(toleration: object, key: str) -> bool:
    return (
        _field(toleration, "operator") == "Exists"
        and _field(toleration, "key") in (key, None, "")
        and _field(toleration, "effect") in ("NoSchedule", None, "")
    )


def _add_metadata(ask: PodAsk, pod: V1Pod, lease: str, offer: OfferId) -> None:
    labels: dict[str, str] = {**(pod.metadata.labels or {}), **ask.labels, OFFER_LABEL: label_value(offer)}
    labels.pop(LEASE_LABEL, None)
    if lease:
        labels[LEASE_LABEL] = label_value(lease)
    pod.metadata.labels = labels
    pod.metadata.annotations = {**(pod.metadata.annotations or {}), **ask.annotations}


# ------------------------------------------------------------------ /dev/shm


def _set_shm(ask: PodAsk, pod: V1Pod, container: V1Container, size: str) -> list[str]:
    mounts = list(container.volume_mounts or ())
    there = [mount for mount in mounts if _path(mount) == SHM]
    if ask.forbids_shm:
        container.volume_mounts = [mount for mount in mounts if mount not in there]
        _drop_unused_volumes(pod, {_field(mount, "name") for mount in there})
        return [f"your own mount of {SHM} is left out: this offer brings one" for _ in there]
    if there or not size:
        return []
    empty = V1EmptyDirVolumeSource(medium="Memory", size_limit=size)
    pod.spec.volumes = [*(pod.spec.volumes or ()), V1Volume(name=SHM_VOLUME, empty_dir=empty)]
    container.volume_mounts = [*mounts, V1VolumeMount(name=SHM_VOLUME, mount_path=SHM)]
    return []


def _drop_unused_volumes(pod: V1Pod, names: set[Any]) -> None:
    containers = (*pod.spec.containers, *(pod.spec.init_containers or ()))
    used = {_field(mount, "name") for one in containers for mount in _field(one, "volume_mounts") or ()}
    pod.spec.volumes = [
        volume
        for volume in pod.spec.volumes or ()
        if _field(volume, "name") not in names or _field(volume, "name") in used
    ]


def _path(mount: object) -> str:
    return str(_field(mount, "mount_path") or "").rstrip("/")


def _field(thing: object, name: str) -> Any:
    """A field of a model, or of a dict in either spelling: an admin's ``extra_pod_config`` has both."""
    if isinstance(thing, Mapping):
        parts = name.split("_")
        camel = parts[0] + "".join(part.capitalize() for part in parts[1:])
        return thing.get(name, thing.get(camel))
    return getattr(thing, name, None)
