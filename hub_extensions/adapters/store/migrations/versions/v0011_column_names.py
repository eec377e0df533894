"""Rename columns of forecasts and of ordered stops, so that they have the names that the code uses."""

from __future__ import annotations

from alembic import op

revision = "0011"
down_revision = "0010"

RENAMED = {
    "gpu_forecasts": {
        "played_p10": "simulated_p10",
        "played_p50": "simulated_p50",
        "played_p90": "simulated_p90",
        "told_p10": "shown_p10",
        "told_p50": "shown_p50",
        "told_p90": "shown_p90",
        "soon": "shown_within",
        "over": "ended_at",
    },
    "gpu_server_facts": {"drain_why": "drain_orders"},
}
"""Table -> earlier name of a column -> its name now."""


def upgrade() -> None:
    for table, columns in RENAMED.items():
        for old, new in columns.items():
            op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
