"""Opening files of data: regular files alone, and no symbolic link anywhere in their path.

Every reader opens its files here. Paths in the operator's configuration were resolved when it was read
(docs/data-sources.md); a link that is met later was put there by somebody else, or since. A pipe would be
waited for, and no signal ends a thread that waits so.
"""

import os
import stat
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import BinaryIO

from tacit_protocol.domain import DataError

MISSING_FILE = "the data set's file is missing or may not be read"
REPLACED = "the data set's file was replaced while it was being read; it must stay as it is during a study"
LINKED = (
    "a link lies on the path of the data set's file or folder, and links are not followed: name what it "
    "leads to, or start the agent again where agent.toml itself names the link"
)
NOT_REGULAR = "the data set's path is that of a pipe, a device or a socket, and not of a file"

_PLAIN = os.O_RDONLY | getattr(os, "O_CLOEXEC", 0) | getattr(os, "O_BINARY", 0)
_WAITS_FOR_NOTHING = getattr(os, "O_NONBLOCK", 0) | getattr(os, "O_NOCTTY", 0)
_NO_LINKS: int | None = getattr(os, "O_NOFOLLOW_ANY", None)
"""Refuses links anywhere in a path: of macOS."""


@dataclass(frozen=True)
class FileState:
    """What the file system says of a file's contents.

    ``changed_ns`` is when the file was last written, renamed or given other rights. Unlike the modification
    time, nobody can set it.
    """

    size_bytes: int
    modified_ns: int
    inode: int
    changed_ns: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileState":
        """Return the state that ``stat`` tells."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino, status.st_ctime_ns)

    def is_same_elsewhere(self, other: "FileState") -> bool:
        """Say whether another machine, which may number its files otherwise, sees the same contents."""
        return (self.size_bytes, self.modified_ns) == (other.size_bytes, other.modified_ns)


@dataclass(frozen=True)
class OpenedFile:
    """A regular file that is open for reading, for as long as the block that opened it.

    ``name`` is a path by which a library opens the same file, whatever lies at its own path by now.
    """

    descriptor: int
    name: str
    state: FileState

    def stream(self) -> BinaryIO:
        """Return a stream of the file's bytes; closing it leaves the file open."""
        return os.fdopen(self.descriptor, "rb", closefd=False)


@contextmanager
def opened(path: Path, expected: FileState | None = None) -> Iterator[OpenedFile]:
    """Open a file.

    Raises:
        DataError: it is missing, may not be read, is no regular file or lies behind a link; or it has another
            size or modification time than ``expected``.
    """
    descriptor = _opened(path, _PLAIN | _WAITS_FOR_NOTHING)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            raise DataError(MISSING_FILE if stat.S_ISDIR(status.st_mode) else NOT_REGULAR)
        state = FileState.of(status)
        if expected is not None and not expected.is_same_elsewhere(state):
            raise DataError(REPLACED)
        yield OpenedFile(descriptor, str(path) if sys.platform == "win32" else f"/dev/fd/{descriptor}", state)
    finally:
        os.close(descriptor)


@contextmanager
def opened_folder(path: Path) -> Iterator[int]:
    """Open a folder, and yield its descriptor.

    Raises:
        DataError: it is missing, may not be read, is no folder or lies behind a link.
    """
    descriptor = _opened(path, _PLAIN | os.O_DIRECTORY)
    try:
        yield descriptor
    finally:
        os.close(descriptor)


def open_within(folder: int, name: str, flags: int) -> int:
    """Open a name in an open folder, no link followed; raises OSError."""
    return os.open(name, _PLAIN | flags | os.O_NOFOLLOW, dir_fd=folder)


def file_state(path: Path) -> FileState:
    """Return the state of a file. Raises DataError as :func:`opened` does."""
    with opened(path) as file:
        return file.state


def _opened(path: Path, flags: int) -> int:
    place = Path(os.path.abspath(path))  # as text: where no link is followed, that is what .. means
    try:
        if sys.platform == "win32":
            return os.open(place, flags)
        if _NO_LINKS is not None:
            return os.open(place, flags | _NO_LINKS)
        return _descended(place, flags)
    except (OSError, ValueError):
        raise DataError(LINKED if _has_link(place) else MISSING_FILE) from None


def _descended(place: Path, flags: int) -> int:
    """Open a path from the root, folder by folder."""
    folder = os.open("/", os.O_PATH | os.O_DIRECTORY | os.O_CLOEXEC)
    try:
        for name in place.parts[1:-1]:
            inner = os.open(name, os.O_PATH | os.O_DIRECTORY | os.O_NOFOLLOW | os.O_CLOEXEC, dir_fd=folder)
            os.close(folder)
            folder = inner
        return open_within(folder, place.name or ".", flags)
    finally:
        os.close(folder)


def _has_link(place: Path) -> bool:
    """Say whether a link lies on a path: for the message, after it was refused."""
    try:
        return any(one.is_symlink() for one in (place, *place.parents))
    except (OSError, ValueError):
        return False
