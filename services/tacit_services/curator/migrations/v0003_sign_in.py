"""Links and sessions of the pages."""

from tacit_services.shared.pages.tables import create_tables

revision = "c0003"
down_revision = "c0002"
branch_labels = None
depends_on = None


def upgrade() -> None:
    """Create both tables."""
    create_tables("curator_")
