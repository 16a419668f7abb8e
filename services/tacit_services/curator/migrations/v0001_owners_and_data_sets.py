"""Owners, invitations, data sets, and the ledger of their accounts."""

import sqlalchemy as sa
from alembic import op

revision = "c0001"
down_revision = None

_ACCOUNT = sa.String(127)
"""``owner/data-set``: two names of at most 63 characters."""


def upgrade() -> None:
    """Create the first tables."""
    _create_owners()
    _create_data_sets()
    _create_ledger()


def _create_owners() -> None:
    op.create_table(
        "curator_owners",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("key", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("enrolled_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "curator_invitations",
        sa.Column("token_digest", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("used_by", sa.String(64), nullable=True),
    )


def _create_data_sets() -> None:
    op.create_table("curator_storage", sa.Column("id", sa.String(32), primary_key=True))
    op.create_table(
        "curator_data_sets",
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("columns", sa.Text, nullable=False),
        sa.Column("unit_column", sa.String(128), nullable=True),
        sa.Column("policy", sa.Text, nullable=False),
        sa.Column("registered_at", sa.BigInteger, nullable=False),
        sa.Column("deleted_at", sa.BigInteger, nullable=True),
        sa.Column("file", sa.String(32), nullable=True),
        sa.Column("wrapped_key", sa.LargeBinary, nullable=True),
        sa.Column("rows", sa.BigInteger, nullable=True),
        sa.Column("units", sa.BigInteger, nullable=True),
        sa.Column("size_bytes", sa.BigInteger, nullable=True),
        sa.Column("uploaded_at", sa.BigInteger, nullable=True),
    )


def _create_ledger() -> None:
    op.create_table(
        "ledger_accounts",
        sa.Column("data_set", _ACCOUNT, primary_key=True),
        sa.Column("epsilon_cap_micro", sa.BigInteger, nullable=False),
        sa.Column("delta_cap_pico", sa.BigInteger, nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("head_hash", sa.String(64), nullable=False),
    )
    op.create_table(
        "ledger_entries",
        sa.Column("data_set", _ACCOUNT, primary_key=True),
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
