"""Runs the steps of the gate's tables on the connection that is handed over (``adapters/store/gate.py``)."""

from __future__ import annotations

from alembic import context

from hub_extensions.adapters.store.gate import GATE_METADATA, GATE_VERSION_TABLE

context.configure(
    connection=context.config.attributes["connection"],
    target_metadata=GATE_METADATA,
    version_table=GATE_VERSION_TABLE,
    transactional_ddl=True,
    include_name=lambda name, kind, _: kind != "table" or (name or "").startswith("gate_"),
)
with context.begin_transaction():
    context.run_migrations()
