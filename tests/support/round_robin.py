"""A load balancer: hands each connection to the next server that takes it."""

import asyncio
import itertools
from collections.abc import Sequence
from contextlib import suppress

CHUNK_BYTES = 2**16


class RoundRobin:
    """Balances connections between ports of this machine.

    Args:
        ports: where the servers listen, or will.
    """

    def __init__(self, ports: Sequence[int]) -> None:
        self._ports, self._turns = tuple(ports), itertools.count()

    def run(self, port: int) -> None:
        """Serve on that port for ever."""
        asyncio.run(self._serve(port))

    async def _serve(self, port: int) -> None:
        server = await asyncio.start_server(self._balance, "127.0.0.1", port)
        await server.serve_forever()

    async def _balance(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        first = next(self._turns)
        for place in range(len(self._ports)):
            port = self._ports[(first + place) % len(self._ports)]
            try:
                far_reader, far_writer = await asyncio.open_connection("127.0.0.1", port)
            except OSError:
                continue  # that server is down
            await asyncio.gather(_copy(reader, far_writer), _copy(far_reader, writer))
            return
        writer.close()


async def _copy(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    with suppress(OSError):
        while chunk := await reader.read(CHUNK_BYTES):
            writer.write(chunk)
            await writer.drain()
    writer.close()
