"""What the line is made of: tickets, leases, verdicts, and everything one admission decides on.

Values only. Not here: any decision about them (``admission.py``).
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
    """Where a ticket stands."""

    WAITING = "waiting"
    ADMITTED = "admitted"
    ENDED = "ended"


class TicketEnd(Enum):
    """How a ticket ended. There is no other way."""

    READY = "ready"
    LEFT = "left"
    ABANDONED = "abandoned"
    MAX_WAIT = "max-wait"
    REFUSED = "refused"
    FAILED = "failed"


class LeaseState(Enum):
    """Where a lease stands."""

    STARTING = "starting"
    """Given; its server is not ready yet."""
    RUNNING = "running"
    ENDING = "ending"
    """Its server is gone; left-overs are being ended. The device is still held."""
    LOST = "lost"
    """Its device is gone from the machine."""
    ENDED = "ended"


@dataclass(frozen=True, slots=True)
class WantedOffer:
    """One acceptable offer of a ticket and the ticket's place in that offer's line (a serial number, not a time)."""

    offer: OfferId
    place: int


@dataclass(frozen=True, slots=True)
class Ticket:
    """A place in line.

    Attributes:
        wanted_offers: in the user's order of preference.
        attempt: counts the spawns that asked for it; a cancel of an older attempt does not end it.
        options: the validated user options, so that the service can start the server by itself (JSON-able).
        demands: what its pod will demand of a node; None is not known.
        admitted_offer: the offer it was admitted to; None while it waits.
        asked: when it joined, by the wall clock, for people and records; None: not known.
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

    @property
    def is_cpu(self) -> bool:
        """CPU only: it needs a start slot, never a device."""
        return all(choice.offer == CPU for choice in self.wanted_offers)

    @property
    def first_place(self) -> int:
        """Its first place in any line."""
        return min(choice.place for choice in self.wanted_offers)


@dataclass(frozen=True, slots=True)
class Lease:
    """The right of one server to a share of one device, until it is released.

    Attributes:
        device: `Device.identity`; on a cluster, where the scheduler picks one, the pool's id.
        uuid: the device's UUID (what the server's environment says); "" on a cluster.
        pool: the device's pool.
        share: thousandths of it; 0 for CPU only is never stored.
        ends_at: when a limit that is enforced ends it at the latest; None: no limit is enforced.
        pid, pid_started: the server's process and its start time (clock ticks since boot), once known.
        adopted: its server ran before this product did.
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
    """The limits of the line.

    Times are running time of hub and service.
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
    """What admission says."""

    ADMIT = "admit"
    WAIT = "wait"
    REFUSE = "refuse"


@dataclass(frozen=True, slots=True)
class Admission:
    """One ticket may start now: on this device (`Device.identity`; a cluster's pool), or without one (CPU only)."""

    ticket: str
    offer: OfferId
    device: str | None


@dataclass(frozen=True, slots=True)
class Verdict:
    """What one ticket is told.

    Attributes:
        offer: the offer it is admitted to (ADMIT), or the one its position is for (WAIT).
        device: `Device.identity` of the device it is given, a cluster's pool; None for CPU only or while it waits.
        position: 1 is the next; 0 when admitted or refused.
        ahead: how many are ahead in that line.
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
    """How one offer stands now. None is not known.

    Attributes:
        free: how many servers could be given it now (before anybody in line is served).
        total: how many there are if nobody had any.
        held: taken by our leases; `foreign`: taken by processes that we never started; `lost`: gone under a lease.
        waiting: tickets in its line. queue: whose line it is where it is not ours, as in `QueueSnapshot`.
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
    """The waiting tickets of one pool (CPU only is the pool ``cpu``).

    Attributes:
        tickets: each once, in the order of their places there. places: of each of them the first there.
        asked: offer -> how many ask for it.
    """

    tickets: tuple[Ticket, ...] = ()
    places: tuple[int, ...] = ()
    asked: Mapping[OfferId, int] = field(default_factory=dict)


@dataclass(frozen=True)
class QueueSnapshot:
    """Everything one admission decides on.

    Attributes:
        devices: of one machine; None while they are not known: nobody is admitted to a GPU then.
        pools: of a cluster, where devices are counted; None on one machine, and while they are not known.
        bound: leases whose pod has its place: `pools` counts their devices as taken already.
        queue: whose line it is where it is not ours (``Kueue``, ``KAI``): everybody is admitted at once.
        held_up: offers whose first in line was admitted and finds no device: something outside this hub took it, or its
            machine does not answer.
        held_up_on: of such an offer the nodes that this concerns; an offer that is not in it is held up everywhere.
        held_back: admitted tickets that the start brake does not count, because their pod is not placed yet.
        node_sets: ticket -> the nodes of the cluster that its server may use. A ticket that is not in it may use those
            that all servers may, as far as anybody knows.
        node_of: lease -> the node of its pod.
        closed: `Device.identity` of devices that nobody new is given (``cordons.py``).
        over_quota: offers that the cluster takes no pod of now, and why. tried: of these, those that one start may try.
        tickets: waiting and admitted ones, in any order.
        leases: all that have not ended.
        lifetime: what a new lease may last at most; None: no limit is enforced, and "at most" is never said.
        start_allowance: a start takes at most this long, or it is ended.
        queues: the lines of the tickets by pool, where somebody keeps them; None: they follow from the tickets.
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
        """A machine of the cluster that has some of this pool does not answer."""
        found = (self.pools or {}).get(OfferId(pool))
        return found is not None and found.silent

    @property
    def starting(self) -> int:
        """How many servers are between admission and ready, as far as the start brake counts."""
        return sum(1 for t in self.tickets if t.state is TicketState.ADMITTED and t.id not in self.held_back)
