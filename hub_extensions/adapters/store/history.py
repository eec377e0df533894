"""What happened: the journal, notices to users, usage records and samples of devices. Only added to, and pruned."""

from __future__ import annotations

from dataclasses import asdict
from datetime import datetime
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from hub_extensions.adapters.store.records import Changes, JournalRow, NoticeRow, UsageRecord
from hub_extensions.adapters.store.schema import METADATA, SERIAL, CleanText, Json, OfferIds, UtcTime, upsert
from hub_extensions.core.gpu.samples import DeviceSample

JOURNAL = sa.Table(
    "gpu_journal",
    METADATA,
    sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("kind", CleanText, nullable=False),
    sa.Column("ticket", CleanText),
    sa.Column("lease", CleanText),
    sa.Column("user", CleanText),
    sa.Column("server", CleanText),
    sa.Column("text", CleanText, nullable=False),
    sa.Index("gpu_journal_by_time", "at"),
)

NOTICES = sa.Table(
    "gpu_notices",
    METADATA,
    sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("user", CleanText, nullable=False),
    sa.Column("server", CleanText, nullable=False),
    sa.Column("text", CleanText, nullable=False),
    sa.Index("gpu_notices_by_user", "user", "at"),
)

USAGE = sa.Table(
    "gpu_usage",
    METADATA,
    sa.Column("lease", CleanText, primary_key=True),
    sa.Column("user", CleanText, nullable=False),
    sa.Column("server", CleanText, nullable=False),
    sa.Column("offer", OfferIds, nullable=False),
    sa.Column("pool", CleanText, nullable=False),
    sa.Column("share", sa.Integer, nullable=False),
    sa.Column("joined", UtcTime),
    sa.Column("admitted", UtcTime, nullable=False),
    sa.Column("ready", UtcTime),
    sa.Column("ended", UtcTime, nullable=False),
    sa.Column("end", CleanText, nullable=False),
    sa.Column("waited_seconds", sa.Double),
    sa.Column("peak_memory_bytes", sa.BigInteger),
    sa.Column("mean_use_percent", sa.Double),
    sa.Index("gpu_usage_by_time", "ended"),
    sa.Index("gpu_usage_by_user", "user", "ended"),
)

SAMPLES = sa.Table(
    "gpu_samples",
    METADATA,
    sa.Column("uuid", CleanText, primary_key=True),
    sa.Column("at", UtcTime, primary_key=True),
    sa.Column("used_percent", sa.Double),
    sa.Column("memory_used_bytes", sa.BigInteger),
    sa.Column("pids", Json),
    sa.Column("source", CleanText, nullable=False),
    sa.Index("gpu_samples_by_time", "at"),
)


def write(connection: Connection, changes: Changes) -> None:
    """Add the journal rows, notices, usage records and samples of `changes`."""
    if changes.journal:
        connection.execute(sa.insert(JOURNAL), [asdict(each) for each in changes.journal])
    if changes.notices:
        connection.execute(sa.insert(NOTICES), [asdict(each) for each in changes.notices])
    upsert(connection, USAGE, (asdict(each) for each in changes.usage))
    upsert(connection, SAMPLES, map(_sample_values, changes.samples))


def journal(connection: Connection, limit: int) -> tuple[JournalRow, ...]:
    """The last rows, the newest first, in the order in which they were written (not by the clock)."""
    columns = [column for column in JOURNAL.columns if column.name != "id"]
    rows = connection.execute(sa.select(*columns).order_by(JOURNAL.c.id.desc()).limit(limit))
    return tuple(JournalRow(**row) for row in rows.mappings())


def notices(connection: Connection, user: str | None, since: datetime) -> tuple[NoticeRow, ...]:
    """The notices of `since` or later, the newest first; `user` None: everybody's."""
    columns = [column for column in NOTICES.columns if column.name != "id"]
    chosen = sa.select(*columns).where(NOTICES.c.at >= since).order_by(NOTICES.c.id.desc())
    rows = connection.execute(chosen if user is None else chosen.where(NOTICES.c.user == user))
    return tuple(NoticeRow(**row) for row in rows.mappings())


def users(connection: Connection) -> tuple[str, ...]:
    """Everybody that usage records or notices name."""
    named = sa.union(sa.select(USAGE.c.user), sa.select(NOTICES.c.user))
    return tuple(sorted(user for user in connection.scalars(named) if user))


def usage(connection: Connection, user: str | None, limit: int) -> tuple[UsageRecord, ...]:
    """Usage records, the last ended first."""
    chosen = sa.select(USAGE).order_by(USAGE.c.ended.desc(), USAGE.c.lease).limit(limit)
    if user is not None:
        chosen = chosen.where(USAGE.c.user == user)
    return tuple(UsageRecord(**row) for row in connection.execute(chosen).mappings())


def samples(connection: Connection, uuid: str, since: datetime) -> tuple[DeviceSample, ...]:
    """The samples of one device of `since` or later, the oldest first."""
    chosen = sa.select(SAMPLES).where(SAMPLES.c.uuid == uuid, SAMPLES.c.at >= since).order_by(SAMPLES.c.at)
    return tuple(_sample(row) for row in connection.execute(chosen).mappings())


def prune(connection: Connection, *, samples_before: datetime, records_before: datetime) -> None:
    """Remove samples and notices older than the first time, usage records and journal rows older than the second."""
    connection.execute(sa.delete(SAMPLES).where(SAMPLES.c.at < samples_before))
    connection.execute(sa.delete(NOTICES).where(NOTICES.c.at < samples_before))
    connection.execute(sa.delete(USAGE).where(USAGE.c.ended < records_before))
    connection.execute(sa.delete(JOURNAL).where(JOURNAL.c.at < records_before))


def forget(connection: Connection, user: str) -> None:
    """Take the user's name out of usage records; remove the notices and journal rows that name it."""
    connection.execute(sa.update(USAGE).where(USAGE.c.user == user).values(user="", server=""))
    connection.execute(sa.delete(NOTICES).where(NOTICES.c.user == user))
    connection.execute(sa.delete(JOURNAL).where(JOURNAL.c.user == user))


def _sample_values(sample: DeviceSample) -> dict[str, object]:
    """What is kept of a sample: who held how much, and the further counters, are for the moment only."""
    kept = {name: value for name, value in asdict(sample).items() if name not in ("memory_by_pid", "counters")}
    return {**kept, "pids": None if sample.pids is None else list(sample.pids)}


def _sample(row: Any) -> DeviceSample:
    return DeviceSample(**{**row, "pids": None if row["pids"] is None else tuple(row["pids"])})
