"""Simulate the lines: when each ticket (a user's place in line) starts, given how long every server keeps its GPU.

That time, the life of a use, is not known. So it is drawn at random from past uses many times: each set of lives gives
one possible future, called a world. Many worlds are simulated at once, and an array has one row per world. Times are
seconds from now. The rules for the order of the line are those of ``core/queue/discipline.py``;
``benchmarks/discipline.py`` checks on random lines that both admit the same tickets.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
from numpy.typing import NDArray

from hub_extensions.core.forecast.curves import Flags, FloatArray, Places
from hub_extensions.core.forecast.durations import Draws, DurationHistory, UseHolder
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.offer_id import CPU

DRAWS = 200
"""Number of worlds for a short line (the reference algorithm)."""
FEWEST_DRAWS = 64
"""Minimum number of worlds, for a long line."""
LIVES = 30_000
"""Approximate maximum number of lives drawn for one pool. With more servers, fewer worlds are simulated."""
TOGETHER = 100
"""Number of lives drawn, or steps simulated, between two calls of `go_on`, which may stop the simulation."""
NEVER = np.inf
LAST, FULL = np.iinfo(np.int64).max, np.iinfo(np.int32).max

Life = Callable[["Wish"], FloatArray]
"""Function from a wish to the seconds, in each world, for which the server will hold its GPU if it gets this offer."""


class GivenUp(Exception):
    """The simulation was stopped, because its caller does not need the result any more."""


def always() -> bool:
    """Return True. This is the default of the parameter `go_on`; it lets the simulation run to its end."""
    return True


@dataclass(frozen=True, slots=True)
class HeldShares:
    """A server that holds shares of devices now.

    Attributes:
        id: id of its lease.
        holder: its user and offer, for which the remaining time is drawn.
        shares: (device, thousandths) of each device.
        frees: False if the server's end frees no device, because another program stays on the device, or the device is
            lost.
        pool: the pool from whose past uses the server's life (the length of its use) is drawn. "" if it is the pool of
            the devices.
        server: name of the server, if it counts towards the limit of GPUs per user. None if it does not count (any
            more).
    """

    id: str
    holder: UseHolder
    shares: tuple[tuple[str, int], ...]
    frees: bool = True
    pool: str = ""
    server: str | None = None


@dataclass(frozen=True, slots=True)
class Wish:
    """One offer that a simulated ticket accepts.

    Attributes:
        pool: the pool in whose line the ticket waits; `CPU` for a server that needs a start but no device.
        share: thousandths of each of `devices` devices.
        holder: the ticket's user and offer, for which it is drawn how long the server will hold its GPU.
        devices: number of devices.
        place: the ticket's place in this line (a serial number). Of several tickets with the same place, the one that
            comes first in `SimulationState.waiting` is served first.
        held_up: True if nobody can get this offer now. The ticket still keeps its place in line.
        shown: whether a likely wait may be shown for this offer.
    """

    pool: str
    share: int
    holder: UseHolder
    devices: int = 1
    place: int = 0
    held_up: bool = False
    shown: bool = True


@dataclass(frozen=True, slots=True)
class Waiting:
    """A ticket (a user's place in line) in the form of the simulation.

    Attributes:
        id: id of the ticket.
        wishes: the offers that it accepts, in the user's order of preference; empty for CPU only.
        waited: seconds that it has waited so far.
        server: name of the server that will start.
    """

    id: str
    wishes: tuple[Wish, ...]
    waited: float = 0.0
    server: str = ""


@dataclass(frozen=True, slots=True)
class Brake:
    """The limit of simultaneous starts.

    Attributes:
        most: how many servers may be starting at the same time.
        takes: seconds that each start takes, from admission to ready.
        starting: for each server that is starting now, seconds until it is ready.
    """

    most: int
    takes: float
    starting: tuple[float, ...] = ()


@dataclass(frozen=True, slots=True)
class SimulationState:
    """Everything on which the simulated waits depend, apart from the lives (for how long servers hold their GPUs).

    Attributes:
        pools: pool -> names of the devices that this hub may give to servers.
        held: the servers that hold devices now.
        waiting: the tickets in line, in the order of their first places.
        brake: the limit of simultaneous starts. None if it cannot delay anybody.
        held_up: pools of which nobody can get a device now.
        whole: the number that stands for a whole device in all shares, thousandths by default.
        limit: number of servers with a GPU that one user may have. None without a limit.
    """

    pools: Mapping[str, tuple[str, ...]]
    held: tuple[HeldShares, ...]
    waiting: tuple[Waiting, ...]
    brake: Brake | None = None
    held_up: frozenset[str] = frozenset()
    whole: int = WHOLE
    limit: int | None = None


def draws_for(servers: int) -> int:
    """Return how many worlds (possible futures) to simulate: the more servers hold a device or wait, the fewer.

    Each server needs a life (length of use) in each world.

    Args:
        servers: number of servers that hold a device or wait.
    """
    return max(FEWEST_DRAWS, min(DRAWS, LIVES // servers)) if servers else DRAWS


@dataclass(frozen=True, slots=True)
class Worlds:
    """The result of a simulation of many worlds (possible futures).

    All times are seconds from now, in each world; `NEVER` if the event does not happen.

    Attributes:
        starts: ticket -> when its server starts.
        asks: for each of the requested offers, when the server of a user who joins the line last would start.
        left: id of a server that holds devices now -> when it ends.
    """

    starts: dict[str, FloatArray]
    asks: list[FloatArray]
    left: dict[str, FloatArray]


def simulate(
    state: SimulationState,
    histories: Mapping[str, DurationHistory],
    seed: int,
    asks: Sequence[Wish] = (),
    go_on: Callable[[], bool] = always,
    by_curve: Collection[str] = (),
) -> Worlds:
    """Draw a life (length of a use) for each server, and simulate the lines with these lives, in many possible futures.

    Args:
        state: the lines.
        histories: pool -> durations of its finished uses.
        seed: seed of the random numbers.
        asks: offers for which the start of an additional user who joins the line last is simulated too.
        go_on: called now and then; if it returns False, the simulation stops.
        by_curve: pools for which lives are drawn from the survival curve, without regard to the user.

    Raises:
        GivenUp: `go_on` returned False.
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
        pool = next((pool_of[device] for device, _ in each.shares if device in pool_of), each.pool)
        if pool in draws and each.frees:
            in_pool.setdefault(pool, []).append(each)
    for pool, some in in_pool.items():
        for each, lives in zip(some, _lives(draws[pool], [each.holder for each in some], go_on), strict=True):
            left[each.id] = lives - (each.holder.age or 0.0)
    of_wish: dict[int, FloatArray] = {}
    for pool in draws:
        wishes = [
            wish for each in state.waiting for wish in each.wishes if wish.pool == pool and _can_be_given(state, wish)
        ]
        of_wish |= zip(map(id, wishes), _lives(draws[pool], [wish.holder for wish in wishes], go_on), strict=True)
    starts, asked = simulate_lives(
        replace(state, held=tuple(held)), left, lambda wish: of_wish[id(wish)], count, asks, go_on
    )
    return Worlds(starts, asked, left)


def _lives(draws: Draws, holders: Sequence[UseHolder], go_on: Callable[[], bool]) -> Iterator[FloatArray]:
    """Draw a life (length of a use) for each of these servers in each world (possible future), in the order given.

    Args:
        draws: draws the lives.
        holders: the servers.
        go_on: called now and then.

    Raises:
        GivenUp: `go_on` returned False.
    """
    for part in range(0, len(holders), TOGETHER):
        if not go_on():
            raise GivenUp
        yield from draws.lives(holders[part : part + TOGETHER])


def _held_in(state: SimulationState, pool: str) -> list[HeldShares]:
    ours = set(state.pools.get(pool, ()))
    return [each for each in state.held if any(device in ours for device, _ in each.shares)]


def simulate_lives(
    state: SimulationState,
    left: Mapping[str, FloatArray],
    life: Life,
    count: int,
    asks: Sequence[Wish] = (),
    go_on: Callable[[], bool] = always,
) -> tuple[dict[str, FloatArray], list[FloatArray]]:
    """Simulate the lines with lives (lengths of uses) that are given instead of drawn.

    Args:
        state: the lines.
        left: id of a server that holds devices now -> seconds until its end, in each world (possible future). A server
            that is missing never ends.
        life: returns how long a server will hold its GPU if it gets an offer.
        count: number of worlds.
        asks: offers for which the start of an additional user who joins the line last is simulated too.
        go_on: called now and then; if it returns False, the simulation stops.

    Returns:
        Ticket -> its start in each world; and for each of `asks` the start of a user who joins last. A start that never
        happens is `NEVER`.
    """
    lives: dict[int, FloatArray] = {}
    for ticket in state.waiting:
        if not go_on():
            raise GivenUp
        lives |= {id(wish): life(wish) for wish in ticket.wishes if _can_be_given(state, wish) and wish.pool != CPU}
    starts, found = _without_brake(state, left, lives, count, asks, go_on)
    if state.brake is not None and (state.waiting or asks):
        held_back = np.flatnonzero(_exceeds(state.brake, starts, found))
        if len(held_back):
            events = _Events(
                state,
                state.waiting,
                asks,
                {name: end[held_back] for name, end in left.items()},
                {wish: some[held_back] for wish, some in lives.items()},
                len(held_back),
            )
            events.run(go_on)
            starts[held_back], found[held_back] = events.starts[:, :-1], events.asked
    return {ticket.id: starts[:, number] for number, ticket in enumerate(state.waiting)}, list(found.T)


def _without_brake(
    state: SimulationState,
    left: Mapping[str, FloatArray],
    lives: Mapping[int, FloatArray],
    count: int,
    asks: Sequence[Wish],
    go_on: Callable[[], bool],
) -> tuple[FloatArray, FloatArray]:
    """Return the starts of the tickets and of `asks` as if any number of servers could start at once.

    Both arrays have one row per world (possible future).

    Args:
        state: the lines.
        left: id of a lease -> seconds until its server ends, in each world.
        lives: ``id`` of a wish -> how long the server would hold its GPU, in each world.
        count: number of worlds.
        asks: offers for which the start of an additional user is simulated.
        go_on: called now and then.
    """
    state = replace(state, brake=None)
    starts, found = np.zeros((count, len(state.waiting))), np.full((count, len(asks)), NEVER)
    slots = {pool: _Slots(size, _held_in(state, pool), left, count) for pool, size in _slot_pools(state, asks).items()}
    others: list[int] = []
    for number in _by_place(state.waiting):
        wishes = state.waiting[number].wishes
        if any(wish.pool in slots for wish in wishes):
            starts[:, number] = _start_in([slots[wish.pool] for wish in wishes], [lives[id(wish)] for wish in wishes])
        else:
            others.append(number)
    others.sort()
    pools = {wish.pool for number in others for wish in state.waiting[number].wishes}
    if not pools - {CPU}:
        others = []  # any number of servers without a GPU can start at once
    for number, wish in enumerate(asks):
        if wish.pool in slots:
            found[:, number] = slots[wish.pool].next_free()
    rest = [number for number, wish in enumerate(asks) if wish.pool not in slots]
    if others or rest:
        events = _Events(state, [state.waiting[at] for at in others], [asks[at] for at in rest], left, lives, count)
        events.run(go_on)
        starts[:, others], found[:, rest] = events.starts[:, :-1], events.asked
    return starts, found


def _exceeds(brake: Brake, starts: FloatArray, asked: FloatArray) -> Flags:
    """Return a mask of the worlds (possible futures) in which these starts exceed the limit of simultaneous starts.

    Args:
        brake: the limit.
        starts: the start of each ticket, one row per world.
        asked: the start for each requested offer, one row per world.
    """
    under_way = np.tile(np.array(brake.starting) - brake.takes, (len(starts), 1))
    every = np.sort(np.concatenate((under_way, starts), axis=1), axis=1)
    over: Flags = np.zeros(len(starts), dtype=bool)
    if every.shape[1] > brake.most:
        first, next_one = every[:, : -brake.most], every[:, brake.most :]
        over |= (np.isfinite(next_one) & (next_one < first + brake.takes)).any(axis=1)
    for at in asked.T:
        starting = (every <= at[:, None]) & (every + brake.takes > at[:, None])
        over |= np.isfinite(at) & (starting.sum(axis=1) >= brake.most)
    return over


def _can_be_given(state: SimulationState, wish: Wish) -> bool:
    if wish.pool in state.held_up or wish.held_up:
        return False
    return wish.pool == CPU or bool(state.pools.get(wish.pool))


def _by_place(waiting: Sequence[Waiting]) -> list[int]:
    """Return the indices of the tickets, sorted by the lowest place (a serial number) that each has in any line."""
    first = [min((wish.place for wish in ticket.wishes), default=0) for ticket in waiting]
    return sorted(range(len(waiting)), key=first.__getitem__)


def _slot_pools(state: SimulationState, asks: Sequence[Wish]) -> dict[str, int]:
    """Return the pools that can be simulated in a fast way, each with its number of slots.

    A slot is the room for one share on a device. In the fast way, one ticket after another takes the slot that is free
    next, in the order of their first places. A pool can be simulated in this way if its slots are equal, somebody can
    get its devices now, and all of the following is true for each ticket in its line. The limit per user cannot delay
    the ticket. The ticket waits for no offer that nobody can get now. Its place in this line follows the same order as
    the first places of the tickets. It accepts only one offer of this pool, and otherwise only offers of pools that can
    be simulated in this way.

    Args:
        state: the lines.
        asks: offers for which the start of an additional user who joins the line last is simulated too.
    """
    limited = set(_limited_users(state, state.waiting))
    wanted: dict[str, list[Wish]] = {pool: [] for pool in state.pools}
    last: dict[str, tuple[int, int]] = {}
    coupled = set(state.held_up)
    for number in _by_place(state.waiting):
        ticket = state.waiting[number]
        pools = [wish.pool for wish in ticket.wishes]
        for wish in ticket.wishes:
            wanted.setdefault(wish.pool, []).append(wish)
            place = wish.place, number
            out_of_order = place < last.get(wish.pool, place)
            last[wish.pool] = place
            if out_of_order or wish.held_up or wish.holder.user in limited or len(set(pools)) < len(pools):
                coupled.add(wish.pool)
    for wish in asks:
        wanted.setdefault(wish.pool, []).append(wish)
        if wish.held_up:
            coupled.add(wish.pool)
    found = {
        pool: size
        for pool, devices in state.pools.items()
        if pool not in coupled and (size := equal_slots(devices, _held_in(state, pool), wanted[pool], state.whole))
    }
    while True:
        others = {
            wish.pool
            for ticket in state.waiting
            if any(wish.pool not in found for wish in ticket.wishes)
            for wish in ticket.wishes
            if wish.pool in found
        }
        if not others:
            return found
        found = {pool: size for pool, size in found.items() if pool not in others}


def _start_in(pools: Sequence[_Slots], lives: Sequence[FloatArray]) -> FloatArray:
    """Start a ticket in the first of its pools that has a free slot, and return when it starts in each possible future.

    If several pools have a free slot at the same time, it starts in the one that the user prefers.

    Args:
        pools: the pools in whose lines the ticket waits, in the user's order of preference. Each is divided into slots;
            a slot is the room for one share on a device.
        lives: for each pool, how long the server would hold its GPU, in seconds, in each possible future.

    Returns:
        The start in each possible future, in seconds from now.
    """
    free = np.array([pool.next_free() for pool in pools])
    chosen = free.argmin(axis=0)
    for number, (pool, life) in enumerate(zip(pools, lives, strict=True)):
        pool.take(free.min(axis=0), life, chosen == number)
    found: FloatArray = free.min(axis=0)
    return found


def _limited_users(state: SimulationState, waiting: Sequence[Waiting]) -> dict[str, set[str]]:
    """Return user -> servers, for the users with so many servers and tickets that the limit per user may delay one.

    Args:
        state: the lines.
        waiting: the tickets to consider.
    """
    if state.limit is None:
        return {}
    servers: dict[str, set[str]] = {}
    for ticket in waiting:
        if any(wish.pool != CPU for wish in ticket.wishes):
            servers.setdefault(ticket.wishes[0].holder.user, set()).add(ticket.server)
    for each in state.held:
        if each.server is not None and each.holder.user in servers:
            servers[each.holder.user].add(each.server)
    return {user: some for user, some in servers.items() if len(some) > state.limit}


def equal_slots(devices: Sequence[str], held: Sequence[HeldShares], wishes: Sequence[Wish], whole: int = WHOLE) -> int:
    """Return how many servers fit on the devices if all have the same share of one device; 0 if their shares differ.

    Args:
        devices: the devices of a pool.
        held: the servers that hold shares of them now.
        wishes: what the tickets in line ask for.
        whole: the number that stands for a whole device in all shares.
    """
    shares = {wish.share for wish in wishes} | {share for each in held for _, share in each.shares}
    if any(wish.devices != 1 for wish in wishes) or any(len(each.shares) != 1 for each in held) or len(shares) != 1:
        return 0
    on_one = whole // shares.pop()
    users = Counter(device for each in held for device, _ in each.shares)
    return 0 if any(count > on_one for count in users.values()) else len(devices) * on_one


@dataclass(frozen=True, slots=True)
class SimulatedAdmission:
    """One admission in one world (possible future): which ticket starts when, with which offer and device.

    Attributes:
        ticket: id of the ticket.
        at: seconds from now.
        wish: index of the offer it gets in the user's order of preference, from 0.
        device: the device it gets, the first if there are several. None for CPU only.
    """

    ticket: str
    at: float
    wish: int
    device: str | None


def simulate_admissions(
    state: SimulationState, left: Mapping[str, float], life: Callable[[Wish], float]
) -> list[SimulatedAdmission]:
    """Simulate one possible future with given lives (lengths of uses), and return its admissions in their order.

    Tests and ``benchmarks/discipline.py`` compare these admissions with those of the real queue.

    Args:
        state: the lines.
        left: id of a server that holds devices now -> seconds until its end.
        life: returns how long a server will hold its GPU if it gets an offer.
    """
    if not state.waiting:
        return []
    lives = {id(wish): np.array([life(wish)]) for ticket in state.waiting for wish in ticket.wishes if wish.pool != CPU}
    ends = {name: np.array([end]) for name, end in left.items()}
    events = _Events(state, state.waiting, (), ends, lives, 1)
    events.run(always)
    return events.admissions(0)


class _Slots:
    """A pool of equal slots, each the room for one share on a device.

    The next ticket in line takes the slot that is free first.
    """

    def __init__(self, slots: int, held: Sequence[HeldShares], left: Mapping[str, FloatArray], count: int) -> None:
        self._now: FloatArray = np.zeros(count)
        self._free = np.zeros((count, slots))
        self._rows, self._next = np.arange(count), np.zeros(count, dtype=np.int64)
        for at, each in enumerate(held):
            self._free[:, at] = left.get(each.id, NEVER)

    def next_free(self) -> FloatArray:
        """Return when the next ticket in line could start, in each world (possible future), in seconds from now."""
        self._next = self._free.argmin(axis=1)
        found: FloatArray = np.maximum(self._free[self._rows, self._next], self._now)
        return found

    def take(self, at: FloatArray, life: FloatArray, worlds: Flags) -> None:
        """Let the next ticket in line start. No later ticket in this line starts sooner.

        A world is one possible future.

        Args:
            at: when the ticket starts in each world, in seconds. 0 is the present moment, when the simulation begins.
            life: how long its server holds the slot in each world, in seconds.
            worlds: mask of the worlds in which it takes a slot of this pool, and not one of another pool.
        """
        self._now = at
        until = np.where(worlds, at + life, self._free[self._rows, self._next])
        self._free[self._rows, self._next] = until


class _Events:
    """Lines that depend on each other, simulated event by event.

    Lines depend on each other if tickets accept several offers, by the limit of simultaneous starts, and by the limit
    per user. At each moment, tickets at the head of a line are admitted one after another, as long as a device is free
    for one of them. Then the time of the world (possible future) moves on to the next end of a use. If too many servers
    are starting, it moves on to the next end of a start. The worlds are simulated side by side, but each has its own
    present time.
    """

    def __init__(
        self,
        state: SimulationState,
        waiting: Sequence[Waiting],
        asks: Sequence[Wish],
        left: Mapping[str, FloatArray],
        lives: Mapping[int, FloatArray],
        count: int,
    ) -> None:
        self._state, self._count, self._brake, self._tickets = state, count, state.brake, waiting
        self._now: FloatArray = np.zeros(count)
        self.starts: FloatArray = np.full((count, len(waiting) + 1), NEVER)
        self.asked: FloatArray = np.full((count, len(asks)), NEVER)
        self._step = 0
        self._left = np.full(count, len(waiting))
        self._granted = np.full((count, len(waiting) + 1, 3), -1)
        """For each world and ticket: step of its admission, number of its wish, number of its device; -1 if none."""
        cpu = (Wish(CPU, 0, UseHolder("", "", 0.0)),)
        wishes = [ticket.wishes or cpu for ticket in waiting]
        self._queues = list(dict.fromkeys([wish.pool for some in [*wishes, asks] for wish in some]))
        self._name_tickets(waiting, wishes, lives)
        self._asks = [(self._queues.index(wish.pool), wish, _can_be_given(state, wish)) for wish in asks]
        self._limit_users(waiting)
        self._name_devices([wish for some in [*wishes, asks] for wish in some], left)
        if self._brake is not None:
            starting = self._brake.starting
            self._ready = np.full((count, max(self._brake.most, len(starting))), -NEVER)
            self._ready[:, : len(starting)] = starting

    # ------------------------------------------------------------------ tables

    def _name_tickets(
        self, waiting: Sequence[Waiting], wishes: Sequence[Sequence[Wish]], lives: Mapping[int, FloatArray]
    ) -> None:
        """Fill the arrays about the tickets: each line with its tickets in order, and what each ticket asks for there.

        Args:
            waiting: the tickets.
            wishes: for each ticket, the offers that it accepts (`Wish`).
            lives: ``id`` of a wish (an offer that a ticket accepts) -> how long the server would hold its GPU, in each
                world (possible future).
        """
        lines, tickets = len(self._queues), len(waiting)
        number = {pool: at for at, pool in enumerate(self._queues)}
        in_line: list[dict[int, list[int]]] = [{} for _ in self._queues]  # ticket -> its wishes in that line
        for ticket, some in enumerate(wishes):
            for at, wish in enumerate(some):
                in_line[number[wish.pool]].setdefault(ticket, []).append(at)
        places = sorted({(wish.place, ticket) for ticket, some in enumerate(wishes) for wish in some})
        rank = {place: at for at, place in enumerate(places)}
        longest = max(map(len, in_line), default=0)
        per_line = max((len(at) for line in in_line for at in line.values()), default=1)
        self._ticket = np.full((lines, longest + 1), tickets)
        self._place = np.full((lines, longest + 1), LAST)
        self._waiting: Flags = np.zeros((self._count, lines, longest + 1), dtype=bool)
        shape = (tickets + 1, lines, per_line)
        self._share, self._devices = np.zeros(shape, dtype=np.int32), np.ones(shape, dtype=np.int64)
        self._wish_place, self._preference = np.full(shape, LAST), np.zeros(shape, dtype=np.int64)
        self._can, self._life_of = np.zeros(shape, dtype=bool), np.zeros(shape, dtype=np.int64)
        self._lives = [np.zeros(self._count)]
        self._where: list[list[tuple[int, int]]] = [[] for _ in range(tickets + 1)]
        self._splits = False
        for line, entries in enumerate(in_line):
            first = {
                ticket: min(rank[wishes[ticket][at].place, ticket] for at in some) for ticket, some in entries.items()
            }
            for position, ticket in enumerate(sorted(entries, key=first.__getitem__)):
                self._ticket[line, position], self._place[line, position] = ticket, first[ticket]
                self._waiting[:, line, position] = True
                self._where[ticket].append((line, position))
                for column, at in enumerate(entries[ticket]):
                    wish = wishes[ticket][at]
                    key = ticket, line, column
                    self._share[key], self._devices[key] = wish.share, wish.devices
                    self._wish_place[key], self._preference[key] = rank[wish.place, ticket], at
                    self._splits |= rank[wish.place, ticket] != first[ticket]
                    self._can[key] = _can_be_given(self._state, wish)
                    if id(wish) in lives:
                        self._life_of[key] = len(self._lives)
                        self._lives.append(lives[id(wish)])
        self._life: FloatArray = np.array(self._lives)
        self._several = any(len({wish.pool for wish in some}) > 1 for some in wishes)
        self._max_wishes = max(map(len, wishes), default=1)
        most = max(map(len, self._where), default=0) or 1
        self._queues_of = np.full((tickets + 1, most), 0)
        self._positions_of = np.full((tickets + 1, most), longest)  # the last position of each line is nobody's
        for ticket, where in enumerate(self._where):
            for at, (line, position) in enumerate(where):
                self._queues_of[ticket, at], self._positions_of[ticket, at] = line, position

    def _limit_users(self, waiting: Sequence[Waiting]) -> None:
        """Fill the arrays about the limit of GPUs per user.

        They contain the servers that count towards the limit, and the tickets that the limit may delay.

        Args:
            waiting: the tickets.
        """
        limited = _limited_users(self._state, waiting)
        self._server: dict[tuple[str, str], int] = {}
        for user, servers in limited.items():
            for server in sorted(servers):
                self._server[user, server] = len(self._server)
        tickets = len(waiting)
        self._server_of = np.full(tickets + 1, len(self._server))
        own: dict[str, list[tuple[int, str]]] = {}
        for number, ticket in enumerate(waiting):
            user = ticket.wishes[0].holder.user if ticket.wishes else ""
            if (user, ticket.server) in self._server and any(wish.pool != CPU for wish in ticket.wishes):
                self._server_of[number] = self._server[user, ticket.server]
                own.setdefault(user, []).append((number, ticket.server))
        self._others_of = [
            [number for number, name in own.get(user, ()) if name != server] for user, server in self._server
        ]
        self._holds = np.zeros((self._count, len(self._server) + 1), dtype=np.int64)
        self._others = np.zeros((self._count, tickets + 1), dtype=np.int64)
        self._started: Flags = np.zeros((self._count, tickets + 1), dtype=bool)

    def _name_devices(self, wishes: Sequence[Wish], left: Mapping[str, FloatArray]) -> None:
        """Fill the arrays about the devices, ordered by line: the held shares of each device, with their holders and
        ends.

        Args:
            wishes: every wish of a ticket and of `asks`; the smallest share determines the size of the arrays.
            left: id of a lease -> seconds until its server ends, in each world (possible future).
        """
        state, number = self._state, dict[str, int]()
        lines: list[int] = []
        for line, pool in enumerate(self._queues):
            for device in state.pools.get(pool, ()):
                number[device] = len(lines)
                lines.append(line)
            if not state.pools.get(pool):
                lines.append(line)  # a line needs a device for `reduceat`: CPU only asks for nothing of it
        self._names = {at: device for device, at in number.items()}
        self._begins = np.array([lines.index(line) for line in range(len(self._queues))])
        held: list[tuple[int, int, str, int]] = []
        for each in state.held:
            server = self._server.get((each.holder.user, each.server or ""), len(self._server))
            server = len(self._server) if each.server is None else server
            here = [(number[name], share) for name, share in each.shares if name in number]
            if not here and server < len(self._server):
                here = [(len(lines), state.whole)]  # on a device that is given to nobody: it ends all the same
                lines.append(len(self._queues))
            for at, share in here:
                held.append((at, share, each.id, server))
                server = len(self._server)
        self._queue_of, self._ours = np.array(lines), sum(1 for line in lines if line < len(self._queues))
        self._one_device = all(wish.devices == 1 for wish in wishes)
        shares = [wish.share for wish in wishes if wish.share] + [share for _, share, _, _ in held if share]
        on_device = Counter(device for device, _, _, _ in held)
        columns = max(state.whole // min(shares, default=state.whole), 1, *on_device.values())
        shape = (self._count, len(lines), columns)
        self._free = np.full(shape[:2], state.whole, dtype=np.int32)
        for line, pool in enumerate(self._queues):
            if pool != CPU and not state.pools.get(pool):
                self._free[:, self._begins[line]] = -1
        self._ends: FloatArray = np.full(shape, NEVER)
        self._held, self._holder = np.zeros(shape, dtype=np.int32), np.full(shape, len(self._server))
        rows = np.arange(self._count)
        for at, share, name, server in held:
            until = left.get(name, np.full(self._count, NEVER))
            self._take(rows, np.full(self._count, at), np.full(self._count, share), until, server)
            if server < len(self._server):
                self._hold(rows, np.full(self._count, server), 1)

    # ------------------------------------------------------------------ time

    def run(self, go_on: Callable[[], bool]) -> None:
        """Simulate each world (possible future) until nobody waits any more, or until nothing more can happen.

        Args:
            go_on: called now and then.

        Raises:
            GivenUp: `go_on` returned False.
        """
        rows = np.arange(self._count)
        self._release(rows)
        while len(rows):
            self._step += 1
            if self._step % TOGETHER == 0 and not go_on():
                raise GivenUp
            room = self._room(rows)
            admitted = self._admit(rows, room)
            idle = rows[~admitted]
            if len(idle):
                self._answer(idle, room[~admitted])
                until = self._next_event(idle, room[~admitted])
                going = np.isfinite(until) & self._is_wanted(idle)
                self._now[idle] = np.where(going, until, self._now[idle])
                self._release(idle[going])
                rows = np.concatenate((rows[admitted], idle[going])) if not going.all() else rows

    def admissions(self, row: int) -> list[SimulatedAdmission]:
        """Return the admissions of one world (possible future) in their order.

        Args:
            row: index of the world.
        """
        found = []
        for number in np.argsort(self._granted[row, :-1, 0], kind="stable"):
            step, wish, device = self._granted[row, number]
            if step >= 0:
                ticket, name = self._tickets[number], None if device < 0 else self._names[device]
                found.append(SimulatedAdmission(ticket.id, float(self.starts[row, number]), int(wish), name))
        return found

    def _is_wanted(self, rows: Places) -> Flags:
        """Return a mask of those worlds (possible futures) in which a start still has to be found.

        A start has to be found as long as a ticket waits, or the start of one of the additional users (`asks`) is not
        known.

        Args:
            rows: indices of the worlds to examine.
        """
        asked = np.array([number for number, (_, _, can) in enumerate(self._asks) if can], dtype=np.int64)
        answered = np.asarray(np.isfinite(self.asked[rows][:, asked]).all(axis=1))
        found: Flags = (self._left[rows] > 0) | ~answered
        return found

    def _room(self, rows: Places) -> Flags:
        if self._brake is None:
            return np.ones(len(rows), dtype=bool)
        found: Flags = (self._ready[rows] > self._now[rows, None]).sum(axis=1) < self._brake.most
        return found

    def _next_event(self, rows: Places, room: Flags) -> FloatArray:
        ends: FloatArray = self._ends[rows].min(axis=(1, 2))
        if self._brake is None or room.all():
            return ends
        ready = self._ready[rows]
        found: FloatArray = np.where(room, ends, np.where(ready > self._now[rows, None], ready, NEVER).min(axis=1))
        return found

    # ------------------------------------------------------------------ who is next

    def _admit(self, rows: Places, room: Flags) -> Flags:
        """Admit one ticket in each world (possible future) where one can start, and return a mask of these worlds.

        Args:
            rows: indices of the worlds.
            room: mask of the worlds in which the limit of simultaneous starts allows one more start.
        """
        waiting = self._waiting if len(rows) == self._count and not self._splits else self._waiting[rows]
        lines = np.arange(len(self._queues))
        head = waiting.argmax(axis=2)
        head = np.where(np.take_along_axis(waiting, head[:, :, None], 2)[:, :, 0], head, waiting.shape[2] - 1)
        ticket, first = self._ticket[lines, head], self._place[lines, head]
        if self._splits:
            np.put_along_axis(waiting, head[:, :, None], False, 2)
            behind = waiting.argmax(axis=2)
            there = np.take_along_axis(waiting, behind[:, :, None], 2)[:, :, 0]
            next_place = np.where(there, self._place[lines, behind], LAST)
        if self._several:
            same = ticket[:, :, None] == ticket[:, None, :]
            first = np.where(same, first[:, None, :], LAST).min(axis=2)
        keys = []
        for column in range(self._can.shape[2]):
            can = self._can[ticket, lines, column] & room[:, None]
            if self._splits:
                can &= self._wish_place[ticket, lines, column] < next_place
            can &= self._fits(rows, self._share[ticket, lines, column], self._devices[ticket, lines, column])
            order = np.where(can, first, 0) * self._max_wishes + self._preference[ticket, lines, column]
            keys.append(np.where(can, order, LAST))
        key = keys[0] if len(keys) == 1 else np.stack(keys, axis=2).reshape(len(rows), -1)
        best = key.argmin(axis=1)
        found: Flags = key[np.arange(len(rows)), best] < LAST
        chosen, best = np.flatnonzero(found), best[found]
        if len(chosen):
            line, column = np.divmod(best, len(keys))
            self._start(rows[chosen], ticket[chosen, line], line, column)
        return found

    def _fits(self, rows: Places, share: NDArray[np.int32], devices: Places) -> Flags:
        free = (self._free if len(rows) == self._count else self._free[rows])[:, : self._ours]
        found: Flags
        if self._one_device:
            found = np.maximum.reduceat(free, self._begins, axis=1) >= share
        else:
            enough = free >= share[:, self._queue_of[: self._ours]]
            found = np.add.reduceat(enough, self._begins, axis=1, dtype=np.int64) >= devices
        return found

    def _start(self, rows: Places, ticket: Places, queue: Places, column: Places) -> None:
        self.starts[rows, ticket] = now = self._now[rows]
        self._started[rows, ticket] = True
        self._left[rows] -= 1
        self._granted[rows, ticket, 0] = self._step
        self._granted[rows, ticket, 1] = self._preference[ticket, queue, column]
        self._waiting[rows[:, None], self._queues_of[ticket], self._positions_of[ticket]] = False
        if self._brake is not None:
            self._ready[rows, self._ready[rows].argmin(axis=1)] = now + self._brake.takes
        share, devices = self._share[ticket, queue, column], self._devices[ticket, queue, column]
        until = now + self._life[self._life_of[ticket, queue, column], rows]
        some = share > 0
        server = np.where(some, self._server_of[ticket], len(self._server))
        free = self._free[rows]
        fitting = np.where((self._queue_of == queue[:, None]) & (free >= share[:, None]), free, FULL)
        for number in range(devices.max()):
            again = np.flatnonzero(some & (devices > number))
            place = fitting[again].argmin(axis=1)
            fitting[again, place] = FULL
            self._take(rows[again], place, share[again], until[again], server[again] if not number else None)
            if not number:
                self._granted[rows[again], ticket[again], 2] = place
        if self._server:
            self._hold(rows, server, 1)

    def _answer(self, rows: Places, room: Flags) -> None:
        """Record the start of users who would join last (`asks`), where such a user could start now.

        This is called when no ticket in line can start now. A world is one possible future.

        Args:
            rows: indices of the worlds to examine.
            room: mask of the worlds in which the limit of simultaneous starts allows one more start.
        """
        for number, (line, wish, can) in enumerate(self._asks):
            if can:
                still = room & ~np.isfinite(self.asked[rows, number]) & ~self._waiting[rows, line].any(axis=1)
                here = rows[still]
                free = (self._free[here][:, self._queue_of == line] >= wish.share).sum(axis=1) >= wish.devices
                self.asked[here[free], number] = self._now[here[free]]

    # ------------------------------------------------------------------ what it takes

    def _take(
        self, rows: Places, device: Places, share: NDArray[np.int32], until: FloatArray, server: Places | int | None
    ) -> None:
        column = (self._held[rows, device] == 0).argmax(axis=1)
        self._free[rows, device] -= share
        self._held[rows, device, column] = share
        self._ends[rows, device, column] = until
        self._holder[rows, device, column] = len(self._server) if server is None else server

    def _release(self, rows: Places) -> None:
        """Free the devices of servers that have ended by the present time of their world (possible future).

        Args:
            rows: indices of the worlds.
        """
        at, device, column = np.nonzero(self._ends[rows] <= self._now[rows, None, None])
        if not len(at):
            return
        row = rows[at]
        np.add.at(self._free, (row, device), self._held[row, device, column])
        self._held[row, device, column], self._ends[row, device, column] = 0, NEVER
        if self._server:
            self._hold(row, self._holder[row, device, column], -1)

    def _hold(self, rows: Places, server: Places, change: int) -> None:
        """Change the number of servers that count towards the limit per user, and update which tickets it delays.

        Args:
            rows: indices of the worlds (possible futures).
            server: number of the server in each world.
            change: 1 if the server begins to count, -1 if it counts no more.
        """
        limit = self._state.limit or 0
        for row, name in zip(rows.tolist(), server.tolist(), strict=True):
            if name == len(self._server):
                continue
            self._holds[row, name] += change
            if self._holds[row, name] != max(0, change):
                continue  # the server holds another device besides
            for ticket in self._others_of[name]:
                self._others[row, ticket] += change
                can = bool(self._others[row, ticket] < limit and not self._started[row, ticket])
                for line, position in self._where[ticket]:
                    if self._queues[line] != CPU:
                        self._waiting[row, line, position] = can
