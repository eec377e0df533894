"""The end of a use (one server's time with one offer), as one word for its record.

The word is derived from the cause of a stop by this service, from the end of a ticket, or from a report of the hub.
"""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from hub_extensions.core.culling import Cause
from hub_extensions.core.queue.model import TicketEnd


class UseEnd(Enum):
    """The end of a use (one server's time with one offer). Usage records contain the value."""

    USER = "user"
    """The user gave the GPU back, or the server was stopped at the hub, and the hub does not report the actor."""
    IDLE = "idle"
    """The service stopped the server, because its GPU was idle or its user was away for too long."""
    UNOPENED = "unopened"
    """The service stopped the server, because nobody opened it in time."""
    LIFETIME = "lifetime"
    """The service stopped the server after the longest time that the policy allows."""
    FAILED = "failed"
    """The start failed, or the server crashed."""
    LEFT = "left"
    """The start was given up before the server was ready."""
    LOST = "lost"
    """The device disappeared from the machine."""
    NODE_LOST = "node-lost"
    """The node of the server's pod disappeared."""
    ADMIN = "admin"
    """An administrator of the GPUs stopped the server or released its lease."""
    HUB_STOPPED = "hub-stopped"
    """The server ended because the hub ended, or while the hub or this service was down."""
    RECLAIMED = "reclaimed"
    """A GPU that was used beyond the project's quota was taken back, by this service or by the cluster's scheduler."""
    SIGNED_OUT = "signed-out"
    """The user was signed out, or lost the right to use the hub."""
    UNKNOWN = "unknown"


_OF_CAUSE: Mapping[Cause, UseEnd] = {
    Cause.IDLE: UseEnd.IDLE,
    Cause.CPU_IDLE: UseEnd.IDLE,
    Cause.UNOPENED: UseEnd.UNOPENED,
    Cause.LIFETIME: UseEnd.LIFETIME,
    Cause.SIGNED_OUT: UseEnd.SIGNED_OUT,
    Cause.GIVEN_BACK: UseEnd.USER,
    Cause.ADMIN: UseEnd.ADMIN,
    Cause.RECLAIMED: UseEnd.RECLAIMED,
}
_OF_TICKET: Mapping[TicketEnd, UseEnd] = {
    TicketEnd.LEFT: UseEnd.LEFT,
    TicketEnd.ABANDONED: UseEnd.LEFT,
    TicketEnd.MAX_WAIT: UseEnd.LEFT,
    TicketEnd.REFUSED: UseEnd.FAILED,
    TicketEnd.FAILED: UseEnd.FAILED,
}
_OF_REPORT: Mapping[str, UseEnd] = {
    "node-lost": UseEnd.NODE_LOST,
    "machine-silent": UseEnd.NODE_LOST,
    "preempted": UseEnd.RECLAIMED,
    "reclaimed": UseEnd.RECLAIMED,
    "out-of-memory": UseEnd.FAILED,
    "evicted": UseEnd.FAILED,
    "rejected": UseEnd.FAILED,
    "crashed": UseEnd.FAILED,
}


def end_of_cull(cause: Cause | None) -> UseEnd:
    """Return how a use ends if this service stopped the server.

    Args:
        cause: why the service stopped it. `None` if that was lost; the use then ends as *unknown*.
    """
    return UseEnd.UNKNOWN if cause is None else _OF_CAUSE[cause]


def end_of_ticket(end: TicketEnd) -> UseEnd | None:
    """Return how a use ends when its ticket (the server's place in line) has ended before the server was ready.

    `None` if the ticket ended because the server is ready, so that the use goes on.
    """
    return _OF_TICKET.get(end)


def end_of_stop(reason: str, asked: bool, closing: bool = False) -> UseEnd:
    """Return how a use ends when the hub reports the end of its server.

    Args:
        reason: code of ``core.cluster.pod_status`` for why the server ended by itself; "" if not known.
        asked: whether the hub was asked to stop the server.
        closing: whether the hub stopped the server only because the hub itself ended.
    """
    stopped = UseEnd.HUB_STOPPED if closing else UseEnd.USER
    return _OF_REPORT.get(reason, stopped if asked else UseEnd.UNKNOWN)
