"""The owner's own interface: only the owner's key, and nothing that depends on data."""

from dataclasses import dataclass
from typing import Any

import httpx
import pytest
import served
from agent_fakes import NOW, AttackedAgent, MakeAgent
from fastapi import FastAPI

from tacit_protocol.messages.problems import PROBLEMS
from tacit_protocol.signing import PrivateKey, issue_token
from tacit_services.agent.study.fetching import Fetcher
from tacit_services.agent.study.loops import work
from tacit_services.agent.web.routes import Runtime, create_agent_app

OWN = "agent:north"


@dataclass
class Setup:
    """An agent whose steward decides by hand, and requests to its own interface."""

    attacked: AttackedAgent
    app: FastAPI
    rung: list[bool]

    def call(
        self, method: str, path: str, body: Any = None, key: PrivateKey | None = None, audience: str = OWN
    ) -> Any:
        headers = {"Authorization": f"Bearer {issue_token(key or self.attacked.world.agent, audience, NOW)}"}
        return self.request(method, path, headers=headers, json=body)

    def request(self, method: str, path: str, **sent: Any) -> httpx.Response:
        """Send a request without a token."""
        return served.call(self.app, "http://localhost", method, path, raises=False, **sent)

    def ask(self) -> str:
        asked = self.attacked.world.ask(self.attacked.tester, self.attacked.world.study())
        Fetcher(self.attacked.agent).poll(0)
        return asked


@pytest.fixture
def setup(make: MakeAgent) -> Setup:
    attacked, rung = make(policy='approval = "by-hand"'), list[bool]()
    app = create_agent_app(attacked.agent, Runtime("0.1.0", lambda: True, lambda: rung.append(True)))
    return Setup(attacked, app, rung)


def test_the_owner_sees_whether_a_release_is_read_again_as_far_as_the_tester_tells(setup: Setup) -> None:
    asked = setup.ask()
    path = f"/v1/studies/{asked}/reuses"
    assert setup.call("GET", path).json() == {"digest": asked, "reused_by": []}
    setup.attacked.tester.unavailable = True
    assert setup.call("GET", path).json() == {"digest": asked, "reused_by": None}


def test_a_steward_sees_what_is_asked_approves_it_and_sees_it_in_the_ledger(setup: Setup) -> None:
    asked = setup.ask()
    (item,) = setup.call("GET", "/v1/studies?state=waiting-for-approval").json()["items"]
    assert (item["digest"], item["epsilon_micro"], item["release_size"]) == (asked, 500_000, 1)
    shown = setup.call("GET", f"/v1/studies/{asked}").json()
    assert "1 number," in shown["plain_words"]
    assert shown["warnings"] == ["a sum says little"]
    assert shown["study"]["title"] == "How high is x?"
    approved = setup.call("POST", f"/v1/studies/{asked}/approval", {})
    assert (approved.status_code, approved.json()["state"]) == (200, "approved")
    assert setup.rung == [True]
    work(setup.attacked.agent)
    status = setup.call("GET", "/v1/status").json()
    assert status["studies"]["sent"] == 1
    (data_set,) = status["data_sets"]
    assert data_set["units"] == 60
    assert data_set["pure_spent_micro"] + data_set["pure_left_micro"] == data_set["epsilon_cap_micro"]
    entries = setup.call("GET", "/v1/ledger?data_set=patients").json()["entries"]
    assert [entry["study"] for entry in entries] == [None, asked]
    assert setup.call("GET", "/v1/ledger?data_set=staff").json()["entries"] == []


def test_a_decision_stands(setup: Setup) -> None:
    asked = setup.ask()
    declined = setup.call("POST", f"/v1/studies/{asked}/decline", {"reason": "no time"}).json()
    assert (declined["state"], declined["reason"]) == ("declined", "no time")
    again = setup.call("POST", f"/v1/studies/{asked}/approval", {})
    assert again.status_code == 409
    assert again.json()["type"] == PROBLEMS["already-decided"].urn


def test_a_refused_study_is_shown_with_its_problem(setup: Setup) -> None:
    setup.attacked.tester.add(b"no envelope", "b" * 64, NOW + 5)
    Fetcher(setup.attacked.agent).poll(0)
    shown = setup.call("GET", f"/v1/studies/{'b' * 64}").json()
    assert (shown["state"], shown["problem"], shown["study"]) == ("refused", "invalid-signature", None)


def test_health_and_metrics_need_no_key_and_count_states(setup: Setup) -> None:
    assert setup.request("GET", "/healthz").status_code == 200
    assert setup.request("GET", "/readyz").status_code == 200
    metrics = setup.request("GET", "/metrics").text
    assert 'tacit_agent_studies{state="waiting-for-approval"} 0' in metrics
