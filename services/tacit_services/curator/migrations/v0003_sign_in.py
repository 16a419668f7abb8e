"""Links and sessions of the pages."""

from tacit_services.shared.pages.sessions import create_tables

revision = "c0003"
down_revision = "c0002"


def upgrade() -> None:
    """Create both tables."""
    create_tables("curator_")
