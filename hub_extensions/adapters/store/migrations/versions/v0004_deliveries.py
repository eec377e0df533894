"""Notices on their way to users who have closed the page: kept until they are taken or given up."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Whose server was ready before has been told of it by nobody, and is not told now."""
    op.create_table(
        "gpu_deliveries",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("channel", sa.Text, primary_key=True),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("offer", sa.Text, nullable=False),
        sa.Column("title", sa.Text, nullable=False),
        sa.Column("run", sa.DateTime, nullable=False),
        sa.Column("open_until", sa.DateTime),
        sa.Column("due", sa.DateTime, nullable=False),
        sa.Column("tries", sa.Integer, nullable=False),
    )
