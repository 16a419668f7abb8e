"""People of the owner, what each of them decided, and who approved what the ledger spent."""

from tacit_services.ledger.migration import create_personal_decisions
from tacit_services.shared.people import create_people

revision = "a0009"
down_revision = "a0008"


def upgrade() -> None:
    """Create the tables: whoever was signed in is the holder of the key."""
    create_people("agent_")
    create_personal_decisions()
