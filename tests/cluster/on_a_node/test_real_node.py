"""The real node: its devices, a JupyterLab that answers from a pod, what a kubelet refuses, and that nothing stays."""

from __future__ import annotations

import json
import multiprocessing
import os
import signal
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import requests
from kubernetes import client
from kubernetes.stream import stream

from tests.cluster.control_plane import ControlPlane
from tests.cluster.daemons import DaemonEnded
from tests.cluster.image import JUPYTERLAB
from tests.cluster.network import links
from tests.cluster.node_traces import CONTAINER_LOGS, NOTES, SHIMS, NodeRunsAlready, Traces, mounts, what_is_left
from tests.cluster.real_node import RealNode
from tests.hubs import until
from tests.patience import patient

pytestmark = [pytest.mark.needs("real-node"), pytest.mark.timeout(patient(300))]

SMALL, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
LAB = "exec jupyter lab --ip=0.0.0.0 --port=8888 --no-browser --IdentityProvider.token=secret"


@pytest.fixture(autouse=True)
def _node_runs(request: pytest.FixtureRequest, real_node: RealNode) -> None:
    """Each test finds the node running, but for those that ask for the machine without it."""
    if "without_node" not in request.fixturenames and not real_node.running:
        real_node.start()


@pytest.fixture
def without_node(real_node: RealNode) -> None:
    """The machine without a node; the next test that needs one starts it."""
    real_node.stop()


@pytest.fixture(scope="module", autouse=True)
def _left_running(real_node: RealNode) -> Iterator[None]:
    """Other modules find the node as they expect it."""
    yield
    if not real_node.running:
        real_node.start()


def test_a_node_is_ready_with_five_small_slices_and_a_large_one(real_node: RealNode) -> None:
    node = real_node.node()

    offered = {name: node["status"]["allocatable"][name] for name in (SMALL, LARGE)}
    assert offered == {SMALL: "5", LARGE: "1"}
    addresses = {one["type"]: one["address"] for one in node["status"]["addresses"]}
    assert addresses["InternalIP"] == real_node.address
    assert node["metadata"]["labels"]["nvidia.com/mig.config.state"] == "success"


def test_jupyterlab_answers_from_a_restricted_pod_that_sees_one_device(
    control_plane: ControlPlane, real_node: RealNode, namespace: str
) -> None:
    _create(control_plane, namespace, _pod("lab", LAB, SMALL))
    address = until(lambda: _status(control_plane, namespace, "lab").get("podIP"), 30, "the pod got no address")

    until(lambda: _get(f"http://{address}:8888/api"), 90, lambda: f"{_status(control_plane, namespace, 'lab')}")

    page = requests.get(f"http://{address}:8888/lab?token=secret", timeout=patient(30))
    assert page.status_code == 200
    assert "jupyterhub-gpu" in page.text, "the panel is not in the image"
    seen = _run_in(control_plane, namespace, "lab", "tr '\\0' '\\n' < /proc/1/environ; id -u")
    devices = [line.partition("=")[2] for line in seen.splitlines() if line.startswith("NVIDIA_VISIBLE_DEVICES=")]
    assert len(devices) == 1 and devices[0].startswith("MIG-") and "," not in devices[0]
    assert seen.split()[-1] == "1000"


def test_a_pod_reaches_a_server_of_the_host_at_the_bridge(
    control_plane: ControlPlane, real_node: RealNode, namespace: str
) -> None:
    ask = (
        f"import socket; socket.create_connection(('{real_node.address}', {_kubelet_port(real_node)}), 5); print('met')"
    )
    _create(control_plane, namespace, _pod("caller", f'exec python3 -c "{ask}"', None))

    until(lambda: _phase(control_plane, namespace, "caller") == "Succeeded", 30, "the pod did not reach the host")
    assert _log(control_plane, namespace, "caller").strip() == "met"


def test_five_pods_have_five_devices_and_the_sixth_waits(
    control_plane: ControlPlane, real_node: RealNode, namespace: str
) -> None:
    names = [f"pod-{number}" for number in range(5)]
    for name in names:
        _create(control_plane, namespace, _pod(name, 'echo "$NVIDIA_VISIBLE_DEVICES"; exec sleep 3600', SMALL))
    until(lambda: all(_phase(control_plane, namespace, name) == "Running" for name in names), 60, "not all run")

    _create(control_plane, namespace, _pod("sixth", "exec sleep 3600", SMALL))

    until(lambda: "Insufficient" in _scheduled(control_plane, namespace, "sixth"), 20, "nobody says that it waits")
    told = until(
        lambda: len(said := {_log(control_plane, namespace, n).strip() for n in names} - {""}) >= 5 and said, 20
    )
    assert len(told) == 5


def test_a_refused_allocation_fails_the_pod_with_the_kubelets_words(
    control_plane: ControlPlane, real_node: RealNode, namespace: str
) -> None:
    real_node.refuse_next("the slice is busy")
    _create(control_plane, namespace, _pod("refused", "exec sleep 3600", SMALL))

    until(lambda: _phase(control_plane, namespace, "refused") == "Failed", 30, "the pod did not fail")
    status = _status(control_plane, namespace, "refused")
    assert status["reason"] == "UnexpectedAdmissionError"
    assert "the slice is busy" in status["message"]
    _create(control_plane, namespace, _pod("next", "exec sleep 3600", SMALL))
    until(lambda: _phase(control_plane, namespace, "next") == "Running", 30, "the refusal was not for one pod only")


def test_a_lost_device_is_no_longer_allocatable_until_it_is_given_back(real_node: RealNode) -> None:
    lost = real_node.lose("mig-1g.5gb")
    try:
        until(lambda: real_node.allocatable("mig-1g.5gb") == 4, 30, "the kubelet does not take note")
        assert real_node.node()["status"]["capacity"][SMALL] == "5"
    finally:
        real_node.give_back("mig-1g.5gb", devices=lost)
    until(lambda: real_node.allocatable("mig-1g.5gb") == 5, 30, "the device does not come back")


def test_the_devices_of_a_pod_can_be_lost_by_their_ids(
    control_plane: ControlPlane, real_node: RealNode, namespace: str
) -> None:
    _create(control_plane, namespace, _pod("holder", 'echo "$NVIDIA_VISIBLE_DEVICES"; exec sleep 3600', LARGE))
    until(lambda: _phase(control_plane, namespace, "holder") == "Running", 30, "the pod does not run")
    device = until(lambda: _log(control_plane, namespace, "holder").strip(), 20, "it does not say its device")

    assert real_node.lose("mig-2g.10gb", devices=[device]) == [device]
    try:
        until(lambda: real_node.allocatable("mig-2g.10gb") == 0, 30, "the kubelet does not take note")
        assert _phase(control_plane, namespace, "holder") == "Running"
    finally:
        real_node.give_back("mig-2g.10gb", devices=[device])
    until(lambda: real_node.allocatable("mig-2g.10gb") == 1, 30, "the device does not come back")


def test_more_devices_than_there_are_cannot_be_lost(real_node: RealNode) -> None:
    with pytest.raises(ValueError, match="has only 1 such devices, not 2"):
        real_node.lose("mig-2g.10gb", 2)


def test_a_kubelet_restart_keeps_the_pod_and_without_the_plugin_takes_the_devices(
    control_plane: ControlPlane, real_node: RealNode, namespace: str
) -> None:
    _create(control_plane, namespace, _pod("stays", "exec sleep 3600", SMALL))
    until(lambda: _phase(control_plane, namespace, "stays") == "Running", 30, "the pod does not run")

    real_node.stop_plugin()
    real_node.stop_kubelet()
    real_node.start_kubelet()
    until(lambda: real_node.allocatable("mig-1g.5gb") == 0, 30, "the devices are still offered")
    assert _phase(control_plane, namespace, "stays") == "Running"

    real_node.start_plugin()
    until(lambda: real_node.allocatable("mig-1g.5gb") == 5, 30, "the plugin did not register again")
    assert _restarts(control_plane, namespace, "stays") == 0


def test_a_second_kubelet_is_refused_with_a_sentence(
    control_plane: ControlPlane, real_node: RealNode, tmp_path: Path
) -> None:
    second = RealNode(control_plane, tmp_path, name="second")

    with pytest.raises(NodeRunsAlready, match="another test run has its node on this machine"):
        second.start()

    assert real_node.allocatable("mig-1g.5gb") == 5


def test_nothing_is_left_after_it_has_stopped_with_pods_running(
    control_plane: ControlPlane, real_node: RealNode, namespace: str
) -> None:
    _create(control_plane, namespace, _pod("running", "exec sleep 3600", SMALL))
    until(lambda: _phase(control_plane, namespace, "running") == "Running", 30, "the pod does not run")
    assert real_node.traces is not None
    traces = real_node.traces
    assert mounts(traces.folders), "there was nothing that could be left"

    real_node.stop()
    _assert_nothing_left(traces)
    nodes = [one["metadata"]["name"] for one in control_plane.call("GET", "/api/v1/nodes")["items"]]
    assert real_node.name not in nodes


@pytest.mark.usefixtures("without_node")
def test_nothing_is_left_after_a_start_that_failed(control_plane: ControlPlane, tmp_path: Path) -> None:
    wrong = RealNode(control_plane, tmp_path, name="wrong", labels={"kubernetes.io/not-allowed": "true"})
    with pytest.raises(DaemonEnded, match="kubelet ended"):
        wrong.start()
    assert wrong.traces is not None
    _assert_nothing_left(wrong.traces)


@pytest.mark.usefixtures("without_node")
def test_what_a_killed_run_has_left_is_removed_by_the_next(
    control_plane: ControlPlane, real_node: RealNode, namespace: str, tmp_path: Path
) -> None:
    node = control_plane.kubeconfig_for_user("system:node:killed", ["system:nodes"])
    what = (control_plane.kubeconfig, node, tmp_path, namespace)
    run = multiprocessing.get_context("spawn").Process(target=_run_and_be_killed, args=what)
    run.start()
    run.join(timeout=patient(90))
    assert run.exitcode == -signal.SIGKILL
    traces = Traces(**json.loads(NOTES.read_text(encoding="utf-8")))
    assert mounts(traces.folders), "the killed run left nothing to remove"

    real_node.start()
    assert real_node.allocatable("mig-1g.5gb") == 5
    assert what_is_left(traces) == []
    control_plane.call("DELETE", "/api/v1/nodes/killed")


def _run_and_be_killed(kubeconfig: Path, kubeconfig_of_node: Path, folder: Path, namespace: str) -> None:
    cluster = ControlPlane.existing(kubeconfig, folder)
    RealNode(cluster, folder, name="killed", kubeconfig=kubeconfig_of_node).start()
    _create(cluster, namespace, _pod("orphan", "exec sleep 3600", SMALL))
    until(lambda: _phase(cluster, namespace, "orphan") == "Running", 30, "the pod does not run")
    os.kill(os.getpid(), signal.SIGKILL)


def _assert_nothing_left(traces: Traces) -> None:
    assert what_is_left(traces) == []
    assert not NOTES.exists()
    assert not [name for name in links() if name == traces.bridge]
    for folder in traces.made_folders:
        assert not Path(folder).exists()
    for shared in (SHIMS, CONTAINER_LOGS):
        assert not shared.exists() or not any(shared.iterdir())
    for name, value in traces.settings.items():
        assert Path("/proc/sys", name).read_text().strip() == value


def _pod(name: str, script: str, resource: str | None) -> dict[str, Any]:
    container: dict[str, Any] = {
        "name": "main",
        "image": JUPYTERLAB,
        "imagePullPolicy": "Never",
        "command": ["/bin/sh", "-c", script],
        "securityContext": {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}},
    }
    if resource:
        container["resources"] = {"limits": {resource: "1"}}
    spec = {
        "automountServiceAccountToken": False,
        "restartPolicy": "Never",
        "terminationGracePeriodSeconds": 1,
        "nodeSelector": {"nvidia.com/mig.capable": "true"},
        "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
        "containers": [container],
    }
    return {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name}, "spec": spec}


def _create(cluster: ControlPlane, namespace: str, pod: dict[str, Any]) -> None:
    cluster.call("POST", f"/api/v1/namespaces/{namespace}/pods", pod)


def _status(cluster: ControlPlane, namespace: str, name: str) -> dict[str, Any]:
    found: dict[str, Any] = cluster.call("GET", f"/api/v1/namespaces/{namespace}/pods/{name}")["status"]
    return found


def _phase(cluster: ControlPlane, namespace: str, name: str) -> str:
    return str(_status(cluster, namespace, name)["phase"])


def _scheduled(cluster: ControlPlane, namespace: str, name: str) -> str:
    conditions = _status(cluster, namespace, name).get("conditions", [])
    return " ".join(one.get("message", "") for one in conditions if one["type"] == "PodScheduled")


def _restarts(cluster: ControlPlane, namespace: str, name: str) -> int:
    return sum(one["restartCount"] for one in _status(cluster, namespace, name)["containerStatuses"])


def _log(cluster: ControlPlane, namespace: str, name: str) -> str:
    with cluster.client() as api:
        return str(client.CoreV1Api(api).read_namespaced_pod_log(name, namespace))


def _run_in(cluster: ControlPlane, namespace: str, name: str, script: str) -> str:
    with cluster.client() as api:
        method = client.CoreV1Api(api).connect_get_namespaced_pod_exec
        command = ["/bin/sh", "-c", script]
        running = stream(method, name, namespace, command=command, stdout=True, stderr=True, _preload_content=False)
        try:
            running.run_forever(timeout=patient(30))
            return str(running.read_all())
        finally:
            running.close()


def _get(url: str) -> bool:
    try:
        return requests.get(url, timeout=patient(5)).ok
    except requests.RequestException:
        return False


def _kubelet_port(node: RealNode) -> int:
    return int(node.node()["status"]["daemonEndpoints"]["kubeletEndpoint"]["Port"])
