"""GPU readers for the sampler's tests, one class a failure."""

from __future__ import annotations

import threading
import time
from datetime import datetime

from hub_extensions.core.gpu.devices import Device, GpusUnavailable, InventoryReading
from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.text.reasons import explain
from tests.patience import patient

UUID = "MIG-00000000-0000-0000-0000-000000000001"
GIB = 1024**3


class OneGpu:
    """One MIG device that works.

    Attributes:
        reads: how often it was read, and in which thread the last time; `closed`.
        pids, memory_by_pid: what the driver lists.
        began, ended: running-clock times of the looks.
    """

    def __init__(self, *, used_percent: float | None = 84.0, uuid: str = UUID) -> None:
        self.used_percent = used_percent
        self.memory_bytes: int | None = 3 * GIB
        self.uuid = uuid
        self.pids: tuple[int, ...] | None = ()
        self.memory_by_pid: dict[int, int] = {}
        self.reads = 0
        self.thread = ""
        self.closed = threading.Event()
        self.began: list[float] = []
        self.ended: list[float] = []

    def read(self, now: datetime) -> InventoryReading:
        self.began.append(time.monotonic())
        self.reads += 1
        self.thread = threading.current_thread().name
        device = Device(self.uuid, "NVIDIA A100-PCIE-40GB", profile="1g.5gb", memory_bytes=5100273664)
        source = "none" if self.used_percent is None else "nvml"
        sample = DeviceSample(
            self.uuid, now, self.used_percent, self.memory_bytes, self.pids, source, dict(self.memory_by_pid)
        )
        self.ended.append(time.monotonic())
        return InventoryReading(now, (device,), {self.uuid: sample})

    def close(self) -> None:
        self.closed.set()


class GpuThatIsSlow(OneGpu):
    """Each look takes this long."""

    def __init__(self, seconds: float) -> None:
        super().__init__()
        self.seconds = seconds

    def read(self, now: datetime) -> InventoryReading:
        reading = super().read(now)
        time.sleep(self.seconds)
        self.ended[-1] = time.monotonic()
        return reading


class GpuWithAFault(OneGpu):
    """Raises `fault` while there is one."""

    def __init__(self, fault: GpusUnavailable | None = None) -> None:
        super().__init__()
        self.fault = fault

    def read(self, now: datetime) -> InventoryReading:
        if self.fault is not None:
            self.reads += 1
            raise self.fault
        return super().read(now)


class GpuWithoutDriver(GpuWithAFault):
    """The library is there, the driver is not loaded."""

    def __init__(self) -> None:
        super().__init__(GpusUnavailable("driver-not-loaded", explain("nvml-driver-not-loaded")))


class GpuThatHangs(OneGpu):
    """Answers once, then the call does not come back until `release`."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def read(self, now: datetime) -> InventoryReading:
        if self.reads:
            self.release.wait(patient(60))
        return super().read(now)


class GpuThatBreaks(OneGpu):
    """Raises what no reader should, once."""

    def read(self, now: datetime) -> InventoryReading:
        if self.reads == 0:
            self.reads = 1
            raise ValueError("a bug in the reader")
        return super().read(now)


class GpuThatGoesAway(OneGpu):
    """The machine was cut anew while it ran: this device is not listed while `gone`."""

    def __init__(self) -> None:
        super().__init__()
        self.gone = False

    def read(self, now: datetime) -> InventoryReading:
        reading = super().read(now)
        return InventoryReading(now, (), {}) if self.gone else reading


class ManyGpus:
    """So many whole GPUs that work."""

    def __init__(self, count: int) -> None:
        self.uuids = tuple(f"GPU-00000000-0000-0000-0000-{index:012d}" for index in range(count))
        self.reads = 0

    def read(self, now: datetime) -> InventoryReading:
        self.reads += 1
        devices = tuple(Device(uuid, "NVIDIA H200", memory_bytes=139 * GIB) for uuid in self.uuids)
        percent = 50.0 + self.reads % 7 / 10
        samples = {uuid: DeviceSample(uuid, now, percent, 70 * GIB, (), "nvml") for uuid in self.uuids}
        return InventoryReading(now, devices, samples)

    def close(self) -> None:
        """Nothing is open."""
