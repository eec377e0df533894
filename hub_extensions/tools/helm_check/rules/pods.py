"""Rules about users' servers: GPUs asked for beside the offers, settings that replace the chart's, schedulers."""

from __future__ import annotations

import itertools
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from hub_extensions.core.offers.pod_request import is_gpu_resource
from hub_extensions.tools.helm_check.model import Finding, Path, Release, Severity, dotted, find, found, has
from hub_extensions.tools.helm_check.rules.hub import SPAWNERS, loses

_NVIDIA = re.compile(r"nvidia\.com/")
_OF_GPU_NODES = re.compile(r"nvidia\.com/|gke-accelerator|amazonaws\.com/accelerator|\bgpu\b|\baccelerator\b")
_GPU_MACHINE = re.compile(
    r"(?i)gpu|cuda|nvidia|tesla|\b[ahlvtp](?:4|40|40s|100|200|800)\b|"
    r"^(?:p[2-6]|g[3-7])[a-z]*\.|^(?:p[2-6]|g[3-7])[a-z]*$|"  # AWS
    r"^(?:standard_)?n[cdv]\d|"  # Azure
    r"^(?:a[2-4]|g[2-4])(?:-|$)"  # Google
)
"""Machines with GPUs, by an instance type or by the name that people give a pool of nodes."""
_OF_MACHINES = re.compile(
    r"instance-(?:type|family)|machine-(?:type|family)|agentpool|node-?pool|node-?group|worker-?pool"
)
"""Labels for the kind of machine of a node, or for its pool."""
_RESOURCES = ("extra_resource_limits", "extra_resource_guarantees")
_VISIBLE = ("NVIDIA_VISIBLE_DEVICES", "CUDA_VISIBLE_DEVICES")


def check_pods(release: Release) -> Iterator[Finding]:
    """Every rule about servers' pods; of our spawner's, only where it is in the values."""
    yield from _replaced(release)
    yield from _metadata(release)
    if release.is_ours:
        yield from _profiles(release)
        yield from _gpus_of_all(release)
        yield from _hooks(release)
        yield from _visible(release)
        yield from _schedulers(release)
        yield from _namespaces(release)


# ------------------------------------------------------------------ GPUs beside the offers


def _profiles(release: Release) -> Iterator[Finding]:
    for path, listed in _profile_lists(release):
        for at, profile in enumerate(listed):
            if isinstance(profile, Mapping):
                name = str(profile.get("display_name") or profile.get("slug") or f"number {at + 1}")
                yield from _of_profile(release, path, name, profile)


def _profile_lists(release: Release) -> Iterator[tuple[Path, list[Any]]]:
    keys = ["singleuser.profileList", *(f"hub.config.{section}.profile_list" for section in SPAWNERS)]
    for key in keys:
        value = release.at(key)
        if isinstance(value, Mapping):
            value = list(value.values())
        if isinstance(value, list):
            yield tuple(key.split(".")), value


def _of_profile(release: Release, path: Path, name: str, profile: Mapping[str, Any]) -> Iterator[Finding]:
    for choice, override in _overrides(profile):
        who = f"The profile {name!r}" + (f" (choice {choice})" if choice else "")
        for resource, count in _asked(override):
            if _NVIDIA.match(resource):
                text = f"{who} asks for {resource}: {count} by itself: it is left out, the GPU comes with the offer."
                fix = "Take it out: profiles choose image and size, users choose the GPU beside them."
            else:
                text = f"{who} asks for {resource}: {count} by itself: this GPU is held outside of the line."
                fix = (
                    "Take it out, or keep such profiles in a hub of their own: there are no offers of this kind of GPU."
                )
            yield found(release, "profile-gpu", path, text, fix)
        claims = _claims(override)
        if claims:
            text = f"{who} has the claim {', '.join(claims)} by itself: a GPU that it brings is outside of every lease."
            fix = "Take it out: the claim comes with the offer."
            yield found(release, "profile-gpu", path, text, fix, severity="look at")
        pinned = [] if any(_asked(override)) else sorted(set(_gpu_nodes(override)))
        if pinned:
            text = f"{who} is for nodes with {pinned[0]}: servers without a GPU take the room there too."
            fix = "Take it out: an offer brings its servers to the nodes that have its GPUs."
            yield found(release, "profile-on-gpu-nodes", path, text, fix, severity="look at")


def _gpu_nodes(override: Mapping[str, Any]) -> Iterator[str]:
    """Yield the labels by which an override selects nodes with GPUs, with the value if only that shows it."""
    pod = override.get("extra_pod_config")
    pod = pod if isinstance(pod, Mapping) else {}
    for selector in (override.get("node_selector"), pod.get("nodeSelector"), pod.get("node_selector")):
        for label, value in selector.items() if isinstance(selector, Mapping) else ():
            yield from _label(str(label), [value])
    todo: list[Any] = [override.get("node_affinity_required"), pod.get("affinity")]
    for each in todo:  # it grows
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


def _claims(pod: object) -> list[str]:
    """The names of the resource claims (DRA) in a pod's configuration, or in an override with one."""
    if not isinstance(pod, Mapping):
        return []
    listed = pod.get("resourceClaims") or pod.get("resource_claims")
    own = (
        [str(each.get("name", "?")) for each in listed if isinstance(each, Mapping)] if isinstance(listed, list) else []
    )
    return own + _claims(pod.get("extra_pod_config"))


def _overrides(profile: Mapping[str, Any]) -> Iterator[tuple[str, Mapping[str, Any]]]:
    """The overrides of a profile, with the choice they belong to."""
    own = profile.get("kubespawner_override")
    if isinstance(own, Mapping):
        yield "", own
    options = profile.get("profile_options")
    for option, content in options.items() if isinstance(options, Mapping) else ():
        choices = content.get("choices") if isinstance(content, Mapping) else None
        listed = dict(choices) if isinstance(choices, Mapping) else {}
        if isinstance(content, Mapping) and isinstance(content.get("unlisted_choice"), Mapping):
            listed["of one's own"] = content["unlisted_choice"]
        for choice, inner in listed.items():
            override = inner.get("kubespawner_override") if isinstance(inner, Mapping) else None
            if isinstance(override, Mapping):
                yield f"{option}: {choice}", override


def _asked(override: Mapping[str, Any]) -> Iterator[tuple[str, Any]]:
    """The GPUs that an override asks for, each once."""
    container = override.get("extra_container_config")
    resources = container.get("resources") if isinstance(container, Mapping) else None
    trees = [override.get(name) for name in _RESOURCES]
    trees += [resources.get(kind) for kind in ("limits", "requests")] if isinstance(resources, Mapping) else []
    found_ones: dict[str, Any] = {}
    for tree in trees:
        for resource, count in tree.items() if isinstance(tree, Mapping) else ():
            if is_gpu_resource(str(resource)) and _is_some(count):
                found_ones.setdefault(str(resource), count)
    yield from found_ones.items()


def _is_some(count: object) -> bool:
    """Nobody asks for a GPU with 0, ``"0"`` or null."""
    return bool(count) and count != "0"


_OF_THE_OFFER = "Take it out: the GPU comes with the offer."


def _gpus_of_all(release: Release) -> Iterator[Finding]:
    """Every server would ask, also one of CPU only."""
    keys = ["singleuser.extraResource.limits", "singleuser.extraResource.guarantees"]
    keys += [f"hub.config.{section}.{name}" for section in SPAWNERS for name in _RESOURCES]
    for key in keys:
        for resource, count in release.tree(key).items():
            if is_gpu_resource(str(resource)) and _is_some(count):
                text = f"Every server would ask for {resource}: {count}, whatever its user chose."
                yield found(release, "gpu-for-all", (*key.split("."), resource), text, _OF_THE_OFFER)
    for key in ("singleuser.extraPodConfig", *(f"hub.config.{section}.extra_pod_config" for section in SPAWNERS)):
        if claims := _claims(release.at(key)):
            text = f"Every server would have the claim {', '.join(claims)}, whatever its user chose."
            place = "resource_claims" if "resource_claims" in release.tree(key) else "resourceClaims"
            yield found(release, "gpu-for-all", f"{key}.{place}", text, "Take it out: the claim comes with the offer.")
    for key in ("singleuser.initContainers", "singleuser.extraContainers"):
        for number, container in enumerate(release.items(key)):
            for resource, count in _asked({"extra_container_config": container}):
                name = container.get("name", number)
                asks = f"{resource}: {count} in every server"
                text = f"Its container {name} would ask for {asks}, beside what a lease gives."
                yield found(release, "gpu-for-all", key, text, _OF_THE_OFFER)


def _hooks(release: Release) -> Iterator[Finding]:
    """GPUs that hooks of the administrator's own give to a server or to its pod."""
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
    keys = ["singleuser.extraEnv", *(f"hub.config.{section}.environment" for section in SPAWNERS)]
    for key in keys:
        for name in _VISIBLE:
            if name in release.tree(key):
                text = "It tells every server which GPUs to use, past what its lease gives."
                yield found(release, "visible-devices", f"{key}.{name}", text, "Take it out: the offer sets it.")


# ------------------------------------------------------------------ settings that replace the chart's


def _replaced(release: Release) -> Iterator[Finding]:
    sections = SPAWNERS[:2]  # the chart sets c.KubeSpawner, which beats c.Spawner
    given = [(section, trait) for section in sections for trait in _REPLACES]
    for section, trait in given:
        path = ("hub", "config", section, trait)
        if trait not in release.tree(f"hub.config.{section}"):
            continue
        if section == "KubeSpawner" and trait == "profile_list" and not release.is_ours:
            continue
        change = release.change_of(path)
        if change is not None and not loses(change):
            continue
        instead, lost = _REPLACES[trait]
        gone = lost(release)
        text = f"It replaces {instead} whole{f', and {gone} would be gone' if gone else ''}."
        fix = f"Write it as {instead}, which adds to the chart's own."
        severity: Severity = "problem" if gone else "look at"
        yield found(release, "replaces-the-chart", path, text, fix, severity=severity)


def _named(key: str, what: str) -> Callable[[Release], str]:
    def lost(release: Release) -> str:
        value = release.at(key)
        if not value:
            return ""
        return what.format(", ".join(map(str, value)) if isinstance(value, Mapping) else "there")

    return lost


def _lost_variables(release: Release) -> str:
    names = list(release.variables("singleuser.extraEnv"))
    return f"the variable{'s' if len(names) > 1 else ''} {', '.join(names)}" if names else ""


def _lost_containers(release: Release) -> str:
    lost = [str(each.get("name")) for each in release.items("singleuser.initContainers") if isinstance(each, Mapping)]
    if release.at("singleuser.cloudMetadata.blockWithIptables") is True:
        lost.append("block-cloud-metadata")
    return f"the init container {', '.join(lost)}" if lost else ""


def _lost_home(release: Release) -> str:
    if release.at("singleuser.storage.type") in ("dynamic", "static"):
        return "users' homes"
    return "the files of singleuser.extraFiles" if release.tree("singleuser.extraFiles") else ""


_REPLACES: Mapping[str, tuple[str, Callable[[Release], str]]] = {
    "environment": ("singleuser.extraEnv", _lost_variables),
    "init_containers": ("singleuser.initContainers", _lost_containers),
    "profile_list": ("singleuser.profileList", _named("singleuser.profileList", "all profiles there")),
    "extra_labels": ("singleuser.extraLabels", _named("singleuser.extraLabels", "the labels {}")),
    "extra_annotations": ("singleuser.extraAnnotations", _named("singleuser.extraAnnotations", "the annotations {}")),
    "volumes": ("singleuser.storage.extraVolumes", _lost_home),
    "volume_mounts": ("singleuser.storage.extraVolumeMounts", _lost_home),
}
"""A trait of the spawner -> the key that should be used, and what of it would be lost."""


def _namespaces(release: Release) -> Iterator[Finding]:
    for section in SPAWNERS:
        key = f"hub.config.{section}.enable_user_namespaces"
        if release.at(key) is True:
            text = (
                "Each user's servers are in a namespace of their own: the service reads volumes and claim templates of "
                "the hub's namespace only, and may end no pod elsewhere."
            )
            fix = "Take it out: servers of all users in the hub's namespace are what this bundle is tested with."
            yield found(release, "user-namespaces", key, text, fix, severity="look at")


# ------------------------------------------------------------------ the cloud's metadata, schedulers


def _metadata(release: Release) -> Iterator[Finding]:
    privileged = release.at("singleuser.cloudMetadata.blockWithIptables") is True
    why = _restricted(release)
    yield from _root_containers(release, why)
    if privileged and why:
        text = f"It adds a privileged init container to every server, which {why} refuses."
        fix = "Set it to false; singleuser.networkPolicy blocks the address (helm-values/restricted.yaml)."
        yield found(release, "privileged", "singleuser.cloudMetadata.blockWithIptables", text, fix)
    opened = release.at("singleuser.networkPolicy.egressAllowRules.cloudMetadataServer") is True
    by_policy = release.at("singleuser.networkPolicy.enabled") is True
    if privileged and opened and by_policy:
        text = "The policy opens what the init container blocks: the chart cannot be rendered with both."
        key = "singleuser.networkPolicy.egressAllowRules.cloudMetadataServer"
        yield found(release, "metadata-both-ways", key, text, "Set it to false.")
    if privileged:
        return
    if opened and by_policy:
        text = (
            "Servers may reach the cloud's metadata, which hands out the machines' own rights; nothing else blocks it."
        )
        key = "singleuser.networkPolicy.egressAllowRules.cloudMetadataServer"
        yield found(release, "metadata-open", key, text, "Set it to false.")
    elif not by_policy and not _blocks_metadata(release):
        text = "Neither the init container nor the chart's policy keeps servers from the cloud's metadata."
        fix = "Set it to true, or apply helm-values/manifests/metadata-policy.yaml and name it with --manifests."
        yield found(release, "metadata-open", "singleuser.networkPolicy.enabled", text, fix, severity="look at")


def _restricted(release: Release) -> str:
    """Name the rule that refuses a privileged container; "" if these values have none."""
    for manifest in release.manifests:
        labels = (manifest.get("metadata") or {}).get("labels") or {}
        if manifest.get("kind") == "Namespace" and labels.get("pod-security.kubernetes.io/enforce") in (
            "restricted",
            "baseline",
        ):
            return f"the namespace's Pod Security level {labels['pod-security.kubernetes.io/enforce']}"
    pod = release.tree("singleuser.extraPodConfig.securityContext")
    section = {**release.tree("hub.config.KubeSpawner"), **release.tree("hub.config.GpuKubeSpawner")}
    contexts = [pod, section.get("pod_security_context"), release.tree("singleuser.extraPodConfig.security_context")]
    if any(isinstance(each, Mapping) and _true(each, "runAsNonRoot", "run_as_non_root") for each in contexts):
        return "runAsNonRoot of the pod"
    return ""


def _root_containers(release: Release, why: str) -> Iterator[Finding]:
    """Containers of the admin's own, beside a server, that would not be let in."""
    for key in ("singleuser.initContainers", "singleuser.extraContainers"):
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


def _true(tree: Mapping[str, Any], *names: str) -> bool:
    return any(tree.get(name) is True for name in names)


def _blocks_metadata(release: Release) -> bool:
    """Is there a policy for servers among the manifests that has rules for the way out?"""
    for manifest in release.manifests:
        spec = manifest.get("spec") or {}
        chosen = (spec.get("podSelector") or {}).get("matchLabels") or {}
        if manifest.get("kind") == "NetworkPolicy" and chosen.get("component") == "singleuser-server":
            return "Egress" in (spec.get("policyTypes") or [])
    return False


def _schedulers(release: Release) -> Iterator[Finding]:
    cluster = release.tree("hub.config.GpuCluster")
    own = release.at("scheduling.userScheduler.enabled") is True
    if cluster.get("kueue_queue") and cluster.get("kai_queue"):
        text = "Kueue and KAI are both named: two lines would hold the same servers."
        yield found(release, "two-queues", "hub.config.GpuCluster.kai_queue", text, "Keep one of the two.")
    uses_claims = any(each.get("kind") in ("ResourceClaimTemplate", "DeviceClass") for each in release.manifests)
    if own and uses_claims:
        text = "The chart's scheduler may not read DRA's claims: a server with one is never placed."
        fix = "Set it to false (helm-values/dra.yaml): the cluster's own scheduler places all servers."
        yield found(release, "scheduler-without-dra", "scheduling.userScheduler.enabled", text, fix)
    else:
        yield from _two_schedulers(release)
    for section in SPAWNERS[:2]:
        if release.tree(f"hub.config.{section}").get("scheduler_name") and cluster.get("kai_queue"):
            text = "KAI places servers with a GPU whatever stands here; this is for servers without one only."
            key = f"hub.config.{section}.scheduler_name"
            yield found(release, "two-schedulers", key, text, "Leave it out.", severity="look at")


def _two_schedulers(release: Release) -> Iterator[Finding]:
    """Of our overlays one switches the chart's scheduler off, for DRA, and another needs it."""
    path = ("scheduling", "userScheduler", "enabled")
    switched = [(file, find(file.values, path)) for file in release.overlays if has(file.values, path)]
    for (earlier, before), (later, after) in itertools.pairwise(switched):
        if before is not after:
            off, on = (earlier, later) if after else (later, earlier)
            text = (
                f"{off.name} switches the chart's scheduler off, and {on.name} on. It knows no claims of DRA: a server "
                "with one is never placed by it."
            )
            fix = f"Leave {on.name} out where servers have claims, else {off.name}."
            line = later.lines.get(path)
            yield Finding("two-schedulers", "look at", dotted(path), text, fix, later.name, line)
