"""Which study reads the rows of an account, and which accounts are locked."""

from tacit_services.agent.readings import create_readings

revision = "c0008"
down_revision = "c0007"


def upgrade() -> None:
    """Create the table: nothing was being read before."""
    create_readings(127)
