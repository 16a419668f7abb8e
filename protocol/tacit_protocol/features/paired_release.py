"""P0's release at a curator: mean and second moment of paired differences z_i = f(x_i) - f(y_i).

Replacing one individual changes one pair, so that the sum of z moves by at most the diameter D of the
features, and zz' by at most sqrt(1.5) D^2 in the Frobenius norm: |z|, |z~| and |z - z~| are at most D, so
z'z~ >= (|z|^2 + |z~|^2 - D^2) / 2, and |z|^4 + |z~|^4 - 2 (z'z~)^2 is largest at |z| = |z~| = D. For raw ME
features, which lie in [0, 1]^J, every entry of zz' moves by at most 1, so that J bounds it (P0's own constant
for kappa = 1); both are derived in docs/mathematics/trusted-curator.md.

Pairs are made in a secret random order: paired in the tables' own, a table sorted by its data would change
many pairs when one unit is replaced.
"""

import math
from dataclasses import dataclass

import numpy as np

from tacit_protocol.domain.table import Table
from tacit_protocol.features.base import FeatureMap, FloatMatrix
from tacit_protocol.features.mean_embedding import RawMeanEmbedding
from tacit_protocol.features.moment_release import MomentShares, moment_parts, numbers_released
from tacit_protocol.features.sums import FeatureSums, UnitCountError, contributions
from tacit_protocol.privacy.dyadic import ExactSum, grid_bits, round_to_grid, rounding_sensitivity
from tacit_protocol.privacy.gaussian_sums import SumPart

SHARES = MomentShares(1.0, 1.0)
"""Each of P0's two releases has an event, and a mu, of its own."""


class UnequalSamplesError(ValueError):
    """Paired differences need two samples of one size. Sizes are public."""


def paired_moment_diameter(features: FeatureMap) -> float:
    """Bound the Frobenius change of zz' when one unit of a pair is replaced."""
    if isinstance(features, RawMeanEmbedding):
        return float(features.dimension)
    return math.sqrt(1.5) * features.diameter**2


@dataclass(frozen=True)
class _HalvedPairs:
    """z / 2 as a feature of a pair, in [-1, 1], with the bounds that ``moment_parts`` reads."""

    dimension: int
    norm: float
    diameter: float
    second_moment_diameter: float

    def __call__(self, rows: object) -> FloatMatrix:
        raise NotImplementedError("pairs are not rows")


class PairedRelease:
    """How pairs are summed and laid out. All numbers are those of z / 2."""

    def __init__(self, features: FeatureMap) -> None:
        self.features = features
        diameter = features.diameter
        self._halved = _HalvedPairs(
            features.dimension, diameter / 2, diameter / 2, paired_moment_diameter(features) / 4
        )

    @property
    def numbers(self) -> int:
        """How many noisy numbers the curator sends."""
        return numbers_released(self.features, SHARES)

    def sum(self, first: Table, second: Table, order: np.random.Generator) -> FeatureSums:
        """Sum z / 2 and its outer products over pairs in a random order; holds all features in memory.

        Raises UnequalSamplesError where the samples have different sizes, and UnitCountError where the units
        are not as many as the tables say.
        """
        pairs = _require_equal((first.units, second.units))
        bits = grid_bits(pairs, products=True)
        halves = [self._halves(table, bits, order) for table in (first, second)]
        sums = ExactSum(self.features.dimension, bits, products=True)
        sums.add(halves[0] - halves[1])
        return FeatureSums(pairs, bits, sums.total, 0.0, sums.second, 0.0)

    def _halves(self, table: Table, bits: int, order: np.random.Generator) -> FloatMatrix:
        rows = [r for chunk in table.chunks() for r in contributions(self.features, chunk, bits)]
        features = np.concatenate(rows)
        if len(features) != table.units:
            raise UnitCountError("the data changed while they were read")
        return round_to_grid(features[order.permutation(len(features))] / 2, bits)

    def parts(self, units: tuple[int, int], sums: FeatureSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``sums`` the values are zeros. Raises UnequalSamplesError."""
        bits = grid_bits(_require_equal(units), products=True)
        # Each pair is the difference of two rounded halves: twice the displacement of one contribution.
        displaced = rounding_sensitivity(self.features.dimension, bits)
        second = 2 * (2 * self._halved.norm * displaced + displaced**2)
        widened = _HalvedPairs(
            self._halved.dimension,
            self._halved.norm + displaced,
            self._halved.diameter + displaced,
            self._halved.second_moment_diameter + second,
        )
        return moment_parts(widened, SHARES, bits, sums)


def _require_equal(units: tuple[int, int]) -> int:
    if units[0] != units[1]:
        raise UnequalSamplesError("calibration 'paper' pairs units: the two samples need as many of them")
    return units[0]
