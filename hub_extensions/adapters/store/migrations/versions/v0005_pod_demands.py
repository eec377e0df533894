"""What the pod of a server in line will demand of a node."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Of the tickets of before it is not known."""
    op.add_column("gpu_tickets", sa.Column("demands", sa.Text))
