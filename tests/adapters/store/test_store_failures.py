"""What is away, full, locked or gone: a sentence, nothing half-written, and all is well when it is back."""

from __future__ import annotations

import asyncio
import os
import sqlite3
import subprocess
from collections.abc import Iterator
from contextlib import closing
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import psycopg
import pytest
import sqlalchemy as sa
from sqlalchemy.pool import Pool

from hub_extensions.adapters.store import Changes, JournalRow, NoticeRow, Store, StoreUnavailable, database
from tests.patience import patient, soon

pytestmark = pytest.mark.slow

NOW = datetime(2027, 3, 1, tzinfo=timezone.utc)


def decision(name: str, size: int = 10) -> Changes:
    """A note and its journal row: both or none."""
    return Changes(
        journal=(JournalRow(NOW, "given", None, None, None, None, name * size),),
        notices=(NoticeRow(NOW, "ada", "", name),),
        meta={name: "here"},
    )


async def written(store: Store) -> tuple[set[str], int, int]:
    return set((await store.load()).meta), len(await store.journal(10_000)), len(await store.notices("ada", NOW))


async def fill(store: Store, limit: int = 10_000) -> int:
    """Write until the disk is full; how many commits were answered."""
    for number in range(limit):
        try:
            await store.commit(decision(f"n{number}", 10_000))
        except StoreUnavailable as error:
            assert "disk is full" in error.message and "gpu.sqlite" in error.message
            assert store.state == error.message
            return number
    raise AssertionError("the disk never got full")


class DiskThatIsFull:
    """Every SQLite connection made while `pages` is set may use so many pages, as on a disk that is full."""

    def __init__(self, pages: int) -> None:
        self.pages: int | None = pages

    def __call__(self, connection: Any, _: object) -> None:
        if self.pages is not None and isinstance(connection, sqlite3.Connection):
            connection.execute(f"PRAGMA max_page_count={self.pages}").close()


@pytest.fixture
def full_disk() -> Iterator[DiskThatIsFull]:
    disk = DiskThatIsFull(150)
    sa.event.listen(Pool, "connect", disk)
    yield disk
    sa.event.remove(Pool, "connect", disk)


async def test_a_full_disk_keeps_what_was_answered_and_nothing_else(sqlite_url: str, full_disk: DiskThatIsFull) -> None:
    store = Store.open(sqlite_url)
    answered = await fill(store)
    assert answered > 2
    expected = ({f"n{number}" for number in range(answered)}, answered, answered)
    assert await written(store) == expected
    with pytest.raises(StoreUnavailable, match="disk is full"):
        await store.commit(decision("still", 10_000))
    assert await written(store) == expected
    full_disk.pages = None
    await _again_possible(store)
    assert store.state == "ok"
    assert (await written(store))[1] == answered + 1
    store.close()


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """2 MiB, mounted for real."""
    subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=2m", "gpu-test", str(tmp_path)], check=True, timeout=patient(30)
    )
    yield tmp_path
    subprocess.run(["umount", "--lazy", str(tmp_path)], check=True, timeout=patient(30))


@pytest.mark.needs("root")
async def test_a_real_disk_that_is_full_loses_nothing_and_works_again_when_there_is_room(small_disk: Path) -> None:
    store = Store.open(f"sqlite:///{small_disk}/gpu.sqlite")
    ballast = small_disk / "ballast"
    ballast.write_bytes(bytes(700_000))
    answered = await fill(store)
    expected = ({f"n{number}" for number in range(answered)}, answered, answered)
    assert answered > 2 and await written(store) == expected
    ballast.unlink()
    await store.commit(decision("again"))
    assert (await written(store))[1] == answered + 1 and store.state == "ok"
    store.close()


@pytest.mark.slow
async def test_a_locked_file_is_a_sentence_and_the_next_commit_works(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(database, "BUSY_SECONDS", 0.5)
    store = Store.open(sqlite_url)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        with pytest.raises(StoreUnavailable, match=r"Another process holds .*gpu\.sqlite.* locked"):
            await store.commit(decision("no"))
        other.execute("ROLLBACK")
    await store.commit(decision("yes"))
    assert await written(store) == ({"yes"}, 1, 1)
    store.close()


@pytest.mark.slow
async def test_a_short_lock_is_waited_for(sqlite_url: str) -> None:
    store = Store.open(sqlite_url)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"), isolation_level=None)) as other:
        other.execute("BEGIN IMMEDIATE")
        asyncio.get_running_loop().call_later(0.5, other.execute, "ROLLBACK")
        await store.commit(decision("yes"))
    assert await written(store) == ({"yes"}, 1, 1)
    store.close()


async def test_a_file_that_was_moved_away_is_noticed_and_used_again_when_it_is_back(sqlite_url: str) -> None:
    store = Store.open(sqlite_url)
    await store.commit(decision("before"))
    file = Path(sqlite_url.removeprefix("sqlite:///"))
    os.rename(file, file.with_name("away"))
    with pytest.raises(StoreUnavailable, match="removed or replaced"):
        await store.commit(decision("lost"))
    os.rename(file.with_name("away"), file)  # nothing was put in its place meanwhile
    await store.commit(decision("after"))
    assert await written(store) == ({"before", "after"}, 2, 2)
    store.close()


async def test_a_row_that_this_version_cannot_read_is_a_sentence(sqlite_url: str) -> None:
    store = Store.open(sqlite_url)
    with closing(sqlite3.connect(sqlite_url.removeprefix("sqlite:///"))) as other, other:
        other.execute(
            "INSERT INTO gpu_server_facts (user, server, offer, started, adopted, opened_known, keeps, cause)"
            " VALUES ('ada', '', 'gpu', '2027-03-01 00:00:00.000000', 0, 0, '[]', 'whim')"
        )
    with pytest.raises(StoreUnavailable, match=r"cannot read.*whim"):
        await store.load()
    store.close()


@pytest.mark.whole
@pytest.mark.needs("postgresql")
async def test_a_connection_that_was_cut_is_made_again(own_postgresql: Any, own_postgresql_url: str) -> None:
    store = Store.open(own_postgresql_url)
    await store.commit(decision("before"))
    with psycopg.connect(own_postgresql.url("postgres"), autocommit=True) as admin:
        admin.execute(
            "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE application_name = 'jupyterhub-gpu'"
        )
    await store.commit(decision("after"))
    assert await written(store) == ({"before", "after"}, 2, 2)
    store.close()


@pytest.mark.needs("postgresql")
async def test_a_postgresql_that_is_down_is_a_sentence_until_it_is_back(
    own_postgresql: Any, own_postgresql_url: str
) -> None:
    store = Store.open(own_postgresql_url)
    await store.commit(decision("before"))
    own_postgresql.stop()
    try:
        with pytest.raises(StoreUnavailable, match=r"PostgreSQL database '\w+' at 127\.0\.0\.1"):
            await store.commit(decision("lost"))
        assert store.state != "ok"
    finally:
        own_postgresql.start()
    await store.commit(decision("after"))
    assert await written(store) == ({"before", "after"}, 2, 2)
    assert store.state == "ok"
    store.close()


@pytest.mark.needs("postgresql")
async def test_a_cut_in_the_middle_of_a_decision_leaves_no_part_of_it(
    own_postgresql: Any, own_postgresql_url: str
) -> None:
    store = Store.open(own_postgresql_url)
    await store.commit(decision("before"))
    with psycopg.connect(own_postgresql_url) as other:
        other.execute("LOCK TABLE gpu_journal IN EXCLUSIVE MODE")  # the commit gets half-way and waits here
        commit = asyncio.ensure_future(store.commit(decision("lost")))
        with psycopg.connect(own_postgresql.url("postgres"), autocommit=True) as admin:
            cut = "SELECT pg_terminate_backend(pid, 5000) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
            await soon(lambda: admin.execute(cut).fetchone(), what="the commit waits")
        with pytest.raises(StoreUnavailable):
            await commit
        other.rollback()
    assert await written(store) == ({"before"}, 1, 1)
    store.close()


class LineThatIsCut:
    """Stands between us and PostgreSQL. Once `armed`, it ends the connection at the next COMMIT.

    `arrives`: the COMMIT still gets through, and only its answer is lost.
    """

    def __init__(self, port: int, *, arrives: bool) -> None:
        self.port, self.arrives = port, arrives
        self.armed = False
        self.cuts = 0
        self.open: set[asyncio.Task[None]] = set()

    def __call__(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        self.open.add(asyncio.ensure_future(self._connect(reader, writer)))

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        there, back = await asyncio.open_connection("127.0.0.1", self.port)
        answers = asyncio.ensure_future(self._pass(there, writer))
        while asked := await reader.read(65536):
            if self.armed and b"COMMIT" in asked:
                self.armed = False
                self.cuts += 1
                answers.cancel()
                await asyncio.gather(answers, return_exceptions=True)
                if self.arrives:
                    back.write(asked)
                    await there.read(1)  # it was done
                break
            back.write(asked)
        for end in (writer, back):
            end.close()
        await asyncio.gather(answers, writer.wait_closed(), back.wait_closed(), return_exceptions=True)

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        while answer := await reader.read(65536):
            writer.write(answer)


@pytest.mark.needs("postgresql")
@pytest.mark.parametrize("arrives", [True, False])
async def test_a_cut_at_the_commit_itself_is_answered_by_what_the_database_has(
    own_postgresql: Any, own_postgresql_url: str, arrives: bool
) -> None:
    line = LineThatIsCut(own_postgresql.port, arrives=arrives)
    relay = await asyncio.start_server(line, "127.0.0.1", 0)
    port = relay.sockets[0].getsockname()[1]
    store = await asyncio.to_thread(Store.open, own_postgresql_url.replace(f":{own_postgresql.port}/", f":{port}/"))
    await store.commit(decision("before"))
    line.armed = True
    if arrives:
        await store.commit(decision("cut"))
    else:
        with pytest.raises(StoreUnavailable):
            await store.commit(decision("cut"))
    assert line.cuts == 1
    names = {"before", "cut"} if arrives else {"before"}
    assert await written(store) == (names, len(names), len(names))
    await asyncio.to_thread(store.close)
    await asyncio.wait_for(asyncio.gather(*line.open), patient(10))
    relay.close()


async def _again_possible(store: Store) -> None:
    # the connection that met the full disk is closed; the next one has room
    try:
        await store.commit(decision("again"))
    except StoreUnavailable:
        await store.commit(decision("again"))
