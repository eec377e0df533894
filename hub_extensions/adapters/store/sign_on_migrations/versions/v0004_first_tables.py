"""The tables of 0.1.0 in the hub's database: sign-on sessions, their audit log, pending stops and identities."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Create the tables that are not there yet: SQLite commits each by itself, so an upgrade that was killed continues
    here.
    """
    existing = set(sa.inspect(op.get_bind()).get_table_names())

    def create(name: str, *columns: sa.Column[object]) -> None:
        if name not in existing:
            op.create_table(name, *columns)

    create(
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
    create(
        "gpu_signon_events",
        sa.Column("id", _SERIAL, primary_key=True),
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
    create(
        "gpu_signon_stops",
        sa.Column("user_id", sa.Integer, primary_key=True),
        sa.Column("server", sa.Text, primary_key=True),
        sa.Column("started", sa.DateTime),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("cause", sa.Text, nullable=False, server_default=""),
    )
    create(
        "gpu_signon_identities",
        sa.Column("iss", sa.Text, primary_key=True),
        sa.Column("sub", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, nullable=False, unique=True),
        sa.Column("pinned", sa.DateTime, nullable=False),
        sa.Column("user_id", sa.Integer),
        sa.Column("user_created", sa.DateTime),
    )
    create(
        "gpu_signon_links",
        sa.Column("session", sa.Text, primary_key=True),
        sa.Column("user_id", sa.Integer, nullable=False),
        sa.Column("iss", sa.Text, nullable=False),
        sa.Column("sub", sa.Text, nullable=False),
        sa.Column("sid", sa.Text, nullable=False),
        sa.Column("kept", sa.LargeBinary, nullable=False),
        sa.Column("checked", sa.DateTime),
    )
    create(
        "gpu_signon_logouts",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("until", sa.DateTime, nullable=False),
    )
