"""A line that is kept up to date equals a line that is built anew, and so does a single wait."""

from __future__ import annotations

import heapq
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

import pytest
from hypothesis import given
from hypothesis import strategies as st

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.admission import admit, availability, refuse_to_join, standing
from hub_extensions.core.queue.heads import pools_of
from hub_extensions.core.queue.model import PoolQueue, Ticket, TicketState, WantedOffer
from hub_extensions.core.queue.pool_queue import PoolQueueIndex, pool_queues_of
from hub_extensions.core.queue.wait_bound import RELEASE_ALLOWANCE, START_ALLOWANCE, Holding, StartBrake, forecast_queue
from tests.core.queue.test_admission import NOW, OFFERS, large, lease, small, snapshot, whole
from tests.examples import many

NAMES = st.sampled_from([offer.id for offer in OFFERS] + [OfferId("mig-7g.40gb")])
PLACES = st.integers(1, 10**6)
STEPS = st.lists(
    st.tuples(
        st.integers(1, 12),  # whose ticket
        st.lists(NAMES, min_size=1, max_size=3, unique=True),
        st.lists(PLACES, min_size=3, max_size=3),
        st.sampled_from([*TicketState, TicketState.WAITING]),
    ),
    max_size=40,
)


def content(lines: Mapping[str, PoolQueue]) -> dict[str, tuple[object, ...]]:
    return {pool: (line.tickets, line.places, +Counter(line.asked)) for pool, line in lines.items()}


@pytest.mark.whole
@pytest.mark.slow
@many(200)
@given(STEPS, st.booleans())
def test_an_updated_line_equals_a_rebuilt_line(
    steps: list[tuple[int, list[OfferId], list[int], TicketState]], busy: bool
) -> None:
    pools = pools_of(OFFERS)
    kept, tickets = PoolQueueIndex(pools), dict[str, Ticket]()
    taken = set[int]()
    for number, offers, places, state in steps:
        if taken & set(places):
            continue  # no place is given twice
        taken |= set(places)
        name = f"t{number}"
        wanted_offers = tuple(WantedOffer(offer, place) for offer, place in zip(offers, places, strict=False))
        if state is TicketState.ENDED:
            kept.drop(name)
            tickets.pop(name, None)
        else:
            tickets[name] = Ticket(name, f"u{number}", "", wanted_offers, NOW, state)
            kept.put(tickets[name])
        assert content(kept.queues()) == content(pool_queues_of(pools, tickets.values()))
    assert content(PoolQueueIndex(pools, tickets.values()).queues()) == content(kept.queues())
    devices = (small(0), large(0), whole(0), whole(1))
    leases = tuple(lease(each, ends=NOW + timedelta(minutes=5)) for each in devices) if busy else ()
    plain = snapshot(devices, tuple(tickets.values()), leases, lifetime=timedelta(hours=1))
    indexed = replace(plain, queues=kept.queues())
    assert dict(standing(indexed, NOW)) == dict(standing(plain, NOW))
    assert admit(indexed) == admit(plain)
    assert availability(indexed, NOW) == availability(plain, NOW)
    for number in (1, 99):
        assert refuse_to_join(indexed, f"u{number}", "", ["gpu"], ()) == refuse_to_join(  # type: ignore[list-item]
            plain,
            f"u{number}",
            "",
            ["gpu"],
            (),  # type: ignore[list-item]
        )


def test_what_was_given_out_does_not_change_when_somebody_leaves() -> None:
    first, second = (Ticket(f"t{n}", f"u{n}", "", (WantedOffer(OfferId("gpu"), n),), NOW) for n in (1, 2))
    kept = PoolQueueIndex(pools_of(OFFERS), (first, second))
    before = kept.queues()
    kept.drop("t1")
    kept.drop("nobody")
    assert before["gpu"].tickets == (first, second) and before["gpu"].asked == {"gpu": 2}
    assert kept.queues()["gpu"] == PoolQueue((second,), (2,), Counter({OfferId("gpu"): 1}))
    kept.drop("t2")
    assert kept.queues() == {}


# ------------------------------------------------------------------ the wait of one place


def played(
    devices: Sequence[str], holdings: Sequence[Holding], share: int, places: int, turn: timedelta
) -> list[datetime | None]:
    """Play the line forward place by place, with the free part of each device, as a plain reference."""
    free = dict.fromkeys(devices, WHOLE)
    ends: list[tuple[datetime, str]] = []
    for holding in holdings:
        free[holding.device] -= holding.share
        if holding.ends_at is not None:
            ends.append((max(holding.ends_at, NOW) + RELEASE_ALLOWANCE, holding.device))
    heapq.heapify(ends)
    at, starts = NOW, list[datetime | None]()
    for _ in range(places):
        while not (fits := [device for device, room in free.items() if room >= share]) and ends:
            at, freed = heapq.heappop(ends)
            free[freed] += share
        if not fits:
            return starts + [None] * (places - len(starts))
        free[fits[0]] -= share
        heapq.heappush(ends, (at + turn, fits[0]))
        starts.append(at)
    return starts


@pytest.mark.slow
@many(300)
@given(
    st.integers(0, 4),
    st.sampled_from([1000, 500, 333, 250]),
    st.lists(st.tuples(st.integers(0, 3), st.none() | st.integers(-20, 400)), max_size=12),
    st.integers(1, 90),
    st.integers(0, 40),
)
def test_the_bound_of_each_place_equals_a_simulation_of_the_line(
    devices: int, share: int, held: list[tuple[int, int | None]], lifetime: int, places: int
) -> None:
    """Too many on one device, ends long after a turn, and holders whom nothing ends, are among them."""
    names = [f"d{n}" for n in range(devices)]
    holdings = [
        Holding(f"d{at}", share, None if end is None else NOW + timedelta(minutes=end))
        for at, end in held
        if at < devices
    ]
    turn = 2 * START_ALLOWANCE + timedelta(minutes=lifetime) + RELEASE_ALLOWANCE
    found = forecast_queue(
        devices=names,
        holdings=holdings,
        shares={share},
        places=places,
        lifetime=timedelta(minutes=lifetime),
        brake=StartBrake(1000, START_ALLOWANCE),
        now=NOW,
    )
    expected = played(names, holdings, share, places, turn)
    assert [found(place, place).at_most for place in range(places)] == [
        None if at is None else at - NOW + START_ALLOWANCE for at in expected
    ]
