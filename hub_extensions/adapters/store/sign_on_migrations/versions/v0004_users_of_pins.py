"""Which account of the hub a pin is for: its number, and when it was made, as numbers are used again."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Known from the person's next sign-in on; as in 0002, a step that was killed goes on here."""
    there = {each["name"] for each in sa.inspect(op.get_bind()).get_columns("gpu_signon_identities")}
    for column in (sa.Column("user_id", sa.Integer), sa.Column("user_created", sa.DateTime)):
        if column.name not in there:
            op.add_column("gpu_signon_identities", column)
