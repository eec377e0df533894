"""Who computes on a device, as the driver lists it: pids and the memory of each, where both mean something here.

Not here: whose process that is (``processes.py``).
"""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any, NamedTuple

from hub_extensions.adapters.nvml.driver import Driver


class ProcessList(NamedTuple):
    """`pids`: None where the driver lists none that we could know. `memory_by_pid`: bytes, where it tells them."""

    pids: tuple[int, ...] | None
    memory_by_pid: Mapping[int, int]


def processes_on(driver: Driver, handle: Any, *, mps_alone: bool = True) -> ProcessList:
    """Compute processes on the device, MPS clients too.

    Args:
        mps_alone: ask for MPS clients also where no other process is listed. Their server is always listed itself, so
            a reader that wants few calls can do without.
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
    # In a container some drivers list the host's pids, which name other processes here, or none.
    if not sees_all_processes() and not all(map(_exists, pids)):
        return ProcessList(None, {})
    return ProcessList(tuple(pids), memory)


def sees_all_processes() -> bool:
    """Is this the machine's own PID namespace? The kernel gives it a fixed number (PROC_PID_INIT_INO).

    Then an empty list of the driver means that there is none; in a container it may mean that it names none there.
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
