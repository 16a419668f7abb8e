"""The one primitive behind tests and databases: a joint release of features' mean and second moment.

An owner's exact sums become parts of one Gaussian release (mean; diagonal and off-diagonal of the second
moment); a tester reads means and second moments back from the noisy vectors.
"""

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain.table import Table
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.features.sums import (
    FeatureSums,
    second_moment_sensitivity,
    sum_features,
    sum_sensitivity,
)
from tacit_protocol.privacy.dyadic import grid_bits
from tacit_protocol.privacy.gaussian_sums import SumPart
from tacit_protocol.privacy.vector import NoisyVector

MEAN, DIAGONAL, OFF_DIAGONAL = "mean", "second_moment_diagonal", "second_moment_off_diagonal"


@dataclass(frozen=True)
class MomentShares:
    """Parts of mu^2 for the mean and for the second moment; ``second`` 0 releases the mean alone."""

    mean: float
    second: float


def numbers_released(features: FeatureMap, shares: MomentShares) -> int:
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
        return numbers_released(self.features, self.shares)

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
