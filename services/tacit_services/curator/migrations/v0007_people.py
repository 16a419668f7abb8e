"""People of owners and operator, their decisions, who approved what was spent, and what they were told."""

from tacit_services.agent.notices import create_notices
from tacit_services.ledger.migration import create_personal_decisions
from tacit_services.shared.people import create_people

revision = "c0007"
down_revision = "c0006"


def upgrade() -> None:
    """Create the tables: whoever was signed in is the holder of the key."""
    create_people("curator_")
    create_personal_decisions()
    create_notices()
