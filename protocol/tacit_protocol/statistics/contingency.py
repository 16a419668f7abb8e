"""Are the columns of a noisy contingency table independent? A chi-square statistic with noise in its null.

With p the noisy shares of the cells, r_a the shares of column a's categories (sums of the table, projected to
probabilities) and m = prod r_a, cell i has the squared residual (p_i - m_i)^2. To first order its mean under
independence is v_i = m_i (1 - sum_a m_i/r_a + (d - 1) m_i)/n for d columns, plus s^2 g_i for noise of
standard deviation s on a share (docs/mathematics/categorical.md). The statistic is

    sum_i ((p_i - m_i)^2 - v_i - s^2 g_i) / (max(m_i, 1/n)/n + s^2);

the null distribution is a parametric bootstrap: tables and noise drawn anew under m, everything estimated
again. It depends on the margins, which noise hides: so it is simulated at three plausible ones, those at
hand, sparser and more even ones, and the largest p-value counts.
"""

from collections.abc import Callable
from dataclasses import dataclass, field
from functools import reduce
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
    sum_cells_of,
)

Floats = npt.NDArray[np.float64]
Report = Callable[[float], None]


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


@dataclass(frozen=True)
class IndependenceOutcome:
    """``pvalue`` of independence, and ``cells`` (k,), single cells' p-values adjusted for all cells.

    The adjustment is by the largest cell of each simulated table; ``ratios`` (k,) is what is compared.
    ``simulated`` (replicates,) are the statistics that were drawn under the null hypothesis, at the margins
    that gave the largest p-value.
    """

    statistic: float
    pvalue: float
    cells: Floats
    ratios: Floats
    simulated: Floats = field(repr=False)


@dataclass(frozen=True)
class PairOutcome:
    """Two columns, by place; ``pvalue`` is adjusted for all pairs by Holm's method."""

    first: int
    second: int
    statistic: float
    pvalue: float


def independence_test(
    table: NoisyTable,
    shape: tuple[int, ...],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Report | None = None,
) -> IndependenceOutcome:
    """Test whether the columns of a table, (k,) in row-major order of ``shape``, are independent.

    The p-value is the largest, over plausible margins, of (1 + simulated statistics at least as large) /
    (replicates + 1).
    """
    variance = table.noise_variance / table.units**2
    own = residuals(table.counts / table.units, shape, table.units, variance)
    null = simulated_null(table, shape, replicates, seed, progress)
    statistic = float(own.statistics)
    return IndependenceOutcome(
        statistic,
        null.pvalue(statistic),
        null.cells(own.ratios),
        own.ratios,
        null.least_favourable(statistic),
    )


def simulated_null(
    table: NoisyTable,
    shape: tuple[int, ...],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Report | None = None,
) -> NuisanceNull:
    """Simulate the null distribution at plausible margins; all have the same noise and seeds."""
    values, variance = plausible_margins(table, shape), table.noise_variance / table.units**2
    statistics, largest = np.empty((2, len(values), replicates))
    done = 0
    for rng, count in in_blocks(seed, replicates, len(table.counts)):
        noise, part = table.draw_noise(rng, count), slice(done, done + count)
        for place, probabilities in enumerate(values):
            counts = rng.multinomial(table.units, probabilities, size=count) + noise
            drawn = residuals(counts / table.units, shape, table.units, variance)
            statistics[place, part], largest[place, part] = drawn.statistics, drawn.ratios.max(axis=-1)
        done += count
        if progress is not None:
            progress(done / replicates)
    return NuisanceNull(statistics, largest)


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
) -> tuple[PairOutcome, ...]:
    """Test every pair of columns in its own margin of the table, with Holm's adjustment for all of them."""
    places = list(combinations(range(len(shape)), 2))
    found = []
    for done, (pair, child) in enumerate(zip(places, seed.spawn(len(places)), strict=True)):
        found.append(independence_test(*margin_table(table, shape, pair), replicates, child))
        if progress is not None:
            progress((done + 1) / len(places))
    adjusted = holm(np.array([test.pvalue for test in found]))
    return tuple(
        PairOutcome(first, second, test.statistic, float(pvalue))
        for (first, second), test, pvalue in zip(places, found, adjusted, strict=True)
    )
