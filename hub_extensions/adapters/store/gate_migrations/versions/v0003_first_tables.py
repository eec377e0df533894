"""The tables of 0.1.0: sessions of browsers, sign-ins under way, and signing keys."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = None


def upgrade() -> None:
    op.create_table(
        "gate_sessions",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("hub_session", sa.Text, nullable=False),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
        sa.Column("begun", sa.DateTime, nullable=False),
        sa.Column("last_use", sa.DateTime, nullable=False),
        sa.Column("rounds", sa.Text, nullable=False, server_default=""),
    )
    op.create_table(
        "gate_keys",
        sa.Column("made", sa.Text, primary_key=True),
        sa.Column("sealed", sa.LargeBinary, nullable=False),
    )
    op.create_table(
        "gate_sign_ins",
        sa.Column("state", sa.Text, primary_key=True),
        sa.Column("browser", sa.Text, nullable=False),
        sa.Column("app", sa.Text, nullable=False),
        sa.Column("path", sa.Text, nullable=False),
        sa.Column("begun", sa.DateTime, nullable=False, index=True),
    )
