"""From pools to the lines of the form, and what each asks of a pod."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from hub_extensions.core.cluster.model import ClusterConfig, ClusterView
from hub_extensions.core.cluster.offers import ClusterOffers, derive_cluster_offers
from hub_extensions.core.cluster.pools import Pool, survey_pools
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import Access, OfferConfig, OfferKind, Separation
from hub_extensions.core.offers.pod_request import NODE_PRODUCT, Mechanism, check_ask
from tests.core.cluster.strategies import views
from tests.fakes.cluster_table import A100

MIG = Pool(
    "mig-1g.5gb", "mig-1g.5gb", A100, "nvidia.com/mig-1g.5gb", Mechanism.MIG, 5, {WHOLE: 5}, memory_bytes=5 << 30
)
GPU = Pool("gpu", "gpu", A100, "nvidia.com/gpu", Mechanism.WHOLE, 2, {WHOLE: 2}, node_labels={NODE_PRODUCT: (A100,)})
SLICED = Pool("gpu.shared", "gpu.shared", A100, "nvidia.com/gpu.shared", Mechanism.TIME_SLICING, 8, replicas=4)
MPS = replace(SLICED, mechanism=Mechanism.MPS)
HAMI = replace(GPU, mechanism=Mechanism.HAMI, memory_bytes=40 << 30)
KAI = ClusterConfig(kai_queue="team-a", fractions_by="kai")
CLUSTERS = (ClusterConfig(), KAI, ClusterConfig(kueue_queue="q"), ClusterConfig(fractions_by="hami"))
HALVES = OfferConfig(fractions={"gpu": (0.5, 0.25)})


def derive(*pools: Pool, offers: OfferConfig | None = None, cluster: ClusterConfig | None = None) -> ClusterOffers:
    by_id = {pool.id: pool for pool in pools}
    sms = {"NVIDIA A100-SXM4-40GB": 98}
    return derive_cluster_offers(by_id, offers or OfferConfig(), cluster or ClusterConfig(), sm_of_product=sms.get)


def ids(found: ClusterOffers) -> list[str]:
    return [offer.id for offer in found.offers]


def test_the_form_goes_from_small_to_large_and_cpu_only_is_last() -> None:
    large = replace(MIG, id="mig-2g.10gb", base="mig-2g.10gb", memory_bytes=10 << 30)
    assert ids(derive(GPU, large, SLICED, MIG)) == ["mig-1g.5gb", "mig-2g.10gb", "gpu.shared", "gpu", "cpu"]


def test_cpu_only_is_always_offered_and_sees_no_gpu() -> None:
    found = derive()
    assert ids(found) == ["cpu"]
    assert found.asks["cpu"].environment["NVIDIA_VISIBLE_DEVICES"] == "void"


def test_every_offer_has_an_ask_with_its_resource_its_nodes_and_the_gpu_taint() -> None:
    ask = derive(GPU).asks["gpu"]
    assert (ask.limits, ask.node_labels, ask.tolerations) == (
        {"nvidia.com/gpu": "1"},
        {NODE_PRODUCT: (A100,)},
        ("nvidia.com/gpu",),
    )


def test_a_mig_device_tells_its_own_figures_and_of_how_many_cores_it_is_a_part() -> None:
    found = {offer.id: offer for offer in derive(replace(MIG, sm_count=14)).offers}["mig-1g.5gb"]
    assert (found.kind, found.sm_count, found.sm_total, found.memory_enforced) == (OfferKind.MIG, 14, 98, True)


@pytest.mark.parametrize(
    ("pool", "memory", "fault"),
    [
        (GPU, Separation.HARDWARE, Separation.HARDWARE),
        (MIG, Separation.HARDWARE, Separation.HARDWARE),
        (SLICED, Separation.NONE, Separation.NONE),
        (MPS, Separation.SOFT, Separation.NONE),
        (HAMI, Separation.SOFT, Separation.NONE),
    ],
)
def test_isolation_is_said_as_the_mechanism_gives_it_and_access_is_enforced(
    pool: Pool, memory: Separation, fault: Separation
) -> None:
    isolation = derive(pool).offers[0].isolation
    assert (isolation.memory, isolation.fault, isolation.access) == (memory, fault, Access.ENFORCED)


def test_a_place_on_a_shared_card_says_how_many_share_it_and_is_kept_from_taking_all_memory_at_once() -> None:
    found = derive(SLICED)
    assert found.offers[0].description.startswith("One of 4 places on the card, in turns.")
    assert not found.offers[0].memory_enforced
    assert found.asks["gpu.shared"].environment == {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def test_mps_forbids_a_dev_shm_of_ours_and_nothing_else_does() -> None:
    assert derive(MPS).asks["gpu.shared"].forbids_shm
    assert not any(derive(pool).asks[pool.id].forbids_shm for pool in (GPU, MIG, SLICED, HAMI))


def test_several_kinds_of_cards_are_told_apart_in_the_title() -> None:
    h100 = replace(GPU, id="gpu@h100", product="NVIDIA-H100-80GB-HBM3")
    titles = {offer.id: offer.title for offer in derive(GPU, h100).offers}
    assert titles["gpu"] == "Whole GPU (A100 SXM4 40GB)"
    assert titles["gpu@h100"] == "Whole GPU (H100 80GB HBM3)"
    assert derive(GPU).offers[0].title == "Whole GPU"


# ------------------------------------------------------------------ parts of a GPU


def test_parts_under_kai_are_an_annotation_and_no_limit() -> None:
    found = derive(GPU, offers=HALVES, cluster=KAI)
    assert ids(found) == ["gpu-0.25", "gpu-0.5", "gpu", "cpu"]
    ask = found.asks["gpu-0.5"]
    assert (ask.mechanism, ask.annotations, ask.limits) == (Mechanism.KAI_FRACTION, {"gpu-fraction": "0.5"}, {})
    assert (ask.scheduler, ask.labels, ask.queue) == ("kai-scheduler", {"kai.scheduler/queue": "team-a"}, "KAI")


def test_parts_under_hami_are_percents_of_a_cards_memory_with_hamis_scheduler() -> None:
    found = derive(HAMI, offers=HALVES, cluster=ClusterConfig(fractions_by="hami"))
    ask = found.asks["gpu-0.25"]
    assert ask.limits == {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "25"}
    assert ask.scheduler == "hami-scheduler"
    assert found.asks["gpu"].limits["nvidia.com/gpucores"] == "100", "a whole card is nobody else's"
    assert {offer.id: offer.memory_bytes for offer in found.offers}["gpu-0.25"] == 10 << 30


def test_hami_parts_are_offered_on_cards_that_hami_shares_out_only() -> None:
    found = derive(GPU, offers=HALVES, cluster=ClusterConfig(fractions_by="hami"))
    assert ids(found) == ["gpu", "cpu"]
    assert found.notes == ("fractions['gpu']: hami shares out no such device here.",)


def test_parts_that_nobody_shares_out_are_a_note_for_the_admin() -> None:
    found = derive(GPU, offers=HALVES)
    assert ids(found) == ["gpu", "cpu"]
    assert "c.GpuCluster.fractions_by" in found.notes[0]


@pytest.mark.parametrize(("pool", "by"), [(GPU, "kai"), (HAMI, "hami")])
def test_a_part_that_the_cluster_would_refuse_is_left_out_and_the_others_stay(pool: Pool, by: str) -> None:
    cluster = ClusterConfig(kai_queue="team-a" if by == "kai" else "", fractions_by=by)
    found = derive(pool, offers=OfferConfig(fractions={"gpu": (0.5, 0.125)}), cluster=cluster)
    assert ids(found) == ["gpu-0.5", "gpu", "cpu"]
    assert "gpu-0.125 is not offered" in found.notes[0]


def test_parts_are_of_each_kind_of_card() -> None:
    t4 = replace(GPU, id="gpu@tesla-t4", product="Tesla-T4")
    found = derive(GPU, t4, offers=OfferConfig(fractions={"gpu": (0.5,)}), cluster=KAI)
    assert {"gpu-0.5", "gpu-0.5@tesla-t4"} < set(ids(found))


def test_parts_by_memory_under_kai_are_an_annotation_in_mib_and_no_limit() -> None:
    card = replace(GPU, memory_bytes=40960 << 20)
    found = derive(card, offers=OfferConfig(memory_gib={"gpu": (16, 8)}, fractions={"gpu": (0.5,)}), cluster=KAI)
    assert ids(found) == ["gpu-8gib", "gpu-16gib", "gpu-0.5", "gpu", "cpu"]
    assert found.notes == ()
    ask, offer = found.asks["gpu-8gib"], found.offers[0]
    assert (ask.mechanism, ask.annotations, ask.limits) == (Mechanism.KAI_MEMORY, {"gpu-memory": "8192"}, {})
    assert (ask.scheduler, ask.labels, ask.queue) == ("kai-scheduler", {"kai.scheduler/queue": "team-a"}, "KAI")
    assert (offer.title, offer.kind, offer.memory_bytes) == ("8 GiB of a GPU", OfferKind.FRACTION, 8 << 30)
    assert (offer.share, offer.memory_enforced, offer.isolation.memory) == (201, False, Separation.NONE)


def test_a_part_by_memory_is_of_the_card_that_is_named_and_less_than_it() -> None:
    card, t4 = (
        replace(GPU, memory_bytes=81920 << 20),
        replace(GPU, id="gpu@tesla-t4", product="Tesla-T4", memory_bytes=15360 << 20),
    )
    both = derive(card, t4, offers=OfferConfig(memory_gib={"gpu": (8, 15)}), cluster=KAI)
    assert {offer for offer in ids(both) if "gib" in offer} == {"gpu-8gib", "gpu-15gib", "gpu-8gib@tesla-t4"}
    assert both.notes == (
        "memory_gib: 15 GiB of gpu@tesla-t4 is not offered: the card has 15.0 GiB, and a part is less than all of it.",
    )
    one = derive(card, t4, offers=OfferConfig(memory_gib={"gpu@tesla-t4": (4,), "gpu@l4": (2,)}), cluster=KAI)
    assert {offer for offer in ids(one) if "gib" in offer} == {"gpu-4gib@tesla-t4"}
    assert one.notes == ("memory_gib['gpu@l4']: kai shares out no such device here.",)


def test_no_part_by_memory_is_offered_of_a_card_whose_memory_is_not_known() -> None:
    found = derive(GPU, offers=OfferConfig(memory_gib={"gpu": (8,)}), cluster=KAI)
    assert ids(found) == ["gpu", "cpu"]
    assert "is not known (label nvidia.com/gpu.memory)" in found.notes[0]


@pytest.mark.parametrize("pool", [MIG, replace(MIG, resource="nvidia.com/gpu", mechanism=Mechanism.MIG_SINGLE)])
def test_no_part_by_memory_is_offered_on_a_mig_node(pool: Pool) -> None:
    found = derive(pool, offers=OfferConfig(memory_gib={"gpu": (2,)}), cluster=KAI)
    assert ids(found) == ["mig-1g.5gb", "cpu"]
    assert found.notes == ("memory_gib['gpu']: kai shares out no such device here.",)


@pytest.mark.parametrize("cluster", [ClusterConfig(), ClusterConfig(fractions_by="hami")])
def test_parts_by_memory_that_kai_does_not_share_out_are_a_note_for_the_admin(cluster: ClusterConfig) -> None:
    pool = replace(HAMI if cluster.fractions_by else GPU, memory_bytes=40 << 30)
    found = derive(pool, offers=OfferConfig(memory_gib={"gpu": (8,)}), cluster=cluster)
    assert ids(found) == ["gpu", "cpu"]
    assert "Set c.GpuCluster.fractions_by to 'kai'" in found.notes[0]


def test_no_part_of_a_mig_device_is_offered_under_kai() -> None:
    single = replace(MIG, resource="nvidia.com/gpu", mechanism=Mechanism.MIG_SINGLE)
    assert ids(derive(single, offers=HALVES, cluster=KAI)) == ["mig-1g.5gb", "cpu"]


def test_mig_profiles_that_kai_does_not_know_are_a_note_for_the_admin() -> None:
    odd = replace(MIG, id="mig-1g.10gb.me", base="mig-1g.10gb.me", resource="nvidia.com/mig-1g.10gb.me")
    found = derive(MIG, odd, cluster=ClusterConfig(kai_queue="team-a"))
    assert [note for note in found.notes if "KAI does not know" in note] == [
        "hidden: KAI does not know mig-1g.10gb.me, so a server that asks for it may never be placed. Hide it."
    ]


# ------------------------------------------------------------------ queues and the admin's words


def test_a_kueue_queue_is_a_label_of_every_pod_with_a_gpu() -> None:
    found = derive(GPU, cluster=ClusterConfig(kueue_queue="lq"))
    assert found.asks["gpu"].labels == {"kueue.x-k8s.io/queue-name": "lq"}
    assert (found.asks["gpu"].queue, found.asks["gpu"].scheduler, found.asks["cpu"].queue) == ("Kueue", "", "")


def test_a_runtime_class_is_of_every_pod_with_a_gpu() -> None:
    found = derive(GPU, cluster=ClusterConfig(runtime_class="nvidia"))
    assert (found.asks["gpu"].runtime_class, found.asks["cpu"].runtime_class) == ("nvidia", "")


def test_what_is_hidden_is_neither_shown_nor_given() -> None:
    found = derive(GPU, MIG, offers=OfferConfig(hidden=("gpu",)))
    assert ids(found) == ["mig-1g.5gb", "cpu"]
    assert "gpu" not in found.asks


def test_the_admins_words_replace_ours_and_those_for_nothing_are_noted() -> None:
    words = OfferConfig(titles={"gpu": "Big one", "mig-7g.40gb": "x"}, hidden=("mig-3g.20gb",))
    found = derive(GPU, offers=words)
    assert found.offers[0].title == "Big one"
    assert found.notes == ("titles['mig-7g.40gb']: there is no such offer.", "hidden: there is no offer mig-3g.20gb.")


@settings(max_examples=150)
@given(
    views(), st.sampled_from((ClusterConfig(), KAI, ClusterConfig(kueue_queue="q"), ClusterConfig(fractions_by="hami")))
)
def test_whatever_a_cluster_has_every_offer_has_one_ask_that_is_right(
    view: ClusterView, cluster: ClusterConfig
) -> None:
    pools = survey_pools(view, HALVES, cluster, names={}, leases=()).pools
    found = derive_cluster_offers(pools, HALVES, cluster)
    assert len(set(ids(found))) == len(found.offers)
    assert set(ids(found)) == set(found.asks)
    for offer in found.offers:
        check_ask(found.asks[offer.id])
        assert offer.pool in pools or offer.id == "cpu"
