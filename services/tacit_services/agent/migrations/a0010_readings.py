"""Which study reads the rows of an account, and which accounts are locked."""

from tacit_services.agent.readings import create_readings

revision = "a0010"
down_revision = "a0009"


def upgrade() -> None:
    """Create the table: nothing was being read before."""
    create_readings(63)
