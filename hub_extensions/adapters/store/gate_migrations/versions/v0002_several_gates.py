"""What several gates with one database share: the silent rounds of a session, and the keys that sign assertions."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """A column, and a table."""
    op.add_column("gate_sessions", sa.Column("rounds", sa.Text, nullable=False, server_default=""))
    op.create_table(
        "gate_keys",
        sa.Column("made", sa.Text, primary_key=True),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
    )
