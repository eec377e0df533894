"""A real Kueue beside the tests' control plane: one process, its own manifests and rights, webhooks by URL.

    with Kueue(control_plane, folder) as kueue:
        kueue.cluster_queue("lab", {"nvidia.com/mig-1g.5gb": 1})

As its ``config/default`` installs it, without its Deployment and Service: it runs on this machine under a token of its
own ServiceAccount. It sees pods of namespaces with the label ``tests/kueue: "yes"`` only, so that no other test meets
it, also while it is down. Its program wants certificates at fixed places (``/visibility``,
``/etc/kueue/metrics/certs``): it runs with a folder of ours as its root.
"""

from __future__ import annotations

import base64
import os
import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any

import requests
import yaml

from tests.cluster.certificates import Authority
from tests.cluster.control_plane import ControlPlane
from tests.cluster.daemons import Daemons
from tests.cluster.namespaces import RESTRICTED, fresh_namespace
from tests.cluster.programs.build import programs
from tests.hubs import until
from tests.patience import patient
from tests.ports import free_ports

NAMESPACE = "kueue-system"
ACCOUNT = "kueue-controller-manager"
SEES = {"tests/kueue": "yes"}
START_SECONDS = 60.0
HOOKS = "/apis/admissionregistration.k8s.io/v1"
API = "/apis/kueue.x-k8s.io/v1beta2"
KINDS = ("pod", "job", "workload", "clusterqueue", "cohort", "resourceflavor")
"""What its webhooks are asked about; those of other projects' kinds would fail without their definitions."""
RIGHTS = (
    "service_account",
    "role",
    "role_binding",
    "manager_secrets_role",
    "manager_secrets_role_binding",
    "metrics_auth_role",
    "metrics_auth_role_binding",
)

Manifest = dict[str, Any]


class Kueue:
    """See the top of this file. ``process`` is its daemon."""

    def __init__(self, cluster: ControlPlane, folder: Path) -> None:
        self._cluster = cluster
        self._folder = folder
        self._root = folder / "root"
        self._daemons = Daemons()
        self._manifests = programs("kueue") / "kueue-files" / "config" / "components"
        self._hooks: list[str] = []
        self._webhook, self._visibility, self._health = free_ports(3)

    def __enter__(self) -> Kueue:
        try:
            self._install()
        except BaseException:
            self._end()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self._end()

    def kill(self) -> None:
        """Let it crash."""
        self.process.kill()

    def start(self) -> None:
        """Start it again; returns as soon as it is ready and its webhooks answer."""
        self.process.start()
        self.process.until(self._ready, START_SECONDS, "ready")
        self._until_asked()

    # ------------------------------------------------------------ queues

    @contextmanager
    def namespace(self, name: str) -> Iterator[str]:
        """A namespace whose pods it sees, Pod Security ``restricted`` enforced."""
        with fresh_namespace(self._cluster, name, {**RESTRICTED, **SEES}) as made:
            yield made

    @contextmanager
    def queue(
        self, name: str, namespace: str, quota: Mapping[str, int], *, cohort: str = "", local: str = "gpu"
    ) -> Iterator[str]:
        """A ClusterQueue with this quota, and a LocalQueue of it. In a cohort it takes back what others borrowed."""
        self._cluster.apply(yaml.safe_dump_all(_queue(name, namespace, quota, cohort, local)))
        try:
            until(lambda: self._active(name), 20, lambda: f"{name} is not active: {self._get_queue(name)}")
            yield local
        finally:
            self._cluster.call("DELETE", f"{API}/namespaces/{namespace}/localqueues/{local}")
            self._cluster.call("DELETE", f"{API}/clusterqueues/{name}")

    def workloads(self, namespace: str) -> dict[str, Manifest]:
        """Pod's name -> its Workload."""
        listed = self._cluster.call("GET", f"{API}/namespaces/{namespace}/workloads")["items"]
        return {one["metadata"]["ownerReferences"][0]["name"]: one for one in listed}

    def _get_queue(self, name: str) -> Manifest:
        found: Manifest = self._cluster.call("GET", f"{API}/clusterqueues/{name}")
        return found

    def _active(self, name: str) -> bool:
        said = (self._get_queue(name).get("status") or {}).get("conditions") or ()
        return any(one["type"] == "Active" and one["status"] == "True" for one in said)

    # ------------------------------------------------------------ start and end

    def _install(self) -> None:
        keys = Authority(self._folder / "keys", "the tests' Kueue")
        certificate, key = keys.issue("kueue", "kueue", addresses=["127.0.0.1", "localhost"])
        for place in ("visibility", "webhook", "etc/kueue/metrics/certs"):
            (self._root / place).mkdir(parents=True)
            shutil.copyfile(certificate, self._root / place / "tls.crt")
            shutil.copyfile(key, self._root / place / "tls.key")
        here = base64.b64encode(keys.certificate.read_bytes()).decode()
        definitions = list(self._definitions(here))
        namespace = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": NAMESPACE}}
        self._apply(namespace, *self._rights(), *definitions)
        names = [definition["metadata"]["name"] for definition in definitions]
        until(lambda: all(map(self._served, names)), 20, "the API server serves Kueue's kinds")
        self._program()
        command = ["chroot", self._root, "/kueue", "--config=/config.yaml", "--kubeconfig=/kubeconfig"]
        self.process = self._daemons.start("kueue", command, self._folder / "kueue.log", {"PATH": os.environ["PATH"]})
        self.process.until(self._ready, START_SECONDS, "ready")
        for webhooks in self._webhooks(here):
            self._apply(webhooks)
            self._hooks.append(f"{HOOKS}/{webhooks['kind'].lower()}s/{webhooks['metadata']['name']}")
        self._until_asked()
        self._apply(_flavor("plain"))

    def _program(self) -> None:
        """Its program, configuration and kubeconfig, where it finds them with our folder as its root."""
        _copy(programs("kueue") / "kueue", self._root / "kueue")
        (self._root / "tmp").mkdir()
        self._root.joinpath("config.yaml").write_text(yaml.safe_dump(self._configuration()), encoding="utf-8")
        kubeconfig = yaml.safe_load(self._cluster.kubeconfig_for(ACCOUNT, NAMESPACE).read_text(encoding="utf-8"))
        cluster = kubeconfig["clusters"][0]["cluster"]
        authority = Path(cluster.pop("certificate-authority")).read_bytes()
        cluster["certificate-authority-data"] = base64.b64encode(authority).decode()
        private = self._root / "kubeconfig"
        private.touch(mode=0o600)
        private.write_text(yaml.safe_dump(kubeconfig), encoding="utf-8")

    def _until_asked(self) -> None:
        self.process.until(self._answers, START_SECONDS, "asked by the API server")

    def _served(self, definition: str) -> bool:
        found = self._cluster.call("GET", f"/apis/apiextensions.k8s.io/v1/customresourcedefinitions/{definition}")
        said = (found.get("status") or {}).get("conditions") or ()
        return any(one["type"] == "Established" and one["status"] == "True" for one in said)

    def _ready(self) -> bool:
        try:
            return requests.get(f"http://127.0.0.1:{self._health}/readyz", timeout=patient(5), proxies={"http": ""}).ok
        except requests.RequestException:
            return False

    def _answers(self) -> bool:
        """Its own webhook lets a dry run through."""
        try:
            self._cluster.call("POST", f"{API}/resourceflavors?dryRun=All", _flavor("any"))
        except requests.HTTPError as refused:
            if "failed calling webhook" in str(refused):
                return False
            raise
        return True

    def _end(self) -> None:
        """Away with it, and with what would make others wait for it."""
        for path in self._hooks:
            self._cluster.call("DELETE", path)
        self._hooks.clear()
        self._daemons.stop()

    def _configuration(self) -> Manifest:
        return {
            "apiVersion": "config.kueue.x-k8s.io/v1beta2",
            "kind": "Configuration",
            "namespace": NAMESPACE,
            "health": {"healthProbeBindAddress": f"127.0.0.1:{self._health}"},
            "metrics": {"bindAddress": "0"},
            "webhook": {"host": "127.0.0.1", "port": self._webhook, "certDir": "/webhook"},
            "visibilityServer": {"bindAddress": "127.0.0.1", "bindPort": self._visibility},
            "leaderElection": {"leaderElect": False},
            "internalCertManagement": {"enable": False},
            "integrations": {"frameworks": ["pod"]},
            "managedJobsNamespaceSelector": {"matchLabels": SEES},
            "resources": {"excludeResourcePrefixes": ["cpu", "memory", "ephemeral-storage"]},
        }

    # ------------------------------------------------------------ its manifests

    def _apply(self, *manifests: Manifest) -> None:
        self._cluster.apply(yaml.safe_dump_all(manifests), NAMESPACE)

    def _rights(self) -> Iterator[Manifest]:
        files = [self._manifests / "rbac" / f"{name}.yaml" for name in RIGHTS]
        for file in (*files, self._manifests / "visibility" / "role_binding.yaml"):
            for manifest in _read(file):
                yield _named(manifest)

    def _definitions(self, authority: str) -> Iterator[Manifest]:
        """Its kinds; five of them exist in two versions, and Kueue itself changes one into the other."""
        patches = self._manifests / "crd" / "patches"
        converted = {_read(file)[0]["metadata"]["name"]: _read(file)[0] for file in patches.glob("webhook_in_*.yaml")}
        for file in sorted((self._manifests / "crd" / "bases").glob("*.yaml")):
            (definition,) = _read(file)
            patch = converted.get(definition["metadata"]["name"])
            if patch is not None and len(definition["spec"]["versions"]) > 1:
                definition["spec"]["conversion"] = patch["spec"]["conversion"]
                self._by_url(definition["spec"]["conversion"]["webhook"], authority)
            yield definition

    def _webhooks(self, authority: str) -> Iterator[Manifest]:
        for manifest in _read(self._manifests / "webhook" / "manifests.yaml"):
            about = manifest["metadata"]
            about["name"] = f"kueue-{about['name']}"
            manifest["webhooks"] = [one for one in manifest["webhooks"] if one["name"][1:-6] in KINDS]
            for hook in manifest["webhooks"]:
                self._by_url(hook, authority)
                if hook["name"][1:-6] in ("pod", "job"):
                    hook["namespaceSelector"] = {"matchLabels": SEES}
            yield manifest

    def _by_url(self, hook: Manifest, authority: str) -> None:
        path = hook["clientConfig"].pop("service")["path"]
        hook["clientConfig"] |= {"url": f"https://127.0.0.1:{self._webhook}{path}", "caBundle": authority}


def _read(file: Path) -> list[Manifest]:
    return [one for one in yaml.safe_load_all(file.read_text(encoding="utf-8")) if one]


def _named(manifest: Manifest) -> Manifest:
    """With the prefix and the namespace that its ``config/default`` gives."""
    about = manifest["metadata"]
    about["name"] = f"kueue-{about['name']}"
    if about.get("namespace") == "system":
        about["namespace"] = NAMESPACE
    role = manifest.get("roleRef")
    if role is not None and not role["name"].startswith("extension-"):
        role["name"] = f"kueue-{role['name']}"
    for subject in manifest.get("subjects", ()):
        subject |= {"name": ACCOUNT, "namespace": NAMESPACE}
    for rule in manifest.get("rules", ()):
        if any(name.endswith("webhook-configuration") for name in rule.get("resourceNames", ())):
            rule["resourceNames"] = [f"kueue-{name}" for name in rule["resourceNames"]]
    return manifest


def _flavor(name: str) -> Manifest:
    return {"apiVersion": "kueue.x-k8s.io/v1beta2", "kind": "ResourceFlavor", "metadata": {"name": name}}


def _queue(name: str, namespace: str, quota: Mapping[str, int], cohort: str, local: str) -> list[Manifest]:
    resources = [{"name": resource, "nominalQuota": str(amount)} for resource, amount in quota.items()]
    spec: Manifest = {
        "namespaceSelector": {"matchLabels": {"kubernetes.io/metadata.name": namespace}},
        "resourceGroups": [{"coveredResources": [*quota], "flavors": [{"name": "plain", "resources": resources}]}],
    }
    if cohort:
        spec |= {"cohortName": cohort, "preemption": {"reclaimWithinCohort": "Any"}}
    version = "kueue.x-k8s.io/v1beta2"
    return [
        {"apiVersion": version, "kind": "ClusterQueue", "metadata": {"name": name}, "spec": spec},
        {
            "apiVersion": version,
            "kind": "LocalQueue",
            "metadata": {"name": local, "namespace": namespace},
            "spec": {"clusterQueue": name},
        },
    ]


def _copy(program: Path, to: Path) -> None:
    """A second name where that can be, for it is large."""
    try:
        os.link(program.resolve(), to)
    except OSError:
        shutil.copyfile(program, to)
        to.chmod(0o755)
