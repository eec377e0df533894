"""The sessions of browsers at the gate: in memory for each check, in the store for the next gate.

Read at the start, written by one thread, so that no check waits for a disk. The cookie itself is kept nowhere: a
session is found by its hash, and the hub's token is read with it at the first request after a start.
Several gates may have one store: what they make is found there, and what they end is heard of (``others.py``).
Not here: the tables (``adapters/store/gate.py``), and who may pass (``core/sign_on/access.py``).
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
MOST_STARTS = 64
"""So many sign-ins wait to be written at most: anybody may begin one, and ends are written behind them."""
_COOKIE = re.compile(r"[A-Za-z0-9_-]{43}")


class TooManyStarts(Exception):
    """Too many sign-ins begin at once."""


class GateSession:
    """A browser that has signed in.

    Attributes:
        id: the hash of its cookie. user: whose it is. hub_session: which of the hub's sessions it came from.
        known: its token, and what the hub said of it. sealed: the token as it is kept.
        rounds: app -> the last sign-in that was made for it.
        answered: how often its token had been forgotten when the hub answered the page that is open; None: it did not.
        is_over: it has ended; a request that found it before is not answered by it.
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
        """It was used then, at another gate."""
        if when > self.last_use:
            self.last_use = self.noted_use = when

    def open_with(self, cookie: str) -> bool:
        """Read the token, which takes the cookie; False: what is kept was changed."""
        if not self.known.token:
            self.known.token = unseal(self.sealed, cookie) or ""
        return bool(self.known.token)


def hash_of_secret(value: str) -> str:
    """What is kept of a cookie or a state."""
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()


def cookie_in(headers: Iterable[str], name: str) -> str:
    """The value of this cookie, if the browser sent it once and as it was set; "": it did not."""
    found = [
        value
        for header in headers
        for each, _, value in (pair.strip(" \t").partition("=") for pair in header.split(";"))
        if each == name
    ]
    return found[0] if len(found) == 1 and _COOKIE.fullmatch(found[0]) else ""


class GateSessions:
    """All sessions. What it is asked for is in memory; what it changes is in the store when it returns."""

    def __init__(self, store: GateStore, limits: SessionLimits, now: Callable[[], datetime]) -> None:
        self._store, self._limits, self._now = store, limits, now
        self._writer = ThreadPoolExecutor(1, "gate-store")
        self._all = {stored.id: GateSession(stored) for stored in store.sessions()}
        self._to_remove: set[str] = set()
        self._starts = self._times_heard = 0

    def __len__(self) -> int:
        return len(self._all)

    @property
    def is_shared(self) -> bool:
        """Another gate may have made sessions too."""
        return self._store.is_shared

    def find(self, cookie: str) -> GateSession | None:
        """The session of this cookie; None: there is none here."""
        session = self._all.get(hash_of_secret(cookie)) if cookie else None
        if session is None or session.id in self._to_remove or not session.open_with(cookie):
            return None
        if self._limits.passed(session.begun, session.last_use, self._now()):
            session.is_over = True
        return session

    async def find_anywhere(self, cookie: str) -> GateSession | None:
        """The same, also where another gate with the same store has made it."""
        session = self.find(cookie)
        if not cookie or not self._store.is_shared or (session is not None and not session.is_over):
            return session
        heard = None
        while heard != self._times_heard:  # what was read before an end was heard is read again
            heard = self._times_heard
            stored = await self._in_store(self._store.session, hash_of_secret(cookie))
        if stored is None or stored.id in self._to_remove:
            return session
        session = self._all.setdefault(stored.id, GateSession(stored))
        session.used(stored.last_use)
        session.is_over = False  # as far as this gate knew: it was used at another one
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
        """A new session, with its cookie; the one that this browser had before is over.

        `rounds`: made just now. `expired`: it began so long ago that its life is over.
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
        """These are over, at once; returns how many.

        Raises what the store raises, also for those of before that are still to be removed from it.
        """
        return await self._end(set(sessions))

    async def end_of(self, user: str, hub_sessions: Collection[str] | None, *more: GateSession) -> int:
        """Somebody's that came from these of the hub's sessions (None: from any) are over, whichever gate made them."""
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

    def hear(self, ended: Collection[str]) -> None:
        """Another gate has ended these."""
        self._times_heard += 1
        for id in ended:
            if id in self._all:
                self._drop(self._all[id])

    def of(self, user: str, hub_sessions: Collection[str] | None) -> list[GateSession]:
        """Those of a person that came from these of the hub's sessions; None: from any."""
        return [
            session
            for session in self._all.values()
            if session.user == user and (hub_sessions is None or session.hub_session in hub_sessions)
        ]

    async def tidy(self) -> None:
        """Write when sessions were used, and end those that have reached a limit."""
        used = {each: each.last_use for each in self._all.values() if each.last_use != each.noted_use}
        await self._in_store(self._store.note_uses, {each.id: when for each, when in used.items()})
        for each, when in used.items():
            each.noted_use = when
        await self.catch_up()
        now = self._now()
        await self.end([each for each in self._all.values() if self._limits.passed(each.begun, each.last_use, now)])
        for session in self._all.values():
            session.known.passports.clear()  # each is signed again in half a minute anyway

    async def catch_up(self) -> None:
        """What other gates with the same store did is known here too: what they ended, and when sessions were used."""
        if not self._store.is_shared:
            return
        known = list(self._all.values())
        uses = await self._in_store(self._store.uses)
        for session in known:
            if session.id in uses:
                session.used(uses[session.id])
        self.hear([session.id for session in known if session.id not in uses])

    async def begin_sign_in(self, sign_in: StoredSignIn, over: datetime) -> None:
        """See `GateStore.begin`. Raises TooManyStarts."""
        if self._starts >= MOST_STARTS:
            raise TooManyStarts
        self._starts += 1
        try:
            await self._in_store(self._store.begin, sign_in, over)
        finally:
            self._starts -= 1

    async def find_sign_in(self, state: str) -> StoredSignIn | None:
        """By its hash."""
        return await self._in_store(self._store.find, state)

    async def finish_sign_in(self, state: str) -> bool:
        """False: it was finished before."""
        return await self._in_store(self._store.finish, state)

    def close(self) -> None:
        """What is being written is written; then the store is let go."""
        self._writer.shutdown()
        self._store.close()

    def _drop(self, session: GateSession) -> None:
        session.is_over = True
        session.known.forget()
        self._all.pop(session.id, None)

    async def _in_store(self, work: Callable[..., T], *arguments: Any) -> T:
        return await asyncio.get_running_loop().run_in_executor(self._writer, work, *arguments)


def _written(rounds: Mapping[str, SilentRound]) -> str:
    """As it is kept; "": there are none."""
    rows = {app: [each.made.isoformat(), *each.groups] for app, each in rounds.items()}
    return json.dumps(rows) if rows else ""


def _rounds_in(written: str) -> Mapping[str, SilentRound] | None:
    rows = json.loads(written) if written else None
    return rows and {
        app: SilentRound(datetime.fromisoformat(made), tuple(groups)) for app, (made, *groups) in rows.items()
    }
