"""Decides which of this server's own programs hold memory of its GPU, and how much each holds.

Three sources are tried in this order: the driver's list of processes, which is complete outside containers; the
programs that have opened the GPU's memory device; and the age of the kernels, if only one kernel existed when the
memory was allocated. If none of them gives an answer, a reason explains why. Other users of the device are never named.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from pathlib import PurePath

from hub_extensions.core.gpu.samples import DeviceSample
from hub_extensions.core.messages import Holder
from hub_extensions.core.text.reasons import explain
from hub_extensions.server_extension.readings import NOT_WHICH, HeldMemory

NOT_HOW_MUCH = explain("holders-amounts-not-known")
NOT_WHOSE = explain("holders-own-not-known")
PROBABLY = explain("holders-probably")

LITTLE_BYTES = 64 * 1024**2
"""A device with less memory in use counts as unused: the driver alone uses less, and any program at once more."""


@dataclass(frozen=True, slots=True)
class Program:
    """A running process of this server, recognised by the lease id in its environment (``JUPYTERHUB_GPU_LEASE``).

    Attributes:
        name: the base name of its program.
        session: path of the notebook from which it was started (``JPY_SESSION_NAME``); `None` if that is not set.
        holds: whether it has opened the GPU's memory device; `None` if that was not checked or may not be read.
    """

    pid: int
    ppid: int
    name: str
    session: str | None = None
    holds: bool | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """A kernel of this server, as Jupyter Server knows it.

    Attributes:
        name: the file name of its notebook, or the kernel's name.
        path: the notebook's path below the root directory; "" without a notebook.
        pid: its process id; `None` if the kernel runs on another machine.
        idle_since: since when it is idle; `None` while the kernel is busy.
        age_seconds: time since its start; `None` if not known.
    """

    id: str
    name: str
    path: str
    pid: int | None
    idle_since: datetime | None
    age_seconds: float | None


@dataclass(frozen=True, slots=True)
class DeviceFacts:
    """The facts from which `held` finds out which of this server's programs hold memory of one device.

    Attributes:
        sample: what the driver reported about the device.
        programs: the running processes of this server.
        kernels: the kernels of this server.
        shared: other servers may use the device too.
        several: this server has other devices besides this one.
        taken_seconds: how long ago memory of the device was allocated; `None` if the sampler has not seen it happen.
        root: the directory to which notebook paths are relative.
        sees_all: the driver's list of processes is complete, so an empty list means that nobody uses the device. In a
            container the list can be empty because the processes have no pid there.
    """

    sample: DeviceSample
    programs: Sequence[Program]
    kernels: Sequence[Kernel]
    shared: bool
    several: bool
    taken_seconds: float | None
    root: str
    sees_all: bool = False


def held(facts: DeviceFacts) -> HeldMemory:
    """Return which of this server's programs hold memory of this device.

    The answer comes from the first source that has one: the driver's list of processes, the programs that have opened
    the memory device, then the age of the kernels.
    """
    listed, used = facts.sample.pids, facts.sample.memory_used_bytes
    if listed or (listed is not None and (used is None or facts.sees_all)):
        return _as_listed(facts, listed)
    if used is not None and used < LITTLE_BYTES:
        return HeldMemory(own_memory_bytes=0, holders=())
    opened = [program for program in facts.programs if program.holds]
    if opened:
        return _as_opened(facts, opened)
    return _as_started(facts)


def _as_listed(facts: DeviceFacts, listed: Sequence[int]) -> HeldMemory:
    """Return the programs of this server that hold memory, from the driver's list of processes, which is complete.

    Args:
        listed: pids of all processes on the device. Pids that are not in `facts.programs` belong to other servers.
    """
    ours = {program.pid: program for program in facts.programs}
    mine = [ours[pid] for pid in listed if pid in ours]
    amounts = facts.sample.memory_by_pid
    holders = _holders(facts, mine, amounts)
    known = all(program.pid in amounts for program in mine)
    own = sum(amounts[program.pid] for program in mine) if known else None
    return HeldMemory(own, holders, None if known else NOT_HOW_MUCH)


def _as_opened(facts: DeviceFacts, opened: Sequence[Program]) -> HeldMemory:
    holders = _holders(facts, opened, {})
    if facts.shared:
        return HeldMemory(None, holders, NOT_WHOSE)
    if facts.several:
        return HeldMemory(None, holders, NOT_HOW_MUCH)
    used = facts.sample.memory_used_bytes
    if len(holders) > 1:
        return HeldMemory(used, holders, NOT_HOW_MUCH)
    (only,) = holders
    return HeldMemory(used, (Holder(only.name, only.path, only.kernel, used, only.idle_since),))


def _as_started(facts: DeviceFacts) -> HeldMemory:
    """Return the kernel that existed when the memory was allocated as the probable holder.

    If that is not certain (several kernels existed, the device may be shared, or the time is not known), the result
    names no holder but has a note.
    """
    taken = facts.taken_seconds
    if facts.shared or facts.several or taken is None:
        return HeldMemory(note=NOT_WHICH)
    before = [kernel for kernel in facts.kernels if kernel.age_seconds is not None and kernel.age_seconds >= taken]
    if len(before) != 1 or any(kernel.age_seconds is None for kernel in facts.kernels):
        return HeldMemory(note=NOT_WHICH)
    used, kernel = facts.sample.memory_used_bytes, before[0]
    return HeldMemory(used, (_holder_of_kernel(kernel, used),), PROBABLY)


def _holders(facts: DeviceFacts, programs: Sequence[Program], amounts: Mapping[int, int]) -> tuple[Holder, ...]:
    """Return one holder for each notebook or program, with the memory of all its processes; the largest first.

    Args:
        programs: the processes that hold memory of the device.
        amounts: pid -> bytes. The memory of a holder is `None` if the amount of one of its processes is missing.
    """
    family = {program.pid: program for program in facts.programs}
    found: dict[str, Holder] = {}
    memory: dict[str, int | None] = {}
    holding = {program.pid for program in programs}
    for program in programs:
        key, holder = _named(facts, program, family, holding)
        found.setdefault(key, holder)
        amount, before = amounts.get(program.pid), memory.get(key, 0)
        memory[key] = None if amount is None or before is None else before + amount
    whole = [
        Holder(holder.name, holder.path, holder.kernel, memory[key], holder.idle_since) for key, holder in found.items()
    ]
    return tuple(sorted(whole, key=lambda holder: (-(holder.memory_bytes or 0), holder.name, holder.kernel)))


def _named(
    facts: DeviceFacts, program: Program, family: Mapping[int, Program], holding: set[int]
) -> tuple[str, Holder]:
    """Return to which holder a process belongs, with a key that is the same for all processes of that holder.

    It is the kernel from which the process descends, else the notebook in its environment, else the program itself.

    Args:
        family: all processes of this server, by pid.
        holding: pids of the processes that hold memory.
    """
    kernels = {kernel.pid: kernel for kernel in facts.kernels if kernel.pid is not None}
    oldest = program
    for ancestor in _line(program, family):
        if ancestor.pid in kernels:
            kernel = kernels[ancestor.pid]
            return kernel.id, _holder_of_kernel(kernel, None)
        if ancestor.pid in holding:
            oldest = ancestor
    if program.session:
        path = _below(program.session, facts.root)
        same = [kernel for kernel in facts.kernels if path and kernel.path == path]
        if len(same) == 1:
            return same[0].id, _holder_of_kernel(same[0], None)
        return program.session, Holder(os.path.basename(program.session), path, "", None, None)
    return str(oldest.pid), Holder(oldest.name, "", "", None, None)


def _line(program: Program, family: Mapping[int, Program]) -> list[Program]:
    """Return a process and its ancestors that belong to this server, the process first.

    Args:
        family: all processes of this server, by pid.
    """
    line, seen = [program], {program.pid}
    while line[-1].ppid in family and line[-1].ppid not in seen:
        line.append(family[line[-1].ppid])
        seen.add(line[-1].pid)
    return line


def _holder_of_kernel(kernel: Kernel, memory_bytes: int | None) -> Holder:
    return Holder(kernel.name, kernel.path, kernel.id, memory_bytes, kernel.idle_since)


def _below(path: str, root: str) -> str:
    """Return a notebook's path below the server's root directory as Jupyter writes it; "" if it lies elsewhere."""
    notebook, top = PurePath(os.path.normpath(path)), PurePath(os.path.normpath(root))
    return notebook.relative_to(top).as_posix() if notebook.is_relative_to(top) else ""
