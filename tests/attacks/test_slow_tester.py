"""A tester that answers, but ever so slowly: an exchange ends when it should, and the agent's loops go on."""

import socket
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from threading import Event, Thread

import httpx
import pytest

from tacit_protocol.signing import PrivateKey
from tacit_services.agent.study import tester_client
from tacit_services.agent.study.tester_client import TesterClient, TesterUnavailableError

TIMEOUT_S = 0.5
"""How long an exchange may take here."""

DRIPS_FOR_S = 12.0
"""How long the tester keeps dripping: no single wait for it is longer than a tenth of the timeout."""

SECONDS_MAX = 10.0
"""How long an exchange may take on a busy machine before the deadline counts as not kept."""

OK = b"HTTP/1.1 200 OK\r\n"

DRIPS: dict[str, tuple[bytes, bytes]] = {
    "a status line that does not end": (b"HTTP/1.1 200 ", b"O"),
    "headers without end": (OK, b"x-a: b\r\n"),
    "one header without end": (OK + b"x-a: ", b"b"),
    "interim answers without end": (b"", b"HTTP/1.1 102 Processing\r\n\r\n"),
    "a body by the byte": (OK + b"content-length: 1000\r\n\r\n", b"x"),
    "a chunked body by the byte": (OK + b"transfer-encoding: chunked\r\n\r\n", b"1\r\nx\r\n"),
    "a chunk's size without end": (OK + b"transfer-encoding: chunked\r\n\r\n", b"0"),
    "silence": (b"", b""),
}
"""What the tester sends at once, and then again and again."""


@contextmanager
def dripping_tester(first: bytes, drip: bytes) -> Iterator[str]:
    """Serve one connection on a loopback port; what arrives is not read."""
    ended = Event()

    def serve(listening: socket.socket) -> None:
        with suppress(OSError), listening.accept()[0] as connection:
            connection.sendall(first)
            until = time.monotonic() + DRIPS_FOR_S
            while time.monotonic() < until and not ended.wait(TIMEOUT_S / 10):
                connection.sendall(drip)

    with socket.create_server(("127.0.0.1", 0)) as listening:
        thread = Thread(target=serve, args=(listening,))
        thread.start()
        try:
            yield f"http://127.0.0.1:{listening.getsockname()[1]}"
        finally:
            ended.set()
            thread.join()


def seconds_of(
    ask: Callable[[TesterClient], object],
    drip: tuple[bytes, bytes],
    transport: httpx.BaseTransport | None = None,
) -> float:
    """Return how long one exchange took until the client gave the tester up."""
    key = PrivateKey.generate()
    with (
        dripping_tester(*drip) as url,
        TesterClient(
            url, url, key, time.time, lambda _: None, transport=transport, timeout_s=TIMEOUT_S
        ) as client,
    ):
        started_s = time.monotonic()
        with pytest.raises(TesterUnavailableError):
            ask(client)
        return time.monotonic() - started_s


@pytest.mark.sweep(2)
@pytest.mark.parametrize("drip", DRIPS)
def test_an_exchange_ends_in_time_however_slowly_the_answer_comes(drip: str) -> None:
    assert seconds_of(lambda client: client.verdict_envelope("0" * 64), DRIPS[drip]) < SECONDS_MAX


def test_an_upload_that_nobody_reads_ends_in_time(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(tester_client, "ATTEMPTS_MAX", 1)
    large = bytes(2**24)  # more than any socket's buffers hold
    drip = DRIPS["interim answers without end"]
    took_s = seconds_of(lambda client: client.put_release("0" * 64, "north", large), drip)
    assert took_s < SECONDS_MAX


ATTEMPTS_MAX = 5
"""Exchanges of which one must last: where the machine stands still, so do the drips, and a wait ends."""


@pytest.mark.long
@pytest.mark.sweep(1)
@pytest.mark.parametrize("drip", ["one header without end", "a body by the byte"])
def test_a_client_that_times_each_wait_alone_would_be_caught(drip: str) -> None:
    assert any(
        seconds_of(
            lambda client: client.verdict_envelope("0" * 64),
            DRIPS[drip],
            transport=httpx.HTTPTransport(trust_env=False),
        )
        > SECONDS_MAX
        for _ in range(ATTEMPTS_MAX)
    )
