"""A lock in PostgreSQL, so that only one service uses a database. It is held on its own connection for the service's
life.

A lock file keeps two services of one machine apart, but two pods share no file. The lock is PostgreSQL's advisory lock,
so it is free the moment its holder's connection is gone, also after a ``kill -9``. It is held by an open transaction
rather than by the session, because a connection pooler may change the session, but never a transaction. At READ
COMMITTED such a transaction keeps no snapshot, so it blocks no vacuum.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from typing import TypeVar

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from hub_extensions.adapters.linux.timeouts import shielded
from hub_extensions.adapters.store.database import make_engine, parse_url, where
from hub_extensions.adapters.store.errors import StoreUnavailable, as_unavailable

T = TypeVar("T")

# the two halves of the lock's number, as in ``pg_locks``; each database has its own locks
HIGH, LOW = 0x6A686770, 0x75000001

_LASTING = sa.text(
    "select set_config(name, '0', true) from pg_settings "
    "where name in ('idle_in_transaction_session_timeout', 'transaction_timeout')"
)
_TAKE = sa.text("select pg_try_advisory_xact_lock(:number)").bindparams(number=HIGH << 32 | LOW)
_WHO = sa.text("select pg_backend_pid()")
_HELD = sa.text(
    "select count(*) from pg_locks where locktype = 'advisory' and granted and pid = :pid and objsubid = 1 "
    "and classid = :high and objid = :low "
    "and database = (select oid from pg_database where datname = current_database())"
)


class DatabaseLock:
    """The lock on one PostgreSQL database, so that only one service uses it.

    A service that has lost the lock must end; it does not take the lock again.

    Attributes:
        where: text for messages that names the database, without a password.
    """

    def __init__(self, url: str) -> None:
        """Create the lock for a `url` for which `needed` returns True.

        Raises:
            StoreUnavailable: it is not the address of a database.
        """
        parsed = parse_url(url)
        self.where = where(parsed)
        self._engine = make_engine(parsed).execution_options(isolation_level="READ COMMITTED")
        self._thread = ThreadPoolExecutor(max_workers=1, thread_name_prefix="gpu-store-lock")
        self._connection: Connection | None = None
        self._pid: int | None = None

    @staticmethod
    def needed(url: str) -> bool:
        """Return whether the database at `url` needs the lock, because a service on another machine could use it too.

        Raises:
            StoreUnavailable: it is not the address of a database.
        """
        return parse_url(url).get_backend_name() == "postgresql"

    async def take(self) -> bool:
        """Try once to take the lock on the database. Return `False` if another service holds it.

        Raises:
            StoreUnavailable: the database does not answer.
        """
        return await self._do(self._take)

    async def held(self) -> bool:
        """Return whether the lock on the database is still held.

        The answer comes from a query on the connection that holds the lock. False if the query fails; never raises.
        """
        try:
            return await self._do(self._is_held)
        except (StoreUnavailable, RuntimeError):
            return False

    def guard(self, connection: Connection) -> None:
        """Check the lock from another connection, in the transaction that is about to write.

        Raises:
            StoreUnavailable: the lock is lost.
        """
        parameters = {"pid": self._pid, "high": HIGH, "low": LOW}
        if self._pid is None or not connection.execute(_HELD, parameters).scalar():
            raise StoreUnavailable(
                f"This service lost its lock on {self.where} (database_url), so another one may have taken over."
            )

    def close(self) -> None:
        """Release the lock on the database. Can be called twice."""
        try:
            self._thread.submit(self._give_back).result()
        except RuntimeError:
            return  # closed before
        self._thread.shutdown()

    async def _do(self, work: Callable[[], T]) -> T:
        def run() -> T:
            try:
                return work()
            except Exception as error:
                self._drop()
                unavailable = as_unavailable(error, self.where)
                if unavailable is None:
                    raise
                raise unavailable from error

        return await shielded(asyncio.wrap_future(self._thread.submit(run)))

    def _take(self) -> bool:
        connection = self._connection or self._engine.connect()
        self._connection = connection
        connection.execute(_LASTING)
        if not connection.execute(_TAKE).scalar():
            connection.rollback()
            return False
        self._pid = int(connection.execute(_WHO).scalar_one())
        return True

    def _is_held(self) -> bool:
        if self._connection is None or self._pid is None:
            return False
        return bool(self._connection.execute(_WHO).scalar() == self._pid)

    def _give_back(self) -> None:
        if self._connection is not None:
            with contextlib.suppress(SQLAlchemyError):
                self._connection.rollback()  # it is free when this returns, and not only when the database notices
        self._drop()

    def _drop(self) -> None:
        connection, self._connection, self._pid = self._connection, None, None
        if connection is not None:
            connection.invalidate()  # nothing of it is used again, and the database frees the lock
            connection.close()
        self._engine.dispose()
