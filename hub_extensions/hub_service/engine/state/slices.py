"""Looking at many things without holding up the others: in slices, between which others have a turn."""

from __future__ import annotations

import asyncio
from collections.abc import AsyncIterator, Iterable
from typing import TypeVar

AT_A_TIME = 100
"""So many servers or leases are looked at before others have a turn."""
_Thing = TypeVar("_Thing")


async def in_slices(things: Iterable[_Thing], at_a_time: int = AT_A_TIME) -> AsyncIterator[_Thing]:
    """Each of the things that there are now; what ends meanwhile still comes."""
    for number, thing in enumerate(tuple(things), 1):
        yield thing
        if number % at_a_time == 0:
            await asyncio.sleep(0)
