"""What owners and operator do with a curator: requests as the interface wants them, and nothing handed over
to another service than the pinned one."""

import asyncio
import json
import tracemalloc
from pathlib import Path
from typing import Any

import httpx
import pytest
from curator_answers import HELD, AsyncMemory, MemoryCurator

from tacit import AsyncCuratorClient, CuratorClient
from tacit.client.data_set import PART_BYTES, upload_of
from tacit.client.http import HttpRequest
from tacit.client.transport import HttpTransport
from tacit.errors import VerificationFailedError
from tacit_protocol.signing import PrivateKey

DESCRIPTION: dict[str, Any] = {
    "name": "patients",
    "epsilon": 3.0,
    "delta": 3e-5,
    "columns": HELD["columns"],
    "policy": {"epsilon_per_study_max": 1.0, "delta_per_study_max": 1e-5, "analysts": ["*"]},
}


@pytest.fixture
def curator() -> MemoryCurator:
    return MemoryCurator()


@pytest.fixture
def key() -> PrivateKey:
    return PrivateKey.generate()


@pytest.fixture
def client(curator: MemoryCurator, key: PrivateKey) -> CuratorClient:
    pinned = curator.key.public_hex
    return CuratorClient("https://c.example", key, owner="north", curator_key=pinned, transport=curator)


@pytest.fixture
def rows(tmp_path: Path) -> Path:
    file = tmp_path / "rows.csv"
    file.write_bytes(b"age,sex\n60,F\n61,M\n62,F\n")
    return file


def test_a_registration_says_what_the_owner_said_and_no_more(
    client: CuratorClient, curator: MemoryCurator
) -> None:
    assert client.register(DESCRIPTION).account == "north/patients"
    body = curator.asked[-1].body
    assert isinstance(body, bytes)
    sent = json.loads(body)
    assert set(sent) == {"columns", "epsilon", "delta", "policy"}
    assert sent["policy"] == DESCRIPTION["policy"] | {"approval": "by-hand"}


def test_a_file_is_sent_as_it_is_and_progress_ends_at_its_size(
    client: CuratorClient, curator: MemoryCurator, rows: Path
) -> None:
    told: list[int] = []
    held = client.upload("patients", rows, told.append)
    assert (held.ready, held.rows) == (True, 3)
    assert curator.sent == rows.read_bytes()
    assert told == [len(curator.sent)]


@pytest.mark.parametrize("verb", ["upload", "enrol"])
def test_nothing_is_handed_to_another_service_than_the_pinned_one(
    client: CuratorClient, curator: MemoryCurator, rows: Path, verb: str
) -> None:
    curator.key = PrivateKey.generate()
    with pytest.raises(VerificationFailedError, match="another key"):
        client.upload("patients", rows) if verb == "upload" else client.enrol("secret")
    assert {request.method for request in curator.asked} == {"GET"}


def test_the_asynchronous_client_does_the_same(curator: MemoryCurator, key: PrivateKey, rows: Path) -> None:
    async def ask() -> Any:
        async with AsyncCuratorClient(
            "https://c.example", key, owner="north", transport=AsyncMemory(curator)
        ) as client:
            await client.register(DESCRIPTION)
            return await client.upload("patients", rows)

    assert asyncio.run(ask()).ready
    assert curator.sent == rows.read_bytes()


@pytest.fixture
def large(tmp_path: Path) -> Path:
    file = tmp_path / "large.parquet"
    with file.open("wb") as out:
        out.truncate(64 * PART_BYTES)
    return file


def taking(request: httpx.Request) -> httpx.Response:
    assert request.headers["content-length"] == str(64 * PART_BYTES)
    assert "transfer-encoding" not in request.headers
    assert request.headers["content-type"] == "application/vnd.apache.parquet"
    return httpx.Response(200)


class Drain(httpx.BaseTransport):
    """Reads a request part by part, and fails the first ``failures`` times after one part."""

    def __init__(self, failures: int = 0) -> None:
        self.failures, self.received = failures, 0

    def handle_request(self, request: httpx.Request) -> httpx.Response:
        self.received = 0
        stream = request.stream
        assert isinstance(stream, httpx.SyncByteStream)
        for part in stream:
            self.received += len(part)
            if self.failures:
                self.failures -= 1
                raise httpx.WriteError("broken")
        return taking(request)


def test_a_large_upload_that_broke_begins_again_at_the_start_in_little_memory(large: Path) -> None:
    drain, told = Drain(failures=2), list[int]()
    request = HttpRequest("PUT", "/rows", body=upload_of(large, told.append), signed=False)
    with HttpTransport("https://c.example", inner=drain, sleep=lambda _: None) as transport:
        tracemalloc.start()
        try:
            assert transport.send(request).status == 200
            assert tracemalloc.get_traced_memory()[1] < 8 * PART_BYTES
        finally:
            tracemalloc.stop()
    assert (drain.received, told[-1]) == (64 * PART_BYTES, 64 * PART_BYTES)
