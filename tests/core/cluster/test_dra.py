"""Devices of DRA: how many a claim template can still get, and which are left out."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hub_extensions.core.cluster.dra import devices_given
from hub_extensions.core.cluster.model import (
    ClaimFacts,
    ClusterConfig,
    ClusterView,
    NodeFacts,
    PodFacts,
    SliceDevice,
    Taint,
    TemplateFacts,
)
from hub_extensions.core.cluster.offers import derive_cluster_offers
from hub_extensions.core.cluster.pools import PoolSurvey, survey_pools
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import Mechanism
from tests.fakes.cluster_table import HOME, node, pod

GPU, MIG = "gpu.nvidia.com", "mig.nvidia.com"
GIB = 2**30


def selects(**attributes: str) -> tuple[str, ...]:
    return tuple(f"device.attributes['{GPU}'].{name} == '{value}'" for name, value in attributes.items())


def card(name: str, on: str = "a", product: str = "NVIDIA A100-SXM4-40GB") -> SliceDevice:
    return SliceDevice(GPU, on, name, on, "gpu", product, "", 40 * GIB, 108)


def small(name: str, on: str = "a", profile: str = "1g.5gb") -> SliceDevice:
    return SliceDevice(GPU, on, name, on, "mig", "NVIDIA A100-SXM4-40GB", profile, 5 * GIB, 14)


WHOLE_ONE = TemplateFacts("whole", GPU)
SMALL_ONE = TemplateFacts("small", MIG, selectors=selects(profile="1g.5gb"))


def survey(
    *templates: TemplateFacts,
    slices: tuple[SliceDevice, ...] = (card("gpu-0"), card("gpu-1"), small("gpu-2-mig-0"), small("gpu-2-mig-1")),
    claims: tuple[ClaimFacts, ...] | None = (),
    pods: tuple[PodFacts, ...] = (),
    nodes: tuple[NodeFacts, ...] = (node("a"), node("b")),
    leases: tuple[str, ...] = ("mine",),
    names: dict[str, str] | None = None,
) -> PoolSurvey:
    view = ClusterView(
        {each.name: each for each in nodes},
        {each.uid: each for each in pods},
        False,
        HOME,
        slices,
        claims,
        templates,
    )
    return survey_pools(view, OfferConfig(), ClusterConfig(), names=names or {}, leases=leases)


def claim(device: str, name: str = "claim", pod: str = "server", namespace: str = HOME) -> ClaimFacts:
    return ClaimFacts(namespace, name, ((GPU, "a", device),), pod)


def ours(on: str = "a", **changes: object) -> PodFacts:
    made = pod("server", on, namespace=HOME, lease="mine", claims=("claim",))
    return replace(made, **changes)  # type: ignore[arg-type]


def why(found: PoolSurvey, template: str) -> str:
    return next(item.why for item in found.left_out if item.what == f"claim template {template}")


def test_a_template_for_a_whole_gpu_and_one_for_a_mig_device_are_a_pool_each() -> None:
    found = survey(WHOLE_ONE, SMALL_ONE).pools
    assert set(found) == {"gpu@whole", "mig-1g.5gb@small"}
    assert (found["gpu@whole"].total, found["gpu@whole"].free) == (2, 2)
    assert found["mig-1g.5gb@small"].memory_bytes == 5 * GIB
    assert {each.mechanism for each in found.values()} == {Mechanism.DRA}


def test_a_pod_gets_a_claim_template_and_no_resource_limit() -> None:
    ask = derive_cluster_offers(survey(SMALL_ONE).pools, OfferConfig(), ClusterConfig()).asks["mig-1g.5gb@small"]
    assert (ask.claim_template, ask.limits) == ("small", {})


def test_claims_of_others_take_and_are_named_and_ours_take_only() -> None:
    found = survey(
        WHOLE_ONE, claims=(claim("gpu-0"), claim("gpu-1", "else", pod="job", namespace="ml")), pods=(ours(),)
    ).pools["gpu@whole"]
    assert (found.free, found.foreign) == (0, 1)


def test_a_claim_in_our_namespace_of_a_pod_that_is_not_ours_is_somebody_elses() -> None:
    assert survey(WHOLE_ONE, claims=(claim("gpu-0", pod="job"),)).pools["gpu@whole"].foreign == 1


@pytest.mark.parametrize(
    ("pods", "claims", "bound"),
    [
        ((ours(on=""),), (), False),
        ((ours(on=""),), (claim("gpu-0"),), True),
        ((ours(),), (), False),
        ((ours(),), (claim("gpu-0"),), True),
    ],
    ids=["nothing", "claim heard of first", "place heard of first", "both"],
)
def test_a_lease_is_counted_once_in_whatever_order_claim_and_pod_are_heard_of(
    pods: tuple[PodFacts, ...], claims: tuple[ClaimFacts, ...], bound: bool
) -> None:
    found = survey(WHOLE_ONE, claims=claims, pods=pods)
    assert ("mine" in found.bound) is bound
    not_counted_by_claims = 0 if bound else 1
    assert found.pools["gpu@whole"].free - not_counted_by_claims == 1


def test_free_devices_are_unknown_if_claims_cannot_be_read() -> None:
    found = survey(WHOLE_ONE, claims=None).pools["gpu@whole"]
    assert (found.unknown, found.free, found.total) == (True, 0, 2)


@pytest.mark.parametrize("changes", [{"cordoned": True}, {"ready": False}, {"ready": None}])
def test_devices_of_a_closed_node_do_not_count(changes: dict[str, object]) -> None:
    found = survey(WHOLE_ONE, slices=(card("x"), card("y", "b")), nodes=(node("a", **changes), node("b")))
    assert found.pools["gpu@whole"].total == 1
    assert any(item.what == "node a" for item in found.left_out)


def test_devices_of_a_node_whose_taint_is_not_tolerated_do_not_count() -> None:
    tainted = node("a", taints=(Taint("team", "x", "NoSchedule"),))
    assert survey(WHOLE_ONE, nodes=(tainted,)).pools["gpu@whole"].total == 0


@pytest.mark.parametrize(
    "expression",
    [
        f"device.attributes['{GPU}'].profile == '1g.5gb'",
        f'device.attributes["{GPU}"].profile == "1g.5gb"',
        f"device.driver == '{GPU}' && device.attributes['{GPU}'].profile == '1g.5gb'",
        f"device.attributes['{GPU}'].type == 'mig' && device.attributes['{GPU}'].profile == '1g.5gb'",
    ],
)
def test_plain_selectors_are_read(expression: str) -> None:
    found = survey(replace(SMALL_ONE, selectors=(expression,)), slices=(small("x"), small("y", profile="2g.10gb")))
    assert found.pools["mig-1g.5gb@small"].total == 1


@pytest.mark.parametrize(
    ("template", "reason"),
    [
        (
            replace(WHOLE_ONE, selectors=(f"device.capacity['{GPU}'].memory.isGreaterThan(quantity('1Gi'))",)),
            "only the",
        ),
        (replace(WHOLE_ONE, selectors=(f"!(device.attributes['{GPU}'].type == 'gpu')",)), "only the scheduler"),
        (replace(SMALL_ONE, selectors=selects(profile="1g.5gb") + selects(profile="2g.10gb")), "which no device is"),
        (replace(WHOLE_ONE, selectors=selects(type="mig")), "which no device is"),
        (replace(SMALL_ONE, selectors=()), "names no MIG profile"),
        (replace(WHOLE_ONE, count=2), "asks for 2 devices"),
        (replace(WHOLE_ONE, device_class="vfio.gpu.nvidia.com"), "device class"),
    ],
)
def test_a_template_that_cannot_be_an_offer_is_left_out_with_the_reason(template: TemplateFacts, reason: str) -> None:
    found = survey(template)
    assert not found.pools
    assert reason in why(found, template.name)


def test_of_two_templates_for_the_same_devices_one_is_left_out() -> None:
    found = survey(WHOLE_ONE, replace(WHOLE_ONE, name="again"))
    assert set(found.pools) == {"gpu@whole"}
    assert "same devices as whole" in why(found, "again")


def test_devices_of_another_driver_are_not_nvidias() -> None:
    assert survey(WHOLE_ONE, slices=(replace(card("x"), driver="gpu.example.com"),)).pools["gpu@whole"].total == 0


def test_a_template_named_like_a_product_does_not_take_the_products_id() -> None:
    both = (node("a", ("gpu", 1)), node("b", ("gpu", 1), product="Tesla-T4"))
    found = survey(TemplateFacts("tesla-t4", GPU), nodes=both)
    assert set(found.pools) == {"gpu@a100-sxm4-40gb", "gpu@tesla-t4", "gpu@tesla-t4-2"}
    assert found.pools["gpu@tesla-t4"].resource == "nvidia.com/gpu"
    assert found.pools["gpu@tesla-t4-2"].claim_template == "tesla-t4"


def test_a_template_with_a_very_long_name_has_an_id_that_an_offer_can_have() -> None:
    found = survey(
        TemplateFacts("a" * 200 + ".b", GPU), TemplateFacts("a" * 200 + ".c", GPU, selectors=selects(productName="X"))
    )
    assert len(found.pools) == 2
    assert all(OfferId(key).is_device for key in found.pools)


def test_a_cluster_without_dra_has_no_claim_templates() -> None:
    view = ClusterView({"a": node("a", ("gpu", 1))}, {}, namespace=HOME)
    found = survey_pools(view, OfferConfig(), ClusterConfig(), names={}, leases=())
    assert set(found.pools) == {"gpu"}
    assert found.pools["gpu"].room == {WHOLE: 1}


@pytest.mark.parametrize("missing", ["slices", "templates"])
def test_devices_of_dra_are_not_offered_if_slices_or_templates_cannot_be_read(missing: str) -> None:
    view = ClusterView({"a": node("a")}, {}, False, HOME, (card("gpu-0"),), (), (WHOLE_ONE,))
    found = survey_pools(replace(view, **{missing: None}), OfferConfig(), ClusterConfig(), names={}, leases=())
    assert (dict(found.pools), found.left_out) == ({}, ())


def test_a_figure_is_the_least_of_the_selected_devices_and_unknown_if_one_is_unknown() -> None:
    large = replace(card("gpu-1"), memory_bytes=80 * GIB, multiprocessors=132)
    found = survey(WHOLE_ONE, slices=(large, card("gpu-0"))).pools["gpu@whole"]
    assert (found.memory_bytes, found.sm_count) == (40 * GIB, 108)
    silent = replace(card("gpu-2"), memory_bytes=None, multiprocessors=None)
    for order in ((large, silent), (silent, large)):
        found = survey(WHOLE_ONE, slices=order).pools["gpu@whole"]
        assert (found.memory_bytes, found.sm_count) == (None, None)


def test_a_product_is_named_where_all_devices_are_of_one() -> None:
    other = replace(card("gpu-1"), product="Tesla T4")
    assert survey(WHOLE_ONE, slices=(card("gpu-0"),)).pools["gpu@whole"].product == "NVIDIA A100-SXM4-40GB"
    assert survey(WHOLE_ONE, slices=(card("gpu-0"), other)).pools["gpu@whole"].product == ""
    assert survey(WHOLE_ONE, slices=()).pools["gpu@whole"].product == ""


def test_a_closed_device_is_not_counted_and_those_behind_it_are() -> None:
    found = survey(WHOLE_ONE, slices=(replace(card("gpu-0"), closed=True), card("gpu-1"), card("gpu-2")))
    assert (found.pools["gpu@whole"].total, found.pools["gpu@whole"].free) == (2, 2)


def test_each_node_is_listed_with_its_devices_and_the_reason_why_they_do_not_count() -> None:
    stands = survey(
        WHOLE_ONE,
        slices=(card("x", "b"), card("y", "a"), card("z", "a"), card("shelf", "")),
        nodes=(node("a", cordoned=True), node("b")),
        claims=(ClaimFacts(HOME, "claim", ((GPU, "b", "x"),), "server"),),
    ).pools["gpu@whole"]
    assert [(each.node, each.total, each.free, bool(each.why)) for each in stands.nodes] == [
        ("devices of no single node", 1, 1, False), ("a", 2, 0, True), ("b", 1, 0, False),
    ]  # fmt: skip
    assert (stands.total, stands.free, stands.foreign) == (2, 1, 1)


def test_a_template_that_is_left_out_does_not_hide_the_next_one() -> None:
    found = survey(
        TemplateFacts("many", GPU, count=2),
        TemplateFacts("nameless", MIG),
        WHOLE_ONE,
        replace(WHOLE_ONE, name="again"),
        SMALL_ONE,
    )
    assert set(found.pools) == {"gpu@whole", "mig-1g.5gb@small"}
    assert [item.what for item in found.left_out] == [
        "claim template many", "claim template nameless", "claim template again",
    ]  # fmt: skip


def test_only_pools_that_have_devices_in_common_cost_each_other() -> None:
    named = TemplateFacts("named", GPU, selectors=selects(productName="NVIDIA A100-SXM4-40GB"))
    t4 = TemplateFacts("t4", GPU, selectors=selects(productName="Tesla T4"))
    found = survey(named, t4, SMALL_ONE, slices=(card("gpu-0"), replace(card("gpu-1"), product="Tesla T4"))).pools
    assert {pool.id: dict(pool.costs) for pool in found.values()} == {
        "gpu@named": {}, "gpu@t4": {}, "mig-1g.5gb@small": {},
    }  # fmt: skip
    both = survey(named, WHOLE_ONE, slices=(card("gpu-0"), card("gpu-1"))).pools
    assert (both["gpu@named"].costs, both["gpu@whole"].costs) == ({"gpu@whole": 1}, {"gpu@named": 1})


def test_a_selector_that_cannot_be_read_is_shown_by_its_first_120_letters() -> None:
    text = why(survey(replace(WHOLE_ONE, selectors=("x" * 130,))), "whole")
    assert text.endswith(": " + "x" * 120)


def test_a_lease_has_the_devices_that_the_claims_of_its_pod_were_given() -> None:
    cards = (replace(card("gpu-0"), uuid="GPU-0"), card("gpu-1"))
    claims = tuple(ClaimFacts("jhub", name, ((GPU, "a", device),)) for name, device in
                   (("one", "gpu-0"), ("two", "gpu-1"), ("others", "gpu-2")))  # fmt: skip
    view = ClusterView({}, {}, slices=cards, claims=claims)
    pods = {
        "l1": PodFacts("u1", "jhub", "p1", claims=("one",)),
        "l2": PodFacts("u2", "jhub", "p2", claims=("one", "two")),
        "l3": PodFacts("u3", "elsewhere", "p3", claims=("one",)),
        "l4": PodFacts("u4", "jhub", "p4", claims=("not given yet",)),
        "l5": PodFacts("u5", "jhub", "p5"),
    }
    assert devices_given(view, pods) == {"l1": "GPU-0", "l2": "GPU-0 a/gpu-1"}
    assert devices_given(replace(view, claims=None, slices=None), pods) == {}
