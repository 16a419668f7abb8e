"""Plain HTTP and other authorities: nobody speaks in the clear or to a stranger."""

import asyncio
import json
import socket
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import pytest
from certificates import add, deployed, wait_until_ready
from command_lines import CURATOR, LINES, OWNER, PARTY
from tools import conformance
from typer.main import get_command

from tacit import AsyncClient, AsyncCuratorClient, Client, CuratorClient
from tacit.client.agent import AgentClient
from tacit.client.http import HttpRequest
from tacit.client.transport import AsyncHttpTransport, HttpTransport
from tacit.command.app import command_tree, run
from tacit.errors import InputError
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
from tacit.setup.doctor import examine
from tacit.setup.keys import load_key
from tacit.setup.processes import ServiceKind, ServiceProcess, free_ports, service_command, stop_all
from tacit_protocol.addresses import DIRECT
from tacit_protocol.messages.encoding import encode
from tacit_protocol.messages.study import DeclineMessage
from tacit_protocol.signing import DECLINE_TYPE, PrivateKey, sign_envelope
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.study.tester_client import TesterClient, TesterError, require_private
from tacit_services.curator.__main__ import CuratorSettings
from tacit_services.shared.settings import SettingsError
from tacit_services.tester.settings import TesterSettings

DIGEST = "ab" * 32

HERE = {
    # Become a service, or look at this machine's own files.
    *("tester serve", "tester work", "tester archive", "agent serve", "agent answer", "curator serve"),
    *("agent certificate", "data check", "data align make", "data align compare"),
    *("data align list", "data align forget"),
    # Ask one's own agent, on this machine, which the agent's own setting lets call a tester.
    *(
        "agent login",
        "agent status",
        "agent studies",
        "agent show",
        "agent reuses",
        "agent result",
        "agent approve",
        "agent send",
        "agent unlock",
    ),
    *("agent decline", "ledger show", "ledger export", "ledger verify"),
}
"""Commands that take a configuration and call no tester and no curator."""

OWN_PEOPLE = {f"agent users {verb}" for verb in ("list", "add", "remove", "record")}
"""Commands that ask one's own agent, by what the other services' commands are."""


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
    tester_url: str
    services: list[ServiceProcess]


@pytest.fixture(scope="module")
def federation(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Federation]:
    folder = tmp_path_factory.mktemp("private")
    for name, content in deployed().service_secrets():
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
        init_party(folder / "party", "ann", at_tester),
        serving(tester, "tester"),
        serving(curator, "curator"),
        init_owner(folder / "owner", "north", at_curator),
        agent,
        urls["tester"],
        [],
    )
    files: dict[ServiceKind, Path] = {"tester": made.tester, "curator": made.curator}
    try:
        for kind, file in files.items():
            command = service_command(kind, "serve", file)
            made.services.append(ServiceProcess.start(kind, command, folder / f"{kind}.log"))
        for url in urls.values():
            wait_until_ready(url, made.services, DIRECT.trusting(made.ca_file))
        yield made
    finally:
        stop_all(made.services)


def declined() -> bytes:
    """Return an owner's decline of some study, signed by a key that nobody knows."""
    message = encode(DeclineMessage(study=DIGEST, party="north"))
    return sign_envelope(message, DECLINE_TYPE, PrivateKey.generate())


def calls(at: Federation) -> dict[str, list[str]]:
    """Return the arguments of every command that calls a tester or a curator. Some are refused there."""
    columns = [{"kind": "numeric", "name": "age", "lower": 0, "upper": 120}]
    spent = {"columns": columns, "epsilon": 1.0, "delta": 1e-5}
    owners = [{"name": name, "data_set": "heart"} for name in ("north", "south")]
    (at.folder / "draft.toml").write_text(toml_text({"title": "x", "owners": owners} | spent))
    policy = {"epsilon_per_study_max": 1.0, "delta_per_study_max": 1e-5, "analysts": ["*"]}
    (at.folder / "data-set.toml").write_text(toml_text({"name": "heart", "policy": policy} | spent))
    (at.folder / "rows.csv").write_text("age\n40\n")
    (at.folder / "answer.dsse").write_bytes(declined())
    key = ["--key", str(at.party.parent / "party.pem")]
    of_studies = ("study report", "release show", "release expect", "release sample", "release export")
    own = {
        **{name: ["DIGEST", *LINES[name][1:], *PARTY] for name in of_studies},
        "release compare": ["DIGEST", "cd" * 32, *PARTY],
        "study watch": [*LINES["study watch"], "--timeout-s", "0"],
        "curator delete": ["--data-set", "north/heart", "--yes", *CURATOR],
        "curator unlock": ["--data-set", "north/heart", "--yes", *CURATOR],
        "owner unlock": ["--data-set", "heart", "--yes", *OWNER],
        "conformance tester": [at.tester_url, *key],
        "conformance agent": [at.tester_url, *key, "--name", "north"],
    }
    return {
        name: [DIGEST if word == "DIGEST" else word for word in (LINES | own)[name]]
        for name, options, _ in all_commands()
        if "--ca-file" in options and name not in OWN_PEOPLE
    }


def all_commands() -> Iterator[tuple[str, set[str], set[str]]]:
    yield from commands_of(get_command(command_tree()))
    yield from commands_of(get_command(conformance.app), "conformance ")


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
    asking = set(calls(federation)) | OWN_PEOPLE
    configured = {name for name, _, variables in all_commands() if variables & CONFIGURED}
    assert configured - asking == HERE


Say = Callable[..., tuple[int, dict[str, Any]]]


@pytest.fixture
def say(federation: Federation, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Say:
    monkeypatch.delenv("TACIT_CA_FILE", raising=False)
    monkeypatch.chdir(federation.folder)
    monkeypatch.setattr("time.sleep", lambda _: None)  # between attempts
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)

    def said(*arguments: str) -> tuple[int, dict[str, Any]]:
        capsys.readouterr()
        kit = arguments[0] == "conformance"
        code = run([*arguments[kit:], "--json"], conformance.app if kit else None)
        captured = capsys.readouterr()
        if captured.err:
            return code, json.loads(captured.err.splitlines()[-1])
        return code, {"said": json.loads(captured.out)}

    return said


def is_unreached(answer: dict[str, Any]) -> bool:
    """Whether the service was not reached, for want of trust in its certificate."""
    if "said" in answer and isinstance(answer["said"], list):  # the doctor's findings
        found = {item.get("name"): item.get("text", "") for item in answer["said"]}
        return "certificate" in str(found.get("tester certificate", ""))
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
            if way == "setting" and name.startswith("conformance"):
                continue  # no file of the service's is at hand
            _, answer = say(*name.split(), *arguments, *told)
            assert not is_unreached(answer), (name, answer)
            assert answer.get("error") not in {"TransportError", "ConfigurationError", "UsageError"}, (
                name,
                answer,
            )
    finally:
        for file, text in kept.items():
            file.write_text(text)


def test_another_authority_is_not_trusted(federation: Federation, say: Say, tmp_path: Path) -> None:
    """And a file that holds no certificate is said to be none."""
    other = tmp_path / "other.pem"
    other.write_bytes(dict(deployed().service_secrets())["services_ca"])
    ask = ("party", "list", "--party", str(federation.party), "--ca-file")
    code, answer = say(*ask, str(other))
    assert (code, is_unreached(answer)) == (1, True)
    for wrong in (federation.folder / "nowhere.pem", federation.party):
        code, answer = say(*ask, str(wrong))
        assert (code, answer["error"], "PEM" in answer["message"]) == (1, "ConfigurationError", True)


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


KEY = PrivateKey.generate()
GET = HttpRequest("GET", "/v1/identity", signed=False)


@dataclass
class Elsewhere:
    """Another machine, as far as names go, that writes down all that arrives."""

    port: int
    heard: list[bytes] = field(default_factory=list)


@pytest.fixture
def elsewhere(monkeypatch: pytest.MonkeyPatch) -> Iterator[Elsewhere]:
    """Let every name and address that is not this machine's lead to a listener."""
    listener = socket.create_server(("127.0.0.1", 0))
    machine, genuine = Elsewhere(listener.getsockname()[1]), socket.getaddrinfo

    def lead_astray(host: Any, *rest: Any, **named: Any) -> Any:
        return genuine("127.0.0.1" if "evil" in str(host) else host, *rest, **named)

    def listen() -> None:
        while True:
            try:
                caller, _ = listener.accept()
            except OSError:
                return
            with caller:
                caller.settimeout(60)
                machine.heard.append(caller.recv(2**16))
                caller.sendall(b"HTTP/1.1 200 OK\r\ncontent-length: 2\r\nconnection: close\r\n\r\n{}")

    monkeypatch.setattr(socket, "getaddrinfo", lead_astray)
    thread = threading.Thread(target=listen, daemon=True)
    thread.start()
    yield machine
    listener.shutdown(socket.SHUT_RDWR)
    listener.close()
    thread.join(60)


def hostile_urls(port: int) -> list[str]:
    """Spellings that lead elsewhere, or that different parsers read differently."""
    return [
        f"http://evil.example:{port}",
        f"HTTP://EVIL.EXAMPLE:{port}",
        f"http://127.0.0.1@evil.example:{port}",
        f"http://127.0.0.1:8400@evil.example:{port}",
        f"http://localhost:8400@evil.example:{port}/",
        f"http://evil.example:{port}#@127.0.0.1",
        f"http://evil.example:{port}?@127.0.0.1/",
        f"http://evil.example:{port}\\@127.0.0.1",
        f"http://127.0.0.1.evil.example:{port}",
        f"http://localhost.evil.example:{port}",
        f"http://127.0.0.1%2eevil.example:{port}",
        f"http://0.0.0.0:{port}",
        f"http://[::]:{port}",
        f"http://127.1:{port}",
        f"http://2130706433:{port}",
        f"http://localhost.:{port}",
        f"http://[::ffff:10.0.0.1]:{port}",
        f"//127.0.0.1:{port}",
        f"127.0.0.1:{port}",
        f"ftp://127.0.0.1:{port}",
        f"http:/127.0.0.1:{port}",
        "http://",
        "",
        f"https://user:password@tester.example:{port}",
    ]


def test_the_sdk_and_the_agent_refuse_every_spelling_of_an_address_beyond_this_machine(
    elsewhere: Elsewhere,
) -> None:
    for url in hostile_urls(elsewhere.port):
        makers: list[Callable[[str], Any]] = [
            HttpTransport,
            AsyncHttpTransport,
            lambda url: Client(url, KEY),
            lambda url: AsyncClient(url, KEY),
            lambda url: CuratorClient(url, KEY, owner="north"),
            lambda url: AsyncCuratorClient(url, KEY, owner="north"),
            lambda url: AgentClient(url, "north", KEY),
        ]
        for make in makers:
            with pytest.raises(InputError):
                make(url)
        with pytest.raises(SettingsError, match="tester_url"):
            TesterClient(url, "x", KEY, time.time, lambda _: None)
        with pytest.raises(ValueError, match="http"):
            require_private(url, insecure_plain_http=False)
    assert elsewhere.heard == []


def test_an_address_is_looked_at_again_when_a_request_goes_out(elsewhere: Elsewhere) -> None:
    """Whatever made the request lead elsewhere, a redirect that somebody came to follow for one."""
    astray = httpx.Request("POST", f"http://evil.example:{elsewhere.port}/", content=b"rows")
    with HttpTransport("https://tester.example") as sender, pytest.raises(InputError, match="plain http"):
        sender._http._transport.handle_request(astray)
    with (
        TesterClient("https://tester.example", "x", KEY, time.time, lambda _: None) as agent,
        pytest.raises(ValueError, match="plain http"),
    ):
        agent._http._transport.handle_request(astray)

    async def send() -> None:
        sender = AsyncHttpTransport("https://tester.example")
        try:
            await sender._http._transport.handle_async_request(astray)
        finally:
            await sender.close()

    with pytest.raises(InputError, match="plain http"):
        asyncio.run(send())
    assert elsewhere.heard == []


def test_only_the_loud_setting_lets_a_request_travel_in_the_clear(elsewhere: Elsewhere) -> None:
    url = f"http://evil.example:{elsewhere.port}"
    with HttpTransport(url, insecure_plain_http=True) as sender:
        assert sender.send(GET).status == 200
    with (
        TesterClient(url, "x", KEY, time.time, lambda _: None, insecure_plain_http=True) as agent,
        pytest.raises(TesterError),
    ):
        agent.inbox(0)
    assert len(elsewhere.heard) >= 2


def rewritten(file: Path, url: str, to: str) -> Path:
    file.write_text(file.read_text().replace(url, to))
    return file


@pytest.fixture
def files(tmp_path: Path, elsewhere: Elsewhere) -> dict[str, Path]:
    """Configurations that name a tester and a curator in the clear, as nobody's init would write them."""
    safe, clear = "https://evil.example", f"http://evil.example:{elsewhere.port}"
    tester = TesterAddress(safe, KEY.public_hex)
    (tmp_path / "rows.csv").write_text("age\n" + "40\n" * 200)
    made = {
        "party": init_party(tmp_path / "ann", "ann", tester),
        "owner": init_owner(tmp_path / "north", "north", CuratorAddress(safe, KEY.public_hex)),
        "curator": init_curator(tmp_path / "registry", "registry", tester, host="127.0.0.1", port=8720),
        "agent": init_agent(
            tmp_path / "agent",
            "north",
            tester,
            DataSetSetup("heart", str(tmp_path / "rows.csv"), 1.0, 1e-5),
            PolicySetup(),
            host="127.0.0.1",
            port=8710,
        ),
    }
    return {name: rewritten(file, safe, clear) for name, file in made.items()}


def test_no_command_and_no_doctor_speaks_in_the_clear(
    files: dict[str, Path], elsewhere: Elsewhere, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [
        *(["party", verb, "--party", str(files["party"])] for verb in ("list", "login")),
        ["study", "list", "--party", str(files["party"])],
        *(
            [noun, "enrol", "--invitation", "x", "--config", str(files[noun])]
            for noun in ("agent", "curator")
        ),
        ["owner", "login", "--owner", str(files["owner"])],
        [
            "owner",
            "upload",
            str(tmp_path / "rows.csv"),
            "--data-set",
            "heart",
            "--owner",
            str(files["owner"]),
        ],
    ]
    for command in commands:
        assert run([*command, "--json"]) == 2, command
        assert "plain http://" in json.loads(capsys.readouterr().err)["message"]
    for name, peer in (("party", "tester"), ("owner", "curator")):
        found = {finding.name: finding for finding in examine(files[name])}
        assert found[peer].state == "failed"
        assert "plain http://" in found[peer].text
    assert elsewhere.heard == []


def test_init_writes_no_address_in_the_clear(tmp_path: Path) -> None:
    with pytest.raises(InputError, match="plain http"):
        init_party(tmp_path / "ann", "ann", TesterAddress("http://tester.example", "ab" * 32))
    assert not (tmp_path / "ann").exists()


def load(kind: str, folder: Path, **changed: Any) -> Any:
    """Load a service's settings, whole but for what is changed."""
    common: dict[str, Any] = {"name": "x", "key_file": "x.pem"}
    tester = {"tester_url": "https://tester.example", "tester_key": "ab" * 32}
    whole: dict[str, tuple[Any, dict[str, Any]]] = {
        "tester": (TesterSettings, {"url": "https://x.example"}),
        "curator": (
            CuratorSettings,
            {"url": "https://x.example", "storage_folder": "r", "storage_keys_file": "k", **tester},
        ),
        "agent": (
            AgentSettings,
            {
                "policy_file": "policy.toml",
                "data_sets": [{"name": "heart", "source": "h.csv", "epsilon": 1.0, "delta": 1e-5}],
                **tester,
            },
        ),
    }
    model, own = whole[kind]
    file = folder / "settings.toml"
    file.write_text(toml_text(common | own | changed))
    return model.load(file)


@pytest.mark.parametrize("kind", ["tester", "curator", "agent"])
@pytest.mark.parametrize("host", ["0.0.0.0", "::", "192.168.1.5", "tester.example", ""])  # noqa: S104
def test_a_service_does_not_listen_beyond_its_machine_without_tls_unless_a_proxy_is_said_to_serve_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, kind: str, host: str
) -> None:
    monkeypatch.delenv("TACIT_CONFIG", raising=False)
    with pytest.raises(SettingsError, match="behind_tls_proxy"):
        load(kind, tmp_path, host=host)
    assert load(kind, tmp_path, host=host, behind_tls_proxy=True).host == host
    assert load(kind, tmp_path, host=host, insecure_plain_http=True).host == host
    for here in ("127.0.0.1", "::1", "localhost"):
        assert load(kind, tmp_path, host=here).host == here
    if kind != "agent":
        tls = {"tls_certificate_file": "c.pem", "tls_key_file": "k.pem"}
        assert load(kind, tmp_path, host=host, **tls).serves_tls
        with pytest.raises(SettingsError, match="need each other"):
            load(kind, tmp_path, host="127.0.0.1", tls_key_file="k.pem")
