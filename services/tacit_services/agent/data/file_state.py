"""Noticing that a file was replaced between two reads."""

import os
from dataclasses import dataclass
from pathlib import Path

from tacit_services.agent.data.source import DataError

MISSING_FILE = "the data set's file is missing or may not be read"
REPLACED = "the data set's file was replaced while it was being read; it must stay as it is during a study"


@dataclass(frozen=True)
class FileState:
    """What the file system says of a file's contents."""

    size_bytes: int
    modified_ns: int
    inode: int

    @classmethod
    def of(cls, status: os.stat_result) -> "FileState":
        """Return the state that ``stat`` tells."""
        return cls(status.st_size, status.st_mtime_ns, status.st_ino)

    def is_same_elsewhere(self, other: "FileState") -> bool:
        """Say whether another machine, which may number its files otherwise, sees the same contents."""
        return (self.size_bytes, self.modified_ns) == (other.size_bytes, other.modified_ns)


def file_state(path: Path) -> FileState:
    """Return the state of the file.

    Raises:
        DataError: there is no such file, or it may not be read.
    """
    try:
        return FileState.of(path.stat())
    except OSError:
        raise DataError(MISSING_FILE) from None
