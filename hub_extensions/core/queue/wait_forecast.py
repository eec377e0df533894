"""The likely wait: the line is played forward, the worlds are read, and the interval learns from what came true.

Values in, values out; times are seconds. Not here: the upper limit (``forecast.py``), what is told (``outlook.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np

from hub_extensions.core.queue.curves import FloatArray
from hub_extensions.core.queue.durations import DurationHistory
from hub_extensions.core.queue.interval import (
    PLAY_ALONE,
    Correction,
    Moves,
    Trust,
    corrected,
    limited,
    read,
    with_first,
)
from hub_extensions.core.queue.outlook import FEW, Likely
from hub_extensions.core.queue.play import SimulationState, Waiting, Wish, always, play


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
    corrections: Mapping[str, Correction],
    *,
    seed: int,
    asks: Sequence[Wish] = (),
    at_most: Mapping[str, float] | None = None,
    go_on: Callable[[], bool] = always,
) -> Waits:
    """The likely wait of each ticket, and of each of `asks` if it came last.

    Args:
        histories: pool -> what its uses taught. corrections: pool -> what came true of its forecasts.
        at_most: ticket -> seconds that are enforced. go_on: asked now and then.

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
    views = {pool: _PoolView.of(corrections.get(pool), firsts.get(pool), pool in nameless) for pool in pools}
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
    """What came true in a pool, as it changes what is played there now.

    Attributes:
        first: the first in line. behind: P90 of the whole wait of whoever is behind him, where his is surely better.
        nameless: people are not told apart, so the median is also of what the pool's curve plays.
        with_first: they are, and the mean with what the first in line has waited is surely the better median.
    """

    moves: Moves | None
    trust: Trust
    first: Waiting | None
    behind: float | None
    nameless: bool
    with_first: bool = False

    @staticmethod
    def of(correction: Correction | None, first: Waiting | None, nameless: bool) -> _PoolView:
        """Of a pool; without a correction the play stands alone."""
        if correction is None:
            return _PoolView(None, PLAY_ALONE, first, None, nameless)
        behind = None if first is None else correction.p90_behind(first.waited)
        helps = first is not None and not nameless and correction.first_helps
        return _PoolView(correction.moves(), correction.trust, first, behind, nameless, helps)

    def likely(
        self, played: FloatArray, by_curve: FloatArray | None, most: float | None = None, ticket: Waiting | None = None
    ) -> Likely | None:
        """What is told of these worlds; None: too many of them never start. `ticket`: None for who would come last."""
        others = by_curve if self.nameless else None
        found = read(np.sort(played).tolist(), () if others is None else np.sort(others).tolist())
        if found is None:
            return None
        shown = corrected(found, self.moves, None, self.trust)
        if self.first is None or ticket is self.first:
            return Likely(found, limited(shown, most, self.trust), self.trust)
        waited = 0.0 if ticket is None else ticket.waited
        if self.with_first:
            shown = with_first(shown, self.first.waited, waited)
        shown = limited(shown, most, self.trust)
        if self.behind is None:
            return Likely(found, shown, self.trust)
        by_first = replace(self.trust, limit=0.0, first=True)  # the limit has had its share of the median
        shown = limited(replace(shown, p90=self.behind - waited), most, by_first)
        return Likely(found, shown, replace(self.trust, first=True))


def _middle(worlds: FloatArray) -> float:
    middle = len(worlds) // 2
    return float(np.partition(worlds, middle)[middle])
