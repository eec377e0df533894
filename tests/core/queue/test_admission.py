"""The rules of the line, from tables and from random lines."""

from __future__ import annotations

from dataclasses import replace
from datetime import datetime, timedelta, timezone

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.gpu.devices import WHOLE, Device, DeviceState, Foreign
from hub_extensions.core.offers.model import Access, GpuOffer, Isolation, OfferKind, Separation
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.admission import admit, availability, over_own_limit, refuse_to_join, standing
from hub_extensions.core.queue.heads import lengths
from hub_extensions.core.queue.model import (
    Lease,
    LeaseState,
    QueueLimits,
    QueueSnapshot,
    Ticket,
    TicketState,
    WantedOffer,
)

NOW = datetime(2026, 1, 5, 12, tzinfo=timezone.utc)
HARD = Isolation(Separation.HARDWARE, Separation.HARDWARE, Separation.HARDWARE, Access.BY_AGREEMENT)

CPU = GpuOffer(OfferId("cpu"), OfferKind.CPU, "CPU only", "", "", 0, HARD)
SMALL = GpuOffer(OfferId("mig-1g.5gb"), OfferKind.MIG, "MIG 1g.5gb", "", "mig-1g.5gb", WHOLE, HARD)
LARGE = GpuOffer(OfferId("mig-2g.10gb"), OfferKind.MIG, "MIG 2g.10gb", "", "mig-2g.10gb", WHOLE, HARD)
GPU = GpuOffer(OfferId("gpu"), OfferKind.WHOLE, "Whole GPU", "", "gpu", WHOLE, HARD)
HALF = GpuOffer(OfferId("gpu-0.5"), OfferKind.FRACTION, "Half a GPU", "", "gpu", 500, HARD)
QUARTER = GpuOffer(OfferId("gpu-0.25"), OfferKind.FRACTION, "A quarter of a GPU", "", "gpu", 250, HARD)
OFFERS = (CPU, SMALL, LARGE, GPU, HALF, QUARTER)


def small(n: int) -> DeviceState:
    return DeviceState(Device(f"MIG-s{n}", "A100", profile="1g.5gb", gpu_instance_id=7 + n))


def large(n: int) -> DeviceState:
    return DeviceState(Device(f"MIG-l{n}", "A100", profile="2g.10gb", gpu_instance_id=n))


def whole(n: int) -> DeviceState:
    return DeviceState(Device(f"GPU-{n}", "A100"))


def ticket(n: int, *offers: str, state: TicketState = TicketState.WAITING, user: str | None = None) -> Ticket:
    return Ticket(
        id=f"t{n}",
        user=user or f"u{n}",
        server="",
        wanted_offers=tuple(WantedOffer(offer, n) for offer in offers),
        joined=NOW,
        state=state,
    )


def lease(state: DeviceState, share: int = WHOLE, n: int = 0, offer: str = "", ends: datetime | None = None) -> Lease:
    device = state.device
    return Lease(
        id=f"l{n}-{device.uuid}",
        ticket=f"x{n}",
        user=f"holder{n}",
        server="",
        offer=offer or device.pool,
        device=device.identity,
        uuid=device.uuid,
        pool=device.pool,
        share=share,
        state=LeaseState.RUNNING,
        since=NOW,
        ends_at=ends,
    )


def snapshot(
    devices: tuple[DeviceState, ...] | None,
    tickets: tuple[Ticket, ...] = (),
    leases: tuple[Lease, ...] = (),
    config: QueueLimits | None = None,
    lifetime: timedelta | None = None,
) -> QueueSnapshot:
    return QueueSnapshot(OFFERS, devices, tickets, leases, config or QueueLimits(), lifetime)


def test_the_first_in_line_gets_the_free_device() -> None:
    given_ = admit(snapshot((small(0),), (ticket(2, "mig-1g.5gb"), ticket(1, "mig-1g.5gb"))))
    assert [a.ticket for a in given_] == ["t1"]
    assert given_[0].device == small(0).device.identity


def test_a_mig_profile_is_served_by_that_profile_only() -> None:
    assert admit(snapshot((large(0),), (ticket(1, "mig-1g.5gb"),))) == ()


def test_who_wants_two_pieces_of_one_card_has_the_first_of_the_two_places_in_its_line() -> None:
    both = replace(ticket(2), wanted_offers=(WantedOffer(HALF.id, 5), WantedOffer(QUARTER.id, 1)))
    shown = standing(snapshot((), (ticket(3, HALF.id), both)), NOW)
    assert [shown[each].position for each in ("t2", "t3")] == [1, 2]


def test_a_later_ticket_of_another_pool_passes() -> None:
    given_ = admit(snapshot((small(0),), (ticket(1, "mig-2g.10gb"), ticket(2, "mig-1g.5gb"))))
    assert [a.ticket for a in given_] == ["t2"]


def test_a_fraction_does_not_pass_a_whole_gpu_that_waits_for_the_same_device() -> None:
    taken = lease(whole(0), 500, offer="gpu-0.5")
    assert admit(snapshot((whole(0),), (ticket(1, "gpu"), ticket(2, "gpu-0.5")), (taken,))) == ()


def test_fractions_are_packed_on_the_fullest_device_that_fits() -> None:
    taken = lease(whole(1), 500, offer="gpu-0.5")
    given_ = admit(snapshot((whole(0), whole(1)), (ticket(1, "gpu-0.5"), ticket(2, "gpu")), (taken,)))
    assert {a.ticket: a.device for a in given_} == {
        "t1": whole(1).device.identity,
        "t2": whole(0).device.identity,
    }


def test_an_ordered_list_takes_the_first_that_is_free() -> None:
    both = (small(0), large(0))
    assert admit(snapshot(both, (ticket(1, "mig-2g.10gb", "mig-1g.5gb"),)))[0].offer == "mig-2g.10gb"
    busy = snapshot(both, (ticket(1, "mig-2g.10gb", "mig-1g.5gb"),), (lease(large(0)),))
    assert admit(busy)[0].offer == "mig-1g.5gb"


def test_a_device_held_by_others_is_not_given() -> None:
    foreign = replace(small(0), foreign=Foreign.SOME)
    assert admit(snapshot((foreign,), (ticket(1, "mig-1g.5gb"),))) == ()


def test_a_gpu_instance_without_a_compute_instance_is_not_given() -> None:
    useless = DeviceState(replace(small(0).device, usable=False))
    assert admit(snapshot((useless,), (ticket(1, "mig-1g.5gb"),))) == ()


def test_nobody_is_admitted_to_a_gpu_while_the_inventory_is_unknown_but_cpu_only_is() -> None:
    given_ = admit(snapshot(None, (ticket(1, "mig-1g.5gb"), ticket(2, "cpu"))))
    assert [(a.ticket, a.device) for a in given_] == [("t2", None)]


def test_the_start_brake_counts_cpu_only_too() -> None:
    starting = tuple(ticket(n, "cpu", state=TicketState.ADMITTED) for n in range(3))
    waiting = (ticket(10, "cpu"), ticket(11, "mig-1g.5gb"))
    given_ = admit(snapshot((small(0),), starting + waiting, config=QueueLimits(max_starting=4)))
    assert [a.ticket for a in given_] == ["t10"]


def test_a_device_whose_lease_is_lost_or_ending_is_not_given_again() -> None:
    for state in (LeaseState.LOST, LeaseState.ENDING, LeaseState.STARTING):
        taken = replace(lease(small(0)), state=state)
        assert admit(snapshot((small(0),), (ticket(1, "mig-1g.5gb"),), (taken,))) == ()


def test_positions_and_reasons_are_told_in_order() -> None:
    shown = standing(
        snapshot((large(0),), (ticket(1, "mig-2g.10gb"), ticket(2, "mig-2g.10gb")), (lease(large(0)),)), NOW
    )
    assert (shown["t1"].position, shown["t2"].position) == (1, 2)
    assert shown["t2"].reason.message == "MIG 2g.10gb: the only one is in use. 1 person is ahead of you."


def test_a_changed_ticket_keeps_its_old_place_and_joins_the_new_line_at_its_end() -> None:
    changed = Ticket("t1", "u1", "", (WantedOffer("mig-1g.5gb", 9), WantedOffer("mig-2g.10gb", 1)), NOW)
    other = ticket(5, "mig-1g.5gb")
    given_ = admit(snapshot((small(0), large(0)), (changed, other), (lease(large(0)),)))
    assert [a.ticket for a in given_] == ["t5"]
    shown = standing(snapshot((small(0), large(0)), (changed,), (lease(large(0)), lease(small(0)))), NOW)
    assert shown["t1"].position == 1


def test_at_most_comes_from_the_enforced_ends_and_adds_up() -> None:
    end = NOW + timedelta(minutes=20)
    shown = standing(
        snapshot(
            (large(0),),
            (ticket(1, "mig-2g.10gb"), ticket(2, "mig-2g.10gb")),
            (lease(large(0), ends=end),),
            lifetime=timedelta(minutes=30),
        ),
        NOW,
    )
    first, second = shown["t1"].forecast, shown["t2"].forecast
    assert first is not None and first.at_most == timedelta(minutes=21 + 3)
    assert second is not None and second.at_most == timedelta(minutes=21 + 3 + (3 + 30 + 1) + 3)
    assert first.p50 is None


def test_without_an_enforced_end_at_most_is_unknown() -> None:
    waiting = (ticket(1, "mig-2g.10gb"),)
    for lifetime, ends in ((None, NOW), (timedelta(hours=1), None)):
        shown = standing(snapshot((large(0),), waiting, (lease(large(0), ends=ends),), lifetime=lifetime), NOW)
        forecast = shown["t1"].forecast
        assert forecast is not None and forecast.at_most is None


def test_mixed_shares_get_a_bound_that_packing_cannot_break() -> None:
    leases = (lease(whole(0), 500, 1, "gpu-0.5", NOW + timedelta(minutes=5)),)
    shown = standing(
        snapshot((whole(0),), (ticket(1, "gpu"), ticket(2, "gpu-0.5")), leases, lifetime=timedelta(minutes=30)), NOW
    )
    forecast = shown["t2"].forecast
    assert forecast is not None and forecast.at_most == timedelta(minutes=6 + 3 + 34 + 3)


def at_most(line_: QueueSnapshot, ticket_id: str) -> timedelta | None:
    forecast = standing(line_, NOW)[ticket_id].forecast
    assert forecast is not None
    return forecast.at_most


@pytest.mark.parametrize(
    ("state", "ends", "wait"),
    [
        (LeaseState.RUNNING, 5, 5 + 1),
        (LeaseState.RUNNING, 0, 1),
        (LeaseState.RUNNING, -1, 1),  # it is being ended just now
        (LeaseState.RUNNING, -5, None),  # the hub refuses the stop, all the time
        (LeaseState.LOST, -1, 1),
        (LeaseState.LOST, -5, None),
        (LeaseState.ENDING, 5, 5 + 1),
        (LeaseState.ENDING, 0, 1),
        (LeaseState.ENDING, -1, 1),
        (LeaseState.ENDING, -5, None),  # what cannot be ended holds its device
    ],
)
@pytest.mark.parametrize("mixed", [False, True])
def test_a_lease_past_its_end_is_given_back_within_a_minute_or_nobody_knows_when(
    state: LeaseState, ends: int, wait: int | None, mixed: bool
) -> None:
    minutes, share = timedelta(minutes=1), 500 if mixed else WHOLE
    held = replace(lease(whole(0), share, offer="gpu"), state=state, ends_at=NOW + ends * minutes)
    waiting = (ticket(1, "gpu"), ticket(2, "gpu"))
    here = snapshot((whole(0),), waiting, (held,), lifetime=timedelta(minutes=30))
    assert at_most(here, "t1") == (None if wait is None else (wait + 3) * minutes)
    assert at_most(here, "t2") == (None if wait is None else (wait + 3 + (3 + 30 + 1) + 3) * minutes)


@pytest.mark.parametrize(("starting", "admitted", "word"), [(0, 2, None), (1, 1, "behind"), (2, 0, "start-brake")])
def test_the_start_brake_limits_simultaneous_starts(starting: int, admitted: int, word: str | None) -> None:
    brake = QueueLimits(max_starting=2)
    here = snapshot(
        tuple(small(n) for n in range(5)),
        (
            *(ticket(n, "cpu", state=TicketState.ADMITTED) for n in range(10, 10 + starting)),
            *(ticket(n, "mig-1g.5gb") for n in range(3)),
        ),
        config=brake,
    )
    assert len(admit(here)) == admitted
    if word is not None:
        assert standing(here, NOW)["t1"].reason.reason == word


@pytest.mark.parametrize(
    ("state", "counts"),
    [
        (LeaseState.STARTING, True),
        (LeaseState.RUNNING, True),
        (LeaseState.LOST, False),
        (LeaseState.ENDING, False),
    ],
)
def test_what_starts_and_what_runs_counts_for_ones_own_limit(state: LeaseState, counts: bool) -> None:
    mine = replace(lease(small(0)), user="ada", server="first", state=state)
    here = snapshot((small(0), small(1)), (), (mine,))
    assert (over_own_limit(here, "ada", "second") is not None) is counts
    assert over_own_limit(here, "ada", "first") is None, "the same server asks again"
    assert over_own_limit(here, "ben", "second") is None
    two = replace(here, config=QueueLimits(gpu_leases_per_user=2))
    assert over_own_limit(two, "ada", "second") is None
    more = replace(two, leases=(mine, replace(mine, id="l2", server="third")))
    assert (over_own_limit(more, "ada", "second") is not None) is counts


@pytest.mark.parametrize(
    ("first", "most", "admitted"),
    [
        ("ada", 1, ["t2"]),
        ("ada", 2, ["t1", "t2"]),
        ("ben", 1, ["t1", "t2"]),
    ],
)
def test_who_holds_as_many_as_he_may_is_passed_and_holds_nobody_up(first: str, most: int, admitted: list[str]) -> None:
    held = replace(lease(small(0)), user="ada", server="first")
    line = (replace(ticket(1, "mig-1g.5gb", user=first), server="second"), ticket(2, "mig-1g.5gb"))
    here = snapshot((small(0), small(1), small(2)), line, (held,), QueueLimits(gpu_leases_per_user=most))
    assert [each.ticket for each in admit(here)] == admitted


def test_of_two_places_of_one_user_one_is_given_a_gpu_and_the_other_waits_for_it() -> None:
    line = tuple(replace(ticket(n, "mig-1g.5gb", user="ada"), server=f"s{n}") for n in (1, 2))
    here = snapshot((small(0), small(1)), (*line, ticket(3, "mig-1g.5gb")))
    assert [each.ticket for each in admit(here)] == ["t1", "t3"]


def test_who_is_passed_reads_which_server_it_is_and_a_newcomer_that_one_is_free() -> None:
    held = replace(lease(small(0)), user="ada", server="first")
    line = (replace(ticket(1, "mig-1g.5gb", user="ada"), server="second"),)
    here = snapshot((small(0), small(1)), line, (held,))
    verdict = standing(here, NOW)["t1"]
    assert (verdict.position, verdict.reason.reason) == (1, "own-lease-first")
    assert verdict.reason.message == (
        "You already hold a GPU in server first. Your place is kept until that server has stopped."
    )
    assert verdict.forecast is not None and verdict.forecast.reason is not None
    assert verdict.forecast.reason.reason == "after-own-server" and verdict.forecast.at_most is None
    assert {each.offer: each.wait.now for each in availability(here, NOW)}[SMALL]


def test_in_the_line_for_cpu_only_no_ticket_is_passed_over() -> None:
    held = replace(lease(small(0)), user="ada", server="first")
    line = (replace(ticket(1, "mig-1g.5gb", "cpu", user="ada"), server="second"),)
    assert [(each.ticket, each.offer) for each in admit(snapshot((small(0), small(1)), line, (held,)))] == [
        ("t1", "cpu")
    ]


@pytest.mark.parametrize(
    ("places", "given"),
    [
        ((2, 2), "gpu"),
        ((2, 4), "gpu-0.25"),
    ],
)
def test_a_larger_offer_that_was_asked_for_later_has_a_place_at_the_end(places: tuple[int, int], given: str) -> None:
    quarter, larger = places
    grown = replace(
        ticket(2), wanted_offers=(WantedOffer(OfferId("gpu"), larger), WantedOffer(OfferId("gpu-0.25"), quarter))
    )
    here = snapshot((whole(0),), (grown, ticket(3, "gpu")))
    (admission,) = admit(here)
    assert (admission.ticket, admission.offer) == ("t2", given)


def test_a_larger_offer_is_had_when_nobody_with_an_earlier_place_is_left() -> None:
    grown = replace(ticket(2), wanted_offers=(WantedOffer(OfferId("gpu"), 4), WantedOffer(OfferId("gpu-0.25"), 2)))
    (admission,) = admit(snapshot((whole(0),), (grown, ticket(5, "gpu"))))
    assert (admission.ticket, admission.offer) == ("t2", "gpu")


def test_a_place_is_told_for_the_offer_that_it_is_for() -> None:
    grown = replace(ticket(2), wanted_offers=(WantedOffer(OfferId("gpu"), 4), WantedOffer(OfferId("gpu-0.25"), 2)))
    here = snapshot((whole(0),), (ticket(1, "gpu"), grown), (lease(whole(0)),))
    assert standing(here, NOW)["t2"].offer == "gpu-0.25"


def test_availability_counts_free_held_foreign_and_lost() -> None:
    devices = (small(0), small(1), replace(small(2), foreign=Foreign.SOME), small(3))
    lost = replace(lease(small(4)), state=LeaseState.LOST)
    capacity = {a.offer.id: a for a in availability(snapshot(devices, (), (lease(small(0)), lost)), NOW)}
    assert (capacity["mig-1g.5gb"].free, capacity["mig-1g.5gb"].total) == (2, 4)
    assert (capacity["mig-1g.5gb"].held, capacity["mig-1g.5gb"].foreign, capacity["mig-1g.5gb"].lost) == (1, 1, 1)
    assert capacity["mig-1g.5gb"].wait.now
    assert capacity["cpu"].wait.now and capacity["cpu"].free is None


def test_availability_of_an_unknown_inventory_is_unknown_and_never_zero() -> None:
    capacity = {a.offer.id: a for a in availability(snapshot(None), NOW)}
    assert capacity["mig-1g.5gb"].free is None and capacity["mig-1g.5gb"].total is None
    assert not capacity["mig-1g.5gb"].wait.now


def test_joining_is_refused_only_for_the_reasons_of_the_rules() -> None:
    here = snapshot((small(0),), (ticket(1, "mig-1g.5gb", user="ada"),), (lease(large(0)),))

    def word(user: str, server: str, *offers: str) -> str | None:
        refusal = refuse_to_join(here, user, server, offers, ())
        return refusal.reason if refusal else None

    assert word("ben", "", "mig-1g.5gb") is None, "a taken offer is no reason"
    assert word("ben", "", "mig-9g.90gb") == "unknown-offer"
    assert word("ada", "", "mig-2g.10gb") is None, "the same server changes its own ticket"
    assert word("ada", "second", "mig-2g.10gb") == "own-ticket-limit"
    assert word("ada", "second", "cpu") is None
    assert word("holder0", "second", "mig-1g.5gb") == "own-lease-limit"
    staff = replace(here, offers=(*OFFERS[:1], replace(SMALL, groups=("staff",))))
    refusal = refuse_to_join(staff, "ben", "", ("mig-1g.5gb",), ("students",))
    assert refusal is not None and refusal.reason == "unknown-offer"
    full = replace(here, config=QueueLimits(max_waiting=1))
    refusal = refuse_to_join(full, "ben", "", ("mig-1g.5gb",), ())
    assert refusal is not None and refusal.reason == "line-full"


def test_whoever_stands_in_a_full_line_and_asks_again_keeps_the_place() -> None:
    here = replace(snapshot((), (ticket(1, "mig-1g.5gb", user="ada"),)), config=QueueLimits(max_waiting=1))
    server = here.tickets[0].server
    assert refuse_to_join(here, "ada", server, ("mig-1g.5gb",), ()) is None


def test_no_reason_for_a_user_ever_names_another_user() -> None:
    shown = standing(snapshot((large(0),), (ticket(1, "mig-2g.10gb", user="zelda"), ticket(2, "mig-2g.10gb"))), NOW)
    assert "zelda" not in repr([v.reason.message for v in shown.values()])


# ------------------------------------------------------------------ random lines

offer_ids = st.sampled_from([offer.id for offer in OFFERS])
tickets_of = st.lists(st.lists(offer_ids, min_size=1, max_size=3, unique=True), max_size=12)
shares = st.sampled_from([0, 250, 500, 1000])


@st.composite
def lines(draw: st.DrawFn) -> QueueSnapshot:
    devices = (
        tuple(small(n) for n in range(draw(st.integers(0, 3))))
        + tuple(large(n) for n in range(draw(st.integers(0, 2))))
        + tuple(whole(n) for n in range(draw(st.integers(0, 3))))
    )
    leases = []
    for n, state in enumerate(devices):
        share = draw(shares) if state.device.profile is None else draw(st.sampled_from([0, 1000]))
        if share:
            ends = draw(st.one_of(st.none(), st.integers(-5, 60).map(lambda m: NOW + timedelta(minutes=m))))
            leases.append(lease(state, share, n, ends=ends))
    waiting = tuple(ticket(n, *offers) for n, offers in enumerate(draw(tickets_of), start=1))
    config = QueueLimits(max_starting=draw(st.sampled_from([1, 3, 64])))
    return snapshot(devices, waiting, tuple(leases), config, draw(st.sampled_from([None, timedelta(minutes=30)])))


@given(lines())
def test_no_device_is_ever_given_beyond_its_whole(random_line: QueueSnapshot) -> None:
    held = {lease_.device: lease_.share for lease_ in random_line.leases}
    by_id = {offer.id: offer for offer in OFFERS}
    for admission in admit(random_line):
        if admission.device is not None:
            held[admission.device] = held.get(admission.device, 0) + by_id[admission.offer].share
    assert all(share <= WHOLE for share in held.values())


@pytest.mark.slow
@given(lines(), tickets_of)
def test_whoever_joins_later_never_changes_what_the_earlier_ones_get(
    random_line: QueueSnapshot, more: list[list[str]]
) -> None:
    before = {a.ticket: a for a in admit(random_line)}
    later = tuple(ticket(100 + n, *offers) for n, offers in enumerate(more))
    after = {a.ticket: a for a in admit(replace(random_line, tickets=random_line.tickets + later))}
    assert {t: a for t, a in after.items() if int(t[1:]) < 100} == before


@given(lines())
def test_every_waiting_ticket_has_a_position_and_positions_are_dense_from_one(random_line: QueueSnapshot) -> None:
    shown = standing(random_line, NOW)
    assert set(shown) == {t.id for t in random_line.tickets}
    for offer in OFFERS:
        ahead = sorted(v.position for v in shown.values() if v.offer == offer.id)
        assert all(position >= 1 for position in ahead)


@given(lines())
def test_who_waits_is_counted_alike_with_and_without_the_rest(some: QueueSnapshot) -> None:
    assert lengths(some.offers, some.tickets) == {each.offer.id: each.waiting for each in availability(some, NOW)}
