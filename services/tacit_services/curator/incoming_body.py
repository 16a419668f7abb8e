"""A request's body, which arrives in the event loop, read in the thread that parses it.

The thread pulls: while it works, nothing is taken from the connection, and the sender waits. So memory holds
a piece of the body, whatever its length.
"""

import asyncio
import io
from collections.abc import Awaitable, Callable
from concurrent.futures import CancelledError, Future
from threading import Lock

from tacit_services.shared.http_server import Stopping

PIECE_BYTES = 2**20
"""How much is handed over at once: handing over costs more than copying."""

STOP_CHECK_S = 0.5
"""How long a body that does not arrive hides from its reader that the service stops."""


NextPiece = Callable[[], Awaitable[bytes | None]]
"""Returns the next piece as it arrived, or None at the body's end."""


class StoppedError(Exception):
    """The service stops, or nobody wants the body any more."""


class IncomingBody(io.RawIOBase):
    """A body as a file that is read once, from one thread at a time."""

    def __init__(self, next_piece: NextPiece, stopping: Stopping) -> None:
        super().__init__()
        self._loop = asyncio.get_running_loop()
        self._next_piece = next_piece
        self._stopping = stopping
        self._held = bytearray()
        self._ended = False
        self._lock = Lock()
        self._pulling: Future[bytes] | None = None
        self._abandoned = False
        self.failure: BaseException | None = None
        """Why the body could not be read whole, if so; a parser may have put words of its own on it."""

    def readable(self) -> bool:
        """Return True."""
        return True

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, fewer than asked for only at the end."""
        while not self._ended and (size < 0 or len(self._held) < size):
            self._pull()
        stop = len(self._held) if size < 0 else min(size, len(self._held))
        taken = bytes(self._held[:stop])
        del self._held[:stop]
        return taken

    def read_line(self, size_bytes_max: int) -> bytes:
        """Return the bytes up to the first line's end, at most that many, and leave them to be read again."""
        searched = 0
        while True:
            end = self._held.find(b"\n", searched)
            if end >= 0 or self._ended or len(self._held) >= size_bytes_max:
                return bytes(self._held[: end + 1 if end >= 0 else size_bytes_max])
            searched = len(self._held)
            self._pull()

    def abandon(self) -> None:
        """Let whoever reads, in whatever thread, go on at once with a StoppedError."""
        with self._lock:
            self._abandoned = True
            if self._pulling is not None:
                self._pulling.cancel()

    def _pull(self) -> None:
        with self._lock:
            if self._abandoned:
                raise StoppedError("the body is not read any more")
            self._pulling = asyncio.run_coroutine_threadsafe(self._gather(), self._loop)
        try:
            piece = self._pulling.result()
        except CancelledError:
            stopped = StoppedError("the body is not read any more")
            if not self._abandoned:
                self.failure = stopped  # the event loop has ended
            raise stopped from None
        except Exception as error:
            self.failure = error
            raise
        self._held += piece
        self._ended = not piece

    async def _gather(self) -> bytes:
        gathered = bytearray()
        while len(gathered) < PIECE_BYTES:
            piece = await self._next()
            if piece is None:
                break
            gathered += piece
        return bytes(gathered)

    async def _next(self) -> bytes | None:
        upcoming = asyncio.ensure_future(self._next_piece())
        try:
            while not (await asyncio.wait({upcoming}, timeout=STOP_CHECK_S))[0]:
                if self._stopping.requested:
                    raise StoppedError("the service stops")
        finally:
            upcoming.cancel()
        return await upcoming
