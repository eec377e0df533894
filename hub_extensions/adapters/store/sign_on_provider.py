"""Tables of a hub with an OpenID provider: which provider account a hub user belongs to, and the tokens of sessions.

A pin records which provider account (the provider's ``iss`` and ``sub``) a user of the hub belongs to. A link has the
provider's data of one session. The third table has the ids of logout tokens that were used.

The tables are in the hub's own database, and written through the hub's own database session like those of
``sign_on.py``. No method commits, so that a change is in one commit with the other changes. The caller encrypts the
tokens (``authenticator/openid/links.py``).
"""

from __future__ import annotations

import hashlib
import sys
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection
from sqlalchemy.exc import SQLAlchemyError

from hub_extensions.adapters.store.schema import CleanText, UtcTime, upsert
from hub_extensions.adapters.store.sign_on import EVENTS, HUB_USERS, METADATA
from hub_extensions.core.sign_on.identity import Identity, existed_at_pin
from hub_extensions.core.sign_on.recheck import ProviderLink

IDENTITIES = sa.Table(
    "gpu_signon_identities",
    METADATA,
    sa.Column("iss", CleanText, primary_key=True),
    sa.Column("sub", CleanText, primary_key=True),
    sa.Column("user", CleanText, nullable=False, unique=True),
    sa.Column("pinned", UtcTime, nullable=False),
    sa.Column("user_id", sa.Integer),
    sa.Column("user_created", sa.DateTime),
    sa.Column("groups_named", UtcTime),
    sa.Column("account_seen", UtcTime),
)
LINKS = sa.Table(
    "gpu_signon_links",
    METADATA,
    sa.Column("session", CleanText, primary_key=True),
    sa.Column("user_id", sa.Integer, nullable=False),
    sa.Column("iss", CleanText, nullable=False),
    sa.Column("sub", CleanText, nullable=False),
    sa.Column("sid", CleanText, nullable=False),
    sa.Column("encrypted_tokens", sa.LargeBinary, nullable=False),
    sa.Column("checked", UtcTime),
)
LOGOUTS = sa.Table(
    "gpu_signon_logouts",
    METADATA,
    sa.Column("id", CleanText, primary_key=True),
    sa.Column("expires_at", UtcTime, nullable=False),
)


class ProviderStore:
    """The tables of pins (records of which provider account a hub user belongs to), links (the provider's data of one
    session) and used logout tokens.

    Args:
        db: the hub's own database session.
    """

    def __init__(self, db: Any) -> None:
        self._db = db

    def pins_of(self, identity: Identity, user: str) -> dict[Identity, str]:
        """Return the pins (records of which provider account a hub user belongs to) of this account and of this user.

        The result maps accounts to user names. It has two entries if account and user are pinned, but not to each
        other. It is empty if neither is pinned.

        Args:
            identity: an account at the provider.
            user: name of a hub user.
        """
        same = sa.and_(IDENTITIES.c.iss == identity.iss, IDENTITIES.c.sub == identity.sub)
        query = sa.select(IDENTITIES.c.iss, IDENTITIES.c.sub, IDENTITIES.c.user)
        rows = self._connection.execute(query.where(sa.or_(same, IDENTITIES.c.user == user)))
        return {Identity(iss, sub): name for iss, sub, name in rows}

    def pin(self, identity: Identity, user: str, now: datetime) -> None:
        """Record that a hub user belongs to this provider account, so that no other account can sign in as this user.

        Args:
            identity: the account at the provider.
            user: name of the hub user.

        Raises:
            sqlalchemy.exc.IntegrityError: the user or the account is pinned already.
        """
        row = {"iss": identity.iss, "sub": identity.sub, "user": user, "pinned": now}
        self._connection.execute(sa.insert(IDENTITIES), row)

    def note_user(self, user: str) -> None:
        """Store the hub's id of this user with the user's pin (the record of which provider account the user belongs
        to), so that the pin stays valid if the user is renamed.
        """
        note_user(self._connection, user)

    def note_users(self) -> None:
        """Complete the pins (records of which provider account a hub user belongs to) that lack the hub's id of the
        user.

        A pin gets the id only if the user already existed under this name when the pin was written.
        """
        note_users(self._connection)

    def follow_users(self) -> None:
        """Update the user names in the pins (the records of which provider account a hub user belongs to), because
        administrators may have renamed the users.
        """
        follow_users(self._connection)

    def groups_named(self, identity: Identity) -> datetime | None:
        """Return when the provider last reported this person's groups; `None` if it never did."""
        time: datetime | None = self._of_person(identity, IDENTITIES.c.groups_named)
        return time

    def note_groups_named(self, identity: Identity, now: datetime) -> None:
        """Write that the provider reported this person's groups at this time."""
        self._change(identity, groups_named=now)

    def has_seen_account(self, identity: Identity) -> bool:
        """Return whether the provider's administration API ever had a record of this person."""
        return self._of_person(identity, IDENTITIES.c.account_seen) is not None

    def note_account_seen(self, identity: Identity, now: datetime) -> None:
        """Write that the provider's administration API has a record of this person."""
        self._change(identity, account_seen=now)

    def pinned_names(self) -> set[str]:
        """Return the names of the hub users whose provider account is recorded."""
        return set(self._connection.execute(sa.select(IDENTITIES.c.user)).scalars())

    def _of_person(self, identity: Identity, column: Any) -> Any:
        same = sa.and_(IDENTITIES.c.iss == identity.iss, IDENTITIES.c.sub == identity.sub)
        return self._connection.execute(sa.select(column).where(same)).scalar()

    def _change(self, identity: Identity, **values: datetime) -> None:
        same = sa.and_(IDENTITIES.c.iss == identity.iss, IDENTITIES.c.sub == identity.sub)
        self._connection.execute(sa.update(IDENTITIES).where(same).values(**values))

    def taken_names(self, most: int) -> list[tuple[str, datetime]]:
        """Return hub users as whom another provider account tried to sign in, and the time of the last attempt.

        The most recent attempts come first. Attempts count only after it was recorded which provider account the user
        belongs to. Administrators see these users as possible conflicts.

        Args:
            most: maximum number of users.
        """
        last = sa.func.max(EVENTS.c.time, type_=UtcTime())
        tried = sa.and_(EVENTS.c.kind == "name-taken", EVENTS.c.time > IDENTITIES.c.pinned)
        joined = EVENTS.join(IDENTITIES, EVENTS.c.user == IDENTITIES.c.user)
        query = sa.select(EVENTS.c.user, last).select_from(joined).where(tried).group_by(EVENTS.c.user)
        return [(str(name), time) for name, time in self._connection.execute(query.order_by(last.desc()).limit(most))]

    def links(self) -> list[ProviderLink]:
        """Return the links (the provider's data of one session) of all sessions, without their tokens (see
        `encrypted_tokens_of`).
        """
        columns = [each for each in LINKS.c if each is not LINKS.c.encrypted_tokens]
        rows = self._connection.execute(sa.select(*columns)).mappings()
        return [ProviderLink(**{**row, "iss": sys.intern(row["iss"])}, encrypted_tokens=None) for row in rows]

    def encrypted_tokens_of(self, session: str) -> bytes:
        """Return the encrypted tokens of a session; empty if the provider gave none.

        Args:
            session: public id of the hub's session.
        """
        query = sa.select(LINKS.c.encrypted_tokens).where(LINKS.c.session == session)
        return bytes(self._connection.execute(query).scalar() or b"")

    def put_links(self, links: Iterable[ProviderLink]) -> None:
        """Write new and changed links (the provider's data of one session).

        If the tokens of a link are not loaded (`None`), only the time of its last check is written.
        """
        changed = list(links)
        upsert(self._connection, LINKS, [asdict(each) for each in changed if each.encrypted_tokens is not None])
        for each in changed:
            if each.encrypted_tokens is None:
                row = sa.update(LINKS).where(LINKS.c.session == each.session)
                self._connection.execute(row.values(checked=each.checked))

    def remove_links(self, sessions: Iterable[str]) -> None:
        """Remove the links (the provider's data) of ended sessions."""
        for session in sessions:
            self._connection.execute(sa.delete(LINKS).where(LINKS.c.session == session))

    def note_logout(self, iss: str, jti: str, until: datetime) -> bool:
        """Store the id of a logout token until the token expires, so that it is accepted once.

        Args:
            iss: the provider.
            jti: the id of the token.
            until: when the token expires.

        Returns:
            `False` if the id is stored already, because the token is being used a second time.
        """
        id = hashlib.sha256(f"{iss}\n{jti}".encode("utf-8", "replace")).hexdigest()
        if self._connection.execute(sa.select(LOGOUTS.c.id).where(LOGOUTS.c.id == id)).first() is not None:
            return False
        self._connection.execute(sa.insert(LOGOUTS), {"id": id, "expires_at": until})
        return True

    def forget_logouts(self, now: datetime) -> None:
        """Remove the stored ids of logout tokens (with which the provider reports a sign-out) that have expired."""
        self._connection.execute(sa.delete(LOGOUTS).where(LOGOUTS.c.expires_at < now))

    @property
    def _connection(self) -> Connection:
        connection: Connection = self._db.connection()
        return connection


def note_user(connection: Connection, user: str) -> None:
    """Store the hub's id of this user with the user's pin (the record of which provider account the user belongs to).

    The time at which the user was created is stored too, because the hub reuses ids.
    """
    account = sa.select(HUB_USERS.c.id, HUB_USERS.c.created).where(HUB_USERS.c.name == user)
    found = connection.execute(account).first()
    if found is not None and found.created is not None:
        change = sa.update(IDENTITIES).where(IDENTITIES.c.user == user)
        connection.execute(change.values(user_id=found.id, user_created=found.created))


def note_users(connection: Connection) -> None:
    """Complete the pins (records of which provider account a hub user belongs to) that lack the hub's id of the user.

    A pin gets the id only if the user already existed under this name when the pin was written. A user who already
    belongs to another pin is skipped, because that user got the name by a later renaming.
    """
    follow_users(connection)
    others = sa.alias(IDENTITIES)
    same = sa.and_(others.c.user_id == HUB_USERS.c.id, others.c.user_created == HUB_USERS.c.created)
    query = sa.select(IDENTITIES.c.user, IDENTITIES.c.pinned, HUB_USERS.c.created)
    query = query.join(HUB_USERS, HUB_USERS.c.name == IDENTITIES.c.user).where(IDENTITIES.c.user_id.is_(None))
    query = query.where(~sa.exists().where(same))
    for user, pinned, created in connection.execute(query).all():
        if created is not None and existed_at_pin(created.replace(tzinfo=timezone.utc), pinned):
            note_user(connection, user)


def follow_users(connection: Connection) -> None:
    """Give each pin (the record of which provider account a hub user belongs to) the current name of its user, because
    administrators may rename users.

    A pin whose stored name now belongs to another user is removed.
    """
    same = sa.and_(HUB_USERS.c.id == IDENTITIES.c.user_id, HUB_USERS.c.created == IDENTITIES.c.user_created)
    query = sa.select(IDENTITIES.c.iss, IDENTITIES.c.sub, HUB_USERS.c.name).join(HUB_USERS, same)
    renamed = {Identity(iss, sub): name for iss, sub, name in connection.execute(query.where(_HAS_NEW_NAME))}
    if not renamed:
        return
    for identity in renamed:  # temporary names first, because two users may have exchanged their names
        _rename(connection, identity, f"/{identity.iss}/{identity.sub}")
    connection.execute(sa.delete(IDENTITIES).where(IDENTITIES.c.user.in_(list(renamed.values()))))
    for identity, name in renamed.items():
        _rename(connection, identity, name)


_HAS_NEW_NAME = HUB_USERS.c.name != IDENTITIES.c.user


def _rename(connection: Connection, identity: Identity, user: str) -> None:
    same = sa.and_(IDENTITIES.c.iss == identity.iss, IDENTITIES.c.sub == identity.sub)
    connection.execute(sa.update(IDENTITIES).where(same).values(user=user))


class PinTable:
    """The pins (the records of which provider account each hub user belongs to), for an administrator's command.

    Every method may raise ValueError, whose text does not contain the password.

    Args:
        url: address of the hub's database.

    Raises:
        ValueError: the database cannot be read.
    """

    def __init__(self, url: str) -> None:
        try:
            self._engine = sa.create_engine(url)
            file = self._engine.url.database if self._engine.dialect.name == "sqlite" else None
        except (SQLAlchemyError, ImportError) as problem:
            raise ValueError(f"the hub's database cannot be reached: {type(problem).__name__}") from None
        if file and not Path(file).is_file():  # SQLite would make one
            raise ValueError(f"there is no file {file}")

    def all(self) -> list[tuple[str, Identity]]:
        """Return each hub user with a pin and the provider account that the user belongs to, sorted by name."""
        with self._begun() as connection:
            follow_users(connection)
            query = sa.select(IDENTITIES.c.user, IDENTITIES.c.iss, IDENTITIES.c.sub).order_by(IDENTITIES.c.user)
            return [(user, Identity(iss, sub)) for user, iss, sub in connection.execute(query)]

    def pin(self, user: str, identity: Identity, now: datetime) -> None:
        """Record that this hub user belongs to this provider account.

        Earlier records of the user and of the account are removed.

        Args:
            user: name of the hub user.
            identity: the account at the provider.
            now: the present time, which is recorded too.
        """
        with self._begun() as connection:
            follow_users(connection)
            taken = sa.and_(IDENTITIES.c.iss == identity.iss, IDENTITIES.c.sub == identity.sub)
            connection.execute(sa.delete(IDENTITIES).where(sa.or_(taken, IDENTITIES.c.user == user)))
            row = {"iss": identity.iss, "sub": identity.sub, "user": user, "pinned": now}
            connection.execute(sa.insert(IDENTITIES), row)
            note_user(connection, user)

    def unpin(self, user: str) -> bool:
        """Remove the record of the provider account that a hub user belongs to. Return whether there was one.

        The next person who signs in with this name may then become this user.
        """
        with self._begun() as connection:
            follow_users(connection)
            return connection.execute(sa.delete(IDENTITIES).where(IDENTITIES.c.user == user)).rowcount > 0

    @contextmanager
    def _begun(self) -> Iterator[Connection]:
        try:
            with self._engine.begin() as connection:
                yield connection
        except SQLAlchemyError as problem:
            raise ValueError(f"the tables of sign-on cannot be read: {type(problem).__name__}") from None
