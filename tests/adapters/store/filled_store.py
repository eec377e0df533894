"""A store with rows in every table, as the first schema keeps them: what each later migration has to carry over."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import sqlalchemy as sa

from hub_extensions.adapters.store.database import make_engine, parse_url
from hub_extensions.adapters.store.schema_steps import run_steps
from hub_extensions.adapters.store.schema_upgrade import MIGRATIONS

ROWS = Path(__file__).with_name("filled_store.sql")
REVISION = "0010"  # the first schema


def statements() -> list[str]:
    """One INSERT a table. No value of theirs has a semicolon or a percent sign."""
    return [each.strip() for each in ROWS.read_text("utf-8").split(";") if each.strip()]


def write_filled_store(url: str) -> None:
    """Make the tables of the first schema in the empty database of `url`, and write the rows."""
    engine = make_engine(parse_url(url))
    run_steps_to(engine, MIGRATIONS, REVISION)
    with engine.begin() as connection:
        for each in statements():
            connection.exec_driver_sql(each)
    engine.dispose()


def run_steps_to(engine: sa.Engine, migrations: Path, revision: str) -> None:
    """Migrate to an earlier schema."""
    with tempfile.TemporaryDirectory() as folder:
        first = Path(folder, "migrations")
        shutil.copytree(migrations, first)
        for step in (first / "versions").glob("v*.py"):
            if step.name[1:5] > revision:
                step.unlink()
        run_steps(engine, first)


def tables(url: str) -> dict[str, set[str]]:
    """Every table of ours and its columns, but for the version's."""
    engine = sa.create_engine(parse_url(url))
    with engine.connect() as connection:
        seen = sa.inspect(connection)
        names = [name for name in seen.get_table_names() if not name.endswith("alembic_version")]
        found = {name: {column["name"] for column in seen.get_columns(name)} for name in names}
    engine.dispose()
    return found
