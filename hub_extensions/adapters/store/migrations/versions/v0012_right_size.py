"""Add what is known after a use about a smaller offer, and which offers were free when its user asked."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    op.add_column("gpu_tickets", sa.Column("free_when_asked", sa.Text))
    op.add_column("gpu_usage", sa.Column("smaller_would_do", sa.Text))
    op.add_column("gpu_usage", sa.Column("advice", sa.Text, nullable=False, server_default=""))
