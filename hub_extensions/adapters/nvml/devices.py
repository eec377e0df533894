"""What a GPU or a MIG device is, as the driver tells it by its handle: name, MIG profile, memory, multiprocessors.

Facts that stay while the device is there, and the one figure (used memory) that comes with them. Not here: which
devices there are (``machine.py``, ``container.py``), and who runs on them (``processes.py``).
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
    """A whole GPU, or the one a MIG device was cut from.

    Attributes:
        uuid: "" where the driver does not tell it here.
        index: for people's eyes only: after the next start it may be another. None where nobody counted.
    """

    handle: Any
    uuid: str
    product: str
    index: int | None = None


@dataclass(frozen=True)
class Mig:
    """A MIG device's handle and the driver's numbers for it."""

    handle: Any
    uuid: str
    gpu_instance_id: int | None
    compute_instance_id: int | None


def handle_of(driver: Driver, uuid: str) -> Any:
    """The handle of a GPU or MIG device. Raises `NvmlFailure`.

    The driver's own search may break off at another GPU that is lost (nvml.h, nvmlDeviceGetHandleByUUID); then each GPU
    is asked in turn, and only this device's own failure counts.
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
    """A place for a MIG device on a GPU; their numbers have gaps. `failure`: why nothing is known of it."""

    number: int
    handle: Any = None
    uuid: str = ""
    failure: NvmlFailure | None = None


def mig_slots(driver: Driver, gpu: Any) -> Iterator[MigSlot]:
    """The MIG devices of a GPU in MIG mode, by its handle. Raises `NvmlFailure` where their number is not told."""
    for number in range(int(driver.call("nvmlDeviceGetMaxMigDeviceCount", gpu))):
        try:
            handle = driver.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu, number)
            yield MigSlot(number, handle, str(driver.call("nvmlDeviceGetUUID", handle)))
        except NvmlFailure as failure:
            yield MigSlot(number, failure=failure)


def whole_gpu(driver: Driver, gpu: Gpu, memory: Memory) -> Device:
    """A GPU that is not in MIG mode."""
    return Device(gpu.uuid, gpu.product, memory_bytes=memory.total, sm_count=_sm_count(driver, gpu.handle))


def product_of(driver: Driver, handle: Any, otherwise: str = "NVIDIA GPU") -> str:
    """The card's name, without the MIG profile that the driver adds to a MIG device's."""
    name = driver.ask("nvmlDeviceGetName", handle)
    return re.sub(r"\s*\bMIG \S+\s*$", "", str(name)) if name else otherwise


class NvmlUse(NamedTuple):
    """`percent`: 0 to 100; None where the driver does not tell. `lasting`: it will not tell in a second either."""

    percent: float | None
    lasting: bool = False


def use_of_whole(driver: Driver, handle: Any) -> NvmlUse:
    """How much a GPU is in use; never known of one in MIG mode."""
    try:
        return NvmlUse(float(min(driver.call("nvmlDeviceGetUtilizationRates", handle).gpu, 100)))
    except NvmlFailure as failure:
        if failure.scope is not Scope.CALL:
            raise
        driver.note(failure)
        return NvmlUse(None, failure.lasting)


class Memory(NamedTuple):
    """Bytes; None is not known."""

    total: int | None
    used: int | None


def memory_of(driver: Driver, handle: Any) -> Memory:
    """Total and used. The second form of the call leaves out what the driver keeps for itself.

    A card that shares its memory with the processor has none of its own to tell: not supported, or a total of 0.
    """
    name = "nvmlDeviceGetMemoryInfo"
    memory = driver.ask_either((name, handle, driver.library.nvmlMemory_v2), (name, handle))
    if memory is None or not int(memory.total):
        return Memory(None, None)
    return Memory(int(memory.total), int(memory.used))


def _sm_count(driver: Driver, handle: Any) -> int | None:
    """NVML tells a whole GPU's cores, not its SMs; how many cores an SM has follows from its compute capability."""
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
    """A MIG device; None where the driver does not name its profile. `gpu` is the one it was cut from."""
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
    """The profile as the driver names the device; else as it names the instance's profile; else by its figures."""
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
    """``1g.5gb`` of ``NVIDIA A100-SXM4-40GB MIG 1g.5gb`` or of ``MIG 1g.5gb``."""
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name or "")
    match = re.search(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb\S*)\s*$", text)
    return match.group(1) if match else None


def _advertised_gb(parent_bytes: int, mig_bytes: int) -> int:
    """The "gb" of a profile's name: eighths of the GPU, rounded up (NVIDIA go-nvlib, getMigMemorySizeGB)."""
    eighths = math.ceil(mig_bytes / parent_bytes * 8)
    return round(eighths / 8 * math.ceil(parent_bytes / 2**30))


@dataclass(frozen=True)
class Instance:
    """A GPU instance: what a MIG device's memory and multiprocessors are cut from."""

    handle: Any
    id: int
    profile_id: int
    placement: Placement


def _instance(driver: Driver, gpu: Gpu, instance_id: int) -> Instance | None:
    handle = driver.ask("nvmlDeviceGetGpuInstanceById", gpu.handle, instance_id)
    return None if handle is None else instance_of(driver, handle)


def instance_of(driver: Driver, handle: Any) -> Instance | None:
    """The instance with this handle; None where the driver does not tell."""
    info = driver.ask("nvmlGpuInstanceGetInfo", handle)
    if info is None:
        return None
    placement = Placement(int(info.placement.start), int(info.placement.size))
    return Instance(handle, int(info.id), int(info.profileId), placement)


def profiles(driver: Driver, gpu: Gpu) -> list[Any]:
    """What the card can be cut into. The numbers are the library's own, and a card knows only some of them."""
    asked = (driver.ask("nvmlDeviceGetGpuInstanceProfileInfo", gpu.handle, n) for n in range(_profile_count(driver)))
    return [info for info in asked if info is not None]


def _profile_count(driver: Driver) -> int:
    return int(driver.library.NVML_GPU_INSTANCE_PROFILE_COUNT)
