"""Opening a database: what is made, what is copied, what is migrated, what is refused, and what the sentence says."""

from __future__ import annotations

import os
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from pathlib import Path

import pytest
import sqlalchemy as sa
from alembic.autogenerate import compare_metadata
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory

from hub_extensions.adapters.store import Changes, Store, StoreTooNew, StoreUnavailable
from hub_extensions.adapters.store.database import make_engine, network_file_system, parse_url
from hub_extensions.adapters.store.schema import METADATA
from hub_extensions.adapters.store.schema_steps import is_known, newest
from hub_extensions.adapters.store.schema_upgrade import COPIES, MIGRATIONS, VERSION_TABLE, copy_before, migrate

pytestmark = pytest.mark.slow

NEXT = '''
"""A step of tomorrow."""
import sqlalchemy as sa
from alembic import op
revision = "{here}"
down_revision = "{before}"
def upgrade():
    op.add_column("gpu_meta", sa.Column("note{here}", sa.Text))
    {more}
'''


def script() -> ScriptDirectory:
    config = Config()
    config.set_main_option("script_location", str(MIGRATIONS))
    return ScriptDirectory.from_config(config)


TODAY = script().get_current_head() or ""
NEXT_STEP, AFTER_NEXT = (f"{int(TODAY) + more:04}" for more in (1, 2))


def mode(file: Path) -> int:
    return file.stat().st_mode & 0o777


def file_of(url: str) -> Path:
    return Path(url.removeprefix("sqlite:///"))


def tomorrow(folder: Path, *steps: str, failing: bool = False) -> Path:
    """A copy of our steps with further ones after them."""
    migrations = folder / "migrations"
    shutil.copytree(MIGRATIONS, migrations)
    before = TODAY
    for here in steps:
        more = "raise RuntimeError('half-way')" if failing and here == steps[-1] else ""
        (migrations / "versions" / f"v{here}_next.py").write_text(NEXT.format(here=here, before=before, more=more))
        before = here
    return migrations


def test_the_steps_are_one_line_and_their_numbers_grow() -> None:
    assert len(script().get_heads()) == 1 and len(script().get_bases()) == 1
    numbers = [step.revision for step in script().walk_revisions()][::-1]
    first = int(numbers[0])
    assert numbers == [f"{number:04}" for number in range(first, first + len(numbers))]


@pytest.mark.parametrize("migrations", sorted(MIGRATIONS.parent.glob("*migrations")), ids=lambda folder: folder.name)
def test_the_names_of_the_files_are_the_steps_that_alembic_finds(migrations: Path) -> None:
    config = Config()
    config.set_main_option("script_location", str(migrations))
    steps = ScriptDirectory.from_config(config)
    assert newest(migrations) == steps.get_current_head()
    assert all(is_known(step.revision, migrations) for step in steps.walk_revisions())
    assert not is_known("0001", migrations)


def test_the_steps_lead_to_just_the_tables_that_the_code_uses(url: str) -> None:
    Store.open(url).close()
    engine = sa.create_engine(parse_url(url))
    with engine.connect() as connection:
        context = MigrationContext.configure(connection, opts={"version_table": VERSION_TABLE})
        assert compare_metadata(context, METADATA) == []
        assert all(name.startswith("gpu_") for name in sa.inspect(connection).get_table_names())
    engine.dispose()


def test_our_tables_stand_next_to_those_of_a_hub_in_one_database(url: str) -> None:
    engine = sa.create_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(sa.text("CREATE TABLE alembic_version (version_num VARCHAR(32) NOT NULL)"))
        connection.execute(sa.text("INSERT INTO alembic_version VALUES ('hub')"))
    Store.open(url).close()
    Store.open(url).close()
    with engine.connect() as connection:
        assert connection.scalar(sa.text("SELECT version_num FROM alembic_version")) == "hub"
        assert connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")) == TODAY
    engine.dispose()


def test_a_database_of_a_newer_version_is_refused_with_both_numbers(url: str) -> None:
    Store.open(url).close()
    engine = sa.create_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '0099'"))
    engine.dispose()
    with pytest.raises(StoreTooNew, match=rf"0099.*{TODAY}.*database_url") as refused:
        Store.open(url)
    assert (refused.value.found, refused.value.ours) == ("0099", TODAY)


def test_a_database_of_an_unknown_schema_is_refused(url: str) -> None:
    Store.open(url).close()
    engine = sa.create_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = 'abc'"))
    engine.dispose()
    with pytest.raises(StoreUnavailable, match=r"'abc'.*database_url"):
        Store.open(url)


def test_a_database_from_before_the_first_release_is_refused_and_left_alone(url: str) -> None:
    Store.open(url).close()
    engine = sa.create_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(sa.text(f"UPDATE {VERSION_TABLE} SET version_num = '0009'"))
    with pytest.raises(StoreUnavailable, match=rf"0009, of a version before the first release.*{TODAY}.*database_url"):
        Store.open(url)
    with engine.connect() as connection:
        assert connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")) == "0009"
    engine.dispose()


def test_todays_tables_without_a_version_are_recognised_and_stamped(url: str) -> None:
    Store.open(url).close()
    engine = sa.create_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(sa.text("INSERT INTO gpu_meta VALUES ('kept', 'yes')"))
        connection.execute(sa.text(f"DROP TABLE {VERSION_TABLE}"))
    Store.open(url).close()
    with engine.connect() as connection:
        assert connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")) == TODAY
        assert connection.scalar(sa.text("SELECT value FROM gpu_meta")) == "yes"
    engine.dispose()


@pytest.mark.whole
@pytest.mark.parametrize("stamped", [True, False])
@pytest.mark.parametrize(
    ("damage", "missing"),
    [
        ("DROP TABLE gpu_tickets", "gpu_tickets"),
        ("ALTER TABLE gpu_leases DROP COLUMN ends_at", r"gpu_leases\.ends_at"),
    ],
)
def test_a_damaged_database_is_refused_and_named(url: str, damage: str, missing: str, stamped: bool) -> None:
    Store.open(url).close()
    engine = sa.create_engine(parse_url(url))
    with engine.begin() as connection:
        connection.execute(sa.text(damage))
        if not stamped:
            connection.execute(sa.text(f"DROP TABLE {VERSION_TABLE}"))
    with pytest.raises(StoreUnavailable, match=rf"damaged: {missing} missing.*database_url"):
        Store.open(url)
    engine.dispose()


def test_a_step_that_fails_leaves_the_database_as_it_was(url: str, tmp_path: Path) -> None:
    Store.open(url).close()
    engine = make_engine(parse_url(url))
    with pytest.raises(RuntimeError, match="half-way"):
        migrate(engine, tomorrow(tmp_path, NEXT_STEP, AFTER_NEXT, failing=True))
    with engine.connect() as connection:
        columns = {column["name"] for column in sa.inspect(connection).get_columns("gpu_meta")}
        assert columns == {"name", "value"}
        assert connection.scalar(sa.text(f"SELECT version_num FROM {VERSION_TABLE}")) == TODAY
    engine.dispose()
    Store.open(url).close()


def test_a_copy_of_the_file_is_made_before_it_is_migrated(sqlite_url: str, tmp_path: Path) -> None:
    Store.open(sqlite_url).close()
    with closing(sqlite3.connect(file_of(sqlite_url))) as connection, connection:
        connection.execute("INSERT INTO gpu_meta VALUES ('kept', 'yes')")
    engine = make_engine(parse_url(sqlite_url))
    migrate(engine, tomorrow(tmp_path, NEXT_STEP))
    engine.dispose()
    copy = tmp_path / f"gpu.before-{NEXT_STEP}.sqlite"
    assert mode(copy) == 0o600
    with closing(sqlite3.connect(copy)) as connection:
        assert connection.execute("SELECT * FROM gpu_meta").fetchall() == [("kept", "yes")]
        assert connection.execute(f"SELECT * FROM {VERSION_TABLE}").fetchall() == [(TODAY,)]
    with closing(sqlite3.connect(file_of(sqlite_url))) as connection:
        assert connection.execute(f"SELECT * FROM {VERSION_TABLE}").fetchall() == [(NEXT_STEP,)]


def test_no_copy_is_made_of_a_new_file_nor_where_nothing_is_to_do(sqlite_url: str, tmp_path: Path) -> None:
    Store.open(sqlite_url).close()
    Store.open(sqlite_url).close()
    assert [each.name for each in tmp_path.iterdir()] == ["gpu.sqlite"]


def test_the_last_copies_are_kept_and_nothing_half_copied_is_left(sqlite_url: str, tmp_path: Path) -> None:
    Store.open(sqlite_url).close()
    for number in range(COPIES + 2):
        copy = copy_before(file_of(sqlite_url), f"{number:04}")
        os.utime(copy, (number, number))
    names = sorted(each.name for each in tmp_path.iterdir())
    assert names == ["gpu.before-0002.sqlite", "gpu.before-0003.sqlite", "gpu.before-0004.sqlite", "gpu.sqlite"]


def test_nobody_else_reads_the_file_or_what_stands_next_to_it(sqlite_url: str, tmp_path: Path) -> None:
    before = os.umask(0)
    try:
        store = Store.open(sqlite_url)
        found = {each.name: mode(each) for each in tmp_path.iterdir()}
        store.close()
        assert found == dict.fromkeys(("gpu.sqlite", "gpu.sqlite-wal", "gpu.sqlite-shm"), 0o600)
        file_of(sqlite_url).chmod(0o644)
        Store.open(sqlite_url).close()
        assert mode(file_of(sqlite_url)) == 0o600
    finally:
        os.umask(before)


def test_a_commit_is_on_the_disk_before_it_is_answered(sqlite_url: str) -> None:
    Store.open(sqlite_url).close()
    engine = make_engine(parse_url(sqlite_url))
    with engine.connect() as connection:
        assert connection.exec_driver_sql("PRAGMA journal_mode").scalar() == "wal"
        assert connection.exec_driver_sql("PRAGMA synchronous").scalar() == 2
    engine.dispose()


@pytest.mark.parametrize(
    ("url", "says"),
    [
        ("", "not the address"),
        ("gpu.sqlite", "not the address"),
        ("mysql://a:secret@b/c", "'mysql'"),
        ("postgresql://a:secret@host:port/c", "not the address"),
        ("sqlite:///x.sqlite?mode=ro", "more than the path"),
        ("sqlite://host/x.sqlite", "more than the path"),
        ("sqlite:////nowhere/at/all/x.sqlite", "does not exist"),
        ("sqlite:////proc/self", "cannot be"),
        ("postgresql://a:secret@127.0.0.1:1/c", "does not answer"),
    ],
)
def test_a_bad_address_is_a_sentence_that_names_the_setting_and_no_password(url: str, says: str) -> None:
    with pytest.raises(StoreUnavailable, match="database_url") as refused:
        Store.open(url)
    assert says in refused.value.message and "secret" not in refused.value.message


def test_a_file_that_is_no_database_is_refused_and_left_alone(tmp_path: Path) -> None:
    file = tmp_path / "notes.txt"
    file.write_text("not a database, but somebody's notes\n" * 100)
    with pytest.raises(StoreUnavailable, match=r"not an SQLite database.*database_url"):
        Store.open(f"sqlite:///{file}")
    assert file.read_text().startswith("not a database")


@pytest.mark.needs("postgresql")
def test_a_postgresql_database_that_is_not_there_is_named(postgresql_url: str) -> None:
    with pytest.raises(StoreUnavailable, match=r"'nothing' at 127\.0\.0\.1.*database_url"):
        Store.open(postgresql_url.rpartition("/")[0] + "/nothing")


@pytest.fixture
def plain_account() -> Iterator[None]:
    """Rights are looked at as those of an account without any."""
    if os.geteuid() != 0:
        yield
        return
    os.seteuid(65534)
    yield
    os.seteuid(0)


def test_a_folder_without_the_right_to_write_is_a_sentence(plain_account: None) -> None:
    folder = Path(tempfile.mkdtemp())
    folder.chmod(0o555)
    with pytest.raises(StoreUnavailable) as refused:
        Store.open(f"sqlite:///{folder}/gpu.sqlite")
    assert refused.value.message == f"The folder {folder} of database_url cannot be written to by this account."
    folder.rmdir()


def test_a_file_of_another_account_is_a_sentence(plain_account: None) -> None:
    folder = Path(tempfile.mkdtemp())
    file = folder / "gpu.sqlite"
    file.touch()
    file.chmod(0o400)
    with pytest.raises(StoreUnavailable, match=r"gpu\.sqlite of database_url cannot be opened: Permission denied"):
        Store.open(f"sqlite:///{file}")
    file.unlink()
    folder.rmdir()


MOUNTS = """\
22 1 254:0 / / rw,relatime shared:1 - ext4 /dev/vda1 rw
40 22 0:30 / /home rw,relatime shared:2 - nfs4 server:/home rw
41 40 0:31 / /home/local rw - xfs /dev/vdb rw
42 22 0:32 / /mnt/with\\040space rw - fuse.sshfs far:/ rw
43 22 0:33 / /mnt/fuse rw - fuse.mergerfs near rw
44 22 0:34 / /over rw - ext4 /dev/vdc rw
45 44 0:35 / /over rw - cifs //far/over rw
broken line
"""


@pytest.mark.parametrize(
    ("path", "kind"),
    [
        ("/var/lib/gpu.sqlite", None),
        ("/home/ada/gpu.sqlite", "nfs4"),
        ("/home/local/gpu.sqlite", None),
        ("/homes/gpu.sqlite", None),
        ("/mnt/with space/gpu.sqlite", "fuse.sshfs"),
        ("/mnt/fuse/gpu.sqlite", None),
        ("/over/gpu.sqlite", "cifs"),
    ],
)
def test_a_network_file_system_is_told_from_a_local_disk(path: str, kind: str | None) -> None:
    assert network_file_system(Path(path), MOUNTS.splitlines()) == kind


async def test_a_store_that_is_only_read_shows_what_is_there_and_takes_no_change(tmp_path: Path) -> None:
    file = tmp_path / "gpu.sqlite"
    url = f"sqlite:///{file}"
    store = Store.open(url)
    await store.commit(Changes(meta={"a": "1"}))
    for has_log in (True, False):
        if has_log:
            crashed = tmp_path / "crashed"
            crashed.mkdir()
            for end in ("", "-wal"):
                shutil.copy(f"{file}{end}", crashed / f"gpu.sqlite{end}")
        else:
            store.close()
            crashed = tmp_path
        before = sorted(each.name for each in crashed.iterdir())
        reading = Store.open_read_only(f"sqlite:///{crashed}/gpu.sqlite", "The disk is full.")
        assert (await reading.load()).meta == {"a": "1"} and reading.state == "The disk is full."
        for change in (reading.commit(Changes(meta={"a": "2"})), reading.forget_user("ada")):
            with pytest.raises(StoreUnavailable, match=r"^The disk is full\.$"):
                await change
        assert sorted(each.name for each in crashed.iterdir()) == before
        reading.close()
    (tmp_path / "gpu.sqlite").write_bytes(b"")
    with pytest.raises(StoreUnavailable, match="schema none"):
        Store.open_read_only(url, "The disk is full.")
