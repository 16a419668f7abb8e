"""A client that costs next to nothing: prepared requests over kept connections, answers read and timed."""

import asyncio
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np


@dataclass(frozen=True)
class Measured:
    """How a batch of requests went."""

    requests: int
    seconds: float
    latencies_s: tuple[float, ...]

    @property
    def rate(self) -> float:
        """Requests answered per second."""
        return self.requests / self.seconds

    def quantile_ms(self, part: float) -> float:
        """Return a quantile of the time to an answer, in milliseconds."""
        return 1000 * float(np.quantile(self.latencies_s, part))


def request_bytes(method: str, path: str, port: int, token: str, body: bytes = b"") -> bytes:
    """Write one HTTP/1.1 request, whole."""
    head = (
        f"{method} {path} HTTP/1.1\r\nHost: 127.0.0.1:{port}\r\nAuthorization: Bearer {token}\r\n"
        f"Content-Type: application/json\r\nContent-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


async def exchange(reader: asyncio.StreamReader, writer: asyncio.StreamWriter, request: bytes) -> int:
    """Send a request and read its answer; returns the status."""
    writer.write(request)
    head = await reader.readuntil(b"\r\n\r\n")
    status, length = int(head[9:12]), 0
    for line in head.split(b"\r\n")[1:]:
        name, _, value = line.partition(b":")
        if name.lower() == b"content-length":
            length = int(value)
    await reader.readexactly(length)
    return status


def upload(port: int, requests: Sequence[bytes], connections: int) -> Measured:
    """Send every request once, over so many connections; every answer must be 201."""
    waiting, latencies = list(reversed(requests)), []

    async def one_connection() -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        while waiting:
            request, started = waiting.pop(), time.perf_counter()
            status = await exchange(reader, writer, request)
            latencies.append(time.perf_counter() - started)
            if status != 201:
                raise RuntimeError(f"an upload was answered with {status}")
        writer.close()

    async def all_connections() -> None:
        await asyncio.gather(*(one_connection() for _ in range(connections)))

    started = time.perf_counter()
    asyncio.run(all_connections())
    return Measured(len(latencies), time.perf_counter() - started, tuple(latencies))


async def hold_polls(
    port: int, request_for: Callable[[int], bytes], agents: int, seconds: float, settled: asyncio.Event
) -> int:
    """Let so many agents poll for so long, each again as soon as it is answered; returns the answers.

    ``settled`` is set once every agent has a connection and its first question is out.
    """
    answers, asked, end = 0, 0, 0.0

    async def agent(number: int) -> None:
        nonlocal answers, asked
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        asked += 1
        if asked == agents:
            settled.set()
        while True:
            status = await exchange(reader, writer, request_for(number))
            if status != 200:
                raise RuntimeError(f"a poll was answered with {status}")
            answers += 1

    tasks = []
    for number in range(agents):
        tasks.append(asyncio.create_task(agent(number)))
        await asyncio.sleep(0.002)  # a thousand institutions do not start in one instant
    await settled.wait()
    end = time.monotonic() + seconds
    while time.monotonic() < end:
        done = [task for task in tasks if task.done()]
        for task in done:
            task.result()
        await asyncio.sleep(0.2)
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)
    return answers
