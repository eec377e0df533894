"""The likely wait: the line is simulated, and what earlier forecasts taught changes the interval.

Values in, values out; times are seconds. Not here: the upper limit (``forecast.py``), what is told (``outlook.py``).
"""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hub_extensions.core.forecast.curves import FloatArray
from hub_extensions.core.forecast.durations import DurationHistory
from hub_extensions.core.forecast.episodes import BusyEpisodes, Lessons
from hub_extensions.core.forecast.interval import quantiles
from hub_extensions.core.forecast.outlook import FEW, Likely
from hub_extensions.core.forecast.play import SimulationState, Waiting, Wish, always, play


@dataclass(frozen=True, slots=True)
class Waits:
    """The likely waits of one line; None: few data yet, or it never starts.

    Attributes:
        tickets: of each ticket. asks: of what was only asked for. left: ticket or lease -> the median of what it still
            has, of those who hold something.
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
    """The likely wait of each ticket, and of each of `asks` if it came last.

    Args:
        histories: pool -> what its uses taught. episodes: pool -> what came true of its forecasts.
        at_most: ticket -> seconds that are enforced. go_on: asked now and then.
        now: by the clock of the joins in `episodes`; infinite: not known, so the first in line does not count.

    Raises:
        GivenUp: `go_on` says no.
    """
    known = {pool: history for pool, history in histories.items() if history.finished >= FEW}
    silent = {wish.pool for ticket in state.waiting for wish in ticket.wishes} | {wish.pool for wish in asks}
    if not known:
        return Waits({ticket.id: None for ticket in state.waiting}, [None] * len(asks), {})
    whole = replace(state, held_up=state.held_up | frozenset(silent - known.keys()))
    worlds = play(whole, known, seed, asks, go_on)
    nameless = {pool for pool, history in known.items() if not history.distinguishes_people}
    others = play(whole, known, seed, asks, go_on, nameless) if nameless else None
    pool_of = {
        ticket.id: next((wish.pool for wish in ticket.wishes if wish.pool in known), ticket.wishes[0].pool)
        for ticket in state.waiting
        if ticket.wishes
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
    """What changes the forecasts of a pool now.

    Attributes:
        first: the first in line, if anybody waits.
        nameless: people are not told apart, so the quantiles are also of what is simulated by the pool's curve.
    """

    lessons: Lessons
    first: Waiting | None
    now: float
    nameless: bool

    @staticmethod
    def of(episodes: BusyEpisodes | None, first: Waiting | None, now: float, nameless: bool) -> _PoolView:
        """Return the view of a pool; `episodes` is None if none of its forecasts came true yet."""
        return _PoolView(Lessons() if episodes is None else episodes.lessons, first, now, nameless)

    def likely(
        self, starts: FloatArray, by_curve: FloatArray | None, most: float | None = None, ticket: Waiting | None = None
    ) -> Likely | None:
        """Return the forecast, or None if too many simulated lines never reach the start.

        Args:
            most: the limit that is enforced, if any. ticket: None for somebody who would come last.
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
