"""Daily copies of an SQLite store, the check whether its file is damaged, and the restoring of a copy.

Everything works on files, so that administrators can use it while no service runs. For PostgreSQL, use its own tools.
"""

from __future__ import annotations

import contextlib
import errno
import os
import shutil
import sqlite3
from collections.abc import Collection
from contextlib import closing
from datetime import date, datetime
from pathlib import Path
from urllib.parse import quote

from hub_extensions.adapters.store.database import parse_url
from hub_extensions.adapters.store.errors import WAY_OUT, StoreUnavailable
from hub_extensions.core.text.wording import foreign

DAILY_COPIES = 7  # days whose copies are kept
LEFT_OUT = frozenset({"gpu_samples"})
"""Tables that are empty in a daily copy. Samples (measurements of GPUs by the minute) are nine tenths of a busy store,
and a restart does not need them.
"""
NEARLY_FULL = 0.1
"""If less than this part of the volume is free (or less than a GiB of a large volume), samples are not stored, so that
hub and service can still write what they need.
"""
ROOM = 256 * 1024  # bytes that a store must be able to write when it is opened: its log and the log's index
MIB = 2**20
BESIDE = ("", "-wal", "-shm")
# SQLite's messages that do not mean damaged contents
_NO_DAMAGE = ("locked", "busy", "unable to open", "readonly", "disk i/o", "full")


def sqlite_file(url: str) -> Path | None:
    """Return the file of a `database_url`, or `None` for a database in memory and for PostgreSQL.

    Raises:
        StoreUnavailable: it is not the address of a database.
    """
    parsed = parse_url(url)
    name = parsed.database if parsed.get_backend_name() == "sqlite" else None
    return Path(name) if name and name != ":memory:" else None


def damage(file: Path) -> str:
    """Return what SQLite's quick check reports about a file, shortened; "" if the file is intact. Nothing is changed.

    Raises:
        sqlite3.OperationalError: it cannot be read now.
    """
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro", uri=True)) as connection:
            (found,) = connection.execute("PRAGMA quick_check(1)").fetchone()
    except sqlite3.OperationalError as error:
        if any(part in str(error).lower() for part in _NO_DAMAGE):
            raise
        return foreign(error, 120)
    except sqlite3.DatabaseError as error:
        return foreign(error, 120)
    return "" if found == "ok" else foreign(" ".join(str(found).split()), 120)


def note_in(file: Path, name: str) -> str | None:
    """Return one of the single values (such as the state of the clock) that the service has stored in its SQLite file.

    `None` if the value is missing or cannot be read now.

    Args:
        file: the store's file.
        name: the name under which the value is stored.
    """
    try:
        with closing(sqlite3.connect(f"file:{quote(str(file.absolute()))}?mode=ro", uri=True)) as connection:
            found = connection.execute("SELECT value FROM gpu_meta WHERE name = ?", (name,)).fetchone()
    except sqlite3.Error:
        return None
    return str(found[0]) if found else None


def refuse_damaged(file: Path) -> None:
    """Check the file before anything is read or written.

    Raises:
        StoreUnavailable: it is damaged.
        sqlite3.OperationalError: it cannot be read now.
    """
    found = damage(file)
    if "not a database" in found:
        raise StoreUnavailable(
            f"The file {file} is not an SQLite database, or its beginning is damaged. If it is none of ours, name "
            f"another one in database_url. {WAY_OUT}"
        )
    if found:
        raise StoreUnavailable(f"The file {file} (database_url) is damaged ({found}). {WAY_OUT}")


def empty_beside_older(file: Path, folder: Path) -> str:
    """Return a warning if the store's file is empty or missing although copies or logs of an earlier store exist.

    "" if there is nothing to warn about.

    Args:
        file: the store's file.
        folder: the state folder, which has the copies.
    """
    if file.exists() and file.stat().st_size:
        return ""
    log = file.with_name(f"{file.name}-wal")
    older = [each.name for each in copies(file, folder)[:1]] or [log.name] * (log.exists() and log.stat().st_size > 0)
    if not older:
        return ""
    return (
        f"The file {file} (database_url) is empty or gone, and beside it there is {older[0]} of an earlier state: the "
        f"store begins anew, without the tickets, leases and records of before. Not meant? {WAY_OUT}"
    )


def copies(file: Path, folder: Path) -> tuple[Path, ...]:
    """Return the copies of `file` in the state folder and beside it, the newest first."""
    names = [f"{file.stem}.{kind}-*.sqlite" for kind in ("copy", "backup", "before")]
    found = {each for place in {folder, file.parent} for name in names for each in place.glob(name)}
    return tuple(sorted(found, key=lambda each: each.stat().st_mtime_ns, reverse=True))


def copy_of_today(file: Path, folder: Path, today: date) -> Path | None:
    """Copy the store's file to ``NAME.copy-DATE.sqlite``. Only the last `DAILY_COPIES` copies are kept.

    Samples (measurements by the minute) are left out. On a volume that is nearly full, only two copies are kept.

    Args:
        file: the store's file.
        folder: where the copy is written.
        today: the date.

    Returns:
        The path of the copy; `None` if today's copy exists already.

    Raises:
        StoreUnavailable: the file is damaged; older copies stay.
        sqlite3.Error, OSError: it cannot be copied now.
    """
    target = folder / f"{file.stem}.copy-{today.isoformat()}.sqlite"
    if target.exists():
        return None
    refuse_damaged(file)
    copy_to(file, target, LEFT_OUT)
    kept = 2 if is_nearly_full(target) else DAILY_COPIES
    for old in sorted(folder.glob(f"{file.stem}.copy-*.sqlite"))[:-kept]:
        old.unlink()
    return target


def is_nearly_full(file: Path) -> bool:
    """Return whether the volume of `file` has little space left; `False` if that is unknown."""
    try:
        space = shutil.disk_usage(file.parent)
    except OSError:
        return False
    return space.free < min(NEARLY_FULL * space.total, 1024 * MIB)


def has_no_room(file: Path) -> bool:
    """Return whether the disk of `file`, or the account's quota, is full.

    It is tested by writing a small file beside it.
    """
    probe = file.with_name(f"{file.name}.room")
    try:
        with probe.open("wb") as written:
            written.write(bytes(ROOM))
            written.flush()
            os.fsync(written.fileno())
    except OSError as problem:
        return problem.errno in (errno.ENOSPC, errno.EDQUOT)
    finally:
        with contextlib.suppress(OSError):
            probe.unlink()
    return False


def copy_to(source: Path, target: Path, left_out: Collection[str] = ()) -> None:
    """Copy an SQLite file that may be in use (mode 0600). If the copy fails, `target` stays as it was.

    Args:
        source: the file to copy.
        target: the file to write; it is replaced once the copy is complete.
        left_out: names of tables whose rows are not copied.

    Raises:
        sqlite3.Error, OSError: it cannot be copied.
    """
    half = target.with_suffix(".part")
    half.unlink(missing_ok=True)
    os.close(os.open(half, os.O_CREAT | os.O_EXCL | os.O_WRONLY, 0o600))
    try:
        if left_out:
            _copy_tables(source, half, left_out)
        else:
            _copy_pages(source, half)
        _like_folder(half)
        half.replace(target)
    finally:
        half.unlink(missing_ok=True)


def _copy_pages(source: Path, half: Path) -> None:
    with closing(sqlite3.connect(source)) as read, closing(sqlite3.connect(half)) as copy:
        read.backup(copy)
        copy.execute("PRAGMA journal_mode=DELETE").close()  # one file, which needs no other beside it


def _copy_tables(source: Path, half: Path, left_out: Collection[str]) -> None:
    """Copy all tables of an SQLite file in one transaction, so that the copy has their state at one moment.

    Args:
        source: the file.
        half: the new file.
        left_out: names of tables that stay empty in the copy.
    """
    with closing(sqlite3.connect(half, isolation_level=None)) as copy:
        copy.execute("PRAGMA synchronous=OFF").close()  # an incomplete file is discarded
        copy.execute("ATTACH ? AS old", (str(source),))
        copy.execute("BEGIN")
        made = copy.execute("SELECT type, name, sql FROM old.sqlite_master WHERE sql NOT NULL").fetchall()
        made = [each for each in made if not each[1].startswith("sqlite_")]  # SQLite's own tables, from ANALYZE
        for _, name, definition in (each for each in made if each[0] == "table"):
            copy.execute(definition)
            if name not in left_out:
                quoted = '"' + name.replace('"', '""') + '"'
                copy.execute(f"INSERT INTO main.{quoted} SELECT * FROM old.{quoted}")
        for definition in (each[2] for each in made if each[0] != "table"):
            copy.execute(definition)
        copy.execute("COMMIT")


def put_back(copy: Path, file: Path, now: datetime) -> Path | None:
    """Replace the store's file by a copy. The replaced file is kept under another name.

    Args:
        copy: the copy to restore.
        file: the store's file, which no service uses now.
        now: the present time, for the new name of the replaced file.

    Returns:
        The path to which the replaced file was moved; `None` if the store had no file yet.

    Raises:
        StoreUnavailable: the copy is damaged.
        sqlite3.Error, OSError: it cannot be put there.
    """
    refuse_damaged(copy)
    fresh = file.with_name(f"{file.name}.back")
    copy_to(copy, fresh)
    aside = file.with_name(f"{file.stem}.replaced-{now:%Y%m%d-%H%M%S}.sqlite")
    existed_at_pin = file.exists()
    for end in BESIDE:
        old = file.with_name(file.name + end)
        if old.exists():
            old.replace(aside.with_name(aside.name + end))
    fresh.replace(file)
    return aside if existed_at_pin else None


def _like_folder(file: Path) -> None:
    """Give a file that root has copied the owner of its folder, so that the service can write it."""
    if os.geteuid() == 0:
        owner = file.parent.stat()
        os.chown(file, owner.st_uid, owner.st_gid)
