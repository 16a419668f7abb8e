"""What a curator of two samples releases, with its sensitivity.

*Difference and centre.* With d = m_x - m_y and q = w_x m_x + w_y m_y, w_x + w_y = 1, replacing a unit of
sample g moves d by Delta / n_g and q by w_g Delta / n_g, Delta the features' diameter: noises of variances
V_d and V_q are mu-Gaussian private where for either sample (Delta / n_g)^2 / V_d + (w_g Delta / n_g)^2 / V_q
<= mu^2. Means are fixed-point numbers: every sample's exact sum divided by its public n_g in integers, and
rounded once.

*P0's paired differences* z = f(x_i) - f(y_i): one individual changes one pair, the sum of z by the diameter D
at most and zz' by sqrt(1.5) D^2 in the Frobenius norm, or by J for raw ME features. Pairs are made in a
secret random order.

*The ridge statistic* s = (n_x n_y / N) d' (Lambda + gamma I)^-1 d, Lambda = (1/N) sum z z' over all N units,
moves by at most (max |t| + B / (2 sqrt gamma))^2 for |z| <= B and labels t of sqrt(n_y / n_x) and -sqrt(n_x /
n_y).
Derivations: docs/mathematics/trusted-curator.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.linalg import cho_factor, cho_solve

from tacit_protocol.domain import Table
from tacit_protocol.features.kernels import FeatureMap, FloatMatrix
from tacit_protocol.features.mean_embedding import RawMeanEmbedding
from tacit_protocol.features.moments import (
    DIAGONAL,
    MEAN,
    OFF_DIAGONAL,
    AdditiveRelease,
    AdditiveSums,
    FeatureSums,
    MomentRelease,
    MomentShares,
    UnitCountError,
    contributions,
    moment_parts,
    pair_sensitivity,
    read_second_moment,
    release_size,
    sum_features,
    sum_sensitivity,
)
from tacit_protocol.numerics.quadratic_forms import QuadraticLaw
from tacit_protocol.privacy.exact_sums import ExactSum, grid_bits, round_to_grid, rounding_sensitivity
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.privacy.guarantee import NoisyVector
from tacit_protocol.procedures.means.private_means import FloatVector
from tacit_protocol.strict import StudyError

DIFFERENCE, CENTRE = "difference", "centre"
COLUMNS, PAIRS = "columns", "pairs"

MEAN_BITS = 24
"""Bits of a fixed-point mean beyond those of the number of units: its rounding is a sixteenth of that of the
units' own contributions, and even the noise of epsilon = 100 is 2**19 steps wide."""

MEAN_BITS_MAX = 58
"""Finest fixed-point means: a difference, at most 2, and 64 scales of noise stay within 62 bits."""

MOMENT_CENTRE_SHARE = 0.1
"""Part of the means' budget for the centre where a second moment is released beside them."""

VARIANCE_SLACK = 1.5
"""By how many standard deviations of the centre's noise a coordinate's variance is rounded up, roughly: what
``centre_share`` weighs against the noise on the difference."""

WEIGHT_BITS = 30
"""The centre's weights are multiples of 2**-30; the sensitivities count a whole step."""

Units = tuple[int, int]
Sums = AdditiveSums | FeatureSums


@dataclass(frozen=True)
class Balance:
    """Standard deviations of the noise on d and q for diameter 1 and mu 1, and the centre's weights."""

    difference: float
    centre: float
    weights: tuple[float, float]


def centre_share(weight: float, diameter: float, mu: float) -> float:
    """Return the centre's share that makes a difference of additive features' means stand out most.

    ``weight`` is the largest of a coordinate in the direct sum. Of equal samples, s minimises V_d plus what
    rounding the variances up adds to 2 v / n: VARIANCE_SLACK times the centre's noise over the weight. Both
    scale alike with n, which drops out.
    """
    target = VARIANCE_SLACK * weight * mu / (2 * diameter)
    low, high = 0.0, 0.5
    for _ in range(60):
        middle = (low + high) / 2
        low, high = (middle, high) if middle**1.5 / (1 - middle) ** 2 < target else (low, middle)
    return high


def balance(units: Units, centre_share: float) -> Balance:
    """Balance d against q. ``centre_share`` in (0, 1/2]: what equal samples give q of mu^2; 1/2 is rho = 0.

    rho = min(n_small / n_large, 1 - 2 centre_share): below that ratio, q costs d nothing.
    """
    x, y = float(units[0]), float(units[1])
    rho = min(x / y, y / x, 1 - 2 * centre_share)
    difference = math.sqrt((1 / x**2 + 1 / y**2 - 2 * rho / (x * y)) / (1 - rho**2))
    centre = 1 / math.sqrt(x**2 + y**2 - 2 * rho * x * y)
    first, second = max(0.0, x * (x - rho * y)), max(0.0, y * (y - rho * x))
    weight = first / (first + second)
    return Balance(difference, centre, (weight, 1 - weight))


def mean_bits(units: int) -> int:
    """Return b such that fixed-point means over so many units have steps of 2**-b."""
    return min(MEAN_BITS_MAX, MEAN_BITS + units.bit_length())


@dataclass(frozen=True)
class _Block:
    """Two samples' sums of one block of features in steps of 2**-bits, and how far one unit moves them."""

    name: str
    first: npt.NDArray[np.int64]
    second: npt.NDArray[np.int64]
    bits: int
    sensitivity: float
    share: float


def _rounded_ratio(numerators: npt.NDArray[np.object_], denominator: int) -> npt.NDArray[np.int64]:
    """Divide Python integers and round to the nearest, halves upward."""
    return np.array((2 * numerators + denominator) // (2 * denominator), dtype=np.int64)


def _fixed_point(sums: npt.NDArray[np.int64], bits: int, divisor: int, steps: int) -> npt.NDArray[np.int64]:
    """Return sums * 2**-bits / divisor in steps of 2**-steps, exact but for one rounding."""
    shift = steps - bits
    numerators = sums.astype(object) * (1 << max(0, shift))
    return _rounded_ratio(numerators, divisor << max(0, -shift))


def _centre_sums(
    block: _Block, units: Units, weights: tuple[float, float], steps: int
) -> npt.NDArray[np.int64]:
    """Return w_x m_x + w_y m_y in steps of 2**-steps, exact but for the weights' rounding and one more."""
    first = round(weights[0] * (1 << WEIGHT_BITS))
    second = (1 << WEIGHT_BITS) - first
    total = first * units[1] * block.first.astype(object) + second * units[0] * block.second.astype(object)
    shift = steps - block.bits - WEIGHT_BITS
    divisor = units[0] * units[1] << max(0, -shift)
    return _rounded_ratio(total * (1 << max(0, shift)), divisor)


def _block_parts(block: _Block, units: Units, balanced: Balance) -> tuple[SumPart, SumPart]:
    """Lay out the difference and the centre of one block.

    A part's sensitivity is the larger sample-wise one, and its share what that costs of mu^2; the shares may
    add up to more than the block's where the two are largest for different samples, but neither sample's
    units ever cost more.
    """
    fine, coarse = mean_bits(max(units)), mean_bits(min(units))
    root = math.sqrt(len(block.first))
    # Two roundings of half a step for the difference (one unit moves one of them), one for the centre.
    moves = [
        (
            block.sensitivity / n + root * 2.0**-coarse,
            (weight + 2.0**-WEIGHT_BITS) * block.sensitivity / n + root * 2.0**-fine,
        )
        for n, weight in zip(units, balanced.weights, strict=True)
    ]
    largest = max((d / balanced.difference) ** 2 + (q / balanced.centre) ** 2 for d, q in moves)
    difference, centre = (max(column) for column in zip(*moves, strict=True))
    differences = _fixed_point(block.first, block.bits, units[0], coarse)
    differences = differences - _fixed_point(block.second, block.bits, units[1], coarse)
    centres = _centre_sums(block, units, balanced.weights, fine)
    return (
        SumPart(
            f"{block.name}_{DIFFERENCE}",
            differences,
            -coarse,
            difference,
            block.share * (difference / balanced.difference) ** 2 / largest,
        ),
        SumPart(
            f"{block.name}_{CENTRE}",
            centres,
            -fine,
            centre,
            block.share * (centre / balanced.centre) ** 2 / largest,
        ),
    )


@dataclass(frozen=True)
class ReleasedMeans:
    """Noisy difference and centre, (J,) each, the standard deviations of their noise, and the weights."""

    difference: npt.NDArray[np.float64]
    centre: npt.NDArray[np.float64]
    difference_noise: float
    centre_noise: float
    weights: tuple[float, float]


def _read_blocks(
    vectors: Mapping[str, NoisyVector], names: Mapping[str, float], weights: tuple[float, float]
) -> ReleasedMeans:
    """Read blocks, by name and weight in the direct sum; of slightly different noises state the larger."""
    read = {}
    for kind in (DIFFERENCE, CENTRE):
        parts = [(weight, vectors[f"{name}_{kind}"]) for name, weight in names.items()]
        values = np.concatenate([weight * vector.mean(1) for weight, vector in parts])
        read[kind] = values, max(weight * vector.scale for weight, vector in parts)
    return ReleasedMeans(read[DIFFERENCE][0], read[CENTRE][0], read[DIFFERENCE][1], read[CENTRE][1], weights)


@dataclass(frozen=True)
class CuratedSums:
    """Both samples' exact sums, on one grid."""

    first: Sums
    second: Sums

    @property
    def units(self) -> Units:
        """Number of units of either sample."""
        return self.first.units, self.second.units


class CuratedAdditiveRelease:
    """Difference and centre of additive features: columns and pairs of columns."""

    def __init__(self, release: AdditiveRelease, centre_share: float) -> None:
        self.features = release.features
        self._release = release
        self._centre_share = centre_share

    @property
    def numbers(self) -> int:
        """How many noisy numbers the curator sends."""
        return 2 * self.features.dimension

    def sum(self, first: Table, second: Table) -> CuratedSums:
        """Sum both samples exactly, in constant memory."""
        bits = self._release.bits(first.units + second.units)
        return CuratedSums(self._release.sum(first, bits), self._release.sum(second, bits))

    def parts(self, units: Units, sums: CuratedSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``sums`` the values are zeros, to know shapes and noise alone."""
        balanced = balance(units, self._centre_share)
        blocks = self._blocks(self._release.bits(sum(units)), sums)
        return tuple(part for block in blocks for part in _block_parts(block, units, balanced))

    def read(self, vectors: Mapping[str, NoisyVector], units: Units) -> ReleasedMeans:
        """Return the noisy difference and centre of the direct sum."""
        weights = {COLUMNS: 1.0}
        if self.features.pairwise is not None:
            share = self.features.choice.pair_share
            weights = {
                COLUMNS: math.sqrt(1 - share),
                PAIRS: math.sqrt(share / len(self.features.pairwise.pairs)),
            }
        return _read_blocks(vectors, weights, balance(units, self._centre_share).weights)

    def _blocks(self, bits: int, sums: CuratedSums | None) -> tuple[_Block, ...]:
        block, pairwise = self.features.column_wise, self.features.pairwise
        columns = pairs = (np.zeros(block.dimension, dtype=np.int64),) * 2
        if pairwise is not None:
            pairs = (np.zeros(pairwise.dimension, dtype=np.int64),) * 2
        if sums is not None:
            if not (isinstance(sums.first, AdditiveSums) and isinstance(sums.second, AdditiveSums)):
                raise TypeError("the sums are not those of additive features")
            columns = sums.first.columns, sums.second.columns
            pairs = sums.first.pairs, sums.second.pairs
        sensitivity = sum_sensitivity(block, bits)
        if pairwise is None:
            return (_Block(COLUMNS, *columns, bits, sensitivity, 1.0),)
        share = (1 - self.features.choice.pair_share) * block.diameter**2 / self.features.diameter**2
        return (
            _Block(COLUMNS, *columns, bits, sensitivity, share),
            _Block(PAIRS, *pairs, 2 * bits, pair_sensitivity(pairwise, bits), 1 - share),
        )


class CuratedMomentRelease:
    """Difference and centre of ME or SCF features, and both samples' second moment together."""

    def __init__(self, release: MomentRelease, centre_share: float) -> None:
        self.features = release.features
        self._release = release
        self._centre_share = centre_share

    @property
    def numbers(self) -> int:
        """How many noisy numbers the curator sends."""
        return self._release.numbers + self.features.dimension

    def sum(self, first: Table, second: Table) -> CuratedSums:
        """Sum both samples exactly, in constant memory."""
        bits = self._release.bits(first.units + second.units)
        return CuratedSums(self._release.sum(first, bits), self._release.sum(second, bits))

    def parts(self, units: Units, sums: CuratedSums | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``sums`` the values are zeros, to know shapes and noise alone."""
        bits = self._release.bits(sum(units))
        totals = (np.zeros(self.features.dimension, dtype=np.int64),) * 2
        pooled = None
        if sums is not None:
            first, second = sums.first, sums.second
            if not (isinstance(first, FeatureSums) and isinstance(second, FeatureSums)):
                raise TypeError("the sums are not those of ME or SCF features")
            totals, pooled = (first.total, second.total), _pooled(first, second)
        sensitivity = sum_sensitivity(self.features, bits)
        block = _Block(MEAN, *totals, bits, sensitivity, self._release.shares.mean)
        means = _block_parts(block, units, balance(units, self._centre_share))
        moments = moment_parts(self.features, self._release.shares, bits, pooled)
        return means + tuple(part for part in moments if part.name in (DIAGONAL, OFF_DIAGONAL))

    def read(self, vectors: Mapping[str, NoisyVector], units: Units) -> ReleasedMeans:
        """Return the noisy difference and centre."""
        return _read_blocks(vectors, {MEAN: 1.0}, balance(units, self._centre_share).weights)

    @staticmethod
    def read_moment(
        vectors: Mapping[str, NoisyVector], units: Units
    ) -> tuple[npt.NDArray[np.float64], float]:
        """Return both samples' noisy mean second moment, (J, J), and the noise on its diagonal."""
        return read_second_moment(vectors, sum(units)), vectors[DIAGONAL].scale / sum(units)


def _pooled(first: FeatureSums, second: FeatureSums) -> FeatureSums:
    if first.second is None or second.second is None:
        raise TypeError("the sums lack second moments")
    return FeatureSums(
        first.units + second.units,
        first.bits,
        first.total + second.total,
        first.sensitivity,
        first.second + second.second,
        first.second_sensitivity,
    )


SHARES = MomentShares(1.0, 1.0)
"""Each of P0's two releases has an event, and a mu, of its own."""


class UnequalSamplesError(StudyError):
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
        return release_size(self.features, SHARES)

    def sum(self, first: Table, second: Table, order: np.random.Generator) -> FeatureSums:
        """Sum z / 2 and its outer products over pairs in a random order; holds all features in memory.

        Raises UnequalSamplesError where the samples have different sizes, and UnitCountError where the units
        are not as many as the tables say.
        """
        pairs = require_equal((first.units, second.units))
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
        bits = grid_bits(require_equal(units), products=True)
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


def require_equal(units: tuple[int, int]) -> int:
    """Return how many pairs there are; raises UnequalSamplesError where the samples differ in size."""
    if units[0] != units[1]:
        raise UnequalSamplesError("calibration 'paper' pairs units: the two samples need as many of them")
    return units[0]


UNIT_ROUNDOFF = 2.0**-53

COUNTS_TRIED = 24
"""Numbers of equal eigenvalues tried for the heaviest null, spread geometrically from 1 to J: between two
neighbours the p-value hardly changes."""


def contribution_norm(norm: float, dimension: int, bits: int) -> float:
    """Bound the norm of a unit's contribution on the grid of 2**-bits, for features of that norm."""
    return norm + rounding_sensitivity(dimension, bits) / 2


def ridge_sensitivity(bound: float, regularisation: float, units: tuple[int, int]) -> float:
    """Bound |s - s'| over all pairs of data sets that differ in one unit.

    ``bound`` is that on the norm of a unit's contribution; ``regularisation`` is gamma > 0.
    """
    label = math.sqrt(max(units) / min(units))
    return min(float(sum(units)), (label + bound / (2 * math.sqrt(regularisation))) ** 2)


def evaluation_error(bound: float, regularisation: float, units: int, dimension: int) -> float:
    """Bound the error of ``ridge_statistic`` in float64: of its inputs, two products and a solution."""
    condition = (bound**2 + regularisation) / regularisation
    products = (dimension + 10) * (bound / math.sqrt(regularisation) + condition)
    solution = condition / 4 * (16 * dimension**2 * condition) ** 2 * UNIT_ROUNDOFF
    return units * UNIT_ROUNDOFF * (products + solution)


def ridge_statistic(
    means: tuple[FloatVector, FloatVector],
    second_moment: FloatMatrix,
    units: tuple[int, int],
    regularisation: float,
) -> float:
    """Return s from both samples' means, (J,), and all units' second moment, (J, J).

    Evaluated as the regression's gain at a computed optimum, whose error then enters squared.
    """
    total = sum(units)
    signal = math.sqrt(units[0] * units[1]) / total * (means[0] - means[1])
    matrix = second_moment + regularisation * np.eye(len(signal))
    optimum = cho_solve(cho_factor(matrix, lower=True), signal)
    return total * float(2 * signal @ optimum - optimum @ (matrix @ optimum))


def ridge_pvalue(
    statistic: float, units: int, dimension: int, regularisation: float, *, norm: float, noise: float
) -> float:
    """Return P(s + N(0, noise^2) >= statistic) under the null hypothesis, for the worst covariance."""
    laws = ridge_laws(units, dimension, regularisation, norm=norm, noise=noise)
    return max(law.pvalue(statistic) for law in laws)


def ridge_laws(
    units: int, dimension: int, regularisation: float, *, norm: float, noise: float
) -> tuple[QuadraticLaw, ...]:
    """Return the null laws of which the one with the largest tail counts.

    Given the pooled units, Lambda does not depend on who owns them, and s is nearly sum w_j chi2_1 with w_j =
    N / (N - 1) lambda_j / (lambda_j + gamma), sum lambda_j <= norm^2. Of all such spectra those of k equal
    ones are taken, for the worst k.
    """
    counts = sorted({round(k) for k in np.geomspace(1, dimension, COUNTS_TRIED)})
    laws = []
    for count in counts:
        eigenvalue = norm**2 / count
        weight = units / (units - 1) * eigenvalue / (eigenvalue + regularisation)
        laws.append(QuadraticLaw(np.array([weight]), np.array([count]), noise))
    return tuple(laws)


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
