"""A tester and a curator with certificates by an authority of one's own: every command that calls them works.

Real processes that serve TLS, and a real authority. Which commands there are is read from the command itself,
so that a new one is either run here or said to call nobody.
"""

import importlib.util
import json
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest
from typer.main import get_command

from tacit.client.http import HttpRequest
from tacit.client.transport import HttpTransport, tls_of
from tacit.command.app import command_tree, run
from tacit.errors import TransportError
from tacit.setup.configuration import (
    CuratorAddress,
    DataSetSetup,
    PolicySetup,
    TesterAddress,
    init_agent,
    init_curator,
    init_owner,
    init_party,
    init_tester,
    toml_text,
)
from tacit.setup.keys import load_key
from tacit.setup.processes import ServiceKind, ServiceProcess, free_ports, service_command, stop_all

ROOT = Path(__file__).resolve().parents[2]
READY_S = 300.0
DIGEST = "ab" * 32

HERE = {
    # Become a service, or look at this machine's own files.
    *("tester serve", "tester work", "tester archive", "agent serve", "curator serve"),
    *("agent certificate", "data check", "data align make", "data align compare"),
    *("data align list", "data align forget"),
    # Ask one's own agent, on this machine, which the agent's own setting lets call a tester.
    *(
        "agent login",
        "agent status",
        "agent inbox",
        "agent show",
        "agent reuses",
        "agent result",
        "agent approve",
    ),
    *("agent decline", "ledger show", "ledger export", "ledger verify"),
}
"""Commands that take a configuration and call no tester and no curator."""


@dataclass(frozen=True)
class Federation:
    """A tester and a curator that serve TLS, and everybody's files."""

    folder: Path
    ca_file: Path
    party: Path
    tester: Path
    curator: Path
    owner: Path
    agent: Path
    services: list[ServiceProcess]


def certificates() -> Any:
    path = ROOT / "deploy" / "certificates.py"
    spec = importlib.util.spec_from_file_location("certificates", path)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def add(file: Path, **fields: str) -> Path:
    """Add settings at the top of a configuration, in place of those of the same names."""
    kept = [line for line in file.read_text().splitlines() if line.split(" = ")[0] not in fields]
    file.write_text(toml_text(fields) + "\n".join(kept) + "\n")
    return file


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("private")
    for name, content in certificates().service_secrets():
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    tester_port, curator_port = free_ports(2)
    urls = {"tester": f"https://127.0.0.1:{tester_port}", "curator": f"https://localhost:{curator_port}"}

    def serving(file: Path, name: str) -> Path:
        tls = {"tls_certificate_file": f"{name}_tls_certificate", "tls_key_file": f"{name}_tls_key"}
        return add(file, **{setting: str(folder / path) for setting, path in tls.items()})

    tester = init_tester(folder / "tester", "tester", "127.0.0.1", tester_port, urls["tester"])
    at_tester = TesterAddress(urls["tester"], load_key(folder / "tester" / "tester.pem").public_hex)
    curator = init_curator(
        folder / "curator", "registry", at_tester, host="127.0.0.1", port=curator_port, url=urls["curator"]
    )
    at_curator = CuratorAddress(urls["curator"], load_key(folder / "curator" / "curator.pem").public_hex)
    (folder / "north.csv").write_text("age\n" + "40\n" * 200)
    source = DataSetSetup("heart", str(folder / "north.csv"), 1.0, 1e-5)
    agent = init_agent(
        folder / "agent", "north", at_tester, source, PolicySetup(columns=["age"]), host="127.0.0.1", port=1
    )
    made = Federation(
        folder,
        folder / "services_ca",
        init_party(folder / "ann", "ann", at_tester),
        serving(tester, "tester"),
        serving(curator, "curator"),
        init_owner(folder / "owner", "north", at_curator),
        agent,
        [],
    )
    files: dict[ServiceKind, Path] = {"tester": made.tester, "curator": made.curator}
    try:
        for kind, file in files.items():
            command = service_command(kind, "serve", file)
            made.services.append(ServiceProcess.start(kind, command, folder / f"{kind}.log"))
        for url in urls.values():
            wait_until_ready(url, made)
        yield made
    finally:
        stop_all(made.services)


def wait_until_ready(url: str, federation: Federation) -> None:
    ends_at = time.monotonic() + READY_S
    with HttpTransport(url, tls=tls_of(federation.ca_file), sleep=lambda _: None) as sender:
        while True:
            for service in federation.services:
                service.check_running()
            try:
                if sender.send(HttpRequest("GET", "/readyz", signed=False)).status == 200:
                    return
            except TransportError:
                assert time.monotonic() < ends_at
            time.sleep(0.1)


def calls(at: Federation) -> dict[str, list[str]]:
    """Return the arguments of every command that calls a tester or a curator. Some are refused there."""
    party, owner = ["--party", str(at.party)], ["--owner", str(at.owner)]
    tester, curator = ["--config", str(at.tester)], ["--config", str(at.curator)]
    draft = at.folder / "study.toml"
    columns = [{"kind": "numeric", "name": "age", "lower": 0, "upper": 120}]
    owners = [{"name": name, "data_set": "heart"} for name in ("north", "south")]
    draft.write_text(
        toml_text({"title": "x", "columns": columns, "owners": owners, "epsilon": 1.0, "delta": 1e-5})
    )
    data_set = at.folder / "heart.toml"
    policy = {"epsilon_per_study_max": 1.0, "delta_per_study_max": 1e-5, "analysts": ["*"]}
    data_set.write_text(
        toml_text({"name": "heart", "columns": columns, "epsilon": 1.0, "delta": 1e-5, "policy": policy})
    )
    released = [DIGEST, *party]
    return {
        "doctor": ["--config", str(at.party)],
        "party invite": ["--role", "analyst", "--name", "ann", *tester],
        "party enrol": ["--invitation", "x" * 20, *party],
        "party list": party,
        "party invitations": tester,
        "party revoke": ["--name", "nobody", *tester],
        "party login": party,
        "tester login": tester,
        "agent enrol": ["--invitation", "x" * 20, "--config", str(at.agent)],
        "study create": [str(draft), *party],
        "study list": party,
        "study data-sets": party,
        "study show": released,
        "study watch": [*released, "--timeout-s", "0"],
        "study cancel": released,
        "study transcript": [*released, "--output", str(at.folder / "transcript.json")],
        "study report": [*released],
        "release show": released,
        "release expect": [*released, "--column", "age"],
        "release sample": [*released, "--rows", "3", "--output", str(at.folder / "rows.csv")],
        "release export": [*released, "--output", str(at.folder / "points.csv")],
        "release compare": [DIGEST, "cd" * 32, *party],
        "curator join": ["--invitation", "x" * 20, *curator],
        "curator invite": ["--name", "north", *curator],
        "curator invitations": curator,
        "curator revoke": ["--name", "nobody", *curator],
        "curator owners": curator,
        "curator status": curator,
        "curator login": curator,
        "curator enrol": ["--invitation", "x" * 20, *owner],
        "curator register": ["--file", str(data_set), *owner],
        "curator upload": [str(at.folder / "north.csv"), "--data-set", "heart", *owner],
        "curator data-sets": owner,
        "curator delete": ["--data-set", "heart", "--yes", *owner],
        "curator studies": owner,
        "curator study": [DIGEST, *owner],
        "curator approve": [DIGEST, "--yes", *owner],
        "curator decline": [DIGEST, *owner],
        "curator ledger": owner,
        "curator verify-ledger": owner,
    }


def commands_of(tree: Any, name: str = "") -> Iterator[tuple[str, set[str], set[str]]]:
    """Yield each command's name, its options and the variables that they are read from."""
    for verb, inner in tree.commands.items():
        if hasattr(inner, "commands"):
            yield from commands_of(inner, f"{name}{verb} ")
        else:
            options = {option for parameter in inner.params for option in parameter.opts}
            yield f"{name}{verb}", options, {str(parameter.envvar) for parameter in inner.params}


CONFIGURED = {
    "TACIT_PARTY",
    "TACIT_OWNER",
    "TACIT_TESTER_CONFIG",
    "TACIT_CURATOR_CONFIG",
    "TACIT_AGENT_CONFIG",
}


def test_every_command_that_names_a_party_is_run_here_or_calls_nobody(federation: Federation) -> None:
    with_option, configured = set(), set()
    for name, options, variables in commands_of(get_command(command_tree())):
        if "--ca-file" in options:
            with_option.add(name)
        if variables & CONFIGURED:
            configured.add(name)
    assert with_option == set(calls(federation))
    assert configured - with_option == HERE


Say = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def say(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    monkeypatch.delenv("TACIT_CA_FILE", raising=False)
    monkeypatch.setattr("time.sleep", lambda _: None)  # between attempts
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)

    def said(*arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        code = run([*arguments, "--json"])
        captured = capsys.readouterr()
        if captured.err:
            return code, json.loads(captured.err.splitlines()[-1])
        return code, {"said": json.loads(captured.out)}

    return said


def is_unreached(answer: dict[str, Any]) -> bool:
    """Whether the service was not reached, for want of trust in its certificate."""
    if "said" in answer and isinstance(answer["said"], list):  # the doctor's findings
        found = {item.get("name"): item.get("text", "") for item in answer["said"]}
        return "certificate" in str(found.get("tester", ""))
    return answer.get("error") == "TransportError" and "--ca-file" in str(answer.get("message"))


def test_without_the_authority_no_command_speaks_to_the_service(federation: Federation, say: Say) -> None:
    for name, arguments in calls(federation).items():
        code, answer = say(*name.split(), *arguments)
        assert (code, is_unreached(answer)) == (1, True), (name, answer)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("way", ["option", "variable", "setting"])
def test_with_the_authority_every_command_does(
    federation: Federation, say: Say, monkeypatch: pytest.MonkeyPatch, way: str
) -> None:
    told = ["--ca-file", str(federation.ca_file)] if way == "option" else []
    kept = {file: file.read_text() for file in (federation.party, federation.agent, federation.tester)}
    kept |= {file: file.read_text() for file in (federation.curator, federation.owner)}
    if way == "variable":
        monkeypatch.setenv("TACIT_CA_FILE", str(federation.ca_file))
    if way == "setting":
        for file in (federation.party, federation.agent, federation.tester):
            add(file, tester_ca_file="../services_ca")
        add(federation.curator, tester_ca_file="../services_ca", curator_ca_file="../services_ca")
        add(federation.owner, curator_ca_file="../services_ca")
    try:
        for name, arguments in calls(federation).items():
            _, answer = say(*name.split(), *arguments, *told)
            assert not is_unreached(answer), (name, answer)
            assert answer.get("error") not in {"TransportError", "ConfigurationError", "UsageError"}, (
                name,
                answer,
            )
    finally:
        for file, text in kept.items():
            file.write_text(text)


def test_a_file_that_holds_no_certificate_is_said_to_be_none(federation: Federation, say: Say) -> None:
    for wrong in (federation.folder / "nowhere.pem", federation.party):
        code, answer = say("party", "list", "--party", str(federation.party), "--ca-file", str(wrong))
        assert (code, answer["error"]) == (1, "ConfigurationError")
        assert "PEM" in answer["message"]


def test_another_authority_is_not_trusted(federation: Federation, say: Say, tmp_path: Path) -> None:
    other = tmp_path / "other.pem"
    other.write_bytes(dict(certificates().service_secrets())["services_ca"])
    code, answer = say("party", "list", "--party", str(federation.party), "--ca-file", str(other))
    assert code == 1
    assert is_unreached(answer)


def test_the_operator_of_a_tester_with_a_private_authority_enrols_an_analyst_by_commands_alone(
    federation: Federation, say: Say
) -> None:
    told = ["--ca-file", str(federation.ca_file)]
    invite = ["party", "invite", "--role", "analyst", "--name", "ann", "--config", str(federation.tester)]
    code, made = say(*invite, *told)
    assert code == 0
    invitation = made["said"]["invitation"]
    code, _ = say("party", "enrol", "--invitation", invitation, "--party", str(federation.party), *told)
    assert code == 0
    code, link = say("tester", "login", "--config", str(federation.tester), *told)
    assert code == 0
    assert link["said"]["url"].startswith("https://127.0.0.1")
    _, findings = say("doctor", "--config", str(federation.party), *told)
    states = {item["name"]: item["state"] for item in findings["said"]}
    assert states["tester"] == states["enrolment"] == "ok"
