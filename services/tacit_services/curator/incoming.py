"""Rows as they arrive, turned into what is stored of them, and no more.

Numbers are stored as numbers, and a value that is none as missing, as the agent reads them. Of a category,
the declared level is stored; whatever is not declared becomes one and the same mark, so that no free text is
kept. Of the unit column only a keyed hash is stored, whose key is drawn for the upload and then forgotten:
which rows belong together can be told, and to whom they belong cannot. Columns that are not declared are
dropped.
"""

from collections.abc import Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import pyarrow as pa

from tacit_protocol.arrow_columns import numbers, text
from tacit_protocol.domain import CategoricalColumn, Column, DataError, NumericColumn, encode_categorical
from tacit_services.agent.data.reader import UnitHasher, UnitHashes
from tacit_services.agent.data.source import Columns

OTHER = ""
"""Stands in the store for every value that is no declared level; no level is empty."""

_WRONG_TYPES = {
    "numeric": "a column declared numeric has a type that cannot be read as numbers",
    "categorical": "a column declared categorical has a type that cannot be read as categories",
}
WRONG_UNITS = "the unit column has a type that cannot be read as ids"

Encoded = list[npt.NDArray[Any]]
"""Rows as columns of numbers (float64), of codes (int32) and of units' hashes (uint64)."""

LACKING = "the file lacks a declared column"
TWICE = "the file has two columns of a declared name"


class UploadRefusedError(Exception):
    """The rows cannot be taken: a constant text, and which declared column it is about, if any."""

    def __init__(self, reason: str, path: str | None = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.path = path


class RowShape:
    """What is stored of a row, given the declared columns and the unit column.

    One object serves one upload: it holds the key by which units are hashed.
    """

    def __init__(self, columns: Sequence[Column], unit_column: str | None) -> None:
        self.columns = tuple(columns)
        self.unit_column = unit_column
        self._hasher = UnitHasher()
        self._numbers_seen: set[str] = set()

    @property
    def wanted(self) -> Columns:
        """The columns to read."""
        unit = () if self.unit_column is None else (self.unit_column,)
        return Columns(
            tuple(column.name for column in self.columns if isinstance(column, NumericColumn)),
            tuple(column.name for column in self.columns if isinstance(column, CategoricalColumn)) + unit,
        )

    @property
    def schema(self) -> pa.Schema:
        """The stored columns."""
        fields = [(column.name, _type_of(column)) for column in self.columns]
        if self.unit_column is not None:
            fields.append((self.unit_column, pa.int64()))
        return pa.schema(fields)

    def require_present(self, names: Sequence[str]) -> None:
        """Raise UploadRefusedError where a declared column or the unit column is missing or there twice."""
        declared = [(f"$.columns[{index}]", column.name) for index, column in enumerate(self.columns)]
        if self.unit_column is not None:
            declared.append(("$.unit_column", self.unit_column))
        for path, name in declared:
            if names.count(name) != 1:
                raise UploadRefusedError(TWICE if name in names else LACKING, path)

    @property
    def kinds(self) -> list[np.dtype[Any]]:
        """The kinds of encoded columns: numbers, codes, and hashes where there is a unit column."""
        kinds: list[np.dtype[Any]] = [
            np.dtype(np.float64 if isinstance(column, NumericColumn) else np.int32) for column in self.columns
        ]
        return kinds if self.unit_column is None else [*kinds, np.dtype(np.uint64)]

    def encoded(self, batch: pa.RecordBatch) -> Encoded:
        """Return rows as numbers, codes of levels, and hashes of units, in columns of :attr:`kinds`.

        Raises:
            UploadRefusedError: a column's type cannot be read.
        """
        encoded: Encoded = []
        for index, column in enumerate(self.columns):
            try:
                encoded.append(_encoded(column, batch.column(column.name)))
            except DataError:
                raise UploadRefusedError(_WRONG_TYPES[column.kind], f"$.columns[{index}]") from None
        if self.unit_column is not None:
            try:
                encoded.append(self._hasher.hashes(batch.column(self.unit_column)))
            except DataError:
                raise UploadRefusedError(WRONG_UNITS, "$.unit_column") from None
        return encoded

    def checked(self, encoded: Encoded) -> Encoded:
        """Return encoded rows that come from elsewhere; raises UploadRefusedError for codes of no level."""
        for column, values in zip(self.columns, encoded, strict=False):
            if not isinstance(column, CategoricalColumn) or not len(values):
                continue
            if not 0 <= values.min() <= values.max() < column.categories:
                raise UploadRefusedError("the file is damaged")
        return encoded

    def stored(self, encoded: Encoded) -> pa.RecordBatch:
        """Return what is stored of these rows."""
        arrays = []
        for column, values in zip(self.columns, encoded, strict=False):
            if isinstance(column, NumericColumn):
                if column.name not in self._numbers_seen and np.isfinite(values).any():
                    self._numbers_seen.add(column.name)
                arrays.append(pa.array(values))
            else:
                arrays.append(_levels(column, values))
        if self.unit_column is not None:
            arrays.append(pa.array(encoded[-1].view(np.int64)))
        return pa.RecordBatch.from_arrays(arrays, schema=self.schema)

    def unit_hashes(self, batch: pa.RecordBatch) -> UnitHashes:
        """Return the units of rows as they are stored, (rows,) uint64; there must be a unit column."""
        column = batch.column(self.unit_column)
        return np.asarray(column.to_numpy(zero_copy_only=False).view(np.uint64))

    def require_numbers(self) -> None:
        """Raise UploadRefusedError where a column declared numeric held no number in any row."""
        for index, column in enumerate(self.columns):
            if isinstance(column, NumericColumn) and column.name not in self._numbers_seen:
                raise UploadRefusedError("a column declared numeric holds no number", f"$.columns[{index}]")


def _encoded(column: Column, values: pa.Array) -> npt.NDArray[Any]:
    if isinstance(column, NumericColumn):
        return numbers(column.name, values)
    return encode_categorical(column, text(values))


def _type_of(column: Column) -> pa.DataType:
    return pa.float64() if isinstance(column, NumericColumn) else pa.dictionary(pa.int32(), pa.string())


def _levels(column: CategoricalColumn, codes: npt.NDArray[np.int32]) -> pa.Array:
    """Write codes (K is "other", K + 1 is missing) as the declared levels, the mark, and null."""
    is_missing = codes == len(column.levels) + 1
    indices = pa.array(np.where(is_missing, 0, codes).astype(np.int32), mask=is_missing)
    return pa.DictionaryArray.from_arrays(indices, pa.array([*column.levels, OTHER], pa.string()))
