"""Servers that may use only some nodes: count, admission and shown wait refer to these nodes only."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Callable
from dataclasses import replace
from datetime import timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.cluster.model import (
    ClusterConfig,
    ClusterView,
    NodeFacts,
    Requirement,
    Taint,
    Term,
    VolumeFacts,
    Volumes,
)
from hub_extensions.core.cluster.placement import NodeSets, PodDemands, Toleration
from hub_extensions.core.cluster.pools import NodeRoom, Pool, survey_pools
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.queue.admission import admit, standing
from hub_extensions.core.queue.model import LeaseState, QueueSnapshot, Ticket
from hub_extensions.core.queue.node_sets import NodeRooms, NodeWish, most_placed
from tests.core.queue.test_counted_pools import NOW, admitted, cards, lease, small, snapshot, stands, ticket
from tests.examples import many
from tests.fakes.cluster_table import node, pod

SMALL = "mig-1g.5gb"
A, B, AB = frozenset("a"), frozenset("b"), frozenset("ab")


def pool(**free: int) -> Pool:
    """A pool with two devices per node, of which so many are free."""
    rooms = {name: NodeRoom(2, {WHOLE: left}) for name, left in free.items()}
    return small(2 * len(free), sum(free.values()), rooms=rooms)


def line(*sets: frozenset[str] | None, here: Pool, **more: object) -> QueueSnapshot:
    """Tickets t1, t2, … that may use these nodes; None for unknown nodes."""
    tickets = tuple(ticket(number, SMALL) for number, _ in enumerate(sets, 1))
    known = {f"t{number}": nodes for number, nodes in enumerate(sets, 1) if nodes is not None}
    return snapshot(here, tickets=tickets, **{"node_sets": known, **more})


def names(found: QueueSnapshot) -> list[str]:
    return [who for who, _ in admitted(found)]


@pytest.mark.parametrize(
    ("sets", "free", "who"),
    [
        ((A, None), {"a": 0, "b": 1}, ["t2"]),
        ((A, A, B), {"a": 0, "b": 1}, ["t3"]),
        ((A, AB), {"a": 1, "b": 0}, ["t1"]),
        ((AB, A), {"a": 1, "b": 0}, ["t1"]),
        ((AB, A), {"a": 1, "b": 1}, ["t1"]),  # the scheduler may put the first on a
        ((A, AB), {"a": 1, "b": 1}, ["t1"]),  # and the second, too, before the first has its place
        ((A, B), {"a": 1, "b": 1}, ["t1", "t2"]),
        ((A, AB, B), {"a": 1, "b": 2}, ["t1", "t3"]),
        ((frozenset("x"), None), {"a": 1}, ["t2"]),
        ((None, None), {"a": 1, "b": 1}, ["t1", "t2"]),
    ],
)
def test_a_later_ticket_overtakes_only_if_it_takes_nothing_an_earlier_one_could_use(
    sets: tuple[frozenset[str] | None, ...], free: dict[str, int], who: list[str]
) -> None:
    assert names(line(*sets, here=pool(**free))) == who


def test_what_was_promised_for_one_node_is_not_missing_on_another() -> None:
    starting = lease(9, state=LeaseState.STARTING, ticket="t9")
    found = line(B, here=pool(a=1, b=1), leases=(starting,))
    on_a = replace(found, node_sets={**found.node_sets, "t9": A})
    assert names(on_a) == ["t1"]
    assert names(replace(found, node_sets={**found.node_sets, "t9": AB})) == []


def test_a_ticket_without_a_device_on_its_nodes_blocks_no_other_node() -> None:
    stuck = lease(9, state=LeaseState.STARTING, ticket="t9")
    more = {"leases": (stuck,), "held_up": frozenset({SMALL}), "held_up_on": {SMALL: A}}
    found = line(AB, A, here=pool(a=0, b=1), **more)
    found = replace(found, node_sets={**found.node_sets, "t9": A})
    assert names(found) == ["t1"]
    shown = standing(found, NOW)
    assert shown["t2"].reason.reason == "taken-outside"
    assert stands(found, SMALL).free == 1
    everywhere = replace(found, held_up_on={})
    assert names(everywhere) == []


def test_reason_and_position_are_about_its_own_nodes() -> None:
    found = line(A, A, B, frozenset("x"), here=pool(a=0, b=0))
    shown = standing(found, NOW)
    assert [shown[f"t{n}"].position for n in (1, 2, 3, 4)] == [1, 2, 1, 1]
    assert shown["t3"].reason.message == (
        "Small GPU: all 2 on the machines that your server may use are in use. You are next."
    )
    assert shown["t4"].reason.message == "Small GPU: none is on the machines that your server may use. You are next."
    plain = line(None, here=pool(a=0, b=0))
    assert standing(plain, NOW)["t1"].reason.message == "Small GPU: all 4 are in use. You are next."


def test_the_wait_is_bounded_by_those_on_its_own_nodes() -> None:
    """On node a a server ends in an hour, on b in ten."""
    leases = (
        *(lease(n, ends_at=NOW + timedelta(hours=1)) for n in (1, 2)),
        *(lease(n, ends_at=NOW + timedelta(hours=10)) for n in (3, 4)),
    )
    bound, node_of = frozenset({"l1", "l2", "l3", "l4"}), {"l1": "a", "l2": "a", "l3": "b", "l4": "b"}
    found = line(A, B, None, here=pool(a=0, b=0), leases=leases, bound=bound, node_of=node_of)
    shown = standing(found, NOW)
    waits = [shown[f"t{n}"].forecast.at_most for n in (1, 2, 3)]  # type: ignore[union-attr]
    assert waits[0] is not None and waits[0] < timedelta(hours=1.5)
    assert waits[1] is not None and waits[1] >= timedelta(hours=10)
    assert waits[2] is not None and waits[2] < timedelta(hours=4), "two are ahead, on three devices"


@pytest.mark.parametrize("why", ["a takes nobody new", "the server is lost"])
def test_a_device_of_its_own_nodes_that_does_not_come_back_bounds_no_wait(why: str) -> None:
    """On node a a server ends in an hour, on b in ten; somebody may use both, and somebody else b alone."""
    lost = {"state": LeaseState.LOST} if why == "the server is lost" else {}
    leases = (lease(1, **lost), lease(2, ends_at=NOW + timedelta(hours=10)))
    rooms = {"a": NodeRoom(1 if lost else 0, {}), "b": NodeRoom(1, {}), "c": NodeRoom(1, {})}
    here = small(2, 0, rooms=rooms)
    more = {"leases": leases, "bound": frozenset({"l1", "l2"}), "node_of": {"l1": "a", "l2": "b"}}
    bound = standing(line(AB, here=here, **more), NOW)["t1"].forecast.at_most  # type: ignore[union-attr]
    assert bound is not None and bound >= timedelta(hours=10)


def test_somebody_without_demands_starts_at_once_past_those_who_wait_for_another_node() -> None:
    found = line(A, here=pool(a=0, b=1))
    assert stands(found, SMALL).wait.now
    assert not stands(line(A, here=pool(a=1, b=0)), SMALL).wait.now


def test_a_node_that_only_some_may_use_counts_for_them_alone() -> None:
    tainted = node("b", (SMALL, 1), taints=(Taint("team", "b", "NoSchedule"),))
    view = ClusterView({"a": node("a", (SMALL, 1)), "b": tainted}, {"x": pod("x", "a", asks=SMALL)})
    found = survey_pools(view, OfferConfig(), ClusterConfig(), names={}, leases=())
    (here,) = found.pools.values()
    assert (here.total, here.free) == (1, 0)
    assert names(line(None, here=here)) == []
    assert names(line(None, AB, here=here)) == ["t2"]


def test_parts_of_cards_are_let_in_on_their_own_nodes_only() -> None:
    rooms = {"a": NodeRoom(1, {400: 1}), "b": NodeRoom(1, {WHOLE: 1})}
    both = replace(cards(2, {400: 1, WHOLE: 1}), rooms=rooms)
    tickets = (ticket(1, "gpu-0.6"), ticket(2, "gpu-0.4"), ticket(3, "gpu-0.4"))
    found = snapshot(both, tickets=tickets, node_sets={"t1": A, "t2": A, "t3": B})
    assert admitted(found) == [("t2", "gpu-0.4"), ("t3", "gpu-0.4")]


# ------------------------------------------------------------------ laws

NODES = "abcd"
SETS = st.frozensets(st.sampled_from(NODES), max_size=4)


def placements(wishes: list[frozenset[str]], free: dict[str, int]) -> int:
    """Return the most that a scheduler can place, by trying all placements."""
    best = 0
    for chosen in itertools.product(*[[None, *sorted(nodes)] for nodes in wishes]):
        counts = Counter(name for name in chosen if name)
        if all(count <= free.get(name, 0) for name, count in counts.items()):
            best = max(best, counts.total())
    return best


@many(200)
@given(st.lists(SETS, max_size=5), st.dictionaries(st.sampled_from(NODES), st.integers(0, 2)), SETS)
def test_a_free_device_is_free_whatever_the_scheduler_does(
    ahead: list[frozenset[str]], free: dict[str, int], mine: frozenset[str]
) -> None:
    rooms = NodeRooms({name: NodeRoom(2, {WHOLE: left}) for name, left in free.items()})
    wishes = Counter(NodeWish(nodes, WHOLE) for nodes in ahead)
    here = {name: left for name, left in free.items() if name in mine}
    assert most_placed(Counter(nodes.intersection(here) for nodes in ahead), here) == placements(ahead, here)
    assert rooms.free(NodeWish(mine, WHOLE), wishes) == sum(here.values()) - placements(ahead, here)


ZONE = "topology.kubernetes.io/zone"
LABELS = st.fixed_dictionaries(
    {}, optional={"rack": st.sampled_from("12"), "zone": st.sampled_from("ab"), ZONE: st.sampled_from("ab")}
)
TAINTS = st.sampled_from([(), (Taint("team", "x", "NoSchedule"),), (Taint("soft", "", "PreferNoSchedule"),)])
Holds = Callable[[NodeFacts], bool]
AFFINITIES: dict[tuple[Term, ...] | None, Holds] = {
    None: lambda _: True,
    ((Requirement("zone", "In", ("a", "c")),),): lambda one: one.labels.get("zone") == "a",
    ((Requirement("rack", "NotIn", ("1",)),),): lambda one: one.labels.get("rack") != "1",
    ((Requirement("rack", "Exists"),), (Requirement("metadata.name", "In", ("d",), True),)): lambda one: (
        "rack" in one.labels or one.name == "d"
    ),
    ((Requirement("zone", "DoesNotExist"), Requirement("rack", "Gt", ("1",))),): lambda one: (
        "zone" not in one.labels and one.labels.get("rack") == "2"
    ),
    ((),): lambda _: False,
}
"""Required affinities, and what the documentation of Kubernetes says of a node."""
VOLUMES = Volumes(
    {"jhub/of-a-rack": "one", "jhub/of-an-old-zone": "two", "jhub/of-anywhere": "three"},
    {
        "one": VolumeFacts(terms=((Requirement("rack", "In", ("1",)),),)),
        "two": VolumeFacts(zones=((ZONE, ("b",)),)),
    },
)
HOMES: dict[str, Holds] = {
    "jhub/of-a-rack": lambda one: one.labels.get("rack") == "1",
    "jhub/of-an-old-zone": lambda one: one.labels.get(ZONE, "b") == "b",
    "jhub/of-anywhere": lambda _: True,
    "jhub/not-bound-yet": lambda _: True,
}
DEMANDS = st.builds(
    PodDemands,
    selector=st.sampled_from([(), (("rack", "1"),), (("zone", "a"),), (("rack", "2"), ("zone", "b"))]),
    terms=st.sampled_from([*AFFINITIES]),
    tolerations=st.sampled_from([(), (Toleration("team", "Exists"),)]),
    claims=st.lists(st.sampled_from([*HOMES]), max_size=2, unique=True).map(tuple),
)


THERE = st.lists(st.tuples(LABELS, TAINTS, st.integers(0, 2), st.integers(0, 2)), max_size=4)
"""Of each node: labels, taints, how many devices, and how many of them others hold."""


def by_hand(demands: PodDemands, one: NodeFacts) -> bool:
    """The scheduler's filters, as far as these clusters need them."""
    hard = {taint.key for taint in one.taints if taint.effect == "NoSchedule"}
    return (
        set(demands.selector) <= set(one.labels.items())
        and hard <= {each.key for each in demands.tolerations}
        and AFFINITIES[demands.terms](one)
        and all(HOMES[claim](one) for claim in demands.claims)
    )


@many(150)
@given(THERE, st.lists(DEMANDS, max_size=6))
def test_on_random_clusters_nobody_is_let_in_whom_a_scheduler_cannot_place_and_nobody_waits_beside_a_free_node(
    there: list[tuple[dict[str, str], tuple[Taint, ...], int, int]], wanted: list[PodDemands]
) -> None:
    nodes, pods = {}, {}
    for name, (labels, taints, total, used) in zip(NODES, there, strict=False):
        nodes[name] = node(name, (SMALL, total), labels=labels, taints=taints)
        pods |= {f"{name}{n}": pod(f"{name}{n}", name, asks=SMALL) for n in range(min(used, total))}
    found = survey_pools(ClusterView(nodes, pods), OfferConfig(), ClusterConfig(), names={}, leases=())
    if not found.pools:
        return
    sets = NodeSets()
    sets.know(nodes, VOLUMES)
    tickets = {f"t{n}": demands for n, demands in enumerate(wanted, 1)}
    line_of = tuple(ticket(n, SMALL) for n, _ in enumerate(wanted, 1))
    known = {who: allowed for who, demands in tickets.items() if (allowed := sets.of(demands)) is not None}
    now = snapshot(*found.pools.values(), tickets=line_of, node_sets=known)
    free = {name: total - min(used, total) for name, (_, _, total, used) in zip(NODES, there, strict=False)}
    let_in = [each.ticket for each in admit(now)]
    mine = {who: [name for name in nodes if by_hand(demands, nodes[name])] for who, demands in tickets.items()}
    # in whatever order and wherever the scheduler places them, all find a device
    for order in itertools.permutations(let_in):
        left = [free]
        for who in order:
            assert all(any(state[name] for name in mine[who]) for state in left), (order, who)
            left = [{**state, name: state[name] - 1} for state in left for name in mine[who] if state[name]][:200]
    # who waits, and not for those let in to have their places, has no free node that nobody ahead of him may use
    placing = {name for other in let_in for name in mine[other]}
    for who in set(tickets) - set(let_in):
        ahead = {name for other in tickets if int(other[1:]) < int(who[1:]) for name in mine[other]}
        assert placing & {*mine[who]} or not any(free[name] for name in mine[who] if name not in ahead), who


def test_the_line_is_as_ever_where_all_may_use_the_same_nodes() -> None:
    plain = pool(a=1, b=1)
    same = {f"t{n}": AB for n in range(1, 5)}
    tickets: tuple[Ticket, ...] = tuple(ticket(n, SMALL) for n in range(1, 5))
    with_sets = snapshot(plain, tickets=tickets, node_sets=same)
    without = snapshot(plain, tickets=tickets)
    assert admit(with_sets) == admit(without)
    assert [standing(with_sets, NOW)[f"t{n}"] for n in range(1, 5)] == [
        standing(without, NOW)[f"t{n}"] for n in range(1, 5)
    ]
