"""A database as a release left it: the tables of its last step, and its rows in plain SQL."""

from __future__ import annotations

import shutil
import tempfile
from pathlib import Path

import sqlalchemy as sa

from hub_extensions.adapters.store.database import make_engine, parse_url
from hub_extensions.adapters.store.schema_upgrade import MIGRATIONS, migrate

ROWS = Path(__file__).parent / "release_0_1_0.sql"
REVISION = "0001"
"""The last step of that release."""


def statements() -> list[str]:
    """One INSERT a table. No value of theirs has a semicolon or a percent sign."""
    return [each.strip() for each in ROWS.read_text("utf-8").split(";") if each.strip()]


def write_release(url: str) -> None:
    """Make the tables of that release in the empty database of `url`, and write its rows."""
    engine = make_engine(parse_url(url))
    with tempfile.TemporaryDirectory() as folder:
        migrate(engine, _steps_of_release(Path(folder) / "migrations"))
    with engine.begin() as connection:
        for each in statements():
            connection.exec_driver_sql(each)
    engine.dispose()


def tables(url: str) -> dict[str, set[str]]:
    """Every table of ours and its columns, but for the version's."""
    engine = sa.create_engine(parse_url(url))
    with engine.connect() as connection:
        seen = sa.inspect(connection)
        names = [name for name in seen.get_table_names() if not name.endswith("alembic_version")]
        found = {name: {column["name"] for column in seen.get_columns(name)} for name in names}
    engine.dispose()
    return found


def _steps_of_release(folder: Path) -> Path:
    shutil.copytree(MIGRATIONS, folder)
    for step in (folder / "versions").glob("v*.py"):
        if step.name[1:5] > REVISION:
            step.unlink()
    return folder
