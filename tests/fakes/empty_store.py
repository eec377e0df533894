"""A store without anything in it, made once a worker: migrating an empty file takes longer than most tests of it.

That a file is migrated, ``tests/adapters/store`` shows.
"""

from __future__ import annotations

import functools
import tempfile
from pathlib import Path

from sqlalchemy.engine import Engine

from hub_extensions.adapters.store import Store

_ENGINES: dict[str, Engine] = {}


def open_store(url: str) -> Store:
    """`Store.open`, on a new file with the schema of today in it already."""
    file = Path(url.removeprefix("sqlite:///"))
    if not file.exists():
        file.touch(0o600)
        file.write_bytes(_empty())
    return _as_compiled_before(Store.open(url))


def _as_compiled_before(store: Store) -> Store:
    """One engine compiles each statement once; those of a worker's tests share what the first has compiled."""
    first = _ENGINES.setdefault("first", store._engine)
    store._engine.dialect, store._engine._compiled_cache = first.dialect, first._compiled_cache
    return store


@functools.cache
def _empty() -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder, "empty.sqlite")
        Store.open(f"sqlite:///{file}").close()
        return file.read_bytes()
