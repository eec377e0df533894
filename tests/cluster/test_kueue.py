"""A hub whose line is Kueue's: a real Kueue admits, holds back, takes back and goes away; the nodes are played.

One hub for most of it, so each test ends the servers that it started. Played pods run nothing: a small responder
answers at their addresses.
"""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest
import yaml

from tests.cluster.control_plane import ControlPlane
from tests.cluster.kueue import Kueue
from tests.cluster.others_line import START_SECONDS, OthersLine
from tests.cluster.place import MANIFESTS
from tests.cluster.played_nodes import MERGE, PlayedNodes
from tests.cluster.responder import Responder
from tests.hubs import until
from tests.patience import patient

pytestmark = [pytest.mark.needs("kueue"), pytest.mark.timeout(patient(300))]

SLICE, WHOLE = "mig-3g.20gb", "gpu"
RESOURCE = {SLICE: "nvidia.com/mig-3g.20gb", WHOLE: "nvidia.com/gpu"}
USERS = ("ada", "ben", "cem", "eva", "hana")
HERE = {"tests/place": "kueue"}
IN_LINE = "Kueue hands out the GPUs here, and has not given a whole GPU to it yet."
IN_USE = "All that Kueue has for your group is in use."
AWAY = "Kueue, which hands out the GPUs here, does not answer."


class KueuePlace(OthersLine):
    """A hub that leaves its line to Kueue. `other`: the LocalQueue of a group beside ours, in the same cohort."""

    kueue: Kueue
    other = "other"

    def down(self, *users: str) -> None:
        """Stop servers, and wait until nothing of them is left: pod, Workload, lease."""
        for user in users:
            if self.hub.server(user):
                self.hub.stop_server(user)
        until(lambda: not self.left(users), 60, lambda: f"this is left: {self.left(users)}")

    def left(self, users: tuple[str, ...]) -> list[str]:
        pods = self.pods()
        return [
            *(f"pod of {user}" for user in users if user in pods),
            *(name for name in self.kueue.workloads(self.namespace) if name in {f"jupyter-{user}" for user in users}),
            *(f"lease of {user}" for user in users if user in self.lease_states()),
        ]

    def gates(self, user: str) -> list[str]:
        return [gate["name"] for gate in self.pods()[user]["spec"].get("schedulingGates") or ()]

    def someone_else(self, name: str, offer: str) -> None:
        """A pod of the other group, by hand."""
        self.control_plane.apply(yaml.safe_dump(_pod(name, self.other, RESOURCE[offer])), self.namespace)


def _pod(name: str, queue: str, resource: str) -> dict[str, Any]:
    strict = {"allowPrivilegeEscalation": False, "runAsUser": 1000, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "work", "image": "work:1", "securityContext": strict, "resources": {"limits": {resource: "1"}}}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, "labels": {"kueue.x-k8s.io/queue-name": queue}},
        "spec": {
            "nodeSelector": HERE,
            "terminationGracePeriodSeconds": 1,
            "securityContext": {"runAsNonRoot": True, "seccompProfile": {"type": "RuntimeDefault"}},
            "containers": [container],
        },
    }


def a_place(control_plane: ControlPlane, namespace: str, folder: Path, port: int, config: str) -> KueuePlace:
    place = KueuePlace(control_plane, namespace, folder, where=HERE, port=port, config=config)
    rights = (MANIFESTS / "kueue.yaml").read_text(encoding="utf-8")
    control_plane.apply(rights.replace("namespace: jhub", f"namespace: {namespace}"), namespace)
    return place


@pytest.fixture(scope="module")
def node(played_nodes: PlayedNodes) -> Iterator[None]:
    with played_nodes.node("kueues", {RESOURCE[SLICE]: 3, RESOURCE[WHOLE]: 2}, labels=HERE):
        yield


@pytest.fixture(scope="module")
def responder() -> Iterator[Responder]:
    with Responder() as running:
        yield running


@pytest.fixture(scope="module")
def hub(
    control_plane: ControlPlane,
    kueue: Kueue,
    node: None,
    responder: Responder,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[KueuePlace]:
    """Ours has one slice and one whole GPU, the other group one slice; what is not used can be borrowed."""
    name = f"t-{uuid.uuid4().hex[:8]}"
    config = """
c.GpuCluster.kueue_queue = "gpu"
c.GpuQueue.max_starting = 2
def before(spawner):
    if spawner.user.name == "hana":
        spawner.gpu_max_wait_hours = 6 / 3600
c.Spawner.pre_spawn_hook = before
"""
    ours, others = {RESOURCE[SLICE]: 1, RESOURCE[WHOLE]: 1}, {RESOURCE[SLICE]: 1, RESOURCE[WHOLE]: 0}
    with (
        kueue.namespace(name),
        kueue.queue(f"{name}-a", name, ours, cohort=name),
        kueue.queue(f"{name}-b", name, others, cohort=name, local=KueuePlace.other),
    ):
        made = a_place(control_plane, name, tmp_path_factory.mktemp("kueue"), responder.port, config)
        made.kueue = kueue
        with made.open():
            made.until_offered(SLICE, 3)
            made.hub.add_users(*USERS)
            yield made


@pytest.fixture
def place(hub: KueuePlace) -> Iterator[KueuePlace]:
    """The hub, without servers before and after a test."""
    yield hub
    hub.down(*USERS)


def test_a_pod_with_a_gpu_goes_through_kueue_and_cpu_only_does_not(place: KueuePlace) -> None:
    place.up("ada", WHOLE)
    place.up("eva", "cpu")

    pod, plain = place.pods()["ada"], place.pods()["eva"]
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/queue-name"] == "gpu"
    assert pod["metadata"]["labels"]["kueue.x-k8s.io/managed"] == "true", "Kueue has had it"
    assert not place.gates("ada") and pod["spec"]["nodeName"] == "kueues"
    admitted = place.kueue.workloads(place.namespace)["jupyter-ada"]["status"]["conditions"]
    assert ("Admitted", "True") in {(one["type"], one["status"]) for one in admitted}
    assert not any(label.startswith("kueue.x-k8s.io/") for label in plain["metadata"]["labels"])
    assert "finalizers" not in plain["metadata"] and "jupyter-eva" not in place.kueue.workloads(place.namespace)
    print("pod:", {key: value for key, value in pod["metadata"]["labels"].items() if "kueue" in key})


def test_the_line_is_kueues_alone_and_nothing_of_who_leaves_it_stays(place: KueuePlace) -> None:
    place.up("ada", WHOLE)
    assert place.hub.spawn("ben", {"offer": WHOLE}).status_code == 202
    said = place.until_said("ben", f"{IN_LINE} {IN_USE}")

    print("the page:", said["html_message"])
    assert said["gpu"]["state"] == "held"
    assert "in line" not in said["message"], "no second line of ours"
    assert place.waiting() == [], "admitted at once: nobody waits with us"
    assert len(place.gates("ben")) == 2
    place.hub.spawn("cem", {"offer": WHOLE})
    place.until_said("cem", IN_LINE)
    place.up("eva", "cpu")  # max_starting is 2: who waits for Kueue is not starting
    waited = until(lambda: place.as_admin("api/tickets") and _older(place, "ben", START_SECONDS + 2), 30)
    assert waited and place.hub.pending("ben") == "spawn", "start_timeout does not count what Kueue takes"
    place.down("ben")
    assert "jupyter-ben" not in place.kueue.workloads(place.namespace)
    assert not place.ends(), "nothing ended by itself"


def _failed(event: dict[str, Any]) -> dict[str, Any]:
    return event if event.get("failed") else {}


def _older(place: KueuePlace, user: str, seconds: float) -> bool:
    """The user's pod was made so long ago, by the API server's clock."""
    made = datetime.fromisoformat(place.pods()[user]["metadata"]["creationTimestamp"].replace("Z", "+00:00"))
    return (datetime.now(timezone.utc) - made).total_seconds() > seconds


def test_the_longest_wait_ends_in_words_and_is_no_failure(place: KueuePlace) -> None:
    place.up("ada", WHOLE)
    place.hub.spawn("hana", {"offer": WHOLE})
    last = until(lambda: _failed(place.said("hana")), 60, lambda: f"it has not ended: {place.said('hana')}")

    print("the page:", last["message"])
    assert "Kueue had no place for it in 0.00166667 h, so the wait has ended." in last["message"]
    until(lambda: not place.left(("hana",)), 30, lambda: f"this is left: {place.left(('hana',))}")
    metrics = place.hub.api("GET", "metrics").text
    counted = 'jupyterhub_server_spawn_duration_seconds_count{{reason="{}",status="{}"}} {}'
    assert counted.format("", "error", 0.0) in metrics and counted.format("", "failure", 0.0) in metrics
    assert counted.format("max-wait", "failure", 1.0) in metrics, "told apart from what is broken"


def test_a_gpu_that_kueue_takes_back_is_told_apart_from_a_crash(place: KueuePlace) -> None:
    place.up("ada", SLICE)
    place.up("ben", SLICE)  # borrowed from the other group
    place.someone_else("theirs", SLICE)
    until(lambda: not (place.hub.ready("ada") and place.hub.ready("ben")), 60, "nobody's was taken back")
    victim = "ben" if place.hub.ready("ada") else "ada"
    left = "ada" if victim == "ben" else "ben"

    until(lambda: place.notices(victim), 30, "the user is told")
    print("the next form:", place.notices(victim))
    assert any("Kueue took its GPU back for a group that has a right to it." in text for text in place.notices(victim))
    assert place.ends() == {"reclaimed": 1.0}
    assert place.hub.ready(left), "whoever is within the own share keeps it"

    end(place, left, "Failed", 1)
    until(lambda: place.notices(left), 30, "the user is told")
    print("the next form:", place.notices(left))
    assert any("crashed with exit code 1" in text for text in place.notices(left))
    told = [each for notice in place.service(f"hub/form?user={left}").json()["notices"] for each in notice["reasons"]]
    assert ("server-crashed-with", {"code": 1}) in [(each["reason"], each["params"]) for each in told], "by a code"
    assert place.ends() == {"reclaimed": 1.0, "crashed": 1.0}
    place.up("cem", WHOLE)
    end(place, "cem", "Succeeded", 0)
    until(lambda: not place.hub.ready("cem"), 30, "the hub notices")
    until(lambda: "cem: ended: Completed" in place.hub.log(), 10, "the log says how it ended")
    assert place.ends() == {"reclaimed": 1.0, "crashed": 1.0} and not place.notices("cem"), "its user ended it"
    place.control_plane.call("DELETE", f"/api/v1/namespaces/{place.namespace}/pods/theirs")


def end(place: KueuePlace, user: str, phase: str, code: int) -> None:
    """The server's container ends by itself."""
    ended = {"exitCode": code, "reason": "Error" if code else "Completed"}
    status = {
        "phase": phase,
        "containerStatuses": [
            {
                "name": "notebook",
                "image": "x",
                "imageID": "",
                "ready": False,
                "restartCount": 0,
                "state": {"terminated": ended},
            }
        ],
    }
    path = f"/api/v1/namespaces/{place.namespace}/pods/jupyter-{user}/status"
    place.control_plane.call("PATCH", path, {"status": status}, MERGE)


def test_a_kueue_that_is_down_reads_as_such_and_nothing_is_lost(place: KueuePlace) -> None:
    place.up("ada", SLICE)
    place.kueue.kill()
    try:
        place.hub.spawn("ben", {"offer": WHOLE})
        said = place.until_said("ben", AWAY)
        print("the page:", said["html_message"])
        assert said["gpu"]["state"] == "held"
        assert "ben: kueue-away: 500:" in place.hub.log(), "the cluster's own words are in the log"
        place.hub.spawn("eva", {"offer": "cpu"})  # it passes Kueue's webhook, too
        place.hub.stop_server("ada")
        until(lambda: place.pods()["ada"]["metadata"].get("deletionTimestamp"), 30, "the stop is asked for")
        last = until(lambda: _failed(place.said("eva")), 60, lambda: f"CPU only has not failed: {place.said('eva')}")
        print("CPU only:", last["message"])
        assert AWAY in last["message"] and "Start it again later." in last["message"]
        assert place.hub.api("GET", "users/ada", timeout=5).ok, "the hub answers meanwhile"
        until(lambda: place.pods()["ada"]["status"]["phase"] == "Failed", 30, "its container ends")
        assert place.pods()["ada"]["metadata"]["finalizers"], "the pod itself stays until Kueue lets it go"
        until(lambda: "ada" not in place.lease_states(), 30, "its container has ended, so its GPU is free")
        print("ada meanwhile:", place.hub.server("ada") and place.hub.pending("ada"))
        assert place.lease_states()["ben"] == "starting" and place.hub.pending("ben") == "spawn"
    finally:
        place.kueue.start()
    place.hub.wait_ready("ben", seconds=60)
    until(lambda: not place.left(("ada",)), 30, lambda: f"this is left: {place.left(('ada',))}")


def test_who_waits_for_kueue_while_the_hub_is_killed_waits_again_with_one_pod(place: KueuePlace) -> None:
    """Kueue counts from the pod, which is made anew: the place in its line is lost, the start is not."""
    place.up("ada", WHOLE)
    place.hub.spawn("ben", {"offer": WHOLE})
    place.until_said("ben", IN_LINE)
    before = place.pods()["ben"]["metadata"]["uid"]
    place.hub.kill()
    place.hub.start()
    place.wait_service()
    until(lambda: _uid(place, "ben") not in (None, before), 60, "its start goes on")
    place.until_said("ben", IN_LINE)
    assert place.hub.ready("ada") and place.hub.pending("ben") == "spawn"
    both = ["jupyter-ada", "jupyter-ben"]  # Kueue makes the new one by itself, after the gate
    until(lambda: sorted(place.kueue.workloads(place.namespace)) == both, 10, "each has one")
    place.down("ada")
    place.hub.wait_ready("ben", seconds=60)


def _uid(place: KueuePlace, user: str) -> str | None:
    pod = place.pods().get(user)
    return None if pod is None else str(pod["metadata"]["uid"])


def test_a_line_that_kueue_does_not_know_is_said_until_it_is_there(
    control_plane: ControlPlane, kueue: Kueue, node: None, responder: Responder, tmp_path: Path
) -> None:
    name = f"t-{uuid.uuid4().hex[:8]}"
    config = 'c.GpuCluster.kueue_queue = "nope"'
    with kueue.namespace(name):
        place = a_place(control_plane, name, tmp_path, responder.port, config)
        place.kueue = kueue
        with place.open():
            place.until_offered(WHOLE, 2)
            place.hub.add_users("ada")
            place.hub.spawn("ada", {"offer": WHOLE})
            said = place.until_said("ada", "does not know the line it was sent to. Tell an admin.")
            print("the page:", said["html_message"])
            warned = [line for line in place.hub.log().splitlines() if "there is no such LocalQueue" in line]
            print("the log:", warned)
            assert len(warned) == 1 and "nope" in warned[0]
            with kueue.queue(f"{name}-late", name, {RESOURCE[WHOLE]: 1}, local="nope"):
                place.hub.wait_ready("ada", seconds=60)
                place.down("ada")
