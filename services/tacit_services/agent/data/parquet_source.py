"""Parquet files, streamed row group by row group with pyarrow; only the columns used are read."""

import copy
import hashlib
import itertools
import os
import stat
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self
from urllib.parse import unquote_to_bytes

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from tacit_protocol.arrow_columns import UNDECODED, is_text
from tacit_protocol.domain import VECTOR_MAX, DataError, in_order
from tacit_protocol.public_knowledge import ColumnSchema, arrow_type
from tacit_services.agent.data.regular_files import (
    LINKED,
    MISSING_FILE,
    NOT_REGULAR,
    REPLACED,
    FileState,
    file_state,
    open_within,
    opened,
    opened_folder,
)
from tacit_services.agent.data.source import READ_BYTES, Columns, PartRange

DAMAGED = "the Parquet file cannot be read; it may be damaged"

VALUE_BYTES_MAX = 4096
"""Largest mean size of a column's values in a row group, from the footer: numbers and categories take less; a
few thousand huge ones could fill the memory from a small file."""

LIST_BYTES_MAX = 16 * VECTOR_MAX
"""The same of a column's lists."""

CHUNK_BYTES_FREE = 2**24
"""Column chunks up to this size are read whatever their values."""

BUFFER_BYTES_MIN, BUFFER_BYTES_MAX = 16 * 1024, 256 * 1024
"""Read buffer of a column: a row group of any size is decoded without being held in memory. Less makes reads
too small, more makes them no faster."""

BUFFER_SHARE = 4
"""Buffers take this part of the memory for reading: pages and dictionaries, decoded, take more."""


class ParquetSource:
    """One Parquet file. Integers, logical values and text may serve as categories or as numbers.

    Args:
        path: the file, or an open one that seeks.
    """

    def __init__(self, path: Path | pa.NativeFile):
        self._path = path
        self._expected: FileState | None = None
        self._run: PartRange | None = None
        self._read_bytes = READ_BYTES

    def decryption(self) -> Any:
        """Return the properties that decrypt the file; None where it is not encrypted."""
        return None

    def reading_within(self, bytes_max: int) -> Self:
        """Return the same source, whose buffers take a part of this memory."""
        source = copy.copy(self)
        source._read_bytes = bytes_max
        return source

    def of_state(self, expected: FileState) -> Self:
        """Return the same source, which is refused where its file is another than it was."""
        source = copy.copy(self)
        source._expected = expected
        return source

    @contextmanager
    def _open(
        self, text: tuple[str, ...] = (), columns: int = 1, metadata: pq.FileMetaData | None = None
    ) -> Iterator[pq.ParquetFile]:
        """Open the file; text columns stay dictionaries, as which one long text is held once, not per row.

        With ``metadata`` the footer is not read again.
        """
        with ExitStack() as stack:
            place: str | pa.NativeFile = self._path
            if isinstance(self._path, Path):
                place = stack.enter_context(opened(self._path, self._expected)).name
            try:
                file = pq.ParquetFile(
                    place,
                    metadata=metadata,
                    buffer_size=buffer_bytes(self._read_bytes, columns),
                    pre_buffer=False,
                    read_dictionary=list(text) or None,
                    decryption_properties=self.decryption(),
                )
            except (OSError, KeyError, UnicodeDecodeError, pa.ArrowException):
                raise DataError("the Parquet file is missing or its footer cannot be read") from None
            yield stack.enter_context(file)

    def column_names(self) -> tuple[str, ...]:
        """Return the names in the file's schema."""
        with self._open() as file, damage_refused():
            return tuple(file.schema_arrow.names)

    def schema(self) -> list[ColumnSchema]:
        """Return the columns' names and types, from the footer."""
        return [ColumnSchema(field.name, arrow_type(str(field.type))) for field in self.footer()[1]]

    def no_rows(self, columns: Columns) -> pa.RecordBatch:
        """Return an empty batch of the types in the footer; refuses what its sizes refuse."""
        metadata, schema = self.footer()
        _require_small_values(metadata, self._groups(metadata), columns)
        return empty_batch(schema, columns)

    def fingerprint(self) -> Hashable:
        """Return the file's size and modification time."""
        return file_state(self._path)

    def metadata(self) -> pq.FileMetaData:
        """Return what the footer says."""
        with self._open() as file:
            return file.metadata

    def footer(self) -> tuple[pq.FileMetaData, pa.Schema]:
        """Return what the footer says, and its columns' types."""
        with self._open() as file, damage_refused():
            return file.metadata, file.schema_arrow

    def rows(self) -> int:
        """Return the number of rows, which the footer tells."""
        return int(self.metadata().num_rows) if self._run is None else self._run.rows

    def split(self, parts: int) -> Sequence[Self]:
        """Return sources of contiguous row groups, about equal in rows; an open file cannot be cut."""
        if not isinstance(self._path, Path):
            return [self]
        sizes = group_rows(self.metadata())
        first, stop = (0, len(sizes)) if self._run is None else (self._run.first, self._run.stop)
        return [
            self.row_groups(first + start, first + end, sum(sizes[first + start : first + end]))
            for start, end in balanced_runs(sizes[first:stop], parts)
        ] or [self]

    def row_groups(self, first: int, stop: int, rows: int) -> Self:
        """Return the source of a run of row groups that has so many rows, up to but without ``stop``."""
        part = copy.copy(self)
        if isinstance(self._path, Path):
            part._path = self._path.absolute()
        part._run = PartRange(first, stop, rows)
        return part

    def batches(self, columns: Columns, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the named columns, at most ``rows_max`` at a time."""
        metadata, schema = self.footer()
        groups = self._groups(metadata)
        _require_small_values(metadata, groups, columns)
        if columns.vectors:
            # Their lists may be longer than the study's vectors are.
            rows_max = max(1, min(rows_max, self._read_bytes // LIST_BYTES_MAX))
        strings = {field.name for field in schema if is_text(field.type)}
        kept = tuple(name for name in columns.names if name in strings)
        # What decrypts the pages of an encrypted file comes with its footer.
        known = metadata if self.decryption() is None else None
        with self._open(kept, len(columns.names), known) as file, damage_refused():
            # One thread: the table reads ahead in a thread of its own, and a procedure needs the others.
            for batch in file.iter_batches(
                batch_size=rows_max, row_groups=groups, columns=list(columns.names), use_threads=False
            ):
                _require_places_in_dictionaries(batch)
                yield batch

    def _groups(self, metadata: pq.FileMetaData) -> list[int]:
        """Return the row groups to read; raises DataError where the file is another than was cut."""
        if self._run is None:
            return list(range(metadata.num_row_groups))
        sizes = group_rows(metadata)[self._run.first : self._run.stop]
        if len(sizes) != self._run.stop - self._run.first or sum(sizes) != self._run.rows:
            raise DataError(REPLACED)
        return list(range(self._run.first, self._run.stop))


def empty_batch(schema: pa.Schema, columns: Columns) -> pa.RecordBatch:
    """Return a batch without rows that has the named columns in a schema's types."""
    return pa.RecordBatch.from_pylist([], pa.schema([schema.field(name) for name in columns.names]))


def buffer_bytes(read_bytes: int, columns: int) -> int:
    """Return the size of each column's read buffer, for a bound on all memory that reading takes."""
    share = read_bytes // (BUFFER_SHARE * max(1, columns))
    return max(BUFFER_BYTES_MIN, min(share, BUFFER_BYTES_MAX))


def group_rows(metadata: pq.FileMetaData) -> list[int]:
    """Return the number of rows of each row group."""
    with damage_refused():
        return [int(metadata.row_group(group).num_rows) for group in range(metadata.num_row_groups)]


def balanced_runs(sizes: Sequence[int], parts: int) -> list[tuple[int, int]]:
    """Return at most ``parts`` contiguous runs (first, stop) of items, about equal in size; none has size 0.

    ``sizes`` are at least 0. An item belongs to the part that its middle falls into.
    """
    total, parts = sum(sizes), max(1, parts)
    if total == 0:
        return []
    places = [
        min(parts - 1, (2 * end - size) * parts // (2 * total))
        for end, size in zip(itertools.accumulate(sizes), sizes, strict=True)
    ]
    runs = [list(run) for _, run in itertools.groupby(range(len(sizes)), key=lambda index: places[index])]
    return [(run[0], run[-1] + 1) for run in runs if any(sizes[index] for index in run)]


@contextmanager
def damage_refused() -> Iterator[None]:
    """Raise DataError where pyarrow cannot read what it is asked for; names may be no UTF-8."""
    try:
        yield
    except MemoryError:  # Arrow's is one of its own errors, too
        raise
    except (OSError, UnicodeDecodeError, pa.ArrowException):
        raise DataError(DAMAGED) from None


def column_of(chunk: pq.ColumnChunkMetaData) -> str:
    """Return the name of a chunk's column; raises DataError where the footer holds none."""
    with damage_refused():
        return str(chunk.path_in_schema)


def _require_places_in_dictionaries(batch: pa.RecordBatch) -> None:
    """Raise DataError where a place leads out of its column's dictionary: Arrow's reader does not look."""
    for column in batch.columns:
        if pa.types.is_dictionary(column.type):
            ends = pc.min_max(column.indices).as_py()
            if ends["min"] is not None and not 0 <= ends["min"] <= ends["max"] < len(column.dictionary):
                raise DataError(DAMAGED)


def _require_small_values(metadata: pq.FileMetaData, groups: Sequence[int], columns: Columns) -> None:
    with damage_refused():
        paths = [str(metadata.schema.column(index).path) for index in range(metadata.num_columns)]
    used = {index: VALUE_BYTES_MAX for index, path in enumerate(paths) if path in columns.names}
    lists = tuple(f"{name}." for name in columns.vectors)
    used |= {index: LIST_BYTES_MAX for index, path in enumerate(paths) if path.startswith(lists)}
    for group in groups:
        for index, bytes_max in used.items():
            chunk = metadata.row_group(group).column(index)
            values = chunk.num_values if bytes_max == VALUE_BYTES_MAX else metadata.row_group(group).num_rows
            if (
                chunk.total_uncompressed_size > CHUNK_BYTES_FREE
                and chunk.total_uncompressed_size > bytes_max * values
            ):
                raise DataError(
                    "a column of the Parquet file holds values too large for numbers or categories"
                )


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
TWICE = "the data set's folder holds a file twice, by a hard link: its rows would count twice"


@dataclass(frozen=True)
class PartitionFile:
    """A file and the values that its folders' names give, by key, None where a value is missing."""

    path: Path
    state: FileState
    keys: tuple[str, ...]
    values: tuple[str | None, ...]

    @property
    def source(self) -> ParquetSource:
        """The file as it was listed: one that was put in its place is refused."""
        return ParquetSource(self.path).of_state(self.state)


def partition_files(folder: Path) -> list[PartitionFile]:
    """Return the folder's files in the order of their names' bytes, at least one.

    Raises:
        DataError: there is none, or the folder holds what cannot be told from data.
    """
    seen: set[tuple[int, int]] = set()
    files: list[PartitionFile] = []
    try:
        with opened_folder(folder) as descriptor:
            for found in _walk(descriptor, folder, (), (), seen):
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
        known = f"{state.size_bytes} {state.modified_ns} {state.inode} {state.changed_ns}"
        digest.update(f"{len(name)} {known} ".encode() + name)
    return digest.hexdigest()


def _walk(
    descriptor: int,
    folder: Path,
    keys: tuple[str, ...],
    values: tuple[str | None, ...],
    seen: set[tuple[int, int]],
) -> Iterator[PartitionFile]:
    """Yield the files of an open folder, each looked at where it lies: no link is followed."""
    if len(keys) > KEYS_MAX:
        raise DataError(TOO_DEEP)
    _require_new(os.fstat(descriptor), seen)
    with os.scandir(descriptor) as found:
        entries = sorted(found, key=lambda entry: os.fsencode(entry.name))
    for entry in entries:
        if entry.name.startswith(SKIPPED):
            continue
        path, status = folder / entry.name, _status_of(entry)
        if stat.S_ISDIR(status.st_mode):
            key, value = _key_and_value(entry.name)
            if key in keys:
                raise DataError(OTHER_KEYS)
            inner = open_within(descriptor, entry.name, os.O_DIRECTORY)
            try:
                yield from _walk(inner, path, (*keys, key), (*values, value), seen)
            finally:
                os.close(inner)
        elif entry.name.endswith(SUFFIX):
            _require_new(status, seen)
            yield PartitionFile(path, FileState.of(status), keys, values)
        else:
            raise DataError(OTHER_FILE)


def _status_of(entry: os.DirEntry[str]) -> os.stat_result:
    """Return what lies there: a file or a folder; raises DataError for anything else."""
    try:
        status = entry.stat(follow_symlinks=False)
    except OSError:
        raise DataError(MISSING_FILE) from None
    if stat.S_ISLNK(status.st_mode):
        raise DataError(LINKED)
    if not (stat.S_ISREG(status.st_mode) or stat.S_ISDIR(status.st_mode)):
        raise DataError(NOT_REGULAR)
    return status


def _require_new(status: os.stat_result, seen: set[tuple[int, int]]) -> None:
    """Raise DataError for what was seen before."""
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


FOOTER_THREADS = 8
"""Footers read at once: on a network's file system each waits for several answers."""

NO_VALUES = str(pa.null())
"""Kind of a column without any value, which agrees with every other."""

Kinds = tuple[tuple[str, str], ...]
"""A file's columns, each with the kind of its values."""


@dataclass(frozen=True)
class Footer:
    """What is kept of a file's footer."""

    group_rows: tuple[int, ...]
    kinds: Kinds


@dataclass(frozen=True)
class FilePart:
    """A run of a file's row groups, up to but without ``stop``."""

    file: PartitionFile
    first: int
    stop: int
    rows: int

    def batches(self, columns: Columns, rows_max: int, read_bytes: int) -> Iterator[pa.RecordBatch]:
        """Yield its rows with the named columns, those of the folders' names included.

        Raises:
            DataError: the file is not what it was, or cannot be read.
        """
        given = dict(zip(self.file.keys, self.file.values, strict=True))
        stored = Columns(
            tuple(name for name in columns.numbers if name not in given),
            tuple(name for name in columns.text if name not in given),
            vectors=tuple(name for name in columns.vectors if name not in given),
        )
        source = self.file.source.reading_within(read_bytes)
        for batch in source.row_groups(self.first, self.stop, self.rows).batches(stored, rows_max):
            arrays = [
                _repeated(given[name], batch.num_rows) if name in given else batch.column(name)
                for name in columns.names
            ]
            yield pa.RecordBatch.from_arrays(arrays, list(columns.names)) if arrays else batch


@dataclass(frozen=True)
class FolderPart:
    """Some of a folder's rows; a :class:`Source`, picklable, that depends on its own files alone."""

    files: tuple[FilePart, ...]
    names: tuple[str, ...]
    faults: Mapping[str, str]
    """Columns in which the folder's files differ, and how."""
    whole: str
    """The fingerprint of the folder."""
    read_bytes: int

    def column_names(self) -> tuple[str, ...]:
        """Return the names of the folder's columns."""
        return self.names

    def fingerprint(self) -> Hashable:
        """Return the folder's fingerprint as long as the part's own files are what they were."""
        same = all(part.file.state.is_same_elsewhere(file_state(part.file.path)) for part in self.files)
        return self.whole if same else None

    def rows(self) -> int:
        """Return the number of rows."""
        return sum(part.rows for part in self.files)

    def batches(self, columns: Columns, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the named columns, at most ``rows_max`` at a time."""
        _require_common(self.faults, columns)
        for part in self.files:
            yield from part.batches(columns, rows_max, self.read_bytes)

    def reading_within(self, bytes_max: int) -> Self:
        """Return the same part, read within this memory."""
        return replace(self, read_bytes=bytes_max)


class ParquetFolder:
    """The Parquet files of a folder, and of its folders named ``key=value``, whose keys are columns of text.

    Files follow one another in the order of their paths. All must have the columns that are used, each of one
    kind; other columns may differ.
    """

    def __init__(self, folder: Path, read_bytes: int = READ_BYTES):
        self._folder = folder.absolute()
        self._read_bytes = read_bytes
        self._footers: tuple[str, list[Footer]] | None = None

    def reading_within(self, bytes_max: int) -> Self:
        """Return the same folder, read within this memory."""
        return type(self)(self._folder, bytes_max)

    def column_names(self) -> tuple[str, ...]:
        """Return the names in the first file's schema, and the keys of the folders' names."""
        return _names(partition_files(self._folder)[0])

    def schema(self) -> list[ColumnSchema]:
        """Return the names and types of the first file's columns, and the keys of the folders' names."""
        first = partition_files(self._folder)[0]
        return [*first.source.schema(), *(ColumnSchema(key, "text") for key in first.keys)]

    def no_rows(self, columns: Columns) -> pa.RecordBatch:
        """Return an empty batch of the types in the first footer; refuses what the footers refuse."""
        files = partition_files(self._folder)
        _require_common(column_faults(self._read_footers(files), files[0].keys), columns)
        types = [
            *files[0].source.footer()[1],
            *(pa.field(key, pa.string()) for key in files[0].keys),
        ]
        return empty_batch(pa.schema(types), columns)

    def fingerprint(self) -> Hashable:
        """Return a digest of all files' names, sizes, modification times and inodes."""
        return fingerprint_of(self._folder, partition_files(self._folder))

    def rows(self) -> int:
        """Return the number of rows, which the footers tell."""
        return sum(sum(footer.group_rows) for footer in self._read_footers(partition_files(self._folder)))

    def batches(self, columns: Columns, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows with the named columns, at most ``rows_max`` at a time."""
        files = partition_files(self._folder)
        footers = self._read_footers(files)
        _require_common(column_faults(footers, files[0].keys), columns)
        for file, footer in zip(files, footers, strict=True):
            sizes = footer.group_rows
            part = FilePart(file, 0, len(sizes), sum(sizes))
            yield from part.batches(columns, rows_max, self._read_bytes)

    def split(self, parts: int) -> Sequence[FolderPart]:
        """Return sources of contiguous row groups, of one file or several, about equal in rows."""
        files = partition_files(self._folder)
        footers = self._read_footers(files)
        groups = [
            FilePart(file, place, place + 1, rows)
            for file, footer in zip(files, footers, strict=True)
            for place, rows in enumerate(footer.group_rows)
        ]
        shared = _names(files[0]), column_faults(footers, files[0].keys), fingerprint_of(self._folder, files)
        return [
            FolderPart(tuple(_joined(groups[first:stop])), *shared, self._read_bytes)
            for first, stop in balanced_runs([group.rows for group in groups], parts)
        ]

    def _read_footers(self, files: Sequence[PartitionFile]) -> list[Footer]:
        whole = fingerprint_of(self._folder, files)
        if self._footers is None or self._footers[0] != whole:
            self._footers = whole, read_footers(files)
        return self._footers[1]


def read_footers(files: Sequence[PartitionFile]) -> list[Footer]:
    """Return what is kept of the files' footers, several being read at once.

    Raises:
        DataError: a footer cannot be read.
    """
    kinds: dict[Kinds, Kinds] = {}
    with ThreadPoolExecutor(FOOTER_THREADS, thread_name_prefix="footers") as pool:
        found = in_order((pool.submit(_footer, file) for file in files), 2 * FOOTER_THREADS)
        return [replace(footer, kinds=kinds.setdefault(footer.kinds, footer.kinds)) for footer in found]


def column_faults(footers: Sequence[Footer], keys: Sequence[str]) -> dict[str, str]:
    """Return what is wrong with columns that the files do not have in common, by column."""
    schemas = {footer.kinds for footer in footers}
    names = {name for kinds in schemas for name, _ in kinds}
    faults = {}
    for name in names:
        found = [[kind for other, kind in kinds if other == name] for kinds in schemas]
        if name in keys:
            faults[name] = f"column {name!r} is in the data set's files and in their folders' names"
        elif any(not kinds for kinds in found):
            faults[name] = f"some of the data set's files have no column {name!r}"
        elif any(len(kinds) > 1 for kinds in found):
            faults[name] = f"some of the data set's files have more than one column {name!r}"
        elif len({kind for kinds in found for kind in kinds} - {NO_VALUES}) > 1:
            faults[name] = f"column {name!r} has different types in the data set's files: write it with one"
    return faults


def _require_common(faults: Mapping[str, str], columns: Columns) -> None:
    """Raise DataError where the files differ in a column that is used."""
    for name in columns.names:
        if name in faults:
            raise DataError(faults[name])


def _footer(file: PartitionFile) -> Footer:
    metadata, schema = file.source.footer()
    return Footer(tuple(group_rows(metadata)), tuple((field.name, _kind(field.type)) for field in schema))


def _kind(type_: pa.DataType) -> str:
    """Return which types read alike: numbers of any width, text however it is stored.

    One missing value makes a column of integers floating in many a writer's hands: it must change nothing.
    """
    if pa.types.is_dictionary(type_) and is_text(type_.value_type):
        return "text"
    if is_text(type_):
        return "text"
    if pa.types.is_list(type_) or pa.types.is_large_list(type_) or pa.types.is_fixed_size_list(type_):
        return f"list of {_kind(type_.value_type)}s"
    return "number" if pa.types.is_integer(type_) or pa.types.is_floating(type_) else str(type_)


def _names(first: PartitionFile) -> tuple[str, ...]:
    return (*first.source.column_names(), *first.keys)


def _joined(groups: Iterable[FilePart]) -> Iterator[FilePart]:
    """Join the row groups of each file."""
    for file, run in itertools.groupby(groups, key=lambda group: group.file):
        held = list(run)
        yield FilePart(file, held[0].first, held[-1].stop, sum(group.rows for group in held))


def _repeated(value: str | None, rows: int) -> pa.DictionaryArray:
    """Return a column of one value, held once."""
    places = pa.array(np.zeros(rows, dtype=np.int32), mask=np.full(rows, value is None))
    stored = pa.array([(value or "").encode(errors=UNDECODED)], pa.binary()).view(pa.string())
    return pa.DictionaryArray.from_arrays(places, stored)
