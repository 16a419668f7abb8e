"""Transcripts: everything that a verdict rests on, as it was signed."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.transcript import Transcript
from tacit_services.tester.reuse import reused_by_study
from tacit_services.tester.studies import verdict_of
from tacit_services.tester.tables import RELEASES, STUDIES


def transcript_of(connection: Connection, study_digest: str) -> bytes | None:
    """Return the transcript's bytes, or None while there is no verdict."""
    verdict = verdict_of(connection, study_digest)
    if verdict is None:
        return None
    study = connection.execute(
        sa.select(STUDIES.c.envelope).where(STUDIES.c.digest == study_digest)
    ).scalar_one()
    releases = connection.execute(
        sa.select(RELEASES.c.owner, RELEASES.c.envelope).where(RELEASES.c.study == study_digest)
    )
    reused = reused_by_study(connection, study_digest)
    return encode(
        Transcript(
            study=bytes(study).decode("utf-8"),
            releases={row.owner: bytes(row.envelope).decode("utf-8") for row in releases},
            reused={owner: envelope.decode("utf-8") for owner, envelope in reused.releases.items()},
            sources={source: envelope.decode("utf-8") for source, envelope in reused.sources.items()},
            verdict=verdict.decode("utf-8"),
        )
    )
