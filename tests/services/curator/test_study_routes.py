"""Studies and ledger at the curator over HTTP: who sees what, who may decide, and a study from end to end."""

from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from curated_world import CURATOR
from curator_federation import OPERATOR, CuratorFederation, curator_federation
from fault_world import NOW, key_of
from fault_world import URL as TESTER_URL

from tacit_protocol.signing import issue_token
from tacit_protocol.verification import verify_transcript


@pytest.fixture
def world(tmp_path: Path) -> Iterator[CuratorFederation]:
    """Two owners who decide by hand, and one, east, who lets its policy decide."""
    with curator_federation(tmp_path) as federation:
        for owner, approval in (("east", "automatic"), ("north", "by-hand"), ("west", "by-hand")):
            federation.add_owner(owner, approval)
        yield federation


def slug(response: httpx.Response) -> str:
    return str(response.json()["type"]).removeprefix("urn:tacit:problem:")


def test_a_study_from_upload_to_verdict(world: CuratorFederation) -> None:
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
    assert shown["warnings"] == ["there are 180 units"]
    assert world.call("POST", path + "/approval", "west", json={}).json()["state"] == "waiting-for-approval"
    assert world.call("POST", path + "/approval", "north", json={}).json()["state"] == "approved"
    world.turn()
    verified = verify_transcript(world.end(study), key_of("tester").public_hex)
    assert world.call("GET", path, "west").json()["verdict"]["outcome"] == "completed"
    assert verified.releases[CURATOR].units_by_owner == {"east": 60, "north": 60, "west": 60}


def test_an_owner_sees_its_own_studies_and_ledger_alone(world: CuratorFederation) -> None:
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


def test_each_owner_verifies_its_own_accounts(world: CuratorFederation) -> None:
    world.ask("east")
    found = world.call("GET", "/v1/ledger/verification", "east").json()
    assert [(item["data_set"], item["entries"]) for item in found["accounts"]] == [("east/patients", 2)]
    kept = found["accounts"][0]["head_hash"]
    assert world.call("GET", f"/v1/ledger/verification?kept={kept}", "east").json()["ok"]
    assert not world.call("GET", f"/v1/ledger/verification?kept={'0' * 64}", "east").json()["ok"]
    assert len(world.call("GET", "/v1/ledger/verification", OPERATOR).json()["accounts"]) == 3


def test_the_operator_decides_for_nobody(world: CuratorFederation) -> None:
    study = world.ask("east", "north")
    for decision in ("approval", "decline"):
        assert slug(world.call("POST", f"/v1/studies/{study}/{decision}", OPERATOR, json={})) == "forbidden"
    assert slug(world.call("POST", f"/v1/studies/{study}/approval", "east", json={})) == "already-decided"


def test_a_decline_and_its_note(world: CuratorFederation) -> None:
    study = world.ask("east", "north", "west")
    path = f"/v1/studies/{study}"
    shown = world.call("POST", path + "/decline", "west", json={"reason": "not this year"}).json()
    assert (shown["state"], shown["reason"]) == ("declined", "not this year")
    assert world.call("GET", path, OPERATOR).json()["reason"] == "not this year"
    assert world.call("GET", path, "north").json()["reason"] is None
    assert slug(world.call("POST", path + "/approval", "north", json={})) == "already-decided"


def test_why_a_study_was_refused_is_not_told_to_other_owners(world: CuratorFederation) -> None:
    study = world.ask("east", "north")
    world.call("DELETE", "/v1/data-sets/east/patients", "east")
    world.turn()
    shown = world.call("GET", f"/v1/studies/{study}", "north").json()
    assert (shown["state"], shown["problem"], shown["reason"]) == ("refused", None, None)
    assert world.call("GET", f"/v1/studies/{study}", OPERATOR).json()["problem"] == "policy-refused"


def test_strangers_and_tokens_for_others_are_refused(world: CuratorFederation) -> None:
    study = world.ask("east", "north")
    for path in ("/v1/studies", f"/v1/studies/{study}", "/v1/ledger", "/v1/ledger/verification"):
        assert slug(world.call("GET", path, "mallory")) == "unknown-party"
        token = issue_token(key_of("north"), TESTER_URL, NOW)
        response = world.call("GET", path, "north", headers={"authorization": f"Bearer {token}"})
        assert slug(response) == "unauthenticated"


def test_health_says_when_a_loop_has_stopped(world: CuratorFederation) -> None:
    assert world.call("GET", "/healthz", "north").status_code == 200
    assert slug(world.call("GET", "/readyz", "north")) == "not-ready"  # the loops were not started
    assert 'tacit_curator_studies{state="sent"} 0' in world.call("GET", "/metrics", "north").text
