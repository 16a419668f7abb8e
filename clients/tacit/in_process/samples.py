"""Samples as users hold them, their public bounds, and tables and counts in memory."""

import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import numpy.typing as npt
from pydantic import ValidationError

from tacit.errors import InputError
from tacit_protocol.domain import (
    COLUMNS_MAX,
    CategoricalColumn,
    Column,
    Domain,
    EncodedChunk,
    NumericColumn,
    encode,
)
from tacit_protocol.workers import ThreadWorkers, Workers

RawColumn = npt.NDArray[np.float64] | npt.NDArray[np.object_]


@dataclass(frozen=True)
class Sample:
    """One sample's columns, each (rows,), by name in order."""

    columns: Mapping[str, npt.NDArray[Any]]

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
        try:
            if values.dtype != object:
                return np.asarray(values, dtype=np.float64)
            return np.array([np.nan if v is None else float(v) for v in values], dtype=np.float64)
        except (TypeError, ValueError):
            raise InputError(
                f"column {name!r} holds values that are not numbers: give its levels instead, "
                f'bounds={{"{name}": ["level", ...]}}'
            ) from None

    def categorical(self, name: str) -> npt.NDArray[np.object_]:
        """Return a column as (rows,) text, missing values as None.

        Whole numbers are written without a decimal point, so that a code keeps its level ("1") when missing
        values made its column one of floats; truth values are "true" and "false". An agent does the same.
        """
        return np.array([_level(value) for value in self.columns[name]], dtype=object)

    def within(self, domain: Domain) -> dict[str, npt.NDArray[Any]]:
        """Return a domain's columns as ``numeric`` and ``categorical`` do, in its order; see there."""
        numbers = {column.name for column in domain.numeric}
        return {
            column.name: self.numeric(column.name)
            if column.name in numbers
            else self.categorical(column.name)
            for column in domain.columns
        }


def read_samples(
    samples: Sequence[Any], columns: Sequence[str] | None, which: str | None = None
) -> list[Sample]:
    """Read samples that must have the same columns.

    Args:
        samples: NumPy arrays (n, D) or (n,), or pandas, Polars or Arrow tables.
        columns: for arrays their columns' names, for tables which columns to use; by default x1..xD, or all.
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
    named = _array_columns(sample, columns, which) if isinstance(sample, np.ndarray | list | tuple) else None
    if named is None:
        named = _frame_columns(sample, columns, which)
    if not named or not len(next(iter(named.values()))):
        raise InputError(f"{which} is empty: it needs at least one row and one column")
    return Sample(named)


def _array_columns(sample: Any, names: Sequence[str] | None, which: str) -> dict[str, npt.NDArray[Any]]:
    try:
        array = np.asarray(sample)
    except ValueError:
        raise InputError(f"{which} has rows of several lengths: pass an array of shape (n, D)") from None
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


def _frame_columns(sample: Any, names: Sequence[str] | None, which: str) -> dict[str, npt.NDArray[Any]]:
    try:
        frame = nw.from_native(sample, eager_only=True)
    except TypeError:
        raise InputError(
            f"{which} is a {type(sample).__name__}: pass a NumPy array, or a pandas, Polars or Arrow table"
        ) from None
    listed = list(frame.columns) if names is None else list(names)
    absent = [name for name in listed if name not in frame.columns]
    if absent:
        raise InputError(f"{which} has no column {', '.join(map(repr, absent))}")
    return {name: _series_values(frame.get_column(name)) for name in listed}


def _series_values(series: "nw.Series[Any]") -> npt.NDArray[Any]:
    if series.dtype.is_numeric() or series.dtype == nw.Boolean:
        if series.null_count() or series.dtype.is_decimal():
            return series.cast(nw.Float64).fill_null(float("nan")).to_numpy()
        return series.to_numpy()
    return np.array(series.to_list(), dtype=object)


def _level(value: Any) -> str | None:
    if value is None or value != value:  # noqa: PLR0124 (NaN is the value that differs from itself)
        return None
    if isinstance(value, bool | np.bool_):
        return "true" if value else "false"
    if isinstance(value, float | np.floating) and float(value).is_integer():
        return str(int(value))
    return str(value)


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
        codes = _unit_codes(_array(unit, sample.rows))
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


def _array(unit: npt.ArrayLike, rows: int) -> npt.NDArray[Any]:
    try:
        array = np.asarray(unit)
    except ValueError:  # lists of several lengths
        array = np.empty(0)
    if array.shape != (rows,):
        raise InputError(f"units must name one unit for each of the {rows} rows, in an array of that length")
    return array


def _unit_codes(unit: npt.NDArray[Any]) -> npt.NDArray[np.int64]:
    if any(value is None or value != value for value in unit.tolist()):  # noqa: PLR0124 (NaN)
        raise InputError("units hold missing values: give every row a unit")
    try:
        codes = np.unique(unit, return_inverse=True)[1]
    except TypeError:
        codes = np.unique(np.array([str(value) for value in unit.tolist()]), return_inverse=True)[1]
    return np.asarray(codes, dtype=np.int64).reshape(-1)
