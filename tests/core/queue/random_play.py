"""A random line that follows the rules of admission and of the lifecycle, to check that no wait exceeds "at most".

Users join, leave, ask for other offers, fail to start, and stay as long as their limits allow, at the times that are
worst for others. Only users' actions are random; `admit` decides who starts and when. Restarts of hub and service are
left out, because they move every deadline.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime, timedelta
from random import Random

from hub_extensions.core.cluster.pools import Pool
from hub_extensions.core.gpu.devices import WHOLE, DeviceState
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue import lifecycle
from hub_extensions.core.queue.admission import admit, availability, refuse_to_join, standing
from hub_extensions.core.queue.lifecycle import Event, Step
from hub_extensions.core.queue.model import Lease, LeaseState, QueueLimits, QueueSnapshot, Ticket, TicketState
from hub_extensions.core.queue.wait_bound import RELEASE_ALLOWANCE
from hub_extensions.core.text.reasons import Reason
from tests.core.queue.test_admission import CPU, NOW, OFFERS, large, small, whole
from tests.core.queue.test_counted_pools import cards

SECOND, MINUTE = timedelta(seconds=1), timedelta(minutes=1)
GPU_OFFERS = tuple(offer.id for offer in OFFERS if offer.id != CPU.id)
LONGEST = timedelta(hours=8)
"""A line is watched for so long."""


@dataclass(frozen=True)
class Found:
    """The result of one line.

    Attributes:
        told: number of shown limits. started: number of tickets with a limit that started.
        late: waits that exceeded their limit: the ticket, when it was shown, the limit, and the excess.
        used: for each started ticket, the part of its limit that it waited.
    """

    shown: int
    started: int
    late: tuple[tuple[str, datetime, timedelta, timedelta], ...]
    used: tuple[float, ...]


def random_play(seed: int) -> Found:
    """Play one line from a random beginning."""
    return _Play(Random(seed)).run()


class _Play:
    def __init__(self, draw: Random) -> None:
        self.draw = draw
        self.now = NOW
        self.tickets: dict[str, Ticket] = {}
        self.leases: dict[str, Lease] = {}
        self.shown: dict[str, list[tuple[datetime, timedelta]]] = {}
        self.limits = 0
        self.used: list[float] = []
        self.late: list[tuple[str, datetime, timedelta, timedelta]] = []
        self._events: list[tuple[datetime, int, Callable[[], None]]] = []
        self._numbers = 0
        self.harm = draw.random() < 0.4
        """Everybody uses his time to the full, and comes at the worst moment."""
        self.takes = draw.randint(1, 300) * SECOND
        self.lifetime = draw.randint(5, 90) * MINUTE
        self.config = QueueLimits(
            max_starting=draw.choice([1, 1, 2, 3, 4, 8, 16, 64]),
            gpu_leases_per_user=draw.choice([1, 1, 2]),
            tickets_per_user=draw.choice([1, 2, 3]),
            max_wait=draw.choice([timedelta(hours=100), timedelta(hours=3)]),
        )
        self.offers: tuple[GpuOffer, ...] = OFFERS
        self._make_devices()
        self._make_leases()
        for _ in range(draw.choice([0, 1, 5, 12])):
            self._join(CPU.id, telling=False)
        for _ in range(draw.randint(0, 12)):
            self._join(*self._some_offers(), telling=False)

    def _make_devices(self) -> None:
        draw = self.draw
        kinds = (small, draw.randint(0, 3)), (large, draw.randint(0, 2)), (whole, draw.randint(0, 4))
        self.devices: tuple[DeviceState, ...] = tuple(kind(n) for kind, count in kinds for n in range(count))
        self.pools: dict[OfferId, Pool] | None = None
        if draw.random() < 0.2:  # the same on a cluster, where devices are counted
            names = [each.device.pool for each in self.devices]
            self.pools = {
                OfferId(pool): replace(
                    cards(names.count(pool)), id=pool, total=names.count(pool), room={WHOLE: names.count(pool)}
                )
                for pool in dict.fromkeys(names)
            }
        if draw.random() < 0.5:  # parts of one size
            share = draw.choice([250, 500, WHOLE])
            self.offers = tuple(each for each in OFFERS if each.pool != "gpu" or each.share == share)

    def _make_leases(self) -> None:
        draw = self.draw
        for state in self.devices:
            room = WHOLE
            here = [each for each in self.offers if each.pool == state.device.pool]
            while here and draw.random() < 0.8:
                offer = draw.choice(here)
                if offer.share > room:
                    break
                room -= offer.share
                self._lease_of_before(state, offer)

    def _lease_of_before(self, state: DeviceState, offer: GpuOffer) -> None:
        draw, number = self.draw, self._number()
        device = state.device
        ends = self.now + draw.randint(0, 2 * int(self.lifetime.total_seconds())) * SECOND
        user = f"u{draw.randint(1, 30)}"
        lease = Lease(
            f"l{number}", "", user, f"s{number}", offer.id, device.identity, device.uuid, device.pool, offer.share,
            draw.choice([LeaseState.RUNNING, LeaseState.RUNNING, LeaseState.ENDING]), self.now, self.now, ends,
        )  # fmt: skip
        if self.pools is not None:
            lease = replace(lease, device=device.pool, uuid="")
        if draw.random() < 0.1:
            lease = replace(lease, ends_at=None, state=LeaseState.RUNNING)
        self.leases[lease.id] = lease
        if lease.state is LeaseState.ENDING:
            self._at(ends + self._up_to(RELEASE_ALLOWANCE), lambda: self._released(lease.id))
        elif lease.ends_at is not None:
            self._at(self.now + self._up_to(ends - self.now), lambda: self._gone(lease.id, Event.CULLED))
        elif draw.random() < 0.5:
            self._at(ends, lambda: self._gone(lease.id, Event.SERVER_GONE))

    # -------------------------------------------------------------- time

    def run(self) -> Found:
        """Run until nothing happens any more."""
        self._what_people_do()
        self._after()
        while self._events and self._events[0][0] <= NOW + LONGEST:
            self.now, _, happens = heapq.heappop(self._events)
            happens()
            self._after()
        for ticket in self.tickets.values():
            if ticket.state is TicketState.WAITING:
                self._waited(ticket, started=False)
        return Found(self.limits, len(self.used), tuple(self.late), tuple(self.used))

    def _what_people_do(self) -> None:
        draw = self.draw
        span = int(self.lifetime.total_seconds()) * 3
        for at, _, _ in draw.sample(self._events, min(len(self._events), 4)):
            # just before something is released as many begin to start as may
            for _ in range(draw.choice([0, self.config.max_starting])):
                self._at(max(self.now, at - draw.randint(0, 2) * SECOND), lambda: self._join(CPU.id))
        for _ in range(draw.randint(0, 8)):
            self._at(self.now + draw.randint(0, span) * SECOND, lambda: self._join(*self._some_offers()))
        for _ in range(draw.randint(0, 4)):
            self._at(self.now + draw.randint(0, span) * SECOND, self._somebody_leaves)
            self._at(self.now + draw.randint(0, span) * SECOND, self._somebody_asks_for_others)

    def _at(self, when: datetime, happens: Callable[[], None]) -> None:
        heapq.heappush(self._events, (when, self._number(), happens))

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _up_to(self, most: timedelta) -> timedelta:
        """Draw a time up to the limit, often the limit itself."""
        if self.harm or self.draw.random() < 0.6:
            return most
        return self.draw.randint(0, int(most.total_seconds())) * SECOND

    # -------------------------------------------------------------- the line

    def _snapshot(self) -> QueueSnapshot:
        devices = None if self.pools is not None else self.devices
        return QueueSnapshot(
            self.offers, devices, tuple(self.tickets.values()), tuple(self.leases.values()), self.config,
            self.lifetime, self.takes, pools=self.pools,
        )  # fmt: skip

    def _after(self) -> None:
        """Admit everybody who can start now; sometimes record the waits that are shown."""
        for given in admit(self._snapshot()):
            ticket = self.tickets[given.ticket]
            offer = next(each for each in self.offers if each.id == given.offer)
            step = lifecycle.admit(
                ticket, given, self.now, lease_id=f"l{self._number()}", uuid="", pool=offer.pool, share=offer.share
            )
            assert isinstance(step, Step)
            if step.lease is not None:
                ends = self.now + self.takes + self.lifetime
                step = replace(step, lease=replace(step.lease, ends_at=ends))
            self._waited(ticket, started=True)
            self._take(step)
            self._start(step.ticket)
        if self.draw.random() < 0.4:
            shown = standing(self._snapshot(), self.now)
            for ticket_id, verdict in shown.items():
                assert verdict.forecast is not None
                self._tell(ticket_id, verdict.forecast.at_most)

    def _tell(self, ticket: str, at_most: timedelta | None) -> None:
        if at_most is not None:
            self.limits += 1
            self.shown.setdefault(ticket, []).append((self.now, at_most))

    def _waited(self, ticket: Ticket, started: bool) -> None:
        for at, at_most in self.shown.pop(ticket.id, ()):
            if self.now > at + at_most:
                self.late.append((ticket.id, at, at_most, self.now - at - at_most))
            if started and at_most:
                self.used.append((self.now - at) / at_most)

    def _start(self, ticket: Ticket) -> None:
        fails = self.draw.random() < 0.15
        when = self.now + self._up_to(self.takes)
        self._at(when, lambda: self._failed(ticket) if fails else self._ready(ticket))

    def _take(self, step: Step) -> None:
        if step.ticket.state is TicketState.ENDED:
            del self.tickets[step.ticket.id]
        else:
            self.tickets[step.ticket.id] = step.ticket
        for lease in step.leases:
            self.leases[lease.id] = lease
            if lease.state is LeaseState.ENDING:
                self._release_soon(lease.id)

    def _release_soon(self, lease: str) -> None:
        when = self.now + self._up_to(RELEASE_ALLOWANCE)
        self._at(when, lambda: self._released(lease))
        for _ in range(self.config.max_starting if self.harm and self.config.max_starting < 9 else 0):
            # as many as may begin to start just before, so that what is released has to wait
            self._at(when - SECOND, lambda: self._join(CPU.id))

    def _lease_of(self, ticket: Ticket) -> Lease | None:
        mine = (each for each in self.leases.values() if each.ticket == ticket.id)
        return next((each for each in mine if each.state is LeaseState.STARTING), None)

    # -------------------------------------------------------------- what happens

    def _is_over(self, ticket: Ticket) -> bool:
        now = self.tickets.get(ticket.id)
        return now is None or now.attempt != ticket.attempt

    def _ready(self, ticket: Ticket) -> None:
        if self._is_over(ticket):
            return
        step = lifecycle.ready(ticket, self._lease_of(ticket), self.now, lambda _: self.now + self.lifetime)
        assert isinstance(step, Step)
        self._take(step)
        if step.lease is not None:
            lease = step.lease.id
            self._at(self.now + self._up_to(self.lifetime), lambda: self._gone(lease, Event.CULLED))

    def _failed(self, ticket: Ticket) -> None:
        if not self._is_over(ticket):
            step = lifecycle.end(ticket, self._lease_of(ticket), Event.FAILED)
            assert isinstance(step, Step)
            self._take(step)

    def _gone(self, lease: str, event: Event) -> None:
        ending = lifecycle.move(self.leases[lease], event)
        assert isinstance(ending, Lease)
        self.leases[lease] = ending
        self._release_soon(lease)

    def _released(self, lease: str) -> None:
        del self.leases[lease]

    def _some_offers(self) -> tuple[OfferId, ...]:
        known = [each.id for each in self.offers if each.id != CPU.id or self.draw.random() < 0.2]
        return tuple(self.draw.sample(known, self.draw.choice([1, 1, 2, min(3, len(known))])))

    def _join(self, *offers: OfferId, telling: bool = True) -> None:
        number = self._number()
        wanted = Ticket(
            f"t{number}", f"u{self.draw.randint(1, 30)}", f"s{number}",
            lifecycle.wanted_offers_of(offers, None, self._number), self.now,
        )  # fmt: skip
        here = self._snapshot()
        if isinstance(refuse_to_join(here, wanted.user, wanted.server, offers, ()), Reason):
            return
        alone = not any(each.user == wanted.user for each in (*self.tickets.values(), *self.leases.values()))
        if telling and alone and len(offers) == 1:
            (stands,) = (each for each in availability(here, self.now) if each.offer.id == offers[0])
            self._tell(wanted.id, stands.wait.at_most)
        if offers != (CPU.id,):
            self._forget_shown_limits_of(wanted.user)
        self._take(lifecycle.ask(None, None, wanted))
        self._at(self.now + self.config.max_wait, lambda: self._place_ends(wanted.id))

    def _forget_shown_limits_of(self, user: str) -> None:
        """Forget the shown limits of a user who takes a second place, because that place may delay the first."""
        for ticket in self.tickets.values():
            if ticket.user == user:
                self.shown.pop(ticket.id, None)

    def _place_ends(self, name: str) -> None:
        ticket = self.tickets.get(name)
        if ticket is not None and ticket.state is TicketState.WAITING:
            self._waited(ticket, started=False)
            step = lifecycle.end(ticket, None, Event.MAX_WAIT)
            assert isinstance(step, Step)
            self._take(step)

    def _somebody_leaves(self) -> None:
        if self.tickets:
            ticket = self.draw.choice(list(self.tickets.values()))
            step = lifecycle.end(ticket, self._lease_of(ticket), Event.LEFT)
            assert isinstance(step, Step)
            self.shown.pop(ticket.id, None)
            self._take(step)

    def _somebody_asks_for_others(self) -> None:
        if not self.tickets:
            return
        tickets = list(self.tickets.values())
        served = [each for each in tickets if each.state is TicketState.ADMITTED and len(each.wanted_offers) > 1]
        ticket = self.draw.choice(served if served and self.draw.random() < 0.5 else tickets)
        had = [choice.offer for choice in ticket.wanted_offers]
        offers = tuple(dict.fromkeys(self.draw.sample([*had, *self._some_offers()], self.draw.randint(1, len(had)))))
        if ticket.admitted_offer in offers:
            return  # its start goes on
        wanted = replace(ticket, wanted_offers=lifecycle.wanted_offers_of(offers, ticket, self._number))
        self._forget_shown_limits_of(ticket.user)
        self._take(lifecycle.ask(ticket, self._lease_of(ticket), wanted))
