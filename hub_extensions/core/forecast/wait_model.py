"""Forecast the likely waits of all tickets (users' places in line).

The lines are simulated in many worlds (possible futures), in which servers hold their GPUs as long as in past uses.
Then the intervals are corrected by the errors of earlier forecasts. Times are seconds.
"""

from __future__ import annotations

import math
import sys
from collections import deque
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hub_extensions.core.forecast.curves import FloatArray, PastUse
from hub_extensions.core.forecast.durations import DurationHistory
from hub_extensions.core.forecast.episodes import BusyEpisodes, Lessons
from hub_extensions.core.forecast.inputs import kind_of_use, simulation_state
from hub_extensions.core.forecast.interval import Interval, quantiles
from hub_extensions.core.forecast.results import FEW, SOON_END, ForecastInputs, Likely, PoolView, Stay, WaitForecasts
from hub_extensions.core.forecast.simulate import SimulationState, Waiting, Wish, always, simulate
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.queue.capacity import Capacity
from hub_extensions.core.queue.model import LeaseState, QueueSnapshot

STARTS = 50
"""Number of last starts whose median is the assumed duration of a start."""
FIRST_START = 60.0
"""Seconds that a start is assumed to take before any start is known."""
MAX_KEYS = 1000
"""Number of usage records whose keys are remembered, so that no record is learned twice: one is written again if the
hub reports its end late."""


class WaitModel:
    """The model of the waits: it learns from finished uses and from earlier forecasts, and makes new forecasts.

    Args:
        histories: pool -> durations of its finished uses, to share them between models. None gives the model its own.
    """

    def __init__(self, histories: dict[str, DurationHistory] | None = None) -> None:
        self.histories = {} if histories is None else histories
        self._episodes: dict[str, BusyEpisodes] = {}
        self._starts: deque[float] = deque(maxlen=STARTS)
        self._keys: dict[str, None] = {}

    def learn(self, stays: Iterable[Stay]) -> None:
        """Learn from finished uses how long users hold their GPUs and how long starts take.

        A use is one server's time with a GPU. It is finished when no process or pod of the server is left.

        Args:
            stays: the finished uses, in the order in which they ended. A use that was learned already is ignored.
        """
        for stay in stays:
            if stay.key in self._keys:
                continue
            self._keys[stay.key] = None
            if len(self._keys) > MAX_KEYS:
                del self._keys[next(iter(self._keys))]
            kind = kind_of_use(stay.devices, stay.share, stay.limit)
            # interned, because 20,000 uses are of few people
            use = PastUse(sys.intern(stay.user), kind, stay.asked, stay.lasted, stay.at_limit)
            self.histories.setdefault(stay.pool, DurationHistory()).add(use)
            if stay.starting is not None:
                self._starts.append(stay.starting)

    def matured(
        self, pool: str, played: Interval, waited: float, at_most: float | None = None, joined: float = math.inf
    ) -> None:
        """Learn from the forecast that a user got when joining a pool's line, now that the wait is over.

        Args:
            pool: the devices of one kind for which the user waited.
            played: the interval that was simulated when the user joined.
            waited: seconds that the user waited.
            at_most: the longest wait, in seconds, that enforced limits allowed when the user joined. None without a
                limit.
            joined: when the user joined, by any clock. Infinite if not known.
        """
        self._episodes.setdefault(pool, BusyEpisodes()).matured(played, waited, at_most, joined)

    def finished(self, pool: str) -> int:
        """Return the number of this pool's finished uses from which the model has learned."""
        history = self.histories.get(pool)
        return 0 if history is None else history.finished

    @property
    def starting(self) -> float:
        """The median duration of the latest starts of servers, in seconds from admission to ready."""
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
        """Return the likely wait of each ticket, and for each of `asks` the wait of a user who joins its line last.

        Args:
            queue: the lines, devices and leases, as the simulation takes them.
            seed: seed of the random numbers.
            asks: offers for which the wait of an additional user who joins last is simulated too.
            at_most: ticket -> longest wait that enforced limits allow, in seconds. None, or a missing ticket: no limit.
            go_on: called now and then; if it returns False, the computation stops and raises `GivenUp`.
            now: the present time in seconds, by the clock of `joined` in `matured`. Infinite if not known; forecasts
                are then not corrected by the wait of the first ticket in line.
        """
        return likely_waits(
            queue, self.histories, self._episodes, seed=seed, asks=asks, at_most=at_most, go_on=go_on, now=now
        )

    def answer(self, inputs: ForecastInputs, seed: int, go_on: Callable[[], bool] = always) -> WaitForecasts:
        """Return the likely wait of each ticket in line, and for each offer the wait of a user who joins its line now.

        Args:
            inputs: a snapshot of the queue, and what is known about when servers were asked for and will end.
            seed: seed of the random numbers.
            go_on: called now and then; if it returns False, the computation stops.

        Raises:
            GivenUp: `go_on` returned False.
        """
        line, asks = simulation_state(inputs, self.starting)
        found = self.waits(line, seed, tuple(asks.values()), None, go_on, inputs.now.timestamp())
        pools = dict.fromkeys(wish.pool for wish in asks.values())
        return WaitForecasts(
            {name: likely for name, likely in found.tickets.items() if likely is not None},
            {offer: likely for offer, likely in zip(asks, found.asks, strict=True) if likely is not None},
            {pool: self._view(pool, inputs.snapshot, found.left) for pool in pools},
            dict(Capacity(inputs.snapshot).total),
        )

    def _view(self, pool: str, snapshot: QueueSnapshot, left: Mapping[str, float]) -> PoolView:
        held = [lease for lease in snapshot.leases if lease.pool == pool and lease.state is not LeaseState.ENDED]
        offers = {offer.id for offer in snapshot.offers if offer.pool == pool}
        sizes = {lease.share for lease in held} | {each.share for each in snapshot.offers if each.id in offers}
        people = len({lease.user for lease in held}) if len(sizes) < 2 else 0  # mixed sizes have no common name
        ending = sum(1 for lease in held if lease.id in left and left[lease.id] <= SOON_END)
        return PoolView(self.finished(pool), len(held), people, ending)


@dataclass(frozen=True, slots=True)
class Waits:
    """Likely waits. A wait is None if there are too few data, or if the simulated server starts too seldom.

    Attributes:
        tickets: ticket -> its likely wait.
        asks: for each of the requested offers, the likely wait of a user who joins its line last.
        left: lease -> median of the simulated seconds until its end.
    """

    tickets: dict[str, Likely | None]
    asks: list[Likely | None]
    left: dict[str, float]


def likely_waits(
    state: SimulationState,
    histories: Mapping[str, DurationHistory],
    episodes: Mapping[str, BusyEpisodes],
    *,
    seed: int,
    asks: Sequence[Wish] = (),
    at_most: Mapping[str, float] | None = None,
    go_on: Callable[[], bool] = always,
    now: float = math.inf,
) -> Waits:
    """Return the likely wait of each ticket, and for each of `asks` the wait of a user who joins its line last.

    Args:
        state: the lines to simulate.
        histories: pool -> durations of its finished uses.
        episodes: pool -> the errors of its earlier forecasts. A pool without any is missing.
        seed: seed of the random numbers.
        asks: offers for which the wait of an additional user who joins last is simulated too.
        at_most: ticket -> longest wait that enforced limits allow, in seconds. None, or a missing ticket: no limit.
        go_on: called now and then; if it returns False, the computation stops.
        now: the present time in seconds, by the clock of `joined` in `BusyEpisodes.matured`. Infinite if not known;
            forecasts are then not corrected by the wait of the first ticket in line.

    Raises:
        GivenUp: `go_on` returned False.
    """
    known = {pool: history for pool, history in histories.items() if history.finished >= FEW}
    wanted = {wish.pool for ticket in state.waiting for wish in ticket.wishes} | {wish.pool for wish in asks}
    if not known:
        return Waits({ticket.id: None for ticket in state.waiting}, [None] * len(asks), {})
    whole = replace(state, held_up=state.held_up | frozenset(wanted - known.keys() - {CPU}))
    worlds = simulate(whole, known, seed, asks, go_on)
    nameless = {pool for pool, history in known.items() if not history.distinguishes_people}
    others = simulate(whole, known, seed, asks, go_on, nameless) if nameless else None
    shown = {ticket.id: [wish.pool for wish in ticket.wishes if wish.shown] for ticket in state.waiting}
    pool_of = {
        ticket: next((pool for pool in some if pool in known), some[0]) for ticket, some in shown.items() if some
    }
    pools = {*pool_of.values(), *(wish.pool for wish in asks)}
    firsts: dict[str, Waiting] = {}
    for ticket in state.waiting:
        if ticket.id in pool_of:
            firsts.setdefault(pool_of[ticket.id], ticket)
    views = {pool: _PoolView.of(episodes.get(pool), firsts.get(pool), now, pool in nameless) for pool in pools}
    most = at_most or {}
    waits: dict[str, Likely | None] = {ticket.id: None for ticket in state.waiting}
    for ticket in state.waiting:
        if ticket.id in pool_of:
            by_curve = None if others is None else others.starts[ticket.id]
            view = views[pool_of[ticket.id]]
            waits[ticket.id] = view.likely(worlds.starts[ticket.id], by_curve, most.get(ticket.id), ticket)
    last = [
        views[wish.pool].likely(found, None if others is None else others.asks[at])
        for at, (wish, found) in enumerate(zip(asks, worlds.asks, strict=True))
    ]
    return Waits(waits, last, {name: _middle(found) for name, found in worlds.left.items()})


@dataclass(frozen=True)
class _PoolView:
    """The corrections with which the simulated waits of one pool become the waits that users see.

    Attributes:
        lessons: corrections of P10, P50 and P90, learned from the errors of earlier forecasts of this pool.
        first: the first ticket in line; the time that it has waited so far shows how long waits are now. None if nobody
            waits.
        now: the present time, by the clock of the earlier forecasts.
        nameless: whether the pool has too few users to distinguish them. Its waits then come from two simulations: one
            by each user's past uses, and one by the past uses of everybody (the survival curve).
    """

    lessons: Lessons
    first: Waiting | None
    now: float
    nameless: bool

    @staticmethod
    def of(episodes: BusyEpisodes | None, first: Waiting | None, now: float, nameless: bool) -> _PoolView:
        """Return the corrections of a pool.

        Args:
            episodes: the errors of earlier forecasts; None if no wait with a forecast is over yet.
            first: the first ticket in line; None if nobody waits.
            now: the present time, by the clock of the earlier forecasts.
            nameless: whether the pool has too few users to distinguish them.
        """
        return _PoolView(Lessons() if episodes is None else episodes.lessons, first, now, nameless)

    def likely(
        self, starts: FloatArray, by_curve: FloatArray | None, most: float | None = None, ticket: Waiting | None = None
    ) -> Likely | None:
        """Return the likely wait, or None if the server never starts in too many of the simulated futures.

        Args:
            starts: seconds until the start, in each possible future.
            by_curve: the same from a second simulation, in which lengths of uses are drawn from the survival curve.
                None without a second simulation.
            most: longest wait, in seconds, that enforced limits allow. None without a limit.
            ticket: the ticket. None for a user who would join last.
        """
        others = by_curve if self.nameless and by_curve is not None else ()
        found = quantiles(np.sort(starts).tolist(), np.sort(others).tolist() if len(others) else ())
        if found is None:
            return None
        ahead = None if self.first is None or ticket is self.first else self.now - self.first.waited
        waited = 0.0 if ticket is None else ticket.waited
        shown = self.lessons.shown(found, most, ahead, self.now, waited)
        return Likely(found, shown, self.lessons.limit_is_p90)


def _middle(worlds: FloatArray) -> float:
    middle = len(worlds) // 2
    return float(np.partition(worlds, middle)[middle])
