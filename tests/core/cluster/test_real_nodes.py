"""Offers of nodes as GKE, EKS, AKS and administrators label them, and as device plugins count them."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest

from hub_extensions.core.cluster.model import ClusterConfig, ClusterView, NodeFacts, Taint
from hub_extensions.core.cluster.offers import derive_cluster_offers
from hub_extensions.core.cluster.pools import PoolSurvey, survey_pools
from hub_extensions.core.offers.model import GpuOffer, OfferConfig, OfferConfigError, OfferKind, Separation
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.offers.pod_request import NODE_PRODUCT, Mechanism, PodAsk

GKE = "cloud.google.com/gke-"
T4 = {f"{GKE}accelerator": "nvidia-tesla-t4", f"{GKE}accelerator-count": "1"}
TYPE = "node.kubernetes.io/instance-type"
A100 = "NVIDIA-A100-PCIE-80GB"


def a_node(name: str, counts: dict[str, int], labels: dict[str, str], **more: Any) -> NodeFacts:
    allocatable = {f"nvidia.com/{resource}": count for resource, count in counts.items()}
    return NodeFacts(name, labels, allocatable, **more)


def gfd(product: str, count: int, replicas: int = 1, **more: str) -> dict[str, str]:
    """The labels of GPU Feature Discovery. `more` are labels below ``nvidia.com/``, with ``_`` instead of ``.``."""
    labels = {"gpu.product": product, "gpu.count": str(count), "gpu.replicas": str(replicas)} | more
    return {f"nvidia.com/{name}": value for name, value in labels.items()}


def survey(*nodes: NodeFacts, names: dict[str, str] | None = None, **offers: Any) -> PoolSurvey:
    view = ClusterView({each.name: each for each in nodes}, {}, namespace="jhub")
    return survey_pools(view, OfferConfig(**offers), ClusterConfig(), names=names or {}, leases=())


def offered(*nodes: NodeFacts, **offers: Any) -> dict[str, tuple[GpuOffer, PodAsk, int]]:
    """Return each offer with a GPU, its request, and the number of devices."""
    found = survey(*nodes, **offers)
    made = derive_cluster_offers(found.pools, OfferConfig(**offers), ClusterConfig())
    return {
        str(each.id): (each, made.asks[each.id], found.pools[each.id].total) for each in made.offers if each.id != CPU
    }


def left_out(*nodes: NodeFacts, **offers: Any) -> str:
    return "\n".join(f"{each.what}: {each.why}" for each in survey(*nodes, **offers).left_out)


# ------------------------------------------------------------------ whether a card is one's own


@pytest.mark.parametrize(
    ("counts", "labels", "offer", "mechanism", "total", "replicas"),
    [
        (
            {"gpu": 3},
            {**T4, f"{GKE}gpu-sharing-strategy": "time-sharing", f"{GKE}max-shared-clients-per-gpu": "3"},
            "gpu.shared",
            Mechanism.TIME_SLICING,
            3,
            3,
        ),
        (
            {"gpu": 8},
            {**T4, f"{GKE}gpu-sharing-strategy": "mps", f"{GKE}max-shared-clients-per-gpu": "8"},
            "gpu.shared",
            Mechanism.MPS,
            8,
            8,
        ),
        ({"gpu": 1}, {**T4, f"{GKE}gpu-sharing-strategy": "time-sharing", f"{GKE}max-shared-clients-per-gpu": "1"},
         "gpu", Mechanism.WHOLE, 1, 1),
        ({"gpu": 7}, {f"{GKE}accelerator": "nvidia-tesla-a100", f"{GKE}gpu-partition-size": "1g.5gb"},
         "mig-1g.5gb", Mechanism.MIG_SINGLE, 7, 1),
        ({"gpu": 14}, {f"{GKE}accelerator": "nvidia-tesla-a100", f"{GKE}gpu-partition-size": "1g.5gb",
                       f"{GKE}accelerator-count": "2"}, "mig-1g.5gb", Mechanism.MIG_SINGLE, 14, 1),
        ({"gpu": 21}, {f"{GKE}accelerator": "nvidia-tesla-a100", f"{GKE}gpu-partition-size": "1g.5gb",
                       f"{GKE}gpu-sharing-strategy": "time-sharing", f"{GKE}max-shared-clients-per-gpu": "3"},
         "mig-1g.5gb.shared", Mechanism.TIME_SLICING, 21, 3),
        ({"gpu": 4}, gfd("NVIDIA-A10G", 1), "gpu.shared", Mechanism.TIME_SLICING, 4, 4),
        ({"gpu": 10}, gfd("NVIDIA-A10G", 4), "gpu.shared", Mechanism.TIME_SLICING, 10, 3),
        ({"gpu": 8}, gfd("NVIDIA-L40S", 2, 4), "gpu.shared", Mechanism.TIME_SLICING, 8, 4),
        ({"gpu": 4}, gfd(A100, 2, 4), "gpu.shared", Mechanism.TIME_SLICING, 4, 4),
        ({"gpu": 4}, {TYPE: "g5.xlarge", "karpenter.k8s.aws/instance-gpu-name": "a10g",
                      "karpenter.k8s.aws/instance-gpu-count": "1"}, "gpu.shared", Mechanism.TIME_SLICING, 4, 4),
        ({"gpu": 14}, gfd(f"{A100}-MIG-1g.10gb", 7), "mig-1g.10gb.shared", Mechanism.TIME_SLICING, 14, 2),
        ({"mig-1g.10gb": 14}, gfd(A100, 1, 0, **{"mig-1g.10gb.count": "7"}),
         "mig-1g.10gb.shared", Mechanism.TIME_SLICING, 14, 2),
        ({"mig-1g.10gb": 14}, gfd(A100, 1, 0), "mig-1g.10gb.shared", Mechanism.TIME_SLICING, 14, 2),
    ],
)  # fmt: skip
def test_a_card_that_is_shared_is_offered_as_that(
    counts: dict[str, int], labels: dict[str, str], offer: str, mechanism: Mechanism, total: int, replicas: int
) -> None:
    ((found, ask, there),) = offered(a_node("a", counts, labels)).values()
    assert (found.id, ask.mechanism, there) == (offer, mechanism, total)
    assert survey(a_node("a", counts, labels)).pools[found.id].replicas == replicas
    if replicas > 1:
        assert found.isolation.memory is not Separation.HARDWARE and "alone" not in found.description


def test_gkes_labels_name_the_card_and_are_asked_for() -> None:
    shared = {f"{GKE}gpu-sharing-strategy": "time-sharing", f"{GKE}max-shared-clients-per-gpu": "3"}
    taint = Taint("nvidia.com/gpu", "present", "NoSchedule")
    ((offer, ask, total),) = offered(a_node("a", {"gpu": 3}, T4 | shared, taints=(taint,))).values()
    assert (offer.product, total) == ("Tesla T4", 3)
    assert ask.node_labels == {
        f"{GKE}accelerator": ("nvidia-tesla-t4",),
        f"{GKE}gpu-sharing-strategy": ("time-sharing",),
    }
    plain, both = (
        a_node("b", {"gpu": 1}, T4),
        offered(a_node("a", {"gpu": 3}, T4 | shared), a_node("b", {"gpu": 1}, T4)),
    )
    assert both["gpu"][1].node_labels == {f"{GKE}accelerator": ("nvidia-tesla-t4",), f"{GKE}gpu-sharing-strategy": ()}
    assert left_out(plain) == "", "GKE labels every node that shares its cards"


def test_a_shared_card_has_its_part_of_the_memory() -> None:
    labels = gfd("NVIDIA-A10G", 1, **{"gpu.memory": "23028", "mig.capable": "false"})
    ((offer, _, _),) = offered(a_node("ip-a", {"gpu": 4}, {TYPE: "g5.xlarge", **labels})).values()
    assert offer.memory_bytes == 23028 * 2**20 // 4 and not offer.memory_enforced


def test_shared_cards_and_whole_ones_that_no_label_tells_apart_are_told_apart_by_host() -> None:
    hosts = [{"kubernetes.io/hostname": name, **gfd("NVIDIA-A10G", 1)} for name in ("a", "b")]
    found = offered(a_node("a", {"gpu": 4}, hosts[0]), a_node("b", {"gpu": 1}, hosts[1]))
    assert found["gpu.shared"][1].node_labels == {NODE_PRODUCT: ("NVIDIA-A10G",), "kubernetes.io/hostname": ("a",)}
    assert found["gpu"][1].node_labels == {NODE_PRODUCT: ("NVIDIA-A10G",), "kubernetes.io/hostname": ("b",)}


@pytest.mark.parametrize(
    "labels",
    [{}, {TYPE: "g5.xlarge"}, {"kubernetes.azure.com/accelerator": "nvidia"}, {"accelerator": "v100"},
     gfd(A100, 4, 4), gfd(A100, 0), gfd(A100, 4) | {"nvidia.com/gpu.count": "four"},
     {"k8s.amazonaws.com/accelerator": "nvidia-tesla-t4"}, {TYPE: "VM.GPU.A10.4"}],
)  # fmt: skip
def test_without_evidence_nothing_is_promised_and_the_administrator_reads_why(labels: dict[str, str]) -> None:
    nodes = [a_node(name, {"gpu": 4}, labels) for name in ("a", "b")]
    ((offer, _, total),) = offered(*nodes).values()
    assert (offer.id, offer.kind, total) == ("gpu", OfferKind.WHOLE, 8)
    isolation = offer.isolation
    assert {isolation.memory, isolation.fault, isolation.compute} == {Separation.UNKNOWN}
    assert "alone" not in offer.description and offer.title.startswith("GPU") and not offer.memory_enforced
    assert left_out(*nodes).count("no label says how many cards") == 1


@pytest.mark.parametrize(
    "labels", [gfd(A100, 4), T4 | {f"{GKE}accelerator-count": "4"}, {"karpenter.azure.com/sku-gpu-count": "4"}]
)
def test_a_count_of_the_cards_is_evidence(labels: dict[str, str]) -> None:
    node = a_node("a", {"gpu": 4}, labels)
    ((offer, _, _),) = offered(node).values()
    assert offer.isolation.memory is Separation.HARDWARE and offer.description.startswith("A whole card for you alone")
    assert left_out(node) == ""


@pytest.mark.parametrize(
    "labels",
    [
        *(gfd(product, 1) for product in ("GRID-T4-8Q", "GRID-V100D-16C", "NVIDIA-A40-48Q", "NVIDIA-A100-3-20C",
                                          "NVIDIA-A16-2B4", "NVIDIA-L40S-24Q", "GRID-A100D-1-10CME", "NVIDIA-A10-24A",
                                          "NVIDIA-RTX6000-Ada-24Q")),
        gfd("NVIDIA-A10", 1, **{"vgpu.present": "true"}),
        gfd("NVIDIA-A10", 1, **{"vgpu.host-driver-version": "550.90"}),
        {TYPE: "Standard_NV6ads_A10_v5"},
        {TYPE: "g6f.xlarge"},
        {TYPE: "g4-standard-12"},
    ],
)  # fmt: skip
def test_a_part_of_a_card_that_a_hypervisor_gives_is_no_card_of_ones_own(labels: dict[str, str]) -> None:
    ((offer, _, _),) = offered(a_node("a", {"gpu": 1}, labels)).values()
    assert (offer.id, offer.title, offer.kind) == ("gpu", "Virtual GPU", OfferKind.FRACTION)
    assert offer.isolation.fault is Separation.NONE and "alone" not in offer.description


@pytest.mark.parametrize(
    "product",
    ["NVIDIA-A100-SXM4-40GB", "Tesla-P100-PCIE-16GB", "NVIDIA-H100-80GB-HBM3", "NVIDIA-GeForce-RTX-3090", "GRID-K520",
     "NVIDIA-RTX-A6000", "Tesla-T4", "NVIDIA-A10G", "NVIDIA-GH200-480GB", "NVIDIA-RTX-PRO-6000-Blackwell",
     "Quadro-RTX-8000", "NVIDIA-L40S", "NVIDIA-TITAN-V", "NVIDIA-GB10"],
)  # fmt: skip
def test_a_card_of_ones_own_is_not_taken_for_a_virtual_one(product: str) -> None:
    ((offer, _, _),) = offered(a_node("a", {"gpu": 1}, gfd(product, 1, **{"vgpu.present": "false"}))).values()
    assert (offer.title, offer.isolation.memory) == ("Whole GPU", Separation.HARDWARE)


# ------------------------------------------------------------------ which cards


@pytest.mark.parametrize(
    ("one", "other", "ids"),
    [
        (T4, T4 | {f"{GKE}accelerator": "nvidia-l4"}, {"gpu@tesla-t4", "gpu@l4"}),
        ({TYPE: "g4dn.xlarge"}, {TYPE: "p3.2xlarge"}, {"gpu@g4dn", "gpu@p3"}),
        ({TYPE: "Standard_NC8as_T4_v3"}, {TYPE: "Standard_NC24ads_A100_v4"},
         {"gpu@standard-ncas-t4-v3", "gpu@standard-ncads-a100-v4"}),
        ({TYPE: "a2-highgpu-1g"}, {TYPE: "a2-ultragpu-1g"}, {"gpu@a2-highgpu", "gpu@a2-ultragpu"}),
        ({TYPE: "VM.GPU.A10.2"}, {TYPE: "VM.GPU2.1"}, {"gpu@vm-gpu-a10", "gpu@vm-gpu2"}),
        ({TYPE: "BM.GPU4.8"}, {TYPE: "BM.GPU.H100.8"}, {"gpu@bm-gpu4", "gpu@bm-gpu-h100"}),
        ({TYPE: "ecs.gn6i-c4g1.xlarge"}, {TYPE: "ecs.gn7-c12g1.3xlarge"},
         {"gpu@ecs-gn6i-c4g1-xlarge", "gpu@ecs-gn7-c12g1-3xlarge"}),
        ({TYPE: "g.a100.small"}, {TYPE: "g.t4.small"}, {"gpu@g-a100-small", "gpu@g-t4-small"}),
        ({"karpenter.k8s.aws/instance-gpu-name": "t4"}, {"karpenter.k8s.aws/instance-gpu-name": "a10g"},
         {"gpu@t4", "gpu@a10g"}),
        ({"accelerator": "nvidia", "gpu-type": "v100"}, {"accelerator": "nvidia", "gpu-type": "a100"},
         {"gpu@v100", "gpu@a100"}),
        ({"example.com/gpu_model": "RTX 2080"}, {"example.com/gpu_model": "A6000"}, {"gpu@rtx-2080", "gpu@a6000"}),
        ({"eks.amazonaws.com/instance-gpu-name": "l4"}, {}, {"gpu@l4", "gpu@other"}),
        (gfd("Tesla-V100-SXM2-16GB", 4), {"k8s.amazonaws.com/accelerator": "nvidia-tesla-k80"},
         {"gpu@tesla-v100-sxm2-16gb", "gpu@tesla-k80"}),
    ],
)  # fmt: skip
def test_cards_that_a_label_tells_apart_are_pools_of_their_own(
    one: dict[str, str], other: dict[str, str], ids: set[str]
) -> None:
    found = offered(a_node("a", {"gpu": 1}, one), a_node("b", {"gpu": 1}, other))
    assert set(found) == ids
    demands = [ask.node_labels for _, ask, _ in found.values()]
    assert all(demands) and demands[0] != demands[1]


@pytest.mark.parametrize(
    ("one", "other"),
    [
        ({TYPE: "g4dn.xlarge"}, {TYPE: "g4dn.12xlarge"}),
        ({TYPE: "Standard_NC4as_T4_v3"}, {TYPE: "Standard_NC64as_T4_v3"}),
        ({TYPE: "g2-standard-4"}, {TYPE: "g2-standard-8"}),
        ({TYPE: "VM.GPU.A10.1"}, {TYPE: "VM.GPU.A10.2"}),
        ({"nvidia.com/gpu.present": "true"}, {"accelerator": "nvidia"}),
        (T4 | {TYPE: "n1-standard-4"}, T4 | {TYPE: "n1-standard-8"}),
    ],
)
def test_machines_with_the_same_cards_are_one_pool(one: dict[str, str], other: dict[str, str]) -> None:
    assert set(offered(a_node("a", {"gpu": 1}, one), a_node("b", {"gpu": 1}, other))) == {"gpu"}


def test_an_id_stays_when_feature_discovery_comes_later_than_the_hub() -> None:
    cloud = {"k8s.amazonaws.com/accelerator": "nvidia-tesla-t4"}, {"k8s.amazonaws.com/accelerator": "nvidia-tesla-v100"}
    nodes = [a_node(name, {"gpu": 1}, labels) for name, labels in zip("ab", cloud, strict=True)]
    before = survey(*nodes)
    labelled = [
        replace(node, labels={**node.labels, **gfd(product, 1)})
        for node, product in zip(nodes, ("Tesla-T4", "Tesla-V100-SXM2-16GB"), strict=True)
    ]
    after = survey(*labelled, names=dict(before.names))
    assert set(after.pools) == set(before.pools) == {"gpu@tesla-t4", "gpu@tesla-v100"}


# ------------------------------------------------------------------ counts that cannot be

CUT = gfd(
    "NVIDIA-A100-PCIE-80GB", 2, 0, **{"mig.strategy": "mixed", "mig-1g.10gb.count": "6", "mig-2g.20gb.count": "4"}
)


@pytest.mark.parametrize(
    ("counts", "labels", "totals", "said"),
    [
        ({"gpu": 2, "mig-1g.10gb": 6, "mig-2g.20gb": 4, "mig-3g.40gb": 0}, CUT,
         {"mig-1g.10gb": 6, "mig-2g.20gb": 4}, "2 of 2 nvidia.com/gpu of node a: its cards are cut (6 x 1g.10gb and"),
        ({"gpu": 2, "mig-1g.10gb": 6, "mig-2g.20gb": 4}, {**CUT, "nvidia.com/gpu.replicas": "1"},
         {"mig-1g.10gb": 6, "mig-2g.20gb": 4}, "2 of 2 nvidia.com/gpu"),
        ({"gpu": 4, "mig-1g.10gb": 7}, gfd(A100, 4), {"gpu": 3, "mig-1g.10gb": 7}, "1 of 4 nvidia.com/gpu"),
        ({"gpu": 3, "mig-1g.10gb": 7}, gfd(A100, 4), {"gpu": 3, "mig-1g.10gb": 7}, ""),
        ({"gpu": 2, "mig-3g.40gb": 1}, gfd(A100, 2, 0), {"mig-3g.40gb": 1}, "2 of 2 nvidia.com/gpu"),
        ({"gpu": 2, "mig-2g.12gb": 2, "mig-1g.6gb": 4}, gfd("NVIDIA-A30", 2),
         {"mig-2g.12gb": 2, "mig-1g.6gb": 4}, "2 of 2 nvidia.com/gpu"),
        ({"gpu": 1, "gpu.shared": 4}, gfd("Tesla-T4", 1, 4, **{"gpu.sharing-strategy": "time-slicing"}),
         {"gpu.shared": 4}, "1 of 1 nvidia.com/gpu"),
        ({"mig-1g.10gb": 7, "mig-3g.40gb": 2}, gfd(A100, 1, 0, **{"mig-3g.40gb.count": "2"}),
         {"mig-3g.40gb": 2}, "7 of 7 nvidia.com/mig-1g.10gb of node a: its labels do not count them"),
        ({"gpu": 0, "mig-1g.10gb": 7}, gfd(A100, 1), {"mig-1g.10gb": 7}, ""),
        ({"gpu": 1, "mig-1g.10gb": 0}, gfd(A100, 1, **{"mig-1g.10gb.count": "7"}), {"gpu": 1}, ""),
        ({"gpu": 7, "mig-1g.10gb": 0}, gfd(f"{A100}-MIG-1g.10gb", 7, **{"mig-1g.10gb.count": "7"}),
         {"mig-1g.10gb": 7}, ""),
        ({"gpu": 1, "mig-1g.10gb": 7}, gfd(f"{A100}-MIG-1g.10gb", 7),
         {"mig-1g.10gb": 7}, "1 of 1 nvidia.com/gpu of node a: its label nvidia.com/gpu.product is of the single"),
        ({"gpu": 0, "mig-1g.10gb": 7}, gfd(f"{A100}-MIG-1g.10gb", 7), {"mig-1g.10gb": 7}, ""),
    ],
)  # fmt: skip
def test_devices_that_cannot_exist_are_not_offered(
    counts: dict[str, int], labels: dict[str, str], totals: dict[str, int], said: str
) -> None:
    node = a_node("a", counts, labels)
    assert {name: total for name, (_, _, total) in offered(node).items()} == totals
    assert said in left_out(node) and bool(said) is bool(left_out(node))
    assert all(ask.limits != {"nvidia.com/gpu": "1"} or name == "gpu" or "MIG" in labels[NODE_PRODUCT]
               for name, (_, ask, _) in offered(node).items())  # fmt: skip


def test_pieces_that_are_too_many_together_are_not_known() -> None:
    node = a_node("a", {"mig-1g.10gb": 7, "mig-3g.40gb": 2}, gfd(A100, 1, 0))
    found = survey(node)
    assert all(pool.unknown and not pool.free for pool in found.pools.values()) and len(found.pools) == 2
    assert "its counts cannot be (7 x 1g.10gb, 2 x 3g.40gb on 1 cards)" in left_out(node)


def test_seven_devices_of_one_card_are_no_cards_of_ones_own_whatever_labels_were_set_by_hand() -> None:
    labels = gfd("NVIDIA-A100-PCIE-40GB", 1, **{"mig.strategy": "mixed", "mig-1g.5gb.count": "7"})
    ((offer, _, total),) = offered(a_node("a", {"gpu": 7}, labels)).values()
    assert (offer.id, total, offer.isolation.memory) == ("gpu.shared", 7, Separation.NONE)


# ------------------------------------------------------------------ nothing to offer


@pytest.mark.parametrize(
    ("counts", "labels", "said"),
    [
        ({"gpu": 0}, gfd(A100, 2, 0), "node a: MIG is switched on and nothing is cut"),
        ({}, gfd(A100, 2, 0, **{"mig.strategy": "mixed"}), "node a: MIG is switched on and nothing is cut"),
        ({"gpu": 0}, gfd(f"{A100}-MIG-INVALID", 0), "or one is not cut at all"),
        ({}, gfd(A100, 2), "node a: its labels count 2 GPUs, and it gives none: see its device plugin"),
    ],
)
def test_a_node_with_cards_that_gives_none_is_named(counts: dict[str, int], labels: dict[str, str], said: str) -> None:
    node = a_node("a", counts, labels)
    assert offered(node) == {} and said in left_out(node)


@pytest.mark.parametrize("memory", ["0", "N/A", "[N/A]", ""])
def test_memory_that_a_card_shares_with_the_processor_is_not_known(memory: str) -> None:
    ((offer, _, _),) = offered(a_node("a", {"gpu": 1}, gfd("NVIDIA-GB10", 1, **{"gpu.memory": memory}))).values()
    assert offer.memory_bytes is None and offer.isolation.memory is Separation.HARDWARE


# ------------------------------------------------------------------ resources of the cluster's own names

NRP = a_node("nrp", {"a100": 8, "gpu": 0}, gfd("NVIDIA-A100-SXM4-80GB", 8, **{"gpu.memory": "81920"}))


def test_a_resource_of_an_unknown_name_is_named_and_not_offered() -> None:
    assert offered(NRP) == {}
    assert "nvidia.com/a100 of node nrp: a resource of this name is not known: c.GpuOffers.resources" in left_out(NRP)


@pytest.mark.parametrize(
    ("mapped", "offer", "mechanism"),
    [
        ("gpu", "gpu", Mechanism.WHOLE),
        ("gpu@a100", "gpu@a100", Mechanism.WHOLE),
        ("gpu.shared", "gpu.shared", Mechanism.TIME_SLICING),
        ("mig-1g.10gb", "mig-1g.10gb", Mechanism.MIG),
    ],
)
def test_a_renamed_resource_is_the_offer_that_the_administrator_says(
    mapped: str, offer: str, mechanism: Mechanism
) -> None:
    ((found, ask, total),) = offered(NRP, resources={"nvidia.com/a100": mapped}).values()
    assert (found.id, ask.mechanism, ask.limits, total) == (offer, mechanism, {"nvidia.com/a100": "1"}, 8)
    assert left_out(NRP, resources={"nvidia.com/a100": mapped}) == ""


def test_a_renamed_card_has_what_its_labels_say_and_is_shared_where_it_is() -> None:
    ((found, _, _),) = offered(NRP, resources={"nvidia.com/a100": "gpu"}).values()
    assert (found.memory_bytes, found.isolation.memory) == (81920 * 2**20, Separation.HARDWARE)
    twice = replace(NRP, allocatable={"nvidia.com/a100": 16})
    ((shared, _, _),) = offered(twice, resources={"nvidia.com/a100": "gpu"}).values()
    assert (shared.id, shared.memory_bytes) == ("gpu.shared", 40960 * 2**20)


def test_cards_of_two_names_are_two_offers() -> None:
    other = a_node("b", {"rtxa6000": 4}, gfd("NVIDIA-RTX-A6000", 4))
    plain = a_node("c", {"gpu": 2}, gfd("Tesla-T4", 2))
    names = {"nvidia.com/a100": "gpu@a100", "nvidia.com/rtxa6000": "gpu@a6000"}
    assert set(offered(NRP, other, plain, resources=names)) == {"gpu@a100", "gpu@a6000", "gpu@tesla-t4"}


def test_a_renamed_resource_whose_plugin_is_away_stays_on_the_form() -> None:
    away = replace(NRP, allocatable={"nvidia.com/a100": 0, "nvidia.com/gpu": 0})
    assert {name: total for name, (*_, total) in offered(away, resources={"nvidia.com/a100": "gpu"}).items()} == {
        "gpu": 0
    }


def test_network_devices_are_no_gpus() -> None:
    node = a_node("a", {"gpu": 1, "hostdev": 8, "rdma_shared_device_a": 63}, gfd(A100, 1))
    assert left_out(node) == ""


@pytest.mark.parametrize(
    ("resources", "field", "said"),
    [
        ({"amd.com/gpu": "gpu"}, "resources['amd.com/gpu']", "a resource of NVIDIA's device plugin"),
        ({"nvidia.com/rdma_shared": "gpu"}, "resources['nvidia.com/rdma_shared']", "a resource of NVIDIA's"),
        ({"a100": "gpu"}, "resources['a100']", "a resource of NVIDIA's"),
        ({"nvidia.com/gpu": "gpu"}, "resources['nvidia.com/gpu']", "known by itself"),
        ({"nvidia.com/a100": "gpu-0.5"}, "resources['nvidia.com/a100']", "a resource is a device"),
        ({"nvidia.com/a100": "cpu"}, "resources['nvidia.com/a100']", "a resource is a device"),
        ({"nvidia.com/a100": "a100"}, "resources['nvidia.com/a100']", "'a100'"),
    ],
)
def test_a_name_that_cannot_be_mapped_is_named(resources: dict[str, str], field: str, said: str) -> None:
    with pytest.raises(OfferConfigError) as refused:
        survey(NRP, resources=resources)
    assert refused.value.field == field and said in refused.value.text
