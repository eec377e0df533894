"""What rows of the journal and notices say by codes, for readers of other languages."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0010"
down_revision = "0009"


def upgrade() -> None:
    """What is there by now is shown as it stands."""
    op.add_column("gpu_journal", sa.Column("reasons", sa.Text))
    op.add_column("gpu_journal", sa.Column("grounds", sa.Text))
    op.add_column("gpu_notices", sa.Column("reasons", sa.Text))
