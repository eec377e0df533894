"""Tables of the facts about running servers, and of single values of the service by name (`META`), such as the state of
its clock.
"""

from __future__ import annotations

import json
from datetime import datetime, timedelta
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from hub_extensions.adapters.store.records import Changes
from hub_extensions.adapters.store.schema import METADATA, CleanText, JsonColumn, OfferIds, UtcTime, upsert
from hub_extensions.core.culling import ServerFacts
from hub_extensions.core.stops import Cause, StopCause, StopRecord, StopState, by_admin
from hub_extensions.core.stops.causes import GIVEN_BACK, GIVEN_BACK_FOR_CPU

FACTS = sa.Table(
    "gpu_server_facts",
    METADATA,
    sa.Column("user", CleanText, primary_key=True),
    sa.Column("server", CleanText, primary_key=True),
    sa.Column("offer", OfferIds, nullable=False),
    sa.Column("started", UtcTime, nullable=False),
    sa.Column("lease", CleanText),
    sa.Column("adopted", sa.Boolean, nullable=False),
    sa.Column("opened", UtcTime),
    sa.Column("opened_known", sa.Boolean, nullable=False),
    sa.Column("idle_since", UtcTime),
    sa.Column("kept_until", UtcTime),
    sa.Column("keeps", JsonColumn, nullable=False),
    sa.Column("warned", UtcTime),
    sa.Column("stopping", UtcTime),
    sa.Column("cause", CleanText),
    sa.Column("promised", UtcTime),
    sa.Column("drain_at", UtcTime),
    sa.Column("drain_orders", CleanText),
    sa.Column("busy_since", UtcTime),
    sa.Column("run_ended", UtcTime),
    sa.Column("unknown_since", UtcTime),
    sa.Column("missed", sa.Float, nullable=False, server_default="0"),
    sa.Column("ends_at", UtcTime),
    sa.Column("extensions", sa.Integer, nullable=False, server_default="0"),
    sa.Column("announced", UtcTime),
    sa.Column("reached", JsonColumn, nullable=False, server_default="[]"),
    sa.Column("unheard", sa.Boolean, nullable=False, server_default=sa.false()),
)

ADMINS_WORDS = ": "  # separates the code of an order from the administrator's words; no code contains it
SEVERAL = "["  # begins the JSON list of several orders with their times; no code begins with it

META = sa.Table(
    "gpu_meta",
    METADATA,
    sa.Column("name", CleanText, primary_key=True),
    sa.Column("value", CleanText, nullable=False),
)


def write(connection: Connection, changes: Changes) -> None:
    """Write the facts about servers of `changes`, and its single values (`META`).

    Facts that `changes` removes are deleted first.
    """
    if changes.gone_facts:
        same = sa.and_(FACTS.c.user == sa.bindparam("gone_user"), FACTS.c.server == sa.bindparam("gone_server"))
        gone = [{"gone_user": user, "gone_server": server} for user, server in changes.gone_facts]
        connection.execute(sa.delete(FACTS).where(same), gone)
    upsert(connection, FACTS, map(_facts_values, changes.facts))
    upsert(connection, META, ({"name": name, "value": value} for name, value in changes.meta.items()))


def facts(connection: Connection) -> tuple[ServerFacts, ...]:
    """Return the stored facts about all servers, such as the offer of each and since when it is idle."""
    rows = connection.execute(sa.select(FACTS).order_by(FACTS.c.user, FACTS.c.server))
    return tuple(_facts(row) for row in rows.mappings())


def earlier_stops(connection: Connection) -> tuple[StopRecord, ...]:
    """Return the stops of servers, ordered or already begun, that an earlier version of this product stored.

    They are in the columns ``drain_at``, ``drain_orders`` and ``stopping``, which this version does not write.
    """
    noted = sa.or_(FACTS.c.stopping.is_not(None), FACTS.c.drain_at.is_not(None))
    return tuple(map(_stop, connection.execute(sa.select(FACTS).where(noted)).mappings()))


def meta(connection: Connection) -> dict[str, str]:
    """Return the single values of the service, such as the state of its clock, as text by name."""
    return {row.name: row.value for row in connection.execute(sa.select(META))}


def forget(connection: Connection, user: str) -> None:
    """Remove the facts about the servers of a user whose account was deleted."""
    connection.execute(sa.delete(FACTS).where(FACTS.c.user == user))


def _facts_values(each: ServerFacts) -> dict[str, object]:
    values = {column.name: getattr(each, column.name, None) for column in FACTS.columns}
    return {
        **values,
        "keeps": [at.isoformat() for at in each.keeps],
        "reached": list(each.reached),
        "cause": None if each.cause is None else each.cause.value,
        "missed": each.missed.total_seconds(),
    }


def _facts(row: Any) -> ServerFacts:
    values = {name: value for name, value in dict(row).items() if name not in ("stopping", "drain_at", "drain_orders")}
    values["keeps"] = tuple(datetime.fromisoformat(each) for each in values["keeps"])
    values["reached"] = tuple(values["reached"])
    values["cause"] = None if values["cause"] is None else Cause(values["cause"])
    values["missed"] = timedelta(seconds=values["missed"])
    return ServerFacts(**values)


def _stop(row: Any) -> StopRecord:
    orders = () if row["drain_at"] is None else _orders(row["drain_at"], row["drain_orders"])
    causes, began = sorted(orders, key=lambda each: each.at), row["stopping"]
    if began is not None and row["cause"] is not None and all(each.cause.value != row["cause"] for each in orders):
        causes.insert(0, StopCause(Cause(row["cause"]), began, True, "was-to-end"))
    state = StopState.ANNOUNCED if began is None else StopState.DRAINING
    key = row["user"], row["server"], row["lease"] or ""
    return StopRecord(*key, state, row["started"], tuple(causes), began=began)


def _orders(at: datetime, text: str) -> tuple[StopCause, ...]:
    if text.startswith(SEVERAL):
        return tuple(_order(datetime.fromisoformat(when), why, words) for when, why, words in json.loads(text))
    return (_order(at, *text.split(ADMINS_WORDS, 1)),)


def _order(at: datetime, code: str, words: str = "") -> StopCause:
    if code == "stopped-by-admin":
        return by_admin(at, words)
    cause = Cause.GIVEN_BACK if code in (GIVEN_BACK, GIVEN_BACK_FOR_CPU) else Cause.SIGNED_OUT
    return StopCause(cause, at, True, code, stands=True)
