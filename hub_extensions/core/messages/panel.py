"""Server extension to panel."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.gpu.samples import Counters
from hub_extensions.core.messages.server import Countdown, Keep, ServerState
from hub_extensions.core.text.reasons import Reason


@dataclass(frozen=True, slots=True)
class Holder:
    """One of this server's own programs that holds memory of its GPU.

    Attributes:
        name: the notebook's file name, else the program's; kernel: its kernel's id, "" where it has none.
        path: the notebook below the server's root, "" where there is none.
        memory_bytes: None is not known.
        idle_since: its kernel has run nothing since; None: it runs, or is no kernel.
    """

    name: str
    path: str
    kernel: str
    memory_bytes: int | None
    idle_since: datetime | None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """This server's device as its own extension reads it. None is not known; `note` says why.

    Attributes:
        memory_used_bytes: of the device, with everybody on it; own_memory_bytes: of this server's programs alone.
        limit_bytes: what this server may use, where that is less than the device; `limit_source`: ``share`` (by
            agreement), ``hami`` (enforced by HAMi), "" without one.
        shared: others may be on the device (in doubt they may): then only own_memory_bytes is this server's own.
        used_percent: 0 to 100, of the device; source: ``nvml``, ``gpm``, ``dcgm``, ``simulated``, or ``none``: use
            cannot be measured on this card. None with another source: not known now, and `note` says why.
        holders: None: it is not known who; `holders_note` says why, or that amounts are not known.
    """

    uuid: str
    product: str
    profile: str | None
    memory_used_bytes: int | None
    memory_total_bytes: int | None
    used_percent: float | None
    source: str
    at: datetime
    note: Reason | None = None
    own_memory_bytes: int | None = None
    limit_bytes: int | None = None
    limit_source: str = ""
    counters: Counters | None = None
    holders: tuple[Holder, ...] | None = None
    holders_note: Reason | None = None
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the panel shows. `version` is the wire's version.

    Attributes:
        state: ``starting``, ``ok``, ``no-gpu``, ``no-library``, ``driver-not-loaded``, ``version-mismatch``, ``lost``,
            ``detached``, ``no-permission``, ``not-answering`` or ``unknown``; `reason` says why, None: all is well.
        server: None: the service is not answering (`service_note` says since when).
        period_seconds: how often the GPU is read now: what is older than three of these is old.
    """

    version: int
    at: datetime
    state: str
    reason: Reason | None
    gpus: tuple[GpuReading, ...]
    server: ServerState | None
    service_note: Reason | None = None
    period_seconds: float = 10.0


@dataclass(frozen=True, slots=True)
class Numbers:
    """What moves of one device: all there is to say while nothing else changes."""

    uuid: str
    at: datetime
    memory_used_bytes: int | None
    own_memory_bytes: int | None
    used_percent: float | None
    counters: Counters | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """The last ten minutes of one device, oldest first: three lists of one length, one entry a reading.

    Attributes:
        ages_seconds: before the message's `at`.
        used_percent, memory_bytes: None where it was not known; memory is this server's own on a shared device, else
            the device's: never both in one list.
    """

    uuid: str
    ages_seconds: tuple[float, ...]
    used_percent: tuple[float | None, ...]
    memory_bytes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Push:
    """One message to the panel: only what changed since the one before. `version` is the wire's version.

    Attributes:
        snapshot: everything, when more than numbers changed, and first; None: as it was.
        history: first, and after a gap; None: the panel has it.
        numbers: the devices read since.
    """

    version: int
    at: datetime
    snapshot: Snapshot | None
    history: tuple[Series, ...] | None
    numbers: tuple[Numbers, ...]


@dataclass(frozen=True, slots=True)
class History:
    """The last ten minutes of every device of this server, for scripts (`GET gpu/history`)."""

    version: int
    at: datetime
    series: tuple[Series, ...]


@dataclass(frozen=True, slots=True)
class EndEvent:
    """What Jupyter Server's event stream tells every page, seen or hidden, about this server's end.

    Attributes:
        kind: ``warn``: it stops soon; ``over``: it does not, after all; ``save``: save the open notebooks now;
            ``quiet``: nothing new, so that no proxy cuts a stream that is silent.
        countdown, keep: as in ``ServerState``.
    """

    version: int
    at: datetime
    kind: str
    countdown: Countdown | None
    keep: Keep | None
