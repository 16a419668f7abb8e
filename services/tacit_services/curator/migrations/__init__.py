"""The curator's schema, one migration per module."""
