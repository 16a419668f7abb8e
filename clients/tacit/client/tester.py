"""Clients of a tester, blocking and awaited: create studies, wait for verdicts, verify transcripts."""

import asyncio
import math
import ssl
import time
from collections.abc import Awaitable, Callable, Mapping, Sequence
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from tacit.client.http import HttpRequest, check, parse, parse_item, problem_slug, segment
from tacit.client.operation import AsyncDriver, Driver, Operation, Pause, ask, call, object_of, pages
from tacit.client.transport import AsyncHttpTransport, AsyncTransport, HttpTransport, TokenSource, Transport
from tacit.errors import (
    HopelessStudyError,
    InputError,
    ProblemError,
    ResponseError,
    StudyRefusedError,
    VerdictTimeoutError,
    VerificationFailedError,
)
from tacit.setup.keys import load_key
from tacit_protocol.addresses import Proxy
from tacit_protocol.messages.answers import (
    EnrolledParty,
    Invitation,
    InvitationRecord,
    RevokedInvitations,
    ServiceIdentity,
    StudySummary,
)
from tacit_protocol.messages.catalogue import CatalogueMessage
from tacit_protocol.messages.encoding import MessageError, decode, encode, encode_json
from tacit_protocol.messages.encoding import digest as digest_of
from tacit_protocol.messages.study import (
    TRANSCRIPT_BYTES_MAX,
    CancellationMessage,
    DeclineMessage,
    Party,
    ReleaseMessage,
    Study,
    VerdictMessage,
    read_study,
)
from tacit_protocol.preparation import PreparedStudy
from tacit_protocol.signing import (
    CANCELLATION_TYPE,
    CATALOGUE_TYPE,
    DECLINE_TYPE,
    RELEASE_TYPE,
    STUDY_TYPE,
    VERDICT_TYPE,
    EnvelopeError,
    PrivateKey,
    SignatureError,
    issue_token,
    open_envelope,
    peek_key_id,
    sign_envelope,
)

if TYPE_CHECKING:
    from tacit.results import StudyVerdict
    from tacit.studies.draft import EnrolledKeys, StudyDraft
    from tacit_protocol.verification import VerifiedTranscript

VERDICT_TIMEOUT_S = 600.0
"""How long to wait for a verdict unless told otherwise."""

POLL_WAIT_S = 2
"""How long one question for the verdict may wait at the tester; short, so that progress is seen."""

PAUSE_S = 0.2
"""Pause between two questions, for a tester that answers at once."""

CATALOGUES_READ_MAX = 20
"""Owners of one draft whose catalogues are read before it is sent: a question each."""

NOT_FOUND = 404

Role = Literal["owner", "analyst", "curator"]
OnProgress = Callable[[StudySummary], None]


class ServiceCalls:
    """What testers and curators answer alike."""

    @call
    def identity(self) -> Operation[ServiceIdentity]:
        """Ask the service who it is; needs no key."""
        answer = yield from ask(HttpRequest("GET", "/v1/identity", signed=False))
        return parse(ServiceIdentity, answer)

    @call
    def invitations(self) -> Operation[list[InvitationRecord]]:
        """List all invitations ever made, and what became of each; only the service's own key may."""
        return (yield from pages("/v1/invitations", {}, partial(parse_item, InvitationRecord)))

    @call
    def revoke_invitations(self, name: str) -> Operation[RevokedInvitations]:
        """Revoke the invitations of a name that could still be used; only the service's own key may."""
        answer = yield from ask(HttpRequest("DELETE", "/v1/invitations/" + segment(name)))
        return parse(RevokedInvitations, answer)


class TesterCalls(ServiceCalls):
    """What a party does with a tester, which :class:`Client` and :class:`AsyncClient` share."""

    _key: PrivateKey | None
    _tester_key: str | None
    """The tester's key where it is pinned."""
    _clock: Callable[[], float]
    """Unix time in seconds."""

    def _signing_key(self) -> PrivateKey:
        if self._key is None:
            raise InputError("this needs a key: pass key=PrivateKey or the path of a key file")
        return self._key

    @call
    def parties(self) -> Operation[list[EnrolledParty]]:
        """List the enrolled parties."""
        return (yield from pages("/v1/parties", {}, partial(parse_item, EnrolledParty)))

    @call
    def invite(self, role: Role, name: str) -> Operation[Invitation]:
        """Make a one-time invitation; only the tester's own key may."""
        self._signing_key()
        body = encode_json({"role": role, "name": name})
        answer = yield from ask(HttpRequest("POST", "/v1/invitations", body=body))
        return parse(Invitation, answer)

    @call
    def revoke(self, name: str) -> Operation[EnrolledParty]:
        """Revoke a party's key for good; only the tester's own key may.

        Its requests are refused from then on, and every collecting study ends that it created or from which
        its release is missing. What it signed before holds, and verifies.
        """
        answer = yield from ask(HttpRequest("PUT", f"/v1/parties/{segment(name)}/revocation"))
        return parse(EnrolledParty, answer)

    @call
    def enrol(self, invitation: str, name: str, role: Role) -> Operation[EnrolledParty]:
        """Enrol this client's key under a name, with an invitation."""
        key = self._signing_key().public_hex
        body = encode_json({"invitation": invitation, "name": name, "key": key, "role": role})
        answer = yield from ask(HttpRequest("POST", "/v1/enrolments", body=body))
        return parse(EnrolledParty, answer)

    @call
    def catalogue(self, owner: str, key: str | None = None) -> Operation[CatalogueMessage | None]:
        """Read what an owner publishes of its data sets, its signature checked; None where it does not.

        Args:
            owner: its name at the tester.
            key: its public key; by default the one that the tester lists.

        Raises:
            InputError: no owner of that name is enrolled.
            VerificationFailedError: the tester's copy is not this owner's.
        """
        if key is None:
            enrolled = _keys_of((yield from TesterCalls.parties.operation(self)), "owner")
            if owner not in enrolled:
                raise InputError(f"no owner named {owner} is enrolled at the tester: see `tacit party list`")
            key = enrolled[owner]
        answer = yield HttpRequest("GET", "/v1/catalogue/" + segment(owner))
        if answer.status == NOT_FOUND:
            return None
        check(answer)
        try:
            entry = decode(CatalogueMessage, open_envelope(answer.body, CATALOGUE_TYPE, key))
        except (SignatureError, MessageError) as error:
            raise VerificationFailedError(f"the tester's copy of {owner}'s catalogue is not valid") from error
        if entry.owner != owner or self._tester_key not in {None, entry.tester}:
            raise VerificationFailedError(f"the tester answered with another catalogue than {owner}'s")
        return entry

    @call
    def catalogues(self) -> Operation[list[CatalogueMessage]]:
        """Read what every owner publishes of its data sets, by the owner's name."""
        enrolled = _keys_of((yield from TesterCalls.parties.operation(self)), "owner")
        named = yield from pages("/v1/catalogue", {}, lambda item: str(object_of(item).get("owner")))
        found = []
        for owner in named:
            if owner in enrolled:
                entry = yield from TesterCalls.catalogue.operation(self, owner, enrolled[owner])
                found += [entry] if entry is not None and entry.data_sets else []
        return found

    @call
    def prepare_study(self, draft: "StudyDraft | Mapping[str, Any] | bytes") -> Operation[PreparedStudy]:
        """Freeze a draft into a study, with the parties' keys, and work out its cost; nothing is stored.

        What an owner publishes may say that its policy refuses the study: it is hopeless then.

        Args:
            draft: a draft, its plain fields, or the exact bytes of a study that the tester's page made.

        Raises:
            InputError: an owner is not enrolled, or this client's key is no analyst's.
            StudyRefusedError: the procedure does not take the study as written.
            VerificationFailedError: the bytes name another analyst, tester, owner or curator than these.
        """
        from tacit.studies.draft import EnrolledKeys, StudyDraft, prepare  # noqa: PLC0415 (loads when needed)

        frozen = draft if isinstance(draft, bytes) else None
        drafted = draft if isinstance(draft, StudyDraft | bytes) else StudyDraft.from_dict(draft)
        tester = yield from TesterCalls.identity.operation(self)
        if self._tester_key is not None and tester.key != self._tester_key:
            raise VerificationFailedError("the tester has another key than the one that you pinned")
        listed = yield from TesterCalls.parties.operation(self)
        own_key = self._signing_key().public_hex
        analyst = next((name for name, key in _keys_of(listed, "analyst").items() if key == own_key), None)
        if analyst is None:
            raise InputError("your key is not enrolled as an analyst: enrol it with an invitation first")
        if isinstance(drafted, StudyDraft) and drafted.seed is None and drafted.reuses is not None:
            earlier = yield from TesterCalls.study_content.operation(self, drafted.reuses)
            drafted = drafted.model_copy(update={"seed": earlier.seed})
        known = EnrolledKeys(_keys_of(listed, "owner"), _keys_of(listed, "curator"))
        parties = _party(tester.name, tester.key), _party(analyst, own_key)
        if isinstance(drafted, bytes):
            written = _frozen(drafted, known, *parties)
        else:
            written = drafted.study(known, *parties, int(self._clock()))
        prepared = prepare(written)
        if frozen is not None and prepared.payload != frozen:
            raise StudyRefusedError("the study's bytes are not in the one form that is signed: make it anew")
        refusals: list[str] = []
        study = prepared.study
        if study.curator is None:
            for asked in [owner for owner in study.owners if owner.reuses is None][:CATALOGUES_READ_MAX]:
                entry = yield from TesterCalls.catalogue.operation(self, asked.name, asked.key)
                refusals += [] if entry is None else entry.refusals(study, asked)
        return prepared.but_refused(refusals)

    @call
    def create_study(
        self, study: "StudyDraft | PreparedStudy | Mapping[str, Any] | bytes", *, force: bool = False
    ) -> Operation[str]:
        """Sign a study and hand it to the tester. Returns its digest, by which everyone knows it.

        Raises:
            HopelessStudyError: it could hardly find anything, and ``force`` is False.
            StudyRefusedError: the procedure does not take it as written.
        """
        if isinstance(study, PreparedStudy):
            prepared = study
        else:
            prepared = yield from TesterCalls.prepare_study.operation(self, study)
        if prepared.hopeless and not force:
            raise HopelessStudyError(prepared.hopeless)
        envelope = sign_envelope(prepared.payload, STUDY_TYPE, self._signing_key())
        yield from ask(HttpRequest("PUT", study_path(prepared.digest), body=envelope))
        return prepared.digest

    @call
    def studies(self, state: str | None = None) -> Operation[list[StudySummary]]:
        """List the studies, all or those in one state."""
        query = {"state": state} if state else {}
        return (yield from pages("/v1/studies", query, partial(parse_item, StudySummary)))

    @call
    def study(self, digest: str) -> Operation[StudySummary]:
        """Read one study's state."""
        answer = yield from ask(HttpRequest("GET", study_path(digest)))
        return parse(StudySummary, answer)

    @call
    def study_content(self, digest: str) -> Operation[Study]:
        """Read the study itself, checked against its digest and its analyst's signature."""
        answer = yield from ask(HttpRequest("GET", study_path(digest) + "/envelope"))
        try:
            payload = open_envelope(answer.body, STUDY_TYPE, peek_key_id(answer.body))
            found = read_study(payload)
        except (SignatureError, MessageError) as error:
            raise VerificationFailedError(f"the tester's copy of the study is not valid: {error}") from error
        if digest_of(payload) != digest or found.analyst.key != peek_key_id(answer.body):
            raise VerificationFailedError("the tester answered with another study than the one asked for")
        if self._tester_key is not None and found.tester.key != self._tester_key:
            raise VerificationFailedError("the study names another tester's key than the one that you pinned")
        return found

    @call
    def wait_for_verdict(
        self, digest: str, timeout_s: float = VERDICT_TIMEOUT_S, on_progress: OnProgress | None = None
    ) -> Operation["StudyVerdict"]:
        """Wait until the study ends; returns its verdict, checked against the tester's signature.

        Raises:
            VerdictTimeoutError: the study had not ended after ``timeout_s`` seconds.
            VerificationFailedError: the tester's answer is not signed as it must be.
        """
        asked = yield from TesterCalls.study_content.operation(self, digest)
        ends_at = time.monotonic() + timeout_s
        while True:
            wait_s = max(0, min(POLL_WAIT_S, math.floor(ends_at - time.monotonic())))
            answer = yield HttpRequest("GET", study_path(digest) + "/verdict", {"wait_s": str(wait_s)})
            if answer.status == 200:
                return _verdict(asked, digest, answer.body)
            if answer.status != 202 and problem_slug(answer) != "verdict-pending":
                check(answer)
                raise ResponseError("the tester answered neither with a verdict nor with a problem")
            summary = yield from TesterCalls.study.operation(self, digest)
            if on_progress is not None:
                on_progress(summary)
            if summary.state == "failed":
                step = None if summary.progress is None else summary.progress.step
                raise ProblemError("verdict-failed", 409, step or "the verdict could not be computed")
            if time.monotonic() >= ends_at:
                raise VerdictTimeoutError(
                    f"no verdict within {timeout_s:g} s; the study is {summary.state}. Ask again later."
                )
            yield Pause(PAUSE_S)

    @call
    def transcript(self, digest: str) -> Operation[bytes]:
        """Read a study's transcript: exact bytes, to be kept and verified."""
        path = study_path(digest) + "/transcript"
        return (yield from ask(HttpRequest("GET", path, size_bytes_max=TRANSCRIPT_BYTES_MAX))).body

    @call
    def study_envelope(self, digest: str) -> Operation[bytes]:
        """Read a study as its analyst signed it: exact bytes, to be carried to an owner."""
        return (yield from ask(HttpRequest("GET", study_path(digest) + "/envelope"))).body

    @call
    def deliver(self, envelope: bytes) -> Operation[str]:
        """Take to the tester what an owner answered to a study of yours; returns the study's digest.

        Raises:
            InputError: this is no release and no decline, or no owner of the study signed it.
        """
        read = carried_answer(envelope)
        if read is None:
            raise InputError("this is no owner's answer: bring what `tacit agent answer` wrote")
        kind, message = read
        path = f"{study_path(message.study)}/{kind}/{message.party}"
        yield from ask(HttpRequest("PUT", path, body=envelope))
        return message.study

    @call
    def cancel(self, digest: str) -> Operation[None]:
        """Withdraw a study; only its analyst may. What owners have spent stays spent."""
        envelope = sign_envelope(
            encode(CancellationMessage(study=digest)), CANCELLATION_TYPE, self._signing_key()
        )
        yield from ask(HttpRequest("PUT", study_path(digest) + "/cancellation", body=envelope))


def _frozen(payload: bytes, known: "EnrolledKeys", tester: Party, analyst: Party) -> Study:
    """Read a study that somebody else wrote for this analyst; raises where it names others than these."""
    try:
        study = read_study(payload)
    except MessageError as error:
        raise InputError(f"this is no study: {error}") from error
    if (study.tester, study.analyst) != (tester, analyst):
        raise VerificationFailedError("the study names another tester or another analyst: it is not yours")
    for party, keys in ((study.curator, known.curators), *((owner, known.owners) for owner in study.owners)):
        # The key that an owner has at its curator is nothing that the tester knows.
        curated = study.curator is not None and party is not study.curator
        if party is not None and not curated and keys.get(party.name) != party.key:
            raise VerificationFailedError(
                f"the study gives another key for {party.name} than the tester does"
            )
    return study


class Client(TesterCalls, Driver):
    """A tester, as seen by one party. Use it as a context manager.

    Args:
        url: the tester's base URL.
        key: the party's key, or the path of its key file; without one only ``identity`` is answered.
        audience: what the tester calls itself in tokens; by default its URL.
        tester_key: the tester's public key (64 hexadecimal digits), learned by a channel that you trust.
            Without it the tester's own word is believed.
        tls: a TLS context, for a private certificate authority or mutual TLS.
        proxy: a proxy that opens tunnels, such as ``http://proxy.example:3128``; ``environment`` for what
            HTTPS_PROXY and NO_PROXY say; a :class:`~tacit_protocol.addresses.Proxy` has credentials too.
        insecure_plain_http: let everything travel in the clear to a URL that is not this machine's own. For
            tests without real data alone: without it such a URL is an :class:`~tacit.errors.InputError`.
        transport: replaces the network, for tests.
        clock: Unix time in seconds.

    Every method raises :class:`~tacit.errors.TransportError` where no answer comes, and
    :class:`~tacit.errors.ProblemError` where the tester refuses.
    """

    def __init__(
        self,
        url: str,
        key: PrivateKey | Path | str | None = None,
        *,
        audience: str | None = None,
        tester_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: Proxy | str | None = None,
        insecure_plain_http: bool = False,
        transport: Transport | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], None] = time.sleep,
    ) -> None:
        self._key, self._tester_key, self._clock = resolve_key(key), tester_key, clock
        tokens = token_source(self._key, audience or url.rstrip("/"), clock)
        chosen = transport or HttpTransport(
            url, tokens, tls=tls, proxy=proxy, insecure_plain_http=insecure_plain_http, sleep=sleep
        )
        super().__init__(chosen, sleep)

    def verify(self, digest: str) -> "VerifiedTranscript":
        """Fetch a study's transcript and recompute everything in it, the verdict included.

        Raises:
            VerificationFailedError: a signature, a digest or a recomputed figure does not match.
        """
        from tacit.client.transcripts import verify_transcript_of  # noqa: PLC0415 (statistics load when needed)

        return verify_transcript_of(self.transcript(digest), digest, self._tester_key)


class AsyncClient(TesterCalls, AsyncDriver):
    """A tester, as seen by one party, without blocking. Use it as an asynchronous context manager.

    Arguments, methods and exceptions are those of :class:`Client`; methods are to be awaited.
    """

    def __init__(
        self,
        url: str,
        key: PrivateKey | Path | str | None = None,
        *,
        audience: str | None = None,
        tester_key: str | None = None,
        tls: ssl.SSLContext | None = None,
        proxy: Proxy | str | None = None,
        insecure_plain_http: bool = False,
        transport: AsyncTransport | None = None,
        clock: Callable[[], float] = time.time,
        sleep: Callable[[float], Awaitable[None]] = asyncio.sleep,
    ) -> None:
        self._key, self._tester_key, self._clock = resolve_key(key), tester_key, clock
        tokens = token_source(self._key, audience or url.rstrip("/"), clock)
        chosen = transport or AsyncHttpTransport(
            url, tokens, tls=tls, proxy=proxy, insecure_plain_http=insecure_plain_http, sleep=sleep
        )
        super().__init__(chosen, sleep)

    async def verify(self, digest: str) -> "VerifiedTranscript":
        """Fetch a study's transcript and recompute everything in it, the verdict included.

        Raises:
            VerificationFailedError: a signature, a digest or a recomputed figure does not match.
        """
        from tacit.client.transcripts import verify_transcript_of  # noqa: PLC0415 (statistics load when needed)

        data = await self.transcript(digest)
        return await asyncio.to_thread(verify_transcript_of, data, digest, self._tester_key)


def resolve_key(key: PrivateKey | Path | str | None) -> PrivateKey | None:
    """Return the key itself, read from its file where a path was given."""
    return load_key(Path(key)) if isinstance(key, Path | str) else key


def token_source(key: PrivateKey | None, audience: str, clock: Callable[[], float]) -> TokenSource | None:
    """Return a function that issues tokens for one audience, or None where there is no key."""
    if key is None:
        return None
    return lambda: issue_token(key, audience, int(clock()))


def _party(name: str, key: str) -> Party:
    try:
        return Party(name=name, key=key)
    except ValueError as error:
        raise ResponseError("the tester answered with a name that no party can have") from error


def carried_answer(envelope: bytes) -> tuple[str, ReleaseMessage | DeclineMessage] | None:
    """Return what an owner answered, and the kind of answer as paths call it; None where it is none.

    The signature is checked with the key that the envelope names: whose that is, the tester says.
    """
    with suppress(SignatureError, MessageError):
        key = peek_key_id(envelope)
        with suppress(EnvelopeError):
            return "releases", decode(ReleaseMessage, open_envelope(envelope, RELEASE_TYPE, key))
        return "declines", decode(DeclineMessage, open_envelope(envelope, DECLINE_TYPE, key))
    return None


def _verdict(asked: Study, study_digest: str, envelope: bytes) -> "StudyVerdict":
    from tacit.results import study_verdict  # noqa: PLC0415 (statistics load when needed)

    try:
        message = decode(VerdictMessage, open_envelope(envelope, VERDICT_TYPE, asked.tester.key))
    except (SignatureError, MessageError) as error:
        raise VerificationFailedError(f"the verdict is not valid: {error}") from error
    if message.study != study_digest:
        raise VerificationFailedError("the tester answered with another study's verdict")
    return study_verdict(asked, message)


def study_path(digest: str) -> str:
    """Return where a service has a study."""
    return "/v1/studies/" + segment(digest)


def _keys_of(parties: Sequence[EnrolledParty], role: Role) -> dict[str, str]:
    """Return the public keys of a role's enrolled parties, by name; revoked ones are left out."""
    return {p.name: p.key for p in parties if p.role == role and p.revoked_at is None}
