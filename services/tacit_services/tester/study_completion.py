"""The end of a study's collecting: with all releases in, incomplete, or cancelled."""

from collections.abc import Collection, Mapping
from dataclasses import dataclass
from typing import Any, Literal

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.encoding import digest, encode
from tacit_protocol.messages.study import VerdictMessage
from tacit_protocol.signing import VERDICT_TYPE, PrivateKey, payload_of, sign_envelope
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.tester.reuse import reused_digests
from tacit_services.tester.tables import (
    DECLINES,
    JOBS,
    PROGRESS,
    RELEASES,
    SEALED,
    STUDIES,
    STUDY_OWNERS,
    VERDICTS,
)

SWEPT_MAX = 100
"""Studies ended in one sweep of the deadlines; the next sweep follows within a second."""


@dataclass(frozen=True)
class Signer:
    """The tester's key, and the software that its verdicts name."""

    key: PrivateKey
    software: str

    def sign(
        self,
        study: str,
        outcome: Literal["completed", "incomplete", "cancelled"],
        releases: Mapping[str, str],
        missing: tuple[str, ...] = (),
        result: dict[str, Any] | None = None,
        *,
        declines: Mapping[str, str] | None = None,
        revoked: tuple[str, ...] = (),
    ) -> bytes:
        """Write and sign a verdict; returns its envelope."""
        message = VerdictMessage(
            study=study,
            outcome=outcome,
            releases=dict(releases),
            missing=missing,
            declines=None if declines is None else dict(declines),
            revoked=revoked,
            result=result,
            software=self.software,
        )
        return sign_envelope(encode(message), VERDICT_TYPE, self.key)


def release_digests(connection: Connection, study: str) -> dict[str, str]:
    """Return the digests of the release payloads that the study rests on, taken or reused, by owner."""
    rows = connection.execute(sa.select(RELEASES.c.owner, RELEASES.c.digest).where(RELEASES.c.study == study))
    return {row.owner: row.digest for row in rows} | reused_digests(connection, study)


def _counted(table: sa.Table) -> sa.ScalarSelect[int]:
    return sa.select(sa.func.count()).where(table.c.study == STUDIES.c.digest).scalar_subquery()


# Counted, not listed, and written once: it runs with every upload, of studies with up to a thousand owners.
_ANSWERED = sa.select(
    STUDIES.c.digest,
    _counted(STUDY_OWNERS).label("owners"),
    _counted(RELEASES).label("releases"),
    _counted(DECLINES).label("declines"),
).where(STUDIES.c.digest.in_(sa.bindparam("studies", expanding=True)))


def end_if_answered(connection: Connection, studies: Collection[str], signer: Signer, now: int) -> set[str]:
    """After answers: with every release in, queue the verdict; with every owner heard, end the study.

    Returns those of the collecting ``studies`` that collect no more.
    """
    ended = set()
    for study, owners, releases, declines in connection.execute(_ANSWERED, {"studies": list(studies)}).all():
        if releases == owners:
            queue_verdict(connection, study)
        elif releases + declines == owners:
            end(connection, study, "incomplete", signer, now)
        else:
            continue
        ended.add(study)
    return ended


def queue_verdict(connection: Connection, study: str) -> None:
    """Let the verdict of a study be computed, every release of which is here."""
    _set_state(connection, study, "computing")
    analyst = sa.select(STUDIES.c.analyst_key).where(STUDIES.c.digest == study).scalar_subquery()
    job = {"study": study, "analyst_key": analyst, "holder": None, "lease_until": 0.0, "attempts": 0}
    connection.execute(JOBS.insert().values(job))
    connection.execute(PROGRESS.insert().values(study=study, fraction=0.0, step="waiting"))


def end(
    connection: Connection,
    study: str,
    outcome: Literal["incomplete", "cancelled"],
    signer: Signer,
    now: int,
    *,
    revoked: tuple[str, ...] = (),
) -> None:
    """End a collecting study without a result; the verdict names whose release is missing, and who declined.

    ``revoked`` names the party because of whose revoked key it ends.
    """
    digests = release_digests(connection, study)
    owners = sa.select(STUDY_OWNERS.c.owner).where(STUDY_OWNERS.c.study == study)
    names = connection.execute(owners.order_by(STUDY_OWNERS.c.position)).scalars()
    missing = tuple(name for name in names if name not in digests)
    rows = connection.execute(
        sa.select(DECLINES.c.owner, DECLINES.c.envelope).where(DECLINES.c.study == study)
    )
    declines = {row.owner: digest(payload_of(bytes(row.envelope))) for row in rows}
    verdict = signer.sign(study, outcome, digests, missing, declines=declines, revoked=revoked)
    store_verdict(connection, study, outcome, verdict, now)


def end_all_of(connection: Connection, key: str, name: str, signer: Signer, now: int) -> None:
    """End the collecting studies that a revoked key created, and those that miss its release."""
    sent = sa.select(RELEASES.c.owner).where(
        RELEASES.c.study == STUDY_OWNERS.c.study, RELEASES.c.owner == STUDY_OWNERS.c.owner
    )
    asked = sa.select(STUDY_OWNERS.c.study).where(STUDY_OWNERS.c.key == key, ~sa.exists(sent))
    query = sa.select(STUDIES.c.digest).where(
        STUDIES.c.state == "collecting", sa.or_(STUDIES.c.analyst_key == key, STUDIES.c.digest.in_(asked))
    )
    for study in connection.execute(query).scalars().all():
        end(connection, study, "incomplete", signer, now, revoked=(name,))


def store_verdict(connection: Connection, study: str, outcome: str, envelope: bytes, now: int) -> None:
    """Store the study's one verdict and give the study its last state; what was sealed is needed no more."""
    connection.execute(SEALED.delete().where(SEALED.c.study == study))
    connection.execute(
        VERDICTS.insert().values(study=study, envelope=envelope, outcome=outcome, created_at=now)
    )
    _set_state(connection, study, outcome)


def fail(connection: Connection, study: str, reason: str) -> None:
    """Give up on computing a verdict; everyone who may see the study reads the reason."""
    connection.execute(JOBS.delete().where(JOBS.c.study == study))
    connection.execute(PROGRESS.update().where(PROGRESS.c.study == study).values(step=reason))
    _set_state(connection, study, "failed")


def end_overdue(engine: Engine, signer: Signer, now: int) -> int:
    """End the studies whose deadline has passed; returns how many were ended."""

    def overdue(connection: Connection) -> list[str]:
        query = sa.select(STUDIES.c.digest).where(STUDIES.c.state == "collecting", STUDIES.c.deadline <= now)
        return list(connection.execute(query.order_by(STUDIES.c.sequence).limit(SWEPT_MAX)).scalars())

    def end_one(connection: Connection, study: str) -> None:
        state = sa.select(STUDIES.c.state).where(STUDIES.c.digest == study)
        if connection.execute(state).scalar_one() == "collecting":
            end(connection, study, "incomplete", signer, now)

    studies = read_from(engine, overdue)
    for study in studies:
        run_transaction(engine, lambda connection, study=study: end_one(connection, study))  # type: ignore[misc]
    return len(studies)


def _set_state(connection: Connection, study: str, state: str) -> None:
    connection.execute(STUDIES.update().where(STUDIES.c.digest == study).values(state=state))
