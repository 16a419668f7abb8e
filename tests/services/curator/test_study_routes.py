"""Studies and ledger at the curator over HTTP: who sees what, who may decide, and a study from end to end."""

import asyncio
import threading
from collections.abc import Iterator
from functools import partial
from pathlib import Path
from typing import Any

import httpx
import pytest
from curated_world import CURATOR, PROCEDURES, close_network, curated_study_of, enrol_at_tester
from fault_world import NOW, SeededNoise, key_of, make_tester, sealed
from fault_world import URL as TESTER_URL
from simulation import Network

from tacit_protocol.procedures import registry
from tacit_protocol.signing.tokens import issue_token
from tacit_protocol.verification import verify_transcript
from tacit_services.agent.loops import Loops
from tacit_services.agent.tester_client import TesterClient
from tacit_services.curator.service import make_app, make_curator, open_foundation
from tacit_services.curator.settings import CuratorSettings
from tacit_services.shared.database import create_engine, run_transaction, upgrade
from tacit_services.shared.http_server import Stopping
from tacit_services.tester.transcripts import transcript_of

URL = "https://curator.example"
OPERATOR = CURATOR
COLUMNS = [{"kind": "numeric", "name": "x", "lower": 0.0, "upper": 10.0}]
CSV = b"x\n" + b"".join(b"%d\n" % (i % 10) for i in range(60))


def registration(approval: str) -> dict[str, Any]:
    policy = {
        "approval": approval,
        "epsilon_per_study_max": 1.0,
        "delta_per_study_max": 1e-5,
        "respond_after_s_min": 0,
        "analysts": ["*"],
    }
    return {"columns": COLUMNS, "epsilon": 2.0, "delta": 1e-5, "policy": policy}


class World:
    """A curator's app as its settings make it, and a tester in memory."""

    def __init__(self, folder: Path, network: Network) -> None:
        (folder / "curator.pem").write_bytes(key_of(CURATOR).to_pem())
        (folder / "storage.key").write_text("3b" * 32)
        self.settings = CuratorSettings(
            name=CURATOR,
            url=URL,
            key_file=folder / "curator.pem",
            database_url=f"sqlite:///{folder / 'curator.sqlite3'}",
            storage_folder=folder / "rows",
            storage_keys_file=folder / "storage.key",
            tester_url=TESTER_URL,
            tester_key=key_of("tester").public_hex,
            respond_after_s_min=0,
        )
        self.network = network
        self.tester_engine = create_engine(f"sqlite:///{folder / 'tester.sqlite3'}")
        upgrade(self.tester_engine, "tester")
        run_transaction(self.tester_engine, enrol_at_tester)
        network.app = make_tester(folder, TESTER_URL, self.tester_engine, lambda: NOW)
        self.base = open_foundation(self.settings, lambda: NOW)
        stop = threading.Event()
        self.curator = make_curator(self.base, PROCEDURES, stop, SeededNoise(1))
        self.app = make_app(self.base, self.curator, Loops(self.curator, stop, 0), Stopping())

    def close(self) -> None:
        self.curator._client.close()
        self.base.store.release()
        self.base.engine.dispose()
        self.tester_engine.dispose()
        close_network(self.network)

    def call(self, method: str, path: str, party: str, **options: Any) -> httpx.Response:
        headers = {"authorization": f"Bearer {issue_token(key_of(party), URL, NOW)}"}
        headers |= options.pop("headers", {})

        async def send() -> httpx.Response:
            transport = httpx.ASGITransport(app=self.app, raise_app_exceptions=False)
            async with httpx.AsyncClient(transport=transport, base_url=URL) as client:
                return await client.request(method, path, headers=headers, **options)

        return asyncio.run(send())

    def add_owner(self, name: str, approval: str) -> None:
        invited = self.call("POST", "/v1/invitations", OPERATOR, json={"name": name}).json()
        body = {"invitation": invited["invitation"], "name": name, "key": key_of(name).public_hex}
        assert self.call("POST", "/v1/enrolments", name, json=body).status_code == 201
        path = f"/v1/data-sets/{name}/patients"
        assert self.call("PUT", path, name, json=registration(approval)).status_code == 201
        sent = self.call("PUT", path + "/rows", name, content=CSV, headers={"content-type": "text/csv"})
        assert sent.status_code == 201, sent.text

    def ask(self, *owners: str) -> str:
        name, envelope = sealed(curated_study_of(owners))
        headers = {
            "authorization": f"Bearer {issue_token(key_of('ada'), TESTER_URL, NOW)}",
            "content-type": "application/json",
        }
        request = httpx.Request("PUT", f"{TESTER_URL}/v1/studies/{name}", headers=headers, content=envelope)
        assert self.network.deliver(request).status_code == 201
        self.turn()
        return name

    def turn(self) -> None:
        self.curator.poll(0)
        self.curator.work()


@pytest.fixture
def world(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[World]:
    """Two owners who decide by hand, and one, east, who lets its policy decide."""
    network = Network()
    patched = partial(TesterClient, transport=httpx.MockTransport(network.carry))
    monkeypatch.setattr("tacit_services.curator.service.TesterClient", patched)
    for name, procedure in PROCEDURES.items():
        monkeypatch.setitem(registry.PROCEDURES, name, procedure)
    world = World(tmp_path, network)
    for owner, approval in (("east", "automatic"), ("north", "by-hand"), ("west", "by-hand")):
        world.add_owner(owner, approval)
    yield world
    world.close()


def slug(response: httpx.Response) -> str:
    return str(response.json()["type"]).removeprefix("urn:tacit:problem:")


def test_a_study_from_upload_to_verdict(world: World) -> None:
    study = world.ask("east", "north", "west")
    path = f"/v1/studies/{study}"
    shown = world.call("GET", path, "west").json()
    assert shown["state"] == "waiting-for-approval"
    assert [(item["owner"], item["decision"], item["decided_by"]) for item in shown["owners"]] == [
        ("east", "approved", "policy"),
        ("north", "waiting", None),
        ("west", "waiting", None),
    ]
    assert [item["account"] for item in shown["accounts"]] == ["west/patients"]
    assert "of west/patients" in shown["plain_words"]
    assert f"The curator {CURATOR} computes it" in shown["plain_words"]
    assert world.call("POST", path + "/approval", "west", json={}).json()["state"] == "waiting-for-approval"
    assert world.call("POST", path + "/approval", "north", json={}).json()["state"] == "approved"
    world.turn()
    assert world.network.app is not None
    world.network.app.state.worker.run_once()
    world.curator.fetch_verdicts()
    assert world.call("GET", path, "west").json()["verdict"]["outcome"] == "completed"
    transcript = run_transaction(world.tester_engine, lambda c: transcript_of(c, study), read_only=True)
    verified = verify_transcript(transcript or b"", key_of("tester").public_hex)
    assert verified.releases[CURATOR].units_by_owner == {"east": 60, "north": 60, "west": 60}


def test_an_owner_sees_its_own_studies_and_ledger_alone(world: World) -> None:
    study, other = world.ask("east", "north"), world.ask("east")
    seen = {
        party: {item["digest"] for item in world.call("GET", "/v1/studies", party).json()["items"]}
        for party in ("east", "north", "west", OPERATOR)
    }
    assert seen == {"east": {study, other}, "north": {study}, "west": set(), OPERATOR: {study, other}}
    assert slug(world.call("GET", f"/v1/studies/{study}", "west")) == "unknown-study"
    assert slug(world.call("POST", f"/v1/studies/{study}/approval", "west", json={})) == "unknown-study"
    ledgers = {
        party: {entry["data_set"] for entry in world.call("GET", "/v1/ledger", party).json()["entries"]}
        for party in ("north", OPERATOR)
    }
    assert ledgers == {
        "north": {"north/patients"},
        OPERATOR: {"east/patients", "north/patients", "west/patients"},
    }
    assert slug(world.call("GET", "/v1/ledger?data_set=east/patients", "north")) == "forbidden"
    assert slug(world.call("GET", "/v1/ledger?data_set=staff", "north")) == "unknown-data-set"
    assert world.call("GET", "/v1/ledger?data_set=patients", "north").json()["entries"]


def test_each_owner_verifies_its_own_accounts(world: World) -> None:
    world.ask("east")
    found = world.call("GET", "/v1/ledger/verification", "east").json()
    assert [(item["data_set"], item["entries"]) for item in found["accounts"]] == [("east/patients", 2)]
    kept = found["accounts"][0]["head_hash"]
    assert world.call("GET", f"/v1/ledger/verification?kept={kept}", "east").json()["ok"]
    assert not world.call("GET", f"/v1/ledger/verification?kept={'0' * 64}", "east").json()["ok"]
    assert len(world.call("GET", "/v1/ledger/verification", OPERATOR).json()["accounts"]) == 3


def test_the_operator_decides_for_nobody(world: World) -> None:
    study = world.ask("east", "north")
    for decision in ("approval", "decline"):
        assert slug(world.call("POST", f"/v1/studies/{study}/{decision}", OPERATOR, json={})) == "forbidden"
    assert slug(world.call("POST", f"/v1/studies/{study}/approval", "east", json={})) == "already-decided"


def test_a_decline_and_its_note(world: World) -> None:
    study = world.ask("east", "north", "west")
    path = f"/v1/studies/{study}"
    shown = world.call("POST", path + "/decline", "west", json={"reason": "not this year"}).json()
    assert (shown["state"], shown["reason"]) == ("declined", "not this year")
    assert world.call("GET", path, OPERATOR).json()["reason"] == "not this year"
    assert world.call("GET", path, "north").json()["reason"] is None
    assert slug(world.call("POST", path + "/approval", "north", json={})) == "already-decided"


def test_why_a_study_was_refused_is_not_told_to_other_owners(world: World) -> None:
    study = world.ask("east", "north")
    world.call("DELETE", "/v1/data-sets/east/patients", "east")
    world.turn()
    shown = world.call("GET", f"/v1/studies/{study}", "north").json()
    assert (shown["state"], shown["problem"], shown["reason"]) == ("refused", None, None)
    assert world.call("GET", f"/v1/studies/{study}", OPERATOR).json()["problem"] == "policy-refused"


def test_strangers_and_tokens_for_others_are_refused(world: World) -> None:
    study = world.ask("east", "north")
    for path in ("/v1/studies", f"/v1/studies/{study}", "/v1/ledger", "/v1/ledger/verification"):
        assert slug(world.call("GET", path, "mallory")) == "unknown-party"
        token = issue_token(key_of("north"), TESTER_URL, NOW)
        response = world.call("GET", path, "north", headers={"authorization": f"Bearer {token}"})
        assert slug(response) == "unauthenticated"


def test_health_says_when_a_loop_has_stopped(world: World) -> None:
    assert world.call("GET", "/healthz", "north").status_code == 200
    assert slug(world.call("GET", "/readyz", "north")) == "not-ready"  # the loops were not started
    assert 'tacit_curator_studies{state="sent"} 0' in world.call("GET", "/metrics", "north").text
