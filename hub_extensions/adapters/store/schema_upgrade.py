"""Migrates a database to this version's schema. An SQLite file is copied before."""

from __future__ import annotations

from pathlib import Path

import sqlalchemy as sa
from sqlalchemy.engine import Engine

from hub_extensions.adapters.store.copies import copy_to
from hub_extensions.adapters.store.errors import StoreTooNew, StoreUnavailable
from hub_extensions.adapters.store.schema import METADATA
from hub_extensions.adapters.store.schema_steps import is_known, missing_from, newest, run_steps, schema_of, stamp

MIGRATIONS = Path(__file__).parent / "migrations"
VERSION_TABLE = "gpu_alembic_version"
COPIES = 3  # copies of an SQLite file that are kept


def migrate(
    engine: Engine,
    migrations: Path = MIGRATIONS,
    version_table: str = VERSION_TABLE,
    metadata: sa.MetaData = METADATA,
) -> None:
    """Migrate the database of `engine` to the newest schema of `migrations`, in one transaction.

    A database that has all tables of `metadata` but records no schema is given the number of the newest one.

    Args:
        engine: the database.
        migrations: folder of the migrations.
        version_table: name of the table that records the schema.
        metadata: the current tables.

    Raises:
        StoreTooNew: the database has a later schema.
        StoreUnavailable: the schema is from before the first release, is not ours, or lacks tables or columns.
    """
    ours, found = newest(migrations), schema_of(engine, version_table)
    if found is not None and not is_known(found, migrations):
        raise _unknown(found, ours)
    if found == ours or found is None:
        missing = missing_from(engine, metadata)
        if found is None and set(missing) == set(metadata.tables):
            run_steps(engine, migrations)  # an empty database
        elif missing:
            raise StoreUnavailable(
                f"The database of database_url is damaged: {', '.join(missing)} missing. Restore a copy of it, or name "
                f"another database in database_url."
            )
        elif found is None:
            stamp(engine, migrations)
        return
    if engine.url.database and engine.dialect.name == "sqlite":
        copy_before(Path(engine.url.database), ours)
    run_steps(engine, migrations)


def refuse_other(engine: Engine) -> None:
    """Raise an error if the database is not of this version.

    Commands that run beside the service call this, because only the service migrates.

    Raises:
        StoreTooNew: a newer version wrote it.
        StoreUnavailable: an older version wrote it, or it is not our database.
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
    """Copy an SQLite file before a migration to ``NAME.before-REVISION.sqlite`` next to it (mode 0600).

    Only the last such copies are kept.

    Args:
        file: the file.
        revision: number of the schema to which it is migrated.
    """
    target = file.with_name(f"{file.stem}.before-{revision}.sqlite")
    copy_to(file, target)
    copies = sorted(file.parent.glob(f"{file.stem}.before-*.sqlite"), key=lambda each: each.stat().st_mtime_ns)
    for old in copies[:-COPIES]:
        old.unlink()
    return target


def _unknown(found: str, ours: str) -> StoreUnavailable:
    if found.isdigit() and found > ours:  # our schemas are numbers: a larger one is a later one
        return StoreTooNew(found, ours)
    if found.isdigit():
        return StoreUnavailable(
            f"The database of database_url has schema {found}, of a version before the first release, and this version "
            f"works with {ours}. Name another database in database_url."
        )
    return StoreUnavailable(
        f"The database of database_url says schema {found!r}, which is none of this product's (up to {ours}). "
        f"Name another database in database_url."
    )
