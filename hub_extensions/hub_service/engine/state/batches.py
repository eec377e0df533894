"""Loops over many things that let other tasks run in between."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

AT_A_TIME = 100  # items of a batch; other tasks run between two batches
_Thing = TypeVar("_Thing")


async def in_batches(things: Iterable[_Thing], at_a_time: int = AT_A_TIME) -> AsyncIterator[_Thing]:
    """Yield the items that `things` has at the call, and let other tasks of the event loop run after each batch.

    An item that is removed from `things` in the meantime is still yielded.

    Args:
        things: the items, which may change while the loop runs.
        at_a_time: number of items of a batch.
    """
    for number, thing in enumerate(tuple(things), 1):
        yield thing
        if number % at_a_time == 0:
            await asyncio.sleep(0)
