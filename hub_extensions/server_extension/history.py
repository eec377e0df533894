"""The use of each device in the last ten minutes, kept in memory, so that a panel can draw its curves at once.

A point (one measurement) has its time on the monotonic clock, so a jump of the wall clock does not move it. It has the
memory in use on the whole device and by this server alone, because it may only become known later whether other servers
share the device; a curve shows one of the two. The sampler's thread writes, and the server's event loop reads.
"""

from __future__ import annotations

import threading
from collections import deque
from dataclasses import dataclass

from hub_extensions.core.messages import Series

SPAN_SECONDS = 600.0
MAX_POINTS = 900  # limit for memory use at any pace; ten minutes at one second are 600 points


@dataclass(frozen=True, slots=True)
class Point:
    """One measurement of a device. A value is `None` if it was not known, which leaves a gap in the curve.

    Attributes:
        at: its time on the monotonic clock.
        used_percent: how much of the time the GPU computed.
        memory_bytes: memory in use on the whole device.
        own_memory_bytes: memory in use by this server's programs.
        handed: `used_percent` was received from the service (which has it from Prometheus) and not measured here.
    """

    at: float
    used_percent: float | None
    memory_bytes: int | None
    own_memory_bytes: int | None = None
    handed: bool = False


class Ring:
    """The measurements of each of this server's devices in the last `span_seconds`, kept in memory for the curves.

    Args:
        uuids: the devices known at the start; `add` accepts further ones.
        span_seconds: older points (measurements) are discarded.
    """

    def __init__(self, uuids: tuple[str, ...], span_seconds: float = SPAN_SECONDS) -> None:
        self._span_seconds = span_seconds
        self._lock = threading.Lock()
        self._points: dict[str, deque[Point]] = {uuid: deque(maxlen=MAX_POINTS) for uuid in uuids}
        self._shared = set(uuids)

    def add(self, uuid: str, point: Point, shared: bool | None = None) -> None:
        """Add a point to a device.

        Args:
            shared: other servers may use the device. Then its whole curve shows this server's own memory, otherwise
                the device's. `None` leaves that unchanged; until it is known, a device counts as shared.
        """
        with self._lock:
            if uuid not in self._points:  # it was found only now
                self._points[uuid] = deque(maxlen=MAX_POINTS)
                self._shared.add(uuid)
            if shared is not None:
                (self._shared.add if shared else self._shared.discard)(uuid)
            points = self._points[uuid]
            points.append(point)
            while points[0].at < point.at - self._span_seconds:
                points.popleft()

    def gap(self, at: float) -> None:
        """Record for all devices that nothing was measured at this time, so that their curves have a gap there.

        Of several gaps in a row, only the first and the last are kept.

        Args:
            at: time on the monotonic clock.
        """
        with self._lock:
            for points in self._points.values():
                if len(points) > 1 and _is_gap(points[-1]) and _is_gap(points[-2]):
                    points.pop()
                if points:
                    points.append(Point(at, None, None))

    def series(self, now: float, *, silent: bool = False) -> tuple[Series, ...]:
        """Return the curves of all devices, for a panel. Each has the ages of its points at `now`, the oldest first.

        Args:
            now: present time on the monotonic clock.
            silent: the driver does not answer now, so each curve ends with a gap.
        """
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
        """Return the highest use of any device in percent that this server measured after `since` (monotonic clock).

        `None` if it measured nothing in that time.
        """
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
