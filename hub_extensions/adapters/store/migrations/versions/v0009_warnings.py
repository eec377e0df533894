"""Which end a server's user was warned of, who heard of it, and whether its countdown has begun again.

And one's own rows of the journal, the newest first, without a look at everybody's.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0009"
down_revision = "0008"


def upgrade() -> None:
    """Of a warning that stands by now nobody knows who heard it: the next look announces it again."""
    op.add_column("gpu_server_facts", sa.Column("announced", sa.DateTime))
    op.add_column("gpu_server_facts", sa.Column("reached", sa.Text, nullable=False, server_default="[]"))
    op.add_column("gpu_server_facts", sa.Column("unheard", sa.Boolean, nullable=False, server_default=sa.false()))
    op.create_index("gpu_journal_by_user", "gpu_journal", ["user", "id"])
