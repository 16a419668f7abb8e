"""Releases sealed to one owner: made here for another, or fetched here and opened in memory alone.

What was fetched is kept as it came, sealed. The tester that carries it is not trusted: what it could have
changed is asked for again; what the sender signed and is wrong all the same ends the study here.
"""

from dataclasses import dataclass

import sqlalchemy as sa
import structlog

from tacit_protocol.messages.encoding import MessageError, decode, encode
from tacit_protocol.messages.release import Release, ReleaseMessage
from tacit_protocol.messages.sealed import (
    SealedPackage,
    SealedRelease,
    ciphertext_digest,
    padded,
    unpadded,
)
from tacit_protocol.procedures.base import ReleaseError
from tacit_protocol.procedures.relay import Relay, read_answer
from tacit_protocol.signing.envelope import SEALED_RELEASE_TYPE, EnvelopeError, seal
from tacit_protocol.signing.keys import PrivateKey
from tacit_protocol.signing.sealing import SealContext, SealError, open_sealed, seal_to
from tacit_services.agent.intake import Job, refuse
from tacit_services.agent.schema import RECEIVED
from tacit_services.agent.steps import RelayStep, reached
from tacit_services.agent.tester_client import TesterClient
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import run_transaction

log = structlog.get_logger()


class TamperedError(Exception):
    """What the tester handed out is not what the sender signed: to be asked for again. Constant text."""


@dataclass(frozen=True)
class Received:
    """Another owner's release, opened; the digest of the sender's statement; and when it was fetched."""

    release: Release
    statement: str
    at: int


def seal_release(job: Job, relay: Relay, message: ReleaseMessage, key: PrivateKey) -> bytes:
    """Seal a release to the study's receiver; returns the exact bytes to send."""
    certificate = relay.receiver.sealing
    if certificate is None:
        refuse("study-refused", "the receiver's sealing certificate is missing")
    try:
        ciphertext = seal_to(certificate, relay.receiver.key, _context(job, relay), padded(message))
    except SealError as error:
        refuse("study-refused", str(error))
    statement = SealedRelease(
        study=job.digest,
        party=job.sender,
        receiver=relay.receiver.name,
        units=message.release.units,
        ciphertext_digest=ciphertext_digest(ciphertext),
        ciphertext_bytes=len(ciphertext),
    )
    envelope = seal(encode(statement), SEALED_RELEASE_TYPE, key)
    return encode(SealedPackage.of(envelope, ciphertext))


def open_package(job: Job, relay: Relay, package: bytes, key: PrivateKey, at: int) -> Received:
    """Open what was sealed to this owner, once everything about it holds.

    Raises:
        TamperedError: the tester, or somebody between, changed it or handed out something else.
        StudyRefusedError: the sender's own release does not open or does not fit the study.
    """
    sender = relay.sender
    try:
        parts = decode(SealedPackage, package)
        answer = read_answer(relay, parts.statement.encode("utf-8"), sender.name, sender.key)
        ciphertext = parts.sealed
    except (MessageError, EnvelopeError):
        raise TamperedError("what came is not what the sender signed") from None
    sealed = answer.sealed
    if sealed is None or (answer.study, answer.party) != (job.digest, sender.name):
        raise TamperedError("what came was sent for another study or by another owner")
    if sealed.ciphertext_digest != ciphertext_digest(ciphertext):
        raise TamperedError("the ciphertext is not the one that the sender signed")
    release = _open(job, relay, sealed, ciphertext, key)
    return Received(release, answer.digest, at)


def _open(job: Job, relay: Relay, sealed: SealedRelease, ciphertext: bytes, key: PrivateKey) -> Release:
    try:
        message = unpadded(open_sealed(key, _context(job, relay), ciphertext))
        if (message.study, message.party) != (job.digest, relay.sender.name):
            raise ReleaseError("it was made for another study or owner")
        if (sealed.receiver, sealed.units) != (relay.receiver.name, message.release.units):
            raise ReleaseError("the statement about it says something else")
        relay.procedure.check_received(job.study, message.release)
    except (SealError, MessageError, ReleaseError) as error:
        refuse("release-refused", f"the other owner's sealed release: {error}")
    return message.release


def _context(job: Job, relay: Relay) -> SealContext:
    return SealContext(job.digest, relay.sender.name, relay.receiver.name)


class Mailbox:
    """What other owners sealed to this one: fetched from the tester, kept, opened.

    Args:
        engine: the owner's own database.
        key: the owner's key.
        client: the tester.
        clock: Unix time in seconds.
    """

    def __init__(self, engine: sa.Engine, key: PrivateKey, client: TesterClient, clock: Clock):
        self._engine, self._key, self._client, self._clock = engine, key, client, clock

    def fetch(self, job: Job, relay: Relay) -> bool:
        """Fetch a study's sealed release unless it is kept; returns whether it has come now.

        Raises:
            StudyRefusedError: what the sender sent is of no use.
            TesterError: the tester could not be asked, or says that nothing will come.
        """
        if self._kept(job.digest) is not None:
            return False
        package = self._client.sealed_release(job.digest, relay.sender.name)
        if package is None:
            return False
        reached(RelayStep.SEALED_FETCHED)
        at = int(self._clock())
        try:
            open_package(job, relay, package, self._key, at)
        except TamperedError as error:
            log.warning("sealed_not_taken", study=job.digest, reason=str(error))
            return False

        def store(connection: sa.Connection) -> None:
            if connection.execute(RECEIVED.select().where(RECEIVED.c.study == job.digest)).first() is None:
                row = {"study": job.digest, "package": package, "received_at": at}
                connection.execute(RECEIVED.insert().values(**row))

        run_transaction(self._engine, store)
        reached(RelayStep.SEALED_STORED)
        log.info("sealed_received", study=job.digest, sender=relay.sender.name)
        return True

    def open(self, job: Job, relay: Relay) -> Received | None:
        """Open what is kept for a study, in memory; None while nothing has come.

        Raises:
            StudyRefusedError: it does not open or fit.
        """
        kept = self._kept(job.digest)
        if kept is None:
            return None
        try:
            return open_package(job, relay, bytes(kept.package), self._key, int(kept.received_at))
        except TamperedError as error:
            refuse("release-refused", f"the other owner's sealed release: {error}")

    def _kept(self, digest: str) -> sa.Row[tuple[object, ...]] | None:
        query = RECEIVED.select().where(RECEIVED.c.study == digest)
        return run_transaction(
            self._engine, lambda connection: connection.execute(query).one_or_none(), read_only=True
        )
