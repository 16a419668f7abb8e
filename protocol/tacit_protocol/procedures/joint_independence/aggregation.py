"""A test by aggregation: units are tested in blocks, and the noisy number of rejecting blocks is released.

Every block's permutation test, ties broken by lot, rejects under the null hypothesis with a probability that
is known exactly, so that the number of rejecting blocks is binomial. One unit is in one block and moves that
number by at most 1, whatever is done inside a block. The p-value is that of the binomial law with the noise.
Derivations: docs/mathematics/aggregated-tests.md.
"""

import math
from collections.abc import Iterator, Sequence
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from scipy.special import gammaln, nbdtr, xlogy

from tacit_protocol.numerics.inference import PVALUE_MIN
from tacit_protocol.privacy.gaussian_mechanism import SCALE_TOLERANCE
from tacit_protocol.privacy.guarantee import Guarantee, LaplaceEvent, NoisyVector
from tacit_protocol.privacy.laplace_mechanism import LaplaceStatistic
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.privacy.permutation_test import rank_max
from tacit_protocol.procedures.joint_independence.statistic import PermutableGram, permuted_statistics
from tacit_protocol.workers import ONE_WORKER, Workers

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

REJECTING = "rejecting_blocks"
"""Name of the vector in a release."""

BLOCK_LEVEL = 0.3
"""Level of each block's test. Few blocks that reject easily tell more through the noise than the reverse."""

BLOCK_PERMUTATIONS = 99
"""Permutations of each block's test: at a level of .3, more would change next to nothing."""

BLOCKS_ALWAYS, BLOCKS_PER_NOISE = 5, 12
"""Blocks by default: 5, and 12 for each unit of the noise's scale 1/epsilon."""

BLOCKS_MAX = 1000
"""Most blocks of an owner."""

BLOCK_UNITS_MIN = 5
"""Fewest units of a block: owners of few units have fewer blocks."""

BATCH_UNITS_MAX = 200
"""Most units of a block whose kernel matrices are permuted all at once: 32 MiB."""

TIE_STEP = math.sqrt(2) * 1e-9
"""Squared statistics are compared on this grid: those that differ by rounding alone are ties. It is no
fraction, so that tables of counts do not lie on the border between two steps."""

WEIGHT_MIN = 1e-30
"""Numbers of blocks that are together less probable count as if they were always exceeded."""

EVALUATION = 1e-9
"""Relative slack for the rounding of logarithms of factorials."""

ONE_UNIT = 1.0
"""What one unit moves the number of rejecting blocks by."""


def blocks_of(units: int, epsilon: float, asked: int | None = None, units_min: int = BLOCK_UNITS_MIN) -> int:
    """Return in how many blocks an owner's units are tested: a function of public numbers.

    >>> blocks_of(1000, 1.0), blocks_of(1000, 0.3), blocks_of(60, 0.3)
    (17, 45, 12)
    """
    wanted = asked or min(BLOCKS_MAX, round(BLOCKS_ALWAYS + BLOCKS_PER_NOISE / epsilon))
    return max(1, min(wanted, units // units_min))


def block_places(units: int, blocks: int) -> Iterator[slice]:
    """Yield the blocks' places, disjoint and all together those of all units, sizes one apart at most."""
    for block in range(blocks):
        yield slice(block * units // blocks, (block + 1) * units // blocks)


def block_rank() -> int:
    """Return the largest rank of the observed statistic at which a block rejects."""
    return rank_max(BLOCK_LEVEL, BLOCK_PERMUTATIONS + 1)


def rejection_probability() -> float:
    """Return the probability with which a block rejects under the null hypothesis, exactly."""
    return block_rank() / (BLOCK_PERMUTATIONS + 1)


def squared_statistics(
    grams: Sequence[PermutableGram], seed: np.random.SeedSequence, workers: Workers = ONE_WORKER
) -> Floats:
    """Return T^2 of a block and of its permutations, (BLOCK_PERMUTATIONS + 1,), the observed one first.

    Small blocks are permuted all at once, which takes a tenth of the time.
    """
    units = grams[0].size
    if units > BATCH_UNITS_MAX:
        return np.square(permuted_statistics(grams, BLOCK_PERMUTATIONS, seed, workers=workers))
    rng, unmoved = np.random.default_rng(seed), np.arange(units)
    product, crossed = np.ones((BLOCK_PERMUTATIONS + 1, units, units)), 1.0
    rows = np.ones((BLOCK_PERMUTATIONS + 1, units))
    for number, gram in enumerate(grams):
        orders = np.tile(unmoved, (BLOCK_PERMUTATIONS + 1, 1))
        if number:
            rng.permuted(orders[1:], axis=1, out=orders[1:])
        matrix = gram.rows(0, units)
        means = matrix.mean(axis=1)
        product *= matrix[orders[:, :, None], orders[:, None, :]]
        rows *= means[orders]
        crossed *= float(means.mean())
    return np.asarray(product.mean(axis=(1, 2)) - 2 * rows.mean(axis=1) + crossed)


def squared_statistic(grams: Sequence[PermutableGram]) -> float:
    """Return T^2 of a block as it is."""
    matrices = [gram.rows(0, gram.size) for gram in grams]
    means = [matrix.mean(axis=1) for matrix in matrices]
    crossed = math.prod(float(mean.mean()) for mean in means)
    return float(np.prod(matrices, axis=0).mean() - 2 * np.prod(means, axis=0).mean() + crossed)


def rejects(squares: Floats, lot: float) -> bool:
    """Say whether a block rejects: the first of (B + 1,) squares is among the largest, ties by lot."""
    steps = np.rint(squares / TIE_STEP)
    larger, ties = int(np.sum(steps[1:] > steps[0])), int(np.sum(steps[1:] == steps[0]))
    return 1 + larger + int(lot * (ties + 1)) <= block_rank()


def released_count(blocks: int, guarantee: Guarantee) -> LaplaceStatistic:
    """Return how the number of rejecting blocks is released: Laplace noise, pure epsilon."""
    event = guarantee.events[0]
    if not isinstance(event, LaplaceEvent):
        raise TypeError("the guarantee is not that of a Laplace release")
    return LaplaceStatistic(ONE_UNIT, float(blocks), event.noise_multiplier)


def release_count(rejecting: int, blocks: int, guarantee: Guarantee, noise: NoiseSource) -> NoisyVector:
    """Add the noise to the number of rejecting blocks. Nothing else of them may leave."""
    return released_count(blocks, guarantee).release(float(rejecting), noise)


def has_the_noise(vector: NoisyVector, blocks: int, guarantee: Guarantee) -> bool:
    """Say whether a vector is one count with the grid and the noise that the study fixes."""
    fixed = released_count(blocks, guarantee)
    same = vector.noise == "laplace" and abs(vector.scale / fixed.scale - 1) <= SCALE_TOLERANCE
    return same and vector.exponent == -fixed.bits and len(vector.values) == 1


def laplace_sum_tail(values: Floats, terms: int) -> Floats:
    """Return P(X >= x) at each value, (m,), for a sum X of so many independent Laplace variables of scale 1.

    >>> laplace_sum_tail(np.array([0.0, 1.0, -1.0]), 1).round(4).tolist()
    [0.5, 0.1839, 0.8161]
    """
    size = np.abs(values)[:, None]
    index = np.arange(terms)
    poisson = np.exp(xlogy(index, size) - size - gammaln(index + 1))
    upper = poisson @ nbdtr(terms - 1 - index, terms, 0.5)
    return np.asarray(np.where(values >= 0, upper, 1 - upper))


@dataclass(frozen=True)
class CountLaw:
    """The law, under the null hypothesis, of the sum of noisy numbers of rejecting blocks.

    ``blocks`` are all owners' together, ``terms`` how many noises were added, of ``scale`` each on a grid of
    ``step``.
    """

    blocks: int
    terms: int
    scale: float
    step: float

    @property
    def mean(self) -> float:
        """Rejecting blocks to be expected."""
        return self.blocks * rejection_probability()

    @property
    def deviation(self) -> float:
        """Standard deviation, noise and all."""
        return math.sqrt(self.mean * (1 - rejection_probability()) + 2 * self.terms * self.scale**2)

    def tail(self, value: float) -> float:
        """Return the probability of a sum of at least ``value``, never below the exact one.

        Noise on a grid is less than a step for each term away from noise on the line: the value is lowered by
        as much.
        """
        counts = np.arange(self.blocks + 1)
        probability = rejection_probability()
        weights = np.exp(
            gammaln(self.blocks + 1)
            - gammaln(counts + 1)
            - gammaln(self.blocks - counts + 1)
            + counts * math.log(probability)
            + (self.blocks - counts) * math.log1p(-probability)
        )
        kept = weights > WEIGHT_MIN / len(weights)
        left = value - self.terms * self.step - counts[kept]
        found = float(weights[kept] @ laplace_sum_tail(left / self.scale, self.terms))
        left_out = float(weights[~kept].sum())
        return min(1.0, max(PVALUE_MIN, (found + left_out) * (1 + EVALUATION)))

    def critical(self, level: float) -> float:
        """Return the smallest sum, to a thousandth of its deviation, that is rejected at a level."""
        low, high = self.mean, self.blocks + self.scale * (self.terms + 60.0)
        while high - low > 1e-3 * self.deviation:
            middle = (low + high) / 2
            low, high = (low, middle) if self.tail(middle) <= level else (middle, high)
        return high


def sum_of_counts(vectors: Sequence[NoisyVector]) -> float:
    """Add up the owners' noisy counts."""
    return math.fsum(float(vector.mean(1)[0]) for vector in vectors)
