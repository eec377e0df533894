"""The last ten minutes of each device, in memory: what a panel draws from its first second.

Points are kept by the running clock, so a jump of the wall clock moves none of them. Each has the device's memory and
this server's own, and one of the two is told for the whole line: whose it is may come to be known later than the first
reading. Written by the sampler's thread, read by the server's loop. Not here: what is read, and when (``sampler.py``).
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from hub_extensions.core.messages import Series

SPAN_SECONDS = 600.0
MOST_POINTS = 900
"""A bound on the memory, whatever the pace: ten minutes at one second are 600."""


@dataclass(frozen=True, slots=True)
class Point:
    """One reading: `at` on the running clock, percent and bytes; None: it was not known, the line has a gap there.

    `handed`: its use is what the service handed out, and not what was measured here.
    """

    at: float
    used_percent: float | None
    memory_bytes: int | None
    own_memory_bytes: int | None = None
    handed: bool = False


class Ring:
    """The points of this server's devices: those that are known at the start, and what is added later."""

    def __init__(self, uuids: tuple[str, ...], span_seconds: float = SPAN_SECONDS) -> None:
        self._span_seconds = span_seconds
        self._lock = threading.Lock()
        self._points: dict[str, deque[Point]] = {uuid: deque(maxlen=MOST_POINTS) for uuid in uuids}
        self._shared = set(uuids)

    def add(self, uuid: str, point: Point, shared: bool | None = None) -> None:
        """One more point of one of the devices. `shared`: from now on its line is this server's own memory (True, and
        until something is said), or the device's (False); None: as before."""
        with self._lock:
            if uuid not in self._points:  # it was found only now
                self._points[uuid] = deque(maxlen=MOST_POINTS)
                self._shared.add(uuid)
            if shared is not None:
                (self._shared.add if shared else self._shared.discard)(uuid)
            points = self._points[uuid]
            points.append(point)
            while points[0].at < point.at - self._span_seconds:
                points.popleft()

    def gap(self, at: float) -> None:
        """Nothing was known at this time. One point a gap is enough at each of its ends."""
        with self._lock:
            for points in self._points.values():
                if len(points) > 1 and _is_gap(points[-1]) and _is_gap(points[-2]):
                    points.pop()
                if points:
                    points.append(Point(at, None, None))

    def series(self, now: float, *, silent: bool = False) -> tuple[Series, ...]:
        """Everything, oldest first, as ages before `now`; `silent`: at `now` it is not known."""
        with self._lock:
            kept = {uuid: tuple(points) for uuid, points in self._points.items()}
            shared = frozenset(self._shared)
        found = []
        for uuid, points in kept.items():
            if silent and points:
                points = (*points, Point(now, None, None))
            young = [point for point in points if now - point.at <= self._span_seconds]
            found.append(
                Series(
                    uuid,
                    tuple(round(max(0.0, now - point.at), 1) for point in young),
                    tuple(None if point.used_percent is None else round(point.used_percent, 1) for point in young),
                    tuple(point.own_memory_bytes if uuid in shared else point.memory_bytes for point in young),
                )
            )
        return tuple(found)

    def highest(self, since: float) -> float | None:
        """The highest use of any device that was measured here after `since`; None: none was."""
        with self._lock:
            known = [
                point.used_percent
                for points in self._points.values()
                for point in points
                if point.at > since and point.used_percent is not None and not point.handed
            ]
        return max(known, default=None)


def _is_gap(point: Point) -> bool:
    return point.used_percent is None and point.memory_bytes is None and point.own_memory_bytes is None
