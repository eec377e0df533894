"""The processes on a device as the driver lists them: pids and the memory of each, if both are valid in this
namespace.
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from hub_extensions.adapters.nvml.driver import Driver


class ProcessList(NamedTuple):
    """The processes on a device.

    Attributes:
        pids: process ids; `None` if the driver lists none that can be identified here.
        memory_by_pid: memory of each process on the device in bytes, if the driver reports it; otherwise empty.
    """

    pids: tuple[int, ...] | None
    memory_by_pid: Mapping[int, int]


def processes_on(driver: Driver, handle: Any, *, mps_alone: bool = True) -> ProcessList:
    """Return the compute processes on the device, including MPS clients.

    Args:
        handle: NVML handle of the device.
        mps_alone: query MPS clients even if no other process is listed. The server of MPS is always listed when there
            are clients, so a reader that wants few calls can skip this.
    """
    running = driver.ask_either(
        ("nvmlDeviceGetComputeRunningProcesses_v3", handle),
        ("nvmlDeviceGetComputeRunningProcesses_v2", handle),  # a driver before R510
    )
    if running is None:
        return ProcessList(None, {})
    clients = (driver.ask("nvmlDeviceGetMPSComputeRunningProcesses_v3", handle) or ()) if running or mps_alone else ()
    memory: dict[int, int] = {}
    for process in (*running, *clients):
        if process.usedGpuMemory is not None:
            memory[int(process.pid)] = max(memory.get(int(process.pid), 0), int(process.usedGpuMemory))
    pids = sorted({int(process.pid) for process in (*running, *clients)})
    # In a container some drivers list the host's pids, which are invalid or belong to other processes here.
    if not sees_all_processes() and not all(map(_exists, pids)):
        return ProcessList(None, {})
    return ProcessList(tuple(pids), memory)


def sees_all_processes() -> bool:
    """Return whether this is the machine's own PID namespace, which has a fixed number (PROC_PID_INIT_INO).

    In that namespace an empty list of the driver means that no process uses the device. In a container an empty list
    may also mean that the processes have no pid in the container's namespace.
    """
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
