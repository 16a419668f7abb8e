"""Encode raw columns into a domain: clip, scale, replace missing values, map levels to codes."""

from collections.abc import Mapping

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain.columns import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.domain.table import EncodedChunk


def encode_numeric(column: NumericColumn, values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Clip to the public bounds and scale to [0, 1]; NaN and infinities become the declared missing value.

    ``values`` is (rows,), real. Returns (rows,) float64 in [0, 1].
    """
    raw = np.asarray(values, dtype=np.float64)
    missing = (column.lower / 2 + column.upper / 2) if column.missing is None else column.missing
    filled = np.where(np.isfinite(raw), raw, missing)
    scaled = (np.clip(filled, column.lower, column.upper) - column.lower) / (column.upper - column.lower)
    return np.asarray(np.clip(scaled, 0.0, 1.0), dtype=np.float64)


def encode_categorical(column: CategoricalColumn, values: npt.NDArray[np.object_]) -> npt.NDArray[np.int32]:
    """Map level names to codes 0..K-1, unlisted values to K, missing values (None or NaN) to K + 1.

    ``values`` is (rows,) of str (or None); whatever is not a str is compared by its ``str()``.
    """
    codes: dict[object, int] = {level: code for code, level in enumerate(column.levels)}
    other, missing = len(column.levels), len(column.levels) + 1

    def code(value: object) -> int:
        if value is None or value != value:  # noqa: PLR0124 (NaN is the value that differs from itself)
            return missing
        return codes.get(value if isinstance(value, str) else str(value), other)

    distinct: dict[object, int] = {}
    encoded = np.empty(len(values), dtype=np.int32)
    for index, value in enumerate(values):
        if value not in distinct:
            distinct[value] = code(value)
        encoded[index] = distinct[value]
    return encoded


def encode(
    domain: Domain,
    columns: Mapping[str, npt.NDArray[np.float64] | npt.NDArray[np.object_]],
    unit: npt.NDArray[np.int64] | None = None,
    units: int | None = None,
) -> EncodedChunk:
    """Encode raw columns, all of the same length, keyed by column name.

    ``unit`` and ``units`` are as in :class:`~tacit_protocol.domain.table.EncodedChunk`.
    """
    rows = len(next(iter(columns.values())))
    numeric = np.empty((rows, len(domain.numeric)), dtype=np.float64)
    for index, numeric_column in enumerate(domain.numeric):
        numeric[:, index] = encode_numeric(numeric_column, columns[numeric_column.name])
    categorical = np.empty((rows, len(domain.categorical)), dtype=np.int32)
    for index, categorical_column in enumerate(domain.categorical):
        values = np.asarray(columns[categorical_column.name], dtype=object)
        categorical[:, index] = encode_categorical(categorical_column, values)
    return EncodedChunk(numeric, categorical, unit, rows if unit is None else int(units or 0))
