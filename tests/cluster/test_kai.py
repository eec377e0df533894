"""A hub whose line is KAI-Scheduler's: what our side does, against a real API server. KAI itself is not run here.

The tests write what KAI writes: why a pod has no place (its condition and event), the binding, and the condition and
the deletion with which it takes a GPU back; texts of KAI-Scheduler v0.17.0.
"""

from __future__ import annotations

from collections.abc import Iterator
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pytest

from tests.cluster.control_plane import ControlPlane
from tests.cluster.others_line import OthersLine
from tests.cluster.played_nodes import PlayedNodes
from tests.cluster.responder import Responder
from tests.hubs import until
from tests.patience import patient

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.timeout(patient(300))]

HERE = {"tests/place": "kai"}
CARD = {"nvidia.com/gpu.product": "NVIDIA-KAI-40GB", "nvidia.com/gpu.memory": "40960"}
NO_ROOM = "no nodes with enough resources were found: 2 node(s) didn't have enough resources: GPUs."
NO_QUEUE = "QueueDoesNotExist: Queue 'lab' does not exist."
MINE = (
    "NonPreemptibleOverQuota: Non-preemptible workload is over quota. Workload requested 1 GPUs, but lab quota is 2 "
    "GPUs, while 2 GPUs are already allocated for non-preemptible pods."
)
TAKEN = "Pod x/jupyter-ada was preempted by workload x/pg-jupyter-b0-1. lab uses <GPU: 8> with a quota of <GPU: 2>"


class KaisHand:
    """Writes to pods what KAI does."""

    def __init__(self, cluster: ControlPlane, namespace: str) -> None:
        self._cluster = cluster
        self._pods = f"/api/v1/namespaces/{namespace}/pods"
        self._namespace = namespace

    def leaves_waiting(self, name: str, why: str) -> None:
        """Its condition and its event."""
        self._condition(name, "PodScheduled", "False", "Unschedulable", why)
        self._event(name, "Unschedulable", why)

    def binds(self, name: str, node: str) -> None:
        target = {"apiVersion": "v1", "kind": "Node", "name": node}
        binding = {"apiVersion": "v1", "kind": "Binding", "metadata": {"name": name}, "target": target}
        self._cluster.call("POST", f"{self._pods}/{name}/binding", binding)

    def takes_back(self, name: str, *, tells: bool) -> None:
        """Deletes it. ``tells``: with the flag ``--update-pod-eviction-condition=true``; else the pod shows nothing.

        It stays there with all it shows, as a kubelet leaves it while it ends the containers, until `lets_go`.
        """
        self._held(name, ["tests/held"])
        if tells:
            self._condition(name, "DisruptionTarget", "True", "PreemptionByScheduler", TAKEN)
        self._cluster.call("DELETE", f"{self._pods}/{name}?gracePeriodSeconds=1")

    def lets_go(self, name: str) -> None:
        """The pod is removed at last."""
        self._held(name, [])

    def _held(self, name: str, finalizers: list[str]) -> None:
        content = "application/merge-patch+json"
        self._cluster.call("PATCH", f"{self._pods}/{name}", {"metadata": {"finalizers": finalizers}}, content)

    def _condition(self, name: str, kind: str, status: str, reason: str, message: str) -> None:
        """Without a time a *DisruptionTarget* would be stale: the disruption controller takes it back at once."""
        condition = {"type": kind, "status": status, "reason": reason, "message": message, "lastTransitionTime": _now()}
        content = "application/strategic-merge-patch+json"
        self._cluster.call("PATCH", f"{self._pods}/{name}/status", {"status": {"conditions": [condition]}}, content)

    def _event(self, name: str, reason: str, message: str) -> None:
        uid = self._cluster.call("GET", f"{self._pods}/{name}")["metadata"]["uid"]
        now = _now()
        about = {"kind": "Pod", "namespace": self._namespace, "name": name, "uid": uid, "apiVersion": "v1"}
        event = {
            "metadata": {"generateName": f"{name}."},
            "involvedObject": about,
            "reason": reason,
            "message": message,
            "type": "Warning",
            "source": {"component": "kai-scheduler"},
            "firstTimestamp": now,
            "lastTimestamp": now,
            "count": 1,
        }
        self._cluster.call("POST", f"/api/v1/namespaces/{self._namespace}/events", event)


def _now() -> str:
    return datetime.now(timezone.utc).strftime("%Y-%m-%dT%H:%M:%SZ")


@pytest.fixture
def place(
    control_plane: ControlPlane, played_nodes: PlayedNodes, namespace: str, tmp_path: Path
) -> Iterator[OthersLine]:
    config = """
c.GpuCluster.kai_queue = "lab"
c.GpuCluster.fraction_scheduler = "kai"
c.GpuOffers.fractions = {"gpu": [0.5]}
c.GpuOffers.memory_gib = {"gpu": [8, 48]}
"""
    with Responder() as responder, played_nodes.node("kais", {"nvidia.com/gpu": 1}, labels=HERE | CARD):
        made = OthersLine(control_plane, namespace, tmp_path, where=HERE, port=responder.port, config=config)
        with made.open():
            until(lambda: {"gpu"} < set(made.offers()), 30, lambda: f"offers: {made.offers()}")
            made.hub.add_users("ada", "ben", "cem", "dan")
            yield made


def test_a_pod_is_kais_to_place_and_what_it_says_is_told(
    control_plane: ControlPlane, place: OthersLine, namespace: str
) -> None:
    kai = KaisHand(control_plane, namespace)
    half = next(offer for offer in place.offers() if offer.startswith("gpu-0.5"))
    eight = next(offer for offer in place.offers() if offer.startswith("gpu-8gib"))
    assert not any("48gib" in offer for offer in place.offers()), "the card is smaller"
    place.hub.spawn("ada", {"offer": "gpu"})
    place.hub.spawn("ben", {"offer": half})
    place.hub.spawn("cem", {"offer": "cpu"})
    place.hub.spawn("dan", {"offer": eight})
    place.hub.wait_ready("cem", seconds=60)
    until(lambda: {"ada", "ben", "dan"} <= set(place.pods()), 30, "their pods are made at once: the line is KAI's")

    whole, part, plain, memory = (place.pods()[user] for user in ("ada", "ben", "cem", "dan"))
    print("whole:", _asked(whole), "half:", _asked(part), "8 GiB:", _asked(memory), "CPU only:", _asked(plain))
    assert _asked(whole) == ("kai-scheduler", "lab", {}, {"nvidia.com/gpu": "1"})
    assert _asked(part) == ("kai-scheduler", "lab", {"gpu-fraction": "0.5"}, {})
    assert _asked(memory) == ("kai-scheduler", "lab", {"gpu-memory": "8192"}, {})
    assert _asked(plain) == ("default-scheduler", None, {}, {})
    assert whole["status"]["phase"] == "Pending" and place.waiting() == []

    for why, text in (
        (NO_ROOM, "KAI hands out the GPUs here. All GPUs of that kind are in use."),
        (MINE, "Your group uses all the GPUs that are its own."),
        (NO_QUEUE, "KAI, which hands out the GPUs here, does not know the line it was sent to. Tell an admin."),
    ):
        kai.leaves_waiting("jupyter-ada", why)
        said = place.until_said("ada", text)
        print("the page:", said["html_message"])
        assert said["gpu"]["state"] == "held" and "outside this hub" not in said["html_message"]
    assert why in place.hub.log(), "KAI's own words are in the log"

    kai.binds("jupyter-ada", "kais")
    place.hub.wait_ready("ada", seconds=60)
    logged = len(place.hub.log())
    kai.takes_back("jupyter-ada", tells=True)
    until(lambda: f"Deleting pod {namespace}/jupyter-ada" in place.hub.log()[logged:], 30, "the hub sees its end")
    kai.lets_go("jupyter-ada")
    until(lambda: place.notices("ada"), 30, "the user is told")
    print("the next form:", place.notices("ada"), place.ends())
    assert any("KAI took its GPU back for a group that has a right to it." in text for text in place.notices("ada"))
    assert place.ends() == {"reclaimed": 1.0}

    kai.binds("jupyter-ben", "kais")
    place.hub.wait_ready("ben", seconds=60)
    logged = len(place.hub.log())
    kai.takes_back("jupyter-ben", tells=False)
    until(lambda: f"Deleting pod {namespace}/jupyter-ben" in place.hub.log()[logged:], 30, "the hub sees its end")
    kai.lets_go("jupyter-ben")
    until(lambda: place.notices("ben"), 30, "the user is told")
    print("the next form:", place.notices("ben"), place.ends())
    assert any("KAI took its GPU back, or somebody removed it" in text for text in place.notices("ben"))
    assert place.ends() == {"reclaimed": 1.0, "gone": 1.0}


def _asked(pod: dict[str, Any]) -> tuple[str, str | None, dict[str, str], dict[str, str]]:
    """Scheduler, queue, annotations of KAI's and GPU limits of a pod."""
    about, limits = pod["metadata"], pod["spec"]["containers"][0]["resources"].get("limits") or {}
    gpus = {key: value for key, value in limits.items() if key.startswith("nvidia.com/")}
    queue = about["labels"].get("kai.scheduler/queue")
    parts = {key: value for key, value in about.get("annotations", {}).items() if key.startswith("gpu-")}
    return pod["spec"]["schedulerName"], queue, parts, gpus
