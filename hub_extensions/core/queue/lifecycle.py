"""How a ticket and a lease change. Nobody else writes a state; quota, culling and sign-out bring events, no writer.

| ticket   | ADMITTED | STARTED  | READY | LEFT  | FAILED | ABANDONED | MAX_WAIT | REFUSED | ASKED    | ASKED_OTHERS |
| -------- | -------- | -------- | ----- | ----- | ------ | --------- | -------- | ------- | -------- | ------------ |
| none     |          |          |       |       |        |           |          |         | waiting  | waiting      |
| waiting  | admitted | waiting  | ended | ended |        | ended     | ended    | ended   | waiting  | waiting      |
| admitted |          | admitted | ended | ended | ended  | ended     |          | ended   | admitted | waiting      |

A waiting one that loses the right to one of its offers (RIGHT_LOST) goes on with the others. One that FAILED leaves its
places behind for the next ticket of its server, once in a row (``failed_starts.py``): none -> waiting by ASKED, there.

| lease    | ADMITTED | ADOPTED | STARTED  | READY   | its ticket ends | SUPERSEDED | GONE or CULLED | DEVICE_LOST |
| -------- | -------- | ------- | -------- | ------- | --------------- | ---------- | -------------- | ----------- |
| none     | starting | running |          |         |                 |            |                |             |
| starting |          |         | starting | running | ending          | ending     |                |             |
| running  |          |         | running  |         |                 | ending     | ending         | lost        |
| lost     |          |         | lost     |         |                 | ending     | ending         |             |

A lost lease is running again by DEVICE_BACK, an ending one by SERVER_BACK; RELEASED, the proof that nothing runs there
any more, ends an ending one. *Its ticket ends* is LEFT, FAILED, ABANDONED, REFUSED, ASKED_OTHERS or ORPHANED. What is
not in a table is refused with a reason. What ended never comes back.

Not here: who may be admitted (``admission.py``), how the proof is found, and where a state is kept.
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
    """What happens to a ticket, to its lease, or to both."""

    ASKED = "asked"
    """Its user asks for a place, or again for offers among which is the one it was admitted to."""
    ASKED_OTHERS = "asked-others"
    """Its user asks again, and not for the offer it was admitted to."""
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
    """Of several offers that it waits for its user may not have one any more."""
    ORPHANED = "orphaned"
    """A lease that is starting, and its ticket is gone."""
    SUPERSEDED = "superseded"
    """The same server is asked for anew."""
    ADOPTED = "adopted"
    """A server that ran before this product did."""
    SERVER_GONE = "server-gone"
    SERVER_BACK = "server-back"
    """A stop that failed: the hub says it is ready, and its process or pod is there."""
    CULLED = "culled"
    DEVICE_LOST = "device-lost"
    DEVICE_BACK = "device-back"
    RELEASED = "released"
    """Nothing of its server is left: on one machine no process, on a cluster no pod."""


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
"""How a ticket is said to have ended by each event that ends one."""


@dataclass(frozen=True, slots=True)
class Step:
    """A ticket after an event, and its lease, where that changed too.

    Attributes:
        end: how the ticket ended; None: it goes on.
    """

    ticket: Ticket
    end: TicketEnd | None = None
    lease: Lease | None = None

    @property
    def leases(self) -> tuple[Lease, ...]:
        """The lease, if it changed."""
        return (self.lease,) if self.lease else ()


@dataclass(frozen=True, slots=True)
class LeaseReading:
    """What a reading of the machine or the cluster says of one lease. None: it does not say.

    Attributes:
        ticket_lives: a lease that is starting still has its ticket.
        device: the device is there (on a cluster: the pod's machine answers).
        server_gone: nothing of the server runs any more, and nothing of it is awaited.
        released: the proof that nothing uses the device for it any more.
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
    """The places for the offers asked for: one that it waits for is kept, all others share a new one at the end.

    Who was admitted and asks for others instead has had its turn: it keeps none.

    Args:
        ticket: the server's live ticket; None: it has none. new_place: makes a place; not called where none is needed.
        left: the places that a failed start of this server left behind, for a ticket that begins.
    """
    keeps = ticket is not None and ticket.admitted_offer in (None, *offers)
    before = ticket.wanted_offers if ticket is not None and keeps else left if ticket is None else ()
    had = {choice.offer: choice.place for choice in before}
    fresh = new_place() if any(offer not in had for offer in offers) else 0
    return tuple(WantedOffer(offer, had.get(offer, fresh)) for offer in offers)


def ask(ticket: Ticket | None, lease: Lease | None, wanted: Ticket) -> Step:
    """A place is asked for, for the first time or again.

    Args:
        ticket: the server's live ticket; None: it has none. lease: that ticket's, else one the server left behind.
        wanted: the ticket as it is asked for: its offers, groups and options; a new one is taken as it is.
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
    """It may start, under a lease of what it is given; with CPU only it has none."""
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
    """Its server's process is known; what is not said again stays."""
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
    """Its server is ready: the ticket ends, the lease runs."""
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
    """A ticket ends without a server: left, failed, abandoned, too long in line, refused. A starting lease ends too."""
    state = TICKETS.get((ticket.state, event))
    if state is not TicketState.ENDED:
        return _impossible(ticket.state, event)
    after = LEASES.get((lease.state, event)) if lease is not None else None
    return Step(
        replace(ticket, state=state), ENDS[event], replace(lease, state=after) if lease is not None and after else None
    )


def places_left(ticket: Ticket) -> tuple[WantedOffer, ...]:
    """The places that a ticket leaves behind whose admitted start fails; none where it was not admitted."""
    return ticket.wanted_offers if (ticket.state, Event.FAILED) in TICKETS else ()


def lose_right(ticket: Ticket, offer: OfferId) -> Step | Reason:
    """It goes on without this offer. A reason why not: it has no other, or waits no more."""
    state = TICKETS.get((ticket.state, Event.RIGHT_LOST))
    rest = tuple(choice for choice in ticket.wanted_offers if choice.offer != offer)
    if state is None or not rest:
        return _impossible(ticket.state, Event.RIGHT_LOST)
    return Step(replace(ticket, state=state, wanted_offers=rest))


# ------------------------------------------------------------------ leases


def move(lease: Lease, event: Event) -> Lease | Reason:
    """A lease after an event that is about it alone."""
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
    """The lease of a server that ran before this product did: over a whole device, until more is known."""
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
    """The lease after a reading (the same object when nothing changed). Of what is not known nothing follows."""
    if lease.state is LeaseState.STARTING:
        # its ticket decides: ready, failed, left or abandoned; without one nobody does
        return lease if seen.ticket_lives else replace(lease, state=LEASES[lease.state, Event.ORPHANED])
    if lease.state is LeaseState.RUNNING and seen.device is False and not seen.server_gone:
        return replace(lease, state=LEASES[lease.state, Event.DEVICE_LOST])  # only a server that lives can lose it
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
