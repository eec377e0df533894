"""Tables of tickets (users' places in the line) and of leases (a server's right to a share of a GPU).

Ended tickets are kept for a while, ended leases are removed.
"""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter, ValidationError
from sqlalchemy.engine import Connection

from hub_extensions.adapters.store.records import Changes, TicketRow
from hub_extensions.adapters.store.schema import METADATA, CleanText, JsonColumn, OfferIds, UtcTime, upsert
from hub_extensions.core.cluster.placement import PodDemands
from hub_extensions.core.offers.offer_id import OfferId, OfferIdError
from hub_extensions.core.queue.model import Lease, LeaseState, Ticket, TicketState, WantedOffer

_DEMANDS: TypeAdapter[PodDemands] = TypeAdapter(PodDemands)

TICKETS = sa.Table(
    "gpu_tickets",
    METADATA,
    sa.Column("id", CleanText, primary_key=True),
    sa.Column("user", CleanText, nullable=False),
    sa.Column("server", CleanText, nullable=False),
    sa.Column("state", CleanText, nullable=False),
    sa.Column("attempt", sa.BigInteger, nullable=False),
    sa.Column("place", sa.BigInteger, nullable=False, comment="the largest place of its choices"),
    sa.Column("choices", JsonColumn, nullable=False),
    sa.Column("joined", UtcTime, nullable=False),
    sa.Column("groups", JsonColumn, nullable=False),
    sa.Column("options", JsonColumn, nullable=False),
    sa.Column("admitted_offer", OfferIds),
    sa.Column("admitted_at", UtcTime),
    sa.Column("end", CleanText),
    sa.Column("reason", CleanText, nullable=False),
    sa.Column("ended_at", UtcTime),
    sa.Column("asked", UtcTime),
    sa.Column("demands", JsonColumn),
    sa.Column("free_when_asked", JsonColumn),
    sa.Index("gpu_tickets_by_user", "user", "place"),
    sa.Index("gpu_tickets_by_state", "state"),
    sa.Index("gpu_tickets_by_place", "place"),
)

LEASES = sa.Table(
    "gpu_leases",
    METADATA,
    sa.Column("id", CleanText, primary_key=True),
    sa.Column("ticket", CleanText, nullable=False),
    sa.Column("user", CleanText, nullable=False),
    sa.Column("server", CleanText, nullable=False),
    sa.Column("offer", OfferIds, nullable=False),
    sa.Column("device", CleanText, nullable=False),
    sa.Column("uuid", CleanText, nullable=False),
    sa.Column("pool", CleanText, nullable=False),
    sa.Column("share", sa.Integer, nullable=False),
    sa.Column("state", CleanText, nullable=False),
    sa.Column("since", UtcTime, nullable=False),
    sa.Column("ready_at", UtcTime),
    sa.Column("ends_at", UtcTime),
    sa.Column("pid", sa.BigInteger),
    sa.Column("pid_started", sa.BigInteger),
    sa.Column("adopted", sa.Boolean, nullable=False),
)


def write(connection: Connection, changes: Changes) -> None:
    """Write the tickets (places in the line) and leases (rights to a share of a GPU) of `changes`, and remove leases
    that have ended.
    """
    upsert(connection, TICKETS, map(_ticket_values, changes.tickets))
    upsert(connection, LEASES, (_lease_values(each) for each in changes.leases if each.state is not LeaseState.ENDED))
    ended = [{"gone": each.id} for each in changes.leases if each.state is LeaseState.ENDED]
    if ended:
        connection.execute(sa.delete(LEASES).where(LEASES.c.id == sa.bindparam("gone")), ended)


def live_tickets(connection: Connection) -> tuple[Ticket, ...]:
    """Return the tickets (users' places in the line) that wait or are admitted, in the order in which they joined."""
    live = TICKETS.c.state.in_([TicketState.WAITING.value, TicketState.ADMITTED.value])
    rows = connection.execute(sa.select(TICKETS).where(live).order_by(TICKETS.c.joined, TICKETS.c.place, TICKETS.c.id))
    return tuple(_ticket(row) for row in rows.mappings())


def leases(connection: Connection) -> tuple[Lease, ...]:
    """Return the leases (a server's right to a share of a GPU) that have not ended."""
    rows = connection.execute(sa.select(LEASES).order_by(LEASES.c.since, LEASES.c.id))
    return tuple(_lease(row) for row in rows.mappings())


def next_place(connection: Connection) -> int:
    """Return the place number for the next ticket: larger than that of any stored ticket; 1 without tickets."""
    return int(connection.scalar(sa.select(sa.func.max(TICKETS.c.place))) or 0) + 1


def last_offers(connection: Connection, user: str) -> tuple[OfferId, ...]:
    """Return the offers (choices on the spawn form) that the user's newest ticket accepts; the form preselects them.

    A ticket is a place in the line. The newest one is that with the highest place number, because a clock may be set
    back. The result is empty if the user has no ticket.
    """
    newest = sa.select(TICKETS.c.choices).where(TICKETS.c.user == user).order_by(TICKETS.c.place.desc()).limit(1)
    wanted_offers = connection.scalar(newest)
    return _known(wanted_offers or ())


def last_offers_by_user(connection: Connection) -> dict[str, tuple[OfferId, ...]]:
    """Return for every user with a ticket (place in the line) the offers that the newest ticket accepts.

    The offers are in order of preference.
    """
    newest = sa.select(sa.func.max(TICKETS.c.place)).group_by(TICKETS.c.user)
    rows = connection.execute(sa.select(TICKETS.c.user, TICKETS.c.choices).where(TICKETS.c.place.in_(newest)))
    return {user: _known(wanted_offers) for user, wanted_offers in rows}


def _known(wanted_offers: Iterable[tuple[str, int]]) -> tuple[OfferId, ...]:
    """Return the offers that this version knows.

    Unknown ones, of another version, are left out, because the result only determines what the form preselects.

    Args:
        wanted_offers: (offer id, place number) pairs, as stored with a ticket.
    """
    found = []
    for offer, _ in wanted_offers:
        with suppress(OfferIdError):
            found.append(OfferId(offer))
    return tuple(found)


def prune(connection: Connection, before: datetime) -> None:
    """Remove tickets (users' places in the line) that ended before this time."""
    ended = TICKETS.c.state == TicketState.ENDED.value
    connection.execute(sa.delete(TICKETS).where(ended, TICKETS.c.ended_at < before))


def forget(connection: Connection, user: str) -> None:
    """Remove the ended tickets (places in the line) of a user whose account was deleted.

    The user's live tickets have been ended before this call.
    """
    ended = TICKETS.c.state == TicketState.ENDED.value
    connection.execute(sa.delete(TICKETS).where(ended, TICKETS.c.user == user))


def _ticket_values(row: TicketRow) -> dict[str, object]:
    ticket = row.ticket
    return {
        "id": ticket.id,
        "user": ticket.user,
        "server": ticket.server,
        "state": ticket.state.value,
        "attempt": ticket.attempt,
        "place": max((choice.place for choice in ticket.wanted_offers), default=0),
        "choices": [[choice.offer, choice.place] for choice in ticket.wanted_offers],
        "joined": ticket.joined,
        "groups": list(ticket.groups),
        "options": dict(ticket.options),
        "admitted_offer": ticket.admitted_offer,
        "admitted_at": ticket.admitted_at,
        "end": None if row.end is None else row.end.value,
        "reason": row.reason,
        "ended_at": row.ended_at,
        "asked": ticket.asked,
        "free_when_asked": None if ticket.free_when_asked is None else list(ticket.free_when_asked),
        "demands": None if ticket.demands is None else _DEMANDS.dump_python(ticket.demands, mode="json"),
    }


def _ticket(row: Any) -> Ticket:
    return Ticket(
        id=row["id"],
        user=row["user"],
        server=row["server"],
        wanted_offers=tuple(WantedOffer(OfferId(offer), place) for offer, place in row["choices"]),
        joined=row["joined"],
        state=TicketState(row["state"]),
        attempt=row["attempt"],
        groups=tuple(row["groups"]),
        options=row["options"],
        admitted_offer=row["admitted_offer"],
        admitted_at=row["admitted_at"],
        asked=row["asked"],
        demands=_demands(row["demands"]),
        free_when_asked=None if (free := row["free_when_asked"]) is None else _known((each, 0) for each in free),
    )


def _demands(kept: object) -> PodDemands | None:
    """Return what a pod requests from the scheduler, as stored with its ticket.

    Args:
        kept: the stored value; `None` if nothing was stored.

    Returns:
        `None` if nothing was stored, or if another version stored it in another format.
    """
    try:
        return None if kept is None else _DEMANDS.validate_python(kept)
    except ValidationError:
        return None


def _lease_values(lease: Lease) -> dict[str, object]:
    values = {column.name: getattr(lease, column.name) for column in LEASES.columns}
    return {**values, "state": lease.state.value}


def _lease(row: Any) -> Lease:
    return Lease(**{**row, "state": LeaseState(row["state"])})
