"""One node: its kinds of devices by its labels, how many are free, and why they do not count."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from hub_extensions.core.cluster.model import ClusterConfig, NodeFacts, PodFacts, Requirement, Taint, Term
from hub_extensions.core.cluster.nodes import LeftOut, NodeReadings, NodeShare, read_node, reason_not_for_all
from hub_extensions.core.cluster.shared_gpus import KAI_RESERVATIONS
from hub_extensions.core.offers.pod_request import Mechanism
from tests.fakes.cluster_table import A100, node, pod

GIB = 1 << 30
MIG = "mig-1g.5gb"
GKE = "cloud.google.com/gke"
CLIENTS = f"{GKE}-max-shared-clients-per-gpu"
SLICED = {"nvidia.com/gpu.sharing-strategy": "time-slicing"}
PLAIN_MIG = f"nvidia.com/{MIG}"


USERS: Term = (Requirement("node-purpose", "In", ("user",)),)
ZONES: Term = (Requirement("zone", "In", ("b", "c")), Requirement("old", "DoesNotExist"))


def shares(subject: NodeFacts, *pods: PodFacts, ours: tuple[str, ...] = (), **config: object) -> list[NodeShare]:
    return list(read_node(subject, pods, ours, ClusterConfig(**config)).parts)  # type: ignore[arg-type]


def share(subject: NodeFacts, *pods: PodFacts, **more: object) -> NodeShare:
    (only,) = shares(subject, *pods, **more)  # type: ignore[arg-type]
    return only


def test_a_node_is_counted_once_as_long_as_nothing_about_it_changes() -> None:
    readings, config = NodeReadings(), ClusterConfig()
    subject, pods = node("a", (MIG, 2)), [pod("p", "a", asks=MIG), pod("q", "a", asks=MIG)]
    nobody, one = frozenset[str](), frozenset({"uid-p"})
    before = readings.read(subject, pods, nobody, config)
    for changed in (
        (subject, pods, one, config),
        (subject, pods, one, ClusterConfig(kai_queue="q")),
        (subject, pods[:1], one, ClusterConfig(kai_queue="q")),
        (subject, pods[1:], one, ClusterConfig(kai_queue="q")),
        (replace(subject), pods[1:], one, ClusterConfig(kai_queue="q")),
    ):
        after = readings.read(*changed)
        assert after is not before
        assert readings.read(*changed) is after
        before = after
    assert readings.read(subject, [], nobody, config) == read_node(subject, [], nobody, config)


def test_readings_of_nodes_that_are_gone_are_forgotten_and_the_others_kept() -> None:
    readings, config = NodeReadings(), ClusterConfig()
    there = {name: node(name, (MIG, 2)) for name in ("a", "b")}
    read = {name: readings.read(each, (), frozenset(), config) for name, each in there.items()}
    readings.forget_other_nodes(["a", "b"])
    assert readings.read(there["b"], (), frozenset(), config) is read["b"]
    readings.forget_other_nodes(["a"])
    assert readings.read(there["a"], (), frozenset(), config) is read["a"]
    assert readings.read(there["b"], (), frozenset(), config) is not read["b"]


# ------------------------------------------------------------------ why nothing of it counts


@pytest.mark.parametrize(
    ("changes", "config", "why", "closed"),
    [
        ({}, {}, "", False),
        ({"ready": False}, {}, "it is not ready", False),
        ({"cordoned": True}, {}, "it is cordoned: nothing new is placed there", False),
        ({}, {"node_labels": {"pool": "a"}}, "the servers' node selector wants pool=a", True),
        ({"labels": {"pool": "a"}}, {"node_labels": {"pool": "a"}}, "", False),
        ({"labels": {"pool": "a"}}, {"node_labels": {"pool": "a", "zone": "b"}}, "selector wants zone=b", True),
        ({}, {"node_terms": None}, "", False),
        ({}, {"node_terms": (USERS,)}, "the servers' node selector wants node-purpose=user", True),
        ({"labels": {"node-purpose": "user"}}, {"node_terms": (USERS,)}, "", False),
        ({"labels": {"node-purpose": "core"}}, {"node_terms": (USERS,)}, "wants node-purpose=user", True),
        ({"labels": {"zone": "b"}}, {"node_terms": (USERS, ZONES)}, "", False),
        (
            {"labels": {"zone": "a"}},
            {"node_terms": (USERS, ZONES)},
            "the servers' node selector wants node-purpose=user or zone in b, c and no old",
            True,
        ),
        ({"cordoned": True}, {"node_terms": (USERS,)}, "it is cordoned", True),
        (
            {"taints": (Taint("x", "1", "NoSchedule"),)},
            {},
            "the servers do not tolerate its taint x=1:NoSchedule",
            True,
        ),
        ({"taints": (Taint("x", "1", "NoExecute"),)}, {}, "its taint x=1:NoExecute", True),
        ({"taints": (Taint("x", "1", "PreferNoSchedule"),)}, {}, "", False),
        ({"taints": (Taint("x", "1", "PreferNoSchedule"), Taint("y", "", "NoSchedule"))}, {}, "taint y=", True),
        ({"taints": (Taint("nvidia.com/gpu", "", "NoSchedule"),)}, {}, "", False),
        ({"taints": (Taint("nvidia.com/gpu", "", "NoExecute"),)}, {}, "taint nvidia.com/gpu=", True),
        ({"taints": (Taint("node.kubernetes.io/not-ready", "", "NoExecute"),)}, {}, "not-ready", False),
        ({"taints": (Taint("node.cloudprovider.kubernetes.io/uninitialized", "", "NoSchedule"),)}, {}, "unini", False),
        (
            {"taints": (Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"), Taint("x", "", "NoSchedule"))},
            {},
            "node.kubernetes.io/unschedulable",
            True,
        ),
        ({"ready": False, "taints": (Taint("x", "", "NoSchedule"),)}, {}, "it is not ready", True),
    ],
)
def test_whether_servers_may_go_to_a_node_and_whether_they_ever_may(
    changes: dict[str, object], config: dict[str, object], why: str, closed: bool
) -> None:
    subject = node("a", (MIG, 2), **changes)
    found = read_node(subject, (), (), ClusterConfig(**config))  # type: ignore[arg-type]
    (part,) = found.parts
    assert (why in part.count.why, part.closed, part.unknown) == (True, closed, False)
    assert (part.count.total, part.count.free) == (2, 0 if why else 2)
    assert found.left_out == ((LeftOut("node a", part.count.why, part.count.because),) if why else ())
    assert reason_not_for_all(subject, ClusterConfig(**config)) == (part.count.because, False)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("tolerated", "taint", "may"),
    [
        (("x",), Taint("x", "1", "NoSchedule"), True),
        (("x",), Taint("x", "1", "NoExecute"), True),
        (("x=1",), Taint("x", "1", "NoSchedule"), True),
        (("x=2",), Taint("x", "1", "NoSchedule"), False),
        (("x:NoSchedule",), Taint("x", "1", "NoSchedule"), True),
        (("x:NoSchedule",), Taint("x", "1", "NoExecute"), False),
        (("x=1:NoExecute",), Taint("x", "1", "NoExecute"), True),
        (("*",), Taint("x", "1", "NoExecute"), True),
        (("*:NoExecute",), Taint("x", "1", "NoExecute"), True),
        (("*:NoExecute",), Taint("x", "1", "NoSchedule"), False),
        (("y", "z"), Taint("x", "1", "NoSchedule"), False),
        (("y", "x"), Taint("x", "1", "NoSchedule"), True),
    ],
)
def test_a_taint_is_tolerated_by_its_key_its_value_its_effect_or_with_all(
    tolerated: tuple[str, ...], taint: Taint, may: bool
) -> None:
    assert (reason_not_for_all(node("a", taints=(taint,)), ClusterConfig(tolerated=tolerated)) == (None, False)) is may


# ------------------------------------------------------------------ kinds of devices


@pytest.mark.parametrize(
    ("resource", "product", "labels", "base", "mechanism", "replicas"),
    [
        ("gpu", A100, {}, "gpu", Mechanism.WHOLE, 1),
        ("gpu", A100, {"nvidia.com/gpu.replicas": "4"}, "gpu", Mechanism.WHOLE, 1),
        ("gpu", A100, {**SLICED, "nvidia.com/gpu.replicas": "4"}, "gpu.shared", Mechanism.TIME_SLICING, 4),
        ("gpu", A100, SLICED, "gpu.shared", Mechanism.TIME_SLICING, 1),
        ("gpu", A100, {**SLICED, "nvidia.com/gpu.replicas": "0"}, "gpu.shared", Mechanism.TIME_SLICING, 1),
        ("gpu", A100, {"nvidia.com/gpu.sharing-strategy": "mps"}, "gpu.shared", Mechanism.MPS, 1),
        ("gpu", A100, {"nvidia.com/gpu.sharing-strategy": "none"}, "gpu", Mechanism.WHOLE, 1),
        ("gpu", A100, {CLIENTS: "4"}, "gpu.shared", Mechanism.TIME_SLICING, 4),
        ("gpu", A100, {CLIENTS: "1"}, "gpu", Mechanism.WHOLE, 1),
        ("gpu", A100, {CLIENTS: "2", f"{GKE}-gpu-sharing-strategy": "mps"}, "gpu.shared", Mechanism.MPS, 2),
        ("gpu.shared", A100, {}, "gpu.shared", Mechanism.TIME_SLICING, 1),
        ("gpu", f"{A100}-SHARED", {}, "gpu.shared", Mechanism.TIME_SLICING, 1),
        ("gpu", f"{A100}-MIG-1g.5gb", {}, MIG, Mechanism.MIG_SINGLE, 1),
        ("gpu", f"{A100}-MIG-1g.5gb-SHARED", {}, f"{MIG}.shared", Mechanism.TIME_SLICING, 1),
        (MIG, A100, {}, MIG, Mechanism.MIG, 1),
        (MIG, A100, {f"{PLAIN_MIG}.replicas": "3"}, MIG, Mechanism.MIG, 1),
        (f"{MIG}.shared", A100, {f"{PLAIN_MIG}.replicas": "3"}, f"{MIG}.shared", Mechanism.TIME_SLICING, 3),
        (f"{MIG}.shared", A100, {}, f"{MIG}.shared", Mechanism.TIME_SLICING, 1),
        (MIG, A100, {f"{PLAIN_MIG}.sharing-strategy": "time-slicing"}, f"{MIG}.shared", Mechanism.TIME_SLICING, 1),
    ],
)
def test_the_labels_say_what_a_resource_is(
    resource: str, product: str, labels: dict[str, str], base: str, mechanism: Mechanism, replicas: int
) -> None:
    kind = share(node("a", (resource, 4), product=product, labels=labels)).kind
    assert (kind.base, kind.mechanism, kind.replicas, kind.product) == (base, mechanism, replicas, A100)
    assert (kind.label, kind.resource) == (product, f"nvidia.com/{resource}")


@pytest.mark.parametrize("product", [f"{A100}-MIG-9", f"{A100}-MIG-1g"])
def test_a_product_label_that_names_no_profile_is_left_out_with_the_node(product: str) -> None:
    found = read_node(node("a", ("gpu", 4), product=product), (), (), ClusterConfig())
    assert (found.parts, [item.what for item in found.left_out]) == ((), ["node a"])


def test_other_resources_are_skipped_and_the_next_ones_are_read() -> None:
    many = node("a", ("aaa", 4), ("gpu", 0), ("gpumem", 1), (MIG, 3), ("mig-2g.10gb", 1), ("zzz", 2))
    assert [part.kind.base for part in shares(many)] == [MIG, "mig-2g.10gb"]


COUNTED = {"nvidia.com/gpu.count": "2", "nvidia.com/gpu.product": A100}
NONE, SHARED = {"nvidia.com/gpu.sharing-strategy": "none"}, SLICED
RENAMED = {**SHARED, "nvidia.com/gpu.product": A100}
KEPT = {**SHARED, "nvidia.com/gpu.product": f"{A100}-SHARED"}


@pytest.mark.parametrize(
    ("resources", "labels", "found"),
    [
        ({"gpu": 0}, {}, []),
        ({"gpu": 0}, {"nvidia.com/gpu.count": "0"}, []),
        ({"gpu": 0}, COUNTED, ["gpu"]),
        ({"gpu": 0}, {**COUNTED, "nvidia.com/gpu.replicas": "0"}, []),
        ({"gpu": 0}, {**COUNTED, "nvidia.com/gpu.replicas": "1"}, ["gpu"]),
        ({"gpu": 0, "gpu.shared": 0}, {**COUNTED, **NONE}, ["gpu"]),
        ({"gpu": 0, "gpu.shared": 0}, {**COUNTED, **RENAMED}, ["gpu.shared"]),
        ({"gpu": 0, "gpu.shared": 0}, {**COUNTED, **KEPT}, ["gpu"]),
        ({"gpu": 2, "gpu.shared": 0}, {**COUNTED, **RENAMED}, ["gpu"]),
        ({"gpu": 0, "gpu.shared": 4}, {**COUNTED, **RENAMED}, ["gpu.shared"]),
        ({"gpu": 0, "gpu.shared": 4}, {**COUNTED, **KEPT}, ["gpu", "gpu.shared"]),
        ({"gpu.shared": 0}, {**COUNTED, **RENAMED}, ["gpu.shared"]),
        ({"gpu.shared": 0}, {**RENAMED}, []),
        ({MIG: 0}, {f"{PLAIN_MIG}.count": "3"}, [MIG]),
        ({MIG: 0}, {f"{PLAIN_MIG}.count": "3", "nvidia.com/gpu.replicas": "0"}, [MIG]),
        ({MIG: 0}, {f"{PLAIN_MIG}.count": "much"}, []),
    ],
)
def test_a_resource_with_none_comes_back_where_its_labels_count_some(
    resources: dict[str, int], labels: dict[str, str], found: list[str]
) -> None:
    subject = node("a", *resources.items(), labels=labels)
    assert [part.kind.resource.removeprefix("nvidia.com/") for part in shares(subject)] == found


# ------------------------------------------------------------------ counting

CARDS = json.dumps([{"id": f"GPU-{number}", "devmem": 40960, "count": 10} for number in range(2)])


def test_under_hami_its_list_counts_and_the_nodes_own_number_does_not() -> None:
    subject = node("a", ("gpu", 20), hami=CARDS, labels={"nvidia.com/gpu.memory": "40960"})
    found = share(subject)
    assert (found.kind.base, found.kind.mechanism, found.kind.product) == ("gpu", Mechanism.HAMI, A100)
    assert (found.count.total, found.count.free, found.memory_bytes) == (2, 2, 40 * GIB)
    used = share(subject, pod("p", "a", hami="GPU-0,NVIDIA,20480,0:;"))
    assert (used.count.free, dict(used.room), used.foreign, used.unknown) == (1, {1000: 1, 500: 1}, 1, False)
    lost = share(node("a", ("gpu", 20), hami="?"))
    assert (lost.count.total, lost.count.free, lost.unknown, lost.closed) == (20, 0, True, False)
    assert lost.count.why == "HAMi's list of its cards cannot be read"


def test_cards_that_kai_shares_out_are_counted_with_what_is_left_of_them_where_kai_is_set_up() -> None:
    sharers = (
        pod("hold", "a", asks="gpu", namespace=KAI_RESERVATIONS, gpu_group="g"),
        pod("one", "a", gpu_group="g", fraction="0.25"),
    )
    subject = node("a", ("gpu", 2), (MIG, 1))
    plain, _ = shares(subject, *sharers)
    shared, mig = shares(subject, *sharers, kai_queue="q")
    assert (dict(plain.room), plain.foreign, plain.count.free) == ({1000: 1}, 0, 1)
    assert (dict(shared.room), shared.foreign, shared.count.free) == ({1000: 1, 750: 1}, 0, 1)
    assert dict(mig.room) == {1000: 1}


def test_a_devices_own_figures_are_those_of_its_resource() -> None:
    labels = {
        f"{PLAIN_MIG}.memory": "4864", f"{PLAIN_MIG}.multiprocessors": "14", f"{PLAIN_MIG}.replicas": "2",
        "nvidia.com/gpu.memory": "40960", "nvidia.com/gpu.multiprocessors": "98",
    }  # fmt: skip
    own, shared = shares(node("a", (MIG, 2), (f"{MIG}.shared", 4), labels=labels))
    assert (own.memory_bytes, own.sm_count) == (4864 << 20, 14)
    assert (shared.memory_bytes, shared.sm_count) == (2432 << 20, None)
    away = share(node("a", (MIG, 2), labels=labels, ready=False))
    assert (away.memory_bytes, away.sm_count) == (4864 << 20, 14)
