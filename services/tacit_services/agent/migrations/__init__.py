"""The agent's schema, one migration per module."""
