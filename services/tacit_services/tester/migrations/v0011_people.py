"""People of the parties, and whose a link or a session is."""

from tacit_services.shared.people import create_people

revision = "0011"
down_revision = "0009"


def upgrade() -> None:
    """Create the tables: whoever was signed in is the holder of the key."""
    create_people("")
