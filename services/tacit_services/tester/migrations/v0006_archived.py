"""What remains of studies that were archived."""

import sqlalchemy as sa
from alembic import op

revision = "0006"
down_revision = "0004"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "archived",
        sa.Column("study", sa.String(64), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
        sa.Column("archived_at", sa.BigInteger, nullable=False),
        sa.Column("file_digest", sa.String(64), nullable=False),
    )
