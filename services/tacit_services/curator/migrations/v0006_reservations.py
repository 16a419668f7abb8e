"""Reservations of the ledger, as agents have them."""

from tacit_services.ledger.migration import create_reservations

revision = "c0006"
down_revision = "c0005"


def upgrade() -> None:
    """Create the table: nothing was reserved before."""
    create_reservations(127)
