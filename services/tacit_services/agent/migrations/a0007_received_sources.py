"""The earlier studies that other owners' releases, read again here, were made for."""

import sqlalchemy as sa
from alembic import op

revision = "a0007"
down_revision = "a0006"


def upgrade() -> None:
    """Add the column: nothing that came before was made for an earlier study."""
    op.add_column("agent_received", sa.Column("source", sa.LargeBinary))
