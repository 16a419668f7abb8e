"""Arrow columns as what the domain encodes: float64 numbers and dictionary-encoded text.

The one reading of values, at an owner's agent, at a curator and in process: what a value counts as decides
what a release says, wherever it is read.

Each value is converted by itself, by arithmetic that has a result for every value of its type. A value that
has no reading is missing; it is never an error, because an error would tell the outside that some row holds
something odd. Nor does one odd value choose another way through the code for the values beside it.
"""

import datetime
import math
from collections.abc import Iterable, Iterator
from decimal import Decimal

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc

from tacit_protocol.domain import DataError, DictionaryValues

_NUMBER = r"^[+-]?([0-9]+\.?[0-9]*|\.[0-9]+)([eE][+-]?[0-9]+)?$"
"""What Arrow's cast admits, bar the spellings of NaN and infinity, which are missing either way."""

UNDECODED = "surrogateescape"
"""How bytes that are no UTF-8 become text: each as a mark of its own, which no level holds, so that different
values stay different."""

_EPOCH = datetime.datetime(1970, 1, 1)  # noqa: DTZ001 (only to spell texts)
_FIRST_DAY = (datetime.date.min - _EPOCH.date()).days
_LAST_DAY = (datetime.date.max - _EPOCH.date()).days
_DAY_S = 86_400
_PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}


def numbers(name: str, column: pa.Array) -> npt.NDArray[np.float64]:
    """Return the column as (rows,) float64, with NaN where a value is missing, infinite or not a number.

    Raises:
        DataError: the column's type has no numeric reading (a date, a list, bytes).
    """
    column = _stored(column)
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
    values = np.asarray(column.to_numpy(zero_copy_only=False), dtype=np.float64)
    return np.where(np.isfinite(values), values, math.nan)


def vectors(name: str, column: pa.Array, length: int) -> npt.NDArray[np.float64]:
    """Return the column as (rows, length) float64; a row that holds no such vector is NaN.

    A vector is a list of so many numbers, or its text, in brackets or braces: ``[0.5, -1]``.

    Raises:
        DataError: the column's type has no reading as vectors.
    """
    column = _stored(column)
    kind = column.type
    found = np.full((len(column), length), math.nan)
    if pa.types.is_dictionary(kind):
        indices = column.indices.cast(pa.int32()).fill_null(len(column.dictionary))
        distinct = np.append(vectors(name, column.dictionary, length), np.full((1, length), math.nan), axis=0)
        found[:] = distinct[indices.to_numpy(zero_copy_only=False)]
        return found
    if is_text(kind):
        for row, spelled in enumerate(column.cast(pa.large_binary()).to_pylist()):
            found[row] = _spelled_vector(spelled, length)
    elif pa.types.is_list(kind) or pa.types.is_large_list(kind) or pa.types.is_fixed_size_list(kind):
        fits = pc.equal(pc.list_value_length(column), length).fill_null(False)
        values = numbers(name, column.filter(fits).flatten()).reshape(-1, length)
        found[fits.to_numpy(zero_copy_only=False)] = values
    elif not pa.types.is_null(kind):
        raise DataError(f"column {name!r} has a type that cannot be read as vectors")
    found[~np.isfinite(found).all(axis=1)] = math.nan
    return found


def _spelled_vector(spelled: bytes | None, length: int) -> npt.NDArray[np.float64] | float:
    """Return the vector that a text spells, (length,); NaN where it spells none of that length."""
    text = (spelled or b"").strip()
    if text[:1] + text[-1:] not in (b"[]", b"{}") or text.count(b",") != length - 1:
        return math.nan
    try:
        return np.array([float(number) for number in text[1:-1].split(b",")])
    except ValueError:
        return math.nan


def is_text(kind: pa.DataType) -> bool:
    """Say whether an Arrow type holds text."""
    return bool(pa.types.is_string(kind) or pa.types.is_large_string(kind) or pa.types.is_string_view(kind))


def is_bytes(kind: pa.DataType) -> bool:
    """Say whether an Arrow type holds bytes."""
    return bool(
        pa.types.is_binary(kind)
        or pa.types.is_large_binary(kind)
        or pa.types.is_fixed_size_binary(kind)
        or pa.types.is_binary_view(kind)
    )


def _stored(column: pa.Array) -> pa.Array:
    """Return the values below an extension type, and text that lies in one piece."""
    if isinstance(column, pa.ExtensionArray):
        column = column.storage
    return column.cast(pa.large_string(), safe=False) if pa.types.is_string_view(column.type) else column


def _parse(column: pa.Array) -> pa.Array:
    trimmed = pc.ascii_trim_whitespace(column)
    # Looked at whether or not all are numbers: one that is none costs the others no time.
    is_number = pc.match_substring_regex(trimmed, _NUMBER)
    return pc.if_else(is_number, trimmed, pa.scalar(None, trimmed.type)).cast(pa.float64())


def text(column: pa.Array) -> DictionaryValues:
    """Return the column as text: an integer by its digits, a logical value as ``true`` or ``false``.

    Raises:
        DataError: the column's type has no reading as text (a list, a record).
    """
    column = _stored(column)
    if not pa.types.is_dictionary(column.type):
        if not _has_text(column.type):
            raise DataError("a column has a type that cannot be read as categories or ids")
        column = column.dictionary_encode()
    indices = column.indices.cast(pa.int32()).fill_null(-1)
    return DictionaryValues(
        list(_texts(_stored(column.dictionary))),
        np.asarray(indices.to_numpy(zero_copy_only=False), dtype=np.int32),
    )


def _has_text(kind: pa.DataType) -> bool:
    return not (pa.types.is_nested(kind) or pa.types.is_interval(kind) or pa.types.is_union(kind))


def _texts(values: pa.Array) -> Iterable[str | None]:
    kind = values.type
    if is_text(kind) or is_bytes(kind):
        large = pa.types.is_large_string(kind) or pa.types.is_large_binary(kind)
        values = values.cast(pa.large_binary() if large else pa.binary())
    if pa.types.is_date(kind):
        return _dates(values)
    if pa.types.is_timestamp(kind):
        return _moments(values)
    if pa.types.is_time(kind):
        return _times(values)
    if pa.types.is_duration(kind):
        return _durations(values)
    if not _has_text(kind):
        raise DataError("a column has a type that cannot be read as categories or ids")
    if pa.types.is_float32(kind) or pa.types.is_float16(kind):
        return _short_floats(values)
    return map(text_of, values.to_pylist())


def _short_floats(values: pa.Array) -> Iterator[str | None]:
    """Spell numbers of less than double precision by the digits that tell them apart in their own type."""
    known = _present(values)
    held = values.fill_null(0).to_numpy(zero_copy_only=False)
    for value, is_known in zip(held, known.tolist(), strict=True):
        exact = float(value)
        is_whole = not math.isfinite(exact) or exact.is_integer()
        yield _text_of_float(exact if is_whole else float(str(value))) if is_known else None


def text_of(value: object) -> str | None:  # noqa: PLR0911 (one for each kind)
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
    if isinstance(value, Decimal):
        return None if value.is_nan() else format(value, "f")
    if isinstance(value, datetime.date | datetime.time):
        return value.isoformat()
    if isinstance(value, bytes | memoryview):
        return bytes(value).decode("utf-8", errors=UNDECODED)
    return str(value)


def _text_of_float(value: float) -> str | None:
    if math.isnan(value):
        return None
    return str(int(value)) if value.is_integer() else repr(value)


# Dates and times, spelled from their whole numbers: Arrow's own conversion to Python's types fails where a
# value lies outside their range, or counts nanoseconds where pandas is not installed.


def _whole(values: pa.Array, width: int) -> npt.NDArray[np.int64]:
    """Return the whole numbers that stand for dates or times; any number for what is missing."""
    whole = values.view(pa.int32() if width == 32 else pa.int64()).fill_null(0)
    return np.asarray(whole.to_numpy(zero_copy_only=False), dtype=np.int64)


def _present(values: pa.Array) -> npt.NDArray[np.bool_]:
    return np.asarray(values.is_valid().to_numpy(zero_copy_only=False), dtype=np.bool_)


def _dates(values: pa.Array) -> Iterator[str | None]:
    days = _whole(values, values.type.bit_width)
    if pa.types.is_date64(values.type):
        days = days // (_DAY_S * _PER_SECOND["ms"])
    known = _present(values) & (days >= _FIRST_DAY) & (days <= _LAST_DAY)
    for day, is_known in zip(days.tolist(), known.tolist(), strict=True):
        yield (_EPOCH + datetime.timedelta(day)).date().isoformat() if is_known else None


def _moments(values: pa.Array) -> Iterator[str | None]:
    per_second = _PER_SECOND[values.type.unit]
    ticks = _whole(values, 64)
    seconds = ticks // per_second
    known = _present(values) & _within_years(seconds)
    offsets: list[int | None] = [None] * len(values)
    if values.type.tz is not None:
        ahead = _seconds_ahead(seconds, known, values.type.tz)
        seconds = np.where(known, seconds, 0) + ahead
        known &= _within_years(seconds)
        offsets = list(ahead.tolist())
    rest = ticks % per_second * (10**9 // per_second)
    for second, ns, offset, is_known in zip(
        seconds.tolist(), rest.tolist(), offsets, known.tolist(), strict=True
    ):
        if not is_known:
            yield None
            continue
        spelled = (_EPOCH + datetime.timedelta(seconds=second)).isoformat() + _fraction(ns)
        yield spelled if offset is None else spelled + _offset(offset)


def _within_years(seconds: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
    return (seconds >= _FIRST_DAY * _DAY_S) & (seconds < (_LAST_DAY + 1) * _DAY_S)


def _seconds_ahead(
    seconds: npt.NDArray[np.int64], known: npt.NDArray[np.bool_], zone: str
) -> npt.NDArray[np.int64]:
    """Return how far the zone's clocks are ahead of UTC; nothing where the zone is none that is known."""
    utc = np.where(known, seconds, 0)
    try:
        local = pc.local_timestamp(pa.array(utc).view(pa.timestamp("s", zone)))
    except pa.ArrowException:  # the zone stands in the schema, not in a row
        return np.zeros(len(utc), dtype=np.int64)
    return np.asarray(local.view(pa.int64()).to_numpy(zero_copy_only=False) - utc, dtype=np.int64)


def _times(values: pa.Array) -> Iterator[str | None]:
    per_second = _PER_SECOND[values.type.unit]
    ticks = _whole(values, values.type.bit_width)
    known = _present(values) & (ticks >= 0) & (ticks < _DAY_S * per_second)
    for tick, is_known in zip(ticks.tolist(), known.tolist(), strict=True):
        second, rest = divmod(tick, per_second)
        if is_known:
            moment = _EPOCH + datetime.timedelta(seconds=second)
            yield moment.time().isoformat() + _fraction(rest * (10**9 // per_second))
        else:
            yield None


def _durations(values: pa.Array) -> Iterator[str | None]:
    per_second = _PER_SECOND[values.type.unit]
    ticks = _whole(values, 64)
    seconds = ticks // per_second
    known = _present(values) & (np.abs(seconds // _DAY_S) <= datetime.timedelta.max.days)
    for second, rest, is_known in zip(
        seconds.tolist(), (ticks % per_second).tolist(), known.tolist(), strict=True
    ):
        if is_known:
            yield str(datetime.timedelta(seconds=second)) + _fraction(rest * (10**9 // per_second))
        else:
            yield None


def _fraction(ns: int) -> str:
    """Return a second's fraction as ISO texts have it: none, six digits, or nine."""
    if not ns:
        return ""
    return f".{ns:09d}" if ns % 1000 else f".{ns // 1000:06d}"


def _offset(seconds: int) -> str:
    hours, rest = divmod(abs(seconds), 3600)
    minutes, left = divmod(rest, 60)
    spelled = f"{'-' if seconds < 0 else '+'}{hours:02d}:{minutes:02d}"
    return f"{spelled}:{left:02d}" if left else spelled
