"""What this owner found by receiving another's release: kept here, shown to its operator, sent to nobody."""

from typing import Any

import sqlalchemy as sa
from pydantic import BaseModel

from tacit_protocol.messages.encoding import encode
from tacit_services.agent.schema import FINDINGS


def put_finding(connection: sa.Connection, study: str, finding: BaseModel, at: int) -> None:
    """Store what was found, with the answer. Once only: a second one breaks the table's key."""
    connection.execute(FINDINGS.insert().values(study=study, finding=encode(finding), found_at=at))


def finding_of(connection: sa.Connection, study: str) -> sa.Row[Any] | None:
    """Return the row of what was found: ``finding``, JSON, and ``found_at``, Unix time; or None."""
    return connection.execute(FINDINGS.select().where(FINDINGS.c.study == study)).one_or_none()
