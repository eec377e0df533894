"""Rules about the pods of users' servers.

They report GPUs that are requested outside the offers, settings that replace the chart's, and containers as root.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Mapping
from typing import Any

from hub_extensions.core.offers.pod_request import is_gpu_resource
from hub_extensions.tools.helm_check.model import SPAWNERS, Findings, Release, spawner_keys
from hub_extensions.tools.helm_check.trees import Tree, as_list, as_tree, find, mappings

_OF_GPU_NODES = re.compile(r"nvidia\.com/|gke-accelerator|amazonaws\.com/accelerator|\bgpu\b|\baccelerator\b")
_GPU_MACHINE = re.compile(
    r"(?i)gpu|cuda|nvidia|tesla|\b[ahlvtp](?:4|40|40s|100|200|800)\b|"
    r"^(?:p[2-6]|g[3-7])[a-z]*\.|^(?:p[2-6]|g[3-7])[a-z]*$|"  # AWS
    r"^(?:standard_)?n[cdv]\d|"  # Azure
    r"^(?:a[2-4]|g[2-4])(?:-|$)"  # Google
)
"""Pattern of instance types of machines with GPUs, and of names that people give to pools of such machines."""
_OF_MACHINES = re.compile(
    r"instance-(?:type|family)|machine-(?:type|family)|agentpool|(?:node|worker)-?pool|node-?group"
)
"""Pattern of the node labels whose values are instance types or names of node pools."""
_RESOURCES = ("extra_resource_limits", "extra_resource_guarantees")
_VISIBLE = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")
_CONTAINERS = ("singleuser.initContainers", "singleuser.extraContainers")
_OF_THE_OFFER = "Take it out: the GPU comes with the offer."


def check_pods(release: Release) -> Findings:
    """Report mistakes about servers' pods; some are mistakes only if the values use our spawner."""
    yield from _replaced(release)
    yield from _metadata(release)
    yield from _root_containers(release)
    if release.is_ours:
        yield from _profiles(release)
        yield from _gpus_of_all(release)
        yield from _hooks(release)
        yield from _schedulers(release)


def _profiles(release: Release) -> Findings:
    for key in ("singleuser.profileList", *spawner_keys("profile_list")):
        profiles = release.at(key)
        listed = profiles.values() if isinstance(profiles, Mapping) else release.items(key)
        for number, profile in enumerate(map(as_tree, listed), 1):
            who = f"The profile {str(profile.get('display_name') or profile.get('slug') or f'number {number}')!r}"
            parts: list[tuple[str, Any]] = [(who, profile)]
            for option, content in as_tree(profile.get("profile_options")).items():
                choices = {**as_tree(find(content, ["choices"])), "of one's own": find(content, ["unlisted_choice"])}
                parts += [(f"{who} (choice {option}: {choice})", part) for choice, part in choices.items()]
            for name, part in parts:
                yield from _override(release, key, name, as_tree(find(part, ["kubespawner_override"])))


def _override(release: Release, key: str, who: str, override: Tree) -> Findings:
    """Report GPUs, and nodes with GPUs, that a profile or one of its choices requests.

    Args:
        key: key of the values with the list of profiles.
        who: the beginning of the findings, which names the profile and the choice.
        override: the spawner's settings (``kubespawner_override``) of the profile or the choice.
    """
    asked = gpus_asked(override)
    for resource, count in asked.items():
        if resource.startswith("nvidia.com/"):
            text = f"{who} asks for {resource}: {count} by itself: it is left out, the GPU comes with the offer."
            fix = "Take it out: profiles choose image and size, users choose the GPU beside them."
        else:
            text = f"{who} asks for {resource}: {count} by itself: this GPU is held outside of the line."
            fix = "Take it out, or keep such profiles in a hub of their own: there are no offers of this kind of GPU."
        yield release.found("profile-gpu", key, text, fix)
    if claims := claims_of(override):
        text = f"{who} has the claim {', '.join(claims)} by itself: a GPU that it brings is outside of every lease."
        yield release.found("profile-gpu", key, text, "Take it out: the claim comes with the offer.", "look at")
    if pinned := [] if asked else sorted(set(_gpu_nodes(override))):
        text = f"{who} is for nodes with {pinned[0]}: servers without a GPU take the room there too."
        fix = "Take it out: an offer brings its servers to the nodes that have its GPUs."
        yield release.found("profile-on-gpu-nodes", key, text, fix, "look at")


def gpus_asked(settings: Tree) -> dict[str, Any]:
    """Return GPU resource -> count that settings of the spawner request. A count of 0 or null requests none."""
    trees = [settings.get(name) for name in _RESOURCES]
    trees += [find(settings, ("extra_container_config", "resources", kind)) for kind in ("limits", "requests")]
    asked: dict[str, Any] = {}
    for tree in trees:
        for resource, count in as_tree(tree).items():
            if is_gpu_resource(str(resource)) and count and count != "0":
                asked.setdefault(str(resource), count)
    return asked


def claims_of(pod: object) -> list[str]:
    """Return the names of the resource claims (DRA) in a pod's configuration, or in the settings that contain it."""
    pod = as_tree(pod)
    claims = [str(each.get("name", "?")) for each in mappings(pod.get("resourceClaims") or pod.get("resource_claims"))]
    return claims + (claims_of(pod["extra_pod_config"]) if "extra_pod_config" in pod else [])


def _gpu_nodes(override: Tree) -> Iterator[str]:
    """Yield each node label by which an override of spawner settings selects nodes with GPUs.

    If the name of the label alone does not show that such nodes have GPUs, as with a label for the machine type, the
    text is ``label: value``.
    """
    pod = as_tree(override.get("extra_pod_config"))
    chosen: list[tuple[str, list[Any]]] = []
    for selector in (override.get("node_selector"), pod.get("nodeSelector"), pod.get("node_selector")):
        chosen += [(str(label), [value]) for label, value in as_tree(selector).items()]
    todo: list[Any] = [override.get("node_affinity_required"), pod.get("affinity")]
    for each in todo:  # the loop appends to the list
        if isinstance(each, list):
            todo += each
        elif isinstance(each, Mapping):
            if isinstance(each.get("key"), str) and each.get("operator", "In") in ("In", "Exists"):
                values = each.get("values")
                chosen.append((each["key"], values if isinstance(values, list) else []))
            todo += each.values()
    for label, values in chosen:
        if _OF_GPU_NODES.search(label):
            yield label
        elif _OF_MACHINES.search(label):
            yield from (f"{label}: {value}" for value in values if _GPU_MACHINE.search(str(value)))


def _gpus_of_all(release: Release) -> Findings:
    """Report settings by which every server would request or see a GPU, also a CPU-only one."""
    keys = ["singleuser.extraResource.limits", "singleuser.extraResource.guarantees"]
    for key in [*keys, *(each for name in _RESOURCES for each in spawner_keys(name))]:
        for resource, count in gpus_asked({_RESOURCES[0]: release.at(key)}).items():
            text = f"Every server would ask for {resource}: {count}, whatever its user chose."
            yield release.found("gpu-for-all", (*key.split("."), resource), text, _OF_THE_OFFER)
    for key in ("singleuser.extraPodConfig", *spawner_keys("extra_pod_config")):
        if claims := claims_of(release.at(key)):
            text = f"Every server would have the claim {', '.join(claims)}, whatever its user chose."
            place = "resource_claims" if "resource_claims" in release.tree(key) else "resourceClaims"
            yield release.found("gpu-for-all", f"{key}.{place}", text, "Take it out: the claim comes with the offer.")
    for key in _CONTAINERS:
        for number, container in enumerate(release.items(key)):
            for resource, count in gpus_asked({"extra_container_config": container}).items():
                text = f"Its container {container.get('name', number)} would ask for {resource}: {count} "
                text += "in every server, beside what a lease gives."
                yield release.found("gpu-for-all", key, text, _OF_THE_OFFER)


def _hooks(release: Release) -> Findings:
    """Report GPUs that hooks of the administrator give to servers, and variables that show all GPUs to each server."""
    for hook in release.evaluation.hooks if release.evaluation else ():
        name = f"c.{hook.section}.{hook.hook}"
        fix = _OF_THE_OFFER
        text = f"{name} asks for {hook.resource} by itself: it is left out, the GPU comes with the offer."
        if not hook.was_seen:
            text = f"{name} names {hook.resource}; it did not give any to an invented user."
            fix = f"Look whether it gives a server a GPU. {_OF_THE_OFFER}"
        elif hook.hook == "modify_pod_hook":
            text = f"{name} adds {hook.resource} after the offer has set its own: outside of every lease."
        yield release.found("gpu-of-a-hook", hook.path, text, fix, "problem" if hook.was_seen else "look at")
    for key in ("singleuser.extraEnv", *spawner_keys("environment")):
        for name in _VISIBLE:
            if name in release.tree(key):
                text = "It tells every server which GPUs to use, past what its lease gives."
                yield release.found("visible-devices", f"{key}.{name}", text, "Take it out: the offer sets it.")


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


def _replaced(release: Release) -> Findings:
    for section in SPAWNERS[:2]:  # the chart sets c.KubeSpawner, which beats c.Spawner
        for trait, instead in _REPLACES.items():
            path = ("hub", "config", section, trait)
            change = release.change_of(path)
            is_the_charts = section == "KubeSpawner" and trait == "profile_list" and not release.is_ours
            is_kept = change is not None and not change.loses
            if trait in release.tree(f"hub.config.{section}") and not is_the_charts and not is_kept:
                gone = _lost(release, trait, instead)
                text = f"It replaces {instead} whole{f', and {gone} would be gone' if gone else ''}."
                fix = f"Write it as {instead}, which adds to the chart's own."
                yield release.found("replaces-the-chart", path, text, fix, "problem" if gone else "look at")


def _lost(release: Release, trait: str, key: str) -> str:
    """Return in words what is lost if a trait of the spawner replaces what the chart makes of a key of the values.

    The text is "" if nothing is lost.

    Args:
        release: the release to check.
        trait: name of the trait, such as ``volumes``.
        key: the key of the values from which the chart sets the same trait.
    """
    if trait in ("volumes", "volume_mounts"):
        files = "the files of singleuser.extraFiles" if release.tree("singleuser.extraFiles") else ""
        return "users' homes" if release.at("singleuser.storage.type") in ("dynamic", "static") else files
    if trait == "profile_list":
        return "all profiles there" if release.at(key) else ""
    if trait == "init_containers":
        names = [str(each.get("name")) for each in mappings(release.at(key))]
        names += ["block-cloud-metadata"] * (release.at("singleuser.cloudMetadata.blockWithIptables") is True)
        what = "init container"
    else:
        names = list(map(str, release.variables(key) if trait == "environment" else release.tree(key)))
        what = {"environment": "variable" + "s" * (len(names) > 1), "extra_labels": "labels"}.get(trait, "annotations")
    return f"the {what} {', '.join(names)}" if names else ""


def _metadata(release: Release) -> Findings:
    """Report that nothing keeps users' servers from the cloud's metadata service, which gives out the node's rights."""
    opened = "singleuser.networkPolicy.egressAllowRules.cloudMetadataServer"
    by_policy = release.at("singleuser.networkPolicy.enabled") is True
    if release.at("singleuser.cloudMetadata.blockWithIptables") is True:
        return
    if by_policy and release.at(opened) is True:
        text = "Servers may reach the cloud's metadata, which hands out the machines' own rights; "
        yield release.found("metadata-open", opened, f"{text}nothing else blocks it.", "Set it to false.")
    elif not by_policy and not any(map(_limits_servers, release.manifests)):
        text = "Neither the init container nor the chart's policy keeps servers from the cloud's metadata."
        fix = "Set it to true, or apply helm-values/manifests/metadata-policy.yaml and name it with --manifests."
        yield release.found("metadata-open", "singleuser.networkPolicy.enabled", text, fix, "look at")


def _limits_servers(manifest: Tree) -> bool:
    """Whether a manifest is a network policy that restricts outgoing connections of users' servers."""
    chosen = find(manifest, ("spec", "podSelector", "matchLabels", "component"))
    types = as_list(find(manifest, ("spec", "policyTypes")))
    return manifest.get("kind") == "NetworkPolicy" and chosen == "singleuser-server" and "Egress" in types


def _restricted(release: Release) -> str:
    """Return the name of the rule that refuses privileged or root containers in users' pods, for a finding.

    It is the Pod Security level of the namespace, or ``runAsNonRoot`` of the pod. "" without such a rule.
    """
    for manifest in release.manifests:
        level = find(manifest, ("metadata", "labels", "pod-security.kubernetes.io/enforce"))
        if manifest.get("kind") == "Namespace" and level in ("restricted", "baseline"):
            return f"the namespace's Pod Security level {level}"
    contexts = [release.tree(f"singleuser.extraPodConfig.{name}") for name in ("securityContext", "security_context")]
    contexts.append(next((each for key in spawner_keys("pod_security_context") if (each := release.tree(key))), {}))
    names = ("runAsNonRoot", "run_as_non_root")
    return "runAsNonRoot of the pod" if any(each.get(name) is True for each in contexts for name in names) else ""


def _root_containers(release: Release) -> Findings:
    """Report extra containers of users' pods that run as root or privileged although a rule forbids it.

    Without such a rule (`_restricted`), nothing is reported.
    """
    why = _restricted(release)
    key = "singleuser.cloudMetadata.blockWithIptables"
    if why and release.at(key) is True:
        text = f"It adds a privileged init container to every server, which {why} refuses."
        fix = "Set it to false; singleuser.networkPolicy blocks the address (helm-values/restricted.yaml)."
        yield release.found("privileged", key, text, fix)
    for key in _CONTAINERS if why else ():
        for each in mappings(release.items(key)):
            context = as_tree(each.get("securityContext"))
            privileged, root = context.get("privileged") is True, context.get("runAsUser") == 0
            by_pod = root and context.get("runAsNonRoot") is not False
            level = why.rpartition(" level ")[2]
            if {"baseline": privileged, "restricted": privileged or root}.get(level, by_pod):
                what = "runs as root" if root else "is privileged"
                text = f"The container {each.get('name', '?')} {what}, which {why} refuses: no server starts."
                fix = "Give it a user that is not root (runAsUser: 1000); singleuser.fsGid makes volumes writable."
                yield release.found("privileged", key, text, f"{fix} Or leave it out.")


def _schedulers(release: Release) -> Findings:
    cluster = release.tree("hub.config.GpuCluster")
    if cluster.get("kueue_queue") and cluster.get("kai_queue"):
        text = "Kueue and KAI are both named: two lines would hold the same servers."
        yield release.found("two-queues", "hub.config.GpuCluster.kai_queue", text, "Keep one of the two.")
    key = "scheduling.userScheduler.enabled"
    uses_claims = any(each.get("kind") in ("ResourceClaimTemplate", "DeviceClass") for each in release.manifests)
    ours = release.files[release.base :]
    named = {value: file.name for file in ours if isinstance(value := find(file.values, key.split(".")), bool)}
    if uses_claims and release.at(key) is True:
        text = "The chart's scheduler may not read DRA's claims: a server with one is never placed."
        fix = "Set it to false (helm-values/dra.yaml): the cluster's own scheduler places all servers."
        yield release.found("scheduler-without-dra", key, text, fix)
    elif len(named) == 2:
        text = f"{named[False]} switches the chart's scheduler off, and {named[True]} on. It knows no claims of DRA: a "
        text += "server with one is never placed by it."
        fix = f"Leave {named[True]} out where servers have claims, else {named[False]}."
        yield release.found("two-schedulers", key, text, fix, "look at")
