"""Releases of features' means, the primitive behind tests and databases; and the default features.

What an owner computes before any noise are exact sums of features over a table's privacy units. These become
parts of one Gaussian release (mean; diagonal and off-diagonal of the second moment); a tester reads means and
second moments back from the noisy vectors.

The default features are column-wise and pairwise blocks as one direct sum, chosen by the domain alone. A
numeric column scaled to u in [0, 1] contributes sqrt(w_f / W) [cos(2 pi f u), sin(2 pi f u)] for its cycles
f with weights w_f, W = sum w_f; a categorical column its indicators. Each column's part has norm 1, the D
parts are divided by sqrt D; a pair of columns contributes the tensor product of its parts over sqrt P, P
pairs. In columns the lowest cycle may give way to sqrt(w_0 / W) [P1(t), P2(t)], Legendre's polynomials at t =
2 u - 1, whose means tell the column's mean and standard deviation: a part of squared norm 1 + w_0 / W at
most. Diameters, variances and direct sums: docs/mathematics/features.md.

One isotropic Gaussian on (sqrt(1 - p) columns, sqrt(p) pairs), p the pair share, is laid out as two vectors
on grids of their own: columns get the part (1 - p) d_c^2 / d^2 of mu^2, pairs the rest, d_c and d the
diameters of the block and of the sum. Parts that are rounded to 2^-bits have products exact on 2^(-2 bits),
whose sums are the off-diagonal blocks of one exact matrix product; units of several rows contribute averages
of products.
"""

import itertools
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import EncodedChunk, Table, reduce_table
from tacit_protocol.features.kernels import FeatureMap, FloatMatrix, InBall, OnUnitSphere, Rows
from tacit_protocol.numerics.sincos import Harmonics
from tacit_protocol.privacy.exact_sums import (
    ExactSum,
    grid_bits,
    round_to_grid,
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
    order = np.argsort(chunk.unit, kind="stable")
    unit = chunk.unit[order]
    starts = np.searchsorted(unit, np.arange(chunk.units + 1))
    for first, last in unit_runs(starts, max(1, SLICE_BYTES // (8 * dimension))):
        rows = order[starts[first] : starts[last]]
        numeric, categorical = chunk.numeric[rows], chunk.categorical[rows]
        owners = unit[starts[first] : starts[last]] - first
        yield EncodedChunk(numeric, categorical, None, len(numeric)), owners, last - first


def unit_runs(starts: npt.NDArray[np.int64], rows_max: int) -> Iterator[tuple[int, int]]:
    """Yield runs of units, [first, last), that own ``rows_max`` rows together, or one unit with more.

    Unit u owns rows starts[u] to starts[u + 1] - 1.
    """
    first, units = 0, len(starts) - 1
    while first < units:
        fitting = int(np.searchsorted(starts, starts[first] + rows_max, side="right")) - 1
        last = min(units, max(first + 1, fitting))
        yield first, last
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
    above = vectors[OFF_DIAGONAL].mean(units) if OFF_DIAGONAL in vectors else np.zeros(0)
    return symmetric(vectors[DIAGONAL].mean(units), above)


def symmetric(diagonal: npt.NDArray[np.float64], above: npt.NDArray[np.float64]) -> npt.NDArray[np.float64]:
    """Return the symmetric matrix, (J, J), of its diagonal and of its J (J - 1) / 2 entries above, by row."""
    matrix: npt.NDArray[np.float64] = np.diag(diagonal)
    upper = np.triu_indices(len(matrix), 1)
    matrix[upper] = matrix.T[upper] = above
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


# The default features.

SHIFTS = 4096
"""Points at which the largest movement of a numeric part is sought; a curvature bound covers the gaps."""

MOVEMENTS_KEPT = 64
"""Largest movements remembered, by cycles and weights: most studies use the default ones, and every check of
a release asks for two."""


LEGENDRE_CURVATURE = 28.0
"""Largest -f'' of f(t) = 4 t^2 + 36 t^2 (1 - t)^2 on [0, 1]: f'' = 80 - 432 t (1 - t)."""


@lru_cache(MOVEMENTS_KEPT)
def squared_movement_max(
    cycles: tuple[float, ...], weights: tuple[float, ...], moments: float = 0.0
) -> float:
    """Bound the squared movement of a numeric part, over its rows, from above.

    That of the waves is sum_f (w_f / W)(2 - 2 cos 2 pi f t), t = |u - u'| in [0, 1]. P1 and P2, of weight
    ``moments``, move most where one row is at a bound: by 4 t^2 + 36 t^2 (1 - t)^2. Between grid points the
    function exceeds the larger neighbour by at most curvature * step^2 / 8.
    """
    turns = 2 * np.pi * np.asarray(cycles)
    total = float(np.sum(weights)) + moments
    shares = np.asarray(weights) / total
    shifts = np.linspace(0.0, 1.0, SHIFTS + 1)
    movement = 2 * shares.sum() - 2 * np.cos(shifts[:, None] * turns) @ shares
    movement += moments / total * (4 * shifts**2 + 36 * shifts**2 * (1 - shifts) ** 2)
    curvature = float(2 * shares @ turns**2 + moments / total * LEGENDRE_CURVATURE)
    return float(min(4.0 * (1 + moments / total), movement.max() + curvature / SHIFTS**2 / 8))


def column_parts(
    rows: Rows,
    harmonics: Harmonics,
    scales: npt.NDArray[np.float64],
    categories: tuple[int, ...],
    indicator: float,
    *,
    moments: float = 0.0,
) -> FloatMatrix:
    """Return every column's part side by side, (rows, parts' widths together).

    Numeric columns have P1 and P2 times ``moments``, unless that is 0, and by cycle its cosine and sine times
    its scale; categorical ones ``indicator`` at the row's category. A coordinate's values lie one after the
    other in memory, as an encoded column's do.
    """
    count, numeric = rows.numeric.shape
    polynomials = int(moments > 0)
    start = 2 * numeric * (polynomials + len(scales))
    parts = np.empty((start + sum(categories), count))
    pairs = parts[:start].reshape(numeric, polynomials + len(scales), 2, count)
    waves = pairs[:, polynomials:]
    if numeric and polynomials:
        t = np.clip(2 * rows.numeric.T - 1, -1.0, 1.0)
        np.multiply(t, moments, out=pairs[:, 0, 0])
        np.multiply(1.5 * t * t - 0.5, moments, out=pairs[:, 0, 1])
    if numeric:
        for index, wave in harmonics.at(rows.numeric):
            np.multiply(wave.cosines.T, scales[index], out=waves[:, index, 0])
            np.multiply(wave.sines.T, scales[index], out=waves[:, index, 1])
    parts[start:] = 0.0
    for index, number in enumerate(categories):
        parts[start + rows.categorical[:, index], np.arange(count)] = indicator
        start += number
    return parts.T


@dataclass(frozen=True)
class Coordinate:
    """What one coordinate of a column-wise vector is: for variances, and for naming columns."""

    column: int
    """Index of the column among the domain's numeric columns, then its categorical ones."""
    part: str
    """``P1``, ``P2``, ``cos``, ``sin`` or ``category``; ``cell`` and ``contrast``: cell_means.py."""
    cycles: float
    """The frequency; 0 for a polynomial or a category."""
    scale: float
    """The coordinate is ``scale`` times the polynomial, cosine, sine or indicator."""


class ColumnFeatures(InBall):
    """Features of columns, of which each has coordinates of its own."""

    columns: int

    @property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """What every coordinate that is read is, in their order."""
        raise NotImplementedError

    @property
    def dimension(self) -> int:
        """Number of coordinates that are summed."""
        raise NotImplementedError

    @property
    def diameter(self) -> float:
        """Bound on how far two rows' features lie apart."""
        raise NotImplementedError

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return what is summed, (rows, dimension)."""
        raise NotImplementedError


class ColumnWise(ColumnFeatures):
    """Column-wise characteristic features of ``numeric`` columns and of columns with ``categories``.

    ``cycles`` and ``weights`` are public and serve every numeric column; ``moments`` is the weight of P1 and
    P2, 0 for none.
    """

    def __init__(
        self,
        numeric: int,
        categories: tuple[int, ...],
        cycles: tuple[float, ...],
        weights: tuple[float, ...],
        moments: float = 0.0,
    ) -> None:
        self.columns = numeric + len(categories)
        self._numeric = numeric
        self._categories = categories
        self._harmonics = Harmonics(cycles)
        total = np.sum(weights) + moments
        self._scales = np.sqrt(np.asarray(weights) / total / self.columns)
        self._moments = float(np.sqrt(moments / total / self.columns))
        self._movement = squared_movement_max(cycles, weights, moments)
        self._cycles = cycles

    @cached_property
    def coordinates(self) -> tuple[Coordinate, ...]:
        described = []
        for column in range(self._numeric):
            if self._moments:
                described += [Coordinate(column, part, 0.0, self._moments) for part in ("P1", "P2")]
            for cycle, scale in zip(self._cycles, self._scales, strict=True):
                described += [Coordinate(column, part, cycle, float(scale)) for part in ("cos", "sin")]
        scale = float(1 / np.sqrt(self.columns))
        for index, categories in enumerate(self._categories):
            described += [Coordinate(self._numeric + index, "category", 0.0, scale)] * categories
        return tuple(described)

    @property
    def dimension(self) -> int:
        """Two coordinates per numeric column and cycle, or polynomials; one per category."""
        return 2 * self._numeric * ((self._moments > 0) + len(self._cycles)) + sum(self._categories)

    @property
    def norm(self) -> float:
        """1 for waves and categories; P1^2 + P2^2 is 2 at a column's bounds and less between them."""
        return float(np.sqrt(1 + self._numeric * self._moments**2))

    @property
    def diameter(self) -> float:
        """The square root of the columns' average squared movement."""
        total = self._numeric * self._movement + 2.0 * len(self._categories)
        return float(np.sqrt(total / self.columns))

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, dimension), in the order of ``coordinates``."""
        indicator = float(1 / np.sqrt(self.columns))
        return column_parts(
            rows, self._harmonics, self._scales, self._categories, indicator, moments=self._moments
        )


def smallest_pair_average(numeric: int, categorical: int, lowest: float) -> float:
    """Smallest average over pairs of k_c k_c', with numeric kernels in [-``lowest``, 1]."""
    sums = []
    for p, r in itertools.product(range(numeric + 1), range(categorical + 1)):
        q = numeric - p
        total = p + r - q * lowest
        sums.append((total**2 - (p + r + q * lowest**2)) / 2)
    columns = numeric + categorical
    return min(sums) / (columns * (columns - 1) / 2)


class Pairwise(OnUnitSphere):
    """Features of every pair of columns; the pairs' order is that of ``pairs``."""

    def __init__(
        self,
        numeric: int,
        categories: tuple[int, ...],
        cycles: tuple[float, ...],
        weights: tuple[float, ...],
    ) -> None:
        self._numeric = numeric
        self._categories = categories
        self._harmonics = Harmonics(cycles)
        self._scales = np.sqrt(np.asarray(weights) / np.sum(weights))
        self.part_widths = [2 * len(cycles)] * numeric + list(categories)
        self.pairs = tuple(itertools.combinations(range(len(self.part_widths)), 2))
        if not self.pairs:
            raise ValueError("pairs need at least two columns")
        self.widths = tuple(self.part_widths[a] * self.part_widths[b] for a, b in self.pairs)
        lowest = max(0.0, squared_movement_max(cycles, weights) / 2 - 1)
        average = smallest_pair_average(numeric, len(categories), lowest)
        self._diameter = float(np.sqrt(2 - 2 * average))

    @property
    def dimension(self) -> int:
        """Sum over pairs of the product of the two columns' widths."""
        return sum(self.widths)

    @property
    def diameter(self) -> float:
        """The square root of 2 - 2 m: see the module's derivation."""
        return self._diameter

    def parts(self, rows: Rows) -> FloatMatrix:
        """Return every column's part side by side, (rows, sum of ``part_widths``), each of norm 1."""
        return column_parts(rows, self._harmonics, self._scales, self._categories, 1.0)

    @cached_property
    def factors(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Positions in ``parts`` of the two factors of every coordinate, (dimension,) each."""
        starts = np.cumsum([0, *self.part_widths])
        left, right = [], []
        for a, b in self.pairs:
            grid = np.meshgrid(
                np.arange(starts[a], starts[a + 1]), np.arange(starts[b], starts[b + 1]), indexing="ij"
            )
            left.append(grid[0].ravel())
            right.append(grid[1].ravel())
        return np.concatenate(left), np.concatenate(right)

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, dimension), pair after pair."""
        parts = self.parts(rows).T
        starts = np.cumsum([0, *self.part_widths])
        features = np.empty((self.dimension, parts.shape[1]))
        start, scale = 0, 1 / np.sqrt(len(self.pairs))
        for (a, b), width in zip(self.pairs, self.widths, strict=True):
            first, second = parts[starts[a] : starts[a + 1]], parts[starts[b] : starts[b + 1]]
            block = features[start : start + width].reshape(len(first), len(second), -1)
            np.multiply(first[:, None], second[None], out=block)
            block *= scale
            start += width
        return features.T


class DirectSum(InBall):
    """Blocks stacked with public shares; shares are positive and are divided by their sum."""

    def __init__(self, blocks: tuple[FeatureMap, ...], shares: tuple[float, ...]) -> None:
        self._blocks = blocks
        self._shares = np.asarray(shares) / np.sum(shares)

    @property
    def dimension(self) -> int:
        """Sum of the blocks' dimensions."""
        return sum(block.dimension for block in self._blocks)

    @property
    def norm(self) -> float:
        """Root of the shares' average of the squared norms."""
        return float(np.sqrt(self._shares @ [block.norm**2 for block in self._blocks]))

    @property
    def diameter(self) -> float:
        """Root of the shares' average of the squared diameters."""
        return float(np.sqrt(self._shares @ [block.diameter**2 for block in self._blocks]))

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the blocks side by side, (rows, dimension)."""
        parts = [np.sqrt(s) * block(rows) for s, block in zip(self._shares, self._blocks, strict=True)]
        return np.concatenate(parts, axis=1)


BASE_CYCLES = 0.8125
"""Lowest frequency, in turns over a column's bounds: less than one turn tells the two bounds apart.

A dyadic number, so that doubled frequencies are equal to the last bit.
"""

FEW_COLUMNS = 3
"""Up to here every multiple of the base frequency up to the sixth is used, to see fine structure."""

SOME_COLUMNS = 6
"""Up to here pairs of columns carry two frequencies each, above it one."""

PAIR_COORDINATES_MAX = 5_000
"""Above this many pairwise coordinates the default looks at columns alone: noise would drown the pairs."""


MOMENT_WEIGHT = 0.75
"""Weight of P1 and P2 where they stand for the lowest cycle, whose own is 1. With the default's cycles above
FEW_COLUMNS columns the diameter is then what it was (2.69 for 2.69, times the root of the weights)."""


@dataclass(frozen=True)
class AdditiveChoice:
    """Public settings of the additive features.

    ``cycles`` with ``weights``, and P1 and P2 with the weight ``moments`` (0 for none), serve the columns,
    ``pair_cycles`` the pairs: they, or their doubles, are among ``cycles``. ``pair_share`` in [0, 1) is the
    squared weight of the pairwise block, 0 for none.
    """

    cycles: tuple[float, ...]
    weights: tuple[float, ...]
    pair_cycles: tuple[float, ...]
    pair_share: float
    moments: float = 0.0


def default_choice(
    numeric: int, categories: tuple[int, ...], pair_share: float, *, moments: bool = False
) -> AdditiveChoice:
    """Choose frequencies for a domain of ``numeric`` columns and columns with ``categories``.

    ``moments`` puts P1 and P2 in the place of the columns' lowest cycle.
    """
    columns = numeric + len(categories)
    multiples: tuple[int, ...]
    weights: tuple[float, ...]
    pair_multiples: tuple[int, ...]
    if columns <= FEW_COLUMNS:
        multiples, weights, pair_multiples = (1, 2, 3, 4, 5, 6), (1.0, 1.0, 0.5, 0.5, 0.5, 0.5), (1, 2, 3, 4)
    else:
        multiples, weights = (1, 2, 4), (1.0, 1.0, 0.4)
        pair_multiples = (1, 2) if columns <= SOME_COLUMNS else (2,)
    widths = [2 * len(pair_multiples)] * numeric + list(categories)
    coordinates = (sum(widths) ** 2 - sum(width**2 for width in widths)) // 2
    with_pairs = columns > 1 and coordinates <= PAIR_COORDINATES_MAX
    first = int(moments)
    return AdditiveChoice(
        tuple(BASE_CYCLES * m for m in multiples[first:]),
        weights[first:],
        tuple(BASE_CYCLES * m for m in pair_multiples),
        pair_share if with_pairs else 0.0,
        MOMENT_WEIGHT if moments else 0.0,
    )


class AdditiveFeatures(DirectSum):
    """Column-wise features and, where ``choice.pair_share`` is positive, pairwise ones."""

    def __init__(self, numeric: int, categories: tuple[int, ...], choice: AdditiveChoice) -> None:
        self.choice = choice
        self.numeric = numeric
        self.column_wise: ColumnFeatures = ColumnWise(
            numeric, categories, choice.cycles, choice.weights, choice.moments
        )
        self.pairwise: Pairwise | None = None
        blocks: tuple[FeatureMap, ...] = (self.column_wise,)
        shares: tuple[float, ...] = (1.0,)
        if choice.pair_share > 0:
            weights = (1.0,) * len(choice.pair_cycles)
            self.pairwise = Pairwise(numeric, categories, choice.pair_cycles, weights)
            blocks += (self.pairwise,)
            shares = (1.0 - choice.pair_share, choice.pair_share)
        super().__init__(blocks, shares)

    @cached_property
    def _pair_factors(self) -> tuple[npt.NDArray[np.intp], FloatMatrix]:
        """Which of the columns' coordinates the pairs' parts are, and times what, (coordinates, 1)."""
        coordinates, cycles = self.column_wise.coordinates, self.choice.pair_cycles
        waves = {
            (coordinate.column, coordinate.cycles, coordinate.part): place
            for place, coordinate in enumerate(coordinates)
        }
        numeric = [
            waves[column, cycle, part]
            for column in range(self.numeric)
            for cycle in cycles
            for part in ("cos", "sin")
        ]
        places = numeric + [place for place, found in enumerate(coordinates) if found.part == "category"]
        scales = np.array([coordinates[place].scale for place in places])
        wanted = np.where(np.arange(len(places)) < len(numeric), 1 / np.sqrt(len(cycles)), 1.0)
        return np.array(places), (wanted / scales)[:, None]

    def pair_parts(self, rows: Rows, features: FloatMatrix) -> FloatMatrix:
        """Return the pairs' parts of rows, as :meth:`Pairwise.parts`, whose column-wise features are given.

        No cosine is computed twice where the pairs' cycles are among the columns'.
        """
        if self.pairwise is not None and not set(self.choice.pair_cycles) <= set(self.choice.cycles):
            return self.pairwise.parts(rows)
        places, factors = self._pair_factors
        parts = features.T[places]
        parts *= factors
        return parts.T

    @property
    def column_groups(self) -> tuple[tuple[int, int], ...]:
        """First coordinate, and one past the last, of every column."""
        owners = [coordinate.column for coordinate in self.column_wise.coordinates]
        return tuple(
            (owners.index(column), len(owners) - owners[::-1].index(column))
            for column in range(self.column_wise.columns)
        )

    @property
    def pair_groups(self) -> tuple[tuple[int, int, int, int], ...]:
        """(column, column, first coordinate, one past the last) of every pair."""
        if self.pairwise is None:
            return ()
        starts = self.column_wise.dimension + np.cumsum([0, *self.pairwise.widths])
        return tuple(
            (a, b, int(start), int(stop))
            for (a, b), start, stop in zip(self.pairwise.pairs, starts[:-1], starts[1:], strict=True)
        )


COLUMN_MEANS, PAIR_MEANS = "column_means", "pair_means"


@dataclass(frozen=True)
class AdditiveSums:
    """Integer sums over units: columns (J_c,) in steps of 2**-bits, pairs (J_p,) in steps of 2**(-2 bits)."""

    units: int
    bits: int
    columns: npt.NDArray[np.int64] = field(repr=False)
    pairs: npt.NDArray[np.int64] = field(repr=False)


class AdditiveRelease:
    """How additive features are summed, laid out with their sensitivities, and read back."""

    def __init__(self, features: AdditiveFeatures) -> None:
        self.features = features
        self._pairwise = features.pairwise

    @property
    def numbers(self) -> int:
        """How many noisy numbers one owner sends."""
        return self.features.dimension

    def bits(self, units: int) -> int:
        """Return the grid for so many units; raises ValueError where there are too many."""
        return grid_bits(units, self._pairwise is not None)

    def sum(self, table: Table, bits: int | None = None) -> AdditiveSums:
        """Sum the units' contributions exactly, in constant memory.

        ``bits`` is the grid, by default the finest for the table's units. Raises UnitCountError where the
        units are not ``table.units``.
        """
        bits = self.bits(table.units) if bits is None else bits
        found = reduce_table(table, _SumsOfBlocks(self.features, bits))
        columns, pairs = found.columns, found.pairs
        if columns.units != table.units:
            raise UnitCountError("the data changed while they were read")
        empty = np.zeros(0, dtype=np.int64)
        return AdditiveSums(columns.units, bits, columns.total, empty if pairs is None else pairs.total())

    def parts(self, units: int, sums: AdditiveSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``sums`` the values are zeros, to know shapes and noise alone."""
        bits, block = self.bits(units), self.features.column_wise
        total = np.zeros(block.dimension, dtype=np.int64) if sums is None else sums.columns
        sensitivity = sum_sensitivity(block, bits)
        if self._pairwise is None:
            return (SumPart(COLUMN_MEANS, total, -bits, sensitivity, 1.0),)
        share = (1 - self.features.choice.pair_share) * block.diameter**2 / self.features.diameter**2
        pair_total = np.zeros(self._pairwise.dimension, dtype=np.int64) if sums is None else sums.pairs
        return (
            SumPart(COLUMN_MEANS, total, -bits, sensitivity, share),
            SumPart(PAIR_MEANS, pair_total, -2 * bits, pair_sensitivity(self._pairwise, bits), 1 - share),
        )

    def read(self, vectors: Mapping[str, NoisyVector], units: int) -> tuple[npt.NDArray[np.float64], float]:
        """Return the noisy mean of the direct sum, (J,), and the standard deviation of its noise.

        Rounding makes the two blocks' noise differ in the sixth digit; the larger is stated.
        """
        columns = vectors[COLUMN_MEANS]
        if self._pairwise is None:
            return columns.mean(units), columns.scale / units
        pairs, share = vectors[PAIR_MEANS], self.features.choice.pair_share
        weights = np.sqrt([1 - share, share / len(self._pairwise.pairs)])
        mean = np.concatenate([weights[0] * columns.mean(units), weights[1] * pairs.mean(units)])
        return mean, float(max(weights[0] * columns.scale, weights[1] * pairs.scale)) / units


def pair_sensitivity(pairwise: Pairwise, bits: int) -> float:
    """Bound the L2 change of the pairs' sums, undivided by sqrt P, when one unit is replaced."""
    error = rounding_sensitivity(max(pairwise.part_widths), bits) / 2
    root = float(np.sqrt(len(pairwise.pairs)))
    products = 2 * root * (2 * error + error**2)
    return root * pairwise.diameter + products + rounding_sensitivity(pairwise.dimension, bits)


@dataclass
class _BlockSums:
    """Partial sums of the two blocks."""

    columns: ExactSum
    pairs: "_PairSums | None"


@dataclass(frozen=True)
class _SumsOfBlocks:
    """Sums both blocks over a table."""

    features: AdditiveFeatures
    bits: int

    def start(self) -> _BlockSums:
        pairwise = self.features.pairwise
        return _BlockSums(
            ExactSum(self.features.column_wise.dimension, self.bits, products=False),
            None if pairwise is None else _PairSums(pairwise, self.bits),
        )

    def add(self, partial: _BlockSums, chunk: EncodedChunk) -> None:
        if partial.pairs is None or chunk.unit is not None:
            for rows in contributions(self.features.column_wise, chunk, self.bits):
                partial.columns.add(rows)
            if partial.pairs is not None:
                partial.pairs.add_units(chunk)
            return
        for part in row_slices(chunk, self.features.column_wise.dimension):
            features = self.features.column_wise(part)
            partial.columns.add(features)
            partial.pairs.add_parts(self.features.pair_parts(part, features))

    def merge(self, partial: _BlockSums, other: _BlockSums) -> None:
        partial.columns.merge(other.columns)
        if partial.pairs is not None and other.pairs is not None:
            partial.pairs.merge(other.pairs)


class _PairSums:
    """Exact sums of pairwise contributions, from rows' parts or from units' averages."""

    def __init__(self, pairwise: Pairwise, bits: int) -> None:
        self._pairwise, self._bits = pairwise, bits
        self._parts = ExactSum(sum(pairwise.part_widths), bits, products=True)
        self._averages = ExactSum(pairwise.dimension, bits, products=False)
        self._left, self._right = pairwise.factors

    def add_parts(self, parts: FloatMatrix) -> None:
        """Add the parts of units of one row, (units, parts' widths together)."""
        self._parts.add(parts)

    def add_units(self, chunk: EncodedChunk) -> None:
        """Add a chunk's units, which own several rows."""
        for rows, unit, units in unit_slices(chunk, self._pairwise.dimension):
            parts = round_to_grid(self._pairwise.parts(rows), self._bits).T
            products = parts[self._left]
            products *= parts[self._right]
            self._averages.add(unit_averages(products.T, unit, units, self._bits))

    def merge(self, other: "_PairSums") -> None:
        """Add the sums over another part of the table."""
        self._parts.merge(other._parts)
        self._averages.merge(other._averages)

    def total(self) -> npt.NDArray[np.int64]:
        """Return the sums in steps of 2**(-2 bits)."""
        products: npt.NDArray[np.int64] = self._parts.second[self._left, self._right]
        return products + (self._averages.total << self._bits)
