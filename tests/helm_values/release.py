"""A release on the tests' cluster: what ``helm upgrade`` of given values files would run, run on this machine.

Real: the hub with the configuration of the values (``rendering.py``), a proxy that goes on while the hub restarts, as
in the chart, the GPU service in the hub's pod (the hub starts it) or outside, each with exactly the rights of
``helm-values/manifests``. A test's machine differs from a cluster in what ``Release.machine`` says, and in nothing
else.
"""

from __future__ import annotations

import os
import secrets
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

import yaml

from tests import warm
from tests.cluster.control_plane import ControlPlane
from tests.cluster.place import CHART_ROLE, MANIFESTS, ClusterPlace, in_namespace
from tests.helm_values.rendering import Values, as_file, over_chart
from tests.hubs import ROOT, Hub, free_port, proxy_command, until
from tests.patience import patient

IN_HUB = ("rbac.yaml",)
APART = ("service-deployment/rbac.yaml",)
SCOPES = "admin:users admin:servers list:users tokens servers access:servers access:services read:hub admin:groups"
PRIVILEGED = {"pod-security.kubernetes.io/enforce": "privileged"}
"""A namespace that lets in the chart's privileged init container of every server."""


def listens(port: int) -> bool:
    """Whether a program of this machine has the port."""
    with socket.socket() as asked:
        return asked.connect_ex(("127.0.0.1", port)) == 0


class Release(ClusterPlace):
    """See the top of this file.

    Args:
        pods_port: where servers answer (``Responder.port``).
        apart: the service runs outside the hub (``service-deployment.yaml`` is among the values).
        rights: manifests of ours that are applied, below ``helm-values/manifests``.
        user_scheduler: the chart's scheduler places the servers (a test runs it); else the cluster's own.
    """

    def __init__(
        self,
        control_plane: ControlPlane,
        namespace: str,
        folder: Path,
        *,
        pods_port: int,
        apart: bool = False,
        rights: tuple[str, ...] | None = None,
        user_scheduler: bool = False,
        python: str = sys.executable,
    ) -> None:
        self.control_plane, self.namespace = control_plane, namespace
        self.address, self.port = "127.0.0.1", free_port()
        self.apart = apart
        self._user_scheduler = user_scheduler
        self._pods_port = pods_port
        self._proxy_port = free_port()
        self._cluster_wide: list[str] = []
        self._apply_rights((APART if apart else IN_HUB) if rights is None else rights)
        self.kubeconfig = control_plane.kubeconfig_for("hub", namespace)
        self._service_kubeconfig = (
            control_plane.kubeconfig_for("jupyterhub-gpu", namespace) if apart else self.kubeconfig
        )
        folder.mkdir(parents=True, exist_ok=True)
        env = {"KUBECONFIG": str(self.kubeconfig), "CONFIGPROXY_AUTH_TOKEN": "a-token-of-the-proxy"}
        self.hub = Hub(folder, python=python, env=env)
        self.state = folder / ("service-state" if apart else "gpu-state")
        self._tokens: dict[str, str] = {}
        self._proxy: subprocess.Popen[bytes] | None = None
        self._service: subprocess.Popen[bytes] | None = None

    # ------------------------------------------------------------ helm

    def install(self, *given: Values) -> None:
        """Write the hub's configuration and start it with its proxy, and the service if that is apart."""
        self._write(given)
        self._start_proxy()
        self.hub.start()
        if self._has_service():
            if self.apart:
                self.start_service()
            self.wait_service()

    def upgrade(self, *given: Values) -> None:
        """The hub's pod ends and starts anew with other values; proxy, users' pods and a service apart go on."""
        self.hub.terminate()
        self._write(given)
        self.hub.start()
        if self._has_service():
            if self.apart and (self._service is None or self._service.poll() is not None):
                self.start_service()
            self.wait_service()

    def close(self) -> None:
        """End everything, and take away what is cluster-wide; the rest goes with the namespace."""
        self.hub.close()
        for process in (self._proxy, self._service, self.hub.process):
            if process is not None:
                process.wait(patient(10))
        for path in self._cluster_wide:
            self.control_plane.call("DELETE", path)

    def machine(self) -> dict[str, Any]:
        """The values in which this machine differs from a cluster: the last ``-f``."""
        address = f"http://127.0.0.1:{self.hub.hub_port}"
        return {
            "hub": {
                "config": {
                    # who is who, and where hub, proxy and API server are
                    "Authenticator": {"allow_all": True, "admin_users": ["root-admin"]},
                    "JupyterHub": {
                        "bind_url": f"{self.hub.url}/",
                        "hub_bind_url": address,
                        "hub_connect_url": address,
                    },
                    "ConfigurableHTTPProxy": {"api_url": f"http://127.0.0.1:{self._proxy_port}"},
                    "KubeSpawner": {"port": self._pods_port},
                    "GpuCluster": {"kubeconfig": str(self._service_kubeconfig)},
                    "GpuService": {
                        "port": self.port,
                        **({"url": f"http://127.0.0.1:{self.port}"} if self.apart else {"host": "127.0.0.1"}),
                    },
                },
                "services": {"tests": {"apiToken": self.hub.token}},
                "loadRoles": {"tests": {"services": ["tests"], "scopes": SCOPES.split()}},
            },
            # no volumes, and no second scheduler that nobody runs
            "singleuser": {"storage": {"type": "none"}},
            "scheduling": {"userScheduler": {"enabled": self._user_scheduler}},
        }

    def _write(self, given: tuple[Values, ...]) -> None:
        self.values = over_chart(*given, self.machine())
        if not self._has_service():  # the stock hub knows no sections of ours
            for section in ("GpuCluster", "GpuService"):
                del self.values["hub"]["config"][section]
        # as the chart: a token is kept from release to release, and forgotten where its service is not named
        named = [key for key in self.values["hub"]["services"] if key != "tests"]
        self._tokens = {key: self._tokens.get(key) or secrets.token_hex(32) for key in named}
        text = as_file(self.values, namespace=self.namespace, tokens=self._tokens)
        self.hub.config.write_text(text, encoding="utf-8")

    def _has_service(self) -> bool:
        return any("jupyterhub-gpu" in key for key in self.values["hub"]["extraConfig"])

    # ------------------------------------------------------------ parts

    def _start_proxy(self) -> None:
        node = shutil.which("node")
        command = proxy_command()
        assert node and command
        hub = f"http://127.0.0.1:{self.hub.hub_port}"
        with open(self.hub.folder / "proxy.log", "ab") as log:
            self._proxy = subprocess.Popen(
                [
                    *command,
                    "--ip=127.0.0.1",
                    f"--port={self.hub.port}",
                    "--api-ip=127.0.0.1",
                    f"--api-port={self._proxy_port}",
                    f"--default-target={hub}",
                    f"--error-target={hub}/hub/error",
                ],
                env={
                    "PATH": os.pathsep.join([str(Path(node).parent), os.environ["PATH"]]),
                    "CONFIGPROXY_AUTH_TOKEN": "a-token-of-the-proxy",
                    "HUB_TEST_MARK": self.hub.mark,
                },
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )
        until(lambda: listens(self._proxy_port), what="the proxy listens; a hub asks it at its start, once")

    def start_service(self) -> None:
        """What the Deployment of ``manifests/service-deployment`` runs."""
        command = ["-m", "hub_extensions.hub_service", "--ask-hub", "--state-dir", str(self.state)]
        with open(self.hub.folder / "service.log", "ab") as log:
            self._service = warm.Popen(
                [self.hub.python, *command, "--host", "127.0.0.1"],
                env={
                    "PATH": os.environ["PATH"],
                    "PYTHONPATH": str(ROOT),
                    "HUB_TEST_MARK": self.hub.mark,
                    "JUPYTERHUB_API_URL": f"http://127.0.0.1:{self.hub.hub_port}/hub/api",
                    "JUPYTERHUB_API_TOKEN": self._tokens["gpu"],
                },
                cwd=self.hub.folder,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=subprocess.STDOUT,
                start_new_session=True,
            )

    def wait_service(self, seconds: float = 120.0) -> None:
        """Until it is ready, and hub and service know each other.

        One apart that has ended is started again meanwhile, as a kubelet does.
        """

        def up() -> bool:
            if self._service is not None and self._service.poll() is not None:
                self.start_service()
            try:
                health = self.service("health").json()
                return bool(health.get("ready")) and health.get("hub") == "answers"
            except (OSError, ValueError):  # nobody there, or one that still has the token of an earlier release
                return False

        until(up, seconds, lambda: f"the service is ready; the hub's log ends:\n{self.hub.log()[-3000:]}")

    def end_service(self) -> None:
        """SIGTERM, as when its pod is deleted; inside the hub's pod its supervisor starts it again by itself."""
        if self._service is not None:
            self._service.terminate()
            self._service.wait(patient(40))
        else:
            pid = self.service_pid()
            os.kill(pid, signal.SIGTERM)
            until(lambda: pid not in self.hub.processes(), 40, "the service has ended")

    def leases(self) -> dict[str, str]:
        """user -> id of the lease; on a cluster the scheduler knows the device."""
        return {lease["user"]: lease["lease"] for lease in self.as_admin("api/leases")}

    def secret(self) -> str:
        if not self.apart:
            return super().secret()
        from hub_extensions.hub_service.setup.service_info import hub_secret_of

        return hub_secret_of(self._tokens["gpu"])

    def _apply_rights(self, files: tuple[str, ...]) -> None:
        texts = [CHART_ROLE, *((MANIFESTS / file).read_text(encoding="utf-8") for file in files)]
        for manifest in (each for text in texts for each in yaml.safe_load_all(text)):
            moved = in_namespace(manifest, self.namespace)
            self.control_plane.apply(yaml.safe_dump(moved), self.namespace)
            if moved["kind"].startswith("Cluster"):
                kind = f"{moved['kind'].lower()}s"
                self._cluster_wide.append(f"/apis/{moved['apiVersion']}/{kind}/{moved['metadata']['name']}")
