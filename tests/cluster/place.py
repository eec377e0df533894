"""A real hub whose servers are pods: with ``GpuKubeSpawner``, the real service, and the rights of our manifests.

The hub runs on this machine, its ServiceAccount is a real one: what neither the chart's own Role nor our manifests give
is refused. On the real node servers are JupyterLabs in containers; on played nodes a pod runs nothing, so a test ends
there at "the pod is placed".
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.image import JUPYTERLAB
from tests.hubs import ROOT, Hub, until
from tests.loop.place import Place
from tests.patience import patient
from tests.ports import free_ports

MANIFESTS = ROOT / "helm-values" / "manifests"
CHART_ROLE = """
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: hub}
rules:
  - apiGroups: [""]
    resources: [pods, persistentvolumeclaims, secrets, services]
    verbs: [get, watch, list, create, delete]
  - apiGroups: [""]
    resources: [events]
    verbs: [get, watch, list]
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: hub}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: hub}
subjects: [{kind: ServiceAccount, name: hub}]
---
apiVersion: v1
kind: ServiceAccount
metadata: {name: hub}
"""
"""What zero-to-jupyterhub 4.4.0 gives its hub (templates/hub/rbac.yaml)."""


def give_rights(control_plane: ControlPlane, namespace: str, *, ours: bool = True) -> Path:
    """The hub's ServiceAccount with the chart's rights and, unless told otherwise, those of our manifests.

    Returns the kubeconfig that speaks as it.
    """
    wanted = list(yaml.safe_load_all(CHART_ROLE))
    if ours:
        for file in ("rbac.yaml", "dra.yaml", "drain-nodes.yaml"):
            wanted += yaml.safe_load_all((MANIFESTS / file).read_text(encoding="utf-8"))
    for manifest in wanted:
        manifest = in_namespace(manifest, namespace)
        control_plane.apply(yaml.safe_dump(manifest), namespace)
    return control_plane.kubeconfig_for("hub", namespace)


def in_namespace(manifest: dict[str, Any], namespace: str) -> dict[str, Any]:
    """A copy for a test's namespace: cluster-wide names get it, so that tests do not meet."""
    cluster_wide = manifest["kind"].startswith("Cluster")
    if cluster_wide:
        manifest["metadata"]["name"] += f"-{namespace}"
        if "roleRef" in manifest:
            manifest["roleRef"]["name"] += f"-{namespace}"
    else:
        manifest["metadata"]["namespace"] = namespace
    for subject in manifest.get("subjects", ()):
        subject["namespace"] = namespace
    return manifest


def take_rights(control_plane: ControlPlane, namespace: str) -> None:
    """Away with what is cluster-wide; the rest goes with the namespace."""
    for kind in ("clusterrolebindings", "clusterroles"):
        for name in ("jupyterhub-gpu-reader", "jupyterhub-gpu-dra", "jupyterhub-gpu-drain"):
            control_plane.call("DELETE", f"/apis/rbac.authorization.k8s.io/v1/{kind}/{name}-{namespace}")


class ClusterPlace(Place):
    """A hub on the cluster.

    Args:
        address: where hub and service listen: one that pods reach.
        lab: servers are JupyterLabs; else whatever `config` says.
        ours: our manifests were applied.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        namespace: str,
        folder: Path,
        *,
        address: str = "127.0.0.1",
        config: str = "",
        ours: bool = True,
        python: str | None = None,
    ) -> None:
        folder.mkdir(parents=True, exist_ok=True)
        self.control_plane = control_plane
        self.namespace = namespace
        self.state = folder / "state"
        self.address = address
        self.port = free_ports(1, address)[0]
        self.kubeconfig = give_rights(control_plane, namespace, ours=ours)
        self._ours = ours
        hub_port = free_ports(1, address)[0]
        text = f"""
from hub_extensions import configure
c.JupyterHub.spawner_class = "hub_extensions.spawner.kube.GpuKubeSpawner"
c.JupyterHub.hub_bind_url = "http://{address}:{hub_port}"
c.KubeSpawner.namespace = {namespace!r}
c.KubeSpawner.image = {JUPYTERLAB!r}
c.KubeSpawner.image_pull_policy = "Never"
c.KubeSpawner.cmd = ["jupyterhub-singleuser"]
c.KubeSpawner.uid = 1000
c.KubeSpawner.allow_privilege_escalation = False
c.KubeSpawner.container_security_context = {{
    "runAsNonRoot": True,
    "capabilities": {{"drop": ["ALL"]}},
    "seccompProfile": {{"type": "RuntimeDefault"}},
}}
c.KubeSpawner.delete_grace_period = 1
c.Spawner.cmd = ["jupyterhub-singleuser"]
c.Spawner.default_url = "/lab"
c.Spawner.http_timeout = {patient(60):.0f}
c.Spawner.start_timeout = {patient(120):.0f}
c.GpuService.state_dir = {str(self.state)!r}
c.GpuService.host = {address!r}
c.GpuService.port = {self.port}
c.GpuCluster.kubeconfig = {str(self.kubeconfig)!r}
{config}
configure(c)
"""
        env = {"KUBECONFIG": str(self.kubeconfig)}
        self.hub = Hub(folder, text, env=env, **({"python": python} if python else {}))
        self.hub.hub_port = hub_port

    @contextmanager
    def open(self) -> Iterator[ClusterPlace]:
        try:
            with self.hub:
                self.wait_service()
                yield self
        finally:
            if self._ours:
                take_rights(self.control_plane, self.namespace)

    @property
    def host(self) -> str:
        """Where the service listens."""
        return self.address

    # ------------------------------------------------------------ the cluster

    def pods(self) -> dict[str, dict[str, Any]]:
        """user -> pod, of all servers that have one."""
        listed = self.control_plane.call("GET", f"/api/v1/namespaces/{self.namespace}/pods")["items"]
        return {
            pod["metadata"]["annotations"]["hub.jupyter.org/username"]: pod
            for pod in listed
            if "hub.jupyter.org/username" in (pod["metadata"].get("annotations") or {})
        }

    def limits(self, user: str) -> Mapping[str, str]:
        """GPU resources that a server's container may have."""
        container = next(c for c in self.pods()[user]["spec"]["containers"] if c["name"] == "notebook")
        limits = (container.get("resources") or {}).get("limits") or {}
        return {key: value for key, value in limits.items() if key.startswith("nvidia.com/")}

    def offers(self, user: str = "ada") -> dict[str, dict[str, Any]]:
        """What this user's form says of each offer."""
        answer = self.service(f"hub/form?user={user}")
        answer.raise_for_status()
        return {offer["id"]: offer for offer in answer.json()["offers"]}

    def until_offered(self, offer: str, free: int | None, seconds: float = 20.0) -> None:
        """Wait until the form says so many are free."""

        def look() -> bool:
            found = self.offers().get(offer)
            return found is not None and found["free"] == free

        until(look, seconds, lambda: f"{offer} has {free} free: {self.offers().get(offer)}")
