"""Pools from nodes and pods: permanent ids, and the number of free devices."""

from __future__ import annotations

import string
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.cluster.model import ClusterConfig, ClusterView, NodeFacts, PodFacts, Taint
from hub_extensions.core.cluster.nodes import NodeReadings
from hub_extensions.core.cluster.pools import AHEAD, Pool, PoolSurvey, read_in_steps, survey_pools
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import NODE_PRODUCT, Mechanism
from tests.core.cluster.strategies import PRODUCTS, RESOURCES, views
from tests.examples import many
from tests.fakes.cluster_table import A100, HOME, node, pod

STRATEGY = "nvidia.com/gpu.sharing-strategy"


def survey(
    *nodes: NodeFacts,
    pods: tuple[PodFacts, ...] = (),
    config: ClusterConfig | None = None,
    names: dict[str, str] | None = None,
    leases: frozenset[str] = frozenset(),
    ours: frozenset[str] = frozenset(),
    own_pods_only: bool = False,
) -> PoolSurvey:
    view = ClusterView(
        {each.name: each for each in nodes}, {each.uid: each for each in pods}, own_pods_only, namespace=HOME
    )
    found = config or ClusterConfig()
    return survey_pools(view, OfferConfig(), found, names=names or {}, leases=leases, ours=ours)


def pool(*nodes: NodeFacts, **more: object) -> Pool:
    found = survey(*nodes, **more).pools  # type: ignore[arg-type]
    assert len(found) == 1, sorted(found)
    return next(iter(found.values()))


def reasons(found: PoolSurvey) -> dict[str, str]:
    return {item.what: item.why for item in found.left_out}


# ------------------------------------------------------------------ what a node has


@pytest.mark.parametrize(
    ("resource", "pool_id"),
    [
        ("mig-1g.5gb", "mig-1g.5gb"),
        ("mig-1g.10gb.me", "mig-1g.10gb.me"),
        ("mig-1g.24gb-me", "mig-1g.24gb-me"),
        ("mig-1g.24gb.me.all", "mig-1g.24gb.me.all"),
        ("mig-1g.10gb.shared", "mig-1g.10gb.shared"),
        ("gpu", "gpu"),
        ("gpu.shared", "gpu.shared"),
    ],
)
def test_a_resource_of_a_node_is_a_pool_of_its_name(resource: str, pool_id: str) -> None:
    found = pool(node("a", (resource, 3)))
    assert (found.id, found.resource, found.total, found.free) == (pool_id, f"nvidia.com/{resource}", 3, 3)


def test_mig_mixed_tells_memory_and_cores_of_a_device_by_its_own_labels() -> None:
    labels = {"nvidia.com/mig-1g.5gb.memory": "4864", "nvidia.com/mig-1g.5gb.multiprocessors": "14"}
    found = pool(node("a", ("mig-1g.5gb", 7), labels=labels))
    assert (found.mechanism, found.memory_bytes, found.sm_count) == (Mechanism.MIG, 4864 * 2**20, 14)
    assert found.node_labels == {NODE_PRODUCT: (A100,)}


def test_a_figure_that_one_node_does_not_tell_is_not_known_of_the_pool() -> None:
    labels = {"nvidia.com/mig-1g.5gb.memory": "4864"}
    assert pool(node("a", ("mig-1g.5gb", 7), labels=labels), node("b", ("mig-1g.5gb", 7))).memory_bytes is None


def test_a_card_that_is_fully_partitioned_is_not_a_whole_gpu() -> None:
    labels = {"nvidia.com/gpu.count": "1", "nvidia.com/gpu.replicas": "0"}
    assert pool(node("a", ("gpu", 0), ("mig-1g.5gb", 7), labels=labels)).id == "mig-1g.5gb"


def test_under_mig_single_a_gpu_is_the_mig_device_that_the_label_says() -> None:
    found = pool(node("a", ("gpu", 7), product=f"{A100}-MIG-1g.5gb"))
    assert (found.id, found.mechanism, found.resource) == ("mig-1g.5gb", Mechanism.MIG_SINGLE, "nvidia.com/gpu")
    assert found.node_labels == {NODE_PRODUCT: (f"{A100}-MIG-1g.5gb",)}


def test_under_mig_single_time_slicing_is_of_the_mig_device() -> None:
    found = pool(node("a", ("gpu", 14), product=f"{A100}-MIG-1g.10gb.me-SHARED", labels={STRATEGY: "time-slicing"}))
    assert (found.id, found.mechanism) == ("mig-1g.10gb.me.shared", Mechanism.TIME_SLICING)


@pytest.mark.parametrize("resources", [(), (("gpu", 0),), (("gpu", 7),)])
def test_gpus_that_are_cut_in_several_ways_under_single_are_left_out_with_the_reason(resources: tuple) -> None:  # type: ignore[type-arg]
    found = survey(node("a", *resources, product=f"{A100}-MIG-INVALID"))
    assert not found.pools
    assert "not all cut the same way" in reasons(found)["node a"]


def test_whole_gpus_and_mig_single_with_the_same_resource_are_told_apart_by_the_node_label() -> None:
    found = survey(node("a", ("gpu", 8)), node("b", ("gpu", 7), product=f"{A100}-MIG-1g.5gb")).pools
    assert found["gpu"].node_labels == {NODE_PRODUCT: (A100,)}
    assert found["mig-1g.5gb"].node_labels == {NODE_PRODUCT: (f"{A100}-MIG-1g.5gb",)}


def test_a_node_without_a_product_label_is_found_by_its_absence() -> None:
    found = survey(node("a", ("gpu", 8)), node("b", ("gpu", 8), product="")).pools
    assert found["gpu@other"].node_labels == {NODE_PRODUCT: ()}


@pytest.mark.parametrize(
    ("resource", "product"), [("gpu", f"{A100}-SHARED"), ("gpu.shared", A100)], ids=["not renamed", "renamed"]
)
def test_time_slicing_is_places_on_a_card_with_a_part_of_its_memory(resource: str, product: str) -> None:
    labels = {STRATEGY: "time-slicing", "nvidia.com/gpu.replicas": "4", "nvidia.com/gpu.memory": "40960"}
    found = pool(node("a", (resource, 4), product=product, labels=labels))
    assert (found.id, found.mechanism, found.product) == ("gpu.shared", Mechanism.TIME_SLICING, A100)
    assert (found.replicas, found.memory_bytes, found.sm_count) == (4, 10 * 2**30, None)
    assert found.node_labels[NODE_PRODUCT] == (product,)


def test_mig_devices_that_are_time_sliced_under_their_own_name_are_no_mig_devices() -> None:
    sliced = {"nvidia.com/mig-1g.5gb.sharing-strategy": "time-slicing", "nvidia.com/mig-1g.5gb.replicas": "2"}
    plain = {"nvidia.com/mig-1g.5gb.sharing-strategy": "none"}
    found = survey(node("a", ("mig-1g.5gb", 14), labels=sliced), node("b", ("mig-1g.5gb", 7), labels=plain)).pools
    assert {key: each.total for key, each in found.items()} == {"mig-1g.5gb.shared": 14, "mig-1g.5gb": 7}
    label = "nvidia.com/mig-1g.5gb.sharing-strategy"
    assert found["mig-1g.5gb"].node_labels[label] == ("none",), "else its pod could land on the sliced one"
    assert found["mig-1g.5gb.shared"].node_labels[label] == ("time-slicing",)


def test_mps_and_time_slicing_of_one_product_are_two_pools_with_a_demand_each() -> None:
    found = survey(
        node("a", ("gpu", 4), product=f"{A100}-SHARED", labels={STRATEGY: "mps"}),
        node("b", ("gpu", 4), product=f"{A100}-SHARED", labels={STRATEGY: "time-slicing"}),
    ).pools
    demands = {each.mechanism: each.node_labels[STRATEGY] for each in found.values()}
    assert demands == {Mechanism.MPS: ("mps",), Mechanism.TIME_SLICING: ("time-slicing",)}


def test_places_on_cards_with_other_numbers_of_replicas_tell_the_least_memory() -> None:
    def shared(name: str, replicas: str) -> NodeFacts:
        labels = {STRATEGY: "mps", "nvidia.com/gpu.replicas": replicas, "nvidia.com/gpu.memory": "40960"}
        return node(name, ("gpu", 8), product=f"{A100}-SHARED", labels=labels)

    found = pool(shared("a", "2"), shared("b", "8"))
    assert (found.replicas, found.memory_bytes) == (8, 5 * 2**30)


def test_the_name_that_is_left_of_a_resource_that_was_renamed_is_no_pool() -> None:
    """A kubelet keeps a resource whose plugin is gone, with a count of 0."""
    labels = {STRATEGY: "time-slicing", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "4"}
    assert pool(node("a", ("gpu", 0), ("gpu.shared", 8), labels=labels)).id == "gpu.shared"
    back = {STRATEGY: "none", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "1"}
    assert pool(node("a", ("gpu", 2), ("gpu.shared", 0), labels=back)).id == "gpu"


def test_a_resource_that_is_no_mig_profile_is_left_out_with_the_reason() -> None:
    found = survey(node("a", ("mig-large", 3)))
    assert not found.pools
    assert "is no MIG profile" in reasons(found)["nvidia.com/mig-large of node a"]


def test_a_kubelet_that_restarts_keeps_its_pool_with_none() -> None:
    found = pool(node("a", ("mig-1g.5gb", 0), labels={"nvidia.com/mig-1g.5gb.count": "7"}))
    assert (found.id, found.total, found.free, found.unknown) == ("mig-1g.5gb", 0, 0, False)


# ------------------------------------------------------------------ what is free


def free(*pods: PodFacts) -> tuple[int, int]:
    found = pool(node("a", ("gpu", 4)), pods=pods, leases=frozenset({"mine"}))
    return found.free, found.foreign


def test_pods_of_everybody_take_what_they_ask_for() -> None:
    assert free(pod("other", "a", asks="gpu", count=2), pod("ours", "a", asks="gpu", lease="mine")) == (1, 2)


def test_a_pod_that_is_being_deleted_still_holds_its_device() -> None:
    assert free(pod("other", "a", asks="gpu", deleting=True)) == (3, 1)


@pytest.mark.parametrize("phase", ["Succeeded", "Failed"])
def test_a_pod_that_is_over_holds_nothing(phase: str) -> None:
    assert free(pod("other", "a", asks="gpu", phase=phase)) == (4, 0)


def test_an_unscheduled_pod_of_others_uses_no_device() -> None:
    assert free(pod("other", asks="gpu")) == (4, 0)


def test_a_pod_that_asks_for_another_resource_takes_nothing_of_this_one() -> None:
    assert free(pod("other", "a", asks="mig-1g.5gb")) == (4, 0)


def test_if_more_is_requested_than_exists_nothing_is_free() -> None:
    assert free(pod("other", "a", asks="gpu", count=6)) == (0, 4)


def test_a_server_that_ran_before_is_not_said_to_be_somebody_elses() -> None:
    there = (pod("old", "a", asks="gpu"),)
    assert pool(node("a", ("gpu", 4)), pods=there, ours=frozenset({"uid-old"})).foreign == 0


def test_bound_are_the_leases_whose_pod_has_its_place() -> None:
    found = survey(
        node("a", ("gpu", 4)),
        pods=(
            pod("one", "a", asks="gpu", lease="has a place"),
            pod("two", asks="gpu", lease="has none"),
            pod("three", "a", asks="gpu", lease="failed", phase="Failed"),
        ),
    )
    assert found.bound == {"has a place"}


# ------------------------------------------------------------------ nodes that do not count


@pytest.mark.parametrize(
    ("changes", "why"),
    [
        ({"cordoned": True}, "it is cordoned"),
        ({"ready": False}, "it is not ready"),
        ({"ready": None}, "does not answer"),
        ({"taints": (Taint("team", "a", "NoSchedule"),)}, "do not tolerate its taint team=a:NoSchedule"),
        ({"taints": (Taint("team", "", "NoExecute"),)}, "do not tolerate its taint team=:NoExecute"),
    ],
)
def test_a_node_that_takes_nothing_is_left_out_and_named(changes: dict[str, object], why: str) -> None:
    found = survey(node("a", ("gpu", 4), **changes), node("b", ("gpu", 2)))
    assert found.pools["gpu"].total == found.pools["gpu"].free == 2
    assert why in reasons(found)["node a"]
    assert [(part.node, part.why != "") for part in found.pools["gpu"].nodes] == [("a", True), ("b", False)]


def test_a_kind_that_is_only_for_others_is_not_offered_and_one_that_was_ours_stays_with_none_there() -> None:
    for_others = node("a", ("gpu", 4), taints=(Taint("team", "a", "NoSchedule"),))
    assert not survey(for_others).pools
    assert "team=a" in reasons(survey(for_others))["node a"]
    cordoned = (Taint("node.kubernetes.io/unschedulable", "", "NoSchedule"),)
    assert survey(node("a", ("gpu", 4), cordoned=True, taints=cordoned)).pools["gpu"].total == 0
    before = survey(node("a", ("gpu", 4)))
    after = survey(for_others, names=before.names)
    assert after.pools["gpu"].total == 0


def test_taints_that_pods_of_ours_tolerate_and_mere_wishes_do_not_count() -> None:
    taints = (
        Taint("nvidia.com/gpu", "", "NoSchedule"),
        Taint("x", "", "PreferNoSchedule"),
        Taint("y", "", "NoExecute"),
    )
    found = survey(node("a", ("gpu", 4), taints=taints), config=ClusterConfig(tolerated=("y",)))
    assert found.pools["gpu"].free == 4
    assert not found.left_out


@pytest.mark.parametrize(
    ("tolerated", "counts"),
    [
        ("team", True),
        ("team=a", True),
        ("team=b", False),
        ("team:NoExecute", False),
        ("*", True),
        ("*:NoSchedule", True),
    ],
)
def test_a_taint_is_tolerated_by_key_value_and_effect(tolerated: str, counts: bool) -> None:
    tainted = node("a", ("gpu", 4), taints=(Taint("team", "a", "NoSchedule"),))
    found = survey(tainted, config=ClusterConfig(tolerated=(tolerated,)))
    assert bool(found.pools) is counts


def test_the_devices_own_taint_is_tolerated_for_new_pods_only() -> None:
    evicting = node("a", ("gpu", 4), taints=(Taint("nvidia.com/gpu", "", "NoExecute"),))
    assert not survey(evicting).pools


def test_a_node_that_the_servers_node_selector_does_not_mean_is_left_out() -> None:
    config = ClusterConfig(node_labels={"pool": "jupyter"})
    found = survey(node("a", ("gpu", 4), labels={"pool": "jupyter"}), node("b", ("gpu", 4)), config=config)
    assert found.pools["gpu"].total == 4
    assert "wants pool=jupyter" in reasons(found)["node b"]


@pytest.mark.parametrize("state", ["pending", "rebooting", "halted", "Success"])
def test_the_devices_of_a_node_during_mig_reconfiguration_are_unknown(state: str) -> None:
    found = survey(node("a", ("mig-1g.5gb", 7), labels={"nvidia.com/mig.config.state": state}))
    only = found.pools["mig-1g.5gb"]
    assert (only.unknown, only.total, only.free) == (True, 0, 0)
    assert f"nvidia.com/mig.config.state is {state}" in reasons(found)["node a"]


def test_a_wanted_layout_of_which_nothing_is_there_is_said_to_be_nothing_cut() -> None:
    labels = {"nvidia.com/mig.config": "all-1g.5gb", "nvidia.com/gpu.count": "2", "nvidia.com/gpu.replicas": "0"}
    assert "nothing is cut" in reasons(survey(node("a", ("gpu", 0), labels=labels)))["node a"]


@pytest.mark.parametrize(("labels", "wanted"), [({"nvidia.com/mig.config": "all-1g.5gb"}, "all-1g.5gb"), ({}, "?")])
def test_a_node_whose_layout_failed_has_none_and_says_so(labels: dict[str, str], wanted: str) -> None:
    found = survey(node("a", ("mig-1g.5gb", 7), labels={"nvidia.com/mig.config.state": "failed", **labels}))
    only = found.pools["mig-1g.5gb"]
    assert (only.unknown, only.total, only.free) == (False, 0, 0)
    text = reasons(found)["node a"]
    assert f"could not be cut as {wanted} (nvidia.com/mig.config.state is failed)" in text
    assert "nvidia-mig-manager" in text and "set nvidia.com/mig.config again" in text


@pytest.mark.parametrize(
    ("labels", "remarked"),
    [
        ({"nvidia.com/mig.config": "all-1g.5gb"}, True),
        ({"nvidia.com/mig.config": "all-1g.5gb", "nvidia.com/mig.config.state": ""}, True),
        ({"nvidia.com/mig.config": "all-1g.5gb", "nvidia.com/mig.config.state": "success"}, False),
        ({"nvidia.com/mig.config": "all-disabled"}, False),
        ({"nvidia.com/mig.config": ""}, False),
        ({}, False),
    ],
)
def test_a_layout_of_which_no_manager_says_whether_it_is_there_is_counted_and_remarked(
    labels: dict[str, str], remarked: bool
) -> None:
    found = survey(node("a", ("mig-1g.5gb", 7), labels=labels))
    assert (found.pools["mig-1g.5gb"].unknown, found.pools["mig-1g.5gb"].free) == (False, 7)
    assert ("no nvidia.com/mig.config.state says" in reasons(found).get("the layout of node a", "")) is remarked


def test_a_node_whose_layout_succeeded_is_known() -> None:
    assert not pool(node("a", ("mig-1g.5gb", 7), labels={"nvidia.com/mig.config.state": "success"})).unknown


# ------------------------------------------------------------------ what may not be read


def test_where_nodes_may_not_be_read_the_configured_capacity_counts_and_is_said_to() -> None:
    config = ClusterConfig(capacity={"mig-1g.5gb": 5, "gpu": 1, "gpu.shared": 4})
    running = pod("ours", "somewhere", asks="mig-1g.5gb", lease="mine")
    view = ClusterView(None, {running.uid: running}, namespace=HOME)
    found = survey_pools(view, OfferConfig(), config, names={}, leases={"mine"})
    assert found.configured
    assert {key: (each.total, each.free, each.foreign) for key, each in found.pools.items()} == {
        "mig-1g.5gb": (5, 4, 0),
        "gpu": (1, 1, 0),
        "gpu.shared": (4, 4, 0),
    }
    assert found.bound == {"mine"}
    assert "c.GpuCluster.capacity" in reasons(found)["all nodes"]


@pytest.mark.parametrize(
    ("name", "fraction_scheduler", "mechanism"),
    [
        ("gpu", "", Mechanism.WHOLE),
        ("gpu", "hami", Mechanism.HAMI),
        ("mig-1g.5gb", "", Mechanism.MIG),
        ("mig-1g.5gb", "hami", Mechanism.MIG),
        ("gpu.shared", "", Mechanism.TIME_SLICING),
    ],
)
def test_a_configured_capacity_is_asked_for_by_the_mechanism_of_its_name(
    name: str, fraction_scheduler: str, mechanism: Mechanism
) -> None:
    config = ClusterConfig(capacity={name: 2}, fraction_scheduler=fraction_scheduler)
    found = survey_pools(ClusterView(None, {}), OfferConfig(), config, names={}, leases=())
    assert found.pools[OfferId(name)].mechanism is mechanism


def test_a_configured_capacity_of_what_is_no_device_is_left_out_with_the_reason() -> None:
    config = ClusterConfig(capacity={"cpu": 9, "gpu-0.5": 2, "gpu": 1})
    found = survey_pools(ClusterView(None, {}), OfferConfig(), config, names={}, leases=())
    assert set(found.pools) == {"gpu"}
    assert {"capacity['cpu']", "capacity['gpu-0.5']"} < set(reasons(found))


def test_where_pods_of_others_may_not_be_read_the_configured_capacity_counts_and_the_rest_is_not_known() -> None:
    there = (node("a", ("gpu", 8), ("mig-1g.5gb", 7)),)
    ours = (pod("ours", "a", asks="gpu", lease="mine", namespace=HOME),)
    found = survey(*there, pods=ours, config=ClusterConfig(capacity={"gpu": 3}), own_pods_only=True)
    assert found.configured
    assert (found.pools["gpu"].total, found.pools["gpu"].free, found.pools["gpu"].unknown) == (3, 2, False)
    assert (found.pools["mig-1g.5gb"].free, found.pools["mig-1g.5gb"].unknown) == (0, True)
    assert "pods of other namespaces" in reasons(found)


@pytest.mark.parametrize(
    ("broken", "unknown"),
    [
        ({"ready": None}, False),
        ({"ready": False}, False),
        ({"cordoned": True}, False),
        ({"taints": (Taint("exam", "yes", "NoSchedule"),)}, False),
        ({"labels": {NODE_PRODUCT: A100, "nvidia.com/mig.config.state": "pending"}}, True),
    ],
)
def test_of_a_configured_capacity_no_more_is_free_than_on_the_nodes_that_count(
    broken: dict[str, object], unknown: bool
) -> None:
    there = (node("a", ("mig-1g.5gb", 4)), replace(node("b", ("mig-1g.5gb", 4)), **broken))  # type: ignore[arg-type]
    ours = (
        pod("ours", "a", asks="mig-1g.5gb", lease="mine", namespace=HOME),
        pod("stranded", "b", asks="mig-1g.5gb", lease="other", namespace=HOME),
    )
    config = ClusterConfig(capacity={"mig-1g.5gb": 8})
    found = survey(*there, pods=ours, config=config, own_pods_only=True).pools["mig-1g.5gb"]
    assert (found.total, found.free, found.unknown) == (4, 3, unknown)


@pytest.mark.parametrize(("capacity", "free"), [(3, 1), (2, 0), (1, 0)])
def test_of_a_configured_capacity_our_own_are_taken_and_none_is_said_to_be_others(capacity: int, free: int) -> None:
    ours = (pod(f"ours-{n}", "a", asks="gpu", lease="mine", namespace=HOME) for n in range(2))
    config = ClusterConfig(capacity={"gpu": capacity})
    found = survey(node("a", ("gpu", 8)), pods=tuple(ours), config=config, own_pods_only=True).pools["gpu"]
    assert (found.total, found.free, found.foreign) == (capacity, free, 0)


@pytest.mark.parametrize(("nodes", "steps"), [(0, 0), (1, 1), (AHEAD, 1), (AHEAD + 1, 2), (2 * AHEAD + 1, 3)])
def test_reading_ahead_lets_others_have_a_turn_before_every_hundred_nodes(nodes: int, steps: int) -> None:
    view = ClusterView({f"n{n}": node(f"n{n}", ("gpu", 1)) for n in range(nodes)}, {})
    assert sum(1 for _ in read_in_steps(view, ClusterConfig(), leases=(), kept=NodeReadings())) == steps


def test_where_no_pod_may_be_read_nothing_is_known_of_what_is_free() -> None:
    found = survey_pools(
        ClusterView({"a": node("a", ("gpu", 1))}, None), OfferConfig(), ClusterConfig(), names={}, leases=()
    )
    assert not found.known
    assert not survey_pools(ClusterView(None, None), OfferConfig(), ClusterConfig(), names={}, leases=()).known


# ------------------------------------------------------------------ ids


def test_two_products_have_an_id_each_and_one_alone_has_the_plain_one() -> None:
    both = survey(node("a", ("gpu", 8)), node("b", ("gpu", 8), product="NVIDIA-H100-80GB-HBM3"))
    assert set(both.pools) == {"gpu@a100-sxm4-40gb", "gpu@h100-80gb-hbm3"}
    assert set(survey(node("a", ("gpu", 8))).pools) == {"gpu"}


def test_an_id_stays_when_a_product_joins_leaves_and_comes_back() -> None:
    first = survey(node("a", ("gpu", 8)))
    joined = survey(node("a", ("gpu", 8)), node("b", ("gpu", 4), product="Tesla-T4"), names=dict(first.names))
    assert {key: each.product for key, each in joined.pools.items()} == {"gpu": A100, "gpu@tesla-t4": "Tesla-T4"}
    alone = survey(node("b", ("gpu", 4), product="Tesla-T4"), names=dict(joined.names))
    assert set(alone.pools) == {"gpu@tesla-t4"}, "the plain id stays the A100's"
    back = survey(node("a", ("gpu", 8)), names=dict(alone.names))
    assert set(back.pools) == {"gpu"}


def test_a_node_that_lost_its_labels_is_not_known_and_nothing_else() -> None:
    """While GPU Feature Discovery was away a *single* node was seven whole cards, and an A100 was ``gpu@other``."""
    single = node("a", ("gpu", 7), product=f"{A100}-MIG-1g.5gb")
    readings, names, shown = NodeReadings(), dict[str, str](), []
    for label in (single.labels, {}, single.labels):
        view = ClusterView({"a": replace(single, labels=label)}, {}, False, namespace=HOME)
        found = survey_pools(view, OfferConfig(), ClusterConfig(), names=names, leases=(), kept=readings)
        names = dict(found.names)
        (each,) = found.pools.values()
        shown.append((each.id, each.total, each.unknown, [left.what for left in found.left_out]))
    assert shown == [
        ("mig-1g.5gb", 7, False, []),
        ("mig-1g.5gb", 0, True, ["node a"]),
        ("mig-1g.5gb", 7, False, []),
    ]


def test_an_id_stays_when_the_product_of_its_cards_becomes_known() -> None:
    nameless = survey(node("a", ("gpu", 8), product=""))
    assert set(nameless.pools) == {"gpu"}
    known = survey(node("a", ("gpu", 8)), names=dict(nameless.names))
    assert {key: each.product for key, each in known.pools.items()} == {"gpu": A100}
    joined = survey(node("a", ("gpu", 8)), node("b", ("gpu", 4), product=""), names=dict(known.names))
    assert set(joined.pools) == {"gpu", "gpu@other"}


def test_ids_of_products_that_read_alike_differ() -> None:
    found = survey(node("a", ("gpu", 1), product="NVIDIA-A100"), node("b", ("gpu", 1), product="A100"))
    assert set(found.pools) == {"gpu@a100", "gpu@a100-2"}


WORDS = st.text(string.ascii_letters + string.digits + "-._", max_size=63)


@pytest.mark.whole
@pytest.mark.slow
@many(200)
@given(
    st.lists(
        st.dictionaries(st.tuples(st.sampled_from(RESOURCES), st.sampled_from(PRODUCTS) | WORDS), st.just(1)),
        max_size=5,
    )
)
def test_an_id_never_moves_to_another_key_and_no_two_keys_have_one(weeks: list[dict[tuple[str, str], int]]) -> None:
    names: dict[str, str] = {}
    for week in weeks:
        there = [node(f"n{at}", (resource, 1), product=product) for at, (resource, product) in enumerate(week)]
        found = survey(*there, names=dict(names))
        stay = {key: given for key, given in names.items() if key.split("|")[1]}  # else its product may become known
        assert stay.items() <= found.names.items()
        assert set(names.values()) <= set(found.names.values())
        assert len(set(found.names.values())) == len(found.names)
        for pool_id, each in found.pools.items():
            assert each.id == pool_id
            assert OfferId(pool_id).is_device, "an id that an offer can have"
        names = dict(found.names)


# ------------------------------------------------------------------ laws


@pytest.mark.whole
@pytest.mark.slow
@many(200)
@given(views())
def test_what_is_free_is_never_more_than_what_there_is_nor_less_than_none(view: ClusterView) -> None:
    leases = {each.lease for each in (view.pods or {}).values() if each.lease}
    found = survey_pools(view, OfferConfig(), ClusterConfig(), names={}, leases=leases)
    for each in found.pools.values():
        assert 0 <= each.free <= each.total
        assert 0 <= each.foreign <= each.total
        assert sum(each.room.values()) <= each.total
        allocatable = sum(
            there.allocatable[each.resource]
            for there in (view.nodes or {}).values()
            if each.resource in there.allocatable
        )
        assert each.total <= allocatable


@pytest.mark.whole
@pytest.mark.slow
@many(200)
@given(st.lists(views(), min_size=2, max_size=4))
def test_incremental_counting_equals_a_complete_count(weeks: list[ClusterView]) -> None:
    kept, labelled = NodeReadings(), set[str]()
    for view in weeks:
        named = {each.name for each in (view.nodes or {}).values() if each.labels.get(NODE_PRODUCT)}
        if labelled & ((view.nodes or {}).keys() - named):
            continue  # one that lost its label is not known: who has not seen it before cannot say so
        labelled = named
        leases = {each.lease for each in list((view.pods or {}).values())[::2]}
        every = survey_pools(view, OfferConfig(), ClusterConfig(), names={}, leases=leases)
        assert survey_pools(view, OfferConfig(), ClusterConfig(), names={}, leases=leases, kept=kept) == every
        assert survey_pools(view, OfferConfig(), ClusterConfig(), names={}, leases=(), kept=kept) == survey_pools(
            view, OfferConfig(), ClusterConfig(), names={}, leases=()
        )


@many(50)
@given(views())
def test_reading_ahead_changes_nothing_of_what_is_counted(view: ClusterView) -> None:
    kept = NodeReadings()
    for _ in read_in_steps(view, ClusterConfig(), leases=(), kept=kept):
        continue
    every = survey_pools(view, OfferConfig(), ClusterConfig(), names={}, leases=())
    assert survey_pools(view, OfferConfig(), ClusterConfig(), names={}, leases=(), kept=kept) == every


def test_a_pod_that_changed_or_left_its_node_is_counted_anew() -> None:
    kept = NodeReadings()
    there, taking = node("a", ("gpu", 4)), pod("other", "a", asks="gpu")
    frees = []
    for pods in ({}, {taking.uid: taking}, {taking.uid: replace(taking, phase="Succeeded")}, {}):
        view = ClusterView({"a": there}, pods, namespace=HOME)
        found = survey_pools(view, OfferConfig(), ClusterConfig(), names={}, leases=(), kept=kept)
        frees.append(found.pools["gpu"].free)
    assert frees == [4, 3, 4, 4]
