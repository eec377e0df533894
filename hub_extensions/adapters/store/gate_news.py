"""What several gates with one PostgreSQL database tell each other: sessions that ended, and keys that changed.

A gate that writes an end tells it in the same transaction (NOTIFY), and the others hear it within milliseconds. Nothing
rests on it alone: a gate that lost its connection looks at all that is kept when it has one again, and asks the hub
about each session after ``cache_seconds`` in any case. The connection also holds the lock of the one gate that does
what is to be done once (`NewsFromOthers.leads`); it is free as soon as its holder is gone, also after a ``kill -9``.
A pooler before the database has to leave a connection to one client (not ``transaction`` mode).
Not here: what is done about it (``gate/others.py``).
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
MOST_IDS = 64
"""In one letter: PostgreSQL takes 8,000 bytes."""
LEAD_EVERY = 5.0
"""Seconds from one try to become the one that leads to the next."""
_LEAD = 0x6A68677075000003


@dataclass(frozen=True, slots=True)
class News:
    """What another gate did, or this one itself.

    Attributes:
        user: who was signed out; "": nobody was. ended: ids of sessions that are over. keys: other keys sign.
        missed: there may have been more that was not heard.
    """

    user: str = ""
    ended: tuple[str, ...] = ()
    keys: bool = False
    missed: bool = False


def letters_of(news: News) -> Iterator[str]:
    """Texts that are short enough."""
    for start in range(0, max(1, len(news.ended)), MOST_IDS):
        ended = news.ended[start : start + MOST_IDS]
        yield json.dumps({"user": news.user, "ended": ended, "keys": news.keys})


def news_in(letter: str) -> News:
    """What it says; one that cannot be read says that something was missed."""
    try:
        found = json.loads(letter)
        return News(str(found["user"]), tuple(map(str, found["ended"])), found["keys"] is True)
    except (ValueError, TypeError, KeyError):
        return News(missed=True)


class NewsFromOthers:
    """Listens, on a connection of its own, in whichever one thread calls it.

    Attributes:
        leads: this gate is the one of all that does what is to be done once.
        try_again_at: to become it; on the running clock.
    """

    def __init__(self, url: str) -> None:
        parsed = parse_url(url)
        self._where = where(parsed)
        self._engine = make_engine(parsed).execution_options(isolation_level="AUTOCOMMIT")
        self._connection: Connection | None = None
        self.try_again_at = 0.0
        self.leads = False

    def wait(self, seconds: float) -> list[News]:
        """What is heard next, or nothing within this time. Raises StoreUnavailable: the connection is lost."""
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
        """Let go of the connection, and of the lock with it."""
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
