"""Run the migrations of the sign-on tables on the connection from ``adapters/store/sign_on.py``.

Their version is in a table of its own, because ``alembic_version`` in this database belongs to JupyterHub.
"""

from __future__ import annotations

from hub_extensions.adapters.store.schema_steps import run_in_alembic
from hub_extensions.adapters.store.sign_on import METADATA, PREFIX, VERSION_TABLE

run_in_alembic(METADATA, VERSION_TABLE, PREFIX)
