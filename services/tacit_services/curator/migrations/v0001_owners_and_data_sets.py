"""Owners, invitations, data sets, and the ledger of their accounts."""

import sqlalchemy as sa
from alembic import op

from tacit_services.ledger.migration import create_ledger

revision = "c0001"
down_revision = None


def upgrade() -> None:
    """Create the first tables."""
    _create_owners()
    _create_data_sets()
    create_ledger(127)  # owner/data-set, two names of at most 63 characters


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
