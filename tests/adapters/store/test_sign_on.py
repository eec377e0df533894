"""Sign-on sessions in the hub's own database, SQLite and PostgreSQL: beside JupyterHub's tables, and none of them."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from jupyterhub import orm

from hub_extensions.adapters.store import sign_on_provider  # noqa: F401  has tables too
from hub_extensions.adapters.store.sign_on import (
    METADATA,
    VERSION_TABLE,
    PendingStop,
    SignOnStore,
    SignOnTablesUnusable,
    forget,
    migrate,
)
from hub_extensions.core.sign_on import SignOnEvent, SignOnSession
from hub_extensions.tools.cli import main
from tests.patience import patient

pytestmark = pytest.mark.programs  # JupyterHub starts one while it is imported

NOW = datetime(2026, 11, 24, 12, 0, 1, 250_000, tzinfo=timezone.utc)
ADA = SignOnSession("s1", "hash-1", "hub-1", 1, "Firefox on Linux", "192.0.2.0/24", NOW, NOW)


@pytest.fixture
def hub_url(url: str) -> str:
    """A new database of each kind, as an admin names it to the hub."""
    return url.replace("postgresql://", "postgresql+psycopg://")


@pytest.fixture
def db(hub_url: str) -> Iterator[Any]:
    """A database session as the hub opens one."""
    session = orm.new_session_factory(hub_url)()
    for name in ("ada", "root-admin"):
        session.add(orm.User(name=name))
    session.commit()
    yield session
    session.close()
    session.get_bind().dispose()


def test_a_statement_that_fails_does_not_tell_its_values(db: Any) -> None:
    SignOnStore.opened(db)
    with pytest.raises(sa.exc.DBAPIError) as failed:
        db.execute(sa.text("insert into nothing_there values (:code)"), {"code": "a-code-of-a-login"})
    db.rollback()
    assert "nothing_there" in str(failed.value)
    assert "a-code-of-a-login" not in str(failed.value)


@pytest.mark.parametrize("kind", ["mysql", "oracle"])
def test_a_database_of_another_kind_is_refused_in_words_before_anything_is_made_in_it(kind: str) -> None:
    asked: list[object] = []
    engine: Any = sa.create_mock_engine(f"{kind}://", asked.append)
    with pytest.raises(SignOnTablesUnusable, match=f"SQLite or PostgreSQL.*{kind}"):
        migrate(engine)
    assert asked == []


def test_sessions_stops_and_events_come_back_as_they_were(db: Any) -> None:
    store = SignOnStore.opened(db)
    ended = replace(ADA, id="s2", token_hash="hash-2", ended=NOW, cause="by-admin", by="root-admin")
    stop = PendingStop(1, "train", NOW - timedelta(hours=1), NOW)
    events = [SignOnEvent(NOW - timedelta(minutes=number), "ended", "ada", tokens=number) for number in range(3)]
    with store.transaction():
        store.put([ADA, ended])
        store.order_stops([stop, replace(stop, server="", started=None, at=NOW + timedelta(minutes=10))])
        for event in events:
            store.record(event)
    again = SignOnStore.opened(db)
    assert sorted(again.sessions(), key=lambda each: each.id) == [ADA, ended]
    assert again.stops()[0] == stop
    assert again.events(None, 2) == events[:2]
    assert again.events("ben", 9) == []
    with again.transaction():
        again.note_uses({"s1": NOW + timedelta(minutes=5), "nobody": NOW})
        again.forget_ended(NOW + timedelta(seconds=1))
        again.remove_stop(stop)
    assert again.sessions() == [replace(ADA, last_use=NOW + timedelta(minutes=5))]
    assert [each.server for each in again.stops()] == [""]


def test_old_lines_go_and_a_deleted_users_lose_the_name(db: Any) -> None:
    store = SignOnStore.opened(db)
    with store.transaction():
        store.record(SignOnEvent(NOW - timedelta(days=91), "signed-in", "ada"))
        store.record(SignOnEvent(NOW, "ended", "gone", by="gone-admin", cause="by-admin"))
        store.record(SignOnEvent(NOW, "ended", "ada", by="root-admin", cause="by-admin"))
        store.clean_events(NOW - timedelta(days=90))
    assert {(each.user, each.by) for each in store.events(None, 9)} == {(None, ""), ("ada", "root-admin")}


def test_what_fails_half_way_is_not_there_and_neither_is_what_the_hub_had_not_committed(db: Any) -> None:
    store = SignOnStore.opened(db)
    ada = db.query(orm.User).filter_by(name="ada").one()
    cookie = ada.cookie_id
    with pytest.raises(sa.exc.IntegrityError), store.transaction():
        ada.cookie_id = "another"
        store.put([ADA])
        store.put([replace(ADA, id="s2")])  # the hash of a cookie is of one session
    assert store.sessions() == []
    assert db.query(orm.User).filter_by(name="ada").one().cookie_id == cookie


def test_tables_that_were_made_half_way_are_finished_and_those_of_a_later_version_are_refused(db: Any) -> None:
    engine = db.get_bind()
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE gpu_signon_stops"))
        connection.execute(sa.text(f"DELETE FROM {VERSION_TABLE}"))
    SignOnStore.opened(db)
    assert set(METADATA.tables) <= set(sa.inspect(engine).get_table_names())
    for version, age in (("0099", "a later version"), ("0003", "before the first release")):
        with engine.begin() as connection:
            connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '{version}'"))
        with pytest.raises(SignOnTablesUnusable, match=f"{version}, of {age}.*sign-on drop-tables"):
            migrate(engine)


def test_sign_on_tables_that_lack_a_column_are_refused_and_named(db: Any) -> None:
    engine = db.get_bind()
    migrate(engine)
    with engine.begin() as connection:
        connection.execute(sa.text("ALTER TABLE gpu_signon_stops DROP COLUMN cause"))
    with pytest.raises(SignOnTablesUnusable, match=r"damaged: gpu_signon_stops\.cause missing"):
        migrate(engine)


@pytest.mark.whole
def test_jupyterhubs_own_upgrade_goes_on_to_work_before_and_after(tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'jupyterhub.sqlite'}"

    def upgrade() -> str:
        command = [sys.executable, "-m", "jupyterhub", "upgrade-db", f"--JupyterHub.db_url={url}"]
        done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=patient(60), check=False)
        assert done.returncode == 0, done.stderr
        return done.stderr

    session = orm.new_session_factory(url)()
    upgrade()
    store = SignOnStore.opened(session)
    with store.transaction():
        store.put([ADA])
    upgrade()
    orm.check_db_revision(session.get_bind())
    assert SignOnStore.opened(session).sessions() == [ADA]
    session.close()


def test_forgetting_drops_our_tables_and_nothing_else(db: Any, hub_url: str, tmp_path: Path) -> None:
    SignOnStore.opened(db)
    before = set(sa.inspect(db.get_bind()).get_table_names())
    cookies = {user.name: user.cookie_id for user in db.query(orm.User)}
    db.commit()
    gone = forget(hub_url)
    renewed = {user.name: user.cookie_id for user in db.query(orm.User)}
    assert renewed.keys() == cookies.keys()
    assert not set(renewed.values()) & set(cookies.values()), "a cookie of an ended session goes on nowhere"
    db.commit()
    assert set(gone) == {*METADATA.tables, VERSION_TABLE}
    assert set(sa.inspect(db.get_bind()).get_table_names()) == before - set(gone)
    again = CliRunner().invoke(main, ["sign-on", "drop-tables", "--database-url", hub_url], catch_exceptions=False)
    assert (again.exit_code, again.output) == (0, "There are no tables of sign-on sessions in it.\n")
    nowhere = tmp_path / "nowhere.sqlite"
    none = CliRunner().invoke(main, ["sign-on", "drop-tables", "--database-url", f"sqlite:///{nowhere}"])
    assert (none.exit_code, none.output) == (1, f"Nothing was dropped: there is no file {nowhere}.\n")
    assert not nowhere.exists()
    with pytest.raises(ValueError, match="cannot be reached") as refused:
        forget("postgresql+psycopg://ada:secret@127.0.0.1:1/hub")
    assert "secret" not in str(refused.value)
