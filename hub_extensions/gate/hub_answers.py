"""What the hub said about tokens, for so long as it counts; one question at a time about each.

An answer counts from when it was asked for. Whoever has a fresh one waits for nobody. A question that was under way
when a sign-out came is asked once more, for its answer may be older than the sign-out.
Not here: the question itself (``adapters/hub_sign_in.py``), and what a token opens (``core/sign_on/access.py``).
"""

from __future__ import annotations

import asyncio
import hashlib
import time
from collections.abc import Callable
from datetime import datetime
from typing import Any

from hub_extensions.adapters.hub_sign_in import HubSignIn, TokenOwner
from hub_extensions.adapters.jupyterhub_api import HubAway

AWAY_SECONDS = 1.0
"""After a question without an answer the next one about the same token is asked so much later."""
MOST_TOKENS = 4096
STRANGERS_AT_ONCE = 4
"""Questions about tokens that never were anybody's: a flood of made-up ones keeps the hub for nobody else."""
MOST_STRANGERS = 64


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
        if known is None:
            known = KnownToken(token)
            self._make_room()
            self._tokens[digest] = known
        if known.is_void and time.monotonic() - known.asked_at >= self._seconds:
            known.is_void = False  # a token may be made for what was asked about before
        if known.owner is not None or self.is_fresh(known):
            return known if await self.refresh(known) else None
        if self._strangers >= MOST_STRANGERS:
            return None
        self._strangers += 1
        try:
            async with self._room:
                return known if await self.refresh(known) else None
        finally:
            self._strangers -= 1

    def forget_programs(self, user: str) -> None:
        """Somebody was signed out: his programs' tokens may have gone too."""
        for known in self._tokens.values():
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
        except HubAway:
            known.failed_at = time.monotonic()
            self.away_since = self.away_since or self._now()
        finally:
            known.asking = None

    def _make_room(self) -> None:
        while len(self._tokens) >= MOST_TOKENS:
            del self._tokens[next(iter(self._tokens))]
