"""What a client does with a tester, as operations (:mod:`tacit.asking`).

:class:`~tacit.client.Client` and :class:`~tacit.async_client.AsyncClient` drive the same generators.
"""

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Literal

from tacit.answers import (
    EnrolledParty,
    Identity,
    Invitation,
    InvitationRecord,
    RevokedInvitations,
    StudySummary,
    parse,
    parse_item,
)
from tacit.asking import Operation, Pause, ask, pages
from tacit.draft import EnrolledKeys, PreparedStudy, StudyDraft, prepare
from tacit.errors import (
    HopelessStudyError,
    InputError,
    ProblemError,
    ResponseError,
    VerdictTimeoutError,
    VerificationFailedError,
)
from tacit.http import HttpRequest, check, problem_slug, segment
from tacit.results import StudyVerdict, study_verdict
from tacit_protocol.messages.cancellation import CancellationMessage
from tacit_protocol.messages.encoding import MessageError, decode, encode, encode_json
from tacit_protocol.messages.study import Party, Study
from tacit_protocol.messages.transcript import TRANSCRIPT_BYTES_MAX
from tacit_protocol.messages.verdict import VerdictMessage
from tacit_protocol.signing.envelope import (
    CANCELLATION_TYPE,
    STUDY_TYPE,
    VERDICT_TYPE,
    digest,
    open_envelope,
    peek_key_id,
    seal,
)
from tacit_protocol.signing.keys import PrivateKey, SignatureError

POLL_WAIT_S = 2
"""How long one question for the verdict may wait at the tester; short, so that progress is seen."""

PAUSE_S = 0.2
"""Pause between two questions, for a tester that answers at once."""

Role = Literal["owner", "analyst", "curator"]


@dataclass(frozen=True)
class Session:
    """Who asks: its key, and the tester's key where it is pinned."""

    key: PrivateKey | None
    tester_key: str | None
    clock: Callable[[], float]
    """Unix time in seconds."""
    elapsed: Callable[[], float]
    """A monotonic clock in seconds, for time limits."""

    def signing_key(self) -> PrivateKey:
        """Return the key, or say that one is needed."""
        if self.key is None:
            raise InputError("this needs a key: pass key=PrivateKey or the path of a key file")
        return self.key


OnProgress = Callable[[StudySummary], None]


def identity() -> Operation[Identity]:
    """Ask the tester who it is."""
    answer = yield from ask(HttpRequest("GET", "/v1/identity", signed=False))
    return parse(Identity, answer)


def parties() -> Operation[list[EnrolledParty]]:
    """List the enrolled parties."""
    return (yield from pages("/v1/parties", {}, partial(parse_item, EnrolledParty)))


def studies(state: str | None) -> Operation[list[StudySummary]]:
    """List the studies, of one state or all."""
    query = {"state": state} if state else {}
    return (yield from pages("/v1/studies", query, partial(parse_item, StudySummary)))


def study_summary(study_digest: str) -> Operation[StudySummary]:
    """Read one study's state."""
    answer = yield from ask(HttpRequest("GET", _study_path(study_digest)))
    return parse(StudySummary, answer)


def study(session: Session, study_digest: str) -> Operation[Study]:
    """Read the study itself, checked against its digest and its analyst's signature."""
    answer = yield from ask(HttpRequest("GET", _study_path(study_digest) + "/envelope"))
    try:
        payload = open_envelope(answer.body, STUDY_TYPE, peek_key_id(answer.body))
        found = decode(Study, payload)
    except (SignatureError, MessageError) as error:
        raise VerificationFailedError(f"the tester's copy of the study is not valid: {error}") from error
    if digest(payload) != study_digest or found.analyst.key != peek_key_id(answer.body):
        raise VerificationFailedError("the tester answered with another study than the one asked for")
    if session.tester_key is not None and found.tester.key != session.tester_key:
        raise VerificationFailedError("the study names another tester's key than the one that you pinned")
    return found


def invite(session: Session, role: Role, name: str) -> Operation[Invitation]:
    """Make an invitation; only the tester's own key may."""
    session.signing_key()
    body = encode_json({"role": role, "name": name})
    answer = yield from ask(HttpRequest("POST", "/v1/invitations", body=body))
    return parse(Invitation, answer)


def invitations() -> Operation[list[InvitationRecord]]:
    """List all invitations ever made; only the tester's own key may."""
    return (yield from pages("/v1/invitations", {}, partial(parse_item, InvitationRecord)))


def revoke_invitations(name: str) -> Operation[RevokedInvitations]:
    """Revoke the invitations of a name that could still be used; only the tester's own key may."""
    answer = yield from ask(HttpRequest("DELETE", "/v1/invitations/" + segment(name)))
    return parse(RevokedInvitations, answer)


def revoke(name: str) -> Operation[EnrolledParty]:
    """Revoke a party's key for good; only the tester's own key may."""
    answer = yield from ask(HttpRequest("PUT", f"/v1/parties/{segment(name)}/revocation"))
    return parse(EnrolledParty, answer)


def enrol(session: Session, invitation: str, name: str, role: Role) -> Operation[EnrolledParty]:
    """Enrol the session's key under a name, with an invitation."""
    key = session.signing_key().public_hex
    body = encode_json({"invitation": invitation, "name": name, "key": key, "role": role})
    answer = yield from ask(HttpRequest("POST", "/v1/enrolments", body=body))
    return parse(EnrolledParty, answer)


def prepare_study(session: Session, draft: StudyDraft) -> Operation[PreparedStudy]:
    """Freeze a draft into a study, with the parties' keys, and work out its cost; nothing is stored."""
    tester = yield from identity()
    if session.tester_key is not None and tester.key != session.tester_key:
        raise VerificationFailedError("the tester has another key than the one that you pinned")
    enrolled = [party for party in (yield from parties()) if party.revoked_at is None]
    own_key = session.signing_key().public_hex
    analyst = next((p for p in enrolled if p.key == own_key and p.role == "analyst"), None)
    if analyst is None:
        raise InputError("your key is not enrolled as an analyst: enrol it with an invitation first")
    if draft.seed is None and draft.reuses is not None:
        earlier = yield from study(session, draft.reuses)
        draft = draft.model_copy(update={"seed": earlier.seed})
    owners, curators = (
        {party.name: party.key for party in enrolled if party.role == role} for role in ("owner", "curator")
    )
    return prepare(
        draft.study(
            EnrolledKeys(owners, curators),
            _party(tester.name, tester.key),
            _party(analyst.name, analyst.key),
            int(session.clock()),
        )
    )


def _party(name: str, key: str) -> Party:
    try:
        return Party(name=name, key=key)
    except ValueError as error:
        raise ResponseError("the tester answered with a name that no party can have") from error


def create_study(session: Session, study: StudyDraft | PreparedStudy, force: bool) -> Operation[str]:
    """Sign a study and hand it to the tester. Returns its digest."""
    prepared = study if isinstance(study, PreparedStudy) else (yield from prepare_study(session, study))
    if prepared.hopeless and not force:
        raise HopelessStudyError(prepared.hopeless)
    envelope = seal(prepared.payload, STUDY_TYPE, session.signing_key())
    yield from ask(HttpRequest("PUT", _study_path(prepared.digest), body=envelope))
    return prepared.digest


def cancel(session: Session, study_digest: str) -> Operation[None]:
    """Withdraw a study; only its analyst may. What owners have spent stays spent."""
    payload = encode(CancellationMessage(study=study_digest))
    envelope = seal(payload, CANCELLATION_TYPE, session.signing_key())
    yield from ask(HttpRequest("PUT", _study_path(study_digest) + "/cancellation", body=envelope))


def transcript(study_digest: str) -> Operation[bytes]:
    """Read a study's transcript, exact bytes."""
    request = HttpRequest(
        "GET", _study_path(study_digest) + "/transcript", size_bytes_max=TRANSCRIPT_BYTES_MAX
    )
    return (yield from ask(request)).body


def wait_for_verdict(
    session: Session, study_digest: str, timeout_s: float, on_progress: OnProgress | None
) -> Operation[StudyVerdict]:
    """Wait until the study ends; returns its verdict, checked against the tester's signature."""
    asked = yield from study(session, study_digest)
    ends_at = session.elapsed() + timeout_s
    while True:
        wait_s = max(0, min(POLL_WAIT_S, math.floor(ends_at - session.elapsed())))
        request = HttpRequest("GET", _study_path(study_digest) + "/verdict", {"wait_s": str(wait_s)})
        answer = yield request
        if answer.status == 200:
            return _verdict(asked, study_digest, answer.body)
        if answer.status != 202 and problem_slug(answer) != "verdict-pending":
            check(answer)
            raise ResponseError("the tester answered neither with a verdict nor with a problem")
        summary = yield from study_summary(study_digest)
        if on_progress is not None:
            on_progress(summary)
        if summary.state == "failed":
            raise ProblemError("internal-error", 500, "the tester could not compute the verdict")
        if session.elapsed() >= ends_at:
            raise VerdictTimeoutError(
                f"no verdict within {timeout_s:g} s; the study is {summary.state}. Ask again later."
            )
        yield Pause(PAUSE_S)


def _verdict(asked: Study, study_digest: str, envelope: bytes) -> StudyVerdict:
    try:
        message = decode(VerdictMessage, open_envelope(envelope, VERDICT_TYPE, asked.tester.key))
    except (SignatureError, MessageError) as error:
        raise VerificationFailedError(f"the verdict is not valid: {error}") from error
    if message.study != study_digest:
        raise VerificationFailedError("the tester answered with another study's verdict")
    return study_verdict(asked, message)


def _study_path(study_digest: str) -> str:
    return "/v1/studies/" + segment(study_digest)
