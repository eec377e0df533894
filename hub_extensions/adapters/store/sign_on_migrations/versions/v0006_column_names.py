"""Rename columns of provider sessions and of logout tokens, so that their names describe the content."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

RENAMED = (("gpu_signon_links", "kept", "encrypted_tokens"), ("gpu_signon_logouts", "until", "expires_at"))
"""Table, earlier name of a column, and its name now."""


def upgrade() -> None:
    """Rename the columns that are not renamed yet: SQLite commits each change by itself, so an upgrade that was killed
    continues here.
    """
    inspector = sa.inspect(op.get_bind())
    for table, old, new in RENAMED:
        if old in {each["name"] for each in inspector.get_columns(table)}:
            op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
