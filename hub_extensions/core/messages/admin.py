"""Messages of the API for users, administrators and programs: tickets, leases, the cluster, health."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.messages.server import OtherEnd
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.text.reasons import Reason


@dataclass(frozen=True, slots=True)
class TicketInfo:
    """A ticket (a user's place in the line) in a listing.

    Attributes:
        ticket: id of the ticket.
        user: name of the ticket's owner; `None` if the reader is neither the owner nor an administrator.
        offers: the offers that the user accepts, in order of preference.
        position: 1 for the next in line; 0 if the ticket does not wait any more.
        since: when the ticket joined the line.
        reason: why it waits; without the text for the log.
        url: where the server is opened once it is ready; only a path if the hub's public address is not known.
    """

    ticket: str
    user: str | None
    server: str
    state: str
    offers: tuple[OfferId, ...]
    position: int
    since: datetime
    reason: Reason
    url: str


@dataclass(frozen=True, slots=True)
class QueueFigures:
    """Figures about the users in line, for the metrics.

    Attributes:
        states: state -> number of tickets (places in the line).
        waiting_since: offer -> when the first of the tickets that prefer this offer, and still wait, joined the line.
    """

    states: Mapping[str, int]
    waiting_since: Mapping[str, datetime]


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease (the right of one server to a share of a device) in the administrators' listing.

    Attributes:
        lease: id of the lease.
        uuid: UUID of the device; "" on a cluster, where the scheduler picked the device.
        profile: MIG profile of the device; `None` without MIG, or if the device is not known.
        share: the part of the device, 0 to 1.
        ready_at: when the server was ready; `None` until then.
        pid: the server's process; `None` if it is not known.
        last_use_percent: last measured use of the GPU; `None` if it is not known.
        use_source: what measured `last_use_percent`: ``nvml``, ``gpm``, ``dcgm``, ``simulated``, ``report`` (the
            server's own extension) or ``none``.
        stops_at: when the server stops if nothing changes; `None` if no stop is expected.
        stop_reason: why the server stops, or why it does not, as text; "" if that was not decided, and in a dry
            run of culling, in which no server is stopped.
        stop_why: `stop_reason` as a reason with a code; `None` if `stop_reason` is "".
        adopted: whether the service found the server already running. The server was started before this product was
            installed, or during an outage of the service.
        processes: while the lease is ending, the processes of the server that are left.
        pod, node: where the server runs on a cluster; "" on one machine.
        no_session_since: since when the user has no session, so that nobody can check whether the account still exists
            at the identity provider; `None` if the user has a session.
        others: the other causes that would stop the server, the earliest first.
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
    stop_why: Reason | None = None
    no_session_since: datetime | None = None
    others: tuple[OtherEnd, ...] = ()


@dataclass(frozen=True, slots=True)
class FailedStop:
    """A stop that was not finished by its deadline, for administrators.

    Attributes:
        since: when the first failed attempt failed. If the hub has stopped the server but a process or pod is left:
            when the hub reported the server as stopped.
        fault: ``refused`` by the hub, ``hangs`` in the hub, or ``alive`` although the hub reports it as stopped.
        tries: the number of attempts in a row that failed.
        next_try: when the service tries again; `None` if no further attempt is planned.
        text: the current state as a sentence.
        to_do: what an administrator can do.
    """

    user: str
    server: str
    offer: OfferId
    since: datetime
    fault: str
    tries: int
    next_try: datetime | None
    text: str
    to_do: str


@dataclass(frozen=True, slots=True)
class CulledServer:
    """The decision of culling about a running server, for administrators.

    Attributes:
        action: ``keep``, ``warn`` or ``stop``.
        enforced: whether culling really stops servers; False in a dry run, which only reports what it would do.
        cause: the cause of the expected end; "" if no end is expected.
        stops_at: when that end comes if nothing changes; `None` if no end is expected.
        ends_at: the latest end, by lifetime or by somebody's order; `None` if nothing enforces one.
        reason: the explanation as text.
        rule: the rule of the policy file that sets the limits; "" if those of c.GpuCulling apply.
        evidence: what is known about the server's use, as text.
        others: the other causes that would stop the server, the earliest first.
    """

    user: str
    server: str
    offer: OfferId
    action: str
    enforced: bool
    cause: str
    stops_at: datetime | None
    ends_at: datetime | None
    reason: str
    rule: str
    evidence: str
    others: tuple[OtherEnd, ...] = ()


@dataclass(frozen=True, slots=True)
class CullingView:
    """The state of culling: every running server, and the stops that have failed."""

    as_of: datetime
    servers: tuple[CulledServer, ...]
    failed_stops: tuple[FailedStop, ...]


@dataclass(frozen=True, slots=True)
class NodePart:
    """The number of devices of a pool on one node.

    Attributes:
        total, free: number of all devices, and of free ones.
        why: why the devices are not given to servers; "" if they are.
        reason: `why` with a code; `None` if the devices are given to servers, or if `why` lacks a code.
    """

    node: str
    total: int
    free: int
    why: str
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class PoolInfo:
    """A pool of equal devices of a cluster, for administrators: where they are and what a pod requests to get one.

    Attributes:
        pool: name of the pool.
        mechanism: how the cluster assigns the devices, a value of ``core.cluster.mechanisms.Mechanism``.
        resource: what a pod requests: an extended resource, or ``claim template NAME`` for DRA.
        product: name of the card.
        free: number of free devices; `None` if it is not known.
        held_by_others: number of devices used by pods that this hub did not start.
        offers: the offers that get a device of this pool.
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
    """A resource or node of the cluster whose GPUs are not offered.

    Attributes:
        what: name of the resource or node.
        why: why they are not offered.
        reason: `why` with a code; `None` if `why` lacks a code.
    """

    what: str
    why: str
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class ForgottenPod:
    """The pod of a user's server that the hub does not know any more. It keeps its GPU until somebody deletes it.

    Attributes:
        user, server, offer: values of the pod's labels. Anybody may have written them. `offer` has ``_`` for the ``@``
            of an offer's id.
        seconds: for how long the pod has been known as forgotten.
        removing: whether the pod is being deleted.
    """

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
    """The cluster as the service sees it, for administrators.

    Attributes:
        problem: why the cluster cannot be read now; "" if it can.
        configured: whether the numbers of devices come from the configuration instead of the cluster.
        queue: the system that keeps the line, if that is not this service: ``Kueue``, ``KAI``; "" otherwise.
        left_out: resources and nodes whose GPUs are not offered.
        blocked_offers: offers whose first in line gets no device, because something outside this hub took it.
        orphaned_pods: pods of servers that the hub does not know any more.
    """

    problem: str
    configured: bool
    queue: str
    pools: tuple[PoolInfo, ...]
    left_out: tuple[LeftOutInfo, ...]
    blocked_offers: tuple[OfferId, ...]
    orphaned_pods: tuple[ForgottenPod, ...]


@dataclass(frozen=True, slots=True)
class OfferEvidence:
    """The source of the measurements of an offer's GPUs, for administrators.

    Attributes:
        source: ``nvml``, ``gpm``, ``dcgm``, ``simulated``, ``report`` (the server's own extension) or ``none``.
        leases: the number of servers with this offer.
        measured: the number of those servers whose GPU use is known.
        age_seconds: the age of the oldest measurement; `None` without measurements.
        since: since when `source` and `reason` have been the same (UTC).
        reason: a code for what measures the GPUs, or for why nothing does.
        text: `reason` as a sentence, and what to do if the use is not known.
    """

    offer: OfferId
    source: str
    leases: int
    measured: int
    age_seconds: float | None
    since: datetime
    reason: str
    text: str


@dataclass(frozen=True, slots=True)
class Health:
    """The health of the service. Everybody sees `ready`; the other fields have values only for callers with a token.

    Attributes:
        ready: whether the service can answer requests.
        store: ``ok``, or what is wrong with the database.
        hub: whether the hub answers, or since when it does not.
        inventory_age_seconds: how long ago the GPUs or the cluster were read; `None` if they were never read.
        evidence: what measures the use of each offer's GPUs.
        prometheus: the state of the Prometheus that is queried for DCGM's figures; `None` if none is configured.
        prometheus_up: whether it answered the last query, if one was needed; `None` if none is configured.
        port: whether the service has its own port, and where it listens if not.
        clock: how the hub's clock differs from the service's; `None` until the hub has sent a request.
        notices: the result of the last delivery to a user, by channel (webhook or e-mail); `None` if no channel is
            configured.
        notices_sent: whether the last delivery succeeded on every channel; `None` if no channel is configured.
        policy_file: the state of the file with the rules of culling; `None` without such a file.
        policy_file_valid: whether the current content of the file is in force; `None` without such a file.
        stops_failed: the number of stops that passed their deadline and are not finished yet.
    """

    ready: bool
    store: str | None = None
    hub: str | None = None
    inventory_age_seconds: float | None = None
    version: str | None = None
    prometheus: str | None = None
    prometheus_up: bool | None = None
    port: str | None = None
    clock: str | None = None
    evidence: tuple[OfferEvidence, ...] = ()
    notices: Mapping[str, str] | None = None
    notices_sent: bool | None = None
    policy_file: str | None = None
    policy_file_valid: bool | None = None
    stops_failed: int = 0


@dataclass(frozen=True, slots=True)
class ForecastRecord:
    """The accuracy of the wait forecasts of one line. `None` means not known.

    The last 50 busy periods are judged, and each counts once, however many users waited in it. A busy period lasts from
    the first waiting user to an empty line. P10 and P90 are the ends of the forecast range: 10 % and 90 % of the waits
    should be shorter.

    Attributes:
        pool: the devices of one kind that the line is for, such as ``mig-1g.5gb``.
        evaluated: the number of forecasts whose outcome is known.
        coverage_p90: the share of users who started before P90; 0.9 is right.
        coverage_p10_p90: the share of users who started between P10 and P90; 0.8 is right.
        median_error_seconds: the median difference between the forecast median and the real wait.
        rough: whether the form and the waiting page mark the forecasts as rough.
        finished_uses: the number of past uses of such a GPU that the forecast has learned from.
        busy_periods: the number of busy periods that were judged.
        worse_than_baseline: whether the median of earlier waits would have been the better forecast.
    """

    pool: str
    evaluated: int
    coverage_p90: float | None
    coverage_p10_p90: float | None
    median_error_seconds: float | None
    rough: bool
    finished_uses: int
    busy_periods: int = 0
    worse_than_baseline: bool = False


@dataclass(frozen=True, slots=True)
class ForecastReport:
    """The state of the wait forecast.

    Attributes:
        pools: the accuracy of the forecasts of each line.
        as_of: when the waits that are shown now were computed; `None` if none are shown.
        age_seconds: how long ago that was; `None` if none are shown.
        cpu_seconds: processor time of the computation; `None` if none are shown.
    """

    pools: tuple[ForecastRecord, ...]
    as_of: datetime | None
    age_seconds: float | None
    cpu_seconds: float | None
