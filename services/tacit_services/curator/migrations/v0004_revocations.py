"""When owners' keys and invitations were revoked."""

import sqlalchemy as sa
from alembic import op

revision = "c0004"
down_revision = "c0003"


def upgrade() -> None:
    """Add a column to both tables: nothing has been revoked yet."""
    for table in ("curator_owners", "curator_invitations"):
        op.add_column(table, sa.Column("revoked_at", sa.BigInteger, nullable=True))
