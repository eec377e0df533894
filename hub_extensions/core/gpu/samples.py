"""Measurements of a device, reports of a server about itself, and the signs of use that follow from both.

`None` means "not known" and never counts as zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Counters:
    """Further counters of GPM or DCGM, NVIDIA's performance counters, of this device alone. None if not known.

    Attributes:
        sm_percent: share of multiprocessors with at least one warp, 0 to 100.
        tensor_percent: share of time in which tensor pipes are active, 0 to 100.
        dram_percent: share of the memory bandwidth in use, 0 to 100.
    """

    sm_percent: float | None = None
    tensor_percent: float | None = None
    dram_percent: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One measurement of one device.

    Attributes:
        at: when it was read (aware).
        used_percent: use of this device alone, 0 to 100; None if the card does not report it (A100 in MIG mode).
        memory_used_bytes: memory in use; None if the driver refuses to report it.
        pids: compute processes that the driver lists; None if it lists no processes to us, as in a container.
        source: what measured `used_percent`: ``nvml``, ``gpm``, ``dcgm``, ``simulated`` or ``none``.
        memory_by_pid: memory of each process in bytes, as far as the driver reports it.
        counters: further counters; None if the card lacks them or they were not read.
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
    """The report of the extension in a user's server about that server. A user can forge it, but only for that server.

    Attributes:
        at: when the report came.
        opened: whether, since the server's start, a panel was connected, its API got an authenticated request, or it
            had a kernel.
        kernels, busy_kernels: number of kernels, and of busy ones; None if not known.
        saved: whether the open notebooks were saved after the last request to save them.
        used_percent: the highest use of the server's devices since the last report, 0 to 100; None if not known.
        busy_terminals: number of terminals in which a program runs; None if not known.
        draining: True if the server is being stopped and cells, pages or the user's hook are not finished yet, False if
            they are. None if the server is not being stopped.
        hook_ran: whether the user's own hook for a stop (the program ``gpu-before-stop`` in the user's Jupyter
            configuration folder) has started since the stop began.
        has_hook: whether the user has such a hook.
        asked: whether open pages were asked to save since the stop began; None if the server does not report it.
        watched: whether a page of the server is open.
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
    watched: bool = False


@dataclass(frozen=True, slots=True)
class UseSign:
    """One fact about whether a server is in use, such as GPU use or running kernels.

    Attributes:
        kind: ``gpu``, ``report`` (the server's own report about the GPU), ``kernels``, ``terminals``, ``activity``,
            ``training`` (a training program reports that it has time left).
        value: ``busy``, ``idle`` or ``unknown``.
        source: what reported the fact: ``nvml``, ``gpm``, ``dcgm``, ``simulated`` or ``none`` for a measurement of the
            GPU (`DeviceSample.source`), ``report`` for the server's extension, ``hub`` for the hub.
        at: wall-clock time of the fact; None if not known.
        decides: whether the decision to stop the server or not is based on this fact now.
    """

    kind: str
    value: str
    source: str
    at: datetime | None
    decides: bool
