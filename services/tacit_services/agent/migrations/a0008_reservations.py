"""Reservations of the ledger, for studies that are approved now and debited later."""

from tacit_services.ledger.migration import create_reservations

revision = "a0008"
down_revision = "a0007"


def upgrade() -> None:
    """Create the table: nothing was reserved before."""
    create_reservations(63)
