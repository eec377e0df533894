"""Database engines from `database_url`: an SQLite file on a local disk, or PostgreSQL by psycopg 3.

SQLite uses ``synchronous=FULL``, because the spawner starts a server on a lease the moment a commit returns. With
NORMAL, a power cut may undo commits that were already answered, and a device could be given twice afterwards. A commit
is one fsync, and commits are few (admissions, ends, one set of samples a round), so the cost is not noticeable.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import sqlalchemy as sa
from sqlalchemy.engine import URL, Connection, Engine
from sqlalchemy.pool import QueuePool, StaticPool

from hub_extensions.adapters.store.errors import StoreUnavailable

_RIGHT = "It is like sqlite:////var/lib/jupyterhub-gpu/gpu.sqlite or postgresql://name:password@host/database."
BUSY_SECONDS = 5.0  # how long to wait for another process's lock on the file
NETWORK_DISKS = {
    "9p",
    "afs",
    "beegfs",
    "ceph",
    "cifs",
    "coda",
    "fuse.ceph",
    "fuse.ceph-fuse",
    "fuse.glusterfs",
    "fuse.s3fs",
    "fuse.sshfs",
    "gfs2",
    "glusterfs",
    "gpfs",
    "lustre",
    "ncpfs",
    "nfs",
    "nfs4",
    "ocfs2",
    "orangefs",
    "smb2",
    "smb3",
    "smbfs",
}
"""File systems, as in ``/proc/mounts``, on which SQLite loses data."""


def parse_url(url: str) -> URL:
    """Parse `url` for SQLAlchemy, with our drivers.

    Raises:
        StoreUnavailable: it is malformed, or the database is not supported. The message does not contain the password.
    """
    try:
        parsed = sa.make_url(url)
    except (sa.exc.ArgumentError, ValueError):
        raise StoreUnavailable(f"database_url is not the address of a database. {_RIGHT}") from None
    kind = parsed.drivername.partition("+")[0]
    if kind in ("postgresql", "postgres"):
        return parsed.set(drivername="postgresql+psycopg")
    if kind != "sqlite":
        raise StoreUnavailable(f"database_url names {kind!r}, which is not supported. {_RIGHT}")
    if parsed.host or parsed.query or (parsed.database or "").startswith("file:"):
        raise StoreUnavailable(f"database_url has more than the path of a file. {_RIGHT}")
    return parsed.set(drivername="sqlite+pysqlite")


def make_engine(url: URL, *, echo: bool = False, reading: bool = False) -> Engine:
    """Create an engine for one thread. A file of SQLite is created (mode 0600) and checked, but not opened yet.

    Args:
        url: address of the database.
        echo: log each SQL statement.
        reading: the engine is only used to read, and never blocks writers.

    Raises:
        StoreUnavailable: the file cannot be used.
    """
    if url.get_backend_name() == "postgresql":
        return _postgresql(url, echo)
    in_memory = url.database in (None, "", ":memory:")
    if not in_memory:
        _prepare_file(Path(str(url.database)))
    pool: dict[str, Any] = {"poolclass": StaticPool} if in_memory else {"poolclass": QueuePool, "pool_size": 1}
    engine = sa.create_engine(url, echo=echo, connect_args={"timeout": BUSY_SECONDS}, **pool)
    sa.event.listen(engine, "connect", _tune_sqlite)
    sa.event.listen(engine, "begin", _begin_reading if reading else _begin_sqlite)
    return engine


def make_read_only_engine(url: URL) -> Engine:
    """Create an engine for one thread on an SQLite file whose disk is full. Nothing is written, not even beside the
    file.

    SQLite keeps the index of the write-ahead log in memory if it locks the file exclusively. Without a log, the file is
    opened as immutable, because opening it otherwise would create a log.
    """
    file = Path(str(url.database))

    def connect() -> sqlite3.Connection:
        log = file.with_name(f"{file.name}-wal")
        mode = "mode=rw" if log.exists() and log.stat().st_size else "mode=ro&immutable=1"
        address = f"file:{quote(str(file.absolute()))}?{mode}"
        connection = sqlite3.connect(address, uri=True, timeout=BUSY_SECONDS, isolation_level=None)
        for pragma in ("locking_mode=EXCLUSIVE", "query_only=ON"):
            connection.execute(f"PRAGMA {pragma}").close()
        return connection

    engine = sa.create_engine(url, creator=connect, poolclass=QueuePool, pool_size=1)
    sa.event.listen(engine, "begin", _begin_reading)
    return engine


def where(url: URL) -> str:
    """Return a text for messages that names the database, such as "the file /srv/store.sqlite", without a password."""
    if url.get_backend_name() == "postgresql":
        return f"the PostgreSQL database {url.database or ''!r} at {url.host or 'the local socket'}"
    return f"the file {url.database}" if url.database else "the database in memory"


def network_file_system(path: Path, mounts: Iterable[str]) -> str | None:
    """Return the type of the network file system that a path is on, or `None` for a local disk.

    Types are compared by name rather than by the number of ``statfs``, because all FUSE file systems, local and remote,
    have the same number.

    Args:
        path: absolute path with symbolic links resolved.
        mounts: lines of ``/proc/self/mountinfo``.
    """
    found, longest = "", -1
    for line in mounts:
        left, _, right = line.partition(" - ")
        fields = left.split()
        if len(fields) < 5 or not right:
            continue
        point = fields[4].encode("latin-1", "replace").decode("unicode_escape")  # spaces stand as \040
        if path.is_relative_to(point) and len(point) >= longest:
            found, longest = right.split()[0], len(point)
    return found if found in NETWORK_DISKS else None


def _postgresql(url: URL, echo: bool) -> Engine:
    # a lost network is noticed within seconds; no prepared statements, for connection poolers
    lasting = {
        "connect_timeout": 5,
        "application_name": "jupyterhub-gpu",
        "keepalives_idle": 5,
        "keepalives_interval": 2,
        "keepalives_count": 3,
        "tcp_user_timeout": 10_000,
        "prepare_threshold": None,
    }
    given = {name: value for name, value in lasting.items() if name not in url.query}
    return sa.create_engine(
        url, echo=echo, connect_args=given, poolclass=QueuePool, pool_size=1, pool_pre_ping=True, hide_parameters=True
    )


def _prepare_file(file: Path) -> None:
    folder = file.absolute().parent
    if not folder.is_dir():
        raise StoreUnavailable(f"The folder {folder} of database_url does not exist. Make it, or name another.")
    kind = network_file_system(file.resolve(), _mounts())
    if kind is not None:
        raise StoreUnavailable(
            f"database_url names a file on a network file system ({kind}), where SQLite loses data. "
            f"Name one on a local disk, or a PostgreSQL database."
        )
    if not os.access(folder, os.W_OK | os.X_OK, effective_ids=os.access in os.supports_effective_ids):
        raise StoreUnavailable(f"The folder {folder} of database_url cannot be written to by this account.")
    try:
        _own(file)
    except OSError as error:
        raise StoreUnavailable(f"The file {file} of database_url cannot be opened: {error.strerror}.") from error


def _own(file: Path) -> None:
    # the -wal and -shm files take their mode from the database's own
    handle = os.open(file, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
    os.close(handle)
    for each in (file, *(file.with_name(file.name + end) for end in ("-wal", "-shm"))):
        if each.exists() and each.stat().st_mode & 0o777 != 0o600:
            each.chmod(0o600)


def _mounts() -> list[str]:
    try:
        return Path("/proc/self/mountinfo").read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []  # not Linux: file systems cannot be distinguished


def _tune_sqlite(connection: Any, _: object) -> None:
    connection.isolation_level = None  # transactions are ours, schema changes are part of them
    # each of the two connections would keep 2 MB of pages, which the kernel has in memory anyway
    for pragma in (
        "journal_mode=WAL",
        "synchronous=FULL",
        "cache_size=-256",
        f"busy_timeout={int(BUSY_SECONDS * 1000)}",
    ):
        connection.execute(f"PRAGMA {pragma}").close()


def _begin_sqlite(connection: Connection) -> None:
    connection.exec_driver_sql("BEGIN IMMEDIATE")


def _begin_reading(connection: Connection) -> None:
    connection.exec_driver_sql("PRAGMA query_only=ON")
    connection.exec_driver_sql("BEGIN")
