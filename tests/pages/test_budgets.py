"""What people are told of budgets: one figure that adds up, and what a study has paid or would."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from agent_fakes import AttackedAgent
from curated_world import NOW, OPERATOR, curated_study_of, curator_federation, key_of
from curated_world import URL as CURATOR_URL
from people_windows import window_of
from window import Window

from tacit.client.agent import AgentClient
from tacit.client.http import HttpRequest, HttpResponse
from tacit.command import connect
from tacit.command.app import run as run_command
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.signing import issue_token

HELD = 'approval = "by-hand"\nlook_before_sending = true'


class WindowTransport:
    """Carries a command's requests to a service of this process."""

    def __init__(self, window: Window) -> None:
        self._window = window

    def send(self, request: HttpRequest) -> HttpResponse:
        body = json.loads(request.body) if isinstance(request.body, bytes) and request.body else None
        answer = self._window.ask(request.method, request.path, body)
        return HttpResponse(answer.status_code, dict(answer.headers), answer.content)

    def close(self) -> None:
        """Nothing is open."""


def test_a_page_and_a_command_say_what_a_study_would_take_and_what_it_has_taken(
    attacked: Callable[..., AttackedAgent],
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    agent = attacked(policy=HELD)
    window = window_of(agent)
    agent_client = AgentClient(
        "http://localhost", "north", agent.world.agent, transport=WindowTransport(window)
    )
    monkeypatch.setattr(connect, "agent_client", lambda _: agent_client)
    held, other = (agent.world.ask(agent.tester, agent.world.study(title=title)) for title in ("a", "b"))
    agent.turn()
    steward = window_of(agent).sign_in()
    takes = "It takes 25 % of the cap, of which 100 % is left."
    assert takes in steward.get("/").text
    assert takes in steward.get(f"/studies/{held}").text
    agent.agent.approve(held)
    agent.turn()
    assert "It spent epsilon 0.5, 25 % of the cap." in steward.get(f"/studies/{held}").text
    assert "75 % of ε = 2" in steward.get("/").text
    assert window.ask("GET", f"/v1/studies/{held}").json()["payment"] == "spent epsilon 0.5, 25 % of the cap"
    capsys.readouterr()
    assert run_command(["agent", "decline", held]) == 0
    assert "It spent epsilon 0.5, 25 % of the cap." in capsys.readouterr().out
    assert run_command(["agent", "decline", other]) == 0
    assert "It spent nothing." in capsys.readouterr().out
    assert "It spent nothing." in steward.get(f"/studies/{other}").text
    ledger = steward.get("/ledger").text
    assert "75 % of ε = 2" in ledger
    # What it is made of is behind it, the picture too.
    assert ledger.index("<details>") < ledger.index("Pure share") < ledger.index('class="chart burn-down"')
    assert ledger.index('class="chart burn-down"') < ledger.index("</details>")
    assert run_command(["agent", "status"]) == 0
    assert run_command(["ledger", "show"]) == 0
    out = capsys.readouterr().out
    assert out.count("75 % of epsilon 2") == 2


def test_a_curators_pages_say_of_a_study_that_was_sent_what_it_paid(tmp_path: Path) -> None:
    """Also where another of the same cost would be refused by now."""
    with curator_federation(tmp_path) as curated:
        curated.add_owner("north", "automatic")
        sent, refused = (
            curated.put_study(curated_study_of(("north",), title=title, budget=Budget.of("1", "1e-6")))
            for title in ("a", "b")
        )
        for party in ("north", OPERATOR):
            token = lambda party=party: issue_token(key_of(party), CURATOR_URL, NOW)  # noqa: E731
            window = Window(curated.app, CURATOR_URL, token).sign_in()
            for study, words in ((sent, "spent epsilon 1, 50 % of the cap"), (refused, "spent nothing")):
                page = window.get(f"/studies/{study}").text
                assert words in page
                assert "would be refused" not in page
                assert "50 % of ε = 2" in page
            assert "50 % of ε = 2" in window.get("/ledger").text
            assert "50 % of ε = 2" in window.get("/data-sets").text
