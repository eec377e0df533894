"""Notifications between gates that share one PostgreSQL database: ended sessions, and changed keys.

A gate that ends a session sends a notification in the same transaction (NOTIFY), and the other gates receive it within
milliseconds. Nothing relies on notifications alone: a gate whose connection was lost reads all stored sessions when it
is connected again, and each gate asks the hub about a session again after ``cache_seconds`` in any case.

The connection also holds the lock of the one gate that does the work that must be done once (`NewsFromOthers.leads`).
The lock is free as soon as its holder is gone, also after a ``kill -9``.

A connection pooler must leave a connection to one client (not ``transaction`` mode).
"""

from __future__ import annotations

import json
import time
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from hub_extensions.adapters.store.database import make_engine, parse_url, where
from hub_extensions.adapters.store.errors import StoreUnavailable

CHANNEL = "jupyterhub_gpu_gate"
MOST_IDS = 64  # in one notification; PostgreSQL allows 8,000 bytes
LEAD_EVERY = 5.0  # seconds between two attempts to become the leading gate
_LEAD = 0x6A68677075000003


@dataclass(frozen=True, slots=True)
class News:
    """Changes that one of several gates has made in the shared database.

    Attributes:
        user: the user who was signed out; "" if nobody was.
        ended: ids of sessions that have ended.
        keys: whether the keys that sign assertions have changed.
        missed: whether notifications may have been lost, so that the stored sessions have to be read again.
    """

    user: str = ""
    ended: tuple[str, ...] = ()
    keys: bool = False
    missed: bool = False


def letters_of(news: News) -> Iterator[str]:
    """Return the news of this gate as one or more texts (JSON) that are short enough for a notification of
    PostgreSQL.
    """
    for start in range(0, max(1, len(news.ended)), MOST_IDS):
        ended = news.ended[start : start + MOST_IDS]
        yield json.dumps({"user": news.user, "ended": ended, "keys": news.keys})


def news_in(letter: str) -> News:
    """Parse the text of a notification. If it cannot be read, `missed` of the returned news is True."""
    try:
        found = json.loads(letter)
        return News(str(found["user"]), tuple(map(str, found["ended"])), found["keys"] is True)
    except (ValueError, TypeError, KeyError):
        return News(missed=True)


class NewsFromOthers:
    """Receives the notifications of other gates that share the database, on a connection of its own, in one thread.

    Args:
        url: address of the PostgreSQL database.

    Attributes:
        leads: whether this gate does the work that only one of the gates must do, such as the audit.
        try_again_at: when this gate next tries to take the lock for that work, in seconds of the monotonic clock.
    """

    def __init__(self, url: str) -> None:
        parsed = parse_url(url)
        self._where = where(parsed)
        self._engine = make_engine(parsed).execution_options(isolation_level="AUTOCOMMIT")
        self._connection: Connection | None = None
        self.try_again_at = 0.0
        self.leads = False

    def wait(self, seconds: float) -> list[News]:
        """Wait for the next notifications, at most `seconds`. Return them; empty if none came.

        Raises:
            StoreUnavailable: the connection is lost.
        """
        try:
            if self._connection is None:
                return [self._connect()]
            self._try_to_lead(self._connection)
            driver: Any = self._connection.connection.driver_connection
            return [news_in(each.payload) for each in driver.notifies(timeout=seconds, stop_after=1)]
        except Exception as problem:  # noqa: BLE001  # SQLAlchemy's kinds and the driver's
            self.close()
            kind = type(problem).__name__
            raise StoreUnavailable(f"{self._where} does not tell what other gates do: {kind}") from None

    def close(self) -> None:
        """Close the connection to the shared database. That releases the lock for the work of only one gate."""
        connection, self._connection, self.leads = self._connection, None, False
        if connection is not None:
            connection.invalidate()
            connection.close()
        self._engine.dispose()

    def _connect(self) -> News:
        connection = self._engine.connect()
        connection.exec_driver_sql(f"listen {CHANNEL}")
        self._connection, self.try_again_at = connection, 0.0
        self._try_to_lead(connection)
        return News(missed=True)

    def _try_to_lead(self, connection: Connection) -> None:
        if self.leads or time.monotonic() < self.try_again_at:
            return
        self.try_again_at = time.monotonic() + LEAD_EVERY
        self.leads = bool(connection.execute(sa.select(sa.func.pg_try_advisory_lock(_LEAD))).scalar())
