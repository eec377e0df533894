"""The likely wait: the line is played forward, the worlds are read, and the interval learns from what came true.

Values in, values out; times are seconds. Not here: the upper limit (``forecast.py``), what is told (``outlook.py``).
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace

from hub_extensions.core.queue.durations import History
from hub_extensions.core.queue.interval import Correction, Interval, read
from hub_extensions.core.queue.outlook import FEW, Likely
from hub_extensions.core.queue.play import Line, Wish, play


def likely_waits(
    line: Line,
    histories: Mapping[str, History],
    corrections: Mapping[str, Correction],
    *,
    seed: int,
    asks: Sequence[Wish] = (),
    so_far: Mapping[str, tuple[Interval, float]] | None = None,
    at_most: Mapping[str, float] | None = None,
) -> tuple[dict[str, Likely | None], list[Likely | None]]:
    """The likely wait of each ticket, and of each of `asks` if it came last. None: few data yet, or it never starts.

    Args:
        histories: pool -> what its uses taught. corrections: pool -> what came true of its forecasts.
        so_far: ticket -> what was played for it when it joined, and how long it has waited since.
        at_most: ticket -> seconds that are enforced.
    """
    known = {pool: history for pool, history in histories.items() if history.finished >= FEW}
    silent = {wish.pool for ticket in line.waiting for wish in ticket.wishes} | {wish.pool for wish in asks}
    if not known:
        return {ticket.id: None for ticket in line.waiting}, [None] * len(asks)
    whole = replace(line, held_up=line.held_up | frozenset(silent - known.keys()))
    starts, asked = play(whole, known, seed, asks)
    late: dict[str, list[tuple[Interval, float]]] = {}
    pool_of = {ticket.id: ticket.wishes[0].pool for ticket in line.waiting if ticket.wishes}
    for name, joined in (so_far or {}).items():
        if name in pool_of:
            late.setdefault(pool_of[name], []).append(joined)

    def told(pool: str, played: Interval | None, most: float | None) -> Likely | None:
        if played is None:
            return None
        correction = corrections.get(pool, NOTHING_MATURED)
        return Likely(played, correction.correct(played, late.get(pool, ()), most))

    tickets = {
        name: told(pool_of[name], read(found.tolist()), (at_most or {}).get(name)) if name in pool_of else None
        for name, found in starts.items()
    }
    return tickets, [told(wish.pool, read(found.tolist()), None) for wish, found in zip(asks, asked, strict=True)]


NOTHING_MATURED = Correction()
