"""Servers that are to stop: why, for their user."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Of what was ordered before the reason is not known; as in 0002, a step that was killed goes on here."""
    there = {each["name"] for each in sa.inspect(op.get_bind()).get_columns("gpu_signon_stops")}
    if "cause" not in there:
        op.add_column("gpu_signon_stops", sa.Column("cause", sa.Text, nullable=False, server_default=""))
