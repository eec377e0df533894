"""The real scheduler agrees: of random pods it places as many as we count free for them, on nodes that we say."""

from __future__ import annotations

import random
import time
from collections import Counter
from collections.abc import Iterator
from typing import Any

import pytest

from hub_extensions.adapters.kubernetes.parse import bound_volume, node_of, volume_kept
from hub_extensions.core.cluster.model import Volumes
from hub_extensions.core.cluster.placement import NodeSets, demands_of
from hub_extensions.core.cluster.pools import NodeRoom
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.queue.node_sets import NodeRooms, NodeWish
from tests.cluster.control_plane import ControlPlane
from tests.cluster.namespaces import fresh_namespace
from tests.cluster.played_nodes import PlayedNodes
from tests.hubs import until
from tests.patience import patient

pytestmark = [pytest.mark.needs("cluster"), pytest.mark.whole, pytest.mark.timeout(patient(200))]

CASES = 50
HERE = {"tests/place": "placement"}
ZONE, OLD_ZONE, RACK = "topology.kubernetes.io/zone", "failure-domain.beta.kubernetes.io/zone", "tests/rack"
TAINTS = (
    {"key": "tests/team", "value": "x", "effect": "NoSchedule"},
    {"key": "tests/drain", "effect": "NoExecute"},
    {"key": "tests/soft", "effect": "PreferNoSchedule"},
    {"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"},
)
NODES: dict[str, tuple[dict[str, str], list[dict[str, str]]]] = {
    "placed-1": ({ZONE: "a", RACK: "1"}, []),
    "placed-2": ({ZONE: "a", RACK: "2"}, [TAINTS[0]]),
    "placed-3": ({ZONE: "b", RACK: "10"}, [TAINTS[3]]),
    "placed-4": ({OLD_ZONE: "a", RACK: "x"}, [TAINTS[2]]),
    "placed-5": ({}, [TAINTS[1]]),
    "placed-6": ({ZONE: "b", RACK: "3"}, []),
}
TOLERATIONS = (
    {"key": "tests/team", "operator": "Equal", "value": "x", "effect": "NoSchedule"},
    {"key": "tests/team", "operator": "Equal", "value": "y"},
    {"key": "tests/drain", "operator": "Exists"},
    {"operator": "Exists"},
)
OF_EVERY_OFFER = {"key": "nvidia.com/gpu", "operator": "Exists", "effect": "NoSchedule"}


def volumes() -> dict[str, dict[str, Any]]:
    """Claim -> what its volume says of nodes."""
    in_a = {"matchExpressions": [{"key": ZONE, "operator": "In", "values": ["a"]}]}
    local = {"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["placed-6"]}]}
    return {
        "in-a": {"terms": [in_a]},
        "local": {"terms": [local]},
        "either": {"terms": [in_a, local]},
        "by-label": {"labels": {ZONE: "b__c"}},
        "by-old-label": {"labels": {OLD_ZONE: "a"}},
    }


def a_term(rng: random.Random) -> dict[str, Any]:
    if rng.random() < 0.25:
        operator = rng.choice(["In", "NotIn"])
        return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": [rng.choice(list(NODES))]}]}
    expressions = []
    for _ in range(rng.randint(1, 2)):
        operator = rng.choice(["In", "NotIn", "Exists", "DoesNotExist", "Gt", "Lt"])
        key = RACK if operator in ("Gt", "Lt") else rng.choice([ZONE, RACK, "tests/none"])
        values = {"Gt": [rng.choice("029")], "Lt": [rng.choice("39")]}.get(operator, [])
        values = rng.sample(["a", "b", "1", "2", "x"], 2) if operator in ("In", "NotIn") else values
        expressions.append({"key": key, "operator": operator, **({"values": values} if values else {})})
    return {"matchExpressions": expressions}


def a_spec(rng: random.Random) -> dict[str, Any]:
    """What a pod says of nodes."""
    spec: dict[str, Any] = {"nodeSelector": dict(HERE)}
    if rng.random() < 0.3:
        spec["nodeSelector"][ZONE] = rng.choice("ab")
    if rng.random() < 0.6:
        terms = [a_term(rng) for _ in range(rng.randint(1, 2))]
        required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}}
        spec["affinity"] = {"nodeAffinity": required}
    spec["tolerations"] = [*rng.sample(TOLERATIONS, rng.randint(0, 2)), OF_EVERY_OFFER]
    if rng.random() < 0.4:
        claim = rng.choice(list(volumes()))
        spec["volumes"] = [{"name": "home", "persistentVolumeClaim": {"claimName": claim}}]
    return spec


@pytest.fixture(scope="module")
def namespace(control_plane: ControlPlane) -> Iterator[str]:
    storage = {"accessModes": ["ReadWriteMany"], "storageClassName": ""}
    size = {"storage": "1Gi"}
    with fresh_namespace(control_plane, "placement") as namespace:
        for claim, says in volumes().items():
            spec = {
                **storage,
                "capacity": size,
                "csi": {"driver": "played.tests", "volumeHandle": claim},
                "claimRef": {"namespace": namespace, "name": claim},
            }
            if "terms" in says:
                spec["nodeAffinity"] = {"required": {"nodeSelectorTerms": says["terms"]}}
            about = {"name": f"placement-{claim}", "labels": says.get("labels", {})}
            volume = {"apiVersion": "v1", "kind": "PersistentVolume", "metadata": about, "spec": spec}
            control_plane.call("POST", "/api/v1/persistentvolumes", volume)
            wanted = {**storage, "volumeName": about["name"], "resources": {"requests": size}}
            made = {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": claim}, "spec": wanted}
            control_plane.call("POST", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims", made)
        path = f"/api/v1/namespaces/{namespace}/persistentvolumeclaims"
        until(lambda: all(one["status"]["phase"] == "Bound" for one in control_plane.call("GET", path)["items"]), 30)
        yield namespace
    for claim in volumes():
        control_plane.call("DELETE", f"/api/v1/persistentvolumes/placement-{claim}")


def resource(case: int) -> str:
    """Each case has devices of its own."""
    return f"nvidia.com/case-{case}"


def test_the_scheduler_places_as_many_as_are_free_for_a_pod(
    control_plane: ControlPlane, played_nodes: PlayedNodes, namespace: str
):
    seed = 20261124
    rng = random.Random(seed)
    began = time.monotonic()
    for name, (labels, taints) in NODES.items():
        has = {resource(case): rng.randint(0, 2) for case in range(CASES)}
        played_nodes.add(name, {**has, "pods": 500}, {**HERE, **labels}, taints)
    try:
        specs = [a_spec(rng) for _ in range(CASES)]
        counted = [free_for(control_plane, namespace, case, spec) for case, spec in enumerate(specs)]
        for case, (spec, (free, _)) in enumerate(zip(specs, counted, strict=True)):
            for number in range(free + 1):  # the last one finds nothing
                make_pod(control_plane, namespace, case, number, spec)
        made = sum(free + 1 for free, _ in counted)
        placed = until(lambda: judged(control_plane, namespace, made), 60, "all are judged by the scheduler")
        said = Counter(free for free, _ in counted)
        print(f"{CASES} cases, {made} pods, free for them {dict(said)}: {time.monotonic() - began:.1f} s")
        for case, (free, nodes) in enumerate(counted):
            where = placed[case]
            assert len(where) == free, (seed, case, specs[case], free, where)
            assert set(where) <= nodes, (seed, case, specs[case])
        assert len(said) > 3, "and they are of many kinds"
    finally:
        control_plane.call("DELETE", f"/api/v1/namespaces/{namespace}/pods?gracePeriodSeconds=0")
        for name in NODES:
            played_nodes.remove(name)


def free_for(
    control_plane: ControlPlane, namespace: str, case: int, spec: dict[str, Any]
) -> tuple[int, frozenset[str]]:
    """By our own reading: how many are free for such a pod, and where it may be."""
    nodes = {one["metadata"]["name"]: one for one in control_plane.call("GET", "/api/v1/nodes")["items"]}
    known = {name: facts for name in NODES if (facts := node_of(nodes[name])) is not None}
    listed = control_plane.call("GET", f"/api/v1/namespaces/{namespace}/persistentvolumeclaims")["items"]
    claims = {f"{namespace}/{one['metadata']['name']}": bound for one in listed if (bound := bound_volume(one))}
    all_volumes = control_plane.call("GET", "/api/v1/persistentvolumes")["items"]
    constrained = {one["metadata"]["name"]: facts for one in all_volumes if (facts := volume_kept(one)) is not None}
    sets = NodeSets()
    sets.know(known, Volumes(claims, constrained))
    mine = sets.of(demands_of({"spec": spec}, namespace)) or frozenset()
    count = {name: facts.allocatable.get(resource(case), 0) for name, facts in known.items()}
    rooms = NodeRooms({name: NodeRoom(number, {WHOLE: number}) for name, number in count.items()})
    return rooms.free(NodeWish(mine, WHOLE), {}), mine


def make_pod(control_plane: ControlPlane, namespace: str, case: int, number: int, spec: dict[str, Any]) -> None:
    limits = {"cpu": "1m", "memory": "1Mi", resource(case): "1"}
    strict = {"allowPrivilegeEscalation": False, "capabilities": {"drop": ["ALL"]}}
    container = {"name": "notebook", "image": "played", "resources": {"limits": limits}, "securityContext": strict}
    safe = {"runAsNonRoot": True, "runAsUser": 1000, "seccompProfile": {"type": "RuntimeDefault"}}
    about = {"name": f"case-{case}-{number}", "labels": {"case": str(case)}}
    made = {**spec, "containers": [container], "securityContext": safe}
    body = {"apiVersion": "v1", "kind": "Pod", "metadata": about, "spec": made}
    control_plane.call("POST", f"/api/v1/namespaces/{namespace}/pods", body)


def judged(control_plane: ControlPlane, namespace: str, made: int) -> dict[int, list[str]] | None:
    """Case -> the nodes of those that are placed; None: the scheduler has not looked at all of them yet."""
    pods = control_plane.call("GET", f"/api/v1/namespaces/{namespace}/pods")["items"]
    placed: dict[int, list[str]] = {case: [] for case in range(CASES)}
    for one in pods:
        conditions = [each for each in one["status"].get("conditions", ()) if each["type"] == "PodScheduled"]
        if not conditions:
            return None
        if node := one["spec"].get("nodeName"):
            placed[int(one["metadata"]["labels"]["case"])].append(node)
    return placed if len(pods) == made else None
