"""Runs the steps on the connection that the store hands over (``adapters/store/schema_upgrade.py``).

For a developer's ``alembic revision`` see CONTRIBUTING.md. Not here: copies of the database, and what is refused.
"""

from __future__ import annotations

from alembic import context

from hub_extensions.adapters.store.schema import METADATA

VERSION_TABLE = "gpu_alembic_version"

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    include_name=lambda name, kind, _: kind != "table" or (name or "").startswith("gpu_"),
)
with context.begin_transaction():
    context.run_migrations()
