"""Samples as users hold them (NumPy, pandas, Polars, Arrow), read into named columns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import narwhals.stable.v1 as nw
import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit_protocol.domain.columns import Domain

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
