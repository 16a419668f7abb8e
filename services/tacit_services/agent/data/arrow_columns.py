"""Turn Arrow columns into what the domain encodes: float64 numbers and dictionary-encoded text.

Each value is converted by itself. A value that cannot be read as a number is missing; it is never an error,
because an error would tell the outside that some row holds something odd.
"""

import datetime
import math

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tacit_protocol.domain.encode import DictionaryValues
from tacit_services.agent.data.source import DataError

_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"


def numbers(name: str, column: pa.Array) -> npt.NDArray[np.float64]:
    """Return the column as (rows,) float64, with NaN where a value is missing or is not a number.

    Raises:
        DataError: the column's type has no numeric reading (a date, a list, bytes).
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        # Each distinct value once: written out for every row, one long text could fill the memory.
        distinct = np.append(numbers(name, column.dictionary), math.nan)
        indices = column.indices.cast(pa.int32()).fill_null(-1)
        return np.asarray(distinct[indices.to_numpy(zero_copy_only=False)], dtype=np.float64)
    if is_text(kind):
        column = _parse(column)
    elif pa.types.is_boolean(kind):
        column = column.cast(pa.uint8()).cast(pa.float64())
    elif pa.types.is_integer(kind) or pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        column = column.cast(pa.float64(), safe=False)
    elif pa.types.is_null(kind):
        column = pa.nulls(len(column), pa.float64())
    else:
        raise DataError(f"column {name!r} has a type that cannot be read as numbers")
    if column.null_count:
        column = column.fill_null(math.nan)
    return np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)


def is_text(kind: pa.DataType) -> bool:
    """Say whether an Arrow type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def _parse(column: pa.Array) -> pa.Array:
    trimmed = pc.ascii_trim_whitespace(column)
    try:
        return trimmed.cast(pa.float64())
    except pa.ArrowInvalid:
        # Some value is no number. The pattern admits exactly what the cast admits, bar the spellings of NaN
        # and infinity, which are missing either way: a value reads the same whatever stands beside it.
        is_number = pc.match_substring_regex(trimmed, _NUMBER)
        return pc.if_else(is_number, trimmed, pa.scalar(None, trimmed.type)).cast(pa.float64())


def text(column: pa.Array) -> DictionaryValues:
    """Return the column as text: an integer by its digits, a logical value as ``true`` or ``false``."""
    if not pa.types.is_dictionary(column.type):
        column = column.dictionary_encode()
    try:
        values = column.dictionary.to_pylist()
    except UnicodeDecodeError:
        values = column.dictionary.cast(pa.binary()).to_pylist()
    distinct = [text_of(value) for value in values]
    indices = column.indices.cast(pa.int32()).fill_null(-1)
    return DictionaryValues(distinct, np.asarray(indices.to_numpy(zero_copy_only=False), dtype=np.int32))


def text_of(value: object) -> str | None:
    """Return the text by which a value is compared with a study's levels; None for a missing value.

    A whole floating number reads as an integer: ``1.0`` is ``"1"``, since a missing value elsewhere in the
    column is often what made it floating.
    """
    if value is None or isinstance(value, str):
        return value
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float):
        return _text_of_float(value)
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes | memoryview):
        return bytes(value).decode("utf-8", errors="replace")
    return str(value)


def _text_of_float(value: float) -> str | None:
    if math.isnan(value):
        return None
    return str(int(value)) if value.is_integer() else repr(value)
