"""Transcripts: everything that a verdict rests on, as it was signed."""

from collections.abc import Collection

import sqlalchemy as sa
from sqlalchemy.engine import Connection

from tacit_protocol.messages.encoding import decode, encode
from tacit_protocol.messages.transcript import Transcript
from tacit_protocol.messages.verdict import VerdictMessage
from tacit_protocol.signing.envelope import payload_of
from tacit_services.tester.reuse import reused_by_study
from tacit_services.tester.studies import verdict_of
from tacit_services.tester.tables import CANCELLATIONS, DECLINES, RELEASES, STUDIES


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
    declines = connection.execute(
        sa.select(DECLINES.c.owner, DECLINES.c.envelope).where(DECLINES.c.study == study_digest)
    )
    listed = _declines_listed(verdict)
    cancellation = connection.execute(
        sa.select(CANCELLATIONS.c.envelope).where(CANCELLATIONS.c.study == study_digest)
    ).scalar_one_or_none()
    return encode(
        Transcript(
            study=bytes(study).decode("utf-8"),
            releases={row.owner: bytes(row.envelope).decode("utf-8") for row in releases},
            reused={owner: envelope.decode("utf-8") for owner, envelope in reused.releases.items()},
            sources={source: envelope.decode("utf-8") for source, envelope in reused.sources.items()},
            declines={
                row.owner: bytes(row.envelope).decode("utf-8") for row in declines if row.owner in listed
            },
            cancellation=None if cancellation is None else bytes(cancellation).decode("utf-8"),
            verdict=verdict.decode("utf-8"),
        )
    )


def _declines_listed(verdict: bytes) -> Collection[str]:
    """Return whose declines a verdict lists: no one's, where an earlier version signed it."""
    return decode(VerdictMessage, payload_of(verdict)).declines or ()
