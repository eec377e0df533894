"""The line played forward: lives are drawn for everybody ahead, and each place takes its turn by admission's rules.

One line a pool, strict order, of the devices that fit the fullest; a ticket with several offers takes the first that it
can have, and from that moment those behind it may start. Many worlds are played at once: an array has one row for each.
Times are seconds from now. Not here: how lives are drawn (``durations.py``), what people are told (``interval.py``).
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Mapping, Sequence
from copy import copy
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hub_extensions.core.forecast.durations import Draws, DurationHistory, UseHolder
from hub_extensions.core.gpu.devices import WHOLE

FloatArray = NDArray[np.float64]
Places = NDArray[np.int64]

DRAWS = 200
"""Worlds of a short line (the reference algorithm)."""
FEWEST_DRAWS = 64
LIVES = 30_000
"""Lives drawn for one pool at most, about: with more servers and tickets fewer worlds are played."""
TOGETHER = 50
"""Lives drawn between two looks whether anybody still wants the answer."""
NEVER = np.inf

Life = Callable[["Wish"], FloatArray]
"""How long a wish is held once it is given, in each world: seconds."""
_Pools = Mapping[str, "_Pool | _Slots"]


class GivenUp(Exception):
    """Whoever asked does not want the answer any more."""


def always() -> bool:
    """It goes on."""
    return True


@dataclass(frozen=True, slots=True)
class HeldShares:
    """Somebody who holds shares of devices: (device, thousandths) each."""

    id: str
    holder: UseHolder
    shares: tuple[tuple[str, int], ...]
    frees: bool = True
    """False: its end frees nothing (a foreign process stays, a device is lost)."""


@dataclass(frozen=True, slots=True)
class Wish:
    """One offer of a ticket: a share (thousandths) of so many devices of a pool."""

    pool: str
    share: int
    holder: UseHolder
    devices: int = 1


@dataclass(frozen=True, slots=True)
class Waiting:
    """A ticket; its wishes in the order of what its user prefers. CPU only has none: it takes a start alone.

    `waited`: seconds up to now.
    """

    id: str
    wishes: tuple[Wish, ...]
    waited: float = 0.0


@dataclass(frozen=True, slots=True)
class Brake:
    """At most so many servers start at once.

    Attributes:
        most: that many. takes: seconds that a start lasts. starting: seconds until each that starts now is ready.
    """

    most: int
    takes: float
    starting: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class SimulationState:
    """Everything that a wait follows from.

    Attributes:
        pools: pool -> its devices that are ours to give. held_up: pools in which nobody can be given anything.
        waiting: in the order of their places.
    """

    pools: Mapping[str, tuple[str, ...]]
    held: tuple[HeldShares, ...]
    waiting: tuple[Waiting, ...]
    brake: Brake | None = None
    held_up: frozenset[str] = frozenset()
    whole: int = WHOLE


def draws_for(servers: int) -> int:
    """How many worlds: fewer where many lives have to be drawn."""
    return max(FEWEST_DRAWS, min(DRAWS, LIVES // servers)) if servers else DRAWS


@dataclass(frozen=True, slots=True)
class Worlds:
    """What was played: seconds from now, in each world.

    Attributes:
        starts: of each ticket. asks: of each that was only asked for. left: of those who hold something, until it ends.
    """

    starts: dict[str, FloatArray]
    asks: list[FloatArray]
    left: dict[str, FloatArray]


def play(
    state: SimulationState,
    histories: Mapping[str, DurationHistory],
    seed: int,
    asks: Sequence[Wish] = (),
    go_on: Callable[[], bool] = always,
    by_curve: Collection[str] = (),
) -> Worlds:
    """When each ticket starts, in each world; and each of `asks`, if it came last (what else somebody could take).

    Args:
        histories: pool -> what its finished uses taught. go_on: asked now and then.
        by_curve: pools whose lives are drawn without regard to who it is.

    Raises:
        GivenUp: `go_on` says no.
    """
    count = draws_for(len(state.held) + len(state.waiting))
    draws = {
        pool: Draws(history, [each.holder for each in _held_in(state, pool)], count, (seed, number), pool in by_curve)
        for number, (pool, history) in enumerate(sorted(histories.items()))
    }
    held = sorted(state.held, key=lambda each: (each.holder.asked, each.id))
    left = {}
    pool_of = {device: pool for pool, devices in state.pools.items() for device in devices}
    in_pool: dict[str, list[HeldShares]] = {}
    for each in held:
        pool = next((pool_of[device] for device, _ in each.shares if device in pool_of), "")
        if pool in draws and each.frees:
            in_pool.setdefault(pool, []).append(each)
    for pool, some in in_pool.items():
        for part in range(0, len(some), TOGETHER):
            if not go_on():
                raise GivenUp
            holders = [each.holder for each in some[part : part + TOGETHER]]
            for each, lives in zip(some[part : part + TOGETHER], draws[pool].lives(holders), strict=True):
                left[each.id] = lives - (each.holder.age or 0.0)
    known: dict[int, FloatArray] = {}
    for pool in set(by_curve) & draws.keys():
        wishes = [wish for ticket in state.waiting for wish in ticket.wishes if wish.pool == pool]
        known |= zip(map(id, wishes), draws[pool].lives([wish.holder for wish in wishes]), strict=True)

    def life(wish: Wish) -> FloatArray:
        return known[id(wish)] if id(wish) in known else draws[wish.pool].life(wish.holder)

    starts, asked = play_lives(replace(state, held=tuple(held)), left, life, count, asks, go_on)
    return Worlds(starts, asked, left)


def _held_in(state: SimulationState, pool: str) -> list[HeldShares]:
    ours = set(state.pools.get(pool, ()))
    return [each for each in state.held if any(device in ours for device, _ in each.shares)]


def play_lives(
    state: SimulationState,
    left: Mapping[str, FloatArray],
    life: Life,
    count: int,
    asks: Sequence[Wish] = (),
    go_on: Callable[[], bool] = always,
) -> tuple[dict[str, FloatArray], list[FloatArray]]:
    """The same with given lives: `left` of those who hold something (who is missing never ends), `life` of a wish."""
    pools = {pool: _pool_of(pool, state, left, count, asks) for pool, devices in state.pools.items() if devices}
    brake = None if state.brake is None else _Brake(state.brake, count, len(state.waiting))
    starts: dict[str, FloatArray] = {}
    for ticket in state.waiting:
        if not go_on():
            raise GivenUp
        starts[ticket.id] = _turn(state, pools, brake, ticket, life, count)
    answers = [_only_asked(state, pools, brake, wish, count) for wish in asks]
    return starts, answers


def _turn(
    state: SimulationState, pools: _Pools, brake: _Brake | None, ticket: Waiting, life: Life, count: int
) -> FloatArray:
    """It starts at the first moment at which one of its wishes can be given; of equal moments the one it prefers."""
    if not ticket.wishes:
        now = np.zeros(count)
        return now if brake is None else brake.after(now)
    can = [wish for wish in ticket.wishes if wish.pool in pools and wish.pool not in state.held_up]
    if not can:
        return np.full(count, NEVER)
    first, *others = can
    if not others:
        pool = pools[first.pool]
        at = pool.earliest(first.share, first.devices)
        if brake is not None:
            at = brake.after(at)
            pool.wait_until(at)
        pool.give(first.share, first.devices, at, life(first), np.arange(count))
        return at
    best: FloatArray = np.full(count, NEVER)
    chosen = np.full(count, -1)
    for number, wish in enumerate(can):
        at = pools[wish.pool].peek(wish.share, wish.devices)
        sooner = at < best
        best = np.where(sooner, at, best)
        chosen = np.where(sooner, number, chosen)
    if brake is not None:
        best = brake.after(best)
    for name in {wish.pool for wish in can}:
        pools[name].wait_until(best)
    for number, wish in enumerate(can):
        pools[wish.pool].give(wish.share, wish.devices, best, life(wish), np.flatnonzero(chosen == number))
    return best


def _only_asked(state: SimulationState, pools: _Pools, brake: _Brake | None, wish: Wish, count: int) -> FloatArray:
    if wish.pool not in pools or wish.pool in state.held_up:
        return np.full(count, NEVER)
    at = pools[wish.pool].peek(wish.share, wish.devices)
    return at if brake is None else brake.peek(at)


class _Brake:
    """When servers start, in each world: no more at once than may.

    Turns are played by place, not by time: who starts sooner in another line takes nothing from those played before.
    """

    def __init__(self, brake: Brake, count: int, waiting: int) -> None:
        self._most, self._takes, self._used = brake.most, brake.takes, len(brake.starting)
        self._over = np.full((count, self._used + waiting), -NEVER)
        self._over[:, : self._used] = sorted(brake.starting)

    def after(self, moment: FloatArray) -> FloatArray:
        """The first time from this moment on at which one more may start; it does."""
        at = self.peek(moment)
        self._over[:, self._used] = at + self._takes
        self._used += 1
        return at

    def peek(self, moment: FloatArray) -> FloatArray:
        """The same, and nobody does."""
        at: FloatArray = moment.copy()
        if self._used < self._most:
            return at
        over = self._over[:, : self._used]
        held_back = np.flatnonzero(np.isfinite(at))
        while len(held_back):
            now, ends = at[held_back, None], over[held_back]
            starting = (ends > now) & (ends - self._takes <= now)
            full = starting.sum(axis=1) >= self._most
            held_back = held_back[full]
            at[held_back] = np.where(starting[full], ends[full], NEVER).min(axis=1, initial=NEVER)
        return at


def _pool_of(
    pool: str, state: SimulationState, left: Mapping[str, FloatArray], count: int, asks: Sequence[Wish]
) -> _Pool | _Slots:
    devices, held = state.pools[pool], _held_in(state, pool)
    waiting = [wish for ticket in state.waiting for wish in ticket.wishes if wish.pool == pool]
    slots = equal_slots(devices, held, [*waiting, *(wish for wish in asks if wish.pool == pool)], state.whole)
    if slots:
        return _Slots(slots, held, left, count)
    return _Pool(devices, held, left, count, sum(wish.devices for wish in waiting), state.whole)


def equal_slots(devices: Sequence[str], held: Sequence[HeldShares], wishes: Sequence[Wish], whole: int = WHOLE) -> int:
    """How many can have one share each, where all have an equal one of one device; 0: they do not."""
    shares = {wish.share for wish in wishes} | {share for each in held for _, share in each.shares}
    if any(wish.devices != 1 for wish in wishes) or any(len(each.shares) != 1 for each in held) or len(shares) != 1:
        return 0
    on_one = whole // shares.pop()
    users = Counter(device for each in held for device, _ in each.shares)
    return 0 if any(count > on_one for count in users.values()) else len(devices) * on_one


class _Slots:
    """A pool of which everybody has one equal share: whoever is first in line takes the slot that is free next."""

    def __init__(self, slots: int, held: Sequence[HeldShares], left: Mapping[str, FloatArray], count: int) -> None:
        self._now: FloatArray = np.zeros(count)
        self._free = np.zeros((count, slots))
        self._rows, self._next = np.arange(count), np.zeros(count, dtype=np.int64)
        for at, each in enumerate(held):
            self._free[:, at] = left.get(each.id, NEVER)

    def peek(self, share: int, devices: int) -> FloatArray:
        """When one is free."""
        self._next = self._free.argmin(axis=1)
        at: FloatArray = np.maximum(self._free[self._rows, self._next], self._now)
        return at

    def earliest(self, share: int, devices: int) -> FloatArray:
        """The same, and the line is played on to then."""
        self._now = self.peek(share, devices)
        at: FloatArray = self._now.copy()
        return at

    def wait_until(self, moment: FloatArray) -> None:
        """Nobody is given anything before this."""
        self._now = np.maximum(self._now, moment)

    def give(self, share: int, devices: int, at: FloatArray, life: FloatArray, worlds: Places) -> None:
        """The one of the last look, at this moment, for as long, in these worlds."""
        self._free[worlds, self._next[worlds]] = at[worlds] + life[worlds]


class _Pool:
    """The devices of one pool in every world, at the moment up to which each world was played.

    Args:
        wanted: so many shares will be given at most.
    """

    def __init__(
        self,
        devices: Sequence[str],
        held: Sequence[HeldShares],
        left: Mapping[str, FloatArray],
        count: int,
        wanted: int,
        whole: int,
    ) -> None:
        number = {device: at for at, device in enumerate(devices)}
        room = sum(len(each.shares) for each in held) + wanted
        self._free = np.full((count, len(devices)), whole, dtype=np.int32)
        self._now: FloatArray = np.zeros(count)
        self._ends: FloatArray = np.full((count, room), NEVER)
        self._places: Places = np.zeros((count, room), dtype=np.int64)
        self._shares = np.zeros(room, dtype=np.int32)
        self._used = 0
        worlds = np.arange(count)
        for each in held:
            for device, share in each.shares:
                if device in number:
                    place = np.full(count, number[device])
                    self._take(worlds, place, share, left.get(each.id, np.full(count, NEVER)))

    def _take(self, worlds: Places, place: Places, share: int, until: FloatArray) -> None:
        """A share of a device, in these worlds."""
        self._free[worlds, place] -= share
        self._ends[worlds, self._used] = until
        self._places[worlds, self._used] = place
        self._shares[self._used] = share
        self._used += 1

    def peek(self, share: int, devices: int) -> FloatArray:
        """When so many devices have this share free."""
        other = copy(self)
        other._free, other._now, other._ends = self._free.copy(), self._now.copy(), self._ends.copy()
        return other.earliest(share, devices)

    def earliest(self, share: int, devices: int) -> FloatArray:
        """Play on until so many devices have this share free; when that is."""
        rows = np.flatnonzero(self._fitting(self._free, share) < devices)
        while len(rows):
            ends = self._ends[rows, : self._used]
            self._now[rows] = np.maximum(self._now[rows], ends.min(axis=1, initial=NEVER))
            self._release(rows)
            ended = np.isfinite(self._now[rows])
            rows = rows[ended & (self._fitting(self._free[rows], share) < devices)]
        at: FloatArray = self._now.copy()
        return at

    @staticmethod
    def _fitting(free: NDArray[np.int32], share: int) -> Places:
        found: Places = (free >= share).sum(axis=1)
        return found

    def _release(self, rows: Places) -> None:
        """Give back what has ended by now in these worlds."""
        ends = self._ends[rows, : self._used]
        over, columns = np.nonzero((ends <= self._now[rows, None]) & np.isfinite(ends))
        at = rows[over]
        np.add.at(self._free, (at, self._places[at, columns]), self._shares[columns])
        self._ends[at, columns] = NEVER

    def wait_until(self, moment: FloatArray) -> None:
        """Nobody is given anything before this."""
        self._now = np.maximum(self._now, moment)
        self._release(np.arange(len(moment)))

    def give(self, share: int, devices: int, at: FloatArray, life: FloatArray, worlds: Places) -> None:
        """So many devices, the fullest that fit, at this moment, for as long, in these worlds."""
        rows = worlds[np.isfinite(at[worlds])]
        fitting = np.where(self._free[rows] >= share, self._free[rows], NEVER)
        for _ in range(devices):
            place = fitting.argmin(axis=1)
            fitting[np.arange(len(rows)), place] = NEVER
            self._take(rows, place, share, at[rows] + life[rows])
