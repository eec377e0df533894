"""Rules about servers that are stopped: how long they have to end, and whether the rules of culling are there."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

from hub_extensions.core.culling.grace_chain import GraceChain, weak_links
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.tools.helm_check.model import Finding, Release, Severity, found
from hub_extensions.tools.helm_check.rules.state import HUB_FOLDER, is_service_deployment
from hub_extensions.tools.helm_check.rules.use import CULLING

SPAWNER_SECTIONS = ("GpuKubeSpawner", "KubeSpawner")
"""Sections in which our spawner reads KubeSpawner's settings, the stronger first."""
OF_THE_CHART = "singleuser.extraPodConfig"
"""The chart's own key for further configuration of pods."""
POLICY_FILE = "hub.config.GpuCulling.policy_file"


def check_stops(release: Release) -> Iterator[Finding]:
    """Every one, where servers are stopped at all."""
    if release.at(CULLING) is True:
        yield from _grace(release)
    path = release.at(POLICY_FILE)
    if isinstance(path, str) and path:
        yield from _policy_file(release, path)


def _grace(release: Release) -> Iterator[Finding]:
    deletion, pods = _spawner_key(release, "delete_grace_period"), _spawner_key(release, "extra_pod_config")
    tornado = "hub.config.JupyterHub.tornado_settings"
    minutes = _number(release.at("hub.config.GpuCulling.stop_deadline_minutes"))
    if release.at(pods) is None and release.at(OF_THE_CHART) is not None:
        pods = OF_THE_CHART
    config = release.at(pods)
    chain = GraceChain(
        deletion=_number(release.at(deletion)),
        eviction=_number(config.get("terminationGracePeriodSeconds")) if isinstance(config, Mapping) else None,
        slow_stop=_number(release.tree(tornado).get("slow_stop_timeout")),
        deadline=CullPolicy().stop_deadline.total_seconds() if minutes is None else 60 * minutes,
    )
    keys = {
        "deletion": deletion,
        "eviction": f"{pods}.terminationGracePeriodSeconds",
        "slow_stop": f"{tornado}.slow_stop_timeout",
    }
    for link in weak_links(chain):
        severity: Severity = "problem" if link.breaks else "look at"
        yield found(release, "grace", keys[link.member], link.text, link.fix, severity=severity)


def _spawner_key(release: Release, name: str) -> str:
    """The key that counts, or that would be the one to set."""
    given = [section for section in SPAWNER_SECTIONS if name in release.tree(f"hub.config.{section}")]
    return f"hub.config.{(given or SPAWNER_SECTIONS)[0]}.{name}"


def _number(value: object) -> float | None:
    return float(value) if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def _policy_file(release: Release, path: str) -> Iterator[Finding]:
    """It is on a volume of the pod that the service runs in, and its changes arrive there."""
    apart = release.tree("hub.config.GpuService").get("started_by_hub") is False
    deployments = [each for each in release.manifests if is_service_deployment(each)]
    if apart and not deployments:
        return  # its pod is not known
    who = "The service's own pod" if apart else "The hub's pod"
    mounts = [each for one in deployments for each in _mounts_of(one)] if apart else _mounts_of_hub(release)
    place = path if path.startswith("/") else f"{HUB_FOLDER}/{path}"
    above = [each for each in mounts if f"{place}/".startswith(f"{str(each.get('mountPath', '')).rstrip('/')}/")]
    if not above:
        text = f"{who} mounts nothing at {path}: unless its image has the file, the GPU service does not start."
        fix = (
            "Mount the folder of a ConfigMap there (docs/howto/gpu-policy.md, hub.extraVolumes and extraVolumeMounts)."
        )
        yield found(release, "policy-not-mounted", POLICY_FILE, text, fix, severity="look at")
        return
    if "subPath" in max(above, key=lambda each: len(str(each["mountPath"]))):
        text = f"{path} is mounted with subPath: a change of it does not arrive before the pod's next start."
        fix = "Mount the folder of a ConfigMap, without subPath (docs/howto/gpu-policy.md)."
        yield found(release, "policy-not-renewed", POLICY_FILE, text, fix, severity="look at")


def _mounts_of_hub(release: Release) -> list[Mapping[str, Any]]:
    own = [each for each in release.items("hub.extraVolumeMounts") if isinstance(each, Mapping)]
    files = [each for each in release.tree("hub.extraFiles").values() if isinstance(each, Mapping)]
    kept = [{"mountPath": HUB_FOLDER}] if release.at("hub.db.type") == "sqlite-pvc" else []
    return [*own, *({"mountPath": each.get("mountPath", ""), "subPath": "a file"} for each in files), *kept]


def _mounts_of(deployment: Mapping[str, Any]) -> list[Mapping[str, Any]]:
    pod = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    return [mount for container in pod.get("containers") or () for mount in container.get("volumeMounts") or ()]
