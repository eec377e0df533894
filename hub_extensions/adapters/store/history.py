"""Tables of the journal (decisions of the service) and of notices to users. Rows are only added, and deleted when they
are old.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import fields
from datetime import datetime

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from hub_extensions.adapters.store.records import Changes, JournalFilter, JournalRow, NoticeRow
from hub_extensions.adapters.store.schema import METADATA, SERIAL, CleanText, ReasonsColumn, UtcTime

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
    sa.Column("actor", CleanText, nullable=False, server_default=""),
    sa.Column("evidence", CleanText, nullable=False, server_default=""),
    sa.Column("reasons", ReasonsColumn),
    sa.Column("grounds", ReasonsColumn),
    sa.Index("gpu_journal_by_time", "at"),
    sa.Index("gpu_journal_by_user", "user", "id"),
)

NOTICES = sa.Table(
    "gpu_notices",
    METADATA,
    sa.Column("id", SERIAL, primary_key=True, autoincrement=True),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("user", CleanText, nullable=False),
    sa.Column("server", CleanText, nullable=False),
    sa.Column("text", CleanText, nullable=False),
    sa.Column("reasons", ReasonsColumn),
    sa.Index("gpu_notices_by_user", "user", "at"),
)


def write(connection: Connection, changes: Changes) -> None:
    """Add the journal rows (decisions of the service) and the notices to users of `changes`."""
    if changes.journal:
        connection.execute(sa.insert(JOURNAL), [_columns(each) for each in changes.journal])
    if changes.notices:
        connection.execute(sa.insert(NOTICES), [_columns(each) for each in changes.notices])


def _columns(row: JournalRow | NoticeRow) -> dict[str, object]:
    return {field.name: getattr(row, field.name) for field in fields(row)}


def journal(connection: Connection, limit: int, which: JournalFilter) -> tuple[JournalRow, ...]:
    """Return at most `limit` matching rows of the journal, the most recently written first."""
    columns = [column for column in JOURNAL.columns if column.name != "id"]
    chosen = sa.select(*columns).where(*conditions(which)).order_by(JOURNAL.c.id.desc())
    rows = connection.execute(chosen.limit(limit))
    return tuple(JournalRow(**row) for row in rows.mappings())


def conditions(which: JournalFilter) -> tuple[sa.ColumnElement[bool], ...]:
    """Return the SQL conditions that select the rows of the journal for a filter; empty if it selects all rows."""
    found = (
        None if which.since is None else JOURNAL.c.at >= which.since,
        None if which.until is None else JOURNAL.c.at < which.until,
        None if which.user is None else JOURNAL.c.user == which.user,
        JOURNAL.c.kind.in_(which.kinds) if which.kinds else None,
        _with_words(which.words, which.codes) if which.words else None,
    )
    return tuple(each for each in found if each is not None)


def _with_words(words: str, codes: Iterable[str]) -> sa.ColumnElement[bool]:
    columns = (JOURNAL.c.text, JOURNAL.c.evidence, JOURNAL.c.user, JOURNAL.c.server, JOURNAL.c.actor)
    reasons, grounds = (
        sa.func.coalesce(sa.type_coerce(JOURNAL.c[each], sa.Text), "") for each in ("reasons", "grounds")
    )
    stored = reasons + grounds
    return sa.or_(
        *(column.icontains(words, autoescape=True) for column in columns),
        *(stored.contains(f'["{code}",', autoescape=True) for code in codes),
    )


def notices(connection: Connection, user: str | None, since: datetime) -> tuple[NoticeRow, ...]:
    """Return notices to users, the newest first.

    Args:
        user: only notices to this user; `None` for all users.
        since: only notices from this time on.
    """
    columns = [column for column in NOTICES.columns if column.name != "id"]
    chosen = sa.select(*columns).where(NOTICES.c.at >= since).order_by(NOTICES.c.id.desc())
    rows = connection.execute(chosen if user is None else chosen.where(NOTICES.c.user == user))
    return tuple(NoticeRow(**row) for row in rows.mappings())


def users(connection: Connection) -> tuple[str, ...]:
    return tuple(connection.scalars(sa.select(NOTICES.c.user).distinct()))


def prune(connection: Connection, *, notices_before: datetime, journal_before: datetime) -> None:
    """Remove old notices and old rows of the journal.

    Args:
        notices_before: notices from before this time are removed.
        journal_before: journal rows from before this time are removed.
    """
    connection.execute(sa.delete(NOTICES).where(NOTICES.c.at < notices_before))
    connection.execute(sa.delete(JOURNAL).where(JOURNAL.c.at < journal_before))


def forget(connection: Connection, user: str) -> None:
    """Remove the notices and journal rows about a deleted user. In rows about other users, the name is removed if the
    user acted as administrator.
    """
    as_admin = sa.update(JOURNAL).where(JOURNAL.c.actor == f"admin {user}")
    connection.execute(as_admin.values(actor="admin"))
    connection.execute(sa.delete(NOTICES).where(NOTICES.c.user == user))
    connection.execute(sa.delete(JOURNAL).where(JOURNAL.c.user == user))


def keeps(connection: Connection, since: datetime) -> tuple[tuple[str, datetime], ...]:
    """Return (user, time) for each time that a user pressed the button *keep* since this time, the oldest first.

    The button delays the stop of an idle server.
    """
    chosen = sa.select(JOURNAL.c.user, JOURNAL.c.at).where(JOURNAL.c.kind == "kept", JOURNAL.c.at >= since)
    rows = connection.execute(chosen.order_by(JOURNAL.c.id))
    return tuple((row.user, row.at) for row in rows if row.user)
