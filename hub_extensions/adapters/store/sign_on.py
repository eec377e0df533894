"""Sign-on sessions, their audit log, and pending stops of servers, in the hub's own database.

Everything is written through the hub's own database session. The end of a session (its row, the hub's tokens, the audit
log) is therefore one commit, and this code never waits for a lock that the hub holds. The version of these tables is in
a table of its own, so that `jupyterhub upgrade-db` ignores it.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from hub_extensions.adapters.store.schema import SERIAL, CleanText, UtcTime, upsert
from hub_extensions.adapters.store.schema_steps import is_known, missing_from, newest, run_steps, schema_of
from hub_extensions.core.sign_on import SignOnEvent, SignOnSession

METADATA = sa.MetaData()
MIGRATIONS = Path(__file__).parent / "sign_on_migrations"
PREFIX = "gpu_signon_"
VERSION_TABLE = f"{PREFIX}alembic_version"

SESSIONS = sa.Table(
    "gpu_signon_sessions",
    METADATA,
    sa.Column("id", CleanText, primary_key=True),
    sa.Column("token_hash", CleanText, nullable=False, unique=True),
    sa.Column("hub_session", CleanText, nullable=False),
    sa.Column("user_id", sa.Integer, nullable=False),
    sa.Column("browser", CleanText, nullable=False),
    sa.Column("address", CleanText, nullable=False),
    sa.Column("begun", UtcTime, nullable=False),
    sa.Column("last_use", UtcTime, nullable=False),
    sa.Column("ended", UtcTime),
    sa.Column("cause", CleanText, nullable=False),
    sa.Column("by", CleanText, nullable=False),
)
EVENTS = sa.Table(
    "gpu_signon_events",
    METADATA,
    sa.Column("id", SERIAL, primary_key=True),
    sa.Column("time", UtcTime, nullable=False, index=True),
    sa.Column("kind", CleanText, nullable=False),
    sa.Column("user", CleanText),
    sa.Column("session", CleanText, nullable=False),
    sa.Column("by", CleanText, nullable=False),
    sa.Column("cause", CleanText, nullable=False),
    sa.Column("tokens", sa.Integer, nullable=False),
    sa.Column("servers", sa.Integer, nullable=False),
    sa.Column("milliseconds", sa.Integer, nullable=False),
)
STOPS = sa.Table(
    "gpu_signon_stops",
    METADATA,
    sa.Column("user_id", sa.Integer, primary_key=True),
    sa.Column("server", CleanText, primary_key=True),
    sa.Column("started", UtcTime),
    sa.Column("at", UtcTime, nullable=False),
    sa.Column("cause", CleanText, nullable=False, server_default=""),
)
UNKNOWN = sa.Table(
    "gpu_signon_unknown",
    METADATA,
    sa.Column("user_id", sa.Integer, primary_key=True),
    sa.Column("since", UtcTime, nullable=False),
)
HUB_USERS = sa.table(
    "users",
    sa.column("id", sa.Integer),
    sa.column("name", sa.Unicode),
    sa.column("created", sa.DateTime),
    sa.column("cookie_id"),
)


class SignOnTablesUnusable(ValueError):
    """The tables of sign-on cannot be used; the text explains why and what to do.

    Another version wrote them, they are damaged, or this kind of database cannot have them.
    """


@dataclass(frozen=True, slots=True)
class PendingStop:
    """A server that has to stop because its user's session ended.

    Attributes:
        user_id: the hub's id of the user.
        server: name of the server; "" is the default server.
        started: when the run of the server that has to stop was started; a later run of the server is not stopped.
            `None` if the server was still waiting to start.
        at: when the server has to stop.
        cause: why the session ended.
    """

    user_id: int
    server: str
    started: datetime | None
    at: datetime
    cause: str = ""


class SignOnStore:
    """The tables of sign-on in the hub's database: sessions, audit log, pending stops, and unknown accounts.

    Args:
        db: the hub's own SQLAlchemy session, used only in the hub's thread.
    """

    def __init__(self, db: Any) -> None:
        self._db = db

    @classmethod
    def opened(cls, db: Any) -> SignOnStore:
        """Return the store, with the tables migrated to this version's schema.

        From then on, the hub's failed statements are logged without their values, which include codes and session ids.

        Raises:
            SignOnTablesUnusable: the tables cannot be used.
        """
        migrate(db.get_bind())
        db.get_bind().hide_parameters = True
        return cls(db)

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Commit what is written in the block, together with the pending changes of the hub's database session. If the
        block fails, all of it is rolled back.
        """
        try:
            yield
            self._db.commit()
        except BaseException:
            self._db.rollback()
            raise

    def sessions(self) -> list[SignOnSession]:
        """Return all stored sign-on sessions (signed-in browsers), also ended ones."""
        return [SignOnSession(**row) for row in self._connection.execute(sa.select(SESSIONS)).mappings()]

    def put(self, sessions: Iterable[SignOnSession]) -> None:
        """Write sign-on sessions (signed-in browsers): new ones are added, changed ones replaced."""
        upsert(self._connection, SESSIONS, map(asdict, sessions))

    def note_uses(self, last_uses: Mapping[str, datetime]) -> None:
        """Write when sessions were last used. `last_uses` has the time by the public id of the session."""
        if not last_uses:
            return
        change = sa.update(SESSIONS).where(SESSIONS.c.id == sa.bindparam("which"))
        rows = [{"which": id, "used": used} for id, used in last_uses.items()]
        self._connection.execute(change.values(last_use=sa.bindparam("used", type_=UtcTime())), rows)

    def forget_ended(self, before: datetime) -> None:
        """Remove sign-on sessions (signed-in browsers) that ended before a time."""
        self._connection.execute(sa.delete(SESSIONS).where(SESSIONS.c.ended < before))

    def record(self, event: SignOnEvent) -> None:
        """Add an event to the audit log of sign-ons."""
        self._connection.execute(sa.insert(EVENTS), asdict(event))

    def events(self, user: str | None, most: int) -> list[SignOnEvent]:
        """Return the last events of the audit log, the newest first.

        Args:
            user: return only events of this user; `None` for all users.
            most: maximum number of events.
        """
        query = sa.select(EVENTS).order_by(EVENTS.c.time.desc(), EVENTS.c.id.desc()).limit(most)
        if user is not None:
            query = query.where(EVENTS.c.user == user)
        rows = self._connection.execute(query).mappings()
        return [SignOnEvent(**{key: value for key, value in row.items() if key != "id"}) for row in rows]

    def clean_events(self, before: datetime) -> None:
        """Remove old events from the audit log, and the names of deleted users from all other events.

        Args:
            before: events from before this time are removed.
        """
        self._connection.execute(sa.delete(EVENTS).where(EVENTS.c.time < before))
        names = sa.select(HUB_USERS.c.name)
        self._connection.execute(sa.update(EVENTS).where(EVENTS.c.user.not_in(names)).values(user=None))
        gone = sa.and_(EVENTS.c.by != "", EVENTS.c.cause == "by-admin", EVENTS.c.by.not_in(names))
        self._connection.execute(sa.update(EVENTS).where(gone).values(by=""))

    def stops(self) -> list[PendingStop]:
        """Return the pending stops (servers that have to stop because a session ended), the oldest first."""
        rows = self._connection.execute(sa.select(STOPS).order_by(STOPS.c.at)).mappings()
        return [PendingStop(**row) for row in rows]

    def order_stops(self, stops: Iterable[PendingStop]) -> None:
        """Write pending stops. A stored stop of the same run of a server is replaced."""
        upsert(self._connection, STOPS, map(asdict, stops))

    def remove_stop(self, stop: PendingStop) -> None:
        """Remove a pending stop that is done or not needed. A stop of another run of the same server is kept."""
        run = STOPS.c.started.is_(None) if stop.started is None else STOPS.c.started == stop.started
        same = sa.and_(STOPS.c.user_id == stop.user_id, STOPS.c.server == stop.server, run)
        self._connection.execute(sa.delete(STOPS).where(same))

    def unknown_accounts(self) -> dict[int, datetime]:
        """Return the ids of users whose account may no longer exist at the provider, and since when that is unknown."""
        rows = self._connection.execute(sa.select(UNKNOWN)).mappings()
        return {row["user_id"]: row["since"] for row in rows}

    def note_unknown(self, user_id: int, since: datetime) -> None:
        """Write since when it is unknown whether the user's account still exists at the provider."""
        upsert(self._connection, UNKNOWN, [{"user_id": user_id, "since": since}])

    def note_known(self, user_id: int) -> None:
        """Remove what `note_unknown` wrote about a user, because it is known again whether the account exists."""
        self._connection.execute(sa.delete(UNKNOWN).where(UNKNOWN.c.user_id == user_id))

    @property
    def _connection(self) -> Connection:
        connection: Connection = self._db.connection()
        return connection


def migrate(engine: Engine) -> None:
    """Migrate the tables to this version's schema.

    Raises:
        SignOnTablesUnusable: the tables cannot be used.
    """
    if engine.dialect.name not in ("sqlite", "postgresql"):
        raise SignOnTablesUnusable(
            f"c.SignOn needs SQLite or PostgreSQL for the hub's database; c.JupyterHub.db_url is {engine.dialect.name}."
        )
    ours, found = newest(MIGRATIONS), schema_of(engine, VERSION_TABLE)
    remedy = "or drop them with `jupyterhub-gpu sign-on drop-tables`: everybody signs in once."
    if found is not None and not is_known(found, MIGRATIONS):
        age = "a later version" if found.isdigit() and found > ours else "before the first release"
        raise SignOnTablesUnusable(
            f"The hub's database has sign-on tables of schema {found}, of {age}, and this version works with {ours}. "
            f"Install the version that wrote them, {remedy}"
        )
    if found != ours:
        run_steps(engine, MIGRATIONS)
    if missing := missing_from(engine, METADATA):
        raise SignOnTablesUnusable(
            f"The sign-on tables of the hub's database are damaged: {', '.join(missing)} missing. "
            f"Restore a copy, {remedy}"
        )


def forget(url: str) -> tuple[str, ...]:
    """Drop the sign-on tables from the database at this address, and return the names of those that existed.

    Each user gets another `cookie_id`. Otherwise an ended session would continue with the hub's own cookie, which is
    the same for all browsers of a user.

    Raises:
        ValueError: the database cannot be reached; the text does not contain the password.
    """
    try:
        engine = sa.create_engine(url)
        file = engine.url.database if engine.dialect.name == "sqlite" else None
        if file and not Path(file).is_file():  # SQLite would make one
            raise ValueError(f"there is no file {file}")
        there = set(sa.inspect(engine).get_table_names())
        gone = tuple(sorted(name for name in there if name.startswith(PREFIX)))
        with engine.begin() as connection:
            for name in gone:
                sa.Table(name, sa.MetaData()).drop(connection)
            if gone and HUB_USERS.name in there:
                for user in connection.execute(sa.select(HUB_USERS.c.id)).scalars().all():
                    renewed = sa.update(HUB_USERS).where(HUB_USERS.c.id == user)
                    connection.execute(renewed.values(cookie_id=secrets.token_hex(16)))
    except (SQLAlchemyError, ImportError) as problem:
        raise ValueError(f"the hub's database cannot be reached: {type(problem).__name__}") from None
    engine.dispose()
    return gone
