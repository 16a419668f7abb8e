"""Other owners' releases, sealed to this one, and what was found with them."""

import sqlalchemy as sa
from alembic import op

revision = "a0004"
down_revision = "a0003"


def _study() -> sa.Column[str]:
    return sa.Column("study", sa.String(64), sa.ForeignKey("agent_studies.digest"), primary_key=True)


def upgrade() -> None:
    """Create both tables."""
    op.create_table(
        "agent_received",
        _study(),
        sa.Column("package", sa.LargeBinary, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "agent_findings",
        _study(),
        sa.Column("finding", sa.LargeBinary, nullable=False),
        sa.Column("found_at", sa.BigInteger, nullable=False),
    )
