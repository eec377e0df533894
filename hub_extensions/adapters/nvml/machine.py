"""Reads all GPUs of this machine: whole ones, the MIG devices of those in MIG mode, and how busy they are.

Each time the properties are queried again, so that a new partitioning is seen at once.
"""

from __future__ import annotations

import ctypes
import math
from collections.abc import Mapping
from dataclasses import replace
from typing import Any

from hub_extensions.adapters.nvml.devices import (
    Gpu,
    Instance,
    Mig,
    after_mig,
    instance_of,
    memory_of,
    mig_device,
    mig_slots,
    product_of,
    profiles,
    whole_gpu,
)
from hub_extensions.adapters.nvml.driver import Driver, NvmlFailure
from hub_extensions.adapters.nvml.reading import Facts, ReadingBuilder
from hub_extensions.adapters.nvml.states import FUNCTION_NOT_FOUND, INVALID_ARGUMENT, NOT_FOUND, NOT_SUPPORTED, Scope
from hub_extensions.core.gpu.devices import Device


class MachineDevices:
    """Reads all devices of the machine, in the driver's order. Devices of a GPU that does not respond stay as last
    seen.

    Attributes:
        reopen_after: seconds after opening at which the driver has to be reopened; `None` if it need not be.
    """

    def __init__(self) -> None:
        self.reopen_after: float | None = None
        self._known: dict[int, dict[str, Device]] = {}

    def read(self, reading: ReadingBuilder) -> None:
        """Add the devices to `reading`. For a GPU that does not respond, its devices of the last reading are added.

        A GPU that is lost is left out.

        Raises:
            NvmlFailure: the driver as a whole does not work, or no GPU responds and no device is known from earlier. In
                the second case nothing is raised if the failure of the last GPU is that it is lost; the reading is then
                empty.
        """
        self.reopen_after = 0.0
        count = int(reading.driver.call("nvmlDeviceGetCount"))
        failures: list[NvmlFailure] = []
        for index in range(count):
            try:
                self._read_gpu(index, reading)
            except NvmlFailure as failure:
                if failure.concerns_machine:
                    raise
                failures.append(failure)
                self._miss_gpu(index, failure, reading)
        if failures and len(failures) == count and not reading.devices and not failures[-1].concerns_device:
            raise failures[-1]
        self.reopen_after = _REOPEN_SECONDS if failures else None

    def forget(self, *, reopening: bool) -> None:
        """Do nothing: the known devices are kept, because they probably still exist after the driver is reopened."""

    def _read_gpu(self, index: int, reading: ReadingBuilder) -> None:
        """Add one GPU and its devices to `reading`. If the GPU is lost meanwhile, nothing of it is added.

        Args:
            index: the driver's number of the GPU.
            reading: the reading so far.
        """
        known = self._known.get(index, {})
        one = ReadingBuilder(reading.at, reading.driver, reading.counters, reading.own)
        complete = _read_gpu(one, index, known)
        self._known[index] = one.devices if complete else {**known, **one.devices}
        reading.devices.update(self._known[index])
        reading.samples.update(one.samples)
        reading.problems.extend(one.problems)

    def _miss_gpu(self, index: int, failure: NvmlFailure, reading: ReadingBuilder) -> None:
        if failure.concerns_device:
            self._known.pop(index, None)
            reading.problems.append(f"GPU {index} is lost. {failure.reason.message}")
            return
        # In doubt its devices are still there: somebody may be working on them.
        reading.problems.append(f"GPU {index} cannot be read now. {failure.reason.message}")
        for uuid, device in self._known.get(index, {}).items():
            reading.devices.setdefault(uuid, device)


_REOPEN_SECONDS = 60.0
_KnownDevices = Mapping[str, Device]


def _read_gpu(reading: ReadingBuilder, index: int, known: _KnownDevices) -> bool:
    """Add a GPU to `reading`: the GPU itself, or its MIG devices if it is partitioned.

    Args:
        index: the driver's number of the GPU.
        known: the devices of this GPU in the last reading, by uuid.

    Returns:
        Whether all parts of the GPU responded.
    """
    driver = reading.driver
    handle = driver.call("nvmlDeviceGetHandleByIndex", index)
    gpu = Gpu(handle, str(driver.call("nvmlDeviceGetUUID", handle)), product_of(driver, handle), index)
    if _in_mig_mode(driver, handle):
        return _read_mig_devices(reading, gpu, known)
    memory = memory_of(driver, handle)
    reading.add(handle, Facts(_steady(whole_gpu(driver, gpu, memory), known)), memory.used)
    return True


def _read_mig_devices(reading: ReadingBuilder, gpu: Gpu, known: _KnownDevices) -> bool:
    migs, complete = _mig_handles(reading, gpu)
    instances = [mig.gpu_instance_id for mig in migs]
    for mig in migs:
        device = mig_device(reading.driver, gpu, mig)
        if device is None:
            reading.problems.append(
                f"GPU {gpu.index}: the driver does not name the MIG profile of {mig.uuid}, so it is left out."
            )
            continue
        # The counters belong to the GPU instance. If two MIG devices share it, the use of neither is known.
        facts = Facts(_steady(device, known), gpu, alone=instances.count(mig.gpu_instance_id) == 1)
        reading.add(mig.handle, facts, memory_of(reading.driver, mig.handle).used)
    for device in _instances_without_compute(reading.driver, gpu, {i for i in instances if i is not None}):
        reading.devices[device.uuid] = _steady(device, known)
    if not reading.devices and complete:
        reading.problems.append(
            f"GPU {gpu.index} is in MIG mode and has no MIG device: nobody can use it until it is cut"
            " (nvidia-smi mig -cgi … -C) or MIG mode is switched off."
        )
    return complete


def _mig_handles(reading: ReadingBuilder, gpu: Gpu) -> tuple[list[Mig], bool]:
    """Return the MIG devices that respond, and whether all of them did."""
    driver, found, complete = reading.driver, [], True
    for slot in mig_slots(driver, gpu.handle):
        failure = slot.failure
        if failure is None:
            instance = driver.ask("nvmlDeviceGetGpuInstanceId", slot.handle)
            compute = driver.ask("nvmlDeviceGetComputeInstanceId", slot.handle)
            found.append(Mig(slot.handle, slot.uuid, instance, compute))
        elif failure.scope is not Scope.CALL:
            raise failure
        elif failure.code not in (NOT_FOUND, INVALID_ARGUMENT):  # these two mean a gap in the numbers
            complete = False
            reading.problems.append(
                f"MIG device {slot.number} of GPU {gpu.index} cannot be read now. {failure.reason.message}"
            )
    return found, complete


def _steady(device: Device, known: _KnownDevices) -> Device:
    """Return `device`, completed with properties of the last reading that could not be read this time.

    With missing properties, `device` would look like another device than in the last reading.

    Args:
        known: the devices of this GPU in the last reading, by uuid.
    """
    before = known.get(device.uuid)
    if before is None or before.profile != device.profile:
        return device
    if device.gpu_instance_id not in (None, before.gpu_instance_id):
        return device
    return replace(
        device,
        gpu_instance_id=before.gpu_instance_id,
        placement=device.placement or before.placement,
        memory_bytes=device.memory_bytes or before.memory_bytes,
        sm_count=device.sm_count or before.sm_count,
        compute_slices=device.compute_slices or before.compute_slices,
    )


def _in_mig_mode(driver: Driver, handle: Any) -> bool:
    try:
        current: int = driver.call("nvmlDeviceGetMigMode", handle)[0]
    except NvmlFailure as failure:
        if failure.code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
            return False  # a card or a driver without MIG
        raise
    return current == 1


def _instances_without_compute(driver: Driver, gpu: Gpu, seen: set[int]) -> list[Device]:
    """Return the GPU instances that nobody can use, because they have no compute instance.

    The driver usually lists such instances for root only; otherwise the result is empty.

    Args:
        gpu: the GPU.
        seen: ids of the GPU instances that are known already and are left out. The ids of the returned ones are added.
    """
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
    """Return whether a GPU instance has a compute instance, although no MIG device of it is visible.

    This is so in a container that hides the MIG devices of the instance.

    Args:
        instance: NVML handle of the GPU instance.
    """
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
