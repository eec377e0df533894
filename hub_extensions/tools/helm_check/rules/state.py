"""Rules about the state of the GPU service: it is kept, and one service alone has it."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from hub_extensions.hub_service.setup.settings import SERVICE_NAME
from hub_extensions.tools.helm_check.model import Finding, Release, found
from hub_extensions.tools.helm_check.rules.sign_on import has_sessions

HUB_FOLDER = "/srv/jupyterhub"
"""The working directory of the chart's hub; with ``hub.db.type: sqlite-pvc`` the chart's volume is mounted there."""

DATABASE_VARIABLE = "JUPYTERHUB_GPU_DATABASE_URL"


def check_state(release: Release) -> Iterator[Finding]:
    """Every way to lose tickets and leases, or to have two services on them."""
    strategy = release.at("hub.deploymentStrategy.type")
    if strategy not in (None, "Recreate"):
        text = f"It is {strategy}: two hubs would run at once during an upgrade, and two GPU services on one database."
        if has_sessions(release):
            text = f"{text[:-1]}. A session that ends at one hub would go on at the other."
        yield found(release, "two-hubs", "hub.deploymentStrategy.type", text, "Leave it at Recreate.")
    service = release.tree("hub.config.GpuService")
    deployments = [each for each in release.manifests if is_service_deployment(each)]
    for deployment in deployments:
        yield from _deployment(release, deployment)
    if service.get("started_by_hub") is False:
        yield from _base_of_deployment(release, deployments)
        if not isinstance(release.tree("hub.services").get(SERVICE_NAME), Mapping):
            text = "The service runs in its own Deployment, and the chart makes no token for it."
            fix = "Give helm-values/service-deployment.yaml as it is: hub.services.gpu: {}."
            yield found(release, "service-token", "hub.services.gpu", text, fix)
        return
    entry = release.tree("hub.services").get(SERVICE_NAME)
    if isinstance(entry, Mapping) and not {"url", "command"} & set(entry):
        text = "The chart makes a token for a service in its own Deployment, and the hub starts the service itself."
        fix = (
            "Take hub.services.gpu out; where the service has its own Deployment, give all of "
            "helm-values/service-deployment.yaml."
        )
        yield found(release, "service-entry", f"hub.services.{SERVICE_NAME}", text, fix, severity="look at")
    if deployments:
        text = "The hub starts the GPU service in its pod, and a Deployment of it is there as well: there would be two."
        fix = "Give helm-values/service-deployment.yaml, or leave the Deployment out."
        yield found(release, "two-services", "hub.config.GpuService.started_by_hub", text, fix)
    folder = str(service.get("state_dir") or "gpu-state")
    volume = _volume_of(release, folder)
    if not _has_database(release) and volume != "kept":
        kind = release.at("hub.db.type")
        key = "hub.db.type"
        text = f"hub.db.type is {kind}, so the hub's pod keeps no files: tickets and leases are gone at its next start."
        if volume:
            key = "hub.extraVolumes"
            text = f"{folder} is on an {volume}, which goes with the hub's pod: tickets and leases go with it."
        elif kind == "sqlite-pvc":
            key = "hub.config.GpuService.state_dir"
            text = f"{folder} is on no volume of the hub's pod: tickets and leases are gone at its next start."
        fix = (
            "Set hub.config.GpuService.database_url (helm-values/postgres.yaml), run the service in its own Deployment "
            "(service-deployment.yaml), or mount a volume at state_dir."
        )
        yield found(release, "state-lost", key, text, fix)


def _volume_of(release: Release, state_dir: str) -> str:
    """On which volume of the hub's pod the folder lies: "kept", ``emptyDir``, or "" for none."""
    place = state_dir if state_dir.startswith("/") else f"{HUB_FOLDER}/{state_dir}"
    volumes, mounts = release.items("hub.extraVolumes"), release.items("hub.extraVolumeMounts")
    passing = {each.get("name") for each in volumes if isinstance(each, Mapping) and "emptyDir" in each}
    kinds = {HUB_FOLDER: "kept"} if release.at("hub.db.type") == "sqlite-pvc" else {}
    for mount in mounts:
        if isinstance(mount, Mapping) and (path := str(mount.get("mountPath", "")).rstrip("/")):
            kinds[path] = "emptyDir" if mount.get("name") in passing else "kept"
    above = [path for path in kinds if f"{place}/".startswith(f"{path}/")]
    return kinds[max(above, key=len)] if above else ""  # the innermost mount hides those around it


def is_service_deployment(manifest: Mapping[str, Any]) -> bool:
    """Is this Kubernetes object the Deployment of the GPU service?"""
    labels = (((manifest.get("spec") or {}).get("template") or {}).get("metadata") or {}).get("labels") or {}
    return manifest.get("kind") == "Deployment" and labels.get("component") == "gpu-service"


def _deployment(release: Release, deployment: Mapping[str, Any]) -> Iterator[Finding]:
    spec = deployment.get("spec") or {}
    name = f"Deployment {(deployment.get('metadata') or {}).get('name', '?')}"
    replicas = spec.get("replicas", 1)
    if isinstance(replicas, int) and replicas > 1:
        text = f"It has {replicas} replicas: each would keep a line of its own."
        if not _database_of(release, spec):
            text = f"It has {replicas} replicas on one SQLite file: two services break it, and each keeps its own line."
        yield Finding("two-replicas", "problem", f"{name}: spec.replicas", text, "Set it to 1.")
    if (spec.get("strategy") or {}).get("type") != "Recreate":
        text = "Two services would run at once during a rollout, on one database."
        yield Finding("two-services", "problem", f"{name}: spec.strategy.type", text, "Set it to Recreate.")
    pod = (spec.get("template") or {}).get("spec") or {}
    kept = any("persistentVolumeClaim" in volume for volume in pod.get("volumes") or [])
    if not kept and not _database_of(release, spec):
        text = "The service keeps no files and has no database: tickets and leases are gone at its next start."
        fix = "Mount a PersistentVolumeClaim at its --state-dir, or give it a database (helm-values/postgres.yaml)."
        yield Finding("state-lost", "problem", f"{name}: spec.template.spec.volumes", text, fix)


def _base_of_deployment(release: Release, deployments: Sequence[Mapping[str, Any]]) -> Iterator[Finding]:
    """The manifest cannot know ``hub.baseUrl``: it is written there by hand."""
    base = release.base_url
    if base == "/":
        return
    fix = f"Write http://hub:8081{base}hub/api there (helm-values/manifests/service-deployment/service.yaml)."
    if not deployments:
        text = f"The service's Deployment has to have it in JUPYTERHUB_API_URL: it asks the hub below {base}."
        yield found(release, "base-url", "hub.baseUrl", text, f"{fix} --manifests checks it.", severity="look at")
    for deployment in deployments:
        urls = [url for url in _variable(deployment, "JUPYTERHUB_API_URL") if not url.endswith(f"{base}hub/api")]
        if urls:
            name = f"Deployment {(deployment.get('metadata') or {}).get('name', '?')}"
            text = (
                f"Its JUPYTERHUB_API_URL is {urls[0]}, and hub.baseUrl is {base}: the service does not reach the hub."
            )
            yield Finding("base-url", "problem", f"{name}: JUPYTERHUB_API_URL", text, fix)


def _variable(deployment: Mapping[str, Any], name: str) -> Iterator[str]:
    """The values of a variable in a Deployment's containers."""
    pod = ((deployment.get("spec") or {}).get("template") or {}).get("spec") or {}
    for container in pod.get("containers") or ():
        for each in container.get("env") or ():
            if each.get("name") == name and each.get("value"):
                yield str(each["value"])


def _has_database(release: Release) -> bool:
    given = release.tree("hub.config.GpuService").get("database_url")
    return bool(given) or DATABASE_VARIABLE in release.variables("hub.extraEnv")


def _database_of(release: Release, spec: Mapping[str, Any]) -> bool:
    """Has the service a database outside its own files?"""
    if _has_database(release):
        return True
    return any(value == DATABASE_VARIABLE for _, value in _texts(spec))


def _texts(tree: Any) -> Iterator[tuple[str, str]]:
    if isinstance(tree, Mapping):
        for name, inner in tree.items():
            yield from ((str(name), inner),) if isinstance(inner, str) else _texts(inner)
    elif isinstance(tree, list):
        for inner in tree:
            yield from _texts(inner)
