"""Bad input to every service: made from their OpenAPI documents, and raw bytes that none would make."""

import asyncio
import copy
import itertools
import json
import re
import socket
import threading
from collections.abc import AsyncIterator, Iterator
from functools import partial
from typing import Any

import httpx
import pytest
import schemathesis
import served
from agent_fakes import AttackedAgent
from curated_world import make_curator
from curator_world import URL as CURATOR_URL
from curator_world import CuratorWorld
from fastapi import FastAPI
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from long_runs import choose
from made_studies import SeededNoise
from own_time import OwnTime
from schemathesis import GenerationMode
from starlette.requests import Request
from starlette.responses import Response
from study_parties import Parties
from tester_federation import URL, Federation

from tacit_protocol.messages.problems import MEDIA_TYPE, PROBLEMS, URN_PREFIX
from tacit_protocol.signing import PrivateKey, issue_token
from tacit_services.agent.study.tester_client import TesterClient
from tacit_services.agent.web.routes import Runtime, create_agent_app
from tacit_services.curator.routes import add_study_routes
from tacit_services.shared import http_server
from tacit_services.shared.http_app import (
    BODY_TIMEOUT_S,
    DRAINED_BYTES_MAX,
    create_app,
    json_bytes,
    json_response,
)
from tacit_services.shared.http_server import ConnectionSlots

CANARY = "Xc4nary7"

EXAMPLES = choose(120, 1500)
"""Requests that are made from each service's document."""

SLOW_TIMEOUT_S = choose(1.5, 10.0)
"""How long the server waits for slow headers and bodies in the timed test."""

P99_S_MAX = 1.0
"""What honest requests may take meanwhile, without what other processes on the machine hold them up."""

LATE_S_MAX = 2.0
"""How much later than promised a slow connection may end, likewise."""

ATTEMPTS_MAX = 3
"""Attacks of which one must be answered in time: a machine may stand still for a while, with all on it."""

PATIENCE_S = 300.0


class Service:
    """A service's app, and requests to it by a known party."""

    def __init__(self, app: FastAPI, keys: list[PrivateKey], audience: str, now: int) -> None:
        self.app, self.keys, self._audience, self._now = app, keys, audience, now
        self.document: dict[str, Any] = app.openapi()
        texts = [(p.slug, p.title, p.advice, p.status) for p in PROBLEMS.values()]
        # What headers say whatever was sent: a search, which reads the code, sends such words too.
        paths = [path for path, of in self.document["paths"].items() if "get" in of and "{" not in path]
        answers = [served.call(app, "http://localhost", "GET", path) for path in paths]
        told = [pair for answer in answers for pair in answer.headers.items()]
        headers = [value for name, value in told if name != "x-request-id"]
        self.header_names = {"allow", "connection", "retry-after", *(name for name, _ in told)}
        self.public_text = json.dumps([self.document, texts, headers, URN_PREFIX, "urn:tacit:request:"])

    async def send(self, method: str, url: str, **sent: Any) -> httpx.Response:
        headers = dict(sent.pop("headers", None) or {})
        key = sent.pop("key", self.keys[0])
        headers["authorization"] = f"Bearer {issue_token(key, self._audience, self._now)}"
        return await served.send(self.app, "http://localhost", method, url, headers=headers, **sent)

    def call(self, method: str, url: str, **sent: Any) -> httpx.Response:
        return asyncio.run(self.send(method, url, **sent))

    def uploads(self) -> list[tuple[str, str]]:
        """Return method and path of everything that takes a body."""
        parts = {"digest": "a" * 64, "owner": "north", "name": "patients", "data_set": "patients"}
        return [
            (method.upper(), path.format(**parts))
            for path, operations in self.document["paths"].items()
            for method, operation in operations.items()
            if "requestBody" in operation
        ]


@pytest.fixture(scope="module")
def services(tmp_path_factory: pytest.TempPathFactory) -> Iterator[dict[str, Service]]:
    """Every service, each asked by parties that together may ask everything it can."""
    folder = tmp_path_factory.mktemp("bad-input")
    parties = Parties(1_800_000_000)
    federation = Federation(folder, f"sqlite:///{folder / 'tester.sqlite3'}", parties)
    federation.app.state.stopping.requested = True  # long polls answer at once
    federation.enrol_everyone()
    (folder / "agent").mkdir()
    attacked = AttackedAgent(folder / "agent")
    app = create_agent_app(attacked.agent, Runtime("0", lambda: True, lambda: None))
    (folder / "curator").mkdir()
    curator = CuratorWorld(folder / "curator", f"sqlite:///{folder / 'curator.sqlite3'}")
    curator.register()
    add_studies(curator)
    yield {
        "tester": Service(
            federation.app, [parties.tester, parties.analyst, parties.owners["north"]], URL, parties.now
        ),
        "agent": Service(app, [attacked.world.agent], "agent:north", int(attacked.clock())),
        "curator": Service(
            curator.app, [curator.operator, curator.owners["north"]], CURATOR_URL, int(curator.now)
        ),
    }
    curator.close()
    federation.engine.dispose()
    attacked.agent.engine.dispose()


def add_studies(curator: CuratorWorld) -> None:
    """Give the curator's app its routes of studies and ledger."""
    client = TesterClient(URL, URL, curator.operator, lambda: curator.now, lambda _: None)
    answering = make_curator(
        curator.data_sets,
        engine=curator.engine,
        client=client,
        noise=SeededNoise(1),
        clock=lambda: curator.now,
    )
    add_study_routes(curator.app, answering, curator.context.access, lambda: None)


def strings_in(value: Any) -> Iterator[str]:
    """Yield every text in a request's parts, keys included."""
    if isinstance(value, str):
        yield value
    elif isinstance(value, bytes):
        yield value.decode("latin-1")
    elif isinstance(value, dict):
        for key, inner in value.items():
            yield from strings_in(key)
            yield from strings_in(inner)
    elif isinstance(value, list | tuple):
        for inner in value:
            yield from strings_in(inner)


def require_decent(service: Service, response: httpx.Response, submitted: list[str]) -> None:
    """Fail on a 5xx, on an error that is no registered problem, and on one that echoes what was sent."""
    assert response.status_code < 500, response.text
    if response.status_code < 400:
        return
    assert response.headers["content-type"] == MEDIA_TYPE
    assert response.json()["type"].removeprefix("urn:tacit:problem:") in PROBLEMS
    assert "Traceback" not in response.text
    request_id = response.headers["x-request-id"]
    assert re.fullmatch("[0-9a-f]{16}", request_id)
    assert set(response.headers) <= service.header_names
    # The id is random: five digits that were sent would now and then stand in it by chance.
    sent_back = json.dumps(response.json(), ensure_ascii=False), *response.headers.values()
    received = " ".join(sent_back).replace(request_id, "")
    for text in submitted:
        if len(text) >= 5 and text not in service.public_text:
            assert text not in received, "an error echoes what was sent"


def cases_of(service: Service) -> st.SearchStrategy[Any]:
    """Return requests to any operation: some as the document asks, some against it."""
    schema = schemathesis.openapi.from_dict(service.document)
    return st.one_of(
        operation.ok().as_strategy(generation_mode=mode)
        for operation in schema.get_all_operations()
        for mode in (GenerationMode.POSITIVE, GenerationMode.NEGATIVE)
    )


def fuzz(service: Service, examples: int) -> int:
    """Send requests made from the service's document; return how many."""
    sent = []

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        suppress_health_check=list(HealthCheck),
    )
    @given(cases_of(service), st.sampled_from(service.keys))
    def run(case: Any, key: PrivateKey) -> None:
        kwargs = case.as_transport_kwargs(base_url="http://localhost")
        parts = {name: kwargs[name] for name in ("params", "json", "headers", "cookies") if kwargs.get(name)}
        if "data" in kwargs:
            parts["content"] = kwargs["data"]
        submitted = list(strings_in([parts.get("params"), parts.get("json"), case.path_parameters]))
        try:
            response = service.call(kwargs["method"], kwargs["url"], key=key, **parts)
        except (httpx.InvalidURL, UnicodeError):
            return  # no client can send it
        require_decent(service, response, submitted)
        sent.append(response.status_code)

    run()
    return len(sent)


@pytest.mark.sweep(1)
@pytest.mark.timeout(1800)
@pytest.mark.parametrize("name", ["tester", "agent", "curator"])
def test_requests_made_from_the_openapi_document_get_problems_that_echo_nothing(
    services: dict[str, Service], name: str
) -> None:
    assert fuzz(services[name], EXAMPLES) >= EXAMPLES / 2


def echoing_app() -> FastAPI:
    """Plant: a framework's own error answers, which quote what they reject."""
    app = FastAPI()

    @app.get("/v1/things")
    def things(count: int) -> dict[str, int]:
        return {"count": count}

    return app


@pytest.mark.long
def test_a_framework_that_echoes_would_be_caught(services: dict[str, Service]) -> None:
    planted = Service(echoing_app(), [PrivateKey.generate()], "a", 0)
    with pytest.raises(AssertionError):
        require_decent(planted, planted.call("GET", f"/v1/things?count={CANARY}"), [CANARY])
    with pytest.raises((AssertionError, BaseExceptionGroup)):
        fuzz(planted, 60)


# Bytes that no document makes.

RAW_BODIES: dict[str, bytes] = {
    "NaN": f'{{"name":"{CANARY}","role":NaN}}'.encode(),
    "Infinity": f'{{"{CANARY}":-Infinity}}'.encode(),
    "1e400": f'{{"{CANARY}":1e400}}'.encode(),
    "a long integer": f'{{"{CANARY}":{"9" * 5000}}}'.encode(),
    "the same key twice": f'{{"{CANARY}":1,"{CANARY}":2}}'.encode(),
    "nested lists": b'{"a":' + b"[" * 100_000 + CANARY.encode() + b"]" * 100_000 + b"}",
    "nested objects": (b'{"' + CANARY.encode() + b'":') * 50_000,
    "latin-1": f'{{"name":"{CANARY} ä"}}'.encode("latin-1"),
    "utf-16": f'{{"name":"{CANARY}"}}'.encode("utf-16"),
    "utf-7": f'+AHs-"name":"{CANARY}"+AH0-'.encode(),
    "a byte order mark": b"\xef\xbb\xbf" + f'{{"name":"{CANARY}"}}'.encode(),
    "an unpaired surrogate": f'{{"name":"{CANARY}\\ud800"}}'.encode(),
    "NUL": f'{{"name":"{CANARY}\\u0000"}}'.encode(),
    "cut short": f'{{"name":"{CANARY}'.encode(),
    "no object": f'"{CANARY}"'.encode(),
    "many values": b"[" + b"0," * 500_000 + b"0]",
    "many containers": b"[" + b"{}," * 300_000 + b"{}]",
    "zeros": bytes(1000),
    "nothing": b"",
    "a form": f"name={CANARY}".encode(),
    "an extra field": f'{{"role":"owner","name":"north","{CANARY}":1}}'.encode(),
    "a wrong type": f'{{"role":"{CANARY}","name":["{CANARY}"]}}'.encode(),
}


@pytest.mark.parametrize("name", ["tester", "agent", "curator"])
def test_raw_bodies_get_problems_that_echo_nothing_and_log_nothing(
    services: dict[str, Service], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    service = services[name]
    assert service.uploads()
    for (method, path), key in itertools.product(service.uploads(), service.keys):
        for body in RAW_BODIES.values():
            headers = {"content-type": "application/json"}
            response = service.call(method, path, content=body, headers=headers, key=key)
            assert 400 <= response.status_code < 500
            require_decent(service, response, [CANARY])
        for kind in ("text/plain", "application/x-www-form-urlencoded", f"{CANARY}/json", ""):
            response = service.call(method, path, content=b"{}", headers={"content-type": kind}, key=key)
            assert response.status_code in {403, 415}
            require_decent(service, response, [CANARY])
    logged = "".join(capsys.readouterr())
    assert CANARY not in logged
    assert "Traceback" not in logged


@pytest.mark.parametrize("name", ["tester", "agent", "curator"])
def test_tokens_paths_queries_and_headers_are_not_echoed(
    services: dict[str, Service], name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    ask = partial(served.call, services[name].app, "http://localhost", "GET")
    for path in (f"/v1/{CANARY}", f"/v1/studies/{CANARY}", f"/v1/studies?state={CANARY}", f"/{CANARY}%00%ff"):
        for headers in (
            {},
            {"authorization": f"Bearer {CANARY}"},
            {"x-request-id": CANARY, "cookie": CANARY},
        ):
            response = ask(path, headers=headers)
            assert 400 <= response.status_code < 500
            require_decent(services[name], response, [CANARY])
    assert CANARY not in "".join(capsys.readouterr())
    assert CANARY not in ask("/metrics").text


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", ["tester", "agent", "curator"])
def test_three_hundred_megabytes_are_refused_after_a_few(services: dict[str, Service], name: str) -> None:
    pulled = 0

    async def endless() -> AsyncIterator[bytes]:
        nonlocal pulled
        for _ in range(300 * 16):
            pulled += 2**16
            yield b" " * 2**16

    service, statuses = services[name], set()
    method, path = service.uploads()[0]
    for key in service.keys:
        pulled = 0
        response = service.call(
            method, path, content=endless(), headers={"content-type": "application/json"}, key=key
        )
        statuses.add(response.status_code)
        too_large = response.json()["type"] == "urn:tacit:problem:message-too-large"
        assert too_large == (response.status_code == 413)
        assert pulled <= DRAINED_BYTES_MAX + 2**21
    assert {413} <= statuses <= {413, 403}, "whoever may not upload is told so first"


@pytest.mark.parametrize(
    ("name", "path"), [("tester", "/v1/parties"), ("agent", "/v1/status"), ("curator", "/v1/data-sets")]
)
def test_connections_are_kept_for_known_callers_alone(
    services: dict[str, Service], name: str, path: str
) -> None:
    """Whoever makes a key can sign a token that holds: the key must be known."""
    service, places, app = copy.copy(services[name]), ConnectionSlots(1), services[name].app
    wire = asyncio.Transport()

    async def over_a_connection(scope: Any, receive: Any, send: Any) -> None:
        await app({**scope, "state": {http_server._PLACE: place}}, receive, send)

    service.app = over_a_connection  # type: ignore[assignment]
    for key, kept in ((PrivateKey.generate(), False), (service.keys[0], True)):
        place = places.take(wire)
        assert (service.call("GET", path, key=key).status_code == 200) == kept
        assert (place.key == key.public_hex) == kept
        place.leave()


# Slow and idle connections, on a real socket.


def serving(
    timeout_s: float, body_timeout_s: float, monkeypatch: pytest.MonkeyPatch
) -> Iterator[tuple[tuple[str, int], threading.Thread]]:
    """Yield the address of a server, and the thread that it runs in."""
    monkeypatch.setattr(http_server, "HEADER_TIMEOUT_S", timeout_s)
    app = create_app(
        title="test", version="0", metrics_prefix="t", check_ready=lambda: None, body_timeout_s=body_timeout_s
    )

    @app.put("/echo")
    async def echo(request: Request) -> Response:
        return json_response({"size": len(await json_bytes(request))})

    with served.running(app) as (running, thread):
        yield served.address_of(running), thread


@pytest.fixture
def server(monkeypatch: pytest.MonkeyPatch) -> Iterator[tuple[tuple[str, int], threading.Thread]]:
    """A server with the time limits of this run."""
    yield from serving(SLOW_TIMEOUT_S, SLOW_TIMEOUT_S, monkeypatch)


HEAD = b"PUT /echo HTTP/1.1\r\nhost: a\r\ncontent-type: application/json\r\n"
SLOW_HEADERS = b"GET /healthz HTTP/1.1\r\nhost: a\r\nx-slow: "
SLOW_BODY = HEAD + b"content-length: 1000\r\n\r\n{"


async def _drip(address: tuple[str, int], thread: threading.Thread, start: bytes) -> float:
    """Send a request one byte at a time; return after how many seconds of its own the server hung up."""
    reader, writer = await asyncio.open_connection(*address)
    own = OwnTime(thread)
    writer.write(start)
    closed = asyncio.ensure_future(reader.read())
    while not closed.done():
        await asyncio.wait([closed], timeout=0.2)
        if not writer.is_closing():
            writer.write(b"x")
    writer.close()
    return own.passed_s()


async def _honest(address: tuple[str, int], thread: threading.Thread, count: int) -> list[float]:
    durations_s = []
    limits = httpx.Limits(max_connections=4)
    url = f"http://{address[0]}:{address[1]}"
    async with httpx.AsyncClient(base_url=url, limits=limits, timeout=PATIENCE_S, trust_env=False) as client:
        for _ in range(count):
            own = OwnTime(thread)
            response = await client.put("/echo", content=b"{}", headers={"content-type": "application/json"})
            durations_s.append(own.passed_s())
            assert response.json() == {"size": 2}
    return durations_s


@pytest.mark.long
def test_slow_requests_are_dropped_in_time_while_honest_ones_are_answered(
    server: tuple[tuple[str, int], threading.Thread],
) -> None:
    address, thread = server
    assert http_server.HEADER_TIMEOUT_S == SLOW_TIMEOUT_S
    assert BODY_TIMEOUT_S <= 10

    async def attack() -> tuple[list[float], list[float]]:
        idle = [await asyncio.open_connection(*address) for _ in range(200)]
        starts = (SLOW_HEADERS, SLOW_BODY) * 20
        slow = [asyncio.ensure_future(_drip(address, thread, start)) for start in starts]
        honest = await _honest(address, thread, 200)
        ended = await asyncio.gather(*slow)
        for _, writer in idle:
            writer.close()
        return honest, ended

    took_s = []
    for _ in range(ATTEMPTS_MAX):
        honest, ended = asyncio.run(attack())
        honest_s, slow_s = sorted(honest)[197], max(ended)
        if honest_s < P99_S_MAX and slow_s < SLOW_TIMEOUT_S + LATE_S_MAX:
            return
        took_s.append((honest_s, slow_s))
    pytest.fail(f"honest requests and slow connections took {took_s} seconds")


def test_the_limits_in_force_are_ten_seconds() -> None:
    assert http_server.HEADER_TIMEOUT_S <= 10
    assert BODY_TIMEOUT_S <= 10


def test_a_server_that_waits_for_ever_would_be_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    for address, _ in serving(600.0, 600.0, monkeypatch):
        for start in (SLOW_HEADERS, SLOW_BODY):
            with socket.create_connection(address, timeout=PATIENCE_S) as connection:
                connection.sendall(start)
                connection.settimeout(1.0)
                with pytest.raises(TimeoutError):
                    connection.recv(1)
