"""Tests on noisy tables: one distribution of several owners, independence of columns, and Cramér's V.

*Homogeneity.* With x_j the noisy shares of owner j and p = sum u_j x_j, cell i has the spread D_i = sum_j a_j
(x_ji - p_i)^2, of mean A p_i (1 - p_i) + B, A and B public. The statistic is

    sum_i (D_i - A p_i (1 - p_i) - B) / (A max(p_i, floor) + B).

*Independence.* With m the product of the projected margins, v_i = m_i (1 - sum_a m_i/r_a + (d - 1) m_i)/n and
s^2 g_i what noise of standard deviation s on a share adds, it is sum_i ((p_i - m_i)^2 - v_i - s^2 g_i) /
(max(m_i, 1/n)/n + s^2).

Both nulls are parametric bootstraps, tables and noise drawn anew and everything estimated again, at the
distribution at hand and at a sparser and a more even one that noise cannot tell from it; the largest p-value
counts.

*Cramér's V*, V^2 = phi^2/(levels - 1) of the units whose values are listed, less what sampling and noise add.
Its interval inverts simulated tests along two lines of tables from independence through the table itself:
with the projected margins, and with margins of a deviation of their noise at least.
docs/mathematics/categorical.md; coverage: docs/benchmarks/categorical.md.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce
from itertools import combinations

import numpy as np
import numpy.typing as npt

from tacit_protocol.numerics.multiplicity import holm
from tacit_protocol.numerics.noisy_tables import (
    NoisyTable,
    NuisanceNull,
    SimulatedTest,
    onto_simplex,
    plausible,
    simulated_null,
    sum_cells_of,
)

Floats = npt.NDArray[np.float64]
Report = Callable[[float], None]


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
    progress: Report | None,
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


def homogeneity_test(
    tables: Sequence[NoisyTable],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Report | None = None,
) -> TableTest:
    """Test whether tables of the same k cells come from one distribution.

    The p-value is the largest, over plausible pooled distributions, of (1 + simulated statistics at least as
    large) / (replicates + 1).
    """
    weights = Weights.of(*_sizes(tables), cells=len(tables[0].counts))
    shares = np.stack([table.counts / table.units for table in tables])
    ratio, excess = weights.cells(shares)
    null = homogeneity_null(tables, weights, replicates, seed, progress)
    return TableTest.of_cells(float(excess.sum()), ratio, null)


def homogeneity_null(
    tables: Sequence[NoisyTable],
    weights: Weights,
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Report | None = None,
) -> NuisanceNull:
    """Simulate the null distribution at plausible pools; all have the same noise and seeds."""
    pools = plausible_pools(tables, weights)

    def draw(rng: np.random.Generator, count: int) -> Iterator[tuple[Floats, Floats]]:
        noises = [table.draw_noise(rng, count) for table in tables]
        for pool in pools:
            drawn = [
                (rng.multinomial(table.units, pool, size=count) + noise) / table.units
                for table, noise in zip(tables, noises, strict=True)
            ]
            ratio, excess = weights.cells(np.stack(drawn, axis=1))
            yield excess.sum(axis=-1), ratio.max(axis=-1)

    numbers = len(tables) * len(tables[0].counts)
    return simulated_null(draw, len(pools), replicates, seed, numbers=numbers, progress=progress)


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
    return compare_each(
        len(tables),
        lambda pair, child: homogeneity_test([tables[place] for place in pair], replicates, child),
        seed,
        progress,
    )


def _sizes(tables: Sequence[NoisyTable]) -> tuple[Floats, Floats]:
    units = np.array([table.units for table in tables], dtype=np.float64)
    return units, np.array([table.noise_variance for table in tables])


@dataclass(frozen=True)
class Residuals:
    """Tables' cells (..., k): probabilities if independent, squared residuals, and what explains them."""

    fitted: Floats
    squared: Floats
    explained: Floats
    scale: Floats

    @property
    def statistics(self) -> Floats:
        """The sums over cells, (...), of what is not explained, on the scale of its spread."""
        return np.asarray(np.sum((self.squared - self.explained) / self.scale, axis=-1))

    @property
    def ratios(self) -> Floats:
        """Each cell's squared residual over its scale, to compare cells with each other."""
        return self.squared / self.scale


def residuals(
    shares: Floats, shape: tuple[int, ...], units: int | Floats, noise_variance: float | Floats
) -> Residuals:
    """Compare noisy shares (..., k) of tables of that shape with the products of their margins.

    ``noise_variance`` is that of a share; it and ``units`` are numbers, or (..., 1) of each table.
    """
    margins = margins_of(shares, shape)
    fitted = product(margins)
    cells = shares.shape[-1]
    total, noise = np.zeros_like(fitted), np.ones_like(fitted)
    for axis, size in enumerate(shape):
        # m_i over the share of this column's category: the product of the other margins.
        weight = product([*margins[:axis], np.ones_like(margins[axis]), *margins[axis + 1 :]])
        total += weight
        noise += (1 - 1 / size) * (weight**2 * (cells / size) - 2 * weight)
    sampling = fitted * (1 - total + (len(shape) - 1) * fitted) / units
    scale = np.maximum(fitted, 1 / units) / units + noise_variance
    return Residuals(fitted, (shares - fitted) ** 2, sampling + noise_variance * noise, scale)


def margins_of(shares: Floats, shape: tuple[int, ...]) -> list[Floats]:
    """Return each column's shares, (..., size), as probabilities."""
    lead = shares.shape[:-1]
    tables = shares.reshape(*lead, *shape)
    places = range(len(lead), tables.ndim)
    return [onto_simplex(tables.sum(axis=tuple(o for o in places if o != place))) for place in places]


def product(margins: list[Floats]) -> Floats:
    """Return the tables of independent columns, (..., k)."""
    return reduce(_outer, margins)


def _outer(table: Floats, margin: Floats) -> Floats:
    cells = table[..., :, None] * margin[..., None, :]
    return np.asarray(cells.reshape(*cells.shape[:-2], -1))


def independence_test(
    table: NoisyTable,
    shape: tuple[int, ...],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Report | None = None,
) -> TableTest:
    """Test whether the columns of a table, (k,) in row-major order of ``shape``, are independent.

    The p-value is the largest, over plausible margins, of (1 + simulated statistics at least as large) /
    (replicates + 1).
    """
    variance = table.noise_variance / table.units**2
    own = residuals(table.counts / table.units, shape, table.units, variance)
    null = independence_null(table, shape, replicates, seed, progress)
    return TableTest.of_cells(float(own.statistics), own.ratios, null)


def independence_null(
    table: NoisyTable,
    shape: tuple[int, ...],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Report | None = None,
) -> NuisanceNull:
    """Simulate the null distribution at plausible margins; all have the same noise and seeds."""
    values, variance = plausible_margins(table, shape), table.noise_variance / table.units**2

    def draw(rng: np.random.Generator, count: int) -> Iterator[tuple[Floats, Floats]]:
        noise = table.draw_noise(rng, count)
        for probabilities in values:
            counts = rng.multinomial(table.units, probabilities, size=count) + noise
            drawn = residuals(counts / table.units, shape, table.units, variance)
            yield drawn.statistics, drawn.ratios.max(axis=-1)

    return simulated_null(draw, len(values), replicates, seed, numbers=len(table.counts), progress=progress)


def plausible_margins(table: NoisyTable, shape: tuple[int, ...]) -> tuple[Floats, ...]:
    """Return tables (k,) of independent columns: of the margins at hand, of sparser, and of more even ones.

    Each margin is moved by up to REACH standard deviations of itself, sampling and noise together.
    """
    cells, variance = len(table.counts), table.noise_variance / table.units**2
    moved = [
        plausible(margin, cells / len(margin) * variance, table.units)
        for margin in margins_of(table.counts / table.units, shape)
    ]
    return tuple(product(list(margins)) for margins in zip(*moved, strict=True))


def simulate(
    table: NoisyTable, probabilities: Floats, rng: np.random.Generator, draws: int | None = None
) -> Floats:
    """Draw noisy shares (k,), or (draws, k), of as many units, with the table's noise."""
    drawn = rng.multinomial(table.units, probabilities, size=draws)
    noise = table.draw_noise(rng, 1 if draws is None else draws)
    return np.asarray((drawn + noise.reshape(drawn.shape)) / table.units)


def margin_table(
    table: NoisyTable, shape: tuple[int, ...], axes: tuple[int, ...]
) -> tuple[NoisyTable, tuple[int, ...]]:
    """Return the table of some of the columns, with the noise of its sums, and its shape."""
    kept = tuple(shape[axis] for axis in axes)
    codes = np.indices(shape).reshape(len(shape), -1)[list(axes)]
    index = np.ravel_multi_index(tuple(codes), kept).astype(np.int64)
    return sum_cells_of(table, index, int(np.prod(kept))), kept


def compare_columns(
    table: NoisyTable,
    shape: tuple[int, ...],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Report | None = None,
) -> tuple[PairTest, ...]:
    """Test every pair of columns in its own margin of the table, with Holm's adjustment for all of them."""
    return compare_each(
        len(shape),
        lambda pair, child: independence_test(*margin_table(table, shape, pair), replicates, child),
        seed,
        progress,
    )


DRAWS = 399
"""Simulated estimates at each table of a line: tail probabilities to .01."""

LINE = (*np.linspace(0, 1, 11).tolist(), 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 10.0, 30.0, 100.0)
"""Tables of a line: 0 is independence, 1 the projected table."""

HALVINGS = 4
"""How often the step of the line in which the interval ends is halved, at either end."""

TABLES_MAX = 2 * (len(LINE) + 2 * HALVINGS)
"""Most tables at which estimates are simulated."""


@dataclass(frozen=True)
class Association:
    """Cramér's V in [0, 1], and an interval."""

    value: float
    lower: float
    upper: float


def cramers_v(
    table: NoisyTable,
    shape: tuple[int, int],
    listed: tuple[int, int],
    level: float,
    seed: np.random.SeedSequence,
) -> Association:
    """Estimate Cramér's V of a table of two columns, with an interval of confidence 1 - level.

    ``listed`` is how many of each column's cells count, the first ones; where a column lists fewer than two
    levels, all cells of both do.
    """
    listed = listed if min(listed) > 1 else shape
    own = _ListedCells(table, shape, listed)
    estimate = float(own.phi_squared(own.shares))
    ends = [
        _ends(own, margins, estimate, level, np.random.default_rng(child))
        for margins, child in zip(own.margins, seed.spawn(2), strict=True)
    ]
    value, lower, upper = (
        math.sqrt(min(1.0, max(0.0, squared) / (min(listed) - 1)))
        for squared in (estimate, min(low for low, _ in ends), max(high for _, high in ends))
    )
    return Association(value, min(lower, value), max(upper, value))


class _ListedCells:
    """The listed cells of a noisy table, whose ``shares`` (k,) are of all units: estimates of phi^2."""

    def __init__(self, table: NoisyTable, shape: tuple[int, int], listed: tuple[int, int]) -> None:
        self._table, self.shape = table, listed
        places = np.indices(shape).reshape(2, -1)
        self._kept = (places[0] < listed[0]) & (places[1] < listed[1])
        self.shares = table.counts[self._kept] / table.units
        self._variance = table.noise_variance / table.units**2
        self._least = 1 / table.units + math.sqrt(self.shares.size * self._variance)
        part = max(float(self.shares.sum()), self._least)
        self._part, within = min(part, 1.0), self.shares / part
        self._direction = onto_simplex(within) - product(margins_of(within, listed))
        self._floor = (1 / table.units + math.sqrt(self._variance)) / self._part

    @property
    def margins(self) -> tuple[list[Floats], list[Floats]]:
        """The projected margins, and the same with a deviation of their noise at least."""
        found = margins_of(self.shares / max(float(self.shares.sum()), self._least), self.shape)
        spread = [math.sqrt(self._variance * size) / self._part for size in reversed(self.shape)]
        raised = [np.maximum(margin, least) for margin, least in zip(found, spread, strict=True)]
        return found, [margin / margin.sum() for margin in raised]

    def phi_squared(self, shares: Floats) -> Floats:
        """Estimate phi^2 of the listed units from shares (..., k) of all units.

        A cell weighs at least a unit and a deviation of noise.
        """
        part = np.maximum(shares.sum(axis=-1, keepdims=True), self._least)
        units, variance = self._table.units * part, self._variance / part**2
        found = residuals(shares / part, self.shape, units, variance)
        floor = 1 / units + np.sqrt(variance)
        return np.asarray(
            np.sum((found.squared - found.explained) / np.maximum(found.fitted, floor), axis=-1)
        )

    def at(self, margins: list[Floats], step: float) -> Floats:
        """Return the table so far along the line from independence with these margins, (k,)."""
        moved = np.maximum(product(margins) + step * self._direction, 0.0)
        return np.asarray(moved / moved.sum())

    def labels(self, probabilities: Floats) -> tuple[float, float]:
        """Return a table's phi^2, with floored denominators and as it is."""
        rows = probabilities.reshape(self.shape)
        fitted = np.outer(rows.sum(axis=1), rows.sum(axis=0))
        squared = (rows - fitted) ** 2
        exact = np.divide(squared, fitted, out=np.zeros_like(fitted), where=fitted > 0)
        return float(np.sum(squared / np.maximum(fitted, self._floor))), float(np.sum(exact))

    def simulate(self, probabilities: Floats, rng: np.random.Generator) -> Floats:
        """Draw noisy shares of as many units, (DRAWS, k), of which as many are listed as here."""
        everything = np.append(probabilities * self._part, max(0.0, 1 - self._part))
        drawn = rng.multinomial(self._table.units, everything / everything.sum(), size=DRAWS)[:, :-1]
        noise = self._table.draw_noise(rng, DRAWS)[:, self._kept]
        return np.asarray((drawn + noise) / self._table.units)


def _ends(
    own: _ListedCells, margins: list[Floats], estimate: float, level: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the smallest and the largest phi^2 that one line's tests do not reject."""

    def tail(step: float) -> tuple[bool, bool]:
        """Say whether a table is kept, and whether it is too strong where it is not."""
        drawn = own.phi_squared(own.simulate(own.at(margins, step), rng))
        below, above = 1 + int(np.sum(drawn <= estimate)), 1 + int(np.sum(drawn >= estimate))
        return 2 * min(below, above) > level * (DRAWS + 1), below < above

    def outside(inner: float, outer: float) -> float:
        """Return a step that is not kept, nearer to one that is."""
        for _ in range(HALVINGS):
            middle = (inner + outer) / 2
            inner, outer = (middle, outer) if tail(middle)[0] else (inner, middle)
        return outer

    found = [tail(step) for step in LINE]
    kept = [place for place, (inside, _) in enumerate(found) if inside]
    if kept:
        first, last = kept[0], kept[-1]
        low = LINE[first] if first == 0 else outside(LINE[first], LINE[first - 1])
        high = None if last + 1 == len(LINE) else outside(LINE[last], LINE[last + 1])
    else:
        # The estimate lies between two tables of the line: the last too weak one and the first too strong.
        strong = next((place for place, (_, strong) in enumerate(found) if strong), len(LINE))
        low = LINE[max(0, strong - 1)]
        high = LINE[strong] if strong < len(LINE) else None
    largest = math.inf if high is None else max(own.labels(own.at(margins, high)))
    # Independence itself has phi^2 = 0, whatever its computed margins say.
    return 0.0 if low == 0 else min(own.labels(own.at(margins, low))), largest
