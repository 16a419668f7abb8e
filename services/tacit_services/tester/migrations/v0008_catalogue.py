"""What owners publish of their data sets."""

import sqlalchemy as sa
from alembic import op

revision = "0008"
down_revision = "0007"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "catalogue",
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
    )
