"""The line that is played is the one that admission serves: made of a snapshot, rule by rule, and end by end."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta
from typing import Any

import numpy as np
import pytest

from hub_extensions.core.forecast.durations import Left, UseHolder
from hub_extensions.core.forecast.inputs import ENDING, kind_of_use, simulation_state
from hub_extensions.core.forecast.interval import Interval, limited
from hub_extensions.core.forecast.results import ForecastInputs, KnownEnd, Stay
from hub_extensions.core.forecast.simulate import Brake, GivenUp, SimulationState, Waiting, Wish, simulate_lives
from hub_extensions.core.forecast.wait_model import FIRST_START, WaitModel
from hub_extensions.core.gpu.devices import WHOLE, Foreign
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import (
    LeaseState,
    QueueLimits,
    QueueSnapshot,
    Ticket,
    TicketState,
    WantedOffer,
)
from tests.core.queue.test_admission import NOW, OFFERS, large, lease, small, snapshot, ticket, whole
from tests.core.queue.test_counted_pools import cards

SMALL, LARGE, GPU, HALF = (OfferId(name) for name in ("mig-1g.5gb", "mig-2g.10gb", "gpu", "gpu-0.5"))
MINUTE = timedelta(minutes=1)


def stays(count: int = 30, pool: str = SMALL, lasted: float = 3600.0, **more: Any) -> list[Stay]:
    at = NOW.timestamp() - 1e6
    return [
        Stay(f"{pool}-{n}", f"u{n % 5}", pool, 1, WHOLE, at + 3600 * n, lasted * (1 + 0.05 * (n % 4)), **more)
        for n in range(count)
    ]


def line(snap: QueueSnapshot, starting: float = 30.0, **question: Any) -> SimulationState:
    return simulation_state(ForecastInputs(snap, NOW, **question), starting)[0]


def shown(snap: QueueSnapshot, **question: Any) -> set[str]:
    teller = WaitModel()
    teller.learn(each for pool in (SMALL, LARGE, GPU) for each in stays(pool=pool))
    return set(teller.answer(ForecastInputs(snap, NOW, **question), 1).tickets)


# ------------------------------------------------------------------ as admission serves it


def test_who_starts_later_takes_no_start_from_who_can_start_now() -> None:
    """One start at a time, and the first in line waits an hour for its device: others start meanwhile."""
    snap = snapshot(
        (small(0), large(0), large(1)),
        (ticket(1, SMALL), ticket(2, LARGE), ticket(3, LARGE)),
        (lease(small(0)),),
        QueueLimits(max_starting=1),
    )
    starts, _ = simulate_lives(line(snap), {lease(small(0)).id: np.array([3600.0])}, lambda wish: np.array([600.0]), 1)
    assert {name: at.tolist() for name, at in starts.items()} == {"t1": [3600.0], "t2": [0.0], "t3": [30.0]}


# ------------------------------------------------------------------ rule by rule


def test_what_somebody_holds_is_known_by_its_age_its_limit_and_its_end() -> None:
    held = replace(lease(small(0), ends=NOW + 60 * MINUTE), since=NOW - 30 * MINUTE)
    (found,) = line(snapshot((small(0),), (), (held,)), asked={held.id: 7.0}, ends={held.id: KnownEnd(60.0, 0.1)}).held
    assert (found.holder.age, found.holder.limit, found.holder.asked) == (1800.0, 5400.0, 7.0)
    assert found.holder.left == Left(60.0, 0.1) and found.frees
    assert found.holder.offer == (1, WHOLE) and found.shares == ((held.device, WHOLE),)


@pytest.mark.parametrize(
    ("changes", "frees"),
    [
        ({"ends_at": NOW + MINUTE}, True),
        ({"ends_at": None}, True),
        ({"ends_at": NOW - 2 * MINUTE}, False),
        ({"state": LeaseState.LOST}, False),
        ({"state": LeaseState.STARTING, "since": NOW - 60 * MINUTE, "ends_at": NOW + 60 * MINUTE}, False),
    ],
    ids=["in time", "no limit", "the stop is refused", "lost", "a start too long"],
)
def test_what_is_late_frees_nothing(changes: dict[str, Any], frees: bool) -> None:
    held = replace(lease(small(0)), **changes)
    (found,) = line(snapshot((small(0),), (), (held,))).held
    assert found.frees is frees


def test_a_server_that_is_gone_is_over_soon() -> None:
    held = replace(lease(small(0)), state=LeaseState.ENDING)
    (found,) = line(snapshot((small(0),), (), (held,))).held
    assert found.holder.left == ENDING


def test_a_device_that_others_use_is_not_given() -> None:
    taken = replace(small(1), foreign=Foreign.SOME)
    assert line(snapshot((small(0), taken))).pools == {
        SMALL: (small(0).device.identity,),
        LARGE: (),
        GPU: (),
    }


def test_counted_devices_are_slots_and_parts_of_several_sizes_are_not_played() -> None:
    offers = tuple(offer for offer in OFFERS if offer.id != "gpu-0.25" and offer.id != HALF)
    counted = replace(cards(3), id="gpu", total=3, room={WHOLE: 1})
    held = [replace(lease(whole(n), n=n), device="gpu") for n in range(2)]
    snap = replace(
        snapshot(None, (ticket(1, GPU), ticket(2, GPU)), tuple(held)),
        offers=offers,
        pools={GPU: counted},
        bound=frozenset(each.id for each in held),
    )
    found = line(snap)
    assert found.pools[GPU] == (held[0].id, held[1].id, "free 0")
    assert {each.shares for each in found.held} == {((each.id, WHOLE),) for each in held}
    assert GPU not in line(replace(snap, offers=OFFERS)).pools


@pytest.mark.parametrize(
    "changes",
    [{"queue": "Kueue"}, {"devices": None}, {"held_up": frozenset({SMALL})}],
    ids=["the line is elsewhere", "not known which are free", "something outside took one"],
)
def test_where_no_limit_could_be_said_nothing_is_likely(changes: dict[str, Any]) -> None:
    snap = snapshot((small(0),), (ticket(1, SMALL),), (lease(small(0)),))
    assert shown(snap) == {"t1"}
    assert shown(replace(snap, **changes)) == set()


def test_who_holds_as_many_as_he_may_is_passed_and_told_nothing() -> None:
    mine = replace(lease(large(0)), user="u1", server="other")
    snap = snapshot((small(0), large(0)), (ticket(1, SMALL), ticket(2, SMALL)), (mine, lease(small(0), n=1)))
    assert [each.id for each in line(snap).waiting] == ["t1", "t2"]
    assert shown(snap) == {"t2"}


def test_cpu_only_counts_where_the_start_brake_may_bind() -> None:
    tickets = (ticket(1, "cpu"), ticket(2, SMALL))
    snap = snapshot((small(0),), tickets, (lease(small(0)),), QueueLimits(max_starting=1))
    assert [each.id for each in line(snap).waiting] == ["t1", "t2"] and line(snap).brake == Brake(1, 30.0, ())
    free = replace(snap, config=QueueLimits())
    assert [each.id for each in line(free).waiting] == ["t2"] and line(free).brake is None


def test_a_start_that_is_under_way_is_over_when_one_usually_is() -> None:
    starting = replace(ticket(1, "cpu", state=TicketState.ADMITTED), admitted_at=NOW - timedelta(seconds=10))
    snap = snapshot((small(0),), (starting, ticket(2, SMALL)), (), QueueLimits(max_starting=1))
    assert line(snap).brake == Brake(1, 30.0, (20.0,))


def test_an_offer_that_was_added_later_has_its_own_place() -> None:
    first = Ticket("t0", "a", "", (WantedOffer(SMALL, 1), WantedOffer(LARGE, 9)), NOW)
    snap = snapshot((small(0), large(0)), (first, ticket(2, LARGE), ticket(3, SMALL)))
    starts, _ = simulate_lives(line(snap), {}, lambda wish: np.array([600.0]), 1)
    assert {name: at.tolist() for name, at in starts.items()} == {"t0": [0.0], "t2": [0.0], "t3": [600.0]}


# ------------------------------------------------------------------ what is learned


def test_a_record_that_is_written_again_teaches_once() -> None:
    teller = WaitModel()
    teller.learn([*stays(20), *stays(20)])
    assert teller.finished(SMALL) == 20


def test_a_start_takes_as_long_as_the_last_fifty_did() -> None:
    teller = WaitModel()
    assert teller.starting == FIRST_START
    teller.learn(stays(60, starting=12.0))
    assert teller.starting == 12.0


def test_a_view_counts_people_and_ends_and_names_nobody() -> None:
    teller = WaitModel()
    teller.learn(stays())
    snap = snapshot((small(0), small(1)), (ticket(1, SMALL), ticket(2, SMALL, user="holder0")), (
        lease(small(0)), replace(lease(small(1), n=1), since=NOW - 300 * MINUTE)))  # fmt: skip
    known = {lease(small(0)).id: KnownEnd(60.0), lease(small(1), n=1).id: KnownEnd(7200.0)}
    view = teller.answer(ForecastInputs(snap, NOW, ends=known), 1).pools[SMALL]
    assert (view.finished, view.held, view.people, view.ending) == (30, 2, 2, 1)


def test_forecasts_that_fell_short_widen_the_next() -> None:
    teller = WaitModel()
    teller.learn(stays())
    snap = snapshot((small(0),), (ticket(1, SMALL),), (lease(small(0)),))
    before = teller.answer(ForecastInputs(snap, NOW), 1).tickets["t1"]
    for number in range(30):
        teller.matured(SMALL, Interval(600.0, 1200.0, 1800.0), 7200.0, joined=10000.0 * number)
    after = teller.answer(ForecastInputs(snap, NOW), 1).tickets["t1"]
    assert after.played == before.played and after.shown.p50 == before.shown.p50
    assert after.shown.p90 > 1.5 * before.shown.p90


@pytest.mark.parametrize("times", [1, 3])
def test_after_one_busy_time_at_the_limit_a_quiet_one_has_the_middle_of_the_simulation(times: int) -> None:
    """150 tickets that all waited to the limit are one experiment, also where each is given three times."""
    teller, day = WaitModel(), 86400.0
    teller.learn(stays())
    began = NOW.timestamp() - 30 * day
    for number in range(150):
        for _ in range(times):
            teller.matured(SMALL, Interval(600.0, 1200.0, 1800.0), day, day, began + 60.0 * number)
    tickets = tuple(replace(ticket(n + 1, SMALL), joined=NOW - (2 - n) * MINUTE) for n in range(2))
    found = teller.answer(ForecastInputs(snapshot((small(0),), tickets, (lease(small(0)),)), NOW), 1)
    for likely in (*found.tickets.values(), *found.offers.values()):
        for shown in (likely.shown, limited(likely.shown, day, likely.limit_is_p90)):
            assert shown.p50 == pytest.approx(likely.played.p50, rel=0.05)
            assert shown.p90 < 1.6 * likely.played.p90


def test_who_is_behind_somebody_has_a_mean_with_that_wait_in_the_busy_time_under_way() -> None:
    """The clock is the one of the joins; once the line was empty, nothing of it counts."""
    for over, counts in ((49.0, True), (50.0, False)):
        teller = WaitModel()
        teller.learn(stays())
        until = (NOW - over * 60 * MINUTE).timestamp()
        for number in range(9):
            joined = until - 36000.0 * (8 - number) - 72000.0
            teller.matured(SMALL, Interval(600.0, 1200.0, 1800.0), 72000.0, joined=joined)
        tickets = tuple(
            replace(ticket(n + 1, SMALL), joined=NOW - hours * 60 * MINUTE) for n, hours in enumerate((50, 30, 0))
        )
        snap = snapshot((small(0),), tickets, (lease(small(0)),))
        assert [each.waited for each in line(snap).waiting] == [180000.0, 108000.0, 0.0]
        found = teller.answer(ForecastInputs(snap, NOW), 1)
        shown = [*(found.tickets[f"t{n}"] for n in (1, 2, 3)), found.offers[SMALL]]
        assert [each.shown.p50 > each.played.p50 for each in shown] == [False, counts, counts, counts]


def test_who_is_to_stop_stops() -> None:
    teller = WaitModel()
    teller.learn(stays())
    snap = snapshot((small(0),), (ticket(1, SMALL),), (lease(small(0)),))
    with pytest.raises(GivenUp):
        teller.answer(ForecastInputs(snap, NOW), 1, lambda: False)


def test_an_offers_wait_is_that_of_who_joins_now() -> None:
    teller = WaitModel()
    teller.learn(stays())
    snap = snapshot((small(0),), (ticket(1, SMALL),), (lease(small(0)),))
    found = teller.answer(ForecastInputs(snap, NOW), 1)
    assert found.offers.keys() == {SMALL} and found.offers[SMALL].played.p50 > found.tickets["t1"].played.p50
    assert found.sizes == {SMALL: 1}


# ------------------------------------------------------------------ to the last one


@pytest.mark.slow
def test_a_record_is_known_again_until_a_thousand_others_came() -> None:
    teller = WaitModel()
    teller.learn(stays(1000))
    teller.learn(stays(1))
    assert teller.finished(SMALL) == 1000 and teller.finished(LARGE) == 0
    teller.learn([replace(stays(1)[0], key="one more")])
    teller.learn(stays(1))
    assert teller.finished(SMALL) == 1002


def test_a_start_takes_as_long_as_the_median_of_the_last_fifty() -> None:
    teller = WaitModel()
    teller.learn(replace(each, starting=float(n)) for n, each in enumerate(stays(60)))
    assert teller.starting == 35.0


def test_uses_are_alike_that_have_as_much_for_as_long() -> None:
    assert kind_of_use(1, 500) == (1, 500) and kind_of_use(2, 500, 60.0) == (2, 500, 60.0)


@pytest.mark.parametrize(
    ("changes", "people", "ending"),
    [
        ([{}, {}], 2, 2),
        ([{}, {"user": "holder0"}], 1, 2),
        ([{}, {"pool": LARGE}], 1, 1),
        ([{}, {"state": LeaseState.ENDED}], 1, 1),
        ([{}, {"state": LeaseState.LOST}], 2, 1),
        ([{}, {"share": 500}], 0, 2),
    ],
)
def test_a_view_is_of_those_who_hold_one_of_a_pool(changes: list[dict[str, Any]], people: int, ending: int) -> None:
    teller = WaitModel()
    teller.learn(stays())
    leases = tuple(replace(lease(small(n), n=n), **each) for n, each in enumerate(changes))
    ends = {each.id: KnownEnd(3600.0) for each in leases}
    view = teller.answer(ForecastInputs(snapshot((small(0), small(1)), (), leases), NOW, ends=ends), 1).pools[SMALL]
    assert (view.people, view.ending) == (people, ending)


def test_of_a_pool_of_parts_no_count_of_people_has_a_name() -> None:
    teller = WaitModel()
    teller.learn(stays(pool=GPU))
    found = teller.answer(ForecastInputs(snapshot((whole(0),), (), (lease(whole(0)),)), NOW), 1).pools
    assert (found[GPU].people, found[GPU].held, found[GPU].finished) == (0, 1, 30)


def test_a_ticket_is_played_with_what_it_may_hold_and_for_how_long() -> None:
    gone, known = OfferId("mig-7g.40gb"), ticket(1, SMALL)
    snap = snapshot((small(0), whole(0)), (known, ticket(2, gone, HALF), ticket(3, gone)), lifetime=60 * MINUTE)
    found, asks = simulation_state(ForecastInputs(snap, NOW, asked={"t2": 7.0}), 30.0)
    limit = (snap.start_allowance + 60 * MINUTE).total_seconds()
    assert found.waiting == (
        Waiting("t1", (Wish(SMALL, WHOLE, UseHolder("u1", (1, WHOLE), NOW.timestamp(), None, limit), place=1),)),
        Waiting("t2", (Wish(GPU, 500, UseHolder("u2", (1, 500), 7.0, None, limit), place=2),)),
    )
    assert asks == {
        offer: Wish(pool, share, UseHolder("", (1, share), NOW.timestamp()))
        for offer, pool, share in ((SMALL, SMALL, WHOLE), (LARGE, LARGE, WHOLE), (GPU, GPU, WHOLE), (HALF, GPU, 500),
                                   (OfferId("gpu-0.25"), GPU, 250))
    }  # fmt: skip


@pytest.mark.parametrize(
    ("room", "waiting", "free"), [({WHOLE: 9}, 0, 1), ({WHOLE: 9}, 2, 3), ({WHOLE: 2}, 5, 2), ({500: 9}, 2, 0)]
)
def test_of_counted_devices_so_many_are_free_as_can_be_asked_for(room: dict[int, int], waiting: int, free: int) -> None:
    counted = replace(cards(9), id="gpu", total=9, room=room)
    tickets = tuple(ticket(n, GPU) for n in range(waiting))
    only = tuple(each for each in OFFERS if each.id == GPU)
    snap = replace(snapshot(None, tickets), offers=only, pools={GPU: counted})
    assert line(snap).pools == {GPU: tuple(f"free {n}" for n in range(free))}
    two = tuple(each for each in OFFERS if each.id in (GPU, HALF))
    assert line(replace(snap, offers=two)).pools == {}


@pytest.mark.parametrize(("most", "brake"), [(3, None), (2, Brake(2, 30.0, (20.0,))), (1, Brake(1, 30.0, (20.0,)))])
def test_the_brake_is_played_where_those_who_wait_may_meet_it(most: int, brake: Brake | None) -> None:
    starting = replace(ticket(1, "cpu", state=TicketState.ADMITTED), admitted_at=NOW - timedelta(seconds=10))
    held_back = replace(ticket(4, "cpu", state=TicketState.ADMITTED), admitted_at=NOW)
    tickets = (starting, ticket(2, SMALL), ticket(3, SMALL), held_back)
    snap = replace(snapshot((small(0),), tickets, (), QueueLimits(max_starting=most)), held_back=frozenset({"t4"}))
    assert line(snap).brake == brake
    over = replace(starting, admitted_at=NOW - MINUTE)
    late = line(replace(snap, tickets=(over, *tickets[1:]))).brake
    assert late == (None if brake is None else replace(brake, starting=(0.0,)))


def test_a_ticket_that_would_also_take_cpu_only_is_simulated_and_shown_no_wait() -> None:
    snap = snapshot((small(0),), (ticket(1, SMALL, "cpu"), ticket(2, SMALL)), (), QueueLimits(max_starting=1))
    assert [[(wish.pool, wish.shown) for wish in each.wishes] for each in line(snap).waiting] == [
        [(SMALL, False), ("cpu", False)],
        [(SMALL, True)],
    ]
