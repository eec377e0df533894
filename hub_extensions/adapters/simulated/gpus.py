"""Simulated GPUs for machines without any.

A layout (a YAML file) defines the devices, and the users' kernels determine how busy they are. Nothing is random. A
device is as busy as the kernels that have it: 100 percent is one busy core. Its used memory is their resident memory,
up to the size of the device. So a running cell shows in the panel, and an idle server is culled as on a real GPU.
Tensor pipes and bandwidth are not simulated.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime

from hub_extensions.adapters.linux.procfs import Process
from hub_extensions.adapters.simulated.layouts import Layout
from hub_extensions.core.gpu.devices import Device, InventoryReading
from hub_extensions.core.gpu.samples import DeviceSample


def of_service(url: str, processes: Callable[[], Sequence[Process]]) -> Callable[[], Sequence[Process]]:
    """Return a function that lists only those processes whose servers use this GPU service.

    Every installation on a machine simulates the same devices, so the kernels of another installation must not count.

    Args:
        url: address of the service; "" for processes of servers without a service.
        processes: lists the processes of all installations.
    """
    return lambda: [process for process in processes() if (process.service or "") == url]


class SimulatedGpus:
    """Reads the devices of a simulated machine (a layout) as if the machine existed.

    Args:
        layout: the simulated machine.
        processes: returns the live processes that belong to a lease (``procfs.marked``).
        clock: a monotonic clock in seconds.
    """

    def __init__(
        self,
        layout: Layout,
        processes: Callable[[], Sequence[Process]],
        *,
        clock: Callable[[], float] = time.monotonic,
    ) -> None:
        self.layout = layout
        self._processes = processes
        self._clock = clock
        self._at: float | None = None
        self._before: dict[tuple[int, int], float] = {}
        self._use: dict[str, float | None] = {}

    def read(self, now: datetime) -> InventoryReading:
        """Return the current devices and samples, with the time `now`.

        The use of a device is computed from two readings. So the first reading does not contain the use of devices with
        kernels.
        """
        running = self._running()
        self._count(running)
        samples = {device.uuid: self._sample(device, running[device.uuid], now) for device in self.layout.devices}
        return InventoryReading(now, self.layout.devices, samples)

    def close(self) -> None:
        """Drop the processor times of the last reading, so that the next reading is treated as the first."""
        self._at = None
        self._before = {}
        self._use = {}

    def _running(self) -> dict[str, list[Process]]:
        """Return uuid of a simulated device -> the Jupyter kernels that run on it."""
        running: dict[str, list[Process]] = {device.uuid: [] for device in self.layout.devices}
        for process in self._processes():
            if not process.kernel or process.lease is None:
                continue
            for uuid in {listed.strip() for listed in (process.device or "").split(",")}:
                if uuid in running:
                    running[uuid].append(process)
        return running

    def _count(self, running: Mapping[str, Sequence[Process]]) -> None:
        now = self._clock()
        elapsed = None if self._at is None else now - self._at
        if elapsed is not None and elapsed < _SHORTEST_SECONDS:
            return  # too short an interval, because processor time comes in steps of 10 ms
        for uuid, processes in running.items():
            if elapsed is None:
                self._use[uuid] = None if processes else 0.0
                continue
            worked = (p.cpu_seconds - self._before.get((p.pid, p.started), 0.0) for p in processes)
            self._use[uuid] = min(100.0, 100.0 * sum(max(0.0, seconds) for seconds in worked) / elapsed)
        self._at = now
        self._before = {(p.pid, p.started): p.cpu_seconds for each in running.values() for p in each}

    def _sample(self, device: Device, processes: Sequence[Process], now: datetime) -> DeviceSample:
        by_pid = _fitted({process.pid: process.rss_bytes for process in processes}, device.memory_bytes)
        pids = tuple(sorted(by_pid))
        use = self._use.get(device.uuid)
        return DeviceSample(device.uuid, now, use, sum(by_pid.values()), pids, "simulated", by_pid)


def _fitted(rss_by_pid: Mapping[int, int], memory_bytes: int | None) -> dict[int, int]:
    """Return the memory on the device of each kernel, by process id.

    If the kernels' resident memory together exceeds the size of the device, each gets its share of the full device.

    Args:
        rss_by_pid: resident memory of each kernel in bytes.
        memory_bytes: size of the device; `None` if it is not known.
    """
    wanted = sum(rss_by_pid.values())
    if memory_bytes is None or wanted <= memory_bytes:
        return dict(rss_by_pid)
    return {pid: rss * memory_bytes // wanted for pid, rss in rss_by_pid.items()}


_SHORTEST_SECONDS = 0.1
