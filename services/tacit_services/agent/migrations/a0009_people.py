"""People of the owner, their decisions, who approved what was spent, and what stewards were told of."""

from tacit_services.agent.notices import create_notices
from tacit_services.ledger.migration import create_personal_decisions
from tacit_services.shared.people import create_people

revision = "a0009"
down_revision = "a0008"


def upgrade() -> None:
    """Create the tables: whoever was signed in is the holder of the key."""
    create_people("agent_")
    create_personal_decisions()
    create_notices()
