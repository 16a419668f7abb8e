"""An archive's folder: one transcript a study, and an index with one line each.

``<digest>.json`` is a transcript, as ``tacit study verify`` reads it. ``index.jsonl`` has one JSON object a
line (:class:`Entry`); lines are only ever appended. A file has its name once it is whole and durable, and a
line is written after its file, so that a process that is killed leaves at most a ``.part`` file and an
unfinished last line, which the next one overwrites and cuts off. One process at a time writes to a folder.
"""

import fcntl
import hashlib
import os
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Literal

from pydantic import Field

from tacit_protocol.messages.encoding import MessageError, decode, encode
from tacit_protocol.messages.study import Digest, PartyName, UnixTime
from tacit_protocol.strict import StrictModel
from tacit_services.tester.steps import ArchiveStep, reached

INDEX = "index.jsonl"

ENTRY_BYTES_MAX = 2**22
"""Longest line: a thousand declines of a kilobyte, and room."""


class ArchiveError(Exception):
    """The archive cannot be written, or is not what it should be. The text says what to do."""


class Entry(StrictModel):
    """What the index says of a study: how to find its file, and what was signed besides its transcript."""

    format: Literal["tacit/archive-entry/1"] = "tacit/archive-entry/1"
    study: Digest
    state: Literal["completed", "incomplete", "cancelled"]
    title: str
    procedure: str
    created_at: UnixTime
    deadline: UnixTime
    ended_at: UnixTime
    file: Annotated[str, Field(pattern=r"^[0-9a-f]{64}\.json$")]
    """The transcript's name in the folder."""
    file_digest: Digest
    """SHA-256 of that file."""
    size_bytes: Annotated[int, Field(ge=1)]
    declines: dict[PartyName, str]
    """Signed declines, by owner. Transcripts hold them too, but those of studies that ended in an earlier
    version, whose verdicts do not list declines."""
    cancellation: str | None
    """The analyst's signed cancellation. Transcripts hold it too, but those that an earlier version wrote."""


class ArchiveFolder:
    """A folder that is open for writing; made by :func:`open_folder`."""

    def __init__(self, path: Path, index: IO[bytes]) -> None:
        self._path = path
        self._index = index
        self._listed = dict(self._read_index())

    def path_of(self, study: str) -> Path:
        """Return where a study's transcript is, or will be."""
        return self._path / f"{study}.json"

    def holds(self, study: str) -> bool:
        """Return whether a study is listed, and its file is there."""
        return study in self._listed and self.path_of(study).is_file()

    def store(self, entry: Entry, transcript: bytes) -> None:
        """Store a study's transcript and its line; both are durable on return. What is there already stays.

        Raises:
            ArchiveError: something else is there under the study's name.
            OSError: the disk is full, or the folder cannot be written.
        """
        path = self.path_of(entry.study)
        if path.exists():
            self.require_same(entry.study, transcript)
        else:
            _write_durably(path, transcript)
            _sync_folder(self._path)
        reached(ArchiveStep.FILE_STORED)
        listed = self._listed.get(entry.study)
        if listed is not None and listed != entry.file_digest:
            raise ArchiveError(f"{self._path / INDEX} lists another file for study {entry.study}; {LOOK}")
        if listed is None:
            self._index.write(encode(entry) + b"\n")
            self._index.flush()
            os.fsync(self._index.fileno())
            self._listed[entry.study] = entry.file_digest
        reached(ArchiveStep.INDEXED)

    def require_same(self, study: str, transcript: bytes) -> None:
        """Read a study's file again and raise ArchiveError unless it holds exactly these bytes."""
        path = self.path_of(study)
        try:
            is_same = path.read_bytes() == transcript
        except OSError as error:
            raise ArchiveError(f"{path} cannot be read: {error.strerror}") from None
        if not is_same:
            raise ArchiveError(f"{path} is not the transcript that this tester holds; {LOOK}")

    def _read_index(self) -> Iterator[tuple[str, str]]:
        """Return each listed study and its file's digest; an unfinished last line is cut off."""
        self._index.seek(0)
        whole = 0
        for number, line in enumerate(self._index, 1):
            if not line.endswith(b"\n"):
                break
            try:
                entry = decode(Entry, line.rstrip(b"\n"), size_bytes_max=ENTRY_BYTES_MAX)
            except MessageError:
                raise ArchiveError(
                    f"{self._path / INDEX}, line {number}: no entry of an archive; {LOOK}"
                ) from None
            yield entry.study, entry.file_digest
            whole += len(line)
        self._index.truncate(whole)
        self._index.seek(whole)


LOOK = "nothing was deleted. Name another folder, or move it away and find out what changed it"


@contextmanager
def open_folder(path: Path) -> Iterator[ArchiveFolder]:
    """Open a folder, made if it is not there, and keep other processes from writing to it meanwhile.

    Raises:
        ArchiveError: it cannot be written, is being written, or its index is damaged.
    """
    try:
        path.mkdir(mode=0o700, parents=True, exist_ok=True)
        descriptor = os.open(path / INDEX, os.O_RDWR | os.O_CREAT, 0o600)
    except OSError as error:
        raise ArchiveError(f"the archive {path} cannot be written: {error.strerror}") from None
    with os.fdopen(descriptor, "r+b") as index:
        try:
            fcntl.flock(index, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveError(
                f"another process is writing to the archive {path}; wait until it has ended"
            ) from None
        _sync_folder(path)
        yield ArchiveFolder(path, index)


def file_digest(content: bytes) -> str:
    """Return what an entry and a tombstone name a file by."""
    return hashlib.sha256(content).hexdigest()


def _write_durably(path: Path, content: bytes) -> None:
    part = path.with_suffix(".json.part")
    with os.fdopen(os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600), "wb") as file:
        file.write(content)
        file.flush()
        os.fsync(file.fileno())
    reached(ArchiveStep.PART_WRITTEN)
    part.replace(path)


def _sync_folder(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
