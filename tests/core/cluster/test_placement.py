"""The nodes that a pod may use, by the filters of kube-scheduler. ``tests/cluster`` compares with the real
scheduler.
"""

from __future__ import annotations

from typing import Any

import pytest

from hub_extensions.core.cluster.model import NodeFacts, Taint, VolumeFacts, Volumes
from hub_extensions.core.cluster.placement import NodeSets, PodDemands, can_use_node, demands_of, volume_of

ZONE = "topology.kubernetes.io/zone"
OLD_ZONE = "failure-domain.beta.kubernetes.io/zone"
NODE = NodeFacts("n1", {"rack": "7", ZONE: "a", "disk": ""}, {})


def pod(**spec: Any) -> dict[str, Any]:
    return {"metadata": {}, "spec": spec}


def affinity(*terms: dict[str, Any]) -> dict[str, Any]:
    required = {"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": list(terms)}}
    return {"affinity": {"nodeAffinity": required}}


def label(key: str, operator: str, *values: str) -> dict[str, Any]:
    return {"matchExpressions": [{"key": key, "operator": operator, "values": list(values)}]}


def named(operator: str, *values: str) -> dict[str, Any]:
    return {"matchFields": [{"key": "metadata.name", "operator": operator, "values": list(values)}]}


@pytest.mark.parametrize(
    ("spec", "fits"),
    [
        ({}, True),
        ({"nodeSelector": {"rack": "7"}}, True),
        ({"nodeSelector": {"rack": "8"}}, False),
        ({"nodeSelector": {"disk": ""}}, True),
        ({"nodeSelector": {"none": ""}}, False),
        (affinity(label("rack", "In", "6", "7")), True),
        (affinity(label("rack", "In", "6")), False),
        (affinity(label("none", "NotIn", "6")), True),
        (affinity(label("rack", "NotIn", "7")), False),
        (affinity(label("rack", "Exists")), True),
        (affinity(label("none", "Exists")), False),
        (affinity(label("none", "DoesNotExist")), True),
        (affinity(label("rack", "Gt", "6")), True),
        (affinity(label("rack", "Gt", "7")), False),
        (affinity(label("rack", "Lt", "+8")), True),
        (affinity(label(ZONE, "Gt", "1")), False),
        (affinity(label("none", "Lt", "1")), False),
        (affinity(label("rack", "Gt", str(2**63))), False),
        (affinity(named("In", "n1")), True),
        (affinity(named("NotIn", "n1")), False),
        (affinity(label("rack", "In", "8"), named("In", "n1")), True),
        (affinity(label("rack", "In", "8") | named("In", "n1")), False),
        (affinity({}), False),
        (affinity(), False),
        ({"nodeSelector": {"rack": "7"}, **affinity(label("rack", "In", "8"))}, False),
    ],
)
def test_labels_and_the_name_are_matched_as_the_scheduler_does(spec: dict[str, Any], fits: bool) -> None:
    assert can_use_node(demands_of(pod(**spec), "jhub"), (), NODE) is fits


TAINTED = NodeFacts("n2", {}, {}, (Taint("team", "b", "NoSchedule"), Taint("soft", "", "PreferNoSchedule")))


@pytest.mark.parametrize(
    ("toleration", "fits"),
    [
        (None, False),
        ({"key": "team", "operator": "Equal", "value": "b"}, True),
        ({"key": "team", "value": "b", "effect": "NoSchedule"}, True),
        ({"key": "team", "value": "c"}, False),
        ({"key": "team", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "team", "operator": "Exists"}, True),
        ({"operator": "Exists"}, True),
        ({"key": "other", "operator": "Exists"}, False),
    ],
)
def test_a_taint_has_to_be_tolerated(toleration: dict[str, str] | None, fits: bool) -> None:
    tolerations = [toleration] if toleration else []
    assert can_use_node(demands_of(pod(tolerations=tolerations), "jhub"), (), TAINTED) is fits


def test_the_taint_of_gpu_nodes_is_tolerated_by_every_offer() -> None:
    gpu = NodeFacts("n3", {}, {}, (Taint("nvidia.com/gpu", "present", "NoSchedule"),))
    assert can_use_node(PodDemands(), (), gpu)
    assert not can_use_node(PodDemands(), (), NodeFacts("n3", {}, {}, (Taint("nvidia.com/gpu", "", "NoExecute"),)))


def volume(labels: dict[str, str] | None = None, *terms: dict[str, Any]) -> VolumeFacts | None:
    spec = {"nodeAffinity": {"required": {"nodeSelectorTerms": list(terms)}}} if terms else {}
    return volume_of({"metadata": {"labels": labels or {}}, "spec": spec})


@pytest.mark.parametrize(
    ("labels", "terms", "node", "fits"),
    [
        ({}, [label(ZONE, "In", "a")], NODE, True),
        ({}, [label(ZONE, "In", "b")], NODE, False),
        ({ZONE: "a__b"}, [], NODE, True),
        ({ZONE: "b"}, [], NODE, False),
        ({OLD_ZONE: "b"}, [], NODE, False),
        ({OLD_ZONE: "a"}, [], NODE, True),
        ({ZONE: "a"}, [], NodeFacts("old", {OLD_ZONE: "a"}, {}), False),
        ({ZONE: "b"}, [], NodeFacts("plain", {}, {}), True),
    ],
)
def test_a_volume_is_reached_from_its_zone_only(
    labels: dict[str, str], terms: list[dict[str, Any]], node: NodeFacts, fits: bool
) -> None:
    found = volume(labels, *terms)
    assert found is not None
    assert can_use_node(PodDemands(), (found,), node) is fits


def test_a_volume_that_every_node_reaches_is_not_kept() -> None:
    assert volume({"app": "x"}) is None


def test_what_a_volume_says_of_a_nodes_name_the_scheduler_does_not_read() -> None:
    assert volume({}, named("In", "n9")) is None
    assert volume({}, label(ZONE, "In", "b"), named("In", "n9")) is None
    both = volume({}, label(ZONE, "In", "b") | named("In", "n9"))
    assert both == volume({}, label(ZONE, "In", "b"))


def test_a_claim_that_is_not_bound_or_not_known_constrains_nothing() -> None:
    in_b = volume({}, label(ZONE, "In", "b"))
    assert in_b is not None
    wanted = demands_of(
        pod(volumes=[{"name": "h", "persistentVolumeClaim": {"claimName": "home"}}, {"name": "x"}]), "ns"
    )
    assert wanted.claims == ("ns/home",)
    sets = NodeSets()
    sets.know({"n1": NODE}, Volumes())
    assert sets.of(wanted) == {"n1"}
    sets.know({"n1": NODE}, Volumes({"ns/home": "pv"}, {"pv": in_b}))
    assert sets.of(wanted) == frozenset()
    sets.know({"n1": NODE}, Volumes({"ns/home": "pv"}, {}))
    assert sets.of(wanted) == {"n1"}


def test_a_node_that_changed_is_matched_again_and_nodes_that_cannot_be_read_are_not_known() -> None:
    sets, wanted = NodeSets(), PodDemands(selector=(("rack", "7"),))
    assert sets.of(wanted) is None
    assert sets.know({"n1": NODE}, Volumes())
    assert not sets.know({"n1": NODE}, Volumes())
    assert (sets.of(None), sets.of(wanted)) == (None, {"n1"})
    assert sets.know({"n1": NodeFacts("n1", {"rack": "8"}, {})}, Volumes())
    assert sets.of(wanted) == frozenset()
