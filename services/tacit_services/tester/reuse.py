"""Releases that were made for an earlier study and are read again for a later one; this costs no owner.

What may be read again is settled when the later study is taken: the earlier study is completed, so that its
release never changes, and the foreign key of the ``reuses`` row keeps that release for as long as the study.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.encoding import decode
from tacit_protocol.messages.study import Owner, Release, ReleaseMessage, Study
from tacit_protocol.procedures.base import Progress, StudyError, reread
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.relay import OwnAnswer, read_answer, relay_of
from tacit_protocol.signing import RELEASE_TYPE, EnvelopeError, open_envelope
from tacit_services.shared.database import read_from
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.tester.tables import RELEASES, REUSES, STUDIES, is_archived

REUSED_BY_MAX = 100
"""Most later studies that the view of one study lists: the newest."""

NOT_MADE = (
    "an owner made no release of its own for the study that it reuses; name the study that its release was "
    "made for, and the owner as that study does"
)

NOT_OPEN = "an owner's answer to the study that it reuses was sealed, or says only that one was received"

NOT_KEPT = "a study that an owner reuses has been archived; ask that owner for a new release"

READING = "reading releases"

Parsed = Callable[[str], Study]
"""Returns the study of a digest; raises the problems ``unknown-study`` and ``study-archived``."""


@dataclass(frozen=True)
class Reused:
    """What is stored of the releases that one study reads again."""

    releases: Mapping[str, bytes]
    """The release's envelope, by owner."""
    sources: Mapping[str, bytes]
    """The earlier study's envelope, by its digest."""


def require_reusable(engine: Engine, study: Study, parsed: Parsed) -> None:
    """Return if every release that a study reuses is here and can be read again.

    Raises:
        ProblemError: ``reuse-refused``; the detail says which rule is broken.
    """
    if not study.reusing:
        return
    try:
        relay_of(procedure_named(study.procedure), study)
    except StudyError as error:
        raise RegisteredProblemError("reuse-refused", detail=str(error)) from None
    read_from(engine, _require_made, study)
    reread_all(engine, study, parsed)


def reread_all(
    engine: Engine, study: Study, parsed: Parsed, progress: Progress = lambda *_: None
) -> dict[str, Release]:
    """Return each reused release, by owner, as the study expects it.

    Raises:
        ProblemError: ``reuse-refused``.
    """
    procedure = procedure_named(study.procedure)
    found = {}
    for owner in study.reusing:
        source = parsed(str(owner.reuses))
        try:
            lender = procedure_named(source.procedure)
            found[owner.name] = reread(
                procedure, study, owner, source, _release(engine, owner, source), lender=lender
            )
        except StudyError as error:
            raise RegisteredProblemError("reuse-refused", detail=str(error)) from None
        progress(0.0, READING)
    return found


def _release(engine: Engine, owner: Owner, source: Study) -> Release:
    """Read one release, and no two at a time: each may have a mebibyte."""
    query = sa.select(RELEASES.c.envelope).where(
        RELEASES.c.study == owner.reuses, RELEASES.c.owner == owner.name
    )
    envelope = read_from(engine, lambda connection: connection.execute(query).scalar_one_or_none())
    if envelope is None:
        raise RegisteredProblemError("reuse-refused", detail=NOT_KEPT)
    # As stored: signed by whom the earlier study names; whether that is the same key, reread looks at.
    key = {sender.name: sender.key for sender in source.senders}[owner.name]
    try:
        payload = open_envelope(bytes(envelope), RELEASE_TYPE, key)
    except EnvelopeError:  # its answer was taken as another kind: sealed to another owner, or a receipt
        raise RegisteredProblemError("reuse-refused", detail=NOT_OPEN) from None
    return decode(ReleaseMessage, payload).release


def record(connection: Connection, study_digest: str, study: Study) -> None:
    """Record what a study reads again, with the study.

    Raises:
        ProblemError: ``reuse-refused``: a source was archived since it was looked at.
    """
    if study.reusing:
        _require_made(connection, study)
    rows = [{"study": study_digest, "owner": owner.name, "source": owner.reuses} for owner in study.reusing]
    if rows:
        connection.execute(REUSES.insert(), rows)


def reused_by_study(connection: Connection, study_digest: str) -> Reused:
    """Return what is stored of the releases that a study reads again."""
    rows = connection.execute(_REUSED.where(REUSES.c.study == study_digest)).all()
    return Reused(
        releases={row.owner: bytes(row.release) for row in rows},
        sources={row.source: bytes(row.study) for row in rows},
    )


def reuse_fields(connection: Connection, study_digest: str) -> tuple[dict[str, Any], dict[str, int]]:
    """Return what the view of a study says of reuse, and the units of the releases that it reads again."""
    rows = connection.execute(_UNITS.where(REUSES.c.study == study_digest)).all()
    later = connection.execute(_LATER.where(REUSES.c.source == study_digest))
    fields = {
        "reuses": [{"owner": row.owner, "study": row.source} for row in rows],
        "reused_by": [{"owner": row.owner, "study": row.study} for row in later],
    }
    return fields, {row.owner: row.units for row in rows}


def reused_digests(connection: Connection, study_digest: str) -> dict[str, str]:
    """Return the digests of the releases that a study reads again, by owner."""
    query = sa.select(REUSES.c.owner, RELEASES.c.digest).join(RELEASES, _SAME_RELEASE)
    rows = connection.execute(query.where(REUSES.c.study == study_digest))
    return {row.owner: row.digest for row in rows}


def _require_made(connection: Connection, study: Study) -> None:
    """Require that each release was made for a study that is completed here."""
    places = [(owner.reuses, owner.name) for owner in study.reusing]
    sources = {source for source, _ in places}
    states = connection.execute(
        sa.select(STUDIES.c.digest, STUDIES.c.state).where(STUDIES.c.digest.in_(sources))
    )
    known = {row.digest: row.state for row in states}
    if any(is_archived(connection, str(source)) for source in sources - set(known)):
        raise RegisteredProblemError("reuse-refused", detail=NOT_KEPT)
    if sources - set(known):
        raise RegisteredProblemError("reuse-refused", detail="a study that an owner reuses is not known here")
    if set(known.values()) != {"completed"}:
        raise RegisteredProblemError("reuse-refused", detail="a study that an owner reuses is not completed")
    query = sa.select(RELEASES.c.study, RELEASES.c.owner).where(
        sa.tuple_(RELEASES.c.study, RELEASES.c.owner).in_(places)
    )
    if set(places) - {(row.study, row.owner) for row in connection.execute(query)}:
        raise RegisteredProblemError("reuse-refused", detail=NOT_MADE)


_SAME_RELEASE = sa.and_(RELEASES.c.study == REUSES.c.source, RELEASES.c.owner == REUSES.c.owner)

_UNITS = (
    sa.select(REUSES.c.owner, REUSES.c.source, RELEASES.c.units)
    .join(RELEASES, _SAME_RELEASE)
    .order_by(REUSES.c.owner)
)

_REUSED = (
    sa.select(
        REUSES.c.owner,
        REUSES.c.source,
        RELEASES.c.envelope.label("release"),
        STUDIES.c.envelope.label("study"),
    )
    .join(RELEASES, _SAME_RELEASE)
    .join(STUDIES, STUDIES.c.digest == REUSES.c.source)
)

_LATER = (
    sa.select(REUSES.c.owner, REUSES.c.study)
    .join(STUDIES, STUDIES.c.digest == REUSES.c.study)
    .order_by(STUDIES.c.sequence.desc(), REUSES.c.owner)
    .limit(REUSED_BY_MAX)
)


@dataclass(frozen=True)
class ReadReleases:
    """Releases by owner as the study reads them, reused ones among them; and units by sender."""

    releases: dict[str, Release]
    units: dict[str, int]


def received(
    engine: Engine, study_digest: str, study: Study, parsed: Parsed, progress: Progress = lambda *_: None
) -> ReadReleases:
    """Read everything that a study whose senders have all answered rests on; ``parsed`` finds studies."""
    answers = _answers(engine, study_digest, study, progress)
    releases = {name: answer.release for name, answer in answers.items() if answer.release is not None}
    units = {name: answer.units for name, answer in answers.items()}
    return ReadReleases(releases | reread_all(engine, study, parsed, progress), units)


def _answers(engine: Engine, study_digest: str, study: Study, progress: Progress) -> dict[str, OwnAnswer]:
    relay = relay_of(procedure_named(study.procedure), study)
    keys = {sender.name: sender.key for sender in study.senders}
    query = sa.select(RELEASES.c.owner, RELEASES.c.envelope).where(RELEASES.c.study == study_digest)
    rows = read_from(engine, lambda connection: connection.execute(query).all())
    envelopes = {row.owner: bytes(row.envelope) for row in rows}
    if not rows and keys:
        raise RegisteredProblemError(
            "study-archived"
        )  # a moment ago: who asks for what was received has found the study
    answers = {}
    for name, key in keys.items():
        answers[name] = read_answer(relay, envelopes[name], name, key)
        progress(0.0, READING)
    return answers
