"""The values of the queue: tickets, leases, verdicts, and the snapshot on which an admission decides.

A ticket is a server's place in line; a lease is the right of one server to a share of one device. A pool is all devices
of one kind, which one line serves. The running clock, on which waits and limits are measured, stands still while hub or
service is down.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from datetime import datetime, timedelta
from enum import Enum
from typing import ClassVar

from hub_extensions.core.cluster.placement import PodDemands
from hub_extensions.core.cluster.pools import Pool
from hub_extensions.core.gpu.devices import DeviceState
from hub_extensions.core.offers.model import GpuOffer
from hub_extensions.core.offers.offer_id import CPU, OfferId
from hub_extensions.core.queue.wait_bound import START_ALLOWANCE, WaitForecast
from hub_extensions.core.settings import setting
from hub_extensions.core.text.reasons import Reason


class TicketState(Enum):
    WAITING = "waiting"
    ADMITTED = "admitted"
    ENDED = "ended"


class TicketEnd(Enum):
    """The ways in which a ticket (a server's place in line) can end."""

    READY = "ready"
    LEFT = "left"
    ABANDONED = "abandoned"
    MAX_WAIT = "max-wait"
    REFUSED = "refused"
    FAILED = "failed"


class LeaseState(Enum):
    STARTING = "starting"
    """Granted; the server is not ready yet."""
    RUNNING = "running"
    ENDING = "ending"
    """The server is gone and its remaining processes are being ended. The device is still held."""
    LOST = "lost"
    """The device is gone from the machine."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class WantedOffer:
    """One offer that a ticket accepts.

    Attributes:
        place: the ticket's place in that offer's line: a serial number, the lowest was taken first.
    """

    offer: OfferId
    place: int


@dataclass(frozen=True, slots=True)
class Ticket:
    """A server's place in line, from the request to start it until it is ready or given up.

    Attributes:
        wanted_offers: acceptable offers with their places, in the user's order of preference.
        joined: when it joined the line, on the running clock (which stops while hub or service is down).
        attempt: number of requests to start the server that used this ticket so far. The end of an earlier request does
            not end the ticket.
        groups: the user's groups at the last request.
        options: the validated user options, so that the service can start the server by itself (JSON-able).
        admitted_offer: the offer to which the ticket was admitted. None while it waits.
        admitted_at: when it was admitted, on the running clock. None while it waits.
        asked: wall-clock time at which it joined, for people and records. None if that is not known.
        demands: what its pod will require of a node. None if that is not known.
        free_when_asked: the offers that could start at once when it joined. None if that is not known.
    """

    id: str
    user: str
    server: str
    wanted_offers: tuple[WantedOffer, ...]
    joined: datetime
    state: TicketState = TicketState.WAITING
    attempt: int = 1
    groups: tuple[str, ...] = ()
    options: Mapping[str, object] = field(default_factory=dict)
    admitted_offer: OfferId | None = None
    admitted_at: datetime | None = None
    asked: datetime | None = None
    demands: PodDemands | None = None
    free_when_asked: tuple[OfferId, ...] | None = None

    @property
    def is_cpu(self) -> bool:
        """Whether the ticket is for a server without a GPU, which needs permission to start but no device."""
        return all(choice.offer == CPU for choice in self.wanted_offers)

    @property
    def first_place(self) -> int:
        """The earliest of the ticket's places in all lines. A place is a serial number; the lowest was taken first."""
        return min(choice.place for choice in self.wanted_offers)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one server to a share of one device, until it is released.

    Attributes:
        ticket: id of the ticket that got it; "" if `adopted`.
        offer: the offer that the server got.
        device: `Device.identity`; on a cluster, where the scheduler picks the device, the pool's id.
        uuid: the device's UUID, as in the server's environment; "" on a cluster.
        pool: name of the pool (all devices of one kind) that the device belongs to.
        share: thousandths of the device. Servers with CPU only do not get a lease.
        since: when it began, on the running clock (which stops while hub or service is down).
        ready_at: when its server was ready, on the running clock. None until then.
        ends_at: when a limit ends it at the latest, on the running clock. None if no limit is enforced.
        pid: the server's process. None until it is known, and on a cluster.
        pid_started: start time of that process in clock ticks since boot. None until it is known.
        adopted: whether the service found its server already running. The server was started before this product was
            installed, or during an outage of the service.
    """

    id: str
    ticket: str
    user: str
    server: str
    offer: OfferId
    device: str
    uuid: str
    pool: str
    share: int
    state: LeaseState
    since: datetime
    ready_at: datetime | None = None
    ends_at: datetime | None = None
    pid: int | None = None
    pid_started: int | None = None
    adopted: bool = False


@dataclass(frozen=True)
class QueueLimits:
    """The settings that limit the lines: how many may wait and start, and for how long.

    Durations are measured on the running clock, which stands still while hub or service is down.
    """

    section: ClassVar[str] = "GpuQueue"

    max_waiting: int = setting(500, "Servers that may wait at the same time. Who comes later is refused.", least=1)
    max_wait: timedelta = setting(
        timedelta(hours=24), "A wait ends after this many hours.", name="max_wait_hours", least=0
    )
    max_starting: int = setting(
        64,
        "Servers that may be starting at the same time, CPU only included. It takes the place of JupyterHub's "
        "concurrent_spawn_limit, which would count servers that wait in line.",
        least=1,
    )
    gpu_leases_per_user: int = setting(1, "Servers with a GPU that one user may have at the same time.", least=1)
    tickets_per_user: int = setting(1, "Places in line that one user may have at the same time.", least=1)
    abandon_after: timedelta = setting(
        timedelta(seconds=120),
        "A place in line ends when the hub has answered for this long without a start that belongs to it.",
        name="abandon_seconds",
        least=1,
    )


class Answer(Enum):
    ADMIT = "admit"
    WAIT = "wait"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Admission:
    """A ticket that may start now, with the offer and the device it gets.

    Attributes:
        ticket: id of the ticket.
        device: `Device.identity`; on a cluster, the pool. None for CPU only.
    """

    ticket: str
    offer: OfferId
    device: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """The answer of admission to one ticket: it may start, it has to wait, or it is refused.

    Attributes:
        reason: why it waits or is refused.
        offer: the offer to which the ticket is admitted (ADMIT), or for which it has its position (WAIT). None if it is
            refused.
        device: `Device.identity` of the granted device; on a cluster, the pool. None for CPU only or while it waits.
        position: position in the line, 1 for the next; 0 if it is admitted or refused.
        ahead: number of tickets ahead in that line.
        forecast: the wait; None if the ticket does not wait.
    """

    answer: Answer
    reason: Reason
    offer: OfferId | None = None
    device: str | None = None
    position: int = 0
    ahead: int = 0
    forecast: WaitForecast | None = None


@dataclass(frozen=True, slots=True)
class Availability:
    """The number of devices of one offer, in all and free, and the wait of a user who joins now.

    Attributes:
        free: number of servers that could get the offer now, if nobody were in line. None if not known.
        total: number of servers that could have the offer at the same time. None if not known.
        held: number of leases with this offer, without those whose device is lost.
        foreign: number of devices used by processes that this hub did not start.
        lost: number of leases of the offer's pool (all devices of one kind) whose device is gone.
        waiting: number of tickets in the line of the offer's pool.
        wait: the wait of a user who joins the line now.
        queue: name of the external queue (``Kueue``, ``KAI``) that decides who starts; "" without one.
    """

    offer: GpuOffer
    free: int | None
    total: int | None
    held: int
    foreign: int
    lost: int
    waiting: int
    wait: WaitForecast
    queue: str = ""


@dataclass(frozen=True, slots=True)
class PoolQueue:
    """The line of one pool (all devices of one kind) at one moment. CPU only counts as the pool ``cpu``.

    Attributes:
        tickets: the waiting tickets in the order of their places.
        places: the first place (a serial number) in this line of each of these tickets.
        asked: offer -> number of tickets that ask for it.
    """

    tickets: tuple[Ticket, ...] = ()
    places: tuple[int, ...] = ()
    asked: Mapping[OfferId, int] = field(default_factory=dict)


@dataclass(frozen=True)
class QueueSnapshot:
    """Everything on which one admission decides: offers, devices, tickets, leases and limits, at one moment.

    Attributes:
        devices: devices of one machine. None on a cluster, and while they are not known: nobody gets a GPU then.
        pools: counted devices of a cluster. None on one machine, and while they are not known.
        bound: ids of leases whose pods are placed on a node, so that `pools` counts their devices as taken.
        queue: name of the external queue (``Kueue``, ``KAI``) that decides who starts, so that admission here lets
            every ticket start at once; "" without an external queue.
        held_up: offers of which nobody else is admitted now, because the last admitted server finds no device:
            something outside this hub took it, or its node does not answer.
        held_up_on: offer in `held_up` -> the nodes on which nobody else is admitted. For an offer of `held_up` that is
            missing here, nobody else is admitted on any node.
        held_back: admitted tickets that do not count towards the limit of simultaneous starts, because their pods are
            not placed yet.
        node_sets: ticket -> nodes that its server may use. A ticket that is missing may run on any node.
        node_of: lease -> node of its pod.
        closed: `Device.identity` of devices that no new server gets, because an administrator drains them
            (``cordons.py``).
        over_quota: offer whose pods the cluster refuses now, because a quota is used up -> reason.
        tried: offers of `over_quota` for which one start may try whether the quota has room again.
        tickets: waiting and admitted tickets, in any order.
        leases: leases that have not ended.
        lifetime: maximum duration of a new lease. None if no limit is enforced; then there are no upper bounds.
        start_allowance: maximum duration of a start.
        queues: pool -> line, if it is kept up to date elsewhere. None if it has to be built from the tickets.
    """

    offers: tuple[GpuOffer, ...]
    devices: tuple[DeviceState, ...] | None
    tickets: tuple[Ticket, ...]
    leases: tuple[Lease, ...]
    config: QueueLimits = field(default_factory=QueueLimits)
    lifetime: timedelta | None = None
    start_allowance: timedelta = START_ALLOWANCE
    pools: Mapping[OfferId, Pool] | None = None
    bound: frozenset[str] = frozenset()
    queue: str = ""
    held_up: frozenset[OfferId] = frozenset()
    held_back: frozenset[str] = frozenset()
    queues: Mapping[str, PoolQueue] | None = None
    held_up_on: Mapping[OfferId, frozenset[str]] = field(default_factory=dict)
    node_sets: Mapping[str, frozenset[str]] = field(default_factory=dict)
    node_of: Mapping[str, str] = field(default_factory=dict)
    closed: frozenset[str] = frozenset()
    over_quota: Mapping[OfferId, Reason] = field(default_factory=dict)
    tried: frozenset[OfferId] = frozenset()

    def silent(self, pool: str) -> bool:
        """Return whether a node of the cluster that has devices of this pool does not answer."""
        found = (self.pools or {}).get(OfferId(pool))
        return found is not None and found.silent

    @property
    def starting(self) -> int:
        """Number of servers that are starting and count towards the limit of simultaneous starts."""
        return sum(1 for t in self.tickets if t.state is TicketState.ADMITTED and t.id not in self.held_back)
