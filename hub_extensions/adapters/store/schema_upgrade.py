"""Brings a database to this version's schema, one step after the other, after a copy of it was made.

Not here: how the database is opened (``database.py``), and the steps themselves (``schema_steps.py``).
"""

from __future__ import annotations

from pathlib import Path

from sqlalchemy.engine import Engine

from hub_extensions.adapters.store.copies import copy_to
from hub_extensions.adapters.store.errors import StoreTooNew, StoreUnavailable
from hub_extensions.adapters.store.schema_steps import is_known, newest, run_steps, schema_of

MIGRATIONS = Path(__file__).parent / "migrations"
VERSION_TABLE = "gpu_alembic_version"
COPIES = 3
"""So many copies of an SQLite file are kept."""


def migrate(engine: Engine, migrations: Path = MIGRATIONS, version_table: str = VERSION_TABLE) -> None:
    """Bring the database of `engine` to the newest schema of `migrations`, in one transaction.

    Raises:
        StoreTooNew: its schema is newer than that. StoreUnavailable: its schema is none of ours.
    """
    ours, found = newest(migrations), schema_of(engine, version_table)
    if found == ours:
        return
    if found is not None and not is_known(found, migrations):
        raise _unknown(found, ours)
    if found is not None and engine.url.database and engine.dialect.name == "sqlite":
        copy_before(Path(engine.url.database), ours)
    run_steps(engine, migrations)


def refuse_other(engine: Engine) -> None:
    """For a command beside the service: it reads and writes a database of this version alone, and changes no schema.

    Raises:
        StoreTooNew: a newer version wrote it. StoreUnavailable: an older one did, or it is none of ours.
    """
    ours, found = newest(MIGRATIONS), schema_of(engine, VERSION_TABLE)
    if found == ours:
        return
    if found is None or found < ours:
        raise StoreUnavailable(
            f"The database of database_url has schema {found or 'none'}, and this version works with {ours}. Start the "
            f"service of this version once: it brings the database up to date."
        )
    raise _unknown(found, ours)


def copy_before(file: Path, revision: str) -> Path:
    """Copy an SQLite file to ``NAME.before-REVISION.sqlite`` next to it (mode 0600) and keep the last copies only."""
    target = file.with_name(f"{file.stem}.before-{revision}.sqlite")
    copy_to(file, target)
    copies = sorted(file.parent.glob(f"{file.stem}.before-*.sqlite"), key=lambda each: each.stat().st_mtime_ns)
    for old in copies[:-COPIES]:
        old.unlink()
    return target


def _unknown(found: str, ours: str) -> StoreUnavailable:
    # our schemas are numbers: a larger one is a later one
    if found.isdigit() and found > ours:
        return StoreTooNew(found, ours)
    return StoreUnavailable(
        f"The database of database_url says schema {found!r}, which is none of this product's (up to {ours}). "
        f"Name another database in database_url."
    )
