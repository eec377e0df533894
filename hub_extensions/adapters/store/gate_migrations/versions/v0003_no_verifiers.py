"""A verifier is made of what the browser brings, and not kept."""

from __future__ import annotations

from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """The column goes, with the verifiers of sign-ins that are under way: those begin again."""
    op.drop_column("gate_sign_ins", "verifier")
