"""The GPUs of this machine, read from the NVIDIA driver through ``pynvml`` (the package nvidia-ml-py).

Whole GPUs, the MIG devices of those in MIG mode, and what each of them does now. The library is opened on the first
read and opened again after a failure, so a driver that is loaded later is found without a restart. One failing call on
one device never hides the others. Blocking calls: one thread calls `read`.
Not here: who may have a device, and the simulated ones (``simulated/gpus.py``).
"""

from __future__ import annotations

import ctypes
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from hub_extensions.adapters.nvml.devices import (
    Gpu,
    Instance,
    Mig,
    after_mig,
    instance_of,
    memory_of,
    mig_device,
    product_of,
    profiles,
    use_of_whole,
    whole_gpu,
)
from hub_extensions.adapters.nvml.driver import Driver, NvmlFailure, OpenDriver
from hub_extensions.adapters.nvml.gpm import NOT_COUNTED, Counted, InstanceUse
from hub_extensions.adapters.nvml.processes import ProcessList, processes_on
from hub_extensions.adapters.nvml.states import FUNCTION_NOT_FOUND, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED
from hub_extensions.core.gpu.devices import Device, InventoryReading
from hub_extensions.core.gpu.samples import DeviceSample


class Nvml:
    """Reads this machine's GPUs. `clock` runs in seconds: it paces reopening, and the use of MIG devices."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._open = OpenDriver(clock)
        self._gpm = InstanceUse(clock)
        self._known: dict[int, dict[str, Device]] = {}
        self._ailing = False

    def read(self, now: datetime) -> InventoryReading:
        """Devices and samples as they are now, stamped `now`. Raises `GpusUnavailable` when nothing can be read.

        A device whose GPU does not answer for now is listed as it was seen last, without a sample; a GPU that is lost
        is not listed. Both leave a sentence in `problems`.
        """
        if self._ailing and self._open.open_for() >= _REOPEN_SECONDS:
            self.close()
        look = _Look(now)
        try:
            driver = self._open.get()
            count = int(driver.call("nvmlDeviceGetCount"))
            for index in range(count):
                self._read_gpu(driver, index, look)
        except NvmlFailure as failure:
            self.close()
            raise failure.as_unavailable() from failure
        if count and look.silent == count and not look.devices and not look.last.concerns_device:
            self.close()
            raise look.last.as_unavailable()
        self._ailing = look.silent > 0
        self._gpm.keep_only(driver, look.instances)
        return InventoryReading(now, tuple(look.devices.values()), look.samples, tuple(look.problems))

    def close(self) -> None:
        """Give the driver back. The next `read` opens it again."""
        self._ailing = False
        self._open.close(self._gpm.forget)

    def _read_gpu(self, driver: Driver, index: int, look: _Look) -> None:
        """One GPU, whole or cut, into `look`. Raises only what concerns the whole machine."""
        known = self._known.get(index, {})
        mine = _Look(look.at)
        try:
            gpu = _gpu(driver, index)
            if gpu.mig_mode:
                self._read_mig_devices(driver, gpu, mine)
            else:
                _read_whole(driver, gpu, mine)
        except NvmlFailure as failure:
            if failure.concerns_machine:
                raise
            look.silent += 1
            look.last = failure
            if failure.concerns_device:
                self._known.pop(index, None)
                look.problems.append(f"GPU {index} is lost. {failure.detail}")
                return
            # In doubt its devices are still there: somebody may be working on them.
            look.problems.append(f"GPU {index} cannot be read now. {failure.detail}")
            look.keep(known)
            return
        devices = {uuid: _steady(device, known.get(uuid)) for uuid, device in mine.devices.items()}
        if mine.silent:
            devices = {**known, **devices}
        self._known[index] = devices
        look.take(mine, devices)

    def _read_mig_devices(self, driver: Driver, gpu: Gpu, look: _Look) -> None:
        listed = _mig_handles(driver, gpu, look)
        instances = [mig.gpu_instance_id for mig in listed]
        for mig in listed:
            device = mig_device(driver, gpu, mig)
            if device is None:
                look.problems.append(
                    f"GPU {gpu.index}: the driver does not name the MIG profile of {mig.uuid}, so it is left out."
                )
                continue
            look.devices[device.uuid] = device
            # The counters are the GPU instance's: where two MIG devices share it, neither one's use is known.
            alone = instances.count(mig.gpu_instance_id) == 1
            counted = NOT_COUNTED
            if alone and mig.gpu_instance_id is not None:
                look.instances.append(device.identity)
                counted = self._gpm.instance(driver, gpu.uuid, gpu.handle, mig.gpu_instance_id, device.identity)
            used = memory_of(driver, mig.handle).used
            look.add_sample(device.uuid, counted, used, processes_on(driver, mig.handle), "gpm")
        for device in _instances_without_compute(driver, gpu, {i for i in instances if i is not None}):
            look.devices[device.uuid] = device
        if not look.devices and not look.silent:
            look.problems.append(
                f"GPU {gpu.index} is in MIG mode and has no MIG device: nobody can use it until it is cut"
                " (nvidia-smi mig -cgi … -C) or MIG mode is switched off."
            )


_REOPEN_SECONDS = 60.0


@dataclass
class _Look:
    """What one read gathers. `silent`: GPUs or MIG devices that did not answer; `instances`: whose use was counted."""

    at: datetime
    devices: dict[str, Device] = field(default_factory=dict)
    samples: dict[str, DeviceSample] = field(default_factory=dict)
    problems: list[str] = field(default_factory=list)
    instances: list[str] = field(default_factory=list)
    silent: int = 0
    last: NvmlFailure = field(default_factory=lambda: NvmlFailure(0))

    def add_sample(
        self, uuid: str, counted: Counted, memory_used: int | None, listed: ProcessList, source: str
    ) -> None:
        """Add what was read of one device, if anything was. `source` of the use, where there is one."""
        if counted.used_percent is None and memory_used is None and listed.pids is None:
            return  # nothing could be read: that is no sample
        self.samples[uuid] = DeviceSample(
            uuid,
            self.at,
            counted.used_percent,
            memory_used,
            listed.pids,
            source if counted.there else "none",
            listed.memory_by_pid,
            counted.counters,
        )

    def take(self, gpu: _Look, devices: Mapping[str, Device]) -> None:
        """Add what was read of one GPU."""
        self.devices.update(devices)
        self.samples.update(gpu.samples)
        self.problems.extend(gpu.problems)
        self.instances.extend(gpu.instances)

    def keep(self, devices: Mapping[str, Device]) -> None:
        """Add devices as they were seen before, unless they were read now."""
        for uuid, device in devices.items():
            self.devices.setdefault(uuid, device)


def _steady(device: Device, before: Device | None) -> Device:
    """The same device with what only this one reading missed: it must not look like another device for that."""
    if before is None or (before.profile, before.gpu_instance_id) != (device.profile, device.gpu_instance_id):
        return device
    return replace(
        device,
        placement=device.placement or before.placement,
        memory_bytes=device.memory_bytes or before.memory_bytes,
        sm_count=device.sm_count or before.sm_count,
        compute_slices=device.compute_slices or before.compute_slices,
    )


# ---------------------------------------------------------------- whole GPUs


def _gpu(driver: Driver, index: int) -> Gpu:
    handle = driver.call("nvmlDeviceGetHandleByIndex", index)
    uuid = str(driver.call("nvmlDeviceGetUUID", handle))
    return Gpu(handle, uuid, product_of(driver, handle), index, _in_mig_mode(driver, handle))


def _in_mig_mode(driver: Driver, handle: Any) -> bool:
    try:
        current: int = driver.call("nvmlDeviceGetMigMode", handle)[0]
    except NvmlFailure as failure:
        if failure.code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
            return False  # a card or a driver without MIG
        raise
    return current == 1


def _read_whole(driver: Driver, gpu: Gpu, look: _Look) -> None:
    memory = memory_of(driver, gpu.handle)
    device = whole_gpu(driver, gpu, memory)
    look.devices[device.uuid] = device
    use = use_of_whole(driver, gpu.handle)
    counted = Counted(not use.lasting, use.percent)  # nobody asked for the counters of a whole GPU here
    look.add_sample(gpu.uuid, counted, memory.used, processes_on(driver, gpu.handle), "nvml")


# ---------------------------------------------------------------- MIG devices


def _mig_handles(driver: Driver, gpu: Gpu, look: _Look) -> list[Mig]:
    found = []
    for index in range(int(driver.call("nvmlDeviceGetMaxMigDeviceCount", gpu.handle))):
        try:
            handle = driver.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu.handle, index)
            uuid = str(driver.call("nvmlDeviceGetUUID", handle))
        except NvmlFailure as failure:
            if failure.concerns_machine or failure.concerns_device:
                raise
            if failure.code not in (NOT_FOUND, INVALID_ARGUMENT):  # these two: the numbers have gaps
                look.silent += 1
                look.problems.append(f"MIG device {index} of GPU {gpu.index} cannot be read now. {failure.detail}")
            continue
        instance = driver.ask("nvmlDeviceGetGpuInstanceId", handle)
        compute = driver.ask("nvmlDeviceGetComputeInstanceId", handle)
        found.append(Mig(handle, uuid, instance, compute))
    return found


def _instances_without_compute(driver: Driver, gpu: Gpu, seen: set[int]) -> list[Device]:
    """GPU instances nobody can run on, where the driver lets us list them (an ordinary account it usually does not)."""
    found: list[Device] = []
    for info in profiles(driver, gpu):
        room = (driver.library.c_nvmlGpuInstance_t * max(int(info.instanceCount), 1))()
        count = ctypes.c_uint(len(room))
        if driver.ask("nvmlDeviceGetGpuInstances", gpu.handle, info.id, room, ctypes.byref(count)) is None:
            continue
        for handle in room[: count.value]:
            instance = instance_of(driver, handle)
            if instance is None or instance.id in seen or _has_compute_instance(driver, handle):
                continue
            seen.add(instance.id)
            found.append(_idle_instance(gpu, instance, info))
    return found


def _has_compute_instance(driver: Driver, instance: Any) -> bool:
    """In a container MIG devices can be hidden from us: an instance without one may still have a compute instance."""
    try:
        driver.call("nvmlGpuInstanceGetComputeInstanceById", instance, 0)
    except NvmlFailure as failure:
        return failure.code != NOT_FOUND
    return True


def _idle_instance(gpu: Gpu, instance: Instance, info: Any) -> Device:
    return Device(
        f"{gpu.uuid}/gpu-instance-{instance.id}",
        gpu.product,
        profile=after_mig(info.name) or f"{int(info.sliceCount)}g.{math.ceil(int(info.memorySizeMB) / 1024)}gb",
        gpu_instance_id=instance.id,
        placement=instance.placement,
        parent_uuid=gpu.uuid,
        memory_bytes=int(info.memorySizeMB) << 20,
        sm_count=int(info.multiprocessorCount) or None,
        compute_slices=int(info.sliceCount) or None,
        usable=False,
        reason=f"GPU instance {instance.id} of GPU {gpu.index} has no compute instance"
        f" (nvidia-smi mig -i {gpu.index} -gi {instance.id} -cci makes one).",
    )
