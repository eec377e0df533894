"""The end that a server's countdown shows: other limits do not take it back."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Of the countdowns of before it is not known what they showed."""
    op.add_column("gpu_server_facts", sa.Column("promised", sa.DateTime))
