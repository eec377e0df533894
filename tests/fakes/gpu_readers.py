"""GPU readers for the sampler's tests, one class a failure."""

from __future__ import annotations

import threading
from datetime import datetime

from hub_extensions.core.inventory import Device, GpusUnavailable, InventoryReading
from hub_extensions.core.usage import DeviceSample

UUID = "MIG-00000000-0000-0000-0000-000000000001"


class OneGpu:
    """One MIG device that works.

    Attributes:
        reads: how often it was read, and in which thread the last time; `closed`.
    """

    def __init__(self, *, used_percent: float | None = 84.0, uuid: str = UUID) -> None:
        self.used_percent = used_percent
        self.uuid = uuid
        self.reads = 0
        self.thread = ""
        self.closed = threading.Event()

    def read(self, now: datetime) -> InventoryReading:
        self.reads += 1
        self.thread = threading.current_thread().name
        device = Device(self.uuid, "NVIDIA A100-PCIE-40GB", profile="1g.5gb", memory_bytes=5100273664)
        source = "none" if self.used_percent is None else "nvml"
        sample = DeviceSample(self.uuid, now, self.used_percent, 3 * 1024**3, (), source)
        return InventoryReading(now, (device,), {self.uuid: sample})

    def close(self) -> None:
        self.closed.set()


class GpuWithoutDriver(OneGpu):
    """The library is there, the driver is not loaded."""

    def read(self, now: datetime) -> InventoryReading:
        self.reads += 1
        raise GpusUnavailable("driver-not-loaded", "The NVIDIA driver is not loaded on this machine.")


class GpuThatHangs(OneGpu):
    """Answers once, then the call does not come back until `release`."""

    def __init__(self) -> None:
        super().__init__()
        self.release = threading.Event()

    def read(self, now: datetime) -> InventoryReading:
        if self.reads:
            self.release.wait(60)
        return super().read(now)


class GpuThatBreaks(OneGpu):
    """Raises what no reader should, once."""

    def read(self, now: datetime) -> InventoryReading:
        if self.reads == 0:
            self.reads = 1
            raise ValueError("a bug in the reader")
        return super().read(now)
