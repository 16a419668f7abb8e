"""The Parquet files of a partitioned folder, in a fixed order, and what the names of their folders say.

``visits/year=2024/site=A/part-0.parquet``: the keys ``year`` and ``site`` are columns, and their values those
of every row of the file. Such a value may be a person's: no message repeats any part of a path but a key.
"""

import hashlib
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import unquote_to_bytes

from tacit_services.agent.data.arrow_columns import UNDECODED
from tacit_services.agent.data.file_state import MISSING_FILE, FileState
from tacit_services.agent.data.source import DataError

SUFFIX = ".parquet"

SKIPPED = ("_", ".")
"""Names that begin so are no data: ``_SUCCESS``, ``_metadata``, what other programs hide."""

NULL_PARTITION = "__HIVE_DEFAULT_PARTITION__"
"""The folder name of rows whose value is missing."""

FILES_MAX = 100_000
"""More files than this take longer to open than to read, and their names too much memory."""

KEYS_MAX = 32
"""Most folders within one another: more are an accident."""

FOLDER_MISSING = "the data set's folder is missing or may not be read"
NO_FILES = "the data set's folder holds no .parquet file"
TOO_MANY = f"the data set's folder holds more than {FILES_MAX} files: write fewer, larger ones"
TOO_DEEP = f"the data set's folders lie more than {KEYS_MAX} deep"
OTHER_FILE = (
    "the data set's folder holds a file that is no .parquet file: remove it, or let its name begin with _"
)
OTHER_FOLDER = (
    "the data set's folder holds a folder that is not named key=value, in UTF-8: remove it, or let its name "
    "begin with _"
)
OTHER_KEYS = "the data set's files must all lie under folders of the same keys, in the same order"
TWICE = "the data set's folder holds a file or a folder twice, by a link: its rows would count twice"


@dataclass(frozen=True)
class PartitionFile:
    """A file and the values that its folders' names give, by key, None where a value is missing."""

    path: Path
    state: FileState
    keys: tuple[str, ...]
    values: tuple[str | None, ...]


def partition_files(folder: Path) -> list[PartitionFile]:
    """Return the folder's files in the order of their names' bytes, at least one.

    Raises:
        DataError: there is none, or the folder holds what cannot be told from data.
    """
    seen: set[tuple[int, int]] = set()
    files: list[PartitionFile] = []
    try:
        for found in _walk(folder, (), (), seen):
            files.append(found)
            if len(files) > FILES_MAX:
                raise DataError(TOO_MANY)
            if found.keys != files[0].keys:
                raise DataError(OTHER_KEYS)
    except OSError:
        raise DataError(FOLDER_MISSING) from None
    if not files:
        raise DataError(NO_FILES)
    return files


def fingerprint_of(folder: Path, files: Sequence[PartitionFile]) -> str:
    """Return a digest of the files' names and states: other where one was added, removed or replaced."""
    digest = hashlib.sha256()
    for file in files:
        state = file.state
        name = os.fsencode(file.path.relative_to(folder))
        digest.update(f"{len(name)} {state.size_bytes} {state.modified_ns} {state.inode} ".encode() + name)
    return digest.hexdigest()


def _walk(
    folder: Path, keys: tuple[str, ...], values: tuple[str | None, ...], seen: set[tuple[int, int]]
) -> Iterator[PartitionFile]:
    if len(keys) > KEYS_MAX:
        raise DataError(TOO_DEEP)
    _require_new(folder.stat(), seen)
    with os.scandir(folder) as found:
        entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    for entry in entries:
        if entry.name.startswith(SKIPPED):
            continue
        path = folder / entry.name
        if entry.is_dir():
            key, value = _key_and_value(entry.name)
            if key in keys:
                raise DataError(OTHER_KEYS)
            yield from _walk(path, (*keys, key), (*values, value), seen)
        elif entry.name.endswith(SUFFIX):
            yield PartitionFile(path, _state_of(entry, seen), keys, values)
        else:
            raise DataError(OTHER_FILE)


def _state_of(entry: os.DirEntry[str], seen: set[tuple[int, int]]) -> FileState:
    try:
        status = entry.stat()
    except OSError:
        raise DataError(MISSING_FILE) from None
    _require_new(status, seen)
    return FileState.of(status)


def _require_new(status: os.stat_result, seen: set[tuple[int, int]]) -> None:
    """Raise DataError for what was seen before: a link to a folder around it would never end."""
    if status.st_ino == 0:  # the file system numbers nothing
        return
    place = status.st_dev, status.st_ino
    if place in seen:
        raise DataError(TWICE)
    seen.add(place)


def _key_and_value(name: str) -> tuple[str, str | None]:
    key, equals, value = name.partition("=")
    if not key or not equals:
        raise DataError(OTHER_FOLDER)
    if value == NULL_PARTITION:
        return _decoded(key), None
    # A value is a row's, and may be anything; a key is the schema's.
    return _decoded(key), unquote_to_bytes(os.fsencode(value)).decode("utf-8", errors=UNDECODED)


def _decoded(text: str) -> str:
    """Return text whose odd characters stand as %XX, which writers use for those a name cannot hold."""
    try:
        return unquote_to_bytes(os.fsencode(text)).decode("utf-8")
    except UnicodeDecodeError:
        raise DataError(OTHER_FOLDER) from None
