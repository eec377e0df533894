"""One GPU device in the whole cluster, somebody outside the hub who can hold it, and servers that answer though played.

For tests of waiting: whoever holds the device decides when the first in line goes on.
"""

from __future__ import annotations

import socket
import threading
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import fresh_namespace
from tests.cluster.played_nodes import PlayedNodes
from tests.hubs import until
from tests.patience import patient

OFFER = "mig-4g.20gb"
"""Of a kind that no other node of the tests has."""
RESOURCE = f"nvidia.com/{OFFER}"
LABELS = {
    "nvidia.com/gpu.present": "true",
    "nvidia.com/gpu.product": "NVIDIA-A100-PCIE-40GB",
    "nvidia.com/gpu.memory": "40960",
    "nvidia.com/gpu.count": "1",
    "nvidia.com/mig.capable": "true",
    "nvidia.com/mig.strategy": "mixed",
    "nvidia.com/mig.config.state": "success",
}
"""As GPU Feature Discovery writes them."""


class OneDevice:
    """See the top of this file. Made with ``with one_device(…) as device:``; the device is held from the start."""

    def __init__(self, control_plane: ControlPlane, namespace: str) -> None:
        self._cluster = control_plane
        self._pods = f"/api/v1/namespaces/{namespace}/pods"

    def hold(self) -> None:
        """Somebody outside the hub takes the device: its pod is bound when this returns."""
        self._cluster.call("POST", self._pods, _pod("outside"))
        until(self._bound, 30, "the pod outside the hub has got the device")

    def let_go(self) -> None:
        self._cluster.call("DELETE", f"{self._pods}/outside?gracePeriodSeconds=0")
        until(lambda: not self._there(), 30, "the pod outside the hub is gone")

    def _there(self) -> bool:
        return bool(self._cluster.call("GET", self._pods)["items"])

    def _bound(self) -> bool:
        return bool(self._cluster.call("GET", f"{self._pods}/outside")["spec"].get("nodeName"))


@contextmanager
def one_device(control_plane: ControlPlane, played_nodes: PlayedNodes) -> Iterator[OneDevice]:
    """A played node with one slice, which is held."""
    mark = uuid.uuid4().hex[:6]
    with (
        played_nodes.node(f"one-device-{mark}", {RESOURCE: 1}, labels=LABELS),
        fresh_namespace(control_plane, f"outside-{mark}") as namespace,
    ):
        device = OneDevice(control_plane, namespace)
        device.hold()
        yield device


@contextmanager
def answering() -> Iterator[int]:
    """A port at which every loopback address answers, as the servers in played pods would; nobody else reaches it."""
    server = _OnLoopback(("0.0.0.0", 0), _Answer)
    thread = threading.Thread(target=server.serve_forever, daemon=True)
    thread.start()
    try:
        yield int(server.server_address[1])
    finally:
        server.shutdown()
        server.server_close()
        thread.join(patient(5))


class _OnLoopback(ThreadingHTTPServer):
    def server_bind(self) -> None:
        self.socket.setsockopt(socket.SOL_SOCKET, socket.SO_BINDTODEVICE, b"lo")
        super().server_bind()


class _Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        self.send_response(200)
        self.send_header("Content-Length", "0")
        self.end_headers()

    def log_message(self, *_: Any) -> None:
        """Nobody reads it."""


def write_event(control_plane: ControlPlane, namespace: str, pod: str, text: str, uid: str = "") -> None:
    """An event of a pod of this name, of an earlier one unless `uid` says of which; its times are the scheduler's."""
    about = {"apiVersion": "v1", "kind": "Pod", "name": pod, "namespace": namespace, "uid": uid or str(uuid.uuid4())}
    event = {
        "apiVersion": "v1",
        "kind": "Event",
        "metadata": {"name": f"{pod}.{uuid.uuid4().hex[:12]}"},
        "involvedObject": about,
        "type": "Warning",
        "reason": "FailedScheduling",
        "message": text,
        "eventTime": "2026-01-01T08:00:00.000000Z",
        "action": "Scheduling",
        "reportingComponent": "default-scheduler",
        "reportingInstance": "default-scheduler-1",
    }
    control_plane.call("POST", f"/api/v1/namespaces/{namespace}/events", event)


def write_status(control_plane: ControlPlane, namespace: str, pod: str, status: dict[str, Any]) -> None:
    """Say of a pod what its kubelet would."""
    path = f"/api/v1/namespaces/{namespace}/pods/{pod}/status"
    control_plane.call("PATCH", path, {"status": status}, "application/merge-patch+json")


def _pod(name: str) -> dict[str, Any]:
    """One slice, within Pod Security ``restricted``."""
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    resources = {"limits": {RESOURCE: "1"}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {
            "containers": [{"name": "one", "image": "played", "resources": resources, "securityContext": strict}],
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        },
    }
