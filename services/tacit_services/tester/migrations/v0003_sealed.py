"""Releases sealed to another owner, until their study ends."""

import sqlalchemy as sa
from alembic import op

revision = "0003"
down_revision = "0002"


def upgrade() -> None:
    """Create the table."""
    op.create_table(
        "sealed",
        sa.Column("study", sa.String(64), sa.ForeignKey("studies.digest"), primary_key=True),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("ciphertext", sa.LargeBinary, nullable=False),
        sa.ForeignKeyConstraint(["study", "owner"], ["releases.study", "releases.owner"]),
    )
