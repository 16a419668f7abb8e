"""images"""

import os
import re
import shutil
import subprocess
import sys
import tomllib
from collections.abc import Iterator
from itertools import combinations
from pathlib import Path
from typing import Any

import pytest
import yaml

from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.study.policy import Policy
from tacit_services.curator.__main__ import CuratorSettings
from tacit_services.shared.http_server import KEEP_ALIVE_S
from tacit_services.tester.inboxes import WAIT_S_MAX
from tacit_services.tester.settings import TesterSettings
from tacit_services.tester.web.pages import KEEP_ALIVE_LOOKS, STREAM_LOOK_S

ROOT = Path(__file__).resolve().parents[2]
DOCKERFILE = ROOT / "deploy" / "images" / "Dockerfile"


def instructions(text: str) -> list[tuple[str, str]]:
    """Split a Dockerfile into (instruction, rest), continuation lines joined and comments dropped."""
    lines = [line for line in text.splitlines() if not line.lstrip().startswith("#")]
    joined = re.sub(r"\\\n\s*", "", "\n".join(lines))
    split = (line.split(maxsplit=1) for line in joined.splitlines() if line.strip())
    return [(word.upper(), rest) for word, rest in split]


def stages(text: str) -> dict[str, list[tuple[str, str]]]:
    """Group the instructions by stage; the first of each is its FROM."""
    found: dict[str, list[tuple[str, str]]] = {}
    current: list[tuple[str, str]] = []
    for word, rest in instructions(text):
        if word == "FROM":
            current = found.setdefault(rest.split(" AS ")[1], [])
        current.append((word, rest))
    return found


def lint(text: str) -> subprocess.CompletedProcess[str]:
    """Run hadolint on a Dockerfile's text; it has a binary for Linux on x86-64 alone."""
    hadolint = shutil.which("hadolint", path=os.pathsep.join([str(Path(sys.executable).parent), os.defpath]))
    if hadolint is None:
        pytest.skip("hadolint has no binary for this platform")
    return subprocess.run([hadolint, "-"], input=text, capture_output=True, text=True, check=False)


def test_hadolint_finds_nothing() -> None:
    result = lint(DOCKERFILE.read_text())
    assert result.returncode == 0, result.stdout


def test_every_base_is_one_pinned_python_or_an_earlier_stage() -> None:
    parts = stages(DOCKERFILE.read_text())
    bases = {block[0][1].split(" AS ")[0] for block in parts.values()} - set(parts)
    assert len(bases) == 1
    assert re.fullmatch(r"python:3\.\d+\.\d+-slim-[a-z]+", bases.pop())


def test_every_install_has_hashes_or_fetches_nothing() -> None:
    installs = [
        command
        for word, rest in instructions(DOCKERFILE.read_text())
        if word == "RUN"
        for command in rest.split("&&")
        if "pip install" in command
    ]
    assert installs
    named = [
        re.search(r" --require-hashes -r \S*requirements/(\w+)\.txt *$", command) for command in installs
    ]
    assert [match and match[1] for match in named] == ["build", "dask", None]
    assert " --no-index --no-deps " in installs[2]


@pytest.mark.sweep(1)
@pytest.mark.parametrize("target", ["tester", "agent", "curator"])
def test_a_target_runs_its_own_module_without_root_and_says_when_it_is_ready(target: str) -> None:
    parts = stages(DOCKERFILE.read_text())
    block = dict(parts["base"]) | dict(parts[target])
    user, _, group = block["USER"].partition(":")
    assert int(user) > 0
    assert int(group) > 0
    assert f'"tacit_services.{target}", "serve"' in block["CMD"]
    assert "/readyz" in block["HEALTHCHECK"]
    assert not any(word == "USER" for word, _ in parts[target])


def test_compose_builds_these_targets_and_runs_the_same_commands_as_the_same_user() -> None:
    parts = stages(DOCKERFILE.read_text())
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    built = {name: service for name, service in services.items() if "build" in service}
    worker = built.pop("tester-worker")
    for name in ("setup", "analyst"):  # the agent's image, with commands of their own
        once = built.pop(name)
        assert once["build"] == built["agent-cleveland"]["build"]
        assert once["image"] == built["agent-cleveland"]["image"]
    assert len(built) == 5
    # It runs the tester's image with another command, and listens nowhere.
    assert worker["build"] == built["tester"]["build"]
    assert worker["user"] == built["tester"]["user"]
    assert worker["command"] == ["python", "-m", "tacit_services.tester", "work"]
    assert "ports" not in worker
    for name, service in built.items():
        target = service["build"]["target"]
        assert ROOT / service["build"]["dockerfile"] == DOCKERFILE
        assert service["user"] == dict(parts["base"])["USER"]
        assert yaml.safe_load(dict(parts[target])["CMD"]) == service["command"]
        check = "".join(service["healthcheck"]["test"][-1].split())
        if name.startswith("agent-"):
            assert check in "".join(dict(parts[target])["HEALTHCHECK"].split())
        else:  # the file has them serve TLS, and the image does not know by which certificates
            assert "HTTPSConnection('127.0.0.1'" in check
            assert "cafile='/run/secrets/services_ca'" in check
            assert "c.request('GET','/readyz');exit(c.getresponse().status!=200)" in check


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
    once = service.get("profiles") in (["setup"], ["analyst"])
    if not service.get("healthcheck", {}).get("test") and not once:
        yield "it has no health check"
    if once and service.get("restart") != "no":
        yield "it would run again"
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
        # Keys and data are made by a service that no other can reach, and that serves nothing.
        makes = service.get("profiles") == ["setup"] and service["networks"] == ["setup"]
        if source.startswith("./") and mode != ["ro"] and not makes:
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
    for name in [*agents, "postgres", "curator"]:
        if set(services[name]["networks"]) & set(services["analyst"]["networks"]):
            yield f"{name} can reach the analyst"
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
        ("analyst", {"networks": ["analysts", "tester-budapest"]}, "can reach the analyst"),
        ("setup", {"networks": ["analysts"]}, "can write to the host's files"),
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


SETTINGS = ROOT / "deploy" / "settings"
UNITS = sorted((ROOT / "deploy" / "systemd").glob("*.service"))
OURS = [path for path in UNITS if not path.stem.startswith("tacit-dask-")]
SETTINGS_OF = {"tester": TesterSettings, "agent": AgentSettings, "curator": CuratorSettings}


@pytest.fixture(autouse=True)
def _no_settings_from_this_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("TACIT_CONFIG", raising=False)


def test_the_agent_takes_its_example_and_its_policy() -> None:
    settings = AgentSettings.load(SETTINGS / "agent.toml")
    policy = Policy.load(settings.policy_file)
    assert {data_set.name for data_set in settings.data_sets} == set(policy.data_sets)
    assert policy.approval == "by-hand"
    for data_set in settings.data_sets:
        assert policy.maximum.epsilon_micro <= data_set.caps.epsilon_micro
        assert policy.maximum.delta_pico <= data_set.caps.delta_pico


def unit(path: Path) -> dict[str, list[str]]:
    """Read a unit's [Service] section; a key may occur several times."""
    found: dict[str, list[str]] = {}
    section = path.read_text().partition("[Service]")[2].partition("[Install]")[0].replace("\\\n", " ")
    for line in section.splitlines():
        if line and not line.startswith("#"):
            key, _, value = line.partition("=")
            found.setdefault(key, []).append(value)
    return found


def confinement(path: Path) -> list[str]:
    """The lines that say what a service may not do, from the first one on."""
    lines = path.read_text().splitlines()
    return lines[lines.index("NoNewPrivileges=yes") : lines.index("[Install]")]


@pytest.mark.parametrize("path", UNITS, ids=lambda path: path.name)
def test_a_unit_is_confined_and_gets_its_keys_from_systemd(path: Path) -> None:
    service = unit(path)
    assert service["DynamicUser"] == ["yes"]
    assert service["NoNewPrivileges"] == ["yes"]
    assert service["CapabilityBoundingSet"] == [""]
    assert service["ProtectSystem"] == ["strict"]
    assert confinement(path) == confinement(ROOT / "deploy" / "systemd" / "tacit-agent.service")
    handed = {f"%d/{credential.partition(':')[0]}" for credential in service["LoadCredential"]}
    named = {value for line in service["Environment"] if (value := line.partition("=")[2]).startswith("%d/")}
    assert handed == named
    assert re.fullmatch(r"[1-9]\d*G", *service["MemoryMax"])


@pytest.mark.parametrize("path", OURS, ids=lambda path: path.name)
def test_a_unit_runs_its_service(path: Path) -> None:
    kind, _, worker = path.stem.removeprefix("tacit-").partition("-")
    service = unit(path)
    verb = "work" if worker else "serve"
    assert service["ExecStart"] == [f"/opt/tacit/bin/python -m tacit_services.{kind} {verb}"]
    known = {f"TACIT_{kind.upper()}_{name.upper()}" for name in SETTINGS_OF[kind].model_fields}
    named = {variable.partition("=")[0] for variable in service["Environment"]}
    assert {name.removesuffix("_FILE") for name in named - known} <= known | {"TACIT_CONFIG"}


def test_the_balancer_waits_longer_than_any_poll_and_asks_who_is_ready() -> None:
    text = (SETTINGS / "haproxy.cfg").read_text()
    for side in ("client", "server"):
        (seconds,) = re.findall(rf"timeout {side} (\d+)s", text)
        assert int(seconds) > WAIT_S_MAX + STREAM_LOOK_S * KEEP_ALIVE_LOOKS / 2
    (idle_s,) = re.findall(r"timeout http-keep-alive (\d+)s", text)
    assert int(idle_s) < KEEP_ALIVE_S
    assert "option httpchk GET /readyz" in text


def test_the_examples_hold_no_key() -> None:
    for name in ("agent.toml", "curator.toml"):
        assert set(tomllib.loads((SETTINGS / name).read_text())["tester_key"]) == {"0"}


def test_the_example_policies_run_every_procedure(tmp_path: Path) -> None:
    script = [sys.executable, str(ROOT / "deploy" / "make_federation.py"), str(tmp_path / "made")]
    subprocess.run(script, check=True, capture_output=True, timeout=300)
    policies = [Policy.load(path) for path in (tmp_path / "made").glob("*/settings/policy.toml")]
    assert [policy.procedures for policy in policies] == [("*",)] * 3
    assert {policy.approval for policy in policies} == {"by-hand"}
