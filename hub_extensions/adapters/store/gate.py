"""The gate's own store: sessions of browsers, and pending sign-ins, in an SQLite file or PostgreSQL.

A stolen database opens no session. It has hashes of cookies and of a sign-in's state and browser. The hub's token is
encrypted by the cookie itself (``gate/sessions.py``), and the keys that sign assertions are encrypted too
(``gate/keys.py``). Each method is one transaction.

In PostgreSQL, several gates share one store. If one of them ends a session, it notifies the others in the same
transaction (``gate_news.py``).
"""

from __future__ import annotations

from collections.abc import Collection, Mapping
from dataclasses import asdict, dataclass, field
from datetime import datetime
from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine
from sqlalchemy.exc import SQLAlchemyError

from hub_extensions.adapters.store.database import make_engine, parse_url, where
from hub_extensions.adapters.store.errors import StoreUnavailable
from hub_extensions.adapters.store.gate_news import CHANNEL, News, letters_of
from hub_extensions.adapters.store.schema import CleanText, UtcTime, upsert
from hub_extensions.adapters.store.schema_upgrade import migrate

GATE_METADATA = sa.MetaData()
GATE_MIGRATIONS = Path(__file__).parent / "gate_migrations"
GATE_VERSION_TABLE = "gate_alembic_version"
MOST_SIGN_INS = 10_000  # pending sign-ins; the oldest is discarded first, because anybody may begin one

_SESSIONS = sa.Table(
    "gate_sessions",
    GATE_METADATA,
    sa.Column("id", CleanText, primary_key=True),
    sa.Column("user", CleanText, nullable=False),
    sa.Column("hub_session", CleanText, nullable=False),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
    sa.Column("begun", UtcTime, nullable=False),
    sa.Column("last_use", UtcTime, nullable=False),
    sa.Column("rounds", CleanText, nullable=False, server_default=""),
)
_KEYS = sa.Table(
    "gate_keys",
    GATE_METADATA,
    sa.Column("made", CleanText, primary_key=True),
    sa.Column("sealed", sa.LargeBinary, nullable=False),
)
_SIGN_INS = sa.Table(
    "gate_sign_ins",
    GATE_METADATA,
    sa.Column("state", CleanText, primary_key=True),
    sa.Column("browser", CleanText, nullable=False),
    sa.Column("app", CleanText, nullable=False),
    sa.Column("path", CleanText, nullable=False),
    sa.Column("begun", UtcTime, nullable=False, index=True),
)


@dataclass(frozen=True, slots=True)
class StoredSession:
    """A session of a browser at the gate, as it is stored.

    Attributes:
        id: the cookie's hash.
        user: name of the hub user.
        hub_session: id of the hub's session from which it was created.
        sealed: the hub's token, encrypted.
        begun: when the session began.
        last_use: when it was last used.
        rounds: when a silent sign-in (one without a question to the user) last renewed the user's rights for each app,
            as JSON; "" before the first one.
    """

    id: str
    user: str
    hub_session: str
    sealed: bytes = field(repr=False)
    begun: datetime
    last_use: datetime
    rounds: str = ""


@dataclass(frozen=True, slots=True)
class StoredSignIn:
    """A pending sign-in: a browser was sent to the hub and has not come back yet.

    Attributes:
        state, browser: hashes of the values that the browser brings back.
        app: the app to return to; "" for the front page.
        path: path and query in the app.
        begun: when the sign-in began.
    """

    state: str
    browser: str
    app: str
    path: str
    begun: datetime


class GateStore:
    """The database of a gate: sessions of browsers, pending sign-ins, and the keys that sign assertions.

    Callers use `GateStore.open`. The engine has one connection.
    """

    def __init__(self, engine: Engine) -> None:
        self._engine = engine

    @classmethod
    def open(cls, url: str) -> GateStore:
        """Return the store, with the tables migrated to this version's schema.

        Raises:
            StoreUnavailable: it cannot be opened. The text contains no password.
        """
        parsed = parse_url(url)
        engine = make_engine(parsed)
        try:
            migrate(engine, GATE_MIGRATIONS, GATE_VERSION_TABLE, GATE_METADATA)
        except SQLAlchemyError as problem:
            engine.dispose()
            raise StoreUnavailable(f"The gate cannot use {where(parsed)}: {type(problem).__name__}.") from None
        return cls(engine)

    @property
    def is_shared(self) -> bool:
        """Return whether other gates may use this database too, which is so with PostgreSQL."""
        return self._engine.dialect.name == "postgresql"

    def sessions(self) -> list[StoredSession]:
        with self._engine.begin() as connection:
            return [StoredSession(**row) for row in connection.execute(sa.select(_SESSIONS)).mappings()]

    def session(self, id: str) -> StoredSession | None:
        """Return the stored session of a browser with this id; `None` if it is not stored."""
        with self._engine.begin() as connection:
            row = connection.execute(sa.select(_SESSIONS).where(_SESSIONS.c.id == id)).mappings().first()
        return None if row is None else StoredSession(**row)

    def put(self, session: StoredSession, instead_of: str = "") -> None:
        """Write a session.

        Args:
            session: the session to write.
            instead_of: id of an earlier session that `session` replaces, which is removed; "" if it replaces none.
        """
        with self._engine.begin() as connection:
            if instead_of:
                connection.execute(sa.delete(_SESSIONS).where(_SESSIONS.c.id == instead_of))
                self._notify(connection, News(ended=(instead_of,)))
            upsert(connection, _SESSIONS, [asdict(session)])

    def remove(self, ids: Collection[str], user: str = "", of_hub: Collection[str] | None = None) -> set[str]:
        """Remove sessions, also those that another gate created. Return the ids of the removed sessions of `user`.

        Args:
            ids: ids of sessions to remove.
            user: also remove sessions of this user; "" for no further sessions.
            of_hub: ids of hub sessions: only the user's sessions that were created from them are removed. `None`
                removes all sessions of the user.
        """
        gone: set[str] = set()
        with self._engine.begin() as connection:
            if user:
                theirs = sa.select(_SESSIONS.c.id).where(_SESSIONS.c.user == user)
                if of_hub is not None:
                    theirs = theirs.where(_SESSIONS.c.hub_session.in_(list(of_hub)))
                gone = set(connection.execute(theirs).scalars())
            rows = [{"which": id} for id in {*ids, *gone}]
            if rows:
                connection.execute(sa.delete(_SESSIONS).where(_SESSIONS.c.id == sa.bindparam("which")), rows)
            if rows or user:
                self._notify(connection, News(user, tuple(row["which"] for row in rows)))
        return gone

    def uses(self) -> dict[str, datetime]:
        """Return the time of last use of each session by its id. Times are written once a minute, so the last use may
        be later.
        """
        with self._engine.begin() as connection:
            return {row.id: row.last_use for row in connection.execute(sa.select(_SESSIONS.c.id, _SESSIONS.c.last_use))}

    def note_uses(self, last_uses: Mapping[str, datetime]) -> None:
        """Write when sessions were last used. A later time that another gate wrote is not overwritten.

        Args:
            last_uses: id of a session -> when it was last used.
        """
        rows = [{"which": id, "used": used} for id, used in last_uses.items()]
        if rows:
            change = sa.update(_SESSIONS).where(
                _SESSIONS.c.id == sa.bindparam("which"),
                _SESSIONS.c.last_use < sa.bindparam("used", type_=UtcTime()),
            )
            with self._engine.begin() as connection:
                connection.execute(change.values(last_use=sa.bindparam("used", type_=UtcTime())), rows)

    def begin(self, sign_in: StoredSignIn, over: datetime) -> None:
        """Write a pending sign-in. If there are too many, the oldest are discarded.

        Args:
            sign_in: the pending sign-in.
            over: pending sign-ins that began before this time are discarded.
        """
        with self._engine.begin() as connection:
            connection.execute(sa.delete(_SIGN_INS).where(_SIGN_INS.c.begun < over))
            count = connection.execute(sa.select(sa.func.count()).select_from(_SIGN_INS)).scalar_one()
            if count >= MOST_SIGN_INS:
                oldest = sa.select(_SIGN_INS.c.state).order_by(_SIGN_INS.c.begun).limit(count - MOST_SIGN_INS + 1)
                connection.execute(sa.delete(_SIGN_INS).where(_SIGN_INS.c.state.in_(oldest)))
            upsert(connection, _SIGN_INS, [asdict(sign_in)])

    def find(self, state: str) -> StoredSignIn | None:
        """Return the pending sign-in whose state has this hash; `None` if it does not exist (any more)."""
        with self._engine.begin() as connection:
            row = connection.execute(sa.select(_SIGN_INS).where(_SIGN_INS.c.state == state)).mappings().first()
        return None if row is None else StoredSignIn(**row)

    def finish(self, state: str) -> bool:
        """Remove a pending sign-in whose browser came back.

        Args:
            state: hash of the sign-in's state.

        Returns:
            `False` if it was removed before. The request is then a repetition, and has to be refused.
        """
        with self._engine.begin() as connection:
            return connection.execute(sa.delete(_SIGN_INS).where(_SIGN_INS.c.state == state)).rowcount == 1

    def keys(self) -> dict[str, bytes]:
        """Return the encrypted keys that sign assertions, by time of creation, the oldest first."""
        with self._engine.begin() as connection:
            found = connection.execute(sa.select(_KEYS.c.made, _KEYS.c.sealed).order_by(_KEYS.c.made))
            return {made: bytes(sealed) for made, sealed in found}

    def put_key(self, made: str, sealed: bytes, after: str, kept: Collection[str]) -> bool:
        """Write a signing key, unless another gate has written one meanwhile. Return `False` in that case.

        Args:
            made: time of creation in nanoseconds since 1970, as 20 digits. It is the name of the key.
            sealed: the encrypted key.
            after: name of the newest key that the caller has read; "" if it has read none. If the newest stored key has
                another name, nothing is written.
            kept: names of earlier keys that are kept; all others are removed.
        """
        with self._engine.begin() as connection:
            if self.is_shared:
                connection.exec_driver_sql("lock table gate_keys in share row exclusive mode")
            newest = connection.execute(sa.select(sa.func.max(_KEYS.c.made))).scalar() or ""
            if newest != after:
                return False
            connection.execute(sa.delete(_KEYS).where(_KEYS.c.made.not_in(list(kept))))
            connection.execute(sa.insert(_KEYS).values(made=made, sealed=sealed))
            self._notify(connection, News(keys=True))
        return True

    def close(self) -> None:
        self._engine.dispose()

    def _notify(self, connection: Connection, news: News) -> None:
        """Send `news` to the other gates with the same database, when this transaction is committed."""
        if self.is_shared:
            for letter in letters_of(news):
                connection.execute(sa.select(sa.func.pg_notify(CHANNEL, letter)))
