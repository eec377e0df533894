"""Reads the devices of one server by their UUIDs, with few calls, and without querying other devices.

Fixed properties (name, profile, size) are read once and kept while the driver is open and the UUID responds; varying
values are read each time. This works in a container that sees one MIG device of a GPU and may not query that GPU
itself.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from hub_extensions.adapters.nvml.devices import (
    Gpu,
    Memory,
    Mig,
    handle_of,
    memory_of,
    mig_device,
    product_of,
    whole_gpu,
)
from hub_extensions.adapters.nvml.driver import Driver, NvmlFailure
from hub_extensions.adapters.nvml.reading import Facts, ReadingBuilder
from hub_extensions.adapters.nvml.states import INVALID_ARGUMENT, NOT_FOUND, Scope
from hub_extensions.adapters.nvml.visible import visible_devices
from hub_extensions.core.gpu.devices import Device


class OwnDevices:
    """Reads the devices with the given UUIDs, in their order.

    A device whose UUID is gone from the machine is not listed. A device that has never responded is listed with its
    UUID only.

    Args:
        uuids: the devices; empty for all devices that are visible to this process.
        clock: returns the monotonic clock in seconds.

    Attributes:
        reopen_after: seconds after opening at which the driver has to be reopened; `None` if it need not be.
    """

    def __init__(self, uuids: tuple[str, ...], clock: Callable[[], float]) -> None:
        self.reopen_after: float | None = None
        self._uuids = tuple(dict.fromkeys(uuids))
        self._all_found = bool(uuids)
        self._searched_at: float | None = None
        self._clock = clock
        self._known: dict[str, _KnownFacts] = {}
        self._seen: dict[str, Device] = {}
        self._patience = _REOPEN_SECONDS

    def read(self, reading: ReadingBuilder) -> None:
        """Read this server's devices and add them to `reading`. Raises `NvmlFailure` if none can be read."""
        self._find_devices(reading.driver)
        failures: list[NvmlFailure] = []
        for uuid in self._uuids:
            try:
                self._read_device(uuid, reading)
            except NvmlFailure as failure:
                if failure.concerns_machine:
                    raise
                failures.append(failure)
                reading.problems.append(f"{uuid} cannot be read now. {failure.reason.message}")
                if not failure.concerns_device:
                    reading.devices[uuid] = self._seen.get(uuid) or _unnamed(uuid)
        self._pace_reopening(len(reading.samples))
        if failures and not reading.samples:
            raise failures[0]

    def forget(self, *, reopening: bool) -> None:
        """Drop the NVML handles of the devices, because they belong to the driver that is closed.

        Some drivers see a new partitioning, or a device that comes back, only after they are reopened. Reopening costs
        the other devices one measurement of their utilization. So the time until the driver is reopened again grows
        while a device stays away.

        Args:
            reopening: the driver is opened again at once, so the last known state of missing devices is kept.
        """
        self.reopen_after = None
        self._known.clear()
        if reopening:
            self._patience = min(2 * self._patience, _REOPEN_AT_MOST_SECONDS)
        else:
            self._patience = _REOPEN_SECONDS
            self._seen.clear()

    def _find_devices(self, driver: Driver) -> None:
        """Search for the visible devices if no UUID was given, and search again from time to time while a device may be
        missing.
        """
        now, before = self._clock(), self._searched_at
        if self._all_found or (before is not None and now - before < _SEARCH_SECONDS):
            return
        try:
            seen = visible_devices(driver)
        except NvmlFailure as failure:
            if failure.concerns_machine or not self._uuids:
                raise
            return  # the devices found before are read anyway, and their errors are reported
        self._searched_at = now
        self._uuids = tuple(dict.fromkeys((*self._uuids, *seen.uuids)))
        self._all_found = bool(self._uuids) and seen.all_answered

    def _pace_reopening(self, read: int) -> None:
        """Set after what time the driver is reopened. Reopening the driver may bring missing devices back.

        Args:
            read: number of devices that responded.
        """
        if not self._uuids:
            self.reopen_after = _SEARCH_SECONDS
            return
        if read in (0, len(self._uuids)):
            self._patience = _REOPEN_SECONDS
            self.reopen_after = None if read else _REOPEN_SOON_SECONDS  # no reading of use is lost by that
            return
        self.reopen_after = self._patience

    def _read_device(self, uuid: str, reading: ReadingBuilder) -> None:
        driver = reading.driver
        try:
            handle = handle_of(driver, uuid)
        except NvmlFailure as failure:
            if failure.code not in (NOT_FOUND, INVALID_ARGUMENT):
                raise
            self._known.pop(uuid, None)
            self._seen.pop(uuid, None)
            reading.problems.append(f"{uuid} is not on this machine any more.")
            return
        driver.refused = None
        memory = memory_of(driver, handle)
        facts = self._facts_of(driver, uuid, handle, memory)
        self._seen[uuid] = facts.device
        reading.add(handle, facts, memory.used)
        if uuid not in reading.samples and driver.refused is not None:
            raise driver.refused  # every call failed, so the failure concerns the device

    def _facts_of(self, driver: Driver, uuid: str, handle: Any, memory: Memory) -> Facts:
        """Return the fixed properties of a device.

        They are kept from an earlier reading. They are read again if a property is still missing, or if the memory size
        shows that the UUID is another device now.

        Args:
            uuid: UUID of the device.
            handle: the device's NVML handle.
            memory: the device's memory, as just read.
        """
        known = self._known.get(uuid)
        same = known is not None and memory.total in (None, known.facts.device.memory_bytes)
        if known is not None and same and (known.complete or self._clock() - known.read_at < _ASK_AGAIN_SECONDS):
            return known.facts
        read = _facts_of_mig if uuid.startswith("MIG-") else _facts_of_whole
        facts = read(driver, uuid, handle, memory)
        self._known[uuid] = _KnownFacts(facts, self._clock())
        return facts


_REOPEN_SECONDS, _REOPEN_SOON_SECONDS, _REOPEN_AT_MOST_SECONDS = 60.0, 10.0, 960.0
_ASK_AGAIN_SECONDS = 5.0
_SEARCH_SECONDS = 30.0  # a container normally has all its devices from its start, so later searches are slow
UNNAMED = "MIG"
"""The profile of a MIG device whose profile the driver does not name, to distinguish it from a whole GPU."""


@dataclass(frozen=True)
class _KnownFacts:
    facts: Facts
    read_at: float

    @property
    def complete(self) -> bool:
        device = self.facts.device
        if None in (device.memory_bytes, device.sm_count) or device.profile == UNNAMED:
            return False
        return device.profile is None or (self.facts.parent is not None and device.gpu_instance_id is not None)


def _facts_of_whole(driver: Driver, uuid: str, handle: Any, memory: Memory) -> Facts:
    return Facts(whole_gpu(driver, Gpu(handle, uuid, product_of(driver, handle)), memory))


def _facts_of_mig(driver: Driver, uuid: str, handle: Any, memory: Memory) -> Facts:
    """Read the fixed properties of a MIG device.

    In a container, the driver may refuse ("no permission") to report values of the GPU that the MIG device is a part
    of. If so, values that come from the GPU are missing from the result. The handle of the GPU is still returned,
    because it is enough to read the counters of the MIG device.

    Args:
        uuid: UUID of the MIG device.
        handle: NVML handle of the MIG device.
        memory: memory of the MIG device, as just read.
    """
    parent_handle, parent_settled = _asked(driver, "nvmlDeviceGetDeviceHandleFromMigDeviceHandle", handle)
    parent = None
    product = product_of(driver, handle)
    if parent_handle is not None:
        parent_uuid = driver.ask("nvmlDeviceGetUUID", parent_handle)
        parent = Gpu(parent_handle, str(parent_uuid or ""), product_of(driver, parent_handle, product))
    instance, instance_settled = _asked(driver, "nvmlDeviceGetGpuInstanceId", handle)
    compute = driver.ask("nvmlDeviceGetComputeInstanceId", handle)
    mig = Mig(handle, uuid, instance, compute)
    device = mig_device(driver, parent or Gpu(None, "", product), mig)
    if device is None:
        device = Device(uuid, product, UNNAMED, instance, compute, memory_bytes=memory.total)
    slices = driver.ask("nvmlDeviceGetAttributes", handle)
    alone = slices is None or int(slices.computeInstanceSliceCount) == int(slices.gpuInstanceSliceCount)
    return Facts(device, parent, alone, parent_settled and instance_settled)


def _asked(driver: Driver, name: str, handle: Any) -> tuple[Any, bool]:
    """Query one value of a device from the driver.

    Args:
        name: name of the function of pynvml.
        handle: the device's NVML handle.

    Returns:
        First, the value; `None` if it is unavailable. Second, whether the same call would give the same result a second
        later.
    """
    try:
        return driver.call(name, handle), True
    except NvmlFailure as failure:
        if failure.scope is not Scope.CALL:
            raise
        driver.note(failure)
        return None, failure.lasting


def _unnamed(uuid: str) -> Device:
    """Return a device of which only the UUID is known, for a device that did not respond yet but is not reported as
    gone.
    """
    return Device(uuid, "NVIDIA GPU", profile=UNNAMED if uuid.startswith("MIG-") else None)
