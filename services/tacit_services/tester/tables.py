"""The tester's tables. docs/how-a-study-runs.md tells each row's life."""

from collections.abc import Mapping
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tacit_services.shared.pages.sessions import SignInTables
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.roster import invitations_table, parties_table

METADATA = sa.MetaData()

_Key = sa.BigInteger().with_variant(sa.Integer, "sqlite")
_Digest = sa.String(64)
_Name = sa.String(63)


def _study() -> sa.Column[str]:
    return sa.Column("study", _Digest, sa.ForeignKey("studies.digest"), primary_key=True)


PARTIES = parties_table(METADATA, "parties")

INVITATIONS = invitations_table(METADATA, "invitations")

STUDIES = sa.Table(
    "studies",
    METADATA,
    sa.Column("sequence", _Key, primary_key=True, autoincrement=True),
    sa.Column("digest", _Digest, nullable=False, unique=True),
    sa.Column("envelope", sa.LargeBinary, nullable=False),
    sa.Column("title", sa.String(200), nullable=False),
    sa.Column("procedure", sa.String(63), nullable=False),
    sa.Column("analyst_key", sa.String(64), nullable=False, index=True),
    sa.Column("state", sa.String(16), nullable=False, index=True),
    sa.Column("created_at", sa.BigInteger, nullable=False),
    sa.Column("deadline", sa.BigInteger, nullable=False),
)

STUDY_OWNERS = sa.Table(
    "study_owners",
    METADATA,
    _study(),
    sa.Column("owner", _Name, primary_key=True),
    sa.Column("position", sa.Integer, nullable=False),
    sa.Column("key", sa.String(64), nullable=False, index=True),
)

RELEASES = sa.Table(
    "releases",
    METADATA,
    _study(),
    sa.Column("owner", _Name, primary_key=True),
    sa.Column("envelope", sa.LargeBinary, nullable=False),
    sa.Column("digest", _Digest, nullable=False),
    sa.Column("units", sa.BigInteger, nullable=False),
    sa.Column("received_at", sa.BigInteger, nullable=False),
)

REUSES = sa.Table(
    "reuses",
    METADATA,
    _study(),
    sa.Column("owner", _Name, primary_key=True),
    sa.Column("source", _Digest, nullable=False, index=True),
    sa.ForeignKeyConstraint(["source", "owner"], ["releases.study", "releases.owner"]),
)

SEALED = sa.Table(
    "sealed",
    METADATA,
    _study(),
    sa.Column("owner", _Name, primary_key=True),
    sa.Column("ciphertext", sa.LargeBinary, nullable=False),
    sa.ForeignKeyConstraint(["study", "owner"], ["releases.study", "releases.owner"]),
)

DECLINES = sa.Table(
    "declines",
    METADATA,
    _study(),
    sa.Column("owner", _Name, primary_key=True),
    sa.Column("envelope", sa.LargeBinary, nullable=False),
    sa.Column("received_at", sa.BigInteger, nullable=False),
)

ACCEPTANCES = sa.Table(
    "acceptances",
    METADATA,
    _study(),
    sa.Column("envelope", sa.LargeBinary, nullable=False),
    sa.Column("received_at", sa.BigInteger, nullable=False),
)

MASK_KEYS = sa.Table(
    "mask_keys",
    METADATA,
    _study(),
    sa.Column("owner", _Name, primary_key=True),
    sa.Column("envelope", sa.LargeBinary, nullable=False),
    sa.Column("digest", _Digest, nullable=False),
    sa.Column("received_at", sa.BigInteger, nullable=False),
)

CANCELLATIONS = sa.Table(
    "cancellations",
    METADATA,
    _study(),
    sa.Column("envelope", sa.LargeBinary, nullable=False),
    sa.Column("received_at", sa.BigInteger, nullable=False),
)

JOBS = sa.Table(
    "jobs",
    METADATA,
    sa.Column("sequence", _Key, primary_key=True, autoincrement=True),
    sa.Column("study", _Digest, sa.ForeignKey("studies.digest"), nullable=False, unique=True),
    sa.Column("analyst_key", sa.String(64), nullable=False),
    sa.Column("holder", sa.String(32), nullable=True),
    sa.Column("lease_until", sa.Double, nullable=False, index=True),
    sa.Column("attempts", sa.Integer, nullable=False),
)

TURNS = sa.Table(
    "turns",
    METADATA,
    sa.Column("analyst_key", sa.String(64), primary_key=True),
    sa.Column("taken", sa.BigInteger, nullable=False),
)
"""Which analysts had a verdict computed, the latest last."""

PROGRESS = sa.Table(
    "progress",
    METADATA,
    _study(),
    sa.Column("fraction", sa.Double, nullable=False),
    sa.Column("step", sa.String(200), nullable=False),
)

VERDICTS = sa.Table(
    "verdicts",
    METADATA,
    _study(),
    sa.Column("envelope", sa.LargeBinary, nullable=False),
    sa.Column("outcome", sa.String(16), nullable=False),
    sa.Column("created_at", sa.BigInteger, nullable=False),
)

ARCHIVED = sa.Table(
    "archived",
    METADATA,
    sa.Column("study", _Digest, primary_key=True),
    sa.Column("state", sa.String(16), nullable=False),
    sa.Column("ended_at", sa.BigInteger, nullable=False),
    sa.Column("archived_at", sa.BigInteger, nullable=False),
    sa.Column("file_digest", _Digest, nullable=False),
)
"""What remains of a study whose rows were deleted: no other table has a row of it."""

CATALOGUE = sa.Table(
    "catalogue",
    METADATA,
    sa.Column("owner", _Name, primary_key=True),
    sa.Column("key", sa.String(64), nullable=False),
    sa.Column("version", sa.BigInteger, nullable=False),
    sa.Column("envelope", sa.LargeBinary, nullable=False),
)
"""The newest of what each owner published of its data sets."""

SIGN_IN = SignInTables.make(METADATA, "")
"""Links and browsers of the pages."""


def is_archived(connection: Connection, study_digest: str) -> bool:
    """Return whether a study was here and has been archived."""
    query = sa.select(ARCHIVED.c.study).where(ARCHIVED.c.study == study_digest)
    return connection.execute(query).first() is not None


def not_here(connection: Connection, study_digest: str) -> RegisteredProblemError:
    """Return the problem of a study that has no row: ``study-archived`` or ``unknown-study``."""
    return RegisteredProblemError(
        "study-archived" if is_archived(connection, study_digest) else "unknown-study"
    )


def row_of(
    connection: Connection, study_digest: str, query: sa.Select[Any], values: Mapping[str, Any] | None = None
) -> sa.Row[Any]:
    """Return a query's one row of a study; raises the problem of one that is not here."""
    row = connection.execute(query, values or {}).one_or_none()
    if row is None:
        raise not_here(connection, study_digest)
    return row
