"""Who can be placed where, with a real hub and the real scheduler: nobody waits for a node that is not his.

Two played nodes with one MIG device each. What keeps a server to one of them is what its pod says when it is made: a
profile's node selector, the zone of the volume with its user's files, a taint that a profile tolerates.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import fresh_namespace
from tests.cluster.place import ClusterPlace
from tests.cluster.played_nodes import PlayedNodes
from tests.cluster.responder import Responder
from tests.cluster.test_outside import HERE as ELSEWHERE
from tests.cluster.test_outside import LABELS as OF_ELSEWHERE
from tests.cluster.test_outside import OFFER, SMALL, give_back, pod, ticket
from tests.hubs import until
from tests.patience import patient

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(patient(300))]

HERE = {"tests/place": "node-sets"}
LABELS = {**{key: value for key, value in OF_ELSEWHERE.items() if key not in ELSEWHERE}, **HERE}
ZONE = "topology.kubernetes.io/zone"
TAINT = {"key": "team", "value": "b", "effect": "NoSchedule"}
OUTSIDE_SECONDS = 3
HOME = {"name": "home", "persistentVolumeClaim": {"claimName": "home-{username}"}}
PROFILES: list[dict[str, Any]] = [
    {"display_name": "Anywhere", "slug": "anywhere", "default": True},
    {"display_name": "On a", "slug": "on-a", "kubespawner_override": {"node_selector": {ZONE: "a"}}},
    {"display_name": "With files", "slug": "with-files", "kubespawner_override": {"volumes": [HOME]}},
    {
        "display_name": "Team b",
        "slug": "team-b",
        "kubespawner_override": {"tolerations": [{"key": "team", "operator": "Equal", "value": "b"}]},
    },
]


@pytest.fixture(scope="module")
def place(
    control_plane: ControlPlane, played_nodes: PlayedNodes, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[ClusterPlace]:
    with (
        Responder() as responder,
        fresh_namespace(control_plane, "node-sets") as namespace,
        played_nodes.node("set-a", {SMALL: 1}, labels={**LABELS, ZONE: "a"}),
        played_nodes.node("set-b", {SMALL: 1}, labels={**LABELS, ZONE: "b"}),
    ):
        config = f"""
c.KubeSpawner.port = {responder.port}
c.KubeSpawner.node_selector = {HERE!r}
c.KubeSpawner.profile_list = {PROFILES!r}
c.GpuCluster.unschedulable_seconds = {OUTSIDE_SECONDS}
c.GpuKubeSpawner.gpu_unschedulable_seconds = {OUTSIDE_SECONDS}
"""
        folder = tmp_path_factory.mktemp("node-sets")
        with ClusterPlace(control_plane, namespace, folder, config=config).open() as place:
            place.hub.add_users("ada", "ben")
            bind_home(control_plane, namespace, "home-ada", "a")
            yield place
        control_plane.call("DELETE", f"/api/v1/persistentvolumes/{namespace}-home-ada")


def bind_home(control_plane: ControlPlane, namespace: str, claim: str, zone: str) -> None:
    """A claim bound to a volume that only this zone's nodes reach."""
    (volume, size) = f"{namespace}-{claim}", {"storage": "1Gi"}
    expression = {"key": ZONE, "operator": "In", "values": [zone]}
    spec = {"accessModes": ["ReadWriteOnce"], "storageClassName": ""}
    control_plane.call(
        "POST",
        "/api/v1/persistentvolumes",
        {
            "apiVersion": "v1",
            "kind": "PersistentVolume",
            "metadata": {"name": volume},
            "spec": {
                **spec,
                "capacity": size,
                "csi": {"driver": "played.tests", "volumeHandle": volume},
                "claimRef": {"namespace": namespace, "name": claim},
                "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [expression]}]}},
            },
        },
    )
    path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
    wanted = {**spec, "volumeName": volume, "resources": {"requests": size}}
    control_plane.call(
        "POST",
        path,
        {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": wanted},
    )
    until(lambda: control_plane.call("GET", f"{path}/{claim}")["status"]["phase"] == "Bound", 20, "it is bound")


@pytest.fixture(scope="module")
def others(control_plane: ControlPlane) -> Iterator[str]:
    with fresh_namespace(control_plane, "others-of-a") as namespace:
        yield namespace


@pytest.fixture
def a_is_full(control_plane: ControlPlane, place: ClusterPlace, others: str) -> Iterator[str]:
    """A pod ``others`` has the device of node a. Gives its namespace."""
    place.until_offered(OFFER, 2, 60)
    taken = pod("others")
    taken["spec"]["nodeName"] = "set-a"
    control_plane.call("POST", f"/api/v1/namespaces/{others}/pods", taken)
    place.until_offered(OFFER, 1)
    try:
        yield others
    finally:
        for user in ("ada", "ben"):
            place.hub.stop_server(user)
        for left in control_plane.call("GET", f"/api/v1/namespaces/{others}/pods")["items"]:
            give_back(control_plane, others, left["metadata"]["name"])


def ask(place: ClusterPlace, user: str, profile: str) -> None:
    options = {"offer": OFFER, "profile": profile}
    assert place.hub.spawn(user, {"user_options": options}).status_code in (201, 202)


def node_of(place: ClusterPlace, user: str) -> str:
    return str(place.pods()[user]["spec"].get("nodeName", ""))


@pytest.mark.parametrize("profile", ["on-a", "with-files"])
def test_whose_node_is_full_waits_for_it_and_the_next_starts_on_the_other(
    control_plane: ControlPlane, place: ClusterPlace, a_is_full: str, profile: str
):
    ask(place, "ada", profile)
    until(lambda: "ada" in place.waiting() or "ada" in place.pods(), 20, "ada has joined, or was let in")
    ask(place, "ben", "anywhere")
    place.hub.wait_ready("ben", seconds=OUTSIDE_SECONDS + 20)
    assert node_of(place, "ben") == "set-b"
    assert (place.waiting(), set(place.pods())) == (["ada"], {"ben"})
    told = ticket(place, "ada")["reason"]
    print(told["message"])
    assert told["message"] == (
        "Small GPU: the only one on the machines that your server may use is in use. You are next."
    )
    assert place.as_admin("api/cluster")["blocked_offers"] == []
    give_back(control_plane, a_is_full, "others")
    place.hub.wait_ready("ada")
    assert node_of(place, "ada") == "set-a"


def test_a_node_whose_taint_only_a_profile_tolerates_is_that_profiles(
    place: ClusterPlace, played_nodes: PlayedNodes, a_is_full: str
):
    played_nodes.patch("set-b", {"spec": {"taints": [TAINT]}})
    try:
        place.until_offered(OFFER, 0)
        ask(place, "ada", "anywhere")
        until(lambda: "ada" in place.waiting(), 20, "ada waits: node b is not for her")
        ask(place, "ben", "team-b")
        place.hub.wait_ready("ben")
        assert node_of(place, "ben") == "set-b"
        assert (place.waiting(), set(place.pods())) == (["ada"], {"ben"})
    finally:
        played_nodes.patch("set-b", {"spec": {"taints": []}})
