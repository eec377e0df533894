"""The gate's sessions of browsers: in memory for the checks of proxies, and in a database for the gate's next start.

They are read at the start and written by one thread, so that no check waits for a disk. The cookie is not stored: a
session is found by the hash of its cookie. At the first request after a start of the gate, the cookie decrypts the
user's hub token, which is stored encrypted. Several gates may share a database; ``others.py`` follows what they do.
"""

from __future__ import annotations

import asyncio
import hashlib
import json
import re
import secrets
from collections.abc import Callable, Collection, Iterable, Mapping
from concurrent.futures import ThreadPoolExecutor
from datetime import datetime
from typing import Any, TypeVar

from hub_extensions.adapters.hub.sealed_token import seal, unseal
from hub_extensions.adapters.store.gate import GateStore, StoredSession, StoredSignIn
from hub_extensions.core.sign_on.access import SessionLimits, SilentRound
from hub_extensions.gate.hub_answers import KnownToken

T = TypeVar("T")

COOKIE_LETTERS = 43
MAX_STARTS = 64
"""Maximum number of sign-ins that wait to be written. Anybody can begin one, and ends of sessions are written after
them."""
_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")


class TooManyStarts(Exception):
    """A sign-in cannot begin, because `MAX_STARTS` others are being written to the database."""


class GateSession:
    """The session of one browser that is signed in at the gate.

    Args:
        stored: the session as the database has it.

    Attributes:
        id: hash of its cookie.
        user: name of the user.
        hub_session: id of the hub's session from which it was created.
        known: its token, and the hub's last answer about it. The token is "" until `open_with` has decrypted it.
        sealed: the token, encrypted with the cookie.
        begun, last_use: when it was created and last used, for the limits.
        noted_use: value of `last_use` that is in the database.
        rounds: app -> the last silent sign-in for it (one without a question to the user), which renewed the user's
            rights; `None` without any.
        answered: value of `known.times_ended` when the hub answered for the page of the gate that is being loaded;
            `None` if it did not answer. If `known.times_ended` has changed since, that answer must not be used.
        is_over: it has ended; requests that hold a reference to it must not use it.
    """

    __slots__ = (
        *("answered", "begun", "hub_session", "id", "is_over", "known", "last_use", "noted_use", "rounds", "sealed"),
        "user",
    )

    def __init__(self, stored: StoredSession) -> None:
        self.id, self.user, self.hub_session = stored.id, stored.user, stored.hub_session
        self.sealed, self.begun, self.last_use = stored.sealed, stored.begun, stored.last_use
        self.noted_use = stored.last_use
        self.known = KnownToken("")
        self.rounds = _rounds_in(stored.rounds)
        self.answered: int | None = None
        self.is_over = False

    def used(self, when: datetime) -> None:
        """Record that another gate, which shares the database, has noticed a use of the session.

        Args:
            when: the time of the use. It is ignored if a later use is known.
        """
        if when > self.last_use:
            self.last_use = self.noted_use = when

    def open_with(self, cookie: str) -> bool:
        """Decrypt the token with the browser's cookie.

        Returns:
            False if that fails because the stored token was changed.
        """
        if not self.known.token:
            self.known.token = unseal(self.sealed, cookie) or ""
        return bool(self.known.token)


def hash_of_secret(value: str) -> str:
    """Return the hash of a cookie or of the state of a sign-in. Only the hash is stored, not the secret."""
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()


def cookie_in(headers: Iterable[str], name: str) -> str:
    """Return the value of one of the gate's cookies.

    "" if the browser did not send the cookie exactly once, or not in the form that the gate sets.

    Args:
        headers: the ``Cookie`` headers of the request.
        name: name of the cookie.
    """
    found = [
        value
        for header in headers
        for each, _, value in (pair.strip(" \t").partition("=") for pair in header.split(";"))
        if each == name
    ]
    return found[0] if len(found) == 1 and _COOKIE.fullmatch(found[0]) else ""


class GateSessions:
    """All sessions of the gate, which are kept in memory and in a database.

    Sessions are read from memory. A method that changes a session returns when the change is in the database.

    Args:
        store: the database, from which all sessions are read first.
        limits: how long a session may be unused, and how long it may last.
        now: returns the gate's time.
    """

    def __init__(self, store: GateStore, limits: SessionLimits, now: Callable[[], datetime]) -> None:
        self._store, self._limits, self._now = store, limits, now
        self._writer = ThreadPoolExecutor(1, "gate-store")
        self._all = {stored.id: GateSession(stored) for stored in store.sessions()}
        self._to_remove: set[str] = set()
        self._starts = self._remote_ends = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def is_shared(self) -> bool:
        """Whether other gates may use the same database of sessions."""
        return self._store.is_shared

    def find(self, cookie: str) -> GateSession | None:
        """Return the session of this cookie; `None` if this gate does not know it.

        If the session has passed a limit, its `is_over` is True.
        """
        session = self._all.get(hash_of_secret(cookie)) if cookie else None
        if session is None or session.id in self._to_remove or not session.open_with(cookie):
            return None
        if self._limits.passed(session.begun, session.last_use, self._now()):
            session.is_over = True
        return session

    async def find_anywhere(self, cookie: str) -> GateSession | None:
        """Return the session of this cookie; `None` if no gate has such a session.

        A session that this gate does not know is looked up in the database that several gates share.
        """
        session = self.find(cookie)
        if not cookie or not self._store.is_shared or (session is not None and not session.is_over):
            return session
        ends_before = None
        while ends_before != self._remote_ends:  # read again if another gate ended sessions during the read
            ends_before = self._remote_ends
            stored = await self._in_store(self._store.session, hash_of_secret(cookie))
        if stored is None or stored.id in self._to_remove:
            return session
        session = self._all.setdefault(stored.id, GateSession(stored))
        session.used(stored.last_use)
        session.is_over = False  # it only seemed unused, because it was used at another gate
        return self.find(cookie)

    async def begin(
        self,
        owner: str,
        hub_session: str,
        token: str,
        before: GateSession | None,
        rounds: Mapping[str, SilentRound] | None = None,
        *,
        expired: bool = False,
    ) -> tuple[str, GateSession]:
        """Create a session, and return its cookie and the session. The browser's previous session ends.

        Args:
            owner: name of the user.
            hub_session: id of the hub's session from which it is created.
            token: the user's token at the hub.
            before: the browser's previous session; `None` without one.
            rounds: app -> a silent sign-in (one without a question to the user) that was just made; `None` for none.
            expired: date the session back so that it has already passed its lifetime. The audit of the apps needs such
                a session.
        """
        cookie, now = secrets.token_urlsafe(32), self._now()
        begun = now - self._limits.lifetime if expired else now
        earlier = (before.rounds if before is not None and before.user == owner else None) or {}
        written = _written({**earlier, **(rounds or {})})
        stored = StoredSession(hash_of_secret(cookie), owner, hub_session, seal(token, cookie), begun, begun, written)
        await self._in_store(self._store.put, stored, before.id if before is not None else "")
        session = self._all[stored.id] = GateSession(stored)
        session.known.token = token
        if before is not None:
            self._drop(before)
        return cookie, session

    async def end(self, sessions: Iterable[GateSession]) -> int:
        """End these sessions at once. Return how many ended.

        Raises:
            Exception: the database failed, perhaps for sessions of an earlier call. The sessions are ended in memory,
                and the next call removes them from the database.
        """
        return await self._end(set(sessions))

    async def end_of(self, user: str, hub_sessions: Collection[str] | None, *more: GateSession) -> int:
        """End sessions of a user, also those of other gates that share the database. Return how many ended.

        Args:
            user: name of the user.
            hub_sessions: end only sessions that were created from these sessions of the hub; `None` for all of the
                user.
            more: sessions to end in addition.
        """
        return await self._end({*self.of(user, hub_sessions), *more}, user, hub_sessions)

    async def _end(self, gone: set[GateSession], user: str = "", hub_sessions: Collection[str] | None = None) -> int:
        for session in gone:
            self._drop(session)
        ids = {session.id for session in gone}
        waiting, self._to_remove = self._to_remove - ids, self._to_remove | ids
        if user or self._to_remove:
            removed = list(self._to_remove)
            ids |= await self._in_store(self._store.remove, removed, user, hub_sessions) - waiting
            self._to_remove.difference_update(removed)
        return len(ids)

    def note_ended(self, ended: Collection[str]) -> None:
        """Remove sessions from memory, because another gate has ended them.

        Args:
            ended: ids of the sessions.
        """
        self._remote_ends += 1
        for id in ended:
            if id in self._all:
                self._drop(self._all[id])

    def of(self, user: str, hub_sessions: Collection[str] | None) -> list[GateSession]:
        """Return a user's sessions that this gate knows.

        Args:
            user: name of the user.
            hub_sessions: ids of sessions of the hub: only sessions that were created from them are returned. `None`
                returns all of the user.
        """
        return [
            session
            for session in self._all.values()
            if session.user == user and (hub_sessions is None or session.hub_session in hub_sessions)
        ]

    async def tidy(self) -> None:
        """Store when sessions were last used, and end sessions that have passed a limit. Called every minute."""
        used = {each: each.last_use for each in self._all.values() if each.last_use != each.noted_use}
        await self._in_store(self._store.note_uses, {each.id: when for each, when in used.items()})
        for each, when in used.items():
            each.noted_use = when
        await self.catch_up()
        now = self._now()
        await self.end([each for each in self._all.values() if self._limits.passed(each.begun, each.last_use, now)])
        for session in self._all.values():
            session.known.identities.clear()  # they are signed again after half a minute anyway

    async def catch_up(self) -> None:
        """Read which sessions other gates with the same database have ended, and when sessions were used there."""
        if not self._store.is_shared:
            return
        known = list(self._all.values())
        uses = await self._in_store(self._store.uses)
        for session in known:
            if session.id in uses:
                session.used(uses[session.id])
        self.note_ended([session.id for session in known if session.id not in uses])

    async def begin_sign_in(self, sign_in: StoredSignIn, over: datetime) -> None:
        """Store a sign-in that has just begun. Raises TooManyStarts.

        Args:
            sign_in: the sign-in.
            over: sign-ins that began before this time are removed from the database.
        """
        if self._starts >= MAX_STARTS:
            raise TooManyStarts
        self._starts += 1
        try:
            await self._in_store(self._store.begin, sign_in, over)
        finally:
            self._starts -= 1

    async def find_sign_in(self, state: str) -> StoredSignIn | None:
        """Return the pending sign-in with this hash of its state (the OAuth parameter).

        `None` if it is unknown or was finished.
        """
        return await self._in_store(self._store.find, state)

    async def finish_sign_in(self, state: str) -> bool:
        """Remove a pending sign-in, because its browser came back. Return False if it was removed before.

        Args:
            state: hash of the sign-in's state (the OAuth parameter).
        """
        return await self._in_store(self._store.finish, state)

    def close(self) -> None:
        """Finish writing sessions, then close the database."""
        self._writer.shutdown()
        self._store.close()

    def _drop(self, session: GateSession) -> None:
        session.is_over = True
        session.known.forget()
        self._all.pop(session.id, None)

    async def _in_store(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, work, *arguments)


def _written(rounds: Mapping[str, SilentRound]) -> str:
    """Return the silent sign-ins (app -> a sign-in without a question to the user) as the text that is stored.

    "" if `rounds` is empty.
    """
    rows = {app: [each.made.isoformat(), *each.groups] for app, each in rounds.items()}
    return json.dumps(rows) if rows else ""


def _rounds_in(written: str) -> Mapping[str, SilentRound] | None:
    rows = json.loads(written) if written else None
    return rows and {
        app: SilentRound(datetime.fromisoformat(made), tuple(groups)) for app, (made, *groups) in rows.items()
    }
