"""One service a database: the lock in PostgreSQL, with a real server."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Iterator

import psycopg
import pytest

from hub_extensions.adapters.store import Changes, DatabaseLock, Store, StoreUnavailable

MINE = Changes(meta={"mine": "here"})
Taking = Callable[[], DatabaseLock]


@pytest.fixture
def another(postgresql_url: str) -> Iterator[Taking]:
    made: list[DatabaseLock] = []

    def make() -> DatabaseLock:
        made.append(DatabaseLock(postgresql_url))
        return made[-1]

    yield make
    for lock in made:
        lock.close()


def cut(url: str, lock: DatabaseLock) -> None:
    """As an admin, a failover or a restart of the database does it."""
    with psycopg.connect(url.replace("+psycopg", ""), autocommit=True) as connection:
        connection.execute("select pg_terminate_backend(%s, 5000)", [lock._pid])


def test_only_a_database_that_other_machines_reach_needs_it() -> None:
    assert DatabaseLock.needed("postgresql://gpu@db/gpu")
    assert not DatabaseLock.needed("sqlite:////var/lib/gpu.sqlite")
    with pytest.raises(StoreUnavailable):
        DatabaseLock.needed("not an address")


@pytest.mark.needs("postgresql")
async def test_one_service_has_it_until_it_gives_it_back(another: Taking) -> None:
    first, second = another(), another()
    assert await first.take()
    assert not await second.take()
    assert not await second.take()
    assert await first.held() and not await second.held()
    first.close()
    assert await second.take() and await second.held()
    assert not await first.held()


@pytest.mark.needs("postgresql")
async def test_other_databases_of_the_server_have_locks_of_their_own(another: Taking, postgresql_server: str) -> None:
    elsewhere = DatabaseLock(postgresql_server)
    assert await another().take()
    assert await elsewhere.take()
    elsewhere.close()


@pytest.mark.needs("postgresql")
async def test_a_cut_connection_loses_it_and_nothing_is_written_any_more(another: Taking, postgresql_url: str) -> None:
    first = another()
    assert await first.take()
    store = Store.open(postgresql_url)
    store.guard = first.guard
    await store.commit(MINE)
    cut(postgresql_url, first)
    with pytest.raises(StoreUnavailable, match="lost its lock on the PostgreSQL database"):
        await store.commit(Changes(meta={"late": "here"}))
    assert set((await store.load()).meta) == {"mine"}
    assert not await first.held()
    assert not await first.held()
    assert await another().take()
    store.close()


@pytest.mark.needs("postgresql")
async def test_the_one_that_took_over_is_not_taken_for_the_first(another: Taking, postgresql_url: str) -> None:
    first, second = another(), another()
    assert await first.take()
    cut(postgresql_url, first)
    assert await second.take()
    store = Store.open(postgresql_url)
    store.guard = first.guard
    with pytest.raises(StoreUnavailable):
        await store.commit(MINE)
    store.guard = second.guard
    await store.commit(MINE)
    store.close()


@pytest.mark.needs("postgresql")
async def test_a_database_that_ends_idle_transactions_leaves_it(another: Taking, postgresql_url: str) -> None:
    plain = postgresql_url.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as connection:
        name = connection.info.dbname
        connection.execute(f"alter database {name} set idle_in_transaction_session_timeout = '100ms'")
        connection.execute(f"alter database {name} set default_transaction_isolation = 'repeatable read'")
        lock = another()
        assert await lock.take()
        holds_up = "select count(*) from pg_stat_activity where pid = %s and backend_xmin is not null"
        assert connection.execute(holds_up, [lock._pid]).fetchone() == (0,)
        for _ in range(4):
            await asyncio.to_thread(connection.execute, "select pg_sleep(0.1)")
        assert await lock.held()


async def test_a_database_that_is_not_there_is_a_sentence_without_the_password() -> None:
    lock = DatabaseLock("postgresql://gpu:word-of-the-database@127.0.0.1:9/gpu")
    with pytest.raises(StoreUnavailable, match="does not answer") as refused:
        await lock.take()
    assert "word-of-the-database" not in str(refused.value)
    assert not await lock.held()
    lock.close()
