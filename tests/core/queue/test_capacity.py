"""What can still be given, by device and by count, and the position of a ticket in a line."""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from hub_extensions.core.gpu.devices import WHOLE, Foreign
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.queue.admission import admit, availability, standing
from hub_extensions.core.queue.capacity import Capacity
from hub_extensions.core.queue.model import Admission, LeaseState, Ticket, WantedOffer
from hub_extensions.core.queue.wait_bound import Holding, StartBrake, forecast_queue
from tests.core.queue import test_counted_pools as counted
from tests.core.queue.test_admission import (
    CPU,
    GPU,
    HALF,
    NOW,
    QUARTER,
    SMALL,
    lease,
    small,
    snapshot,
    ticket,
    whole,
)

# ------------------------------------------------------------------ named devices


@pytest.mark.parametrize(
    ("held", "wanted", "given"),
    [
        ({}, GPU, 0),
        ({0: 500}, GPU, 1),
        ({0: 500}, HALF, 0),
        ({1: 500}, HALF, 1),
        ({0: 250, 1: 500}, HALF, 1),
        ({0: 500, 1: 750}, HALF, 0),
        ({0: 750, 1: 750}, QUARTER, 0),
        ({0: 751, 1: 750}, QUARTER, 1),
        ({0: 500, 1: 500}, GPU, None),
        ({0: 1000, 1: 1000}, QUARTER, None),
    ],
)
def test_what_is_given_is_a_part_of_the_fullest_card_that_it_fits_on(
    held: dict[int, int], wanted: GpuOffer, given: int | None
) -> None:
    leases = tuple(lease(whole(n), share, n, offer="gpu-0.5") for n, share in held.items())
    capacity = Capacity(snapshot((whole(0), whole(1)), (), leases))
    shares = None if given is None else ((whole(given).device.identity, wanted.share),)
    assert capacity.fit(wanted) == shares


def test_two_leases_of_one_card_add_up_and_what_is_taken_is_missing_at_once() -> None:
    leases = (lease(whole(0), 250, 1, offer="gpu-0.25"), lease(whole(0), 500, 2, offer="gpu-0.5"))
    capacity = Capacity(snapshot((whole(0),), (), leases))
    identity = whole(0).device.identity
    assert (capacity.held[identity], capacity.free(QUARTER), capacity.free(HALF)) == (750, 1, 0)
    capacity.take(Admission("t", CPU.id, None))
    assert capacity.free(QUARTER) == 1
    capacity.take(Admission("t", QUARTER.id, identity))
    assert (capacity.held[identity], capacity.free(QUARTER)) == (WHOLE, 0)
    assert capacity.fit(QUARTER) is None
    assert capacity.fit(CPU) == ()


@pytest.mark.parametrize(
    ("changes", "free"),
    [({}, 1), ({"gpu_instance_id": None}, 1), ({"gpu_instance_id": 99}, 1), ({"uuid": "MIG-other"}, 2)],
)
def test_a_device_whose_uuid_a_lease_names_is_nobody_elses_whatever_it_looks_like(
    changes: dict[str, object], free: int
) -> None:
    seen = replace(small(0), device=replace(small(0).device, **changes))  # type: ignore[arg-type]
    for state in (LeaseState.RUNNING, LeaseState.LOST, LeaseState.ENDING):
        capacity = Capacity(snapshot((seen, small(1)), (), (replace(lease(small(0)), state=state),)))
        assert (capacity.free(SMALL), capacity.total["mig-1g.5gb"]) == (free, 2)
    ended = replace(lease(small(0)), state=LeaseState.ENDED)
    assert Capacity(snapshot((seen, small(1)), (), (ended,))).free(SMALL) == 2


def test_of_several_devices_those_count_that_are_there_whole_and_nobody_elses() -> None:
    away, useless = replace(small(1), present=False), replace(small(2), device=replace(small(2).device, usable=False))
    theirs = tuple(replace(small(n), foreign=Foreign.SOME) for n in (3, 4))
    both = replace(small(5), foreign=Foreign.SOME)
    silent = replace(small(6), foreign=Foreign.UNKNOWN)
    devices = (away, useless, *theirs, both, silent, small(0), small(7))
    capacity = Capacity(snapshot(devices, (), (lease(small(5)),)))
    assert (capacity.total["mig-1g.5gb"], capacity.foreign["mig-1g.5gb"], capacity.free(SMALL)) == (6, 2, 3)
    assert capacity.devices("mig-1g.5gb") == tuple(small(n).device.identity for n in (6, 0, 7))
    assert capacity.devices("gpu") == ()


@pytest.mark.parametrize("state", list(LeaseState))
def test_a_lease_holds_its_share_until_it_has_ended(state: LeaseState) -> None:
    held = replace(lease(whole(0), 500, offer="gpu-0.5"), state=state)
    over = state is LeaseState.ENDED
    assert Capacity(snapshot((whole(0),), (), (held,))).free(HALF) == (2 if over else 1)
    pool = counted.cards(2)
    known = counted.snapshot(pool, leases=(counted.lease(1, "gpu", 500, state=state),))
    assert dict(Capacity(known).room("gpu")) == ({WHOLE: 2} if over else {WHOLE: 1, 500: 1})


# ------------------------------------------------------------------ counted devices


@pytest.mark.parametrize(
    ("shares", "room"),
    [
        ((), {WHOLE: 2}),
        ((1000,), {WHOLE: 1}),
        ((300,), {WHOLE: 1, 700: 1}),
        ((300, 300), {WHOLE: 1, 400: 1}),
        ((300, 700), {WHOLE: 1}),
        ((300, 800), {700: 1, 200: 1}),
        ((1000, 1000), {}),
        ((1000, 1000, 1000), {}),
    ],
)
def test_a_counted_lease_is_taken_off_where_it_fits_best(shares: tuple[int, ...], room: dict[int, int]) -> None:
    leases = tuple(counted.lease(n, "gpu", share) for n, share in enumerate(shares))
    capacity = Capacity(counted.snapshot(counted.cards(2), leases=leases))
    assert {left: count for left, count in capacity.room("gpu").items() if count} == room


def test_a_lease_whose_pod_has_its_place_or_of_no_pool_that_is_there_is_not_taken_off_again() -> None:
    leases = (counted.lease(1, "gpu"), counted.lease(2, "mig-9g.90gb"))
    here = counted.snapshot(counted.cards(2), leases=leases)
    assert dict(Capacity(here).room("gpu"))[WHOLE] == 1
    assert dict(Capacity(replace(here, bound=frozenset({"l1"}))).room("gpu"))[WHOLE] == 2
    assert Capacity(here).room("mig-9g.90gb") == {}


@pytest.mark.parametrize(
    ("room", "share", "free"),
    [
        ({WHOLE: 2}, 500, 4),
        ({WHOLE: 1, 700: 1}, 500, 3),
        ({WHOLE: 1, 700: 1}, 300, 5),
        ({400: 3}, 500, 0),
        ({0: 3}, 500, 0),
        ({}, 500, 0),
        ({500: 0}, 500, 0),
    ],
)
def test_of_counted_cards_as_many_parts_are_free_as_fit_on_each(room: dict[int, int], share: int, free: int) -> None:
    here = counted.snapshot(replace(counted.cards(3), room=room))
    offer = next(each for each in here.offers if each.pool == "gpu" and each.share == share)
    capacity = Capacity(here)
    assert (capacity.free(offer), capacity.fit(offer)) == (free, (("gpu", share),) if free else None)


def test_an_offer_that_is_held_up_is_given_to_nobody_and_in_anothers_line_everything_is() -> None:
    here = counted.snapshot(counted.cards(1, {0: 1}))
    gpu = next(each for each in here.offers if each.id == "gpu")
    free = counted.snapshot(counted.cards(1))
    assert Capacity(free).fit(gpu) == (("gpu", WHOLE),)
    assert Capacity(replace(free, held_up=frozenset({"gpu"}))).fit(gpu) is None
    assert Capacity(here).fit(gpu) is None
    assert Capacity(replace(here, queue="KAI", held_up=frozenset({"gpu"}))).fit(gpu) == (("gpu", WHOLE),)


# ------------------------------------------------------------------ places


def test_a_ticket_stands_where_the_better_of_its_places_in_a_pool_is() -> None:
    both = Ticket("both", "u", "", (WantedOffer("gpu-0.5", 9), WantedOffer("gpu-0.25", 1)), NOW)
    turned = replace(both, wanted_offers=both.wanted_offers[::-1])
    for first in (both, turned):
        here = snapshot((whole(0),), (ticket(5, "gpu-0.5"), first))
        assert [each.ticket for each in admit(here)] == ["both", "t5"]
        full = snapshot((whole(0),), (ticket(5, "gpu-0.5"), first), (lease(whole(0)),))
        assert {name: each.position for name, each in standing(full, NOW).items()} == {"both": 1, "t5": 2}
        assert standing(full, NOW)["both"].offer == "gpu-0.25", "the offer of the place that is told"


def test_a_ticket_at_the_head_of_two_lines_goes_by_the_better_of_its_places() -> None:
    two = Ticket("two", "u", "", (WantedOffer("gpu", 9), WantedOffer("mig-1g.5gb", 1)), NOW)
    here = snapshot((whole(0), small(0), small(1)), (two, ticket(5, "mig-1g.5gb"), ticket(7, "gpu")))
    assert [(each.ticket, each.offer) for each in admit(here)] == [
        ("two", "mig-1g.5gb"), ("t5", "mig-1g.5gb"), ("t7", "gpu"),
    ]  # fmt: skip
    alone = snapshot((whole(0), small(0)), (two,))
    assert [(each.ticket, each.offer) for each in admit(alone)] == [("two", "gpu")]


def test_a_line_without_existing_offers_has_no_wait() -> None:
    here = snapshot((small(0),), (ticket(1, "mig-9g.90gb"), ticket(2, "mig-9g.90gb", "mig-1g.5gb")))
    assert [each.ticket for each in admit(here)] == ["t2"]
    assert list(standing(here, NOW)) == ["t2"]
    stands = {each.offer.id: each.waiting for each in availability(here, NOW)}
    assert (stands["mig-1g.5gb"], stands["cpu"], stands["gpu"]) == (1, 0, 0)


def test_the_wait_of_who_would_join_now_is_behind_everybody_who_waits() -> None:
    ends = NOW + timedelta(minutes=10)
    here = snapshot(
        (small(0),), (ticket(1, "mig-1g.5gb"),), (lease(small(0), ends=ends),), lifetime=timedelta(minutes=30)
    )
    found = next(each for each in availability(here, NOW) if each.offer == SMALL)
    assert found.wait.at_most == timedelta(minutes=10 + 1 + 3 + (3 + 30 + 1) + 3)
    assert not found.wait.now
    nobody = next(each for each in availability(replace(here, tickets=()), NOW) if each.offer == SMALL)
    assert nobody.wait.at_most == timedelta(minutes=10 + 1 + 3)


def test_cpu_only_has_nothing_that_is_held_lost_or_anothers() -> None:
    cpu = next(each for each in availability(snapshot((small(0),), (), (lease(small(0)),)), NOW) if each.offer == CPU)
    assert (cpu.free, cpu.total, cpu.held, cpu.foreign, cpu.lost, cpu.waiting) == (None, None, 0, 0, 0, 0)


@pytest.mark.parametrize(("held", "minutes"), [(2, [0, 10 + 1]), (3, [10 + 1, 20 + 1]), (1, [0, 0])])
def test_what_is_left_of_a_card_is_waited_for_where_it_is_less_than_a_part(held: int, minutes: list[int]) -> None:
    found = forecast_queue(
        devices=["card"],
        holdings=[Holding("card", 300, NOW + timedelta(minutes=10 * number)) for number in range(1, held + 1)],
        shares={300},
        places=2,
        lifetime=timedelta(hours=1),
        brake=StartBrake(64, timedelta(minutes=3)),
        now=NOW,
    )
    assert [found(place, place).at_most for place in range(2)] == [timedelta(minutes=each + 3) for each in minutes]
