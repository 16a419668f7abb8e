"""Uploaded Parquet files: checked from their own directory, and decoded in a process that may be lost.

What a file's directory and page headers say of sizes is not to be believed: a page of 100 kB may swell to
gigabytes, and nothing notices before the parser has asked for the memory. So the parser runs in a process of
its own (this module's ``main``), whose memory and processor time the system limits, and which sends back
nothing but columns of fixed size: numbers, codes of declared levels, hashes of units. When it dies the upload
is refused, and the curator has spent a few megabytes.

Its directory stands at its end, so that a file is spooled first, to a nameless file, which the system removes
when the process ends, however it ends. It is sealed in blocks by a key that exists in memory alone; the
block's number is its nonce, which no other block of that key has.
"""

import io
import json
import os
import pickle
import resource
import secrets
import select
import struct
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import BinaryIO, Self, cast

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit_protocol.domain import Column, DataError
from tacit_services.agent.data.parquet_source import ParquetSource, column_of
from tacit_services.curator.incoming import Encoded, RowShape, UploadRefusedError

KEY_BYTES, NONCE_BYTES = 32, 12
"""AES-256, for data keys and storage keys alike."""

BLOCK_BYTES = 2**16
"""Plain bytes of a block: what one small read costs."""

TAG_BYTES = 16

PREFIX = "spool-"
"""Begins the name that a spool has for a moment, on file systems that know no nameless files."""


@dataclass(frozen=True)
class SpoolHandle:
    """What opens a sealed spool in another process, to which its descriptor is passed."""

    descriptor: int
    key: bytes = field(repr=False)
    size_bytes: int


class Spool(io.RawIOBase):
    """Written once from its start, then sealed, then read from anywhere."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        file = tempfile.TemporaryFile(dir=folder, prefix=PREFIX, buffering=0)  # noqa: SIM115 (closed with the spool)
        self._open(file, secrets.token_bytes(KEY_BYTES))

    def _open(self, file: io.FileIO, key: bytes) -> None:
        self._file, self._key = file, key
        self._cipher = AESGCM(key)
        self._pending = bytearray()
        self._blocks = 0
        self._size_bytes = 0
        self._position = 0
        self._held: tuple[int, bytes] = (-1, b"")

    @classmethod
    def reopened(cls, handle: SpoolHandle) -> Self:
        """Open a sealed spool by its handle; the descriptor is closed with it."""
        spool = cls.__new__(cls)
        spool._open(io.FileIO(handle.descriptor, "rb"), handle.key)
        spool._size_bytes = handle.size_bytes
        return spool

    @property
    def handle(self) -> SpoolHandle:
        """What opens it in another process."""
        return SpoolHandle(self._file.fileno(), self._key, self._size_bytes)

    @property
    def size_bytes(self) -> int:
        """How many bytes were written."""
        return self._size_bytes

    def append(self, data: bytes) -> None:
        """Write more bytes. Raises OSError: there is no room."""
        self._size_bytes += len(data)
        self._pending += data
        while len(self._pending) >= BLOCK_BYTES:
            self._write_block(bytes(self._pending[:BLOCK_BYTES]))
            del self._pending[:BLOCK_BYTES]

    def seal(self) -> None:
        """Write what is left; afterwards the spool is read."""
        if self._pending:
            self._write_block(bytes(self._pending))
            self._pending.clear()

    def _write_block(self, block: bytes) -> None:
        sealed = memoryview(self._cipher.encrypt(_nonce(self._blocks), block, None))
        while sealed:
            sealed = sealed[self._file.write(sealed) :]
        self._blocks += 1

    def readable(self) -> bool:
        """Return True."""
        return True

    def seekable(self) -> bool:
        """Return True."""
        return True

    def tell(self) -> int:
        """Return where the next read begins."""
        return self._position

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        """Choose where the next read begins."""
        starts = {os.SEEK_SET: 0, os.SEEK_CUR: self._position, os.SEEK_END: self._size_bytes}
        self._position = max(0, starts[whence] + offset)
        return self._position

    def read(self, size: int = -1) -> bytes:
        """Return the next bytes, fewer than asked for only at the end.

        Raises:
            OSError: the file was changed on disk.
        """
        left = max(0, self._size_bytes - self._position)
        stop = self._position + (left if size < 0 else min(size, left))
        parts = []
        while self._position < stop:
            index, start = divmod(self._position, BLOCK_BYTES)
            part = self._block(index)[start : start + stop - self._position]
            parts.append(part)
            self._position += len(part)
        return b"".join(parts)

    def _block(self, index: int) -> bytes:
        if self._held[0] != index:
            length = BLOCK_BYTES + TAG_BYTES
            sealed = os.pread(self._file.fileno(), length, index * length)
            try:
                self._held = index, self._cipher.decrypt(_nonce(index), sealed, None)
            except (InvalidTag, ValueError):
                raise OSError("the spooled upload was changed on disk") from None
        return self._held[1]

    def close(self) -> None:
        """Let the system have the file's room back."""
        self._file.close()
        super().close()


def _nonce(index: int) -> bytes:
    return index.to_bytes(NONCE_BYTES, "big")


FOOTER_BYTES_MAX = 8 * 2**20
"""Largest footer, which is read whole and takes thirty times its size in memory. A thousand columns in tens
of row groups take less."""

CHUNK_BYTES_MAX = 256 * 2**20
"""Largest column of one row group once it is decompressed: its values may all lie in one page, which is
decompressed whole. Writers' defaults stay far below."""

MEMORY_BYTES_MAX = 512 * 2**20
"""What decoding may take beside the interpreter and its libraries: a few columns of one page each."""

CPU_S_MIN, CPU_S_PER_MIB = 60, 1
"""Processor time that decoding may take: a file that compresses a thousand times, and any honest one."""

MAGIC, TAIL_BYTES = b"PAR1", 8

TOO_DEMANDING = (
    "the Parquet file cannot be decoded within the memory and time that an upload may take: it is damaged, "
    "or its pages are too large; write it with smaller pages and row groups"
)

STOP_CHECK_S = 0.5
"""How long a file that is decoded slowly hides from its reader that the service stops."""

REFUSAL_BYTES_MAX = 4096

_ROWS, _END, _REFUSED = b"R", b"E", b"X"
_COUNT = struct.Struct("<I")


def require_modest(spool: Spool) -> None:
    """Raise UploadRefusedError where the file is no plain Parquet, or its footer is out of all proportion."""
    spool.seek(max(0, spool.size_bytes - TAIL_BYTES))
    tail = spool.read(TAIL_BYTES)
    if tail[4:] != MAGIC:
        raise UploadRefusedError("the file is not Parquet, is encrypted, or was cut short")
    if int.from_bytes(tail[:4], "little") > min(FOOTER_BYTES_MAX, spool.size_bytes):
        raise UploadRefusedError("the Parquet file's footer is too large: write fewer, larger row groups")


@dataclass(frozen=True)
class _Task:
    """What the process is to decode."""

    spool: SpoolHandle
    columns: tuple[Column, ...]
    unit_column: str | None
    rows_max: int


def decoded(spool: Spool, shape: RowShape, rows_max: int, go_on: Callable[[], None]) -> Iterator[Encoded]:
    """Yield the declared columns of a spooled Parquet file, which a process of its own decodes.

    ``go_on`` is called while it is waited for, and raises what is to end the wait.

    Raises:
        UploadRefusedError: a declared column is not there, its values are too large, or the file is damaged.
    """
    task = _Task(spool.handle, shape.columns, shape.unit_column, rows_max)
    process = subprocess.Popen(
        [sys.executable, "-m", "tacit_services.curator.parquet_upload"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        pass_fds=[spool.handle.descriptor],
        # Nothing of the curator's own settings. Arrow's usual allocators reserve more than they use.
        env={
            "PATH": os.defpath,
            "ARROW_DEFAULT_MEMORY_POOL": "system",
            "MALLOC_ARENA_MAX": "1",
            "OPENBLAS_NUM_THREADS": "1",
            "OMP_NUM_THREADS": "1",
        },
        cwd="/",
        start_new_session=True,
    )
    sent, received = cast(BinaryIO, process.stdin), cast(BinaryIO, process.stdout)
    try:
        with suppress(BrokenPipeError):  # it has died, as will be seen
            sent.write(pickle.dumps(task))
            sent.close()
        yield from _received(received, shape, rows_max, go_on)
    finally:
        process.kill()
        with suppress(BrokenPipeError):
            sent.close()
        received.close()
        process.wait()


def _received(
    stream: BinaryIO, shape: RowShape, rows_max: int, go_on: Callable[[], None]
) -> Iterator[Encoded]:
    """Yield what the process sends; it is believed in nothing that would take memory."""

    def read(size: int) -> bytes:
        pieces = bytearray()
        while len(pieces) < size:
            while not select.select([stream], [], [], STOP_CHECK_S)[0]:
                go_on()
            piece = os.read(stream.fileno(), size - len(pieces))
            if not piece:
                raise UploadRefusedError(TOO_DEMANDING)
            pieces += piece
        return bytes(pieces)

    while (tag := read(1)) != _END:
        (count,) = _COUNT.unpack(read(_COUNT.size))
        if tag == _ROWS and count <= rows_max:
            encoded = [np.frombuffer(read(count * kind.itemsize), dtype=kind) for kind in shape.kinds]
            yield shape.checked(encoded)
        elif tag == _REFUSED and count <= REFUSAL_BYTES_MAX:
            refusal = json.loads(read(count))
            raise UploadRefusedError(refusal["reason"], refusal["path"])
        else:
            raise UploadRefusedError(TOO_DEMANDING)


# The process.


def main() -> None:
    """Decode the file that standard input describes; write its columns to standard output."""
    task: _Task = pickle.load(sys.stdin.buffer)  # noqa: S301 (the curator's own, by a pipe)
    limit_process(MEMORY_BYTES_MAX, CPU_S_MIN + CPU_S_PER_MIB * task.spool.size_bytes // 2**20)
    send(task, sys.stdout.buffer)


def send(task: _Task, stream: BinaryIO) -> None:
    """Write a file's columns, and at their end that it is the end, or why they cannot be taken."""
    try:
        shape = RowShape(task.columns, task.unit_column)
        with Spool.reopened(task.spool) as spool, pa.PythonFile(spool, mode="r") as file:
            source = ParquetSource(file)
            shape.require_present(source.column_names())
            _require_small_chunks(source.metadata(), set(shape.wanted.names))
            for batch in source.batches(shape.wanted, task.rows_max):
                stream.write(_ROWS + _COUNT.pack(batch.num_rows))
                stream.writelines(column.tobytes() for column in shape.encoded(batch))
        stream.write(_END)
    except (UploadRefusedError, DataError, MemoryError, OSError) as error:
        path = error.path if isinstance(error, UploadRefusedError) else None
        known = isinstance(error, UploadRefusedError | DataError)
        reason = str(error) if known else TOO_DEMANDING
        refusal = json.dumps({"reason": reason, "path": path}).encode()
        stream.write(_REFUSED + _COUNT.pack(len(refusal)) + refusal)
    stream.flush()


def limit_process(memory_bytes: int, cpu_s: int) -> None:
    """Let this process take so much more memory than it has, and so much processor time, and dump no core."""
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    resource.setrlimit(resource.RLIMIT_CPU, (cpu_s, cpu_s + 1))
    limit = memory_bytes + _address_space_bytes()
    resource.setrlimit(resource.RLIMIT_AS, (limit, limit))


def _address_space_bytes() -> int:
    """Return what this process has reserved; where the system does not tell, what libraries may need."""
    try:
        return int(Path("/proc/self/statm").read_text("ascii").split()[0]) * resource.getpagesize()
    except OSError:
        return 2**32


def _require_small_chunks(metadata: pq.FileMetaData, names: set[str]) -> None:
    for group in range(metadata.num_row_groups):
        row_group = metadata.row_group(group)
        for index in range(metadata.num_columns):
            chunk = row_group.column(index)
            if column_of(chunk) in names and chunk.total_uncompressed_size > CHUNK_BYTES_MAX:
                raise UploadRefusedError("a row group of the Parquet file is too large: write smaller ones")


if __name__ == "__main__":
    main()
