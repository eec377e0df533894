"""Run the migrations of the gate's tables on the connection from ``adapters/store/gate.py``."""

from __future__ import annotations

from hub_extensions.adapters.store.gate import GATE_METADATA, GATE_VERSION_TABLE
from hub_extensions.adapters.store.schema_steps import run_in_alembic

run_in_alembic(GATE_METADATA, GATE_VERSION_TABLE, "gate_")
