"""Pull the plug on each part of a cluster, with two running and three waiting: nobody loses a place or a GPU.

After each fault: the same order, the same pods, no device twice, one line of the log for it, and the next one in line
starts when somebody stops. Real: control plane, hub, service, spawner, our manifests' rights. Played: the node (kwok);
its pods' servers answer by a small responder. What cuts and refuses stands in front of the API server.
"""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from typing import Any

import pytest
import requests

from tests.cluster.control_plane import ControlPlane
from tests.cluster.faulty_api import Fault, FaultyApi
from tests.cluster.namespaces import fresh_namespace
from tests.cluster.place import ClusterPlace
from tests.cluster.played_nodes import PlayedNodes
from tests.cluster.responder import Responder
from tests.hubs import until
from tests.patience import patient

pytestmark = [pytest.mark.needs("own-cluster"), pytest.mark.timeout(patient(300))]

HERE = {"tests/place": "faults"}
NODE = "faults"
OFFER = "mig-1g.5gb"
SMALL = f"nvidia.com/{OFFER}"
LABELS = {**HERE, "nvidia.com/gpu.product": "NVIDIA-A100-PCIE-40GB", "nvidia.com/mig.config.state": "success"}
ETCD_SECONDS = (12.0, pytest.param(60.0, marks=pytest.mark.whole))
"""Whoever asks something new waits meanwhile; for a minute, as long as our reading waits for an answer."""
SETTLES_SECONDS = 5.0
"""What would go wrong goes wrong in so long: the service looks at each change within a second."""
SERVICE_LOG = "hub_extensions.hub_service"
ORDINARY = ("joined:", "asked-again:", "admitted:", "ready:", "stopped:", "ended:", "start resumed", "ending:", "left:")


class Line:
    """Two people run, three wait."""

    def __init__(self, place: ClusterPlace, api: FaultyApi) -> None:
        self.place = place
        self.api = api
        self.running: list[str] = []
        self.waiting: list[str] = []
        people = ("ada", "ben", "cem", "dora", "eva")
        place.hub.add_users(*people, "finn")
        place.until_offered(OFFER, 2)
        for user in people:
            self.join(user)
        self.mark()

    def join(self, user: str) -> None:
        assert self.place.hub.spawn(user, {"user_options": {"offer": OFFER}}).status_code in (201, 202)
        if len(self.running) < 2:
            self.place.hub.wait_ready(user)
            self.running.append(user)
        else:
            self.waiting.append(user)
            until(lambda: quietly(self.place.waiting) == self.waiting, 20, self.told)

    def mark(self) -> None:
        """What is to be the same after the next fault."""
        self.before = self.facts()
        self._log = len(self.place.hub.log())

    def facts(self) -> dict[str, tuple[str, str, str]]:
        """user -> lease, its state, uid of the pod. Fails when the node gave out more than it has."""
        leases = {one["user"]: (one["lease"], one["state"]) for one in self.place.as_admin("api/leases")}
        pods = {user: pod for user, pod in self.place.pods().items() if self.place.limits(user)}
        assert len(pods) <= 2, f"more pods than devices: {sorted(pods)}"
        found = {}
        for user in leases.keys() | pods.keys():
            pod = pods.get(user, {"metadata": {"uid": "no pod", "labels": {}}})
            assert pod["metadata"]["labels"].get("jupyterhub-gpu/lease") == leases.get(user, ("", ""))[0], user
            found[user] = (*leases[user], pod["metadata"]["uid"])
        return found

    def told(self) -> str:
        return f"waiting are {quietly(self.place.line)}, to be {self.waiting}; {quietly(self.facts)}"

    def stands(self, seconds: float = 90.0) -> None:
        """The same order, the same leases, the same pods; nothing free."""
        self.place.wait_service(seconds)
        until(lambda: quietly(self.place.waiting) == self.waiting, seconds, self.told)
        until(lambda: quietly(self.facts) == self.before, seconds, self.told)
        until(lambda: all(self.place.hub.pending(user) == "spawn" for user in self.waiting), seconds, self.told)
        assert sorted(self.before) == sorted(self.running)

    def goes_on(self) -> None:
        """A server stops: the first in line starts without anybody's doing, and its owner joins at the end."""
        leaver, first = self.running.pop(0), self.waiting.pop(0)
        assert self.place.hub.stop_server(leaver).status_code in (202, 204)
        self.place.hub.wait_ready(first, seconds=60)
        self.running.append(first)
        until(lambda: self.place.hub.server(leaver) is None, 30, f"{leaver} has stopped")
        self.join(leaver)
        until(lambda: sorted(quietly(self.facts)) == sorted(self.running), 20, self.told)
        self.mark()

    def until_said(self, words: str) -> None:
        """Wait for these words in the log since the last mark."""
        until(lambda: words in self.place.hub.log()[self._log :], 60, lambda: f"nobody says: {words}")

    def said(self) -> list[str]:
        """What the service's log says since the last mark, but for people's own doing."""
        lines = []
        for line in self.place.hub.log()[self._log :].splitlines():
            if line.startswith("{") and json.loads(line).get("logger") == SERVICE_LOG:
                message = json.loads(line)["message"]
                lines += [] if message.startswith(ORDINARY) else [message]
        print(*lines, sep="\n")
        return lines


def quietly(look: Callable[[], Any]) -> Any:
    """Its answer, or why there is none yet."""
    try:
        return look()
    except (requests.RequestException, AssertionError, KeyError, ValueError) as problem:
        return [str(problem)]


def one_line_each(lines: list[str]) -> None:
    """The log says once that the cluster cannot be read, and once that it can be again."""
    about = [line.partition(" since")[0].partition(",")[0] for line in lines if "cluster" in line]
    assert about == ["The cluster cannot be read", "The cluster can be read again"], lines


@pytest.fixture(scope="module")
def line(
    control_plane: ControlPlane, played_nodes: PlayedNodes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Line]:
    with (
        fresh_namespace(control_plane, "faults") as namespace,
        Responder() as responder,
        FaultyApi(control_plane) as api,
        played_nodes.node(NODE, {SMALL: 2}, labels=LABELS),
    ):
        config = f"""
c.KubeSpawner.port = {responder.port}
c.KubeSpawner.node_selector = {HERE!r}
c.GpuCluster.capacity = {{{OFFER!r}: 2}}
"""
        place = ClusterPlace(control_plane, namespace, tmp_path_factory.mktemp("faults"), config=config)
        text = place.kubeconfig.read_text(encoding="utf-8")
        place.kubeconfig.write_text(text.replace(control_plane.url, api.url), encoding="utf-8")
        with place.open():
            yield Line(place, api)


@pytest.mark.parametrize("crash", [False, True], ids=["cleanly", "crashed"])
def test_an_api_server_that_starts_again_costs_nobody_anything(control_plane: ControlPlane, line: Line, crash: bool):
    control_plane.restart_api_server(crash=crash, noticed=lambda: line.until_said("cannot be read"))
    line.stands()
    line.until_said("can be read again")
    one_line_each(line.said())
    line.goes_on()


def test_watches_that_are_cut_are_begun_again_and_nobody_notices(line: Line):
    assert line.api.cut() >= 5  # nodes, pods, slices, claims, templates; and those of the hub
    line.stands()
    assert line.said() == []
    line.goes_on()


def test_an_answer_of_429_and_a_slow_one_are_waited_for(line: Line):
    """The service lists again, the hub makes its pod again, each as soon as it is let."""
    listed = line.api.misbehave(Fault("GET", "/api/v1/nodes", 429, times=3, headers={"Retry-After": "1"}))
    made = line.api.misbehave(Fault("POST", "/pods", 429, times=2, headers={"Retry-After": "1"}))
    slow = line.api.misbehave(Fault("POST", "/pods", seconds=4.0))
    line.api.cut()
    line.place.hub.spawn("finn", {"user_options": {"offer": "cpu"}})
    line.place.hub.wait_ready("finn", seconds=60)
    line.stands()
    assert (listed.done, made.done, slow.done) == (3, 2, 1)
    one_line_each(line.said())
    line.place.hub.stop_server("finn")
    line.goes_on()


def test_a_pod_of_that_name_that_is_there_already_gives_way(control_plane: ControlPlane, line: Line):
    """409: the API server has such a pod."""
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "jupyter-finn"},
        "spec": {
            "containers": [{"name": "other", "image": "played", "securityContext": strict}],
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
            "nodeSelector": HERE,
            "tolerations": [],
        },
    }
    until(lambda: line.place.hub.server("finn") is None and "finn" not in line.place.pods(), 30, "finn has stopped")
    made = control_plane.call("POST", f"/api/v1/namespaces/{line.place.namespace}/pods", pod)
    line.place.hub.spawn("finn", {"user_options": {"offer": "cpu"}})
    line.place.hub.wait_ready("finn", seconds=60)
    assert line.place.pods()["finn"]["metadata"]["uid"] != made["metadata"]["uid"]
    line.place.hub.stop_server("finn")
    line.stands()


def may_list(cluster: ControlPlane, account: str, resource: str) -> bool:
    """What the API server's authorizer has heard of by now."""
    attributes = {"verb": "list", "resource": resource}
    review = {"apiVersion": "authorization.k8s.io/v1", "kind": "SubjectAccessReview"}
    review |= {"spec": {"user": account, "resourceAttributes": attributes}}
    told = cluster.call("POST", "/apis/authorization.k8s.io/v1/subjectaccessreviews", review)
    return bool(told["status"]["allowed"])


def test_without_the_right_to_read_nodes_the_configured_capacity_counts_and_the_line_goes_on(
    control_plane: ControlPlane, line: Line
):
    """403 while running: an admin took the ClusterRole away, and gives it back."""
    path = "/apis/rbac.authorization.k8s.io/v1/clusterrolebindings"
    name = f"jupyterhub-gpu-reader-{line.place.namespace}"
    binding = control_plane.call("GET", f"{path}/{name}")
    control_plane.call("DELETE", f"{path}/{name}")
    try:
        account = f"system:serviceaccount:{line.place.namespace}:hub"
        until(lambda: not any(may_list(control_plane, account, what) for what in ("nodes", "pods")), 10)
        line.api.cut()
        until(lambda: line.place.as_admin("api/cluster")["configured"], 30, "only the configured capacity counts")
        line.stands()
        said = line.said()
        for words in ("Nodes may not be read: the configured capacity counts.", "Pods of other namespaces may not"):
            assert len([one for one in said if one.startswith(words)]) == 1, said
        told = line.place.as_admin("api/cluster")
        assert [one["why"] for one in told["left_out"]] == [
            "this hub may not read the nodes: the totals are what c.GpuCluster.capacity says"
        ]
        assert line.place.offers()[OFFER]["free"] == 0
        line.goes_on()
    finally:
        binding["metadata"] = {"name": name}
        control_plane.call("POST", path, binding)
    line.place.kill_service()  # it would ask again within five minutes
    until(lambda: quietly(lambda: line.place.as_admin("api/cluster")["configured"]) is False, 60, "nodes are read")
    line.stands()
    line.goes_on()


@pytest.mark.parametrize("seconds", ETCD_SECONDS)
def test_an_etcd_that_stands_still_delays_and_loses_nothing(control_plane: ControlPlane, line: Line, seconds: float):
    control_plane.etcd.pause()
    try:
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            assert line.place.waiting() == line.waiting
            time.sleep(1)
    finally:
        control_plane.etcd.resume()
    control_plane.until_ready()
    line.stands()
    said = line.said()
    assert len([one for one in said if "cannot be read" in one]) <= 1, said
    line.goes_on()


def test_a_kubelet_that_stands_still_keeps_every_lease_and_lets_nobody_in(played_nodes: PlayedNodes, line: Line):
    played_nodes.set_ready(NODE, "Unknown")
    try:
        until(lambda: {state for _, state, _ in line.facts().values()} == {"lost"}, 20, line.told)
        assert line.place.offers()[OFFER]["free"] == 0
        stays(lambda: line.place.waiting() == line.waiting and sorted(line.facts()) == sorted(line.running))
    finally:
        played_nodes.set_ready(NODE, "True")
    line.stands()
    gone, back = "lost: the node of its pod does not answer", "running: the node of its pod answers again"
    assert line.said() == [gone, gone, back, back], "one line for each lease"
    line.goes_on()


def test_a_device_that_is_lost_under_a_server_is_given_to_nobody_until_it_is_back(
    played_nodes: PlayedNodes, line: Line
):
    """Whose device it was nobody says; both servers go on, and the next one in line waits for one that there is."""
    played_nodes.set_allocatable(NODE, {SMALL: 1})
    try:
        until(lambda: line.place.offers()[OFFER]["total"] == 1, 20)
        line.stands()
        leaver, first = line.running[0], line.waiting[0]
        assert line.place.hub.stop_server(leaver).status_code in (202, 204)
        until(lambda: line.place.hub.server(leaver) is None, 30, f"{leaver} has stopped")
        until(lambda: sorted(quietly(line.facts)) == [line.running[1]], 20, line.told)
        stays(lambda: line.place.waiting() == line.waiting and sorted(line.facts()) == [line.running[1]])
        assert line.place.offers()[OFFER]["free"] == 0
    finally:
        played_nodes.set_allocatable(NODE, {SMALL: 2})
    line.place.hub.wait_ready(first, seconds=60)
    line.running, line.waiting = [line.running[1], first], line.waiting[1:]
    line.join(leaver)
    line.mark()
    line.stands()


def stays(look: Callable[[], bool]) -> None:
    """It is so, for as long as what would go wrong takes to."""
    end = time.monotonic() + SETTLES_SECONDS
    while time.monotonic() < end:
        assert look()
        time.sleep(0.2)


def test_a_service_that_is_killed_finds_everybody_again(line: Line):
    line.place.kill_service()
    line.stands()
    line.goes_on()


def test_a_hub_that_is_killed_keeps_pods_and_places(line: Line):
    """T3, T14: the service of the dead hub gives way to that of the new one."""
    line.place.hub.kill()
    line.place.hub.start()
    line.stands()
    line.goes_on()


def test_a_hub_that_is_stopped_by_its_admin_keeps_the_places_of_those_who_wait(line: Line):
    """T4: it stops the running servers as JupyterHub does, and nobody who waits has left."""
    line.place.hub.terminate()
    line.place.hub.start()
    line.place.wait_service()
    starting, line.running = line.waiting[:2], []
    for user in starting:
        line.place.hub.wait_ready(user, seconds=90)
    line.running, leavers = starting, [user for user in line.before if user not in starting]
    del line.waiting[:2]
    until(lambda: quietly(line.place.waiting) == line.waiting, 30, line.told)
    for user in leavers:
        line.join(user)
    line.mark()
    line.stands()


def test_hub_and_service_killed_while_nobody_can_read_the_cluster_lose_no_place(
    control_plane: ControlPlane, line: Line
):
    """What the line waits for is not known to the new service at all: no offer is there, and no place ends for that."""
    control_plane.api_server.kill()
    try:
        line.place.kill_service()
        line.place.hub.kill()
        line.place.hub.start(wait=False)
        line.place.hub.wait_up(150)
        line.place.wait_service()
        until(lambda: all(line.place.hub.pending(user) == "spawn" for user in line.waiting), 60, line.told)
        assert line.place.waiting() == line.waiting
        assert line.place.as_admin("api/cluster")["pools"] == []
    finally:
        control_plane.api_server.start()
    control_plane.until_ready()
    control_plane.scheduler.stop()  # it asks less and less often while nobody answers, at last each half minute
    control_plane.scheduler.start()
    line.stands()
    line.goes_on()
