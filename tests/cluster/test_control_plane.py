"""The tests' own cluster: what its tests lean on is really there, and nothing of it stays."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes
import pytest
from kubernetes.client import CoreV1Api, VersionApi
from kubernetes.client.exceptions import ApiException

from tests.cluster.control_plane import ControlPlane, client_of
from tests.cluster.daemons import DaemonEnded
from tests.cluster.played_nodes import PlayedNodes
from tests.hubs import until
from tests.machine_needs import TREE

pytestmark = pytest.mark.needs("cluster")

SMALL, LARGE = "nvidia.com/mig-1g.5gb", "nvidia.com/mig-2g.10gb"
READER = """
apiVersion: v1
kind: ServiceAccount
metadata: {name: reader}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: Role
metadata: {name: reader}
rules:
- {apiGroups: [""], resources: [pods], verbs: [get, list]}
---
apiVersion: rbac.authorization.k8s.io/v1
kind: RoleBinding
metadata: {name: reader}
roleRef: {apiGroup: rbac.authorization.k8s.io, kind: Role, name: reader}
subjects:
- {kind: ServiceAccount, name: reader, namespace: %s}
"""

STARTS_AND_STAYS = """
import sys
from pathlib import Path
from tests.cluster.control_plane import ControlPlane
with ControlPlane().start(Path(sys.argv[1]), controllers=False):
    print("ready", flush=True)
    sys.stdin.read()
"""


@pytest.fixture
def core(control_plane: ControlPlane) -> Iterator[CoreV1Api]:
    with control_plane.client() as client:
        yield CoreV1Api(client)


@pytest.fixture
def lab_node(played_nodes: PlayedNodes) -> Iterator[str]:
    """One A100 40GB cut in five small devices and a larger one."""
    with played_nodes.node("lab", {SMALL: 5, LARGE: 1}, labels={"nvidia.com/mig.strategy": "mixed"}) as name:
        yield name


def test_a_played_node_has_what_it_was_given_and_the_sixth_of_five_waits(
    core: CoreV1Api, lab_node: str, namespace: str
) -> None:
    assert core.read_node(lab_node).status.allocatable[SMALL] == "5"
    for number in range(6):
        core.create_namespaced_pod(namespace, pod(f"p{number}", SMALL))

    def phases() -> list[str]:
        return sorted(one.status.phase for one in core.list_namespaced_pod(namespace).items)

    until(lambda: phases() == ["Pending"] + ["Running"] * 5, 30, lambda: f"the pods are {phases()}")
    said = until(lambda: events(core, namespace, "FailedScheduling"), 20, "the scheduler said nothing")
    assert f"Insufficient {SMALL}" in said[0].message


def test_a_deleted_pod_ends_as_with_a_kubelet(core: CoreV1Api, lab_node: str, namespace: str) -> None:
    core.create_namespaced_pod(namespace, pod("p", LARGE))
    until(lambda: core.read_namespaced_pod("p", namespace).status.phase == "Running", 30, "the pod does not run")
    watch = kubernetes.watch.Watch()
    version = core.delete_namespaced_pod("p", namespace).metadata.resource_version
    seen = [
        (event["type"], event["object"].status)
        for event in watch.stream(core.list_namespaced_pod, namespace, resource_version=version, timeout_seconds=20)
        if event["type"] != "DELETED" or watch.stop() is None
    ]
    kind, last = seen[-1]
    assert (kind, last.phase) == ("DELETED", "Failed")
    assert last.container_statuses[0].state.terminated.exit_code == 143


def test_a_pod_that_takes_the_name_of_an_ended_one_at_once_stays(
    core: CoreV1Api, lab_node: str, namespace: str
) -> None:
    names = [f"taken-{number}" for number in range(40)]
    first = {name: core.create_namespaced_pod(namespace, pod(name, "")).metadata.uid for name in names}
    until(lambda: {one.status.phase for one in core.list_namespaced_pod(namespace).items} == {"Running"})
    for name in names:
        core.delete_namespaced_pod(name, namespace, grace_period_seconds=1)
    second = {name: until(lambda name=name: made(core, namespace, name), rest=lambda _: None) for name in names}
    assert not second.items() & first.items()
    until(lambda: {one.status.phase for one in core.list_namespaced_pod(namespace).items} == {"Running"})
    assert {one.metadata.name: one.metadata.uid for one in core.list_namespaced_pod(namespace).items} == second


def test_a_node_is_lost_and_comes_back(core: CoreV1Api, played_nodes: PlayedNodes, lab_node: str) -> None:
    played_nodes.set_ready(lab_node, "Unknown")
    assert "node.kubernetes.io/unreachable" in taints(core, lab_node)
    played_nodes.set_ready(lab_node, "True")
    assert taints(core, lab_node) == []


def test_a_node_that_is_not_ready_is_there_and_takes_nothing(
    core: CoreV1Api, played_nodes: PlayedNodes, namespace: str
) -> None:
    with played_nodes.node("sick", {SMALL: 1}, ready=False):
        assert "node.kubernetes.io/not-ready" in taints(core, "sick")
        core.create_namespaced_pod(namespace, pod("p", SMALL))
        said = until(lambda: events(core, namespace, "FailedScheduling"), 20, "the scheduler said nothing")
        assert "untolerated taint" in said[0].message


def test_a_device_that_goes_away_is_seen_in_what_the_node_can_give(
    core: CoreV1Api, played_nodes: PlayedNodes, lab_node: str
) -> None:
    played_nodes.set_allocatable(lab_node, {SMALL: 4})
    assert core.read_node(lab_node).status.allocatable[SMALL] == "4"
    played_nodes.set_allocatable(lab_node, {LARGE: None})
    assert LARGE not in core.read_node(lab_node).status.allocatable


def test_a_privileged_pod_is_refused_where_restricted_is_enforced(core: CoreV1Api, namespace: str) -> None:
    asked = pod("p", SMALL)
    asked["spec"]["containers"][0]["securityContext"] = {"privileged": True}
    with pytest.raises(ApiException) as refused:
        core.create_namespaced_pod(namespace, asked)
    assert refused.value.status == 403
    assert 'violates PodSecurity "restricted' in json.loads(refused.value.body)["message"]


def test_a_service_account_has_the_rights_of_its_role_and_no_others(
    control_plane: ControlPlane, namespace: str
) -> None:
    control_plane.apply(READER % namespace, namespace)
    with client_of(control_plane.kubeconfig_for("reader", namespace)) as client:
        own = CoreV1Api(client)
        until(lambda: may(own.list_namespaced_pod, namespace), 10, "its own role gives it nothing")
        assert not may(own.list_namespaced_pod, "kube-system")
        assert not may(own.list_namespaced_secret, namespace)
        assert not may(own.list_node)


def test_applying_twice_changes_what_is_there(control_plane: ControlPlane, namespace: str) -> None:
    text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {value: '%s'}"
    (first,) = control_plane.apply(text % 1, namespace)
    (second,) = control_plane.apply(text % 2, namespace)
    assert first["metadata"]["uid"] == second["metadata"]["uid"]
    assert second["data"] == {"value": "2"}


@pytest.mark.needs("own-cluster")
def test_devices_of_dynamic_allocation_are_served(control_plane: ControlPlane) -> None:
    served = {one["kind"] for one in control_plane.call("GET", "/apis/resource.k8s.io/v1")["resources"]}
    assert served >= {"DeviceClass", "ResourceClaim", "ResourceClaimTemplate", "ResourceSlice"}


@pytest.mark.needs("own-cluster")
@pytest.mark.parametrize(
    "crash", [pytest.param(False, id="ended", marks=pytest.mark.whole), pytest.param(True, id="killed")]
)
def test_an_api_server_that_was_started_again_answers_the_same_clients(
    control_plane: ControlPlane, core: CoreV1Api, namespace: str, crash: bool
) -> None:
    before = core.read_namespace(namespace).metadata.uid
    control_plane.restart_api_server(crash=crash)
    assert core.read_namespace(namespace).metadata.uid == before


@pytest.mark.needs("own-cluster")
def test_while_etcd_stands_still_nothing_is_answered_and_then_it_goes_on(
    control_plane: ControlPlane, core: CoreV1Api, namespace: str
) -> None:
    control_plane.etcd.pause()
    try:
        with pytest.raises(Exception, match=r"(?i)timed out|timeout"):
            core.read_namespace(namespace, _request_timeout=2)
    finally:
        control_plane.etcd.resume()
    control_plane.until_ready()
    assert core.read_namespace(namespace).metadata.name == namespace


@pytest.mark.needs("own-cluster")
def test_nothing_runs_any_more_after_the_end(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    with ControlPlane().start(folder) as cluster:
        with cluster.client() as client:
            assert VersionApi(client).get_code().git_version.startswith("v1.36")
        assert {Path(words[0]).name for words in running(folder)} == {
            "etcd",
            "kube-apiserver",
            "kube-controller-manager",
            "kube-scheduler",
        }
    assert running(folder) == []


@pytest.mark.needs("own-cluster")
def test_nothing_runs_any_more_when_the_run_was_killed(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    words = [sys.executable, "-c", STARTS_AND_STAYS, str(folder)]
    run = subprocess.Popen(words, cwd=TREE, stdin=subprocess.PIPE, stdout=subprocess.PIPE)
    try:
        assert run.stdout is not None
        assert run.stdout.readline() == b"ready\n"
        assert len(running(folder)) == 3
    finally:
        run.kill()
        run.communicate()
    until(lambda: running(folder) == [], 10, lambda: f"still there: {running(folder)}")


@pytest.mark.needs("own-cluster")
def test_a_start_that_fails_says_why_and_leaves_nothing(tmp_path: Path) -> None:
    folder = tmp_path / "mine"
    with pytest.raises(DaemonEnded, match=r"(?s)kube-apiserver ended: .*no-such-flag"):
        ControlPlane().start(folder, api_server_flags=["--no-such-flag"])
    assert (folder / "etcd.log").exists()
    assert running(folder) == []


@pytest.mark.needs("own-cluster")
def test_a_daemon_that_cannot_have_its_port_is_a_failed_start(tmp_path: Path, control_plane: ControlPlane) -> None:
    taken = control_plane.url.rpartition(":")[2]
    folder = tmp_path / "mine"
    with pytest.raises(DaemonEnded, match=r"(?s)kube-apiserver ended: .*address already in use"):
        ControlPlane().start(folder, api_server_flags=[f"--secure-port={taken}"])
    assert running(folder) == []


def made(core: CoreV1Api, namespace: str, name: str) -> str:
    """The uid of a new pod of that name; empty while there is an old one."""
    try:
        return str(core.create_namespaced_pod(namespace, pod(name, "")).metadata.uid)
    except ApiException as refused:
        assert refused.status == 409, refused
        return ""


def pod(name: str, resource: str) -> dict[str, Any]:
    """One that Pod Security ``restricted`` lets pass."""
    restricted = {
        "allowPrivilegeEscalation": False,
        "runAsNonRoot": True,
        "runAsUser": 1000,
        "capabilities": {"drop": ["ALL"]},
        "seccompProfile": {"type": "RuntimeDefault"},
    }
    container = {
        "name": "notebook",
        "image": "none:1",
        "resources": {"limits": {resource: "1"} if resource else {}},
        "securityContext": restricted,
    }
    return {"metadata": {"name": name}, "spec": {"containers": [container]}}


def events(core: CoreV1Api, namespace: str, reason: str) -> list[Any]:
    return [one for one in core.list_namespaced_event(namespace).items if one.reason == reason]


def taints(core: CoreV1Api, node: str) -> list[str]:
    return [taint.key for taint in core.read_node(node).spec.taints or []]


def may(ask: Any, *about: str) -> bool:
    try:
        ask(*about)
    except ApiException as refused:
        if refused.status == 403:
            return False
        raise
    return True


def running(folder: Path) -> list[list[str]]:
    """The command lines of live processes that name this folder."""
    found = []
    for entry in filter(str.isdigit, os.listdir("/proc")):
        try:
            words = Path("/proc", entry, "cmdline").read_bytes().decode("utf-8", "replace").split("\0")
        except OSError:
            continue  # it has ended meanwhile
        if any(str(folder) in word for word in words):
            found.append(words)
    return found
