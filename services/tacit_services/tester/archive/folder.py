"""Archives: a folder of transcripts with an index, written durably and checked without a tester.

``<digest>.json`` is a transcript, as ``tacit study verify`` reads it. ``index.jsonl`` has one JSON object a
line (:class:`ArchivedStudy`); lines are only ever appended. A file has its name once it is whole and durable,
and a line is written after its file, so that a process that is killed leaves at most a ``.part`` file and an
unfinished last line, which the next one overwrites and cuts off. One process at a time writes to a folder.

A check reads the folder alone. A line that was removed from the index together with its file leaves no trace
there; the index's digest, which is printed, tells if it was written down before.
"""

import fcntl
import hashlib
import os
import stat
from collections.abc import Collection, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import IO, Annotated, Literal

from pydantic import Field

from tacit_protocol.messages.encoding import MessageError, decode, encode
from tacit_protocol.messages.study import (
    Digest,
    Study,
    UnixTime,
)
from tacit_protocol.strict import StrictModel
from tacit_protocol.verification import VerificationError, verify_transcript
from tacit_services.shared.database import sync_folder
from tacit_services.shared.failpoints import ArchiveStep, reached

INDEX = "index.jsonl"

ENTRY_BYTES_MAX = 2**14
"""Longest line: a title and a procedure's name, each character escaped, and room."""


class ArchiveError(Exception):
    """The archive cannot be written, or is not what it should be. The text says what to do."""


class ArchivedStudy(StrictModel):
    """What the index says of a study, and how to find its file."""

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

    def store(self, entry: ArchivedStudy, transcript: bytes) -> None:
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
            sync_folder(self._path)
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
                entry = decode(ArchivedStudy, line.rstrip(b"\n"), size_bytes_max=ENTRY_BYTES_MAX)
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
        sync_folder(path)
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


UNFINISHED = (
    "its last line is unfinished: a process was stopped while it wrote; the next `archive` writes it anew"
)
UNLISTED = "the index does not list it"
LEFT_OVER = "a process was stopped while it wrote it; the next `archive` of its study writes it anew"


class ArchiveCheck:
    """The check of one folder; made by :func:`open_archive`.

    Args:
        path: the folder.
        index: its index, open for reading.
        tester_keys: public keys of the tester, of which each study must name one; any will do without.
    """

    def __init__(self, path: Path, index: IO[bytes], tester_keys: Collection[str] = ()) -> None:
        self._path = path
        self._index = index
        self._tester_keys = frozenset(tester_keys)
        self._sha256 = hashlib.sha256()
        self.studies = 0
        """Studies listed so far."""

    @property
    def index_digest(self) -> str:
        """SHA-256 of the index as far as it was read."""
        return self._sha256.hexdigest()

    def faults(self) -> Iterator[tuple[str, str]]:
        """Check everything; yield the name of each file that is not as it should be, and what it is.

        Raises:
            OSError: the folder or its index cannot be read.
        """
        listed: set[str] = set()
        for number, line in enumerate(self._lines(), 1):
            if not line.endswith(b"\n"):
                yield INDEX, UNFINISHED if len(line) <= ENTRY_BYTES_MAX else f"line {number}: too long"
                break
            try:
                entry = decode(ArchivedStudy, line[:-1], size_bytes_max=ENTRY_BYTES_MAX)
            except MessageError:
                yield INDEX, f"line {number}: no entry of an archive"
                continue
            if entry.study in listed:
                yield INDEX, f"line {number}: study {entry.study} is listed a second time"
                continue
            listed.add(entry.study)
            self.studies += 1
            try:
                self._check(entry)
            except _FaultError as fault:
                yield f"{entry.study}.json", str(fault)
        expected = {INDEX, *(f"{study}.json" for study in listed)}
        for name in sorted(os.listdir(self._path)):
            if name not in expected:
                yield name, LEFT_OVER if name.endswith(".json.part") else UNLISTED

    def _lines(self) -> Iterator[bytes]:
        while line := self._index.readline(ENTRY_BYTES_MAX + 1):
            self._sha256.update(line)
            yield line

    def _check(self, entry: ArchivedStudy) -> None:
        """Check a listed study's file, and its line against it."""
        path = self._path / f"{entry.study}.json"
        _require(entry.file == path.name, f"the index lists it as {entry.file}")
        content = _content(path, entry)
        _require(
            file_digest(content) == entry.file_digest,
            "its digest is not the one that the index lists: it was changed",
        )
        try:
            verified = verify_transcript(content)
        except VerificationError as error:
            raise _FaultError(f"it does not verify: {error}") from None
        study = verified.study
        _require(
            not self._tester_keys or study.tester.key in self._tester_keys,
            "it names another tester than the one expected",
        )
        _require_line(entry, study, verified.study_digest, verified.verdict.outcome)


class _FaultError(Exception):
    """What is wrong with one study."""


def _require(holds: bool, fault: str) -> None:
    if not holds:
        raise _FaultError(fault)


def _content(path: Path, entry: ArchivedStudy) -> bytes:
    """Read a file; none that is larger than the index says is read into memory."""
    try:
        found = path.lstat()
        _require(stat.S_ISREG(found.st_mode), "it is no file")
        _require(
            found.st_size == entry.size_bytes,
            f"it has {found.st_size} bytes where the index lists {entry.size_bytes}: it was changed",
        )
        return path.read_bytes()
    except FileNotFoundError:
        raise _FaultError("it is missing") from None
    except OSError as error:
        raise _FaultError(f"it cannot be read: {error.strerror}") from None


def _require_line(entry: ArchivedStudy, study: Study, digest: str, outcome: str) -> None:
    """Compare a line with its transcript; when a study was created and ended is the tester's word alone."""
    told = (entry.study, entry.state, entry.title, entry.procedure, entry.deadline)
    names = ("study", "state", "title", "procedure", "deadline")
    signed = (digest, outcome, study.title, study.procedure, study.deadline)
    differing = [name for name, one, other in zip(names, told, signed, strict=True) if one != other]
    _require(not differing, f"the index tells another {', '.join(differing)} than it does")


@contextmanager
def open_archive(path: Path, tester_keys: Collection[str] = ()) -> Iterator[ArchiveCheck]:
    """Open a folder for a check, and keep other processes from writing to it meanwhile.

    Raises:
        ArchiveError: it is no archive, cannot be read, or is being written.
    """
    try:
        index = (path / INDEX).open("rb")
    except FileNotFoundError:
        raise ArchiveError(f"{path} is no archive: it has no {INDEX}") from None
    except OSError as error:
        raise ArchiveError(f"the archive {path} cannot be read: {error.strerror}") from None
    with index:
        try:
            fcntl.flock(index, fcntl.LOCK_SH | fcntl.LOCK_NB)
        except BlockingIOError:
            raise ArchiveError(
                f"another process is writing to the archive {path}; wait until it has ended"
            ) from None
        yield ArchiveCheck(path, index, tester_keys)
