"""What the hub of zero-to-jupyterhub 4.4 is told of values: the chart's ``jupyterhub_config.py``, written once more.

With it a test starts a hub of values files without the chart. ``hub_config`` is what the hub has before any Python of
the administrator runs; ``config_files`` and ``extra_config`` list that Python in the chart's order. Where the chart is
at hand, ``test_chart.py`` compares it with the chart's own.
"""

from __future__ import annotations

import base64
import copy
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from traitlets.config import Config

from hub_extensions.tools.helm_check.trees import kind_of

CHART_NAME = "jupyterhub"
CONFIG_FOLDER = "/usr/local/etc/jupyterhub/jupyterhub_config.d/"
MADE_BY_CHART = {
    "JupyterHub": ("proxy_auth_token", "cookie_secret", "services"),
    "ConfigurableHTTPProxy": ("auth_token",),
    "CryptKeeper": ("keys",),
}
"""What the chart takes out of ``hub.config`` without a word: it sets these itself."""

HUB = {
    "hub.concurrentSpawnLimit": "concurrent_spawn_limit",
    "hub.activeServerLimit": "active_server_limit",
    "hub.baseUrl": "base_url",
    "hub.allowNamedServers": "allow_named_servers",
    "hub.namedServerLimitPerUser": "named_server_limit_per_user",
    "hub.authenticatePrometheus": "authenticate_prometheus",
    "hub.redirectToServer": "redirect_to_server",
    "hub.shutdownOnLogout": "shutdown_on_logout",
    "hub.templatePaths": "template_paths",
    "hub.templateVars": "template_vars",
}
"""Key of the values -> setting of ``c.JupyterHub``."""

SPAWNER = {
    "hub.consecutiveFailureLimit": "consecutive_failure_limit",
    "singleuser.defaultUrl": "default_url",
    "singleuser.cmd": "cmd",
}
"""Key of the values -> setting of ``c.Spawner``."""

PODS = {
    "singleuser.podNameTemplate": "pod_name_template",
    "singleuser.startTimeout": "start_timeout",
    "singleuser.image.pullPolicy": "image_pull_policy",
    "singleuser.events": "events_enabled",
    "singleuser.extraLabels": "extra_labels",
    "singleuser.extraAnnotations": "extra_annotations",
    "singleuser.uid": "uid",
    "singleuser.fsGid": "fs_gid",
    "singleuser.serviceAccountName": "service_account",
    "singleuser.storage.extraLabels": "storage_extra_labels",
    "singleuser.nodeSelector": "node_selector",
    "singleuser.extraNodeAffinity.required": "node_affinity_required",
    "singleuser.extraNodeAffinity.preferred": "node_affinity_preferred",
    "singleuser.extraPodAffinity.required": "pod_affinity_required",
    "singleuser.extraPodAffinity.preferred": "pod_affinity_preferred",
    "singleuser.extraPodAntiAffinity.required": "pod_anti_affinity_required",
    "singleuser.extraPodAntiAffinity.preferred": "pod_anti_affinity_preferred",
    "singleuser.lifecycleHooks": "lifecycle_hooks",
    "singleuser.initContainers": "init_containers",
    "singleuser.extraContainers": "extra_containers",
    "singleuser.memory.limit": "mem_limit",
    "singleuser.memory.guarantee": "mem_guarantee",
    "singleuser.cpu.limit": "cpu_limit",
    "singleuser.cpu.guarantee": "cpu_guarantee",
    "singleuser.extraResource.limits": "extra_resource_limits",
    "singleuser.extraResource.guarantees": "extra_resource_guarantees",
    "singleuser.extraEnv": "environment",
    "singleuser.profileList": "profile_list",
    "singleuser.extraPodConfig": "extra_pod_config",
}
"""Key of the values -> setting of ``c.KubeSpawner``."""

CULLER = "jupyterhub-idle-culler"
CULLER_OPTIONS = {
    "timeout": "--timeout={}",
    "every": "--cull-every={}",
    "concurrency": "--concurrency={}",
    "users": "--cull-users",
    "removeNamedServers": "--remove-named-servers",
    "maxAge": "--max-age={}",
}
"""Key below ``cull`` -> option of the stock culler, given where the value is neither empty nor 0 nor false."""


# ------------------------------------------------------------------ the hub's configuration


def hub_config(
    values: Mapping[str, Any],
    *,
    namespace: str,
    release: str = "hub",
    tokens: Mapping[str, str] | None = None,
    version: str = "4.4.0",
) -> Config:
    """What the chart tells the hub of these values, before the files of ``config_files`` and ``extra_config`` run.

    Args:
        values: merged over the chart's own (`merge`).
        namespace: where the release is installed; pods of servers are made there.
        release: its name.
        tokens: API token by the key below ``hub.services``; the chart makes one for each that has none in its values.
            A service in neither place has no ``api_token`` here.
        version: the chart's, for the labels of pods.

    Raises:
        ValueError: a value has a type with which the hub of the chart would not start; the text names the key.
    """
    reading = _Reading(copy.deepcopy(dict(values)), release)
    c = Config()
    _hub(c, reading)
    _pods(c, reading, namespace=namespace, version=version)
    _image(c, reading)
    _placing(c, reading)
    _volumes(c, reading)
    _services(c, reading, tokens or {})
    _metadata_block(c, reading)
    if reading.at("debug.enabled"):
        c.JupyterHub.log_level = "DEBUG"
        c.Spawner.debug = True
    _pass_through(c, reading)
    return c


def config_files(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """``hub.extraFiles`` that are configuration (``jupyterhub_config.d/*.py``) as (file name, text), in their order.

    Raises:
        ValueError: a file is no text; the message names its key.
    """
    found = {}
    for key, file in _Reading(values).mapping("hub.extraFiles").items():
        path = str(file.get("mountPath", "")) if isinstance(file, Mapping) else ""
        name = path.removeprefix(CONFIG_FOLDER)
        if path.startswith(CONFIG_FOLDER) and "/" not in name and name.endswith(".py"):
            found[name] = _text(key, file)
    return sorted(found.items())


def _text(key: str, file: Mapping[str, Any]) -> str:
    try:
        if "binaryData" in file:
            return base64.b64decode("".join(str(file["binaryData"]).split()), validate=True).decode()
        text = file["stringData"] if "stringData" in file else file["data"]
    except (KeyError, ValueError):
        text = None
    if not isinstance(text, str):
        raise ValueError(f"hub.extraFiles.{key} is Python, so it has to have stringData, or binaryData in base64.")
    return text


def extra_config(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """``hub.extraConfig`` as (key, Python text), in the order the hub runs them: sorted by key, after everything else.

    Raises:
        ValueError: one is no text; the message names its key.
    """
    found = sorted(_Reading(values).mapping("hub.extraConfig").items())
    for key, text in found:
        if not isinstance(text, str):
            raise ValueError(f"hub.extraConfig.{key} has to be Python text: write it as a block, with | after the key.")
    return found


@dataclass(frozen=True)
class _Reading:
    """Values, and the names that the chart's objects have in this release."""

    values: Mapping[str, Any]
    release: str = "hub"

    def at(self, path: str, default: Any = None) -> Any:
        """What is at a path such as ``hub.db.type``; `default` where there is no such key, or nothing above it."""
        found: Any = self.values
        for key in path.split("."):
            if not isinstance(found, Mapping) or key not in found:
                return default
            found = found[key]
        return found

    def mapping(self, path: str) -> Mapping[str, Any]:
        return self._typed(path, Mapping, {}, "a dictionary")  # type: ignore[no-any-return]

    def items(self, path: str) -> list[Any]:
        return self._typed(path, list, [], "a list")  # type: ignore[no-any-return]

    def named(self, path: str, name: Callable[[int, Mapping[str, Any]], str]) -> dict[str, Any]:
        """A list or a dictionary of objects, as a dictionary; of a list, `name` says the keys."""
        found = self._typed(path, (list, Mapping), {}, "a list or a dictionary")
        if isinstance(found, Mapping):
            return dict(found)
        try:
            return {name(at, each): each for at, each in enumerate(found)}
        except (KeyError, TypeError):
            raise ValueError(f"{path}: each has to be a dictionary with a name.") from None

    def _typed(self, path: str, kinds: Any, empty: Any, right: str) -> Any:
        found = self.at(path)
        if found is not None and not isinstance(found, kinds):
            raise ValueError(f"{path} has to be {right}, not {kind_of(found)}.")
        return empty if found is None else found

    def full(self) -> str:
        """What all names begin with; empty by default, for a release has a namespace of its own."""
        override = self.at("fullnameOverride")
        if isinstance(override, str):
            return override
        name = self.at("nameOverride") or CHART_NAME
        return self.release if name in self.release else f"{self.release}-{name}"

    def name(self, short: str) -> str:
        full = self.full()
        return f"{full}-{short}" if full else short

    def cluster_name(self, short: str) -> str:
        """A name that has to be the only one in the cluster."""
        return f"{self.full() or self.release}-{short}"


def _hub(c: Config, reading: _Reading) -> None:
    c.JupyterHub.spawner_class = "kubespawner.KubeSpawner"
    c.ConfigurableHTTPProxy.should_start = False
    c.ConfigurableHTTPProxy.api_url = f"http://{reading.name('proxy-api')}:8001"
    c.JupyterHub.hub_bind_url = "http://:8081"
    c.JupyterHub.hub_connect_url = f"http://{reading.name('hub')}:8081"
    c.JupyterHub.cleanup_servers = False
    c.JupyterHub.last_activity_interval = 60
    c.JupyterHub.tornado_settings = {"slow_spawn_timeout": 0}
    database = {"sqlite-pvc": "sqlite:///jupyterhub.sqlite", "sqlite-memory": "sqlite://"}
    url = database.get(reading.at("hub.db.type"), reading.at("hub.db.url"))
    if url is not None:
        c.JupyterHub.db_url = url
    _take(c.JupyterHub, HUB, reading)
    _take(c.Spawner, SPAWNER, reading)
    if reading.at("singleuser.cmd", "absent") is None:
        c.Spawner.cmd = None  # said to be null: whatever the image starts


def _take(section: Config, names: Mapping[str, str], reading: _Reading) -> None:
    for path, name in names.items():
        value = reading.at(path)
        if value is not None:
            section[name] = value


def _pods(c: Config, reading: _Reading, *, namespace: str, version: str) -> None:
    name = reading.at("nameOverride", CHART_NAME)
    chart = f"{CHART_NAME}-{version.replace('+', '_')}"
    modern = {"app.kubernetes.io/name": name, "app.kubernetes.io/instance": reading.release, "helm.sh/chart": chart}
    older = {"app": name, "release": reading.release, "chart": chart}
    c.KubeSpawner.common_labels = {**modern, **older, "app.kubernetes.io/managed-by": "kubespawner"}
    c.KubeSpawner.namespace = namespace
    _take(c.KubeSpawner, PODS, reading)
    c.KubeSpawner.allow_privilege_escalation = reading.at("singleuser.allowPrivilegeEscalation")


def _image(c: Config, reading: _Reading) -> None:
    if name := reading.at("singleuser.image.name"):
        tag = reading.at("singleuser.image.tag")
        c.KubeSpawner.image = f"{name}:{tag}" if tag else name
    own = reading.at("imagePullSecret.create") and reading.at("imagePullSecret.automaticReferenceInjection")
    secrets = [reading.name("image-pull-secret")] if own else []
    secrets += [*reading.items("imagePullSecrets"), *reading.items("singleuser.image.pullSecrets")]
    if secrets:
        c.KubeSpawner.image_pull_secrets = secrets


def _placing(c: Config, reading: _Reading) -> None:
    """Which scheduler, which nodes, which taints."""
    if reading.at("scheduling.userScheduler.enabled"):
        c.KubeSpawner.scheduler_name = reading.cluster_name("user-scheduler")
    if reading.at("scheduling.podPriority.enabled"):
        c.KubeSpawner.priority_class_name = reading.full() or f"{reading.release}-default-priority"
    tolerations = reading.items("scheduling.userPods.tolerations") + reading.items("singleuser.extraTolerations")
    if tolerations:
        c.KubeSpawner.tolerations = tolerations
    path = "scheduling.userPods.nodeAffinity.matchNodePurpose"
    purpose = reading.at(path) or "ignore"
    if purpose not in ("ignore", "prefer", "require"):
        raise ValueError(f"{path} has to be ignore, prefer or require, not {purpose!r}.")
    term = {"matchExpressions": [{"key": "hub.jupyter.org/node-purpose", "operator": "In", "values": ["user"]}]}
    if purpose == "prefer":
        preferred = reading.items("singleuser.extraNodeAffinity.preferred")
        c.KubeSpawner.node_affinity_preferred = [*preferred, {"weight": 100, "preference": term}]
    elif purpose == "require":
        c.KubeSpawner.node_affinity_required = [*reading.items("singleuser.extraNodeAffinity.required"), term]


def _volumes(c: Config, reading: _Reading) -> None:
    """The home, the files of ``singleuser.extraFiles`` and the admin's own volumes; later ones win by their key."""
    volumes, mounts = _home(c, reading)
    files = dict(sorted(reading.mapping("singleuser.extraFiles").items()))
    for key, file in files.items():
        if not isinstance(file, Mapping) or "mountPath" not in file:
            raise ValueError(f"singleuser.extraFiles.{key} has to say its mountPath.")
    if files:
        items = [
            {"key": key, "path": key, **({"mode": file["mode"]} if "mode" in file else {})}
            for key, file in files.items()
        ]
        volumes["files"] = {"name": "files", "secret": {"secretName": reading.name("singleuser"), "items": items}}
    for at, (key, file) in enumerate(files.items()):
        mounts[f"{at}-files"] = {"mountPath": file["mountPath"], "subPath": key, "name": "files"}
    volumes |= reading.named("singleuser.storage.extraVolumes", lambda _, each: str(each["name"]))
    mounts |= reading.named("singleuser.storage.extraVolumeMounts", lambda at, each: f"{at}-{each['name']}")
    c.KubeSpawner.volumes = volumes
    c.KubeSpawner.volume_mounts = mounts


def _home(c: Config, reading: _Reading) -> tuple[dict[str, Any], dict[str, Any]]:
    kind = reading.at("singleuser.storage.type")
    if kind == "dynamic":
        template = reading.at("singleuser.storage.dynamic.pvcNameTemplate")
        if template:
            c.KubeSpawner.pvc_name_template = template
        c.KubeSpawner.storage_pvc_ensure = True
        names = {
            "singleuser.storage.dynamic.storageClass": "storage_class",
            "singleuser.storage.dynamic.storageAccessModes": "storage_access_modes",
            "singleuser.storage.capacity": "storage_capacity",
        }
        _take(c.KubeSpawner, names, reading)
        name, claim = reading.at("singleuser.storage.dynamic.volumeNameTemplate"), "{pvc_name}"
    elif kind == "static":
        name, claim = "home", reading.at("singleuser.storage.static.pvcName")
    else:
        return {}, {}
    path, below = reading.at("singleuser.storage.homeMountPath"), reading.at(f"singleuser.storage.{kind}.subPath")
    volume = {"name": name, "persistentVolumeClaim": {"claimName": claim}}
    return {name: volume}, {name: {"mountPath": path, "name": name, "subPath": below}}


def _services(c: Config, reading: _Reading, tokens: Mapping[str, str]) -> None:
    c.JupyterHub.services, c.JupyterHub.load_roles = [], []
    if reading.at("cull.enabled"):
        _culler(c, reading)
    for key, service in sorted(reading.mapping("hub.services").items()):
        if not isinstance(service, Mapping):
            raise ValueError(f"hub.services.{key} has to be a dictionary, not {kind_of(service)}.")
        token = service.get("api_token") or service.get("apiToken") or tokens.get(key)
        rest = {name: value for name, value in service.items() if name not in ("apiToken", "api_token")}
        c.JupyterHub.services.append({"name": key, **rest, **({"api_token": token} if token else {})})
    for key, role in sorted(reading.mapping("hub.loadRoles").items()):
        if not isinstance(role, Mapping):
            raise ValueError(f"hub.loadRoles.{key} has to be a dictionary, not {kind_of(role)}.")
        c.JupyterHub.load_roles.append({"name": key, **role})


def _culler(c: Config, reading: _Reading) -> None:
    """The stock culler, as a service that the hub starts, and its role."""
    base = str(c.JupyterHub.get("base_url", "/")).strip("/")
    options = [f"--url=http://localhost:8081{f'/{base}' if base else ''}/hub/api"]
    scopes = ["list:users", "read:users:activity", "read:servers", "delete:servers"]
    for key, option in CULLER_OPTIONS.items():
        if value := reading.at(f"cull.{key}"):
            options.append(option.format(value))
    if reading.at("cull.users"):
        scopes.append("admin:users")
    if not reading.at("cull.adminUsers"):
        options.append("--cull-admin-users=false")
    c.JupyterHub.services.append({"name": CULLER, "command": ["python3", "-m", "jupyterhub_idle_culler", *options]})
    c.JupyterHub.load_roles.append({"name": CULLER, "scopes": scopes, "services": [CULLER]})


def _metadata_block(c: Config, reading: _Reading) -> None:
    """The privileged init container that keeps servers from the cloud's metadata, after the admin's own."""
    if reading.at("singleuser.cloudMetadata.blockWithIptables") is not True:
        return
    image = reading.mapping("singleuser.networkTools.image")
    address = str(reading.at("singleuser.cloudMetadata.ip"))
    rule = f"--append OUTPUT --protocol tcp --destination {address} --destination-port 80 --jump DROP"
    block = {
        "name": "block-cloud-metadata",
        "image": f"{image.get('name')}:{image.get('tag')}",
        "command": ["iptables", *rule.split()],
        "securityContext": {"privileged": True, "runAsUser": 0, "capabilities": {"add": ["NET_ADMIN"]}},
        "resources": reading.at("singleuser.networkTools.resources"),
    }
    c.KubeSpawner.init_containers = [*reading.items("singleuser.initContainers"), block]


def _pass_through(c: Config, reading: _Reading) -> None:
    """``hub.config``: each section over what was set before, key by key; and the secrets that values give."""
    for name, section in reading.mapping("hub.config").items():
        if not name[:1].isupper():
            raise ValueError(f"hub.config.{name} has to be the name of a class, such as JupyterHub: the hub ends here.")
        if not isinstance(section, Mapping):
            raise ValueError(f"hub.config.{name} has to be a dictionary of settings, not {kind_of(section)}.")
        left = {key: value for key, value in section.items() if key not in MADE_BY_CHART.get(name, ())}
        c[name].update(left)
    if cookies := reading.at("hub.config.JupyterHub.cookie_secret") or reading.at("hub.cookieSecret"):
        c.JupyterHub.cookie_secret = cookies
    if keys := reading.at("hub.config.CryptKeeper.keys"):
        c.CryptKeeper.keys = keys.split(";") if isinstance(keys, str) else reading.items("hub.config.CryptKeeper.keys")
