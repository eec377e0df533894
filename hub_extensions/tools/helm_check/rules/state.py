"""Rules about the state of the GPU service (its database), and about the time that stopped servers get to end."""

from __future__ import annotations

from collections.abc import Mapping

from hub_extensions.core.culling.grace_chain import GraceChain, weak_links
from hub_extensions.core.culling.policy import CullPolicy
from hub_extensions.hub_service.setup.settings import SERVICE_NAME
from hub_extensions.tools.helm_check.model import Findings, Release, name_of, spawner_keys
from hub_extensions.tools.helm_check.rules.sign_on import has_sessions
from hub_extensions.tools.helm_check.trees import Tree, find, is_number, mappings

HUB_FOLDER = "/srv/jupyterhub"
"""The working directory of the chart's hub; with ``hub.db.type: sqlite-pvc`` the chart's volume is mounted there."""
DATABASE_VARIABLE = "JUPYTERHUB_GPU_DATABASE_URL"


def check_state(release: Release) -> Findings:
    """Report what could lose places in line and leases of GPUs, run two GPU services, or end servers too early."""
    strategy = release.at("hub.deploymentStrategy.type")
    if strategy not in (None, "Recreate"):
        text = f"It is {strategy}: two hubs would run at once during an upgrade, and two GPU services on one database."
        if has_sessions(release):
            text = f"{text[:-1]}. A session that ends at one hub would go on at the other."
        yield release.found("two-hubs", "hub.deploymentStrategy.type", text, "Leave it at Recreate.")
    deployments = [each for each in release.manifests if is_service_deployment(each)]
    for deployment in deployments:
        yield from _deployment(release, deployment)
    key = f"hub.services.{SERVICE_NAME}"
    entry = release.at(key)
    if release.is_apart:
        yield from _base_url(release, deployments)
        if not isinstance(entry, Mapping):
            text = "The service runs in its own Deployment, and the chart makes no token for it."
            fix = "Give helm-values/service-deployment.yaml as it is: hub.services.gpu: {}."
            yield release.found("service-token", key, text, fix)
    else:
        if isinstance(entry, Mapping) and not {"url", "command"} & set(entry):
            text = "The chart makes a token for a service in its own Deployment, and the hub starts the service itself."
            fix = "Take hub.services.gpu out; where the service has its own Deployment, give all of "
            fix += "helm-values/service-deployment.yaml."
            yield release.found("service-entry", key, text, fix, "look at")
        if deployments:
            text = "The hub starts the GPU service in its pod, and a Deployment of it is there as well: there would be "
            text += "two."
            fix = "Give helm-values/service-deployment.yaml, or leave the Deployment out."
            yield release.found("two-services", "hub.config.GpuService.started_by_hub", text, fix)
        yield from _files_of_hub(release)
    if release.at("hub.config.GpuCulling.enabled") is True:
        yield from _grace(release)


def _files_of_hub(release: Release) -> Findings:
    """Report if a service in the hub's pod has its state neither in a database nor on a volume that is kept."""
    folder, kind = str(release.at("hub.config.GpuService.state_dir") or "gpu-state"), release.at("hub.db.type")
    place = folder if folder.startswith("/") else f"{HUB_FOLDER}/{folder}"
    passing = {each.get("name") for each in mappings(release.at("hub.extraVolumes")) if "emptyDir" in each}
    is_kept = {HUB_FOLDER: True} if kind == "sqlite-pvc" else {}
    for mount in mappings(release.at("hub.extraVolumeMounts")):
        if path := str(mount.get("mountPath", "")).rstrip("/"):
            is_kept[path] = mount.get("name") not in passing
    above = [path for path in is_kept if f"{place}/".startswith(f"{path}/")]
    innermost = max(above, key=len, default="")  # it hides the mounts around it
    if _has_database(release) or is_kept.get(innermost):
        return
    key = "hub.db.type"
    text = f"hub.db.type is {kind}, so the hub's pod keeps no files: tickets and leases are gone at its next start."
    if innermost:
        key = "hub.extraVolumes"
        text = f"{folder} is on an emptyDir, which goes with the hub's pod: tickets and leases go with it."
    elif kind == "sqlite-pvc":
        key = "hub.config.GpuService.state_dir"
        text = f"{folder} is on no volume of the hub's pod: tickets and leases are gone at its next start."
    fix = "Set hub.config.GpuService.database_url (helm-values/postgres.yaml), run the service in its own Deployment "
    fix += "(service-deployment.yaml), or mount a volume at state_dir."
    yield release.found("state-lost", key, text, fix)


def is_service_deployment(manifest: Tree) -> bool:
    """Whether this Kubernetes object is the Deployment of the GPU service."""
    component = find(manifest, ("spec", "template", "metadata", "labels", "component"))
    return manifest.get("kind") == "Deployment" and component == "gpu-service"


def _has_database(release: Release, deployment: object = "") -> bool:
    given = release.at("hub.config.GpuService.database_url")
    return bool(given) or DATABASE_VARIABLE in release.variables("hub.extraEnv") or DATABASE_VARIABLE in str(deployment)


def _deployment(release: Release, deployment: Tree) -> Findings:
    spec, name = deployment["spec"], name_of(deployment)
    replicas, has_database = spec.get("replicas", 1), _has_database(release, spec)
    if isinstance(replicas, int) and replicas > 1:
        text = f"It has {replicas} replicas: each would keep a line of its own."
        if not has_database:
            text = f"It has {replicas} replicas on one SQLite file: two services break it, and each keeps its own line."
        yield release.found("two-replicas", f"{name}: spec.replicas", text, "Set it to 1.")
    if find(spec, ("strategy", "type")) != "Recreate":
        text = "Two services would run at once during a rollout, on one database."
        yield release.found("two-services", f"{name}: spec.strategy.type", text, "Set it to Recreate.")
    volumes = mappings(find(spec, ("template", "spec", "volumes")))
    if not has_database and not any("persistentVolumeClaim" in volume for volume in volumes):
        text = "The service keeps no files and has no database: tickets and leases are gone at its next start."
        fix = "Mount a PersistentVolumeClaim at its --state-dir, or give it a database (helm-values/postgres.yaml)."
        yield release.found("state-lost", f"{name}: spec.template.spec.volumes", text, fix)


def _base_url(release: Release, deployments: list[Tree]) -> Findings:
    """Report a Deployment of the GPU service whose JUPYTERHUB_API_URL does not contain the path ``hub.baseUrl``.

    If the manifests have no such Deployment, report that its URL, which administrators write by hand, needs the path.
    Without a path in ``hub.baseUrl`` nothing is reported.

    Args:
        release: the release to check.
        deployments: the Deployments of the GPU service among the manifests.
    """
    base = release.base_url
    fix = f"Write http://hub:8081{base}hub/api there (helm-values/manifests/service-deployment/service.yaml)."
    if base != "/" and not deployments:
        text = f"The service's Deployment has to have it in JUPYTERHUB_API_URL: it asks the hub below {base}."
        yield release.found("base-url", "hub.baseUrl", text, f"{fix} --manifests checks it.", "look at")
    for deployment in deployments if base != "/" else ():
        containers = mappings(find(deployment, ("spec", "template", "spec", "containers")))
        variables = [each for container in containers for each in mappings(container.get("env"))]
        urls = [str(each.get("value") or "") for each in variables if each.get("name") == "JUPYTERHUB_API_URL"]
        if urls and not urls[0].endswith(f"{base}hub/api"):
            key = f"{name_of(deployment)}: JUPYTERHUB_API_URL"
            text = f"Its JUPYTERHUB_API_URL is {urls[0]}, and hub.baseUrl is {base}: "
            yield release.found("base-url", key, f"{text}the service does not reach the hub.", fix)


def _grace(release: Release) -> Findings:
    """Report each time limit for the end of a stopped server that does not fit the others (`GraceChain`).

    An example is a grace period that ends before the server's pod has been able to end.
    """

    def number(key: str) -> float | None:
        return float(value) if is_number(value := release.at(key)) else None

    def deciding(trait: str, *otherwise: str) -> str:
        """Return the key of the values that sets a trait of the spawner; if none does, the key that should set it.

        Args:
            trait: name of the trait.
            otherwise: further keys that can set the trait. They count only if the spawner's own keys do not set it.
        """
        keys = (*spawner_keys(trait)[:2], *otherwise)
        return next((key for key in keys if release.at(key) is not None), keys[0])

    keys = {
        "deletion": deciding("delete_grace_period"),
        "eviction": deciding("extra_pod_config", "singleuser.extraPodConfig") + ".terminationGracePeriodSeconds",
        "slow_stop": "hub.config.JupyterHub.tornado_settings.slow_stop_timeout",
    }
    minutes = number("hub.config.GpuCulling.stop_deadline_minutes")
    deadline = CullPolicy().stop_deadline.total_seconds() if minutes is None else 60 * minutes
    for link in weak_links(GraceChain(**{name: number(key) for name, key in keys.items()}, deadline=deadline)):
        yield release.found("grace", keys[link.member], link.text, link.fix, "problem" if link.breaks else "look at")
