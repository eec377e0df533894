"""Cached answers of the hub about tokens, with one request at a time per token.

The age of an answer counts from when the request was sent. A fresh answer is used without waiting. A request that was
in progress during a sign-out is repeated, because its answer may be older than the sign-out.
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from hub_extensions.adapters.hub.hub_sign_in import HubSignIn, TokenOwner
from hub_extensions.adapters.hub.jupyterhub_api import HubAway
from hub_extensions.core.sign_on.fair_queue import FairQueue

log = logging.getLogger("hub_extensions.gate")

AWAY_SECONDS = 1.0
"""Pause before a token is checked again after the hub did not answer."""
MAX_TOKENS = 4096
MAX_UNKNOWN_CHECKS = 4
"""Number of simultaneous requests about unknown tokens, so that a flood of invented tokens does not occupy the hub."""
MAX_UNKNOWN_WAITING = 512
"""Number of unknown tokens that may wait for a check or be checked. If there is one more, the newest token of the
largest group (address and token prefix) is refused.
"""
MAX_INVALID_TOKENS = 512
"""Number of invalid tokens that are cached. They have their own cache, so that a flood evicts no valid token."""


class KnownToken:
    """A token of a browser's session or of a program, with the hub's last answer about it.

    Attributes:
        owner: the owner as last reported; `None` if the hub was not asked yet, or if the token is invalid (`is_void` is
            then True).
        is_void: whether the hub's last answer is that the token is invalid.
        asked_at: when the request for the last answer was sent, on the monotonic clock; -inf if the answer must not be
            used.
        failed_at: when the hub did not answer the last request, on the monotonic clock; -inf if it did answer.
        asking: the request in progress; `None` without one.
        times_ended: how often `forget` was called; an answer to a request from before the last call is not used.
        identities: app -> identity headers of the owner.
    """

    __slots__ = ("asked_at", "asking", "failed_at", "identities", "is_void", "owner", "times_ended", "token")

    def __init__(self, token: str) -> None:
        self.token = token
        self.owner: TokenOwner | None = None
        self.is_void = False
        self.asked_at = self.failed_at = float("-inf")
        self.asking: asyncio.Future[None] | None = None
        self.times_ended = 0
        self.identities: dict[str, Any] = {}

    @property
    def has_failed(self) -> bool:
        """Whether the hub gave no answer when it was last asked about this token."""
        return self.failed_at != float("-inf")

    def forget(self) -> None:
        """Invalidate what the hub answered about this token, also in a request in progress.

        A sign-out may have made the answer wrong.
        """
        self.asked_at = self.failed_at = float("-inf")
        self.times_ended += 1


class HubAnswers:
    """Asks the hub who owns a token, and caches its answers.

    Args:
        hub: the hub's API.
        seconds: how long an answer about a valid token may be used before the hub is asked again.
        now: returns the gate's time.

    Attributes:
        away_since: when the hub stopped answering; `None` if it answers.
        calls: number of requests to the hub so far, for the metrics.
    """

    def __init__(self, hub: HubSignIn, seconds: float, now: Callable[[], datetime]) -> None:
        self._hub, self._seconds, self._now = hub, seconds, now
        self._tokens: dict[bytes, KnownToken] = {}
        self._invalid: dict[bytes, KnownToken] = {}
        self._asked_now = 0
        self._queue: FairQueue[asyncio.Future[bool]] = FairQueue()
        self.away_since: datetime | None = None
        self.calls = 0

    def is_fresh(self, known: KnownToken) -> bool:
        """Return whether the last answer about a token is recent enough to be used.

        The answer that a token is invalid is always recent enough.

        Args:
            known: the token with the hub's last answer about it.
        """
        return known.is_void or time.monotonic() - known.asked_at < self._seconds

    async def refresh(self, known: KnownToken) -> bool:
        """Make sure that the answer about a token is recent: ask the hub, or wait for the request in progress.

        Args:
            known: the token with the hub's last answer about it, which is updated.

        Returns:
            False if the hub does not answer, so that the last answer is still the old one.
        """
        if self.is_fresh(known):
            return True
        if time.monotonic() - known.failed_at < AWAY_SECONDS:
            return False
        if known.asking is None:
            known.asking = asyncio.ensure_future(self._ask(known))
        await asyncio.wait({known.asking})
        return not known.has_failed

    async def check_token(self, token: str, address: str = "") -> KnownToken | None:
        """Return a recent answer about a program's token. Its `has_failed` is True if the hub does not answer.

        A token that was valid before is checked at once. Few unknown tokens are checked at the same time, and the
        others wait in turns by address and token prefix, so that a flood of invented tokens does not occupy the hub.

        Args:
            token: the token that is checked.
            address: address of the client; "" if it is not known.

        Returns:
            `None` if the check is refused because too many unknown tokens wait.
        """
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        known = self._tokens.get(digest)
        if known is not None:
            return await self._asked(digest, known)
        known = self._invalid.get(digest)
        if known is not None and known.is_void and time.monotonic() - known.asked_at >= self._seconds:
            known.is_void = False  # the hub may have issued this token since
        if known is not None and self.is_fresh(known):
            return known
        if not await self._wait_for_turn(address, token):
            return None
        try:
            known = self._tokens.get(digest) or self._invalid.get(digest)
            if known is None:
                known = KnownToken(token)
                _put(self._invalid, digest, known, MAX_INVALID_TOKENS)
            return await self._asked(digest, known)
        finally:
            self._pass_turn()

    async def _wait_for_turn(self, address: str, token: str) -> bool:
        """Wait until an unknown token may be checked. The caller then has to call `_pass_turn` after the check.

        Args:
            address: address of the client, among whose tokens the places in the queue are shared fairly.
            token: the token that is checked.

        Returns:
            False if the check is refused because too many unknown tokens wait; `_pass_turn` must not be called.
        """
        is_full = self._asked_now + len(self._queue) >= MAX_UNKNOWN_WAITING
        if self._asked_now < MAX_UNKNOWN_CHECKS and not is_full:
            self._asked_now += 1
            return True
        waiter: asyncio.Future[bool] = asyncio.get_running_loop().create_future()
        leaves = self._queue.put(waiter, address, token, is_full=is_full)
        if leaves is not None and not leaves.done():
            leaves.set_result(False)
        try:
            return await waiter
        except asyncio.CancelledError:
            self._queue.remove(waiter)
            if waiter.done() and not waiter.cancelled() and waiter.result():
                self._pass_turn()
            raise

    def _pass_turn(self) -> None:
        """End the check of an unknown token, and let the next token that waits be checked."""
        while (waiter := self._queue.take()) is not None:
            if not waiter.done():
                waiter.set_result(True)
                return
        self._asked_now -= 1

    async def _asked(self, digest: bytes, known: KnownToken) -> KnownToken:
        """Refresh the answer about a token, and move its entry to the end of the cache for valid or for invalid tokens.

        The end of a cache has the tokens that were used last. When a cache is full, its first entries are removed.

        Args:
            digest: hash of the token, the key of the entry.
            known: the token with the hub's last answer about it.
        """
        await self.refresh(known)
        mine, other, most = self._tokens, self._invalid, MAX_TOKENS
        if known.owner is None:
            mine, other, most = other, mine, MAX_INVALID_TOKENS
        other.pop(digest, None)
        _put(mine, digest, known, most)
        return known

    def invalidate_user(self, user: str) -> None:
        """Invalidate the answers about a user's tokens after a sign-out, which may have deleted some."""
        for known in (*self._tokens.values(), *self._invalid.values()):
            if known.owner is None or known.owner.name == user:
                known.forget()

    async def _ask(self, known: KnownToken) -> None:
        try:
            while True:
                began, ended = time.monotonic(), known.times_ended
                self.calls += 1
                owner = await self._hub.owner(known.token)
                if known.times_ended == ended:
                    break
            known.owner, known.is_void, known.asked_at = owner, owner is None, began
            known.failed_at = float("-inf")
            self.away_since = None
        except Exception as problem:  # noqa: BLE001  # an unreadable answer counts as none, and the old one is outdated
            if not isinstance(problem, HubAway):
                log.error("the hub's answer cannot be used: %s", type(problem).__name__)
            known.failed_at = time.monotonic()
            self.away_since = self.away_since or self._now()
        finally:
            known.asking = None


def _put(tokens: dict[bytes, KnownToken], digest: bytes, known: KnownToken, most: int) -> None:
    """Add an entry to the end of a cache.

    If the cache is full, the oldest entry for which no request is in progress is removed first.

    Args:
        tokens: the cache.
        digest: hash of the token, the key of the entry.
        known: the entry: the token with the hub's last answer about it.
        most: number of entries of a full cache.
    """
    tokens.pop(digest, None)
    if len(tokens) >= most:
        oldest = next((each for each, waiting in tokens.items() if waiting.asking is None), None)
        if oldest is not None:
            del tokens[oldest]
    tokens[digest] = known
