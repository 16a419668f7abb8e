"""Acceptances of second rounds."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "acceptances",
        sa.Column("study", sa.String(64), sa.ForeignKey("studies.digest"), primary_key=True),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
    )
