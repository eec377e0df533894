"""What the hub said about tokens, for so long as it counts; one question at a time about each.

An answer counts from when it was asked for. Whoever has a fresh one waits for nobody. A question that was under way
when a sign-out came is asked once more, for its answer may be older than the sign-out.
Not here: the question itself (``adapters/hub_sign_in.py``), and what a token opens (``core/sign_on/access.py``).
"""

from __future__ import annotations

import asyncio
import hashlib
import logging
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from hub_extensions.adapters.hub_sign_in import HubSignIn, TokenOwner
from hub_extensions.adapters.jupyterhub_api import HubAway

log = logging.getLogger("hub_extensions.gate")

AWAY_SECONDS = 1.0
"""After a question without an answer the next one about the same token is asked so much later."""
MOST_TOKENS = 4096
STRANGERS_AT_ONCE = 4
"""Questions about tokens that never were anybody's: a flood of made-up ones keeps the hub for nobody else."""
MOST_STRANGERS = 64
MOST_STRANGE_TOKENS = 512
"""Tokens of nobody are remembered apart from the others, so that a flood of them takes no other's place."""


class KnownToken:
    """A token, and what the hub said about it last.

    Attributes:
        owner: None, it was not asked yet or the token is nobody's (`is_void`).
        asked_at, failed_at: on this machine's running clock. passports: app -> what it is shown of the owner.
    """

    __slots__ = ("asked_at", "asking", "failed_at", "is_void", "owner", "passports", "times_ended", "token")

    def __init__(self, token: str) -> None:
        self.token = token
        self.owner: TokenOwner | None = None
        self.is_void = False
        self.asked_at = self.failed_at = float("-inf")
        self.asking: asyncio.Future[None] | None = None
        self.times_ended = 0
        self.passports: dict[str, Any] = {}

    def forget(self) -> None:
        """What was said counts no more, nor does what is being said."""
        self.asked_at = self.failed_at = float("-inf")
        self.times_ended += 1


class HubAnswers:
    """Asks the hub, and remembers.

    Attributes:
        away_since: the hub does not answer since then; None: it did last. calls: questions so far.
    """

    def __init__(self, hub: HubSignIn, seconds: float, now: Callable[[], datetime]) -> None:
        self._hub, self._seconds, self._now = hub, seconds, now
        self._tokens: dict[bytes, KnownToken] = {}
        self._strange: dict[bytes, KnownToken] = {}
        self._strangers = 0
        self._room = asyncio.Semaphore(STRANGERS_AT_ONCE)
        self.away_since: datetime | None = None
        self.calls = 0

    def is_fresh(self, known: KnownToken) -> bool:
        """What is known of it counts."""
        return known.is_void or time.monotonic() - known.asked_at < self._seconds

    async def refresh(self, known: KnownToken) -> bool:
        """Ask, unless the answer is fresh or somebody asks already; False: the hub is away."""
        if self.is_fresh(known):
            return True
        if time.monotonic() - known.failed_at < AWAY_SECONDS:
            return False
        if known.asking is None:
            known.asking = asyncio.ensure_future(self._ask(known))
        await asyncio.wait({known.asking})
        return known.failed_at == float("-inf")

    async def of_program(self, token: str) -> KnownToken | None:
        """What is known of a program's token; None: the hub is away, or too many strangers wait."""
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        known = self._tokens.get(digest)
        if known is not None:
            return await self._asked(digest, known)
        known = self._strange.get(digest)
        if known is not None and known.is_void and time.monotonic() - known.asked_at >= self._seconds:
            known.is_void = False  # a token may be made for what was asked about before
        if known is not None and self.is_fresh(known):
            return known
        if self._strangers >= MOST_STRANGERS:
            return None
        self._strangers += 1
        try:
            async with self._room:
                known = self._tokens.get(digest) or self._strange.get(digest)
                if known is None:
                    known = KnownToken(token)
                    _put(self._strange, digest, known, MOST_STRANGE_TOKENS)
                return await self._asked(digest, known)
        finally:
            self._strangers -= 1

    async def _asked(self, digest: bytes, known: KnownToken) -> KnownToken | None:
        """What is known of it, which is kept with those of its kind, used last; None: the hub is away."""
        answered = await self.refresh(known)
        mine, other, most = self._tokens, self._strange, MOST_TOKENS
        if known.owner is None:
            mine, other, most = other, mine, MOST_STRANGE_TOKENS
        other.pop(digest, None)
        _put(mine, digest, known, most)
        return known if answered else None

    def forget_programs(self, user: str) -> None:
        """Somebody was signed out: his programs' tokens may have gone too."""
        for known in (*self._tokens.values(), *self._strange.values()):
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
        except Exception as problem:  # noqa: BLE001  # what cannot be read is no answer, and no old one counts
            if not isinstance(problem, HubAway):
                log.error("the hub's answer cannot be used: %s", type(problem).__name__)
            known.failed_at = time.monotonic()
            self.away_since = self.away_since or self._now()
        finally:
            known.asking = None


def _put(tokens: dict[bytes, KnownToken], digest: bytes, known: KnownToken, most: int) -> None:
    """As the last one; the first that nobody asks about makes room for it."""
    tokens.pop(digest, None)
    if len(tokens) >= most:
        oldest = next((each for each, waiting in tokens.items() if waiting.asking is None), None)
        if oldest is not None:
            del tokens[oldest]
    tokens[digest] = known
