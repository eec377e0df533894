"""A wait with a time limit that never loses a cancellation, and one that a cancellation does not interrupt.

``asyncio.wait_for`` before Python 3.12 loses a cancellation that comes at the same moment as the result (CPython
gh-86296): it returns the result. A loop around the wait then continues, and a hub that is stopping waits for this loop
for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def with_timeout(seconds: float, work: Awaitable[T], *, parts: int = 1) -> T:
    """Await `work`, and cancel it when the time is over.

    Args:
        seconds: the time limit.
        parts: number of equal waits into which the time is divided. If other code blocks the event loop, at most one of
            these waits is used up by the block, however long it was.

    Raises:
        asyncio.TimeoutError: the time is over.
    """
    task = asyncio.ensure_future(work)
    try:
        for _ in range(parts):
            done, _ = await asyncio.wait({task}, timeout=seconds / parts)
            if done:
                return task.result()
    except asyncio.CancelledError:
        task.cancel()
        raise
    task.cancel()
    await asyncio.wait({task}, timeout=1.0)  # so that it releases what it holds
    raise asyncio.TimeoutError


async def shielded(work: Awaitable[T]) -> T:
    """Await `work`. If the caller is cancelled, the work continues, and a later failure is ignored.

    ``asyncio.shield`` does the same, but then logs "exception was never retrieved".
    """
    task = asyncio.ensure_future(work)
    _RUNNING.add(task)
    task.add_done_callback(_finished)
    await asyncio.wait({task})
    return task.result()


def _finished(task: asyncio.Future[Any]) -> None:
    _RUNNING.discard(task)
    if not task.cancelled():
        task.exception()


_RUNNING: set[asyncio.Future[Any]] = set()
