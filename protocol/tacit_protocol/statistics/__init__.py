"""Statistics computed from releases. Knows no message."""
