"""Reads the properties of a GPU or MIG device from its handle: name, MIG profile, memory, multiprocessors.

The amount of used memory is read here too, because the driver returns it together with the size.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

from hub_extensions.adapters.nvml.driver import Driver, NvmlFailure
from hub_extensions.adapters.nvml.states import Scope
from hub_extensions.core.gpu.devices import Device, Placement


@dataclass(frozen=True)
class Gpu:
    """A physical GPU: a whole GPU, or the GPU that a MIG device is a part of.

    Attributes:
        handle: its NVML handle; `None` if the driver does not give it.
        uuid: "" if the driver does not provide it here.
        product: name of the card.
        index: the driver's number of the GPU, for display only, because it may change at the next boot; `None` if not
            known.
    """

    handle: Any
    uuid: str
    product: str
    index: int | None = None


@dataclass(frozen=True)
class Mig:
    """The NVML handle of a MIG device, and the driver's numbers for it.

    Attributes:
        gpu_instance_id: number of the GPU instance that it belongs to; `None` if the driver does not report it.
        compute_instance_id: number of its compute instance; `None` if the driver does not report it.
    """

    handle: Any
    uuid: str
    gpu_instance_id: int | None
    compute_instance_id: int | None


def handle_of(driver: Driver, uuid: str) -> Any:
    """Return the handle of a GPU or MIG device. Raises `NvmlFailure`.

    The driver's own search may stop at another GPU that is lost (nvml.h, nvmlDeviceGetHandleByUUID). Each GPU is
    queried in turn in that case, and a failure of another GPU is ignored.
    """
    try:
        return driver.call("nvmlDeviceGetHandleByUUID", uuid)
    except NvmlFailure as failure:
        if not failure.concerns_device:
            raise
        found = _found_one_by_one(driver, uuid)
        if found is None:
            raise
        return found


def _found_one_by_one(driver: Driver, uuid: str) -> Any:
    for index in range(int(driver.ask("nvmlDeviceGetCount") or 0)):
        try:
            gpu = driver.call("nvmlDeviceGetHandleByIndex", index)
            if uuid.startswith("MIG-"):
                for slot in mig_slots(driver, gpu):
                    if slot.uuid == uuid:
                        return slot.handle
            elif driver.ask("nvmlDeviceGetUUID", gpu) == uuid:
                return gpu
        except NvmlFailure as failure:
            if failure.concerns_machine:
                raise
    return None


class MigSlot(NamedTuple):
    """One of the numbers under which a GPU can have a MIG device. The numbers in use have gaps.

    Attributes:
        number: the number, from 0.
        handle: NVML handle of the MIG device; `None` if no MIG device has this number, or if it cannot be read.
        uuid: UUID of the MIG device; "" if no MIG device has this number, or if it cannot be read.
        failure: why the MIG device with this number cannot be read; `None` if it was read.
    """

    number: int
    handle: Any = None
    uuid: str = ""
    failure: NvmlFailure | None = None


def mig_slots(driver: Driver, gpu: Any) -> Iterator[MigSlot]:
    """Yield each number that a MIG device of this GPU can have, with the MIG device that has the number now.

    Args:
        gpu: the NVML handle of a GPU in MIG mode.

    Raises:
        NvmlFailure: the GPU does not report how many numbers there are.
    """
    for number in range(int(driver.call("nvmlDeviceGetMaxMigDeviceCount", gpu))):
        try:
            handle = driver.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, number)
            yield MigSlot(number, handle, str(driver.call("nvmlDeviceGetUUID", handle)))
        except NvmlFailure as failure:
            yield MigSlot(number, failure=failure)


def whole_gpu(driver: Driver, gpu: Gpu, memory: Memory) -> Device:
    """Return the properties of a GPU that is not in MIG mode.

    Args:
        gpu: the GPU.
        memory: the GPU's memory, from `memory_of`.
    """
    return Device(gpu.uuid, gpu.product, memory_bytes=memory.total, sm_count=_sm_count(driver, gpu.handle))


def product_of(driver: Driver, handle: Any, otherwise: str = "NVIDIA GPU") -> str:
    """Return the name of a card.

    The driver adds the MIG profile to the name of a MIG device; it is left out here.

    Args:
        handle: NVML handle of the card, or of a MIG device on it.
        otherwise: what is returned if the driver does not report the name.
    """
    name = driver.ask("nvmlDeviceGetName", handle)
    return re.sub(r"\s*\bMIG \S+\s*$", "", str(name)) if name else otherwise


class NvmlUse(NamedTuple):
    """Utilization of a GPU, as NVML reports it.

    Attributes:
        percent: 0 to 100; `None` if the driver does not report it.
        lasting: the driver would give the same answer a second later.
    """

    percent: float | None
    lasting: bool = False


def use_of_whole(driver: Driver, handle: Any) -> NvmlUse:
    """Return how busy a whole GPU is. The driver does not report it for a GPU in MIG mode.

    Args:
        handle: NVML handle of the GPU.
    """
    try:
        return NvmlUse(float(min(driver.call("nvmlDeviceGetUtilizationRates", handle).gpu, 100)))
    except NvmlFailure as failure:
        if failure.scope is not Scope.CALL:
            raise
        driver.note(failure)
        return NvmlUse(None, failure.lasting)


class Memory(NamedTuple):
    """The memory of a device in bytes.

    Attributes:
        total: size of the memory; `None` if the driver does not report it.
        used: used memory; `None` if the driver does not report it.
    """

    total: int | None
    used: int | None


def memory_of(driver: Driver, handle: Any) -> Memory:
    """Return total and used memory of a device.

    Memory that the driver reserves for itself does not count as used, if the driver reports it separately. Both numbers
    are `None` for a card that shares its memory with the processor: the call is not supported, or the total is 0.

    Args:
        handle: NVML handle of the device.
    """
    name = "nvmlDeviceGetMemoryInfo"
    memory = driver.ask_either((name, handle, driver.library.nvmlMemory_v2), (name, handle))
    if memory is None or not int(memory.total):
        return Memory(None, None)
    return Memory(int(memory.total), int(memory.used))


def _sm_count(driver: Driver, handle: Any) -> int | None:
    """Return the number of SMs (streaming multiprocessors) of a whole GPU; `None` if it is not known.

    NVML reports the number of cores. The GPU's compute capability determines the number of cores per SM.

    Args:
        handle: NVML handle of the GPU.
    """
    capability = driver.ask("nvmlDeviceGetCudaComputeCapability", handle)
    cores = driver.ask("nvmlDeviceGetNumGpuCores", handle)
    if capability is None or cores is None:
        return None
    per_sm = _CORES_PER_SM.get((int(capability[0]), int(capability[1])))
    if per_sm is None or int(cores) % per_sm:
        return None
    return int(cores) // per_sm or None


# CUDA samples, Common/helper_cuda.h, _ConvertSMVer2Cores.
_CORES_PER_SM = {
    (7, 0): 64, (7, 2): 64, (7, 5): 64, (8, 0): 64, (8, 6): 128, (8, 7): 128, (8, 9): 128,
    (9, 0): 128, (10, 0): 128, (10, 1): 128, (10, 3): 128, (11, 0): 128, (12, 0): 128, (12, 1): 128,
}  # fmt: skip


def mig_device(driver: Driver, gpu: Gpu, mig: Mig) -> Device | None:
    """Return the properties of a MIG device; `None` if the driver does not name its profile.

    Args:
        gpu: the GPU that the MIG device is a part of.
        mig: handle and numbers of the MIG device.
    """
    attributes = driver.ask("nvmlDeviceGetAttributes", mig.handle)
    total = memory_of(driver, mig.handle).total
    if total is None and attributes is not None:
        total = int(attributes.memorySizeMB) << 20
    instance = None if mig.gpu_instance_id is None else _instance(driver, gpu, mig.gpu_instance_id)
    profile = _profile_name(driver, gpu, mig, instance, attributes)
    if profile is None:
        return None
    return Device(
        mig.uuid,
        gpu.product,
        profile=profile,
        gpu_instance_id=mig.gpu_instance_id,
        compute_instance_id=mig.compute_instance_id,
        placement=None if instance is None else instance.placement,
        parent_uuid=gpu.uuid or None,
        memory_bytes=total,
        sm_count=None if attributes is None else int(attributes.multiprocessorCount) or None,
        compute_slices=None if attributes is None else int(attributes.computeInstanceSliceCount) or None,
    )


def _profile_name(driver: Driver, gpu: Gpu, mig: Mig, instance: Instance | None, attributes: Any) -> str | None:
    """Return the MIG profile of a device; `None` if nothing names it.

    The name of the device is used first, then the name of the instance's profile. Otherwise the profile is computed
    from the sizes of the device and the GPU.

    Args:
        gpu: the GPU that the device is a part of.
        mig: handle and numbers of the device.
        instance: the GPU instance of the device; `None` if the driver does not describe it.
        attributes: the driver's attributes of the device; `None` if it does not report them.
    """
    named = after_mig(driver.ask("nvmlDeviceGetName", mig.handle))
    if named is not None:
        return named
    if attributes is None:
        return None
    slices, of = int(attributes.computeInstanceSliceCount), int(attributes.gpuInstanceSliceCount)
    part = f"{slices}c." if slices < of else ""
    if instance is not None:
        for info in profiles(driver, gpu):
            named = after_mig(info.name) if int(info.id) == instance.profile_id else None
            if named is not None:
                return part + named
    parent_total = memory_of(driver, gpu.handle).total
    if not parent_total or not of:
        return None
    return f"{part}{of}g.{_advertised_gb(parent_total, int(attributes.memorySizeMB) << 20)}gb"


def after_mig(name: object) -> str | None:
    """Return the MIG profile in a device's name: ``1g.5gb`` from ``NVIDIA A100-SXM4-40GB MIG 1g.5gb`` or from ``MIG
    1g.5gb``; `None` if the name does not contain one.
    """
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name or "")
    match = re.search(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb\S*)\s*$", text)
    return match.group(1) if match else None


def _advertised_gb(parent_bytes: int, mig_bytes: int) -> int:
    """Return the number before "gb" in the name of a MIG profile.

    It is the memory in eighths of the GPU, rounded up to gigabytes (NVIDIA go-nvlib, getMigMemorySizeGB).

    Args:
        parent_bytes: memory of the whole GPU.
        mig_bytes: memory of the MIG device.
    """
    eighths = math.ceil(mig_bytes / parent_bytes * 8)
    return round(eighths / 8 * math.ceil(parent_bytes / 2**30))


@dataclass(frozen=True)
class Instance:
    """A GPU instance (a slice of a GPU), which owns the memory and multiprocessors of its MIG devices.

    Attributes:
        handle: its NVML handle.
        id: its number on the GPU.
        profile_id: NVML's number of its MIG profile.
        placement: which slices of the GPU it occupies.
    """

    handle: Any
    id: int
    profile_id: int
    placement: Placement


def _instance(driver: Driver, gpu: Gpu, instance_id: int) -> Instance | None:
    handle = driver.ask("nvmlDeviceGetGpuInstanceById", gpu.handle, instance_id)
    return None if handle is None else instance_of(driver, handle)


def instance_of(driver: Driver, handle: Any) -> Instance | None:
    """Return the GPU instance with this handle; `None` if the driver does not describe it."""
    info = driver.ask("nvmlGpuInstanceGetInfo", handle)
    if info is None:
        return None
    placement = Placement(int(info.placement.start), int(info.placement.size))
    return Instance(handle, int(info.id), int(info.profileId), placement)


def profiles(driver: Driver, gpu: Gpu) -> list[Any]:
    """Return what the driver reports about each profile of GPU instances that the card supports (NVML's structures)."""
    asked = (driver.ask("nvmlDeviceGetGpuInstanceProfileInfo", gpu.handle, n) for n in range(_profile_count(driver)))
    return [info for info in asked if info is not None]


def _profile_count(driver: Driver) -> int:
    return int(driver.library.NVML_GPU_INSTANCE_PROFILE_COUNT)
