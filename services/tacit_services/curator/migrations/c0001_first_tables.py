"""The first tables: owners, invitations and data sets, the ledger, studies and decisions, sign-in."""

import sqlalchemy as sa
from alembic import op

from tacit_services.ledger.migration import create_ledger, create_studies
from tacit_services.shared.migration import create_sign_in

revision = "c0001"
down_revision = None

_ACCOUNT_LENGTH = 127
"""owner/data-set, two names of at most 63 characters."""


def upgrade() -> None:
    """Create the tables; those of studies and answers are an agent's."""
    create_ledger(_ACCOUNT_LENGTH)
    create_studies(_ACCOUNT_LENGTH)
    create_sign_in("curator_")
    op.create_table(
        "curator_owners",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("key", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("enrolled_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger, nullable=True),
    )
    op.create_table(
        "curator_invitations",
        sa.Column("token_digest", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("used_by", sa.String(64), nullable=True),
        sa.Column("revoked_at", sa.BigInteger, nullable=True),
    )
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
    op.create_table(
        "curator_decisions",
        sa.Column("study", sa.String(64), primary_key=True),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("account", sa.String(127), nullable=False),
        sa.Column("decision", sa.String(16), nullable=False),
        sa.Column("decided_by", sa.String(16), nullable=True),
        sa.Column("decided_at", sa.BigInteger, nullable=True),
        sa.Column("version", sa.BigInteger, nullable=False, server_default="0"),
        sa.ForeignKeyConstraint(["study"], ["agent_studies.digest"], name="fk_curator_decisions_study"),
    )
    op.create_index("ix_curator_decisions_owner", "curator_decisions", ["owner"])
