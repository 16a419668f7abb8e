"""Agents behind a proxy that asks for a password, a tester that asks for certificates, a private authority.

A real proxy in a process of its own, which only opens tunnels; real services; one whole study.
"""

import json
import socket
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from certificates import READY_S, add, deployed, wait_until_ready

from tacit.client.http import HttpRequest
from tacit.client.tester import Client
from tacit.client.transport import HttpTransport, way
from tacit.errors import TransportError
from tacit.setup.configuration import (
    DataSetSetup,
    PolicySetup,
    TesterAddress,
    init_agent,
    init_party,
    init_tester,
    route_of,
)
from tacit.setup.keys import load_key
from tacit.setup.processes import ServiceProcess, free_ports, service_command, stop_all

pytestmark = pytest.mark.long

USER, PASSWORD = (
    "hospital",
    "p:ss wörd%41",
)  # a colon, a letter beyond ASCII, and what a URL would spell otherwise

Say = Callable[..., tuple[int, Any]]


@dataclass
class Network:
    """Everybody's files, and what runs."""

    folder: Path
    url: str
    proxy: str
    settings: dict[str, str]
    """What a configuration says of the way to the tester."""
    files: dict[str, Path] = field(default_factory=dict)
    services: list[ServiceProcess] = field(default_factory=list)

    @property
    def proxy_log(self) -> str:
        return (self.folder / "proxy.log").read_text("utf-8", "replace")


def start_proxy(folder: Path, port: int) -> ServiceProcess:
    command = [sys.executable, "-m", "proxy", "--hostname", "127.0.0.1", "--port", str(port)]
    command += ["--num-workers", "1", "--num-acceptors", "1", "--basic-auth", f"{USER}:{PASSWORD}"]
    return ServiceProcess.start("proxy", command, folder / "proxy.log")


def wait_for_port(port: int, service: ServiceProcess) -> None:
    ends_at = time.monotonic() + READY_S
    while True:
        service.check_running()
        with socket.socket() as caller:
            if caller.connect_ex(("127.0.0.1", port)) == 0:
                return
        assert time.monotonic() < ends_at
        time.sleep(0.1)


@pytest.fixture(scope="module")
def network(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Network]:
    folder = tmp_path_factory.mktemp("network")
    # One authority's certificates: the tester serves with one; the other is what callers show.
    for name, content in [
        *deployed().service_secrets(),
        ("credentials", f"{USER}:{PASSWORD}\n".encode()),
    ]:
        (folder / name).write_bytes(content)
        (folder / name).chmod(0o600)
    port, proxy_port = free_ports(2)
    told = {
        "tester_ca_file": "services_ca",
        "tester_certificate_file": "curator_tls_certificate",
        "tester_certificate_key_file": "curator_tls_key",
        "tester_proxy": f"http://127.0.0.1:{proxy_port}",
        "tester_proxy_credentials_file": "credentials",
    }
    url = f"https://127.0.0.1:{port}"
    made = Network(folder, url, told["tester_proxy"], told)
    above = {name: value if name == "tester_proxy" else f"../{value}" for name, value in told.items()}
    tester = init_tester(folder / "tester", "tester", "127.0.0.1", port, url)
    serving = {
        "tls_certificate_file": "../tester_tls_certificate",
        "tls_key_file": "../tester_tls_key",
        "tls_client_ca_file": "../services_ca",
    }
    operating = {name: value for name, value in above.items() if "proxy" not in name}
    made.files["tester"] = add(tester, **operating, **serving)
    address = TesterAddress(url, load_key(folder / "tester" / "tester.pem").public_hex)
    for name in ("north", "south"):
        rows = "".join(f"{'f' if number % 3 else 'm'}\n" for number in range(300))
        (folder / f"{name}.csv").write_text(f"sex\n{rows}")
        source = DataSetSetup("people", str(folder / f"{name}.csv"), 2.0, 1e-5)
        policy = PolicySetup(approval="automatic", procedures=("homogeneity",), columns=("sex",))
        agent = init_agent(
            folder / name, name, address, source, policy, host="127.0.0.1", port=free_ports(1)[0]
        )
        made.files[name] = add(agent, **above)
    made.files["ann"] = add(init_party(folder / "ann", "ann", address), **above)
    try:
        made.services.append(start_proxy(folder, proxy_port))
        wait_for_port(proxy_port, made.services[0])
        serve = service_command("tester", "serve", made.files["tester"])
        made.services.append(ServiceProcess.start("tester", serve, folder / "tester.log"))
        wait_until_ready(url, made.services, route_of(told, "tester", folder / "file"))
        yield made
    finally:
        stop_all(made.services)


@pytest.fixture
def say(say: Say, monkeypatch: pytest.MonkeyPatch) -> Say:
    monkeypatch.delenv("TACIT_CA_FILE", raising=False)
    monkeypatch.setattr("tenacity.nap.time.sleep", lambda _: None)
    return say


DRAFT = """
title = "Are there as many women in the south?"
procedure = "homogeneity"
epsilon = 1.0
delta = 0.0
[[columns]]
kind = "categorical"
name = "sex"
levels = ["f", "m"]
[[owners]]
name = "north"
data_set = "people"
[[owners]]
name = "south"
data_set = "people"
"""


def test_a_whole_study_goes_through_the_proxy_with_everybodys_certificate(network: Network, say: Say) -> None:
    files = network.files
    for role, name in (("owner", "north"), ("owner", "south"), ("analyst", "ann")):
        invite = ["party", "invite", "--role", role, "--name", name, "--config", str(files["tester"])]
        code, made = say(*invite)
        assert code == 0, made
        command = ["party", "enrol", "--party"] if role == "analyst" else ["agent", "enrol", "--config"]
        code, enrolled = say(*command, str(files[name]), "--invitation", made["invitation"])
        assert code == 0, enrolled
    for name in ("north", "south"):
        serve = service_command("agent", "serve", files[name])
        network.services.append(ServiceProcess.start(name, serve, network.folder / f"{name}.log"))
    draft = network.folder / "study.toml"
    draft.write_text(DRAFT)
    code, created = say("study", "create", str(draft), "--party", str(files["ann"]))
    assert code == 0, created
    digest = created["digest"]
    code, verdict = say("study", "watch", digest, "--timeout-s", "300", "--party", str(files["ann"]))
    assert code == 0, verdict
    code, found = say("doctor", "--config", str(files["north"]))
    states = {item["name"]: item["state"] for item in found}
    assert (states["tester proxy"], states["tester"], states["enrolment"]) == ("ok", "ok", "ok")
    # The proxy sees where tunnels lead, and none of what passes.
    assert f"CONNECT 127.0.0.1:{network.url.rsplit(':', 1)[1]}" in network.proxy_log
    assert "/v1/" not in network.proxy_log
    assert PASSWORD not in (network.folder / "north.log").read_text()


def doctored(network: Network, say: Say, **fields: str) -> dict[str, tuple[str, str]]:
    """Return what the doctor finds where an analyst's file says these fields of the way."""
    kept = network.files["ann"].read_text()
    try:
        add(network.files["ann"], **fields)
        _, found = say("doctor", "--config", str(network.files["ann"]))
    finally:
        network.files["ann"].write_text(kept)
    return {item["name"]: (item["state"], item["text"]) for item in found}


@pytest.mark.parametrize(
    ("fields", "hop", "words"),
    [
        ({"tester_proxy": "http://127.0.0.1:9"}, "tester proxy", "cannot be reached"),
        ({"tester_proxy_credentials_file": "../wrong"}, "tester proxy", "user:password"),
        ({"tester_proxy": "socks5://127.0.0.1:1080"}, "tester", "http://proxy.hospital.example:3128"),
        ({"tester_proxy": "http://me:secret@127.0.0.1:9"}, "tester", "tester_proxy_credentials_file"),
        ({"tester_proxy_credentials_file": "../services_ca"}, "tester", "one line, user:password"),
        ({"tester_proxy_credentials_file": "../nowhere"}, "tester", "cannot read"),
        ({"tester_ca_file": "../curator_tls_certificate"}, "tester certificate", "not trusted"),
        ({"tester_certificate_key_file": "../tester_tls_key"}, "tester", "cannot be used"),
        (
            {"tester_certificate_file": "../own", "tester_certificate_key_file": "../own.key"},
            "tester",
            "if it asks for certificates",
        ),
    ],
    ids=lambda value: " ".join(value) if isinstance(value, dict) else None,
)
def test_the_doctor_says_which_hop_failed_and_what_to_do(
    network: Network, say: Say, fields: dict[str, str], hop: str, words: str
) -> None:
    (network.folder / "wrong").write_text(f"{USER}:other\n")
    other = dict(deployed().service_secrets())
    (network.folder / "own").write_bytes(other["tester_tls_certificate"])
    (network.folder / "own.key").write_bytes(other["tester_tls_key"])
    for name in ("wrong", "own", "own.key"):
        (network.folder / name).chmod(0o600)
    found = doctored(network, say, **fields)
    assert found[hop][0] == "failed"
    assert words in found[hop][1]
    assert "secret" not in found[hop][1]
    assert PASSWORD not in json.dumps(found)


def test_without_a_certificate_of_ones_own_nobody_is_heard(network: Network) -> None:
    only = {name: network.settings[name] for name in ("tester_ca_file",)}
    route = route_of(only, "tester", network.folder / "file")
    with (
        HttpTransport(network.url, **way(route, network.url), sleep=lambda _: None) as sender,
        pytest.raises(TransportError, match="if it asks for certificates"),
    ):
        sender.send(HttpRequest("GET", "/v1/identity", signed=False))


def test_the_environments_proxy_counts_where_a_configuration_asks_for_it_alone(
    network: Network, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HTTPS_PROXY", "http://127.0.0.1:9")
    monkeypatch.delenv("https_proxy", raising=False)
    monkeypatch.delenv("NO_PROXY", raising=False)
    monkeypatch.delenv("no_proxy", raising=False)
    direct = {name: value for name, value in network.settings.items() if "proxy" not in name}
    for told, reached in (({}, True), ({"tester_proxy": "environment"}, False)):
        route = route_of(direct | told, "tester", network.folder / "file")
        with Client(network.url, **way(route, network.url), sleep=lambda _: None) as client:
            if reached:
                assert client.identity().name == "tester"
                continue
            with pytest.raises(TransportError, match="proxy on the way") as caught:
                client.identity()
            assert caught.value.hop == "proxy"
    monkeypatch.setenv("NO_PROXY", "127.0.0.1")
    route = route_of(direct | {"tester_proxy": "environment"}, "tester", network.folder / "file")
    assert way(route, network.url)["proxy"] is None


ASK_BY_R = """
asked <- commandArgs(TRUE)
read <- function(file) readLines(file, encoding = "UTF-8")
party <- read(asked[1])
with_fields <- function(...) {
  told <- list(...)
  kept <- party[!sub(" *=.*", "", party) %in% names(told)]
  file <- tempfile(tmpdir = dirname(asked[1]), fileext = ".toml")
  told <- Filter(Negate(is.null), told)
  writeLines(c(sprintf("%s = \\"%s\\"", names(told), unlist(told)), kept), file, useBytes = TRUE)
  file
}
reach <- function(...) {
  tryCatch(tacit_identity(tacit_sign_in(with_fields(...)))$name, error = function(error) {
    paste(class(error)[1], conditionMessage(error))
  })
}
told <- list(
  password = reach(tester_proxy_credentials_file = "../wrong"), # before curl has a tunnel to use again
  ready = reach(),
  signed = tryCatch(
    is.null(tacit_studies(tacit_sign_in(asked[1]))), tacit_problem = function(error) error$type
  ),
  nobody = reach(tester_proxy = "http://127.0.0.1:9"),
  socks = reach(tester_proxy = "socks5://127.0.0.1:1080"),
  in_url = reach(tester_proxy = "http://me:secret@127.0.0.1:9"),
  no_line = reach(tester_proxy_credentials_file = "../services_ca"),
  nowhere = reach(tester_proxy_credentials_file = "../nowhere"),
  authority = reach(tester_ca_file = "../curator_tls_certificate"),
  uncertified = reach(tester_certificate_file = NULL, tester_certificate_key_file = NULL),
  half = reach(tester_certificate_key_file = NULL),
  direct = reach(tester_proxy = NULL, tester_proxy_credentials_file = NULL),
  environment = reach(tester_proxy = "environment", tester_proxy_credentials_file = NULL)
)
cat(jsonlite::toJSON(told, auto_unbox = TRUE))
"""


@pytest.mark.parametrize("locale", ["C.UTF-8", "C"])
def test_r_reaches_the_tester_the_same_way_and_no_other(
    network: Network, rscript: Callable[..., str], locale: str
) -> None:
    (network.folder / "wrong").write_text(f"{USER}:other\n")
    before = network.proxy_log.count("CONNECT")
    turned = {"HTTPS_PROXY": "http://127.0.0.1:9", "https_proxy": "http://127.0.0.1:9", "LC_ALL": locale}
    told = json.loads(rscript(ASK_BY_R, str(network.files["ann"]), NO_PROXY="127.0.0.1", **turned))
    assert (told["ready"], told["direct"]) == ("tester", "tester")
    assert told["signed"] in {False, "unknown-party"}  # enrolled by the test above, where that has run
    assert told.pop("environment") == "tester"  # NO_PROXY says so
    assert network.proxy_log.count("CONNECT") > before
    for name in ("nobody", "password", "authority", "uncertified"):
        assert told[name].startswith("tacit_transport"), (name, told[name])
    for name in ("socks", "in_url", "no_line", "nowhere", "half"):
        assert told[name].startswith("tacit_input tester_"), (name, told[name])
    assert "407" in told["password"]
    assert "secret" not in json.dumps(told)
    assert PASSWORD not in json.dumps(told, ensure_ascii=False)
