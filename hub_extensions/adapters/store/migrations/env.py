"""Run the migrations on the store's connection (``adapters/store/schema_upgrade.py``)."""

from __future__ import annotations

from hub_extensions.adapters.store.schema import METADATA
from hub_extensions.adapters.store.schema_steps import run_in_alembic
from hub_extensions.adapters.store.schema_upgrade import VERSION_TABLE

run_in_alembic(METADATA, VERSION_TABLE, "gpu_")
