"""Collects this server's processes and kernels, from which ``attribution.py`` decides who holds the GPU's memory.

`KernelReader` asks Jupyter Server in its event loop. `GpuProcesses` reads /proc in the sampler's thread: the processes
that the driver lists in each call, and all processes at most every 10 s.
"""

from __future__ import annotations

import inspect
import logging
import os
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass, replace
from datetime import datetime
from time import monotonic
from typing import Any

from hub_extensions.adapters.linux import procfs
from hub_extensions.adapters.nvml.processes import sees_all_processes
from hub_extensions.core.gpu.devices import InventoryReading
from hub_extensions.server_extension.attribution import LITTLE_BYTES, DeviceFacts, Kernel, Program, held
from hub_extensions.server_extension.readings import HeldMemory

SCAN_SECONDS = 10.0
MEMORY_OF_THE_GPU = "/dev/nvidia-uvm"
"""Device file that every CUDA program opens. Programs that only read the driver's figures, such as nvidia-smi and this
server, do not."""

log = logging.getLogger(__name__)


@dataclass(frozen=True)
class _Known:
    """A kernel of the last refresh, as `KernelReader` remembers it.

    Attributes:
        began: when the kernel started, in seconds of the monotonic clock; `None` if that is not known.
    """

    kernel: Kernel
    began: float | None


class KernelReader:
    """Reads this server's kernels with their notebooks.

    `refresh` asks Jupyter Server in its event loop. `kernels` returns the last answer and may be called in any thread.

    Args:
        session_manager: Jupyter Server's, which knows the notebook of each kernel.
        kernel_manager: Jupyter Server's, which knows the process of each kernel.
    """

    def __init__(self, session_manager: Any, kernel_manager: Any) -> None:
        self._sessions = session_manager
        self._kernels = kernel_manager
        self._known: tuple[_Known, ...] = ()
        self._first_seen: dict[str, float] = {}
        self._logs_failure = True

    def kernels(self) -> tuple[Kernel, ...]:
        """Return this server's kernels as of the last refresh, with their current age."""
        now = monotonic()
        return tuple(
            replace(known.kernel, age_seconds=None if known.began is None else max(0.0, now - known.began))
            for known in self._known
        )

    async def refresh(self) -> None:
        """Ask Jupyter Server for its kernels and sessions. After an error, such as of a site's own kernel manager, no
        kernel is known.
        """
        try:
            models = await _awaited(self._sessions.list_sessions())
            listed = await _awaited(self._kernels.list_kernels())
            self._known = tuple(self._note(model, models) for model in listed)
            self._logs_failure = True
        except Exception as error:  # noqa: BLE001 - managers of the site's own; not known is then the truth
            self._known = ()
            if self._logs_failure:
                log.info("The kernels cannot be listed: %s", error)
            self._logs_failure = False
        ids = {known.kernel.id for known in self._known}
        self._first_seen = {one: at for one, at in self._first_seen.items() if one in ids}

    def _note(self, model: Mapping[str, Any], sessions: Iterable[Mapping[str, Any]]) -> _Known:
        kernel_id = str(model["id"])
        session = next((one for one in sessions if (one.get("kernel") or {}).get("id") == kernel_id), {})
        path = str(session.get("path") or "") if session.get("type") == "notebook" else ""
        name = os.path.basename(path) or str(session.get("name") or model.get("name") or "")
        pid = _pid_of(self._kernels, kernel_id)
        idle = model.get("execution_state") == "idle"
        kernel = Kernel(kernel_id, name, path, pid, _time(model.get("last_activity")) if idle else None, None)
        return _Known(kernel, self._began(kernel_id, pid))

    def _began(self, kernel_id: str, pid: int | None) -> float:
        """Return when a kernel started, on the monotonic clock; without a local process, when it was first seen."""
        first = self._first_seen.setdefault(kernel_id, monotonic())
        started = None if pid is None else procfs.start_time(pid)
        return first if started is None else monotonic() - procfs.age_seconds(started)


class GpuProcesses:
    """Finds which notebooks and programs of this server hold each device's memory; called after each reading.

    Args:
        lease: id of this server's lease. Processes of this server have it in their environment.
        root: the directory to which notebook paths are relative.
        kernels: returns the kernels of this server.
        scan_seconds: minimum time between two scans of all processes.
        sees_all: whether the driver's list of processes is complete (see ``attribution.DeviceFacts``); `None` to find
            that out from this process.
    """

    def __init__(
        self,
        lease: str,
        root: str,
        kernels: Callable[[], tuple[Kernel, ...]],
        *,
        scan_seconds: float = SCAN_SECONDS,
        sees_all: bool | None = None,
    ) -> None:
        self._sees_all = sees_all_processes() if sees_all is None else sees_all
        self._lease = lease
        self._root = root
        self._kernels = kernels
        self._scan_seconds = scan_seconds
        self._scanned_at: float | None = None
        self._programs: dict[tuple[int, int], Program] = {}
        self._described: dict[tuple[int, int], bool] = {}
        self._memory = _Memory()

    def refresh(self, reading: InventoryReading, shared: Mapping[str, bool], clock: float) -> Mapping[str, HeldMemory]:
        """Return uuid of a device -> which programs of this server hold its memory.

        Args:
            reading: what the driver has just reported.
            shared: uuid of each of this server's devices -> whether other servers may use it.
            clock: the monotonic clock in seconds.
        """
        mine = {uuid: sample for uuid, sample in reading.samples.items() if uuid in shared}
        for uuid, sample in mine.items():
            self._memory.note(uuid, sample.memory_used_bytes, clock)
        hidden = any(sample.pids is None or not (sample.pids or self._sees_all) for sample in mine.values())
        if self._scanned_at is None or clock - self._scanned_at >= self._scan_seconds:
            self._scan(clock, hidden)
        programs = {program.pid: program for program in self._programs.values()}
        for pid in {pid for sample in mine.values() for pid in sample.pids or ()}:
            self._refresh_process(pid, programs)
        kernels = self._kernels()
        return {
            uuid: held(
                DeviceFacts(
                    sample,
                    tuple(programs.values()),
                    kernels,
                    shared[uuid],
                    len(shared) > 1,
                    self._memory.taken(uuid, clock),
                    self._root,
                    self._sees_all,
                )
            )
            for uuid, sample in mine.items()
        }

    def _scan(self, clock: float, hidden: bool) -> None:
        """Find all processes of this server in /proc.

        Args:
            clock: the monotonic clock in seconds.
            hidden: the driver does not show who uses the GPU, so it is checked here which processes have opened it.
        """
        self._scanned_at = clock
        self._described = {}
        self._programs = {}
        for process in procfs.marked():
            if process.lease != self._lease:
                continue
            holds = None
            if hidden and process.pid != os.getpid():
                holds = procfs.holds_open(process.pid, MEMORY_OF_THE_GPU)
            self._programs[(process.pid, process.started)] = _program(process, holds)

    def _refresh_process(self, pid: int, programs: dict[int, Program]) -> None:
        """Add a process that the driver lists to `programs` if it belongs to this server, or remove its stale entry.

        The pid may be of another process than at the last scan.
        """
        started = procfs.start_time(pid)
        if started is None:
            programs.pop(pid, None)
            return
        key = (pid, started)
        if key in self._programs or key in self._described:
            return
        process = procfs.describe(pid)
        self._described[key] = ours = process is not None and process.lease == self._lease
        if process is not None and ours:
            programs[pid] = self._programs[key] = _program(process, None)


class _Memory:
    """Remembers when a program allocated memory on each device.

    That is the time at which the memory in use rose by more than `LITTLE_BYTES` above the lowest value seen.
    """

    def __init__(self) -> None:
        self._least: dict[str, int] = {}
        self._taken: dict[str, float] = {}

    def note(self, uuid: str, used: int | None, clock: float) -> None:
        if used is None:
            return
        least = self._least[uuid] = min(used, self._least.get(uuid, used))
        if used < least + LITTLE_BYTES:
            self._taken.pop(uuid, None)
        else:
            self._taken.setdefault(uuid, clock)

    def taken(self, uuid: str, clock: float) -> float | None:
        return clock - self._taken[uuid] if uuid in self._taken else None


def _program(process: procfs.Process, holds: bool | None) -> Program:
    name = procfs.script(process.pid) or process.command
    return Program(process.pid, process.ppid, name, process.session, holds)


def _pid_of(kernel_manager: Any, kernel_id: str) -> int | None:
    """Return the pid of a kernel; `None` if it runs on another machine or has ended."""
    get = getattr(kernel_manager, "get_kernel", None)
    try:
        manager = None if get is None else get(kernel_id)
    except KeyError:  # it ended meanwhile
        return None
    pid = getattr(getattr(manager, "provisioner", None), "pid", None)
    return pid if isinstance(pid, int) and pid > 0 else None


def _time(text: object) -> datetime | None:
    if not isinstance(text, str):
        return None
    try:
        at = datetime.fromisoformat(text.replace("Z", "+00:00"))
    except ValueError:
        return None
    return at if at.tzinfo is not None else None


async def _awaited(value: Any) -> Any:
    return await value if inspect.isawaitable(value) else value
