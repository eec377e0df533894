"""Columns of provider sessions and of logout tokens get names that say what they hold."""

from __future__ import annotations

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0005"

RENAMED = (("gpu_signon_links", "kept", "encrypted_tokens"), ("gpu_signon_logouts", "until", "expires_at"))
"""Table, earlier name of a column, and its name now."""


def upgrade() -> None:
    """Rename the columns that are not renamed yet; as in 0004, a killed upgrade goes on here."""
    inspector = sa.inspect(op.get_bind())
    for table, old, new in RENAMED:
        if old in {each["name"] for each in inspector.get_columns(table)}:
            op.execute(f"ALTER TABLE {table} RENAME COLUMN {old} TO {new}")
