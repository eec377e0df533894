"""Messages from the server extension to the panel."""

from __future__ import annotations

from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.gpu.samples import Counters
from hub_extensions.core.messages.server import Countdown, Keep, ServerState
from hub_extensions.core.text.reasons import Reason


@dataclass(frozen=True, slots=True)
class Holder:
    """A program of this server that holds memory of its GPU.

    Attributes:
        name: the notebook's file name, or the program's name.
        path: the notebook's path below the server's root directory; "" without a notebook.
        kernel: the kernel's id; "" for another program.
        memory_bytes: the GPU memory that it holds; `None` if it is not known.
        idle_since: since when the kernel runs nothing; `None` if it is busy, or for another program.
    """

    name: str
    path: str
    kernel: str
    memory_bytes: int | None
    idle_since: datetime | None


@dataclass(frozen=True, slots=True)
class GpuReading:
    """This server's device as read by the server extension. `None` means not known, and `note` explains why.

    Attributes:
        profile: the MIG profile; `None` for a whole GPU.
        memory_used_bytes: memory in use on the device, by all its users.
        own_memory_bytes: memory in use by this server's programs alone.
        limit_bytes: what this server may use, if that is less than the device has; `None` without such a limit.
        limit_source: ``share`` (by agreement), ``hami`` (enforced by HAMi), or "" without a limit.
        shared: whether other servers may use the device too; True if that is in doubt. Then only `own_memory_bytes`
            belongs to this server.
        used_percent: use of the device, 0 to 100.
        source: ``nvml``, ``gpm``, ``dcgm``, ``simulated``, or ``none`` if use cannot be measured on this card.
        holders: the programs that hold memory; `None` if they are not known.
        holders_note: why `holders` or their memory are not known; `None` if they are known.
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
class Training:
    """A training run in this server, as its program reports it. `None` means not known.

    Attributes:
        run: id of the run.
        name: the name that the program gave it, at most 80 characters; "" if it gave none.
        library: ``loop``, ``tqdm``, ``keras``, ``lightning``, ``transformers`` or ``fastai``.
        state: ``running``, ``done``, ``left`` (the loop was left before its end), ``failed`` (an exception), or
            ``vanished`` (its process is gone without a word).
        outside: whether its process was not started by this server.
        started, at: wall-clock times of the first and of the last report.
        steps: steps done, with those of an earlier run that this one resumes.
        total_steps: steps until the end of the run.
        epoch: the present epoch, from 1.
        epochs: number of epochs.
        step_seconds: mean seconds of a step, without the first one.
        left_seconds: likely time from `at` to the end.
        low_seconds, high_seconds: 80 % interval of `left_seconds`.
        bound: ``about``; ``at-least``: before the first epoch is over, a validation of unknown length may follow;
            ``at-most``: the run may stop early. "" if `left_seconds` is not known.
        usual_step_seconds: mean seconds of a step earlier in this run; `None` unless the present steps are slower.
        usual_seconds, usual_runs: median length of this user's earlier finished runs of that name, and their number.
        ended_at: wall-clock time of the end; `None` while the run goes on.
        notify: whether the user wishes a notice at the end.
    """

    run: str
    name: str
    library: str
    state: str
    outside: bool
    started: datetime
    at: datetime
    steps: int
    total_steps: int | None
    epoch: int | None
    epochs: int | None
    step_seconds: float | None
    left_seconds: float | None
    low_seconds: float | None
    high_seconds: float | None
    bound: str
    usual_step_seconds: float | None = None
    usual_seconds: float | None = None
    usual_runs: int = 0
    ended_at: datetime | None = None
    notify: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """Everything that the panel shows.

    Attributes:
        version: the version of the protocol.
        state: ``starting``, ``ok``, ``no-gpu``, ``no-library``, ``driver-not-loaded``, ``version-mismatch``, ``lost``,
            ``detached``, ``no-permission``, ``not-answering`` or ``unknown``.
        reason: explains `state`; `None` if all is well.
        server: the server's state; `None` if the GPU service does not answer.
        service_note: since when the GPU service does not answer; `None` if it answers.
        period_seconds: the current interval between readings. A reading older than three intervals is stale.
        trainings: the training runs of this server: those that go on, the one with the most time left first, then the
            ended ones, the latest first.
    """

    version: int
    at: datetime
    state: str
    reason: Reason | None
    gpus: tuple[GpuReading, ...]
    server: ServerState | None
    service_note: Reason | None = None
    period_seconds: float = 10.0
    trainings: tuple[Training, ...] = ()


@dataclass(frozen=True, slots=True)
class Numbers:
    """The figures of one device that change with each reading, sent while nothing else changes.

    Attributes:
        uuid: UUID of the device.
        at: when the device was read.
        memory_used_bytes: memory in use on the device, by all its users; `None` if it is not known.
        own_memory_bytes: memory in use by this server's programs alone; `None` if it is not known.
        used_percent: use of the device, 0 to 100; `None` if it is not known.
        counters: further counters; `None` if none is known.
    """

    uuid: str
    at: datetime
    memory_used_bytes: int | None
    own_memory_bytes: int | None
    used_percent: float | None
    counters: Counters | None = None


@dataclass(frozen=True, slots=True)
class Series:
    """The last ten minutes of one device, oldest first: three lists of equal length with one entry for each reading.

    Attributes:
        ages_seconds: age of each reading at the message's `at`.
        used_percent: `None` where it was not known.
        memory_bytes: this server's own memory on a shared device, otherwise the device's; the two are never mixed.
            `None` where it was not known.
    """

    uuid: str
    ages_seconds: tuple[float, ...]
    used_percent: tuple[float | None, ...]
    memory_bytes: tuple[int | None, ...]


@dataclass(frozen=True, slots=True)
class Push:
    """One message to the panel, with only what changed since the previous one.

    Attributes:
        version: the version of the protocol.
        snapshot: sent in the first message, and whenever more than `numbers` changed; `None` otherwise.
        history: sent in the first message and after a gap; `None` otherwise, because the panel already has it.
        numbers: the figures of each device that was read since the previous message.
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
    """An event about the end of this server, for every page that follows Jupyter Server's event stream.

    Attributes:
        kind: ``warn``: the server stops soon. ``over``: the stop was withdrawn. ``save``: save the open notebooks now.
            ``quiet``: nothing new; sent so that no proxy closes a silent stream.
        countdown: when and why the server stops; `None` if it does not stop.
        keep: how often the user may still postpone the stop; `None` if *keep*, which postpones it, is not offered.
    """

    version: int
    at: datetime
    kind: str
    countdown: Countdown | None
    keep: Keep | None
