"""OpenID Connect: what forged, stolen or replayed answers come to; a real provider, in a real browser."""

import asyncio
import base64
import hmac
import json
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from urllib.parse import parse_qs, urlsplit

import httpx
import jwt
import pytest
from agent_fakes import AttackedAgent
from browser import running_browser, serving, visitor
from cryptography.hazmat.primitives.asymmetric import rsa
from cryptography.hazmat.primitives.serialization import Encoding, PublicFormat
from people_windows import free_port
from window import Window

from tacit_protocol.messages.problems import PROBLEMS
from tacit_protocol.signing import issue_token
from tacit_services.agent.schema import SIGN_IN
from tacit_services.agent.web.routes import Runtime, create_agent_app
from tacit_services.shared.pages.openid import Flow, OpenId
from tacit_services.shared.people import Person, UserRequest
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.settings import OpenIdSettings, SettingsError

ISSUER, CLIENT = "https://id.example", "tacit-north"
KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)
OTHER_KEY = rsa.generate_private_key(public_exponent=65537, key_size=2048)


def published(key: rsa.RSAPrivateKey, name: str = "k1") -> dict[str, Any]:
    found = json.loads(jwt.algorithms.RSAAlgorithm.to_jwk(key.public_key()))
    return {**found, "kid": name, "use": "sig", "alg": "RS256"}


@dataclass
class FakeProvider:
    """Answers as a provider does, or as an attacker would have it answer."""

    claims: dict[str, Any] = field(default_factory=dict)
    headers: dict[str, Any] = field(default_factory=dict)
    metadata: dict[str, Any] = field(default_factory=dict)
    keys: list[dict[str, Any]] = field(default_factory=lambda: [published(KEY)])
    sign: Callable[[dict[str, Any], dict[str, Any]], str] = lambda claims, headers: jwt.encode(
        claims, KEY, "RS256", headers=headers
    )
    status: int = 200
    asked: list[httpx.Request] = field(default_factory=list)

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append(request)
        if request.url.path.endswith("openid-configuration"):
            said = {
                "issuer": ISSUER,
                "authorization_endpoint": ISSUER + "/authorize",
                "token_endpoint": ISSUER + "/token",
                "jwks_uri": ISSUER + "/keys",
            }
            return httpx.Response(200, json=said | self.metadata)
        if request.url.path == "/keys":
            return httpx.Response(200, json={"keys": self.keys})
        token = self.sign({name: v for name, v in self.claims.items() if v is not None}, self.headers)
        return httpx.Response(self.status, json={"id_token": token, "access_token": "x"})


@dataclass
class Door:
    """One agent whose people sign in at a fake provider."""

    agent: AttackedAgent
    openid: OpenId
    provider: FakeProvider

    @property
    def now(self) -> float:
        return self.agent.clock()

    def answer(self, **changes: Any) -> tuple[Flow, dict[str, str]]:
        """Let the provider say these claims to a new flow; returns the flow and the browser's parameters."""
        flow = Flow.begin()
        self.provider.claims = {
            "iss": ISSUER,
            "aud": CLIENT,
            "sub": "s-ann",
            "iat": int(self.now),
            "exp": int(self.now) + 300,
            "nonce": flow.derived("nonce"),
            "email": "Ann@North.example",
            "email_verified": True,
        } | changes
        return flow, {"state": flow.derived("state"), "code": "c"}

    def problem(self, flow: Flow, answer: dict[str, str]) -> str:
        with pytest.raises(RegisteredProblemError) as found:
            self.person(flow, answer)
        return found.value.problem.slug

    def person(self, flow: Flow, answer: dict[str, str]) -> Person:
        return asyncio.run(self.openid.person(flow, answer))

    def address(self, flow: Flow) -> str:
        return asyncio.run(self.openid.address(flow))


@pytest.fixture
def door(tmp_path: Path) -> Iterator[Door]:
    agent = AttackedAgent(tmp_path, policy='approval = "by-hand"')
    people = SIGN_IN.of_people(agent.agent.engine, agent.clock)
    holder = Person(agent.world.agent.public_hex)
    people.put(holder, "ann", UserRequest(role="steward", email="ann@north.example"))
    people.put(holder, "bob", UserRequest(role="viewer"))
    (tmp_path / "secret").write_text("s3cret:&\n")
    settings = OpenIdSettings(
        issuer=ISSUER,
        client_id=CLIENT,
        client_secret_file=tmp_path / "secret",
        url="http://127.0.0.1:8710",
    )
    openid = OpenId(settings, None, people, holder.key, agent.clock)
    provider = FakeProvider()
    openid._http = httpx.AsyncClient(transport=httpx.MockTransport(provider))
    yield Door(agent, openid, provider)
    agent.agent.engine.dispose()


def test_a_person_is_known_by_a_verified_address_and_then_by_the_subject(door: Door) -> None:
    assert door.person(*door.answer()).name == "ann"
    # The address may be another's by now: the subject alone counts.
    assert door.problem(*door.answer(sub="s-eve")) == "openid-unknown-person"
    assert door.person(*door.answer(email="new@x.example", email_verified=False)).name == "ann"


def test_an_address_that_was_changed_opens_nothing_for_the_old_identity(door: Door) -> None:
    assert door.person(*door.answer()).name == "ann"
    holder = Person(door.agent.world.agent.public_hex)
    people = SIGN_IN.of_people(door.agent.agent.engine, door.agent.clock)
    people.put(holder, "ann", UserRequest(role="steward", email="ann2@north.example"))
    assert door.problem(*door.answer()) == "openid-unknown-person"
    people.remove(holder, "ann")
    assert door.problem(*door.answer(email="ann2@north.example")) == "openid-unknown-person"


def test_the_request_has_state_nonce_and_a_hashed_verifier(door: Door) -> None:
    flow, answer = door.answer()
    asked = parse_qs(urlsplit(door.address(flow)).query)
    assert asked["code_challenge_method"] == ["S256"]
    assert asked["redirect_uri"] == ["http://127.0.0.1:8710/sign-in/openid/answer"]
    assert asked["state"] != asked["nonce"] != asked["code_challenge"]
    verifier = flow.derived("verifier")
    assert verifier not in str(asked)
    assert flow.secret not in str(asked)
    door.person(flow, answer)
    (token,) = (request for request in door.provider.asked if request.url.path == "/token")
    form = parse_qs(token.content.decode())
    assert (form["code_verifier"], form["redirect_uri"]) == ([verifier], asked["redirect_uri"])
    assert "client_secret" not in form
    assert httpx.BasicAuth(CLIENT, "s3cret%3A%26")._auth_header == token.headers["authorization"]


FORGED: dict[str, dict[str, Any]] = {
    "another issuer": {"iss": "https://evil.example"},
    "no issuer": {"iss": None},
    "another audience": {"aud": "other"},
    "another audience of several": {"aud": ["other", "more"]},
    "several audiences, and nobody's": {"aud": [CLIENT, "other"]},
    "several audiences, another's": {"aud": [CLIENT, "other"], "azp": "other"},
    "another's": {"azp": "other"},
    "no audience": {"aud": None},
    "another nonce": {"nonce": "x" * 43},
    "no nonce": {"nonce": None},
    "a nonce that is no text": {"nonce": 7},
    "ended": {"exp": 1},
    "never ends": {"exp": None},
    "ends in words": {"exp": "tomorrow"},
    "ends never": {"exp": float("inf"), "iat": "x"},
    "ends truly": {"exp": True},
    "from the future": {"iat": 2**40},
    "no time": {"iat": None},
    "nobody": {"sub": None},
    "a subject that is no text": {"sub": 7},
    "an empty subject": {"sub": ""},
    "a subject without end": {"sub": "x" * 1000},
}


def test_a_forged_claim_lets_nobody_in(door: Door) -> None:
    for case, claims in FORGED.items():
        assert door.problem(*door.answer(**claims)) == "openid-refused", case


UNKNOWN: dict[str, dict[str, Any]] = {
    "not verified": {"email_verified": False},
    "verified in words": {"email_verified": "true"},
    "no address": {"email": None},
    "an address that is no text": {"email": ["ann@north.example"]},
    "nobody's address": {"email": "eve@north.example"},
    "hostile": {"email": "<script>alert(1)</script>@x", "sub": "'; DROP TABLE agent_users; --"},
}


@pytest.mark.parametrize("claims", UNKNOWN.values(), ids=UNKNOWN)
def test_who_is_not_named_here_is_not_let_in(door: Door, claims: dict[str, Any]) -> None:
    assert door.problem(*door.answer(**claims)) == "openid-unknown-person"
    assert door.person(*door.answer()).name == "ann"


def signed_with_public_key(claims: dict[str, Any]) -> str:
    """Sign as whoever confuses algorithms would have it: by HMAC, its key the provider's public key."""
    public = KEY.public_key().public_bytes(Encoding.PEM, PublicFormat.SubjectPublicKeyInfo)
    parts = [json.dumps(part).encode() for part in ({"alg": "HS256", "typ": "JWT", "kid": "k1"}, claims)]
    text = b".".join(base64.urlsafe_b64encode(part).rstrip(b"=") for part in parts)
    signature = base64.urlsafe_b64encode(hmac.digest(public, text, "sha256")).rstrip(b"=")
    return (text + b"." + signature).decode()


SIGNATURES: dict[str, Callable[[dict[str, Any], dict[str, Any]], str]] = {
    "another key": lambda claims, _: jwt.encode(claims, OTHER_KEY, "RS256", headers={"kid": "k1"}),
    "an unknown key": lambda claims, _: jwt.encode(claims, OTHER_KEY, "RS256", headers={"kid": "k2"}),
    "none": lambda claims, _: jwt.encode(claims, None, "none"),
    "the client's secret": lambda claims, _: jwt.encode(claims, "s3cret:&" * 8, "HS256"),
    "the public key as a secret": lambda claims, _: signed_with_public_key(claims),
    "a key of its own": lambda claims, _: jwt.encode(
        claims, OTHER_KEY, "RS256", headers={"jwk": published(OTHER_KEY)}
    ),
    "a key elsewhere": lambda claims, _: jwt.encode(
        claims, OTHER_KEY, "RS256", headers={"jku": "https://evil.example/keys", "kid": "k1"}
    ),
    "no token": lambda *_: "a.b.c",
    "nothing": lambda *_: "",
    "a cut signature": lambda claims, _: jwt.encode(claims, KEY, "RS256")[:-4],
}


@pytest.mark.parametrize("sign", SIGNATURES.values(), ids=SIGNATURES)
def test_a_token_that_the_provider_did_not_sign_lets_nobody_in(
    door: Door, sign: Callable[[dict[str, Any], dict[str, Any]], str]
) -> None:
    flow, answer = door.answer()
    door.provider.sign = sign
    assert door.problem(flow, answer) == "openid-refused"


def test_a_key_that_is_new_at_the_provider_is_read(door: Door) -> None:
    assert door.person(*door.answer()).name == "ann"
    door.agent.clock.now += 60
    door.provider.keys = [published(OTHER_KEY, "k2")]
    door.provider.sign = lambda claims, _: jwt.encode(claims, OTHER_KEY, "RS256", headers={"kid": "k2"})
    assert door.person(*door.answer()).name == "ann"


def test_an_answer_counts_in_the_browser_alone_that_asked(door: Door) -> None:
    flow, answer = door.answer()
    assert door.problem(Flow.begin(), answer) == "openid-refused"
    for changed in (
        {"state": ""},
        {"state": "é"},
        {"code": ""},
        {"code": "x" * 3000},
        {"iss": "https://evil.example"},
        {"error": "access_denied"},
    ):
        assert door.problem(flow, answer | changed) == "openid-refused"
    assert door.person(flow, answer | {"iss": ISSUER}).name == "ann"


PROVIDERS: dict[str, dict[str, Any]] = {
    "another issuer": {"issuer": "https://evil.example"},
    "a slash more": {"issuer": ISSUER + "/"},
    "plain http": {"token_endpoint": "http://id.example/token"},
    "plain keys": {"jwks_uri": "http://id.example/keys"},
    "a script": {"authorization_endpoint": "javascript:alert(1)"},
    "no endpoint": {"token_endpoint": None},
}


@pytest.mark.parametrize("metadata", PROVIDERS.values(), ids=PROVIDERS)
def test_a_provider_that_says_something_else_is_not_used(door: Door, metadata: dict[str, Any]) -> None:
    door.provider.metadata = metadata
    with pytest.raises(RegisteredProblemError) as found:
        door.address(Flow.begin())
    assert found.value.problem.slug == "openid-unavailable"
    assert [request.url.path for request in door.provider.asked] == ["/.well-known/openid-configuration"]


def test_settings_that_would_send_secrets_in_the_clear_or_lack_something_are_refused(
    attacked: Callable[..., AttackedAgent],
) -> None:
    for wrong in (
        {"issuer": "http://id.example", "client_id": "x"},
        {"issuer": ISSUER},
        {"client_id": "x"},
        {"issuer": "javascript:x", "client_id": "x"},
    ):
        with pytest.raises(ValueError, match="issuer"):
            OpenIdSettings(**wrong)
    agent = attacked()
    people = SIGN_IN.of_people(agent.agent.engine, agent.clock)
    with pytest.raises(SettingsError, match="url"):
        OpenId(OpenIdSettings(issuer=ISSUER, client_id="x"), None, people, "k", agent.clock)


# A real provider, a real agent's pages, a real browser.


@contextmanager
def provider_process(*users: dict[str, Any]) -> Iterator[str]:
    """Run the provider; yields its issuer."""
    port = free_port()
    program = Path(__file__).parents[1] / "support" / "openid_process.py"
    process = subprocess.Popen([sys.executable, "-W", "ignore", str(program), str(port), json.dumps(users)])
    issuer = f"http://127.0.0.1:{port}"
    try:
        limit = time.monotonic() + 120
        while time.monotonic() < limit:
            try:
                httpx.get(issuer + "/.well-known/openid-configuration")
                break
            except httpx.TransportError:
                assert process.poll() is None
                time.sleep(0.05)
        yield issuer
    finally:
        process.terminate()
        process.wait(60)


@pytest.mark.long
@pytest.mark.timeout(900)
def test_a_person_signs_in_at_a_real_provider_and_a_stranger_does_not(
    tmp_path: Path, attacked: Callable[..., AttackedAgent]
) -> None:
    ann = {"sub": "subject-1", "email": "ann@north.example", "email_verified": True}
    eve = {"sub": "subject-2", "email": "eve@evil.example", "email_verified": True}
    mal = {"sub": "subject-3", "email": "ann@north.example", "email_verified": False}
    port = free_port()
    (tmp_path / "id.secret").write_text("a secret\n")
    with provider_process(ann, eve, mal) as issuer:
        named = {"issuer": issuer, "client_id": "north", "client_secret_file": "id.secret"}
        named["url"] = f"http://127.0.0.1:{port}"
        openid = "[openid]\n" + "".join(f'{name} = "{text}"\n' for name, text in named.items())
        agent = attacked(policy='approval = "by-hand"', agent=openid)
        agent.agent.clock = agent.clock = time.time  # type: ignore[assignment]
        app = create_agent_app(agent.agent, Runtime("0", lambda: True, lambda: None))
        people = SIGN_IN.of_people(agent.agent.engine, time.time)
        holder = Person(agent.world.agent.public_hex)
        people.put(holder, "ann", UserRequest(role="steward", email="ann@north.example"))
        with serving(app, port) as url, running_browser() as browser:
            for subject, heading in (
                ("subject-2", PROBLEMS["openid-unknown-person"].title),
                ("subject-3", PROBLEMS["openid-unknown-person"].title),
                ("subject-1", "What is asked of north"),
            ):
                with visitor(browser) as seen:
                    seen.page.goto(f"{url}/sign-in")
                    seen.page.get_by_role("link", name="Sign in at 127.0.0.1").click()
                    seen.page.get_by_role("button", name=subject).click()
                    seen.wait_for_heading(heading)
                    if subject == "subject-1":
                        cookies = seen.context.cookies()
                        assert [cookie["sameSite"] for cookie in cookies if cookie["httpOnly"]] == ["Strict"]
                        seen.page.get_by_role("button", name="Sign out").click()
                        seen.wait_for_heading("Signed out")
                    else:
                        seen.require_accessible()
                        assert [c for c in seen.context.cookies() if not c["name"].endswith("-openid")] == []
            # Another site begins nothing in a person's name: its answer has a state that is nobody's.
            with visitor(browser) as seen:
                seen.page.goto(f"{url}/sign-in/openid/answer?code=stolen&state=x")
                seen.wait_for_heading(PROBLEMS["openid-refused"].title)
                seen.complaints.clear()


def test_a_service_without_a_provider_has_no_such_page(attacked: Callable[..., AttackedAgent]) -> None:
    agent = attacked()
    app = create_agent_app(agent.agent, Runtime("0", lambda: True, lambda: None))
    token = lambda: issue_token(agent.world.agent, "agent:north", int(agent.clock()))  # noqa: E731
    window = Window(app, "http://localhost", token)
    assert window.get("/sign-in/openid").status_code == 404
    assert "openid" not in window.get("/sign-in").text


def test_signing_in_at_a_provider_ends_the_session_before(
    attacked: Callable[..., AttackedAgent], monkeypatch: pytest.MonkeyPatch
) -> None:
    provider, made = FakeProvider(), httpx.AsyncClient
    written = f'[openid]\nissuer = "{ISSUER}"\nclient_id = "{CLIENT}"\nurl = "http://localhost"\n'
    agent = attacked(agent=written)
    with monkeypatch.context() as patched:
        transport = httpx.MockTransport(provider)
        patched.setattr(httpx, "AsyncClient", lambda **_: made(transport=transport))
        app = create_agent_app(agent.agent, Runtime("0", lambda: True, lambda: None))
    token = lambda: issue_token(agent.world.agent, "agent:north", int(agent.clock()))  # noqa: E731
    window = Window(app, "http://localhost", token)
    said = {"role": "steward", "email": "ann@north.example"}
    assert window.ask("PUT", "/v1/users/ann", said).status_code == 201
    window.sign_in()
    before = dict(window.cookies)
    window.get("/sign-in/openid")
    (kept,) = window.cookies.values()
    flow, now = Flow(kept.partition(".")[0]), int(agent.clock())
    provider.claims = {"iss": ISSUER, "aud": CLIENT, "sub": "s", "iat": now, "exp": now + 300}
    provider.claims |= {"nonce": flow.derived("nonce"), "email": said["email"], "email_verified": True}
    # The answer comes from another site: the session's own cookie is not sent along.
    answer = window.get(f"/sign-in/openid/answer?state={flow.derived('state')}&code=c")
    assert answer.status_code == 200, answer.text
    assert "ann, steward" in window.get("/").text
    # A stolen digest of nothing ends nothing.
    assert window.cookies != before
    window.cookies = before
    assert window.get("/").status_code == 401
