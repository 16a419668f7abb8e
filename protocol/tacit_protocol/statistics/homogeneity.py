"""Do several noisy tables come from one distribution? A chi-square statistic with noise in its null.

With x_j the noisy shares of owner j and p = sum u_j x_j their public-weighted mean, cell i has the spread
D_i = sum_j a_j (x_ji - p_i)^2. If one distribution explains all owners its mean is A p_i (1 - p_i) + B, with
public A and B (docs/mathematics/categorical.md). The statistic is

    sum_i (D_i - A p_i (1 - p_i) - B) / (A max(p_i, floor) + B),

each cell's spread less what sampling and noise explain. Without the subtraction the statistic of sparse
tables counts the occupied cells, of which a resampled table has fewer, and the test rejects far too often.
The null distribution is a parametric bootstrap: tables and their noise are drawn anew from the pooled
distribution, and everything is estimated again; likewise from a sparser and a more even one, which the noisy
tables cannot tell from it, and the largest p-value counts.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from itertools import combinations

import numpy as np
import numpy.typing as npt

from tacit_protocol.statistics.multiplicity import holm
from tacit_protocol.statistics.noisy_tables import (
    NoisyTable,
    NuisanceNull,
    in_blocks,
    onto_simplex,
    plausible,
)

Floats = npt.NDArray[np.float64]
Report = Callable[[float], None]

STATISTIC_STREAM = 0
"""First spawn key of the overall test; pair m of owners has m + 1."""


@dataclass(frozen=True)
class Weights:
    """What the owners' sizes and noise fix: u and a (J,), A, B, and the floor of a cell's share."""

    mean: Floats
    spread: Floats
    sampling: float
    noise: float
    floor: float

    @classmethod
    def of(cls, units: Floats, noise_variances: Floats, cells: int) -> "Weights":
        """Weigh owners by the inverse variance that a cell of share 1/k would have.

        ``units`` and ``noise_variances`` are (J,). The floor is one unit of all, plus one standard deviation
        of the pooled noise: of smaller shares the tables know nothing.
        """
        noise = noise_variances / units**2
        spread = 1 / (1 / (cells * units) + noise)
        mean = spread / spread.sum()
        left = 1 - 2 * mean

        def expected(variances: Floats) -> float:
            return float(np.sum(spread * (left * variances + np.sum(mean**2 * variances))))

        floor = 1 / float(units.sum()) + float(np.sqrt(np.sum(mean**2 * noise)))
        return cls(mean, spread, expected(1 / units), expected(noise), floor)

    def pooled(self, shares: Floats) -> Floats:
        """Return the pooled shares, (..., k), of (..., J, k)."""
        return np.asarray(np.einsum("j,...jk->...k", self.mean, shares))

    def cells(self, shares: Floats) -> tuple[Floats, Floats]:
        """Return each cell's spread over what is expected, less 1 and less the expected part: (..., k) both.

        The second is what the statistic sums; the first, D_i over its floor, tells which cells stand out.
        """
        pooled = self.pooled(shares)
        deviations = shares - pooled[..., None, :]
        found = np.einsum("j,...jk->...k", self.spread, deviations**2)
        scale = self.sampling * np.maximum(pooled, self.floor) + self.noise
        explained = self.sampling * pooled * (1 - pooled) + self.noise
        return found / scale, (found - explained) / scale


@dataclass(frozen=True)
class HomogeneityTest:
    """``pvalue`` of all owners together, and ``cells`` (k,), single cells' p-values adjusted for all cells.

    The adjustment is by the largest cell of each simulated table; ``ratios`` (k,) is what is compared.
    ``simulated`` (replicates,) are the statistics that were drawn under the null hypothesis, from the
    distribution that gave the largest p-value.
    """

    statistic: float
    pvalue: float
    cells: Floats
    ratios: Floats
    simulated: Floats = field(repr=False)


@dataclass(frozen=True)
class PairTest:
    """Two owners, by place; ``pvalue`` is adjusted for all pairs by Holm's method."""

    first: int
    second: int
    statistic: float
    pvalue: float


def homogeneity_test(
    tables: Sequence[NoisyTable],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Report | None = None,
) -> HomogeneityTest:
    """Test whether tables of the same k cells come from one distribution.

    The p-value is the largest, over plausible pooled distributions, of (1 + simulated statistics at least as
    large) / (replicates + 1).
    """
    weights = Weights.of(*_sizes(tables), cells=len(tables[0].counts))
    shares = np.stack([table.counts / table.units for table in tables])
    ratio, excess = weights.cells(shares)
    statistic = float(excess.sum())
    null = simulated_null(tables, weights, replicates, seed, progress)
    return HomogeneityTest(
        statistic, null.pvalue(statistic), null.cells(ratio), ratio, null.least_favourable(statistic)
    )


def simulated_null(
    tables: Sequence[NoisyTable],
    weights: Weights,
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Report | None = None,
) -> NuisanceNull:
    """Simulate the null distribution at plausible pools; all have the same noise and seeds."""
    pools = plausible_pools(tables, weights)
    statistics, largest = np.empty((2, len(pools), replicates))
    done = 0
    for rng, count in in_blocks(seed, replicates, len(tables) * len(tables[0].counts)):
        noises, part = [table.draw_noise(rng, count) for table in tables], slice(done, done + count)
        for place, pool in enumerate(pools):
            drawn = [
                (rng.multinomial(table.units, pool, size=count) + noise) / table.units
                for table, noise in zip(tables, noises, strict=True)
            ]
            ratio, excess = weights.cells(np.stack(drawn, axis=1))
            statistics[place, part], largest[place, part] = excess.sum(axis=-1), ratio.max(axis=-1)
        done += count
        if progress is not None:
            progress(done / replicates)
    return NuisanceNull(statistics, largest)


def plausible_pools(tables: Sequence[NoisyTable], weights: Weights) -> tuple[Floats, ...]:
    """Return the pooled distribution (k,), and a sparser and a more even one.

    They are up to REACH standard deviations of the pooled shares away, sampling and noise together.
    """
    units, variances = _sizes(tables)
    pooled = onto_simplex(weights.pooled(np.stack([table.counts / table.units for table in tables])))
    noise = float(np.sum(weights.mean**2 * variances / units**2))
    return plausible(pooled, noise, 1 / float(np.sum(weights.mean**2 / units)))


def compare_pairs(
    tables: Sequence[NoisyTable],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Report | None = None,
) -> tuple[PairTest, ...]:
    """Test every pair of owners, with Holm's adjustment for all of them."""
    places = list(combinations(range(len(tables)), 2))
    found = []
    for done, ((first, second), child) in enumerate(zip(places, seed.spawn(len(places)), strict=True)):
        found.append(homogeneity_test([tables[first], tables[second]], replicates, child))
        if progress is not None:
            progress((done + 1) / len(places))
    adjusted = holm(np.array([test.pvalue for test in found]))
    return tuple(
        PairTest(first, second, test.statistic, float(pvalue))
        for (first, second), test, pvalue in zip(places, found, adjusted, strict=True)
    )


def _sizes(tables: Sequence[NoisyTable]) -> tuple[Floats, Floats]:
    units = np.array([table.units for table in tables], dtype=np.float64)
    return units, np.array([table.noise_variance for table in tables])
