"""A tester on SQLite with everyone enrolled."""

from tester_federation import lone_federation as federation

__all__ = ["federation"]
