"""Samples and variables as they are passed to `tacit.local`, their public bounds, and tables in memory."""

import os
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any, Literal

import narwhals.stable.v1 as nw
import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute as pc
from narwhals.exceptions import DuplicateError
from pydantic import ValidationError

from tacit.errors import DataWarning, InputError, StudyRefusedError
from tacit_protocol import arrow_columns
from tacit_protocol.domain import (
    COLUMNS_MAX,
    CategoricalColumn,
    Column,
    DataError,
    DictionaryValues,
    Domain,
    EncodedChunk,
    NumericColumn,
    ThreadWorkers,
    Workers,
    encode,
)

FLOAT_EXACT_MAX = 2.0**53
"""Whole floating numbers up to this one are distinct integers; larger ones may be several ids in one."""


@dataclass(frozen=True)
class Sample:
    """One sample's columns, each (rows,), by name in order: of NumPy, or of Arrow where it came as a table's.

    Values are read as an agent reads those of the same data in a Parquet file.
    """

    columns: Mapping[str, npt.NDArray[Any] | pa.Array]

    @property
    def rows(self) -> int:
        """Number of rows."""
        return len(next(iter(self.columns.values())))

    def numeric(self, name: str) -> npt.NDArray[np.float64]:
        """Return a column as (rows,) float64, missing values as NaN.

        Raises:
            InputError: it holds something that is not a number.
        """
        values = self.columns[name]
        if isinstance(values, np.ndarray) and values.dtype.kind in "fiub":
            return np.asarray(values, dtype=np.float64)
        held = _as_arrow(values)
        try:
            found = arrow_columns.numbers(name, held)
        except DataError:
            found = None
        if found is None or _has_other_than_numbers(held, found):
            raise InputError(
                f"column {name!r} holds values that are not numbers: give its levels instead, "
                f'bounds={{"{name}": ["level", ...]}}; of dates the days since a public one'
            )
        return found

    def categorical(self, name: str) -> npt.NDArray[np.object_]:
        """Return a column as (rows,) text, missing values as None.

        Whole numbers are written without a decimal point, so that a code keeps its level ("1") when missing
        values made its column one of floats; truth values are "true" and "false", and dates and times are in
        ISO 8601.

        Raises:
            InputError: the column's type has no text, such as lists.
        """
        read = _text(self.columns[name], name)
        # The last place is what an index of -1, a missing value, reaches.
        return np.array([*read.distinct, None], dtype=object)[read.indices]

    def is_of_integers(self, name: str) -> bool:
        """Say whether a column's type is one of whole numbers."""
        values = self.columns[name]
        if isinstance(values, np.ndarray):
            return values.dtype.kind in "iu"
        return bool(pa.types.is_integer(values.type))

    def rows_at(self, places: npt.NDArray[np.int64]) -> "Sample":
        """Return the rows at those places, in that order."""
        return Sample(
            {
                name: values[places] if isinstance(values, np.ndarray) else values.take(places)
                for name, values in self.columns.items()
            }
        )

    def within(self, domain: Domain) -> dict[str, npt.NDArray[Any]]:
        """Return a domain's columns as ``numeric`` and ``categorical`` do, in its order; see there."""
        numbers = {column.name for column in domain.numeric}
        return {
            column.name: self.numeric(column.name)
            if column.name in numbers
            else self.categorical(column.name)
            for column in domain.columns
        }

    def points(self, domain: Domain, chosen: Any = slice(None)) -> list[list[Any]]:
        """Return rows as a study's parameters hold them: one value a column, missing values as None.

        ``chosen`` are rows' places; by default all rows.
        """
        columns = [values[chosen].tolist() for values in self.within(domain).values()]
        return [[None if is_missing(value) else value for value in row] for row in zip(*columns, strict=True)]


def read_samples(
    samples: Sequence[Any], columns: Sequence[str] | None, which: str | None = None
) -> list[Sample]:
    """Read samples that must have the same columns.

    Args:
        samples: NumPy arrays (n, D) or (n,), lists of rows, or columns or tables of pandas, Polars or Arrow.
        columns: for arrays and single columns their names, for tables which columns to use; by default
            x1..xD, or their own.
        which: what messages call the samples; by default sample 1, sample 2, ...

    Raises:
        InputError: a sample is empty, of an unknown type, or has other columns than the first.
    """
    read = [
        _read(sample, columns, which or f"sample {index}") for index, sample in enumerate(samples, start=1)
    ]
    for index, sample in enumerate(read[1:], start=2):
        if list(sample.columns) != list(read[0].columns):
            raise InputError(
                f"sample {index} has other columns than sample 1: every sample must have the same columns "
                "in the same order; choose them with columns=[...]"
            )
    return read


def _read(sample: Any, columns: Sequence[str] | None, which: str) -> Sample:
    if isinstance(columns, str):
        raise InputError("columns must be a list of names")
    native = as_narwhals(sample, which)
    if native is None:
        named: Mapping[str, npt.NDArray[Any] | pa.Array] = _array_columns(sample, columns, which)
    elif isinstance(native, nw.Series):
        own = [_own_name(native) or "x1"] if columns is None else columns
        if len(own) != 1:
            raise InputError(f"{which} has 1 columns and columns= names {len(own)}")
        named = {own[0]: _series_values(native)}
    else:
        named = _frame_columns(native, columns, which)
    if not named or not len(next(iter(named.values()))):
        raise InputError(f"{which} is empty: it needs at least one row and one column")
    return Sample(named)


def _array_columns(sample: Any, names: Sequence[str] | None, which: str) -> dict[str, npt.NDArray[Any]]:
    array = array_of(sample, which)
    if array.ndim == 1:
        array = array[:, np.newaxis]
    if array.ndim != 2:
        raise InputError(f"{which} has {array.ndim} dimensions: pass an array of shape (n, D)")
    if np.iscomplexobj(array):
        raise InputError(f"{which} holds complex numbers: pass real ones")
    if array.dtype.kind in "mM":
        raise InputError(f"{which} holds dates or times: pass numbers, such as days since a public date")
    listed = [f"x{index}" for index in range(1, array.shape[1] + 1)] if names is None else list(names)
    if len(listed) != array.shape[1]:
        raise InputError(f"{which} has {array.shape[1]} columns and columns= names {len(listed)}")
    return {name: array[:, index] for index, name in enumerate(listed)}


def as_narwhals(values: Any, which: str) -> "nw.DataFrame[Any] | nw.Series[Any] | None":
    """Return a table or a column of pandas, Polars or Arrow as one of narwhals; None of arrays and lists.

    Raises:
        InputError: it is none of these, or has two columns of one name.
    """
    if isinstance(values, np.ndarray | list | tuple):
        return None
    try:
        native: nw.DataFrame[Any] | nw.Series[Any] = nw.from_native(
            values, eager_only=True, allow_series=True
        )
    except DuplicateError:
        raise InputError(f"{which} has several columns of one name: rename them") from None
    except TypeError:
        if hasattr(values, "__array__"):
            return None
        lazy = ", which is not read yet: call its collect()" if hasattr(values, "collect") else ""
        raise InputError(
            f"{which} is a {type(values).__name__}{lazy}: pass a NumPy array, a list of rows, or a column or "
            "a table of pandas, Polars or Arrow"
        ) from None
    return native


def _own_name(native: "nw.Series[Any] | None") -> str | None:
    """Return a column's own name, or None: pandas numbers columns that have none."""
    return native.name if native is not None and isinstance(native.name, str) and native.name else None


def array_of(values: Any, which: str) -> npt.NDArray[Any]:
    """Return what is passed as an array, (n,) or (n, D), as one; a table of one column is (n,).

    Raises:
        InputError: it is of another kind, or a list whose rows have several lengths.
    """
    native = as_narwhals(values, which)
    if native is None:
        try:
            array = np.asarray(values)
        except ValueError:
            raise InputError(f"{which} must be an array, its rows of one length") from None
        # Of a list with text, NumPy makes text of numbers and missing values too.
        return np.array(values, dtype=object) if array.dtype.kind in "US" and array is not values else array
    if isinstance(native, nw.Series):
        return _numpy(_series_values(native))
    columns = [_numpy(_series_values(native.get_column(name))) for name in native.columns]
    return columns[0] if len(columns) == 1 else np.array(columns).T


def _numpy(values: npt.NDArray[Any] | pa.Array) -> npt.NDArray[Any]:
    return values if isinstance(values, np.ndarray) else values.to_numpy(zero_copy_only=False)


def _frame_columns(
    frame: "nw.DataFrame[Any]", names: Sequence[str] | None, which: str
) -> dict[str, npt.NDArray[Any] | pa.Array]:
    own = {str(name): name for name in frame.columns}
    listed = list(own) if names is None else [str(name) for name in names]
    absent = [name for name in listed if name not in own]
    if absent:
        raise InputError(
            f"{which} has no column {', '.join(map(repr, absent))}: it has {', '.join(map(repr, own))}"
        )
    return {name: _series_values(frame.get_column(own[name])) for name in listed}


def is_missing(value: Any) -> bool:
    """Tell a missing value: None, NaN, NaT, or the NA of pandas, whose comparisons have no truth."""
    try:
        return value is None or bool(value != value)  # noqa: PLR0124 (NaN is the value that differs from itself)
    except TypeError:
        return True


def _series_values(series: "nw.Series[Any]") -> npt.NDArray[Any] | pa.Array:
    """Return a column as an array of numbers where that keeps each value, and else as it is in Arrow."""
    is_plain = series.dtype.is_numeric() and not series.dtype.is_decimal()
    if is_plain and not series.null_count():
        return series.to_numpy()
    try:
        found = series.to_arrow()
    except (pa.ArrowException, TypeError, OverflowError):  # objects of several types
        return _as_arrow(np.array(series.to_list(), dtype=object))
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _as_arrow(values: npt.NDArray[Any] | pa.Array) -> pa.Array:
    """Return a column in Arrow; values of several types become text, each by itself."""
    if not isinstance(values, np.ndarray):
        return values
    own = values if values.dtype.kind in "fiub" else values.tolist()
    try:
        found = pa.array(own, from_pandas=True)
    except (pa.ArrowException, TypeError, ValueError, OverflowError):
        texts = [None if is_missing(value) else arrow_columns.text_of(_plain(value)) for value in own]
        found = pa.array(texts, type=pa.large_string())
    return found.combine_chunks() if isinstance(found, pa.ChunkedArray) else found


def _plain(value: object) -> object:
    """Return a NumPy number as one of Python."""
    return value.item() if isinstance(value, np.generic) else value


def _text(values: npt.NDArray[Any] | pa.Array, name: str) -> DictionaryValues:
    try:
        return arrow_columns.text(_as_arrow(values))
    except DataError:
        raise InputError(
            f"column {name!r} has a type that is no category and no id: pass text, numbers or dates"
        ) from None


def _has_other_than_numbers(held: pa.Array, found: npt.NDArray[np.float64]) -> bool:
    """Say whether values that gave no number are other things than NaN and infinities."""
    kind = held.type.value_type if pa.types.is_dictionary(held.type) else held.type
    if pa.types.is_floating(kind) or pa.types.is_decimal(kind):
        return False
    return bool((np.isnan(found) & pc.is_valid(held).to_numpy(zero_copy_only=False)).any())


MISSING_ADVICE = (
    "bounds must be public: write down what is known without looking at the data, such as "
    'bounds={"age": (0, 120), "sex": ["F", "M"]}; bounds taken from the data would leak it'
)


def domain_of(bounds: Any, columns: Sequence[str]) -> Domain:
    """Build the domain of ``columns``, in their order.

    Args:
        bounds: by column name a (lower, upper) pair, a list of levels (text) or a Column; or an array
            (D, 2) of pairs in the order of the columns; or one pair for all of them.
        columns: the columns' names.

    Raises:
        InputError: bounds are missing, not finite, not ordered, or do not fit the columns.
    """
    if bounds is None:
        raise InputError(MISSING_ADVICE)
    if len(columns) > COLUMNS_MAX:
        raise InputError(f"{len(columns)} columns, where a study takes {COLUMNS_MAX} at most: leave some out")
    if isinstance(bounds, Domain):
        bounds = {column.name: column for column in bounds.columns}
    by_name = bounds if isinstance(bounds, Mapping) else _by_position(bounds, columns)
    absent = [name for name in columns if name not in by_name]
    if absent:
        raise InputError(f"no bounds for {', '.join(map(repr, absent))}: {MISSING_ADVICE}")
    unknown = [str(name) for name in by_name if name not in columns]
    if unknown:
        raise InputError(f"bounds name {', '.join(map(repr, unknown))}, which the samples do not have")
    try:
        return Domain(columns=tuple(_bounded_column(name, by_name[name]) for name in columns))
    except ValidationError as error:
        raise InputError(f"bounds: {_reason(error)}") from error


def _by_position(bounds: Any, columns: Sequence[str]) -> dict[str, Any]:
    try:
        array = np.asarray(bounds, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("bounds must be a dictionary, one (lower, upper) pair, or an array (D, 2)") from None
    if array.shape == (2,):
        return dict.fromkeys(columns, array)
    if array.shape != (len(columns), 2):
        raise InputError(
            f"bounds have shape {array.shape}: for {len(columns)} columns pass ({len(columns)}, 2), "
            "or one (lower, upper) pair"
        )
    return dict(zip(columns, array, strict=True))


def _bounded_column(name: str, bound: Any) -> Column:
    if isinstance(bound, NumericColumn | CategoricalColumn):
        return bound
    values = [bound] if isinstance(bound, str) else _listed(name, bound)
    try:
        if values and all(isinstance(value, str) for value in values):
            return CategoricalColumn(name=name, levels=tuple(values))
        lower, upper = (float(value) for value in values)
    except ValidationError as error:
        raise InputError(f"bounds of {name!r}: {_reason(error)}") from error
    except (TypeError, ValueError):
        raise InputError(
            f"bounds of {name!r} must be a (lower, upper) pair of numbers or a list of levels (text)"
        ) from None
    if not (np.isfinite(lower) and np.isfinite(upper)):
        raise InputError(f"bounds of {name!r} must be finite numbers, not NaN or infinity")
    try:
        return NumericColumn(name=name, lower=lower, upper=upper)
    except ValidationError as error:
        raise InputError(f"bounds of {name!r}: {_reason(error)}") from error


def _listed(name: str, bound: Any) -> list[Any]:
    try:
        return list(bound)
    except TypeError:
        raise InputError(
            f"bounds of {name!r} must be a (lower, upper) pair of numbers or a list of levels (text)"
        ) from None


def _reason(error: ValidationError) -> str:
    return str(error.errors(include_url=False)[0]["msg"]).removeprefix("Value error, ")


CHUNK_ROWS = 65_536
"""Rows encoded at a time: a few dozen megabytes for tables of hundreds of columns."""


_THREADS = ThreadWorkers(
    len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
)


@dataclass(frozen=True)
class ArrayTable:
    """A sample encoded in a domain; implements :class:`tacit_protocol.domain.Table`.

    ``units`` is the number of privacy units; ``starts`` (units + 1,) holds the first row of each unit once
    rows are ordered by unit, or is None where every row is a unit.
    """

    domain: Domain
    units: int
    columns: dict[str, Any]
    starts: npt.NDArray[np.int64] | None
    chunk_rows: int = CHUNK_ROWS

    @classmethod
    def of(
        cls,
        sample: Sample,
        domain: Domain,
        unit: npt.ArrayLike | None = None,
        draw: np.random.Generator | None = None,
    ) -> "ArrayTable":
        """Build a table; ``unit`` (rows,) names each row's privacy unit, ``draw`` draws one row of each.

        Raises:
            InputError: a numeric column holds other things, or ``unit`` does not fit the rows.
        """
        numeric = {column.name: sample.numeric(column.name) for column in domain.numeric}
        levels = {column.name: sample.categorical(column.name) for column in domain.categorical}
        columns: dict[str, Any] = numeric | levels
        if unit is None:
            return cls(domain, sample.rows, columns, None)
        codes = _unit_codes(unit, sample.rows)
        order = np.argsort(codes, kind="stable")
        starts = np.concatenate([[0], np.cumsum(np.bincount(codes))]).astype(np.int64)
        if draw is not None:
            order = order[starts[:-1] + (draw.random(len(starts) - 1) * np.diff(starts)).astype(np.int64)]
            return cls(domain, len(order), {name: values[order] for name, values in columns.items()}, None)
        ordered = {name: values[order] for name, values in columns.items()}
        return cls(domain, len(starts) - 1, ordered, starts)

    @property
    def workers(self) -> Workers:
        """A thread for each of the processors that this process may use."""
        return _THREADS

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield the rows; all rows of a unit lie in one chunk."""
        if self.starts is None:
            rows = self.units
            for start in range(0, rows, self.chunk_rows):
                yield encode(self.domain, self._rows(start, min(start + self.chunk_rows, rows)))
            return
        first = 0
        while first < self.units:
            # As many whole units as fit; one that is larger than a chunk gets a chunk of its own.
            limit = self.starts[first] + self.chunk_rows
            last = max(first + 1, int(np.searchsorted(self.starts, limit, side="right")) - 1)
            sizes = np.diff(self.starts[first : last + 1])
            unit = np.repeat(np.arange(last - first, dtype=np.int64), sizes)
            rows_of = self._rows(int(self.starts[first]), int(self.starts[last]))
            yield encode(self.domain, rows_of, unit, last - first)
            first = last

    def _rows(self, start: int, stop: int) -> dict[str, Any]:
        return {name: values[start:stop] for name, values in self.columns.items()}


def drawing(unit_rows: str, units: object) -> np.random.Generator | None:
    """Return what draws one row of each unit where that is asked for; None keeps all of them.

    It is secret and drawn afresh: which row another unit has says nothing, whoever is replaced.

    Raises:
        InputError: ``unit_rows`` is neither "average" nor "one", or no units have several rows.
    """
    if unit_rows not in {"average", "one"}:
        raise InputError('unit_rows must be "average" or "one"')
    if unit_rows == "average":
        return None
    if units is None:
        raise InputError('unit_rows="one" needs units: they say whose row each is')
    return np.random.default_rng()


def _unit_codes(unit: npt.ArrayLike | pa.Array, rows: int) -> npt.NDArray[np.int64]:
    """Return (rows,) numbers from 0 of the units that (rows,) ids name; ids are compared as text."""
    native = as_narwhals(unit, "units")
    if isinstance(native, nw.DataFrame):
        native = native.get_column(native.columns[0]) if len(native.columns) == 1 else None
    ids = _series_values(native) if native is not None else array_of(unit, "units")
    if len(ids) != rows or getattr(ids, "ndim", 1) != 1:
        raise InputError(f"units must name one unit for each of the {rows} rows, in an array of that length")
    if isinstance(ids, np.ndarray) and ids.dtype.kind == "f" and (np.abs(ids) > FLOAT_EXACT_MAX).any():
        raise InputError(
            "units hold floating numbers above 2^53, where several ids are one number: pass whole numbers "
            "or text"
        )
    read = _text(ids, "units")
    if (read.indices < 0).any() or any(read.distinct[place] is None for place in np.unique(read.indices)):
        raise InputError("units hold missing values: give every row a unit")
    # In one order for two owners whose rows are in others; whole numbers are in their own.
    texts = [str(text) for text in read.distinct]
    order = np.empty(len(texts), dtype=np.int64)
    order[sorted(range(len(texts)), key=lambda place: (len(texts[place]), texts[place]))] = range(len(texts))
    return np.unique(order[read.indices], return_inverse=True)[1].reshape(-1).astype(np.int64)


ARGUMENTS: Mapping[str, str] = {"parameter permutations": "n_permutations"}
"""What arguments of this package's functions are called in a study, where that is another name."""


@contextmanager
def by_argument_names() -> Iterator[None]:
    """Say n_permutations where a refusal would say what a study's file calls it; serves as a decorator."""
    try:
        yield
    except StudyRefusedError as error:
        text = str(error)
        for theirs, ours in ARGUMENTS.items():
            text = text.replace(theirs, ours)
        raise StudyRefusedError(text) from error.__cause__


def read_with_units(
    samples: Sequence[Any],
    columns: Sequence[str] | None,
    units: str | Sequence[npt.ArrayLike] | None,
    bounds: Any = None,
) -> tuple[list[Sample], list[npt.ArrayLike | None]]:
    """Read samples that have the same columns, and each one's units: (rows,), or None where rows are units.

    Of tables, bounds by name choose the columns where ``columns`` does not.

    Raises:
        InputError: the samples or the units cannot be used; the message says what to change.
    """
    if columns is None and samples and isinstance(bounds, Mapping):
        columns = _bounded_columns(samples[0], bounds)
    if isinstance(units, str):
        wanted = None if columns is None else [name for name in columns if name != units] + [units]
        read = read_samples(samples, wanted)
        if units not in read[0].columns:
            raise InputError(f"the samples have no column {units!r} to take units from")
        return [_without(sample, units) for sample in read], [sample.columns[units] for sample in read]
    read = read_samples(samples, columns)
    if units is None:
        return read, [None] * len(read)
    given = len(units) if hasattr(units, "__len__") else 0
    if given != len(read):
        raise InputError(f"units holds {given} arrays for {len(read)} samples: pass one for each")
    return read, list(units)


def read_tables(
    samples: Sequence[Any],
    columns: Sequence[str] | None,
    *,
    units: str | Sequence[npt.ArrayLike] | None,
    bounds: Any,
    missing: "Missing",
    names: Sequence[str],
    unit_rows: str = "average",
) -> list["ArrayTable"]:
    """Read samples that have the same columns as tables, one for each owner, whose ``names`` messages say.

    Raises:
        InputError: the samples, the bounds or the units cannot be used; the message says what to change.
    """
    if not samples:
        raise InputError("pass one sample for each owner")
    read, unit_values = read_with_units(samples, columns, units, bounds)
    known = list(read[0].columns)
    domain = domain_of({name: list(bounds) for name in known} if are_levels(bounds) else bounds, known)
    read = admitted(read, domain, missing, names)
    return [
        ArrayTable.of(sample, domain, unit, None if unit is None else drawing(unit_rows, unit))
        for sample, unit in zip(read, unit_values, strict=True)
    ]


def _bounded_columns(sample: Any, bounds: Mapping[str, Any]) -> list[str] | None:
    """Return a table's columns that have bounds, in its order, then those that it lacks; None of arrays."""
    native = as_narwhals(sample, "sample 1")
    if not isinstance(native, nw.DataFrame):
        return None
    own = [str(name) for name in native.columns]
    return [name for name in own if name in bounds] + [name for name in bounds if name not in own]


def _without(sample: Sample, name: str) -> Sample:
    kept = {column: values for column, values in sample.columns.items() if column != name}
    if not kept:
        raise InputError("the unit column is the only column: the test needs others")
    return Sample(kept)


Missing = Literal["refuse", "encode"]


@dataclass(frozen=True)
class Variables:
    """Variables over the same rows: their columns side by side, and which belong to which variable."""

    sample: Sample
    domain: Domain
    groups: tuple[tuple[str, ...], ...]

    def together(self, units: npt.ArrayLike | None, unit_rows: str) -> ArrayTable:
        """Return the table of one party that holds all columns."""
        return ArrayTable.of(self.sample, self.domain, units, drawing(unit_rows, units))

    def apart(
        self, units: Sequence[npt.ArrayLike | None], draws: Sequence[np.random.Generator | None]
    ) -> list[ArrayTable]:
        """Return a table of each variable's columns; each has units, and what draws one row of each."""
        found = []
        for group, unit, draw in zip(self.groups, units, draws, strict=True):
            domain = Domain(columns=tuple(column for column in self.domain.columns if column.name in group))
            sample = Sample({column.name: self.sample.columns[column.name] for column in domain.columns})
            found.append(ArrayTable.of(sample, domain, unit, draw))
        return found


def read_variables(
    variables: Sequence[Any],
    bounds: Any,
    names: Sequence[str] | None,
    missing: Missing,
    *,
    arguments: Sequence[str] | None = None,
    same_rows: bool = True,
) -> Variables:
    """Read variables.

    Args:
        variables: each an array (n,) or (n, D), or a column or a table of pandas, Polars or Arrow.
        bounds: a list with each variable's bounds, or anything that
            :func:`~tacit.in_process.samples.domain_of` takes for all columns.
        names: the variables' names; by default x1, x2, ... for arrays, and a table's own for its columns.
        missing: whether a missing value is refused, or encoded as studies do.
        arguments: of two variables, what the caller wrote them as, which no names= can change: messages say
            so, and arrays are named so, instead of x1, x2, ...
        same_rows: whether all must have the same number of rows.

    Raises:
        InputError: the variables cannot be used as they are; the message says what to change.
    """
    if len(variables) < 2:
        raise InputError("pass at least two variables: independence is a question about several")
    default = arguments or [f"x{index}" for index in range(1, len(variables) + 1)]
    listed = list(default if names is None else names)
    if len(listed) != len(variables):
        raise InputError(f"names holds {len(listed)} names for {len(variables)} variables: pass one for each")
    read = [
        _read_variable(variable, name, named=names is not None)
        for variable, name in zip(variables, listed, strict=True)
    ]
    for sample, name in zip(read, listed, strict=True):
        if same_rows and sample.rows != read[0].rows:
            raise InputError(
                f"{name} has {sample.rows} rows and {listed[0]} has {read[0].rows}: every variable must "
                "describe the same rows, in the same order"
            )
    groups = tuple(tuple(sample.columns) for sample in read)
    columns = [name for group in groups for name in group]
    if len(set(columns)) != len(columns):
        if arguments is None:
            raise InputError(
                "two variables have a column of the same name: pass names=, one for each variable"
            )
        shared = min(set(groups[0]) & set(groups[1]))
        both = " and ".join(arguments)
        raise InputError(f"{both} both have a column named {shared!r}: rename it in one of them")
    domain = _domain_of_variables(bounds, read, columns, listed)
    joined = Sample({name: values for sample in read for name, values in sample.columns.items()})
    (sample,) = admitted([joined], domain, missing)
    return Variables(sample, domain, groups)


def read_columns(variable: Any, name: str, bounds: Any, missing: Missing) -> tuple[Sample, Domain]:
    """Read one variable, which the caller wrote as ``name``, with its bounds.

    Raises:
        InputError: it cannot be used as it is; the message says what to change.
    """
    sample = _read_variable(variable, name, named=False)
    columns = list(sample.columns)
    domain = domain_of({own: list(bounds) for own in columns} if are_levels(bounds) else bounds, columns)
    return admitted([sample], domain, missing)[0], domain


def _read_variable(variable: Any, name: str, named: bool) -> Sample:
    sample, native = read_samples([variable], None, name)[0], as_narwhals(variable, name)
    if not named and (isinstance(native, nw.DataFrame) or _own_name(native)):
        return sample
    if len(sample.columns) == 1:
        return Sample({name: next(iter(sample.columns.values()))})
    return Sample({f"{name}.{own.removeprefix('x')}": values for own, values in sample.columns.items()})


def _domain_of_variables(
    bounds: Any, read: Sequence[Sample], columns: Sequence[str], listed: Sequence[str]
) -> Domain:
    if not isinstance(bounds, list | tuple) or not _one_for_each(bounds, len(read), len(columns)):
        if are_levels(bounds):
            bounds = {name: list(bounds) for name in columns}
        return domain_of(bounds, columns)
    for bound, variable in zip(bounds, listed, strict=True):
        if bound is None:
            raise InputError(f"{variable} has no bounds: {MISSING_ADVICE}")
    found: list[Column] = []
    for bound, sample in zip(bounds, read, strict=True):
        own = {name: list(bound) for name in sample.columns} if are_levels(bound) else bound
        if isinstance(own, NumericColumn | CategoricalColumn):
            own = {name: own.model_copy(update={"name": name}) for name in sample.columns}
        found += domain_of(own, list(sample.columns)).columns
    return domain_of({column.name: column for column in found}, columns)


def _one_for_each(bounds: Sequence[Any], variables: int, columns: int) -> bool:
    """Tell bounds of each variable from one pair, or one list of levels, for every column."""
    scalars = all(isinstance(bound, str) or np.isscalar(bound) for bound in bounds)
    if scalars or (len(bounds) != variables and len(bounds) == columns):
        return False
    if len(bounds) != variables:
        raise InputError(f"bounds holds {len(bounds)} items for {variables} variables: pass one for each")
    return True


def are_levels(bound: Any) -> bool:
    """Tell a list, an array or a column of levels (text) from other bounds."""
    is_list = isinstance(bound, Sequence | np.ndarray) or nw.dependencies.is_into_series(bound)
    return (
        is_list
        and not isinstance(bound, str)
        and len(bound) > 0
        and all(isinstance(value, str) for value in bound)
    )


OUTSIDE_SHARE_MAX = 0.05
"""More values than this outside of the bounds or the listed levels look like a mistake, and are warned of."""


def admitted(
    samples: Sequence[Sample], domain: Domain, missing: Missing, names: Sequence[str] = ()
) -> list[Sample]:
    """Return the samples with their columns read; refuse missing values unless they are to be encoded.

    ``names`` are what messages call each sample, for several. Warns of values that are missing, not listed or
    out of bounds: what a study reads in their place may look like a finding.

    Raises:
        InputError: a column holds other things than numbers, or values are missing and refused.
    """
    if missing not in ("refuse", "encode"):
        raise InputError('missing must be "refuse" or "encode"')
    read = [Sample(sample.within(domain)) for sample in samples]
    for index, sample in enumerate(read):
        where = "" if len(read) == 1 else f" of {names[index]}"
        for column in domain.columns:
            gap, outside = _shares(sample, column)
            called = f"column {column.name!r}{where}"
            if gap and missing == "refuse":
                raise InputError(
                    f"{_percent(gap)} of {called} is missing (NaN, an infinity or None): leave those rows "
                    f'out, or pass missing="encode" to have each {_reading(column)}'
                )
            if gap:
                _warn(f"{_percent(gap)} of {called} is missing, and each is {_reading(column)}")
            if outside > OUTSIDE_SHARE_MAX:
                _warn(f"{_percent(outside)} of {called} {_outside(column)}")
    return read


def _shares(sample: Sample, column: Column) -> tuple[float, float]:
    """Return the shares of values that are missing, and that are out of bounds or not listed."""
    if isinstance(column, NumericColumn):
        values = sample.numeric(column.name)
        gaps = ~np.isfinite(values)
        outside = (values < column.lower) | (values > column.upper)
    else:
        held = sample.columns[column.name]
        gaps = np.array([value is None for value in held])
        listed = {None, *column.levels}
        outside = np.array([value not in listed for value in held])
    return float(gaps.mean()), float((outside & ~gaps).mean())


def _reading(column: Column) -> str:
    if isinstance(column, CategoricalColumn):
        return "counted as a level of its own"
    middle = "" if column.missing is not None else ", the middle of its bounds"
    words = f"read as {column.missing_value:g}{middle}"
    return f"{words}: a difference in how many are missing then looks like one in values"


def _outside(column: Column) -> str:
    if isinstance(column, NumericColumn):
        bounds = f"{column.lower:g} to {column.upper:g}"
        return f"lies outside {bounds}, and each such value counts as the nearer bound"
    return f"is none of the levels {', '.join(column.levels)}, which are compared letter by letter"


def _percent(share: float) -> str:
    return f"{100 * share:.3g} %"


def _warn(message: str) -> None:
    warnings.warn(message, DataWarning, stacklevel=4)
