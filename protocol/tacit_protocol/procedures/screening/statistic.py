"""Screening by sketches: estimates of every pair of columns, tests of all with the same permutations.

Every pair of columns is a pair of :class:`Side` of the sketched distance covariance. The same permutations
serve all pairs: each p-value is exact by itself, and the procedure that controls the false discovery rate
does not mind how they depend on each other. Derivations: docs/mathematics/screening.md.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.kernels import FloatMatrix
from tacit_protocol.features.sketches import Side
from tacit_protocol.procedures.distance_covariance.statistic import (
    VARIANCE_FACTOR_MIN,
    CorrelationEstimate,
    CovarianceEstimate,
    Permutations,
    correlation_estimate,
    correlation_of,
    covariance_estimate,
    nested_sizes,
    variance_estimate,
    whitened,
)

Floats = npt.NDArray[np.float64]

PILOT_PERMUTATIONS = 400
"""Permutations that standardise energies: means to 5 % of a standard deviation, at no cost in level."""

BATCH_BYTES = 2**20
"""Size of the covariances of permutations taken at once: it fits a processor's cache."""

TIE = 1e-9
"""Statistics of equal tables differ in the last digits: so near, relatively, they count as equal."""


@dataclass(frozen=True)
class ColumnSide:
    """One column's part of a sketch.

    ``ordered`` says whether its first feature rises with the value: then a correlation has a sign.
    """

    side: Side
    ordered: bool


@dataclass(frozen=True)
class PairEstimate:
    """Distance covariance and correlation of one pair; ``sign`` is 0 where a column has no order."""

    covariance: CovarianceEstimate
    correlation: CorrelationEstimate | None
    sign: int


def estimate_pair(first: ColumnSide, second: ColumnSide, coverage: float) -> PairEstimate:
    """Estimate one pair of columns, of two owners."""
    covariance = covariance_estimate(first.side, second.side)
    variances = (variance_estimate(first.side), variance_estimate(second.side))
    correlation = correlation_estimate(covariance, variances, coverage)
    return PairEstimate(covariance, correlation, _sign(first, second))


def _sign(first: ColumnSide, second: ColumnSide) -> int:
    if not (first.ordered and second.ordered):
        return 0
    return 1 if float(first.side.buckets[:, 0] @ second.side.buckets[:, 0]) >= 0 else -1


@dataclass(frozen=True)
class ScreeningTests:
    """Of every pair (outcomes, columns): the statistic and its exact permutation p-value."""

    statistics: Floats
    pvalues: Floats


def screening_tests(
    outcomes: Sequence[Side],
    columns: Sequence[Side],
    permutations: Permutations,
    pilot: np.random.Generator,
) -> ScreeningTests:
    """Test every outcome against every column by permuting the outcomes' buckets.

    Statistics are those of :func:`permutation_test`: energies of the leading principal axes, standardised,
    the largest. Means and spreads come from permutations of their own (``pilot``). Those are independent of
    the order tested, given the buckets, so that under independence the order tested and the others stay
    exchangeable and every p-value is exact; at least 1 / (count + 1).
    """
    table = _Energies(columns)
    rows = [whitened(side) for side in outcomes]
    places = len(rows[0])
    first = islice(Permutations(PILOT_PERMUTATIONS, pilot).orders(places), 1, None)
    sample = np.concatenate([table.of(rows, orders) for orders in _batches(first, table.batch(rows))])
    spread = sample.std(axis=0)
    centre, scale = sample.mean(axis=0), np.where(spread > 0, spread, 1.0)
    observed: Floats | None = None
    reached = np.zeros((len(rows), len(columns)), dtype=np.int64)
    for orders in _batches(permutations.orders(places), table.batch(rows)):
        scores = np.asarray(((table.of(rows, orders) - centre) / scale).max(axis=-1))
        if observed is None:
            observed, scores = scores[0], scores[1:]
        reached += np.sum(scores >= observed - TIE * (1 + np.abs(observed)), axis=0)
    if observed is None:
        raise ValueError("permutations begin with the order as it is")
    return ScreeningTests(observed, (1 + reached) / (permutations.count + 1))


class _Energies:
    """Energies of every column with every outcome: columns of one width are worked on together."""

    def __init__(self, columns: Sequence[Side]) -> None:
        self._columns = len(columns)
        widths = [side.buckets.shape[1] for side in columns]
        self._groups = {
            width: [index for index, own in enumerate(widths) if own == width]
            for width in sorted(set(widths))
        }
        self._whitened = {
            width: np.concatenate([whitened(columns[index]) for index in members], axis=1)
            for width, members in self._groups.items()
        }
        self._total: int = sum(widths)

    def batch(self, rows: Sequence[FloatMatrix]) -> int:
        """How many permutations to take at once."""
        widest: int = max(own.shape[1] for own in rows)
        return max(1, BATCH_BYTES // (8 * self._total * widest))

    def of(self, rows: Sequence[FloatMatrix], orders: npt.NDArray[np.int64]) -> Floats:
        """Return energies (orders, outcomes, columns, sizes), all axes' repeated where sizes are fewer."""
        widest = max(*self._groups, *(own.shape[1] for own in rows))
        energies = np.empty((len(orders), len(rows), self._columns, len(nested_sizes(widest))))
        for place, own in enumerate(rows):
            for width, members in self._groups.items():
                found = self._group(own[orders], width)
                energies[:, place, members, : found.shape[2]] = found
                energies[:, place, members, found.shape[2] :] = found[:, :, -1:]
        return energies

    def _group(self, permuted: Floats, width: int) -> Floats:
        count, places, axes = permuted.shape
        stacked = permuted.transpose(0, 2, 1).reshape(count * axes, places)
        squares = (stacked @ self._whitened[width]).reshape(count, axes, -1, width) ** 2
        sizes = nested_sizes(max(axes, width))
        return np.stack([squares[:, :k, :, :k].sum(axis=(1, 3)) for k in sizes], axis=2)


def _batches(orders: Iterator[npt.NDArray[np.int64]], size: int) -> Iterator[npt.NDArray[np.int64]]:
    while batch := list(islice(orders, size)):
        yield np.stack(batch)


def signed_correlations(columns: Sequence[ColumnSide]) -> Floats:
    """Return the signed distance correlations of all columns, (p, p), with unit diagonal.

    Of two columns of one owner too: noises on different coordinates are independent, so that the estimate of
    the covariance is as unbiased as for two owners. Without a sign they are positive; nan where a distance
    variance is lost in its noise.
    """
    scales = np.array([_scale(column) for column in columns])
    matrix = np.eye(len(columns))
    for i, first in enumerate(columns):
        for j in range(i):
            covariance_sqr = unbiased_covariance_sqr(first.side.buckets, columns[j].side.buckets)
            squared = covariance_sqr / math.sqrt(scales[i] * scales[j])
            value = correlation_of(squared) if math.isfinite(squared) else math.nan
            matrix[i, j] = matrix[j, i] = value * (_sign(first, columns[j]) or 1)
    return np.asarray(matrix + 0.0)  # no number below zero that is zero


def unbiased_covariance_sqr(a: FloatMatrix, b: FloatMatrix) -> float:
    """Return 4/(m (m - 1)) sum_{h != h'} (a_h'a_h') (b_h'b_h'), of buckets (m, p) and (m, q).

    Unbiased for the squared distance covariance where the noises of ``a`` and ``b`` are independent.
    """
    m = len(a)
    own = np.sum(a * a, axis=1) @ np.sum(b * b, axis=1)
    return 4 * (float(np.sum((a.T @ b) ** 2)) - float(own)) / (m * (m - 1))


def _scale(column: ColumnSide) -> float:
    variance = variance_estimate(column.side)
    return variance.value if variance.value > VARIANCE_FACTOR_MIN * math.sqrt(variance.variance) else math.nan
