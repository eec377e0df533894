"""The common parts of all tables: metadata, column types, and the replacement of a row with the same key (`upsert`)."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime, timezone
from functools import lru_cache
from importlib import import_module
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Dialect

from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.text.reasons import Reason, recalled

METADATA = sa.MetaData()

# a key that counts by itself; SQLite does so for INTEGER only
SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


class UtcTime(sa.types.TypeDecorator[datetime]):
    """Column type of times. They are written and read as aware UTC, and stored as naive UTC.

    SQLite and PostgreSQL compare naive UTC in the same way.
    """

    impl = sa.DateTime
    cache_ok = True

    def process_bind_param(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        if value is None:
            return None
        if value.tzinfo is None:
            raise ValueError(f"a time without a time zone: {value}")
        return value.astimezone(timezone.utc).replace(tzinfo=None)

    def process_result_value(self, value: datetime | None, dialect: Dialect) -> datetime | None:
        return None if value is None else value.replace(tzinfo=timezone.utc)


class CleanText(sa.types.TypeDecorator[str]):
    """Column type of text. Characters that a database cannot store (NUL, lone surrogates) become U+FFFD.

    Therefore no commit fails because of such a character.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: str | None, dialect: Dialect) -> str | None:
        if value is None or (value.isascii() and "\0" not in value):
            return value
        kept = value.replace("\0", "�")
        return kept.encode("utf-16", "surrogatepass").decode("utf-16", "replace")


class OfferIds(sa.types.TypeDecorator[OfferId]):
    """Column type of offer ids: text in the database, `OfferId` in Python."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: OfferId | None, dialect: Dialect) -> str | None:
        return None if value is None else str(value)

    def process_result_value(self, value: str | None, dialect: Dialect) -> OfferId | None:
        return None if value is None else OfferId(value)


class JsonColumn(sa.types.TypeDecorator[Any]):
    """Column type of lists and mappings: JSON text in ASCII, which every database can store."""

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Any, dialect: Dialect) -> str | None:
        return None if value is None else json.dumps(value, separators=(",", ":"))

    def process_result_value(self, value: str | None, dialect: Dialect) -> Any:
        return None if value is None else json.loads(value)


class ReasonsColumn(sa.types.TypeDecorator[tuple[Reason, ...]]):
    """Column type of reasons (sentences that pages can translate): their codes and parameters, as JSON text.

    If another version wrote a reason that is unknown here, the value that is read is empty.
    """

    impl = sa.Text
    cache_ok = True

    def process_bind_param(self, value: Sequence[Reason] | None, dialect: Dialect) -> str | None:
        kept = [[each.reason, dict(each.params)] for each in value or ()]
        return json.dumps(kept, separators=(",", ":")) if kept else None

    def process_result_value(self, value: str | None, dialect: Dialect) -> tuple[Reason, ...]:
        kept = [recalled(*each) if len(each) == 2 else None for each in json.loads(value or "[]")]
        known = tuple(each for each in kept if each is not None)
        return known if len(known) == len(kept) else ()


def upsert(connection: Connection, table: sa.Table, rows: Iterable[Mapping[str, object]]) -> None:
    """Insert `rows` into `table`, replacing rows with the same primary key. All rows are sent in one round trip."""
    values = list(rows)
    if not values:
        return
    connection.execute(_upsert_of(connection.dialect.name, table, tuple(values[0])), values)


@lru_cache(maxsize=64)  # kept per table, because building a statement takes longer than running it
def _upsert_of(dialect: str, table: sa.Table, names: tuple[str, ...]) -> sa.Insert:
    insert = import_module(f"sqlalchemy.dialects.{dialect}").insert(table)  # the other dialect needs 2 MiB
    keys = [column.name for column in table.primary_key.columns]
    others = {name: insert.excluded[name] for name in names if name not in keys}
    statement: sa.Insert = insert.on_conflict_do_update(index_elements=keys, set_=others)
    return statement
