"""What stewards were told of."""

from tacit_services.agent.notices import create_notices

revision = "a0012"
down_revision = "a0009"


def upgrade() -> None:
    """Create the table: nothing was said before."""
    create_notices()
