"""A real node on this machine: kubelet, containerd, a bridge, a device plugin that offers MIG slices and a shared card.

    with RealNode(control_plane, folder) as node:
        …a pod of the image JUPYTERLAB answers on its own address…

One a machine, for the kubelet's folder of device plugins is the same whatever it is told (so tests that share it are
together in ``on_a_node``). Nothing of it stays behind
(``node_traces.py``), also after a start that failed; what a killed run has left is removed before the next starts.
"""

from __future__ import annotations

import hashlib
import json
import shutil
import socket
import subprocess
import tempfile
import uuid
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import TracebackType
from typing import Any

import requests
import yaml

from tests.cluster import image
from tests.cluster.control_plane import ControlPlane
from tests.cluster.daemons import Daemon, DaemonEnded
from tests.cluster.network import CNI_PROGRAMS, Bridge, bridge_name, make_bridge, write_cni
from tests.cluster.node_traces import DEVICE_PLUGINS, Traces, make_cgroup, remove, take_the_machine
from tests.cluster.programs.build import HERE, cache, programs
from tests.patience import patient
from tests.ports import free_ports

LAB = {"nvidia.com/mig-1g.5gb": 5, "nvidia.com/mig-2g.10gb": 1, "nvidia.com/gpu.shared": 2}
LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.count": "2",
    "nvidia.com/gpu.product": "NVIDIA-A100-PCIE-40GB",
    "nvidia.com/gpu.memory": "40960",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig.config.state": "success",
    "nvidia.com/gpu.replicas": "2",
    "nvidia.com/gpu.sharing-strategy": "time-slicing",
    "nvidia.com/mig-1g.5gb.count": "5",
    "nvidia.com/mig-1g.5gb.memory": "4864",
    "nvidia.com/mig-1g.5gb.multiprocessors": "14",
    "nvidia.com/mig-1g.5gb.product": "NVIDIA-A100-PCIE-40GB-MIG-1g.5gb",
    "nvidia.com/mig-2g.10gb.count": "1",
    "nvidia.com/mig-2g.10gb.memory": "9984",
    "nvidia.com/mig-2g.10gb.multiprocessors": "28",
    "nvidia.com/mig-2g.10gb.product": "NVIDIA-A100-PCIE-40GB-MIG-2g.10gb",
}
"""As GPU Feature Discovery and the MIG manager label a node with two A100: one cut in mixed strategy, one shared."""

START_SECONDS = 60.0


class RealNode:
    """See the top of this file. ``address`` is the host as pods see it: let a hub listen there."""

    containerd: Daemon
    kubelet: Daemon
    device_plugin: Daemon
    bridge: Bridge

    def __init__(
        self,
        control_plane: ControlPlane,
        folder: Path,
        *,
        name: str = "lab",
        resources: Mapping[str, int] = LAB,
        labels: Mapping[str, str] = LABELS,
        kubeconfig: Path | None = None,
    ) -> None:
        """``kubeconfig``: with which the kubelet speaks; without, the control plane issues a node's certificate."""
        self.name = name
        self.traces: Traces | None = None
        self._cluster = control_plane
        self._folder = folder
        self._resources = dict(resources)
        self._labels = dict(labels)
        self._kubeconfig = kubeconfig
        self._lock: socket.socket | None = None
        self._state = Path()
        self._images = Path()
        self._ctr_program = Path()
        self._daemons: list[Daemon] = []

    @property
    def running(self) -> bool:
        """Whether it has the machine: started, and not stopped since."""
        return self._lock is not None

    @property
    def address(self) -> str:
        """The bridge's address."""
        return self.bridge.address

    def __enter__(self) -> RealNode:
        self.start()
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        self.stop()

    def start(self, *, wait: float = 0.0) -> None:
        """Start everything and wait until the node is ready with all its devices; logs go into the folder.

        ``wait``: so many seconds for another run that has its node on this machine.

        Raises:
            NodeRunsAlready: a kubelet runs on this machine already.
            DaemonEnded: a daemon did not start, with the end of its log; nothing is left behind.
        """
        try:
            self._start(wait)
        except BaseException:
            self.stop()
            raise

    def stop(self) -> None:
        """End everything, running pods too, and remove every trace of it, the Node object as well.

        It may be started again; its address may be another one then.

        Raises:
            RuntimeError: something could not be removed; the text says what.
        """
        if self._lock is None:
            return  # it never had the machine
        try:
            while self._daemons:
                self._daemons.pop().kill()
            if self.traces is not None:
                remove(self.traces)
            self._forget()
        finally:
            self._lock.close()
            self._lock = None

    def node(self) -> dict[str, Any]:
        """The Node object as the API server has it."""
        found: dict[str, Any] = self._cluster.call("GET", f"/api/v1/nodes/{self.name}")
        return found

    def allocatable(self, resource: str) -> int | None:
        """How many devices the kubelet says can be given out; None when it does not name the resource."""
        count = self.node()["status"].get("allocatable", {}).get(_full(resource))
        return None if count is None else int(count)

    def lose(self, resource: str, count: int = 1, *, devices: Sequence[str] = ()) -> list[str]:
        """Make ``count`` devices (or those named) unhealthy, as a broken card does. Gives their ids."""
        return self._order("lose", resource=_full(resource), count=count, devices=list(devices))

    def give_back(self, resource: str, count: int = 1, *, devices: Sequence[str] = ()) -> list[str]:
        """Make ``count`` lost devices (or those named) healthy again. Gives their ids."""
        return self._order("give_back", resource=_full(resource), count=count, devices=list(devices))

    def refuse_next(self, text: str) -> None:
        """The next allocation, of whatever device, fails with this text; an empty one takes that back."""
        self._order("refuse_next", text=text)

    def stop_kubelet(self) -> None:
        """End the kubelet; containers go on."""
        self.kubelet.stop()

    def start_kubelet(self) -> None:
        """Start the kubelet again, and wait until the node is ready with it."""
        self.kubelet.start()
        self._until_ready()

    def stop_plugin(self) -> None:
        """End the device plugin; containers keep their devices."""
        self.device_plugin.stop()

    def start_plugin(self) -> None:
        """Start the device plugin again; all its devices are healthy then."""
        self.device_plugin.start()
        self.device_plugin.until(self._control.exists, START_SECONDS, "listening")

    def load_image(self, name: str, archive: Path) -> None:
        """Import an OCI archive; ``name`` is the full name that pods use (with ``imagePullPolicy: Never``)."""
        self._ctr("images", "import", "--index-name", name, str(archive))

    @property
    def _control(self) -> Path:
        return self._state / "devices.sock"

    def _start(self, wait: float) -> None:
        built = programs("kubelet", "containerd", "ctr", "containerd-shim-runc-v2", "deviceplugin", "pause")
        self._lock = take_the_machine(wait)
        self._folder.mkdir(parents=True, exist_ok=True)
        kept = cache()
        base, package = image.base_layer(kept), image.package_layer(kept)
        mark = uuid.uuid4().hex[:8]
        self._state = Path(f"/var/tmp/jhgpu-node-{mark}")  # on a disk, and short: it has sockets
        self._images = kept / f"containerd-of-{mark}"
        self.traces = Traces([str(self._state), str(self._images)], bridge_name(), f"jhgpu-node-{mark}")
        self.traces.write()
        self._state.mkdir(mode=0o711)
        make_cgroup(self.traces.cgroup)
        self.bridge = make_bridge(self.traces.bridge)
        write_cni(self._state / "cni", self.bridge, self._state / "cni-leases")
        self._store_with_base(built, base)
        self.containerd = self._containerd(built, self._images)
        self._import_images(built, base, package)
        self.kubelet = self._kubelet(built)
        self.device_plugin = self._plugin(built)
        self._until_ready()
        if dead := [daemon for daemon in self._daemons if not daemon.alive]:
            raise DaemonEnded(f"{dead[0].name} ended: {dead[0].last_words()}")

    def _store_with_base(self, built: Path, base: image.Layer) -> None:
        """A store of images that has the base, as hard links to one that is kept: what is in it is never written to."""
        version = hashlib.sha256((HERE / "containerd" / "go.mod").read_bytes() + base.digest.encode()).hexdigest()[:16]
        kept = cache() / f"containerd-{version}"
        if not kept.exists():
            for old in cache().glob("containerd-*"):
                if old != self._images:
                    shutil.rmtree(old)
            daemon = self._containerd(built, self._images)
            archive = self._state / "base.tar"
            image.write_base(archive, base)
            self._ctr("images", "import", str(archive))
            archive.unlink()
            daemon.stop()
            self._daemons.remove(daemon)
            self._images.rename(kept)
        subprocess.run(["cp", "--archive", "--link", str(kept), str(self._images)], check=True, timeout=patient(120))
        for database in self._images.rglob("*.db"):
            own = database.with_suffix(".own")
            shutil.copyfile(database, own)
            own.replace(database)

    def _import_images(self, built: Path, base: image.Layer, package: image.Layer) -> None:
        with tempfile.TemporaryDirectory(dir=self._state) as folder:
            pause, lab = Path(folder, "pause.tar"), Path(folder, "jupyterlab.tar")
            image.write_pause(pause, built / "pause")
            image.write_jupyterlab(lab, base, package, without_base=True)
            self._ctr("images", "import", str(pause))
            self._ctr("images", "import", str(lab))

    def _containerd(self, built: Path, root: Path) -> Daemon:
        self._ctr_program = built / "ctr"
        config = self._state / "containerd.toml"
        config.write_text(_containerd_config(root, self._state), encoding="utf-8")
        env = {"PATH": f"{built}:/usr/local/sbin:/usr/local/bin:/usr/sbin:/usr/bin:/sbin:/bin", "HOME": "/root"}
        words: list[str | Path] = [built / "containerd", "--config", config]
        daemon = self._run(Daemon("containerd", words, self._folder / "containerd.log", env))
        daemon.until(self._containerd_serves, START_SECONDS, "serving")
        return daemon

    def _containerd_serves(self) -> bool:
        words: list[str | Path] = [self._ctr_program, "--address", self._state / "containerd.sock", "version"]
        return subprocess.run(words, capture_output=True, timeout=patient(30), check=False).returncode == 0

    def _kubelet(self, built: Path) -> Daemon:
        port, health = free_ports(2, self.address)
        config = self._state / "kubelet.yaml"
        config.write_text(yaml.safe_dump(self._kubelet_config(port, health)), encoding="utf-8")
        own = self._kubeconfig or self._cluster.kubeconfig_for_user(f"system:node:{self.name}", ["system:nodes"])
        labels = ",".join(f"{name}={value}" for name, value in self._labels.items())
        words: list[str | Path] = [
            built / "kubelet",
            f"--config={config}",
            f"--kubeconfig={own}",
            f"--root-dir={self._state / 'kubelet'}",
            f"--cert-dir={self._state / 'kubelet-keys'}",
            f"--hostname-override={self.name}",
            f"--node-ip={self.address}",
            f"--node-labels={labels}",
        ]
        return self._run(Daemon("kubelet", words, self._folder / "kubelet.log"))

    def _kubelet_config(self, port: int, health: int) -> dict[str, Any]:
        assert self.traces is not None
        names = self._state / "resolv.conf"
        names.write_text("", encoding="utf-8")  # nobody answers names here; refused at once beats a time-out
        return {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": self.address,
            "port": port,
            "healthzBindAddress": self.address,
            "healthzPort": health,
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": True},
                "x509": {"clientCAFile": str(self._cluster.ca)},
            },
            "authorization": {"mode": "Webhook"},
            "containerRuntimeEndpoint": f"unix://{self._state / 'containerd.sock'}",
            "cgroupDriver": "cgroupfs",
            "cgroupRoot": f"/{self.traces.cgroup}",
            "failCgroupV1": False,
            "failSwapOn": False,
            "makeIPTablesUtilChains": False,
            "resolvConf": str(names),
            "podLogsDir": str(self._state / "pod-logs"),
            "volumePluginDir": str(self._state / "volume-plugins"),
            "nodeStatusUpdateFrequency": "1s",
            "evictionHard": {"memory.available": "50Mi", "nodefs.available": "1%", "imagefs.available": "1%"},
            "imageGCHighThresholdPercent": 100,
            "serializeImagePulls": False,
        }

    def _plugin(self, built: Path) -> Daemon:
        wanted = [f"--resource={name}={count}" for name, count in self._resources.items()]
        words: list[str | Path] = [
            built / "deviceplugin",
            *wanted,
            f"--folder={DEVICE_PLUGINS}",
            f"--control={self._control}",
        ]
        daemon = self._run(Daemon("deviceplugin", words, self._folder / "deviceplugin.log"))
        daemon.until(self._control.exists, START_SECONDS, "listening")
        return daemon

    def _run(self, daemon: Daemon) -> Daemon:
        self._daemons.append(daemon)
        daemon.start()
        return daemon

    def _until_ready(self) -> None:
        self.kubelet.until(self._is_ready, START_SECONDS, "ready with all its devices")

    def _is_ready(self) -> bool:
        try:
            status = self.node()["status"]
        except requests.HTTPError as refused:
            if refused.response is not None and refused.response.status_code == 404:
                return False
            raise
        ready = any(one["type"] == "Ready" and one["status"] == "True" for one in status.get("conditions", []))
        offered = {name: int(status.get("capacity", {}).get(name, 0)) for name in self._resources}
        return ready and (offered == self._resources or not self.device_plugin.alive)

    def _forget(self) -> None:
        """Delete the Node object and the pods that were on it, where there is an API server to ask."""
        try:
            on_it = self._cluster.call("GET", f"/api/v1/pods?fieldSelector=spec.nodeName={self.name}")["items"]
            for pod in on_it:
                about = pod["metadata"]
                where = f"/api/v1/namespaces/{about['namespace']}/pods/{about['name']}"
                self._cluster.call("DELETE", f"{where}?gracePeriodSeconds=0")
            self._cluster.call("DELETE", f"/api/v1/nodes/{self.name}")
        except requests.ConnectionError:
            return  # the control plane is gone, and its objects with it
        except requests.HTTPError as refused:
            if refused.response is None or refused.response.status_code != 404:
                raise

    def _order(self, what: str, **details: Any) -> list[str]:
        with socket.socket(socket.AF_UNIX) as line:
            line.settimeout(patient(10))
            line.connect(str(self._control))
            line.sendall(json.dumps({"do": what, **details}).encode() + b"\n")
            answer = json.loads(line.makefile().readline())
        if "error" in answer:
            raise ValueError(answer["error"])
        return list(answer.get("devices", []))

    def _ctr(self, *words: str) -> str:
        at = str(self._state / "containerd.sock")
        full = [str(self._ctr_program), "--address", at, "--namespace", "k8s.io", *words]
        done = subprocess.run(full, capture_output=True, text=True, timeout=patient(300), check=False)
        if done.returncode:
            raise RuntimeError(f"ctr {' '.join(words)}: {done.stderr.strip()[-600:]}")
        return done.stdout


def _full(resource: str) -> str:
    """``mig-1g.5gb`` is short for ``nvidia.com/mig-1g.5gb``."""
    return resource if "/" in resource else f"nvidia.com/{resource}"


def _containerd_config(root: Path, state: Path) -> str:
    """Version 3. Without CAP_SYS_RESOURCE no sandbox starts unless restrict_oom_score_adj is set."""
    return f"""
version = 3
root = "{root}"
state = "{state / "containerd"}"
disabled_plugins = ["io.containerd.internal.v1.opt", "io.containerd.nri.v1.nri"]

[grpc]
address = "{state / "containerd.sock"}"

[ttrpc]
address = "{state / "containerd.sock.ttrpc"}"

[plugins."io.containerd.cri.v1.images"]
snapshotter = "overlayfs"

[plugins."io.containerd.cri.v1.images".pinned_images]
sandbox = "{image.PAUSE}"

[plugins."io.containerd.cri.v1.runtime"]
restrict_oom_score_adj = true
netns_mounts_under_state_dir = true

[plugins."io.containerd.cri.v1.runtime".cni]
bin_dirs = ["{CNI_PROGRAMS}"]
conf_dir = "{state / "cni"}"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc]
runtime_type = "io.containerd.runc.v2"

[plugins."io.containerd.cri.v1.runtime".containerd.runtimes.runc.options]
BinaryName = "runc"
Root = "{state / "runc"}"
SystemdCgroup = false
"""
