"""Noticing that a file was replaced between two reads."""

from dataclasses import dataclass
from pathlib import Path

from tacit_services.agent.data.source import DataError


@dataclass(frozen=True)
class FileState:
    """What the file system says of a file's contents."""

    size_bytes: int
    modified_ns: int
    inode: int


def file_state(path: Path) -> FileState:
    """Return the state of the file.

    Raises:
        DataError: there is no such file, or it may not be read.
    """
    try:
        status = path.stat()
    except OSError:
        raise DataError("the data set's file is missing or may not be read") from None
    return FileState(status.st_size, status.st_mtime_ns, status.st_ino)
