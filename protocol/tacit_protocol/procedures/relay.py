"""Studies of two rounds: one owner's release goes to another, through a tester that carries it.

In round one the sender releases, sealed to the receiver, or in the open, where everyone may read it; in the
open there may be several senders. In round two the receiver combines what was sent with its own exact
numbers, and answers with a private release of its own, or with a receipt, which says nothing. Here: which
answer each owner gives, in which order, and how everybody reads the answers of a study.
"""

from collections.abc import Mapping
from dataclasses import dataclass

from tacit_protocol.domain import Table
from tacit_protocol.messages.encoding import decode, digest, encode_json
from tacit_protocol.messages.study import (
    AcceptanceMessage,
    Owner,
    Receipt,
    Release,
    ReleaseMessage,
    SealedRelease,
    Study,
)
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.procedures.base import (
    Procedure,
    Progress,
    ReleaseError,
    StudyError,
    check_parts,
    check_release,
    check_study,
    delta_warnings,
    masking_of,
    planned,
    reread,
)
from tacit_protocol.procedures.masking import as_layout
from tacit_protocol.procedures.plan import Combined, Relay, Releases
from tacit_protocol.signing import (
    ACCEPTANCE_TYPE,
    RECEIPT_TYPE,
    RELEASE_TYPE,
    SEALED_RELEASE_TYPE,
    open_envelope,
)
from tacit_protocol.verdicts.base import BaseVerdict

MATCHED_BY_ORDER = "rows were matched by their order at either owner, which nothing has checked"
"""What a verdict says where owners of different columns did not compare digests of their units."""


def check_acceptance(relay: Relay | None, study: str, envelope: bytes) -> None:
    """Check that an envelope is the acceptance, by a study's receiver, of the study of that digest.

    Raises:
        EnvelopeError: it is of another kind, or the signature is not the receiver's.
        MessageError: the payload is malformed.
        ReleaseError: it accepts another study, or this one asks for none.
    """
    if relay is None or not relay.accepted_first:
        raise ReleaseError("the study asks for no acceptance")
    message = decode(AcceptanceMessage, open_envelope(envelope, ACCEPTANCE_TYPE, relay.receiver.key))
    if (message.study, message.party) != (study, relay.receiver.name):
        raise ReleaseError("it accepts another study, or for another owner")


def combined(procedure: Procedure, study: Study, received: Releases, table: Table) -> Combined:
    """Combine what was sent, releases by sender, with the receiver's own rows, exactly."""
    return planned(procedure, study).combine(received, table)


def statement_of(relay: Relay, digests: Mapping[str, str]) -> str | None:
    """Return the digest of all that was sent in round one, by the digests of what each sender signed.

    Of one sender it is that digest itself, of several the digest of all by name. None while any is missing.
    """
    sent = {owner.name: digests.get(owner.name) for owner in relay.senders}
    if None in sent.values():
        return None
    return digest(encode_json(sent)) if relay.more else sent[relay.sender.name]


def relay_of(procedure: Procedure, study: Study) -> Relay | None:
    """Return who sends to whom in a study; None where every owner releases to the tester.

    Raises:
        StudyError: the study cannot be run as written.
    """
    relay = planned(procedure, study).relay
    if relay is not None and (relay.receiver.reuses or (relay.sealed and relay.sender.reuses)):
        raise StudyError(
            "of a study of two rounds, a release of the first in the open may be read again, and no other; "
            "leave the other owner's reuses out"
        )
    if relay is not None and relay.more and (relay.sealed or study.reusing):
        raise StudyError("several owners send in the open, for this study alone; leave reuses out")
    return relay


def cost_for(procedure: Procedure, study: Study, name: str) -> Guarantee:
    """Return what the owner of that name spends where it releases something."""
    relay = relay_of(procedure, study)
    return relay.costs[name] if relay is not None and relay.costs else procedure.cost(study)


def numbers_released_by(procedure: Procedure, study: Study, name: str) -> int:
    """Return how many noisy numbers one of the study's senders sends; a decision counts as one."""
    relay = relay_of(procedure, study)
    if relay is None or relay.is_sender(name):
        return procedure.release_size(study)
    return relay.numbers if relay.publishes else 0


@dataclass(frozen=True)
class OwnAnswer:
    """What one sender signed for a study: for which study, as whom, of how many units, and one of three."""

    study: str
    party: str
    digest: str
    units: int
    release: Release | None = None
    sealed: SealedRelease | None = None
    received: str | None = None
    """Digest of what the sender signed: that which a receipt is for, or a release was computed with."""


def read_answer(relay: Relay | None, envelope: bytes, name: str, key: str) -> OwnAnswer:
    """Read the answer of the sender of that name and key, of the one kind that it may give.

    The caller compares ``study`` and ``party``, and calls :func:`check_answer`.

    Raises:
        EnvelopeError: it is of another kind, or the signature does not hold.
        MessageError: the payload is malformed.
    """
    kind = "release" if relay is None else relay.kind_of(name)
    if kind == "sealed release":
        payload = open_envelope(envelope, SEALED_RELEASE_TYPE, key)
        sealed = decode(SealedRelease, payload)
        return OwnAnswer(sealed.study, sealed.party, digest(payload), sealed.units, sealed=sealed)
    if kind == "receipt":
        payload = open_envelope(envelope, RECEIPT_TYPE, key)
        receipt = decode(Receipt, payload)
        received = receipt.received
        return OwnAnswer(receipt.study, receipt.party, digest(payload), receipt.units, received=received)
    payload = open_envelope(envelope, RELEASE_TYPE, key)
    message = decode(ReleaseMessage, payload)
    return OwnAnswer(
        message.study,
        message.party,
        digest(payload),
        message.release.units,
        release=message.release,
        received=message.received,
    )


def check_answer(procedure: Procedure, study: Study, answer: OwnAnswer) -> None:
    """Check an answer as the tester and every verifier do.

    Raises:
        ReleaseError: it does not fit the study.
    """
    relay, masking = relay_of(procedure, study), masking_of(procedure, study)
    if answer.sealed is not None and (relay is None or answer.sealed.receiver != relay.receiver.name):
        raise ReleaseError("it is sealed to another owner than the study says")
    if answer.release is not None:
        check_own_release(procedure, study, answer.party, answer.release)
    receives = masking is not None or (relay is not None and answer.party == relay.receiver.name)
    if answer.received is not None and not receives:
        raise ReleaseError("it names another owner's release, and none was sent to this owner")


def check_own_release(procedure: Procedure, study: Study, name: str, release: Release) -> None:
    """Check the release of the sender of that name, in the open or sealed, by the rules of its round.

    Raises:
        ReleaseError: it does not fit the study.
    """
    relay = relay_of(procedure, study)
    if masking_of(procedure, study) is not None:
        check_release(procedure, study, as_layout(release))
    elif relay is not None and relay.is_sender(name):
        check_parts(procedure, study, release)
        planned(procedure, study).check_received(name, release)
    else:
        check_release(procedure, study, release)


def read_again(
    procedure: Procedure,
    study: Study,
    owner: Owner,
    source: Study,
    answer: OwnAnswer,
    *,
    lender: Procedure,
) -> Release:
    """Return a release that one of a study's owners made for ``source``, as this study expects it.

    The caller has checked the signatures and digests of both; ``lender`` is the procedure of ``source``.

    Raises:
        ReleaseError: it does not fit the study that it was made for, or is not in the open.
        StudyError: it cannot be read again for this study.
    """
    if answer.release is None:
        raise ReleaseError("it is not in the open")
    check_study(lender, source)
    check_answer(lender, source, answer)
    return reread(procedure, study, owner, source, answer.release, lender=lender)


def require_received(relay: Relay | None, sent: str | None, answer: OwnAnswer) -> None:
    """Check that the receiver answers to what was sent; ``sent`` is its digest (``statement_of``).

    Raises:
        ReleaseError: nothing was sent yet, or the receipt is for something else.
    """
    if relay is None or answer.party != relay.receiver.name:
        return
    if sent is None:
        raise ReleaseError("the receiver answers before anything was sent to it")
    if answer.received is None and not relay.sealed:
        raise ReleaseError("the receiver's release names none that it was computed with")
    if answer.received is not None and answer.received != sent:
        raise ReleaseError("the receiver answers to another release than the one sent")


def require_roster(keys: str | None, answer: OwnAnswer) -> None:
    """Check that a masked release was made with the keys that are there; ``keys`` is their digest.

    Raises:
        ReleaseError: a key is missing, or its owner was shown other keys.
    """
    if keys is None:
        raise ReleaseError("the owner masks before every owner's key is there")
    if answer.received != keys:
        raise ReleaseError("the owner masked with other keys than these: its masks do not cancel")


def conclude(
    procedure: Procedure,
    study: Study,
    releases: Mapping[str, Release],
    units: Mapping[str, int],
    progress: Progress | None = None,
) -> BaseVerdict:
    """Compute the verdict from the answers: releases and units by sender. The same for everyone."""
    verdict = planned(procedure, study).conclude(releases, units, progress)
    by_owner = (count for release in releases.values() for count in release.units_by_owner.values())
    own = units.values() if study.curator is None else by_owner
    if not (warned := delta_warnings(study, own)):
        return verdict
    return verdict.model_copy(update={"warnings": (*warned, *verdict.warnings)})
