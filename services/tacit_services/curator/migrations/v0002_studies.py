"""The studies asked of the curator, its owners' decisions on them, and what is to be sent."""

import sqlalchemy as sa
from alembic import op

from tacit_services.ledger.migration import add_send_times, create_studies

revision = "c0002"
down_revision = "c0001"


def upgrade() -> None:
    """Create the tables; those of studies and outbox are an agent's."""
    create_studies()
    add_send_times()
    op.create_table(
        "curator_decisions",
        sa.Column("study", sa.String(64), primary_key=True),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("account", sa.String(127), nullable=False),
        sa.Column("decision", sa.String(16), nullable=False),
        sa.Column("decided_by", sa.String(16), nullable=True),
        sa.Column("decided_at", sa.BigInteger, nullable=True),
        sa.ForeignKeyConstraint(["study"], ["agent_studies.digest"], name="fk_curator_decisions_study"),
    )
    op.create_index("ix_curator_decisions_owner", "curator_decisions", ["owner"])
