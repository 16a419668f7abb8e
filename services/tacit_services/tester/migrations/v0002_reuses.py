"""Releases that a later study reads again."""

import sqlalchemy as sa
from alembic import op

revision = "0002"
down_revision = "0001"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "reuses",
        sa.Column("study", sa.String(64), sa.ForeignKey("studies.digest"), primary_key=True),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("source", sa.String(64), nullable=False, index=True),
        sa.ForeignKeyConstraint(["source", "owner"], ["releases.study", "releases.owner"]),
    )
