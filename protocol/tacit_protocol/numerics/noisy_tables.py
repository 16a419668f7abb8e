"""Tables of noisy counts as a test sees them: counts, and the law of the noise on every cell.

A cell may carry the sum of several independent noises: cells of a finer table were added up, or several
owners' tables. Simulation draws the sum itself, at the same price: the difference of two gamma variables is a
sum of Laplace ones.
"""

import math
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass, field
from itertools import combinations
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tacit_protocol.features.cell_counts import CELLS_MAX, CellGrid
from tacit_protocol.numerics.inference import holm
from tacit_protocol.strict import StudyError

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

SHARES_MAX = 1e6
"""Largest noisy share that is told from a larger one: beyond it one noisy count is a million times n."""

BLOCK_NUMBERS = 2**16
"""Simulated numbers held at once: half a mebibyte."""

REACH = 2.0
"""Standard deviations within which a nuisance is plausible. With one, noise hides more than that too often:
.018 at level .01 (docs/mathematics/categorical.md)."""

EVENING_STEPS = 50
"""Halvings of the range in which a common probability is looked for."""

GROWTHS: Floats = 1 + np.geomspace(0.05, 200, 24)
"""Factors by which probabilities are taken away from even ones, to make them sparser."""


@dataclass(frozen=True)
class CellNoise:
    """Independent noise on every cell: the sum of ``summed`` variables of one law.

    ``scale`` is the Laplace scale or the Gaussian standard deviation of one of them, in units.
    """

    kind: Literal["gaussian", "laplace"]
    scale: float
    summed: int = 1

    @property
    def variance(self) -> float:
        """Variance on one cell."""
        return self.summed * self.scale**2 * (2 if self.kind == "laplace" else 1)

    def of_sums(self, cells: int) -> "CellNoise":
        """Return the noise on the sum of so many cells."""
        return CellNoise(self.kind, self.scale, self.summed * cells)

    def draw(self, rng: np.random.Generator, shape: tuple[int, ...]) -> Floats:
        """Draw simulated noise: public randomness, for null distributions alone."""
        if self.kind == "gaussian":
            return rng.normal(0.0, self.scale * math.sqrt(self.summed), shape)
        if self.summed == 1:
            return rng.laplace(0.0, self.scale, shape)
        return rng.gamma(self.summed, self.scale, shape) - rng.gamma(self.summed, self.scale, shape)

    def half_width(self, outside: float) -> float:
        """Return the bound that the noise of one cell exceeds with probability at most ``outside``.

        Exact for one variable. A sum of Laplace variables has Bernstein's bound: it is sub-exponential.
        """
        if self.kind == "gaussian":
            return self.scale * math.sqrt(self.summed) * float(-ndtri(outside / 2))
        if self.summed == 1:
            return self.scale * math.log(1 / outside)
        # Chernoff: E exp(t L) = 1/(1 - t^2 b^2); the best t is found on a grid, any t gives a valid bound.
        t = np.linspace(0.001, 0.999, 999)
        bounds = (math.log(2 / outside) - self.summed * np.log1p(-(t**2))) / t
        return self.scale * float(bounds.min())


def half_width(noises: tuple[CellNoise, ...], cells: int, level: float) -> float:
    """Return what the noise on the sum of so many cells exceeds with probability at most ``level``.

    Noises of several laws share the probability out.
    """
    return sum(noise.of_sums(cells).half_width(level / len(noises)) for noise in noises)


@dataclass(frozen=True)
class NoisyTable:
    """Noisy counts (k,) of ``units`` privacy units, and their noises, which are independent and add up.

    ``compared`` are the places of the cells that tests and estimates are of; None for all. The others hold
    units whose values are not listed, or missing: what is tested is given the listed ones.
    """

    counts: Floats
    units: int
    noises: tuple[CellNoise, ...]
    compared: Integers | None = None

    @property
    def noise_variance(self) -> float:
        """Variance of the noise on one cell."""
        return math.fsum(noise.variance for noise in self.noises)

    @property
    def held(self) -> "ComparedShares":
        """The shares of the cells that are compared, (k,)."""
        return self.within(self.counts)

    def within(self, counts: Floats) -> "ComparedShares":
        """Return the shares of the cells that are compared in counts (..., all cells) of as many units.

        They are among the units in those cells, whose number is their noisy sum less their part of the noise
        on all cells together, which the known number of all units tells; and a unit and a deviation of its
        noise at least.
        """
        if self.compared is None:
            units = np.full((*counts.shape[:-1], 1), float(self.units))
            return ComparedShares(counts / self.units, units, self.noise_variance / units**2)
        own, cells = counts[..., self.compared], counts.shape[-1]
        excess = counts.sum(axis=-1, keepdims=True) - self.units
        found = own.sum(axis=-1, keepdims=True) - excess * (own.shape[-1] / cells)
        deviation = math.sqrt(self.noise_variance * own.shape[-1] * (1 - own.shape[-1] / cells))
        units = np.clip(found, min(1 + deviation, self.units), self.units)
        return ComparedShares(own / units, units, self.noise_variance / units**2)

    def draw(
        self, probabilities: Floats, rng: np.random.Generator, count: int, noise: Floats | None = None
    ) -> "ComparedShares":
        """Draw shares of the cells that are compared, (count, k), where they have these probabilities (k,).

        As many units as here, on average, are in them; ``noise`` (count, all cells) is drawn where not given.
        """
        noise = self.draw_noise(rng, count) if noise is None else noise
        if self.compared is None:
            return self.within(rng.multinomial(self.units, probabilities, size=count) + noise)
        part = float(self.held.units[0]) / self.units
        of_all = np.append(probabilities * part, max(0.0, 1 - part))
        drawn = rng.multinomial(self.units, of_all / of_all.sum(), size=count)
        # Which of the other cells holds their units is of no consequence: their sum alone is read.
        outside = np.setdiff1d(np.arange(noise.shape[-1]), self.compared)[:1]
        counts = noise.copy()
        counts[:, self.compared] += drawn[:, :-1]
        counts[:, outside] += drawn[:, -1:]
        return self.within(counts)

    def draw_noise(self, rng: np.random.Generator, replicates: int) -> Floats:
        """Draw the noise of every cell, (replicates, k)."""
        shape = (replicates, len(self.counts))
        drawn = np.zeros(shape)
        for noise in self.noises:
            drawn += noise.draw(rng, shape)
        return drawn


@dataclass(frozen=True)
class ComparedShares:
    """Noisy ``shares`` (..., k) among so many ``units`` (..., 1), and the noise's ``variance`` on each."""

    shares: Floats
    units: Floats
    variance: Floats


@dataclass(frozen=True)
class PlacedCells:
    """An owner's noisy table, and where in it the cells are that a procedure looks at.

    ``cells`` (S, ...), by stratum, are places in ``table.counts``; those left out are of unlisted and missing
    values.
    """

    table: NoisyTable
    cells: Integers

    @property
    def counts(self) -> Floats:
        """The noisy counts, in the shape of ``cells``."""
        return np.asarray(self.table.counts[self.cells])

    @property
    def variances(self) -> Floats:
        """The variance of the noise on a cell, for each stratum, (S,)."""
        return np.full(len(self.cells), self.table.noise_variance)

    def draw(self, probabilities: Floats, rng: np.random.Generator, count: int) -> Floats:
        """Draw noisy counts, (count, S, ...), of as many units with those probabilities (k,)."""
        drawn = rng.multinomial(self.table.units, probabilities, size=count)
        return np.asarray((drawn + self.table.draw_noise(rng, count))[:, self.cells])


def add_tables(tables: Sequence[NoisyTable]) -> NoisyTable:
    """Return the table of all units together; noises of one law become one."""
    summed: dict[tuple[Literal["gaussian", "laplace"], float], int] = {}
    for noise in (noise for table in tables for noise in table.noises):
        summed[noise.kind, noise.scale] = summed.get((noise.kind, noise.scale), 0) + noise.summed
    return NoisyTable(
        np.asarray(np.sum([table.counts for table in tables], axis=0)),
        sum(table.units for table in tables),
        tuple(CellNoise(kind, scale, count) for (kind, scale), count in summed.items()),
        tables[0].compared,
    )


def sum_cells_of(table: NoisyTable, index: Integers, cells: int) -> NoisyTable:
    """Add the cells that ``index`` (k,) maps to the same cell; each must take equally many.

    Raises ValueError where they do not: the noise would differ between cells.
    """
    sizes = np.bincount(index, minlength=cells)
    if len(set(sizes.tolist())) != 1:
        raise ValueError("cells are sums of equally many cells")
    counts: Floats = np.bincount(index, table.counts, minlength=cells).astype(np.float64)
    return NoisyTable(counts, table.units, tuple(noise.of_sums(int(sizes[0])) for noise in table.noises))


def onto_simplex(values: Floats) -> Floats:
    """Return the probabilities that lie nearest to ``values``, (..., k), in the Euclidean sense.

    Nearest points to a convex set are never further from any of its points than before: the projection is no
    further from the true probabilities than the noisy ones. Values beyond SHARES_MAX, which no noise makes,
    are cut off first.
    """
    values = np.clip(values, -SHARES_MAX, SHARES_MAX)
    ordered = -np.sort(-values, axis=-1)
    excess = (np.cumsum(ordered, axis=-1) - 1) / np.arange(1, values.shape[-1] + 1)
    last = np.count_nonzero(ordered > excess, axis=-1, keepdims=True) - 1
    projected = np.maximum(values - np.take_along_axis(excess, last, axis=-1), 0.0)
    return np.asarray(projected / projected.sum(axis=-1, keepdims=True))


@dataclass(frozen=True)
class NuisanceNull:
    """Statistics simulated at a few plausible values of what a null hypothesis leaves open.

    ``statistics`` is (values, replicates), ``largest`` alike: the largest cell of each simulated table.
    """

    statistics: Floats
    largest: Floats

    def pvalue(self, statistic: float) -> float:
        """Return the largest of the values' (1 + number at least as large)/(replicates + 1)."""
        above = np.count_nonzero(self.statistics >= statistic, axis=-1)
        return float((1 + above.max()) / (self.statistics.shape[-1] + 1))

    def cells(self, ratios: Floats) -> Floats:
        """Return each cell's p-value, (k,), adjusted for all cells by the largest of each simulated table."""
        replicates = self.largest.shape[-1]
        within = np.stack([np.searchsorted(np.sort(drawn), ratios, side="left") for drawn in self.largest])
        return np.asarray((1 + replicates - within.min(axis=0)) / (replicates + 1))

    def least_favourable(self, statistic: float) -> Floats:
        """Return the statistics, (replicates,), of the value that has the largest p-value."""
        above = np.count_nonzero(self.statistics >= statistic, axis=-1)
        return np.asarray(self.statistics[int(np.argmax(above))])


@dataclass(frozen=True)
class SimulatedTest:
    """``pvalue`` of a statistic; ``simulated`` (replicates,) are those drawn where the p-value is largest."""

    statistic: float
    pvalue: float
    simulated: Floats = field(repr=False)

    @classmethod
    def of(cls, statistic: float, null: NuisanceNull) -> "SimulatedTest":
        """Return the test of a statistic against its simulated null."""
        return cls(statistic, null.pvalue(statistic), null.least_favourable(statistic))


@dataclass(frozen=True)
class TableTest(SimulatedTest):
    """A test of tables, with ``cells`` (k,), single cells' p-values adjusted for all cells.

    The adjustment is by the largest cell of each simulated table; ``ratios`` (k,) is what is compared.
    """

    cells: Floats
    ratios: Floats

    @classmethod
    def of_cells(cls, statistic: float, ratios: Floats, null: NuisanceNull) -> "TableTest":
        """Return the test of a statistic and of each cell against their simulated null."""
        drawn = null.least_favourable(statistic)
        return cls(statistic, null.pvalue(statistic), drawn, null.cells(ratios), ratios)


@dataclass(frozen=True)
class PairTest:
    """Two owners, or two columns, by place; ``pvalue`` is adjusted for all pairs by Holm's method."""

    first: int
    second: int
    statistic: float
    pvalue: float


def compare_each(
    count: int,
    test: Callable[[tuple[int, int], np.random.SeedSequence], SimulatedTest],
    seed: np.random.SeedSequence,
    progress: Callable[[float], None] | None,
) -> tuple[PairTest, ...]:
    """Test every pair of so many owners or columns, with Holm's adjustment for all of them."""
    places = list(combinations(range(count), 2))
    found = []
    for done, (pair, child) in enumerate(zip(places, seed.spawn(len(places)), strict=True)):
        found.append(test(pair, child))
        if progress is not None:
            progress((done + 1) / len(places))
    adjusted = holm(np.array([test.pvalue for test in found]))
    return tuple(
        PairTest(*pair, test.statistic, float(pvalue))
        for pair, test, pvalue in zip(places, found, adjusted, strict=True)
    )


PLAUSIBLE = 3
"""Values of the shares at which a null is simulated: fitted, sparse, and even."""


def simulated_null(
    draw: Callable[[np.random.Generator, int], Iterable[tuple[Floats, Floats]]],
    values: int,
    replicates: int,
    seed: np.random.SeedSequence,
    *,
    numbers: int,
    progress: Callable[[float], None] | None = None,
) -> NuisanceNull:
    """Simulate a null at several plausible values of its nuisance, ``numbers`` numbers a replicate.

    ``draw`` yields so many statistics, and the largest cell of each table, (count,) both, for each value; all
    values have the same seeds.
    """
    statistics, largest = np.empty((2, values, replicates))
    done = 0
    for rng, count in in_blocks(seed, replicates, numbers):
        part = slice(done, done + count)
        for place, (found, cells) in enumerate(draw(rng, count)):
            statistics[place, part], largest[place, part] = found, cells
        done += count
        if progress is not None:
            progress(done / replicates)
    return NuisanceNull(statistics, largest)


def plausible(fitted: Floats, noise_variance: float, units: float) -> tuple[Floats, Floats, Floats]:
    """Return probabilities (k,), and the sparsest and the most even ones that are within reach.

    ``noise_variance`` is that of each share, ``units`` how many were sampled. The sparsest, on the path that
    ends with the largest category alone, are up to REACH standard deviations of ``fitted`` away; the most
    even have one share in as many categories as can have it, each within REACH deviations of its own.
    """
    variances = noise_variance + fitted * (1 - fitted) / units
    reach = REACH * math.sqrt(float(variances.sum()))
    even = np.full_like(fitted, 1 / len(fitted))
    sparse = fitted
    for candidate in onto_simplex(even + GROWTHS[:, None] * (fitted - even)):
        if float(np.linalg.norm(candidate - fitted)) > reach:
            break
        sparse = candidate
    return fitted, sparse, _evened(fitted, REACH * np.sqrt(variances))


def _evened(fitted: Floats, reach: Floats) -> Floats:
    """Move each probability by up to ``reach`` (k,) towards a common value, by bisection."""
    least, most = np.maximum(fitted - reach, 0.0), fitted + reach
    low, high = 0.0, 1.0
    for _ in range(EVENING_STEPS):
        middle = (low + high) / 2
        if np.clip(middle, least, most).sum() < 1:
            low = middle
        else:
            high = middle
    moved = np.clip(high, least, most)
    return np.asarray(moved / moved.sum())


def in_blocks(
    seed: np.random.SeedSequence, replicates: int, numbers: int
) -> Iterator[tuple[np.random.Generator, int]]:
    """Yield generators, each with how many replicates it draws: their tables fit a cache."""
    size = max(1, BLOCK_NUMBERS // numbers)
    blocks = -(-replicates // size)
    for block, child in enumerate(seed.spawn(blocks)):
        yield np.random.default_rng(child), min(size, replicates - block * size)


SUM_TOLERANCE = 1e-6
"""How far the stated probabilities may add up to another number than 1: six decimals of each are enough."""


class DistributionError(StudyError):
    """The probabilities do not fit the cells. The message says what to change; both are public."""


def cell_probabilities(grid: CellGrid, stated: Sequence[float]) -> npt.NDArray[np.float64]:
    """Return the probability of each of the grid's cells, (k,), adding to 1.

    ``stated`` has one probability for every cell; or, where the categories "other" and "missing" of every
    column are to have probability 0, one for every combination of levels, or of numeric columns' intervals.

    Raises:
        DistributionError: there is another number of them, or they do not add up to 1.
    """
    total = math.fsum(stated)
    if abs(total - 1) > SUM_TOLERANCE:
        raise DistributionError("parameter probabilities: they must add up to 1")
    levels = tuple(axis.listed for axis in grid.axes)
    if len(stated) == grid.size:
        found = np.array(stated, dtype=np.float64)
    elif len(stated) == math.prod(levels):
        found = np.zeros(grid.shape)
        found[tuple(slice(size) for size in levels)] = np.reshape(stated, levels)
    else:
        every = f"give {math.prod(levels)}, one for every combination of levels"
        unlisted = "" if levels == grid.shape else f", or {grid.size} with other and missing values"
        raise DistributionError(f"parameter probabilities: {every}{unlisted}")
    return np.asarray(found.reshape(-1) / total)


def distribution(values: npt.ArrayLike) -> npt.NDArray[np.float64]:
    """Return probabilities (k,), adding to 1; raises DistributionError where they are none."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise DistributionError("a distribution is a vector of numbers") from None
    if found.ndim != 1 or len(found) < 2 or not np.all(found >= 0) or not abs(found.sum() - 1) <= 1e-6:
        raise DistributionError("a distribution is a vector of at least two probabilities that add up to 1")
    if len(found) > CELLS_MAX:
        raise DistributionError(f"a distribution has {CELLS_MAX} cells at most")
    return np.asarray(found / found.sum())


def total_variation(one: npt.NDArray[np.float64], other: npt.NDArray[np.float64]) -> float:
    """Return the total variation distance of two distributions, (k,) each."""
    return float(np.abs(one - other).sum() / 2)


def paninski(probabilities: Floats, shift: float) -> Floats:
    """Return the distribution whose cells take turns to be ``shift`` larger and smaller, in relation.

    Cells are paired in their order, and each pair keeps its probability: where all are equal, the total
    variation distance is shift/2. This is P3's alternative for uniform distributions, with shift = alpha.
    """
    moved = probabilities.copy()
    first, second = moved[: len(moved) // 2 * 2 : 2], moved[1::2]
    amount = shift * np.minimum(first, second[: len(first)])
    first += amount
    second[: len(first)] -= amount
    return moved
