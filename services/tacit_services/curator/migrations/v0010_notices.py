"""What owners and the operator were told of, as agents tell."""

from tacit_services.agent.notices import create_notices

revision = "c0010"
down_revision = "c0007"


def upgrade() -> None:
    """Create the table: nothing was said before."""
    create_notices()
