"""The curator's schema, one step per module."""
