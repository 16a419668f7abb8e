"""Links and sessions of the owner's pages."""

from tacit_services.shared.pages.tables import create_tables

revision = "a0005"
down_revision = "a0004"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    create_tables("agent_")
