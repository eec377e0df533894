"""Random lines in a world whose lives are known, served once by the real admission and once by the simulation.

A line has what a line of one machine can have: MIG instances, fractions, several offers per ticket with places of their
own, the start brake, users' own limits, drained and held-up pools, leases that are starting, ending, lost or endless.
"""

from __future__ import annotations

import heapq
from dataclasses import dataclass, field, replace
from datetime import timedelta
from random import Random

import numpy as np

from hub_extensions.core.forecast.inputs import simulation_state
from hub_extensions.core.forecast.results import ForecastInputs
from hub_extensions.core.forecast.simulate import Wish, simulate_admissions, simulate_lives
from hub_extensions.core.gpu.devices import WHOLE, DeviceState, Foreign
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.admission import admit
from hub_extensions.core.queue.model import (
    Lease,
    LeaseState,
    QueueLimits,
    QueueSnapshot,
    Ticket,
    TicketState,
    WantedOffer,
)
from tests.core.queue.test_admission import NOW, OFFERS, large, small, whole

TAKES = 30
"""Seconds that a start takes."""


@dataclass(frozen=True)
class Admitted:
    """One admission: `device` is None for CPU only, `at` seconds from the beginning."""

    ticket: str
    at: float
    offer: OfferId
    device: str | None


@dataclass
class RandomLine:
    """A line, and how long everything lasts in its world.

    Attributes:
        left: lease -> seconds until it ends; a lease that is missing never ends.
        ready: admitted ticket -> seconds until it is ready.
        lives: (ticket, pool) -> seconds for which the ticket holds a device of the pool.
    """

    snapshot: QueueSnapshot
    left: dict[str, float] = field(default_factory=dict)
    ready: dict[str, float] = field(default_factory=dict)
    lives: dict[tuple[str, str], float] = field(default_factory=dict)


def random_line(seed: int) -> RandomLine:
    """Draw a line; the same seed draws the same line."""
    draw = Random(seed)
    users = [f"u{n}" for n in range(draw.choice([2, 4, 40]))]
    servers = ["", "a", "b"]
    longest = draw.choice([9, 60, 400])
    devices: list[DeviceState] = [kind(n) for kind in (small, large, whole) for n in range(draw.randint(0, 3))]
    devices = [replace(each, foreign=Foreign.SOME) if draw.random() < 0.05 else each for each in devices]
    drained = draw.choice([0.0, 0.0, 0.2, 1.0])
    closed = {
        each.device.identity
        for each in devices
        if draw.random() < (drained if drained < 1 else each.device.pool == "gpu")
    }
    offers = tuple(each for each in OFFERS if each.pool != "gpu" or draw.random() < 0.9)
    held_up = {each.id for each in offers if each.pool and draw.random() < draw.choice([0.0, 0.0, 0.0, 0.3])}
    line = RandomLine(QueueSnapshot(offers, tuple(devices), (), ()))
    tickets: list[Ticket] = []
    leases: list[Lease] = []
    taken: set[tuple[str, str]] = set()
    for state in devices:
        room = WHOLE
        while draw.random() < 0.7:
            here = [each for each in OFFERS if each.pool == state.device.pool and each.share <= room]
            if not here:
                break
            offer, name = draw.choice(here), f"l{len(leases)}"
            room -= offer.share
            kind = draw.choice([LeaseState.RUNNING] * 5 + [LeaseState.STARTING, LeaseState.ENDING, LeaseState.LOST])
            user, server = draw.choice(users), draw.choice(servers)
            ends = NOW + timedelta(seconds=draw.randint(1, longest))
            if kind is LeaseState.RUNNING and draw.random() < 0.1:
                ends = NOW - timedelta(hours=1)  # its stop is refused
            elif kind is not LeaseState.LOST:
                line.left[name] = (ends - NOW).total_seconds()
            leases.append(
                Lease(
                    name, f"x{name}", user, server, offer.id, state.device.identity, state.device.uuid, offer.pool,
                    offer.share, kind, NOW, None, ends,
                )
            )  # fmt: skip
            if kind is LeaseState.STARTING and (user, server) not in taken:
                tickets.append(Ticket(f"x{name}", user, server, (WantedOffer(offer.id, 0),), NOW, TicketState.ADMITTED))
                taken.add((user, server))
    for number in range(draw.choice([0, 0, 1, 3])):
        tickets.append(Ticket(f"c{number}", f"c{number}", "", (WantedOffer(CPU, 0),), NOW, TicketState.ADMITTED))
    for number, each in enumerate(tickets):
        age = draw.randint(0, TAKES + 5)
        tickets[number] = replace(each, admitted_at=NOW - timedelta(seconds=age))
        line.ready[each.id] = max(0.0, TAKES - age)
    places = draw.sample(range(1, 200), 60)
    for number in range(draw.randint(1, 10)):
        user, server = draw.choice(users), draw.choice(servers)
        if (user, server) in taken:
            continue
        taken.add((user, server))
        known = [each.id for each in offers]
        wanted = draw.sample(known, min(len(known), draw.choice([1, 1, 1, 2, 3])))
        first = places.pop()
        same = draw.random() < 0.6
        choices = tuple(
            WantedOffer(offer, first if same or not at else places.pop()) for at, offer in enumerate(wanted)
        )
        tickets.append(Ticket(f"t{number}", user, server, choices, NOW))
        for pool in {each.pool for each in offers if each.pool}:
            line.lives[f"t{number}", pool] = float(draw.randint(1, longest))
    draw.shuffle(tickets)
    config = QueueLimits(max_starting=draw.choice([1, 1, 2, 3, 64]), gpu_leases_per_user=draw.choice([1, 1, 2, 100]))
    line.snapshot = replace(
        line.snapshot,
        tickets=tuple(tickets),
        leases=tuple(leases),
        config=config,
        closed=frozenset(closed),
        held_up=frozenset(held_up),
    )
    return line


def served(line: RandomLine) -> list[Admitted]:
    """Return who is admitted by `admit`, event by event."""
    snapshot = line.snapshot
    leases = {each.id: each for each in snapshot.leases}
    tickets = {each.id: each for each in snapshot.tickets}
    offers = {offer.id: offer for offer in snapshot.offers}
    events = [(end, "lease", name) for name, end in line.left.items()]
    events += [(end, "start", name) for name, end in line.ready.items()]
    heapq.heapify(events)
    found: list[Admitted] = []
    now = 0.0
    while True:
        while events and events[0][0] <= now:
            _, kind, name = heapq.heappop(events)
            del (leases if kind == "lease" else tickets)[name]
        here = replace(snapshot, tickets=tuple(tickets.values()), leases=tuple(leases.values()))
        for each in admit(here):
            found.append(Admitted(each.ticket, now, each.offer, each.device))
            offer, ticket = offers[each.offer], tickets[each.ticket]
            tickets[ticket.id] = replace(ticket, state=TicketState.ADMITTED, admitted_offer=offer.id)
            heapq.heappush(events, (now + TAKES, "start", ticket.id))
            if each.device is not None:
                name = f"of {ticket.id}"
                leases[name] = Lease(
                    name, ticket.id, ticket.user, ticket.server, offer.id, each.device, "", offer.pool, offer.share,
                    LeaseState.STARTING, NOW,
                )  # fmt: skip
                heapq.heappush(events, (now + line.lives[ticket.id, offer.pool], "lease", name))
        if not events:
            return found
        now = max(now, events[0][0])


def simulated(line: RandomLine) -> list[Admitted]:
    """Return who is admitted by the simulation of the same world.

    Raises:
        AssertionError: the arrays for many worlds have other starts than the one world whose admissions are listed.
    """
    state, _ = simulation_state(ForecastInputs(line.snapshot, NOW), TAKES)
    ticket_of = {id(wish): ticket.id for ticket in state.waiting for wish in ticket.wishes}

    def life(wish: Wish) -> float:
        return line.lives[ticket_of[id(wish)], wish.pool]

    found = simulate_admissions(state, line.left, life)
    ends = {name: np.array([end]) for name, end in line.left.items()}
    starts, _ = simulate_lives(state, ends, lambda wish: np.array([life(wish)]), 1)
    assert {name: at[0] for name, at in starts.items() if np.isfinite(at[0])} == {
        each.ticket: each.at for each in found
    }
    offers, tickets = {offer.id for offer in line.snapshot.offers}, {each.id: each for each in line.snapshot.tickets}
    wanted = {
        name: [each.offer for each in ticket.wanted_offers if each.offer in offers] for name, ticket in tickets.items()
    }
    return [Admitted(each.ticket, each.at, wanted[each.ticket][each.wish], each.device) for each in found]


def difference(line: RandomLine) -> str:
    """Return how the simulation differs from the real admission, or "" if it does not.

    A ticket for CPU only is not simulated if the start brake cannot bind. It then starts at once.
    """
    state, _ = simulation_state(ForecastInputs(line.snapshot, NOW), TAKES)
    known = {each.id for each in state.waiting}
    real = served(line)
    others = [each for each in real if each.ticket not in known]
    if any(each.offer != CPU or each.at for each in others):
        return f"not simulated: {others}"
    real = [each for each in real if each.ticket in known]
    found = simulated(line)
    return "" if found == real else f"admission: {real}\nsimulation: {found}"
