"""Tables of uses: open uses, usage records, samples, and imports.

A use is one server's time with its devices. While it lasts, it is stored as an open use; when it ends, it becomes a
usage record. Samples are measurements of a use by the minute. Usage records of other hubs can be imported. An import
becomes visible as a whole: its rows count once it is marked as done.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import asdict, fields
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from pydantic import TypeAdapter
from sqlalchemy.engine import Connection

from hub_extensions.adapters.store.records import Changes
from hub_extensions.adapters.store.schema import METADATA, SERIAL, CleanText, JsonColumn, OfferIds, UtcTime, upsert
from hub_extensions.core.gpu.devices import WHOLE
from hub_extensions.core.messages import UsagePage, UsageRecord
from hub_extensions.core.messages.usage import NONE_WOULD_DO, OWN
from hub_extensions.core.offers.offer_id import CPU
from hub_extensions.core.overview.days import CountedUse
from hub_extensions.core.usage import Minute, Use
from hub_extensions.core.usage.right_size import BUSY_PERCENT, FEWEST_USES, FittingHours

PAGE = 1000
DELETED = "deleted/"  # prefix of deleted users; no user of a hub has a slash in the name
_DELETED_USERS = "deleted-users"

OPEN = sa.Table(
    "gpu_open_uses",
    METADATA,
    sa.Column("key", CleanText, primary_key=True),
    sa.Column("use", sa.Text, nullable=False),
)

USAGE = sa.Table(
    "gpu_usage",
    METADATA,
    sa.Column("key", CleanText, primary_key=True),
    sa.Column("user", CleanText, nullable=False),
    sa.Column("server", CleanText, nullable=False),
    sa.Column("offer", OfferIds, nullable=False),
    sa.Column("pool", CleanText, nullable=False),
    sa.Column("share", sa.Integer, nullable=False),
    sa.Column("devices", sa.Integer, nullable=False),
    sa.Column("ticket", CleanText, nullable=False),
    sa.Column("groups", JsonColumn, nullable=False),
    sa.Column("choice", CleanText, nullable=False),
    sa.Column("device_class", CleanText, nullable=False),
    sa.Column("node", CleanText, nullable=False),
    sa.Column("device", CleanText, nullable=False),
    sa.Column("asked", UtcTime),
    sa.Column("admitted", UtcTime),
    sa.Column("ready", UtcTime),
    sa.Column("first_used", UtcTime),
    sa.Column("last_used", UtcTime),
    sa.Column("began", UtcTime, nullable=False, comment="the first of these that is known"),
    sa.Column("ended", UtcTime, nullable=False),
    sa.Column("end", CleanText, nullable=False),
    sa.Column("lifetime_seconds", sa.Double),
    sa.Column("adopted", sa.Boolean, nullable=False),
    sa.Column("waited_seconds", sa.Double),
    sa.Column("held_seconds", sa.Double),
    sa.Column("ran_seconds", sa.Double),
    sa.Column("outage_seconds", sa.Double),
    sa.Column("mean_use_percent", sa.Double),
    sa.Column("highest_use_percent", sa.Double),
    sa.Column("use_measured", sa.Double),
    sa.Column("peak_memory_bytes", sa.BigInteger),
    sa.Column("memory_measured", sa.Double),
    sa.Column("keeps", sa.Integer),
    sa.Column("warnings", sa.Integer),
    sa.Column("source", CleanText, nullable=False),
    sa.Column("smaller_would_do", CleanText),
    sa.Column("advice", CleanText, nullable=False, server_default=""),
    sa.Column("batch", sa.BigInteger, comment="the import it came with; none: our own"),
    sa.Index("gpu_usage_by_end", "ended", "key"),
    sa.Index("gpu_usage_by_user", "user", "ended", "key"),
    sa.Index("gpu_usage_by_begin", "began", "key"),
    sa.Index("gpu_usage_by_batch", "batch"),
)

IMPORTS = sa.Table(
    "gpu_imports",
    METADATA,
    sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("label", CleanText, nullable=False),
    sa.Column("digest", CleanText, nullable=False, comment="of the file's contents and how it was read"),
    sa.Column("rows", sa.BigInteger, nullable=False),
    sa.Column("done", sa.Boolean, nullable=False),
)

SAMPLES = sa.Table(
    "gpu_samples",
    METADATA,
    sa.Column("key", CleanText, primary_key=True),
    sa.Column("at", UtcTime, primary_key=True),
    sa.Column("device", CleanText, nullable=False),
    sa.Column("source", CleanText, nullable=False),
    sa.Column("used_percent", sa.Double),
    sa.Column("highest_percent", sa.Double),
    sa.Column("memory_bytes", sa.BigInteger),
    sa.Column("measured_seconds", sa.Double, nullable=False),
    sa.Index("gpu_samples_by_time", "at"),
)

_OPEN_USE: TypeAdapter[Use] = TypeAdapter(Use)
FIELDS = tuple(each.name for each in fields(UsageRecord))
_GROUPS = FIELDS.index("groups")
# selects our own records, and those of finished imports; `coalesce` keeps the database from using the index of `batch`
VISIBLE = sa.func.coalesce(USAGE.c.batch, 0).not_in(sa.select(IMPORTS.c.id).where(sa.not_(IMPORTS.c.done)))


def write(connection: Connection, changes: Changes) -> None:
    """Write the open uses, usage records and samples of `changes`, and remove open uses that have ended.

    A use is one server's time with its devices. Samples are measurements of it by the minute.
    """
    upsert(connection, OPEN, ({"key": each.key, "use": _OPEN_USE.dump_json(each).decode()} for each in changes.uses))
    if changes.gone_uses:
        gone = [{"gone": key} for key in changes.gone_uses]
        connection.execute(sa.delete(OPEN).where(OPEN.c.key == sa.bindparam("gone")), gone)
    upsert(connection, USAGE, map(values_of, changes.usage))
    upsert(connection, SAMPLES, map(asdict, changes.samples))


def values_of(record: UsageRecord, batch: int | None = None) -> dict[str, object]:
    """Convert a usage record (of one server's time with its devices) to a row of the table.

    Args:
        batch: the number of the record's import; `None` for a record of this hub.
    """
    values = {name: getattr(record, name) for name in FIELDS}
    return {**values, "groups": list(record.groups), "began": record.began, "batch": batch}


def open_uses(connection: Connection) -> tuple[Use, ...]:
    """Return the uses (servers' times with their devices) that have not ended, to continue them after a restart."""
    return tuple(map(_OPEN_USE.validate_json, connection.scalars(sa.select(OPEN.c.use).order_by(OPEN.c.key))))


def users(connection: Connection) -> tuple[str, ...]:
    """Return the names of all users in usage records of this hub, without deleted users."""
    named = sa.select(USAGE.c.user).where(USAGE.c.batch.is_(None)).distinct()
    return tuple(user for user in connection.scalars(named) if user and not user.startswith(DELETED))


def page(connection: Connection, user: str | None, before: str | None, limit: int) -> UsagePage:
    """Return a page of usage records, the most recently ended first.

    Args:
        user: only this user's records on this hub, because an imported name may belong to somebody else. `None` for all
            records.
        before: `UsagePage.next` of the previous page; `None` for the first page.
        limit: largest number of records on the page.

    Raises:
        ValueError: `before` has another format.
    """
    chosen = sa.select(*(USAGE.c[name] for name in FIELDS)).where(VISIBLE)
    if user is not None:
        chosen = chosen.where(USAGE.c.user == user, USAGE.c.source == OWN)
    if before is not None:
        ended, key = _place(before)
        chosen = chosen.where(sa.tuple_(USAGE.c.ended, USAGE.c.key) < sa.tuple_(sa.literal(ended, UtcTime), key))
    chosen = chosen.order_by(USAGE.c.ended.desc(), USAGE.c.key.desc()).limit(limit + 1)
    rows = [_record(row) for row in connection.execute(chosen)]
    last = rows[limit - 1] if len(rows) > limit else None
    return UsagePage(tuple(rows[:limit]), None if last is None else f"{last.ended.isoformat()},{last.key}")


def uses_since(connection: Connection, since: datetime) -> tuple[CountedUse, ...]:
    """Return the uses of GPUs (servers' times with their devices) on this hub that ended at `since` or later.

    They are for the statistics by day. Imported ones are left out.
    """
    names = ("offer", "groups", "admitted", "began", "ended", "end", "ready", "devices", "share", "waited_seconds")
    chosen = sa.select(*(USAGE.c[name] for name in names))
    chosen = chosen.where(USAGE.c.ended >= since, USAGE.c.batch.is_(None), USAGE.c.devices > 0)
    return tuple(
        CountedUse(
            offer, tuple(groups), admitted or began, ended, end, ready is not None, devices * share / WHOLE, waited
        )
        for offer, groups, admitted, began, ended, end, ready, devices, share, waited in connection.execute(chosen)
    )


def fitting_hours(connection: Connection, since: datetime) -> tuple[FittingHours, ...]:
    """Return for each pool (devices of one kind) how many device hours a smaller offer would have been enough for.

    Only uses (servers' times with their devices) on this hub that ended at `since` or later are counted, if it is known
    whether a smaller offer would have been enough. Pools with fewer than `FEWEST_USES` of them are left out.
    """
    hours = USAGE.c.held_seconds * USAGE.c.devices * USAGE.c.share / (3600.0 * WHOLE)
    unused, is_none = USAGE.c.smaller_would_do == CPU, USAGE.c.smaller_would_do == NONE_WOULD_DO
    calm = sa.func.coalesce(USAGE.c.mean_use_percent, 0.0) < BUSY_PERCENT
    fitted = sa.and_(sa.not_(unused), sa.not_(is_none), calm)
    uses = sa.func.count()
    chosen = (
        sa.select(USAGE.c.pool, uses, *(sa.func.sum(sa.case((each, hours), else_=0.0)) for each in (fitted, unused)))
        .add_columns(sa.func.sum(hours))
        .where(USAGE.c.ended >= since, USAGE.c.batch.is_(None), USAGE.c.smaller_would_do.is_not(None))
        .where(USAGE.c.held_seconds > 0)
        .group_by(USAGE.c.pool)
        .having(uses >= FEWEST_USES)
        .order_by(USAGE.c.pool)
    )
    rows = connection.execute(chosen)
    return tuple(FittingHours(pool, count, known, fits, idle) for pool, count, fits, idle, known in rows)


def samples(connection: Connection, key: str, since: datetime) -> tuple[Minute, ...]:
    """Return the measured minutes of one use (by its key) from `since` on, the oldest first."""
    chosen = sa.select(SAMPLES).where(SAMPLES.c.key == key, SAMPLES.c.at >= since).order_by(SAMPLES.c.at)
    return tuple(Minute(**row) for row in connection.execute(chosen).mappings())


def prune(connection: Connection, *, samples_before: datetime, records_before: datetime) -> None:
    """Remove old samples (measurements by the minute), usage records and imports.

    Args:
        samples_before: samples from before this time are removed.
        records_before: usage records and imports from before this time are removed.
    """
    connection.execute(sa.delete(SAMPLES).where(SAMPLES.c.at < samples_before))
    connection.execute(sa.delete(USAGE).where(USAGE.c.batch.is_(None), USAGE.c.ended < records_before))
    old = sa.select(IMPORTS.c.id).where(IMPORTS.c.at < records_before)
    connection.execute(sa.delete(USAGE).where(USAGE.c.batch.in_(old)))
    connection.execute(sa.delete(IMPORTS).where(IMPORTS.c.at < records_before))


def forget(connection: Connection, user: str, meta: sa.Table) -> None:
    """Replace the name of a deleted user in the usage records by a number, and remove servers and groups from them.

    Args:
        user: name of the user.
        meta: the table of single values, which has the last number that was used.
    """
    number = int(connection.scalar(sa.select(meta.c.value).where(meta.c.name == _DELETED_USERS)) or 0) + 1
    upsert(connection, meta, [{"name": _DELETED_USERS, "value": str(number)}])
    nobody = {"user": f"{DELETED}{number}", "server": "", "groups": []}
    connection.execute(sa.update(USAGE).where(USAGE.c.user == user).values(**nobody))


def _place(before: str) -> tuple[datetime, str]:
    ended, comma, key = before.partition(",")
    at = datetime.fromisoformat(ended)
    if not comma or at.tzinfo is None:
        raise ValueError(before)
    return at, key


def _record(row: Sequence[Any]) -> UsageRecord:
    """Convert a row with the columns `FIELDS` to a usage record."""
    values = list(row)
    values[_GROUPS] = tuple(values[_GROUPS])
    return UsageRecord(*values)


# ------------------------------------------------------------------ imports


def import_of(connection: Connection, digest: str) -> tuple[str, datetime] | None:
    """Return label and time of the import of the file with this digest; `None` if it has not been imported."""
    done = sa.select(IMPORTS.c.label, IMPORTS.c.at).where(IMPORTS.c.digest == digest, IMPORTS.c.done)
    row = connection.execute(done).first()
    return None if row is None else (row.label, row.at)


def imports(connection: Connection) -> tuple[int, int]:
    """Return the id of the last finished import, and the number of imports. At least one of the two changes with each
    import.
    """
    last, count = connection.execute(sa.select(sa.func.max(IMPORTS.c.id), sa.func.count()).where(IMPORTS.c.done)).one()
    return int(last or 0), int(count)


def begin_import(connection: Connection, label: str, digest: str, at: datetime) -> int:
    """Begin an import of usage records, and return its number. Rows of imports that were never finished are removed.

    Args:
        label: name of the import, for administrators.
        digest: hash of the imported file.
        at: time of the import.
    """
    broken = sa.select(IMPORTS.c.id).where(sa.not_(IMPORTS.c.done))
    connection.execute(sa.delete(USAGE).where(USAGE.c.batch.in_(broken)))
    connection.execute(sa.delete(IMPORTS).where(sa.not_(IMPORTS.c.done)))
    values = {"at": at, "label": label, "digest": digest, "rows": 0, "done": False}
    return int(connection.execute(sa.insert(IMPORTS).values(values)).inserted_primary_key[0])  # type: ignore[index]


def known_keys(connection: Connection, keys: Iterable[str]) -> dict[str, int | None]:
    """Return which of these keys of usage records are stored already, each with the number of the import that added it.

    The number is `None` for a record of this hub itself.
    """
    found = sa.select(USAGE.c.key, USAGE.c.batch).where(USAGE.c.key.in_(list(keys)))
    return {row.key: row.batch for row in connection.execute(found)}


def add_imported(connection: Connection, records: Iterable[UsageRecord], batch: int) -> None:
    """Add usage records of the import with this number (`batch`). They are invisible until the import is done."""
    rows = [values_of(record, batch) for record in records]
    if rows:
        connection.execute(sa.insert(USAGE), rows)


def end_import(connection: Connection, batch: int, rows: int) -> bool:
    """Make the rows of an import visible. Return `False` if a later import has removed them as unfinished.

    Args:
        batch: number of the import.
        rows: how many usage records were added. The number is stored with the import.
    """
    done = sa.update(IMPORTS).where(IMPORTS.c.id == batch).values(rows=rows, done=True)
    return connection.execute(done).rowcount == 1


def drop_import(connection: Connection, batch: int) -> None:
    """Remove the unfinished import with this number (`batch`), and its rows."""
    connection.execute(sa.delete(USAGE).where(USAGE.c.batch == batch))
    connection.execute(sa.delete(IMPORTS).where(IMPORTS.c.id == batch))
