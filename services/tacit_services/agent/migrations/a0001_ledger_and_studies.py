"""The ledger, the studies asked of this owner, and what is to be sent."""

from tacit_services.ledger.migration import create_ledger, create_studies

revision = "a0001"
down_revision = None


def upgrade() -> None:
    """Create the first tables."""
    create_ledger(63)
    create_studies()
