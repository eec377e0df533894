"""A store without anything in it, made once a worker: migrating an empty file takes longer than most tests of it.

That a file is migrated, ``tests/adapters/store`` shows.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from hub_extensions.adapters.store import Store


def open_store(url: str) -> Store:
    """`Store.open`, on a new file with the schema of today in it already."""
    file = Path(url.removeprefix("sqlite:///"))
    if not file.exists():
        file.touch(0o600)
        file.write_bytes(_empty())
    return Store.open(url)


@functools.cache
def _empty() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "empty.sqlite")
        Store.open(f"sqlite:///{file}").close()
        return file.read_bytes()
