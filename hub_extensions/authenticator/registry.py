"""All sign-on sessions (signed-in browsers) in memory, so that no request waits for the database.

They are found by cookie, by user and by the hub's session id. Changes are written to the database first. Only the times
of last use are written later, once a minute (`note_uses`).
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
    browser_name,
    limit_passed,
    short_address,
)

COOKIE_BYTES = 32
ENDED_KEPT = timedelta(days=7)
"""Time for which an ended session is remembered, to show its browser why it ended."""
LATE_TOKENS = timedelta(minutes=10)
"""After a session has ended, a request that was in progress may still receive a token for it during this time. Such
tokens are deleted.
"""


class SessionRegistry:
    """The hub's sign-on sessions (signed-in browsers), and those that ended recently. Each hub has one.

    Args:
        store: the database, from which all sessions are read first.
        config: the limits of sessions.
        now: returns the hub's time.

    Attributes:
        unknown: id of a user whose account may no longer exist at the provider -> since when this is unknown.
    """

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
        """Id of a user whose account may no longer exist at the provider -> since when this is unknown."""
        for session in store.sessions():
            self.put(session)
        self._ended_before_start = self._in_the_last_minutes_of_ends()

    def begin(self, user_id: int, user_agent: str, address: str) -> tuple[SignOnSession, str]:
        """Create a session and the value of its cookie, of which only a hash is stored.

        The session is not registered yet: the caller writes it to the database and then calls `put`.

        Args:
            user_id: the hub's id of the user.
            user_agent: the browser's header, from which the name of the browser is derived.
            address: the browser's IP address, which is shortened.
        """
        value = secrets.token_urlsafe(COOKIE_BYTES)
        now = self._now()
        session = SignOnSession(
            id=secrets.token_hex(12),
            token_hash=_hash_of(value),
            hub_session=uuid.uuid4().hex,
            user_id=user_id,
            browser=browser_name(user_agent),
            address=short_address(address),
            begun=now,
            last_use=now,
        )
        return session, value

    def put(self, session: SignOnSession) -> None:
        """Register a sign-on session that has been written to the database.

        The session replaces the registered one with the same id. An ended session is kept among the ended ones.
        """
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
        """Return the session with this cookie; `None` if the cookie is not that of a session, or the session has ended.

        Args:
            cookie: value of the session's cookie; `None` if the browser sent none.
        """
        return self._living.get(_hash_of(cookie)) if cookie else None

    def ended(self, cookie: str | None) -> SignOnSession | None:
        """Return the session with this cookie if it ended recently (within `ENDED_KEPT`); otherwise `None`.

        Args:
            cookie: value of the session's cookie; `None` if the browser sent none.
        """
        return self._ended.get(_hash_of(cookie)) if cookie else None

    def of_user(self, user_id: int) -> Sequence[SignOnSession]:
        """Return a user's sign-on sessions (signed-in browsers), the most recently used first."""
        found = [self._living[each] for each in self._by_user.get(user_id, ())]
        return sorted(found, key=lambda each: (each.last_use, each.id), reverse=True)

    def ids(self) -> set[str]:
        """Return the public ids of all sign-on sessions (signed-in browsers) that have not ended."""
        return {each.id for each in self._living.values()}

    def users(self) -> Sequence[int]:
        """Return the hub's ids of the users who have a sign-on session (a signed-in browser) that has not ended."""
        return list(self._by_user)

    def use(self, session: SignOnSession) -> None:
        """Record that the session's browser sent a request, so that its idle time begins again."""
        now = self._now()
        self._living[session.token_hash] = replace(session, last_use=now)
        self._unwritten[session.id] = now

    def use_by_token(self, hub_session: str | None) -> None:
        """Count a token check of one of the user's servers as a use of the session from which the token was created.

        Args:
            hub_session: the hub's id of that session; `None` if the token was not created from a session, so that
                nothing is counted.
        """
        token_hash = self._hashes.get(hub_session or "")
        if token_hash is None:
            return
        session = self._living[token_hash]
        # a server that was ordered to check again does so for every open page: this is not a use by a person
        if self._now() >= self._quiet.get(session.user_id, session.begun):
            self.use(session)

    def be_quiet(self, user_id: int, length: timedelta) -> None:
        """Do not count token checks of this user's servers as uses of a session for some time.

        The caller has instructed the servers to check their users, so these checks do not show that a person used a
        server.

        Args:
            user_id: the hub's id of the user.
            length: for how long.
        """
        self._quiet[user_id] = self._now() + length

    def over_limits(self) -> Sequence[tuple[SignOnSession, EndCause]]:
        """Return the sessions that have passed a limit (lifetime or idle time), each with the cause with which it has
        to end.
        """
        now = self._now()
        judged = ((each, limit_passed(each, self._config, now)) for each in self._living.values())
        return [(session, cause) for session, cause in judged if cause is not None]

    def ended_recently(self) -> Iterable[SignOnSession]:
        """Return the sessions that ended within `LATE_TOKENS`.

        A request that was in progress when its session ended may still have received a token of the session.
        """
        since = self._now() - LATE_TOKENS
        return [each for each in self._ended.values() if each.ended is not None and each.ended >= since]

    def cause_of(self, session_id: str) -> str:
        """Return why the sign-on session with this public id ended recently (`EndCause`); "" if unknown."""
        return next((each.cause for each in self._ended.values() if each.id == session_id), "")

    def all_ended(self) -> Iterable[SignOnSession]:
        """Return the sessions that ended within `ENDED_KEPT`, the time for which they are remembered."""
        return list(self._ended.values())

    def ended_before_start(self) -> set[int]:
        """Return the ids of users whose sessions ended shortly before the hub's last restart.

        Their servers have to be instructed to check their visitors with the hub again.
        """
        return self._ended_before_start

    def _in_the_last_minutes_of_ends(self) -> set[int]:
        ends = [(each.user_id, each.ended) for each in self._ended.values() if each.ended is not None]
        last = max((ended for _, ended in ends), default=None)
        return {user_id for user_id, ended in ends if last is not None and last - ended <= LATE_TOKENS}

    def note_uses(self) -> None:
        """Write to the database when sessions were last used. If this fails, it is done the next time."""
        with self.store.transaction():
            self.store.note_uses(self._unwritten)
        self._unwritten.clear()

    def forget_ended(self) -> None:
        """Remove sessions that ended longer than `ENDED_KEPT` ago, in memory and in the database."""
        before = self._now() - ENDED_KEPT
        with self.store.transaction():
            self.store.forget_ended(before)
        self._ended = {key: each for key, each in self._ended.items() if each.ended is None or each.ended >= before}
        self._quiet.clear()


def _hash_of(value: str) -> str:
    return hashlib.sha256(value.encode("utf-8", "replace")).hexdigest()
