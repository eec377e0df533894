"""The sentences that a notice to a user is made of, so that its page says them in its reader's language."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """What was written before stays in English for the day that it is shown."""
    op.add_column("gpu_notices", sa.Column("reasons", sa.Text, nullable=False, server_default="[]"))
