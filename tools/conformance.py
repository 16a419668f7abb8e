"""Whether another tester or agent keeps to the published contract, check by check.

    python -m tools.conformance tester URL --key tester.pem
    python -m tools.conformance agent URL --key agent.pem --name north

The kit asks as its own parties would, with keys made for the occasion, and plays the owners' part of small
studies of made-up rows. A check that is broken is named, with what was expected; nothing that the other side
says is printed.
"""

import base64
import json
import re
import secrets
import shlex
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Annotated, Any, Self

import numpy as np
import typer

from tacit.client.http import HttpRequest, HttpResponse, Upload, json_object, parse
from tacit.client.operation import PAGES_MAX
from tacit.client.transport import HttpTransport, require_private, way
from tacit.command.app import run
from tacit.command.connect import connecting, told_ca_file
from tacit.command.output import Json, print_checks
from tacit.errors import ConfigurationError, InputError, TacitError
from tacit.in_process.samples import ArrayTable, Sample
from tacit.setup.keys import load_key
from tacit.studies.draft import EnrolledKeys, StudyDraft, prepare
from tacit_protocol.addresses import DIRECT
from tacit_protocol.messages.answers import ServiceIdentity, StudySummary
from tacit_protocol.messages.encoding import MessageError, decode, digest, encode, encode_json
from tacit_protocol.messages.problems import MEDIA_TYPE, PROBLEMS, URN_PREFIX
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
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.procedures.base import ReleaseError
from tacit_protocol.procedures.discovery import procedure_named
from tacit_protocol.procedures.relay import check_answer, read_answer, relay_of
from tacit_protocol.signing import (
    CANCELLATION_TYPE,
    DECLINE_TYPE,
    RECEIPT_TYPE,
    RELEASE_TYPE,
    STUDY_TYPE,
    VERDICT_TYPE,
    PrivateKey,
    SignatureError,
    issue_token,
    open_envelope,
    payload_of,
    peek_key_id,
    sign_envelope,
)
from tacit_protocol.verification import VerificationError, verify_transcript

UNITS = 200
"""Made-up rows of each owner of the kit."""

MARK = "echo4f1c9a7d"
"""Stands in what is submitted and refused: no refusal may repeat it."""

SLUGS = {"envelope": "invalid-signature", "message": "malformed-message"}
"""The problem of what :func:`spoiled` made, by what is at fault."""

ANSWER_S = 60.0
"""How long one answer is waited for."""

STEPS = 60
"""How often a verdict is asked for, with a wait of :data:`WAIT_S` each."""

WAIT_S = 2


class BrokenError(Exception):
    """A check does not hold; the text is the kit's own."""


def spoiled(
    kind: str, payload: bytes, key: PrivateKey, stranger: PrivateKey, twice: bytes = b'"format":"x"'
) -> Iterator[tuple[str, str, bytes]]:
    """Yield what receivers refuse of a signed message: why, at what ("envelope", "message"), and the bytes.

    Args:
        kind: its payload type.
        payload: its exact bytes, a JSON object that has the field of ``twice``.
        key: who signs it rightly.
        stranger: a key of nobody.
        twice: a field that the message has already.
    """
    envelope = json.loads(sign_envelope(payload, kind, key))

    def changed(**fields: Any) -> bytes:
        return encode_json(envelope | fields)

    other = base64.b64encode(payload.replace(b"tacit/", b"tacit_", 1)).decode()
    yield "the payload is not what was signed", "envelope", changed(payload=other)
    yield "another type is written on it", "envelope", changed(payloadType=RECEIPT_TYPE)
    yield "two signatures", "envelope", changed(signatures=envelope["signatures"] * 2)
    yield "a field that no envelope has", "envelope", changed(note="x")
    yield "base64 without its end", "envelope", changed(payload=envelope["payload"].rstrip("=")[:-1])
    yield "another spelling of the envelope", "envelope", json.dumps(envelope).encode()
    yield "signed by nobody of the study", "envelope", sign_envelope(payload, kind, stranger)
    for why, bytes_ in (
        ("a field that no such message has", payload[:-1] + b',"zzz":1}'),
        ("a field twice", payload[:-1] + b"," + twice + b"}"),
        ("no object", b"[]"),
        ("not UTF-8", payload[:-1] + b',"zzz":"\xff"}'),
    ):
        yield why, "message", sign_envelope(bytes_, kind, key)


@dataclass(frozen=True)
class CheckResult:
    """A check, and whether it holds: ``ok``, ``failed`` with what was expected, or ``skipped``."""

    name: str
    state: str
    text: str = ""


def require(holds: bool, words: str) -> None:
    """Raise BrokenError unless a check holds."""
    if not holds:
        raise BrokenError(words)


def refused(answer: "HttpResponse", *slugs: str) -> None:
    """Require one of some problems, in its form, that echoes nothing."""
    words = f"expected {' or '.join(slugs)} ({PROBLEMS[slugs[0]].status}), got {answer.status}"
    try:
        document = json.loads(answer.body)
    except ValueError:
        raise BrokenError(words) from None
    require(isinstance(document, dict), words)
    slug = str(document.get("type", "")).removeprefix(URN_PREFIX)
    require(slug in slugs, f"{words} {slug}" if slug in PROBLEMS else words)
    known = PROBLEMS[slug]
    require(answer.status == known.status, f"{slug} has the status {known.status}, not {answer.status}")
    media_type = answer.headers.get("content-type", "").partition(";")[0]
    require(media_type == MEDIA_TYPE, f"a problem is {MEDIA_TYPE}")
    stated = {name: document.get(name) for name in ("title", "status", "advice")}
    require(
        stated == {"title": known.title, "status": known.status, "advice": known.advice},
        f"title, status and advice of {slug} are those of the registry",
    )
    instance, request_id = document.get("instance"), answer.headers.get("x-request-id", "")
    named = f"urn:tacit:request:{request_id}"
    require(request_id != "" and instance == named, "a problem names the request that X-Request-Id names")
    require(MARK.encode() not in answer.body, "a problem repeats what was submitted")


@dataclass
class CheckLog:
    """What was found so far."""

    findings: list[CheckResult] = field(default_factory=list)

    def look(self, name: str, check: Callable[[], Any]) -> Any:
        """Run one check; returns what it returns, or None where it is broken."""
        try:
            found = check()
        except BrokenError as error:
            self.findings.append(CheckResult(name, "failed", str(error)))
        except (TacitError, SignatureError, MessageError) as error:
            # Whatever a message of these says may be the other side's: the kind of fault is told alone.
            self.findings.append(
                CheckResult(name, "failed", f"the answer cannot be used: {type(error).__name__}")
            )
        else:
            self.findings.append(CheckResult(name, "ok"))
            return True if found is None else found
        return None

    def refuses(self, name: str, slug: str, ask: Callable[[], "HttpResponse"]) -> None:
        """Check that a request is refused with this problem."""
        self.look(name, lambda: refused(ask(), slug))

    def skip(self, name: str, text: str) -> None:
        """Note what could not be looked at."""
        self.findings.append(CheckResult(name, "skipped", text))


class CheckedService:
    """Requests to the service that is checked, by any key or none. Use it as a context manager."""

    def __init__(self, url: str, audience: str | None, ca_file: Path | None = None) -> None:

        require_private(url, insecure_plain_http=False)
        self.url = url.rstrip("/")
        self.audience = audience or self.url
        self.now = time.time
        self._token: Callable[[], str] = str
        route = way(DIRECT.trusting(ca_file), self.url)
        self._transport = HttpTransport(self.url, self._issued, **route)

    def _issued(self) -> str:
        return self._token()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._transport.close()

    def send(
        self,
        method: str,
        path: str,
        key: PrivateKey | None = None,
        body: "bytes | Upload | None" = None,
        *,
        token: str | None = None,
        query: dict[str, str] | None = None,
        size_bytes_max: int = 2**20,
    ) -> "HttpResponse":
        """Send one request; raises TransportError where nothing comes back."""
        if token is not None:
            self._token = lambda: token
        elif key is not None:
            self._token = lambda: issue_token(key, self.audience, int(self.now()))
        signed = token is not None or key is not None
        asked = HttpRequest(method, path, query or {}, body, signed, ANSWER_S, size_bytes_max)
        return self._transport.send(asked)

    def ok(self, *asked: Any, statuses: Sequence[int] = (200,), **options: Any) -> "HttpResponse":
        """Send one request that must be answered by one of these statuses."""
        answer = self.send(*asked, **options)
        expected = " or ".join(map(str, statuses))
        require(answer.status in statuses, f"expected {expected}, got {answer.status}")
        return answer

    def object(self, *asked: Any, **options: Any) -> dict[str, Any]:
        """Send one request that must be answered by a JSON object."""
        return json_object(self.ok(*asked, **options))


def common_checks(service: CheckedService, checks: CheckLog, closed: str, key: PrivateKey) -> None:
    """Check what every service does alike; ``closed`` is an address that asks for the token of ``key``."""

    def unauthenticated(token: str | None) -> None:
        answer = service.send("GET", closed, token=token)
        refused(answer, "unauthenticated")
        bearer = answer.headers.get("www-authenticate", "")
        require(bearer.startswith("Bearer"), "unauthenticated says WWW-Authenticate: Bearer")

    def another_method() -> None:
        answer = service.send("DELETE", closed, key)
        refused(answer, "method-not-allowed")
        require("GET" in answer.headers.get("allow", ""), "method-not-allowed says Allow")

    now = int(service.now())
    issue = partial(issue_token, audience=service.audience, now=now)
    head, claims, _ = issue(key).split(".")
    unsigned = base64.urlsafe_b64encode(b'{"alg":"none","typ":"JWT"}').decode().rstrip("=")
    anothers = issue(PrivateKey.generate()).split(".")[2]
    checks.look("health: /healthz", partial(service.ok, "GET", "/healthz"))
    checks.look("health: /readyz", partial(service.ok, "GET", "/readyz"))
    for why, token in (
        ("no token", None),
        ("a token that is none", MARK),
        ("a token for another service", issue_token(key, "https://another.example", now)),
        ("a token that has expired", issue_token(key, service.audience, now - 600)),
        ("a token of tomorrow", issue_token(key, service.audience, now + 86400)),
        ("a token without a signature", f"{unsigned}.{claims}."),
        ("another's signature", f"{head}.{claims}.{anothers}"),
    ):
        checks.look(f"tokens: refuses {why}", partial(unauthenticated, token))
    checks.look("tokens: takes a good one", partial(service.ok, "GET", closed, key))
    checks.refuses(
        "errors: an unknown address", "not-found", partial(service.send, "GET", f"/v1/{MARK}", key)
    )
    checks.look("errors: another method", another_method)


class TesterKit:
    """Checks a tester, step by step; each step stands on those before.

    Args:
        service: the tester.
        operator: its own key, which invites the kit's parties.
    """

    def __init__(self, service: CheckedService, operator: PrivateKey) -> None:
        self.service, self.operator = service, operator
        self.checks = CheckLog()
        suffix = secrets.token_hex(4)
        self.names = {who: f"kit-{who}-{suffix}" for who in ("ann", "bob", "north", "south")}
        self.keys = {who: PrivateKey.generate() for who in self.names}
        self.stranger = PrivateKey.generate()
        self.tester: dict[str, Any] = {}

    def run(self) -> list[CheckResult]:
        """Make every check that can be made; returns what was found."""
        look, refuses = self.checks.look, self.checks.refuses
        common_checks(self.service, self.checks, "/v1/parties", self.operator)
        self._bodies()
        if look("identity: name, key, audience, software", self._identity) is None:
            self.checks.skip("enrolment, studies, answers", "no study can name a tester of no identity")
            return self.checks.findings
        enrolled = [look(f"enrolment: {who}", partial(self._enrol, who)) for who in self.names]
        look("enrolment: an invitation works once, for its name", self._invite_twice)
        invites = partial(self.service.send, "POST", "/v1/invitations")
        wanted = encode_json({"role": "owner", "name": "kit-never"})
        refuses(
            "roles: a stranger reads nothing",
            "unknown-party",
            partial(self._get, "/v1/parties", self.stranger),
        )
        refuses("roles: an analyst invites nobody", "forbidden", partial(invites, self.keys["ann"], wanted))
        if None in enrolled:
            self.checks.skip("studies, answers, verdicts", "its parties could not be enrolled")
        else:
            self._studies()
        return self.checks.findings

    def _get(self, path: str, key: PrivateKey, **query: str) -> "HttpResponse":
        return self.service.send("GET", path, key, query=query)

    def _bodies(self) -> None:
        """Check bodies that are no message."""
        post = partial(self.service.send, "POST", "/v1/invitations", self.operator)
        good = encode_json({"role": "owner", "name": "kit-never"})
        for why, slug, body in (
            ("a field twice", "malformed-message", good[:-1] + b',"role":"%b"}' % MARK.encode()),
            ("NaN", "malformed-message", b'{"role":NaN,"name":"%b"}' % MARK.encode()),
            ("no JSON", "malformed-message", MARK.encode()),
            ("a field more", "malformed-message", encode_json({MARK: 1, **json.loads(good)})),
            ("deep nesting", "malformed-message", b'{"a":' + b"[" * 5000 + b"]" * 5000 + b"}"),
            ("too many bytes", "message-too-large", b" " * (2**20 + 1)),
            (
                "another media type",
                "unsupported-media-type",
                Upload(lambda: iter((good,)), len(good), "text/plain"),
            ),
        ):
            self.checks.refuses(f"errors: a body of {why}", slug, partial(post, body))

    def _identity(self) -> None:

        found = parse(ServiceIdentity, self.service.ok("GET", "/v1/identity"))
        require(found.key == self.operator.public_hex, "its key is another than that of --key")
        require(found.audience == self.service.audience, "its audience is not --audience, or its URL")
        self.tester = {"name": found.name, "key": found.key}

    def _invite(self, role: str, name: str) -> str:
        body = encode_json({"role": role, "name": name})
        made = self.service.object("POST", "/v1/invitations", self.operator, body, statuses=(201,))
        require(isinstance(made.get("invitation"), str), "an invitation is a text")
        return str(made["invitation"])

    def _enrolling(self, invitation: str, name: str, role: str, key: PrivateKey) -> "HttpResponse":
        body = {"invitation": invitation, "name": name, "key": key.public_hex, "role": role}
        return self.service.send("POST", "/v1/enrolments", key, encode_json(body))

    def _enrol(self, who: str) -> None:
        role = "analyst" if who in {"ann", "bob"} else "owner"
        name, key = self.names[who], self.keys[who]
        invitation = self._invite(role, name)
        refused(self._enrolling("x" * 40, name, role, key), "invitation-invalid")
        taken_twice(partial(self._enrolling, invitation, name, role, key))
        held = {"name": name, "key": key.public_hex, "role": role}
        listed = self._listed("/v1/parties")
        require(any(held.items() <= one.items() for one in listed), "the list of parties lacks who enrolled")

    def _listed(self, path: str) -> list[dict[str, Any]]:

        items: list[dict[str, Any]] = []
        cursor: dict[str, str] = {}
        for _ in range(PAGES_MAX):
            page = self.service.object("GET", path, self.operator, query=cursor)
            require(isinstance(page.get("items"), list), "a list has items")
            items += [one for one in page["items"] if isinstance(one, dict)]
            if page.get("next") is None:
                return items
            cursor = {"cursor": str(page["next"])}
        raise BrokenError("the list does not end")

    def _invite_twice(self) -> None:
        name = f"{self.names['north']}-2"
        invitation = self._invite("owner", name)
        first, second = PrivateKey.generate(), PrivateKey.generate()
        refused(self._enrolling(invitation, f"{name}-other", "owner", first), "invitation-invalid")
        taken_twice(partial(self._enrolling, invitation, name, "owner", first))
        refused(self._enrolling(invitation, name, "owner", second), "invitation-invalid", "party-exists")

    def _study(self) -> Study:
        """Return a new study between the kit's parties, in its canonical form."""
        keys = {self.names[who]: self.keys[who].public_hex for who in ("north", "south")}
        draft = StudyDraft.from_dict(
            {
                "title": "Conformance",
                "procedure": "noisy_counts",
                "epsilon": 1.0,
                "delta": 0.0,
                "columns": [{"kind": "categorical", "name": "sex", "levels": ["f", "m"]}],
                "owners": [{"name": name, "data_set": "kit", "units": UNITS} for name in keys],
                "open_for_hours": 1.0,
            }
        )
        analyst = Party(name=self.names["ann"], key=self.keys["ann"].public_hex)
        asked = draft.study(EnrolledKeys(keys, {}), Party(**self.tester), analyst, int(self.service.now()))
        return prepare(asked).study

    def _put_study(self, payload: bytes, *, who: str = "ann", at: str | None = None) -> "HttpResponse":
        signed = sign_envelope(payload, STUDY_TYPE, self.keys[who])
        return self.service.send("PUT", f"/v1/studies/{at or digest(payload)}", self.keys[who], signed)

    def _studies(self) -> None:
        look, refuses, study = self.checks.look, self.checks.refuses, self._study()
        payload = encode(study)
        name, fields, ann = digest(payload), json.loads(payload), self.keys["ann"]
        for why, stage, envelope in spoiled(STUDY_TYPE, payload, ann, self.stranger):
            at = name if stage == "envelope" else digest(payload_of(envelope))
            put = partial(self.service.send, "PUT", f"/v1/studies/{at}", ann, envelope)
            refuses(f"studies: refuses {why}", SLUGS[stage], put)
        strange = self.stranger.public_hex
        later = int(self.service.now()) + 366 * 86400
        bob = {"name": self.names["bob"], "key": self.keys["bob"].public_hex}
        owners = [fields["owners"][0] | {"key": strange}, fields["owners"][1]]
        for why, slug, changes in (
            ("a parameter left out", "study-refused", {"parameters": {}}),
            ("a procedure that there is not", "study-refused", {"procedure": "kit_never"}),
            ("another tester's study", "study-refused", {"tester": self.tester | {"key": strange}}),
            ("another analyst's study", "study-refused", {"analyst": bob}),
            ("a deadline that has passed", "study-expired", {"created_at": 1, "deadline": 2}),
            ("a deadline in a year", "study-refused", {"deadline": later}),
            ("an owner whom nobody enrolled", "unknown-party", {"owners": owners}),
        ):
            refuses(f"studies: refuses {why}", slug, partial(self._put_study, encode_json(fields | changes)))
        spelled = json.dumps(fields, sort_keys=True).encode()
        refuses("studies: refuses another spelling", "study-refused", partial(self._put_study, spelled))
        elsewhere = partial(self._put_study, payload, at="ab" * 32)
        refuses("studies: refuses another digest's address", "digest-mismatch", elsewhere)
        refuses("studies: refuses an owner's", "forbidden", partial(self._put_study, payload, who="north"))
        create = partial(taken_twice, partial(self._put_study, payload))
        if look("studies: takes a good one, and again", create) is None:
            self.checks.skip("answers, verdicts", "it takes no study")
            return
        look("studies: keeps the exact bytes", partial(self._kept, payload))
        look("studies: shows and lists its state", partial(self._state, name, "collecting"))
        look("inbox: shows it to its owners, and to nobody else", partial(self._inbox, name))
        look("verdicts: none yet", partial(self._pending, name))
        self._answers(study, name)
        for end, outcome, words in (
            (self._declined, "incomplete", "declines: end a study, and are listed"),
            (self._cancelled, "cancelled", "cancellations: end a study, and are in the transcript"),
        ):
            look(words, partial(self._ended, encode(self._study()), end, outcome))

    def _kept(self, payload: bytes) -> None:
        answer = self.service.ok("GET", f"/v1/studies/{digest(payload)}/envelope", self.keys["south"])
        require(answer.body == sign_envelope(payload, STUDY_TYPE, self.keys["ann"]), "it answers other bytes")

    def _state(self, name: str, state: str) -> None:

        found = parse(StudySummary, self.service.ok("GET", f"/v1/studies/{name}", self.keys["bob"]))
        require(found.state == state, f"its state is not {state}")
        newest = self.service.object("GET", "/v1/studies", self.keys["bob"])
        require(name in digests_in(newest), "the newest page of studies lacks it")
        refused(self._get(f"/v1/studies/{'ab' * 32}", self.keys["bob"]), "unknown-study")

    def _inbox(self, name: str) -> None:
        for who in ("north", "south"):
            found = self.service.object("GET", "/v1/inbox", self.keys[who], query={"wait_s": "0"})
            require(name in digests_in(found), "an owner's inbox lacks a study that waits for it")
        refused(self._get("/v1/inbox", self.keys["ann"], wait_s="0"), "forbidden")
        refused(self._get("/v1/inbox", self.keys["north"], wait_s="1000"), "malformed-message")

    def _pending(self, name: str) -> None:
        answer = self._get(f"/v1/studies/{name}/verdict", self.keys["ann"])
        refused(answer, "verdict-pending")
        require(answer.headers.get("retry-after", "").isdigit(), "verdict-pending says Retry-After")

    def _release(self, study: Study, name: str, who: str) -> bytes:
        """Return a release of made-up rows, as an agent makes it."""
        rows = ArrayTable.of(Sample({"sex": np.array(["f", "m"] * (UNITS // 2))}), study.domain)
        procedure = procedure_named(study.procedure)
        released = procedure.privatise(study, procedure.summarise(study, rows), OpenDPNoise())
        return encode(ReleaseMessage(study=name, party=self.names[who], release=released))

    def _put(
        self, name: str, who: str, envelope: bytes, *, kind: str = "releases", by: str | None = None
    ) -> "HttpResponse":
        path = f"/v1/studies/{name}/{kind}/{self.names[who]}"
        return self.service.send("PUT", path, self.keys[by or who], envelope)

    def _answers(self, study: Study, name: str) -> None:
        look, refuses, north = self.checks.look, self.checks.refuses, self.keys["north"]
        payload = self._release(study, name, "north")
        put = partial(self._put, name, "north")
        for why, stage, envelope in spoiled(RELEASE_TYPE, payload, north, self.stranger):
            refuses(f"releases: refuses {why}", SLUGS[stage], partial(put, envelope))
        fields = json.loads(payload)
        released = fields["release"]
        for why, slug, changes in (
            ("another study's release", "digest-mismatch", {"study": "ab" * 32}),
            ("another owner's release", "digest-mismatch", {"party": self.names["south"]}),
            (
                "less noise than the study fixes",
                "release-refused",
                {"release": released | _quieter(released)},
            ),
            (
                "fewer numbers than the study fixes",
                "release-refused",
                {"release": released | _shorter(released)},
            ),
        ):
            signed = sign_envelope(encode_json(fields | changes), RELEASE_TYPE, north)
            refuses(f"releases: refuses {why}", slug, partial(put, signed))
        good = sign_envelope(payload, RELEASE_TYPE, north)
        other = sign_envelope(self._release(study, name, "north"), RELEASE_TYPE, north)
        last = sign_envelope(self._release(study, name, "south"), RELEASE_TYPE, self.keys["south"])
        late = partial(put, self._decline(name, "north"), kind="declines")
        refuses("releases: refuses what another owner brings", "forbidden", partial(put, good, by="south"))
        look("releases: takes a good one, and again", partial(taken_twice, partial(put, good)))
        refuses("releases: keeps the first", "conflicting-upload", partial(put, other))
        refuses("declines: refuses one after a release", "already-decided", late)
        carried = partial(self._put, name, "south", last, by="ann")
        look("releases: the analyst may carry one", partial(taken_twice, carried))
        if look("verdicts: signed, for this study", partial(self._verdict, name, "completed")) is None:
            self.checks.skip("verdicts: the transcript verifies", "there is no verdict")
            return
        look("verdicts: the transcript verifies, figures and all", partial(self._transcript, name))
        look("studies: shows its end", partial(self._state, name, "completed"))
        look("releases: the same bytes again after the end", partial(repeated, partial(put, good)))
        cancel = partial(self._cancel, name, "ann")
        refuses("cancellations: refuses one after the end", "study-closed", cancel)

    def _decline(self, name: str, who: str) -> bytes:
        message = encode(DeclineMessage(study=name, party=self.names[who]))
        return sign_envelope(message, DECLINE_TYPE, self.keys[who])

    def _cancel(self, name: str, who: str) -> "HttpResponse":
        envelope = sign_envelope(encode(CancellationMessage(study=name)), CANCELLATION_TYPE, self.keys[who])
        return self.service.send("PUT", f"/v1/studies/{name}/cancellation", self.keys[who], envelope)

    def _verdict(self, name: str, outcome: str) -> None:
        for _ in range(STEPS):
            answer = self._get(f"/v1/studies/{name}/verdict", self.keys["bob"], wait_s=str(WAIT_S))
            if answer.status == 200:
                break
            refused(answer, "verdict-pending")
        else:
            raise BrokenError(f"there is no verdict after {STEPS * WAIT_S} s")
        found = decode(VerdictMessage, open_envelope(answer.body, VERDICT_TYPE, str(self.tester["key"])))
        require(found.study == name, "it is another study's")
        require(found.outcome == outcome, f"its outcome is not {outcome}")

    def _transcript(self, name: str) -> None:

        path = f"/v1/studies/{name}/transcript"
        answer = self.service.ok("GET", path, self.keys["bob"], size_bytes_max=TRANSCRIPT_BYTES_MAX)
        try:
            found = verify_transcript(answer.body, str(self.tester["key"]))
        except VerificationError as error:
            raise BrokenError(f"it does not verify, at the step {error.step}") from None
        require(found.study_digest == name, "it is another study's")

    def _ended(self, payload: bytes, end: Callable[[str], None], outcome: str) -> None:
        """Check an end without a result."""
        taken_twice(partial(self._put_study, payload))
        end(digest(payload))
        self._verdict(digest(payload), outcome)
        self._transcript(digest(payload))

    def _declined(self, name: str) -> None:
        for who in ("north", "south"):
            taken_twice(partial(self._put, name, who, self._decline(name, who), kind="declines"))

    def _cancelled(self, name: str) -> None:
        refused(self._cancel(name, "bob"), "forbidden")
        taken_twice(partial(self._cancel, name, "ann"))


def taken_twice(put: Callable[[], "HttpResponse"]) -> None:
    """Require that an upload is taken, and that the same bytes again change nothing."""
    answer = put()
    require(answer.status == 201, f"expected 201, got {answer.status}")
    repeated(put)


def repeated(put: Callable[[], "HttpResponse"]) -> None:
    """Require that an upload was taken before."""
    answer = put()
    require(answer.status == 200, f"the same bytes again: expected 200, got {answer.status}")


def digests_in(page: dict[str, Any]) -> set[Any]:
    """Return the digests that a page of a list names."""
    items = page.get("items")
    require(isinstance(items, list), "a list has items")
    return {one.get("digest") for one in items or () if isinstance(one, dict)}


def _quieter(release: dict[str, Any]) -> dict[str, Any]:
    """Return a release's guarantee with half the noise in each event."""
    halved = [
        {name: value / 2 if isinstance(value, float) else value for name, value in event.items()}
        for event in release["guarantee"]["events"]
    ]
    return {"guarantee": release["guarantee"] | {"events": halved}}


def _shorter(release: dict[str, Any]) -> dict[str, Any]:
    """Return a release's vectors, each without its last number."""
    vectors = release["vectors"].items()
    return {"vectors": {name: vector | {"values": vector["values"][:-1]} for name, vector in vectors}}


# An agent: its own interface, and the seam by which other platforms carry studies to it.


def agent_findings(
    service: CheckedService, key: PrivateKey, name: str, study: bytes | None, command: str | None
) -> list[CheckResult]:
    """Check an agent's interface, and how it answers a study where one is given."""
    checks = CheckLog()
    common_checks(service, checks, "/v1/status", key)

    def status() -> None:
        found = service.object("GET", "/v1/status", key)
        require(found.get("party") == {"name": name, "key": key.public_hex}, "party is not its name and key")
        require(isinstance(found.get("data_sets"), list), "data_sets is a list")
        require(isinstance(found.get("studies"), dict), "studies counts them by state")

    def ledger() -> None:
        found = service.object("GET", "/v1/ledger/verification", key)
        require(found.get("ok") is True and found.get("faults") == [], "its own ledger does not verify")

    def stranger() -> None:
        refused(service.send("GET", "/v1/status", PrivateKey.generate()), "forbidden")

    checks.look("status: who it is and what it holds", status)
    checks.look("status: no other key is answered", stranger)
    checks.look(
        "studies: a list", lambda: require("items" in service.object("GET", "/v1/studies", key), "no items")
    )
    checks.look(
        "studies: an unknown one",
        lambda: refused(service.send("GET", f"/v1/studies/{'ab' * 32}", key), "unknown-study"),
    )
    checks.look("ledger: it is whole", ledger)
    if study is None or command is None:
        checks.skip("answers", "--study and --answer say which study is to be answered, and how")
    else:
        _answer_checks(checks, key, name, study, command)
    return checks.findings


def _answer_checks(checks: CheckLog, key: PrivateKey, name: str, study: bytes, command: str) -> None:
    """Check what a command answers to a study, and to studies that nobody signed."""
    analyst = peek_key_id(study)
    payload = open_envelope(study, STUDY_TYPE, analyst)
    asked = read_study(payload)

    def answered(envelope: bytes) -> tuple[int, bytes | None]:
        with tempfile.TemporaryDirectory() as folder:
            given, output = Path(folder) / "study.dsse", Path(folder) / "answer.dsse"
            given.write_bytes(envelope)
            words = [
                part.replace("{study}", str(given)).replace("{output}", str(output))
                for part in shlex.split(command)
            ]
            done = subprocess.run(words, capture_output=True, check=False)
            return done.returncode, output.read_bytes() if output.exists() else None

    def good() -> None:
        code, answer = answered(study)
        require(code == 0 and answer is not None, "it answers nothing")
        _require_answer(asked, digest(payload), name, key.public_hex, answer or b"")
        require(answered(study)[1] == answer, "asked again, it answers other bytes: noise was drawn twice")

    checks.look("answers: a release that fits its study, or a decline; once", good)
    changed = json.loads(study)
    text = payload.replace(asked.title[:1].encode(), b"~", 1)
    for why, envelope in (
        ("a study that was changed", encode_json(changed | {"payload": base64.b64encode(text).decode()})),
        ("a study that nobody of it signed", sign_envelope(payload, STUDY_TYPE, PrivateKey.generate())),
        ("another type of message", encode_json(changed | {"payloadType": RELEASE_TYPE})),
        ("another spelling of the envelope", json.dumps(changed).encode()),
        ("no envelope", b"{}"),
    ):

        def wrong(envelope: bytes = envelope) -> None:
            code, answer = answered(envelope)
            require(answer is None, "it answers")
            require(code != 0, "it says that all went well")

        checks.look(f"answers: refuses {why}", wrong)


def _require_answer(study: Study, name: str, owner: str, key: str, answer: bytes) -> None:
    """Require an owner's signed answer: a decline, or one that the procedure takes."""
    if b'"payloadType":"%b"' % DECLINE_TYPE.encode() in answer:
        declined = decode(DeclineMessage, open_envelope(answer, DECLINE_TYPE, key))
        require((declined.study, declined.party) == (name, owner), "it declines another study")
        return
    procedure = procedure_named(study.procedure)
    found = read_answer(relay_of(procedure, study), answer, owner, key)
    require((found.study, found.party) == (name, owner), "it answers another study")
    try:
        check_answer(procedure, study, found)
    except ReleaseError as error:
        raise BrokenError(f"its release does not fit the study: {error}") from None


# The commands.

app = typer.Typer(
    name="python -m tools.conformance",
    help="Check another implementation against the published contract.",
    no_args_is_help=True,
)
Url = Annotated[str, typer.Argument(help="Where the service is.")]
Audience = Annotated[str | None, typer.Option(help="What it calls itself in tokens; by default its URL.")]


@app.command("tester")
@connecting
def check_tester(
    url: Url,
    *,
    key: Annotated[Path, typer.Option(help="The key file of the tester's operator, who invites.")],
    audience: Audience = None,
    as_json: Json = False,
) -> None:
    """Check a tester, which keeps the kit's parties and studies. Exit code 1 where a check fails."""
    with CheckedService(url, audience, told_ca_file()) as service:
        service.send("GET", "/healthz")  # where nothing answers, there is nothing to check
        findings = TesterKit(service, load_key(key)).run()
    print_checks(((one.name, one.state, one.text) for one in findings), as_json)


@app.command("agent")
@connecting
def check_agent(
    url: Url,
    *,
    key: Annotated[Path, typer.Option(help="The owner's key file.")],
    name: Annotated[str, typer.Option(help="The owner's name at its tester.")],
    study: Annotated[
        Path | None,
        typer.Option(help="A signed study that asks this owner, as `tacit study envelope` writes it."),
    ] = None,
    answer: Annotated[
        str | None,
        typer.Option(help="A command that answers it, with {study} and {output} in the files' places."),
    ] = None,
    as_json: Json = False,
) -> None:
    """Check an agent's interface, and how it answers a carried study. Exit code 1 where a check fails."""
    if not re.fullmatch(r"[a-z0-9][a-z0-9._-]{0,62}", name):
        raise InputError("--name is the owner's name, as its tester lists it")
    try:
        content = None if study is None else study.read_bytes()
    except OSError as error:
        raise ConfigurationError(f"cannot read {study}: {error.strerror}") from error
    with CheckedService(url, f"agent:{name}", told_ca_file()) as service:
        service.send("GET", "/healthz")
        findings = agent_findings(service, load_key(key), name, content, answer)
    print_checks(((one.name, one.state, one.text) for one in findings), as_json)


if __name__ == "__main__":
    sys.exit(run(sys.argv[1:], app))
