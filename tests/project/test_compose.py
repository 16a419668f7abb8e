"""docker-compose.yml isolates the owners, hardens every container and keeps secrets out of the file.

There is no engine here to build with: these tests read the file. The end-to-end test of the services runs
the commands and environments that it states.
"""

import re
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

ROOT = Path(__file__).resolve().parents[2]
PINNED_TAG = re.compile(r"[a-z0-9/-]+:\d+(\.\d+)+(-[a-z0-9]+)*")
SECRET_NAMES = ("PASSWORD", "KEY", "TOKEN", "SECRET", "DATABASE_URL")

Compose = dict[str, Any]


@pytest.fixture
def compose() -> Compose:
    document = yaml.safe_load((ROOT / "docker-compose.yml").read_text())
    assert isinstance(document, dict)
    return document


def agents_of(compose: Compose) -> list[str]:
    return [name for name in compose["services"] if name.startswith("agent-")]


def mounts_of(service: dict[str, Any]) -> list[list[str]]:
    return [volume.split(":") for volume in service.get("volumes", [])]


def faults_of(compose: Compose) -> Iterator[str]:
    """Say everything that is wrong with the file, one line each."""
    for name, service in compose["services"].items():
        yield from (f"{name}: {fault}" for fault in faults_of_service(service, compose))
    yield from faults_between_agents(compose)
    yield from faults_of_cluster(compose)


def faults_of_service(service: dict[str, Any], compose: Compose) -> Iterator[str]:
    if service.get("read_only") is not True:
        yield "its root file system can be written"
    if service.get("cap_drop") != ["ALL"] or service.get("cap_add"):
        yield "it keeps capabilities"
    if "no-new-privileges:true" not in service.get("security_opt", []):
        yield "it may gain privileges"
    if service.get("privileged") or service.get("network_mode") or service.get("pid"):
        yield "it shares the host's namespaces"
    if re.fullmatch(r"[1-9]\d*:[1-9]\d*", service.get("user", "")) is None:
        yield "its user is not stated, or is root"
    if not service.get("healthcheck", {}).get("test"):
        yield "it has no health check"
    if PINNED_TAG.fullmatch(service["image"]) is None:
        yield "its image has no exact tag"
    if not isinstance(service.get("command", []), list):
        yield "its command goes through a shell"
    if not service.get("mem_limit") or service.get("memswap_limit") != service["mem_limit"]:
        yield "its memory has no limit, or it may swap"
    for key, value in service.get("environment", {}).items():
        if "http://" in str(value) or "INSECURE" in key:
            yield f"{key} lets it talk in the clear"
    for key, value in service.get("environment", {}).items():
        if any(secret in key for secret in SECRET_NAMES) and not (
            key.endswith("_FILE") and value.removeprefix("/run/secrets/") in service.get("secrets", [])
        ):
            yield f"{key} is a secret outside of a file, or not among its secrets"
    for secret in service.get("secrets", []):
        if not compose["secrets"].get(secret, {}).get("file", "").startswith("./deploy/federation/secrets/"):
            yield f"the secret {secret} is not a file that git ignores"
    for network in service.get("networks", []):
        if network not in compose["networks"]:
            yield f"it joins the unknown network {network}"
    for source, target, *mode in mounts_of(service):
        if source.startswith("./") and mode != ["ro"]:
            yield f"it can write to the host's files at {target}"
        if not source.startswith("./") and source not in compose["volumes"]:
            yield f"it mounts the unknown volume {source}"


def faults_between_agents(compose: Compose) -> Iterator[str]:
    services = compose["services"]
    agents = agents_of(compose)
    if len(agents) < 3:
        yield "there are fewer than three agents"
    for name in agents:
        agent = services[name]
        if agent.get("ports") or agent.get("expose"):
            yield f"{name}: an agent has an inbound port"
        for network in agent["networks"]:
            if not (compose["networks"][network] or {}).get("internal"):
                yield f"{name}: the network {network} leads out"
        if not any(target == "/data" and mode == ["ro"] for _, target, *mode in mounts_of(agent)):
            yield f"{name}: its data is not mounted read-only"
        if not set(agent["networks"]) & set(services["tester"]["networks"]):
            yield f"{name}: it cannot reach the tester"
    for first, second in combinations([*agents, "postgres", "curator"], 2):
        if set(services[first]["networks"]) & set(services[second]["networks"]):
            yield f"{first} and {second} can reach each other"
    for first, second in combinations(agents, 2):
        writable = [
            {mount[0] for mount in mounts_of(services[agent]) if mount[2:] != ["ro"]}
            for agent in (first, second)
        ]
        if writable[0] & writable[1]:
            yield f"{first} and {second} share a volume"
        if data_of(services[first]) == data_of(services[second]):
            yield f"{first} and {second} share their data"
        # The certificate that both trust the tester by is no secret.
        secrets = (set(services[first]["secrets"]) & set(services[second]["secrets"])) - {"services_ca"}
        if secrets:
            yield f"{first} and {second} share a secret"


def cluster_of(compose: Compose) -> dict[str, dict[str, Any]]:
    return {name: found for name, found in compose["services"].items() if found.get("profiles") == ["dask"]}


def faults_of_cluster(compose: Compose) -> Iterator[str]:
    """Say what lets rows out of a Dask cluster, or others than its agent into it."""
    owner = compose["services"]["agent-cleveland"]
    for name, service in cluster_of(compose).items():
        if service.get("ports") or service.get("expose"):
            yield f"{name}: a cluster has an inbound port"
        if "--no-dashboard" not in service["command"]:
            yield f"{name}: it shows a dashboard"
        if service["image"] != owner["image"]:
            yield f"{name}: it may run other versions than its agent"
        if {secret for secret in service["secrets"] if secret in owner["secrets"]} != {"dask_ca"}:
            yield f"{name}: it holds its agent's key"
        for network in service["networks"]:
            members = {other for other, found in compose["services"].items() if network in found["networks"]}
            if members != {"agent-cleveland", *cluster_of(compose)}:
                yield f"{name}: others than its agent can reach it"
            if not (compose["networks"][network] or {}).get("internal"):
                yield f"{name}: the network {network} leads out"
    if data_of(compose["services"]["dask-worker"]) != data_of(owner):
        yield "dask-worker: it reads other data than its agent"


def data_of(agent: dict[str, Any]) -> str:
    return next((source for source, target, *_ in mounts_of(agent) if target == "/data"), "")


def test_the_file_has_no_fault(compose: Compose) -> None:
    assert list(faults_of(compose)) == []


@pytest.mark.parametrize(
    ("name", "changed", "fault"),
    [
        ("tester", {"cap_add": ["NET_ADMIN"]}, "keeps capabilities"),
        ("postgres", {"user": "0:0"}, "is root"),
        ("postgres", {"environment": {"POSTGRES_PASSWORD": "tacit"}}, "secret outside of a file"),
        ("agent-cleveland", {"networks": ["tester-budapest"]}, "can reach each other"),
        ("agent-cleveland", {"secrets": ["budapest_key"]}, "share a secret"),
        ("agent-cleveland", {"volumes": ["./deploy/federation/budapest/data:/data:ro"]}, "share their data"),
        ("dask-worker", {"networks": ["owners"]}, "the network owners leads out"),
    ],
)
def test_a_planted_fault_is_seen(compose: Compose, name: str, changed: Compose, fault: str) -> None:
    compose["services"][name] |= changed
    assert any(fault in line for line in faults_of(compose)), list(faults_of(compose))


def test_tester_and_curator_are_published_on_this_machine_alone(compose: Compose) -> None:
    published = {
        name: service["ports"] for name, service in compose["services"].items() if "ports" in service
    }
    assert list(published) == ["tester", "curator"]
    assert all(port.startswith("127.0.0.1:") for ports in published.values() for port in ports)


def test_the_cluster_keeps_rows_in_memory_and_its_settings_name_the_secrets_it_is_given(
    compose: Compose,
) -> None:
    path = "deploy/settings/dask.yaml"
    settings = yaml.safe_load((ROOT / path).read_text())["distributed"]
    assert settings["worker"]["memory"]["target"] is False
    assert settings["worker"]["memory"]["spill"] is False
    assert settings["comm"]["require-encryption"] is True
    for role in ("scheduler", "worker"):
        assert settings[role]["http"]["routes"] == ["distributed.http.health"]
        service, tls = compose["services"][f"dask-{role}"], settings["comm"]["tls"]
        named = {tls["ca-file"], tls[role]["cert"], tls[role]["key"]}
        assert named == {f"/run/secrets/{secret}" for secret in service["secrets"]}
        assert f"./{path}:{service['environment']['DASK_CONFIG']}:ro" in service["volumes"]


def test_secrets_and_data_are_ignored_by_git_and_by_the_image_build() -> None:
    ignored = (ROOT / ".gitignore").read_text().splitlines()
    assert "/deploy/federation/" in ignored
    admitted = {line for line in (ROOT / ".dockerignore").read_text().splitlines() if line.startswith("!")}
    assert (ROOT / ".dockerignore").read_text().splitlines()[1] == "*"
    names = ("pyproject.toml", "requirements", "README.md", "LICENSE", "protocol", "services", "clients")
    assert admitted == {f"!{name}" for name in names}
