"""Which data sets were found to hold the same units as another owner's."""

import sqlalchemy as sa
from alembic import op

revision = "a0003"
down_revision = "a0002"


def upgrade() -> None:
    """Create the table of alignments."""
    op.create_table(
        "agent_alignments",
        sa.Column("data_set", sa.String(63), primary_key=True),
        sa.Column("unit_column", sa.String(128), primary_key=True),
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("peer_key", sa.String(64), primary_key=True),
        sa.Column("peer_name", sa.String(63), primary_key=True),
        sa.Column("peer_data_set", sa.String(63), primary_key=True),
        sa.Column("unit_key", sa.LargeBinary, nullable=False),
        sa.Column("aligned_at", sa.BigInteger, nullable=False),
    )
