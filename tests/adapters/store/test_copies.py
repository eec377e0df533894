"""A damaged file is found before anything is read of it, copies are made while it is in use, and one is put back."""

from __future__ import annotations

import random
import sqlite3
from contextlib import closing
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from types import SimpleNamespace

import pytest

from hub_extensions.adapters.store import Changes, JournalRow, Store, StoreUnavailable
from hub_extensions.adapters.store.copies import (
    DAILY_COPIES,
    copies,
    copy_of_today,
    damage,
    empty_beside_older,
    put_back,
    sqlite_file,
)
from hub_extensions.core.usage import Minute

pytestmark = pytest.mark.slow

NOW = datetime(2026, 11, 23, 12, 0, tzinfo=timezone.utc)
PAGE = 4096


async def filled(url: str, rows: int = 400) -> Path:
    """A store with a year's small history in it."""
    store = Store.open(url)
    journal = tuple(JournalRow(NOW, "joined", f"t{n}", "", f"user{n}", "", "x" * 200) for n in range(rows))
    await store.commit(Changes(journal=journal))
    store.close()
    return Path(url.removeprefix("sqlite:///"))


def overwrite(file: Path, at: int, length: int, seed: int = 0) -> None:
    with file.open("r+b") as opened:
        opened.seek(at)
        opened.write(random.Random(seed).randbytes(length))


@pytest.mark.slow
async def test_every_damaged_page_is_refused_at_the_start_by_name_with_the_way_out(
    sqlite_url: str, tmp_path: Path
) -> None:
    file = await filled(sqlite_url)
    whole = file.read_bytes()
    opened = []
    for page in range(len(whole) // PAGE):
        file.write_bytes(whole)
        overwrite(file, page * PAGE, PAGE, page)
        try:
            Store.open(sqlite_url).close()
            opened.append(page)
        except StoreUnavailable as refused:
            assert str(file) in refused.message and "damaged" in refused.message
            assert refused.message.endswith("jupyterhub-gpu store restore --state-dir DIR.")
    assert opened == []
    assert len(whole) // PAGE > 20


async def test_a_whole_file_is_whole_and_a_lock_is_no_damage(sqlite_url: str) -> None:
    file = await filled(sqlite_url)
    assert damage(file) == ""
    with closing(sqlite3.connect(file)) as other:
        other.execute("BEGIN IMMEDIATE")
        assert damage(file) == ""
    file.chmod(0)
    if not _can_read(file):
        with pytest.raises(sqlite3.OperationalError):
            damage(file)


def _can_read(file: Path) -> bool:
    try:
        file.read_bytes()
    except PermissionError:
        return False
    return True


async def test_a_copy_is_made_once_a_day_while_the_store_is_in_use_and_a_bounded_number_is_kept(
    sqlite_url: str, tmp_path: Path
) -> None:
    file = await filled(sqlite_url)
    folder = tmp_path / "state"
    folder.mkdir()
    store = Store.open(sqlite_url)
    try:
        for day in range(DAILY_COPIES + 3):
            today = NOW.date() + timedelta(days=day)
            made = await store.copy_of_today(folder, today)
            assert made is not None and made.stat().st_mode & 0o777 == 0o600 and damage(made) == ""
            assert await store.copy_of_today(folder, today) is None, "once a day"
    finally:
        store.close()
    names = sorted(each.name for each in folder.iterdir())
    days = [NOW.date() + timedelta(days=day) for day in range(3, DAILY_COPIES + 3)]
    assert names == [f"gpu.copy-{day.isoformat()}.sqlite" for day in days]
    assert copies(file, folder)[0].name == names[-1]


async def test_a_damaged_store_pushes_out_no_older_copy(sqlite_url: str, tmp_path: Path) -> None:
    file = await filled(sqlite_url)
    for day in range(1, DAILY_COPIES + 1):
        copy_of_today(file, tmp_path, date(2026, 11, day))
    before = copies(file, tmp_path)
    overwrite(file, 3 * PAGE, PAGE)
    with pytest.raises(StoreUnavailable, match="is damaged"):
        copy_of_today(file, tmp_path, date(2026, 11, 23))
    assert copies(file, tmp_path) == before


async def test_a_store_in_memory_or_in_postgresql_is_not_copied(tmp_path: Path) -> None:
    store = Store.open("sqlite://")
    assert await store.copy_of_today(tmp_path, NOW.date()) is None
    store.close()
    assert sqlite_file("postgresql://a@b/c") is None and sqlite_file("sqlite://") is None


async def test_a_copy_is_put_back_and_what_was_there_is_kept(sqlite_url: str, tmp_path: Path) -> None:
    file = await filled(sqlite_url)
    copy = copy_of_today(file, tmp_path, NOW.date())
    assert copy is not None
    overwrite(file, 0, 5 * PAGE)
    damaged = file.read_bytes()
    file.with_name("gpu.sqlite-wal").write_bytes(b"of the damaged one")
    aside = put_back(copy, file, NOW)
    assert aside is not None and aside.read_bytes() == damaged
    assert file.stat().st_mode & 0o777 == 0o600
    store = Store.open(sqlite_url)
    assert len(await store.journal(1000)) == 400
    store.close()
    overwrite(copy, 3 * PAGE, PAGE)
    with pytest.raises(StoreUnavailable, match="is damaged"):
        put_back(copy, file, NOW)
    assert damage(file) == ""


@pytest.mark.parametrize("how", ["gone", "emptied"])
async def test_an_empty_file_beside_an_older_state_is_told(sqlite_url: str, tmp_path: Path, how: str) -> None:
    file = tmp_path / "gpu.sqlite"
    assert empty_beside_older(file, tmp_path) == "", "a first start"
    await filled(sqlite_url)
    copy_of_today(file, tmp_path, NOW.date())
    assert empty_beside_older(file, tmp_path) == ""
    file.unlink() if how == "gone" else file.write_bytes(b"")
    shown = empty_beside_older(file, tmp_path)
    assert str(file) in shown and "gpu.copy-2026-11-23.sqlite" in shown and "store restore" in shown


def tables(file: Path) -> dict[str, list[tuple[object, ...]]]:
    with closing(sqlite3.connect(file)) as opened:
        made = opened.execute("SELECT type, name, sql FROM sqlite_master WHERE sql NOT NULL ORDER BY name").fetchall()
        rows = {name: opened.execute(f"SELECT * FROM {name}").fetchall() for kind, name, _ in made if kind == "table"}
    return {**rows, "sqlite_master": made}


async def test_a_days_copy_has_all_but_what_was_measured_by_the_minute(sqlite_url: str, tmp_path: Path) -> None:
    file = await filled(sqlite_url)
    store = Store.open(sqlite_url)
    minutes = [Minute("l1", NOW + n * timedelta(minutes=1), "GPU-1", "nvml", 1.0, 2.0, 3, 60.0) for n in range(500)]
    await store.commit(Changes(samples=tuple(minutes)))
    copy = await store.copy_of_today(tmp_path, NOW.date())
    store.close()
    assert copy is not None and damage(copy) == "" and not copy.with_name(f"{copy.name}-journal").exists()
    all_of_it, copied = tables(file), tables(copy)
    assert len(all_of_it.pop("gpu_samples")) == 500 and copied.pop("gpu_samples") == []
    assert copied == all_of_it
    assert put_back(copy, file, NOW) is not None
    store = Store.open(sqlite_url)
    assert len(await store.journal(1000)) == 400 and await store.samples("l1", NOW) == ()
    store.close()


async def test_on_a_volume_that_is_nearly_full_two_copies_are_kept(
    sqlite_url: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """With seven whole copies beside it a store filled the hub's own volume in three weeks."""
    file = await filled(sqlite_url)
    free = [10**9]
    monkeypatch.setattr(
        "hub_extensions.adapters.store.copies.shutil.disk_usage", lambda _: SimpleNamespace(free=free[0], total=10**9)
    )
    for day in range(1, 5):
        copy_of_today(file, tmp_path, date(2026, 11, day))
    free[:] = [10**7]
    with closing(sqlite3.connect(file)) as other:
        other.execute("ANALYZE")
    made = copy_of_today(file, tmp_path, date(2026, 11, 5))
    assert made is not None and damage(made) == "", "what SQLite made for itself is left out"
    assert [each.name[-9:-7] for each in reversed(copies(file, tmp_path))] == ["04", "05"]


@pytest.mark.parametrize(
    ("free", "total", "full"),
    [(90, 1000, True), (110, 1000, False), (1000, 10**6, True), (1100, 10**6, False), (None, 0, False)],
)
async def test_minutes_are_not_kept_while_the_volume_is_nearly_full(
    sqlite_url: str, monkeypatch: pytest.MonkeyPatch, free: int | None, total: int, full: bool
) -> None:
    def space(_: Path) -> SimpleNamespace:
        if free is None:
            raise OSError
        return SimpleNamespace(free=free * 2**20, total=total * 2**20)

    store = Store.open(sqlite_url)
    monkeypatch.setattr("hub_extensions.adapters.store.copies.shutil.disk_usage", space)
    row = JournalRow(NOW, "joined", "t1", "", "ada", "", "")
    await store.commit(Changes(journal=(row,), samples=(Minute("l1", NOW, "GPU-1", "nvml", 1.0, 1.0, 1, 60.0),)))
    assert len(await store.journal()) == 1 and len(await store.samples("l1", NOW)) == (0 if full else 1)
    assert store.nearly_full is full and store.state == "ok", "nobody waits for it"
    store.close()
