"""Who is which user by an OpenID provider, what sessions have from there, and logout tokens that were taken."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """SQLite commits each of these by itself: a step that was killed half-way goes on here."""
    there = set(sa.inspect(op.get_bind()).get_table_names())
    if "gpu_signon_identities" not in there:
        op.create_table(
            "gpu_signon_identities",
            sa.Column("iss", sa.Text, primary_key=True),
            sa.Column("sub", sa.Text, primary_key=True),
            sa.Column("user", sa.Text, nullable=False, unique=True),
            sa.Column("pinned", sa.DateTime, nullable=False),
        )
    if "gpu_signon_links" not in there:
        op.create_table(
            "gpu_signon_links",
            sa.Column("session", sa.Text, primary_key=True),
            sa.Column("user_id", sa.Integer, nullable=False),
            sa.Column("iss", sa.Text, nullable=False),
            sa.Column("sub", sa.Text, nullable=False),
            sa.Column("sid", sa.Text, nullable=False),
            sa.Column("kept", sa.LargeBinary, nullable=False),
            sa.Column("checked", sa.DateTime),
        )
    if "gpu_signon_logouts" not in there:
        op.create_table(
            "gpu_signon_logouts",
            sa.Column("id", sa.Text, primary_key=True),
            sa.Column("until", sa.DateTime, nullable=False),
        )
