"""Archiving: ended studies as verifiable files, and the deletion of what has been archived."""
