"""Rules about the pods of users' servers.

They report GPUs that are requested outside the offers, settings that replace the chart's, and containers as root.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping
from typing import Any

from hub_extensions.core.offers.pod_request import is_gpu_resource
from hub_extensions.tools.helm_check.model import SPAWNERS, Finding, Release, find, found, spawner_keys

_OF_GPU_NODES = re.compile(r"nvidia\.com/|gke-accelerator|amazonaws\.com/accelerator|\bgpu\b|\baccelerator\b")
_GPU_MACHINE = re.compile(
    r"(?i)gpu|cuda|nvidia|tesla|\b[ahlvtp](?:4|40|40s|100|200|800)\b|"
    r"^(?:p[2-6]|g[3-7])[a-z]*\.|^(?:p[2-6]|g[3-7])[a-z]*$|"  # AWS
    r"^(?:standard_)?n[cdv]\d|"  # Azure
    r"^(?:a[2-4]|g[2-4])(?:-|$)"  # Google
)
"""Pattern of instance types of machines with GPUs, and of names that people give to pools of such machines."""
_OF_MACHINES = re.compile(
    r"instance-(?:type|family)|machine-(?:type|family)|agentpool|node-?pool|node-?group|worker-?pool"
)
"""Pattern of the node labels whose values are instance types or names of node pools."""
_RESOURCES = ("extra_resource_limits", "extra_resource_guarantees")
_VISIBLE = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_CONTAINERS = ("singleuser.initContainers", "singleuser.extraContainers")
_OF_THE_OFFER = "Take it out: the GPU comes with the offer."


def check_pods(release: Release) -> Iterator[Finding]:
    """Yield the findings of all rules about servers' pods; some apply only if the values use our spawner."""
    yield from _replaced(release)
    yield from _metadata(release)
    yield from _root_containers(release)
    if release.is_ours:
        yield from _profiles(release)
        yield from _gpus_of_all(release)
        yield from _hooks(release)
        yield from _visible(release)
        yield from _schedulers(release)


# ------------------------------------------------------------------ GPUs of profiles


def _profiles(release: Release) -> Iterator[Finding]:
    for key in ("singleuser.profileList", *spawner_keys("profile_list")):
        value = release.at(key)
        profiles = value.values() if isinstance(value, Mapping) else value if isinstance(value, list) else ()
        for at, profile in enumerate(profiles):
            if isinstance(profile, Mapping):
                name = str(profile.get("display_name") or profile.get("slug") or f"number {at + 1}")
                for choice, override in _overrides(profile):
                    who = f"The profile {name!r}" + (f" (choice {choice})" if choice else "")
                    yield from _of_override(release, key, who, override)


def _overrides(profile: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """Yield each ``kubespawner_override`` of a profile, with the choice it belongs to; "" for that of the profile."""
    if isinstance(profile.get("kubespawner_override"), Mapping):
        yield "", profile["kubespawner_override"]
    options = profile.get("profile_options")
    for option, content in options.items() if isinstance(options, Mapping) else ():
        content = content if isinstance(content, Mapping) else {}
        choices = content.get("choices")
        listed = {**(choices if isinstance(choices, Mapping) else {}), "of one's own": content.get("unlisted_choice")}
        for choice, inner in listed.items():
            override = inner.get("kubespawner_override") if isinstance(inner, Mapping) else None
            if isinstance(override, Mapping):
                yield f"{option}: {choice}", override


def _of_override(release: Release, key: str, who: str, override: Mapping[str, Any]) -> Iterator[Finding]:
    asked = _asked(override)
    for resource, count in asked.items():
        if resource.startswith("nvidia.com/"):
            text = f"{who} asks for {resource}: {count} by itself: it is left out, the GPU comes with the offer."
            fix = "Take it out: profiles choose image and size, users choose the GPU beside them."
        else:
            text = f"{who} asks for {resource}: {count} by itself: this GPU is held outside of the line."
            fix = "Take it out, or keep such profiles in a hub of their own: there are no offers of this kind of GPU."
        yield found(release, "profile-gpu", key, text, fix)
    if claims := _claims(override):
        text = f"{who} has the claim {', '.join(claims)} by itself: a GPU that it brings is outside of every lease."
        fix = "Take it out: the claim comes with the offer."
        yield found(release, "profile-gpu", key, text, fix, severity="look at")
    pinned = [] if asked else sorted(set(_gpu_nodes(override)))
    if pinned:
        text = f"{who} is for nodes with {pinned[0]}: servers without a GPU take the room there too."
        fix = "Take it out: an offer brings its servers to the nodes that have its GPUs."
        yield found(release, "profile-on-gpu-nodes", key, text, fix, severity="look at")


def _asked(override: Mapping[str, Any]) -> dict[str, Any]:
    """Return GPU resource -> count that an override requests. A count of 0, ``"0"`` or null requests none."""
    container = override.get("extra_container_config")
    resources = container.get("resources") if isinstance(container, Mapping) else None
    trees = [override.get(name) for name in _RESOURCES]
    trees += [resources.get(kind) for kind in ("limits", "requests")] if isinstance(resources, Mapping) else []
    asked: dict[str, Any] = {}
    for tree in trees:
        for resource, count in tree.items() if isinstance(tree, Mapping) else ():
            if is_gpu_resource(str(resource)) and count and count != "0":
                asked.setdefault(str(resource), count)
    return asked


def _claims(pod: object) -> list[str]:
    """Return the names of the resource claims (DRA) in a pod's configuration, or in the override that contains it."""
    if not isinstance(pod, Mapping):
        return []
    claims = pod.get("resourceClaims") or pod.get("resource_claims")
    named = [each for each in claims if isinstance(each, Mapping)] if isinstance(claims, list) else []
    return [str(each.get("name", "?")) for each in named] + _claims(pod.get("extra_pod_config"))


def _gpu_nodes(override: Mapping[str, Any]) -> Iterator[str]:
    """Yield the labels by which an override selects nodes with GPUs, with the value if the label is not enough."""
    pod = override.get("extra_pod_config")
    pod = pod if isinstance(pod, Mapping) else {}
    for selector in (override.get("node_selector"), pod.get("nodeSelector"), pod.get("node_selector")):
        for label, value in selector.items() if isinstance(selector, Mapping) else ():
            yield from _label(str(label), [value])
    todo: list[Any] = [override.get("node_affinity_required"), pod.get("affinity")]
    for each in todo:  # the loop appends to the list
        if isinstance(each, list):
            todo += each
        elif isinstance(each, Mapping):
            if isinstance(each.get("key"), str) and each.get("operator", "In") in ("In", "Exists"):
                values = each.get("values")
                yield from _label(each["key"], values if isinstance(values, list) else [])
            todo += each.values()


def _label(label: str, values: Iterable[object]) -> Iterator[str]:
    if _OF_GPU_NODES.search(label):
        yield label
    elif _OF_MACHINES.search(label):
        yield from (f"{label}: {value}" for value in values if _GPU_MACHINE.search(str(value)))


# ------------------------------------------------------------------ GPUs of every server


def _gpus_of_all(release: Release) -> Iterator[Finding]:
    """Report settings by which every server would request a GPU, also a CPU-only one."""
    keys = ["singleuser.extraResource.limits", "singleuser.extraResource.guarantees"]
    for key in [*keys, *(each for name in _RESOURCES for each in spawner_keys(name))]:
        for resource, count in _asked({_RESOURCES[0]: release.at(key)}).items():
            text = f"Every server would ask for {resource}: {count}, whatever its user chose."
            yield found(release, "gpu-for-all", (*key.split("."), resource), text, _OF_THE_OFFER)
    for key in ("singleuser.extraPodConfig", *spawner_keys("extra_pod_config")):
        if claims := _claims(release.at(key)):
            text = f"Every server would have the claim {', '.join(claims)}, whatever its user chose."
            place = "resource_claims" if "resource_claims" in release.tree(key) else "resourceClaims"
            yield found(release, "gpu-for-all", f"{key}.{place}", text, "Take it out: the claim comes with the offer.")
    for key in _CONTAINERS:
        for number, container in enumerate(release.items(key)):
            for resource, count in _asked({"extra_container_config": container}).items():
                name = container.get("name", number)
                asks = f"{resource}: {count} in every server"
                text = f"Its container {name} would ask for {asks}, beside what a lease gives."
                yield found(release, "gpu-for-all", key, text, _OF_THE_OFFER)


def _hooks(release: Release) -> Iterator[Finding]:
    """Report GPUs that hooks of the administrator give to servers or their pods."""
    for hook in release.evaluation.hooks if release.evaluation else ():
        name = f"c.{hook.section}.{hook.hook}"
        if not hook.was_seen:
            text = f"{name} names {hook.resource}; it did not give any to an invented user."
            fix = f"Look whether it gives a server a GPU. {_OF_THE_OFFER}"
            yield found(release, "gpu-of-a-hook", hook.path, text, fix, severity="look at")
            continue
        text = f"{name} asks for {hook.resource} by itself: it is left out, the GPU comes with the offer."
        if hook.hook == "modify_pod_hook":
            text = f"{name} adds {hook.resource} after the offer has set its own: outside of every lease."
        yield found(release, "gpu-of-a-hook", hook.path, text, _OF_THE_OFFER)


def _visible(release: Release) -> Iterator[Finding]:
    for key in ("singleuser.extraEnv", *spawner_keys("environment")):
        for name in _VISIBLE:
            if name in release.tree(key):
                text = "It tells every server which GPUs to use, past what its lease gives."
                yield found(release, "visible-devices", f"{key}.{name}", text, "Take it out: the offer sets it.")


# ------------------------------------------------------------------ settings that replace the chart's

_REPLACES = {
    "environment": "singleuser.extraEnv",
    "init_containers": "singleuser.initContainers",
    "profile_list": "singleuser.profileList",
    "extra_labels": "singleuser.extraLabels",
    "extra_annotations": "singleuser.extraAnnotations",
    "volumes": "singleuser.storage.extraVolumes",
    "volume_mounts": "singleuser.storage.extraVolumeMounts",
}
"""Trait of the spawner that replaces what the chart sets -> the key that adds to it and should be used instead."""


def _replaced(release: Release) -> Iterator[Finding]:
    for section in SPAWNERS[:2]:  # the chart sets c.KubeSpawner, which beats c.Spawner
        for trait, instead in _REPLACES.items():
            path = ("hub", "config", section, trait)
            change = release.change_of(path)
            is_the_charts = section == "KubeSpawner" and trait == "profile_list" and not release.is_ours
            is_kept = change is not None and not change.loses
            if trait not in release.tree(f"hub.config.{section}") or is_the_charts or is_kept:
                continue
            gone = _lost(release, trait, instead)
            text = f"It replaces {instead} whole{f', and {gone} would be gone' if gone else ''}."
            fix = f"Write it as {instead}, which adds to the chart's own."
            yield found(release, "replaces-the-chart", path, text, fix, severity="problem" if gone else "look at")


def _lost(release: Release, trait: str, key: str) -> str:
    """Name what is lost if a trait replaces what the values set at the chart's key; "" if nothing is lost."""
    if trait in ("volumes", "volume_mounts"):
        if release.at("singleuser.storage.type") in ("dynamic", "static"):
            return "users' homes"
        return "the files of singleuser.extraFiles" if release.tree("singleuser.extraFiles") else ""
    value = release.at(key)
    if trait == "profile_list":
        return "all profiles there" if value else ""
    if trait == "init_containers":
        names = [str(each.get("name")) for each in release.items(key) if isinstance(each, Mapping)]
        is_blocking = release.at("singleuser.cloudMetadata.blockWithIptables") is True
        names += ["block-cloud-metadata"] * is_blocking
        return f"the init container {', '.join(names)}" if names else ""
    names = list(release.variables(key)) if trait == "environment" else [*value] if isinstance(value, Mapping) else []
    what = {"environment": "variable", "extra_labels": "labels", "extra_annotations": "annotations"}[trait]
    plural = "s" if trait == "environment" and len(names) > 1 else ""
    return f"the {what}{plural} {', '.join(map(str, names))}" if names else ""


# ------------------------------------------------------------------ the cloud's metadata, root, schedulers


def _metadata(release: Release) -> Iterator[Finding]:
    opened = "singleuser.networkPolicy.egressAllowRules.cloudMetadataServer"
    by_policy = release.at("singleuser.networkPolicy.enabled") is True
    if release.at("singleuser.cloudMetadata.blockWithIptables") is True:
        return
    if by_policy and release.at(opened) is True:
        text = (
            "Servers may reach the cloud's metadata, which hands out the machines' own rights; nothing else blocks it."
        )
        yield found(release, "metadata-open", opened, text, "Set it to false.")
    elif not by_policy and not any(map(_blocks_metadata, release.manifests)):
        text = "Neither the init container nor the chart's policy keeps servers from the cloud's metadata."
        fix = "Set it to true, or apply helm-values/manifests/metadata-policy.yaml and name it with --manifests."
        yield found(release, "metadata-open", "singleuser.networkPolicy.enabled", text, fix, severity="look at")


def _blocks_metadata(manifest: Mapping[str, Any]) -> bool:
    """Whether a manifest is a network policy that restricts outgoing connections of users' servers."""
    spec = manifest.get("spec") or {}
    chosen = (spec.get("podSelector") or {}).get("matchLabels") or {}
    is_for_servers = manifest.get("kind") == "NetworkPolicy" and chosen.get("component") == "singleuser-server"
    return is_for_servers and "Egress" in (spec.get("policyTypes") or [])


def _restricted(release: Release) -> str:
    """Name the rule of the cluster or pod that refuses privileged containers; "" if no rule refuses them."""
    for manifest in release.manifests:
        labels = (manifest.get("metadata") or {}).get("labels") or {}
        level = labels.get("pod-security.kubernetes.io/enforce")
        if manifest.get("kind") == "Namespace" and level in ("restricted", "baseline"):
            return f"the namespace's Pod Security level {level}"
    contexts = [release.tree(f"singleuser.extraPodConfig.{name}") for name in ("securityContext", "security_context")]
    contexts.append(next((each for key in spawner_keys("pod_security_context") if (each := release.tree(key))), {}))
    names = ("runAsNonRoot", "run_as_non_root")
    return "runAsNonRoot of the pod" if any(each.get(name) is True for each in contexts for name in names) else ""


def _root_containers(release: Release) -> Iterator[Finding]:
    """Report containers beside the server's that run as root or privileged where that is refused."""
    why = _restricted(release)
    key = "singleuser.cloudMetadata.blockWithIptables"
    if why and release.at(key) is True:
        text = f"It adds a privileged init container to every server, which {why} refuses."
        fix = "Set it to false; singleuser.networkPolicy blocks the address (helm-values/restricted.yaml)."
        yield found(release, "privileged", key, text, fix)
    for key in _CONTAINERS:
        for each in release.items(key):
            context = each.get("securityContext") if isinstance(each, Mapping) else None
            if isinstance(context, Mapping) and _is_refused(context, why):
                what = "runs as root" if context.get("runAsUser") == 0 else "is privileged"
                text = f"The container {each.get('name', '?')} {what}, which {why} refuses: no server starts."
                fix = "Give it a user that is not root (runAsUser: 1000); singleuser.fsGid makes volumes writable."
                yield found(release, "privileged", key, text, f"{fix} Or leave it out.")


def _is_refused(context: Mapping[str, Any], why: str) -> bool:
    privileged, root = context.get("privileged") is True, context.get("runAsUser") == 0
    if why.endswith("level baseline"):
        return privileged
    if why.endswith("level restricted"):
        return privileged or root
    return bool(why) and root and context.get("runAsNonRoot") is not False


def _schedulers(release: Release) -> Iterator[Finding]:
    cluster = release.tree("hub.config.GpuCluster")
    if cluster.get("kueue_queue") and cluster.get("kai_queue"):
        text = "Kueue and KAI are both named: two lines would hold the same servers."
        yield found(release, "two-queues", "hub.config.GpuCluster.kai_queue", text, "Keep one of the two.")
    key = "scheduling.userScheduler.enabled"
    uses_claims = any(each.get("kind") in ("ResourceClaimTemplate", "DeviceClass") for each in release.manifests)
    if uses_claims and release.at(key) is True:
        text = "The chart's scheduler may not read DRA's claims: a server with one is never placed."
        fix = "Set it to false (helm-values/dra.yaml): the cluster's own scheduler places all servers."
        yield found(release, "scheduler-without-dra", key, text, fix)
        return
    ours = release.files[release.base :]
    named = {value: file.name for file in ours if isinstance(value := find(file.values, key.split(".")), bool)}
    if len(named) == 2:
        text = (
            f"{named[False]} switches the chart's scheduler off, and {named[True]} on. It knows no claims of DRA: a "
            "server with one is never placed by it."
        )
        fix = f"Leave {named[True]} out where servers have claims, else {named[False]}."
        yield found(release, "two-schedulers", key, text, fix, severity="look at")
