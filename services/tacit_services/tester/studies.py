"""Studies at the tester: taking them, reading them back, listing them, and what their verdicts rest on.

A release that was made for an earlier study may be read again for a later one; this costs no owner. What may
be read again is settled when the later study is taken: the earlier study is completed, so that its release
never changes, and the foreign key of the ``reuses`` row keeps that release for as long as the study.
"""

import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.encoding import decode, digest, encode
from tacit_protocol.messages.study import (
    DeclineMessage,
    Owner,
    Release,
    ReleaseMessage,
    Study,
    Transcript,
    read_study,
)
from tacit_protocol.procedures.base import (
    Progress,
    StudyError,
    check_study,
    require_canonical,
    require_units,
    reread,
    units_declared,
)
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.relay import OwnAnswer, read_answer, relay_of
from tacit_protocol.signing import RELEASE_TYPE, STUDY_TYPE, EnvelopeError, open_envelope, payload_of
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.failpoints import TesterStep, reached
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.tester.parties import ROSTER, Role, require_party
from tacit_services.tester.tables import (
    CANCELLATIONS,
    DECLINES,
    JOBS,
    MASK_KEYS,
    PARTIES,
    PROGRESS,
    RELEASES,
    REUSES,
    STUDIES,
    STUDY_OWNERS,
    VERDICTS,
    is_archived,
    row_of,
)

PAGE_SIZE = 100
"""Studies in one page."""

DEADLINE_MAX_S = 90 * 24 * 3600
"""Longest a study may collect: a study that nobody answers should not wait for ever."""

STUDIES_OPEN_MAX = 1000
"""Most studies of one analyst that collect or are computed at once."""

OPEN_RETRY_S = 3600
"""When an analyst with too many open studies may try again."""

STUDIES_CACHED = 128
"""Parsed studies kept in memory, as they never change: 40 kB each with 40 owners, 1.8 MB at the very most."""

WARNED_MAX, WARNED_AT_ONCE_MAX = 6, 2
"""Requests that have the warnings of a study computed, of the tens of threads that all requests share, and
how many of these compute at once: it may take a second. What was computed is remembered."""

WARNED_RETRY_S = 2

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

State = Literal["collecting", "computing", "completed", "incomplete", "cancelled", "failed"]


@dataclass(frozen=True)
class StudyFilter:
    """Which studies are listed: by state, procedure, who sends, and what the title has in it; "" of all."""

    state: State | None = None
    procedure: str = ""
    owner: str = ""
    text: str = ""

    def conditions(self) -> Iterator[sa.ColumnElement[bool]]:
        """Yield what a study's row must be."""
        if self.state is not None:
            yield STUDIES.c.state == self.state
        if self.procedure:
            yield STUDIES.c.procedure == self.procedure
        if self.owner:
            sends = sa.select(STUDY_OWNERS.c.study).where(STUDY_OWNERS.c.owner == self.owner)
            yield STUDIES.c.digest.in_(sends)
        if self.text:
            yield STUDIES.c.title.icontains(self.text, autoescape=True)


@dataclass(frozen=True)
class TesterIdentity:
    """The name and the public key that studies must give for their tester."""

    name: str
    key: str


class Studies:
    """The studies of one tester."""

    def __init__(self, engine: Engine, identity: TesterIdentity) -> None:
        self._engine = engine
        self._identity = identity
        self.parsed = lru_cache(STUDIES_CACHED)(self._parse)
        """Return the study of a digest; raises the problems ``unknown-study`` and ``study-archived``.

        One that was archived a moment ago may still be remembered.
        """
        self._warnings_for = lru_cache(STUDIES_CACHED)(self._compute_warnings)
        self._warned = threading.BoundedSemaphore(WARNED_MAX)
        self._warned_at_once = threading.BoundedSemaphore(WARNED_AT_ONCE_MAX)

    def create(self, study_digest: str, envelope: bytes, analyst_key: str, now: int) -> bool:
        """Take a study signed by its analyst; returns False where these very bytes were taken before."""
        payload = open_envelope(envelope, STUDY_TYPE, analyst_key)
        if digest(payload) != study_digest:
            raise RegisteredProblemError("digest-mismatch")
        if read_from(self._engine, _is_stored, study_digest, envelope):
            return False
        study = read_study(payload)
        self._check(study_digest, study, analyst_key, now)
        reached(TesterStep.STUDY_CHECKED)
        is_new = run_transaction(
            self._engine, lambda connection: _insert(connection, study_digest, envelope, study, now)
        )
        reached(TesterStep.STUDY_STORED)
        return is_new

    def envelope(self, study_digest: str) -> bytes:
        """Return the exact bytes that were taken."""
        return self._signed(study_digest)[0]

    def summary(self, study_digest: str) -> dict[str, Any]:
        """Return a study's summary with its warnings.

        Raises:
            ProblemError: ``rate-limited``: warnings of too many other studies are being computed; and those
                of :attr:`parsed`.
        """

        def read(connection: Connection) -> tuple[dict[str, Any], dict[str, int]]:
            row = row_of(connection, study_digest, _SUMMARY.where(STUDIES.c.digest == study_digest))
            sent = connection.execute(
                sa.select(RELEASES.c.owner, RELEASES.c.units).where(RELEASES.c.study == study_digest)
            )
            fields, units = reuse_fields(connection, study_digest)
            units |= {row.owner: row.units for row in sent}
            return _summaries(connection, [row])[0] | fields, units

        found, units = read_from(self._engine, read)
        return found | {"warnings": list(self._warnings(study_digest, units))}

    def listing(self, cursor: int | None, chosen: "StudyFilter", size: int = PAGE_SIZE) -> dict[str, Any]:
        """Return one page of summaries of the studies that are chosen, newest first."""
        query = _SUMMARY.where(*chosen.conditions()).order_by(STUDIES.c.sequence.desc()).limit(size + 1)
        if cursor is not None:
            query = query.where(STUDIES.c.sequence < cursor)

        def read(connection: Connection) -> dict[str, Any]:
            rows = connection.execute(query).all()
            more = len(rows) > size
            page = rows[:size]
            return {
                "items": _summaries(connection, page),
                "next": str(page[-1].sequence) if more else None,
            }

        return read_from(self._engine, read)

    def fingerprint(self) -> tuple[int, ...]:
        """Return numbers that differ from before whenever a study has come or has changed its state.

        The last is the number of revoked keys.
        """
        return read_from(self._engine, lambda connection: tuple(connection.execute(_FINGERPRINT).one()))

    def counts(self) -> dict[str, int]:
        """Return the number of studies by state."""
        query = sa.select(STUDIES.c.state, sa.func.count()).group_by(STUDIES.c.state)
        return read_from(self._engine, lambda c: {state: int(count) for state, count in c.execute(query)})

    def _check(self, study_digest: str, study: Study, analyst_key: str, now: int) -> None:
        if study.analyst.key != analyst_key:
            raise RegisteredProblemError("study-refused", detail="the study names another analyst")
        if (study.tester.name, study.tester.key) != (self._identity.name, self._identity.key):
            raise RegisteredProblemError("study-refused", detail="the study names another tester")
        if study.deadline <= now:
            raise RegisteredProblemError("study-expired")
        if study.deadline > now + DEADLINE_MAX_S:
            raise RegisteredProblemError("study-refused", detail="the deadline lies more than 90 days ahead")
        try:
            procedure = procedure_named(study.procedure)
            check_study(procedure, study)
            require_units(procedure, study, units_declared(study))
            require_canonical(procedure, study, study_digest)
        except StudyError as error:
            raise RegisteredProblemError("study-refused", detail=str(error)) from None
        require_reusable(self._engine, study, self.parsed)

    def _warnings(self, study_digest: str, sent: Mapping[str, int]) -> tuple[str, ...]:
        study = self.parsed(study_digest)
        expected = {owner.name: owner.units for owner in study.owners if owner.units is not None}
        if study.curator is None:
            expected |= sent
        return self._warnings_for(study_digest, tuple(sorted(expected.items())))

    def _compute_warnings(self, study_digest: str, units: tuple[tuple[str, int], ...]) -> tuple[str, ...]:
        study = self.parsed(study_digest)
        if not self._warned.acquire(blocking=False):
            raise RegisteredProblemError("rate-limited", retry_after_s=WARNED_RETRY_S)
        try:
            with self._warned_at_once:
                return procedure_named(study.procedure).warnings(study, dict(units))
        finally:
            self._warned.release()

    def _parse(self, study_digest: str) -> Study:
        envelope, analyst_key = self._signed(study_digest)
        return read_study(open_envelope(envelope, STUDY_TYPE, analyst_key))

    def _signed(self, study_digest: str) -> tuple[bytes, str]:
        """Return a study's envelope and the key of its analyst."""
        query = sa.select(STUDIES.c.envelope, STUDIES.c.analyst_key).where(STUDIES.c.digest == study_digest)

        def read(connection: Connection) -> tuple[bytes, str]:
            row = row_of(connection, study_digest, query)
            return bytes(row.envelope), row.analyst_key

        return read_from(self._engine, read)


def _number(state: str) -> sa.ScalarSelect[int]:
    counted = sa.select(sa.func.count()).select_from(STUDIES).where(STUDIES.c.state == state)
    return counted.scalar_subquery()


_NEWEST = sa.select(sa.func.coalesce(sa.func.max(STUDIES.c.sequence), 0)).scalar_subquery()
_REVOKED = (
    sa.select(sa.func.count()).select_from(PARTIES).where(PARTIES.c.revoked_at.is_not(None)).scalar_subquery()
)
_FINGERPRINT = sa.select(_NEWEST, _number("collecting"), _number("computing"), _REVOKED)

_SUMMARY = sa.select(
    STUDIES.c.sequence,
    STUDIES.c.digest,
    STUDIES.c.title,
    STUDIES.c.procedure,
    STUDIES.c.state,
    STUDIES.c.created_at,
    STUDIES.c.deadline,
    PROGRESS.c.fraction,
    PROGRESS.c.step,
).outerjoin(PROGRESS, PROGRESS.c.study == STUDIES.c.digest)


def _is_stored(connection: Connection, study_digest: str, envelope: bytes) -> bool:
    stored = connection.execute(
        sa.select(STUDIES.c.envelope).where(STUDIES.c.digest == study_digest)
    ).scalar_one_or_none()
    if stored is not None and bytes(stored) != envelope:
        raise RegisteredProblemError("conflicting-upload")
    if stored is None and is_archived(connection, study_digest):
        raise RegisteredProblemError("study-archived")
    return stored is not None


def _insert(connection: Connection, study_digest: str, envelope: bytes, study: Study, now: int) -> bool:
    if _is_stored(connection, study_digest, envelope):
        return False
    require_party(connection, study.analyst.key, study.analyst.name, "analyst")
    # Owners whose data a curator holds are enrolled there, and need not be known here.
    role: Role = "owner" if study.curator is None else "curator"
    named = [*study.senders, *study.reusing]
    enrolled = ROSTER.keys_by_name(connection, [party.name for party in named], role)
    if any(enrolled.get(party.name) != party.key for party in named):
        raise RegisteredProblemError(
            "unknown-party", detail=f"the study names a key that no such {role} has enrolled"
        )
    open_studies = connection.execute(
        sa.select(sa.func.count())
        .select_from(STUDIES)
        # Those that wait for their verdict, too: a study that only reuses releases costs no owner anything.
        .where(STUDIES.c.analyst_key == study.analyst.key, STUDIES.c.state.in_(("collecting", "computing")))
    ).scalar_one()
    if open_studies >= STUDIES_OPEN_MAX:
        raise RegisteredProblemError("rate-limited", retry_after_s=OPEN_RETRY_S)
    connection.execute(
        STUDIES.insert().values(
            digest=study_digest,
            envelope=envelope,
            title=study.title,
            procedure=study.procedure,
            analyst_key=study.analyst.key,
            state="collecting",
            created_at=now,
            deadline=study.deadline,
        )
    )
    senders = [
        {"study": study_digest, "owner": sender.name, "position": position, "key": sender.key}
        for position, sender in enumerate(study.senders)
    ]
    record_reuses(connection, study_digest, study)
    if senders:
        connection.execute(STUDY_OWNERS.insert(), senders)
    else:
        queue_verdict(connection, study_digest)
    reached(TesterStep.STUDY_INSERTED)
    return True


def record_reuses(connection: Connection, study_digest: str, study: Study) -> None:
    """Record what a study reads again, with the study.

    Raises:
        ProblemError: ``reuse-refused``: a source was archived since it was looked at.
    """
    reuses = [{"study": study_digest, "owner": owner.name, "source": owner.reuses} for owner in study.reusing]
    if reuses:
        _require_made(connection, study)
        connection.execute(REUSES.insert(), reuses)


def _summaries(connection: Connection, rows: Sequence[Any]) -> list[dict[str, Any]]:
    digests = [row.digest for row in rows]
    owners: dict[str, list[dict[str, Any]]] = {study: [] for study in digests}
    query = (
        sa.select(
            STUDY_OWNERS.c.study,
            STUDY_OWNERS.c.owner,
            RELEASES.c.owner.is_not(None).label("sent"),
            DECLINES.c.envelope.label("decline"),
        )
        .outerjoin(RELEASES, _same_owner(RELEASES))
        .outerjoin(DECLINES, _same_owner(DECLINES))
        .where(STUDY_OWNERS.c.study.in_(digests))
        .order_by(STUDY_OWNERS.c.study, STUDY_OWNERS.c.position)
    )
    for row in connection.execute(query):
        part = {"name": row.owner, "sent": bool(row.sent), "declined": row.decline is not None}
        if row.decline is not None:  # it was checked when it came
            rule = decode(DeclineMessage, payload_of(bytes(row.decline))).rule
            part |= {} if rule is None else {"rule": rule}
        owners[row.study].append(part)
    return [
        {
            "digest": row.digest,
            "title": row.title,
            "procedure": row.procedure,
            "state": row.state,
            "created_at": row.created_at,
            "deadline": row.deadline,
            "owners": owners[row.digest],
            "progress": {"fraction": row.fraction or 0.0, "step": row.step or row.state},
        }
        for row in rows
    ]


def _same_owner(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.study == STUDY_OWNERS.c.study, table.c.owner == STUDY_OWNERS.c.owner)


def verdict_of(connection: Connection, study_digest: str) -> bytes | None:
    """Return the verdict's envelope, or None while there is none.

    Raises:
        ProblemError: there is no such study here, or its verdict could not be computed.
    """
    row = row_of(
        connection,
        study_digest,
        sa.select(STUDIES.c.state, VERDICTS.c.envelope, PROGRESS.c.step)
        .outerjoin(VERDICTS, VERDICTS.c.study == STUDIES.c.digest)
        .outerjoin(PROGRESS, PROGRESS.c.study == STUDIES.c.digest)
        .where(STUDIES.c.digest == study_digest),
    )
    if row.state == "failed":
        raise RegisteredProblemError("verdict-failed", detail=row.step)
    return None if row.envelope is None else bytes(row.envelope)


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
    cancellation = connection.execute(
        sa.select(CANCELLATIONS.c.envelope).where(CANCELLATIONS.c.study == study_digest)
    ).scalar_one_or_none()
    keys = connection.execute(
        sa.select(MASK_KEYS.c.owner, MASK_KEYS.c.envelope).where(MASK_KEYS.c.study == study_digest)
    )
    return encode(
        Transcript(
            study=bytes(study).decode("utf-8"),
            releases={row.owner: bytes(row.envelope).decode("utf-8") for row in releases},
            reused={owner: envelope.decode("utf-8") for owner, envelope in reused.releases.items()},
            sources={source: envelope.decode("utf-8") for source, envelope in reused.sources.items()},
            declines={row.owner: bytes(row.envelope).decode("utf-8") for row in declines},
            cancellation=None if cancellation is None else bytes(cancellation).decode("utf-8"),
            mask_keys={row.owner: bytes(row.envelope).decode("utf-8") for row in keys},
            verdict=verdict.decode("utf-8"),
        )
    )


def queue_verdict(connection: Connection, study: str) -> None:
    """Let the verdict of a study be computed, every release of which is here."""
    set_state(connection, study, "computing")
    analyst = sa.select(STUDIES.c.analyst_key).where(STUDIES.c.digest == study).scalar_subquery()
    job = {"study": study, "analyst_key": analyst, "holder": None, "lease_until": 0.0, "attempts": 0}
    connection.execute(JOBS.insert().values(job))
    connection.execute(PROGRESS.insert().values(study=study, fraction=0.0, step="waiting"))


def set_state(connection: Connection, study: str, state: str) -> None:
    """Give a study its next state."""
    connection.execute(STUDIES.update().where(STUDIES.c.digest == study).values(state=state))


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


def release_digests(connection: Connection, study: str) -> dict[str, str]:
    """Return the digests of the release payloads that the study rests on, taken or reused, by owner."""
    taken = sa.select(RELEASES.c.owner, RELEASES.c.digest).where(RELEASES.c.study == study)
    reused = sa.select(REUSES.c.owner, RELEASES.c.digest).join(RELEASES, _SAME_RELEASE)
    rows = [*connection.execute(taken), *connection.execute(reused.where(REUSES.c.study == study))]
    return {row.owner: row.digest for row in rows}
