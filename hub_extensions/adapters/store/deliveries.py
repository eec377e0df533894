"""Table of deliveries: notices on their way to a user by mail or webhook, until they are accepted or given up."""

from __future__ import annotations

from dataclasses import asdict

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from hub_extensions.adapters.store.records import Changes
from hub_extensions.adapters.store.schema import METADATA, CleanText, OfferIds, UtcTime, upsert
from hub_extensions.core.notices import Delivery

DELIVERIES = sa.Table(
    "gpu_deliveries",
    METADATA,
    sa.Column("id", CleanText, primary_key=True),
    sa.Column("channel", CleanText, primary_key=True),
    sa.Column("kind", CleanText, nullable=False),
    sa.Column("user", CleanText, nullable=False),
    sa.Column("server", CleanText, nullable=False),
    sa.Column("offer", OfferIds, nullable=False),
    sa.Column("title", CleanText, nullable=False),
    sa.Column("run", UtcTime, nullable=False),
    sa.Column("open_until", UtcTime),
    sa.Column("due", UtcTime, nullable=False),
    sa.Column("tries", sa.Integer, nullable=False),
)


def write(connection: Connection, changes: Changes) -> None:
    """Write the deliveries (notices on their way to users) of `changes`, and remove those that are done."""
    upsert(connection, DELIVERIES, map(asdict, changes.deliveries))
    if changes.delivered:
        same = sa.and_(DELIVERIES.c.id == sa.bindparam("gone_id"), DELIVERIES.c.channel == sa.bindparam("by"))
        connection.execute(
            sa.delete(DELIVERIES).where(same), [{"gone_id": id, "by": by} for id, by in changes.delivered]
        )


def deliveries(connection: Connection) -> tuple[Delivery, ...]:
    """Return all deliveries (notices on their way to users), in the order in which they are due."""
    rows = connection.execute(sa.select(DELIVERIES).order_by(DELIVERIES.c.due, DELIVERIES.c.id, DELIVERIES.c.channel))
    return tuple(Delivery(**row) for row in rows.mappings())


def forget(connection: Connection, user: str) -> None:
    """Remove the deliveries (notices on their way) to a user whose account was deleted."""
    connection.execute(sa.delete(DELIVERIES).where(DELIVERIES.c.user == user))
