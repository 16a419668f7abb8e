"""Releases that one owner seals to another: carried here, handed to the receiver alone, never read."""

import sqlalchemy as sa
from sqlalchemy.engine import Connection, Engine

from tacit_protocol.messages.encoding import decode, encode
from tacit_protocol.messages.sealed import SealedPackage, ciphertext_digest
from tacit_protocol.procedures.base import ReleaseError
from tacit_protocol.procedures.registry import procedure_named
from tacit_protocol.procedures.relay import OwnAnswer, Relay, relay_of
from tacit_services.shared.database import run_transaction
from tacit_services.shared.problem_responses import ProblemError
from tacit_services.tester.archived import not_here
from tacit_services.tester.steps import RelayStep, reached
from tacit_services.tester.studies import Studies
from tacit_services.tester.tables import DECLINES, RELEASES, SEALED, STUDIES

RETRY_S = 5
"""When a sealed release that is not here yet is worth asking for again."""


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


def sealed_package(engine: Engine, studies: Studies, study_digest: str, owner: str, caller_key: str) -> bytes:
    """Return what the owner sealed to the caller, as it came.

    Raises:
        ProblemError: ``unknown-study`` or ``study-archived``; ``forbidden`` for everyone but the receiver
            that the study names; ``release-pending`` while it may still come, ``study-closed`` once it will
            not.
    """
    study = studies.parsed(study_digest)
    relay = relay_of(procedure_named(study.procedure), study)
    if relay is None or owner != relay.sender.name or caller_key != relay.receiver.key:
        raise ProblemError("forbidden", detail="a sealed release is for the receiver that the study names")

    def read(connection: Connection) -> bytes:
        row = connection.execute(_SEALED, {"study": study_digest, "owner": owner}).one_or_none()
        if row is None:
            raise not_here(connection, study_digest)
        if row.ciphertext is not None:
            return encode(SealedPackage.of(bytes(row.envelope), bytes(row.ciphertext)))
        if row.state != "collecting" or row.declined is not None:
            raise ProblemError("study-closed")
        raise ProblemError("release-pending", retry_after_s=RETRY_S)

    package = run_transaction(engine, read, read_only=True)
    reached(RelayStep.SEALED_SERVED)
    return package


def _same_owner(table: sa.Table) -> sa.ColumnElement[bool]:
    return sa.and_(table.c.study == STUDIES.c.digest, table.c.owner == sa.bindparam("owner"))


_SEALED = (
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
