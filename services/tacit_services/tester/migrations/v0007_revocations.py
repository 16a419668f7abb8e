"""When keys and invitations were revoked."""

import sqlalchemy as sa
from alembic import op

revision = "0007"
down_revision = "0006"


def upgrade() -> None:
    """Add a column to both tables: nothing has been revoked yet."""
    for table in ("parties", "invitations"):
        op.add_column(table, sa.Column("revoked_at", sa.BigInteger, nullable=True))
