"""People of the parties, and whose a link or a session is; keys of studies whose releases are masked."""

import sqlalchemy as sa
from alembic import op

from tacit_services.shared.people import create_people

revision = "0011"
down_revision = "0009"


def upgrade() -> None:
    """Create the tables: whoever was signed in is the holder of the key."""
    create_people("")
    op.create_table(
        "mask_keys",
        sa.Column("study", sa.String(64), sa.ForeignKey("studies.digest"), primary_key=True),
        sa.Column("owner", sa.String(63), primary_key=True),
        sa.Column("envelope", sa.LargeBinary, nullable=False),
        sa.Column("digest", sa.String(64), nullable=False),
        sa.Column("received_at", sa.BigInteger, nullable=False),
    )
