"""Any test made private by repetition: the baseline that every other method has to beat.

Cai, Daskalakis and Kamath (2017), theorem 2: run a test without noise on disjoint blocks of the units, and
give the answer of one block chosen at random, or with probability c that of a fair coin. Here the answer is
drawn from its exact probability, c/2 + (1 - c) R/K with R of K blocks rejecting, which is the same. Replacing
one unit moves R by at most 1, and either answer has probability c/2 at least, so that K (e^epsilon - 1) >=
2 (1 - c)/c makes it epsilon-private (docs/mathematics/identity.md).
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.privacy.coin import private_coin
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.statistics.privit import UNITS_MAX, draw_blocks

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

BLOCKS_MAX = 1000
"""Most blocks: their counts are held at once, 300 MiB of the largest grid."""

EPSILON_SLACK = 1e-12
"""Relative part of epsilon given away for the rounding of the answer's probability."""


class RepetitionRefusedError(ValueError):
    """There are too few units for the blocks that the budget needs. The message says what to change."""


def block_level(level: float) -> float:
    """Return the level of each block's test: the coin rejects with the other half of ``level``."""
    return level / 2 / (1 - level)


def replicates_needed(level: float) -> int:
    """Return the fewest simulations by which a block can reject: 1/(replicates + 1) is its least p-value.

    >>> replicates_needed(0.05), replicates_needed(0.001)
    (37, 1997)
    """
    return math.ceil(1 / block_level(level) * (1 - 1e-12)) - 1


@dataclass(frozen=True)
class Repetition:
    """The blocks of a chi-square test without noise, at ``level`` in all.

    The coin has probability c = ``level``, half of which rejects; each block's test has the rest of it.
    """

    probabilities: Floats
    epsilon: float
    level: float

    @property
    def blocks(self) -> int:
        """K, the fewest blocks that are private."""
        return math.ceil(2 * (1 - self.level) / (self.level * math.expm1(self.epsilon * (1 - EPSILON_SLACK))))

    @property
    def block_level(self) -> float:
        """Level of each block's test."""
        return block_level(self.level)

    def block_units(self, units: int) -> int:
        """Return how many units a block has. Raises RepetitionRefusedError where that is none."""
        if self.blocks > BLOCKS_MAX or units < self.blocks or units > UNITS_MAX:
            raise RepetitionRefusedError(
                f"repetition needs {self.blocks} blocks of a unit or more, takes {BLOCKS_MAX} blocks and "
                f"{UNITS_MAX} units at most: ask for more units, a larger epsilon, or another method"
            )
        return units // self.blocks

    def draw(self, counts: Integers, rng: np.random.Generator) -> Integers:
        """Deal the units out; returns the blocks' counts, (blocks, k). ``rng`` must be fresh."""
        size = self.block_units(int(counts.sum()))
        return draw_blocks(counts, np.full(self.blocks, size, dtype=np.int64), rng)

    def statistic(self, counts: Integers) -> Floats:
        """Return Pearson's chi-square of counts, (..., k); infinite where an impossible cell is occupied."""
        expected = counts.sum(axis=-1, keepdims=True) * self.probabilities
        possible = self.probabilities > 0
        apart = (counts - expected)[..., possible] ** 2 / expected[..., possible]
        return np.where(counts[..., ~possible].any(axis=-1), np.inf, apart.sum(axis=-1))

    def rejections(self, blocks: Integers, draws: int, seed: np.random.SeedSequence) -> int:
        """Return how many blocks reject, R, each by a simulated p-value of its own level."""
        size = int(blocks[0].sum())
        simulated = np.array(
            [
                np.random.default_rng(child).multinomial(size, self.probabilities)
                for child in seed.spawn(draws)
            ]
        )
        null = np.sort(self.statistic(simulated))
        larger = draws - np.searchsorted(null, self.statistic(blocks), side="left")
        return int(np.count_nonzero((1 + larger) / (draws + 1) <= self.block_level))

    def rejection(self, rejections: int) -> float:
        """Return the probability to reject where so many blocks do."""
        return self.level / 2 + (1 - self.level) * rejections / self.blocks

    def decide(self, rejections: int, noise: NoiseSource) -> bool:
        """Return whether to reject, privately."""
        return private_coin(self.rejection(rejections), noise)
