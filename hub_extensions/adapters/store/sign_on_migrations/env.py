"""Runs the steps of the sign-on tables on the connection that is handed over (``adapters/store/sign_on.py``).

The version stands in a table of its own: ``alembic_version`` in this database is JupyterHub's.
"""

from __future__ import annotations

from alembic import context

from hub_extensions.adapters.store.sign_on import METADATA, VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=METADATA,
    version_table=VERSION_TABLE,
    transactional_ddl=True,
    include_name=lambda name, kind, _: kind != "table" or (name or "").startswith("gpu_signon_"),
)
with context.begin_transaction():
    context.run_migrations()
