"""A thread that reads this server's GPU: each second while a panel is open, else every 10 s, and never without a GPU.

The driver's library NVML blocks and can hang, so only this thread calls it. A call that hangs is reported, and delays
neither the server nor its shutdown (the thread is a daemon). A slow call lengthens the period: readings (measurements)
never overlap, and the driver is idle at least half of the time.
"""

from __future__ import annotations

import logging
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime, timezone
from time import monotonic
from typing import Protocol

from hub_extensions.adapters.linux.procfs import LEASE_MARK
from hub_extensions.core.gpu.devices import Device, GpusUnavailable, InventoryReading
from hub_extensions.core.messages import GpuReading, Series, ServerState
from hub_extensions.core.offers.pod_request import POD_MARK
from hub_extensions.core.text.reasons import Reason, explain
from hub_extensions.server_extension.history import Point, Ring
from hub_extensions.server_extension.readings import (
    NOT_WHICH,
    Entitlement,
    FiguresWatch,
    HeldMemory,
    memory_limit_of,
    reading_of,
)

SHORTEST_SECONDS, LONGEST_SECONDS = 1.0, 60.0  # limits for the period that a listener may ask for
UNWATCHED_SECONDS = 10.0
HUNG_AFTER_SECONDS = 5.0
"""If a call of the driver takes longer, the panel shows that the driver does not answer. It usually takes a few ms."""

NOT_UNDER_A_HUB = explain("no-hub")
NO_GPU = explain("no-gpu")

log = logging.getLogger(__name__)


class Reader(Protocol):
    """The reader of the GPUs for the sampler: ``adapters.nvml.reader.Nvml`` or ``adapters.simulated.SimulatedGpus``."""

    def read(self, now: datetime) -> InventoryReading:
        """Read all GPU devices once. Raises ``GpusUnavailable``."""
        ...

    def close(self) -> None:
        """Close the connection to the GPU driver."""
        ...


HolderRefresh = Callable[[InventoryReading, Mapping[str, bool], float], Mapping[str, HeldMemory]]
"""A function that finds which programs hold each device's memory, such as `GpuProcesses.refresh`. Its arguments are the
reading, uuid -> whether other servers may use the device, and the monotonic clock."""


@dataclass(frozen=True)
class Sampled:
    """The last reading (measurement of all devices of this server), and whether the driver answers.

    Attributes:
        state: whether values can be read now, as a code of ``messages.Snapshot``, such as ``ok``.
        reason: why values cannot be read; `None` if they can.
        gpus: the last known values, however old.
        read_at: when they were read, on the monotonic clock; `None` before the first reading.
        number: how many readings have succeeded so far, by which a new one is recognised.
        period_seconds: the current interval between readings.
    """

    state: str
    reason: Reason | None
    gpus: tuple[GpuReading, ...] = ()
    read_at: float | None = None
    number: int = 0
    period_seconds: float = UNWATCHED_SECONDS


@dataclass(frozen=True)
class Paces:
    """The sampler's intervals and time limit in seconds. Tests use shorter ones.

    Attributes:
        shortest: shortest interval between readings, while a panel is open.
        unwatched: interval while no panel is open.
        hung_after: a call of the driver that takes longer counts as hanging.
    """

    shortest: float = SHORTEST_SECONDS
    unwatched: float = UNWATCHED_SECONDS
    hung_after: float = HUNG_AFTER_SECONDS


def leased_uuids(environ: Mapping[str, str]) -> tuple[str, ...]:
    """Return the uuids of this server's devices from its environment variables.

    Empty for CPU only (``void``) and outside a hub. In a pod the hub names no devices, but a device plugin or KAI may
    have set the same variables for the container runtime. For a part of a shared device, a number may follow the uuid
    (``GPU-…::0``), which is removed.
    """
    if LEASE_MARK not in environ:
        return ()
    for name in ("CUDA_VISIBLE_DEVICES", "NVIDIA_VISIBLE_DEVICES"):
        parts = (part.strip().partition("::")[0] for part in environ.get(name, "").split(","))
        uuids = tuple(dict.fromkeys(uuid for uuid in parts if uuid.startswith(("GPU-", "MIG-"))))
        if uuids:
            return uuids
    return ()


def in_pod(environ: Mapping[str, str]) -> bool:
    """Return whether this server is a pod with a lease.

    If no variable names its devices (with CDI or DRA), all devices that are visible in the pod belong to this server.
    """
    return bool(environ.get(LEASE_MARK)) and bool(environ.get(POD_MARK))


class Sampler:
    """Reads this server's devices periodically in a thread of its own. Other threads only get the last reading.

    Args:
        open_reader: creates the reader; called in the thread, at the first use.
        uuids: the leased devices. If it is empty and `finds` is False, no thread is started.
        finds: no variable names the devices; all devices that the reader finds belong to this server.
        no_gpu: what the panel shows if this server has no GPU.
        environ: environment variables with HAMi's memory limits; `None` for none.
        paces: shorter intervals for tests; `None` for the normal ones.
        wall: returns the wall-clock time, which is only displayed; intervals are measured by the monotonic clock.
    """

    def __init__(
        self,
        open_reader: Callable[[], Reader],
        uuids: tuple[str, ...],
        *,
        finds: bool = False,
        no_gpu: Reason = NO_GPU,
        environ: Mapping[str, str] | None = None,
        paces: Paces | None = None,
        wall: Callable[[], datetime] = lambda: datetime.now(timezone.utc),
    ) -> None:
        self._open_reader = open_reader
        self._uuids = uuids
        self._finds = finds
        self._environ = environ or {}
        self._paces = paces or Paces()
        self._wall = wall
        self._ring = Ring(uuids)
        self._figures = FiguresWatch()
        self._condition = threading.Condition()
        self._wanted: dict[object, float] = {}
        self._stopped = False
        self._thread: threading.Thread | None = None
        self._call: _Call | None = None
        self._took = 0.0
        self._logged = ""
        self._server: Callable[[], ServerState | None] | None = None
        self._holding: HolderRefresh = lambda reading, shared, clock: {}
        self._holding_failed = False
        self._after_reading: Callable[[], None] = lambda: None
        reads = bool(uuids) or finds
        self._sampled = Sampled("starting", explain("first-look")) if reads else Sampled("no-gpu", no_gpu)

    def use(
        self,
        *,
        server: Callable[[], ServerState | None] | None = None,
        holding: HolderRefresh | None = None,
        after_reading: Callable[[], None] | None = None,
    ) -> None:
        """Connect other parts, before `start`. All three functions are called in the sampler's thread.

        `None` leaves a function as it is.

        Args:
            server: returns the service's last state of this server; not set without a service.
            holding: finds which programs hold each device's memory.
            after_reading: called after each reading.
        """
        self._server = server or self._server
        self._holding = holding or self._holding
        self._after_reading = after_reading or self._after_reading

    def start(self) -> None:
        """Start the thread that reads the GPU; does nothing without a GPU, or if it already runs."""
        if not (self._uuids or self._finds) or self._thread is not None:
            return
        self._thread = threading.Thread(target=self._run, name="jupyterhub-gpu-sampler", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """End the thread that reads the GPU; does not wait for a call of the driver that hangs."""
        with self._condition:
            self._stopped = True
            self._condition.notify_all()

    def watch(self, listener: object, every_seconds: float) -> None:
        """Register a listener with the interval at which it wants readings (1 to 60 s); the shortest one is used."""
        with self._condition:
            self._wanted[listener] = min(max(every_seconds, self._paces.shortest), LONGEST_SECONDS)
            self._condition.notify_all()

    def unwatch(self, listener: object) -> None:
        with self._condition:
            self._wanted.pop(listener, None)

    def latest(self) -> Sampled:
        """Return the last reading. While a call of the driver hangs, its state is that the driver does not answer.

        This never waits for the driver.
        """
        call = self._hung()
        sampled = replace(self._sampled, period_seconds=self._pace())
        if call is None:
            return sampled
        silent = replace(sampled, state="not-answering", reason=explain("driver-silent", since=call.since))
        self._log(silent)
        return silent

    def history(self) -> tuple[Series, ...]:
        """Return the curves of GPU use and memory of the last ten minutes; empty without a GPU.

        Each point has its age.
        """
        return self._ring.series(monotonic(), silent=self._hung() is not None)

    def highest_since(self, clock: float) -> float | None:
        """Return the highest use of any of this server's GPUs since a time of the monotonic clock, in percent.

        Only this server's own measurements count. `None` if it measured nothing since then. The report to the service
        contains the value.

        Args:
            clock: the time of the monotonic clock, in seconds.
        """
        return self._ring.highest(clock)

    def _hung(self) -> _Call | None:
        call = self._call
        return call if call is not None and self._is_hung(call) else None

    def _is_hung(self, call: _Call) -> bool:
        """Return whether a call of the driver takes so long that it counts as hanging.

        With a driver that is always slow, a call must take much longer than the previous one.
        """
        return monotonic() - call.started >= max(self._paces.hung_after, 3 * self._took)

    def _period(self) -> float:
        return min((self._paces.unwatched, *self._wanted.values()))

    def _pace(self) -> float:
        """Return the interval between readings, at least twice the time of the last call of the driver.

        With a slow driver it is rounded up to one of a few values, so that it does not change with each reading.
        """
        with self._condition:
            period = self._period()
        if 2 * self._took <= period:
            return period
        return next((period for period in _ROUND if period >= 2 * self._took), LONGEST_SECONDS)

    def _run(self) -> None:
        reader: Reader | None = None
        while True:
            self._call = call = _Call(monotonic(), self._wall())
            try:
                if reader is None:
                    reader = self._open_reader()
                sampled = self._sample(reader)
            except GpusUnavailable as error:
                sampled = self._without_news(error.state, error.reason)
            except Exception as error:  # noqa: BLE001 - the thread has to survive any error of a driver; it is shown, and logged once
                sampled = self._without_news("unknown", explain("read-failed", why=str(error)))
            hung, took = self._is_hung(call), monotonic() - call.started
            self._took = min(took, self._paces.hung_after) if hung else took
            self._sampled, self._call = sampled, None
            self._log(sampled)
            self._after_reading()
            if not self._wait_for_next(call.started, rest=0.0 if hung else took):
                break
        if reader is not None:
            reader.close()

    def _wait_for_next(self, started: float, *, rest: float) -> bool:
        """Sleep until the interval is over, and at least for `rest` seconds. Returns False if the thread should end."""
        rested = monotonic() + rest
        with self._condition:
            while not self._stopped:
                left = max(started + self._period(), rested) - monotonic()
                if left <= 0:
                    return True
                self._condition.wait(left)
            return False

    def _sample(self, reader: Reader) -> Sampled:
        call = self._call
        assert call is not None
        reading = reader.read(call.since)
        clock = call.started
        if self._is_hung(call):
            self._ring.gap(clock)
            clock = monotonic()  # the answer of a call that hung counts from now on
            self._ring.gap(clock)
        devices = {device.uuid: device for device in reading.devices}
        if self._finds:
            self._uuids = tuple(
                dict.fromkeys((*self._uuids, *devices))
            )  # a device that was found once belongs to this server
            if not self._uuids:
                return self._without_news("detached", explain("no-gpu-seen"))
        mine = {uuid: devices[uuid] for uuid in self._uuids if uuid in devices}
        gpus = self._readings(mine, reading, clock)
        number = self._sampled.number + 1
        if len(mine) < len(self._uuids):
            return Sampled("lost", explain("one-gpu-gone" if mine else "gpu-lost"), gpus, clock, number)
        return Sampled("ok", None, gpus, clock, number)

    def _readings(self, mine: Mapping[str, Device], reading: InventoryReading, clock: float) -> tuple[GpuReading, ...]:
        """Return what the panel shows of each device, and add a point to each device's history.

        Args:
            mine: this server's devices, by uuid.
            reading: what the driver has reported.
            clock: the monotonic clock in seconds.
        """
        server = None if self._server is None else self._server()
        right = Entitlement(self._uuids, self._environ, self._server is not None, server)
        limit = {uuid: memory_limit_of(device, right) for uuid, device in mine.items()}
        held = self._who_holds(reading, {uuid: one.shared for uuid, one in limit.items()}, clock)
        outside = self._figures.judge(None if server is None else server.figures, self._wall(), clock)
        readings = []
        for uuid, device in mine.items():
            sample = reading.samples.get(uuid)
            gpu = reading_of(
                device,
                sample,
                reading.at,
                held=held.get(uuid),
                limit=limit[uuid],
                outside=outside,
            )
            handed = sample is None or sample.used_percent is None
            point = Point(clock, gpu.used_percent, gpu.memory_used_bytes, gpu.own_memory_bytes, handed)
            self._ring.add(uuid, point, gpu.shared)
            readings.append(gpu)
        for uuid in self._uuids:
            if uuid not in mine:
                self._ring.add(uuid, Point(clock, None, None))
        return tuple(readings)

    def _who_holds(
        self, reading: InventoryReading, shared: Mapping[str, bool], clock: float
    ) -> Mapping[str, HeldMemory]:
        try:
            return self._holding(reading, shared, clock)
        except Exception as error:  # noqa: BLE001 - an error about the holders must not hide the reading; it is shown, and logged once
            if not self._holding_failed:
                log.warning("Who holds the GPU cannot be found out: %r", error)
            self._holding_failed = True
            return dict.fromkeys(shared, HeldMemory(note=NOT_WHICH))

    def _without_news(self, state: str, reason: Reason) -> Sampled:
        before = self._sampled
        self._ring.gap(monotonic())
        return Sampled(state, reason, before.gpus, before.read_at, before.number)

    def _log(self, sampled: Sampled) -> None:
        with self._condition:
            if self._logged == sampled.state:
                return  # log changes only, not every reading
            self._logged = sampled.state
        log.info("GPU: %s %s", sampled.state, "" if sampled.reason is None else sampled.reason.message)


@dataclass(frozen=True)
class _Call:
    """A call of the GPU driver's library that has not returned yet.

    Attributes:
        started: when it began, in seconds of the monotonic clock.
        since: when it began, in wall-clock time.
    """

    started: float
    since: datetime


_ROUND = (1.0, 2.0, 5.0, 10.0, 20.0, 30.0, LONGEST_SECONDS)
