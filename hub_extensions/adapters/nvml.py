"""The GPUs of this machine, read from the NVIDIA driver through ``pynvml`` (the package nvidia-ml-py).

Whole GPUs, the MIG devices of those in MIG mode, and what each of them does now. The library is opened on the first
read and opened again after a failure, so a driver that is loaded later is found without a restart. One failing call on
one device never hides the others. Blocking calls: one thread calls `read`.
Not here: who may have a device, and the simulated ones (``simulated.py``).
"""

from __future__ import annotations

import ctypes
import math
import os
import re
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from datetime import datetime
from typing import Any

from hub_extensions.adapters.nvml_driver import (
    FUNCTION_NOT_FOUND,
    INVALID_ARGUMENT,
    NOT_FOUND,
    NOT_SUPPORTED,
    Driver,
    NvmlFailure,
)
from hub_extensions.adapters.nvml_gpm import InstanceUse
from hub_extensions.core.inventory import Device, InventoryReading, Placement
from hub_extensions.core.usage import DeviceSample


class Nvml:
    """Reads this machine's GPUs. `clock` runs in seconds: it paces reopening, and the use of MIG devices."""

    def __init__(self, *, clock: Callable[[], float] = time.monotonic) -> None:
        self._clock = clock
        self._driver: Driver | None = None
        self._gpm = InstanceUse(clock)
        self._known: dict[int, dict[str, Device]] = {}
        self._ailing = False
        self._opened_at = 0.0

    def read(self, now: datetime) -> InventoryReading:
        """Devices and samples as they are now, stamped `now`. Raises `GpusUnavailable` when nothing can be read.

        A device whose GPU does not answer for now is listed as it was seen last, without a sample; a GPU that is lost
        is not listed. Both leave a sentence in `problems`.
        """
        if self._ailing and self._clock() - self._opened_at >= _REOPEN_SECONDS:
            self.close()
        look = _Look(now)
        try:
            driver = self._opened()
            count = int(driver.call("nvmlDeviceGetCount"))
            for index in range(count):
                self._read_gpu(driver, index, look)
        except NvmlFailure as failure:
            self.close()
            raise failure.as_unavailable() from failure
        if count and look.silent == count and not look.devices and look.last.word != "lost":
            self.close()
            raise look.last.as_unavailable()
        self._ailing = look.silent > 0
        self._gpm.keep_only(driver, look.instances)
        return InventoryReading(now, tuple(look.devices.values()), look.samples, tuple(look.problems))

    def close(self) -> None:
        """Give the driver back. The next `read` opens it again."""
        driver, self._driver = self._driver, None
        self._ailing = False
        if driver is None:
            return
        self._gpm.keep_only(driver, ())
        self._gpm.forget_support()
        driver.let_go("nvmlShutdown")

    def _opened(self) -> Driver:
        if self._driver is None:
            driver = Driver()
            driver.call("nvmlInit")
            self._driver, self._opened_at = driver, self._clock()
        return self._driver

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
            if failure.word == "lost":
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

    def _read_mig_devices(self, driver: Driver, gpu: _Gpu, look: _Look) -> None:
        listed = _mig_handles(driver, gpu, look)
        instances = [mig.gpu_instance_id for mig in listed]
        for mig in listed:
            device = _mig_device(driver, gpu, mig)
            if device is None:
                look.problems.append(
                    f"GPU {gpu.index}: the driver does not name the MIG profile of {mig.uuid}, so it is left out."
                )
                continue
            look.devices[device.uuid] = device
            # The counters are the GPU instance's: where two MIG devices share it, neither one's use is known.
            alone = instances.count(mig.gpu_instance_id) == 1
            counted = alone and self._gpm.supported(driver, gpu.uuid, gpu.handle)
            use = None
            if counted and mig.gpu_instance_id is not None:
                look.instances.append(device.identity)
                use = self._gpm.use(driver, gpu.handle, mig.gpu_instance_id, device.identity)
            used, pids = _memory(driver, mig.handle)[1], _pids(driver, mig.handle)
            look.add_sample(device.uuid, use, used, pids, "gpm" if counted else "none")
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
        self, uuid: str, use: float | None, memory_used: int | None, pids: tuple[int, ...] | None, source: str
    ) -> None:
        if use is None and memory_used is None and pids is None:
            return  # nothing could be read: that is no sample
        self.samples[uuid] = DeviceSample(uuid, self.at, use, memory_used, pids, source)

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


@dataclass(frozen=True)
class _Gpu:
    index: int
    handle: Any
    uuid: str
    product: str
    mig_mode: bool


def _gpu(driver: Driver, index: int) -> _Gpu:
    handle = driver.call("nvmlDeviceGetHandleByIndex", index)
    uuid = str(driver.call("nvmlDeviceGetUUID", handle))
    product = str(driver.ask("nvmlDeviceGetName", handle) or "NVIDIA GPU")
    return _Gpu(index, handle, uuid, product, _in_mig_mode(driver, handle))


def _in_mig_mode(driver: Driver, handle: Any) -> bool:
    try:
        current: int = driver.call("nvmlDeviceGetMigMode", handle)[0]
    except NvmlFailure as failure:
        if failure.code in (NOT_SUPPORTED, FUNCTION_NOT_FOUND):
            return False  # a card or a driver without MIG
        raise
    return current == 1


def _read_whole(driver: Driver, gpu: _Gpu, look: _Look) -> None:
    total, used = _memory(driver, gpu.handle)
    device = Device(gpu.uuid, gpu.product, memory_bytes=total, sm_count=_sm_count(driver, gpu.handle))
    rates = driver.ask("nvmlDeviceGetUtilizationRates", gpu.handle)
    use = None if rates is None else float(min(rates.gpu, 100))
    look.devices[device.uuid] = device
    look.add_sample(gpu.uuid, use, used, _pids(driver, gpu.handle), "none" if use is None else "nvml")


def _memory(driver: Driver, handle: Any) -> tuple[int | None, int | None]:
    """Total and used bytes. The second form of the call leaves out what the driver keeps for itself."""
    memory = driver.ask("nvmlDeviceGetMemoryInfo", handle, driver.library.nvmlMemory_v2)
    if memory is None:
        memory = driver.ask("nvmlDeviceGetMemoryInfo", handle)
    if memory is None:
        return None, None
    return int(memory.total), int(memory.used)


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


# ---------------------------------------------------------------- processes


def _pids(driver: Driver, handle: Any) -> tuple[int, ...] | None:
    """Compute processes on the device, MPS clients too; None where the driver lists none that we could know."""
    running = driver.ask("nvmlDeviceGetComputeRunningProcesses_v3", handle)
    if running is None:  # a driver before R510
        running = driver.ask("nvmlDeviceGetComputeRunningProcesses_v2", handle)
    if running is None:
        return None
    clients = driver.ask("nvmlDeviceGetMPSComputeRunningProcesses_v3", handle) or ()
    pids = sorted({int(process.pid) for process in (*running, *clients)})
    # In a container some drivers list the host's pids, which name other processes here, or none.
    if not _sees_all_processes() and not all(map(_exists, pids)):
        return None
    return tuple(pids)


def _sees_all_processes() -> bool:
    """Is this the machine's own PID namespace? The kernel gives it a fixed number (PROC_PID_INIT_INO)."""
    try:
        return os.readlink("/proc/self/ns/pid") == "pid:[4026531836]"
    except OSError:
        return False


def _exists(pid: int) -> bool:
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except PermissionError:
        return True
    return True


# ---------------------------------------------------------------- MIG devices


@dataclass(frozen=True)
class _Mig:
    handle: Any
    uuid: str
    gpu_instance_id: int | None
    compute_instance_id: int | None


def _mig_handles(driver: Driver, gpu: _Gpu, look: _Look) -> list[_Mig]:
    found = []
    for index in range(int(driver.call("nvmlDeviceGetMaxMigDeviceCount", gpu.handle))):
        try:
            handle = driver.call("nvmlDeviceGetMigDeviceHandleByIndex", gpu.handle, index)
            uuid = str(driver.call("nvmlDeviceGetUUID", handle))
        except NvmlFailure as failure:
            if failure.concerns_machine or failure.word == "lost":
                raise
            if failure.code not in (NOT_FOUND, INVALID_ARGUMENT):  # these two: the numbers have gaps
                look.silent += 1
                look.problems.append(f"MIG device {index} of GPU {gpu.index} cannot be read now. {failure.detail}")
            continue
        instance = driver.ask("nvmlDeviceGetGpuInstanceId", handle)
        compute = driver.ask("nvmlDeviceGetComputeInstanceId", handle)
        found.append(_Mig(handle, uuid, instance, compute))
    return found


def _mig_device(driver: Driver, gpu: _Gpu, mig: _Mig) -> Device | None:
    attributes = driver.ask("nvmlDeviceGetAttributes", mig.handle)
    total, _ = _memory(driver, mig.handle)
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
        parent_uuid=gpu.uuid,
        memory_bytes=total,
        sm_count=None if attributes is None else int(attributes.multiprocessorCount) or None,
        compute_slices=None if attributes is None else int(attributes.computeInstanceSliceCount) or None,
    )


def _profile_name(driver: Driver, gpu: _Gpu, mig: _Mig, instance: _Instance | None, attributes: Any) -> str | None:
    """The profile as the driver names the device; else as it names the instance's profile; else by its figures."""
    named = _after_mig(driver.ask("nvmlDeviceGetName", mig.handle))
    if named is not None:
        return named
    if attributes is None:
        return None
    slices, of = int(attributes.computeInstanceSliceCount), int(attributes.gpuInstanceSliceCount)
    part = f"{slices}c." if slices < of else ""
    if instance is not None:
        for info in _profiles(driver, gpu):
            named = _after_mig(info.name) if int(info.id) == instance.profile_id else None
            if named is not None:
                return part + named
    parent_total, _ = _memory(driver, gpu.handle)
    if not parent_total or not of:
        return None
    return f"{part}{of}g.{_advertised_gb(parent_total, int(attributes.memorySizeMB) << 20)}gb"


def _after_mig(name: object) -> str | None:
    """``1g.5gb`` of ``NVIDIA A100-SXM4-40GB MIG 1g.5gb`` or of ``MIG 1g.5gb``."""
    text = name.decode(errors="replace") if isinstance(name, bytes) else str(name or "")
    match = re.search(r"\bMIG ((?:\d+c\.)?\d+g\.\d+gb\S*)\s*$", text)
    return match.group(1) if match else None


def _advertised_gb(parent_bytes: int, mig_bytes: int) -> int:
    """The "gb" of a profile's name: eighths of the GPU, rounded up (NVIDIA go-nvlib, getMigMemorySizeGB)."""
    eighths = math.ceil(mig_bytes / parent_bytes * 8)
    return round(eighths / 8 * math.ceil(parent_bytes / 2**30))


@dataclass(frozen=True)
class _Instance:
    handle: Any
    id: int
    profile_id: int
    placement: Placement


def _instance(driver: Driver, gpu: _Gpu, instance_id: int) -> _Instance | None:
    handle = driver.ask("nvmlDeviceGetGpuInstanceById", gpu.handle, instance_id)
    return None if handle is None else _instance_of(driver, handle)


def _instance_of(driver: Driver, handle: Any) -> _Instance | None:
    info = driver.ask("nvmlGpuInstanceGetInfo", handle)
    if info is None:
        return None
    placement = Placement(int(info.placement.start), int(info.placement.size))
    return _Instance(handle, int(info.id), int(info.profileId), placement)


def _profiles(driver: Driver, gpu: _Gpu) -> list[Any]:
    """What the card can be cut into. The numbers are the library's own, and a card knows only some of them."""
    asked = (driver.ask("nvmlDeviceGetGpuInstanceProfileInfo", gpu.handle, n) for n in range(_profile_count(driver)))
    return [info for info in asked if info is not None]


def _profile_count(driver: Driver) -> int:
    return int(driver.library.NVML_GPU_INSTANCE_PROFILE_COUNT)


def _instances_without_compute(driver: Driver, gpu: _Gpu, seen: set[int]) -> list[Device]:
    """GPU instances nobody can run on, where the driver lets us list them (an ordinary account it usually does not)."""
    found: list[Device] = []
    for info in _profiles(driver, gpu):
        room = (driver.library.c_nvmlGpuInstance_t * max(int(info.instanceCount), 1))()
        count = ctypes.c_uint(len(room))
        if driver.ask("nvmlDeviceGetGpuInstances", gpu.handle, info.id, room, ctypes.byref(count)) is None:
            continue
        for handle in room[: count.value]:
            instance = _instance_of(driver, handle)
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


def _idle_instance(gpu: _Gpu, instance: _Instance, info: Any) -> Device:
    return Device(
        f"{gpu.uuid}/gpu-instance-{instance.id}",
        gpu.product,
        profile=_after_mig(info.name) or f"{int(info.sliceCount)}g.{math.ceil(int(info.memorySizeMB) / 1024)}gb",
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
