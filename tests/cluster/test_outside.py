"""What others do to a cluster, and what becomes of it in the form and in the line; with a real hub on played nodes.

Others take devices and give them back, take one between a promise and its pod, cordon, taint, cut anew and lose nodes;
and pods of ours are there that the hub knows nothing of.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections.abc import Iterator
from contextlib import closing
from typing import Any

import pytest
import requests

from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import fresh_namespace
from tests.cluster.place import ClusterPlace
from tests.cluster.played_nodes import PlayedNodes
from tests.cluster.responder import Responder
from tests.hubs import until
from tests.patience import patient

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(patient(300))]

HERE = {"tests/place": "outside"}
NODE = "outside"
OFFER = "mig-1g.5gb"
SMALL = f"nvidia.com/{OFFER}"
LABELS = {**HERE, "nvidia.com/gpu.product": "NVIDIA-A100-PCIE-40GB", "nvidia.com/mig.config.state": "success"}
STRICT = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
OUTSIDE_SECONDS = 3
FORGOTTEN_SECONDS = 6
FOLLOWS_SECONDS = patient(2.0)


@pytest.fixture(scope="module")
def responder() -> Iterator[Responder]:
    with Responder() as responder:
        yield responder


@pytest.fixture(scope="module")
def others(control_plane: ControlPlane) -> Iterator[str]:
    with fresh_namespace(control_plane, "others") as namespace:
        yield namespace


@pytest.fixture(scope="module")
def place(
    control_plane: ControlPlane,
    played_nodes: PlayedNodes,
    responder: Responder,
    tmp_path_factory: pytest.TempPathFactory,
) -> Iterator[ClusterPlace]:
    config = f"""
c.KubeSpawner.port = {responder.port}
c.KubeSpawner.node_selector = {HERE!r}
c.GpuCluster.unschedulable_seconds = {OUTSIDE_SECONDS}
c.GpuKubeSpawner.gpu_unschedulable_seconds = {OUTSIDE_SECONDS}
c.GpuCluster.delete_orphaned_pods = True
c.GpuCluster.allow_node_drain = True
c.GpuCluster.orphaned_pod_minutes = {FORGOTTEN_SECONDS / 60}
"""
    with (
        fresh_namespace(control_plane, "outside") as namespace,
        played_nodes.node(NODE, {SMALL: 2}, labels=LABELS),
        ClusterPlace(control_plane, namespace, tmp_path_factory.mktemp("outside"), config=config).open() as place,
    ):
        place.hub.add_users("ada", "ben", "cem")
        yield place


@pytest.fixture(autouse=True)
def clean(place: ClusterPlace, others: str) -> Iterator[None]:
    """Both devices are free before and after each test."""
    place.until_offered(OFFER, 2, 30)
    yield
    for user in ("ada", "ben", "cem"):
        place.hub.stop_server(user)
    for pod in place.control_plane.call("GET", f"/api/v1/namespaces/{others}/pods")["items"]:
        give_back(place.control_plane, others, pod["metadata"]["name"])
    place.until_offered(OFFER, 2, 60)


def pod(name: str, **marks: Any) -> dict[str, Any]:
    """A pod with one small device, put on the node past the scheduler."""
    limits = {"cpu": "1", "memory": "1Gi", SMALL: "1"}
    container = {"name": "notebook", "image": "played", "resources": {"limits": limits}, "securityContext": STRICT}
    return {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": name, **marks},
        "spec": {
            "containers": [container],
            "nodeName": NODE,
            "securityContext": {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}},
        },
    }


def take(control_plane: ControlPlane, others: str, name: str) -> None:
    control_plane.call("POST", f"/api/v1/namespaces/{others}/pods", pod(name))


def give_back(control_plane: ControlPlane, others: str, name: str) -> None:
    control_plane.call("DELETE", f"/api/v1/namespaces/{others}/pods/{name}?gracePeriodSeconds=0")


def follows(place: ClusterPlace, free: int, what: str) -> None:
    """The form says so soon."""
    began = time.monotonic()
    place.until_offered(OFFER, free, FOLLOWS_SECONDS)
    print(f"{what}: the form follows after {time.monotonic() - began:.2f} s")


def ask(place: ClusterPlace, user: str) -> None:
    assert place.hub.spawn(user, {"user_options": {"offer": OFFER}}).status_code in (201, 202)


def ticket(place: ClusterPlace, user: str) -> dict[str, Any]:
    """The one of this user, as admins see it."""
    (found,) = [one for one in place.as_admin("api/tickets") if one["user"] == user]
    return dict(found)


def lease(place: ClusterPlace, user: str) -> dict[str, Any] | None:
    return next((dict(one) for one in place.as_admin("api/leases") if one["user"] == user), None)


def cluster(place: ClusterPlace) -> dict[str, Any]:
    return dict(place.as_admin("api/cluster"))


def last_event(place: ClusterPlace, user: str) -> dict[str, Any]:
    """What a waiting page shows that is opened now: the last event of those so far."""
    seen: dict[str, Any] = {}
    path = f"{place.hub.url}/hub/api/users/{user}/server/progress"
    headers = {"Authorization": f"token {place.hub.token}"}
    with requests.get(path, headers=headers, stream=True, timeout=(patient(5), patient(1))) as answer:
        try:
            for line in answer.iter_lines():
                if line.startswith(b"data: "):
                    seen = json.loads(line[6:])
        except requests.RequestException:
            return seen  # nothing more for a second
    return seen


def test_the_form_follows_within_two_seconds_when_others_take_devices_and_give_them_back(
    control_plane: ControlPlane, place: ClusterPlace, others: str
):
    for round_ in range(2):
        take(control_plane, others, f"one-{round_}")
        follows(place, 1, "one taken")
        take(control_plane, others, f"two-{round_}")
        follows(place, 0, "two taken")
        give_back(control_plane, others, f"one-{round_}")
        follows(place, 1, "one given back")
        give_back(control_plane, others, f"two-{round_}")
        follows(place, 2, "two given back")


@pytest.mark.needs("own-cluster")
def test_whose_device_was_taken_from_outside_stays_first_and_nobody_else_is_let_past(
    control_plane: ControlPlane, place: ClusterPlace, others: str
):
    control_plane.scheduler.kill()  # between the promise and the place of its pod; one that was paused places by guess
    try:
        ask(place, "ada")
        until(lambda: "ada" in place.pods(), 20, "ada's pod is made")
        take(control_plane, others, "quicker")
        until(lambda: cluster(place)["blocked_offers"] == [OFFER], 20, lambda: str(cluster(place)))
        ask(place, "ben")  # one device is free by the count, and promised to nobody
        until(lambda: "ben" in place.waiting(), 20)
        take(control_plane, others, "quicker-still")
    finally:
        control_plane.scheduler.start()
    said = until(lambda: outside(last_event(place, "ada")), 20, lambda: str(last_event(place, "ada")))
    print(said["message"], said["html_message"], sep="\n")
    assert (
        "Something outside this hub took the MIG 1g.5gb that was free. You stay first in line" in said["html_message"]
    )
    told = ticket(place, "ben")
    print(told["reason"]["message"])
    assert told["reason"]["message"].startswith("Something outside this hub took the GPU of the first in line")
    assert (place.waiting(), set(place.pods())) == (["ben"], {"ada"})
    give_back(control_plane, others, "quicker")
    place.hub.wait_ready("ada")
    until(lambda: (place.waiting(), cluster(place)["blocked_offers"]) == (["ben"], []), 10, lambda: str(cluster(place)))
    give_back(control_plane, others, "quicker-still")
    place.hub.wait_ready("ben")


def test_a_machine_that_is_full_with_a_gpu_free_is_told_as_that_and_holds_up_nobody(
    place: ClusterPlace, played_nodes: PlayedNodes
):
    with played_nodes.node("outside-without", {}, labels=LABELS):
        played_nodes.set_allocatable(NODE, {"pods": 0})
        try:
            ask(place, "ada")
            says = "The machines with a free Small GPU are full now."
            until(lambda: says in str(last_event(place, "ada")), 20, lambda: str(last_event(place, "ada")))
            time.sleep(OUTSIDE_SECONDS + 1)  # as long as it takes to believe that somebody outside took a device
            assert says in last_event(place, "ada")["html_message"]
            assert cluster(place)["blocked_offers"] == []
        finally:
            played_nodes.set_allocatable(NODE, {"pods": 110})
    place.hub.wait_ready("ada")


def outside(event: dict[str, Any]) -> dict[str, Any]:
    """The event, when it says that something outside took the device."""
    return event if event.get("gpu", {}).get("why", {}).get("reason") == "outside" else {}


CHANGES: dict[str, tuple[dict[str, Any], dict[str, Any], int | None, str]] = {
    "cordoned": (
        {"spec": {"unschedulable": True}},
        {"spec": {"unschedulable": False}},
        0,
        "it is cordoned: nothing new is placed there",
    ),
    "tainted": (
        {"spec": {"taints": [{"key": "maintenance", "value": "now", "effect": "NoSchedule"}]}},
        {"spec": {"taints": []}},
        0,
        "the servers do not tolerate its taint maintenance=now:NoSchedule",
    ),
    "not-ready": (
        {"metadata": {"annotations": {"tests/ready": "False"}}},
        {"metadata": {"annotations": {"tests/ready": "True"}}},
        0,
        "it is not ready",
    ),
    "cut-anew": (
        {"metadata": {"labels": {"nvidia.com/mig.config.state": "pending"}}},
        {"metadata": {"labels": {"nvidia.com/mig.config.state": "success"}}},
        None,
        "its GPUs are being cut anew (nvidia.com/mig.config.state is pending): not known what it has",
    ),
}


@pytest.mark.parametrize("change", CHANGES)
def test_a_node_that_takes_nothing_new_is_not_counted_and_the_admin_is_told_why(
    place: ClusterPlace, played_nodes: PlayedNodes, change: str
):
    there, back, free, why = CHANGES[change]
    drained = change == "cordoned"  # by the admin's page, with our account and its right
    if drained:
        assert order(place, "drain") == 303
    else:
        played_nodes.patch(NODE, there)
    try:
        assert bool(spec_of(place).get("unschedulable")) == drained
        follows(place, free, change)
        assert (f"node {NODE}", why) in [(each["what"], each["why"]) for each in cluster(place)["left_out"]]
        ask(place, "ada")
        told = until(lambda: ticket(place, "ada")["reason"]["message"], 20)
        print(told)
        assert (
            told
            == {
                0: "Small GPU: none is there now. You are next.",
                None: "It is not known which GPUs are free now; once it is known, the line goes on. You are next.",
            }[free]
        )
        if drained:
            assert order(place, "undrain") == 303 and "unschedulable" not in spec_of(place)
    finally:
        played_nodes.patch(NODE, back)
    place.hub.wait_ready("ada")


def spec_of(place: ClusterPlace) -> dict[str, Any]:
    return dict(place.control_plane.call("GET", f"/api/v1/nodes/{NODE}")["spec"])


def order(place: ClusterPlace, what: str) -> int:
    """An admin orders it on the service's page, with a reason; what is answered."""
    url = f"http://{place.host}:{place.port}/services/gpu/admin/{what}"
    headers = {"Authorization": f"token {place.hub.token_of('root-admin')}"}
    sent = {"place": NODE, "why": "a new fan"}
    answer = requests.post(url, data=sent, headers=headers, allow_redirects=False, timeout=patient(20))
    print(what, answer.status_code, answer.text[:400])
    return answer.status_code


def test_a_lost_node_keeps_the_lease_until_it_is_back_or_an_admin_gives_it_up(
    place: ClusterPlace, played_nodes: PlayedNodes
):
    ask(place, "ada")
    place.hub.wait_ready("ada")
    before = until(lambda: (found := lease(place, "ada")) and found["state"] == "running" and found, 20)
    assert before["node"] == NODE
    played_nodes.set_ready(NODE, "Unknown")
    try:
        until(lambda: (lease(place, "ada") or {})["state"] == "lost", 20)
        until(lambda: place.offers()[OFFER]["free"] == 0, 20, "its node is counted no more")
        assert "its kubelet has not been heard of: it does not answer" in [x["why"] for x in cluster(place)["left_out"]]
        (notice,) = place.service("hub/form?user=ada").json()["notices"]
        print(notice["text"])
        assert notice["text"].startswith("The machine that your default server runs on does not answer.")
        assert give_up(place, "no-such-lease") == 404
        played_nodes.set_ready(NODE, "True")
        until(lambda: (lease(place, "ada") or {})["state"] == "running", 20)
        assert give_up(place, before["lease"]) == 409  # it answers: stop the server instead
        assert same(lease(place, "ada")) == same(before)
        played_nodes.set_ready(NODE, "Unknown")
        until(lambda: (lease(place, "ada") or {})["state"] == "lost", 20)
        assert give_up(place, before["lease"]) == 204
        until(lambda: lease(place, "ada") is None, 20)
        assert "ada" not in place.pods()
    finally:
        played_nodes.set_ready(NODE, "True")


def same(told: dict[str, Any] | None) -> tuple[object, ...]:
    """What of a lease stays."""
    return tuple((told or {}).get(key) for key in ("lease", "offer", "state", "pod", "node"))


def give_up(place: ClusterPlace, lease_id: str) -> int:
    """An admin gives a lease up, by the API; its status."""
    url = f"http://{place.host}:{place.port}/services/gpu/api/leases/{lease_id}"
    token = place.hub.token_of("root-admin")
    return requests.delete(url, headers={"Authorization": f"token {token}"}, timeout=patient(20)).status_code


def forgotten(place: ClusterPlace) -> list[str]:
    return [one["pod"] for one in cluster(place)["orphaned_pods"]]


def test_a_pod_with_our_labels_that_the_hub_never_made_is_shown_and_removed_by_policy(place: ClusterPlace):
    labels = {"jupyterhub-gpu/lease": "nobodys", "jupyterhub-gpu/offer": OFFER}
    marks = {"hub.jupyter.org/username": "zoe", "hub.jupyter.org/servername": ""}
    made = pod("jupyter-zoe", labels=labels, annotations=marks)
    place.control_plane.call("POST", f"/api/v1/namespaces/{place.namespace}/pods", made)
    began = time.monotonic()
    follows(place, 1, "a pod of nobody")
    until(lambda: forgotten(place) == ["jupyter-zoe"], 20, lambda: str(cluster(place)))
    until(lambda: "zoe" not in place.pods(), 30, "it is removed")
    assert time.monotonic() - began >= FORGOTTEN_SECONDS
    until(lambda: forgotten(place) == [], 20)


def test_a_pod_whose_server_is_gone_from_the_hubs_database_keeps_its_device_until_it_is_removed(place: ClusterPlace):
    ask(place, "ada")
    place.hub.wait_ready("ada")
    before = until(lambda: (found := lease(place, "ada")) and found["state"] == "running" and found, 20)
    place.hub.kill()
    with closing(sqlite3.connect(place.hub.folder / "jupyterhub.sqlite")) as database, database:
        database.execute("UPDATE spawners SET server_id = NULL, state = '{}'")
    place.hub.start()
    place.wait_service()
    assert place.hub.server("ada") is None
    until(lambda: quietly_forgotten(place) == ["jupyter-ada"], 60, lambda: str(cluster(place)))
    now = lease(place, "ada")
    assert now is not None and now["lease"] == before["lease"]
    assert place.offers()[OFFER]["free"] == 1
    until(lambda: "ada" not in place.pods(), 60, "it is removed")
    until(lambda: lease(place, "ada") is None, 20, "its lease has ended")


def quietly_forgotten(place: ClusterPlace) -> list[str]:
    try:
        return forgotten(place)
    except requests.RequestException:  # the service is being started
        return []
