"""Nodes that nobody runs: kwok plays their kubelets, so that thousands of nodes and pods fit on a small machine.

Right for scheduling, watches, events and numbers; wrong for "the server answers": nothing runs in their pods. The
stages are ours (``played_nodes.yaml``, ``played_pods.yaml``). A pod starts soon after it is bound. A deleted pod ends
as with a kubelet: first the phase Failed with its containers' exit code 143 (SIGTERM), then it is gone, unless a
finalizer holds it.

A pod with the annotation ``tests/holds: starting`` is left as the scheduler left it, for tests that write its status.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from types import TracebackType
from typing import Any, Literal

import requests

from tests.cluster.control_plane import ControlPlane
from tests.cluster.daemons import Daemons
from tests.cluster.programs.build import programs
from tests.patience import patient, until
from tests.ports import free_ports

MARK = "kwok.x-k8s.io/node"
STATE = "tests/ready"
ORDINARY = {"cpu": "64", "memory": "256Gi", "ephemeral-storage": "500Gi", "pods": "110"}
LEASE_SECONDS = 40
MERGE = "application/merge-patch+json"

HERE = Path(__file__).parent
TAINT_OF = {"True": "", "False": "node.kubernetes.io/not-ready", "Unknown": "node.kubernetes.io/unreachable"}
"""What the node lifecycle controller puts on a node that is not ready."""

Ready = Literal["True", "False", "Unknown"]
STATES: dict[Ready, tuple[str, str]] = {
    "True": ("KubeletReady", "kubelet is posting ready status"),
    "False": ("KubeletNotReady", "container runtime is down"),
    "Unknown": ("NodeStatusUnknown", "Kubelet stopped posting node status."),
}


class PlayedNodes:
    """See the top of this file.

    ``start_ms`` and ``stop_ms``: how long a pod takes to start, and to end. ``pods`` is the network their addresses are
    from: loopback, so that a small server of a test can answer there.
    """

    def __init__(
        self,
        cluster: ControlPlane,
        folder: Path,
        *,
        start_ms: int = 200,
        stop_ms: int = 1000,
        pods: str = "127.1.0.0/16",
        lease_seconds: int = LEASE_SECONDS,
    ) -> None:
        self._cluster = cluster
        self._added: list[str] = []
        self._daemons = Daemons()
        stages = folder / "stages.yaml"
        stages.write_text(_stages(start_ms, stop_ms), encoding="utf-8")
        (port,) = free_ports(1)
        self._argv = [
            programs("kwok") / "kwok",
            f"--kubeconfig={cluster.kubeconfig}",
            f"--config={stages}",
            "--manage-all-nodes=false",
            f"--manage-nodes-with-annotation-selector={MARK}=fake",
            f"--node-lease-duration-seconds={lease_seconds}",
            f"--cidr={pods}",
            f"--server-address=127.0.0.1:{port}",
        ]
        self._healthy = f"http://127.0.0.1:{port}/healthz"
        self._log = folder / "kwok.log"

    def __enter__(self) -> PlayedNodes:
        try:
            kwok = self._daemons.start("kwok", self._argv, self._log)
            kwok.until(self._answers, 30, "ready")
        except BaseException:
            self._daemons.stop()
            raise
        return self

    def __exit__(self, kind: type[BaseException] | None, error: BaseException | None, at: TracebackType | None) -> None:
        try:
            self.clear()
        finally:
            self._daemons.stop()

    def add(
        self,
        name: str,
        allocatable: Mapping[str, str | int],
        labels: Mapping[str, str] | None = None,
        taints: Sequence[Mapping[str, str]] = (),
        ready: bool = True,
        *,
        wait: bool = True,
    ) -> None:
        """Add a node; what ``allocatable`` leaves out is as on an ordinary one. Waits until it is ready, or is not."""
        resources = {**ORDINARY, **{resource: str(amount) for resource, amount in allocatable.items()}}
        state = "True" if ready else "False"
        node = {
            "apiVersion": "v1",
            "kind": "Node",
            "metadata": {
                "name": name,
                "annotations": {MARK: "fake", STATE: state},
                "labels": {"kubernetes.io/hostname": name, "kubernetes.io/os": "linux", **(labels or {})},
            },
            "spec": {"taints": [dict(taint) for taint in taints]},
            "status": {"allocatable": resources, "capacity": resources},
        }
        self._cluster.call("POST", "/api/v1/nodes", node)
        self._added.append(name)
        if wait:
            self.until_ready(name, state)

    def remove(self, name: str) -> None:
        """Take the node out of the cluster; the cluster then deletes its pods."""
        self._cluster.call("DELETE", f"/api/v1/nodes/{name}")
        self._added.remove(name)

    def clear(self) -> None:
        """Take all of them out."""
        while self._added:
            try:
                self.remove(self._added[-1])
            except requests.HTTPError as refused:
                if refused.response is None or refused.response.status_code != 404:
                    raise
                self._added.pop()  # somebody else has deleted it

    @contextmanager
    def node(self, name: str, allocatable: Mapping[str, str | int], **more: Any) -> Iterator[str]:
        """A node for as long as the block runs."""
        self.add(name, allocatable, **more)
        try:
            yield name
        finally:
            self.remove(name)

    def set_ready(self, name: str, state: Ready) -> None:
        """Let its kubelet say that it is ready or not, or let nobody have heard of it (Unknown: the node is lost)."""
        self.patch(name, {"metadata": {"annotations": {STATE: state}}})
        self.until_ready(name, state)

    def cordon(self, name: str, cordoned: bool = True) -> None:
        """Let nothing new be placed there."""
        self.patch(name, {"spec": {"unschedulable": cordoned}})

    def set_allocatable(self, name: str, allocatable: Mapping[str, str | int | None]) -> None:
        """Change what the node has to give, as a device plugin does; None takes a resource away."""
        now = {resource: None if amount is None else str(amount) for resource, amount in allocatable.items()}
        self.patch(name, {"status": {"allocatable": now, "capacity": now}}, "/status")

    def patch(self, name: str, change: dict[str, Any], below: str = "") -> None:
        """A merge patch of the node, or of its status (``below="/status"``)."""
        self._cluster.call("PATCH", f"/api/v1/nodes/{name}{below}", change, MERGE)

    def until_ready(self, name: str, state: Ready = "True", seconds: float = 20.0) -> None:
        """Wait until the node's condition Ready has this state and the cluster has drawn its taints from that."""
        wanted = (state, {TAINT_OF[state]} - {""})
        until(lambda: self._ready(name) == wanted, seconds, lambda: f"{name}: {wanted}, not {self._ready(name)}")

    def _ready(self, name: str) -> tuple[str, set[str]]:
        node = self._cluster.call("GET", f"/api/v1/nodes/{name}")
        said = [one["status"] for one in node["status"].get("conditions", []) if one["type"] == "Ready"]
        taints = {taint["key"] for taint in node["spec"].get("taints", [])}
        return (said or ["not said"])[0], taints & set(TAINT_OF.values())

    def _answers(self) -> bool:
        try:
            return requests.get(self._healthy, timeout=patient(5), proxies={"http": ""}).ok
        except requests.RequestException:
            return False


def _stages(start_ms: int, stop_ms: int) -> str:
    """The stages for kwok: the one of nodes for each state, and those of pods."""
    node = (HERE / "played_nodes.yaml").read_text(encoding="utf-8")
    pods = (HERE / "played_pods.yaml").read_text(encoding="utf-8")
    parts = [pods.replace("@START@", str(start_ms)).replace("@STOP@", str(stop_ms))]
    for state, (reason, message) in STATES.items():
        one = node.replace("@NAME@", f"node-{state.lower()}").replace("@STATE@", state)
        parts.append(one.replace("@REASON@", reason).replace("@MESSAGE@", message))
    return "---\n".join(parts)
