"""Lines for counted devices: no admission exceeds the devices that exist, and none is given twice."""

from __future__ import annotations

from collections import Counter
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from fractions import Fraction

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.cluster.model import ClusterConfig, ClusterView, PodFacts, Taint
from hub_extensions.core.cluster.offers import derive_cluster_offers
from hub_extensions.core.cluster.pools import Pool, survey_pools
from hub_extensions.core.forecast.inputs import simulation_state
from hub_extensions.core.forecast.results import ForecastInputs
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import OfferConfig
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import Mechanism
from hub_extensions.core.queue.admission import admit, availability, refuse_to_join, standing
from hub_extensions.core.queue.model import (
    Availability,
    Lease,
    LeaseState,
    QueueLimits,
    QueueSnapshot,
    Ticket,
    TicketState,
    WantedOffer,
)
from tests.core.cluster.strategies import views
from tests.examples import many
from tests.fakes.cluster_table import HOME, node, pod

NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
LATER = NOW + timedelta(hours=1)
PARTS = OfferConfig(fractions={"gpu": (0.6, 0.5, 0.4, 0.3, 0.2)})
HAMI = ClusterConfig(fraction_scheduler="hami")


def small(total: int, free: int | None = None, **changes: object) -> Pool:
    room = {WHOLE: total if free is None else free}
    made = Pool(OfferId("mig-1g.5gb"), "mig-1g.5gb", "A100", "nvidia.com/mig-1g.5gb", Mechanism.MIG, total, room)
    return replace(made, **changes)  # type: ignore[arg-type]


def cards(total: int, room: dict[int, int] | None = None) -> Pool:
    return Pool(OfferId("gpu"), "gpu", "A100", "nvidia.com/gpu", Mechanism.HAMI, total, room or {WHOLE: total})


def ticket(n: int, *offers: str, state: TicketState = TicketState.WAITING) -> Ticket:
    return Ticket(f"t{n}", f"u{n}", "", tuple(WantedOffer(offer, n) for offer in offers), NOW, state)


def lease(n: int, pool: str = "mig-1g.5gb", share: int = WHOLE, **changes: object) -> Lease:
    offer = pool if share == WHOLE else f"{pool}-{share / WHOLE:g}"
    made = Lease(
        f"l{n}",
        f"x{n}",
        f"h{n}",
        "",
        offer,
        pool,
        "",
        pool,
        share,
        LeaseState.RUNNING,
        NOW,
        ends_at=NOW + timedelta(hours=1),
    )
    return replace(made, **changes)  # type: ignore[arg-type]


def snapshot(
    *pools: Pool, tickets: tuple[Ticket, ...] = (), leases: tuple[Lease, ...] = (), **more: object
) -> QueueSnapshot:
    by_id = {each.id: each for each in pools}
    offers = derive_cluster_offers(by_id, PARTS if "gpu" in by_id else OfferConfig(), HAMI).offers
    known = QueueSnapshot(offers, None, tickets, leases, lifetime=timedelta(hours=1), pools=by_id)
    return replace(known, **more)  # type: ignore[arg-type]


def admitted(found: QueueSnapshot) -> list[tuple[str, str]]:
    return [(each.ticket, each.offer) for each in admit(found)]


def stands(found: QueueSnapshot, offer: str) -> Availability:
    return next(each for each in availability(found, NOW) if each.offer.id == offer)


ASKS = tuple(ticket(n, "mig-1g.5gb") for n in range(1, 5))


def test_as_many_are_admitted_as_are_free_first_come_first_served() -> None:
    assert admitted(snapshot(small(5, 2), tickets=ASKS[::-1])) == [("t1", "mig-1g.5gb"), ("t2", "mig-1g.5gb")]


def test_an_admission_on_a_cluster_is_to_the_pool() -> None:
    assert admit(snapshot(small(1), tickets=ASKS))[0].device == "mig-1g.5gb"


def test_a_lease_whose_pod_has_no_place_yet_is_taken_off_and_one_that_is_bound_is_not_taken_off_twice() -> None:
    unbound = snapshot(small(2, 2), tickets=ASKS, leases=(lease(1, state=LeaseState.STARTING),))
    assert len(admit(unbound)) == 1
    bound = snapshot(small(2, 1), tickets=ASKS, leases=(lease(1, state=LeaseState.STARTING),), bound=frozenset({"l1"}))
    assert len(admit(bound)) == 1


@pytest.mark.parametrize("state", [LeaseState.STARTING, LeaseState.RUNNING, LeaseState.ENDING, LeaseState.LOST])
def test_a_lease_that_is_not_over_holds_its_device_until_it_is(state: LeaseState) -> None:
    assert admit(snapshot(small(1), tickets=ASKS, leases=(lease(1, state=state),))) == ()


def test_nobody_is_admitted_while_the_pools_are_not_known_but_cpu_only_is() -> None:
    unknown = snapshot(small(5), tickets=(*ASKS, ticket(9, "cpu")), pools=None)
    assert admitted(unknown) == [("t9", "cpu")]
    assert stands(unknown, "mig-1g.5gb").free is None
    assert standing(unknown, NOW)["t1"].reason.reason == "unknown-inventory"


def test_a_pool_of_which_a_part_is_not_known_gives_what_is_free_and_says_not_known_when_nothing_is() -> None:
    assert len(admit(snapshot(small(2, 1, unknown=True), tickets=ASKS))) == 1
    none = snapshot(small(2, 0, unknown=True), tickets=ASKS)
    assert (stands(none, "mig-1g.5gb").free, stands(none, "mig-1g.5gb").total) == (None, None)
    assert standing(none, NOW)["t1"].forecast.at_most is None  # type: ignore[union-attr]


# ------------------------------------------------------------------ parts of a card


def test_parts_that_make_up_a_card_fill_one_card_each() -> None:
    """0.6 + 0.4 share one card, 0.5 + 0.3 + 0.2 another; the third stays whole."""
    wanted = ("gpu-0.6", "gpu-0.5", "gpu-0.4", "gpu-0.3", "gpu-0.2", "gpu")
    tickets = tuple(ticket(n, offer) for n, offer in enumerate(wanted))
    assert len(admit(snapshot(cards(3), tickets=tickets))) == 6
    assert len(admit(snapshot(cards(2), tickets=tickets[:5]))) == 5


def test_a_part_goes_to_the_fullest_card_that_fits_so_that_a_whole_one_stays() -> None:
    tickets = (ticket(1, "gpu-0.4"), ticket(2, "gpu-0.3"), ticket(3, "gpu"))
    assert len(admit(snapshot(cards(3, {300: 1, 400: 1, WHOLE: 1}), tickets=tickets))) == 3


def test_a_part_does_not_pass_a_whole_card_that_waits_ahead_of_it() -> None:
    tickets = (ticket(1, "gpu"), ticket(2, "gpu-0.2"))
    assert admit(snapshot(cards(1, {500: 1}), tickets=tickets)) == ()


def test_rests_of_several_cards_are_not_one_card() -> None:
    assert admit(snapshot(cards(2, {400: 2}), tickets=(ticket(1, "gpu-0.6"),))) == ()
    assert stands(snapshot(cards(2, {400: 2})), "gpu-0.2").free == 4


# ------------------------------------------------------------------ held up, and lines that are not ours


def test_nobody_is_admitted_to_an_offer_whose_first_in_line_finds_no_device() -> None:
    held = snapshot(small(5), cards(1), tickets=(*ASKS, ticket(9, "gpu")), held_up=frozenset({"mig-1g.5gb"}))
    assert admitted(held) == [("t9", "gpu")]
    shown = standing(held, NOW)["t1"]
    assert shown.reason.reason == "taken-outside"
    assert shown.forecast is not None
    assert shown.forecast.at_most is None
    assert stands(held, "mig-1g.5gb").wait.now is False


@pytest.mark.parametrize("queue", ["Kueue", "KAI"])
def test_where_the_line_is_anothers_everybody_is_admitted_at_once_and_no_wait_is_said(queue: str) -> None:
    theirs = snapshot(small(1, 0), tickets=ASKS, queue=queue)
    assert len(admit(theirs)) == 4
    wait = stands(theirs, "mig-1g.5gb").wait
    assert (wait.now, wait.at_most) == (False, None)
    assert wait.reason is not None and wait.reason.message.startswith(queue)


def test_admitted_tickets_whose_pod_has_no_place_do_not_use_the_start_brake_up() -> None:
    starting = tuple(ticket(n, "mig-1g.5gb", state=TicketState.ADMITTED) for n in (11, 12))
    brake = QueueLimits(max_starting=2)
    assert admit(snapshot(small(5), tickets=(*starting, *ASKS), config=brake)) == ()
    freed = snapshot(small(5), tickets=(*starting, *ASKS), config=brake, held_back=frozenset({"t11"}))
    assert admitted(freed) == [("t1", "mig-1g.5gb")]


# ------------------------------------------------------------------ what is told


def test_what_is_free_is_told_before_anybody_in_line_is_served() -> None:
    found = stands(
        snapshot(small(5, 3), tickets=ASKS[:1], leases=(lease(1), lease(2)), bound=frozenset({"l1", "l2"})),
        "mig-1g.5gb",
    )
    assert (found.free, found.total, found.held, found.waiting) == (3, 5, 2, 1)


def test_all_taken_by_others_is_said() -> None:
    others = snapshot(small(2, 0, foreign=2), tickets=ASKS)
    assert standing(others, NOW)["t1"].reason.message.startswith(
        "All 2 are used by programs that this hub did not start."
    )


def test_the_wait_is_at_most_what_the_leases_may_last_unless_others_come_first() -> None:
    full = snapshot(small(1, 0), tickets=ASKS, leases=(lease(1),), bound=frozenset({"l1"}))
    shown = standing(full, NOW)["t1"].forecast
    assert shown is not None
    assert shown.at_most is not None
    assert shown.at_most >= timedelta(hours=1)
    assert "unless others in the cluster come first" in shown.reason.message


SOON, LONG = timedelta(hours=1, minutes=4), timedelta(hours=10, minutes=4)
"""The end of a server in an hour, and in ten; with what its release and a start may take."""


@pytest.mark.parametrize(
    ("on_a", "held", "bound"),
    [
        ({}, {}, SOON),
        ({"cordoned": True}, {}, LONG),
        ({"taints": (Taint("team", "b", "NoSchedule"),)}, {}, LONG),
        ({"ready": False}, {}, LONG),
        ({"ready": None}, {}, LONG),
        ({"allocatable": {}}, {}, LONG),
        (None, {}, LONG),
        ({}, {"state": LeaseState.LOST}, LONG),
    ],
    ids=["open", "cordoned", "tainted", "not ready", "not heard of", "no devices", "no node", "lost"],
)
def test_the_wait_is_at_most_what_those_may_last_whose_device_somebody_new_is_given(
    on_a: dict[str, object] | None, held: dict[str, object], bound: timedelta
) -> None:
    found = _one_here_one_there(on_a, held)
    assert standing(found, NOW)["t1"].forecast.at_most == bound  # type: ignore[union-attr]
    played, _ = simulation_state(ForecastInputs(found, NOW), 60.0)
    assert [each.id for each in played.held if each.frees] == (["l1", "l2"] if bound == SOON else ["l2"])


def _one_here_one_there(on_a: dict[str, object] | None, held: dict[str, object]) -> QueueSnapshot:
    """A server on node a ends in an hour, one on node b in ten hours."""
    asks = "mig-1g.5gb"
    nodes = {"b": node("b", (asks, 1))} | ({} if on_a is None else {"a": node("a", (asks, 1), **on_a)})
    pods = {each.uid: each for each in (pod(f"p{n}", on, asks=asks, lease=f"l{n}") for n, on in ((1, "a"), (2, "b")))}
    leases = (lease(1, **held), lease(2, ends_at=NOW + timedelta(hours=10)))
    view = ClusterView(nodes, pods)
    survey = survey_pools(view, OfferConfig(), ClusterConfig(), names={}, leases=("l1", "l2"))
    return snapshot(
        *survey.pools.values(),
        tickets=ASKS[:1],
        leases=leases,
        bound=survey.bound,
        node_of={"l1": "a", "l2": "b"},
    )


@pytest.mark.parametrize(
    ("on_a", "node_of", "configured", "bound"),
    [
        ({}, {}, False, SOON),
        ({"cordoned": True}, {}, False, None),
        ({"cordoned": True}, {"l1": "a"}, False, None),
        ({"cordoned": True}, {"l2": "b"}, False, LONG),
        ({}, {"l1": "a", "l2": "b"}, True, SOON),
    ],
    ids=["all are open", "nobody's is known", "only the closed one is", "only the open one is", "not by node"],
)
def test_of_a_lease_whose_node_is_not_known_nothing_is_promised_where_a_node_is_closed(
    on_a: dict[str, object], node_of: dict[str, str], configured: bool, bound: timedelta | None
) -> None:
    found = replace(_one_here_one_there(on_a, {}), node_of=node_of)
    if configured:
        found = replace(found, pools={key: replace(each, nodes=()) for key, each in (found.pools or {}).items()})
    assert standing(found, NOW)["t1"].forecast.at_most == bound  # type: ignore[union-attr]


@pytest.mark.parametrize(("free", "bound"), [(1, SOON), (0, None)])
def test_who_was_let_in_and_finds_nothing_takes_what_comes_back_first(free: int, bound: timedelta | None) -> None:
    leases = (lease(1), lease(2, state=LeaseState.STARTING, ends_at=NOW + timedelta(hours=2)))
    found = snapshot(small(2, free), tickets=ASKS[:1], leases=leases, bound=frozenset({"l1"}))
    assert standing(found, NOW)["t1"].forecast.at_most == bound  # type: ignore[union-attr]


def test_waiting_for_what_is_taken_is_never_refused() -> None:
    assert refuse_to_join(snapshot(small(1, 0)), "ada", "", ("mig-1g.5gb",), ()) is None


# ------------------------------------------------------------------ laws


SHARES = st.sampled_from((200, 300, 400, 500, 600, WHOLE))


def offer_of(share: int) -> str:
    return "gpu" if share == WHOLE else f"gpu-{share / WHOLE:g}"


@pytest.mark.slow
@many(200)
@given(
    st.dictionaries(SHARES, st.integers(0, 3)),
    st.lists(SHARES, max_size=12),
    st.lists(st.tuples(SHARES, st.booleans()), max_size=5),
)
def test_never_more_is_admitted_than_there_is_room_and_the_order_is_kept(
    room: dict[int, int], wanted: list[int], held: list[tuple[int, bool]]
) -> None:
    leases = tuple(lease(n, "gpu", share) for n, (share, _) in enumerate(held))
    bound = frozenset(f"l{n}" for n, (_, has_place) in enumerate(held) if has_place)
    tickets = tuple(ticket(n, offer_of(share)) for n, share in enumerate(wanted))
    given_ = admit(snapshot(cards(9, dict(room) or {500: 0}), tickets=tickets, leases=leases, bound=bound))
    order = [int(each.ticket[1:]) for each in given_]
    assert order == list(range(len(order))), "first come, first served, nobody skipped"
    there = sum(Fraction(share, WHOLE) * count for share, count in room.items())
    assert sum(Fraction(wanted[n], WHOLE) for n in order) <= there
    for size in {*room, *wanted}:  # as many as fit in pieces at least as large
        large = sum(1 for n in order if wanted[n] >= size)
        assert large <= sum(count * (share // size) for share, count in room.items())


@pytest.mark.slow
@many(150)
@given(st.integers(0, 6), st.integers(0, 4), st.lists(st.sampled_from("abc"), max_size=12))
def test_in_whatever_order_pods_are_heard_of_no_device_is_given_twice(
    total: int, others: int, heard: list[str]
) -> None:
    """Leases are given as far as there is room; their pods are made and bound at any time; others come and go."""
    there = {"a": node("a", ("mig-1g.5gb", total))}
    pods: dict[str, PodFacts] = {}
    for n in range(min(others, total)):
        pods[f"uid-other{n}"] = pod(f"other{n}", "a", asks="mig-1g.5gb")
    leases: dict[str, Lease] = {}
    tickets = tuple(ticket(n, "mig-1g.5gb") for n in range(9))
    for word in ["a", *heard]:
        if word == "b":  # the next pod that has none is made, without a place
            unmade = [each for each in leases if f"uid-{each}" not in pods]
            for each in unmade[:1]:
                pods[f"uid-{each}"] = pod(each, asks="mig-1g.5gb", lease=each, namespace=HOME)
        if word == "c":  # and the next without a place is bound
            for uid, each in list(pods.items()):
                if not each.node:
                    pods[uid] = replace(each, node="a", phase="Running")
                    break
        found = survey_pools(
            ClusterView(there, pods, namespace=HOME), OfferConfig(), ClusterConfig(), names={}, leases=leases
        )
        if not found.pools:
            assert total == 0
            return
        now = QueueSnapshot(
            derive_cluster_offers(found.pools, OfferConfig(), ClusterConfig()).offers,
            None, tickets, tuple(leases.values()), pools=found.pools, bound=found.bound,
        )  # fmt: skip
        for _ in admit(now):
            leases[f"lease{len(leases)}"] = lease(0, id=f"lease{len(leases)}")
        held = Counter(each.lease for each in pods.values() if each.node)
        assert held[""] + len(leases) <= max(total, held[""]), "each lease is one device, once"
    assert len(leases) == total - min(others, total), "and nothing is left idle"


@pytest.mark.whole
@pytest.mark.slow
@many(150)
@given(views())
def test_on_any_cluster_no_pool_is_given_more_often_than_it_is_free(view: ClusterView) -> None:
    found = survey_pools(view, OfferConfig(), ClusterConfig(), names={}, leases=())
    offers = derive_cluster_offers(found.pools, OfferConfig(), ClusterConfig()).offers
    tickets = tuple(ticket(n, offer.id) for n, offer in enumerate(offer for offer in offers for _ in range(12)))
    brake = QueueLimits(max_starting=500)
    given_ = admit(QueueSnapshot(offers, None, tickets, (), brake, pools=found.pools, bound=found.bound))
    counts = Counter(each.offer for each in given_ if each.offer != "cpu")
    assert counts == Counter({key: min(12, each.free) for key, each in found.pools.items() if each.free})
