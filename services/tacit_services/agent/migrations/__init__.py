"""The agent's schema, one step per module."""
