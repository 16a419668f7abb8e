"""Data sources: named columns, read as a stream of Arrow record batches."""

from collections.abc import Hashable, Iterator, Sequence
from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import pyarrow as pa

from tacit_protocol.domain import VECTOR_MAX, DataError
from tacit_protocol.public_knowledge import ColumnSchema, header_fault, name_fault

READ_BYTES = 64 * 2**20
"""What a source may hold while it is read, besides the rows handed out, unless told otherwise."""


LONG_CHARACTERS, LONG_BYTES = 4096, 2**14
"""Longer texts are cut where they are stored, but for ids: none is a level, and one could fill the memory."""

VECTOR_CHARACTERS = 32 * VECTOR_MAX
"""The same of a text that spells a vector: a number takes 17 digits, a sign, an exponent and separators."""


@dataclass(frozen=True)
class Columns:
    """The columns to read: those taken as numbers, as text, and as vectors, which are lists or texts of one.

    ``unit`` is the one of text that tells a row's unit, if one does.
    """

    numbers: tuple[str, ...] = ()
    text: tuple[str, ...] = ()
    unit: str | None = None
    vectors: tuple[str, ...] = ()

    @property
    def names(self) -> tuple[str, ...]:
        """All of them: numbers, texts, vectors."""
        return self.numbers + self.text + self.vectors

    def characters_of(self, name: str) -> int | None:
        """Return how many characters of a text are read; None for all of an id."""
        if name == self.unit:
            return None
        return VECTOR_CHARACTERS if name in self.vectors else LONG_CHARACTERS


class Source(Protocol):
    """A data set at rest. Reading it twice gives the same rows, or an error."""

    def column_names(self) -> tuple[str, ...]:
        """Return the names of all columns, read from the header alone.

        Raises:
            DataError: the data set is missing or its header cannot be read.
        """

    def fingerprint(self) -> Hashable:
        """Return something that differs when the data set has been replaced; None where nothing is known."""

    def rows(self) -> int | None:
        """Return the number of rows where the header tells it, otherwise None."""

    def batches(self, columns: Columns, rows_max: int) -> Iterator[pa.RecordBatch]:
        """Yield the rows, at most ``rows_max`` at a time, with the named columns.

        Raises:
            DataError: the rows cannot be read.
        """


@runtime_checkable
class HasSchema(Protocol):
    """A source that tells its columns' names and types, and reads no value for it."""

    def schema(self) -> list[ColumnSchema]:
        """Return the columns in order.

        Raises:
            DataError: the data set is missing, or names and types cannot be read.
        """


@runtime_checkable
class HasTypes(Protocol):
    """A source whose columns have types that may have no reading."""

    def no_rows(self, columns: Columns) -> pa.RecordBatch:
        """Return an empty batch with the columns' types, from what the header tells.

        Raises:
            DataError: the header tells that no row can be read.
        """


@runtime_checkable
class GroupsRows(Protocol):
    """A source that can count equal rows where they are stored."""

    def grouped(
        self, names: Sequence[str], rows_max: int
    ) -> Iterator[tuple[pa.RecordBatch, list[int]]] | None:
        """Yield distinct rows of the named columns, as text, each with how often it occurs.

        None where it cannot. At most ``rows_max`` distinct rows at a time; a row may come several times.

        Raises:
            DataError: the rows cannot be read.
        """


@runtime_checkable
class ReadsWithin(Protocol):
    """A source whose buffers follow a bound on memory."""

    def reading_within(self, bytes_max: int) -> Source:
        """Return the same source, that holds about this many bytes at most besides the rows handed out."""


@runtime_checkable
class Splits(Protocol):
    """A source that can be read in several places at once."""

    def split(self, parts: int) -> Sequence[Source]:
        """Return about ``parts`` sources that hold the rows in order, each row once.

        Fewer where the data cannot be cut so often; the source itself where it cannot be cut at all. Parts do
        not depend on one another, and each reads no more than its own rows. Each is picklable, is opened by
        its path or URL wherever it is unpickled, and tells its number of rows (an int) without reading them.
        The fingerprint of a part is that of the whole data set.

        Raises:
            DataError: the data set is missing, or what tells how it may be cut cannot be read.
        """


@dataclass(frozen=True)
class PartRange:
    """A contiguous run of a source's parts, up to but without ``stop``, and how many rows it has."""

    first: int
    stop: int
    rows: int


def require_columns(source: Source, names: Sequence[str]) -> None:
    """Raise DataError where the data set lacks one of the columns or has two of that name."""
    present = source.column_names()
    for name in names:
        count = present.count(name)
        if count == 0:
            fault = header_fault(present) or name_fault(name, present)
            raise DataError(f"the data set has no column {name!r}" + (f"; {fault}" if fault else ""))
        if count > 1:
            raise DataError(f"the data set has more than one column {name!r}")


def installed(what: str, extra: str) -> str:
    """Say how what a source needs is installed."""
    return f'{what} is not installed here: pip install "tacit[{extra}]"'
