"""A time limit that loses neither the answer nor a cancellation."""

from __future__ import annotations

import asyncio
import gc

import pytest

from hub_extensions.adapters.linux.timeouts import shielded, with_timeout
from tests.patience import patient


async def test_it_gives_the_answer_or_its_failure() -> None:
    async def works() -> int:
        return 7

    async def fails() -> int:
        raise OSError("gone")

    assert await with_timeout(5, works()) == 7
    with pytest.raises(OSError, match="gone"):
        await with_timeout(5, fails())


async def test_what_takes_too_long_is_given_up_and_lets_go() -> None:
    let_go = []

    async def waits() -> None:
        try:
            await asyncio.Event().wait()
        finally:
            let_go.append(True)

    with pytest.raises(asyncio.TimeoutError):
        await with_timeout(0.01, waits())
    assert let_go == [True]


async def test_a_cancellation_in_the_moment_of_the_answer_is_not_lost() -> None:
    """CPython gh-86296: before 3.12 ``wait_for`` returns the answer then, and a loop around it never ends."""
    for _ in range(50):
        queue: asyncio.Queue[int] = asyncio.Queue()
        rounds = []

        async def loop(queue: asyncio.Queue[int] = queue, rounds: list[int] = rounds) -> None:
            while True:
                rounds.append(await with_timeout(5, queue.get()))

        task = asyncio.create_task(loop())
        await asyncio.sleep(0)
        await asyncio.sleep(0)
        queue.put_nowait(1)
        await asyncio.sleep(0)  # the answer is there, and nobody has taken it yet
        task.cancel()
        done, _ = await asyncio.wait({task}, timeout=patient(2))
        assert done and task.cancelled()


async def test_work_that_goes_on_without_its_caller_is_not_reported_as_never_retrieved() -> None:
    heard: list[object] = []
    asyncio.get_running_loop().set_exception_handler(lambda _, context: heard.append(context["message"]))
    going, done = asyncio.Event(), asyncio.Event()

    async def fails() -> None:
        await going.wait()
        done.set()
        raise OSError("gone")

    caller = asyncio.create_task(shielded(fails()))
    await asyncio.sleep(0)
    await asyncio.sleep(0)
    caller.cancel()
    assert isinstance((await asyncio.gather(caller, return_exceptions=True))[0], asyncio.CancelledError)
    going.set()
    await done.wait()
    await asyncio.sleep(0.01)
    gc.collect()
    assert heard == []
    with pytest.raises(OSError, match="gone"):
        await shielded(fails())
