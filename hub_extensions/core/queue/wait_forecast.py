"""The likely wait: the line is played forward, the worlds are read, and the interval learns from what came true.

Values in, values out; times are seconds. Not here: the upper limit (``forecast.py``), what is told (``outlook.py``).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from hub_extensions.core.queue.durations import DurationHistory, FloatArray
from hub_extensions.core.queue.interval import PLAY_ALONE, Correction, corrected, limited, read
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
    moves = {
        pool: corrections[pool].moves() if pool in corrections else None
        for pool in {*pool_of.values(), *(wish.pool for wish in asks)}
    }
    trust = {pool: corrections[pool].trust if pool in corrections else PLAY_ALONE for pool in moves}

    firsts: dict[str, Waiting] = {}
    for ticket in state.waiting:
        if ticket.id in pool_of:
            firsts.setdefault(pool_of[ticket.id], ticket)
    behind = {pool: corrections[pool].p90_behind(first.waited) for pool, first in firsts.items() if pool in corrections}

    def shown(
        pool: str, found: FloatArray, other: FloatArray | None, most: float | None = None, ticket: Waiting | None = None
    ) -> Likely | None:
        played = read(found.tolist(), () if other is None or pool not in nameless else other.tolist())
        if played is None:
            return None
        told, whole = corrected(played, moves[pool], most, trust[pool]), behind.get(pool)
        if whole is None or ticket is firsts[pool]:
            return Likely(played, told, trust[pool])
        left = whole - (0.0 if ticket is None else ticket.waited)
        by_first = replace(trust[pool], limit=0.0, first=True)  # the limit has had its share of the median
        return Likely(played, limited(replace(told, p90=left), most, by_first), replace(trust[pool], first=True))

    most = at_most or {}
    tickets = {ticket.id: ticket for ticket in state.waiting}
    return Waits(
        {
            name: shown(
                pool_of[name], found, None if others is None else others.starts[name], most.get(name), tickets[name]
            )
            if name in pool_of
            else None
            for name, found in worlds.starts.items()
        },
        [
            shown(wish.pool, found, None if others is None else others.asks[at])
            for at, (wish, found) in enumerate(zip(asks, worlds.asks, strict=True))
        ],
        {name: _middle(found) for name, found in worlds.left.items()},
    )


def _middle(worlds: FloatArray) -> float:
    ordered = sorted(worlds.tolist())
    return float(ordered[len(ordered) // 2])
