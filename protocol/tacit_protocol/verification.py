"""Verifies a transcript: recomputes everything that a verdict rests on, trusting nobody.

The steps, each with its own failure: read the transcript; the study and its analyst's signature; each
release, its owner's signature and its fit; each release that is read again, with the study that it was made
for; where releases are masked, each owner's key, and that every release was masked with exactly these; the
verdict and the tester's signature; that the verdict lists exactly these releases; each decline and its
owner's signature; for a cancelled study, the analyst's signed cancellation; and, for a completed study,
the result itself.

What no signature can show is told (:attr:`VerifiedTranscript.notes`): whose the analyst's key is, and that a
key was revoked.
"""

import json
import math
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from tacit_protocol.messages.encoding import MessageError, decode, digest, encode
from tacit_protocol.messages.study import (
    TRANSCRIPT_BYTES_MAX,
    CancellationMessage,
    DeclineMessage,
    Owner,
    Party,
    PublicRule,
    Release,
    ReleaseMessage,
    Study,
    Transcript,
    VerdictMessage,
    read_study,
)
from tacit_protocol.procedures.base import (
    Procedure,
    Progress,
    ReleaseError,
    StudyError,
    check_study,
    masking_of,
    require_canonical,
)
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.masking import read_mask_key, roster_digest
from tacit_protocol.procedures.plan import Relay
from tacit_protocol.procedures.relay import (
    OwnAnswer,
    check_answer,
    conclude,
    read_again,
    read_answer,
    relay_of,
    require_received,
    require_roster,
    statement_of,
)
from tacit_protocol.signing import (
    CANCELLATION_TYPE,
    DECLINE_TYPE,
    STUDY_TYPE,
    VERDICT_TYPE,
    EnvelopeError,
    open_envelope,
    peek_key_id,
)

TOLERANCE = 1e-6
"""Relative difference allowed between a result's number and its recomputation: another processor's linear
algebra, sines and exponentials differ in the last bits, which is 1e-8 of a tail of 1e-7 that is worked out as
1 less a sum. Nobody reads more than six digits of a verdict."""

Step = Literal[
    "transcript",
    "study",
    "mask key",
    "release",
    "reuse",
    "verdict",
    "roster",
    "decline",
    "cancellation",
    "result",
]

NOT_WITHDRAWN = (
    "the tester says that the study was cancelled, and no cancellation signed by its analyst is there"
)

Message = TypeVar("Message", bound=BaseModel)
OwnersMessage = TypeVar("OwnersMessage", ReleaseMessage, DeclineMessage)


class VerificationError(Exception):
    """The transcript does not hold. ``step`` says what failed, ``party`` at whom where that is known."""

    def __init__(self, step: Step, reason: str, party: str | None = None) -> None:
        where = step if party is None else f"{step} of {party}"
        super().__init__(f"{where}: {reason}")
        self.step = step
        self.party = party
        self.reason = reason


@contextmanager
def _failing(step: Step, party: str | None = None) -> Iterator[None]:
    """Tell of what does not hold as of a failure of this step."""
    try:
        yield
    except (EnvelopeError, MessageError, StudyError, ReleaseError) as error:
        raise VerificationError(step, str(error), party) from None


@dataclass(frozen=True)
class VerifiedTranscript:
    """A transcript that holds: its parts, and the digests they are known by."""

    study: Study
    study_digest: str
    releases: dict[str, Release]
    """By owner, as this study reads them: reused ones among them, sealed ones not."""
    release_digests: dict[str, str]
    """Of what each owner signed; of a reused release, what it signed for the earlier study."""
    verdict: VerdictMessage
    result: BaseModel | None
    """The verdict as recomputed here; None where the study ended without a result."""
    declined: tuple[str, ...] = ()
    """Who declined by its own signature, in the study's order; of whom else is missing nothing is known."""
    rules: Mapping[str, PublicRule] = field(default_factory=dict)
    """The public rule that each decline names, of those that name one."""

    @property
    def notes(self) -> tuple[str, ...]:
        """What does not rest on a signature, in sentences."""
        analyst = self.study.analyst
        notes = [
            f"The study was signed with the key {analyst.key}. That this key is {analyst.name}'s is the "
            "study's own word, which its tester compares with its list of parties when it takes a study: "
            "compare the key with what the analyst tells you, or with that list."
        ]
        if self.verdict.revoked:
            names = ", ".join(self.verdict.revoked)
            notes.append(f"The study ended as a key was revoked ({names}); that it was is the tester's word.")
        return tuple(notes)


def verify_transcript(
    data: bytes, tester_key: str | None = None, progress: Progress | None = None
) -> VerifiedTranscript:
    """Recompute everything in a transcript.

    Args:
        data: the transcript's bytes.
        tester_key: the tester's public key if the caller knows it; without it, the key that the study names
            is used, which shows that the transcript is consistent but not whose tester it was.
        progress: called while the result is recomputed.

    Raises:
        VerificationError: a step failed; nothing in the transcript should then be believed.
    """
    with _failing("transcript"):
        transcript = decode(Transcript, data, size_bytes_max=TRANSCRIPT_BYTES_MAX)
    study, study_digest = _verify_study(transcript, tester_key)
    answers = _verify_answers(transcript, study, study_digest)
    reused = _verify_reused(transcript, study)
    digests = {name: answer.digest for name, (answer, _) in reused.items()}
    digests |= {name: answer.digest for name, answer in answers.items()}
    _verify_rounds(study, answers, digests)
    _verify_mask_keys(transcript, study, study_digest, answers)
    releases = {name: answer.release for name, answer in answers.items() if answer.release is not None}
    releases |= {name: release for name, (_, release) in reused.items()}
    units = {name: answer.units for name, answer in answers.items()}
    verdict = _verify_verdict(transcript, study, study_digest)
    _verify_roster(study, verdict, digests)
    rules = _verify_declines(transcript, study, study_digest, verdict)
    _verify_cancellation(transcript, study, study_digest, verdict)
    result = None
    if verdict.outcome == "completed":
        result = _verify_result(study, releases, units, verdict, progress)
    declined = tuple(sender.name for sender in study.senders if sender.name in transcript.declines)
    return VerifiedTranscript(study, study_digest, releases, digests, verdict, result, declined, rules)


def _verify_study(transcript: Transcript, tester_key: str | None) -> tuple[Study, str]:
    study, study_digest = _open_study("study", transcript.study)
    if tester_key is not None and study.tester.key != tester_key:
        raise VerificationError("study", "it names another tester than the one expected")
    _check_study("study", study, study_digest)
    return study, study_digest


def _open_study(step: Step, text: str) -> tuple[Study, str]:
    """Read a study that its analyst signed; returns it and its digest."""
    envelope = text.encode("utf-8")
    with _failing(step):
        # The analyst's key stands in the study itself, so the envelope says which key to begin with.
        payload = open_envelope(envelope, STUDY_TYPE, peek_key_id(envelope))
        study = read_study(payload)
    if study.analyst.key != peek_key_id(envelope):
        raise VerificationError(step, "the study is signed by another key than its analyst's")
    return study, digest(payload)


def _check_study(step: Step, study: Study, study_digest: str) -> Procedure:
    with _failing(step):
        procedure = procedure_named(study.procedure)
        check_study(procedure, study)
        require_canonical(procedure, study, study_digest)
        relay_of(procedure, study)
    return procedure


def _verify_answers(transcript: Transcript, study: Study, study_digest: str) -> dict[str, OwnAnswer]:
    """Return every answer by owner, each by itself checked."""
    senders = {party.name: party for party in study.senders}
    strangers = sorted(set(transcript.releases) - set(senders))
    if strangers:
        raise VerificationError("release", "the study's roster does not name this owner", strangers[0])
    procedure = procedure_named(study.procedure)
    relay = relay_of(procedure, study)
    answers = {}
    for name, text in transcript.releases.items():
        answers[name] = _read_answer("release", relay, text, study_digest, senders[name])
        with _failing("release", name):
            check_answer(procedure, study, answers[name])
    return answers


def _verify_rounds(study: Study, answers: Mapping[str, OwnAnswer], digests: Mapping[str, str]) -> None:
    """Check that whoever answers to another's release answers to the one that is there."""
    relay = relay_of(procedure_named(study.procedure), study)
    sent = None if relay is None else statement_of(relay, digests)
    for name, answer in answers.items():
        with _failing("release", name):
            require_received(relay, sent, answer)


def _verify_mask_keys(
    transcript: Transcript, study: Study, study_digest: str, answers: Mapping[str, OwnAnswer]
) -> None:
    """Check every owner's key for the study's masks, and that each release was masked with exactly these."""
    keys = {party.name: party.key for party in study.senders}
    is_masked = masking_of(procedure_named(study.procedure), study) is not None
    strangers = sorted(set(transcript.mask_keys) - set(keys if is_masked else ()))
    if strangers:
        raise VerificationError("mask key", "the study asks this party for none", strangers[0])
    if not is_masked:
        return
    digests = {}
    for name, text in transcript.mask_keys.items():
        with _failing("mask key", name):
            _, digests[name] = read_mask_key(study_digest, name, keys[name], text.encode("utf-8"))
    found = roster_digest(study_digest, digests) if set(digests) == set(keys) else None
    for name, answer in answers.items():
        with _failing("release", name):
            require_roster(found, answer)


def _read_answer(
    step: Step, relay: Relay | None, text: str, study_digest: str, sender: Party | Owner
) -> OwnAnswer:
    with _failing(step, sender.name):
        answer = read_answer(relay, text.encode("utf-8"), sender.name, sender.key)
    if (answer.study, answer.party) != (study_digest, sender.name):
        raise VerificationError(step, "it was made for another study or owner", sender.name)
    return answer


def _verify_reused(transcript: Transcript, study: Study) -> dict[str, tuple[OwnAnswer, Release]]:
    """Return the answers that are read again, by owner, and what this study reads in each."""
    if set(transcript.reused) != {owner.name for owner in study.reusing}:
        raise VerificationError("reuse", "it holds other earlier releases than the study names")
    if set(transcript.sources) != {owner.reuses for owner in study.reusing}:
        raise VerificationError("reuse", "it holds other earlier studies than the study names")
    sources = {named: _verify_source(named, text) for named, text in transcript.sources.items()}
    procedure = procedure_named(study.procedure)
    found = {}
    for owner in study.reusing:
        source_digest, text = str(owner.reuses), transcript.reused[owner.name]
        source, lender = sources[source_digest]
        answer = _read_answer("reuse", None, text, source_digest, owner)
        with _failing("reuse", owner.name):
            found[owner.name] = (
                answer,
                read_again(procedure, study, owner, source, answer, lender=lender),
            )
    return found


def _verify_source(named: str, text: str) -> tuple[Study, Procedure]:
    source, source_digest = _open_study("reuse", text)
    if source_digest != named:
        raise VerificationError("reuse", "an earlier study is not the one that its digest names")
    return source, _check_study("reuse", source, source_digest)


def _verify_verdict(transcript: Transcript, study: Study, study_digest: str) -> VerdictMessage:
    payload = _open("verdict", transcript.verdict, VERDICT_TYPE, study.tester.key)
    verdict = _read("verdict", VerdictMessage, payload)
    if verdict.study != study_digest:
        raise VerificationError("verdict", "it was given for another study")
    if (verdict.result is not None) != (verdict.outcome == "completed"):
        raise VerificationError("verdict", "a result belongs to a completed study, and to no other")
    if (verdict.declines is None) != (verdict.outcome == "completed"):
        raise VerificationError("verdict", "it lists who declined unless the study is completed")
    return verdict


def _verify_roster(study: Study, verdict: VerdictMessage, digests: dict[str, str]) -> None:
    """Check that the verdict lists exactly these releases and names exactly who sent none."""
    if verdict.releases != digests:
        raise VerificationError("roster", "the verdict lists other releases than the transcript holds")
    absent = tuple(party.name for party in study.senders if party.name not in digests)
    if verdict.missing != absent:
        raise VerificationError("roster", "the verdict is wrong about who is missing")
    if verdict.outcome == "completed" and absent:
        raise VerificationError("roster", "a completed study needs every owner's release")
    if verdict.outcome == "incomplete" and not absent:
        raise VerificationError("roster", "an incomplete study must miss a release")
    if verdict.revoked and verdict.outcome != "incomplete":
        raise VerificationError("roster", "a revoked key ends a study without a result, and in no other way")
    if not set(verdict.revoked) <= {study.analyst.name, *absent}:
        raise VerificationError("roster", "a revoked key is of no party that the study needed")


def _verify_declines(
    transcript: Transcript, study: Study, study_digest: str, verdict: VerdictMessage
) -> dict[str, PublicRule]:
    """Check that the transcript holds exactly the declines that the verdict lists, each its owner's own.

    Returns the public rules that they name, by owner.
    """
    listed = verdict.declines or {}
    if set(listed) != set(transcript.declines):
        raise VerificationError("decline", "the verdict lists other declines than the transcript holds")
    if not set(listed) <= set(verdict.missing):
        raise VerificationError("decline", "the verdict says that an owner declined who is not missing")
    keys = {sender.name: sender.key for sender in study.senders}
    rules: dict[str, PublicRule] = {}
    for name, text in transcript.declines.items():
        payload = _open("decline", text, DECLINE_TYPE, keys[name], name)
        message = _read_own("decline", DeclineMessage, payload, study_digest, name)
        if digest(payload) != listed[name]:
            raise VerificationError("decline", "the verdict lists another one", name)
        if message.rule is not None:
            rules[name] = message.rule
    return rules


def _verify_cancellation(
    transcript: Transcript, study: Study, study_digest: str, verdict: VerdictMessage
) -> None:
    """Check that a cancelled study was withdrawn by its analyst, whatever the tester says."""
    if verdict.outcome != "cancelled":
        if transcript.cancellation is not None:
            raise VerificationError("cancellation", "the study was not cancelled, and there is one")
        return
    if transcript.cancellation is None:
        raise VerificationError("cancellation", NOT_WITHDRAWN)
    payload = _open("cancellation", transcript.cancellation, CANCELLATION_TYPE, study.analyst.key)
    if _read("cancellation", CancellationMessage, payload).study != study_digest:
        raise VerificationError("cancellation", "it was made for another study")


def _verify_result(
    study: Study,
    releases: dict[str, Release],
    units: dict[str, int],
    verdict: VerdictMessage,
    progress: Progress | None,
) -> BaseModel:
    try:
        recomputed = conclude(procedure_named(study.procedure), study, releases, units, progress)
        own = json.loads(encode(recomputed))
    except (ValueError, ArithmeticError):
        raise VerificationError("result", "it cannot be recomputed from these releases") from None
    path = _first_difference(own, verdict.result, "$")
    if path is not None:
        raise VerificationError("result", f"recomputing it gives another value at {path}")
    return recomputed


def _first_difference(own: Any, stated: Any, path: str) -> str | None:
    """Return the path of the first difference: floats to the tolerance, everything else exactly."""
    if type(own) is not type(stated):
        return path
    if isinstance(own, float):
        return None if math.isclose(own, stated, rel_tol=TOLERANCE, abs_tol=0.0) else path
    if isinstance(own, dict):
        if own.keys() != stated.keys():
            return path
        parts = [(f"{path}.{name}", own[name], stated[name]) for name in own]
    elif isinstance(own, list):
        if len(own) != len(stated):
            return path
        parts = [(f"{path}[{index}]", a, b) for index, (a, b) in enumerate(zip(own, stated, strict=True))]
    else:
        return None if own == stated else path
    found = (_first_difference(a, b, where) for where, a, b in parts)
    return next((difference for difference in found if difference is not None), None)


def _open(step: Step, text: str, payload_type: str, key: str, party: str | None = None) -> bytes:
    with _failing(step, party):
        return open_envelope(text.encode("utf-8"), payload_type, key)


def _read(step: Step, model: type[Message], payload: bytes, party: str | None = None) -> Message:
    with _failing(step, party):
        return decode(model, payload)


def _read_own(step: Step, model: type[OwnersMessage], payload: bytes, study: str, name: str) -> OwnersMessage:
    """Read what an owner signed for the study of that digest."""
    message = _read(step, model, payload, name)
    if (message.study, message.party) != (study, name):
        raise VerificationError(step, "it was made for another study or owner", name)
    return message
