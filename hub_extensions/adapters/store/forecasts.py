"""Table of the wait forecasts that were given to users, and of the real waits, by which forecasts are judged and
corrected.

User names are not stored, and the ticket of a forecast only until it ends.
"""

from __future__ import annotations

from collections.abc import Iterable
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from hub_extensions.adapters.store.records import Changes
from hub_extensions.adapters.store.schema import METADATA, CleanText, JsonColumn, OfferIds, UtcTime, upsert
from hub_extensions.core.forecast.interval import Interval
from hub_extensions.core.forecast.results import LAST, Given

FORECASTS = sa.Table(
    "gpu_forecasts",
    METADATA,
    sa.Column("id", CleanText, primary_key=True),
    sa.Column("ticket", CleanText, nullable=False, comment="empty once it is over"),
    sa.Column("pool", CleanText, nullable=False),
    sa.Column("offer", OfferIds, nullable=False),
    sa.Column("hour", sa.Integer, nullable=False, comment="full hours it had waited then"),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("running", UtcTime, nullable=False),
    sa.Column("ahead", sa.Integer, nullable=False),
    sa.Column("simulated_p10", sa.Double, nullable=False),
    sa.Column("simulated_p50", sa.Double, nullable=False),
    sa.Column("simulated_p90", sa.Double, nullable=False),
    sa.Column("shown_p10", sa.Double, nullable=False),
    sa.Column("shown_p50", sa.Double, nullable=False),
    sa.Column("shown_p90", sa.Double, nullable=False),
    sa.Column("shown_within", JsonColumn, nullable=False),
    sa.Column("at_most", sa.Double),
    sa.Column("rough", sa.Boolean, nullable=False),
    sa.Column("end", CleanText, nullable=False, comment="empty while it waits; started, left, changed"),
    sa.Column("waited", sa.Double),
    sa.Column("ended_at", UtcTime),
    sa.Index("gpu_forecasts_by_pool", "pool", "end", "ended_at"),
    sa.Index("gpu_forecasts_by_time", "at"),
    sa.Index("gpu_forecasts_by_ticket", "ticket"),
)


def write(connection: Connection, changes: Changes) -> None:
    """Write the wait forecasts of `changes`. A stored forecast with the same id is replaced."""
    upsert(connection, FORECASTS, map(_row, changes.forecasts))


def open_ones(connection: Connection) -> tuple[Given, ...]:
    """Return the wait forecasts of tickets (places in the line) that still wait, the oldest first."""
    return _given(connection, sa.select(FORECASTS).where(FORECASTS.c.end == "").order_by(FORECASTS.c.at))


def matured(connection: Connection) -> tuple[Given, ...]:
    """Return wait forecasts whose real wait is known. Later forecasts are judged and corrected by them.

    For each pool (the devices that one line serves) the result has the last `LAST` forecasts, and the last `LAST` of
    the forecasts that users saw when they joined the line. They are sorted by the time at which the wait ended.
    """
    found: dict[str, Given] = {}
    pools = sa.select(FORECASTS.c.pool).where(FORECASTS.c.end == "started").distinct()
    for pool in tuple(connection.scalars(pools)):
        true = sa.select(FORECASTS).where(FORECASTS.c.pool == pool, FORECASTS.c.end == "started")
        last = true.order_by(FORECASTS.c.ended_at.desc())
        joins = true.where(FORECASTS.c.hour == 0).order_by(FORECASTS.c.ended_at.desc())
        for each in (*_given(connection, last.limit(LAST)), *_given(connection, joins.limit(LAST))):
            found[each.id] = each
    return tuple(sorted(found.values(), key=lambda each: (each.over or each.at, each.id)))


def prune(connection: Connection, before: datetime) -> None:
    """Remove wait forecasts that were given before this time."""
    connection.execute(sa.delete(FORECASTS).where(FORECASTS.c.at < before))


def _given(connection: Connection, chosen: sa.Select[Any]) -> tuple[Given, ...]:
    rows: Iterable[Any] = connection.execute(chosen)
    return tuple(
        Given(
            id=row.id,
            ticket=row.ticket,
            pool=row.pool,
            offer=row.offer,
            hour=row.hour,
            at=row.at,
            running=row.running,
            ahead=row.ahead,
            played=Interval(row.simulated_p10, row.simulated_p50, row.simulated_p90, tuple(row.shown_within)),
            shown=Interval(row.shown_p10, row.shown_p50, row.shown_p90, tuple(row.shown_within)),
            at_most=row.at_most,
            rough=row.rough,
            end=row.end,
            waited=row.waited,
            over=row.ended_at,
        )
        for row in rows
    )


def _row(given: Given) -> dict[str, object]:
    return {
        "id": given.id,
        "ticket": "" if given.end else given.ticket,
        "pool": given.pool,
        "offer": given.offer,
        "hour": given.hour,
        "at": given.at,
        "running": given.running,
        "ahead": given.ahead,
        "simulated_p10": given.played.p10,
        "simulated_p50": given.played.p50,
        "simulated_p90": given.played.p90,
        "shown_p10": given.shown.p10,
        "shown_p50": given.shown.p50,
        "shown_p90": given.shown.p90,
        "shown_within": list(given.shown.within),
        "at_most": given.at_most,
        "rough": given.rough,
        "end": given.end,
        "waited": given.waited,
        "ended_at": given.over,
    }
