"""Messages between hub and service about starts and stops of servers. They are authorised by the hub's secret."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime

from hub_extensions.core.cluster.placement import PodDemands
from hub_extensions.core.messages.forms import OfferState, Wait
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.offers.pod_request import PodAsk
from hub_extensions.core.text.reasons import Reason


@dataclass(frozen=True, slots=True)
class Ask:
    """A spawner's request to start a server, now or when its turn in line has come.

    The service creates a ticket (the server's place in line). A repeated request for the same (user, server) finds the
    same ticket.

    Attributes:
        offers: acceptable offer ids in order of preference.
        options: the validated user options, kept so that the service can start the server by itself.
        groups: the user's groups as the hub knows them now.
        ticket: the ticket that this start already has; "" on its first request. If that ticket has ended, the answer is
            ``ended`` and no new one is created.
        accepted: when the hub accepted the start. Requests that arrive together join the line in the order of these
            times; those with `None` come last.
        kept: True if no spawner waits for the answer, because the hub that accepted this start has ended since. An
            existing ticket is then left as it is.
        demands: on a cluster, what the pod will require of a node. `None` if it is not known, because the pod can only
            be made later or does not exist.
    """

    user: str
    server: str
    offers: tuple[OfferId, ...]
    options: Mapping[str, object] = field(default_factory=dict)
    groups: tuple[str, ...] = ()
    ticket: str = ""
    accepted: datetime | None = None
    kept: bool = False
    demands: PodDemands | None = None


@dataclass(frozen=True, slots=True)
class LeaseGrant:
    """The lease of an admitted server, for its spawner.

    Attributes:
        lease: the lease's id; "" for CPU only.
        uuid: UUID of the device; `None` for CPU only, and on a cluster, where the scheduler picks the device.
        share: the part of the device, 0 to 1; 0 for CPU only.
        environment: CUDA_VISIBLE_DEVICES, NVIDIA_VISIBLE_DEVICES and, with a GPU, JUPYTERHUB_GPU_LEASE and what the
            server extension needs.
        pod: on a cluster, what the pod has to request from the scheduler; `None` on one machine.
    """

    lease: str
    offer: OfferId
    uuid: str | None
    share: float
    environment: Mapping[str, str]
    pod: PodAsk | None = None


@dataclass(frozen=True, slots=True)
class TicketStatus:
    """The state of a ticket (a server's place in line), as the answer to the spawner's request.

    Attributes:
        ticket: id of the ticket.
        attempt: number of the spawn that asked last for this ticket. Reports of an earlier spawn do not count.
        answer: ``admit``, ``wait``, ``refuse``, or ``ended`` if the ticket no longer exists.
        offers: the offers that the user accepts, in order of preference.
        offer: the offer that the ticket is admitted to; while it waits, the offer in whose line `position` is counted.
            `None` if the ticket has ended.
        position: 1 for the next in line; 0 if the ticket does not wait.
        ahead: number of users ahead in this line.
        since: when the ticket joined the line.
        wait: the forecast of the wait; `None` if the ticket does not wait.
        alternatives: smaller offers that are free now, then others that are likely to be available sooner.
        grant: the lease for the spawner; `None` unless the answer is ``admit``.
        simulated: True if the GPUs do not exist, which the waiting page has to show.
        usual_start_seconds: how long starts on this offer usually took from admission until ready; `None` if not known.
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
    usual_start_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class Started:
    """The spawner has started the server's process (`ready` False), or the hub has found the server ready (True).

    Attributes:
        attempt: number of the spawn, from `TicketStatus`.
        pid, pid_started: the process and its start time (clock ticks since boot); `None` if not known.
    """

    attempt: int
    pid: int | None = None
    pid_started: int | None = None
    ready: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The outcome of one attempt to start a server, as the spawner reports it.

    Attributes:
        attempt: number of the spawn, from `TicketStatus`.
        how: ``left`` (a confirmed stop) or ``failed`` (a failed start).
        message: a text for the user without a code: the error's own, or one of an older hub.
        reason: the cause as a label of the metric.
        seconds: the time limit that a failed start exceeded; 0 if it exceeded none.
        log: the last lines of the server's log; "" if not known.
        reasons: explanation for the user; if empty, `message` or `seconds` explain it.
    """

    attempt: int
    how: str
    message: str = ""
    reason: str = ""
    seconds: float = 0.0
    log: str = ""
    reasons: tuple[Reason, ...] = ()


@dataclass(frozen=True, slots=True)
class Stopped:
    """The hub has stopped this server. This is a hint that saves time; the service checks by itself.

    Attributes:
        message: `reasons` as text, for an older service that does not read `reasons`.
        reason: the cause as a label of the metric, such as ``out-of-memory``; "" if not known.
        asked: True if somebody asked for the stop while the server ran; False if the server ended by itself.
        closing: whether the hub itself ends and therefore stops its servers.
        reasons: explanation for the user if the server ended by itself and the cause is known.
        polled: whether the spawner's own ``poll()``, made after the stop, reports the server as ended; `None` from a
            hub that does not report it.
    """

    user: str
    server: str
    message: str = ""
    reason: str = ""
    asked: bool = False
    closing: bool = False
    reasons: tuple[Reason, ...] = ()
    polled: bool | None = field(default=None, compare=False)


RETURNS_HEADER = "X-Jupyterhub-Gpu-Returns"
"""Header of the start request by which the service restarts a server whose GPU was taken back."""


@dataclass(frozen=True, slots=True)
class SignedOut:
    """The user of a server signed out, or may not sign in any more: the server has to stop.

    Attributes:
        lease: id of the lease of this run of the server.
        left_seconds: time until the stop; 0 for an immediate stop.
        cause: why the session ended, a value of ``core.sign_on.EndCause``.
    """

    user: str
    server: str
    lease: str
    left_seconds: float
    cause: str


@dataclass(frozen=True, slots=True)
class WithoutSession:
    """A user without a session, so that nobody can check whether the identity provider still has the account.

    Attributes:
        since: when the user's last session ended.
    """

    user: str
    since: datetime


@dataclass(frozen=True, slots=True)
class WithoutSessions:
    """All users without a session. Every other user has an account as far as is known.

    Attributes:
        drain_after_seconds: how long after `WithoutSession.since` the idle servers of these users stop; `None` if they
            do not stop for that.
    """

    people: tuple[WithoutSession, ...]
    drain_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class DrainState:
    """Whether and when the service stops a server: the answer to `SignedOut`.

    Attributes:
        left_seconds: time until the stop begins; `None` if the service will not stop it, because it does not know the
            lease.
        takes_seconds: how long the stop may take from its beginning, including the time until other servers have been
            drained before it.
    """

    left_seconds: float | None
    takes_seconds: float = 60.0
