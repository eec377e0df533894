"""A service's lifetime without a program: when it is told to stop, whose the lock is, and how long it is waited for."""

from __future__ import annotations

import asyncio
import os
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest

from hub_extensions.hub_service import process as module
from hub_extensions.hub_service.process import Lifetime, StoreLock, wait_for_database, wait_for_lock, wait_for_port
from hub_extensions.hub_service.process import watch_database as watch
from tests.patience import patient


@pytest.fixture
def quick(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name in ("PARENT_SECONDS", "TRY_AGAIN_SECONDS", "DATABASE_SECONDS"):
        monkeypatch.setattr(module, name, 0.01)
    monkeypatch.setattr(module, "STOP_SECONDS", 60.0)
    yield


class DatabaseLockAsTold:
    """Taken at the attempt it was told; held for as many looks."""

    where = "a database"

    def __init__(self, taken_at: int = 1, held: int = 0) -> None:
        self.taken_at, self.held_for = taken_at, held
        self.attempts = self.looks = 0

    async def take(self) -> bool:
        self.attempts += 1
        return self.attempts >= self.taken_at

    async def held(self) -> bool:
        self.looks += 1
        return self.looks <= self.held_for


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
async def test_a_signal_begins_the_stop_and_a_second_one_changes_nothing(quick: None, number: signal.Signals) -> None:
    with Lifetime(None) as lifetime:
        assert not lifetime.stopping.is_set() and (lifetime.why, lifetime.status) == ("", 0)
        os.kill(os.getpid(), number)
        await asyncio.wait_for(lifetime.stopping.wait(), patient(10))
        lifetime.stop("another reason", 3)
        assert (lifetime.why, lifetime.status) == (number.name, 0)


async def test_the_end_of_the_parent_stops_it_and_a_parent_that_lives_does_not(
    quick: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    parent, looks = os.getppid(), []
    loop, seen = asyncio.get_running_loop(), asyncio.Event()

    def look() -> int:
        looks.append(parent)
        if len(looks) == 3:
            loop.call_soon_threadsafe(seen.set)
        return parent

    monkeypatch.setattr(os, "getppid", look)
    with Lifetime(parent) as lifetime:
        await asyncio.wait_for(seen.wait(), patient(10))
        assert not lifetime.stopping.is_set()
    with Lifetime(parent + 1) as lifetime:
        await asyncio.wait_for(lifetime.stopping.wait(), patient(10))
        assert lifetime.why == "the parent process is gone"


async def test_one_has_the_lock_of_a_store_and_the_next_one_gets_it_when_it_is_free(
    tmp_path: Path, quick: None
) -> None:
    path = tmp_path / "lock"
    first, second = StoreLock(path), StoreLock(path)
    assert first.holder() == "not known"
    assert first.take() and not second.take()
    assert second.holder() == str(os.getpid()) and path.stat().st_mode & 0o777 == 0o600
    with Lifetime(None) as lifetime:
        waiting = asyncio.ensure_future(wait_for_lock(path, lifetime))
        await asyncio.sleep(0)
        assert not waiting.done()
        for _ in range(2):
            first.free()
        third = await asyncio.wait_for(waiting, patient(10))
        assert third is not None and not second.take()
        third.free()
        assert second.take()
        second.free()


async def test_who_is_told_to_stop_gets_no_lock_and_no_port(tmp_path: Path, quick: None) -> None:
    with Lifetime(None) as lifetime:
        lifetime.stop("SIGTERM")
        assert await wait_for_lock(tmp_path / "lock", lifetime) is None
        assert await wait_for_port(tmp_path, "127.0.0.1", 0, lifetime) is None
        assert not await wait_for_database(DatabaseLockAsTold(), lifetime)  # type: ignore[arg-type]


async def test_a_port_is_waited_for_and_an_address_of_others_is_an_error(
    free_port: int, quick: None, tmp_path: Path
) -> None:
    with Lifetime(None) as lifetime:
        first = await wait_for_port(tmp_path, "127.0.0.1", free_port, lifetime)
        assert first is not None and first[0].getsockname()[1] == free_port
        waiting = asyncio.ensure_future(wait_for_port(tmp_path, "127.0.0.1", free_port, lifetime))
        await asyncio.sleep(0)
        assert not waiting.done()
        for each in first:
            each.close()
        second = await asyncio.wait_for(waiting, patient(10))
        assert second is not None
        for each in second:
            each.close()
        with pytest.raises(OSError):
            await wait_for_port(tmp_path, "192.0.2.1", free_port, lifetime)


async def test_the_lock_of_a_database_is_tried_until_it_is_had_and_its_loss_stops(quick: None) -> None:
    with Lifetime(None) as lifetime:
        lock = DatabaseLockAsTold(taken_at=3, held=2)
        assert await wait_for_database(lock, lifetime) and lock.attempts == 3  # type: ignore[arg-type]
        await asyncio.wait_for(watch(lock, lifetime, 7), patient(10))  # type: ignore[arg-type]
        assert (lock.looks, lifetime.status, lifetime.why) == (3, 7, "the lock in the database is lost")


async def test_a_lock_that_is_lost_after_the_stop_began_changes_nothing(quick: None) -> None:
    with Lifetime(None) as lifetime:
        lifetime.stop("SIGTERM")
        await asyncio.wait_for(watch(DatabaseLockAsTold(), lifetime, 7), patient(10))  # type: ignore[arg-type]
        assert (lifetime.status, lifetime.why) == (0, "SIGTERM")


async def test_an_orderly_stop_that_takes_too_long_is_cut_off(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(module, "STOP_SECONDS", 0.01)
    ended = asyncio.Event()
    loop = asyncio.get_running_loop()
    codes: list[int] = []

    def exits(code: int) -> None:
        codes.append(code)
        loop.call_soon_threadsafe(ended.set)

    monkeypatch.setattr(os, "_exit", exits)
    with Lifetime(None) as lifetime:
        lifetime.stop("SIGTERM")
        await asyncio.wait_for(ended.wait(), patient(10))
    assert codes == [1]
