"""Never two services on one PostgreSQL database, also where they share no file: real processes, as two pods are."""

from __future__ import annotations

import subprocess
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

import psycopg
import pytest

from tests.hub_service.test_process import Place
from tests.patience import patient, until

pytestmark = pytest.mark.needs("postgresql")


@pytest.fixture
def pods(tmp_path: Path, postgresql_url: str) -> Iterator[tuple[Place, Place]]:
    """Two machines: a folder and a port each, one database."""
    made = []
    for name in ("one", "two"):
        folder = tmp_path / name
        folder.mkdir()
        place = Place(folder)
        place.settings = replace(place.settings, database_url=postgresql_url)
        place.settings.dump(place.config)
        made.append(place)
    yield made[0], made[1]
    for place in made:
        for process in place.started:
            process.kill()
            process.wait(patient(10))
            if process.stdout is not None:
                process.stdout.close()


def cut(url: str) -> None:
    """End the connection that holds the lock, as a database that is restarted or fails over does it."""
    plain = url.replace("+psycopg", "")
    with psycopg.connect(plain, autocommit=True) as connection:
        rows = connection.execute(
            "select pg_terminate_backend(l.pid) from pg_locks l join pg_database d on d.oid = l.database "
            "where l.locktype = 'advisory' and l.granted and d.datname = current_database()"
        ).fetchall()
    assert len(rows) == 1


@pytest.mark.whole
def test_the_second_waits_says_so_once_and_takes_over(pods: tuple[Place, Place]) -> None:
    one, two = pods
    first = one.start("log")
    until(one.answers, 30, "the first answers")
    second = two.start("log")
    until(lambda: two.said("log", "another GPU service has it"), 30, "the second says that it waits")
    with pytest.raises(subprocess.TimeoutExpired):
        second.wait(2)
    assert not two.answers()
    first.kill()
    first.wait(patient(30))
    until(two.answers, 60, "the second answers")
    assert len(two.said("log", "another GPU service has it")) == 1


@pytest.mark.whole
def test_one_that_loses_the_lock_begins_anew_and_one_of_both_goes_on(
    pods: tuple[Place, Place], postgresql_url: str
) -> None:
    one, two = pods
    first = one.start_patient("log")
    until(one.answers, 30, "the first answers")
    second = two.start("log")
    until(lambda: two.said("log", "another GPU service has it"), 30, "the second waits")
    cut(postgresql_url)
    until(lambda: one.said("log", "ended with status 69"), 30, "the first ends, and is started again")
    assert len(one.said("log", "is lost, so another GPU service may have it")) == 1
    until(lambda: one.answers() != two.answers(), 60, "one of them answers")
    assert (first.poll(), second.poll()) == (None, None)


@pytest.mark.whole
def test_one_that_waits_for_the_database_still_stops_on_a_signal(pods: tuple[Place, Place]) -> None:
    one, two = pods
    one.start("log")
    until(one.answers, 30, "the first answers")
    second = two.start_patient("log")
    until(lambda: two.said("log", "another GPU service has it"), 30, "the second waits")
    second.terminate()
    assert second.wait(patient(30)) == 0
    assert one.answers()
