"""`Store`, the service's access to its database: one writer thread, one synchronous engine, and one transaction for
each set of changes.
"""

from __future__ import annotations

import asyncio
import logging
import sqlite3
import uuid
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import replace
from datetime import date, datetime, timedelta
from pathlib import Path
from typing import TypeVar

from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from hub_extensions.adapters.linux.timeouts import shielded
from hub_extensions.adapters.store import deliveries, forecasts, history, queue, servers, usage
from hub_extensions.adapters.store.copies import copy_of_today, is_nearly_full, refuse_damaged
from hub_extensions.adapters.store.database import make_engine, make_read_only_engine, parse_url, where
from hub_extensions.adapters.store.errors import WAY_OUT, StoreUnavailable, as_unavailable
from hub_extensions.adapters.store.records import Changes, JournalFilter, JournalRow, NoticeRow, Stored
from hub_extensions.adapters.store.schema_upgrade import migrate, refuse_other
from hub_extensions.core.forecast.results import Given
from hub_extensions.core.messages import UsagePage
from hub_extensions.core.offers.offer_id import OfferId
from hub_extensions.core.overview.days import CountedUse
from hub_extensions.core.usage import Minute
from hub_extensions.core.usage.right_size import FittingHours

T = TypeVar("T")
_log = logging.getLogger(__name__)

SAMPLES_KEPT = timedelta(days=30)
RECORDS_KEPT = timedelta(days=365)
_LAST_COMMIT = "last-commit"
NEARLY_FULL = (
    "The volume of the store is nearly full: what is measured by the minute is not kept. Make it larger, or free space."
)


class Store:
    """The service's access to its database. Every method may raise `StoreUnavailable`; the next call tries again.

    Attributes:
        guard: called in every transaction of changes before it writes. If it raises, nothing is written. `None` if no
            check is needed, as without a lock on the database.
        nearly_full: whether the volume had little space left when it was last checked; samples are not stored then.
        read_only: why nothing can be written until the store is opened again; "" if it can be written.
    """

    guard: Callable[[Connection], None] | None = None
    nearly_full = False
    read_only = ""

    def __init__(self, engine: Engine, thread: ThreadPoolExecutor) -> None:
        """Create a store. Callers use `Store.open`.

        Args:
            engine: the database.
            thread: the only thread in which the engine is used.
        """
        self._engine = engine
        self._thread = thread
        self._where = where(engine.url)
        self._file = _file_of(engine)
        self._opened = _identity(self._file)
        self._state = "ok"

    @classmethod
    def open(cls, url: str, *, echo: bool = False) -> Store:
        """Open and migrate the database of `url`. This call blocks, so call it in a thread, when the service starts.

        Args:
            url: ``sqlite:////absolute/path``, ``sqlite://`` (in memory) or ``postgresql://…``.
            echo: log each SQL statement.

        Raises:
            StoreTooNew: a newer version wrote it.
            StoreUnavailable: it cannot be opened, read or written.
        """
        return cls._opened_by(make_engine(parse_url(url), echo=echo), _prepare)

    @classmethod
    def open_read_only(cls, url: str, why: str) -> Store:
        """Open the SQLite file of `url`, whose disk is full.

        Args:
            why: the reason with which every change is refused.

        Raises:
            StoreUnavailable: it cannot be read, another process has it, or it is of another version.
        """
        store = cls._opened_by(make_read_only_engine(parse_url(url)), _prepare_reading)
        store.read_only = store._state = why
        return store

    @classmethod
    def _opened_by(cls, engine: Engine, prepare: Callable[[Engine], None]) -> Store:
        thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gpu-store")
        try:
            thread.submit(prepare, engine).result()
        except Exception as error:
            thread.submit(engine.dispose).result()
            thread.shutdown()
            unavailable = as_unavailable(error, where(engine.url))
            if unavailable is None or unavailable is error:
                raise
            raise unavailable from error
        return cls(engine, thread)

    async def load(self) -> Stored:
        """Return what the service needs when it starts, such as tickets (users' places in the line) and leases."""
        return await self._do(_load)

    async def commit(self, changes: Changes) -> None:
        """Write `changes` in one transaction. When it returns, they are on disk; if it raises, nothing is written.

        Cancelling the caller does not undo it. Samples (measurements of GPUs by the minute) are left out while the
        volume is nearly full.
        """
        if changes.empty:
            return
        self._refuse_changes()
        mark = uuid.uuid4().hex
        marked = Changes(meta={_LAST_COMMIT: mark})

        def write(connection: Connection) -> None:
            if self.guard is not None:
                self.guard(connection)
            queue.write(connection, changes)
            servers.write(connection, changes)
            history.write(connection, changes)
            full = bool(changes.samples) and self._has_no_room_for_minutes()
            usage.write(connection, replace(changes, samples=()) if full else changes)
            deliveries.write(connection, changes)
            forecasts.write(connection, changes)
            servers.write(connection, marked)

        await self._do(write, arrived=lambda connection: servers.meta(connection).get(_LAST_COMMIT) == mark)

    def _refuse_changes(self) -> None:
        if self.read_only:
            raise StoreUnavailable(self.read_only)

    def _has_no_room_for_minutes(self) -> bool:
        was, self.nearly_full = self.nearly_full, self._file is not None and is_nearly_full(self._file)
        if self.nearly_full and not was:
            _log.error("%s", NEARLY_FULL)
        return self.nearly_full

    async def notices(self, user: str | None, since: datetime) -> tuple[NoticeRow, ...]:
        """Return notices to users, the newest first.

        Args:
            user: only notices to this user; `None` for all users.
            since: only notices from this time on.
        """
        return await self._do(lambda connection: history.notices(connection, user, since))

    async def last_offers(self, user: str) -> tuple[OfferId, ...]:
        """Return the offers (choices on the spawn form) that the newest ticket (place in the line) of `user` accepts.

        They are in order of preference; empty if the user has no ticket.
        """
        return await self._do(lambda connection: queue.last_offers(connection, user))

    async def last_offers_by_user(self) -> Mapping[str, tuple[OfferId, ...]]:
        """Return for every user with a ticket (place in the line) the offers that the newest ticket accepts.

        The offers are in order of preference.
        """
        return await self._do(queue.last_offers_by_user)

    async def users(self) -> tuple[str, ...]:
        """Return the names of all users in usage records of this hub and in notices, without deleted users."""
        return await self._do(lambda connection: tuple(sorted({*usage.users(connection), *history.users(connection)})))

    async def usage(self, user: str | None = None, before: str | None = None, limit: int = usage.PAGE) -> UsagePage:
        """Return a page of usage records, the most recently ended first.

        Args:
            user: only this user's records on this hub; `None` for the records of all users, imported ones included.
            before: `UsagePage.next` of the previous page; `None` for the first page.
            limit: largest number of records on the page.

        Raises:
            ValueError: `before` is not the `UsagePage.next` of a page.
        """
        return await self._do(lambda connection: usage.page(connection, user, before, limit))

    async def uses_since(self, since: datetime) -> tuple[CountedUse, ...]:
        """Return the uses of GPUs on this hub (a use is one server's time with its devices) that ended at `since` or
        later.

        Imported ones are left out.
        """
        return await self._do(lambda connection: usage.uses_since(connection, since))

    async def fitting_hours(self, since: datetime) -> tuple[FittingHours, ...]:
        """Return for each pool how many device hours since then a smaller offer would have been enough for.

        See `usage.fitting_hours`.
        """
        return await self._do(lambda connection: usage.fitting_hours(connection, since))

    async def samples(self, key: str, since: datetime) -> tuple[Minute, ...]:
        """Return the measured minutes of one use (by its key) from `since` on, the oldest first."""
        return await self._do(lambda connection: usage.samples(connection, key, since))

    async def imports(self) -> tuple[int, int]:
        """Return the id of the last finished import of usage records, and the number of imports.

        If one of the two changes, the history has to be read again.
        """
        return await self._do(usage.imports)

    async def matured_forecasts(self) -> tuple[Given, ...]:
        """Return wait forecasts whose real wait is known. Later forecasts are judged and corrected by them."""
        return await self._do(forecasts.matured)

    async def journal(self, limit: int = 200, which: JournalFilter | None = None) -> tuple[JournalRow, ...]:
        """Return rows of the journal (the decisions of the service), the most recently written first.

        Args:
            limit: maximum number of rows.
            which: selects the rows; `None` for all rows.
        """
        return await self._do(lambda connection: history.journal(connection, limit, which or JournalFilter()))

    async def keeps(self, since: datetime) -> tuple[tuple[str, datetime], ...]:
        """Return (user, time) for each time that a user pressed the button *keep* since this time, the oldest first.

        The button delays the stop of an idle server.
        """
        return await self._do(lambda connection: history.keeps(connection, since))

    async def prune(self, now: datetime) -> None:
        """Remove samples and notices that are older than 30 days, and usage records, ended tickets, journal and
        forecasts older than 12 months.
        """

        self._refuse_changes()

        def remove(connection: Connection) -> None:
            samples, records = now - SAMPLES_KEPT, now - RECORDS_KEPT
            queue.prune(connection, records)
            history.prune(connection, notices_before=samples, journal_before=records)
            usage.prune(connection, samples_before=samples, records_before=records)
            forecasts.prune(connection, records)

        await self._do(remove)

    async def forget_user(self, user: str) -> None:
        """Remove a deleted user: tickets, facts, notices and journal rows are deleted, and usage records get a number
        instead of the name.
        """

        self._refuse_changes()

        def forget(connection: Connection) -> None:
            queue.forget(connection, user)
            servers.forget(connection, user)
            history.forget(connection, user)
            usage.forget(connection, user, servers.META)
            deliveries.forget(connection, user)

        await self._do(forget)

    async def copy_of_today(self, folder: Path, today: date) -> Path | None:
        """Copy an SQLite file into `folder` once a day, while the store works. See ``copies.py``.

        Args:
            folder: where the copies are.
            today: the date.

        Returns:
            The path of a new copy; `None` if today's copy exists already, or the database is not an SQLite file.
        """
        file = self._file
        if file is None:
            return None
        try:
            return await asyncio.to_thread(copy_of_today, file, folder, today)
        except (sqlite3.Error, OSError) as error:
            raise StoreUnavailable(f"No copy of the file {file} (database_url) could be made: {error}.") from error

    def close(self) -> None:
        """Finish the writes that were requested, and close the database. Can be called twice."""
        try:
            last: Future[None] = self._thread.submit(self._engine.dispose)
        except RuntimeError:
            return  # closed before
        last.result()
        self._thread.shutdown()
        self._state = "closed"

    @property
    def state(self) -> str:
        """Return ``ok``, or the error of the last access, for the service's report of its own state (``health``)."""
        return self._state

    async def _do(self, work: Callable[[Connection], T], arrived: Callable[[Connection], bool] | None = None) -> T:
        try:
            submitted = self._thread.submit(self._transaction, work, arrived)
        except RuntimeError:
            raise StoreUnavailable("The store is closed.") from None
        # a cancelled caller must not take back what is queued: others count on its order
        return await shielded(asyncio.wrap_future(submitted))

    def _transaction(self, work: Callable[[Connection], T], arrived: Callable[[Connection], bool] | None) -> T:
        try:
            self._check_file()
            result = self._run(work, arrived)
        except Exception as error:
            unavailable = as_unavailable(error, self._where)
            if unavailable is None:
                raise
            self._state = unavailable.message
            self._engine.dispose()  # the next call connects again
            if unavailable is error:
                raise
            raise unavailable from error
        self._state = self.read_only or "ok"
        return result

    def _run(self, work: Callable[[Connection], T], arrived: Callable[[Connection], bool] | None) -> T:
        with self._engine.connect() as connection:
            transaction = connection.begin()
            try:
                result = work(connection)
            except BaseException:
                transaction.rollback()
                raise
            try:
                transaction.commit()
            except SQLAlchemyError:
                # a connection may be cut after the database wrote, so ask the database; this cannot happen to a file
                if arrived is None or self._file is not None or not self._has_arrived(arrived):
                    raise
            return result

    def _has_arrived(self, arrived: Callable[[Connection], bool]) -> bool:
        try:
            self._engine.dispose()
            with self._engine.connect() as connection:
                return arrived(connection)
        except SQLAlchemyError:
            return False

    def _check_file(self) -> None:
        # writes to an open file that was removed succeed, but are lost
        if self._file is not None and _identity(self._file) != self._opened:
            raise StoreUnavailable(
                f"The file {self._file} (database_url) was removed or replaced while the service runs. "
                f"Put it back, or restart the service."
            )


def _prepare(engine: Engine) -> None:
    file = _file_of(engine)
    if file is not None:
        try:
            refuse_damaged(file)
        except sqlite3.OperationalError as error:
            raise StoreUnavailable(f"The file {file} (database_url) cannot be read now: {error}.") from error
    migrate(engine)


def _prepare_reading(engine: Engine) -> None:
    with engine.connect() as connection:
        found = connection.exec_driver_sql("PRAGMA quick_check(1)").scalar()
    if found != "ok":
        raise StoreUnavailable(f"The file {engine.url.database} (database_url) is damaged. {WAY_OUT}")
    refuse_other(engine)


def _load(connection: Connection) -> Stored:
    try:
        return Stored(
            tickets=queue.live_tickets(connection),
            leases=queue.leases(connection),
            facts=servers.facts(connection),
            uses=usage.open_uses(connection),
            next_place=queue.next_place(connection),
            meta={name: value for name, value in servers.meta(connection).items() if name != _LAST_COMMIT},
            deliveries=deliveries.deliveries(connection),
            forecasts=forecasts.open_ones(connection),
            earlier_stops=servers.earlier_stops(connection),
        )
    except (ValueError, TypeError, KeyError) as error:
        raise StoreUnavailable(
            f"The database of database_url holds a row this version cannot read: {error}."
        ) from error


def _file_of(engine: Engine) -> Path | None:
    file = engine.url.database
    return Path(file) if engine.dialect.name == "sqlite" and file and file != ":memory:" else None


def _identity(file: Path | None) -> tuple[int, int] | None:
    if file is None:
        return None
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_dev, found.st_ino
