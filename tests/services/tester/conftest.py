"""A tester with everyone enrolled, on each database."""

from tester_federation import federation

__all__ = ["federation"]
