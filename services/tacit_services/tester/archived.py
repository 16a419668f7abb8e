"""Studies that were archived: one row each is all that is left of them here."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.tables import ARCHIVED


def is_archived(connection: Connection, study_digest: str) -> bool:
    """Return whether a study was here and has been archived."""
    query = sa.select(ARCHIVED.c.study).where(ARCHIVED.c.study == study_digest)
    return connection.execute(query).first() is not None


def not_here(connection: Connection, study_digest: str) -> ProblemError:
    """Return the problem of a study that has no row: ``study-archived`` or ``unknown-study``."""
    return ProblemError("study-archived" if is_archived(connection, study_digest) else "unknown-study")
