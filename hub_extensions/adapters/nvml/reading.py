"""Builds one reading of the GPUs: which devices there are, and the state of each device now as a sample."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import datetime
from typing import Any, Protocol

from hub_extensions.adapters.nvml.devices import Gpu, use_of_whole
from hub_extensions.adapters.nvml.driver import Driver
from hub_extensions.adapters.nvml.gpm import NOT_COUNTED, Counted, InstanceUse
from hub_extensions.adapters.nvml.processes import processes_on
from hub_extensions.core.gpu.devices import Device
from hub_extensions.core.gpu.samples import DeviceSample


@dataclass(frozen=True)
class Facts:
    """The properties of a GPU or MIG device that do not change while it exists. They are read once.

    Attributes:
        device: the device itself.
        parent: the GPU of a MIG device; `None` for a whole GPU, and if the driver does not report it.
        alone: no other MIG device shares its GPU instance, so the counters of the instance belong to this device.
        settled: whether these properties are final. False if the driver failed to report one of them and may report it
            later.
    """

    device: Device
    parent: Gpu | None = None
    alone: bool = True
    settled: bool = True


@dataclass
class ReadingBuilder:
    """Collects one reading of the GPUs. A reader makes one each time, and `Devices.read` fills it.

    Attributes:
        at: time of the reading.
        driver: the open driver.
        counters: measures how busy devices are.
        own: True in a user's server, which reads only its own devices. The counters of whole GPUs are then read too,
            and MPS clients only if other processes are listed.
        devices: the devices so far, by uuid.
        samples: the state of devices now, by uuid; a device of which nothing could be read is missing.
        problems: sentences about what could not be read.
    """

    at: datetime
    driver: Driver
    counters: InstanceUse
    own: bool
    devices: dict[str, Device] = field(default_factory=dict)
    samples: dict[str, DeviceSample] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, handle: Any, facts: Facts, memory_used: int | None) -> None:
        """Add a device and its current state. A device of which no value could be read gets no sample.

        Args:
            handle: the NVML handle of the device.
            facts: the fixed properties of the device.
            memory_used: used memory in bytes; `None` if the driver does not report it.

        Raises:
            NvmlFailure: the device or the driver is lost.
        """
        uuid = facts.device.uuid
        listed = processes_on(self.driver, handle, mps_alone=not self.own)
        counted, source = self._use(handle, facts)
        self.devices[uuid] = facts.device
        if any(known is not None for known in (counted.used_percent, memory_used, listed.pids, counted.counters)):
            self.samples[uuid] = DeviceSample(
                uuid,
                self.at,
                counted.used_percent,
                memory_used,
                listed.pids,
                source,
                listed.memory_by_pid,
                counted.counters,
            )

    def _use(self, handle: Any, facts: Facts) -> tuple[Counted, str]:
        """Return how busy a device is, and what measured it: ``nvml``, ``gpm``, or ``none`` if it cannot be measured.

        Args:
            handle: NVML handle of the device.
            facts: the fixed properties of the device.
        """
        device, parent, key = facts.device, facts.parent, facts.device.identity
        if device.profile is None:
            use = use_of_whole(self.driver, handle)
            counted = self.counters.whole(self.driver, handle, key) if self.own else NOT_COUNTED
            if use.percent is not None:
                return counted._replace(used_percent=use.percent), "nvml"
            if counted.there:
                return counted, "gpm"
            return counted, "none" if use.lasting else "nvml"
        if not facts.alone:
            return NOT_COUNTED, "none"
        instance = device.gpu_instance_id
        if parent is None or instance is None:
            return NOT_COUNTED, "none" if facts.settled else "gpm"
        counted = self.counters.instance(self.driver, parent.uuid or key, parent.handle, instance, key)
        return counted, "gpm" if counted.there else "none"


class Devices(Protocol):
    """The devices that a reader reads: all of the machine (`MachineDevices`), or those of one server (`OwnDevices`).

    Attributes:
        reopen_after: seconds after opening at which the driver has to be reopened; `None` if it need not be.
    """

    reopen_after: float | None

    def read(self, reading: ReadingBuilder) -> None:
        """Read the devices and add them to `reading`.

        Raises:
            NvmlFailure: there is nothing to report.
        """
        ...

    def forget(self, *, reopening: bool) -> None:
        """Drop what belongs to the open driver, before it is closed.

        Args:
            reopening: the driver is opened again at once, because of `reopen_after`.
        """
        ...
