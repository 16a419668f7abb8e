"""The services of docker-compose.yml, run as processes with their own settings, reach a verdict."""

import json
import ssl
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from compose_processes import ComposeProcesses

from tacit import Client, StudyDraft
from tacit_protocol.signing import PrivateKey

pytestmark = pytest.mark.long

OWNERS = ("cleveland", "budapest", "long-beach")
ARRIVAL_TIMEOUT_S = 300.0

DRAFT = {
    "title": "Do the patients of three hospitals come from one population?",
    "columns": [
        {"kind": "numeric", "name": "age", "lower": 20, "upper": 90},
        {"kind": "categorical", "name": "sex", "levels": ["0", "1"]},
        {"kind": "categorical", "name": "cp", "levels": ["1", "2", "3", "4"]},
    ],
    "owners": [{"name": owner, "data_set": "heart"} for owner in OWNERS],
    "epsilon": 1.0,
    "delta": 1e-5,
    "open_for_hours": 1.0,
}


@pytest.fixture
def services(tmp_path: Path, postgres_url: str) -> Iterator[ComposeProcesses]:
    services = ComposeProcesses(tmp_path, postgres_url)
    try:
        yield services
    finally:
        services.stop()


def tester_client(services: ComposeProcesses, key: PrivateKey) -> Client:
    return Client(services.url("tester", 8400), key, tls=ssl.create_default_context(cafile=services.ca_file))


def enrol_everyone(services: ComposeProcesses, analyst: PrivateKey) -> None:
    """Enrol by the commands that deploy/README.md gives, and the analyst by the SDK."""
    tester_file = str(services.settings_for_this_machine("tester.toml"))
    invite = ["tacit", "party", "invite", "--config", tester_file, "--json"]
    for owner in OWNERS:
        made = json.loads(services.run_in("tester", *invite, "--role", "owner", "--name", owner))
        services.run_in(f"agent-{owner}", "tacit", "agent", "enrol", "--invitation", made["invitation"])
    made = json.loads(services.run_in("tester", *invite, "--role", "analyst", "--name", "analyst"))
    with tester_client(services, analyst) as client:
        client.enrol(made["invitation"], "analyst", "analyst")


def approve_when_it_arrives(services: ComposeProcesses, owner: str, digest: str) -> None:
    ends_at = time.monotonic() + ARRIVAL_TIMEOUT_S
    while digest not in services.run_in(f"agent-{owner}", "tacit", "agent", "inbox", "--json"):
        assert time.monotonic() < ends_at, services.log(f"agent-{owner}")
    services.run_in(f"agent-{owner}", "tacit", "agent", "approve", digest, "--yes")


@pytest.mark.slow
def test_the_composed_services_run_a_study_to_a_verdict_that_verifies(services: ComposeProcesses) -> None:
    services.start_all("tester", *(f"agent-{owner}" for owner in OWNERS))
    analyst = PrivateKey.generate()
    enrol_everyone(services, analyst)
    with tester_client(services, analyst) as client:
        digest = client.create_study(StudyDraft.from_dict(DRAFT), force=True)
        for owner in OWNERS:
            approve_when_it_arrives(services, owner, digest)
        verdict = client.wait_for_verdict(digest, timeout_s=300)
        assert verdict.outcome == "completed"
        assert set(verdict.result.n) == set(OWNERS)
        client.verify(digest)
    for owner in OWNERS:
        (heart,) = json.loads(services.run_in(f"agent-{owner}", "tacit", "agent", "status", "--json"))[
            "data_sets"
        ]
        # Less than the study's epsilon of 1, since the account's delta is larger than the study's.
        assert 800_000 < heart["gaussian_spent_micro"] <= 1_000_000
        assert 0 < heart["gaussian_left_micro"] < heart["gaussian_share_micro"]
    public = {"services_ca", "dask_ca"}
    files = (services.federation / "secrets").iterdir()
    secrets = [path.read_text() for path in files if path.name not in public]
    logs = "".join(services.log(name) for name in services.processes)
    assert not any(secret.strip() in logs for secret in secrets)
    assert set(services.stop().values()) == {0}


def test_the_profile_of_the_curator_starts_one_that_is_healthy(services: ComposeProcesses) -> None:
    services.start_all("tester", "curator")
    tls = ssl.create_default_context(cafile=services.ca_file)
    with httpx.Client(verify=tls, trust_env=False, timeout=60) as http:
        identity = http.get(services.url("curator", 8720) + "/v1/identity").json()
    assert identity["name"] == "curator"
    tester_file = str(services.settings_for_this_machine("tester.toml"))
    invite = ["tacit", "party", "invite", "--config", tester_file, "--json", "--role", "curator"]
    made = json.loads(services.run_in("tester", *invite, "--name", "curator"))
    services.run_in("curator", "tacit", "curator", "join", "--invitation", made["invitation"])
    assert set(services.stop().values()) == {0}
