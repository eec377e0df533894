"""The offers of a cluster's pools, and what each offer requests for its pod."""

from __future__ import annotations

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.cluster.model import ClusterConfig, ClusterView
from hub_extensions.core.cluster.offers import ClusterOffers, derive_cluster_offers
from hub_extensions.core.cluster.pools import Pool, survey_pools
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import Access, OfferConfig, OfferKind, Separation
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import NODE_PRODUCT, Mechanism, check_ask
from tests.core.cluster.strategies import views
from tests.examples import many
from tests.fakes.cluster_table import A100

MIG = Pool(
    OfferId("mig-1g.5gb"),
    "mig-1g.5gb",
    A100,
    "nvidia.com/mig-1g.5gb",
    Mechanism.MIG,
    5,
    {WHOLE: 5},
    memory_bytes=5 << 30,
)
GPU = Pool(
    OfferId("gpu"), "gpu", A100, "nvidia.com/gpu", Mechanism.WHOLE, 2, {WHOLE: 2}, node_labels={NODE_PRODUCT: (A100,)}
)
SLICED = Pool(OfferId("gpu.shared"), "gpu.shared", A100, "nvidia.com/gpu.shared", Mechanism.TIME_SLICING, 8, replicas=4)
MPS = replace(SLICED, mechanism=Mechanism.MPS)
HAMI = replace(GPU, mechanism=Mechanism.HAMI, memory_bytes=40 << 30)
KAI = ClusterConfig(kai_queue="team-a", fraction_scheduler="kai")
CLUSTERS = (ClusterConfig(), KAI, ClusterConfig(kueue_queue="q"), ClusterConfig(fraction_scheduler="hami"))
HALVES = OfferConfig(fractions={"gpu": (0.5, 0.25)})


def derive(*pools: Pool, offers: OfferConfig | None = None, cluster: ClusterConfig | None = None) -> ClusterOffers:
    by_id = {pool.id: pool for pool in pools}
    sms = {"NVIDIA A100-SXM4-40GB": 98}
    return derive_cluster_offers(by_id, offers or OfferConfig(), cluster or ClusterConfig(), sm_of_product=sms.get)


def ids(found: ClusterOffers) -> list[str]:
    return [offer.id for offer in found.offers]


def test_the_form_goes_from_small_to_large_and_cpu_only_is_last() -> None:
    large = replace(MIG, id=OfferId("mig-2g.10gb"), base="mig-2g.10gb", memory_bytes=10 << 30)
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


def test_a_mig_offer_has_its_own_size_and_the_cores_of_the_card() -> None:
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
def test_isolation_follows_from_the_mechanism_and_access_is_enforced(
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
    h100 = replace(GPU, id=OfferId("gpu@h100"), product="NVIDIA-H100-80GB-HBM3")
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
    found = derive(HAMI, offers=HALVES, cluster=ClusterConfig(fraction_scheduler="hami"))
    ask = found.asks["gpu-0.25"]
    assert ask.limits == {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "25"}
    assert ask.scheduler == "hami-scheduler"
    assert found.asks["gpu"].limits["nvidia.com/gpucores"] == "100", "a whole card is nobody else's"
    assert {offer.id: offer.memory_bytes for offer in found.offers}["gpu-0.25"] == 10 << 30


def test_hami_parts_are_offered_on_cards_that_hami_shares_out_only() -> None:
    found = derive(GPU, offers=HALVES, cluster=ClusterConfig(fraction_scheduler="hami"))
    assert ids(found) == ["gpu", "cpu"]
    assert found.notes == ("fractions['gpu']: hami shares out no such device here.",)


def test_parts_that_nobody_shares_out_are_a_note_for_the_admin() -> None:
    found = derive(GPU, offers=HALVES)
    assert ids(found) == ["gpu", "cpu"]
    assert "c.GpuCluster.fraction_scheduler" in found.notes[0]


@pytest.mark.parametrize(("pool", "by"), [(GPU, "kai"), (HAMI, "hami")])
def test_a_part_that_the_cluster_would_refuse_is_left_out_and_the_others_stay(pool: Pool, by: str) -> None:
    cluster = ClusterConfig(kai_queue="team-a" if by == "kai" else "", fraction_scheduler=by)
    found = derive(pool, offers=OfferConfig(fractions={"gpu": (0.5, 0.125)}), cluster=cluster)
    assert ids(found) == ["gpu-0.5", "gpu", "cpu"]
    assert "gpu-0.125 is not offered" in found.notes[0]


def test_parts_are_of_each_kind_of_card() -> None:
    t4 = replace(GPU, id=OfferId("gpu@tesla-t4"), product="Tesla-T4")
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
        replace(GPU, id=OfferId("gpu@tesla-t4"), product="Tesla-T4", memory_bytes=15360 << 20),
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


@pytest.mark.parametrize("cluster", [ClusterConfig(), ClusterConfig(fraction_scheduler="hami")])
def test_parts_by_memory_that_kai_does_not_share_out_are_a_note_for_the_admin(cluster: ClusterConfig) -> None:
    pool = replace(HAMI if cluster.fraction_scheduler else GPU, memory_bytes=40 << 30)
    found = derive(pool, offers=OfferConfig(memory_gib={"gpu": (8,)}), cluster=cluster)
    assert ids(found) == ["gpu", "cpu"]
    assert "Set c.GpuCluster.fraction_scheduler to 'kai'" in found.notes[0]


def test_no_part_of_a_mig_device_is_offered_under_kai() -> None:
    single = replace(MIG, resource="nvidia.com/gpu", mechanism=Mechanism.MIG_SINGLE)
    assert ids(derive(single, offers=HALVES, cluster=KAI)) == ["mig-1g.5gb", "cpu"]


def test_mig_profiles_that_kai_does_not_know_are_a_note_for_the_admin() -> None:
    odd = replace(MIG, id=OfferId("mig-1g.10gb.me"), base="mig-1g.10gb.me", resource="nvidia.com/mig-1g.10gb.me")
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


def test_hidden_offers_are_not_offered() -> None:
    found = derive(GPU, MIG, offers=OfferConfig(hidden=("gpu",)))
    assert ids(found) == ["mig-1g.5gb", "cpu"]
    assert "gpu" not in found.asks


H100 = replace(GPU, id=OfferId("gpu@h100"), product="NVIDIA-H100")
H100_MIG = replace(MIG, id=OfferId("mig-1g.5gb@h100"), product="NVIDIA-H100")


@pytest.mark.parametrize(
    ("pools", "groups", "of_each"),
    [
        ((GPU, H100), {"gpu": ("a",)}, {"gpu": ("a",), "gpu@h100": ("a",)}),
        ((GPU, H100), {"gpu": ("a",), "gpu@h100": ("b",)}, {"gpu": ("a",), "gpu@h100": ("b",)}),
        ((GPU, H100), {"gpu": ("a",), "gpu@h100": ()}, {"gpu": ("a",), "gpu@h100": ()}),
        ((GPU, H100), {"gpu@h100": ("b",)}, {"gpu": (), "gpu@h100": ("b",)}),
        ((H100,), {"gpu": ("a",)}, {"gpu@h100": ("a",)}),
        ((MIG, H100_MIG), {"mig-1g.5gb": ("a",)}, {"mig-1g.5gb": ("a",), "mig-1g.5gb@h100": ("a",)}),
    ],
)
def test_a_rule_for_an_id_without_its_card_is_for_each_card_without_one_of_its_own(
    pools: tuple[Pool, ...], groups: dict[str, tuple[str, ...]], of_each: dict[str, tuple[str, ...]]
) -> None:
    found = derive(*pools, offers=OfferConfig(groups=groups))
    assert {offer.id: offer.groups for offer in found.offers if offer.id != "cpu"} == of_each
    assert not found.notes


def test_groups_of_a_fraction_are_for_the_same_fraction_of_each_card() -> None:
    halves = OfferConfig(fractions={"gpu": (0.5,)}, groups={"gpu-0.5": ("a",)})
    found = {offer.id: offer.groups for offer in derive(GPU, H100, offers=halves, cluster=KAI).offers}
    assert found == {"gpu-0.5": ("a",), "gpu-0.5@h100": ("a",), "gpu": (), "gpu@h100": (), "cpu": ()}


@pytest.mark.parametrize(
    ("hidden", "groups", "shown"),
    [
        (("gpu",), {}, ["cpu"]),
        (("gpu@h100",), {}, ["gpu", "cpu"]),
        (("gpu",), {"gpu@h100": ("b",)}, ["gpu@h100", "cpu"]),
        (("gpu", "gpu@h100"), {"gpu@h100": ("b",)}, ["cpu"]),
    ],
)
def test_an_id_without_its_card_hides_each_card_that_has_no_groups_of_its_own(
    hidden: tuple[str, ...], groups: dict[str, tuple[str, ...]], shown: list[str]
) -> None:
    found = derive(GPU, H100, offers=OfferConfig(hidden=hidden, groups=groups))
    assert (ids(found), found.notes) == (shown, ())
    assert not derive(H100, offers=OfferConfig(hidden=("gpu",))).notes


def test_the_admins_texts_replace_ours_and_texts_without_an_offer_are_noted() -> None:
    words = OfferConfig(titles={"gpu": "Big one", "gpu.sharde": "x"}, hidden=("mig-3g.20gb",))
    found = derive(GPU, offers=words)
    assert found.offers[0].title == "Big one"
    assert found.notes == ("titles['gpu.sharde']: there is no such offer.", "hidden: there is no offer mig-3g.20gb.")


def test_titles_of_pieces_that_no_card_is_cut_into_are_not_noted_and_their_groups_are() -> None:
    words = OfferConfig(titles={"mig-7g.40gb": "x", "mig-7g.4": "y"}, groups={"mig-2g.10gb": ("thesis",)})
    assert derive(GPU, offers=words).notes == (
        "titles['mig-7g.4']: there is no such offer.",
        "groups['mig-2g.10gb']: there is no such offer.",
    )


@pytest.mark.whole
@pytest.mark.slow
@many(150)
@given(
    views(),
    st.sampled_from((ClusterConfig(), KAI, ClusterConfig(kueue_queue="q"), ClusterConfig(fraction_scheduler="hami"))),
)
def test_every_offer_of_a_random_cluster_has_one_valid_request(view: ClusterView, cluster: ClusterConfig) -> None:
    pools = survey_pools(view, HALVES, cluster, names={}, leases=()).pools
    found = derive_cluster_offers(pools, HALVES, cluster)
    assert len(set(ids(found))) == len(found.offers)
    assert set(ids(found)) == set(found.asks)
    for offer in found.offers:
        check_ask(found.asks[offer.id])
        assert offer.pool in pools or offer.id == "cpu"


# ------------------------------------------------------------------ every kind of device

ALONE = "Your own memory and cores: nobody else on the card can slow you down or crash you."
CARD = "A whole card for you alone, with all of its memory and cores."
TURNS = "in turns. No memory or fault isolation: keep to your part of the memory; a neighbour can slow you down or"
AT_ONCE = "at the same time. Your memory has a limit; a neighbour's fault can end your program."
CLAIMED = replace(MIG, mechanism=Mechanism.DRA, resource="", claim_template="small")
CLAIMED_CARD = replace(GPU, mechanism=Mechanism.DRA, resource="", claim_template="whole")
T4 = replace(GPU, id=OfferId("gpu@t4"), memory_bytes=16 << 30)
SLICED_MIG = replace(
    SLICED, id=OfferId("mig-1g.10gb.shared"), base="mig-1g.10gb.shared", resource="nvidia.com/mig-1g.10gb"
)


@pytest.mark.parametrize(
    ("pool", "kind", "title", "description", "enforced"),
    [
        (GPU, OfferKind.WHOLE, "Whole GPU", CARD, True),
        (HAMI, OfferKind.WHOLE, "Whole GPU", CARD, True),
        (CLAIMED_CARD, OfferKind.WHOLE, "Whole GPU", CARD, True),
        (MIG, OfferKind.MIG, "MIG 1g.5gb", ALONE, True),
        (CLAIMED, OfferKind.MIG, "MIG 1g.5gb", ALONE, True),
        (SLICED, OfferKind.FRACTION, "Shared GPU", f"One of 4 places on the card, {TURNS} crash you.", False),
        (
            replace(SLICED, replicas=2),
            OfferKind.FRACTION,
            "Shared GPU",
            f"One of 2 places on the card, {TURNS} crash you.",
            False,
        ),
        (
            replace(SLICED, replicas=1),
            OfferKind.FRACTION,
            "Shared GPU",
            f"A place on the card, {TURNS} crash you.",
            False,
        ),
        (MPS, OfferKind.FRACTION, "Shared GPU", f"One of 4 places on the card, {AT_ONCE}", True),
        (
            SLICED_MIG,
            OfferKind.FRACTION,
            "Shared MIG 1g.10gb",
            f"One of 4 places on the MIG device, {TURNS} crash you.",
            False,
        ),
    ],
)
def test_each_kind_of_device_is_offered_as_what_it_is(
    pool: Pool, kind: OfferKind, title: str, description: str, enforced: bool
) -> None:
    offer = derive(pool).offers[0]
    assert (offer.kind, offer.title, offer.description) == (kind, title, description)
    assert (offer.memory_enforced, offer.share, offer.pool) == (enforced, WHOLE, pool.id)
    assert offer.product == "NVIDIA A100-SXM4-40GB"


@pytest.mark.parametrize(
    ("pool", "own", "of"),
    [
        (GPU, None, 98),
        (replace(GPU, sm_count=108), 108, 98),
        (CLAIMED_CARD, None, 98),
        (HAMI, None, 98),
        (MIG, None, 98),
        (replace(MIG, sm_count=14), 14, 98),
        (CLAIMED, None, 98),
        (SLICED, None, 98),
        (replace(GPU, product=""), None, None),
        (replace(MIG, product="Tesla-T4", sm_count=14), 14, None),
    ],
)
def test_of_a_device_whose_label_says_no_cores_none_are_known_for_a_cut_card_hands_out_fewer_than_it_has(
    pool: Pool, own: int | None, of: int | None
) -> None:
    offer = derive(pool).offers[0]
    assert (offer.sm_count, offer.sm_total) == (own, of)
    offers = {"": 7, "NVIDIA A100-SXM4-40GB": 98}.get
    nameless = replace(pool, product="")
    assert (
        derive_cluster_offers({pool.id: nameless}, OfferConfig(), ClusterConfig(), sm_of_product=offers)
        .offers[0]
        .sm_total
        is None
    )
    assert derive_cluster_offers({pool.id: pool}, OfferConfig(), ClusterConfig()).offers[0].sm_total is None


def test_of_two_kinds_one_without_a_product_has_the_plain_title() -> None:
    nameless = replace(GPU, id=OfferId("gpu@other"), product="")
    titles = {offer.id: offer.title for offer in derive(GPU, nameless, MIG).offers}
    assert (titles["gpu"], titles["gpu@other"], titles["mig-1g.5gb"]) == (
        "Whole GPU (A100 SXM4 40GB)", "Whole GPU", "MIG 1g.5gb",
    )  # fmt: skip


def test_what_is_offered_of_kais_parts_says_whose_they_are_and_how_large() -> None:
    card = replace(GPU, memory_bytes=40 << 30, sm_count=108)
    found = derive(card, offers=OfferConfig(fractions={"gpu": (0.3, 0.5)}), cluster=KAI)
    half = next(offer for offer in found.offers if offer.id == "gpu-0.5")
    assert (half.title, half.kind, half.share, half.memory_bytes) == (
        "Half of a GPU",
        OfferKind.FRACTION,
        500,
        20 << 30,
    )
    assert (half.memory_enforced, half.sm_count, half.isolation.memory) == (False, None, Separation.NONE)
    assert half.description.startswith("Shared, no memory or fault isolation: keep to your part of the memory; a neigh")
    assert found.asks["gpu-0.5"].environment == {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert found.asks["gpu"].environment == {}
    nameless = derive(replace(GPU, memory_bytes=None), offers=HALVES, cluster=KAI).offers[0]
    assert (nameless.id, nameless.memory_bytes) == ("gpu-0.25", None)


def test_hami_isolates_a_part_softly_and_a_whole_card_completely() -> None:
    found = derive(HAMI, offers=HALVES, cluster=ClusterConfig(fraction_scheduler="hami"))
    half = next(offer for offer in found.offers if offer.id == "gpu-0.5")
    assert half.memory_enforced and half.isolation.memory is Separation.SOFT
    assert half.description.startswith("Shared. A program is kept to its part of the memory, softly")
    asks = found.asks
    assert asks["gpu"].limits == {
        "nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "100", "nvidia.com/gpucores": "100",
    }  # fmt: skip
    assert asks["gpu-0.5"].limits == {"nvidia.com/gpu": "1", "nvidia.com/gpumem-percentage": "50"}
    grow = {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}
    assert (asks["gpu"].environment, asks["gpu-0.5"].environment) == ({}, grow)
    assert derive(HAMI, offers=HALVES).asks.keys() == {"cpu", "gpu"}, "without a word of who shares it out, nobody does"


@pytest.mark.parametrize(
    ("mib", "gib", "offered"),
    [(40960, 39, True), (40960, 40, False), (40960, 41, False), (51200, 49, True), (51200, 50, False)],
)
def test_a_part_by_memory_is_less_than_the_card(mib: int, gib: int, offered: bool) -> None:
    card = replace(GPU, memory_bytes=mib << 20)
    found = derive(card, offers=OfferConfig(memory_gib={"gpu": (gib,)}), cluster=KAI)
    assert (f"gpu-{gib}gib" in found.asks) is offered
    assert len(found.notes) == (0 if offered else 1)
    if offered:
        assert found.asks[f"gpu-{gib}gib"].annotations == {"gpu-memory": str(gib * 1024)}
        offer = next(offer for offer in found.offers if offer.id == f"gpu-{gib}gib")
        assert (offer.memory_bytes, offer.share) == (gib << 30, -(-gib * 1024 * 1000 // (mib // 100 * 100)))
        assert found.asks[offer.id].environment == {"TF_FORCE_GPU_ALLOW_GROWTH": "true"}


def test_sizes_for_this_kind_of_card_and_for_all_are_offered_once() -> None:
    card = replace(GPU, id=OfferId("gpu@a100"), memory_bytes=40960 << 20)
    found = derive(card, offers=OfferConfig(memory_gib={"gpu@a100": (8, 16), "gpu": (16, 24)}), cluster=KAI)
    assert [offer for offer in ids(found) if "gib" in offer] == ["gpu-8gib@a100", "gpu-16gib@a100", "gpu-24gib@a100"]
    parts = derive(card, offers=OfferConfig(fractions={"gpu@a100": (0.5,), "gpu": (0.25,)}), cluster=KAI)
    assert ids(parts) == ["gpu-0.25@a100", "gpu-0.5@a100", "gpu@a100", "cpu"]


@pytest.mark.parametrize(
    ("pools", "cluster", "config", "notes"),
    [
        ((GPU,), KAI, OfferConfig(fractions={"gpu": (0.5,)}), 0),
        ((GPU,), KAI, OfferConfig(fractions={"gpu@t4": (0.5,)}), 1),
        ((MIG,), KAI, OfferConfig(fractions={"gpu": (0.5,), "mig-1g.5gb": (0.5,)}), 2),
        ((MIG,), KAI, OfferConfig(memory_gib={"gpu": (8,)}), 1),
        ((GPU,), ClusterConfig(), HALVES, 1),
        ((GPU,), ClusterConfig(), OfferConfig(), 0),
        ((GPU,), ClusterConfig(fraction_scheduler="hami"), OfferConfig(), 0),
        ((T4,), KAI, OfferConfig(memory_gib={"gpu": (4,)}), 0),
        (
            (T4,),
            KAI,
            OfferConfig(memory_gib={"gpu@t4": (4,)}),
            0,
        ),
        (
            (T4,),
            KAI,
            OfferConfig(memory_gib={"gpu@l4": (4,)}),
            1,
        ),
        ((MIG,), ClusterConfig(kai_queue="q"), OfferConfig(), 0),
        ((replace(MIG, id=OfferId("mig-1g.5gb@a100")),), ClusterConfig(kai_queue="q"), OfferConfig(), 0),
        ((GPU,), ClusterConfig(), OfferConfig(titles={"gpu": "Big"}, descriptions={"cpu": "x"}, groups={"gpu": ()}), 0),
        ((GPU,), ClusterConfig(), OfferConfig(descriptions={"gpu-0.5": "x"}, groups={"mig-1g.5gb": ()}), 2),
        ((GPU,), ClusterConfig(), OfferConfig(hidden=("gpu",)), 0),
        ((GPU,), ClusterConfig(), OfferConfig(hidden=("gpu-0.5", "mig-1g.5gb")), 2),
    ],
)
def test_only_settings_without_effect_are_noted(
    pools: tuple[Pool, ...], cluster: ClusterConfig, config: OfferConfig, notes: int
) -> None:
    assert len(derive(*pools, offers=config, cluster=cluster).notes) == notes


def test_cpu_only_is_never_hidden() -> None:
    assert ids(derive(GPU, offers=OfferConfig(hidden=("cpu", "gpu")))) == ["cpu"]
