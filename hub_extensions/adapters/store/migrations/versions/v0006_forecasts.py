"""Forecasts that were given, and what came true of them."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"


def upgrade() -> None:
    """Of what was told before nobody knows how good it was."""
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
    op.create_index("gpu_forecasts_by_time", "gpu_forecasts", ["at"])
    op.create_index("gpu_forecasts_by_ticket", "gpu_forecasts", ["ticket"])
