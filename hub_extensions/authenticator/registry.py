"""The sessions in memory, so that no request waits for the database: by cookie, by person, by the hub's own session id.

What changes here was written before, but for the time of the last use: it is written once a minute (`note_uses`).
Not here: the database (``adapters/store/sign_on.py``), and what else ends with a session (``session_ender.py``).
"""

from __future__ import annotations

import hashlib
import secrets
import uuid
from collections.abc import Callable, Iterable, Sequence
from dataclasses import replace
from datetime import datetime, timedelta

from hub_extensions.adapters.store.sign_on import SignOnStore
from hub_extensions.core.sign_on import (
    EndCause,
    SignOnConfig,
    SignOnSession,
    browser_words,
    limit_passed,
    short_address,
)

COOKIE_BYTES = 32
ENDED_KEPT = timedelta(days=7)
"""So long a browser that comes back is told who ended its session."""
LATE_TOKENS = timedelta(minutes=10)
"""A request that was under way while its session ended may have got a token a moment later: it is looked for."""


class SessionRegistry:
    """All sessions of the hub, and those that ended lately. `now`: the hub's clock."""

    def __init__(self, store: SignOnStore, config: SignOnConfig, now: Callable[[], datetime]) -> None:
        self.store = store
        self._config = config
        self._now = now
        self._living: dict[str, SignOnSession] = {}
        self._ended: dict[str, SignOnSession] = {}
        self._hashes: dict[str, str] = {}
        self._by_user: dict[int, set[str]] = {}
        self._unwritten: dict[str, datetime] = {}
        self._quiet: dict[int, datetime] = {}
        self.unknown: dict[int, datetime] = store.unknown_accounts()
        """Users of whom nobody knows whether the provider still has them -> since when."""
        for session in store.sessions():
            self.put(session)
        self._ended_before_start = self._in_the_last_minutes_of_ends()

    def begin(self, user_id: int, user_agent: str, address: str) -> tuple[SignOnSession, str]:
        """A new session, which nobody knows yet, and the value of its cookie, which is kept nowhere."""
        value = secrets.token_urlsafe(COOKIE_BYTES)
        now = self._now()
        session = SignOnSession(
            id=secrets.token_hex(12),
            token_hash=_hash_of(value),
            hub_session=uuid.uuid4().hex,
            user_id=user_id,
            browser=browser_words(user_agent),
            address=short_address(address),
            begun=now,
            last_use=now,
        )
        return session, value

    def put(self, session: SignOnSession) -> None:
        """This session is written as it is here."""
        if session.ended is None:
            self._living[session.token_hash] = session
            self._hashes[session.hub_session] = session.token_hash
            self._by_user.setdefault(session.user_id, set()).add(session.token_hash)
            return
        self._living.pop(session.token_hash, None)
        self._hashes.pop(session.hub_session, None)
        self._unwritten.pop(session.id, None)
        self._ended[session.token_hash] = session
        of_user = self._by_user.get(session.user_id, set())
        of_user.discard(session.token_hash)
        if not of_user:
            self._by_user.pop(session.user_id, None)

    def living(self, cookie: str | None) -> SignOnSession | None:
        """The session with this cookie, where it lasts."""
        return self._living.get(_hash_of(cookie)) if cookie else None

    def ended(self, cookie: str | None) -> SignOnSession | None:
        """The session with this cookie, where it ended lately."""
        return self._ended.get(_hash_of(cookie)) if cookie else None

    def of_user(self, user_id: int) -> Sequence[SignOnSession]:
        """A person's sessions, the one that was used last first."""
        found = [self._living[each] for each in self._by_user.get(user_id, ())]
        return sorted(found, key=lambda each: (each.last_use, each.id), reverse=True)

    def ids(self) -> set[str]:
        """The public ids of all sessions that last."""
        return {each.id for each in self._living.values()}

    def users(self) -> Sequence[int]:
        """Who has a session."""
        return list(self._by_user)

    def use(self, session: SignOnSession) -> None:
        """Its browser has asked for something."""
        now = self._now()
        self._living[session.token_hash] = replace(session, last_use=now)
        self._unwritten[session.id] = now

    def use_by_token(self, hub_session: str | None) -> None:
        """A server has asked about a token that was given out to the session with this id of the hub's."""
        token_hash = self._hashes.get(hub_session or "")
        if token_hash is None:
            return
        session = self._living[token_hash]
        # a server that was told to ask again does so for every page at once: that is no use by anybody
        if self._now() >= self._quiet.get(session.user_id, session.begun):
            self.use(session)

    def be_quiet(self, user_id: int, length: timedelta) -> None:
        """What this person's servers ask within this time is no use."""
        self._quiet[user_id] = self._now() + length

    def over_limits(self) -> Sequence[tuple[SignOnSession, EndCause]]:
        """Sessions that a limit ends now."""
        now = self._now()
        judged = ((each, limit_passed(each, self._config, now)) for each in self._living.values())
        return [(session, cause) for session, cause in judged if cause is not None]

    def ended_lately(self) -> Iterable[SignOnSession]:
        """Sessions that ended a moment ago."""
        since = self._now() - LATE_TOKENS
        return [each for each in self._ended.values() if each.ended is not None and each.ended >= since]

    def cause_of(self, session_id: str) -> str:
        """Return why the session with this public id ended lately; "" if that is not known."""
        return next((each.cause for each in self._ended.values() if each.id == session_id), "")

    def all_ended(self) -> Iterable[SignOnSession]:
        """Sessions that ended in the last days."""
        return list(self._ended.values())

    def ended_before_start(self) -> set[int]:
        """Who lost a session in the last minutes in which an earlier life of the hub ended any."""
        return self._ended_before_start

    def _in_the_last_minutes_of_ends(self) -> set[int]:
        ends = [(each.user_id, each.ended) for each in self._ended.values() if each.ended is not None]
        last = max((ended for _, ended in ends), default=None)
        return {user_id for user_id, ended in ends if last is not None and last - ended <= LATE_TOKENS}

    def note_uses(self) -> None:
        """Write the last uses. What cannot be written is written the next time."""
        with self.store.transaction():
            self.store.note_uses(self._unwritten)
        self._unwritten.clear()

    def forget_ended(self) -> None:
        """Sessions that ended long ago, here and in the database."""
        before = self._now() - ENDED_KEPT
        with self.store.transaction():
            self.store.forget_ended(before)
        self._ended = {key: each for key, each in self._ended.items() if each.ended is None or each.ended >= before}
        self._quiet.clear()


def _hash_of(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()
