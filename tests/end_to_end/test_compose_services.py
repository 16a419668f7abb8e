"""The services of docker-compose.yml, run as processes with their own settings, reach a verdict."""

import json
import os
import shutil
import socketserver
import ssl
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import httpx
import pytest
from compose_processes import ComposeProcesses

from tacit import Client, StudyDraft
from tacit_protocol.signing import PrivateKey

pytestmark = pytest.mark.long

ROOT = Path(__file__).resolve().parents[2]
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
    services.set_up()
    try:
        yield services
    finally:
        services.stop()


def tester_client(services: ComposeProcesses, key: PrivateKey) -> Client:
    return Client(services.url("tester", 8400), key, tls=ssl.create_default_context(cafile=services.ca_file))


def enrol_everyone(services: ComposeProcesses, analyst: PrivateKey) -> None:
    """Enrol by the commands that deploy/README.md gives, and the analyst by the SDK."""
    invite = ["tacit", "party", "invite", "--json"]
    for owner in OWNERS:
        made = json.loads(services.run_in("tester", *invite, "--role", "owner", "--name", owner))
        services.run_in(f"agent-{owner}", "tacit", "agent", "enrol", "--invitation", made["invitation"])
    made = json.loads(services.run_in("tester", *invite, "--role", "analyst", "--name", "analyst"))
    with tester_client(services, analyst) as client:
        client.enrol(made["invitation"], "analyst", "analyst")


def approve_when_it_arrives(services: ComposeProcesses, owner: str, digest: str) -> None:
    ends_at = time.monotonic() + ARRIVAL_TIMEOUT_S
    while digest not in services.run_in(f"agent-{owner}", "tacit", "agent", "studies", "--json"):
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
    invite = ["tacit", "party", "invite", "--json", "--role", "curator"]
    made = json.loads(services.run_in("tester", *invite, "--name", "curator"))
    services.run_in("curator", "tacit", "curator", "enrol", "--invitation", made["invitation"])
    assert set(services.stop().values()) == {0}


DOCKER = """#!{python}
import json, socket, sys
with socket.socket(socket.AF_UNIX) as engine:
    engine.connect("{address}")
    engine.sendall(json.dumps(sys.argv[1:]).encode() + b"\\n")
    told = json.loads(engine.makefile().readline())
sys.stdout.write(told["out"])
sys.stderr.write(told["err"])
sys.exit(told["code"])
"""
"""Where ``docker`` would be: hands its words to the test, which does with processes what they say."""


class Engine:
    """Does what ``docker compose`` is told by deploy/first_study.sh, and refuses other words."""

    def __init__(self, services: ComposeProcesses) -> None:
        self.services = services
        self.told: list[list[str]] = []

    def do(self, words: list[str]) -> tuple[int, str, str]:
        self.told.append(words)
        compose, verb, *rest = words
        assert compose == "compose"
        if verb == "up":
            assert rest == ["--build", "--detach", "--wait"]
            always = {
                name for name, found in self.services.compose["services"].items() if "profiles" not in found
            }
            self.services.start_all(*sorted(always - {"postgres"}))
            return 0, "", ""
        known = {"run": {"--rm", "-T", "--build", "--user"}, "exec": {"-T"}}[verb]
        while rest[0].startswith("-"):
            flag = rest.pop(0)
            assert flag in known
            if flag == "--user":
                assert rest.pop(0) == f"{os.getuid()}:{os.getgid()}"
        name, *command = rest
        if name == "setup":
            self.services.set_up()
            return 0, "", ""
        assert verb == "run" or name in self.services.processes
        done = self.services.ran_in(name, *command)
        return done.returncode, done.stdout, done.stderr

    def serve(self, address: Path) -> socketserver.UnixStreamServer:
        """Listen at a socket of that name, in a thread of its own."""
        engine = self

        class Handler(socketserver.StreamRequestHandler):
            def handle(self) -> None:
                try:
                    code, out, err = engine.do(json.loads(self.rfile.readline()))
                except Exception as error:  # the script fails, and with it the test
                    code, out, err = 125, "", repr(error)
                self.wfile.write(json.dumps({"code": code, "out": out, "err": err}).encode() + b"\n")

        server = socketserver.UnixStreamServer(str(address), Handler)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return server


def test_one_command_leads_from_nothing_to_a_verdict_without_python_on_the_host(
    tmp_path: Path, postgres_url: str
) -> None:
    """The script itself, and each service's own command, run as processes by a stand-in for the engine."""
    folder = tmp_path / "deploy"
    folder.mkdir()
    script = shutil.copy(ROOT / "deploy" / "first_study.sh", folder)
    services = ComposeProcesses(folder, postgres_url)
    engine = Engine(services)
    socket = tmp_path / "engine"
    programs = tmp_path / "programs"
    programs.mkdir()
    for name in ("sh", "dirname", "id", "sed", "tr", "sleep"):  # all that the host needs but docker
        (programs / name).symlink_to(shutil.which(name) or name)
    docker = programs / "docker"
    docker.write_text(DOCKER.format(python=sys.executable, address=socket))
    docker.chmod(0o700)
    run = [str(programs / "sh"), script]
    environment = {"PATH": str(programs)}
    with engine.serve(socket) as server:
        try:
            done = subprocess.run(run, capture_output=True, text=True, env=environment, check=False)
            assert done.returncode == 0, done.stdout + done.stderr
            again = subprocess.run(run, capture_output=True, text=True, env=environment, check=False)
        finally:
            services.stop()
            server.shutdown()
    assert "Verified: " in done.stdout
    assert "Verdict: " in done.stdout
    assert [words[1] for words in engine.told[:2]] == ["run", "up"]
    assert (again.returncode, "there is a federation already" in again.stderr) == (1, True)
    (folder / "federation" / "secrets").stat()  # and nothing of it was touched
