"""The policy on the agent's page: who may change it, what is checked, previewed, kept and recorded."""

import os
import signal
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass
from html import unescape
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_fakes import AttackedAgent, FakeTester, World
from browser import DESKTOP, running_browser, serving, visitor
from people_windows import add, agent_process, free_port, wait_for, window_of
from window import Window

from tacit.client.sign_in import Door
from tacit_protocol.signing import CATALOGUE_TYPE, issue_token, open_envelope
from tacit_services.agent.policy import Policy
from tacit_services.agent.policy_editing import CHANGED, FOUND, PolicyEditor
from tacit_services.agent.schema import SIGN_IN
from tacit_services.agent.service import Runtime, create_agent_app
from tacit_services.shared.database import create_engine, read_from
from tacit_services.shared.failpoints import PolicyStep
from tacit_services.shared.people import BY_FILE, KEY_HOLDER, recorded

WRITTEN = "# why: the committee's vote of May <b>&</b> more\n"
CANARY = "Xc4nary7"


@dataclass
class Edited:
    """An agent whose policy has a comment, with a study that waits, and an officer's window."""

    agent: AttackedAgent
    officer: Window
    study: str

    @property
    def file(self) -> Path:
        return self.agent.agent.settings.policy_file

    @property
    def text(self) -> str:
        return self.file.read_text()

    def seen(self) -> str:
        page = self.officer.get("/policy/edit").text
        return page.split('name="seen" value="')[1][:64]

    def send(self, text: str, path: str = "/policy", seen: str | None = None) -> httpx.Response:
        form = {"form_token": self.officer.token(), "text": text, "seen": seen or self.seen()}
        return self.officer.post(path, {**form, "text": text.replace("\n", "\r\n")})

    def changes(self) -> list[dict[str, Any]]:
        return [
            entry
            for entry in self.officer.ask("GET", "/v1/record").json()["entries"]
            if entry["action"] in {CHANGED, FOUND}
        ]


@pytest.fixture
def edited(tmp_path: Path) -> Iterator[Edited]:
    agent = AttackedAgent(tmp_path, policy=f'{WRITTEN}approval = "by-hand"')
    PolicyEditor(agent.agent).note_file()
    study = agent.world.ask(agent.tester, agent.world.study(title="<script>alert(1)</script>?"))
    agent.turn()
    window = window_of(agent)
    add(window, ("oli", "officer"), ("ste", "steward"))
    yield Edited(agent, window_of(agent).sign_in("oli"), study)
    agent.agent.engine.dispose()


def test_an_officer_changes_the_policy_without_a_restart(edited: Edited) -> None:
    text = edited.text.replace("epsilon_per_study_max = 1.0", "epsilon_per_study_max = 0.25")
    preview = edited.send(text, "/policy/preview").text
    assert "would be refused</strong>, the study spends more epsilon than the policy allows" in preview
    assert "-epsilon_per_study_max = 1.0" in preview
    assert "&lt;script&gt;alert(1)&lt;/script&gt;?" in preview
    assert "<script>alert" not in preview
    assert edited.agent.agent.policy.epsilon_per_study_max == 1.0
    assert edited.send(text).status_code == 303
    assert edited.text == text
    assert WRITTEN in edited.text
    assert edited.agent.agent.policy == Policy.load(edited.file)
    page = edited.officer.get("/policy").text
    assert "by <bdi>oli</bdi>" in page
    assert "<dd>0.25</dd>" in page
    assert "&lt;b&gt;&amp;&lt;/b&gt; more" in page
    # What waits is held to it at once: approved, it is refused.
    ste = window_of(edited.agent).sign_in("ste")
    assert ste.post(f"/studies/{edited.study}/approval", {"form_token": ste.token()}).status_code == 303
    edited.agent.turn()
    assert edited.agent.row(edited.study).state.value == "refused"
    # And back: what comes in is allowed again.
    assert edited.send(text.replace("0.25", "1.0")).status_code == 303
    again = edited.agent.world.ask(edited.agent.tester, edited.agent.world.study(title="Again?"))
    edited.agent.turn()
    assert edited.agent.row(again).state.value == "waiting-for-approval"
    assert [(entry["person"], entry["action"]) for entry in edited.changes()] == [
        (BY_FILE, FOUND),
        ("oli", CHANGED),
        ("oli", CHANGED),
    ]
    assert "+epsilon_per_study_max = 0.25" in edited.changes()[1]["detail"]["diff"]


def test_a_study_that_a_change_would_allow_is_said(edited: Edited) -> None:
    strict = edited.text.replace("epsilon_per_study_max = 1.0", "epsilon_per_study_max = 0.25")
    assert edited.send(strict).status_code == 303
    preview = edited.send(strict.replace("0.25", "1.0"), "/policy/preview").text
    assert "would be allowed</strong>, and is not now" in preview
    assert "Nothing: this is the policy as it is" in edited.send(strict, "/policy/preview").text


FAULTS: dict[str, str] = {
    "approval = ": "it is not TOML",
    f'approval = "{CANARY}"': "approval",
    "epsilon_per_study_max = -1": "epsilon_per_study_max",
    f"unknown_{CANARY} = 1": "",
    "": "",
    "approvals = 3": "approvals",
    "x" * 200_000: "characters at most",
    "[[[": "it is not TOML",
    "a = 1\na = 2": "it is not TOML",
}


@pytest.mark.parametrize("text", FAULTS, ids=range(len(FAULTS)))
def test_a_policy_that_the_parser_does_not_take_changes_nothing(edited: Edited, text: str) -> None:
    before, policy = edited.text, edited.agent.agent.policy
    for path in ("/policy", "/policy/preview"):
        answer = edited.send(text, path)
        assert answer.status_code == 422
        shown = unescape(answer.text.split('role="alert">')[1].split("</p>")[0])
        assert FAULTS[text] in shown
        assert "Nothing was changed" in shown
        assert str(edited.file.parent) not in answer.text
    assert (edited.text, edited.agent.agent.policy) == (before, policy)
    assert len(edited.changes()) == 1
    assert [path.name for path in edited.file.parent.glob(".policy*")] == []


def test_of_two_who_change_at_once_one_is_told(edited: Edited) -> None:
    seen, text = edited.seen(), edited.text
    assert edited.send(text + "# one\n", seen=seen).status_code == 303
    assert edited.send(text + "# two\n", seen=seen).status_code == 409
    assert edited.text == text + "# one\n"
    edited.file.write_text(text + "# by hand\n")
    assert edited.send(text + "# three\n", seen=edited.changes()[-1]["entry_hash"]).status_code == 409
    assert edited.text == text + "# by hand\n"
    statuses: list[int] = []
    seen = edited.seen()

    def change(number: int) -> None:
        statuses.append(edited.send(f"{text}# thread {number}\n", seen=seen).status_code)

    threads = [threading.Thread(target=change, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert sorted(statuses) == [303, 409, 409, 409]


def test_only_an_officer_changes_it(edited: Edited) -> None:
    add(window_of(edited.agent), ("vic", "viewer"), ("adm", "admin"))
    before, seen = edited.text, edited.seen()
    for name in ("ste", "vic"):
        window = window_of(edited.agent).sign_in(name)
        assert "Change the policy" not in window.get("/policy").text
        assert window.get("/policy/edit").status_code == 403
        form = {"form_token": window.token(), "text": before + "# no\n", "seen": seen}
        for path in ("/policy", "/policy/preview"):
            assert window.post(path, form).status_code == 403
            assert window.post(path, {**form, "form_token": edited.officer.token()}).status_code == 403
    for headers in ({"origin": "http://evil"}, {"origin": "null"}):
        form = {"form_token": edited.officer.token(), "text": before + "# no\n", "seen": seen}
        assert edited.officer.post("/policy", form, headers=headers).status_code == 403
    assert edited.officer.post("/policy", {"text": before + "# no\n", "seen": seen}).status_code == 403
    assert window_of(edited.agent).post("/policy", {"text": "", "seen": seen}).status_code == 401
    assert edited.text == before
    adm = window_of(edited.agent).sign_in("adm")
    form = {"form_token": adm.token(), "text": before + "# yes\n", "seen": seen}
    assert adm.post("/policy", form).status_code == 303


def test_one_person_cannot_lift_that_two_approve(edited: Edited) -> None:
    two = "approvals = 2\n" + edited.text
    assert edited.send(two).status_code == 303
    for one in (edited.text.replace("approvals = 2", "approvals = 1"), two.replace("approvals = 2\n", "")):
        answer = edited.send(one)
        assert answer.status_code == 422
        assert "one person cannot lift that here" in answer.text
    assert edited.agent.agent.policy.approvals == 2


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write anywhere")
def test_a_read_only_file_is_said_to_be_by_permissions(edited: Edited) -> None:
    edited.file.parent.chmod(0o500)
    try:
        assert "it is read-only" in edited.officer.get("/policy/edit").text
    finally:
        edited.file.parent.chmod(0o700)


def test_a_read_only_file_is_said_to_be(edited: Edited, monkeypatch: pytest.MonkeyPatch) -> None:
    before, seen = edited.text, edited.seen()

    def refuse(*_: Any, **__: Any) -> Any:
        raise OSError(30, "Read-only file system")

    monkeypatch.setattr("tacit_services.agent.policy_editing.os.access", lambda *_: False)
    page = edited.officer.get("/policy/edit").text
    assert "it is read-only" in page
    assert ">Save</button>" not in page
    monkeypatch.setattr("tacit_services.agent.policy_editing.tempfile.mkstemp", refuse)
    answer = edited.send(before + "# more\n", seen=seen)
    assert answer.status_code == 422
    assert "Read-only file system" in answer.text
    assert (edited.text, len(edited.changes())) == (before, 1)


def test_a_file_that_was_changed_by_hand_is_recorded_at_the_next_start(edited: Edited) -> None:
    editor = PolicyEditor(edited.agent.agent)
    editor.note_file()
    assert len(edited.changes()) == 1
    edited.file.write_text(edited.text + "# by hand\n")
    assert (
        "changed since the agent read it" not in edited.officer.get("/policy").text
    )  # a comment says nothing
    edited.file.write_text(edited.text.replace("= 1.0", "= 0.75"))
    assert "changed since the agent read it" in edited.officer.get("/policy").text
    editor.note_file()
    assert [entry["person"] for entry in edited.changes()] == [BY_FILE, BY_FILE]
    assert "+# by hand" in edited.changes()[1]["detail"]["diff"]
    assert window_of(edited.agent).ask("PUT", "/v1/users/file", {"role": "viewer"}).status_code == 409


def test_the_file_keeps_its_rights_and_a_link_stays_a_link(edited: Edited) -> None:
    real = edited.file.with_name("real.toml")
    edited.file.rename(real)
    edited.file.symlink_to(real.name)
    real.chmod(0o640)
    editor = PolicyEditor(edited.agent.agent)
    now = editor.read()
    editor.change(now.text + "# linked\n", now.digest, edited.agent.agent.key_holder)
    assert edited.file.is_symlink()
    assert (real.read_text(), real.stat().st_mode & 0o777) == (now.text + "# linked\n", 0o640)


def test_a_change_of_what_may_run_divides_the_accounts_or_is_refused(tmp_path: Path) -> None:
    agent = AttackedAgent(
        tmp_path, policy='approval = "by-hand"', data_set="pure_share = 0.5\napproximate_share = 0.5"
    )
    editor = PolicyEditor(agent.agent)
    now = editor.read()
    text = now.text.replace("delta_per_study_max = 1e-5", "delta_per_study_max = 0.0")
    editor.change(text, now.digest, agent.agent.key_holder)
    assert agent.agent.policy.maximum.delta_pico == 0
    agent.agent.engine.dispose()


# A real agent, killed within a change, whose catalogue follows.


@pytest.mark.long
@pytest.mark.sweep(1)
@pytest.mark.parametrize("point", [*PolicyStep])
def test_an_agent_killed_within_a_change_starts_with_one_policy_and_says_so(
    tmp_path: Path, point: PolicyStep
) -> None:
    tester, world, port = FakeTester(), World(tmp_path), free_port()
    with tester.serving() as url:
        config = world.write(url, policy='approval = "by-hand"')
        config.write_text(config.read_text().replace("port = 0", f"port = {port}"))
        base, policy = f"http://127.0.0.1:{port}", tmp_path / "policy.toml"

        def ask(method: str, path: str, body: Any = None) -> httpx.Response:
            token = issue_token(world.agent, "agent:north", int(time.time()))
            headers = {"authorization": f"Bearer {token}"}
            return httpx.request(method, base + path, json=body, headers=headers, timeout=60)

        def is_up() -> bool:
            return httpx.get(f"{base}/healthz").status_code == 200

        before = policy.read_text()
        after = before.replace("epsilon_per_study_max = 1.0", "epsilon_per_study_max = 0.5")
        with agent_process(config, point.value) as first:
            wait_for(is_up)
            link = ask("POST", "/v1/sign-in-links", {}).json()["path"]
            form = {"content-type": "application/x-www-form-urlencoded"}
            with httpx.Client(base_url=base, headers={"origin": base}, timeout=60) as browser:
                browser.post(link, headers=form)
                page = browser.get("/policy/edit").text
                token, seen = (page.split(f'name="{n}" value="')[1][:64] for n in ("form_token", "seen"))
                with pytest.raises(httpx.TransportError):
                    browser.post("/policy", data={"form_token": token, "seen": seen, "text": after})
            assert first.wait(60) == -signal.SIGKILL
        assert policy.read_text() == (before if point is PolicyStep.RECORDED else after)
        with agent_process(config, "") as second:
            wait_for(is_up)
            record = ask("GET", "/v1/record").json()
            assert record["fault"] is None
            assert all("text" not in entry["detail"] for entry in record["entries"])
            second.send_signal(signal.SIGTERM)
            assert second.wait(60) == 0
    engine = create_engine(f"sqlite:///{tmp_path / 'agent.sqlite3'}")
    entries, _ = read_from(engine, recorded, SIGN_IN.people, world.agent.public_hex)
    told = [(entry["person"], entry["detail"]["text"]) for entry in entries]
    put_back = [(BY_FILE, before)] if point is PolicyStep.RECORDED else []
    assert told == [(BY_FILE, before), (KEY_HOLDER, after), *put_back]
    engine.dispose()


def test_a_change_is_published_without_a_restart(tmp_path: Path) -> None:
    tester, world, port = CatalogueTester(), World(tmp_path), free_port()
    with tester.serving() as url:
        config = world.write(url, policy='approval = "by-hand"\ncatalogue = true')
        config.write_text(config.read_text().replace("port = 0", f"port = {port}"))
        base = f"http://127.0.0.1:{port}"
        with agent_process(config, "") as process:
            wait_for(lambda: len(tester.catalogues) == 1)
            token = issue_token(world.agent, "agent:north", int(time.time()))
            headers = {"authorization": f"Bearer {token}"}
            link = httpx.post(f"{base}/v1/sign-in-links", json={}, headers=headers).json()["path"]
            form = {"content-type": "application/x-www-form-urlencoded"}
            with httpx.Client(base_url=base, headers={"origin": base}, timeout=60) as browser:
                browser.post(link, headers=form)
                page = browser.get("/policy/edit").text
                token, seen = (page.split(f'name="{n}" value="')[1][:64] for n in ("form_token", "seen"))
                text = (tmp_path / "policy.toml").read_text().replace("max = 1.0", "max = 0.5")
                answer = browser.post("/policy", data={"form_token": token, "seen": seen, "text": text})
                assert answer.status_code == 303
            wait_for(lambda: len(tester.catalogues) == 2)
            first, second = (
                open_envelope(envelope, CATALOGUE_TYPE, world.agent.public_hex)
                for envelope in tester.catalogues
            )
            assert b'"epsilon_micro":1000000' in first
            assert b'"epsilon_micro":500000' in second
            process.send_signal(signal.SIGTERM)
            assert process.wait(60) == 0


class CatalogueTester(FakeTester):
    """Keeps what agents publish."""

    def __init__(self) -> None:
        super().__init__()
        self.catalogues: list[bytes] = []

    def handle(self, method: str, url: str, body: bytes) -> tuple[int, bytes]:
        if method == "PUT" and "/v1/catalogue/" in url:
            self.catalogues.append(body)
            return 201, b"{}"
        return super().handle(method, url, body)


# In a real browser: two people, and a policy that one of them changes.


@pytest.mark.long
@pytest.mark.timeout(900)
def test_two_people_approve_and_an_officer_changes_the_policy_in_a_browser(tmp_path: Path) -> None:
    agent = AttackedAgent(tmp_path, policy=f'{WRITTEN}approval = "by-hand"\napprovals = 2')
    agent.agent.clock = agent.clock = time.time  # type: ignore[assignment]
    PolicyEditor(agent.agent).note_file()
    digest = agent.world.ask(agent.tester, agent.world.study(title="How high is <b>x</b>?"))
    agent.turn()
    app = create_agent_app(agent.agent, Runtime("0", lambda: True, lambda: None))
    window = Window(
        app, "http://localhost", lambda: issue_token(agent.world.agent, "agent:north", int(time.time()))
    )
    add(window, ("ann", "steward"), ("oli", "officer"), ("vic", "viewer"))
    with serving(app) as url, running_browser() as browser:
        door = Door(url, url, "agent:north", agent.world.agent)
        with visitor(browser) as ann, visitor(browser) as oli, visitor(browser) as vic:
            for person, name in ((ann, "ann"), (oli, "oli"), (vic, "vic")):
                person.sign_in(door, name)
                person.page.goto(f"{url}/studies/{digest}")
            assert vic.page.get_by_role("button", name="Approve").count() == 0
            vic.require_accessible()
            ann.require_accessible()
            ann.page.get_by_role("button", name="Approve as the first of two").click()
            ann.page.get_by_text("You have approved: another person has to as well.").wait_for()
            agent.turn()
            assert agent.debits() == []
            oli.page.reload()
            oli.page.get_by_text("Approved by ann").wait_for()
            oli.page.set_viewport_size(DESKTOP)
            oli.picture("agent-second-approval")
            oli.page.get_by_role("button", name="Approve and spend").click()
            oli.page.get_by_text("Approved by oli").wait_for()
            agent.turn()
            oli.page.goto(f"{url}/ledger")
            oli.page.get_by_role("cell", name="ann, oli").wait_for()
            oli.require_accessible()

            waiting = agent.world.ask(agent.tester, agent.world.study(title="And <i>y</i>?"))
            agent.turn()
            oli.page.goto(f"{url}/policy")
            oli.page.get_by_role("link", name="Change the policy").click()
            field = oli.page.get_by_label("comments and all")
            text = field.input_value()
            assert text == (tmp_path / "policy.toml").read_text()
            field.fill(text.replace("max = 1.0", "max = 0.1"))
            oli.page.get_by_role("button", name="Preview").click()
            oli.page.get_by_text("would be refused").wait_for()
            oli.require_accessible()
            oli.page.set_viewport_size(DESKTOP)
            oli.picture("agent-policy-edit")
            oli.page.get_by_role("button", name="Save").click()
            oli.wait_for_heading("Changes")
            oli.page.get_by_text("by oli").click()
            oli.require_accessible()
            assert WRITTEN in (tmp_path / "policy.toml").read_text()
            assert agent.agent.policy.epsilon_per_study_max == 0.1
            assert (ann.complaints, oli.complaints, vic.complaints) == ([], [], [])
            assert agent.row(waiting).state.value == "waiting-for-approval"
            SIGN_IN.of_people(agent.agent.engine, time.time).remove(agent.agent.key_holder, "ann")
            ann.page.goto(f"{url}/")
            ann.wait_for_heading("This browser is not signed in")
    agent.agent.engine.dispose()
