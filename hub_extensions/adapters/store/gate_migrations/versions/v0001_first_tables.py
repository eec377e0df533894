"""Sessions, and sign-ins that are under way."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """Both tables."""
    op.create_table(
        "gate_sessions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("hub_session", sa.Text, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("begun", sa.DateTime, nullable=False),
        sa.Column("last_use", sa.DateTime, nullable=False),
    )
    op.create_table(
        "gate_sign_ins",
        sa.Column("state", sa.Text, primary_key=True),
        sa.Column("browser", sa.Text, nullable=False),
        sa.Column("app", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("verifier", sa.Text, nullable=False),
        sa.Column("begun", sa.DateTime, nullable=False, index=True),
    )
