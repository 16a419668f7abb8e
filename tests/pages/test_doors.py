"""The doors of every service: origins, cookies, headers, a silent provider, numbers and names in forms."""

import asyncio
import json
import re
import socket
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import httpx
import pytest
from agent_fakes import AttackedAgent
from certificates import write_certificate
from curated_world import NOW as CURATOR_NOW
from curated_world import OPERATOR, curated_study_of, curator_federation, key_of
from curated_world import URL as CURATOR_URL
from fastapi import FastAPI
from people_windows import add, free_port, press, wait_for, window_of
from served import address_of, running, serving
from study_parties import Parties
from tester_federation import URL as TESTER_URL
from tester_federation import Federation
from window import Window

from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.signing import issue_token
from tacit_services.agent.schema import SIGN_IN
from tacit_services.agent.study.policy import Policy
from tacit_services.agent.web.routes import Runtime, create_agent_app
from tacit_services.curator.__main__ import Loops, make_app
from tacit_services.shared.database import create_engine, upgrade
from tacit_services.shared.http_server import Stopping, tls_context
from tacit_services.shared.pages import openid
from tacit_services.shared.pages.openid import FAILED_S, Flow, OpenId
from tacit_services.shared.people import Person, UserRequest
from tacit_services.shared.problem_responses import RegisteredProblemError
from tacit_services.shared.settings import OpenIdSettings, SettingsError, parse_toml
from tacit_services.tester.__main__ import create_tester
from tacit_services.tester.settings import TesterSettings

Opened = tuple[FastAPI, Callable[[], str], str]
"""A service's app, what makes its operator's token, and its public URL."""


@contextmanager
def serve_agent(folder: Path, agent: str = "") -> Iterator[Opened]:
    found = AttackedAgent(folder, policy='approval = "by-hand"', agent=agent)
    app = create_agent_app(found.agent, Runtime("0", lambda: True, lambda: None))
    yield app, lambda: issue_token(found.world.agent, "agent:north", int(found.clock())), "http://localhost"
    found.agent.engine.dispose()


@contextmanager
def serve_tester(
    folder: Path, provider: OpenIdSettings | None = None, url: str = TESTER_URL
) -> Iterator[Opened]:
    parties = Parties(int(time.time()))
    (folder / "tester.pem").write_bytes(parties.tester.to_pem())
    engine = create_engine(f"sqlite:///{folder / 't.sqlite3'}")
    upgrade(engine, "tester")
    settings = TesterSettings(
        name="tester",
        url=url,
        key_file=folder / "tester.pem",
        database_url=f"sqlite:///{folder / 't.sqlite3'}",
        openid=provider or OpenIdSettings(),
    )
    app = create_tester(settings, engine, time.time)
    yield app, lambda: issue_token(parties.tester, url, int(time.time())), url
    engine.dispose()


@contextmanager
def serve_curator(folder: Path, provider: OpenIdSettings | None = None) -> Iterator[Opened]:
    with curator_federation(folder) as found:
        settings = found.settings.model_copy(update={"openid": provider or OpenIdSettings()})
        base, stop = replace(found.base, settings=settings), threading.Event()
        app = make_app(base, found.curator, Loops(found.curator, stop, 0), Stopping())
        yield app, lambda: issue_token(key_of(OPERATOR), CURATOR_URL, CURATOR_NOW), CURATOR_URL


SERVICES: dict[str, Callable[..., Any]] = {
    "agent": serve_agent,
    "tester": serve_tester,
    "curator": serve_curator,
}


# A provider of identities that says nothing.


@dataclass
class SilentProvider:
    """Takes connections and answers none of them, or only drips."""

    drips: bool = False
    taken: list[socket.socket] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.listener = socket.create_server(("127.0.0.1", 0), backlog=200)
        threading.Thread(target=self._take, daemon=True).start()

    @property
    def issuer(self) -> str:
        return f"http://127.0.0.1:{self.listener.getsockname()[1]}"

    def _take(self) -> None:
        with suppress(OSError):
            while True:
                taken, _ = self.listener.accept()
                self.taken.append(taken)
                if self.drips:
                    threading.Thread(target=self._drip, args=(taken,), daemon=True).start()

    def _drip(self, taken: socket.socket) -> None:
        with suppress(OSError):
            taken.sendall(b"HTTP/1.1 200 OK\r\nx: ")
            while True:
                taken.sendall(b"x")
                time.sleep(0.01)

    def close(self) -> None:
        self.listener.close()
        for taken in self.taken:
            taken.close()


@pytest.fixture
def silent() -> Iterator[SilentProvider]:
    found = SilentProvider()
    yield found
    found.close()


@pytest.mark.parametrize("kind", SERVICES)
def test_a_silent_provider_occupies_one_caller_and_no_thread(
    kind: str, tmp_path: Path, silent: SilentProvider
) -> None:
    url = f"http://127.0.0.1:{free_port()}"
    named = {"issuer": silent.issuer, "client_id": "north", "url": url}
    written = "[openid]\n" + "".join(f"{name} = {json.dumps(text)}\n" for name, text in named.items())
    given = written if kind == "agent" else OpenIdSettings(**named)
    with SERVICES[kind](tmp_path, given) as (app, token, _), serving(app, urlsplit(url).port) as served:
        address = ("127.0.0.1", urlsplit(url).port)
        for _ in range(45):
            with socket.create_connection(address) as caller:
                caller.sendall(b"GET /sign-in/openid HTTP/1.1\r\nHost: 127.0.0.1\r\n\r\n")
        wait_for(lambda: bool(silent.taken))
        with httpx.Client(base_url=served, timeout=600) as client:
            assert client.get("/sign-in").status_code == 200
            assert client.get("/readyz").status_code in {200, 503}
            users = client.get("/v1/users", headers={"authorization": f"Bearer {token()}"})
            assert users.status_code in {200, 401}  # a clock of the test's own may say that it is too late
            refused = client.get("/sign-in/openid")
            assert (refused.status_code, int(refused.headers["retry-after"])) == (503, FAILED_S)
        # One question is under way, and nobody else's has been asked.
        assert len(silent.taken) == 1
        assert silent.taken[0].recv(1) == b"G"
        silent.close()


def door_to(issuer: str, folder: Path) -> tuple[AttackedAgent, OpenId]:
    agent = AttackedAgent(folder)
    people = SIGN_IN.of_people(agent.agent.engine, agent.clock)
    settings = OpenIdSettings(issuer=issuer, client_id="x", url="http://127.0.0.1:1")
    return agent, OpenId(settings, None, people, agent.world.agent.public_hex, agent.clock)


def refused(found: Any) -> str:
    return found.problem.slug if isinstance(found, RegisteredProblemError) else repr(found)


def test_one_caller_asks_a_provider_and_its_failure_is_remembered(
    tmp_path: Path, silent: SilentProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openid, "TIMEOUT_S", 0.3)
    silent.drips = True  # a byte now and then keeps a connection alive for ever
    agent, door = door_to(silent.issuer, tmp_path)

    async def several() -> list[Any]:
        asked = (door.address(Flow.begin()) for _ in range(20))
        return await asyncio.gather(*asked, return_exceptions=True)

    assert [refused(one) for one in asyncio.run(several())] == ["openid-unavailable"] * 20
    assert len(silent.taken) == 1
    agent.clock.now += FAILED_S - 1
    assert [refused(one) for one in asyncio.run(several())] == ["openid-unavailable"] * 20
    assert len(silent.taken) == 1
    agent.clock.now += 1
    assert [refused(one) for one in asyncio.run(several())] == ["openid-unavailable"] * 20
    assert len(silent.taken) == 2
    agent.agent.engine.dispose()


def test_few_ask_a_silent_provider_for_tokens_at_once(
    tmp_path: Path, silent: SilentProvider, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(openid, "TIMEOUT_S", 0.5)
    agent, door = door_to(silent.issuer, tmp_path)
    keys = openid.jwt.PyJWKSet.from_dict({"keys": [{"kty": "oct", "k": "AAAA", "kid": "x"}]})
    place = silent.issuer + "/token"
    door._known = openid.Provider(place, place, keys, False, agent.clock())

    async def several() -> list[Any]:
        flows = [Flow.begin() for _ in range(60)]
        asked = (door.person(flow, {"state": flow.derived("state"), "code": "x"}) for flow in flows)
        return await asyncio.gather(*asked, return_exceptions=True)

    assert {refused(one) for one in asyncio.run(several())} == {"openid-unavailable"}
    assert len(silent.taken) == openid.EXCHANGES_MAX
    agent.agent.engine.dispose()


# Names: what looks the same, or becomes the same, is not.

CONFUSABLE = (
    "\u212aim@x.example",  # the Kelvin sign, whose small letter is k
    "k\u0131m@x.example",  # a dotless i
    "\u043aim@x.example",  # a Cyrillic letter
    "ki\u202em@x.example",
    "ki\u200bm@x.example",
    "kim@x.example\u0301",
    "kim@\uff58.example",
    "kim\u017f@x.example",
    "kim@x.example\u00a0",
    "kim@x.example\x7f",
)


def test_an_address_beyond_ascii_is_nobodys(attacked: Callable[..., AttackedAgent]) -> None:
    agent = attacked()
    people, holder = SIGN_IN.of_people(agent.agent.engine, agent.clock), Person("a" * 64)
    people.put(holder, "kim", UserRequest(role="admin", email="Kim@X.example"))
    for address in CONFUSABLE:
        with pytest.raises(ValueError, match="email"):
            UserRequest(role="admin", email=address)
        assert people.identified(holder.key, "s-eve", address) is None
    # The person whose address it nearly was signs in as ever.
    found = people.identified(holder.key, "s-kim", "KIM@x.example")
    assert found is not None
    assert found.name == "kim"


# Origins, cookies and headers.


@contextmanager
def opened(kind: str, folder: Path) -> Iterator[Window]:
    if kind == "agent behind TLS":
        with serve_agent(folder, "behind_tls_proxy = true") as (app, token, _):
            yield Window(app, "https://localhost", token)
        return
    with SERVICES[kind](folder) as (app, token, url):
        yield Window(app, url, token)


KINDS = ("agent", "agent behind TLS", "tester", "curator")


def name_of(window: Window) -> str:
    (name,) = window.cookies
    return name


@pytest.mark.parametrize("kind", KINDS)
def test_a_session_is_bound_to_scheme_and_browser(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as window:
        scheme, _, host = window.url.partition("://")
        by_tls = scheme == "https"
        link = window.link()
        # A page that came in the clear signs nobody in, whose link it may know: the form has no token.
        other = f"{'http' if by_tls else 'https'}://{host}"
        assert window.post(link, headers={"origin": other}).status_code == 403
        signed_in = window.post(link)
        assert signed_in.status_code == 303
        said = signed_in.headers["set-cookie"]
        assert said.startswith("__Host-") is by_tls
        assert ("; Secure" in said) is by_tls
        assert ("; Path=/;" in said, "Domain" in said) == (True, False)
        assert window.get("/").status_code == 200
        # Of two cookies of one name neither counts.
        name, value = name_of(window), window.cookies[name_of(window)]
        twice = (f"{name}=x; {name}={value}", f"{name}={value}; {name}=x", f"{name}={value};{name}={value}")
        for kept in twice:
            assert window.get("/", headers={"cookie": kept}).status_code == 401
        # Whoever signs in over a session ends it.
        before = dict(window.cookies)
        window.post(window.link())
        assert window.cookies != before
        assert window.get("/").status_code == 200
        after, window.cookies = dict(window.cookies), before
        assert window.get("/").status_code == 401
        window.cookies = after
        ended = window.post("/sign-out", {"form_token": window.token()})
        assert ended.headers["set-cookie"].startswith(f'{name}="";')
        assert ("; Secure" in ended.headers["set-cookie"]) is by_tls


def paths_of(routes: Sequence[Any]) -> Iterator[tuple[str, str]]:
    """Every method and path of an app's routes, with something in the place of parameters."""
    for route in routes:
        included = getattr(route, "original_router", None)
        if included is not None:
            yield from paths_of(included.routes)
        for method in getattr(route, "methods", None) or ():
            yield method, re.sub(r"{[^}]*}", "x", route.path)


STRANGE_HEADERS: tuple[dict[str, str], ...] = (
    {},
    {"accept": "text/html"},
    {"content-encoding": "gzip"},
    {"host": "evil.example"},
)


@pytest.mark.parametrize("kind", KINDS)
def test_every_answer_forbids_sniffing_and_insists_on_tls(kind: str, tmp_path: Path) -> None:
    with opened(kind, tmp_path) as window:
        asked = sorted({*paths_of(window.app.routes), ("GET", "/none"), ("DELETE", "/"), ("GET", "/v1/none")})
        assert {("POST", "/sign-in"), ("GET", "/static/x/x"), ("PUT", "/v1/users/x")} <= set(asked)
        assert len(asked) > 25, asked
        insists = window.url.startswith("https")
        for method, path in asked:
            for headers in STRANGE_HEADERS:
                answer = window.send(method, path, headers=headers)
                assert answer.headers.get_list("x-content-type-options") == ["nosniff"], (method, path)
                assert ("strict-transport-security" in answer.headers) is insists, (method, path)


def test_a_service_for_this_machine_alone_does_not_bind_its_name_to_tls(tmp_path: Path) -> None:
    with serve_tester(tmp_path, url="https://localhost:8400") as (app, token, url):
        window = Window(app, url, token).sign_in()
        assert "strict-transport-security" not in window.get("/").headers
        assert name_of(window).startswith("__Host-")


@pytest.mark.timeout(900)
def test_cookies_hold_in_a_real_browser_by_real_tls(tmp_path: Path) -> None:
    from browser import hostile_site, running_browser, visitor  # noqa: PLC0415 (skipped without Chromium)

    certificate, port = write_certificate(tmp_path), free_port()
    tls = tls_context(certificate, certificate.with_suffix(".key"), None)
    url = f"https://127.0.0.1:{port}"
    with (
        serve_tester(tmp_path, url=url) as (app, token, _),
        running(app, port, tls=tls) as (server, _),
        running_browser() as browser,
        visitor(browser, ignore_https_errors=True) as seen,
        httpx.Client(base_url=url, verify=False) as plain,  # noqa: S501 (the certificate is the test's own)
    ):
        assert address_of(server)[1] == port
        name = "__Host-tacit-tester-tester"

        def link() -> str:
            headers = {"authorization": f"Bearer {token()}"}
            return str(plain.post("/v1/sign-in-links", json={}, headers=headers).json()["path"])

        seen.use_link(url + link())
        (cookie,) = seen.context.cookies()
        assert {part: cookie[part] for part in ("name", "path", "secure", "httpOnly", "sameSite")} == {
            "name": name,
            "path": "/",
            "secure": True,
            "httpOnly": True,
            "sameSite": "Strict",
        }
        # A page of this host in the clear can neither set the cookie nor send the form.
        planted = f"{name}=planted; path=/"
        attack = (
            f"<script>document.cookie = {planted!r}; document.cookie = {planted + '; secure'!r}</script>"
            f'<form method="post" action="{url}{link()}"><button>Win a prize</button></form>'
        )
        with hostile_site(attack) as evil:
            seen.page.goto(evil)
            assert [one["value"] for one in seen.context.cookies(url)] == [cookie["value"]]
            seen.page.get_by_role("button", name="Win a prize").click()
            seen.wait_for_heading("The form did not come from", exact=False)
        seen.complaints.clear()
        # Another sign-in in the same browser ends the session before.
        seen.page.goto(url + link())
        seen.page.get_by_role("button", name="Sign in").click()
        seen.page.get_by_role("button", name="Sign out").wait_for()
        (second,) = seen.context.cookies()
        assert second["value"] != cookie["value"]
        assert plain.get("/", headers={"cookie": f"{name}={second['value']}"}).status_code == 200
        assert plain.get("/", headers={"cookie": f"{name}={cookie['value']}"}).status_code == 401
        seen.page.get_by_role("button", name="Sign out").click()
        seen.wait_for_heading("Signed out")
        assert seen.context.cookies() == []


# Approvals.


def test_an_approval_does_not_count_again_after_its_person_was_demoted(
    attacked: Callable[..., AttackedAgent],
) -> None:
    agent = attacked(policy='approval = "by-hand"\napprovals = 2')
    digest = agent.world.ask(agent.tester, agent.world.study())
    agent.turn()
    window = window_of(agent)
    add(window, ("ann", "steward"), ("bob", "officer"))
    assert press(window_of(agent).sign_in("ann"), digest) == 303
    for role in ("viewer", "steward"):
        assert window.ask("PUT", "/v1/users/ann", {"role": role}).status_code == 200
    bob = window_of(agent).sign_in("bob")
    assert "Approved by <bdi>ann</bdi>" not in bob.get(f"/studies/{digest}").text
    assert press(bob, digest) == 303
    assert agent.row(digest).state.value == "waiting-for-approval"
    # A change within the roles that decide voids nothing, and whoever approves anew counts again.
    assert window.ask("PUT", "/v1/users/bob", {"role": "steward"}).status_code == 200
    assert press(window_of(agent).sign_in("ann"), digest) == 303
    agent.turn()
    assert agent.debits()[0]["approved_by"] == ["ann", "bob"]


@pytest.mark.parametrize("written", ["approvals = 2", "approvals = 2\nthis is no TOML"])
def test_one_officer_lifts_no_second_approval_that_the_agent_has_not_read(
    attacked: Callable[..., AttackedAgent], written: str
) -> None:
    agent = attacked(policy='approval = "by-hand"')
    file, window = agent.agent.settings.policy_file, window_of(agent)
    add(window, ("oli", "officer"))
    once = file.read_text()
    file.write_text(f"{written}\n{once}")
    oli = window_of(agent).sign_in("oli")
    page = oli.get("/policy/edit").text
    seen = re.search('name="seen" value="([0-9a-f]{64})"', page)
    fields = {"form_token": oli.token(), "text": once, "seen": seen[1]}
    for path in ("/policy/preview", "/policy"):
        answer = oli.post(path, fields)
        assert (answer.status_code, "one person cannot lift" in answer.text) == (422, True)
    assert file.read_text() == f"{written}\n{once}"


# Texts in forms.


def test_the_parser_is_given_no_long_key_and_every_ordinary_one() -> None:
    points = "." * 99
    plain = ("a.b.c = 1.5", f"# {points}", f'a = "{points}"', "a = [1.5, 2.5]", f"[a.b]\nc.d = '{points}'")
    for text in plain:
        assert isinstance(parse_toml(text), dict)
    for key in (".".join("a" * 9), " . ".join("a" * 9), ".".join(['"a"'] * 9), ".".join(["'a.b'"] * 9)):
        for text in (f"{key} = 1", f"[{key}]", f"x = {{{key} = 1}}", f'x = """a"""\n{key} = 1'):
            with pytest.raises(SettingsError, match="points between them"):
                parse_toml(text)
    assert Policy.model_fields["approvals"].default == 1


# Names on live pages.

HOSTILE = ("<script>alert(1)</script>", "\u202eesrever", "x" * 128, "'\"&<b>", "{{ 7*7 }}", "a\u200bb")


def test_hostile_levels_are_text_on_every_services_pages(
    tmp_path: Path, attacked: Callable[..., AttackedAgent], federation: Federation, parties: Parties
) -> None:
    columns = (
        CategoricalColumn(name=HOSTILE[0], levels=HOSTILE),
        NumericColumn(name="x", lower=0.0, upper=10.0),
    )
    agent = attacked(policy='approval = "by-hand"\n')
    study = agent.world.study(domain=Domain(columns=columns), title=HOSTILE[0])
    digest = agent.world.ask(agent.tester, study)
    agent.turn()
    require_harmless(window_of(agent).sign_in().get(f"/studies/{digest}").text)
    asked = federation.create(domain=Domain(columns=(*parties.study().domain.columns, columns[0])))
    token = partial(issue_token, parties.analyst, TESTER_URL)
    window = Window(federation.app, TESTER_URL, lambda: token(int(federation.now))).sign_in()
    require_harmless(window.get(f"/studies/{asked}").text)
    with curator_federation(tmp_path) as curated:
        for owner in ("north", "south"):
            curated.add_owner(owner, "by-hand")
        said = {"title": HOSTILE[0], "purpose": " ".join(HOSTILE), "contact": HOSTILE[1]}
        digest = curated.put_study(curated_study_of(("north", "south"), **said))
        token = partial(issue_token, key_of("north"), CURATOR_URL, CURATOR_NOW)
        window = Window(curated.app, CURATOR_URL, token).sign_in()
        require_harmless(window.get(f"/studies/{digest}").text)


def require_harmless(page: str) -> None:
    assert "<script>alert" not in page
    assert "&lt;script&gt;alert(1)&lt;/script&gt;" in page
    assert "<b>" not in page
    assert "{{ 7*7 }}" in page
    # What turns the direction of writing is isolated from what stands around it.
    for place in re.finditer("\u202e", page):
        before = page[: place.start()]
        assert before.rfind("<bdi>") > before.rfind("</bdi>")
