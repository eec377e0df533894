"""A simulated pool of equal GPUs and its line, for replaying a log.

It also computes what would happen if sessions lasted as long as a simple method guesses. It does not use any code of
the forecast that it tests.
"""

from __future__ import annotations

import heapq
from collections.abc import Callable, Sequence
from dataclasses import dataclass

NEVER = float("inf")


@dataclass(frozen=True, slots=True)
class LogSession:
    """A session (one job or server that used GPUs), read from one row of a log. Times are seconds.

    Attributes:
        number: position in the log.
        submit: when it joins the line.
        duration: how long it ran.
        devices: number of GPUs that it takes a part of.
        slices: number of slices that it takes of each of them.
        limit: its longest possible duration; None without a limit.
    """

    number: int
    submit: float
    duration: float
    devices: int
    slices: int
    user: str
    limit: float | None


@dataclass(slots=True)
class Running:
    """A running session.

    Attributes:
        since: when it started.
        places: numbers of the GPUs that it uses.
    """

    session: LogSession
    since: float
    places: tuple[int, ...]


class World:
    """A simulated pool: free slices of each GPU, running sessions, and waiting sessions in the order of the line.

    Args:
        gpus: number of GPUs.
        slices: number of slices of each GPU.
        policy: ``strict`` if no session may start before one that is ahead in line; otherwise smaller ones may.
    """

    def __init__(self, gpus: int, slices: int, policy: str = "strict") -> None:
        self.slices, self.policy = slices, policy
        self.free = [slices] * gpus
        self.running: dict[int, Running] = {}
        self.waiting: list[LogSession] = []
        self._ends: list[tuple[float, int]] = []

    def next_end(self) -> float:
        return self._ends[0][0] if self._ends else NEVER

    def end(self) -> Running:
        """End the running session that ends next, release its slices, and return it."""
        _, number = heapq.heappop(self._ends)
        over = self.running.pop(number)
        for place in over.places:
            self.free[place] += over.session.slices
        return over

    def start(self, now: float, life: Callable[[LogSession], float]) -> list[LogSession]:
        """Start all waiting sessions that may start now, and return them.

        Args:
            life: returns how long a session will last, in seconds.
        """
        started: list[LogSession] = []
        at = 0
        while at < len(self.waiting):
            session = self.waiting[at]
            places = fitting(self.free, session.devices, session.slices)
            if places is not None:
                del self.waiting[at]
                for place in places:
                    self.free[place] -= session.slices
                self.running[session.number] = Running(session, now, places)
                heapq.heappush(self._ends, (now + life(session), session.number))
                started.append(session)
            elif self.policy == "strict":
                break
            else:
                at += 1
        return started

    def fits_ever(self, session: LogSession) -> bool:
        return session.slices <= self.slices and session.devices <= len(self.free)

    def planned(
        self, now: float, left: Callable[[Running], float], life: Callable[[LogSession], float], who: int
    ) -> float:
        """Return how long a waiting session still waits under assumed durations, in seconds.

        The result is infinite if the session never fits.

        Args:
            now: the current time of the replay.
            left: returns the assumed remaining time of a running session, in seconds.
            life: returns the assumed duration of a waiting session, in seconds.
            who: the waiting session, as its `LogSession.number`.
        """
        other = World(0, self.slices, self.policy)
        other.free = list(self.free)
        other.running = {number: Running(r.session, r.since, r.places) for number, r in self.running.items()}
        other.waiting = list(self.waiting)
        other._ends = [(now + max(0.0, left(r)), number) for number, r in self.running.items()]
        heapq.heapify(other._ends)
        moment = now
        while True:
            if any(session.number == who for session in other.start(moment, life)):
                return moment - now
            if not other._ends:
                return NEVER
            moment = other.next_end()
            while other.next_end() <= moment:
                other.end()


def fitting(free: Sequence[int], devices: int, slices: int) -> tuple[int, ...] | None:
    """Return the numbers of the GPUs on which a session should start, the fullest that have enough free slices.

    None if there are not enough such GPUs.

    Args:
        free: number of free slices of each GPU.
        devices: number of GPUs that the session needs.
        slices: number of slices that it needs of each.
    """
    if devices == 1:
        best, at = NEVER, -1
        for place, room in enumerate(free):
            if slices <= room < best:
                best, at = room, place
        return (at,) if at >= 0 else None
    found = sorted((room, place) for place, room in enumerate(free) if room >= slices)
    return tuple(place for _, place in found[:devices]) if len(found) >= devices else None
