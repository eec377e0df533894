"""The API for users, admins and programs: tickets, leases, the cluster, health."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime

from hub_extensions.core.messages.server import OtherEnd
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.text.reasons import Reason


@dataclass(frozen=True, slots=True)
class TicketInfo:
    """A ticket in a listing; `user` is None for anybody but its owner and admins. `reason` has no line for the log.

    `url`: where its server is opened once it is ready; from the path on where the hub's public address is not known.
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
    """The line for the metrics: tickets by state, and since when who waits longest is in line, by the first offer."""

    states: Mapping[str, int]
    waiting_since: Mapping[str, datetime]


@dataclass(frozen=True, slots=True)
class LeaseInfo:
    """A lease in the admins' listing.

    Attributes:
        use_source: who measured `last_use_percent`: ``nvml``, ``gpm``, ``dcgm``, ``simulated``, ``report`` (its own
            server says so) or ``none``.
        stop_why: `stop_reason` by its code; None: it does not stop.
        no_session_since: since when nobody knows whether the user's account is still there; None: it is.
        others: what else would stop it, the earliest first.
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
    stop_why: Reason | None = None
    no_session_since: datetime | None = None
    others: tuple[OtherEnd, ...] = ()


@dataclass(frozen=True, slots=True)
class FailedStop:
    """A stop that was not over by its deadline, for admins.

    Attributes:
        since: of its first try. tries: how many failed, or were made since by this service. next_try: None: it waits.
        fault: ``refused`` by the hub, it ``hangs`` there, or ``alive``: the hub calls it done. text: how it stands.
        to_do: what an admin does about it.
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
    """What culling would do with a running server, for admins.

    Attributes:
        action: ``keep``, ``warn`` or ``stop``. enforced: False: a dry run, so that nothing of it happens.
        cause: of the end in sight; "": none is. stops_at: when it comes if nothing changes. reason: why, in words.
        ends_at: when its lifetime or an order ends it at the latest; None: nothing does.
        others: what else would stop it, the earliest first.
        rule: of the policy file that sets its limits; "": those of c.GpuCulling are. evidence: what is known of it.
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
    """Culling as it stands now: every running server, and the stops that have failed."""

    as_of: datetime
    servers: tuple[CulledServer, ...]
    failed_stops: tuple[FailedStop, ...]


@dataclass(frozen=True, slots=True)
class NodePart:
    """What one node has of a pool: `why` it does not count; "" when it does. `reason`: the same by its code."""

    node: str
    total: int
    free: int
    why: str
    reason: Reason | None = None


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
    """Something of the cluster that no offer counts, and why. `reason`: the same where it has a code."""

    what: str
    why: str
    reason: Reason | None = None


@dataclass(frozen=True, slots=True)
class ForgottenPod:
    """A pod of ours that the hub knows nothing of any more: it goes on and keeps its GPU until somebody ends it.

    Attributes:
        offer: the value of its label, which has ``_`` for the ``@`` of an offer's id; anybody may have written it.
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
class OfferEvidence:
    """Who measures the use of an offer's GPUs, for admins.

    Attributes:
        source: ``nvml``, ``gpm``, ``dcgm``, ``simulated``, ``report`` (its own server says so) or ``none``.
        leases: how many servers have one; measured: of how many of them the use is known.
        age_seconds: of the oldest of their figures; None: there is none.
        since: since when it stands so (UTC). reason: a code. text: how it stands, and what to do where it is not known.
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
    """Everybody sees `ready`; the rest is for callers with a token.

    Attributes:
        evidence: who measures the use of each offer's GPUs.
        prometheus: how it stands with the Prometheus that is asked for DCGM's figures; None: none is configured.
        port: whether the service has its own port, and where it is reached if not.
        clock: how the hub's clock differs from the service's, if it does; None: the hub has said nothing yet.
        prometheus_answers: it answered the last question, or had none to answer; None: none is configured.
        notices: channel -> how the last sending to a user went; None: no channel is configured.
        notices_sent: by no channel did the last sending fail; None: no channel is configured.
        policy_file: how it stands with the rules of culling. policy_file_valid: the file as it is now is in force.
            None: there is no such file.
        stops_failed: stops that were not over by their deadline, and are not yet.
    """

    ready: bool
    store: str | None = None
    hub: str | None = None
    inventory_age_seconds: float | None = None
    version: str | None = None
    prometheus: str | None = None
    prometheus_answers: bool | None = None
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
    """How good the wait forecasts of one pool were over its last 50 busy episodes, each counted once. None: not known.

    Attributes:
        matured: how many forecasts came true. coverage_90: the share that started before P90. coverage_80: the share
            from P10 to P90.
        rough: form and waiting page mark them as rough. finished: uses that the forecast has learned from.
        episodes: busy episodes, from the first who waits to an empty line, that the forecasts were of.
        worse_than_plain: the median of earlier waits would have been the better guess.
    """

    pool: str
    matured: int
    coverage_90: float | None
    coverage_80: float | None
    median_error_seconds: float | None
    rough: bool
    finished: int
    episodes: int = 0
    worse_than_plain: bool = False


@dataclass(frozen=True, slots=True)
class ForecastReport:
    """The wait forecast about itself.

    Attributes:
        as_of: when the likely waits were computed that are told now; None: none are told. age_seconds: how long ago.
        took_seconds: how long it computed.
    """

    pools: tuple[ForecastRecord, ...]
    as_of: datetime | None
    age_seconds: float | None
    took_seconds: float | None
