"""Reads GPUs from the NVIDIA driver through ``pynvml`` (the package nvidia-ml-py): a machine's, or one server's.

The library is opened at the first reading and reopened after a failure, so that a driver that is loaded later is found
without a restart. If a call for one device fails, the other devices are still listed. Calls block: only one thread
calls `read`.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from datetime import datetime

from hub_extensions.adapters.nvml.container import OwnDevices
from hub_extensions.adapters.nvml.driver import NvmlFailure, OpenDriver
from hub_extensions.adapters.nvml.gpm import InstanceUse
from hub_extensions.adapters.nvml.machine import MachineDevices
from hub_extensions.adapters.nvml.reading import Devices, ReadingBuilder
from hub_extensions.adapters.nvml.states import UNINITIALIZED, in_a_container
from hub_extensions.core.gpu.devices import GpusUnavailable, InventoryReading


class Nvml:
    """Reads all GPUs of this machine, or only the devices of one server.

    Args:
        only: the UUIDs of a server's own devices (``GPU-…``, ``MIG-…``), in the order in which they are returned. If it
            is empty, the devices that are visible to this process are read, and kept once they are found. `None` for
            all devices of the machine.
        clock: a monotonic clock in seconds, which determines when the driver is reopened and how long a measurement
            lasted.
        pod: this is a container of a cluster, so errors are explained for its user.
    """

    def __init__(
        self,
        only: tuple[str, ...] | None = None,
        *,
        clock: Callable[[], float] = time.monotonic,
        pod: bool = False,
    ) -> None:
        self._pod = pod
        self._open = OpenDriver(clock)
        self._counters = InstanceUse(clock)
        self._own = only is not None
        self._devices: Devices = MachineDevices() if only is None else OwnDevices(only, clock)

    def read(self, now: datetime) -> InventoryReading:
        """Return the current devices and samples with the time `now`. Raises `GpusUnavailable` if nothing can be read.

        A device that does not respond for now is listed as last seen, without a sample. A lost device is not listed.
        In both cases a sentence is added to the `problems` of the reading.
        """
        reopen_after = self._devices.reopen_after
        if reopen_after is not None and self._open.open_for() >= reopen_after:
            self._close(reopening=True)
        was_open = self._open.is_open
        while True:
            try:
                return self._read(now)
            except NvmlFailure as failure:
                if failure.concerns_machine:
                    self.close()
                if failure.code != UNINITIALIZED or not was_open:
                    raise self._unavailable(failure) from failure
                was_open = False  # the driver was reloaded meanwhile, so its next answer counts

    def close(self) -> None:
        """Close the GPU driver's library. The next `read` opens it again."""
        self._close(reopening=False)

    def _close(self, *, reopening: bool) -> None:
        self._devices.forget(reopening=reopening)
        self._open.close(self._counters.forget)

    def _read(self, now: datetime) -> InventoryReading:
        driver = self._open.get()
        reading = ReadingBuilder(now, driver, self._counters, self._own)
        self._devices.read(reading)
        self._counters.keep_only(driver, [device.identity for device in reading.devices.values()])
        return InventoryReading(now, tuple(reading.devices.values()), reading.samples, tuple(reading.problems))

    def _unavailable(self, failure: NvmlFailure) -> GpusUnavailable:
        unavailable = failure.as_unavailable()
        return GpusUnavailable(unavailable.state, in_a_container(failure.code)) if self._pod else unavailable
