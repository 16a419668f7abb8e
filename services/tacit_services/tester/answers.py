"""Answers to a study: an owner's release or decline, a receiver's acceptance, the analyst's cancellation.

All of them are idempotent: the same bytes again are answered as the first time, whatever has happened since;
other bytes never replace what is stored.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from enum import Enum
from typing import Any

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.encoding import decode, encode, encode_json
from tacit_protocol.messages.study import (
    CancellationMessage,
    DeclineMessage,
    SealedPackage,
    Study,
    ciphertext_digest,
)
from tacit_protocol.procedures.base import ReleaseError, masking_of
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.masking import read_mask_key, roster_digest
from tacit_protocol.procedures.plan import Relay
from tacit_protocol.procedures.relay import (
    OwnAnswer,
    check_acceptance,
    check_answer,
    read_answer,
    relay_of,
    require_received,
    require_roster,
    statement_of,
)
from tacit_protocol.signing import CANCELLATION_TYPE, DECLINE_TYPE, open_envelope
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import GroupCommit, read_from, run_transaction
from tacit_services.shared.failpoints import AcceptanceStep, MaskStep, TesterRelayStep, TesterStep, reached
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.tester.studies import Studies, queue_verdict, release_digests, reused_by_study
from tacit_services.tester.tables import (
    ACCEPTANCES,
    CANCELLATIONS,
    DECLINES,
    MASK_KEYS,
    RELEASES,
    SEALED,
    STUDIES,
    STUDY_OWNERS,
    not_here,
    row_of,
)
from tacit_services.tester.verdicts import Signer, end


class UploadOutcome(Enum):
    """What became of an answer."""

    BEFORE = "these very bytes were taken before"
    NOW = "stored"
    LAST = "stored, and the study collects no more"


@dataclass(frozen=True)
class OwnerAnswer:
    """An owner's checked answer: the table it goes to, and its row without the time."""

    table: sa.Table
    row: Mapping[str, Any]
    ciphertext: bytes | None = None
    """What the answer says is sealed to another owner: stored with it, and beside it."""

    @property
    def study(self) -> str:
        """The digest of the study that is answered."""
        return str(self.row["study"])

    @property
    def place(self) -> tuple[str, str]:
        """Whose answer to what: a study and an owner have one place."""
        return self.study, str(self.row["owner"])


# Written once: to put a statement together takes longer than SQLite takes to run it.
_STUDIES = sa.select(STUDIES.c.digest, STUDIES.c.state, STUDIES.c.deadline).where(
    STUDIES.c.digest.in_(sa.bindparam("studies", expanding=True))
)
_STORED = sa.union_all(
    *(
        sa.select(sa.literal(t.name).label("kind"), t.c.study, t.c.owner, t.c.envelope).where(
            sa.tuple_(t.c.study, t.c.owner).in_(sa.bindparam("places", expanding=True))
        )
        for t in (RELEASES, DECLINES)
    )
)
_INSERTS = {table.name: table.insert() for table in (RELEASES, DECLINES)}


def store_answers(
    connection: Connection, answers: Sequence[OwnerAnswer], signer: Signer, now: int
) -> list[UploadOutcome | RegisteredProblemError]:
    """Store answers, in their order; returns what became of each, a refusal among them."""
    studies, stored = _read(connection, answers)
    outcomes = [
        _decide(answer, studies[answer.study], stored, now)
        if answer.study in studies
        else not_here(connection, answer.study)
        for answer in answers
    ]
    new = [answer for answer, outcome in zip(answers, outcomes, strict=True) if outcome is UploadOutcome.NOW]
    for name, insert in _INSERTS.items():
        if rows := [{**answer.row, "received_at": now} for answer in new if answer.table.name == name]:
            connection.execute(insert, rows)
    if sealed := [answer for answer in new if answer.ciphertext is not None]:
        rows = [{"study": a.study, "owner": a.row["owner"], "ciphertext": a.ciphertext} for a in sealed]
        connection.execute(SEALED.insert(), rows)
        reached(TesterRelayStep.SEALED_INSERTED)
    ended = _end_if_answered(connection, {answer.study for answer in new}, signer, now) if new else set()
    for _ in (answer for answer in new if answer.table is RELEASES):
        reached(TesterStep.RELEASE_INSERTED)
    return [
        UploadOutcome.LAST if outcome is UploadOutcome.NOW and answer.study in ended else outcome
        for answer, outcome in zip(answers, outcomes, strict=True)
    ]


def _counted(table: sa.Table) -> sa.ScalarSelect[int]:
    return sa.select(sa.func.count()).where(table.c.study == STUDIES.c.digest).scalar_subquery()


# Counted, not listed, and written once: it runs with every upload, of studies with up to a thousand owners.
_ANSWERED = sa.select(
    STUDIES.c.digest,
    _counted(STUDY_OWNERS).label("owners"),
    _counted(RELEASES).label("releases"),
    _counted(DECLINES).label("declines"),
).where(STUDIES.c.digest.in_(sa.bindparam("studies", expanding=True)))


def _end_if_answered(connection: Connection, studies: Collection[str], signer: Signer, now: int) -> set[str]:
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


def was_taken(connection: Connection, answer: OwnerAnswer, now: int) -> bool:
    """Return whether these very bytes were taken before; raises where the study takes nothing more."""
    studies, stored = _read(connection, [answer])
    if is_stored(stored.get((answer.table.name, *answer.place)), answer.row["envelope"]):
        return True
    if answer.study not in studies:
        raise not_here(connection, answer.study)
    require_collecting(studies[answer.study], now)
    return False


def is_stored(stored: bytes | None, envelope: bytes) -> bool:
    """Return whether these very bytes are stored; raises ``conflicting-upload`` where others are."""
    if stored is not None and stored != envelope:
        raise RegisteredProblemError("conflicting-upload")
    return stored is not None


def require_collecting(study: Any, now: int) -> None:
    """Raise the problem that says why a study (a row with state and deadline) takes nothing more."""
    if study.state in {"collecting", "incomplete"} and now >= study.deadline:
        raise RegisteredProblemError("study-expired")
    if study.state != "collecting":
        raise RegisteredProblemError("study-closed")


_Stored = dict[tuple[str, str, str], bytes]
"""Envelopes by table, study and owner."""


def _read(connection: Connection, answers: Sequence[OwnerAnswer]) -> tuple[dict[str, Any], _Stored]:
    """Read the answered studies' rows, by digest, and what is stored in the answers' places."""
    studies = connection.execute(_STUDIES, {"studies": list({answer.study for answer in answers})})
    found = {row.digest: row for row in studies}
    places = connection.execute(_STORED, {"places": list({answer.place for answer in answers})})
    return found, {(row.kind, row.study, row.owner): bytes(row.envelope) for row in places}


def _decide(
    answer: OwnerAnswer, study: Any, stored: _Stored, now: int
) -> UploadOutcome | RegisteredProblemError:
    """Decide on one answer, and note it for those after it where it is to be stored."""
    kind, other = answer.table.name, (DECLINES if answer.table is RELEASES else RELEASES).name
    try:
        if is_stored(stored.get((kind, *answer.place)), answer.row["envelope"]):
            return UploadOutcome.BEFORE
        if (other, *answer.place) in stored:
            raise RegisteredProblemError("already-decided")
        require_collecting(study, now)
    except RegisteredProblemError as refusal:
        return refusal
    stored[kind, *answer.place] = answer.row["envelope"]
    return UploadOutcome.NOW


RETRY_S = 5
"""When a release that is not here yet is worth asking for again."""


def parted(relay: Relay | None, owner: str, body: bytes) -> tuple[bytes, bytes | None]:
    """Part an owner's upload into the signed envelope, and the ciphertext where its answer is sealed.

    Raises:
        MessageError: it is no sealed package where there must be one.
    """
    if relay is None or relay.kind_of(owner) != "sealed release":
        return body, None
    package = decode(SealedPackage, body)
    return package.statement.encode("utf-8"), package.sealed


def require_ciphertext(answer: OwnAnswer, ciphertext: bytes | None) -> None:
    """Raise ReleaseError where the ciphertext is not the one that the signed statement names."""
    if answer.sealed is None or ciphertext is None:
        return
    named = (answer.sealed.ciphertext_digest, answer.sealed.ciphertext_bytes)
    if named != (ciphertext_digest(ciphertext), len(ciphertext)):
        raise ReleaseError("the ciphertext is not the one that the statement names")


def release_for(engine: Engine, studies: Studies, study_digest: str, owner: str, caller_key: str) -> bytes:
    """Return the owner's release for the caller's second round, as it came: a sealed package, or an envelope.

    Raises:
        ProblemError: ``unknown-study`` or ``study-archived``; ``forbidden`` for everyone but the receiver
            that the study names; ``release-pending`` while it may still come, ``study-closed`` once it will
            not.
    """
    study = studies.parsed(study_digest)
    relay = relay_of(procedure_named(study.procedure), study)
    if relay is None or not relay.is_sender(owner) or caller_key != relay.receiver.key:
        raise RegisteredProblemError(
            "forbidden", detail="this release is handed to the receiver that the study names"
        )

    def read(connection: Connection) -> bytes:
        row = row_of(connection, study_digest, _SENT, {"study": study_digest, "owner": owner})
        if row.ciphertext is not None:
            return encode(SealedPackage.of(bytes(row.envelope), bytes(row.ciphertext)))
        if relay.sender.reuses is not None:
            return reused_by_study(connection, study_digest).releases[owner]
        if row.envelope is not None and not relay.sealed:
            return bytes(row.envelope)
        if row.state != "collecting" or row.declined is not None:
            raise RegisteredProblemError("study-closed")
        raise RegisteredProblemError("release-pending", retry_after_s=RETRY_S)

    package = read_from(engine, read)
    reached(TesterRelayStep.SEALED_SERVED)
    return package


def acceptance_for(engine: Engine, studies: Studies, study_digest: str, owner: str, caller_key: str) -> bytes:
    """Return the receiver's acceptance, as it came, to the sender of a study of two rounds.

    Raises:
        ProblemError: as :func:`release_for`, the sender in the receiver's place.
    """
    study = studies.parsed(study_digest)
    relay = relay_of(procedure_named(study.procedure), study)
    senders = () if relay is None else tuple(sender.key for sender in relay.senders)
    if relay is None or owner != relay.receiver.name or caller_key not in senders:
        raise RegisteredProblemError(
            "forbidden", detail="an acceptance is handed to the sender that the study names"
        )

    def read(connection: Connection) -> bytes:
        row = row_of(connection, study_digest, _KEPT["acceptances"], {"study": study_digest, "owner": owner})
        if row.state != "collecting" or row.declined is not None:
            raise RegisteredProblemError("study-closed")
        if row.envelope is None:
            raise RegisteredProblemError("release-pending", retry_after_s=RETRY_S)
        return bytes(row.envelope)

    envelope = read_from(engine, read)
    reached(AcceptanceStep.SERVED)
    return envelope


def mask_keys_for(engine: Engine, studies: Studies, study_digest: str, caller_key: str) -> bytes:
    """Return the keys of a study with masks, envelopes by owner, to one of its owners.

    Raises:
        ProblemError: ``unknown-study`` or ``study-archived``; ``forbidden`` for everyone but an owner of such
            a study; ``release-pending`` while a key may still come, ``study-closed`` once none will be used.
    """
    study = studies.parsed(study_digest)
    owners = {owner.key for owner in study.owners}
    if masking_of(procedure_named(study.procedure), study) is None or caller_key not in owners:
        raise RegisteredProblemError(
            "forbidden", detail="keys are handed to the owners of a study with masks"
        )

    def read(connection: Connection) -> bytes:
        row = row_of(connection, study_digest, _STUDIES, {"studies": [study_digest]})
        declines = sa.select(DECLINES.c.owner).where(DECLINES.c.study == study_digest)
        if row.state != "collecting" or connection.execute(declines).first() is not None:
            raise RegisteredProblemError("study-closed")
        keys = connection.execute(
            sa.select(MASK_KEYS.c.owner, MASK_KEYS.c.envelope).where(MASK_KEYS.c.study == study_digest)
        ).all()
        if len(keys) != len(owners):
            raise RegisteredProblemError("release-pending", retry_after_s=RETRY_S)
        return encode_json({key.owner: bytes(key.envelope).decode("utf-8") for key in keys})

    found = read_from(engine, read)
    reached(MaskStep.SERVED)
    return found


def _same_owner(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.study == STUDIES.c.digest, table.c.owner == sa.bindparam("owner"))


_SENT = (
    sa.select(
        STUDIES.c.state,
        RELEASES.c.envelope,
        SEALED.c.ciphertext,
        DECLINES.c.owner.label("declined"),
    )
    .select_from(STUDIES)
    .outerjoin(RELEASES, _same_owner(RELEASES))
    .outerjoin(SEALED, _same_owner(SEALED))
    .outerjoin(DECLINES, _same_owner(DECLINES))
    .where(STUDIES.c.digest == sa.bindparam("study"))
)


def _kept_in(table: sa.Table) -> sa.Select[Any]:
    """Select what a table keeps for good, of a study or of an owner of it, and what decides on adding it."""
    same = _same_owner(table) if "owner" in table.c else table.c.study == STUDIES.c.digest
    return (
        sa.select(STUDIES.c.state, STUDIES.c.deadline, table.c.envelope, DECLINES.c.owner.label("declined"))
        .select_from(STUDIES)
        .outerjoin(table, same)
        .outerjoin(DECLINES, _same_owner(DECLINES))
        .where(STUDIES.c.digest == sa.bindparam("study"))
    )


_KEPT = {table.name: _kept_in(table) for table in (ACCEPTANCES, MASK_KEYS, CANCELLATIONS)}


class AnswerIntake:
    """Takes answers. Releases and declines that arrive together are committed together."""

    def __init__(self, engine: Engine, studies: Studies, signer: Signer, clock: Clock) -> None:
        self._engine = engine
        self._studies = studies
        self._signer = signer
        self._clock = clock
        self._commits = GroupCommit(engine, self._store)

    def take_release(self, study_digest: str, owner: str, body: bytes, caller_key: str) -> UploadOutcome:
        """Take an owner's release: signature first, by the study's roster; then what it says.

        Where the study relays, the sender's comes sealed, and the receiver's may be a receipt.
        """
        owner_key = self._roster_key(study_digest, owner, caller_key)
        study = self._studies.parsed(study_digest)
        procedure = procedure_named(study.procedure)
        relay = relay_of(procedure, study)
        envelope, ciphertext = parted(relay, owner, body)
        read = read_answer(relay, envelope, owner, owner_key)
        if (read.study, read.party) != (study_digest, owner):
            raise RegisteredProblemError("digest-mismatch")
        row = {"study": study_digest, "owner": owner, "envelope": envelope}
        answer = OwnerAnswer(RELEASES, row | {"digest": read.digest, "units": read.units}, ciphertext)
        try:
            check_answer(procedure, study, read)
            require_ciphertext(read, ciphertext)
            if relay is not None:
                require_received(relay, self._sent(study_digest, relay), read)
            if masking_of(procedure, study) is not None:
                require_roster(self._keys(study_digest, study), read)
        except ReleaseError as error:
            # What was taken before stays taken, and what is late is late, whatever the checks say today.
            if read_from(self._engine, was_taken, answer, self._now()):
                return UploadOutcome.BEFORE
            raise RegisteredProblemError("release-refused", detail=str(error)) from None
        reached(TesterStep.RELEASE_CHECKED)
        taken = self._take(answer)
        reached(TesterStep.RELEASE_STORED)
        return taken

    def take_decline(self, study_digest: str, owner: str, envelope: bytes, caller_key: str) -> UploadOutcome:
        """Take an owner's decline."""
        owner_key = self._roster_key(study_digest, owner, caller_key)
        message = decode(DeclineMessage, open_envelope(envelope, DECLINE_TYPE, owner_key))
        if (message.study, message.party) != (study_digest, owner):
            raise RegisteredProblemError("digest-mismatch")
        return self._take(
            OwnerAnswer(DECLINES, {"study": study_digest, "owner": owner, "envelope": envelope})
        )

    def take_acceptance(
        self, study_digest: str, owner: str, envelope: bytes, caller_key: str
    ) -> UploadOutcome:
        """Take the receiver's acceptance of its second round, while the study still collects."""
        self._roster_key(study_digest, owner, caller_key)
        study = self._studies.parsed(study_digest)
        relay = relay_of(procedure_named(study.procedure), study)
        try:
            check_acceptance(relay, study_digest, envelope)
        except ReleaseError as error:
            raise RegisteredProblemError("release-refused", detail=str(error)) from None

        row = {"study": study_digest, "envelope": envelope}
        return self._keep(ACCEPTANCES, row, owner, lambda *_: reached(AcceptanceStep.INSERTED))

    def take_mask_key(self, study_digest: str, owner: str, envelope: bytes, caller_key: str) -> UploadOutcome:
        """Take an owner's key for a study with masks: one for good, while the study still collects."""
        owner_key = self._roster_key(study_digest, owner, caller_key)
        study = self._studies.parsed(study_digest)
        if masking_of(procedure_named(study.procedure), study) is None:
            raise RegisteredProblemError("release-refused", detail="the study asks for no key")
        try:
            _, key_digest = read_mask_key(study_digest, owner, owner_key, envelope)
        except ReleaseError:
            raise RegisteredProblemError("digest-mismatch") from None
        row = {"study": study_digest, "owner": owner, "envelope": envelope, "digest": key_digest}
        return self._keep(MASK_KEYS, row, owner, lambda *_: reached(MaskStep.INSERTED))

    def take_cancellation(self, study_digest: str, envelope: bytes, caller_key: str) -> UploadOutcome:
        """Take the analyst's cancellation, while the study still collects."""
        study = self._studies.parsed(study_digest)
        if caller_key != study.analyst.key:
            raise RegisteredProblemError("forbidden", detail="only the study's analyst may cancel it")
        message = decode(CancellationMessage, open_envelope(envelope, CANCELLATION_TYPE, study.analyst.key))
        if message.study != study_digest:
            raise RegisteredProblemError("digest-mismatch")

        def end_study(connection: Connection, now: int) -> None:
            end(connection, study_digest, "cancelled", self._signer, now)

        row = {"study": study_digest, "envelope": envelope}
        taken = self._keep(CANCELLATIONS, row, None, end_study)
        return UploadOutcome.LAST if taken is UploadOutcome.NOW else taken

    def _keep(
        self, table: sa.Table, row: dict[str, Any], owner: str | None, kept: Callable[[Connection, int], None]
    ) -> UploadOutcome:
        """Insert, for good, a row without its time, while the study collects and its owner has not declined.

        ``kept`` is called in the same transaction, with the time.
        """

        def work(connection: Connection) -> UploadOutcome:
            place = {"study": row["study"], "owner": owner}
            study = row_of(connection, row["study"], _KEPT[table.name], place)
            if is_stored(study.envelope, row["envelope"]):
                return UploadOutcome.BEFORE
            if study.declined is not None:
                raise RegisteredProblemError("already-decided")
            now = self._now()
            require_collecting(study, now)
            connection.execute(table.insert().values(**row, received_at=now))
            kept(connection, now)
            return UploadOutcome.NOW

        return run_transaction(self._engine, work)

    def _sent(self, study_digest: str, relay: Relay) -> str | None:
        """Return the digest of what was sent in round one, or None. Once there, it never changes."""
        return statement_of(relay, read_from(self._engine, release_digests, study_digest))

    def _keys(self, study_digest: str, study: Study) -> str | None:
        """Return the digest of all owners' keys, or None. Once there, it never changes."""
        query = sa.select(MASK_KEYS.c.owner, MASK_KEYS.c.digest).where(MASK_KEYS.c.study == study_digest)
        rows = read_from(self._engine, lambda connection: connection.execute(query).all())
        digests = {row.owner: row.digest for row in rows}
        return roster_digest(study_digest, digests) if len(digests) == len(study.owners) else None

    def _roster_key(self, study_digest: str, owner: str, caller_key: str) -> str:
        """Return the key that the study's roster gives for an owner, who calls, or has the analyst carry."""
        study = self._studies.parsed(study_digest)
        keys = {party.name: party.key for party in study.senders}
        if owner not in keys:
            raise RegisteredProblemError("forbidden", detail="the study does not name this owner")
        if caller_key not in (keys[owner], study.analyst.key):
            raise RegisteredProblemError("forbidden", detail="an owner answers for itself alone")
        return keys[owner]

    def _take(self, answer: OwnerAnswer) -> UploadOutcome:
        """Store an answer, together with those of others that wait; returns once it is durable."""
        outcome = self._commits.run(answer)
        if isinstance(outcome, RegisteredProblemError):
            raise outcome
        return outcome

    def _store(
        self, connection: Connection, answers: Sequence[OwnerAnswer]
    ) -> list[UploadOutcome | RegisteredProblemError]:
        return store_answers(connection, answers, self._signer, self._now())

    def _now(self) -> int:
        return int(self._clock())
