"""Keys that protect rows at rest, and spools: bytes on disk that are sealed while they wait.

Every upload is encrypted with a data key of its own, drawn at random. The database keeps that key wrapped
(AES-256-GCM, NIST SP 800-38D) by the operator's storage key, and bound to the account and the file that it
is for: a wrapped key moved to another row of the database does not open. Whoever deletes the wrapped key has
made every copy of the file unreadable.

An upload that has to be read in another order than it arrives, as a Parquet file whose directory stands at
its end, is spooled to a nameless file, which the system removes when the process ends, however it ends. It
is sealed in blocks by a key that exists in memory alone; the block's number is its nonce, which no other
block of that key has.
"""

import hashlib
import io
import os
import re
import secrets
import tempfile
from dataclasses import dataclass, field
from pathlib import Path
from typing import Self

from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

KEY_BYTES = 32
"""AES-256, for data keys and storage keys alike."""

ID_BYTES, NONCE_BYTES = 8, 12

_KEY = re.compile(r"[0-9a-f]{64}", re.IGNORECASE)


class StorageKeyError(Exception):
    """The storage keys are malformed, or none of them opens what is stored. The text says what to do."""


@dataclass(frozen=True)
class StorageKeys:
    """The operator's storage keys: the first one wraps, all of them unwrap."""

    keys: tuple[bytes, ...] = field(repr=False)

    @classmethod
    def parse(cls, text: str) -> Self:
        """Read the keys: each 64 hexadecimal digits, apart by white space, the one to use first.

        Raises:
            StorageKeyError: there is none, or one is not of that form.
        """
        words = text.split()
        if not words or not all(_KEY.fullmatch(word) for word in words):
            raise StorageKeyError("storage keys are 64 hexadecimal digits each, one to a line, at least one")
        return cls(tuple(bytes.fromhex(word) for word in words))

    def wrap(self, data_key: bytes, context: bytes) -> bytes:
        """Wrap a data key; ``context`` says what it is for, and must be the same when it is unwrapped."""
        key, nonce = self.keys[0], secrets.token_bytes(NONCE_BYTES)
        return _key_id(key) + nonce + AESGCM(key).encrypt(nonce, data_key, context)

    def unwrap(self, wrapped: bytes, context: bytes) -> bytes:
        """Return the data key.

        Raises:
            StorageKeyError: it was wrapped by another key or for another file, or it was changed.
        """
        known = [key for key in self.keys if _key_id(key) == wrapped[:ID_BYTES]]
        if not known:
            raise StorageKeyError(
                "the rows were stored with another storage key: add that key to the storage keys"
            )
        nonce, sealed = wrapped[ID_BYTES : ID_BYTES + NONCE_BYTES], wrapped[ID_BYTES + NONCE_BYTES :]
        try:
            return AESGCM(known[0]).decrypt(nonce, sealed, context)
        except (InvalidTag, ValueError):
            raise StorageKeyError("a stored data key was changed; upload the rows again") from None

    def is_current(self, wrapped: bytes) -> bool:
        """Say whether the first key wrapped it."""
        return wrapped[:ID_BYTES] == _key_id(self.keys[0])


def _key_id(key: bytes) -> bytes:
    return hashlib.sha256(b"tacit/curator/storage-key/1" + key).digest()[:ID_BYTES]


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
