"""How a use ended, in one word, from what each part of the service knows of it."""

from __future__ import annotations

from collections.abc import Mapping
from enum import Enum

from hub_extensions.core.culling import Cause
from hub_extensions.core.queue.model import TicketEnd


class UseEnd(Enum):
    """How a use ended."""

    USER = "user"
    """Its user gave the GPU back, or somebody stopped the server at the hub, which does not say who."""
    IDLE = "idle"
    UNOPENED = "unopened"
    LIFETIME = "lifetime"
    FAILED = "failed"
    """The start failed, or the server broke down."""
    LEFT = "left"
    """The start was given up before the server was ready."""
    LOST = "lost"
    """Its device was gone from the machine."""
    NODE_LOST = "node-lost"
    ADMIN = "admin"
    """An admin of the GPUs stopped it, or gave it up."""
    HUB_STOPPED = "hub-stopped"
    """It ended while the hub or this service was away."""
    RECLAIMED = "reclaimed"
    SIGNED_OUT = "signed-out"
    UNKNOWN = "unknown"


_OF_CAUSE: Mapping[Cause, UseEnd] = {
    Cause.IDLE: UseEnd.IDLE,
    Cause.CPU_IDLE: UseEnd.IDLE,
    Cause.UNOPENED: UseEnd.UNOPENED,
    Cause.LIFETIME: UseEnd.LIFETIME,
    Cause.SIGNED_OUT: UseEnd.SIGNED_OUT,
    Cause.GIVEN_BACK: UseEnd.USER,
    Cause.ADMIN: UseEnd.ADMIN,
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
    """Of a server that this service stopped."""
    return UseEnd.UNKNOWN if cause is None else _OF_CAUSE[cause]


def end_of_ticket(end: TicketEnd) -> UseEnd | None:
    """Of a start whose ticket ended so; None: its server was ready, and nothing has ended."""
    return _OF_TICKET.get(end)


def end_of_stop(reason: str, asked: bool, closing: bool = False) -> UseEnd:
    """Of a server whose end the hub reports.

    Args:
        reason: as in ``core.cluster.pod_status``, of a server that ended by itself; "" where it is not known.
        asked: the hub was asked to stop it. closing: by the end of the hub itself, and by nobody else.
    """
    stopped = UseEnd.HUB_STOPPED if closing else UseEnd.USER
    return _OF_REPORT.get(reason, stopped if asked else UseEnd.UNKNOWN)
