"""Releases that wait for a steward's look before they are sent."""

import sqlalchemy as sa
from alembic import op

revision = "a0010"
down_revision = "a0009"


def upgrade() -> None:
    """Create the table: nothing was held before."""
    op.create_table(
        "agent_held",
        sa.Column("study", sa.String(64), sa.ForeignKey("agent_studies.digest"), primary_key=True),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("release", sa.LargeBinary, nullable=False),
        sa.Column("shown_from", sa.BigInteger, nullable=False),
    )
