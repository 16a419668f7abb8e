"""A joint release of features' mean and second moment: the one primitive behind tests and databases.

What an owner computes before any noise are exact sums of features over a table's privacy units. These become
parts of one Gaussian release (mean; diagonal and off-diagonal of the second moment); a tester reads means and
second moments back from the noisy vectors.
"""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import EncodedChunk, Table, reduce_table
from tacit_protocol.features.kernels import FeatureMap, FloatMatrix
from tacit_protocol.privacy.exact_sums import (
    ExactSum,
    grid_bits,
    rounding_sensitivity,
    second_moment_rounding_sensitivity,
    unit_averages,
)
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.privacy.guarantee import NoisyVector

SLICE_BYTES = 2 * 2**20
"""Features are computed in slices of about this size, whatever the chunks': a slice with its cosines and its
grid steps stays in the cache that a processor's cores share, also where each has one of its own under way.
Between 1 and 4 MiB times differ less than from run to run (docs/benchmarks/hot-paths.md)."""


@dataclass(frozen=True)
class FeatureSums:
    """Integer sums over units; steps of 2**-bits for ``total`` (J,), of 2**(-2 bits) for ``second`` (J, J).

    ``sensitivity`` and ``second_sensitivity`` bound the L2 and the Frobenius change when one unit is
    replaced, in natural units, with every rounding counted.
    """

    units: int
    bits: int
    total: npt.NDArray[np.int64] = field(repr=False)
    sensitivity: float
    second: npt.NDArray[np.int64] | None = field(repr=False)
    second_sensitivity: float


@dataclass(frozen=True)
class SumsOfFeatures:
    """Sums the units' average features, and their outer products where ``products``, over a table."""

    features: FeatureMap
    bits: int
    products: bool

    def start(self) -> ExactSum:
        """Return the sums over no unit."""
        return ExactSum(self.features.dimension, self.bits, self.products)

    def add(self, partial: ExactSum, chunk: EncodedChunk) -> None:
        """Add a chunk's units."""
        for rows in contributions(self.features, chunk, self.bits):
            partial.add(rows)

    def merge(self, partial: ExactSum, other: ExactSum) -> None:
        """Add the sums over another part of the table."""
        partial.merge(other)


class UnitCountError(ValueError):
    """The table did not hold as many privacy units as it declared."""


def sum_sensitivity(features: FeatureMap, bits: int) -> float:
    """Bound the L2 change of the sum of features when one unit is replaced."""
    return features.diameter + rounding_sensitivity(features.dimension, bits)


def second_moment_sensitivity(features: FeatureMap, bits: int) -> float:
    """Bound the Frobenius change of the sum of outer products when one unit is replaced."""
    added = second_moment_rounding_sensitivity(features.dimension, bits, features.norm)
    return features.second_moment_diameter + added


def sum_features(
    features: FeatureMap, table: Table, *, products: bool, bits: int | None = None
) -> FeatureSums:
    """Sum the units' average features, and their outer products where ``products``.

    ``bits`` is the grid, by default the finest for the table's units. Memory does not grow with the table.
    Raises UnitCountError where the units are not ``table.units``.
    """
    bits = grid_bits(table.units, products) if bits is None else bits
    sums = reduce_table(table, SumsOfFeatures(features, bits, products))
    if sums.units != table.units:
        raise UnitCountError("the data changed while they were read")
    return FeatureSums(
        sums.units,
        bits,
        sums.total,
        sum_sensitivity(features, bits),
        sums.second if products else None,
        second_moment_sensitivity(features, bits) if products else 0.0,
    )


def row_slices(chunk: EncodedChunk, dimension: int) -> Iterator[EncodedChunk]:
    """Cut a chunk into rows whose features, of that dimension, take about SLICE_BYTES."""
    rows_max = max(1, SLICE_BYTES // (8 * dimension))
    for start in range(0, chunk.rows, rows_max):
        part = slice(start, start + rows_max)
        numeric, categorical = chunk.numeric[part], chunk.categorical[part]
        yield EncodedChunk(numeric, categorical, None, len(numeric))


def unit_slices(
    chunk: EncodedChunk, dimension: int
) -> Iterator[tuple[EncodedChunk, npt.NDArray[np.int64], int]]:
    """Cut a chunk into whole units, as (rows, unit of each row numbered from 0, units): one unit at least."""
    if chunk.unit is None:
        raise ValueError("the chunk's rows are units themselves")
    rows_max = max(1, SLICE_BYTES // (8 * dimension))
    order = np.argsort(chunk.unit, kind="stable")
    unit = chunk.unit[order]
    starts = np.searchsorted(unit, np.arange(chunk.units + 1))
    first = 0
    while first < chunk.units:
        last = int(np.searchsorted(starts, starts[first] + rows_max, side="right")) - 1
        last = min(max(last, first + 1), chunk.units)
        rows = order[starts[first] : starts[last]]
        numeric, categorical = chunk.numeric[rows], chunk.categorical[rows]
        owners = unit[starts[first] : starts[last]] - first
        yield EncodedChunk(numeric, categorical, None, len(numeric)), owners, last - first
        first = last


def contributions(features: FeatureMap, chunk: EncodedChunk, bits: int) -> Iterator[FloatMatrix]:
    """Yield the contributions of a chunk's units, (units, dimension) each, before rounding to the grid."""
    if chunk.unit is None:
        for rows in row_slices(chunk, features.dimension):
            yield features(rows)
    else:
        for rows, unit, units in unit_slices(chunk, features.dimension):
            yield unit_averages(features(rows), unit, units, bits)


MEAN, DIAGONAL, OFF_DIAGONAL = "mean", "second_moment_diagonal", "second_moment_off_diagonal"


@dataclass(frozen=True)
class MomentShares:
    """Parts of mu^2 for the mean and for the second moment; ``second`` 0 releases the mean alone."""

    mean: float
    second: float


def release_size(features: FeatureMap, shares: MomentShares) -> int:
    """Count the noisy numbers of a release."""
    dimension = features.dimension
    return dimension + (dimension * (dimension + 1) // 2 if shares.second else 0)


def moment_parts(
    features: FeatureMap, shares: MomentShares, bits: int, sums: FeatureSums | None = None
) -> tuple[SumPart, ...]:
    """Lay the release out; without ``sums`` the values are zeros, to know shapes and noise alone."""
    dimension = features.dimension
    total = np.zeros(dimension, dtype=np.int64) if sums is None else sums.total
    mean = SumPart(MEAN, total, -bits, sum_sensitivity(features, bits), shares.mean)
    if not shares.second:
        return (mean,)
    second = np.zeros((dimension, dimension), dtype=np.int64)
    if sums is not None and sums.second is not None:
        second = sums.second
    sensitivity = second_moment_sensitivity(features, bits)
    diagonal = SumPart(DIAGONAL, np.diagonal(second).copy(), -2 * bits, sensitivity, shares.second)
    if dimension == 1:
        return mean, diagonal
    # An off-diagonal entry counts twice in the Frobenius norm: sqrt 2 times it is the isometric coordinate,
    # so that its own noise is smaller by sqrt 2.
    upper = second[np.triu_indices(dimension, 1)]
    off = SumPart(OFF_DIAGONAL, upper, -2 * bits, sensitivity, shares.second, isometry=float(np.sqrt(0.5)))
    return mean, diagonal, off


def read_second_moment(vectors: Mapping[str, NoisyVector], units: int) -> npt.NDArray[np.float64]:
    """Return the noisy mean second moment, (J, J) symmetric."""
    matrix: npt.NDArray[np.float64] = np.diag(vectors[DIAGONAL].mean(units))
    if OFF_DIAGONAL in vectors:
        upper = np.triu_indices(len(matrix), 1)
        matrix[upper] = vectors[OFF_DIAGONAL].mean(units)
        matrix.T[upper] = matrix[upper]
    return matrix


class MomentRelease:
    """How ME and SCF features are summed, laid out with their sensitivities, and read back."""

    def __init__(self, features: FeatureMap, shares: MomentShares) -> None:
        self.features = features
        self.shares = shares

    @property
    def numbers(self) -> int:
        """How many noisy numbers one owner sends."""
        return release_size(self.features, self.shares)

    def bits(self, units: int) -> int:
        """Return the grid for so many units; raises ValueError where there are too many."""
        return grid_bits(units, self.shares.second > 0)

    def sum(self, table: Table, bits: int | None = None) -> FeatureSums:
        """Sum the units' features, and their outer products where the second moment has a share.

        ``bits`` is the grid, by default the finest for the table's units.
        """
        return sum_features(self.features, table, products=self.shares.second > 0, bits=bits)

    def parts(self, units: int, sums: FeatureSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``sums`` the values are zeros, to know shapes and noise alone."""
        return moment_parts(self.features, self.shares, self.bits(units), sums)

    def read(self, vectors: Mapping[str, NoisyVector], units: int) -> tuple[npt.NDArray[np.float64], float]:
        """Return the noisy mean, (J,), and the standard deviation of its noise."""
        return vectors[MEAN].mean(units), vectors[MEAN].scale / units
