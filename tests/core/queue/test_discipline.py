"""The rules of the queue, and that the wait forecast simulates them exactly (see ``benchmarks/discipline.py``)."""

from __future__ import annotations

from dataclasses import replace

import pytest

from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import Lease, LeaseState, QueueLimits, Ticket, WantedOffer
from tests.core.queue.random_lines import RandomLine, difference, random_line, served
from tests.core.queue.test_admission import NOW, large, lease, small, snapshot, ticket, whole


@pytest.mark.slow
@pytest.mark.parametrize(
    "first", [0, *(pytest.param(first, marks=pytest.mark.slow) for first in range(1000, 1300, 50))]
)
def test_a_line_is_simulated_as_admission_serves_it(first: int) -> None:
    lines = {seed: random_line(seed) for seed in range(first, first + (50 if first else 15))}
    assert {seed: found for seed, line in lines.items() if (found := difference(line))} == {}
    assert sum(1 for line in lines.values() for each in served(line) if each.at > 0) > len(lines) / 2


def wants(name: str, user: str, *wanted: tuple[str, int]) -> Ticket:
    return Ticket(name, user, "new", tuple(WantedOffer(OfferId(offer), place) for offer, place in wanted), NOW)


def own(held: Lease, user: str = "ada") -> Lease:
    return replace(held, user=user, server="old")


HALF_BUSY = lease(whole(0), 250)
SMALL_0, LARGE_0, GPU_0 = lease(small(0)), lease(large(0)), lease(whole(0))
ONE_START = QueueLimits(max_starting=1, gpu_leases_per_user=100)

CPU_LINE = tuple(ticket(n, "cpu") for n in range(2, 6))

CASES = {
    "who starts first in time takes a start first, whatever the place": (
        snapshot(
            (small(0),), (ticket(1, "mig-1g.5gb"), *(ticket(n, "cpu") for n in range(2, 6))), (SMALL_0,), ONE_START
        ),
        {SMALL_0.id: 100.0},
        {"t1": 120.0, "t2": 0.0, "t3": 30.0, "t4": 60.0, "t5": 90.0},
    ),
    "who holds as many as the limit allows is served in turn once the own server has ended": (
        snapshot(
            (small(0), large(0)),
            (wants("t1", "ada", ("mig-1g.5gb", 1)), wants("t2", "bob", ("mig-1g.5gb", 2))),
            (SMALL_0, own(LARGE_0)),
        ),
        {SMALL_0.id: 100.0, LARGE_0.id: 50.0},
        {"t1": 100.0, "t2": 110.0},
    ),
    "the first of the own places that is served holds back the others": (
        snapshot(
            (small(0), large(0)),
            (
                wants("t1", "ada", ("mig-1g.5gb", 1)),
                replace(wants("t2", "ada", ("mig-2g.10gb", 2)), server="second"),
                wants("t3", "bob", ("mig-2g.10gb", 3)),
            ),
            (SMALL_0, LARGE_0),
        ),
        {SMALL_0.id: 5.0, LARGE_0.id: 7.0},
        {"t1": 5.0, "t2": 17.0, "t3": 7.0},
    ),
    "a server on a drained device counts against its user's limit": (
        replace(
            snapshot(
                (small(0), whole(0)),
                (wants("t1", "ada", ("mig-1g.5gb", 1)), *(wants(f"t{n}", f"u{n}", ("mig-1g.5gb", n)) for n in (2, 3))),
                (own(GPU_0),),
            ),
            closed=frozenset({GPU_0.device}),
        ),
        {GPU_0.id: 5.0},
        {"t1": 10.0, "t2": 0.0, "t3": 20.0},
    ),
    "an offer that was added later has a later place in the same line": (
        snapshot(
            (whole(0),),
            (wants("t1", "ada", ("gpu", 1), ("gpu-0.5", 9)), wants("t2", "bob", ("gpu", 5))),
            (HALF_BUSY,),
        ),
        {HALF_BUSY.id: 100.0},
        {"t1": 100.0, "t2": 110.0},
    ),
    "lines whose places go round in a circle": (
        snapshot(
            (small(0), large(0)),
            (
                wants("t1", "ada", ("mig-1g.5gb", 11), ("mig-2g.10gb", 2)),
                wants("t2", "bob", ("mig-1g.5gb", 1), ("mig-2g.10gb", 12)),
            ),
            (SMALL_0, LARGE_0),
        ),
        {SMALL_0.id: 40.0, LARGE_0.id: 30.0},
        {"t1": 30.0, "t2": 40.0},
    ),
    "who would also take CPU only takes a device that is free": (
        snapshot(
            (small(0),), (ticket(1, "mig-1g.5gb", "cpu"), ticket(2, "mig-1g.5gb"), ticket(3, "cpu")), (), ONE_START
        ),
        {},
        {"t1": 0.0, "t2": 30.0, "t3": 60.0},
    ),
    "one offer of a pool is held up, the others are not": (
        replace(
            snapshot(
                (whole(0), small(0)),
                (
                    ticket(1, "gpu-0.5"),
                    ticket(2, "mig-1g.5gb"),
                    ticket(3, "gpu", "mig-1g.5gb"),
                    ticket(4, "mig-1g.5gb"),
                ),
            ),
            held_up=frozenset({OfferId("gpu-0.5")}),
        ),
        {},
        {"t2": 0.0, "t3": 10.0, "t4": 20.0},
    ),
    "a server that is ending holds its device, but does not count against the limit": (
        snapshot(
            (small(0), small(1)),
            (wants("t1", "ada", ("mig-1g.5gb", 1)), wants("t2", "bob", ("mig-1g.5gb", 2))),
            (own(replace(SMALL_0, state=LeaseState.ENDING)),),
        ),
        {SMALL_0.id: 50.0},
        {"t1": 0.0, "t2": 10.0},
    ),
}


@pytest.mark.parametrize("case", CASES)
def test_of_these_lines_the_simulation_was_wrong_or_might_be(case: str) -> None:
    snap, left, starts = CASES[case]
    lives = {(each.id, pool): 10.0 for each in snap.tickets for pool in ("mig-1g.5gb", "mig-2g.10gb", "gpu")}
    line = RandomLine(snap, left, {}, lives)
    assert {each.ticket: each.at for each in served(line)} == starts
    assert difference(line) == ""
