"""The studies asked of the curator, its owners' decisions on them, and what is to be sent."""

import sqlalchemy as sa
from alembic import op

revision = "c0002"
down_revision = "c0001"


def upgrade() -> None:
    """Create the tables; those of studies and outbox are an agent's."""
    op.create_table(
        "agent_studies",
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("state", sa.String(24), nullable=False),
        sa.Column("data_set", sa.String(63), nullable=True),
        sa.Column("envelope", sa.LargeBinary, nullable=True),
        sa.Column("deadline", sa.BigInteger, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.Column("changed_at", sa.BigInteger, nullable=False),
        sa.Column("problem", sa.String(32), nullable=True),
        sa.Column("reason", sa.String(500), nullable=True),
        sa.Column("verdict", sa.LargeBinary, nullable=True),
    )
    op.create_index("ix_agent_studies_state", "agent_studies", ["state"])
    op.create_table(
        "agent_outbox",
        sa.Column("study", sa.String(64), primary_key=True),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("send_at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("closed_at", sa.BigInteger, nullable=True),
        sa.Column("outcome", sa.String(32), nullable=True),
        sa.ForeignKeyConstraint(["study"], ["agent_studies.digest"], name="fk_agent_outbox_study"),
    )
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
