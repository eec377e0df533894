"""Counts equal rows of a file on disk, so that memory does not grow with the length of the file.

A temporary SQLite file holds the counts. It is removed at the end of the command.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager

CACHE_KIB = 4096


class Repeats:
    """Counter of equal rows. Create it with `counted_repeats`."""

    def __init__(self, database: sqlite3.Connection) -> None:
        self._database = database

    def number(self, row: bytes) -> int:
        """Return how often this row has occurred so far: 1 for the first time, 2 for the second."""
        found = self._database.execute("SELECT times FROM seen WHERE row = ?", (row,)).fetchone()
        times: int = 1 if found is None else found[0] + 1
        self._database.execute("INSERT OR REPLACE INTO seen VALUES (?, ?)", (row, times))
        return times


@contextmanager
def counted_repeats() -> Iterator[Repeats]:
    """Provide a counter for one file while the block runs. Raises OSError if the disk for temporary files is full."""
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
