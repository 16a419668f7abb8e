"""Secrets of studies whose releases are masked."""

import sqlalchemy as sa
from alembic import op

revision = "a0011"
down_revision = "a0010"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "agent_mask_secrets",
        sa.Column("study", sa.String(64), sa.ForeignKey("agent_studies.digest"), primary_key=True),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.Column("drawn_at", sa.BigInteger, nullable=False),
    )
