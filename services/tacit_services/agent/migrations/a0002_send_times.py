"""When each answer is to be sent."""

import sqlalchemy as sa
from alembic import op

revision = "a0002"
down_revision = "a0001"


def upgrade() -> None:
    """Add the time; what was stored before is due at once."""
    column = sa.Column("send_at", sa.BigInteger, nullable=False, server_default="0")
    op.add_column("agent_outbox", column)
