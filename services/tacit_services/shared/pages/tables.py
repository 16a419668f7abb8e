"""The tables of signing in; each service has its own two.

A row of the first is a one-time link, written when it is asked for and deleted when it is used or too old. A
row of the second is a browser that is signed in, written when a link is used and deleted at sign-out or when
it is too old. Of links and cookies only digests are stored.
"""

from dataclasses import dataclass

import sqlalchemy as sa


@dataclass(frozen=True)
class SignInTables:
    """A service's links and sessions."""

    links: sa.Table
    sessions: sa.Table

    @classmethod
    def make(cls, metadata: sa.MetaData, prefix: str) -> "SignInTables":
        """Describe the tables ``<prefix>sign_in_links`` and ``<prefix>page_sessions``."""
        return cls(*(sa.Table(prefix + name, metadata, *_columns()) for name in NAMES))


NAMES = ("sign_in_links", "page_sessions")


def _columns() -> list[sa.Column[str] | sa.Column[int]]:
    return [
        sa.Column("digest", sa.String(64), primary_key=True),
        sa.Column("key", sa.String(64), nullable=False),
        sa.Column("expires_at", sa.BigInteger, nullable=False),
    ]


def create_tables(prefix: str) -> None:
    """Create both tables; for migrations."""
    from alembic import op  # noqa: PLC0415 (migrations alone need it)

    for name in NAMES:
        op.create_table(prefix + name, *_columns())
