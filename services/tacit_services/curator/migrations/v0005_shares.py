"""The ledger's caps are divided into shares."""

from tacit_services.ledger.migration import divide_accounts

revision = "c0005"
down_revision = "c0004"


def upgrade() -> None:
    """Add the shares, and compute what was spent of each."""
    divide_accounts()
