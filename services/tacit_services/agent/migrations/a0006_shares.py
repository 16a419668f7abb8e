"""The ledger's caps are divided into shares."""

from tacit_services.ledger.migration import divide_accounts

revision = "a0006"
down_revision = "a0005"


def upgrade() -> None:
    """Add the shares, and compute what was spent of each."""
    divide_accounts()
