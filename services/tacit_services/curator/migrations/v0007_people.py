"""People of owners and operator, their decisions, what they were told, and moments of answers."""

import sqlalchemy as sa
from alembic import op

from tacit_services.agent.notices import create_notices
from tacit_services.agent.studies import add_moments
from tacit_services.ledger.migration import create_personal_decisions
from tacit_services.shared.people import create_people

revision = "c0007"
down_revision = "c0006"


def upgrade() -> None:
    """Create the tables: whoever was signed in is the holder of the key."""
    create_people("curator_")
    create_personal_decisions()
    create_notices()
    add_moments()
    op.add_column(
        "curator_decisions", sa.Column("version", sa.BigInteger, nullable=False, server_default="0")
    )
