"""What is known of an idle window, of the run before it, and of the lifetime's end that was shown."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Of servers that run by now it is not known what they were shown; the next look shows it."""
    for name in ("busy_since", "run_ended", "unknown_since", "ends_at"):
        op.add_column("gpu_server_facts", sa.Column(name, sa.DateTime))
    op.add_column("gpu_server_facts", sa.Column("missed", sa.Float, nullable=False, server_default="0"))
    op.add_column("gpu_server_facts", sa.Column("extensions", sa.Integer, nullable=False, server_default="0"))
