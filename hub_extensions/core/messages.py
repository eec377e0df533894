"""What the processes say to each other: frozen dataclasses, without a reader or a writer.

The hub and the service read and write them with pydantic's ``TypeAdapter``, the server extension with the standard
library; the OpenAPI file and the TypeScript types are generated from them. Times are aware UTC; every time here is
wall-clock time for people and programs (the service converts from its running clock before it speaks).
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hub_extensions.core.gpu.samples import Counters
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import PodAsk
from hub_extensions.core.reasons import Reason

# ------------------------------------------------------------------ shown to users: offers and waits


@dataclass(frozen=True, slots=True)
class Wait:
    """A wait forecast on the wire. Seconds; None is not known. `reason`: why this long; None: nothing is to be said."""

    now: bool
    p10_seconds: float | None
    p50_seconds: float | None
    p90_seconds: float | None
    at_most_seconds: float | None
    reason: Reason | None


@dataclass(frozen=True, slots=True)
class OfferState:
    """One offer as the form shows it.

    `isolation` has the keys memory, fault, compute, access; `share` is 0 to 1 of one device (0: CPU only).
    `free`, `total` None: not known. Only what is for one of the user's groups is listed at all.
    `queue`: whose line it waits in where that is not ours (``Kueue``, ``KAI``): no place in it is known here.
    """

    id: OfferId
    kind: str
    title: str
    description: str
    pool: str
    share: float
    isolation: Mapping[str, str]
    memory_bytes: int | None
    memory_enforced: bool
    sm_count: int | None
    sm_total: int | None
    product: str
    simulated: bool
    free: int | None
    total: int | None
    held: int
    held_by_others: int
    lost: int
    waiting: int
    wait: Wait
    queue: str = ""


@dataclass(frozen=True, slots=True)
class Notice:
    """Something the user is told at the next page: why a server was stopped, why a ticket ended."""

    at: datetime
    server: str
    text: str


@dataclass(frozen=True, slots=True)
class FormState:
    """Everything the spawn form needs, for one user, in one answer.

    Attributes:
        as_of: when the inventory was read; None: never yet.
        culling: sentence about when servers stop ("" in a dry run).
        gpu_servers: the user's servers that hold a GPU now (names; "" is the default server).
        last_offers: offer ids the user chose last, if they still exist (for preselection).
        caution: what the figures do not count, one sentence; "" where they count everything.
    """

    offers: tuple[OfferState, ...]
    simulated: bool
    as_of: datetime | None
    culling: str
    gpu_servers: tuple[str, ...]
    notices: tuple[Notice, ...] = ()
    last_offers: tuple[OfferId, ...] = ()
    caution: str = ""


# ------------------------------------------------------------------ hub -> service (authorised by the hub secret)


@dataclass(frozen=True, slots=True)
class Ask:
    """A spawner asks for admission. Asking again for the same (user, server) finds the same ticket.

    Attributes:
        offers: acceptable offer ids in order of preference.
        options: the validated user options, kept so that the service can start the server by itself.
        groups: the user's groups as the hub knows them now.
        ticket: the ticket that this very start already has, "" on its first ask: a ticket that ended meanwhile is
            answered with ``ended``, and never made anew.
    """

    user: str
    server: str
    offers: tuple[OfferId, ...]
    options: Mapping[str, object] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    ticket: str = ""


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """What an admitted spawner needs: the lease's id, the device's UUID and what to put in the environment.

    `environment` has CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES and, with a GPU, JUPYTERHUB_GPU_LEASE and what the
    server extension needs. With CPU only `lease` is "" and `uuid` None. On a cluster `uuid` is None too, the scheduler
    picks the device, and `pod` says what to ask it for.
    """

    lease: str
    offer: OfferId
    uuid: str | None
    share: float
    environment: Mapping[str, str]
    pod: PodAsk | None = None


@dataclass(frozen=True, slots=True)
class TicketStatus:
    """What a ticket is told. `answer` is ``admit``, ``wait``, ``refuse``, or ``ended``: it is gone.

    Attributes:
        position: 1 is the next; 0 when it does not wait.
        since: joined at.
        alternatives: offers that are free right now and smaller (a suggestion).
        simulated: the GPUs do not exist; the waiting page has to say so.
    """

    ticket: str
    attempt: int
    user: str
    server: str
    answer: str
    offers: tuple[OfferId, ...]
    offer: OfferId | None
    position: int
    ahead: int
    since: datetime
    reason: Reason
    wait: Wait | None
    alternatives: tuple[OfferState, ...] = ()
    grant: LeaseGrant | None = None
    simulated: bool = False


@dataclass(frozen=True, slots=True)
class Started:
    """The spawner started the process (`ready` False), or the hub found it ready (`ready` True)."""

    attempt: int
    pid: int | None = None
    pid_started: int | None = None
    ready: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The spawner says how an attempt ended: ``left`` (a confirmed stop) or ``failed`` (a failed start).

    `message` is for the user, `reason` for the metric.
    """

    attempt: int
    how: str
    message: str = ""
    reason: str = ""


@dataclass(frozen=True, slots=True)
class Stopped:
    """The hub stopped this user's server (a hint that saves time; the service looks for itself).

    `message`: one sentence for the user, where the server ended by itself and it is known why; `reason`: for the
    metric, as in ``core.cluster.pod_status``. Both are "" for an ordinary stop.
    """

    user: str
    server: str
    message: str = ""
    reason: str = ""


# ------------------------------------------------------------------ server extension <-> service (the server's token)


@dataclass(frozen=True, slots=True)
class Report:
    """A server's extension about its own server. It can say something of its own server only.

    Attributes:
        used_percent: the highest use of its devices since the report before; None is not known. The service leans on
            it only where it cannot measure the device itself.
    """

    opened: bool
    kernels: int | None
    busy_kernels: int | None
    saved: bool = False
    used_percent: float | None = None


@dataclass(frozen=True, slots=True)
class Figures:
    """The use of a server's device as the service knows it from elsewhere (DCGM through Prometheus, `source` dcgm)."""

    uuid: str
    at: datetime
    used_percent: float | None
    source: str
    counters: Counters | None = None


@dataclass(frozen=True, slots=True)
class Countdown:
    """When this server stops and why. No countdown, no object.

    Attributes:
        stops_at: wall-clock; cause: ``idle``, ``lifetime``, ``unopened``, ``cpu-idle``.
        can_keep: *keep* moves this end.
    """

    stops_at: datetime
    cause: str
    reason: Reason
    can_keep: bool
    warn: bool


@dataclass(frozen=True, slots=True)
class Keep:
    """The *keep* budget of this server: minutes each adds, how many of how many are left in 24 hours."""

    minutes: float
    left: int
    of: int


@dataclass(frozen=True, slots=True)
class ServerState:
    """What the service tells a server's own extension.

    Attributes:
        offer, title, uuid, share: the lease; uuid None for CPU only (share 0), and on a cluster, where nobody knows it.
        memory_bytes: the limit to show (a fraction's share of the device, or the device's).
        lease_state: ``starting``, ``running``, ``ending``, ``lost``, or ``none``.
        warnings: sentences for the user (device lost, somebody else's process on the device).
        ends_at: the lifetime's end, None without one.
        save: save the open notebooks now, the server is about to stop.
        waits: the other offers with their waits.
        rule: when this server stops by itself; None where nothing stops it (a dry run, too).
        figures: use of this server's own device from elsewhere, where the card cannot tell it to the server.
    """

    user: str
    server: str
    offer: OfferId
    title: str
    uuid: str | None
    share: float
    memory_bytes: int | None
    memory_enforced: bool
    simulated: bool
    lease_state: str
    countdown: Countdown | None
    keep: Keep | None
    ends_at: datetime | None
    save: bool
    warnings: tuple[str, ...]
    waits: tuple[OfferState, ...]
    rule: Reason | None = None
    figures: Figures | None = None


# ------------------------------------------------------------------ API for users, admins and programs


@dataclass(frozen=True, slots=True)
class TicketInfo:
    """A ticket in a listing; `user` is None for anybody but its owner and admins. `reason` has no line for the log."""

    ticket: str
    user: str | None
    server: str
    state: str
    offers: tuple[OfferId, ...]
    position: int
    since: datetime
    reason: Reason


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease in the admins' listing.

    Attributes:
        use_source: who measured `last_use_percent`: ``nvml``, ``gpm``, ``dcgm``, ``simulated``, ``report`` (its own
            server says so) or ``none``.
        uuid: "" on a cluster, where the scheduler picked the device. pod, node: where it runs on a cluster; "" else.
    """

    lease: str
    user: str
    server: str
    offer: OfferId
    uuid: str
    profile: str | None
    share: float
    state: str
    since: datetime
    ready_at: datetime | None
    pid: int | None
    last_use_percent: float | None
    stops_at: datetime | None
    stop_reason: str
    adopted: bool
    processes: tuple[str, ...] = ()
    use_source: str = "none"
    pod: str = ""
    node: str = ""


@dataclass(frozen=True, slots=True)
class NodePart:
    """What one node has of a pool: `why` it does not count; "" when it does."""

    node: str
    total: int
    free: int
    why: str


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """One line's worth of equal devices of a cluster, for admins: where they are, and what a pod asks for them.

    `free` None: not known. `mechanism`: a word of ``core.mechanisms.Mechanism``.
    """

    pool: str
    mechanism: str
    resource: str
    product: str
    total: int
    free: int | None
    held_by_others: int
    offers: tuple[OfferId, ...]
    nodes: tuple[NodePart, ...]


@dataclass(frozen=True, slots=True)
class LeftOutInfo:
    """Something of the cluster that no offer counts, and why."""

    what: str
    why: str


@dataclass(frozen=True, slots=True)
class ForgottenPod:
    """A pod of ours that the hub knows nothing of any more: it goes on and keeps its GPU until somebody ends it."""

    pod: str
    namespace: str
    node: str
    user: str
    server: str
    offer: str
    seconds: float
    removing: bool


@dataclass(frozen=True, slots=True)
class ClusterInfo:
    """The cluster as this service sees it, for admins.

    Attributes:
        problem: why it cannot be read now; "" when it can. configured: the totals are what the admin says there is.
        queue: whose line it is where it is not ours: ``Kueue``, ``KAI``.
        held_up: offers whose first in line finds no device: something outside this hub took it.
    """

    problem: str
    configured: bool
    queue: str
    pools: tuple[PoolInfo, ...]
    left_out: tuple[LeftOutInfo, ...]
    held_up: tuple[OfferId, ...]
    forgotten: tuple[ForgottenPod, ...]


@dataclass(frozen=True, slots=True)
class Health:
    """Everybody sees `ready`; the rest is for callers with a token.

    Attributes:
        prometheus: how it stands with the Prometheus that is asked for DCGM's figures; None: none is configured.
        prometheus_answers: it answered the last question, or had none to answer; None: none is configured.
    """

    ready: bool
    store: str | None = None
    hub: str | None = None
    inventory_age_seconds: float | None = None
    version: str | None = None
    prometheus: str | None = None
    prometheus_answers: bool | None = None


@dataclass(frozen=True, slots=True)
class Problem:
    """An error's body: what is wrong and what would be right, in which field, and a stable code."""

    message: str
    field: str = ""
    reason: str = ""


# ------------------------------------------------------------------ server extension -> panel


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
    """This server's device as its own extension reads it. None is not known; `note` says why in a sentence.

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
    note: str = ""
    own_memory_bytes: int | None = None
    limit_bytes: int | None = None
    limit_source: str = ""
    counters: Counters | None = None
    holders: tuple[Holder, ...] | None = None
    holders_note: str = ""
    shared: bool = False


@dataclass(frozen=True, slots=True)
class Snapshot:
    """What the panel shows. `version` is the wire's version.

    Attributes:
        state: ``starting``, ``ok``, ``no-gpu``, ``no-library``, ``driver-not-loaded``, ``version-mismatch``, ``lost``,
            ``detached``, ``no-permission``, ``not-answering`` or ``unknown``; `sentence` says it in words.
        server: None: the service is not answering (`service_note` says since when).
        period_seconds: how often the GPU is read now: what is older than three of these is old.
    """

    version: int
    at: datetime
    state: str
    sentence: str
    gpus: tuple[GpuReading, ...]
    server: ServerState | None
    service_note: str = ""
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
        word: ``warn``: it stops soon; ``over``: it does not, after all; ``save``: save the open notebooks now;
            ``quiet``: nothing new, so that no proxy cuts a stream that is silent.
        countdown, keep: as in ``ServerState``.
    """

    version: int
    at: datetime
    word: str
    countdown: Countdown | None
    keep: Keep | None
