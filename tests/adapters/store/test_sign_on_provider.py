"""Pins, links and logout tokens in a hub's database."""

from __future__ import annotations

import hashlib
from collections.abc import Iterator
from dataclasses import replace
from datetime import datetime, timedelta, timezone
from functools import partial
from pathlib import Path

import pytest
import sqlalchemy as sa
from click.testing import CliRunner
from sqlalchemy.exc import IntegrityError
from sqlalchemy.orm import Session

from hub_extensions.adapters.store.sign_on import METADATA, MIGRATIONS, VERSION_TABLE, SignOnStore, forget, migrate
from hub_extensions.adapters.store.sign_on_provider import PinTable, ProviderStore
from hub_extensions.core.sign_on import SignOnEvent
from hub_extensions.core.sign_on.identity import Identity
from hub_extensions.core.sign_on.recheck import ProviderLink
from hub_extensions.tools.cli import main
from tests.adapters.store.filled_store import run_steps_to

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 20, 12, tzinfo=timezone.utc)
ADA = Identity("https://login.site.example", "u-1")
LINK = ProviderLink("s1", 1, ADA.iss, ADA.sub, "sid-1", b"\x00kept\xff", NOW)


@pytest.fixture
def db(tmp_path: Path) -> Iterator[Session]:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'hub.sqlite'}")
    migrate(engine)
    with engine.begin() as connection:  # as the hub has it
        connection.execute(sa.text("create table users (id integer primary key, name text unique, created datetime)"))
    with Session(engine) as session:
        yield session
    engine.dispose()


def test_the_migrations_make_what_the_code_knows(db: Session) -> None:
    inspector = sa.inspect(db.get_bind())
    for name, table in METADATA.tables.items():
        assert {each["name"] for each in inspector.get_columns(name)} == set(table.columns.keys()), name


def test_a_person_is_one_user_and_a_user_is_one_person(db: Session) -> None:
    store = ProviderStore(db)
    store.pin(ADA, "ada", NOW)
    db.commit()
    for identity, user in ((ADA, "eve"), (Identity(ADA.iss, "u-2"), "ada")):
        with pytest.raises(IntegrityError):
            store.pin(identity, user, NOW)
        db.rollback()
    assert store.pins_of(ADA, "ben") == store.pins_of(Identity(ADA.iss, "u-2"), "ada") == {ADA: "ada"}
    assert store.pins_of(Identity(ADA.iss, "u-2"), "ben") == {}


BEN = Identity(ADA.iss, "u-2")


@pytest.mark.parametrize(
    ("changes", "pins"),
    [
        (["update users set name = 'gil' where id = 1"], {"gil": ADA, "ben": BEN}),
        # a deleted user's pin outlives it, and no later account with its number gets it
        (
            ["delete from users where id = 1", "insert into users values (1, 'eve', '2026-11-21 00:00:00.000000')"],
            {"ada": ADA, "ben": BEN},
        ),
        # two names change places
        (
            [f"update users set name = '{name}' where id = {id}" for id, name in ((1, ""), (2, "ada"), (1, "ben"))],
            {"ben": ADA, "ada": BEN},
        ),
        # a name whose account is gone is another account's now
        (["delete from users where id = 2", "update users set name = 'ben' where id = 1"], {"ben": ADA}),
    ],
)
def test_a_pin_is_an_accounts_and_follows_it_to_its_new_name(
    db: Session, tmp_path: Path, changes: list[str], pins: dict[str, Identity]
) -> None:
    store = ProviderStore(db)
    for number, (user, identity) in enumerate({"ada": ADA, "ben": BEN}.items(), 1):
        store.pin(identity, user, NOW)
        values = {"id": number, "name": user}
        db.execute(sa.text("insert into users values (:id, :name, '2026-11-20 00:00:00.000000')"), values)
        store.note_user(user)
    for change in changes:
        db.execute(sa.text(change))
    db.commit()
    assert dict(PinTable(f"sqlite:///{tmp_path / 'hub.sqlite'}").all()) == pins
    for user, identity in pins.items():
        assert store.pins_of(identity, user) == {identity: user}


@pytest.mark.parametrize(
    ("created", "follows"),
    [
        ("2026-11-19 00:00:00.000000", True),
        ("2026-11-20 12:00:59.000000", True),
        ("2026-11-20 12:01:01.000000", False),
        (None, False),
    ],
    ids=["it was there", "made by that sign-in", "made later", "not known when"],
)
def test_a_pin_from_before_accounts_were_noted_follows_the_account_that_had_its_name(
    db: Session, created: str | None, follows: bool
) -> None:
    store = ProviderStore(db)
    store.pin(ADA, "ada", NOW)
    store.pin(BEN, "ben", NOW)  # whose name is no user's
    db.execute(sa.text("insert into users values (1, 'ada', :created)"), {"created": created})
    store.note_users()
    db.execute(sa.text("update users set name = 'gil'"))
    store.follow_users()
    assert store.pins_of(ADA, "") == {ADA: "gil" if follows else "ada"}
    assert store.pins_of(BEN, "") == {BEN: "ben"}


def test_an_account_that_has_a_pin_and_got_the_name_of_an_older_one_is_not_given_that_too(db: Session) -> None:
    store = ProviderStore(db)
    store.pin(ADA, "ada", NOW)  # whose account is gone
    db.execute(sa.text("insert into users values (1, 'xeno', '2026-11-19 00:00:00.000000')"))
    store.pin(BEN, "xeno", NOW)
    store.note_users()
    db.execute(sa.text("update users set name = 'ada'"))
    store.note_users()
    db.execute(sa.text("update users set name = 'xeno'"))
    store.follow_users()
    assert (store.pins_of(BEN, ""), store.pins_of(ADA, "")) == ({BEN: "xeno"}, {})


def test_an_admin_gives_a_name_to_somebody_else(db: Session, tmp_path: Path) -> None:
    ProviderStore(db).pin(ADA, "ada", NOW)
    db.commit()
    pins = PinTable(f"sqlite:///{tmp_path / 'hub.sqlite'}")
    other = Identity(ADA.iss, "u-2")
    pins.pin("ada", other, NOW)
    assert pins.all() == [("ada", other)]
    assert pins.unpin("ada")
    assert not pins.unpin("ada")
    command = partial(CliRunner().invoke, main, catch_exceptions=False)
    where = ["--database-url", f"sqlite:///{tmp_path / 'hub.sqlite'}"]
    assert command(["sign-on", "pin", "ada", "u-3", "--issuer", ADA.iss, *where]).exit_code == 0
    assert command(["sign-on", "list", *where]).output == f"ada\tu-3\t{ADA.iss}\n"
    assert "nobody's now" in command(["sign-on", "unpin", "ada", *where]).output
    nowhere = command(["sign-on", "list", "--database-url", f"sqlite:///{tmp_path / 'none.sqlite'}"])
    assert (nowhere.exit_code, "there is no file" in nowhere.output) == (1, True)
    for url in (f"sqlite:///{tmp_path / 'none.sqlite'}", "nothing://secret@host"):
        with pytest.raises(ValueError, match=r"^(?!.*secret)"):
            PinTable(url)


def test_names_with_which_other_accounts_came_are_told_until_they_are_pinned_anew(db: Session) -> None:
    store, events = ProviderStore(db), SignOnStore(db)
    store.pin(ADA, "ada", NOW)
    store.pin(BEN, "ben", NOW + timedelta(hours=2))
    for minutes, name in ((-5, "ada"), (5, "ada"), (9, "ada"), (60, "ben"), (7, "nobody")):
        events.record(SignOnEvent(NOW + timedelta(minutes=minutes), "name-taken", name))
    events.record(SignOnEvent(NOW + timedelta(hours=3), "signed-in", "ben"))
    assert store.taken_names(9) == [("ada", NOW + timedelta(minutes=9))]
    assert store.taken_names(0) == []


@pytest.mark.parametrize("killed", [False, True], ids=["at once", "after the first column"])
def test_renamed_columns_keep_their_values(tmp_path: Path, killed: bool) -> None:
    engine = sa.create_engine(f"sqlite:///{tmp_path / 'hub.sqlite'}")
    run_steps_to(engine, MIGRATIONS, "0005")
    moment = "2026-11-20 12:00:00.000000"
    with engine.begin() as connection:
        row = ("s1", 1, ADA.iss, ADA.sub, "sid-1", LINK.encrypted_tokens, moment)
        connection.exec_driver_sql("INSERT INTO gpu_signon_links VALUES (?, ?, ?, ?, ?, ?, ?)", row)
        known = hashlib.sha256(f"{ADA.iss}\njti-1".encode()).hexdigest()
        connection.exec_driver_sql("INSERT INTO gpu_signon_logouts (id, until) VALUES (?, ?)", (known, moment))
        if killed:
            connection.exec_driver_sql("ALTER TABLE gpu_signon_links RENAME COLUMN kept TO encrypted_tokens")
    migrate(engine)
    with Session(engine) as session:
        store = ProviderStore(session)
        assert store.links() == [replace(LINK, encrypted_tokens=None)]
        assert store.encrypted_tokens_of("s1") == LINK.encrypted_tokens
        assert not store.note_logout(ADA.iss, "jti-1", NOW), "the logout token was used before the migration"
    engine.dispose()


def test_links_come_back_as_they_were_written(db: Session) -> None:
    store = ProviderStore(db)
    store.put_links([LINK, replace(LINK, session="s2", checked=None)])
    store.put_links([replace(LINK, encrypted_tokens=b"new")])
    later = NOW + timedelta(minutes=5)
    store.put_links([replace(LINK, encrypted_tokens=None, checked=later)])
    db.commit()
    assert sorted(store.links(), key=lambda each: each.session) == [
        replace(LINK, encrypted_tokens=None, checked=later),
        replace(LINK, session="s2", encrypted_tokens=None, checked=None),
    ], "tokens are not read into memory"
    assert [store.encrypted_tokens_of(each) for each in ("s1", "s2", "unknown")] == [b"new", LINK.encrypted_tokens, b""]
    store.remove_links(["s1", "unknown"])
    assert [each.session for each in store.links()] == ["s2"]


def test_a_logout_token_is_taken_once_until_it_is_too_old_to_come_again(db: Session) -> None:
    store = ProviderStore(db)
    assert store.note_logout(ADA.iss, "j-1", NOW)
    assert not store.note_logout(ADA.iss, "j-1", NOW)
    assert store.note_logout("https://another.example", "j-1", NOW)
    store.forget_logouts(NOW + timedelta(seconds=1))
    assert store.note_logout(ADA.iss, "j-1", NOW)


def test_what_is_not_committed_was_never_there(db: Session) -> None:
    store = ProviderStore(db)
    store.note_logout(ADA.iss, "j-1", NOW)
    store.put_links([LINK])
    db.rollback()
    assert store.links() == []
    assert store.note_logout(ADA.iss, "j-1", NOW)


def test_forgetting_drops_these_tables_too(db: Session, tmp_path: Path) -> None:
    db.close()
    assert set(forget(f"sqlite:///{tmp_path / 'hub.sqlite'}")) == {*METADATA.tables, VERSION_TABLE}
