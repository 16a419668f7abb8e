"""An upload that has to be read in another order than it arrives, kept on disk but never as plain bytes.

A Parquet file's directory stands at its end. The bytes are therefore spooled to a nameless file, which the
system removes when the process ends, however it ends. They are sealed in blocks (AES-256-GCM) by a key that
exists in memory alone; the block's number is its nonce, which no other block of that key has.
"""

import io
import os
import secrets
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from tacit_services.curator.storage_keys import KEY_BYTES, NONCE_BYTES

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
        """Write more bytes.

        Raises:
            OSError: there is no room.
        """
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
