"""Hub and service: a start asks, is told, and says how it went. Authorised by the hub secret."""

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
    """A spawner asks for admission. Asking again for the same (user, server) finds the same ticket.

    Attributes:
        offers: acceptable offer ids in order of preference.
        options: the validated user options, kept so that the service can start the server by itself.
        groups: the user's groups as the hub knows them now.
        ticket: the ticket that this very start already has, "" on its first ask: a ticket that ended meanwhile is
            answered with ``ended``, and never made anew.
        accepted: when the hub accepted the start: new tickets of one request join in this order.
        kept: no spawner waits for the answer: a hub that has ended since accepted this start. Whoever has a ticket by
            now keeps it as it is.
        demands: on a cluster, what its pod will demand of a node; None is not known: the pod cannot be made before it
            stands in line, or there is no pod.
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
        alternatives: offers that are free right now and smaller, then others that are likely to be had sooner.
        simulated: the GPUs do not exist; the waiting page has to say so.
        usual_start_seconds: from admission until ready, as starts on this offer usually took; None: not known.
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
    """The spawner started the process (`ready` False), or the hub found it ready (`ready` True)."""

    attempt: int
    pid: int | None = None
    pid_started: int | None = None
    ready: bool = False


@dataclass(frozen=True, slots=True)
class Ended:
    """The spawner says how an attempt ended: ``left`` (a confirmed stop) or ``failed`` (a failed start).

    `reason` is for the metric.

    Attributes:
        message: words that have no code, for the user: an error's own, or an older hub's.
        seconds: the limit that a failed start passed; 0: none. log: the last lines of its server's log; "": not known.
        reasons: why, for the user; none: `message` or `seconds` say it.
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
    """The hub stopped this user's server (a hint that saves time; the service looks for itself).

    `reasons`: for the user, where the server ended by itself and it is known why (`message`: the same as an older hub
    says it); `reason`: for the metric, as in ``core.cluster.pod_status``. All are empty for an ordinary stop. `asked`:
    somebody asked for the stop while it ran; else it ended by itself. `closing`: the hub itself ends, and takes its
    servers with it. `polled`: whether the spawner's own poll, asked afterwards, calls it ended; None: it does not say.
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
"""The header of a start by which the service brings a server back whose GPU was taken back."""


@dataclass(frozen=True, slots=True)
class SignedOut:
    """The user of a server signed out, or may not sign in any more: the server is to stop.

    Attributes:
        lease: which run of it. left_seconds: until then; 0: now.
        cause: the hub's word, as in ``core.sign_on.EndCause``.
    """

    user: str
    server: str
    lease: str
    left_seconds: float
    cause: str


@dataclass(frozen=True, slots=True)
class WithoutSession:
    """A user of whom nobody knows whether the provider still has the account. `since`: when the last session ended."""

    user: str
    since: datetime


@dataclass(frozen=True, slots=True)
class WithoutSessions:
    """All such users: whoever is not among them has an account as far as is known.

    Attributes:
        drain_after_seconds: so long after `since` their servers stop, if they are idle; None: they do not for that.
    """

    people: tuple[WithoutSession, ...]
    drain_after_seconds: float | None = None


@dataclass(frozen=True, slots=True)
class DrainState:
    """Whether the service stops the server.

    Attributes:
        left_seconds: until it begins; None: it will not, as no such lease is held here.
        takes_seconds: how long it may take then, with its turn among others that stop too.
    """

    left_seconds: float | None
    takes_seconds: float = 60.0
