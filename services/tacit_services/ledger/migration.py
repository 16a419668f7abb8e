"""The tables that agents and curators share, for their first migrations."""

import sqlalchemy as sa
from alembic import op

_AMOUNTS = ("pure_{}_pico", "gaussian_{}_femto", "approximate_{}_atto")


def create_ledger(account_length: int) -> None:
    """Create the ledger's tables, for accounts with names of so many characters."""
    op.create_table(
        "ledger_accounts",
        sa.Column("data_set", sa.String(account_length), primary_key=True),
        sa.Column("epsilon_cap_micro", sa.BigInteger, nullable=False),
        sa.Column("delta_cap_pico", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("head_hash", sa.String(64), nullable=False),
        sa.Column("division", sa.String(40), nullable=False),
        sa.Column("debits", sa.BigInteger, nullable=False, server_default="0"),
        *(
            sa.Column(name.format(kind), sa.BigInteger, nullable=False, server_default="0")
            for kind in ("share", "spent", "promised")
            for name in _AMOUNTS
        ),
    )
    op.create_table(
        "ledger_entries",
        sa.Column("data_set", sa.String(account_length), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("kind", sa.String(8), nullable=False),
        sa.Column("study", sa.String(64), nullable=True),
        sa.Column("events", sa.Text, nullable=False),
        sa.Column("epsilon_micro", sa.BigInteger, nullable=False),
        sa.Column("delta_pico", sa.BigInteger, nullable=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("previous_hash", sa.String(64), nullable=False),
        sa.Column("entry_hash", sa.String(64), nullable=False),
        sa.Column("pure_pico", sa.BigInteger, nullable=False),
        sa.Column("gaussian_femto", sa.BigInteger, nullable=False),
        sa.Column("approximate_atto", sa.BigInteger, nullable=False),
        sa.Column("approved_by", sa.Text, nullable=True),
        sa.ForeignKeyConstraint(["data_set"], ["ledger_accounts.data_set"], name="fk_ledger_entries_account"),
        sa.UniqueConstraint("data_set", "study", name="uq_ledger_entries_study"),
    )
    op.create_table(
        "ledger_reservations",
        sa.Column("data_set", sa.String(account_length), primary_key=True),
        sa.Column("study", sa.String(64), primary_key=True),
        *(
            sa.Column(name, sa.BigInteger, nullable=False)
            for name in ("pure_pico", "gaussian_femto", "approximate_atto", "at")
        ),
        sa.ForeignKeyConstraint(
            ["data_set"], ["ledger_accounts.data_set"], name="fk_ledger_reservations_account"
        ),
    )


def create_studies(account_length: int) -> None:
    """Create the tables of studies, answers, people's decisions, notices and readings."""
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
        sa.Column("approved_at", sa.BigInteger, nullable=False, server_default="0"),
        sa.Column("shown_from", sa.BigInteger, nullable=False, server_default="0"),
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
        sa.Column("send_at", sa.BigInteger, nullable=False, server_default="0"),
        sa.ForeignKeyConstraint(["study"], ["agent_studies.digest"], name="fk_agent_outbox_study"),
    )
    op.create_table(
        "agent_personal_decisions",
        sa.Column("study", sa.String(64), sa.ForeignKey("agent_studies.digest"), primary_key=True),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("person", sa.String(63), primary_key=True),
        sa.Column("decision", sa.String(16), nullable=False),
        sa.Column("decided_at", sa.BigInteger, nullable=False),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("demotions", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "agent_notices",
        sa.Column("channel", sa.String(16), primary_key=True),
        sa.Column("kind", sa.String(8), primary_key=True),
        sa.Column("subject", sa.String(160), primary_key=True),
        sa.Column("sent_at", sa.BigInteger, nullable=True),
    )
    op.create_table(
        "agent_readings",
        sa.Column("account", sa.String(account_length), primary_key=True),
        sa.Column("study", sa.String(64), sa.ForeignKey("agent_studies.digest"), nullable=False),
        sa.Column("owner", sa.String(63), nullable=False),
        sa.Column("guarantee", sa.LargeBinary, nullable=True),
        sa.Column("attempts", sa.Integer, nullable=False),
        sa.Column("closed_at", sa.BigInteger, nullable=True),
        sa.Column("shown_from", sa.BigInteger, nullable=True),
        sa.Column("place", sa.String(200), nullable=True),
        sa.Column("fault", sa.String(200), nullable=True),
    )
