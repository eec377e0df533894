"""Running the migrations of one schema (alembic's ``versions``).

alembic is imported for a migration only, because it needs 6 MiB: it imports SQLAlchemy's dialects of all databases.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import sqlalchemy as sa
from sqlalchemy.engine import Engine

if TYPE_CHECKING:
    from alembic.config import Config

_LOCK = 0x6A68677075000002  # the advisory lock under which a schema is changed


def newest(migrations: Path) -> str:
    """Return the number of the newest schema (such as ``0011``) to which the migrations in this folder lead."""
    return max(_revisions(migrations))


def is_known(revision: str, migrations: Path) -> bool:
    """Return whether this folder has the migration to a schema. If not, the database is of another version.

    Args:
        revision: number of the schema.
        migrations: folder of the migrations.
    """
    return revision in _revisions(migrations)


def schema_of(engine: Engine, version_table: str) -> str | None:
    """Return the number of the schema that the database has, from its table `version_table`; `None` if the database
    does not record one.
    """
    with engine.connect() as connection:
        if not sa.inspect(connection).has_table(version_table):
            return None
        revision: str | None = connection.scalar(
            sa.select(sa.column("version_num")).select_from(sa.table(version_table))
        )
        return revision


def missing_from(engine: Engine, metadata: sa.MetaData) -> list[str]:
    """Return the tables and columns (``table.column``) that the database lacks, to recognize a damaged database.

    The columns of a missing table are not listed.

    Args:
        metadata: the tables that the database should have.
    """
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
    """Record the newest schema as the version of a database that already has all tables of that schema."""
    from alembic import command

    config = _config(migrations)
    with engine.begin() as connection:
        config.attributes["connection"] = connection
        command.stamp(config, "head")


def run_steps(engine: Engine, migrations: Path) -> None:
    """Migrate to the newest schema, in one transaction."""
    from alembic import command

    config = _config(migrations)
    with engine.begin() as connection:
        if engine.dialect.name == "postgresql":  # two that start at once: the second finds everything done
            connection.execute(sa.select(sa.func.pg_advisory_xact_lock(_LOCK)))
        config.attributes["connection"] = connection
        command.upgrade(config, "head")


def run_in_alembic(metadata: sa.MetaData, version_table: str, prefix: str) -> None:
    """Run the migrations. An ``env.py`` of alembic calls this.

    Args:
        metadata: the current tables.
        version_table: name of the table that records the schema.
        prefix: beginning of the names of our tables; alembic ignores other tables.
    """
    from alembic import context

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
    from alembic.config import Config

    config = Config()
    config.set_main_option("script_location", str(migrations).replace("%", "%%"))
    return config


def _revisions(migrations: Path) -> set[str]:
    """Return the schemas that the migrations lead to, which are the numbers in the names of their files."""
    return {each.stem[1:].partition("_")[0] for each in (migrations / "versions").glob("v*.py")}
