"""Links and sessions of the pages."""

from tacit_services.shared.pages.sessions import create_tables

revision = "0004"
down_revision = "0003"


def upgrade() -> None:
    """Create both tables."""
    create_tables("")
