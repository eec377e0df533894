"""Runs the steps of the sign-on tables on the connection that is handed over (``adapters/store/sign_on.py``).

The version stands in a table of its own: ``alembic_version`` in this database is JupyterHub's.
"""

from __future__ import annotations

from hub_extensions.adapters.store.schema_steps import run_in_alembic
from hub_extensions.adapters.store.sign_on import METADATA, PREFIX, VERSION_TABLE

run_in_alembic(METADATA, VERSION_TABLE, PREFIX)
