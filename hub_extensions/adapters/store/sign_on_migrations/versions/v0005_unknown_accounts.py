"""Add two columns and a table.

The columns have the times when the provider last reported a person's groups, and when its administration API had a
record of the account. The table has the users whose account may no longer exist.
"""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0005"
down_revision = "0004"


def upgrade() -> None:
    """Add what is not there yet: SQLite commits each change by itself, so an upgrade that was killed continues here."""
    inspector = sa.inspect(op.get_bind())
    there = {each["name"] for each in inspector.get_columns("gpu_signon_identities")}
    for column in (sa.Column("groups_named", sa.DateTime), sa.Column("account_seen", sa.DateTime)):
        if column.name not in there:
            op.add_column("gpu_signon_identities", column)
    if "gpu_signon_unknown" not in inspector.get_table_names():
        op.create_table(
            "gpu_signon_unknown",
            sa.Column("user_id", sa.Integer, primary_key=True),
            sa.Column("since", sa.DateTime, nullable=False),
        )
