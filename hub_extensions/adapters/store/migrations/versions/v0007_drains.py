"""Servers that stop because their user was signed out: until when, and why."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """None was ordered before."""
    op.add_column("gpu_server_facts", sa.Column("drain_at", sa.DateTime))
    op.add_column("gpu_server_facts", sa.Column("drain_why", sa.Text))
