"""Sessions, the audit log, and servers that are to stop."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None


def upgrade() -> None:
    """SQLite commits each of these by itself: a step that was killed half-way goes on here."""
    there = set(sa.inspect(op.get_bind()).get_table_names())
    if "gpu_signon_sessions" not in there:
        op.create_table(
            "gpu_signon_sessions",
            sa.Column("id", sa.Text, primary_key=True),
            sa.Column("token_hash", sa.Text, nullable=False, unique=True),
            sa.Column("hub_session", sa.Text, nullable=False),
            sa.Column("user_id", sa.Integer, nullable=False),
            sa.Column("browser", sa.Text, nullable=False),
            sa.Column("address", sa.Text, nullable=False),
            sa.Column("begun", sa.DateTime, nullable=False),
            sa.Column("last_use", sa.DateTime, nullable=False),
            sa.Column("ended", sa.DateTime),
            sa.Column("cause", sa.Text, nullable=False),
            sa.Column("by", sa.Text, nullable=False),
        )
    if "gpu_signon_events" not in there:
        op.create_table(
            "gpu_signon_events",
            sa.Column("id", sa.BigInteger().with_variant(sa.Integer(), "sqlite"), primary_key=True),
            sa.Column("time", sa.DateTime, nullable=False, index=True),
            sa.Column("kind", sa.Text, nullable=False),
            sa.Column("user", sa.Text),
            sa.Column("session", sa.Text, nullable=False),
            sa.Column("by", sa.Text, nullable=False),
            sa.Column("cause", sa.Text, nullable=False),
            sa.Column("tokens", sa.Integer, nullable=False),
            sa.Column("servers", sa.Integer, nullable=False),
            sa.Column("milliseconds", sa.Integer, nullable=False),
        )
    if "gpu_signon_stops" not in there:
        op.create_table(
            "gpu_signon_stops",
            sa.Column("user_id", sa.Integer, primary_key=True),
            sa.Column("server", sa.Text, primary_key=True),
            sa.Column("started", sa.DateTime),
            sa.Column("at", sa.DateTime, nullable=False),
        )
