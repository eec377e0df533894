"""What the hub said about tokens, for so long as it counts; one question at a time about each.

An answer counts from when it was asked for. Whoever has a fresh one waits for nobody. A question that was under way
when a sign-out came is asked once more, for its answer may be older than the sign-out.
Not here: the question itself (``adapters/hub/hub_sign_in.py``), and what a token opens (``core/sign_on/access.py``).
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
"""After a question without an answer the next one about the same token is asked so much later."""
MOST_TOKENS = 4096
STRANGERS_AT_ONCE = 4
"""Questions about tokens that never were anybody's: a flood of made-up ones keeps the hub for nobody else."""
MOST_STRANGERS = 512
"""Tokens that may wait or be asked about; what is more takes the place of the newest of the largest group."""
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

    @property
    def has_failed(self) -> bool:
        """The hub was asked about it last, and gave no answer."""
        return self.failed_at != float("-inf")

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
        self._asked_now = 0
        self._queue: FairQueue[asyncio.Future[bool]] = FairQueue()
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
        return not known.has_failed

    async def of_program(self, token: str, address: str = "") -> KnownToken | None:
        """What is known of a program's token, perhaps that the hub is away (`has_failed`).

        A token that was somebody's waits for no other. The others wait in turns, by address and prefix.

        Args:
            address: where the request came from.

        Returns:
            None if too many unknown tokens wait.
        """
        digest = hashlib.sha256(token.encode("utf-8", "replace")).digest()
        known = self._tokens.get(digest)
        if known is not None:
            return await self._asked(digest, known)
        known = self._strange.get(digest)
        if known is not None and known.is_void and time.monotonic() - known.asked_at >= self._seconds:
            known.is_void = False  # a token may be made for what was asked about before
        if known is not None and self.is_fresh(known):
            return known
        if not await self._has_turn(address, token):
            return None
        try:
            known = self._tokens.get(digest) or self._strange.get(digest)
            if known is None:
                known = KnownToken(token)
                _put(self._strange, digest, known, MOST_STRANGE_TOKENS)
            return await self._asked(digest, known)
        finally:
            self._give_turn()

    async def _has_turn(self, address: str, token: str) -> bool:
        """Wait for the turn of an unknown token; `False` if it has to leave. `_give_turn` ends a turn."""
        is_full = self._asked_now + len(self._queue) >= MOST_STRANGERS
        if self._asked_now < STRANGERS_AT_ONCE and not is_full:
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
                self._give_turn()
            raise

    def _give_turn(self) -> None:
        """To the next one whose request still waits."""
        while (waiter := self._queue.take()) is not None:
            if not waiter.done():
                waiter.set_result(True)
                return
        self._asked_now -= 1

    async def _asked(self, digest: bytes, known: KnownToken) -> KnownToken:
        """What is known of it, which is kept with those of its kind, used last."""
        await self.refresh(known)
        mine, other, most = self._tokens, self._strange, MOST_TOKENS
        if known.owner is None:
            mine, other, most = other, mine, MOST_STRANGE_TOKENS
        other.pop(digest, None)
        _put(mine, digest, known, most)
        return known

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
