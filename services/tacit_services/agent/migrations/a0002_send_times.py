"""When each answer is to be sent."""

from tacit_services.ledger.migration import add_send_times

revision = "a0002"
down_revision = "a0001"


def upgrade() -> None:
    """Add the time."""
    add_send_times()
