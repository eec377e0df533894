"""One reading of the GPUs: what a device does now, as a sample, whoever found the device.

Not here: which devices there are (``machine.py``, ``container.py``), and opening the driver (``reader.py``).
"""

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
    """What does not move of a device.

    Attributes:
        parent: the GPU of a MIG device; None where it is not known.
        alone: the counters of its GPU instance are this device's alone.
        settled: what the counters need and is missing will be missing in a second too.
    """

    device: Device
    parent: Gpu | None = None
    alone: bool = True
    settled: bool = True


@dataclass
class ReadingBuilder:
    """What one reading gathers, in the order of the devices.

    Attributes:
        own: the devices are the reader's own: the counters of a whole GPU are asked for too, and MPS clients only where
            processes are listed.
    """

    at: datetime
    driver: Driver
    counters: InstanceUse
    own: bool
    devices: dict[str, Device] = field(default_factory=dict)
    samples: dict[str, DeviceSample] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)

    def add(self, handle: Any, facts: Facts, memory_used: int | None) -> None:
        """Add a device and what it does now; where it tells nothing, that is no sample. Raises `NvmlFailure`."""
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
        """How much it is in use, and where that comes from."""
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
    """The devices that are read.

    Attributes:
        reopen_after: so many seconds after it was opened the driver is to be opened anew; None: it need not be.
    """

    reopen_after: float | None

    def read(self, reading: ReadingBuilder) -> None:
        """Add them to `reading`. Raises `NvmlFailure` where there is nothing to tell."""
        ...

    def forget(self, *, reopening: bool) -> None:
        """The driver is being closed; `reopening`: because `reopen_after` asked for it."""
        ...
