"""Nothing is sent where others could read it on the way: who listens in another's place hears nothing."""

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

from tacit import AsyncClient, AsyncCuratorClient, Client, CuratorClient
from tacit.client.agent import AgentClient
from tacit.client.http import HttpRequest
from tacit.client.transport import AsyncHttpTransport, HttpTransport
from tacit.command.app import run
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
    toml_text,
)
from tacit.setup.doctor import examine
from tacit_protocol.signing import PrivateKey
from tacit_services.agent.settings import AgentSettings
from tacit_services.agent.tester_client import TesterClient, TesterError, require_private
from tacit_services.curator.__main__ import CuratorSettings
from tacit_services.shared.settings import SettingsError
from tacit_services.tester.settings import TesterSettings

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


def test_an_upload_of_rows_in_the_clear_sends_nothing(
    files: dict[str, Path], elsewhere: Elsewhere, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    rows = ["curator", "upload", str(tmp_path / "rows.csv"), "--data-set", "heart"]
    assert run([*rows, "--owner", str(files["owner"]), "--json"]) == 2
    said = json.loads(capsys.readouterr().err)
    assert "plain http://" in said["message"]
    assert elsewhere.heard == []


def test_no_command_and_no_doctor_speaks_in_the_clear(
    files: dict[str, Path], elsewhere: Elsewhere, capsys: pytest.CaptureFixture[str]
) -> None:
    commands = [
        ["party", "list", "--party", str(files["party"])],
        ["party", "login", "--party", str(files["party"])],
        ["study", "list", "--party", str(files["party"])],
        ["agent", "enrol", "--invitation", "x", "--config", str(files["agent"])],
        ["curator", "join", "--invitation", "x", "--config", str(files["curator"])],
        ["curator", "login", "--owner", str(files["owner"])],
    ]
    for command in commands:
        assert run([*command, "--json"]) == 2, command
    capsys.readouterr()
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
