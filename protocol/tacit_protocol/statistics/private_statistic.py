"""The release of one number: the ridge statistic of ridge.py, its evaluation error counted, on a grid."""

from dataclasses import dataclass

import numpy as np

from tacit_protocol.domain.table import Table
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.features.sums import FeatureSums, sum_features
from tacit_protocol.privacy.dyadic import grid_bits
from tacit_protocol.privacy.gaussian_sums import SumPart
from tacit_protocol.statistics.private_means import FloatMatrix, FloatVector
from tacit_protocol.statistics.ridge import (
    contribution_norm,
    evaluation_error,
    ridge_sensitivity,
    ridge_statistic,
)

STATISTIC = "statistic"

STATISTIC_BITS = 24
"""Grid of the statistic, whose sensitivity is above 1: noise at epsilon = 100 is a million steps wide."""

STATISTIC_ROOM_BITS = 59
"""The statistic is at most N: coarser grids where N is larger than 2**35."""


@dataclass(frozen=True)
class ExactStatistic:
    """The statistic before any noise. It never leaves the curator."""

    units: tuple[int, int]
    value: float


class RidgeRelease:
    """How the statistic is computed and laid out, with its sensitivity."""

    def __init__(self, features: FeatureMap, regularisation: float) -> None:
        self.features = features
        self.regularisation = regularisation

    @property
    def numbers(self) -> int:
        """One."""
        return 1

    def sum(self, first: Table, second: Table) -> ExactStatistic:
        """Compute the statistic from exact sums, in constant memory."""
        units = first.units, second.units
        bits = grid_bits(sum(units), products=True)
        samples = [sum_features(self.features, table, products=True, bits=bits) for table in (first, second)]
        means, moment = _moments(samples, bits)
        return ExactStatistic(units, ridge_statistic(means, moment, units, self.regularisation))

    def parts(self, units: tuple[int, int], sums: ExactStatistic | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``sums`` the value is zero, to know shape and noise alone."""
        total, dimension = sum(units), self.features.dimension
        bound = contribution_norm(self.features.norm, dimension, grid_bits(total, products=True))
        exponent = -min(STATISTIC_BITS, STATISTIC_ROOM_BITS - total.bit_length())
        error = evaluation_error(bound, self.regularisation, total, dimension)
        sensitivity = ridge_sensitivity(bound, self.regularisation, units) + 2 * error + 2.0**exponent
        steps = 0 if sums is None else round(np.ldexp(sums.value, -exponent))
        return (SumPart(STATISTIC, np.array([steps], dtype=np.int64), exponent, sensitivity, 1.0),)


def _moments(samples: list[FeatureSums], bits: int) -> tuple[tuple[FloatVector, FloatVector], FloatMatrix]:
    first, second = samples
    if first.second is None or second.second is None:
        raise TypeError("the sums lack second moments")
    total = (first.second + second.second).astype(np.float64)
    means = [np.ldexp(sample.total.astype(np.float64), -bits) / sample.units for sample in samples]
    return (means[0], means[1]), np.ldexp(total, -2 * bits) / (first.units + second.units)
