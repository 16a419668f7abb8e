"""Notices arrive at a real mail server and a real webhook: signed, once, and with nothing of the data."""

import base64
import hashlib
import hmac
import json
import threading
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from email import message_from_bytes, policy
from http.server import BaseHTTPRequestHandler
from pathlib import Path
from typing import Any

import pytest
from agent_fakes import FAKES, AttackedAgent
from aiosmtpd.controller import Controller
from aiosmtpd.smtp import AuthResult, LoginPassword
from certificates import write_certificate
from curated_world import curator_federation
from served import listening

from tacit_services.agent.notices import (
    LISTED_MAX,
    QUIET_S,
    RETRY_S,
    Notifier,
    seen_left,
)
from tacit_services.agent.schema import State
from tacit_services.agent.settings import AgentSettings, NoticeSettings
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.loops import Loops, work
from tacit_services.agent.study.readings import lock_of
from tacit_services.shared.database import read_from
from tacit_services.shared.http_server import tls_context
from tacit_services.shared.settings import SettingsError

SECRET = "whsec_" + base64.b64encode(bytes(range(24))).decode()
BY_HAND = 'approval = "by-hand"'
LINK = "http://127.0.0.1:8710"


class Mailbox:
    """Takes mails from whoever has the password, over TLS alone; refuses while ``broken``."""

    def __init__(self) -> None:
        self.mails: list[Any] = []
        self.recipients: list[list[str]] = []
        self.broken = False

    async def handle_DATA(self, server: Any, session: Any, envelope: Any) -> str:  # noqa: N802
        if self.broken:
            return "451 later"
        assert session.ssl is not None
        self.mails.append(message_from_bytes(envelope.content, policy=policy.default))
        self.recipients.append(envelope.rcpt_tos)
        return "250 taken"


def admit(server: Any, session: Any, envelope: Any, mechanism: str, data: Any) -> AuthResult:
    right = isinstance(data, LoginPassword) and (data.login, data.password) == (b"tacit", b"pass word")
    return AuthResult(success=right)


class AnyPort(Controller):
    """A mail server on whatever port is free."""

    def _trigger_server(self) -> None:
        self.port = self.server.sockets[0].getsockname()[1]
        super()._trigger_server()


@contextmanager
def mail_server(folder: Path) -> Iterator[tuple[Mailbox, int]]:
    certificate, mailbox = write_certificate(folder), Mailbox()
    context = tls_context(certificate, certificate.with_suffix(".key"))
    controller = AnyPort(
        mailbox,
        hostname="127.0.0.1",
        port=0,
        tls_context=context,
        require_starttls=True,
        authenticator=admit,
        auth_required=True,
    )
    controller.start()
    try:
        yield mailbox, controller.port
    finally:
        controller.stop()


class Hook:
    """Remembers what was posted: headers and body; answers 503 while ``broken``."""

    def __init__(self) -> None:
        self.posted: list[tuple[dict[str, str], bytes]] = []
        self.came = threading.Event()
        self.broken = False


@contextmanager
def hook_server() -> Iterator[tuple[Hook, str]]:
    hook = Hook()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["content-length"]))
            if not hook.broken:
                hook.posted.append(({k.lower(): v for k, v in self.headers.items()}, body))
                hook.came.set()
            self.send_response(503 if hook.broken else 204)
            self.end_headers()

    with listening(Handler) as url:
        yield hook, f"{url}/in"


def mail_settings(port: int, more: str = "") -> str:
    return (
        '\n[[notices]]\nmail_to = ["steward@north.example", "b@north.example"]\n'
        f'mail_from = "tacit@north.example"\nsmtp_host = "127.0.0.1"\nsmtp_port = {port}\n'
        'smtp_user = "tacit"\nsmtp_password_file = "password"\nca_file = "certificate.pem"\n' + more
    )


def hook_settings(url: str, more: str = "") -> str:
    return f'\n[[notices]]\nwebhook = "{url}"\nwebhook_secret_file = "secret"\n{more}'


def agent_with(folder: Path, channels: str, **written: str) -> AttackedAgent:
    (folder / "secret").write_text(SECRET + "\n")
    (folder / "password").write_text("pass word\n")
    caps = written.pop("caps", "")
    return AttackedAgent(folder, data_set=f"{caps}{channels}", **({"policy": BY_HAND} | written))


def notifier(agent: AttackedAgent) -> Notifier:
    """What a process that has just started says notices with."""
    settings = agent.agent.settings.notices
    return Notifier(agent.agent, settings, LINK, insecure=False, sleep=lambda _: None)


def said(hook: Hook) -> list[tuple[str, str, str]]:
    return [
        (each["kind"], each["name"], each["link"])
        for _, body in hook.posted
        for each in json.loads(body)["notices"]
    ]


@pytest.fixture
def hooked(tmp_path: Path) -> Iterator[tuple[AttackedAgent, Hook]]:
    with hook_server() as (hook, url):
        agent = agent_with(tmp_path, hook_settings(url))
        yield agent, hook
        agent.agent.engine.dispose()


def test_a_mail_says_that_a_study_waits_once_over_tls_and_across_restarts(tmp_path: Path) -> None:
    with mail_server(tmp_path) as (mailbox, port):
        agent = agent_with(tmp_path, mail_settings(port))
        title = "How high\r\nBcc: evil@example.org is <b>x</b>?"
        digest = agent.world.ask(agent.tester, agent.world.study(title=title))
        notifier(agent).look()
        assert mailbox.mails == []
        agent.turn()
        for _ in range(3):  # each a process of its own
            notifier(agent).look()
        (mail,), (recipients,) = mailbox.mails, mailbox.recipients
        assert recipients == ["steward@north.example", "b@north.example"]
        assert (mail["from"], mail["bcc"]) == ("tacit@north.example", None)
        assert mail["subject"] == "Tacit, north: A study waits for a decision"
        text = mail.get_content().replace("\r\n", "\n")
        assert f"    {LINK}/studies/{digest}\n" in text
        assert "“How high  Bcc: evil@example.org is <b>x</b>?” (north)" in text
        # Nothing else is said: no column, no data set, no number.
        assert not {"patients", "epsilon", "60", "0.5"} & set(text.replace(digest, "").split())
        agent.agent.engine.dispose()


def test_a_webhook_gets_signed_json_that_its_secret_verifies(hooked: tuple[AttackedAgent, Hook]) -> None:
    agent, hook = hooked
    digest = agent.world.ask(agent.tester, agent.world.study())
    agent.turn()
    notifier(agent).look()
    ((headers, body),) = hook.posted
    signed = b".".join((headers["webhook-id"].encode(), headers["webhook-timestamp"].encode(), body))
    expected = base64.b64encode(hmac.new(bytes(range(24)), signed, hashlib.sha256).digest()).decode()
    assert headers["webhook-signature"] == f"v1,{expected}"
    assert headers["webhook-timestamp"] == str(int(agent.clock()))
    assert json.loads(body) == {
        "type": "tacit/notices/1",
        "from": "north",
        "count": 1,
        "notices": [
            {
                "kind": "waits",
                "owner": "north",
                "name": "“How high is x?”",
                "link": f"{LINK}/studies/{digest}",
            }
        ],
    }


def test_a_locked_data_set_is_told_of_once_at_the_moment_of_the_answer_that_did_not_leave(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Sooner, whoever carries the notice would learn how long the rows took to fail."""
    with hook_server() as (hook, url):
        agent = agent_with(tmp_path, hook_settings(url, 'kinds = ["locked"]\n'), policy="")
        agent.world.ask(agent.tester, agent.world.study(respond_after_s=60))
        Fetcher(agent.agent).poll(0)
        taken_in = agent.clock.now

        def fail(*_: Any) -> Any:
            agent.clock.now += 7
            raise ZeroDivisionError("private")

        with monkeypatch.context() as failing:
            failing.setattr(FAKES["fake_sum"], "summarise", fail, raising=False)
            work(agent.agent)
        lock = read_from(agent.agent.engine, lock_of, "patients")
        assert lock is not None
        assert (lock.at, lock.shown_from) == (taken_in + 7, taken_in + 60)
        for moment in (taken_in + 7, taken_in + 59):
            agent.clock.now = moment
            notifier(agent).look()
        assert hook.posted == []
        for moment in (taken_in + 60, taken_in + 61 + QUIET_S):
            agent.clock.now = moment
            notifier(agent).look()
        assert said(hook) == [("locked", "patients", f"{LINK}/data-sets")]
        ((_, body),) = hook.posted
        assert b"Zero" not in body
        agent.agent.unlock("patients")
        notifier(agent).look()
        assert len(hook.posted) == 1
        agent.agent.engine.dispose()


def test_what_could_not_be_said_is_said_later_and_stops_nothing(tmp_path: Path) -> None:
    with mail_server(tmp_path) as (mailbox, port), hook_server() as (hook, url):
        agent = agent_with(tmp_path, mail_settings(port) + hook_settings(url))
        agent.world.ask(agent.tester, agent.world.study())
        agent.turn()
        mailbox.broken = True
        teller = notifier(agent)
        teller.look()
        assert (len(mailbox.mails), len(hook.posted)) == (0, 1)
        mailbox.broken, hook.broken = False, True
        teller.look()
        assert len(mailbox.mails) == 0, "not before its pause is over"
        agent.clock.now += RETRY_S
        teller.look()
        agent.clock.now += QUIET_S
        teller.look()
        assert (len(mailbox.mails), len(hook.posted)) == (1, 1)
        agent.agent.engine.dispose()


def test_a_study_that_was_decided_meanwhile_is_not_told_of(hooked: tuple[AttackedAgent, Hook]) -> None:
    agent, hook = hooked
    hook.broken = True
    digest = agent.world.ask(agent.tester, agent.world.study())
    agent.turn()
    teller = notifier(agent)
    teller.look()
    agent.agent.decline(digest, None)
    hook.broken = False
    agent.clock.now += RETRY_S
    teller.look()
    assert hook.posted == []


def test_a_study_that_waits_is_told_of_again_before_it_expires(hooked: tuple[AttackedAgent, Hook]) -> None:
    agent, hook = hooked
    deadline = int(agent.clock()) + 3 * 24 * 3600
    agent.world.ask(agent.tester, agent.world.study(deadline=deadline))
    agent.turn()
    for hours in (0, 24, 47, 48, 60):
        agent.clock.now = deadline - (72 - hours) * 3600
        notifier(agent).look()
    assert [kind for kind, _, _ in said(hook)] == ["waits", "expires"]


def test_a_flood_of_studies_is_one_message_and_then_silence(hooked: tuple[AttackedAgent, Hook]) -> None:
    agent, hook = hooked
    for number in range(LISTED_MAX + 7):
        agent.world.ask(agent.tester, agent.world.study(title=f"No {number}"))
    agent.turn()
    teller = notifier(agent)
    teller.look()
    agent.world.ask(agent.tester, agent.world.study(title="one more"))
    agent.turn()
    teller.look()
    ((_, body),) = hook.posted
    found = json.loads(body)
    assert (found["count"], len(found["notices"])) == (LISTED_MAX + 7, LISTED_MAX)
    agent.clock.now += QUIET_S
    teller.look()
    assert json.loads(hook.posted[1][1])["count"] == 1


def test_a_budget_that_runs_low_is_told_only_once_the_tester_has_the_release(tmp_path: Path) -> None:
    """A debit whose release is not sent yet changes nothing: its moment would tell when it was computed."""
    with hook_server() as (hook, url):
        agent = agent_with(tmp_path, hook_settings(url, "budget_left = 0.8\n"), policy="")
        agent.world.ask(agent.tester, agent.world.study(respond_after_s=100))
        agent.turn()
        (entry,) = agent.debits()
        row = agent.row(entry["study"])
        assert row.state is State.RELEASED
        assert read_from(agent.agent.engine, seen_left, "patients") == 1.0
        notifier(agent).look()
        assert hook.posted == []
        agent.clock.now += 100
        agent.turn()
        assert agent.row(entry["study"]).state is State.SENT
        left = read_from(agent.agent.engine, seen_left, "patients")
        assert left < 0.8
        for _ in range(2):
            notifier(agent).look()
        assert said(hook) == [("budget", "patients", f"{LINK}/ledger")]
        agent.agent.engine.dispose()


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ("mail_to = []", "mail_to or webhook"),
        ('mail_to = ["a@b"]', "mail_from and smtp_host"),
        ('mail_to = ["a@b\\nBcc: c@d"]\nmail_from = "a@b"\nsmtp_host = "h"', "pattern"),
        ('webhook = "https://h/x"', "webhook_secret_file"),
        ('webhook = "https://h/x"\nmail_to = ["a@b"]', "not both"),
    ],
)
def test_a_channel_that_is_half_described_is_refused_by_name(
    tmp_path: Path, written: str, words: str
) -> None:
    with pytest.raises(SettingsError, match=rf"notices.*{words}"):
        agent_with(tmp_path, f"\n[[notices]]\n{written}\n")


@pytest.mark.parametrize(
    ("written", "words"),
    [
        ('webhook = "http://hook.example/x"\nwebhook_secret_file = "secret"', "plain http"),
        ('webhook = "https://hook.example/x"\nwebhook_secret_file = "none"', "cannot read the secret"),
        ('webhook = "https://hook.example/x"\nwebhook_secret_file = "short"', "16 bytes"),
        (
            'mail_to = ["a@b"]\nmail_from = "a@b"\nsmtp_host = "mail.example"\nsmtp_security = "none"',
            "on this machine alone",
        ),
    ],
)
def test_nothing_is_said_where_others_could_read_it(tmp_path: Path, written: str, words: str) -> None:
    (tmp_path / "short").write_text("x" * 15)
    agent = agent_with(tmp_path, f"\n[[notices]]\n{written}\n")
    with pytest.raises(SettingsError, match=words):
        notifier(agent)
    agent.agent.engine.dispose()


def test_a_mail_server_with_another_certificate_gets_nothing(tmp_path: Path) -> None:
    with mail_server(tmp_path) as (mailbox, port):
        settings = mail_settings(port).replace('ca_file = "certificate.pem"\n', "")
        agent = agent_with(tmp_path, settings)
        agent.world.ask(agent.tester, agent.world.study())
        agent.turn()
        notifier(agent).look()
        assert mailbox.mails == []
        agent.agent.engine.dispose()


def test_relative_files_are_beside_the_configuration(tmp_path: Path) -> None:
    agent = agent_with(tmp_path, hook_settings("https://hook.example/x"))
    (channel,) = AgentSettings.load(tmp_path / "agent.toml").notices
    assert channel.folder == tmp_path
    with suppress(Exception):
        agent.agent.engine.dispose()


def test_a_running_agent_says_it_by_itself(hooked: tuple[AttackedAgent, Hook]) -> None:
    agent, hook = hooked
    agent.world.ask(agent.tester, agent.world.study())
    agent.turn()
    stop = threading.Event()
    loops = Loops(agent.agent, stop, 0, notifier(agent).look)
    loops.start()
    try:
        assert hook.came.wait(120)
        assert loops.alive()
    finally:
        loops.end()
    assert [kind for kind, _, _ in said(hook)] == ["waits"]


def test_at_a_curator_an_owner_hears_of_its_own_and_the_operator_of_everything(tmp_path: Path) -> None:
    (tmp_path / "secret").write_text(SECRET)
    with curator_federation(tmp_path) as curated, hook_server() as (north, one), hook_server() as (all_, two):
        for owner in ("north", "south", "west"):
            curated.add_owner(owner, "by-hand")
        channels = tuple(
            NoticeSettings(webhook=url, webhook_secret_file=Path("secret"), folder=tmp_path, owner=owner)
            for url, owner in ((one, "north"), (two, None))
        )
        teller = Notifier(curated.curator, channels, curated.url, insecure=False, sleep=lambda _: None)
        both, other = curated.ask("north", "south"), curated.ask("south", "west")
        assert curated.call("POST", f"/v1/studies/{other}/approval", "west", json={}).status_code == 200
        teller.look()
        assert [link for _, _, link in said(north)] == [f"{curated.url}/studies/{both}"]
        assert {link for _, _, link in said(all_)} == {f"{curated.url}/studies/{d}" for d in (both, other)}
