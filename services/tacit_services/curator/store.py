"""The rows at rest: one encrypted Parquet file for each data set, never decrypted whole.

Parquet's own modular encryption (AES-256-GCM) seals every page, and the footer, with the upload's data key.
What each module authenticates begins with the account and the file's random name, which are not stored in
the file: a file put in another's place, or cut short, or changed anywhere, is refused when it is read.

Every upload has a data key of its own, drawn at random. The database keeps it wrapped (AES-256-GCM, NIST SP
800-38D) by the operator's storage key, and bound to the account and the file that it is for: a wrapped key
moved to another row of the database does not open. Whoever deletes the wrapped key has made every copy of the
file unreadable.

The database decides which files there are. A file that no row of it names is debris of a stopped process,
and removed when the curator starts.
"""

import fcntl
import hashlib
import os
import re
import secrets
from collections.abc import Hashable, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, BinaryIO, Self

import pyarrow as pa
import pyarrow.parquet as pq
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.ciphers.aead import AESGCM
from pyarrow.parquet import encryption

from tacit_protocol.domain import DataError
from tacit_services.agent.data.parquet_source import ParquetSource
from tacit_services.curator.parquet_upload import KEY_BYTES, NONCE_BYTES, PREFIX, Spool
from tacit_services.shared.database import sync_folder
from tacit_services.shared.settings import SettingsError

ID_BYTES = 8

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


GROUP_BYTES = 8 * 2**20
"""Size of a row group in memory: what is held while a file is written."""

GROUP_ROWS_MIN = 2**13
"""Fewest rows of a row group, where rows are wide: the footer lists every column of every group. A thousand
columns in groups of a thousand rows would make it larger than memory should be."""

SUFFIX = ".rows"
LOCK_FILE, ID_FILE = "lock", "id"
FOLDER_MODE, FILE_MODE = 0o700, 0o600


@dataclass(frozen=True)
class StoredRows:
    """Where the rows of an account are, and the wrapped key that opens them."""

    account: str
    file: str
    wrapped_key: bytes


class RowStore:
    """The folder of encrypted files.

    Args:
        folder: made if it is not there; one process at a time may have it.
        keys: the operator's storage keys.
    """

    def __init__(self, folder: Path, keys: StorageKeys) -> None:
        self._folder = folder.resolve()  # rows are opened by a path without links
        self._keys = keys
        self._lock: BinaryIO | None = None

    @property
    def folder(self) -> Path:
        """Where the files are."""
        return self._folder

    def acquire(self) -> None:
        """Take the folder for this process, for as long as it lives.

        Raises:
            SettingsError: the folder cannot be used, or another process has it.
        """
        try:
            self._folder.mkdir(mode=FOLDER_MODE, parents=True, exist_ok=True)
            self._folder.chmod(FOLDER_MODE)
            self._lock = open(self._folder / LOCK_FILE, "ab", opener=_private)  # noqa: SIM115 (held while it lives)
            fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except OSError as error:
            self.release()
            taken = isinstance(error, BlockingIOError)
            reason = "another curator is using this folder" if taken else error.strerror
            raise SettingsError(f"storage_folder: {reason}") from None

    def release(self) -> None:
        """Give the folder back."""
        if self._lock is not None:
            self._lock.close()
            self._lock = None

    def bind(self, storage_id: str) -> None:
        """Tie the folder to a database, so that no other database's start sweeps it.

        Raises:
            SettingsError: the folder holds rows of another database.
        """
        marker = self._folder / ID_FILE
        if marker.exists():
            if marker.read_text("ascii").strip() != storage_id:
                raise SettingsError("storage_folder: this folder belongs to another database")
            return
        if any(self._files()):
            raise SettingsError("storage_folder: this folder holds rows, but does not say of which database")
        with open(marker, "w", encoding="ascii", opener=_private) as file:
            file.write(storage_id + "\n")
        sync_folder(self._folder)

    def sweep(self, kept: Iterable[str]) -> int:
        """Remove every file of rows that is not named, and every spool; returns how many."""
        wanted = set(kept)
        debris = [path for path in self._files() if path.stem not in wanted]
        debris += self._folder.glob(f"{PREFIX}*")
        for path in debris:
            path.unlink()
        return len(debris)

    def _files(self) -> Iterable[Path]:
        return self._folder.glob(f"*{SUFFIX}")

    def writer(self, account: str, schema: pa.Schema) -> "RowWriter":
        """Begin a new file for an account. Raises OSError: it cannot be created."""
        file, data_key = secrets.token_hex(16), secrets.token_bytes(KEY_BYTES)
        context = _context(account, file)
        stored = StoredRows(account, file, self._keys.wrap(data_key, context))
        properties = encryption.create_encryption_properties(
            data_key, aad_prefix=context, store_aad_prefix=False
        )
        return RowWriter(stored, self._path(file), schema, properties)

    def spool(self) -> Spool:
        """Return a new spool on the folder's disk. Raises OSError: it cannot be created."""
        return Spool(self._folder)

    def source(self, stored: StoredRows) -> "StoredRowsSource":
        """Return the source that reads an account's rows. Raises DataError: no storage key opens them."""
        context = _context(stored.account, stored.file)
        try:
            data_key = self._keys.unwrap(stored.wrapped_key, context)
        except StorageKeyError as error:
            raise DataError(str(error)) from None
        return StoredRowsSource(self._path(stored.file), data_key, context)

    def require_key(self, stored: StoredRows) -> None:
        """Raise StorageKeyError where no storage key opens the rows."""
        self._keys.unwrap(stored.wrapped_key, _context(stored.account, stored.file))

    def rewrapped(self, stored: StoredRows) -> bytes | None:
        """Return the data key wrapped by the first storage key; None where it is already.

        Raises:
            StorageKeyError: no storage key opens it.
        """
        if self._keys.is_current(stored.wrapped_key):
            return None
        context = _context(stored.account, stored.file)
        return self._keys.wrap(self._keys.unwrap(stored.wrapped_key, context), context)

    def remove(self, file: str) -> None:
        """Remove a file; it may be gone already."""
        self._path(file).unlink(missing_ok=True)

    def _path(self, file: str) -> Path:
        return self._folder / f"{file}{SUFFIX}"


class RowWriter:
    """A new file, written row group by row group; nothing refers to it until the database does."""

    def __init__(self, stored: StoredRows, path: Path, schema: pa.Schema, properties: Any) -> None:
        self.stored = stored
        self.rows = 0
        self._path = path
        self._pending: list[pa.RecordBatch] = []
        self._pending_rows = 0
        self._group_rows = max(GROUP_ROWS_MIN, GROUP_BYTES // (8 * len(schema)))
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_EXCL, FILE_MODE)
        self._file = os.fdopen(descriptor, "wb")
        self._writer: Any = None
        try:
            self._writer = pq.ParquetWriter(
                self._file,
                schema,
                compression="zstd",
                write_statistics=False,  # nothing reads them, and they lengthen the footer
                encryption_properties=properties,
            )
        except BaseException:
            self.discard()
            raise

    def write(self, batch: pa.RecordBatch) -> None:
        """Add rows. Raises OSError: they cannot be written, because the disk is full for one."""
        self._pending.append(batch)
        self._pending_rows += batch.num_rows
        self.rows += batch.num_rows
        if self._pending_rows >= self._group_rows:
            self._flush()

    def _flush(self) -> None:
        if self._pending:
            table = pa.Table.from_batches(self._pending)
            self._pending, self._pending_rows = [], 0
            self._writer.write_table(table, row_group_size=self._group_rows)

    def finish(self) -> int:
        """Write the footer and force everything to the disk; returns the file's size in bytes."""
        self._flush()
        self._writer.close()
        self._file.flush()
        os.fsync(self._file.fileno())
        size_bytes = self._file.tell()
        self._file.close()
        sync_folder(self._path.parent)
        return size_bytes

    def discard(self) -> None:
        """Remove the file, whatever state it is in."""
        self._pending = []
        self._path.unlink(missing_ok=True)
        # Closing writes what is left to a file that has no name any more: a full disk no longer matters.
        with suppress(OSError, pa.ArrowException):
            if self._writer is not None:
                self._writer.close()
        with suppress(OSError):
            self._file.close()


class StoredRowsSource(ParquetSource):
    """An account's rows, decrypted page by page as they are read; a :class:`Source`."""

    def __init__(self, path: Path, data_key: bytes, context: bytes) -> None:
        super().__init__(path)
        self._data_key = data_key
        self._context = context

    def decryption(self) -> Any:
        """Return what opens the file."""
        return encryption.create_decryption_properties(self._data_key, aad_prefix=self._context)

    def fingerprint(self) -> Hashable:
        """Return the file's random name and state: other rows have another name."""
        return (self._context, super().fingerprint())


def _private(path: str, flags: int) -> int:
    return os.open(path, flags, FILE_MODE)


def _context(account: str, file: str) -> bytes:
    """Return what a file, and its wrapped key, are bound to."""
    return f"tacit/curator/rows/1\0{account}\0{file}".encode()
