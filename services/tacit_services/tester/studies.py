"""Studies at the tester: taking them, reading them back, and listing them."""

import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.encoding import decode, digest, encode
from tacit_protocol.messages.study import DeclineMessage, Study, Transcript, read_study
from tacit_protocol.procedures.base import (
    StudyError,
    check_study,
    require_canonical,
    require_units,
    units_declared,
)
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.signing import STUDY_TYPE, open_envelope, payload_of
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.failpoints import TesterStep, reached
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.tester.parties import ROSTER, Role, require_party
from tacit_services.tester.reuse import record, require_reusable, reuse_fields, reused_by_study
from tacit_services.tester.study_completion import queue_verdict
from tacit_services.tester.tables import (
    CANCELLATIONS,
    DECLINES,
    MASK_KEYS,
    PARTIES,
    PROGRESS,
    RELEASES,
    STUDIES,
    STUDY_OWNERS,
    VERDICTS,
    is_archived,
    not_here,
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
            rows = connection.execute(_SUMMARY.where(STUDIES.c.digest == study_digest)).all()
            if not rows:
                raise not_here(connection, study_digest)
            sent = connection.execute(
                sa.select(RELEASES.c.owner, RELEASES.c.units).where(RELEASES.c.study == study_digest)
            )
            fields, units = reuse_fields(connection, study_digest)
            units |= {row.owner: row.units for row in sent}
            return _summaries(connection, rows)[0] | fields, units

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
            row = connection.execute(query).one_or_none()
            if row is None:
                raise not_here(connection, study_digest)
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
    record(connection, study_digest, study)
    if senders:
        connection.execute(STUDY_OWNERS.insert(), senders)
    else:
        queue_verdict(connection, study_digest)
    reached(TesterStep.STUDY_INSERTED)
    return True


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
        if row.decline is not None and (rule := _rule_of(bytes(row.decline))) is not None:
            part["rule"] = rule
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


def _rule_of(decline: bytes) -> str | None:
    """Return the public rule that a decline, which was checked when it came, names."""
    return decode(DeclineMessage, payload_of(decline)).rule


def _same_owner(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.study == STUDY_OWNERS.c.study, table.c.owner == STUDY_OWNERS.c.owner)


def verdict_of(connection: Connection, study_digest: str) -> bytes | None:
    """Return the verdict's envelope, or None while there is none.

    Raises:
        ProblemError: there is no such study here, or its verdict could not be computed.
    """
    row = connection.execute(
        sa.select(STUDIES.c.state, VERDICTS.c.envelope, PROGRESS.c.step)
        .outerjoin(VERDICTS, VERDICTS.c.study == STUDIES.c.digest)
        .outerjoin(PROGRESS, PROGRESS.c.study == STUDIES.c.digest)
        .where(STUDIES.c.digest == study_digest)
    ).one_or_none()
    if row is None:
        raise not_here(connection, study_digest)
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
