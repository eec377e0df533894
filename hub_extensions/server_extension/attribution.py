"""Which of this server's own programs hold its GPU, and how much: decided from values.

What the driver lists goes first, and on the machine itself it is all there is to say; where it hides processes (in a
container), who has the GPU's memory opened; where that cannot be seen either, which one kernel was there when it was
taken. Else it is not known, and a reason says so. Others on the same device are never named. Not here: looking
(``gpu_processes.py``).
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
from hub_extensions.server_extension.readings import NOT_WHICH, Held

NOT_HOW_MUCH = explain("holders-amounts-not-known")
NOT_WHOSE = explain("holders-own-not-known")
PROBABLY = explain("holders-probably")

LITTLE_BYTES = 64 * 1024**2
"""What the driver itself takes of an unused device is less; what a program takes to begin with is more."""


@dataclass(frozen=True, slots=True)
class Program:
    """One live process of this server: it carries this server's lease mark.

    Attributes:
        name: its program's base name; session: path of the notebook it was started from, by its environment.
        holds: it has the GPU's memory opened; None: we may not look.
    """

    pid: int
    ppid: int
    name: str
    session: str | None = None
    holds: bool | None = None


@dataclass(frozen=True, slots=True)
class Kernel:
    """One kernel of this server, as Jupyter Server knows it.

    Attributes:
        name: what it is called (a notebook's file name); path: the notebook below the root, "" for none.
        pid: None where it runs elsewhere; age_seconds: since its start, None: not known.
    """

    id: str
    name: str
    path: str
    pid: int | None
    idle_since: datetime | None
    age_seconds: float | None


@dataclass(frozen=True, slots=True)
class Scene:
    """Everything a decision about one device takes.

    Attributes:
        sees_all: the driver's list of processes means the same here as on the machine: an empty one says "nobody". In a
            container it may be empty because none of them has a name there.
        programs: this server's own.
        shared: others may be on the device; several: this server has more than this one device.
        taken_seconds: since its memory was taken, as the looks saw it; None: that was not seen.
        root: the directory that notebooks' paths begin at.
    """

    sample: DeviceSample
    programs: Sequence[Program]
    kernels: Sequence[Kernel]
    shared: bool
    several: bool
    taken_seconds: float | None
    root: str
    sees_all: bool = False


def held(scene: Scene) -> Held:
    """Who holds this device's memory, of this server's programs."""
    listed, used = scene.sample.pids, scene.sample.memory_used_bytes
    if listed or (listed is not None and (used is None or scene.sees_all)):
        return _as_listed(scene, listed)
    if used is not None and used < LITTLE_BYTES:
        return Held(own_memory_bytes=0, holders=())
    opened = [program for program in scene.programs if program.holds]
    if opened:
        return _as_opened(scene, opened)
    return _as_started(scene)


def _as_listed(scene: Scene, listed: Sequence[int]) -> Held:
    """The driver names them all: ours are those with our mark."""
    ours = {program.pid: program for program in scene.programs}
    mine = [ours[pid] for pid in listed if pid in ours]
    amounts = scene.sample.memory_by_pid
    holders = _holders(scene, mine, amounts)
    known = all(program.pid in amounts for program in mine)
    own = sum(amounts[program.pid] for program in mine) if known else None
    return Held(own, holders, None if known else NOT_HOW_MUCH)


def _as_opened(scene: Scene, opened: Sequence[Program]) -> Held:
    holders = _holders(scene, opened, {})
    if scene.shared:
        return Held(None, holders, NOT_WHOSE)
    if scene.several:
        return Held(None, holders, NOT_HOW_MUCH)
    used = scene.sample.memory_used_bytes
    if len(holders) > 1:
        return Held(used, holders, NOT_HOW_MUCH)
    (only,) = holders
    return Held(used, (Holder(only.name, only.path, only.kernel, used, only.idle_since),))


def _as_started(scene: Scene) -> Held:
    """By time alone: the one kernel that was there when the memory was taken."""
    taken = scene.taken_seconds
    if scene.shared or scene.several or taken is None:
        return Held(note=NOT_WHICH)
    before = [kernel for kernel in scene.kernels if kernel.age_seconds is not None and kernel.age_seconds >= taken]
    if len(before) != 1 or any(kernel.age_seconds is None for kernel in scene.kernels):
        return Held(note=NOT_WHICH)
    used, kernel = scene.sample.memory_used_bytes, before[0]
    return Held(used, (_holder_of_kernel(kernel, used),), PROBABLY)


def _holders(scene: Scene, programs: Sequence[Program], amounts: Mapping[int, int]) -> tuple[Holder, ...]:
    """One for each notebook or program, with the memory of all its processes; the largest first."""
    family = {program.pid: program for program in scene.programs}
    found: dict[str, Holder] = {}
    memory: dict[str, int | None] = {}
    holding = {program.pid for program in programs}
    for program in programs:
        key, holder = _named(scene, program, family, holding)
        found.setdefault(key, holder)
        amount, before = amounts.get(program.pid), memory.get(key, 0)
        memory[key] = None if amount is None or before is None else before + amount
    whole = [
        Holder(holder.name, holder.path, holder.kernel, memory[key], holder.idle_since) for key, holder in found.items()
    ]
    return tuple(sorted(whole, key=lambda holder: (-(holder.memory_bytes or 0), holder.name, holder.kernel)))


def _named(scene: Scene, program: Program, family: Mapping[int, Program], holding: set[int]) -> tuple[str, Holder]:
    """Whose it is: of the kernel it descends from, else of the notebook in its environment, else its own."""
    kernels = {kernel.pid: kernel for kernel in scene.kernels if kernel.pid is not None}
    oldest = program
    for ancestor in _line(program, family):
        if ancestor.pid in kernels:
            kernel = kernels[ancestor.pid]
            return kernel.id, _holder_of_kernel(kernel, None)
        if ancestor.pid in holding:
            oldest = ancestor
    if program.session:
        path = _below(program.session, scene.root)
        same = [kernel for kernel in scene.kernels if path and kernel.path == path]
        if len(same) == 1:
            return same[0].id, _holder_of_kernel(same[0], None)
        return program.session, Holder(os.path.basename(program.session), path, "", None, None)
    return str(oldest.pid), Holder(oldest.name, "", "", None, None)


def _line(program: Program, family: Mapping[int, Program]) -> list[Program]:
    """The program and those it comes from, of this server."""
    line, seen = [program], {program.pid}
    while line[-1].ppid in family and line[-1].ppid not in seen:
        line.append(family[line[-1].ppid])
        seen.add(line[-1].pid)
    return line


def _holder_of_kernel(kernel: Kernel, memory_bytes: int | None) -> Holder:
    return Holder(kernel.name, kernel.path, kernel.id, memory_bytes, kernel.idle_since)


def _below(path: str, root: str) -> str:
    """A notebook's path below the server's root, as Jupyter writes it; "" where it is not below."""
    notebook, top = PurePath(os.path.normpath(path)), PurePath(os.path.normpath(root))
    return notebook.relative_to(top).as_posix() if notebook.is_relative_to(top) else ""
