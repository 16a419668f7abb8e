"""What other owners sign for a study of this one's: fetched from the tester, kept, and opened.

To the receiver of a second round the senders' releases come, sealed to it or in the open; to a sender the
receiver's acceptance; to an owner whose release is masked all owners' keys. Nothing is spent before it has
come. It is kept as it came; what is sealed is opened in memory alone. The tester that carries it is not
trusted: what it could have changed is asked for again; what the sender signed and is wrong all the same ends
the study here. All this is looked at when it comes and again before data are read, so that nothing is spent
on what does not hold.
"""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import sqlalchemy as sa
import structlog

from tacit_protocol.messages.encoding import MessageError, decode, encode_json
from tacit_protocol.messages.study import (
    Owner,
    Release,
    SealedPackage,
    SealedRelease,
    Study,
    ciphertext_digest,
    unpadded,
)
from tacit_protocol.procedures.base import ReleaseError, StudyError
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.masking import MaskingRoster, masks_of, read_roster
from tacit_protocol.procedures.plan import Relay
from tacit_protocol.procedures.relay import (
    check_acceptance,
    check_answer,
    check_own_release,
    read_again,
    read_answer,
    statement_of,
)
from tacit_protocol.signing import EnvelopeError, PrivateKey, SealContext, SealError, open_sealed
from tacit_services.agent.schema import RECEIVED
from tacit_services.agent.study.intake import IntakeRefusedError, Job, refuse
from tacit_services.agent.study.studies import mask_secret_of
from tacit_services.agent.study.tester_client import TesterClient
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import read_from, run_transaction
from tacit_services.shared.failpoints import AcceptanceStep, AgentRelayStep, MaskStep, reached

log = structlog.get_logger()

ReadStudy = Callable[[str, bytes], Study]
"""Reads the study of a digest in its envelope; raises StudyRefusedError where it is not that study."""


class TamperedError(Exception):
    """What the tester handed out is not what the sender signed: to be asked for again. Constant text."""


NOT_AS_SIGNED = "what came is not what the sender signed"
ANOTHERS = "what came was sent for another study or by another owner"


@dataclass(frozen=True)
class FetchedRelease:
    """What the tester handed out of another owner's, as it came, and when.

    ``package`` is the sealed package, or the signed release where it is in the open; of several senders the
    JSON object of all their releases by name. ``source`` is the envelope of the earlier study that the
    release was made for, where it is read again.
    """

    package: bytes
    source: bytes | None
    at: int


@dataclass(frozen=True)
class ReceivedReleases:
    """Other owners' releases by name, opened, and the digest of what was signed."""

    releases: Mapping[str, Release]
    statement: str

    @property
    def units(self) -> int:
        """Number of units that the first sender counts."""
        return next(iter(self.releases.values())).units


@dataclass(frozen=True)
class Awaited:
    """What a study waited for, opened, and when it came, Unix seconds; by itself: it waited for nothing."""

    at: int = 0
    received: ReceivedReleases | None = None
    roster: MaskingRoster | None = None
    """All owners' keys for the study's masks."""


def open_releases(job: Job, relay: Relay, handed: FetchedRelease, read: ReadStudy) -> ReceivedReleases:
    """Read the releases of all senders in the open, once everything about them holds.

    Raises as :func:`open_release` does, of each.
    """
    if not relay.more:
        return open_release(job, relay, relay.sender, handed, read)
    try:
        held = json.loads(handed.package)
        packages = {owner.name: str(held[owner.name]).encode("utf-8") for owner in relay.senders}
    except (ValueError, TypeError, KeyError):
        raise TamperedError(NOT_AS_SIGNED) from None
    opened = {
        owner.name: open_release(job, relay, owner, replace(handed, package=packages[owner.name]), read)
        for owner in relay.senders
    }
    releases = {name: found.releases[name] for name, found in opened.items()}
    if len({release.units for release in releases.values()}) > 1:
        refuse("not-aligned", "the other owners count different numbers of units")
    statement = statement_of(relay, {name: found.statement for name, found in opened.items()})
    return ReceivedReleases(releases, str(statement))


def open_release(
    job: Job, relay: Relay, sender: Owner, handed: FetchedRelease, read: ReadStudy
) -> ReceivedReleases:
    """Read one sender's release in the open, once everything about it holds; ``read`` reads studies.

    Raises:
        TamperedError: the tester, or somebody between, changed it or handed out something else.
        StudyRefusedError: the sender's own release does not fit the study.
    """
    source = None
    try:
        answer = read_answer(relay, handed.package, sender.name, sender.key)
        if sender.reuses is not None:
            source = read(sender.reuses, handed.source or b"")
    except (MessageError, EnvelopeError, IntakeRefusedError):
        raise TamperedError(NOT_AS_SIGNED) from None
    if (answer.study, answer.party) != (sender.reuses or job.digest, sender.name) or answer.release is None:
        raise TamperedError(ANOTHERS)
    try:
        release = answer.release
        if source is None:
            check_answer(job.procedure, job.study, answer)
        else:
            lender = procedure_named(source.procedure)
            release = read_again(job.procedure, job.study, sender, source, answer, lender=lender)
    except (ReleaseError, StudyError) as error:
        refuse("release-refused", f"the other owner's release: {error}")
    return ReceivedReleases({sender.name: release}, answer.digest)


def open_package(job: Job, relay: Relay, package: bytes, key: PrivateKey) -> ReceivedReleases:
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
        raise TamperedError(NOT_AS_SIGNED) from None
    sealed = answer.sealed
    if sealed is None or (answer.study, answer.party) != (job.digest, sender.name):
        raise TamperedError(ANOTHERS)
    if sealed.ciphertext_digest != ciphertext_digest(ciphertext):
        raise TamperedError("the ciphertext is not the one that the sender signed")
    release = _open(job, relay, sealed, ciphertext, key)
    return ReceivedReleases({sender.name: release}, answer.digest)


def _open(job: Job, relay: Relay, sealed: SealedRelease, ciphertext: bytes, key: PrivateKey) -> Release:
    try:
        message = unpadded(open_sealed(key, seal_context(job, relay), ciphertext))
        if (message.study, message.party) != (job.digest, relay.sender.name):
            raise ReleaseError("it was made for another study or owner")
        if (sealed.receiver, sealed.units) != (relay.receiver.name, message.release.units):
            raise ReleaseError("the statement about it says something else")
        check_own_release(job.procedure, job.study, message.party, message.release)
    except (SealError, MessageError, ReleaseError) as error:
        refuse("release-refused", f"the other owner's sealed release: {error}")
    return message.release


def seal_context(job: Job, relay: Relay) -> SealContext:
    """Return what a sealed release is bound to: study, sender and receiver."""
    return SealContext(job.digest, relay.sender.name, relay.receiver.name)


def open_keys(job: Job, package: bytes) -> MaskingRoster:
    """Read all owners' keys for a study's masks, once everything about them holds.

    Raises:
        TamperedError: the tester, or somebody between, changed them or handed out others.
    """
    try:
        held = json.loads(package)
        envelopes = {str(name): str(text).encode("utf-8") for name, text in held.items()}
        return read_roster(job.study, job.digest, envelopes)
    except (ValueError, TypeError, AttributeError, RecursionError):  # what does not hold is a ValueError
        raise TamperedError(NOT_AS_SIGNED) from None


@dataclass
class Mailbox:
    """What came of other owners for this one's studies.

    ``key`` opens what is sealed; ``read`` reads the earlier study of a release that is read again.
    """

    key: PrivateKey
    engine: sa.Engine
    client: TesterClient
    clock: Clock
    read: ReadStudy

    def fetch(self, job: Job) -> bool:
        """Fetch what a study waits for unless it is kept; returns whether it has come now.

        Raises:
            StudyRefusedError: what the sender sent is of no use.
            TesterError: the tester could not be asked, or says that nothing will come.
        """
        if not (job.waits or job.receives) or self._kept(job.digest) is not None:
            return False
        if job.masking is not None:
            return self._fetch_keys(job)
        assert job.relay is not None  # noqa: S101 (for mypy: what waits, and masks nothing, is relayed)
        return (self._fetch_releases if job.receives else self._fetch_acceptance)(job, job.relay)

    def _fetch_releases(self, job: Job, relay: Relay) -> bool:
        package = self._sent(job, relay)
        if package is None:
            return False
        reused = relay.sender.reuses
        source = None if reused is None else self.client.study_envelope(reused)
        reached(AgentRelayStep.SEALED_FETCHED)
        handed = FetchedRelease(package, source, int(self.clock()))
        try:
            self._open(job, relay, handed)
        except TamperedError as error:
            log.warning("sealed_not_taken", study=job.digest, reason=str(error))
            return False
        self._keep(job.digest, handed)
        reached(AgentRelayStep.SEALED_STORED)
        log.info("sealed_received", study=job.digest, sender=relay.sender.name)
        return True

    def _sent(self, job: Job, relay: Relay) -> bytes | None:
        """Return what was sent in round one; None while anything is missing."""
        found = {}
        for owner in relay.senders:
            package = self.client.sealed_release(job.digest, owner.name)
            if package is None:
                return None
            found[owner.name] = package
        if not relay.more:
            return found[relay.sender.name]
        try:
            return encode_json({name: package.decode("utf-8") for name, package in found.items()})
        except UnicodeDecodeError:
            log.warning("sealed_not_taken", study=job.digest, reason=NOT_AS_SIGNED)
            return None

    def _fetch_acceptance(self, job: Job, relay: Relay) -> bool:
        envelope = self.client.acceptance(job.digest, relay.receiver.name)
        if envelope is None:
            return False
        reached(AcceptanceStep.FETCHED)
        try:
            check_acceptance(relay, job.digest, envelope)
        except (EnvelopeError, MessageError, ReleaseError) as error:
            log.warning("acceptance_not_taken", study=job.digest, reason=str(error))
            return False
        self._keep(job.digest, FetchedRelease(envelope, None, int(self.clock())))
        reached(AcceptanceStep.KEPT)
        log.info("accepted", study=job.digest, receiver=relay.receiver.name)
        return True

    def _fetch_keys(self, job: Job) -> bool:
        """Fetch all owners' keys: a tester that shows others later is not heard."""
        package = self.client.mask_keys(job.digest)
        if package is None:
            return False
        reached(MaskStep.FETCHED)
        try:
            roster = self._roster(job, package)
        except TamperedError as error:
            log.warning("mask_keys_not_taken", study=job.digest, reason=str(error))
            return False
        self._keep(job.digest, FetchedRelease(package, None, int(self.clock())))
        reached(MaskStep.KEPT)
        log.info("mask_keys_received", study=job.digest, roster=roster.digest)
        return True

    def _keep(self, study: str, handed: FetchedRelease) -> None:
        def store(connection: sa.Connection) -> None:
            if connection.execute(RECEIVED.select().where(RECEIVED.c.study == study)).first() is None:
                row = {"package": handed.package, "source": handed.source, "received_at": handed.at}
                connection.execute(RECEIVED.insert().values(study=study, **row))

        run_transaction(self.engine, store)

    def awaited(self, job: Job) -> Awaited | None:
        """Open, in memory, what a study waits for before anything is spent; None while it has not come.

        Raises:
            StudyRefusedError: what is kept does not open or fit.
        """
        if not (job.waits or job.receives):
            return Awaited()
        kept = self._kept(job.digest)
        if kept is None:
            return None
        at = int(kept.received_at)
        if job.masking is not None:
            try:
                return Awaited(at, roster=self._roster(job, bytes(kept.package)))
            except TamperedError as error:
                refuse("release-refused", f"the owners' keys: {error}")
        if job.relay is not None and job.receives:
            source = None if kept.source is None else bytes(kept.source)
            try:
                handed = FetchedRelease(bytes(kept.package), source, at)
                return Awaited(at, received=self._open(job, job.relay, handed))
            except TamperedError as error:
                refuse("release-refused", f"the other owner's release: {error}")
        return Awaited(at)

    def _open(self, job: Job, relay: Relay, handed: FetchedRelease) -> ReceivedReleases:
        if relay.sealed:
            return open_package(job, relay, handed.package, self.key)
        return open_releases(job, relay, handed, self.read)

    def _roster(self, job: Job, package: bytes) -> MaskingRoster:
        """Read all owners' keys; it must show the key drawn here, and keys with which masks can be made."""
        roster = open_keys(job, package)
        secret = read_from(self.engine, mask_secret_of, job.digest)
        if secret is None:
            refuse("internal-error", "the secret of the study's masks is gone: the database was changed")
        try:
            masks_of(roster, job.sender, secret, "", 1)
        except ValueError as error:
            raise TamperedError(str(error)) from None
        return roster

    def _kept(self, digest: str) -> sa.Row[Any] | None:
        query = RECEIVED.select().where(RECEIVED.c.study == digest)
        return read_from(self.engine, lambda connection: connection.execute(query).one_or_none())
