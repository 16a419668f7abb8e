"""Verifies a transcript: recomputes everything that a verdict rests on, trusting nobody.

The steps, each with its own failure: read the transcript; the study and its analyst's signature; each
release, its owner's signature and its fit; the verdict and the tester's signature; that the verdict lists
exactly these releases; and, for a completed study, the result itself.
"""

import json
import math
from dataclasses import dataclass
from typing import Any, Literal, TypeVar

from pydantic import BaseModel

from tacit_protocol.messages.encoding import MessageError, decode, encode
from tacit_protocol.messages.release import Release, ReleaseMessage
from tacit_protocol.messages.study import Study
from tacit_protocol.messages.transcript import TRANSCRIPT_BYTES_MAX, Transcript
from tacit_protocol.messages.verdict import VerdictMessage
from tacit_protocol.procedures.base import Procedure, Progress, ReleaseError, StudyError, check_release
from tacit_protocol.procedures.registry import procedure_named
from tacit_protocol.signing.envelope import (
    RELEASE_TYPE,
    STUDY_TYPE,
    VERDICT_TYPE,
    EnvelopeError,
    digest,
    open_envelope,
    peek_key_id,
)

TOLERANCE = 1e-9
"""Relative difference allowed between a result's number and its recomputation: another machine's linear
algebra differs in the last bits."""

Step = Literal["transcript", "study", "release", "verdict", "roster", "result"]

Message = TypeVar("Message", bound=BaseModel)


class VerificationError(Exception):
    """The transcript does not hold. ``step`` says what failed, ``party`` at whom where that is known."""

    def __init__(self, step: Step, reason: str, party: str | None = None) -> None:
        where = step if party is None else f"{step} of {party}"
        super().__init__(f"{where}: {reason}")
        self.step = step
        self.party = party
        self.reason = reason


@dataclass(frozen=True)
class VerifiedTranscript:
    """A transcript that holds: its parts, and the digests they are known by."""

    study: Study
    study_digest: str
    releases: dict[str, Release]
    release_digests: dict[str, str]
    verdict: VerdictMessage
    result: BaseModel | None
    """The verdict as recomputed here; None where the study ended without a result."""


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
    try:
        transcript = decode(Transcript, data, size_bytes_max=TRANSCRIPT_BYTES_MAX)
    except MessageError as error:
        raise VerificationError("transcript", str(error)) from None
    study, study_digest = _verify_study(transcript, tester_key)
    releases, digests = _verify_releases(transcript, study, study_digest)
    verdict = _verify_verdict(transcript, study, study_digest)
    _verify_roster(study, verdict, digests)
    result = None
    if verdict.outcome == "completed":
        result = _verify_result(study, releases, verdict, progress)
    return VerifiedTranscript(study, study_digest, releases, digests, verdict, result)


def _verify_study(transcript: Transcript, tester_key: str | None) -> tuple[Study, str]:
    envelope = transcript.study.encode("utf-8")
    try:
        # The analyst's key stands in the study itself, so the envelope says which key to begin with.
        payload = open_envelope(envelope, STUDY_TYPE, peek_key_id(envelope))
    except EnvelopeError as error:
        raise VerificationError("study", str(error)) from None
    study = _read("study", Study, payload)
    if study.analyst.key != peek_key_id(envelope):
        raise VerificationError("study", "it is signed by another key than its analyst's")
    if tester_key is not None and study.tester.key != tester_key:
        raise VerificationError("study", "it names another tester than the one expected")
    try:
        procedure_named(study.procedure).check(study)
    except StudyError as error:
        raise VerificationError("study", str(error)) from None
    return study, digest(payload)


def _verify_releases(
    transcript: Transcript, study: Study, study_digest: str
) -> tuple[dict[str, Release], dict[str, str]]:
    keys = {party.name: party.key for party in study.senders}
    strangers = sorted(set(transcript.releases) - set(keys))
    if strangers:
        raise VerificationError("release", "the study's roster does not name this owner", strangers[0])
    procedure = procedure_named(study.procedure)
    releases, digests = {}, {}
    for name, text in transcript.releases.items():
        payload = _open("release", text, RELEASE_TYPE, keys[name], name)
        message = _read("release", ReleaseMessage, payload, name)
        if (message.study, message.party) != (study_digest, name):
            raise VerificationError("release", "it was made for another study or owner", name)
        _check_release(procedure, study, message.release, name)
        releases[name], digests[name] = message.release, digest(payload)
    return releases, digests


def _check_release(procedure: Procedure, study: Study, release: Release, name: str) -> None:
    try:
        check_release(procedure, study, release)
    except ReleaseError as error:
        raise VerificationError("release", str(error), name) from None


def _verify_verdict(transcript: Transcript, study: Study, study_digest: str) -> VerdictMessage:
    payload = _open("verdict", transcript.verdict, VERDICT_TYPE, study.tester.key)
    verdict = _read("verdict", VerdictMessage, payload)
    if verdict.study != study_digest:
        raise VerificationError("verdict", "it was given for another study")
    if (verdict.result is not None) != (verdict.outcome == "completed"):
        raise VerificationError("verdict", "a result belongs to a completed study, and to no other")
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


def _verify_result(
    study: Study, releases: dict[str, Release], verdict: VerdictMessage, progress: Progress | None
) -> BaseModel:
    try:
        recomputed = procedure_named(study.procedure).assemble(study, releases, progress)
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
    try:
        return open_envelope(text.encode("utf-8"), payload_type, key)
    except EnvelopeError as error:
        raise VerificationError(step, str(error), party) from None


def _read(step: Step, model: type[Message], payload: bytes, party: str | None = None) -> Message:
    try:
        return decode(model, payload)
    except MessageError as error:
        raise VerificationError(step, str(error), party) from None
