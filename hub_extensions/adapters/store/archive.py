"""Access to the history (usage records and the journal) for commands that run beside the service.

A reader sees the database as it was at one moment, reads it as a stream and locks nothing. An import uses short
transactions, so that it does not delay the service, and its rows become visible once it is finished (``usage.py``).
"""

from __future__ import annotations

import json
from collections.abc import Generator, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from dataclasses import dataclass
from datetime import datetime, timedelta, timezone
from itertools import groupby
from operator import itemgetter
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from hub_extensions.adapters.store import usage
from hub_extensions.adapters.store.copies import sqlite_file
from hub_extensions.adapters.store.database import make_engine, parse_url, where
from hub_extensions.adapters.store.errors import StoreUnavailable, as_unavailable
from hub_extensions.adapters.store.history import JOURNAL, conditions
from hub_extensions.adapters.store.records import JournalFilter
from hub_extensions.adapters.store.schema_upgrade import refuse_other
from hub_extensions.adapters.store.servers import META
from hub_extensions.adapters.store.usage import SAMPLES, USAGE, VISIBLE
from hub_extensions.core.messages import UsageRecord
from hub_extensions.core.messages.usage import OWN

AT_ONCE = 500  # rows in memory at the same time
CSV_NAMES = {
    "submit": "",
    "duration": "held_seconds",
    "num_gpu": "devices",
    "slices": "share",
    "user": "user",
    "limit": "lifetime_seconds",
}
"""Column of an exported trace -> our column. `submit` is computed: the seconds since the first use of the trace
began.
"""
OUR_NAMES = tuple(name for name in usage.FIELDS if name not in CSV_NAMES.values())


@dataclass(frozen=True, slots=True)
class MeasuredMinute:
    """The measurements of one minute of a use (one server's time with its devices).

    Attributes:
        at: the beginning of the minute.
        percent: the highest GPU utilization of the minute; `None` if not measured.
        source: what measured it, such as ``nvml`` or ``dcgm``.
        memory: used memory in bytes; `None` if not measured.
    """

    at: datetime
    percent: float | None
    source: str
    memory: int | None


MEASURED_NAMES = ("user", "server", "offer", "share", "ready", "ended", "adopted", "pool", "groups")
JOURNAL_NAMES = ("at", "kind", "actor", "user", "server", "ticket", "lease", "text", "evidence")


SAMPLE_NAMES = tuple(column.name for column in SAMPLES.columns)


class Archive:
    """Reads and imports the history of a store: its usage records and its journal. For one thread.

    A usage record describes one server's time with its GPU devices. The journal has the service's decisions. Every
    method may raise `StoreUnavailable`.
    """

    def __init__(self, engine: Engine) -> None:
        """Create an archive. Callers use `Archive.open`, which also checks the version."""
        self._engine = engine

    @classmethod
    @contextmanager
    def open(cls, url: str, *, reading: bool) -> Iterator[Archive]:
        """Open the store of `url` while the block runs. A service of this version must have created it.

        Args:
            url: address of the database.
            reading: only read, without blocking the service.

        Raises:
            StoreUnavailable: it does not exist, cannot be opened, or is of another version.
        """
        file = sqlite_file(url)
        if file is not None and not file.exists():
            raise StoreUnavailable(f"There is no file {file}: the service has not been started yet, or it was removed.")
        parsed = parse_url(url)
        engine = make_engine(parsed, reading=reading)
        try:
            refuse_other(engine)
            yield cls(engine)
        except SQLAlchemyError as error:
            unavailable = as_unavailable(error, where(parsed))
            if unavailable is None:
                raise
            raise unavailable from error
        finally:
            engine.dispose()

    # -------------------------------------------------------------- reading

    def uses(self) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield all usage records for an export, in batches of rows. A row has the columns `CSV_NAMES`, then
        `OUR_NAMES`.

        A usage record describes a use: one server's time with its devices. The rows are in the order in which the uses
        began. The database converts times to text, so that no row is converted one by one.
        """
        with self._engine.connect() as connection, connection.begin():
            first = connection.scalar(sa.select(USAGE.c.began).where(VISIBLE).order_by(USAGE.c.began).limit(1))
            if first is None:
                return
            known = [USAGE.c[name] for name in CSV_NAMES.values() if name]
            columns = [self._since(first), *known, *(USAGE.c[name] for name in OUR_NAMES)]
            plain = [self._plain(column) for column in columns]
            chosen = sa.select(*plain).where(VISIBLE).order_by(USAGE.c.began, USAGE.c.key)
            yield from _pieces(connection, chosen)

    def pool_sizes(self) -> dict[str, int]:
        """Return the number of devices of every pool (the devices of one kind, for which users wait in one line), as
        the service last stored it.
        """
        with self._engine.connect() as connection, connection.begin():
            kept = connection.scalar(sa.select(META.c.value).where(META.c.name == "pool-sizes"))
        sizes: dict[str, int] = json.loads(kept) if kept else {}
        return sizes

    def journal(self, which: JournalFilter) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield the selected rows of the journal (the service's decisions) in batches. A row has the columns
        `JOURNAL_NAMES`.

        The rows are in the order in which they were written.
        """
        chosen = sa.select(*(self._plain(JOURNAL.c[name]) for name in JOURNAL_NAMES)).order_by(JOURNAL.c.id)
        with self._engine.connect() as connection, connection.begin():
            yield from _pieces(connection, chosen.where(*conditions(which)))

    def samples(self, since: datetime | None, until: datetime | None) -> Iterator[Sequence[tuple[Any, ...]]]:
        """Yield samples (measurements of a use in one minute) in batches of rows. A row has the columns `SAMPLE_NAMES`.

        The rows are sorted by use and minute.

        Args:
            since: time of the first sample; `None` for no limit.
            until: time before which samples are returned; `None` for no limit.
        """
        columns = [self._plain(column) for column in SAMPLES.columns]
        chosen = sa.select(*columns).order_by(SAMPLES.c.key, SAMPLES.c.at)
        if since is not None:
            chosen = chosen.where(SAMPLES.c.at >= since)
        if until is not None:
            chosen = chosen.where(SAMPLES.c.at < until)
        with self._engine.connect() as connection, connection.begin():
            yield from _pieces(connection, chosen)

    def measured_uses(self, span: timedelta) -> Iterator[tuple[dict[str, Any], tuple[MeasuredMinute, ...]]]:
        """Yield the GPU uses (a server's time with its devices) on this hub that ended in the last `span`.

        Each is given with its columns `MEASURED_NAMES` and its measured minutes. Uses whose server never became ready,
        and imported ones, are left out.
        """
        measured = (SAMPLES.c.at, SAMPLES.c.highest_percent, SAMPLES.c.source, SAMPLES.c.memory_bytes)
        columns = (USAGE.c.key, *(USAGE.c[name] for name in MEASURED_NAMES), *measured)
        both = USAGE.outerjoin(SAMPLES, SAMPLES.c.key == USAGE.c.key)
        chosen = (
            sa.select(*columns)
            .select_from(both)
            .where(USAGE.c.source == OWN, USAGE.c.share > 0, USAGE.c.ready.is_not(None))
            .where(USAGE.c.ended >= datetime.now(timezone.utc) - span)
            .order_by(USAGE.c.key, SAMPLES.c.at)
        )
        last = len(measured)
        with (
            self._engine.connect() as connection,
            connection.begin(),
            closing(_pieces(connection, chosen)) as pieces,
        ):
            rows = (row for piece in pieces for row in piece)
            for _, minutes in groupby(rows, key=itemgetter(0)):
                first, *others = minutes
                known = tuple(MeasuredMinute(*row[-last:]) for row in (first, *others) if row[-last] is not None)
                yield dict(zip(MEASURED_NAMES, first[1:-last], strict=True)), known

    def waits(self, span: timedelta) -> Iterator[tuple[str, datetime, datetime]]:
        """Yield pool, beginning and end of every wait for a GPU on this hub that ended in the last `span`.

        A pool is the devices of one kind, for which users wait in one line. Waits of users who left without a GPU are
        included.
        """
        until = sa.func.coalesce(USAGE.c.admitted, USAGE.c.ended, type_=USAGE.c.ended.type)
        chosen = (
            sa.select(USAGE.c.pool, USAGE.c.asked, until)
            .where(USAGE.c.source == OWN, USAGE.c.share > 0, USAGE.c.asked.is_not(None))
            .where(USAGE.c.ended >= datetime.now(timezone.utc) - span)
        )
        with self._engine.connect() as connection, connection.begin():
            for piece in _pieces(connection, chosen):
                yield from (tuple(row) for row in piece if row[1] < row[2])

    def _postgresql(self) -> bool:
        return self._engine.dialect.name == "postgresql"

    def _since(self, first: datetime) -> Any:
        """Return the SQL expression for the seconds from the first use of the store to the beginning of a use.

        The expression rounds the seconds to thousandths, for the export.

        Args:
            first: when the first use began.
        """
        if self._postgresql():
            seconds = sa.func.date_part("epoch", USAGE.c.began, type_=sa.Double) - first.timestamp()
            return sa.func.round(seconds * 1000, type_=sa.Double) / 1000.0
        day = sa.func.julianday(sa.literal(first, USAGE.c.began.type))
        return sa.func.round((sa.func.julianday(USAGE.c.began) - day) * timedelta(days=1).total_seconds(), 3)

    def _plain(self, column: Any) -> Any:
        if isinstance(column.type, sa.Boolean):
            return sa.cast(column, sa.Integer)
        if not isinstance(column.type, sa.types.TypeDecorator):
            return column
        if not isinstance(column.type.impl_instance, sa.DateTime):
            return sa.type_coerce(column, sa.Text)
        if self._postgresql():
            return sa.func.to_char(column, 'YYYY-MM-DD"T"HH24:MI:SS.US"+00:00"', type_=sa.Text)
        return sa.func.replace(sa.type_coerce(column, sa.Text), " ", "T", type_=sa.Text) + "+00:00"

    # -------------------------------------------------------------- importing

    def import_of(self, digest: str) -> tuple[str, datetime] | None:
        """Return label and time of the import of the file with this digest; `None` if it was not imported."""
        with self._engine.begin() as connection:
            return usage.import_of(connection, digest)

    @contextmanager
    def importing(self, label: str, digest: str) -> Iterator[Import]:
        """Import records within this block. If the block fails, all records of the import are removed.

        Args:
            label: name of the import, for administrators.
            digest: hash of the imported file, by which a second import of the file is noticed.
        """
        with self._engine.begin() as connection:
            batch = usage.begin_import(connection, label, digest, datetime.now(timezone.utc))
        going = Import(self._engine, batch)
        try:
            yield going
        except BaseException:
            with self._engine.begin() as connection:
                usage.drop_import(connection, batch)
            raise
        with self._engine.begin() as connection:
            if not usage.end_import(connection, batch, going.rows):
                raise StoreUnavailable("Another import was begun meanwhile, and took this one away. Import again.")


class Import:
    """An import of usage records in progress, made by `Archive.importing`.

    Attributes:
        rows: the number of records added so far.
    """

    def __init__(self, engine: Engine, batch: int) -> None:
        self._engine = engine
        self._batch = batch
        self.rows = 0

    def add(self, records: Sequence[tuple[UsageRecord, str]]) -> tuple[int, ...]:
        """Add records. Records that the store already has, from another import or from this hub, are skipped.

        Args:
            records: for each record, the record itself, and the key under which this hub would have stored the same
                use; "" without one.

        Returns:
            The positions of records whose key this import has already added. If there are any, nothing is added.
        """
        with self._engine.begin() as connection:
            keys = [key for record, own in records for key in (record.key, own) if key]
            known = usage.known_keys(connection, keys)
            twice = tuple(place for place, (record, _) in enumerate(records) if known.get(record.key) == self._batch)
            new = [record for record, own in records if record.key not in known and not (own and own in known)]
            if not twice:
                usage.add_imported(connection, new, self._batch)
                self.rows += len(new)
        return twice


def _pieces(connection: Connection, chosen: Any) -> Generator[Sequence[tuple[Any, ...]], None, None]:
    """Yield the rows of a query in batches of `AT_ONCE`.

    With a database server, the next batch is fetched while the caller processes one.

    Args:
        connection: the connection to the database.
        chosen: the query.
    """
    result = connection.execution_options(stream_results=True, max_row_buffer=AT_ONCE).execute(chosen)
    pieces = result.partitions(AT_ONCE)
    if connection.dialect.name == "sqlite":
        yield from pieces
        return
    with ThreadPoolExecutor(1) as ahead:
        coming = ahead.submit(next, pieces, None)
        while (piece := coming.result()) is not None:
            coming = ahead.submit(next, pieces, None)
            yield piece


def label_of(file: Path) -> str:
    """Return the label of an import if the administrator gives none: the file's name without its ending."""
    return file.name.removesuffix(".gz").rpartition(".")[0] or file.name
