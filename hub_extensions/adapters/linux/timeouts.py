"""Waiting with a time limit that never loses a cancellation, and for work that a cancellation does not end.

``asyncio.wait_for`` before Python 3.12 does (CPython gh-86296): cancelled in the moment its answer comes, it returns
the answer. A loop around it then goes on, and a hub that is stopping waits for it for ever.
"""

from __future__ import annotations

import asyncio
from collections.abc import Awaitable
from typing import Any, TypeVar

T = TypeVar("T")


async def with_timeout(seconds: float, work: Awaitable[T], *, parts: int = 1) -> T:
    """What `work` gives. Raises ``asyncio.TimeoutError`` after so many seconds, when it is given up.

    Args:
        parts: the time is waited in so many parts: a loop that something else holds, however long, costs one of them.
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
    await asyncio.wait({task}, timeout=1.0)  # so that what it holds is let go
    raise asyncio.TimeoutError


async def unbroken(work: Awaitable[T]) -> T:
    """What `work` gives. A caller that is cancelled leaves it running; how it fails then is nobody's to hear.

    ``asyncio.shield`` does the same, and writes "exception was never retrieved" into the log.
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
