"""The GPUs of one server, read from the NVIDIA driver by their UUIDs: few calls, and no look at anybody else's.

What a device is (name, profile, size) is read once and kept while the driver is open and the UUID answers; what moves
is read each time. It works in a container that sees one MIG device of a GPU and may not ask that GPU anything.
Blocking calls: one thread calls `read`. Not here: all GPUs of a machine (``reader.py``), and whose processes those are.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, replace
from datetime import datetime
from typing import Any

from hub_extensions.adapters.nvml.devices import (
    Gpu,
    Memory,
    Mig,
    handle_of,
    memory_of,
    mig_device,
    product_of,
    use_of_whole,
    whole_gpu,
)
from hub_extensions.adapters.nvml.driver import Driver, NvmlFailure, OpenDriver
from hub_extensions.adapters.nvml.gpm import NOT_COUNTED, Counted, InstanceUse
from hub_extensions.adapters.nvml.processes import processes_on
from hub_extensions.adapters.nvml.states import INVALID_ARGUMENT, NOT_FOUND, UNINITIALIZED, Scope, in_a_container
from hub_extensions.adapters.nvml.visible import seen_devices
from hub_extensions.core.gpu.devices import Device, GpusUnavailable, InventoryReading
from hub_extensions.core.gpu.samples import DeviceSample


class OwnGpus:
    """Reads the devices with these UUIDs (``GPU-…``, ``MIG-…``), in their order.

    Args:
        uuids: the server's own devices; none: those that can be seen from in here, which are kept once they are found.
        clock: a running clock in seconds: it paces reopening the driver, and the counters of use.
        pod: this is a container of a cluster: what is wrong is said for its user.
    """

    def __init__(
        self, uuids: tuple[str, ...], *, clock: Callable[[], float] = time.monotonic, pod: bool = False
    ) -> None:
        self._uuids = tuple(dict.fromkeys(uuids))
        self._all_found = bool(uuids)
        self._looked_around_at: float | None = None
        self._pod = pod
        self._clock = clock
        self._open = OpenDriver(clock)
        self._gpm = InstanceUse(clock)
        self._facts: dict[str, _Facts] = {}
        self._seen: dict[str, Device] = {}
        self._reopen_after: float | None = None
        self._patience = _REOPEN_SECONDS

    def read(self, now: datetime) -> InventoryReading:
        """Devices and samples as they are now, stamped `now`. Raises `GpusUnavailable` when none can be read.

        A device whose UUID is not on the machine any more is not in the reading (all of them: an empty reading), nor is
        a lost one while another can be read. One that does not answer for now is listed as it was, without a sample
        (one that never has answered: by its UUID alone). Where none was named and none can be seen, it is empty.
        """
        if self._reopen_after is not None and self._open.open_for() >= self._reopen_after:
            self._reopen()
        was_open = self._open.is_open
        try:
            return self._look(now)
        except NvmlFailure as failure:
            self._close_after(failure)
            if failure.code != UNINITIALIZED or not was_open:
                raise self._unavailable(failure) from failure
        # The driver was loaded anew under us: what it says now is the answer.
        try:
            return self._look(now)
        except NvmlFailure as failure:
            self._close_after(failure)
            raise self._unavailable(failure) from failure

    def close(self) -> None:
        """Give the driver back. The next `read` opens it again, and knows nothing of before."""
        self._seen.clear()
        self._patience = _REOPEN_SECONDS
        self._let_go()

    def _reopen(self) -> None:
        """Some drivers see a new cut, and a device that is given back, only when they are opened anew.

        It costs the others their use for one look: a device that stays away is waited for longer and longer. What a
        device was is still known, that it did not answer for now is no news of it; its handles are another driver's.
        """
        self._patience = min(2 * self._patience, _REOPEN_AT_MOST_SECONDS)
        self._let_go()

    def _let_go(self) -> None:
        self._reopen_after = None
        self._facts.clear()
        self._open.close(self._gpm.forget)

    def _close_after(self, failure: NvmlFailure) -> None:
        if failure.concerns_machine:
            self.close()

    def _unavailable(self, failure: NvmlFailure) -> GpusUnavailable:
        told = failure.as_unavailable()
        return GpusUnavailable(told.word, in_a_container(failure.code)) if self._pod else told

    def _look_around(self, driver: Driver) -> None:
        """Where nobody named its devices: find them, and again slowly while one may be missing."""
        now, before = self._clock(), self._looked_around_at
        if self._all_found or (before is not None and now - before < _LOOK_AROUND_SECONDS):
            return
        try:
            seen = seen_devices(driver)
        except NvmlFailure as failure:
            if failure.concerns_machine or not self._uuids:
                raise
            return  # those that were found before are read all the same, and say what is wrong with them
        self._looked_around_at = now
        self._uuids = tuple(dict.fromkeys((*self._uuids, *seen.uuids)))
        self._all_found = bool(self._uuids) and seen.all_answered

    def _look(self, now: datetime) -> InventoryReading:
        driver = self._open.get()
        self._look_around(driver)
        devices: list[Device] = []
        samples: dict[str, DeviceSample] = {}
        problems: list[str] = []
        failures: list[NvmlFailure] = []
        for uuid in self._uuids:
            try:
                read = self._read_device(driver, uuid, now)
            except NvmlFailure as failure:
                if failure.concerns_machine:
                    raise
                failures.append(failure)
                problems.append(f"{uuid} cannot be read now. {failure.detail}")
                if not failure.concerns_device:
                    devices.append(self._seen.get(uuid) or _unnamed(uuid))
                continue
            if read is None:
                problems.append(f"{uuid} is not on this machine any more.")
                continue
            device, sample = read
            devices.append(device)
            if sample is not None:
                samples[uuid] = sample
        self._pace_reopening(len(samples))
        if failures and not samples:
            raise failures[0]
        self._gpm.keep_only(driver, [facts.key for facts in self._facts.values()])
        return InventoryReading(now, tuple(devices), samples, tuple(problems))

    def _pace_reopening(self, read: int) -> None:
        """`read`: how many of the devices."""
        if not self._uuids:
            self._reopen_after = _LOOK_AROUND_SECONDS
            return
        if read in (0, len(self._uuids)):
            self._patience = _REOPEN_SECONDS
            self._reopen_after = None if read else _REOPEN_SOON_SECONDS  # nobody's use is lost by it
            return
        self._reopen_after = self._patience

    def _read_device(self, driver: Driver, uuid: str, now: datetime) -> tuple[Device, DeviceSample | None] | None:
        """One device; None when the machine does not have it."""
        try:
            handle = handle_of(driver, uuid)
        except NvmlFailure as failure:
            if failure.code in (NOT_FOUND, INVALID_ARGUMENT):
                self._facts.pop(uuid, None)
                self._seen.pop(uuid, None)
                return None
            raise
        driver.refused = None
        memory = memory_of(driver, handle)
        facts = self._facts_of(driver, uuid, handle, memory)
        self._seen[uuid] = facts.device
        listed = processes_on(driver, handle, mps_alone=False)
        counted, source = self._use(driver, handle, facts)
        if counted.used_percent is None and memory.used is None and listed.pids is None and counted.counters is None:
            _raise_refusal(driver)
            return facts.device, None
        sample = DeviceSample(
            uuid,
            now,
            counted.used_percent,
            memory.used,
            listed.pids,
            source,
            listed.memory_by_pid,
            counted.counters,
        )
        return facts.device, sample

    def _use(self, driver: Driver, handle: Any, facts: _Facts) -> tuple[Counted, str]:
        """How much it is in use, and where that comes from."""
        instance = facts.device.gpu_instance_id
        if facts.device.profile is None:
            use = use_of_whole(driver, handle)
            counted = self._gpm.whole(driver, handle, facts.key)
            if use.percent is not None:
                return counted._replace(used_percent=use.percent), "nvml"
            if counted.there:
                return counted, "gpm"
            return counted, "none" if use.lasting else "nvml"
        if not facts.fills_instance:
            return NOT_COUNTED, "none"
        if facts.parent is None or instance is None:
            return NOT_COUNTED, "none" if facts.settled else "gpm"
        counted = self._gpm.instance(driver, facts.parent.uuid or facts.key, facts.parent.handle, instance, facts.key)
        return counted, "gpm" if counted.there else "none"

    def _facts_of(self, driver: Driver, uuid: str, handle: Any, memory: Memory) -> _Facts:
        """As known, unless it is another device by its size, or something is still to be found out."""
        known = self._facts.get(uuid)
        same = known is not None and memory.total in (None, known.device.memory_bytes)
        if known is not None and same and (known.complete or self._clock() - known.read_at < _ASK_AGAIN_SECONDS):
            return known
        read = _facts_of_mig if uuid.startswith("MIG-") else _facts_of_whole
        facts = replace(read(driver, uuid, handle, memory), read_at=self._clock())
        self._facts[uuid] = facts
        return facts


_REOPEN_SECONDS, _REOPEN_SOON_SECONDS, _REOPEN_AT_MOST_SECONDS = 60.0, 10.0, 960.0
_ASK_AGAIN_SECONDS = 5.0
_LOOK_AROUND_SECONDS = 30.0
"""What a container is given it has from its start: later is the exception."""
UNNAMED = "MIG"
"""The profile of a MIG device whose profile the driver does not name: it is no whole GPU all the same."""


@dataclass(frozen=True)
class _Facts:
    """What does not move. `parent`: the GPU of a MIG device; `fills_instance`: the counters are this device's alone;
    `settled`: what the counters need and is missing will be missing in a second too."""

    device: Device
    parent: Gpu | None = None
    fills_instance: bool = True
    settled: bool = True
    read_at: float = 0.0

    @property
    def complete(self) -> bool:
        device = self.device
        if None in (device.memory_bytes, device.sm_count) or device.profile == UNNAMED:
            return False
        return device.profile is None or (self.parent is not None and device.gpu_instance_id is not None)

    @property
    def key(self) -> str:
        return self.device.identity


def _raise_refusal(driver: Driver) -> None:
    """Not one answer came: then the reason is the device's, not the call's."""
    if driver.refused is not None:
        raise driver.refused


def _facts_of_whole(driver: Driver, uuid: str, handle: Any, memory: Memory) -> _Facts:
    return _Facts(whole_gpu(driver, Gpu(handle, uuid, product_of(driver, handle)), memory))


def _facts_of_mig(driver: Driver, uuid: str, handle: Any, memory: Memory) -> _Facts:
    """In a container the GPU itself may answer "no permission" to everything; its handle is enough for the counters."""
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
    return _Facts(device, parent, alone, parent_settled and instance_settled)


def _asked(driver: Driver, name: str, handle: Any) -> tuple[Any, bool]:
    """Like ``Driver.ask``, with whether the same question would get the same answer in a second."""
    try:
        return driver.call(name, handle), True
    except NvmlFailure as failure:
        if failure.scope is not Scope.CALL:
            raise
        driver.note(failure)
        return None, failure.lasting


def _unnamed(uuid: str) -> Device:
    """A device of which nothing but its UUID is known, and that it has not been said to be gone."""
    return Device(uuid, "NVIDIA GPU", profile=UNNAMED if uuid.startswith("MIG-") else None)
