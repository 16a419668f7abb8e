"""People of the owner and their decisions, notices, releases that are held, secrets of masks, moments."""

import sqlalchemy as sa
from alembic import op

from tacit_services.agent.notices import create_notices
from tacit_services.agent.studies import add_moments
from tacit_services.ledger.migration import create_personal_decisions
from tacit_services.shared.people import create_people

revision = "a0009"
down_revision = "a0008"


def upgrade() -> None:
    """Create the tables: whoever was signed in is the holder of the key, and nothing was held before."""
    create_people("agent_")
    create_personal_decisions()
    create_notices()
    add_moments()
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


def _study() -> sa.Column[str]:
    return sa.Column("study", sa.String(64), sa.ForeignKey("agent_studies.digest"), primary_key=True)
