"""The states of tickets (servers' places in line) and leases (servers' rights to a device), as tables.

No other module changes a state; quotas, culling and sign-out send events to this one.

| ticket   | ADMITTED | STARTED  | READY | LEFT  | FAILED | ABANDONED | MAX_WAIT | REFUSED | ASKED    | ASKED_OTHERS |
| -------- | -------- | -------- | ----- | ----- | ------ | --------- | -------- | ------- | -------- | ------------ |
| none     |          |          |       |       |        |           |          |         | waiting  | waiting      |
| waiting  | admitted | waiting  | ended | ended |        | ended     | ended    | ended   | waiting  | waiting      |
| admitted |          | admitted | ended | ended | ended  | ended     |          | ended   | admitted | waiting      |

A waiting ticket that loses the right to one of its offers (RIGHT_LOST) keeps the others. A ticket that FAILED leaves
its places to the next ticket of its server, once in a row (``failed_starts.py``).

| lease    | ADMITTED | ADOPTED | STARTED  | READY   | its ticket ends | SUPERSEDED | GONE or CULLED | DEVICE_LOST |
| -------- | -------- | ------- | -------- | ------- | --------------- | ---------- | -------------- | ----------- |
| none     | starting | running |          |         |                 |            |                |             |
| starting |          |         | starting | running | ending          | ending     |                |             |
| running  |          |         | running  |         |                 | ending     | ending         | lost        |
| lost     |          |         | lost     |         |                 | ending     | ending         |             |

DEVICE_BACK makes a lost lease running again, SERVER_BACK an ending one. RELEASED, the proof that nothing runs on the
device, ends an ending lease. *Its ticket ends* is LEFT, FAILED, ABANDONED, REFUSED, ASKED_OTHERS or ORPHANED. An event
that is not in a table is refused with a reason. An ended ticket or lease never changes again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import datetime
from enum import Enum

from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.queue.model import (
    Admission,
    Lease,
    LeaseState,
    Ticket,
    TicketEnd,
    TicketState,
    WantedOffer,
)
from hub_extensions.core.text.reasons import Reason, explain


class Event(Enum):
    """An event that changes the state of a ticket (a server's place in line), of its lease, or of both."""

    ASKED = "asked"
    """The user asks for a place, or asks again and still accepts the admitted offer."""
    ASKED_OTHERS = "asked-others"
    """The user asks again and no longer accepts the admitted offer."""
    ADMITTED = "admitted"
    STARTED = "started"
    """The server's process is known."""
    READY = "ready"
    LEFT = "left"
    FAILED = "failed"
    ABANDONED = "abandoned"
    MAX_WAIT = "max-wait"
    REFUSED = "refused"
    RIGHT_LOST = "right-lost"
    """The user lost the right to one of several offers."""
    ORPHANED = "orphaned"
    """The ticket of a lease that is starting does not exist any more."""
    SUPERSEDED = "superseded"
    """The same server is started again, with a new ticket."""
    ADOPTED = "adopted"
    """The service found the server already running, from before its installation or from an outage of the service."""
    SERVER_GONE = "server-gone"
    SERVER_BACK = "server-back"
    """A stop failed: the hub reports the server as ready, and its process or pod is there."""
    CULLED = "culled"
    DEVICE_LOST = "device-lost"
    DEVICE_BACK = "device-back"
    RELEASED = "released"
    """Nothing of the server is left: no process on one machine, no pod on a cluster."""


_WAITING, _ADMITTED, _OVER = TicketState.WAITING, TicketState.ADMITTED, TicketState.ENDED
TICKETS: Mapping[tuple[TicketState | None, Event], TicketState] = {
    (None, Event.ASKED): _WAITING,
    (None, Event.ASKED_OTHERS): _WAITING,
    (_WAITING, Event.ASKED): _WAITING,
    (_WAITING, Event.ASKED_OTHERS): _WAITING,
    (_WAITING, Event.ADMITTED): _ADMITTED,
    (_WAITING, Event.STARTED): _WAITING,
    (_WAITING, Event.READY): _OVER,
    (_WAITING, Event.LEFT): _OVER,
    (_WAITING, Event.ABANDONED): _OVER,
    (_WAITING, Event.MAX_WAIT): _OVER,
    (_WAITING, Event.REFUSED): _OVER,
    (_WAITING, Event.RIGHT_LOST): _WAITING,
    (_ADMITTED, Event.ASKED): _ADMITTED,
    (_ADMITTED, Event.ASKED_OTHERS): _WAITING,
    (_ADMITTED, Event.STARTED): _ADMITTED,
    (_ADMITTED, Event.READY): _OVER,
    (_ADMITTED, Event.LEFT): _OVER,
    (_ADMITTED, Event.FAILED): _OVER,
    (_ADMITTED, Event.ABANDONED): _OVER,
    (_ADMITTED, Event.REFUSED): _OVER,
}

_STARTING, _RUNNING, _LOST, _ENDING = LeaseState.STARTING, LeaseState.RUNNING, LeaseState.LOST, LeaseState.ENDING
LEASES: Mapping[tuple[LeaseState | None, Event], LeaseState] = {
    (None, Event.ADMITTED): _STARTING,
    (None, Event.ADOPTED): _RUNNING,
    (_STARTING, Event.STARTED): _STARTING,
    (_STARTING, Event.READY): _RUNNING,
    (_STARTING, Event.ASKED_OTHERS): _ENDING,
    (_STARTING, Event.LEFT): _ENDING,
    (_STARTING, Event.FAILED): _ENDING,
    (_STARTING, Event.ABANDONED): _ENDING,
    (_STARTING, Event.REFUSED): _ENDING,
    (_STARTING, Event.ORPHANED): _ENDING,
    (_STARTING, Event.SUPERSEDED): _ENDING,
    (_RUNNING, Event.STARTED): _RUNNING,
    (_RUNNING, Event.SUPERSEDED): _ENDING,
    (_RUNNING, Event.SERVER_GONE): _ENDING,
    (_RUNNING, Event.CULLED): _ENDING,
    (_RUNNING, Event.DEVICE_LOST): _LOST,
    (_LOST, Event.STARTED): _LOST,
    (_LOST, Event.SUPERSEDED): _ENDING,
    (_LOST, Event.SERVER_GONE): _ENDING,
    (_LOST, Event.CULLED): _ENDING,
    (_LOST, Event.DEVICE_BACK): _RUNNING,
    (_ENDING, Event.SERVER_BACK): _RUNNING,
    (_ENDING, Event.RELEASED): LeaseState.ENDED,
}

ENDS: Mapping[Event, TicketEnd] = {
    Event.READY: TicketEnd.READY,
    Event.LEFT: TicketEnd.LEFT,
    Event.FAILED: TicketEnd.FAILED,
    Event.ABANDONED: TicketEnd.ABANDONED,
    Event.MAX_WAIT: TicketEnd.MAX_WAIT,
    Event.REFUSED: TicketEnd.REFUSED,
}
"""Event that ends a ticket -> the recorded end."""


@dataclass(frozen=True, slots=True)
class Step:
    """The result of an event: the changed ticket, and its lease if that changed too.

    Attributes:
        ticket: the ticket after the event.
        end: how the ticket ended; None if it has not ended.
        lease: the changed lease; None if no lease changed.
    """

    ticket: Ticket
    end: TicketEnd | None = None
    lease: Lease | None = None

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The lease that an event has changed, in a tuple; empty if the event changed no lease."""
        return (self.lease,) if self.lease else ()


@dataclass(frozen=True, slots=True)
class LeaseReading:
    """The last observation of one lease on the machine or the cluster.

    Attributes:
        ticket_lives: whether the ticket that got the lease has not ended. It matters only while the lease is starting.
        device: whether the device exists; on a cluster, whether the pod's node answers. None if that is not known.
        server_gone: whether no process or pod of the server runs any more, and none is expected.
        released: whether it is proved that no process of the server uses the device any more.
    """

    ticket_lives: bool
    device: bool | None
    server_gone: bool
    released: bool


# ------------------------------------------------------------------ tickets


def wanted_offers_of(
    offers: Sequence[OfferId],
    ticket: Ticket | None,
    new_place: Callable[[], int],
    left: Sequence[WantedOffer] = (),
) -> tuple[WantedOffer, ...]:
    """Return the offers that a start accepts, each with its place in line.

    An offer that the ticket accepted before keeps its place. All new offers share one new place at the end. If the
    ticket was admitted, and the start no longer accepts the admitted offer, every offer gets the new place.

    Args:
        offers: the offers that the start accepts, in the user's order of preference.
        ticket: the server's ticket that has not ended; None without such a ticket.
        new_place: returns a new place; called only if one is needed.
        left: places that a failed start of this server left, for a new ticket.
    """
    keeps = ticket is not None and ticket.admitted_offer in (None, *offers)
    before = ticket.wanted_offers if ticket is not None and keeps else left if ticket is None else ()
    had = {choice.offer: choice.place for choice in before}
    fresh = new_place() if any(offer not in had for offer in offers) else 0
    return tuple(WantedOffer(offer, had.get(offer, fresh)) for offer in offers)


def ask(ticket: Ticket | None, lease: Lease | None, wanted: Ticket) -> Step:
    """Create a ticket for a start, or update the ticket that the server already has.

    Args:
        ticket: the server's ticket that has not ended; None if every ticket has ended.
        lease: the lease of that ticket, or one that an earlier run of the server left behind; None if neither exists.
        wanted: the ticket as the start requests it, with its offers, groups and options.
    """
    if ticket is None:
        stale = None if lease is None else replace(lease, state=LEASES[lease.state, Event.SUPERSEDED])
        return Step(replace(wanted, state=TICKETS[None, Event.ASKED]), lease=stale)
    offers = [choice.offer for choice in wanted.wanted_offers]
    event = Event.ASKED if ticket.admitted_offer in (None, *offers) else Event.ASKED_OTHERS
    state = TICKETS[ticket.state, event]
    again = replace(
        ticket,
        wanted_offers=wanted.wanted_offers,
        attempt=ticket.attempt + 1,
        groups=wanted.groups,
        options=wanted.options,
        demands=wanted.demands,
        state=state,
    )
    if state is ticket.state:
        return Step(again)
    given_up = None if lease is None else replace(lease, state=LEASES[lease.state, event])
    return Step(replace(again, admitted_offer=None, admitted_at=None), lease=given_up)


def admit(
    ticket: Ticket, admission: Admission, now: datetime, *, lease_id: str, uuid: str, pool: str, share: int
) -> Step | Reason:
    """Admit a ticket and create its lease. A ticket for CPU only gets no lease.

    Args:
        admission: the offer and the device that the ticket gets.
        now: the present time of the running clock, at which the lease begins.
        lease_id: id of the new lease.
        uuid, pool: UUID of the lease's device, and its pool (all devices of one kind).
        share: thousandths of the device that the lease covers.

    Returns:
        The changed ticket and the new lease, or the reason if the ticket cannot be admitted because it does not wait.
    """
    state = TICKETS.get((ticket.state, Event.ADMITTED))
    if state is None:
        return _impossible(ticket.state, Event.ADMITTED)
    admitted = replace(ticket, state=state, admitted_offer=admission.offer, admitted_at=now)
    if admission.device is None:
        return Step(admitted)
    lease = Lease(
        id=lease_id,
        ticket=ticket.id,
        user=ticket.user,
        server=ticket.server,
        offer=admission.offer,
        device=admission.device,
        uuid=uuid,
        pool=pool,
        share=share,
        state=LEASES[None, Event.ADMITTED],
        since=now,
    )
    return Step(admitted, lease=lease)


def start(lease: Lease, pid: int | None, pid_started: int | None) -> Lease | Reason:
    """Record the server's process in its lease.

    Args:
        pid: the process id; None keeps the recorded one.
        pid_started: start time of the process in clock ticks since boot; None keeps the recorded one.

    Returns:
        The changed lease, or a reason if the lease is ending or has ended.
    """
    return _moved(
        replace(
            lease,
            pid=lease.pid if pid is None else pid,
            pid_started=lease.pid_started if pid_started is None else pid_started,
        ),
        Event.STARTED,
    )


def ready(
    ticket: Ticket, lease: Lease | None, now: datetime, end_of: Callable[[Lease], datetime | None]
) -> Step | Reason:
    """End the ticket of a server that is ready, and set its lease to running.

    Args:
        lease: the server's lease; None for a server without a GPU.
        end_of: returns when a limit ends the lease at the latest, or None without a limit.

    Returns:
        The ended ticket and the running lease, or a reason if the ticket has ended or the lease is not starting.
    """
    state = TICKETS.get((ticket.state, Event.READY))
    if state is None:
        return _impossible(ticket.state, Event.READY)
    ended = replace(ticket, state=state)
    if lease is None:
        return Step(ended, TicketEnd.READY)
    running = _moved(lease, Event.READY)
    if isinstance(running, Reason):
        return running
    running = replace(running, ready_at=now)
    return Step(ended, TicketEnd.READY, replace(running, ends_at=end_of(running)))


def end(ticket: Ticket, lease: Lease | None, event: Event) -> Step | Reason:
    """End a ticket whose server does not become ready: left, failed, abandoned, too long in line, or refused.

    Args:
        lease: the ticket's lease, which begins to end too; None without a lease.
        event: LEFT, FAILED, ABANDONED, MAX_WAIT or REFUSED.

    Returns:
        The ended ticket and its lease, or a reason if the event is impossible in the ticket's state.
    """
    state = TICKETS.get((ticket.state, event))
    if state is not TicketState.ENDED:
        return _impossible(ticket.state, event)
    after = LEASES.get((lease.state, event)) if lease is not None else None
    return Step(
        replace(ticket, state=state), ENDS[event], replace(lease, state=after) if lease is not None and after else None
    )


def places_left(ticket: Ticket) -> tuple[WantedOffer, ...]:
    """Return the places in line that a failed start leaves to the server's next start.

    Empty if the ticket was not admitted yet, because only an admitted ticket can fail.
    """
    return ticket.wanted_offers if (ticket.state, Event.FAILED) in TICKETS else ()


def lose_right(ticket: Ticket, offer: OfferId) -> Step | Reason:
    """Remove an offer, which the user may no longer have, from a waiting ticket.

    Returns:
        The changed ticket, or a reason if it accepts no other offer or does not wait any more.
    """
    state = TICKETS.get((ticket.state, Event.RIGHT_LOST))
    rest = tuple(choice for choice in ticket.wanted_offers if choice.offer != offer)
    if state is None or not rest:
        return _impossible(ticket.state, Event.RIGHT_LOST)
    return Step(replace(ticket, state=state, wanted_offers=rest))


# ------------------------------------------------------------------ leases


def move(lease: Lease, event: Event) -> Lease | Reason:
    """Return a lease after an event that changes no ticket, or a reason if its state does not allow the event."""
    return _moved(lease, event)


def adopt(
    user: str,
    server: str,
    now: datetime,
    *,
    lease_id: str,
    pool: str,
    device: str,
    uuid: str,
    pid: int | None = None,
    pid_started: int | None = None,
) -> Lease:
    """Return the lease of an adopted server, which the service found already running.

    The server was started before this product was installed, or during an outage of the service.
    The lease covers a whole device, because it is not known how much of it the server uses.

    Args:
        now: the present time of the running clock, at which the lease begins.
        lease_id: id of the new lease.
        pool: the pool (all devices of one kind) that the device belongs to.
        device, uuid: identity and UUID of the device.
        pid, pid_started: the server's process and its start time; None if not known.
    """
    return Lease(
        id=lease_id,
        ticket="",
        user=user,
        server=server,
        offer=OfferId(pool),
        device=device,
        uuid=uuid,
        pool=pool,
        share=WHOLE,
        state=LEASES[None, Event.ADOPTED],
        since=now,
        ready_at=now,
        pid=pid,
        pid_started=pid_started,
        adopted=True,
    )


def refresh(lease: Lease, seen: LeaseReading) -> Lease:
    """Return the lease after a look at the machine or the cluster; the same object if nothing changed.

    A starting lease begins to end if its ticket does not exist any more. A running or lost lease begins to end if its
    server is gone. An ending lease is over once it is proved that no process of the server uses the device any more.

    Args:
        lease: the lease as it was before.
        seen: what was seen of the lease.
    """
    if lease.state is LeaseState.STARTING:
        # the ticket decides: ready, failed, left or abandoned
        return lease if seen.ticket_lives else replace(lease, state=LEASES[lease.state, Event.ORPHANED])
    if lease.state is LeaseState.RUNNING and seen.device is False and not seen.server_gone:
        return replace(lease, state=LEASES[lease.state, Event.DEVICE_LOST])  # only a running server can lose its device
    if lease.state is LeaseState.LOST and seen.device:
        lease = replace(lease, state=LEASES[lease.state, Event.DEVICE_BACK])
    if seen.server_gone and lease.state in (LeaseState.RUNNING, LeaseState.LOST):
        lease = replace(lease, state=LEASES[lease.state, Event.SERVER_GONE])
    if seen.released and lease.state is LeaseState.ENDING:
        lease = replace(lease, state=LEASES[lease.state, Event.RELEASED])
    return lease


def _moved(lease: Lease, event: Event) -> Lease | Reason:
    state = LEASES.get((lease.state, event))
    return _impossible(lease.state, event) if state is None else replace(lease, state=state)


def _impossible(state: Enum, event: Event) -> Reason:
    return explain("too-late", log_message=f"{event.value} does not fit what is {state.value}")
