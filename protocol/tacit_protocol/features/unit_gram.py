"""Kernel matrices between privacy units: a unit's feature is the average of its rows' features."""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import EncodedChunk
from tacit_protocol.features.fixed_rank import Features
from tacit_protocol.features.kernels import (
    CodeMatrix,
    DistanceKernel,
    FloatMatrix,
    KernelMixture,
    ProductKernel,
    Rows,
)
from tacit_protocol.features.moments import unit_runs

Integers = npt.NDArray[np.int64]

BLOCK_ENTRIES = 2**22
"""Kernel values held at once while rows are averaged by unit: 32 MiB."""

HIGH_BITS = 26
"""Kernel values are summed as multiples of 2**-26, exactly for 2**27 rows, and a remainder below 2**-27."""

VALUE_NS, NUMERIC_NS, CATEGORY_NS = 1.5, 1.0, 1.5
"""Rough times of a kernel value, and of what each numeric and each categorical column adds to it."""


class Kernel(Protocol):
    """A kernel with values in [0, 1]."""

    def gram(self, rows: Rows, locations: Rows) -> FloatMatrix:
        """Return [k(x_i, t_j)], (rows, locations) float64."""


class EvaluatedKernel(Kernel, Protocol):
    """A kernel that knows how well it is computed."""

    def error(self, numeric_columns: int) -> float:
        """Bound |computed k - k| over the domain, for so many numeric columns."""


@dataclass(frozen=True, repr=False)
class UnitRows:
    """Encoded rows in the order of their units: unit u owns rows starts[u] to starts[u + 1] - 1."""

    numeric: FloatMatrix
    categorical: CodeMatrix
    starts: Integers

    @property
    def units(self) -> int:
        """Number of units."""
        return len(self.starts) - 1

    def reordered(self, order: Integers) -> "UnitRows":
        """Return the units in another order: unit u of the result is unit ``order[u]``, (units,), of this."""
        counts = np.diff(self.starts)[order]
        starts = _ends(counts)
        rows = np.arange(starts[-1]) + np.repeat(self.starts[order] - starts[:-1], counts)
        return UnitRows(self.numeric[rows], self.categorical[rows], starts)

    def columns(self, numeric: Sequence[int], categorical: Sequence[int]) -> "UnitRows":
        """Return the same units with some of the columns."""
        return UnitRows(self.numeric[:, list(numeric)], self.categorical[:, list(categorical)], self.starts)


def gather_units(chunks: Sequence[EncodedChunk]) -> UnitRows:
    """Put the rows of all chunks together by unit, units in the chunks' order.

    Raises ValueError where a unit has no row.
    """
    owners, units = [], 0
    for chunk in chunks:
        owners.append((np.arange(chunk.rows) if chunk.unit is None else chunk.unit) + units)
        units += chunk.units
    unit = np.concatenate(owners)
    counts = np.bincount(unit, minlength=units)
    if len(counts) != units or np.any(counts == 0):
        raise ValueError("every unit needs at least one row")
    rows = np.argsort(unit, kind="stable")
    numeric = np.concatenate([chunk.numeric for chunk in chunks])[rows]
    categorical = np.concatenate([chunk.categorical for chunk in chunks])[rows]
    return UnitRows(numeric, categorical, _ends(counts))


class RowFeatures(Protocol):
    """Features of rows."""

    @property
    def dimension(self) -> int:
        """How many."""

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return them, (rows, dimension)."""


def unit_features(features: RowFeatures, rows: UnitRows) -> FloatMatrix:
    """Return the average of every unit's rows' features, (units, dimension)."""
    values = np.empty((rows.units, features.dimension))
    step = max(1, BLOCK_ENTRIES // max(1, features.dimension))
    for unit, following in unit_runs(rows.starts, step):
        first, last = int(rows.starts[unit]), int(rows.starts[following])
        sums = _sums(features(_slice(rows, first, last)), rows.starts[unit:following] - first, axis=0)
        values[unit:following] = sums / np.diff(rows.starts[unit : following + 1])[:, None]
    return values


def _ends(counts: Integers) -> Integers:
    return np.concatenate([[0], np.cumsum(counts)])


class UnitGram:
    """The kernel matrix between units: entry (u, v) is the mean of k over pairs of rows of u and v.

    ``features`` are the kernel's, where it has any of a fixed rank; ``several_rows`` is whether units may
    have several rows. Both are public: what ways there are to a statistic does not depend on the rows.
    """

    def __init__(
        self,
        kernel: Kernel,
        rows: UnitRows,
        features: Features | None = None,
        *,
        several_rows: bool = False,
    ) -> None:
        self._kernel, self._rows, self._several = kernel, rows, several_rows
        self._counts = np.diff(rows.starts)
        self.features = features

    @property
    def size(self) -> int:
        """Number of units."""
        return self._rows.units

    def factor(self) -> FloatMatrix:
        """Return the features of all units, (dimension, units); TypeError where there are none."""
        if self.features is None:
            raise TypeError("the kernel has no features of a fixed rank")
        found = unit_features(self.features, self._rows) if self._several else self.features(self._rows)
        return np.ascontiguousarray(found.T)

    def rows(self, start: int, stop: int) -> FloatMatrix:
        """Return rows ``start`` to ``stop`` - 1, (stop - start, units)."""
        if not self._several:
            # The matrix is symmetric, and kernels work through many rows at few locations faster.
            return self._kernel.gram(self._rows, _slice(self._rows, start, stop)).T
        return self._averages(start, stop, 0, self.size)

    def tile(self, start: int, stop: int, left: int, right: int) -> FloatMatrix:
        """Return rows [start, stop) and columns [left, right) in memory order, evaluated anew."""
        if not self._several:
            return self._kernel.gram(_slice(self._rows, start, stop), _slice(self._rows, left, right))
        return self._averages(start, stop, left, right)

    def reordered(self, order: Integers) -> "UnitGram":
        """Return the matrix with rows and columns in another order, (units,), of the units."""
        return UnitGram(self._kernel, self._rows.reordered(order), several_rows=self._several)

    @property
    def entry_ns(self) -> float:
        """Roughly how long an entry takes to evaluate; infinite where it depends on how many rows units have.

        It chooses a way to the same number, nothing else.
        """
        if self._several:
            return math.inf
        kernels = len(self._kernel.kernels) if isinstance(self._kernel, KernelMixture) else 1
        numeric, categorical = self._rows.numeric.shape[1], self._rows.categorical.shape[1]
        return float(kernels * (VALUE_NS + NUMERIC_NS * numeric + CATEGORY_NS * categorical))

    @property
    def column(self) -> FloatMatrix | None:
        """The units' values, (units,), where there is one numeric column alone and a row of each; or None."""
        single = self._rows.numeric.shape[1] == 1 and not self._rows.categorical.shape[1]
        return self._rows.numeric[:, 0] if single and not self._several else None

    @property
    def markov(self) -> tuple[FloatMatrix, float | None] | None:
        """The column, (units,), of a kernel of a Markov process, as :class:`BinnedColumns` takes it; or None.

        With the bandwidth where entries are exp(-|x - y| / bandwidth), without where they are distances'.
        """
        kernels = self._kernel.kernels if isinstance(self._kernel, KernelMixture) else (self._kernel,)
        (kernel, *others) = kernels
        column = self.column
        if column is None or others:
            return None
        if isinstance(kernel, DistanceKernel):
            return column, None
        if isinstance(kernel, ProductKernel) and kernel.shape == "laplacian":
            return column, kernel.bandwidth
        return None

    def _averages(self, start: int, stop: int, left: int, right: int) -> FloatMatrix:
        """Return rows [start, stop) and columns [left, right), some units at a time."""
        starts = self._rows.starts
        columns = _slice(self._rows, int(starts[left]), int(starts[right]))
        step = max(1, BLOCK_ENTRIES // len(columns.numeric))
        averages = np.empty((stop - start, right - left))
        own = starts[start : stop + 1]
        for unit, following in unit_runs(own, step):
            sums = np.zeros((following - unit, right - left))
            first, last = int(own[unit]), int(own[following])
            # Only a unit that is alone has more rows than fit one step.
            for row in range(first, last, step):
                values = self._kernel.gram(columns, _slice(self._rows, row, min(row + step, last))).T
                by_column = _sums(values, starts[left:right] - starts[left], axis=1)
                sums += _sums(by_column, own[unit:following] - first, axis=0)
            averages[unit:following] = sums
        averages /= self._counts[left:right]
        averages /= self._counts[start:stop, None]
        return averages


@dataclass(frozen=True, repr=False)
class _RowRange:
    numeric: FloatMatrix
    categorical: CodeMatrix


def _slice(rows: UnitRows, start: int, stop: int) -> _RowRange:
    return _RowRange(rows.numeric[start:stop], rows.categorical[start:stop])


def _sums(values: FloatMatrix, starts: Integers, axis: int) -> FloatMatrix:
    """Sum runs that begin at ``starts``; the error stays below 2e-17 a value, however long the runs.

    numpy adds up a run one value after the other, whose error would grow with the number of rows.
    """
    high = np.rint(np.ldexp(values, HIGH_BITS))
    low = values - np.ldexp(high, -HIGH_BITS)
    total = np.ldexp(np.add.reduceat(high, starts, axis=axis), -HIGH_BITS)
    return np.asarray(total + np.add.reduceat(low, starts, axis=axis))
