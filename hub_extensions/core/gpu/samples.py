"""Measurements of a device, reports of a server about itself, and the signs of use that follow from both.

`None` means "not known" and never counts as zero.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime


@dataclass(frozen=True, slots=True)
class Counters:
    """Further counters of GPM or DCGM, 0 to 100, of this device alone; None if not known.

    Attributes:
        sm_percent: multiprocessors with at least one warp.
        tensor_percent: active tensor pipes.
        dram_percent: memory bandwidth.
    """

    sm_percent: float | None = None
    tensor_percent: float | None = None
    dram_percent: float | None = None


@dataclass(frozen=True, slots=True)
class DeviceSample:
    """One measurement of one device.

    Attributes:
        at: when it was read (aware).
        used_percent: 0 to 100, of this device alone; None if the card does not report it (A100 in MIG mode).
        memory_used_bytes: None if the driver refuses to report it.
        pids: compute processes that the driver lists; None if it lists no processes to us, as in a container.
        source: source of `used_percent`: ``nvml``, ``gpm``, ``dcgm``, ``simulated`` or ``none``.
        memory_by_pid: memory of each process in bytes, as far as the driver reports it.
        counters: None if the card has no counters or they were not read.
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
        opened: since its start, a panel was connected, its API got an authenticated request, or it had a kernel.
        kernels, busy_kernels: counts; None if not known.
        saved: the open notebooks were saved after the last request to do so.
        used_percent: 0 to 100, the highest use of the server's devices since the last report; None if not known.
        busy_terminals: terminals in which a program runs; None if not known.
        draining: the server is being stopped and cells, pages or the user's hook are not finished yet; None if it is
            not being stopped.
        hook_ran: the user's own hook has started since the stop began.
        has_hook: the user has a hook.
        asked: open pages were asked to save since the stop began; None if the server does not report it.
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
    """One fact about whether a server is in use, such as GPU use or running kernels.

    Attributes:
        kind: ``gpu``, ``report`` (the server's own report about the GPU), ``kernels``, ``terminals``, ``activity``.
        value: ``busy``, ``idle`` or ``unknown``.
        source: as in `DeviceSample`, or ``report``, ``hub``.
        at: wall-clock time of the sign; None if not known.
        decides: the culling decision is based on this sign now.
    """

    kind: str
    value: str
    source: str
    at: datetime | None
    decides: bool
