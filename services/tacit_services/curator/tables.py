"""The curator's tables, beside those of the ledger. docs/curator-storage.md tells each row's life.

Accounts of the ledger are named ``owner/data-set``: the migration gives them room for both names.
"""

import sqlalchemy as sa

from tacit_services.shared.pages.sessions import SignInTables
from tacit_services.shared.roster import Roster, invitations_table, parties_table

METADATA = sa.MetaData()

NAME_LENGTH = 63
"""Longest name of an owner or a data set, as in the protocol's ``PartyName``."""

OWNERS = parties_table(METADATA, "curator_owners")

INVITATIONS = invitations_table(METADATA, "curator_invitations")

ROSTER = Roster(OWNERS, INVITATIONS)
"""Who is enrolled here; every role is ``owner``."""

DATA_SETS = sa.Table(
    "curator_data_sets",
    METADATA,
    sa.Column("owner", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("name", sa.String(NAME_LENGTH), primary_key=True),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("columns", sa.Text, nullable=False),
    sa.Column("unit_column", sa.String(128), nullable=True),
    sa.Column("policy", sa.Text, nullable=False),
    sa.Column("registered_at", sa.BigInteger, nullable=False),
    sa.Column("deleted_at", sa.BigInteger, nullable=True),
    sa.Column("file", sa.String(32), nullable=True),
    sa.Column("wrapped_key", sa.LargeBinary, nullable=True),
    sa.Column("rows", sa.BigInteger, nullable=True),
    sa.Column("units", sa.BigInteger, nullable=True),
    sa.Column("size_bytes", sa.BigInteger, nullable=True),
    sa.Column("uploaded_at", sa.BigInteger, nullable=True),
)
"""``version`` grows by one with every change; ``file`` and ``wrapped_key`` are of the rows held, if any."""

STORAGE = sa.Table("curator_storage", METADATA, sa.Column("id", sa.String(32), primary_key=True))
"""One row: which folder holds this database's rows."""

SIGN_IN = SignInTables.make(METADATA, "curator_")
"""Links and browsers of the pages."""
