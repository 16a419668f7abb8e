"""Links and sessions of the owner's pages."""

from tacit_services.shared.pages.sessions import create_tables

revision = "a0005"
down_revision = "a0004"


def upgrade() -> None:
    """Create both tables."""
    create_tables("agent_")
