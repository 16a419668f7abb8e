"""The ledger, the studies asked of this owner, and what is to be sent."""

import sqlalchemy as sa
from alembic import op

revision = "a0001"
down_revision = None


def upgrade() -> None:
    """Create the first tables."""
    op.create_table(
        "ledger_accounts",
        sa.Column("data_set", sa.String(63), primary_key=True),
        sa.Column("epsilon_cap_micro", sa.BigInteger, nullable=False),
        sa.Column("delta_cap_pico", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("head_hash", sa.String(64), nullable=False),
    )
    op.create_table(
        "ledger_entries",
        sa.Column("data_set", sa.String(63), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("study", sa.String(64), nullable=True),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("epsilon_micro", sa.BigInteger, nullable=False),
        sa.Column("delta_pico", sa.BigInteger, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("spent_after_micro", sa.BigInteger, nullable=False),
        sa.Column("previous_hash", sa.String(64), nullable=False),
        sa.Column("entry_hash", sa.String(64), nullable=False),
        sa.ForeignKeyConstraint(["data_set"], ["ledger_accounts.data_set"], name="fk_ledger_entries_account"),
        sa.UniqueConstraint("data_set", "study", name="uq_ledger_entries_study"),
    )
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
        sa.Column("closed_at", sa.BigInteger, nullable=True),
        sa.Column("outcome", sa.String(32), nullable=True),
        sa.ForeignKeyConstraint(["study"], ["agent_studies.digest"], name="fk_agent_outbox_study"),
    )
