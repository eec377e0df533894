"""The likely waits of a whole hub, from a snapshot of its line and from what it has learned: of service and backtest.

A `Foreteller` keeps what finished uses taught and what came true of its forecasts; `simulation_of` makes what is played
of what admission decides on. Not here: how it is played (``play.py``), where it runs (``engine/forecaster.py``), and
pools of which the hub knows too little: cut as asked, of nodes that not all may use.
"""

from __future__ import annotations

import heapq
import math
from collections import deque
from collections.abc import Callable, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import datetime
from itertools import pairwise

from hub_extensions.core.forecast.curves import PastUse
from hub_extensions.core.forecast.durations import DurationHistory, Left, UseHolder
from hub_extensions.core.forecast.episodes import BusyEpisodes
from hub_extensions.core.forecast.interval import Interval
from hub_extensions.core.forecast.outlook import SOON_END, KnownEnd, Likely, PoolView, Stay
from hub_extensions.core.forecast.play import Brake, HeldShares, SimulationState, Waiting, Wish, always
from hub_extensions.core.forecast.wait_forecast import Waits, likely_waits
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.bounds import end_of, no_bound
from hub_extensions.core.queue.capacity import Capacity
from hub_extensions.core.queue.heads import PoolQueues
from hub_extensions.core.queue.model import Lease, LeaseState, QueueSnapshot, Ticket, TicketState

MOST_PLAYED = 1000
"""Tickets that are played, the first in line; those behind keep "at most"."""
STARTS = 50
"""Starts whose median says how long one takes (the field's "median of the last 50")."""
FIRST_START = 60.0
"""Seconds that a start takes as long as none was seen."""
ENDING = Left(15.0, 0.5)
"""A server that is gone: its left-overs are ended (SIGTERM, 10 s, SIGKILL)."""
KEYS = 1000
"""Records that are known again: one may be written once more, when the hub says late how it ended."""


@dataclass(frozen=True, slots=True)
class Question:
    """What a forecast follows from.

    Attributes:
        asked: ticket or lease -> when it was asked for, seconds by the wall clock. ends: lease -> what is known of its
            end.
    """

    snapshot: QueueSnapshot
    now: datetime
    asked: Mapping[str, float] = field(default_factory=dict)
    ends: Mapping[str, KnownEnd] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Foretold:
    """The answer: of each ticket and offer of which something can be said, and of each pool that was played.

    Attributes:
        sizes: how many devices each pool has that is known.
    """

    tickets: dict[str, Likely]
    offers: dict[OfferId, Likely]
    pools: dict[str, PoolView]
    sizes: dict[str, int] = field(default_factory=dict)


class Foreteller:
    """What is learned, and what follows from it for a line.

    Args:
        histories: pool -> what its uses taught, where others learn too.
    """

    def __init__(self, histories: dict[str, DurationHistory] | None = None) -> None:
        self.histories = {} if histories is None else histories
        self._episodes: dict[str, BusyEpisodes] = {}
        self._starts: deque[float] = deque(maxlen=STARTS)
        self._keys: dict[str, None] = {}

    def learn(self, stays: Iterable[Stay]) -> None:
        """These ended, in this order. One that is known already teaches nothing."""
        for stay in stays:
            if stay.key in self._keys:
                continue
            self._keys[stay.key] = None
            if len(self._keys) > KEYS:
                del self._keys[next(iter(self._keys))]
            kind = alike(stay.devices, stay.share, stay.limit)
            use = PastUse(stay.user, kind, stay.asked, stay.lasted, stay.at_limit)
            self.histories.setdefault(stay.pool, DurationHistory()).add(use)
            if stay.starting is not None:
                self._starts.append(stay.starting)

    def matured(
        self, pool: str, played: Interval, waited: float, at_most: float | None = None, joined: float = math.inf
    ) -> None:
        """A forecast that was given at a join came true: see `BusyEpisodes.matured`."""
        self._episodes.setdefault(pool, BusyEpisodes()).matured(played, waited, at_most, joined)

    def finished(self, pool: str) -> int:
        """How many uses of this pool it has learned from."""
        history = self.histories.get(pool)
        return 0 if history is None else history.finished

    @property
    def starting(self) -> float:
        """How long a start takes, seconds."""
        ordered = sorted(self._starts)
        return ordered[len(ordered) // 2] if ordered else FIRST_START

    def waits(
        self,
        queue: SimulationState,
        seed: int,
        asks: Sequence[Wish] = (),
        at_most: Mapping[str, float] | None = None,
        go_on: Callable[[], bool] = always,
        now: float = math.inf,
    ) -> Waits:
        """See `likely_waits`. Raises GivenUp: `go_on` says no."""
        return likely_waits(
            queue,
            self.histories,
            self._episodes,
            seed=seed,
            asks=asks,
            at_most=at_most,
            go_on=go_on,
            now=now,
        )

    def answer(self, question: Question, seed: int, go_on: Callable[[], bool] = always) -> Foretold:
        """Of everybody in line and of every offer. Raises GivenUp: `go_on` says no."""
        line, asks = simulation_of(question, self.starting)
        found = self.waits(line, seed, tuple(asks.values()), None, go_on, question.now.timestamp())
        return Foretold(
            {name: likely for name, likely in found.tickets.items() if likely is not None},
            {offer: likely for offer, likely in zip(asks, found.asks, strict=True) if likely is not None},
            {pool: self._view(pool, question.snapshot, found.left) for pool in line.pools},
            dict(Capacity(question.snapshot).total),
        )

    def _view(self, pool: str, snapshot: QueueSnapshot, left: Mapping[str, float]) -> PoolView:
        held = [lease for lease in snapshot.leases if lease.pool == pool and lease.state is not LeaseState.ENDED]
        offers = {offer.id for offer in snapshot.offers if offer.pool == pool}
        sizes = {lease.share for lease in held} | {each.share for each in snapshot.offers if each.id in offers}
        people = len({lease.user for lease in held}) if len(sizes) < 2 else 0  # of mixed sizes no count has one name
        ending = sum(1 for lease in held if lease.id in left and left[lease.id] <= SOON_END)
        return PoolView(self.finished(pool), len(held), people, ending)


def alike(devices: int, share: int, limit: float | None = None) -> Hashable:
    """What uses have in common that are alike; `limit`: where users ask for one themselves."""
    return (devices, share) if limit is None else (devices, share, limit)


def simulation_of(question: Question, starting: float) -> tuple[SimulationState, dict[OfferId, Wish]]:
    """The line that is played, and for each offer what somebody would wish for who joined now.

    Args:
        starting: seconds that a start takes.
    """
    return _StateMaker(question).simulation(starting)


class _StateMaker:
    def __init__(self, question: Question) -> None:
        self._question = question
        self._snapshot = snapshot = question.snapshot
        self._capacity = Capacity(snapshot)
        self._queues = PoolQueues(snapshot, self._capacity)
        self._offers = {offer.id: offer for offer in snapshot.offers}
        self._counted = snapshot.pools is not None
        self._leases: dict[str, list[Lease]] = {}
        for lease in snapshot.leases:
            if lease.state is not LeaseState.ENDED:
                self._leases.setdefault(lease.pool, []).append(lease)
        self._pools = {
            pool: self._devices(pool)
            for pool in dict.fromkeys(offer.pool for offer in snapshot.offers if offer.pool)
            if self._is_played(pool)
        }

    def simulation(self, starting: float) -> tuple[SimulationState, dict[OfferId, Wish]]:
        tickets = self._in_order()[:MOST_PLAYED]
        brake = self._brake(starting, len(tickets))
        turns = (self._turn(ticket, braked=brake is not None) for ticket in tickets)
        held = [self._held(lease) for pool in self._pools for lease in self._leases.get(pool, ())]
        line = SimulationState(self._pools, tuple(held), tuple(turn for turn in turns if turn is not None), brake)
        at = self._question.now.timestamp()
        return line, {
            offer.id: Wish(offer.pool, self._share(offer.share), UseHolder("", alike(1, offer.share), at))
            for offer in self._snapshot.offers
            if offer.pool in self._pools
        }

    def _is_played(self, pool: str) -> bool:
        if pool in self._capacity.by_node or no_bound(self._snapshot, self._capacity, pool) is not None:
            return False
        return not self._counted or len(self._shares(pool)) <= 1

    def _shares(self, pool: str) -> set[int]:
        offered = {offer.share for offer in self._snapshot.offers if offer.pool == pool}
        return offered | {lease.share for lease in self._leases.get(pool, ())}

    def _devices(self, pool: str) -> tuple[str, ...]:
        """Counted devices have no names: each lease has one, and each that is free is one."""
        if not self._counted:
            return self._capacity.devices(pool)
        (share,) = self._shares(pool)
        free = sum(room // share * count for room, count in self._capacity.room(pool).items())
        most = min(free, self._queues.length(pool) + 1)
        return (*(lease.id for lease in self._leases.get(pool, ())), *(f"free {number}" for number in range(most)))

    def _share(self, share: int) -> int:
        return WHOLE if self._counted else share

    def _held(self, lease: Lease) -> HeldShares:
        now = self._question.now
        age = max(0.0, (now - lease.since).total_seconds())
        late = lease.ends_at is not None and end_of(self._snapshot, lease, now) is None
        known = self._question.ends.get(lease.id)
        left = None if known is None else Left(known.seconds, known.spread)
        holder = UseHolder(
            lease.user,
            alike(1, lease.share),
            self._question.asked.get(lease.id, lease.since.timestamp()),
            age,
            None if lease.ends_at is None else (lease.ends_at - lease.since).total_seconds(),
            ENDING if lease.state is LeaseState.ENDING else left,
        )
        share = (lease.id if self._counted else lease.device, self._share(lease.share))
        return HeldShares(lease.id, holder, (share,), frees=not late and self._capacity.comes_back(lease))

    def _turn(self, ticket: Ticket, *, braked: bool) -> Waiting | None:
        """None: nothing that is played depends on it."""
        if any(choice.offer == CPU for choice in ticket.wanted_offers):
            return Waiting(ticket.id, ()) if braked else None
        waited = max(0.0, (self._question.now - ticket.joined).total_seconds())
        lifetime = self._snapshot.lifetime
        asked = self._question.asked.get(ticket.id, ticket.joined.timestamp())
        wishes = []
        for choice in ticket.wanted_offers:
            offer = self._offers.get(choice.offer)
            if offer is None or offer.pool not in self._pools or not self._has_a_turn(offer, ticket):
                continue
            limit = None if lifetime is None else (self._snapshot.start_allowance + lifetime).total_seconds()
            holder = UseHolder(ticket.user, alike(1, offer.share), asked, None, limit)
            wishes.append(Wish(offer.pool, self._share(offer.share), holder))
        return Waiting(ticket.id, tuple(wishes), waited) if wishes else None

    def _has_a_turn(self, offer: GpuOffer, ticket: Ticket) -> bool:
        """Who holds as many as he may is passed until one of these ends, which is nobody's habit to guess."""
        return not self._queues.passes(offer.pool, ticket) and not self._queues.may_be_passed(offer.pool, ticket)

    def _brake(self, starting: float, waiting: int) -> Brake | None:
        most = self._snapshot.config.max_starting
        if self._snapshot.starting + waiting <= most:
            return None
        now = self._question.now
        under_way = (
            max(0.0, starting - (now - (ticket.admitted_at or now)).total_seconds())
            for ticket in self._snapshot.tickets
            if ticket.state is TicketState.ADMITTED and ticket.id not in self._snapshot.held_back
        )
        return Brake(most, starting, tuple(under_way))

    def _in_order(self) -> list[Ticket]:
        """Each behind all who are ahead of it in any line; where that goes round in a circle, by the first place."""
        queues = [line.tickets for line in self._queues.queues.values()]
        tickets = {ticket.id: ticket for line in queues for ticket in line}
        ahead = dict.fromkeys(tickets, 0)
        behind: dict[str, list[str]] = {}
        for line in queues:
            for one, other in pairwise(line):
                behind.setdefault(one.id, []).append(other.id)
                ahead[other.id] += 1
        by_place = sorted((each.first_place, each.id) for each in tickets.values())
        place = {name: at for at, name in by_place}
        ready = [(at, name) for at, name in by_place if not ahead[name]]
        waiting, found = deque(by_place), dict[str, Ticket]()
        while len(found) < len(tickets):
            while waiting and waiting[0][1] in found:
                waiting.popleft()
            at_name = heapq.heappop(ready) if ready else waiting[0]
            if at_name[1] in found:
                continue
            found[at_name[1]] = tickets[at_name[1]]
            for name in behind.get(at_name[1], ()):
                ahead[name] -= 1
                if not ahead[name]:
                    heapq.heappush(ready, (place[name], name))
        return list(found.values())
