"""The first tables: parties, studies and their answers, jobs and verdicts, the archive, sign-in."""

import sqlalchemy as sa
from alembic import op

from tacit_services.shared.migration import create_sign_in

revision = "0001"
down_revision = None

_KEY = sa.BigInteger().with_variant(sa.Integer, "sqlite")


def _study() -> sa.Column[str]:
    return sa.Column("study", sa.String(64), sa.ForeignKey("studies.digest"), primary_key=True)


def upgrade() -> None:
    """Create the tables."""
    create_sign_in("")
    _create_parties()
    _create_studies()
    _create_answers()
    _create_results()


def _create_parties() -> None:
    op.create_table(
        "parties",
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("key", sa.String(64), nullable=False, unique=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("enrolled_at", sa.BigInteger, nullable=False),
        sa.Column("revoked_at", sa.BigInteger, nullable=True),
    )
    op.create_table(
        "invitations",
        sa.Column("token_digest", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(63), nullable=False),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
        sa.Column("used_by", sa.String(64), nullable=True),
        sa.Column("revoked_at", sa.BigInteger, nullable=True),
    )
    op.create_table(
        "catalogue",
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("version", sa.BigInteger, nullable=False),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
    )


def _create_studies() -> None:
    op.create_table(
        "studies",
        sa.Column("sequence", _KEY, primary_key=True, autoincrement=True),
        sa.Column("digest", sa.String(64), nullable=False, unique=True),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("title", sa.String(200), nullable=False),
        sa.Column("procedure", sa.String(63), nullable=False),
        sa.Column("analyst_key", sa.String(64), nullable=False, index=True),
        sa.Column("state", sa.String(16), nullable=False, index=True),
        sa.Column("created_at", sa.BigInteger, nullable=False),
        sa.Column("deadline", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "study_owners",
        _study(),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("position", sa.Integer, nullable=False),
        sa.Column("key", sa.String(64), nullable=False, index=True),
    )
    op.create_table(
        "archived",
        sa.Column("study", sa.String(64), primary_key=True),
        sa.Column("state", sa.String(16), nullable=False),
        sa.Column("ended_at", sa.BigInteger, nullable=False),
        sa.Column("archived_at", sa.BigInteger, nullable=False),
        sa.Column("file_digest", sa.String(64), nullable=False),
    )


def _create_answers() -> None:
    op.create_table(
        "releases",
        _study(),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("units", sa.BigInteger, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "reuses",
        _study(),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("source", sa.String(64), nullable=False, index=True),
        sa.ForeignKeyConstraint(["source", "owner"], ["releases.study", "releases.owner"]),
    )
    op.create_table(
        "sealed",
        _study(),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("ciphertext", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(["study", "owner"], ["releases.study", "releases.owner"]),
    )
    op.create_table(
        "mask_keys",
        _study(),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "declines",
        _study(),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
    )
    for name in ("cancellations", "acceptances"):
        op.create_table(
            name,
            _study(),
            sa.Column("envelope", sa.LargeBinary, nullable=False),
            sa.Column("received_at", sa.BigInteger, nullable=False),
        )


def _create_results() -> None:
    op.create_table(
        "jobs",
        sa.Column("sequence", _KEY, primary_key=True, autoincrement=True),
        sa.Column("study", sa.String(64), sa.ForeignKey("studies.digest"), nullable=False, unique=True),
        sa.Column("analyst_key", sa.String(64), nullable=False),
        sa.Column("holder", sa.String(32), nullable=True),
        sa.Column("lease_until", sa.Double, nullable=False, index=True),
        sa.Column("attempts", sa.Integer, nullable=False),
    )
    op.create_table(
        "turns",
        sa.Column("analyst_key", sa.String(64), primary_key=True),
        sa.Column("taken", sa.BigInteger, nullable=False),
    )
    op.create_table(
        "progress",
        _study(),
        sa.Column("fraction", sa.Double, nullable=False),
        sa.Column("step", sa.String(200), nullable=False),
    )
    op.create_table(
        "verdicts",
        _study(),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("outcome", sa.String(16), nullable=False),
        sa.Column("created_at", sa.BigInteger, nullable=False),
    )
