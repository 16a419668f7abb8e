"""Uploads: rows stream in, are checked and encrypted on the fly, and take their place all at once.

Until the database names the new file, nothing has happened: whatever fails before that leaves what was held
before. A file that was begun is removed at once, or, after a crash, when the curator starts. The thread that
parses a body pulls its pieces from the event loop, so that the sender waits while it works; units are counted
as they pass. Memory is constant, however many rows there are.
"""

import asyncio
import io
from collections.abc import Awaitable, Callable, Generator
from concurrent.futures import CancelledError, Future
from contextlib import ExitStack
from dataclasses import dataclass
from functools import partial
from threading import Lock
from typing import Any, Self

import anyio
import anyio.to_thread
import numpy as np
import structlog
from sqlalchemy.engine import Connection, Engine
from starlette.requests import ClientDisconnect

from tacit_protocol.domain import DataError
from tacit_services.agent.data.csv_source import HEADER_BYTES_MAX, header_names, sound_csv_batches
from tacit_services.agent.data.reader import DistinctHashes, UnitHashes
from tacit_services.curator.data_sets import DataSets, RegisteredDataSet, view
from tacit_services.curator.incoming import Encoded, RowShape, UploadRefusedError
from tacit_services.curator.parquet_upload import Spool, decoded, require_modest
from tacit_services.curator.store import RowStore, RowWriter
from tacit_services.shared.clock import Clock
from tacit_services.shared.database import NO_ROOM, DatabaseUnavailableError, forget_deleted, run_transaction
from tacit_services.shared.failpoints import StorageStep, reached
from tacit_services.shared.http_server import Stopping
from tacit_services.shared.problem_responses import STORAGE_RETRY_S, RegisteredProblemError

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


HASHES_IN_MEMORY = 500_000
"""Distinct hashes kept before they are dealt out; merging takes a few times their 4 MB."""

BUCKETS = 64
"""A bucket of a billion units takes 125 MB when it is counted; each is an open file."""


class UnitCounter(DistinctHashes):
    """Counts distinct hashes in constant memory; use it as a context manager, which removes its buckets.

    Beyond HASHES_IN_MEMORY they are dealt into buckets on disk, sealed as every spool is; equal hashes fall
    into one bucket, and each bucket is counted by itself.
    """

    def __init__(self, make_spool: Callable[[], Spool]) -> None:
        super().__init__(HASHES_IN_MEMORY)
        self._make_spool = make_spool
        self._buckets: list[Spool] = []
        self._open = ExitStack()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._open.close()

    def add(self, hashes: UnitHashes) -> None:
        """Take in one batch of hashes. Raises OSError: there is no room for a bucket."""
        super().add(hashes)
        if len(self._merged) > HASHES_IN_MEMORY:
            self._deal()

    def count(self) -> int:
        """Return how many distinct hashes there were; nothing can be added afterwards."""
        held = super().count()
        if not self._buckets:
            return held
        self._deal()
        return sum(_distinct(bucket) for bucket in self._buckets)

    def _deal(self) -> None:
        if not self._buckets:
            self._buckets = [self._open.enter_context(self._make_spool()) for _ in range(BUCKETS)]
        bucket_of = self._merged % np.uint64(BUCKETS)
        for index, bucket in enumerate(self._buckets):
            bucket.append(self._merged[bucket_of == index].tobytes())
        self._merged = self._merged[:0]


def _distinct(bucket: Spool) -> int:
    bucket.seal()
    return len(np.unique(np.frombuffer(bucket.read(), dtype=np.uint64)))


UPLOAD_BYTES_MAX = 4 * 2**30
"""Largest upload unless the operator says otherwise."""

UPLOADS_MAX = 4
"""Most uploads at once unless the operator says otherwise: each takes a processor and tens of megabytes."""

BATCH_BYTES = 2**22
"""Size of the rows that are converted at once."""

BATCH_ROWS_MAX = 2**16

RETRY_S = 10
"""When a curator that is busy with uploads is worth asking again."""

CSV, PARQUET = "text/csv", "application/vnd.apache.parquet"
MEDIA_TYPES = (CSV, PARQUET)

CUT_SHORT = "the connection ended before the rows did"

Batches = Generator[Encoded, None, None]

log = structlog.get_logger()


@dataclass(frozen=True)
class _Taken:
    """A finished file that no row of the database names yet."""

    writer: RowWriter
    size_bytes: int
    units: int


class Uploads:
    """Takes uploads, at most ``uploads_max`` at once and one for each data set."""

    def __init__(
        self,
        engine: Engine,
        data_sets: DataSets,
        store: RowStore,
        *,
        clock: Clock,
        stopping: Stopping,
        uploads_max: int = UPLOADS_MAX,
    ) -> None:
        self._engine = engine
        self._data_sets = data_sets
        self._store = store
        self._clock = clock
        self._stopping = stopping
        self._uploads_max = uploads_max
        self._under_way: set[str] = set()

    @property
    def under_way(self) -> int:
        """How many uploads there are now."""
        return len(self._under_way)

    async def take(
        self, owner: str, name: str, media_type: str, next_piece: NextPiece
    ) -> tuple[dict[str, Any], bool]:
        """Let a data set have the rows that arrive; returns its view, and whether it had none before.

        Raises:
            ProblemError: what was held before is unchanged.
        """
        if media_type not in MEDIA_TYPES:
            raise RegisteredProblemError("unsupported-media-type")
        look = partial(self._data_sets.require_takes_rows, owner=owner, name=name)
        seen = await anyio.to_thread.run_sync(partial(run_transaction, self._engine, look, read_only=True))
        # From here to the end of the block the event loop's one thread keeps the set whole.
        if seen.account in self._under_way or len(self._under_way) >= self._uploads_max:
            raise RegisteredProblemError("rate-limited", retry_after_s=RETRY_S)
        self._under_way.add(seen.account)
        body = IncomingBody(next_piece, self._stopping)
        try:
            limiter = anyio.CapacityLimiter(1)  # a thread of its own, never behind other requests'
            return await anyio.to_thread.run_sync(self._receive, seen, media_type, body, limiter=limiter)
        finally:
            self._under_way.discard(seen.account)

    def delete(self, owner: str, name: str) -> None:
        """Delete a data set's rows and the key that opens them. Raises ProblemError: ``unknown-data-set``."""
        now = int(self._clock())
        file = run_transaction(self._engine, lambda c: self._data_sets.delete(c, owner, name, now))
        reached(StorageStep.KEY_DELETED)
        if file is not None:
            self._store.remove(file)
        forget_deleted(self._engine)

    def _receive(
        self, seen: RegisteredDataSet, media_type: str, body: IncomingBody
    ) -> tuple[dict[str, Any], bool]:
        try:
            taken = self._store_rows(seen, media_type, body)
        except Exception as error:
            raise _as_problem(body.failure or error) from error
        return self._commit(seen, taken)

    def _store_rows(self, seen: RegisteredDataSet, media_type: str, body: IncomingBody) -> _Taken:
        shape = RowShape(seen.columns, seen.unit_column)
        batch_rows = max(1, min(BATCH_ROWS_MAX, BATCH_BYTES // (8 * len(shape.schema))))
        writer = self._store.writer(seen.account, shape.schema)
        read = _csv_rows if media_type == CSV else partial(_parquet_rows, self._store, self._go_on)
        batches = read(body, shape, batch_rows)
        try:
            with UnitCounter(self._store.spool) as counter:
                for encoded in batches:
                    self._go_on()
                    rows = shape.stored(encoded)
                    writer.write(rows)
                    reached(StorageStep.FILE_BEGUN)
                    if seen.unit_column is not None:
                        counter.add(shape.unit_hashes(rows))
                if writer.rows == 0:
                    raise UploadRefusedError("the file has no rows")
                shape.require_numbers()
                size_bytes = writer.finish()
                return _Taken(writer, size_bytes, counter.count() if seen.unit_column else writer.rows)
        except BaseException:
            body.abandon()
            batches.close()
            writer.discard()
            raise

    def _go_on(self) -> None:
        if self._stopping.requested:
            raise StoppedError("the service stops")

    def _commit(self, seen: RegisteredDataSet, taken: _Taken) -> tuple[dict[str, Any], bool]:
        writer, now = taken.writer, int(self._clock())
        reached(StorageStep.FILE_WRITTEN)

        def swap(connection: Connection) -> tuple[str | None, dict[str, Any]]:
            old = self._data_sets.swap_rows(
                connection,
                seen,
                writer.stored,
                rows=writer.rows,
                units=taken.units,
                size_bytes=taken.size_bytes,
                now=now,
            )
            held = self._data_sets.held_data_set(connection, seen.owner, seen.name)
            assert held is not None  # noqa: S101 (its row was just written)
            return old, view(connection, held, to_owner=True, now=now)

        try:
            old, shown = run_transaction(self._engine, swap)
        except DatabaseUnavailableError:
            # Whether it was committed is not known: the next start removes whichever file is not named.
            log.warning("upload_unconfirmed")
            raise
        except BaseException:
            writer.discard()
            raise
        reached(StorageStep.ROWS_SWAPPED)
        if old is not None:
            self._store.remove(old)
        reached(StorageStep.ROWS_HELD)
        return shown, old is None


def _csv_rows(body: IncomingBody, shape: RowShape, batch_rows: int) -> Batches:
    line = body.read_line(HEADER_BYTES_MAX)
    header = header_names(line)
    shape.require_present(header)
    body.read(len(line))
    for batch in sound_csv_batches(body.read, header, shape.wanted.names, batch_rows):
        yield shape.encoded(batch)


def _parquet_rows(
    store: RowStore, go_on: Callable[[], None], body: IncomingBody, shape: RowShape, batch_rows: int
) -> Batches:
    with store.spool() as spool:
        while piece := body.read(PIECE_BYTES):
            spool.append(piece)
        spool.seal()
        require_modest(spool)
        yield from decoded(spool, shape, batch_rows, go_on)


def _as_problem(error: BaseException) -> BaseException:
    """Say which problem ended an upload; what is not foreseen stays what it is."""
    match error:
        case UploadRefusedError():
            return RegisteredProblemError("upload-refused", detail=error.reason, path=error.path)
        case DataError():
            return RegisteredProblemError("upload-refused", detail=str(error))
        case ClientDisconnect():
            return RegisteredProblemError("upload-refused", detail=CUT_SHORT)
        case StoppedError():
            return RegisteredProblemError("not-ready", retry_after_s=RETRY_S)
        case OSError() if error.errno in NO_ROOM:
            return RegisteredProblemError("storage-full", retry_after_s=STORAGE_RETRY_S)
        case _:
            return error
