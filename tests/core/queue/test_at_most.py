""" "At most" in cases that were wrong once: the start brake, a failed stop, shares of different sizes, places that
end.
"""

from __future__ import annotations

from dataclasses import replace
from datetime import timedelta

import pytest

from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.admission import admit, availability, standing
from hub_extensions.core.queue.model import (
    Lease,
    LeaseState,
    QueueLimits,
    QueueSnapshot,
    Ticket,
    TicketState,
    WantedOffer,
)
from hub_extensions.core.queue.wait_bound import WaitForecast, best_of, unknown
from hub_extensions.core.text.reasons import explain
from tests.core.queue.test_admission import CPU, GPU, NOW, SMALL, large, lease, small, snapshot, ticket, whole

MINUTE, HOUR = timedelta(minutes=1), timedelta(hours=1)
LIFETIME = 12 * HOUR
TURN = (3 + 3) * MINUTE + LIFETIME + MINUTE
"""Held back by the start brake, started, used to the limit, released."""


def waits(here: QueueSnapshot) -> list[timedelta | None]:
    """Return the upper bounds of all waiting tickets, in the order of their places."""
    shown = standing(here, NOW)
    waiting = sorted(
        (t for t in here.tickets if t.state is TicketState.WAITING), key=lambda t: t.wanted_offers[0].place
    )
    return [forecast.at_most for each in waiting if (forecast := shown[each.id].forecast) is not None]


def starting(*numbers: int) -> tuple[Ticket, ...]:
    return tuple(ticket(n, "cpu", state=TicketState.ADMITTED) for n in numbers)


def after(here: QueueSnapshot) -> QueueSnapshot:
    """Return the snapshot after every ticket that can start was admitted. Its leases are ignored."""
    given = {each.ticket for each in admit(here)}
    changed = (replace(t, state=TicketState.ADMITTED) if t.id in given else t for t in here.tickets)
    return replace(here, tickets=tuple(changed))


# ------------------------------------------------------------------ the start brake


def test_of_ten_who_are_each_first_in_a_line_with_a_free_device_the_last_two_wait_for_two_rounds_of_starts() -> None:
    profiles = [f"{n}g.{5 * n}gb" for n in range(1, 11)]
    offers = [replace(SMALL, id=OfferId(f"mig-{each}"), pool=f"mig-{each}") for each in profiles]
    devices = [replace(small(0), device=replace(small(0).device, uuid=f"MIG-{p}", profile=p)) for p in profiles]
    line = tuple(ticket(n, offer.id) for n, offer in enumerate(offers, start=1))
    here = QueueSnapshot((CPU, *offers), tuple(devices), line, (), QueueLimits(max_starting=4), LIFETIME)
    assert waits(after(here)) == [3 * MINUTE] * 4 + [6 * MINUTE] * 2


@pytest.mark.parametrize(
    ("most", "ahead", "minutes"),
    [(4, 4, 3), (4, 7, 3), (4, 8, 6), (4, 12, 9), (1, 1, 3), (1, 12, 36), (64, 64, 3)],
)
def test_cpu_only_servers_that_came_before_take_their_starts_before_the_gpu_server(
    most: int, ahead: int, minutes: int
) -> None:
    line = tuple(ticket(n, "cpu") for n in range(ahead))
    here = snapshot((whole(0),), (*line, ticket(99, "gpu")), (), QueueLimits(max_starting=most), LIFETIME)
    assert waits(after(here))[-1] == minutes * MINUTE


@pytest.mark.parametrize("most", [1, 4, 64])
def test_others_may_begin_to_start_just_before_the_gpu_is_released(most: int) -> None:
    """Whoever comes later starts at once while nothing is free for those in line."""
    held = lease(whole(0), ends=NOW + 10 * MINUTE)
    here = snapshot((whole(0),), (ticket(1, "gpu"),), (held,), QueueLimits(max_starting=most), LIFETIME)
    assert waits(here) == [(10 + 1 + 3) * MINUTE]
    (gpu,) = (each for each in availability(replace(here, tickets=()), NOW) if each.offer == GPU)
    assert gpu.wait.at_most == (10 + 1 + 3) * MINUTE


@pytest.mark.parametrize(("waiting", "minutes"), [(0, 3), (3, 3), (4, 6)])
def test_while_the_start_brake_holds_back_no_offer_starts_now(waiting: int, minutes: int) -> None:
    line = tuple(ticket(n, "cpu") for n in range(waiting))
    here = snapshot((small(0),), (*starting(*range(90, 94)), *line), (), QueueLimits(max_starting=4), LIFETIME)
    for each in availability(here, NOW):
        if each.offer in (CPU, SMALL):
            assert (each.wait.now, each.wait.at_most) == (False, minutes * MINUTE)
            assert each.wait.reason == explain("others-start")
    free = replace(here, config=QueueLimits(max_starting=8))
    assert [each.wait.now for each in availability(free, NOW) if each.offer in (CPU, SMALL)] == [True, True]


def test_who_waits_for_cpu_only_is_told_how_long_the_start_brake_holds_back_at_most() -> None:
    line = tuple(ticket(n, "cpu") for n in range(1, 5))
    assert waits(snapshot((), (*starting(91, 92), *line), (), QueueLimits(max_starting=2))) == [
        3 * MINUTE, 3 * MINUTE, 6 * MINUTE, 6 * MINUTE,
    ]  # fmt: skip


# ------------------------------------------------------------------ parts of different sizes


@pytest.mark.parametrize(("cards", "place", "turns"), [(10, 30, 2), (10, 10, 0), (10, 11, 1), (1, 3, 2), (3, 3, 0)])
def test_of_parts_of_different_sizes_as_many_start_in_a_turn_as_there_are_cards(
    cards: int, place: int, turns: int
) -> None:
    held = lease(whole(0), 500, offer="gpu-0.5", ends=NOW + HOUR)
    line = tuple(ticket(n, ("gpu", "gpu-0.5", "gpu-0.25")[n % 3]) for n in range(1, place + 1))
    limits = QueueLimits(max_wait=100 * HOUR)
    here = snapshot(tuple(map(whole, range(cards))), line, (held,), limits, LIFETIME)
    assert waits(here)[-1] == HOUR + MINUTE + turns * TURN + 3 * MINUTE


def test_parts_differ_also_where_only_a_later_wish_is_of_another_size() -> None:
    """All quarters of the card end at once, and the first in line is then given all of it: he prefers that."""
    grown = Ticket("t1", "u1", "", (WantedOffer(OfferId("gpu"), 2), WantedOffer(OfferId("gpu-0.25"), 1)), NOW)
    held = tuple(lease(whole(0), 250, n, "gpu-0.25", NOW + HOUR) for n in range(4))
    here = snapshot((whole(0),), (grown, ticket(3, "gpu-0.25")), held, lifetime=LIFETIME)
    assert waits(here)[-1] == HOUR + MINUTE + TURN + 3 * MINUTE
    assert admit(replace(here, leases=()))[0].offer == "gpu"


def test_a_card_that_somebody_holds_without_an_end_is_none_that_is_waited_for() -> None:
    held = (lease(whole(0), 250, offer="gpu-0.25"), lease(whole(1), ends=NOW + HOUR))
    here = snapshot((whole(0), whole(1)), (ticket(1, "gpu"), ticket(2, "gpu")), held, lifetime=LIFETIME)
    assert waits(here) == [HOUR + MINUTE + 3 * MINUTE, HOUR + MINUTE + TURN + 3 * MINUTE]
    assert waits(replace(here, devices=(whole(0),))) == [None, None]


def test_a_larger_offer_that_was_added_changes_nothing_for_those_behind() -> None:
    """It takes its place at the end, behind them."""
    held = tuple(lease(whole(0), 250, n, "gpu-0.25", NOW + n * HOUR) for n in range(1, 5))
    line = (ticket(1, "gpu-0.25"), ticket(2, "gpu"), ticket(3, "gpu-0.25"))
    before = snapshot((whole(0),), line, held, lifetime=LIFETIME)
    grown = replace(line[0], wanted_offers=(WantedOffer(OfferId("gpu"), 4), WantedOffer(OfferId("gpu-0.25"), 1)))
    shown = standing(replace(before, tickets=(grown, *line[1:])), NOW)
    assert [shown[t.id].forecast for t in line] == [standing(before, NOW)[t.id].forecast for t in line]
    assert [each.offer for each in admit(replace(before, tickets=(grown, *line[1:]), leases=()))] == ["gpu-0.25"]


# ------------------------------------------------------------------ ends that are not enforced


def test_a_start_that_lasts_longer_than_it_may_has_no_end_that_could_be_told() -> None:
    def at_most(minutes: int) -> timedelta | None:
        since = NOW - minutes * MINUTE
        held: Lease = replace(
            lease(whole(0), ends=since + 3 * MINUTE + LIFETIME), state=LeaseState.STARTING, since=since
        )
        return waits(snapshot((whole(0),), (ticket(1, "gpu"),), (held,), lifetime=LIFETIME))[0]

    assert at_most(0) == 3 * MINUTE + LIFETIME + MINUTE + 3 * MINUTE
    assert at_most(4) == LIFETIME - MINUTE + MINUTE + 3 * MINUTE
    assert at_most(5) is None


# ------------------------------------------------------------------ one's own other places


@pytest.mark.parametrize(
    ("other", "most", "known"),
    [
        (ticket(1, "gpu"), 1, False),  # it comes first, and then this one waits for its server
        (ticket(1, "gpu"), 2, True),
        (ticket(9, "gpu"), 1, True),  # this one comes first
        (ticket(9, "mig-1g.5gb"), 1, False),  # in another line it may come first all the same
        (ticket(9, "gpu", "mig-1g.5gb"), 1, False),
        (ticket(1, "cpu"), 1, True),
    ],
)
def test_a_wait_that_may_hang_on_ones_own_other_place_is_not_known(other: Ticket, most: int, known: bool) -> None:
    mine = (replace(ticket(5, "gpu", user="ada"), server="a"), replace(other, user="ada", server="b"))
    held = (lease(whole(0), ends=NOW + HOUR), lease(small(0), n=1, ends=NOW + HOUR))
    limits = QueueLimits(gpu_leases_per_user=most, tickets_per_user=2)
    here = snapshot((whole(0), small(0)), mine, held, limits, LIFETIME)
    forecast = standing(here, NOW)["t5"].forecast
    assert forecast is not None and (forecast.at_most is not None) is known
    if not known:
        assert forecast.reason == explain("after-own-server")


def test_who_is_over_his_own_limit_while_his_other_server_starts_is_told_nothing_and_holds_nobody_up() -> None:
    limits = QueueLimits(tickets_per_user=2)
    held = replace(lease(small(0), ends=NOW + LIFETIME), user="ada", server="a", state=LeaseState.STARTING)
    line = (replace(ticket(1, "mig-1g.5gb", user="ada"), server="b"), ticket(2, "mig-1g.5gb"))
    here = snapshot((small(0), small(1)), line, (held,), limits, LIFETIME)
    assert [each.ticket for each in admit(here)] == ["t2"]
    shown = standing(here, NOW)["t1"]
    assert shown.forecast is not None and shown.forecast.at_most is None
    assert (shown.reason.reason, shown.forecast.reason) == ("own-lease-first", explain("after-own-server"))


# ------------------------------------------------------------------ what is told


@pytest.mark.parametrize(
    ("waited", "ends", "known"),
    [(0, 23, True), (0, 25, False), (2, 21, True), (2, 23, False)],
)
def test_no_limit_beyond_the_end_of_the_place_is_said_but_that_end_is(waited: int, ends: int, known: bool) -> None:
    here = snapshot(
        (whole(0),),
        (replace(ticket(1, "gpu"), joined=NOW - waited * HOUR),),
        (lease(whole(0), ends=NOW + ends * HOUR),),
        lifetime=LIFETIME,
    )
    forecast = standing(here, NOW)["t1"].forecast
    assert forecast is not None
    assert forecast.at_most == (ends * HOUR + 4 * MINUTE if known else None)
    if not known:
        assert forecast.reason == explain("place-ends-first", hours=24.0)


def test_no_limit_beyond_the_end_of_a_place_is_said_to_who_has_none_yet() -> None:
    here = snapshot((whole(0),), (), (lease(whole(0), ends=NOW + 25 * HOUR),), lifetime=LIFETIME)
    (gpu,) = (each for each in availability(here, NOW) if each.offer == GPU)
    assert (gpu.wait.at_most, gpu.wait.reason) == (None, explain("place-ends-first", hours=24.0))
    assert gpu.wait.reason is not None
    assert gpu.wait.reason.message == "A place in line ends after 24 h, and a turn may come later than that."


def test_in_several_lines_the_best_limit_is_told_and_not_that_of_the_smallest_position() -> None:
    held = (lease(large(0), ends=NOW + 10 * HOUR), lease(small(0), n=1, ends=NOW + HOUR))
    both = ticket(3, "mig-2g.10gb", "mig-1g.5gb")
    line = (ticket(1, "mig-1g.5gb"), both)
    here = snapshot((large(0), small(0), small(1)), line, (*held, lease(small(1), n=2, ends=NOW + 2 * HOUR)))
    shown = standing(replace(here, lifetime=LIFETIME), NOW)["t3"]
    assert (shown.offer, shown.position) == ("mig-2g.10gb", 1)
    assert shown.forecast is not None and shown.forecast.at_most == 2 * HOUR + 4 * MINUTE


def test_of_several_forecasts_the_best_limit_and_the_best_interval_are_told() -> None:
    never = unknown(explain("one-without-limit"))
    bound = WaitForecast(False, None, None, None, HOUR, explain("limits-ahead"))
    likely = WaitForecast(False, MINUTE, 2 * MINUTE, 3 * MINUTE, 2 * HOUR, None)
    later = WaitForecast(False, MINUTE, 2 * MINUTE, 4 * MINUTE, None, None)
    assert best_of([never]) == never
    assert best_of([never, unknown(explain("no-limit"))]) == never
    assert best_of([never, later, bound, likely]) == replace(bound, p10=likely.p10, p50=likely.p50, p90=likely.p90)
