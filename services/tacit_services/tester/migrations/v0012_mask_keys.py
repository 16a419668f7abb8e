"""Keys of studies whose releases are masked."""

import sqlalchemy as sa
from alembic import op

revision = "0012"
down_revision = "0011"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "mask_keys",
        sa.Column("study", sa.String(64), sa.ForeignKey("studies.digest"), primary_key=True),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
    )
