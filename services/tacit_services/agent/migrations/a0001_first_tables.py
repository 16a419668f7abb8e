"""The first tables: the ledger, studies and answers, alignments, what other owners sent, masks, sign-in."""

import sqlalchemy as sa
from alembic import op

from tacit_services.ledger.migration import create_ledger, create_studies
from tacit_services.shared.migration import create_sign_in

revision = "a0001"
down_revision = None


def _study() -> sa.Column[str]:
    return sa.Column("study", sa.String(64), sa.ForeignKey("agent_studies.digest"), primary_key=True)


def upgrade() -> None:
    """Create the tables."""
    create_ledger(63)
    create_studies(63)
    create_sign_in("agent_")
    op.create_table(
        "agent_alignments",
        sa.Column("data_set", sa.String(63), primary_key=True),
        sa.Column("unit_column", sa.String(128), primary_key=True),
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("peer_key", sa.String(64), primary_key=True),
        sa.Column("peer_name", sa.String(63), primary_key=True),
        sa.Column("peer_data_set", sa.String(63), primary_key=True),
        sa.Column("unit_key", sa.LargeBinary, nullable=False),
        sa.Column("aligned_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "agent_received",
        _study(),
        sa.Column("package", sa.LargeBinary, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
        sa.Column("source", sa.LargeBinary),
    )
    op.create_table(
        "agent_findings",
        _study(),
        sa.Column("finding", sa.LargeBinary, nullable=False),
        sa.Column("found_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "agent_held",
        _study(),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("release", sa.LargeBinary, nullable=False),
        sa.Column("shown_from", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "agent_mask_secrets",
        _study(),
        sa.Column("secret", sa.LargeBinary, nullable=False),
        sa.Column("drawn_at", sa.BigInteger, nullable=False),
    )
