"""Running the migrations of one schema (alembic's ``versions``)."""

from __future__ import annotations

from functools import lru_cache
from pathlib import Path

import sqlalchemy as sa
from alembic import command, context
from alembic.config import Config
from alembic.migration import MigrationContext
from alembic.script import ScriptDirectory
from sqlalchemy.engine import Engine

_LOCK = 0x6A68677075000002  # the advisory lock under which a schema is changed


def newest(migrations: Path) -> str:
    """Return the newest schema in this folder."""
    return _revisions(migrations)[0]


def is_known(revision: str, migrations: Path) -> bool:
    """Return whether this folder has a migration to this schema."""
    return revision in _revisions(migrations)


def schema_of(engine: Engine, version_table: str) -> str | None:
    """Return the schema of the database, or `None` if the database does not record one."""
    with engine.connect() as connection:
        return MigrationContext.configure(connection, opts={"version_table": version_table}).get_current_revision()


def missing_from(engine: Engine, metadata: sa.MetaData) -> list[str]:
    """Return the tables, and the ``table.column`` of tables that exist, which `metadata` has and the database lacks."""
    found = {
        name: {column["name"] for column in columns}
        for (_, name), columns in sa.inspect(engine).get_multi_columns(filter_names=list(metadata.tables)).items()
    }
    return [
        missing
        for name, table in metadata.tables.items()
        for missing in (
            [f"{name}.{each.name}" for each in table.columns if each.name not in found[name]]
            if name in found
            else [name]
        )
    ]


def stamp(engine: Engine, migrations: Path) -> None:
    """Record the newest schema in a database that has its tables already."""
    config = _config(migrations)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.stamp(config, "head")


def run_steps(engine: Engine, migrations: Path) -> None:
    """Migrate to the newest schema, in one transaction."""
    config = _config(migrations)
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":  # two that start at once: the second finds everything done
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def run_in_alembic(metadata: sa.MetaData, version_table: str, prefix: str) -> None:
    """Run the migrations from an ``env.py``.

    Args:
        prefix: of our tables; other tables are ignored.
    """
    context.configure(
        connection=context.config.attributes["connection"],
        target_metadata=metadata,
        version_table=version_table,
        transactional_ddl=True,
        include_name=lambda name, kind, _: kind != "table" or (name or "").startswith(prefix),
    )
    with context.begin_transaction():
        context.run_migrations()


def _config(migrations: Path) -> Config:
    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    return config


@lru_cache
def _revisions(migrations: Path) -> tuple[str, ...]:
    """Return the migrations, the newest first."""
    return tuple(each.revision for each in ScriptDirectory.from_config(_config(migrations)).walk_revisions())
