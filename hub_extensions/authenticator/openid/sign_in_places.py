"""Who may take a code to the provider now: a few at a time, the others in a queue in which nobody waits for nothing.

A code is good for a minute or so, and a proxy waits no longer. So a wait has an end, and it ends for everybody who
waits when the provider is seen to hang. Who comes after that asks it anew, so the first who can sign in does.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hub_extensions.adapters.provider.oidc import ProviderAway, ProviderUnreachable

SIGN_INS_AT_ONCE = 8
"""So many have their code taken to the provider at a time."""
LONGEST_WAIT_SECONDS = 20.0
"""For a place. With the provider's own time-outs behind it, it is less than the minute of a code and of a proxy."""


class SignInPlaces:
    """The places, and who waits for one, in the order in which they came."""

    def __init__(self, seconds: float = LONGEST_WAIT_SECONDS) -> None:
        self._seconds = seconds
        self._free = SIGN_INS_AT_ONCE
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._answers = 0

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """A place, for as long as the provider is asked. Raises ProviderAway where none comes free.

        One that could not reach the provider fails all who wait, unless it answered somebody else meanwhile.
        """
        await self._take()
        before = self._answers
        try:
            yield
            self._answers += 1
        except ProviderUnreachable as problem:
            if self._answers == before:
                self._fail_all(str(problem))
            raise
        except Exception:
            self._answers += 1  # a no is an answer
            raise
        finally:
            self._give_back()

    async def _take(self) -> None:
        if self._free:
            self._free -= 1
            return
        loop = asyncio.get_running_loop()
        turn: asyncio.Future[None] = loop.create_future()
        because = f"The provider was not asked: no place came free in {self._seconds:g} seconds."
        timer = loop.call_later(self._seconds, _fail, turn, because)
        self._waiting.append(turn)
        try:
            await turn
        except asyncio.CancelledError:
            if turn.done() and not turn.cancelled() and turn.exception() is None:
                self._give_back()  # it was this one's already
            raise
        finally:
            timer.cancel()

    def _give_back(self) -> None:
        while self._waiting:
            turn = self._waiting.popleft()
            if not turn.done():
                turn.set_result(None)
                return
        self._free += 1

    def _fail_all(self, because: str) -> None:
        while self._waiting:
            _fail(self._waiting.popleft(), because)


def _fail(turn: asyncio.Future[None], because: str) -> None:
    if not turn.done():
        turn.set_exception(ProviderAway(because))
