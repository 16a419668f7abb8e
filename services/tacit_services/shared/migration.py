"""The tables of sign-in that every service has, for their first migrations."""

import sqlalchemy as sa
from alembic import op


def create_sign_in(prefix: str) -> None:
    """Create the tables of links, sessions, people and their record, with this prefix."""
    for name in ("sign_in_links", "page_sessions"):
        op.create_table(
            prefix + name,
            sa.Column("digest", sa.String(64), primary_key=True),
            sa.Column("key", sa.String(64), nullable=False),
            sa.Column("expires_at", sa.BigInteger, nullable=False),
            sa.Column("person", sa.String(63), nullable=False, server_default="key-holder"),
        )
    op.create_table(
        f"{prefix}users",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("name", sa.String(63), primary_key=True),
        sa.Column("role", sa.String(16), nullable=False),
        sa.Column("email", sa.String(254), nullable=True),
        sa.Column("subject", sa.String(255), nullable=True),
        sa.Column("added_at", sa.BigInteger, nullable=False),
        sa.Column("removed_at", sa.BigInteger, nullable=True),
        sa.Column("demotions", sa.BigInteger, nullable=False, server_default="0"),
    )
    op.create_table(
        f"{prefix}record",
        sa.Column("key", sa.String(64), primary_key=True),
        sa.Column("sequence", sa.BigInteger, primary_key=True, autoincrement=False),
        sa.Column("at", sa.BigInteger, nullable=False),
        sa.Column("person", sa.String(63), nullable=False),
        sa.Column("action", sa.String(32), nullable=False),
        sa.Column("detail", sa.Text, nullable=False),
        sa.Column("previous_hash", sa.String(64), nullable=False),
        sa.Column("entry_hash", sa.String(64), nullable=False),
    )
