"""The pages of all services in memory: who gets in, what is refused, and that nothing sent comes back."""

import itertools
import re
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest
import sqlalchemy as sa
from agent_fakes import AttackedAgent
from curated_world import NOW as CURATOR_NOW
from curated_world import OPERATOR, CuratorFederation, curator_federation, key_of
from curated_world import URL as CURATOR_URL
from study_parties import Parties
from tester_federation import URL as TESTER_URL
from tester_federation import Federation
from window import FORM, Window

from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.problems import PROBLEMS
from tacit_protocol.messages.study import VerdictMessage
from tacit_protocol.signing import VERDICT_TYPE, PrivateKey, issue_token, sign_envelope
from tacit_protocol.verdicts.base import DecisionResult
from tacit_services.agent.study.delivery import Delivery
from tacit_services.agent.study.studies import put_finding, record_verdict
from tacit_services.agent.web.routes import Runtime, create_agent_app
from tacit_services.shared.database import run_transaction
from tacit_services.shared.pages.sessions import LINK_LIFE_S, SESSION_LIFE_S

CANARY = "Xc4nary7"
AGENT_URL = "http://localhost"


@dataclass
class Asked:
    """An agent with one study that waits, and a steward's window."""

    agent: AttackedAgent
    window: Window
    digest: str


def agent_window(agent: AttackedAgent, key: PrivateKey | None = None) -> Window:
    app = create_agent_app(agent.agent, Runtime("0", lambda: True, lambda: None))
    signer = key or agent.world.agent
    return Window(app, AGENT_URL, lambda: issue_token(signer, "agent:north", int(agent.clock())))


@pytest.fixture
def asked(tmp_path: Path) -> Iterator[Asked]:
    agent = AttackedAgent(tmp_path, policy='approval = "by-hand"')
    digest = agent.world.ask(agent.tester, agent.world.study(title="<script>alert(1)</script> & x?"))
    agent.turn()
    yield Asked(agent, agent_window(agent), digest)
    agent.agent.engine.dispose()


def tester_window(federation: Federation, key: PrivateKey) -> Window:
    return Window(federation.app, TESTER_URL, lambda: issue_token(key, TESTER_URL, int(federation.now)))


@pytest.fixture
def curated(tmp_path: Path) -> Iterator[CuratorFederation]:
    with curator_federation(tmp_path) as found:
        for owner in ("north", "south"):
            found.add_owner(owner, "by-hand")
        yield found


def curator_window(curated: CuratorFederation, party: str) -> Window:
    return Window(curated.app, CURATOR_URL, lambda: issue_token(key_of(party), CURATOR_URL, CURATOR_NOW))


PAGES = ("/", "/ledger", "/data-sets", "/policy")
BROWSER = {"accept": "text/html,application/xhtml+xml,*/*;q=0.8"}


def test_a_browser_gets_a_page_of_every_error_and_a_program_gets_json(asked: Asked) -> None:
    window = asked.window.sign_in()
    for method, path, status in (
        ("GET", f"/no/{CANARY}", 404),
        ("DELETE", "/policy", 405),
        ("GET", f"/v1/studies/{asked.digest}", 401),
        ("GET", f"/v1/studies?state={CANARY}", 401),
    ):
        page = window.send(method, path, headers=BROWSER)
        require_decent(page)
        assert (page.status_code, page.headers["cache-control"]) == (status, "no-store")
        assert page.headers["content-security-policy"].startswith("default-src 'none'")
        assert "Signed in as <bdi>" in page.text
        assert "Back to the first page" in page.text
        program = window.send(method, path)
        assert program.headers["content-type"] == "application/problem+json"
        assert program.status_code == status
    encoded = {"content-encoding": "gzip", "origin": window.url}
    require_decent(window.send("POST", "/sign-out", headers=BROWSER | encoded))
    rebound = window.get("/", headers=BROWSER | {"host": "evil.example"})
    require_decent(rebound)
    assert (rebound.status_code, "Signed in as" in rebound.text) == (421, False)
    assert "Signed in as" not in agent_window(asked.agent).get("/none", headers=BROWSER).text


def test_a_fault_of_the_services_own_is_a_page_with_the_requests_id(
    asked: Asked, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    window = asked.window.sign_in()

    def fail(*_: object) -> None:
        raise RuntimeError(CANARY)

    monkeypatch.setattr("tacit_services.agent.web.pages.inbox", fail)
    page = window.get("/", headers=BROWSER)
    assert (page.status_code, CANARY in page.text) == (500, False)
    assert page.headers["x-request-id"] in page.text
    assert CANARY not in "".join(capsys.readouterr())


def test_every_page_says_the_product_and_who_is_signed_in(
    asked: Asked, curated: CuratorFederation, federation: Federation, parties: Parties
) -> None:
    agent = asked.window.sign_in()
    for window, who in (
        (agent, "the owner&#39;s steward"),
        (curator_window(curated, OPERATOR).sign_in(), "the operator"),
        (curator_window(curated, "north").sign_in(), "north, owner"),
        (tester_window(federation, parties.tester).sign_in(), "the operator"),
        (tester_window(federation, parties.analyst).sign_in(), "analyst, analyst"),
    ):
        page = window.get("/").text
        assert f"Signed in as <bdi>{who}</bdi>" in page
        assert 'href="/">Tacit</a>' in page


def test_cells_of_tables_carry_their_columns_headings_for_cards(asked: Asked) -> None:
    page = asked.window.sign_in().get(f"/studies/{asked.digest}").text
    assert '<th scope="row" data-label="Party"><bdi>' in page
    assert '<td data-label="Role">tester</td>' in page


def test_nothing_is_shown_to_a_browser_that_is_not_signed_in(asked: Asked) -> None:
    for path in (*PAGES, f"/studies/{asked.digest}"):
        response = asked.window.get(path)
        assert (response.status_code, "script" in response.text.split("<main")[1]) == (401, False)
        assert "How to" not in response.text
    assert asked.window.get("/", headers={"hx-request": "true"}).headers["hx-refresh"] == "true"


def test_every_page_carries_the_security_headers_and_no_inline_script(asked: Asked) -> None:
    asked.window.sign_in()
    for path in (*PAGES, f"/studies/{asked.digest}", "/sign-in", "/studies/none"):
        response = asked.window.get(path)
        policy = response.headers["content-security-policy"]
        assert policy.startswith("default-src 'none'; script-src 'self'; style-src 'self'; ")
        assert "unsafe" not in policy
        assert response.headers["cache-control"] == "no-store"
        assert response.headers["x-content-type-options"] == "nosniff"
        assert "<style" not in response.text
        assert " style=" not in response.text
        assert "<script>" not in response.text
        assert "hx-on" not in response.text
    assert "&lt;script&gt;alert(1)&lt;/script&gt; &amp; x?" in asked.window.get("/").text


def test_a_steward_reads_what_a_study_is_for_before_deciding(asked: Asked) -> None:
    said = {
        "purpose": "To plan <b>beds</b>",
        "contact": "ann@example.org",
        "approval_number": "EC 2026/17",
        "data_use": "DUO:0000006",
    }
    digest = asked.agent.world.ask(asked.agent.tester, asked.agent.world.study(**said))
    asked.agent.turn()
    asked.window.sign_in()
    page = asked.window.get(f"/studies/{digest}").text
    assert page.index("What it is for") < page.index("Approve and spend")
    for words in ("To plan &lt;b&gt;beds&lt;/b&gt;", "EC 2026/17", "health, medical or biomedical research"):
        assert words in page
    assert "What it is for" not in asked.window.get(f"/studies/{asked.digest}").text


def decided(reject: bool, *warnings: str) -> DecisionResult:
    spent = {"epsilon": 0.5, "delta": 0.0, "units": {"north": 60}}
    return DecisionResult(method="m", reject=reject, level=0.05, warnings=warnings, **spent)


def test_warnings_come_before_what_they_limit(asked: Asked) -> None:
    """Of a study before it is decided, of its verdict, and of what the agent found."""
    agent, window = asked.agent, asked.window.sign_in()
    path, engine = f"/studies/{asked.digest}", agent.agent.engine
    page = window.get(path).text
    assert page.index("A sum says little.") < page.index("Sends ") < page.index("Approve and spend")
    result = decided(False, "Hopeless: few units")
    message = VerdictMessage(
        study=asked.digest,
        outcome="completed",
        releases={},
        software="tacit 1",
        result=result.model_dump(mode="json"),
    )
    signed = sign_envelope(encode(message), VERDICT_TYPE, agent.world.tester)
    found = decided(True, "Hopeless: few rows")

    def record(connection: sa.Connection) -> None:
        record_verdict(connection, asked.digest, signed)
        put_finding(connection, asked.digest, found, 1)

    run_transaction(engine, record)
    page = window.get(path).text
    assert page.index("Hopeless: few units.") < page.index("is not rejected")
    assert page.index("Hopeless: few rows.") < page.index("<dt>reject</dt>")
    assert page.count("few rows") == 1


def test_static_files_are_served_under_the_name_of_their_bytes_alone(asked: Asked) -> None:
    page = asked.window.get("/sign-in").text
    paths = [part.split('"')[0] for part in page.split('"/static/')[1:]]
    assert {path.split("/")[1] for path in paths} == {"icon.svg", "pages.css", "pages.js", "htmx.min.js"}
    for path in paths:
        response = asked.window.get(f"/static/{path}")
        assert (response.status_code, "immutable" in response.headers["cache-control"]) == (200, True)
    for path in (f"0/{CANARY}", "0/pages.css", "..%2f..%2fsite.py/x", "0/..%2fsite.py"):
        assert asked.window.get(f"/static/{path}").status_code == 404


def test_a_link_works_once_and_within_five_minutes(asked: Asked) -> None:
    link = asked.window.link()
    assert asked.window.get(link).status_code == 200
    assert asked.window.post(link).status_code == 303
    assert asked.window.post(link).status_code == 403
    for waited, status in ((LINK_LIFE_S - 1, 303), (LINK_LIFE_S, 403)):
        link = asked.window.link()
        asked.agent.clock.now += waited
        assert asked.window.post(link).status_code == status
    assert asked.window.post("/sign-in").status_code == 403
    assert asked.window.post("/sign-in?link=" + "é" * 100).status_code == 403


def test_a_session_ends_after_eight_hours_and_at_sign_out(asked: Asked) -> None:
    window = asked.window.sign_in()
    kept = dict(window.cookies)
    asked.agent.clock.now += SESSION_LIFE_S - 1
    assert window.get("/").status_code == 200
    asked.agent.clock.now += 1
    assert window.get("/").status_code == 401
    window.sign_in()
    assert window.cookies != kept
    kept, token = dict(window.cookies), window.token()
    assert window.post("/sign-out", {"form_token": token}).status_code == 200
    window.cookies = kept
    assert window.get("/").status_code == 401


def test_the_database_holds_neither_links_nor_cookies(asked: Asked, tmp_path: Path) -> None:
    unused, window = asked.window.link(), asked.window.sign_in()
    (cookie,) = window.cookies.values()
    stored = b"".join(file.read_bytes() for file in tmp_path.glob("agent.sqlite3*"))
    assert cookie.encode() not in stored
    assert unused.split("=")[1].encode() not in stored


def test_the_reason_of_a_decline_stays_here(asked: Asked) -> None:
    window, path = asked.window.sign_in(), f"/studies/{asked.digest}/decline"
    token = window.token()
    assert window.post(path, {"form_token": token, "reason": CANARY * 100}).status_code == 400
    assert window.post(path, {"form_token": token, "reason": f"{CANARY}\r\nü"}).status_code == 303
    assert asked.agent.row(asked.digest).reason == f"{CANARY}\nü"
    assert CANARY in window.get(f"/studies/{asked.digest}").text
    Delivery(asked.agent.agent).deliver()
    sent = b"".join(body for _, _, body in asked.agent.tester.received)
    assert CANARY.encode() not in sent


BODIES: tuple[bytes, ...] = (
    b"",
    b"\xff\xfe\x00",
    CANARY.encode(),
    f"reason={CANARY}".encode(),
    b"form_token=%ff%fe&reason=" + CANARY.encode(),
    b"&".join([f"{CANARY}=1".encode()] * 2000),
    b"form_token=TOKEN&reason=%00" + CANARY.encode(),
    b"form_token=TOKEN&reason=a&reason=" + CANARY.encode(),
    b"form_token=TOKEN&form_token=TOKEN&reason=" + CANARY.encode(),
    b"form_token=TOKEN&other=" + CANARY.encode(),
    b"form_token=TOKEN&reason=%ed%a0%80" + CANARY.encode(),
    b"form_token=TOKEN&reason=" + CANARY.encode() * 1000,
    b"form_token=TOKEN&reason=" + CANARY.encode() * 200_000,
)


def require_decent(response: Any) -> None:
    assert 400 <= response.status_code < 500, response.text[:300]
    assert CANARY not in response.text + str(response.headers)
    assert response.headers["content-type"].startswith("text/html")
    text = unescape(response.text)
    assert any(problem.title in text for problem in PROBLEMS.values())


def bad_input(window: Window, digest: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Send what no page would send; nothing of it may come back or be logged, and nothing may break."""
    token = window.token().encode()
    for body, kind in itertools.product(BODIES, (FORM, "application/json", f"{CANARY}/x", "")):
        sent = body.replace(b"TOKEN", token)
        headers = {"origin": window.url, "content-type": kind}
        for path in (f"/studies/{digest}/decline", "/sign-out", f"/sign-in?link={CANARY}"):
            require_decent(window.send("POST", path, content=sent, headers=headers))
    strange = (CANARY, "A" * 64, "%00", "é", "0" * 65)
    for text in strange:
        require_decent(window.get(f"/studies/{text}"))
        require_decent(window.send("POST", f"/studies/{text}/approval", headers={"origin": window.url}))
    require_decent(window.get("/sign-in?link=" + CANARY * 100))
    require_decent(window.send("POST", "/sign-in?link=" + CANARY * 100, headers={"origin": window.url}))
    for cookie in (CANARY, CANARY * 50, '"', "a=b; c"):
        name = next(iter(window.cookies))
        headers = {"cookie": f"{name}={cookie}"}
        window.cookies, kept = {}, window.cookies
        require_decent(window.get("/", headers=headers))
        window.cookies = kept
    assert window.get("/").status_code == 200
    logged = "".join(capsys.readouterr())
    assert (CANARY in logged, "Traceback" in logged, "internal_error" in logged) == (False, False, False)


def test_bad_input_to_the_agents_pages(asked: Asked, capsys: pytest.CaptureFixture[str]) -> None:
    bad_input(asked.window.sign_in(), asked.digest, capsys)
    assert asked.agent.row(asked.digest).state.value == "waiting-for-approval"


def test_bad_input_to_the_curators_pages(
    curated: CuratorFederation, capsys: pytest.CaptureFixture[str]
) -> None:
    study = curated.ask("north", "south")
    before = curated.call("GET", f"/v1/studies/{study}", "north").json()
    assert before["state"] == "waiting-for-approval"
    bad_input(curator_window(curated, "north").sign_in(), study, capsys)
    assert curated.call("GET", f"/v1/studies/{study}", "north").json() == before


def test_every_enrolled_party_sees_the_testers_studies_and_nobody_else(
    federation: Federation, parties: Parties, capsys: pytest.CaptureFixture[str]
) -> None:
    study = federation.create()
    stranger = tester_window(federation, PrivateKey.generate())
    headers = {"authorization": f"Bearer {stranger._token()}"}
    assert stranger.send("POST", "/v1/sign-in-links", json={}, headers=headers).status_code == 403
    for key in (parties.tester, parties.analyst, parties.owners["north"]):
        window = tester_window(federation, key).sign_in()
        assert "What is the mean?" in window.get("/").text
        assert "0 of 3 releases are in" in window.get(f"/studies/{study}").text
    for path in (f"/?state={CANARY}", f"/?before={CANARY}", f"/studies/{study}/events?seen={CANARY}"):
        require_decent(window.get(path))
    require_decent(window.get(f"/studies/{study}/transcript"))
    assert tester_window(federation, parties.analyst).get(f"/studies/{study}/transcript").status_code == 401
    assert CANARY not in "".join(capsys.readouterr())


def titles(page: Any) -> list[str]:
    assert page.status_code == 200
    return [unescape(found) for found in re.findall('id="open-.*?<bdi>(.*?)</bdi>', page.text)]


def test_studies_are_found_by_state_procedure_owner_and_words_without_a_script(
    federation: Federation, parties: Parties
) -> None:
    names = ["a 100 % sure?", 'b" onfocus="alert(1)', "c_d", *(f"No {number}" for number in range(25))]
    studies = {name: federation.create(title=name) for name in names}
    federation.release_all(studies["c_d"])
    while federation.work():
        pass
    window = tester_window(federation, parties.analyst).sign_in()
    first = window.get("/")
    assert titles(first) == names[:2:-1]
    older = unescape(re.search('href="/([^"]*)">Older studies', first.text)[1])  # type: ignore[index]
    assert titles(window.get(f"/{older}")) == names[2::-1]
    assert "Newest studies" in window.get(f"/{older}").text
    for query, expected in (
        ("text=100+%25", ["a 100 % sure?"]),
        ("text=%25", ["a 100 % sure?"]),
        ("text=C_D", ["c_d"]),
        ("text=_", ["c_d"]),
        ("state=completed", ["c_d"]),
        ("state=collecting&text=c_d", []),
        ("state=&procedure=mean&owner=south&text=no+7", ["No 7"]),
        ("owner=nobody", []),
        ("procedure=homogeneity", []),
    ):
        page = window.get(f"/?{query}")
        assert titles(page) == expected, query
        assert ("No study is like that" in page.text) == (not expected)
    found = window.get("/?text=" + quote('"><script>' + CANARY)).text
    assert "<script>" not in found
    assert "&#34;&gt;&lt;script&gt;" in found
    kept = window.get("/?text=No+&state=collecting").text
    assert 'value="No"' in kept
    assert "<option selected>collecting</option>" in kept
    assert "state=collecting&amp;text=No" in kept


def test_a_list_of_studies_says_each_verdict_in_a_line(federation: Federation, parties: Parties) -> None:
    study, other = federation.create(title="done"), federation.create(title="ended")
    federation.release_all(study)
    assert federation.decline(other, "north").status_code == 201
    for owner in ("south", "west"):
        assert federation.release(other, owner).status_code == 201
    while federation.work():
        pass
    page = tester_window(federation, parties.analyst).sign_in().get("/").text
    assert '<p class="said"><bdi>Numbers were released. ' in page
    assert '<p class="said"><bdi>No release came from north.</bdi></p>' in page


def test_the_tester_shows_who_has_sent_and_ends_its_stream_with_the_study(
    federation: Federation, parties: Parties
) -> None:
    study = federation.create()
    window = tester_window(federation, parties.analyst).sign_in()
    assert federation.decline(study, "north").status_code == 201
    page = window.get(f"/studies/{study}").text
    assert page.count('<span class="state declined">') == 1
    assert page.count('<span class="state waiting">') == 2
    ruled = federation.create(title="Too few?")
    path, decline = f"/v1/studies/{ruled}/declines/north", parties.decline(ruled, "north", "too-few-units")
    assert federation.put(path, parties.owners["north"], decline).status_code == 201
    assert "needs more units than there are" in window.get(f"/studies/{ruled}").text
    for owner in ("south", "west"):
        assert federation.release(study, owner).status_code == 201
    events = window.get(f"/studies/{study}/events?seen={'0' * 16}")
    assert events.headers["content-type"].startswith("text/event-stream")
    assert "event: ended" in events.text
    ended = window.get(f"/studies/{study}").text
    assert "No release came from <bdi>north</bdi>" in ended
    transcript = window.get(f"/studies/{study}/transcript")
    assert transcript.headers["content-disposition"] == f'attachment; filename="tacit-{study[:12]}.json"'
    assert transcript.content == federation.get(f"/v1/studies/{study}/transcript").content


def test_an_owner_at_a_curator_sees_and_decides_for_its_own_alone(curated: CuratorFederation) -> None:
    study = curated.ask("north", "south")
    north, operator = curator_window(curated, "north").sign_in(), curator_window(curated, OPERATOR).sign_in()
    assert "south/patients" not in north.get("/data-sets").text
    assert "south/patients" in operator.get("/data-sets").text
    assert "south/patients" not in north.get("/ledger").text
    assert "south/patients" in operator.get("/ledger").text
    path = f"/studies/{study}/approval"
    assert "Approve and spend" not in operator.get(f"/studies/{study}").text
    assert operator.post(path, {"form_token": operator.token()}).status_code == 403
    assert "Approve and spend" in north.get(f"/studies/{study}").text
    assert north.post(path, {"form_token": north.token()}).status_code == 303
    assert "Approve and spend" not in north.get(f"/studies/{study}").text
    assert "north: approved, south: waiting" in north.get("/").text
