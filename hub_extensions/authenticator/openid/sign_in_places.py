"""Limits how many sign-ins redeem their code at the provider at the same time; the others wait in a queue.

A code is valid for about a minute, and a proxy does not wait longer. Therefore the wait has a time limit. If the
provider hangs, all waiting sign-ins fail at once. A later sign-in tries the provider again, so it succeeds as soon as
the provider is back.
"""

from __future__ import annotations

import asyncio
from collections import deque
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager

from hub_extensions.adapters.provider.oidc import ProviderAway, ProviderUnreachable

SIGN_INS_AT_ONCE = 8
"""Number of codes that are redeemed at the same time."""
MAX_WAIT_SECONDS = 20.0
"""Maximum wait for a place. Together with the provider's time-outs it is less than a minute, for which a code is valid
and a proxy waits.
"""


class SignInPlaces:
    """Limits how many sign-ins redeem their code at the same time. A place allows one sign-in to redeem its code.

    Sign-ins without a place wait in a queue.

    Args:
        seconds: longest wait for a place.
    """

    def __init__(self, seconds: float = MAX_WAIT_SECONDS) -> None:
        self._seconds = seconds
        self._free = SIGN_INS_AT_ONCE
        self._waiting: deque[asyncio.Future[None]] = deque()
        self._answers = 0

    @asynccontextmanager
    async def taken(self) -> AsyncIterator[None]:
        """Hold a place (the permission to redeem a code) while the block runs, which asks the provider.

        If the block finds that the provider cannot be reached, all waiting sign-ins fail too, unless the provider has
        answered another sign-in since this place was taken.

        Raises:
            ProviderAway: no place became free in time, or the provider could not be reached.
        """
        await self._take()
        before = self._answers
        try:
            yield
            self._answers += 1
        except ProviderUnreachable as problem:
            if self._answers == before:
                while self._waiting:
                    _fail(self._waiting.popleft(), str(problem))
            raise
        except Exception:
            self._answers += 1  # a refusal is an answer
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
                self._give_back()  # it had been given this place already
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


def _fail(turn: asyncio.Future[None], because: str) -> None:
    if not turn.done():
        turn.set_exception(ProviderAway(because))
