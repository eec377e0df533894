"""Samples of a device and of a server's work on it. None is "not known", and never counts as zero."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Counters:
    """What GPM or DCGM count beside the use: each 0 to 100, of this device alone; None is not known.

    Attributes:
        sm_percent: multiprocessors with at least one warp; tensor_percent: tensor pipes.
        dram_percent: memory bandwidth.
    """

    sm_percent: float | None = None
    tensor_percent: float | None = None
    dram_percent: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One reading of one device.

    Attributes:
        at: when it was read (aware).
        used_percent: 0 to 100, of this device alone; None where the card cannot tell (A100 in MIG mode).
        memory_used_bytes: None where the driver refuses.
        pids: compute processes the driver lists; None where it does not list any for us (a container).
        source: ``nvml``, ``gpm``, ``dcgm``, ``simulated`` or ``none``: where used_percent comes from.
        memory_by_pid: bytes of each of `pids` that the driver names a size for.
        counters: None where the card has none, or nobody asked.
    """

    uuid: str
    at: datetime
    used_percent: float | None
    memory_used_bytes: int | None
    pids: tuple[int, ...] | None
    source: str
    memory_by_pid: Mapping[int, int] = field(default_factory=dict)
    counters: Counters | None = None


@dataclass(frozen=True, slots=True)
class ServerReport:
    """What a server's own extension says about it. A user can forge it: it protects that very server, or harms it.

    Attributes:
        opened: since its start a panel was connected, its API got an authenticated request, or it has had a kernel.
        kernels, busy_kernels: counts; None is not known.
        saved: the open notebooks were saved after the last request to do so.
        used_percent: 0 to 100, the highest use of its devices since the report before; None is not known.
        busy_terminals: terminals in which a program runs; None is not known.
        draining: since its stop began it has not done yet what it does before; None: it does nothing.
        hook_ran: since its stop began its user's own hook has begun.
        has_hook: its user has one.
        asked: since its stop began its pages were asked to save; None: it does not say.
    """

    at: datetime
    opened: bool
    kernels: int | None
    busy_kernels: int | None
    saved: bool = False
    used_percent: float | None = None
    busy_terminals: int | None = None
    draining: bool | None = None
    hook_ran: bool = False
    has_hook: bool = False
    asked: bool | None = None


@dataclass(frozen=True, slots=True)
class UseSign:
    """One sign of use.

    Attributes:
        kind: ``gpu``, ``report`` (of the GPU, by the server itself), ``kernels``, ``terminals``, ``activity``.
        value: ``busy``, ``idle`` or ``unknown``. source: who says so, as in `DeviceSample`, or ``report``, ``hub``.
        at: wall-clock time of it; None: not known. decides: the server is judged by it now.
    """

    kind: str
    value: str
    source: str
    at: datetime | None
    decides: bool
