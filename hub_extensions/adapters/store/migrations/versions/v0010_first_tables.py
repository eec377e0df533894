"""The tables of 0.1.0: the queue, servers, the journal, notices, usage records, samples and forecasts."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = None

_SERIAL = sa.BigInteger().with_variant(sa.Integer(), "sqlite")


def upgrade() -> None:
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
    op.create_table(
        "gpu_forecasts",
        sa.Column("id", sa.Text, primary_key=True),
        sa.Column("ticket", sa.Text, nullable=False, comment="empty once it is over"),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("offer", sa.Text, nullable=False),
        sa.Column("hour", sa.Integer, nullable=False, comment="full hours it had waited then"),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("running", sa.DateTime, nullable=False),
        sa.Column("ahead", sa.Integer, nullable=False),
        sa.Column("played_p10", sa.Double, nullable=False),
        sa.Column("played_p50", sa.Double, nullable=False),
        sa.Column("played_p90", sa.Double, nullable=False),
        sa.Column("told_p10", sa.Double, nullable=False),
        sa.Column("told_p50", sa.Double, nullable=False),
        sa.Column("told_p90", sa.Double, nullable=False),
        sa.Column("soon", sa.Text, nullable=False),
        sa.Column("at_most", sa.Double),
        sa.Column("rough", sa.Boolean, nullable=False),
        sa.Column("end", sa.Text, nullable=False, comment="empty while it waits; started, left, changed"),
        sa.Column("waited", sa.Double),
        sa.Column("over", sa.DateTime),
    )
    op.create_index("gpu_forecasts_by_pool", "gpu_forecasts", ["pool", "end", "over"])
    op.create_index("gpu_forecasts_by_ticket", "gpu_forecasts", ["ticket"])
    op.create_index("gpu_forecasts_by_time", "gpu_forecasts", ["at"])
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
        sa.Column("actor", sa.Text, nullable=False, server_default=""),
        sa.Column("evidence", sa.Text, nullable=False, server_default=""),
        sa.Column("reasons", sa.Text),
        sa.Column("grounds", sa.Text),
    )
    op.create_index("gpu_journal_by_time", "gpu_journal", ["at"])
    op.create_index("gpu_journal_by_user", "gpu_journal", ["user", "id"])
    op.create_table(
        "gpu_notices",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("text", sa.Text, nullable=False),
        sa.Column("reasons", sa.Text),
    )
    op.create_index("gpu_notices_by_user", "gpu_notices", ["user", "at"])
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
        sa.Column("asked", sa.DateTime),
        sa.Column("demands", sa.Text),
    )
    op.create_index("gpu_tickets_by_place", "gpu_tickets", ["place"])
    op.create_index("gpu_tickets_by_state", "gpu_tickets", ["state"])
    op.create_index("gpu_tickets_by_user", "gpu_tickets", ["user", "place"])
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
        sa.Column("promised", sa.DateTime),
        sa.Column("drain_at", sa.DateTime),
        sa.Column("drain_why", sa.Text),
        sa.Column("busy_since", sa.DateTime),
        sa.Column("run_ended", sa.DateTime),
        sa.Column("unknown_since", sa.DateTime),
        sa.Column("missed", sa.Float, nullable=False, server_default="0"),
        sa.Column("ends_at", sa.DateTime),
        sa.Column("extensions", sa.Integer, nullable=False, server_default="0"),
        sa.Column("announced", sa.DateTime),
        sa.Column("reached", sa.Text, nullable=False, server_default="[]"),
        sa.Column("unheard", sa.Boolean, nullable=False, server_default=sa.false()),
    )
    op.create_table(
        "gpu_meta",
        sa.Column("name", sa.Text, primary_key=True),
        sa.Column("value", sa.Text, nullable=False),
    )
    op.create_table(
        "gpu_open_uses",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("use", sa.Text, nullable=False),
    )
    op.create_table(
        "gpu_usage",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("user", sa.Text, nullable=False),
        sa.Column("server", sa.Text, nullable=False),
        sa.Column("offer", sa.Text, nullable=False),
        sa.Column("pool", sa.Text, nullable=False),
        sa.Column("share", sa.Integer, nullable=False),
        sa.Column("devices", sa.Integer, nullable=False),
        sa.Column("ticket", sa.Text, nullable=False),
        sa.Column("groups", sa.Text, nullable=False),
        sa.Column("choice", sa.Text, nullable=False),
        sa.Column("device_class", sa.Text, nullable=False),
        sa.Column("node", sa.Text, nullable=False),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("asked", sa.DateTime),
        sa.Column("admitted", sa.DateTime),
        sa.Column("ready", sa.DateTime),
        sa.Column("first_used", sa.DateTime),
        sa.Column("last_used", sa.DateTime),
        sa.Column("began", sa.DateTime, nullable=False, comment="the first of these that is known"),
        sa.Column("ended", sa.DateTime, nullable=False),
        sa.Column("end", sa.Text, nullable=False),
        sa.Column("lifetime_seconds", sa.Double),
        sa.Column("adopted", sa.Boolean, nullable=False),
        sa.Column("waited_seconds", sa.Double),
        sa.Column("held_seconds", sa.Double),
        sa.Column("ran_seconds", sa.Double),
        sa.Column("outage_seconds", sa.Double),
        sa.Column("mean_use_percent", sa.Double),
        sa.Column("highest_use_percent", sa.Double),
        sa.Column("use_measured", sa.Double),
        sa.Column("peak_memory_bytes", sa.BigInteger),
        sa.Column("memory_measured", sa.Double),
        sa.Column("keeps", sa.Integer),
        sa.Column("warnings", sa.Integer),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("batch", sa.BigInteger, comment="the import it came with; none: our own"),
    )
    op.create_index("gpu_usage_by_batch", "gpu_usage", ["batch"])
    op.create_index("gpu_usage_by_begin", "gpu_usage", ["began", "key"])
    op.create_index("gpu_usage_by_end", "gpu_usage", ["ended", "key"])
    op.create_index("gpu_usage_by_user", "gpu_usage", ["user", "ended", "key"])
    op.create_table(
        "gpu_imports",
        sa.Column("id", _SERIAL, primary_key=True, autoincrement=True),
        sa.Column("at", sa.DateTime, nullable=False),
        sa.Column("label", sa.Text, nullable=False),
        sa.Column("digest", sa.Text, nullable=False, comment="of the file's contents and how it was read"),
        sa.Column("rows", sa.BigInteger, nullable=False),
        sa.Column("done", sa.Boolean, nullable=False),
    )
    op.create_table(
        "gpu_samples",
        sa.Column("key", sa.Text, primary_key=True),
        sa.Column("at", sa.DateTime, primary_key=True),
        sa.Column("device", sa.Text, nullable=False),
        sa.Column("source", sa.Text, nullable=False),
        sa.Column("used_percent", sa.Double),
        sa.Column("highest_percent", sa.Double),
        sa.Column("memory_bytes", sa.BigInteger),
        sa.Column("measured_seconds", sa.Double, nullable=False),
    )
    op.create_index("gpu_samples_by_time", "gpu_samples", ["at"])
