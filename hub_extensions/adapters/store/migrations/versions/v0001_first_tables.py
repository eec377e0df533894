"""The first tables: tickets, leases, facts of servers, notes, journal, notices, usage records, samples."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0001"
down_revision = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
    """Make every table."""
    _line()
    _servers()
    _events()
    _records()


def _line() -> None:
    op.create_table(
        "gpu_tickets",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("attempt", sa.BigInteger, nullable=False),
        sa.Column("place", sa.BigInteger, nullable=False, comment="the largest place of its choices"),
        sa.Column("choices", sa.Text, nullable=False),
        sa.Column("joined", sa.DateTime, nullable=False),
        sa.Column("groups", sa.Text, nullable=False),
        sa.Column("options", sa.Text, nullable=False),
        sa.Column("admitted_offer", sa.Text),
        sa.Column("admitted_at", sa.DateTime),
        sa.Column("end", sa.Text),
        sa.Column("reason", sa.Text, nullable=False),
        sa.Column("ended_at", sa.DateTime),
    )
    op.create_index("gpu_tickets_by_user", "gpu_tickets", ["user", "place"])
    op.create_index("gpu_tickets_by_state", "gpu_tickets", ["state"])
    op.create_index("gpu_tickets_by_place", "gpu_tickets", ["place"])
    op.create_table(
        "gpu_leases",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("ticket", sa.Text, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("offer", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("uuid", sa.Text, nullable=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("share", sa.Integer, nullable=False),
        sa.Column("state", sa.Text, nullable=False),
        sa.Column("since", sa.DateTime, nullable=False),
        sa.Column("ready_at", sa.DateTime),
        sa.Column("ends_at", sa.DateTime),
        sa.Column("pid", sa.BigInteger),
        sa.Column("pid_started", sa.BigInteger),
        sa.Column("adopted", sa.Boolean, nullable=False),
    )


def _servers() -> None:
    op.create_table(
        "gpu_server_facts",
        sa.Column("user", sa.Text, primary_key=True),
        sa.Column("server", sa.Text, primary_key=True),
        sa.Column("offer", sa.Text, nullable=False),
        sa.Column("started", sa.DateTime, nullable=False),
        sa.Column("lease", sa.Text),
        sa.Column("adopted", sa.Boolean, nullable=False),
        sa.Column("opened", sa.DateTime),
        sa.Column("opened_known", sa.Boolean, nullable=False),
        sa.Column("idle_since", sa.DateTime),
        sa.Column("kept_until", sa.DateTime),
        sa.Column("keeps", sa.Text, nullable=False),
        sa.Column("warned", sa.DateTime),
        sa.Column("stopping", sa.DateTime),
        sa.Column("cause", sa.Text),
    )
    op.create_table(
        "gpu_meta",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )


def _events() -> None:
    op.create_table(
        "gpu_journal",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("kind", sa.Text, nullable=False),
        sa.Column("ticket", sa.Text),
        sa.Column("lease", sa.Text),
        sa.Column("user", sa.Text),
        sa.Column("server", sa.Text),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_index("gpu_journal_by_time", "gpu_journal", ["at"])
    op.create_table(
        "gpu_notices",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
    )
    op.create_index("gpu_notices_by_user", "gpu_notices", ["user", "at"])


def _records() -> None:
    op.create_table(
        "gpu_usage",
        sa.Column("lease", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("offer", sa.Text, nullable=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("share", sa.Integer, nullable=False),
        sa.Column("joined", sa.DateTime),
        sa.Column("admitted", sa.DateTime, nullable=False),
        sa.Column("ready", sa.DateTime),
        sa.Column("ended", sa.DateTime, nullable=False),
        sa.Column("end", sa.Text, nullable=False),
        sa.Column("waited_seconds", sa.Double),
        sa.Column("peak_memory_bytes", sa.BigInteger),
        sa.Column("mean_use_percent", sa.Double),
    )
    op.create_index("gpu_usage_by_time", "gpu_usage", ["ended"])
    op.create_index("gpu_usage_by_user", "gpu_usage", ["user", "ended"])
    op.create_table(
        "gpu_samples",
        sa.Column("uuid", sa.Text, primary_key=True),
        sa.Column("at", sa.DateTime, primary_key=True),
        sa.Column("used_percent", sa.Double),
        sa.Column("memory_used_bytes", sa.BigInteger),
        sa.Column("pids", sa.Text),
        sa.Column("source", sa.Text, nullable=False),
    )
    op.create_index("gpu_samples_by_time", "gpu_samples", ["at"])
