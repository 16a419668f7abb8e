"""The owner's own interface: only the owner's key, and nothing that depends on data."""

import asyncio
import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx
import pytest
from agent_fakes import FAKES, FakeTester, World
from fastapi import FastAPI

from tacit_protocol.messages.problems import PROBLEMS
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.signing.keys import PrivateKey
from tacit_protocol.signing.tokens import issue_token
from tacit_services.agent.agent import Agent
from tacit_services.agent.policy import Policy
from tacit_services.agent.releases import Dependencies
from tacit_services.agent.service import Runtime, create_agent_app
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.tester_client import TesterClient
from tacit_services.shared.database import create_engine, upgrade

NOW = 10_000

CANARY = 471_108_154_711
"""A number, of more digits than a request's random name is likely to hold."""


@dataclass
class Http:
    """Calls an app in this process, without a network."""

    app: FastAPI

    def request(self, method: str, path: str, **sent: Any) -> httpx.Response:
        async def call() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url="http://localhost") as client:
                return await client.request(method, path, **sent)

        return asyncio.run(call())

    def get(self, path: str) -> httpx.Response:
        return self.request("GET", path)


@dataclass
class Setup:
    world: World
    tester: FakeTester
    agent: Agent
    http: Http
    rung: list[bool]

    def call(
        self, method: str, path: str, body: Any = None, key: PrivateKey | None = None, **kwargs: str
    ) -> Any:
        audience = kwargs.get("audience", "agent:north")
        headers = {"Authorization": f"Bearer {issue_token(key or self.world.agent, audience, NOW)}"}
        if body is not None:
            return self.http.request(method, path, headers=headers, json=body)
        return self.http.request(method, path, headers=headers)


@pytest.fixture
def setup(tmp_path: Path) -> Iterator[Setup]:
    world, tester, rung = World(tmp_path), FakeTester(), list[bool]()
    settings = AgentSettings.load(world.write("http://tester", policy='approval = "by-hand"'))
    engine = create_engine(settings.database_url)
    upgrade(engine, "agent")
    client = TesterClient(
        "http://tester",
        "http://tester",
        world.agent,
        lambda: NOW,
        lambda _: None,
        transport=tester.transport(),
    )
    agent = Agent(
        settings,
        Policy.load(settings.policy_file),
        world.agent,
        FAKES,
        Dependencies(engine, client, OpenDPNoise(), lambda: NOW),
    )
    agent.open_accounts()
    app = create_agent_app(agent, Runtime("0.1.0", lambda: True, lambda: rung.append(True)))
    yield Setup(world, tester, agent, Http(app), rung)
    client.close()
    engine.dispose()


def test_only_the_owners_key_for_this_agent_may_call(setup: Setup) -> None:
    assert setup.http.get("/v1/status").status_code == 401
    assert setup.call("GET", "/v1/status", key=setup.world.tester).status_code == 403
    assert setup.call("GET", "/v1/status", audience="agent:south").status_code == 401
    assert setup.call("GET", "/v1/status").status_code == 200


@pytest.mark.parametrize(
    ("method", "path"),
    [
        ("GET", "/v1/status"),
        ("GET", "/v1/studies"),
        ("GET", f"/v1/studies/{'a' * 64}"),
        ("GET", f"/v1/studies/{'a' * 64}/reuses"),
        ("GET", "/v1/ledger"),
        ("GET", "/v1/ledger/verification"),
        ("POST", f"/v1/studies/{'a' * 64}/approval"),
        ("POST", f"/v1/studies/{'a' * 64}/decline"),
    ],
)
def test_every_address_asks_for_the_owners_key(setup: Setup, method: str, path: str) -> None:
    assert setup.http.request(method, path).status_code == 401
    assert (
        setup.call(method, path, body={} if method == "POST" else None, key=setup.world.analyst).status_code
        == 403
    )


def test_the_owner_sees_whether_a_release_is_read_again_as_far_as_the_tester_tells(setup: Setup) -> None:
    assert setup.call("GET", f"/v1/studies/{'a' * 64}/reuses").status_code == 404
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.agent.poll(0)
    path = f"/v1/studies/{asked}/reuses"
    assert setup.call("GET", path).json() == {"digest": asked, "reused_by": []}
    setup.tester.unavailable = True
    assert setup.call("GET", path).json() == {"digest": asked, "reused_by": None}


def test_a_steward_sees_what_is_asked_approves_it_and_sees_it_in_the_ledger(setup: Setup) -> None:
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.agent.poll(0)
    (item,) = setup.call("GET", "/v1/studies?state=waiting-for-approval").json()["items"]
    assert (item["digest"], item["epsilon_micro"], item["numbers_released"]) == (asked, 500_000, 1)
    shown = setup.call("GET", f"/v1/studies/{asked}").json()
    assert "1 number," in shown["plain_words"]
    assert shown["warnings"] == ["a sum says little"]
    assert shown["study"]["title"] == "How high is x?"
    approved = setup.call("POST", f"/v1/studies/{asked}/approval", {})
    assert (approved.status_code, approved.json()["state"]) == (200, "approved")
    assert setup.rung == [True]
    setup.agent.work()
    status = setup.call("GET", "/v1/status").json()
    assert status["studies"]["sent"] == 1
    (data_set,) = status["data_sets"]
    assert data_set["units"] == 60
    assert data_set["pure_spent_micro"] + data_set["pure_left_micro"] == data_set["epsilon_cap_micro"]
    entries = setup.call("GET", "/v1/ledger?data_set=patients").json()["entries"]
    assert [entry["study"] for entry in entries] == [None, asked]
    assert setup.call("GET", "/v1/ledger?data_set=staff").json()["entries"] == []


def test_a_decision_stands(setup: Setup) -> None:
    asked = setup.world.ask(setup.tester, setup.world.study())
    setup.agent.poll(0)
    declined = setup.call("POST", f"/v1/studies/{asked}/decline", {"reason": "no time"}).json()
    assert (declined["state"], declined["reason"]) == ("declined", "no time")
    again = setup.call("POST", f"/v1/studies/{asked}/approval", {})
    assert again.status_code == 409
    assert again.json()["type"] == PROBLEMS["already-decided"].urn


def test_a_refused_study_is_shown_with_its_problem(setup: Setup) -> None:
    setup.tester.add(b"no envelope", "b" * 64, NOW + 5)
    setup.agent.poll(0)
    shown = setup.call("GET", f"/v1/studies/{'b' * 64}").json()
    assert (shown["state"], shown["problem"], shown["study"]) == ("refused", "invalid-signature", None)


@pytest.mark.parametrize(
    ("method", "path", "body"),
    [
        ("GET", f"/v1/studies?state=secret-{CANARY}", None),
        ("GET", f"/v1/studies/secret-{CANARY}", None),
        ("POST", f"/v1/studies/{'a' * 64}/decline", {"reason": CANARY}),
        ("POST", f"/v1/studies/{'a' * 64}/decline", {f"secret-{CANARY}": 1}),
    ],
)
def test_errors_never_echo_what_was_sent(setup: Setup, method: str, path: str, body: Any) -> None:
    answer = setup.call(method, path, body)
    assert 400 <= answer.status_code < 500
    assert str(CANARY) not in json.dumps(answer.json())


def test_health_and_metrics_need_no_key_and_count_states(setup: Setup) -> None:
    assert setup.http.get("/healthz").status_code == 200
    assert setup.http.get("/readyz").status_code == 200
    metrics = setup.http.get("/metrics").text
    assert 'tacit_agent_studies{state="waiting-for-approval"} 0' in metrics
