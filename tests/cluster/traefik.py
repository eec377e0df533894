"""Traefik as a cluster has it: it reads Middlewares and IngressRoutes of a real API server, and leads by them.

Its rights are those that its own manuals give it. A Service is the name of this machine here (``ExternalName``), since
no pod runs behind it; the gate's name, which no server of names knows here, is its address in the checks.
"""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import Any

import yaml

from hub_extensions.tools.gate_config.render import ProxySettings, render
from tests.cluster.control_plane import ControlPlane
from tests.cluster.programs.build import TRAEFIK_KINDS, programs
from tests.fakes.apps_host import SECRET, AppsHost
from tests.fakes.real_proxies import RealProxy

ACCOUNT = "traefik-ingress-controller"
STATIC = """
entryPoints:
  apps: {{address: "127.0.0.1:{port}"}}
  own: {{address: "127.0.0.1:{own_port}"}}
  traefik: {{address: "127.0.0.1:{state_port}"}}
api: {{insecure: true}}
providers:
  kubernetesCRD:
    endpoint: {endpoint}
    token: {token}
    certAuthFilePath: {ca}
    namespaces: [{gate}, {apps}]
    allowCrossNamespace: true
    allowExternalNameServices: true
log: {{level: ERROR, filePath: {folder}/error.log}}
accessLog: {{filePath: {folder}/access.log}}
"""


def kinds_folder() -> Path:
    """Where Traefik's own kinds and rights lie, as its release has them."""
    return programs("traefik") / "traefik-files" / TRAEFIK_KINDS


class TraefikOfACluster(RealProxy):
    """The gate is in the namespace `gate`, the apps are in `apps`."""

    def __init__(self, folder: Path, host: AppsHost, cluster: ControlPlane, gate: str, apps: str) -> None:
        super().__init__("traefik", folder, host)
        self._cluster, self._gate, self._apps = cluster, gate, apps
        served = [replace(app, upstream=self._service(app.name, apps, app.upstream)) for app in self.apps]
        asked = self._service("gate", gate, host.gate)
        text = render("traefik-kubernetes", served, ProxySettings(self.url, SECRET, gate=asked, namespace=gate))
        self.text = text.replace(f"http://gate.{gate}.svc.cluster.local:", "http://127.0.0.1:")
        assert self.text != text

    def _service(self, name: str, namespace: str, address: str) -> str:
        """Makes one that leads to this address; its own."""
        port = int(address.rpartition(":")[2])
        spec = {"type": "ExternalName", "externalName": "localhost", "ports": [{"port": port, "targetPort": port}]}
        made = {"apiVersion": "v1", "kind": "Service", "metadata": {"name": name}, "spec": spec}
        self._cluster.apply(yaml.safe_dump(made), namespace)
        return f"http://{name}.{namespace}:{port}"

    def written(self) -> Path:
        """The file it starts from; what it leads by is at the API server then."""
        self.folder.mkdir(parents=True, exist_ok=True)
        self._cluster.apply(self.text, self._gate)
        known = yaml.safe_load(self._cluster.kubeconfig_for(ACCOUNT, self._gate).read_text(encoding="utf-8"))
        places: dict[str, Any] = {"port": self.port, "own_port": self.own_port, "state_port": self._state_port}
        places |= {"gate": self._gate, "apps": self._apps, "folder": self.folder, "ca": self._cluster.ca}
        places |= {"endpoint": self._cluster.url, "token": known["users"][0]["user"]["token"]}
        file = self.folder / "traefik.yaml"
        file.touch(mode=0o600)
        file.write_text(STATIC.format(**places), encoding="utf-8")
        return file

    def _has_read(self) -> bool:
        assert "ERR" not in self.log(), self.log()
        return len([name for name, _ in self._parts() if f"-app-{self.apps[-1].name}-" in name]) > 0

    def refused(self) -> list[tuple[str, dict[str, Any]]]:
        """Routers and middlewares that it read and does not use."""
        return [(name, each) for name, each in self._parts() if each["status"] != "enabled"]
