"""What the chart has on by default beside its hub: its user-scheduler, its placeholders and its image pullers.

Real: a kube-scheduler with the configuration that the chart gives its own (of our ``packing.yaml``, and without it),
the hub that names it in its servers' pods, and the cluster's own scheduler. The nodes are played. The chart's scheduler
is Kubernetes 1.30; this one is the tests' own, and has the rights of a scheduler of its release.
"""

from __future__ import annotations

import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest
import requests
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.daemons import Daemons
from tests.cluster.played_nodes import PlayedNodes
from tests.cluster.programs.build import programs
from tests.helm_values.conftest import Released
from tests.helm_values.release import Release
from tests.helm_values.rendering import OVERLAYS, Values, over_chart, read, rendered
from tests.helm_values.test_rendered import FOUND, choose
from tests.hubs import until
from tests.ports import free_ports

MIG = "nvidia.com/mig-1g.5gb"
OFFER = "mig-1g.5gb"
OURS = "jhub-user-scheduler"
NODES = ("pack-a", "pack-b")
RECORDED = Path(__file__).with_name("chart_scheduling.yaml")
PLACEHOLDERS: Values = {
    "scheduling": {
        "podPriority": {"enabled": True},
        "userPlaceholder": {
            "replicas": 2,
            "resources": {"limits": {MIG: 1}, "requests": {"memory": "1Gi", MIG: 1}},
        },
    }
}
FILES = [OVERLAYS / file for file in ("gpu.yaml", "mig.yaml")]
PACKING = OVERLAYS / "packing.yaml"


def scheduler_config(values: Values, namespace: str) -> dict[str, Any]:
    """What the chart's ConfigMap ``user-scheduler`` says."""
    own = values["scheduling"]["userScheduler"]
    lock = {"resourceLock": "leases", "resourceName": "user-scheduler-lock", "resourceNamespace": namespace}
    profile = {"schedulerName": OURS, "plugins": own["plugins"], "pluginConfig": own["pluginConfig"]}
    return {
        "apiVersion": "kubescheduler.config.k8s.io/v1",
        "kind": "KubeSchedulerConfiguration",
        "leaderElection": lock,
        "profiles": [profile],
    }


@contextmanager
def user_scheduler(cluster: ControlPlane, namespace: str, folder: Path, *files: Path) -> Iterator[None]:
    """The chart's scheduler for users' pods, for as long as the block runs."""
    folder.mkdir()
    config = scheduler_config(over_chart(*read(*FILES, *files)), namespace)
    own = cluster.kubeconfig_for_user("system:kube-scheduler")
    # a machine of ours: no leader is elected, and the API server is not where a pod finds it
    config["leaderElection"]["leaderElect"] = False
    config["clientConnection"] = {"kubeconfig": str(own)}
    file = folder / "config.yaml"
    file.write_text(yaml.safe_dump(config), encoding="utf-8")
    (port,) = free_ports(1)
    words = [f"--config={file}", "--authentication-skip-lookup=true", "--bind-address=127.0.0.1"]
    program = programs("kube-scheduler") / "kube-scheduler"
    with Daemons() as daemons:
        log = folder / "scheduler.log"
        daemon = daemons.start("user-scheduler", [program, *words, f"--secure-port={port}"], log)
        daemon.until(lambda: "Serving securely" in log.read_text(encoding="utf-8"), 30, "ready")
        yield


@pytest.fixture
def beside(control_plane: ControlPlane) -> Iterator[list[dict[str, Any]]]:
    """The chart's other objects; the cluster-wide ones are there, and gone after the test."""
    recorded: list[dict[str, Any]] = list(yaml.safe_load_all(RECORDED.read_text(encoding="utf-8")))
    classes = [each for each in recorded if each["kind"] == "PriorityClass"]
    for each in classes:
        control_plane.apply(yaml.safe_dump(each))
    yield [each for each in recorded if each not in classes]
    for each in classes:
        control_plane.call("DELETE", f"/apis/scheduling.k8s.io/v1/priorityclasses/{each['metadata']['name']}")


def nodes_of(release: Release) -> dict[str, str]:
    """user -> node."""
    return {user: pod["spec"].get("nodeName", "") for user, pod in release.pods().items()}


def on_nodes(cluster: ControlPlane, namespace: str, component: str) -> list[str]:
    """The nodes where ready pods of a component of the chart are."""
    path = f"/api/v1/namespaces/{namespace}/pods?labelSelector=component%3D{component}"
    pods = cluster.call("GET", path)["items"]
    ready = [pod for pod in pods if {"type": "Ready", "status": "True"}.items() <= _condition(pod).items()]
    return sorted(pod["spec"]["nodeName"] for pod in ready)


def _condition(pod: dict[str, Any]) -> dict[str, str]:
    found: list[dict[str, str]] = pod["status"].get("conditions", [])
    return next((one for one in found if one["type"] == "Ready"), {})


def start(release: Release, session: requests.Session, user: str) -> str:
    """The node of a new server, which is ready."""
    choose(release, session, user, OFFER)
    release.hub.wait_ready(user, seconds=60)
    return nodes_of(release)[user]


def another(cluster: ControlPlane, pod: dict[str, Any], name: str, scheduler: str) -> str:
    """The node where a scheduler puts one more server like this one."""
    spec = {key: value for key, value in pod["spec"].items() if key not in ("nodeName", "priority", "tolerations")}
    namespace = pod["metadata"]["namespace"]
    made = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name},
        "spec": {**spec, "schedulerName": scheduler},
    }
    cluster.call("POST", f"/api/v1/namespaces/{namespace}/pods", made)
    path, placed = f"/api/v1/namespaces/{namespace}/pods/{name}", []

    def look() -> bool:
        placed[:] = [cluster.call("GET", path)["spec"].get("nodeName", "")]
        return bool(placed[0])

    until(look, 20, f"{name} has a node")
    cluster.call("DELETE", f"{path}?gracePeriodSeconds=0")
    return placed[0]


@pytest.mark.whole
@pytest.mark.needs("cluster")
@pytest.mark.timeout(300)
def test_servers_are_packed_and_placeholders_give_way(
    released: Released,
    played_nodes: PlayedNodes,
    control_plane: ControlPlane,
    beside: list[dict[str, Any]],
    tmp_path: Path,
):
    two = {"nvidia.com/gpu": 0, MIG: 2, "memory": "16Gi"}
    labels = FOUND["lab-a100-40gb"].labels
    with played_nodes.node(NODES[0], two, labels=labels), played_nodes.node(NODES[1], two, labels=labels):
        release = released("packing", user_scheduler=True)
        space, hub = release.namespace, release.hub
        pullers = [each for each in beside if each["kind"] in ("DaemonSet", "ServiceAccount")]
        for each in pullers:
            text = yaml.safe_dump(each)
            control_plane.apply(text, space)
            control_plane.apply(text.replace("continuous-", "hook-"), space)
        for kind in ("continuous-image-puller", "hook-image-puller"):
            until(lambda kind=kind: on_nodes(control_plane, space, kind) == [*NODES], 30, f"{kind} is on both nodes")  # type: ignore[misc]
        release.install(*read(*FILES, PACKING), PLACEHOLDERS)
        release.until_offered(OFFER, 4)
        people = {user: hub.login(user) for user in ("ada", "ben", "cem")}
        with user_scheduler(control_plane, space, tmp_path / "packing", PACKING):
            first = start(release, people["ada"], "ada")
            pod = release.pods()["ada"]
            assert (pod["spec"]["schedulerName"], pod["spec"]["priorityClassName"]) == (OURS, "jhub-default-priority")
            other = next(name for name in NODES if name != first)
            # the other machine is busy with something else, which a server's memory would be packed to
            busy = {"cpu": "8", "memory": "10Gi"}
            stranger = {"containers": [{"name": "x", "image": "x", "resources": {"requests": busy}}], "nodeName": other}
            made = {"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "stranger"}, "spec": stranger}
            control_plane.apply(yaml.safe_dump(made), space)
            assert another(control_plane, pod, "packed", OURS) == first
            assert start(release, people["ben"], "ben") == first, "one machine is filled first"

            for each in (each for each in beside if each["kind"] == "StatefulSet"):
                control_plane.apply(yaml.safe_dump(each), space)
            held = [other, other]
            until(lambda: on_nodes(control_plane, space, "user-placeholder") == held, 30, "placeholders hold the rest")
            release.until_offered(OFFER, 2)
            assert start(release, people["cem"], "cem") == other, "a placeholder gives way"
            until(lambda: on_nodes(control_plane, space, "user-placeholder") == [other], 30, "one has ended")
            release.until_offered(OFFER, 1)
        control_plane.call("DELETE", f"/apis/apps/v1/namespaces/{space}/statefulsets/user-placeholder")
        hub.stop_server("ben")
        hub.stop_server("cem")
        until(lambda: set(release.pods()) == {"ada"}, 30, lambda: f"{nodes_of(release)}")
        with user_scheduler(control_plane, space, tmp_path / "chart"):
            assert another(control_plane, pod, "chart", OURS) == other, "the chart's own looks at memory alone"
        control_plane.call("DELETE", f"/api/v1/namespaces/{space}/pods/stranger?gracePeriodSeconds=0")
        assert another(control_plane, pod, "spread", "default-scheduler") == other, "the cluster's own spreads"


@pytest.mark.needs("chart")
def test_what_is_recorded_is_what_the_chart_makes():
    values = over_chart(*read(*FILES, PACKING), PLACEHOLDERS)
    made = {(each["kind"], each["metadata"]["name"]): each for each in rendered(Path(os.environ["TEST_CHART"]), values)}
    config = made["ConfigMap", "user-scheduler"]["data"]["config.yaml"]
    assert yaml.safe_load(config) == scheduler_config(values, "jhub")
    for each in yaml.safe_load_all(RECORDED.read_text(encoding="utf-8")):
        assert each == _bare(made[each["kind"], each["metadata"]["name"]])
    hook = _bare(made["DaemonSet", "hook-image-puller"])
    assert yaml.safe_dump(hook).replace("hook-", "continuous-") == yaml.safe_dump(
        _bare(made["DaemonSet", "continuous-image-puller"])
    )


def _bare(made: dict[str, Any]) -> dict[str, Any]:
    """Without what the top of the recorded file leaves out."""
    kept = {key: value for key, value in made.items() if key != "description"}
    kept["metadata"] = {"name": made["metadata"]["name"]}
    for containers in ("initContainers", "containers"):
        for one in made.get("spec", {}).get("template", {}).get("spec", {}).get(containers, []):
            one.pop("securityContext", None)
    return kept
