"""How long tests wait: every wait is written for a quiet machine, and one setting stretches them all.

    until(lambda: hub.ready("ada"), 30, "ada is ready")
    await soon(lambda: page.snapshot)
    subprocess.run(words, timeout=patient(60))

What is stretched is how long a test waits before it gives up, never a setting whose effect it shows.
"""

from __future__ import annotations

import asyncio
import inspect
import os
import time
from collections.abc import Awaitable, Callable
from typing import TypeVar

T = TypeVar("T")
FIRST_REST, LONGEST_REST, SHARE = 0.05, 0.25, 0.1
"""Between two looks: a share of the time waited already. A look at a hub is 10 to 30 ms of CPU that others wait for."""


def patient(seconds: float) -> float:
    """`seconds` (or milliseconds), times the environment variable TEST_PATIENCE (default 1)."""
    return seconds * float(os.environ.get("TEST_PATIENCE") or 1)


def until(
    look: Callable[[], T],
    seconds: float = 20.0,
    what: str | Callable[[], str] = "",
    *,
    rest: Callable[[float], object] = time.sleep,
) -> T:
    """What `look` returns as soon as that is true. Fails with `what`, or what that says then, after `seconds`.

    `rest` spends the time between two looks.
    """
    seconds = patient(seconds)
    began = time.monotonic()
    while not (found := look()):
        waited = time.monotonic() - began
        if waited > seconds:
            raise AssertionError(f"not within {seconds:g} s: {(what() if callable(what) else what) or look}")
        rest(min(max(FIRST_REST, SHARE * waited), LONGEST_REST))
    return found


async def soon(look: Callable[[], T | Awaitable[T]], seconds: float = 20.0, what: str | Callable[[], str] = "") -> T:
    """`until` for a test in an event loop; `look` may be a coroutine function."""
    seconds = patient(seconds)
    deadline = time.monotonic() + seconds
    while True:
        found = look()
        if inspect.isawaitable(found):
            found = await found
        if found:
            return found  # type: ignore[return-value]
        if time.monotonic() > deadline:
            raise AssertionError(f"not within {seconds:g} s: {(what() if callable(what) else what) or look}")
        await asyncio.sleep(0.02)
