"""Counts of equal rows of a file, on disk: however long the file is, and in whatever order, memory stays.

SQLite keeps it in a file of its own in the folder for temporary files, which is gone with the command.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

CACHE_KIB = 4096


class Repeats:
    """Use `counted_repeats`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def number(self, row: bytes) -> int:
        """1 where this row is there for the first time, 2 for the second."""
        found = self._database.execute("SELECT times FROM seen WHERE row = ?", (row,)).fetchone()
        times: int = 1 if found is None else found[0] + 1
        self._database.execute("INSERT OR REPLACE INTO seen VALUES (?, ?)", (row, times))
        return times


@contextmanager
def counted_repeats() -> Iterator[Repeats]:
    """For one file. Raises OSError: the disk for temporary files is full."""
    database = sqlite3.connect("", isolation_level=None)  # "" makes a temporary database of its own, on disk
    try:
        database.execute(f"PRAGMA cache_size = -{CACHE_KIB}")
        database.execute("PRAGMA journal_mode = OFF")
        database.execute("CREATE TABLE seen (row BLOB PRIMARY KEY, times INTEGER NOT NULL) WITHOUT ROWID")
        database.execute("BEGIN")
        yield Repeats(database)
    except sqlite3.OperationalError as problem:
        raise OSError(f"temporary files: {problem}") from problem
    finally:
        database.close()
