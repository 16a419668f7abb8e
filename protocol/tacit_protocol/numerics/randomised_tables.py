"""Tables of randomised answers against cells, or against other answers: a test, and debiased estimates.

Rows are the answers of units whose column was randomised, and their numbers are public. Under independence
no contrast f of the rows that is orthogonal to those numbers has any mean beside any contrast g of the
columns: E sum_ab f_a N_ab g_b = sum_a f_a n_a sum_b q_b g_b = 0, whatever the columns' shares q are. Hence
the statistic is a sum of squares of orthonormal contrasts, each over its standard deviation with the noise
in it, smooth ones weighted more. Its null is simulated given the rows: multinomial ones with the same shares,
and noise; where both sides are answers and nothing is added, from all tables with both margins, and exactly.
Of several sides' answers all products of contrasts make one statistic, whose null is simulated alike.

Estimates are of the cells' own joint shares: the table times the inverse mixing matrix of either side.
Derivations: docs/mathematics/randomised-columns.md.
"""

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from functools import reduce
from typing import Literal

import numpy as np
import numpy.typing as npt
from scipy.special import chndtr, logsumexp, ndtri

from tacit_protocol.numerics.noisy_tables import (
    CellNoise,
    SimulatedTest,
    onto_simplex,
    plausible,
    simulated_null,
)
from tacit_protocol.privacy.randomised_response import unmixing

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]

SMOOTHNESS = 0.5
"""Weight of each further order of an ordered side's contrasts: most dependence is smooth."""

DEVIATIONS_SEEN = 3.0
"""A cell whose share is fewer standard errors above 0 is joined with its neighbour for estimates."""


@dataclass(frozen=True)
class AnsweredTable:
    """Counts (k, l) of units by the answer of one side and the cell, or answer, of the other.

    ``rows`` (k,) are the exact numbers of the first side's answers. ``kept`` is either side's retention: 1
    where cells are the units' own. ``noise`` is the scale of the noise on every count, of the Laplace
    distribution or a standard deviation, 0 where there is none; it is the sum of ``summed`` such noises.
    ``factors`` are the cells, and whether they are ordered, of several variables that the rows combine, the
    last one's changing fastest; none where the rows are of one.
    """

    counts: Floats
    rows: Integers
    kept: tuple[float, float]
    ordered: tuple[bool, bool]
    noise: float
    law: Literal["gaussian", "laplace"] = "laplace"
    summed: int = 1
    factors: tuple[tuple[int, bool], ...] = ()

    @property
    def variance(self) -> float:
        """Variance of the noise on a count."""
        return (2 if self.law == "laplace" else 1) * self.noise**2 * self.summed

    @property
    def units(self) -> int:
        """Number of units."""
        return int(self.rows.sum())

    @property
    def shares(self) -> Floats:
        """The columns' noisy shares, (l,)."""
        return np.asarray(self.counts.sum(axis=0) / self.units)

    # What the null draws.

    def plausible_columns(self) -> Sequence[Floats]:
        """Return what columns to draw: without noise their numbers, else shares within reach."""
        if self.noise == 0:
            return [self.counts.sum(axis=0)]
        variance = len(self.rows) * CellNoise(self.law, self.noise, self.summed).variance / self.units**2
        return plausible(onto_simplex(self.shares), variance, self.units)

    def draw_noise(self, rng: np.random.Generator, count: int) -> Floats | None:
        """Draw the noise of so many tables; None where there is none."""
        if self.noise == 0:
            return None
        return CellNoise(self.law, self.noise, self.summed).draw(rng, (count, *self.counts.shape))

    def drawn(self, columns: Floats, noise: Floats | None, rng: np.random.Generator, count: int) -> Floats:
        """Draw tables of independent sides (count, k, l), with both margins, or given the rows and noisy."""
        if noise is None:
            return tables_with_margins(self.rows, columns.astype(np.int64), rng, count)
        return np.stack([rng.multinomial(size, columns, count) for size in self.rows], axis=1) + noise


def contrasts(weights: Floats, basis: Floats) -> Floats:
    """Return contrasts orthonormal under weights (..., k), (..., k, k - 1), that span the basis in turn.

    ``basis`` (k, k) begins with a constant column; each contrast goes along with its own.
    """
    root = np.sqrt(weights)
    orthogonal, along = np.linalg.qr(root[..., None] * basis)
    signs = np.where(np.diagonal(along, axis1=-2, axis2=-1) < 0, -1.0, 1.0)
    return np.asarray((orthogonal * signs[..., None, :])[..., 1:] / root[..., None])


def contrast_basis(shares: Floats, *, ordered: bool) -> Floats:
    """Return powers of the place for ordered cells; for others a constant and the cells, by their shares."""
    cells = len(shares)
    if ordered:
        return np.vander(np.linspace(-1.0, 1.0, cells), increasing=True)
    chosen = np.eye(cells)[:, np.argsort(-shares, kind="stable")]
    return np.concatenate([np.ones((cells, 1)), chosen[:, : cells - 1]], axis=1)


def combined_basis(shares: Floats, factors: tuple[tuple[int, bool], ...]) -> tuple[Floats, Floats]:
    """Return products of several variables' contrasts (k, k), of few of them first, and weights (k - 1,).

    Orders add up: a product of two variables' first contrasts weighs as one variable's second.
    """
    joint = shares.reshape([cells for cells, _ in factors])
    orders, basis = np.zeros(1), np.asarray(np.ones((1, 1)))
    for place, (cells, ordered) in enumerate(factors):
        others = tuple(axis for axis in range(len(factors)) if axis != place)
        own = contrast_basis(joint.sum(axis=others), ordered=ordered)
        order = np.arange(cells) if ordered else np.minimum(np.arange(cells), 1)
        basis, orders = np.asarray(np.kron(basis, own)), np.add.outer(orders, order).ravel()
    first = np.argsort(orders, kind="stable")
    return basis[:, first], SMOOTHNESS ** (orders[first][1:] - 1)


@dataclass(frozen=True)
class _Statistic:
    """The statistic of tables with the same rows, and the same order of the columns' contrasts."""

    table: AnsweredTable
    first: Floats = field(init=False)
    basis: Floats = field(init=False)
    weights: Floats = field(init=False)

    def __post_init__(self) -> None:
        table = self.table
        rows = _positive(table.rows / table.units, 1 / table.units)
        orders = [
            SMOOTHNESS ** np.arange(cells - 1) if ordered else np.ones(cells - 1)
            for cells, ordered in zip(table.counts.shape, table.ordered, strict=True)
        ]
        own = contrast_basis(rows, ordered=table.ordered[0])
        if table.factors:
            own, orders[0] = combined_basis(rows, table.factors)
        object.__setattr__(self, "first", contrasts(rows, own))
        object.__setattr__(self, "basis", contrast_basis(table.shares, ordered=table.ordered[1]))
        object.__setattr__(self, "weights", np.outer(*orders))

    def of(self, counts: Floats) -> Floats:
        """Return the statistic of each table, (...,) of (..., k, l)."""
        table = self.table
        summed = (2 if table.law == "laplace" else 1) * len(table.rows) * table.summed
        least = (1 + table.noise * math.sqrt(summed)) / table.units
        shares = _positive(counts.sum(axis=-2) / table.units, least)
        second = contrasts(shares, self.basis)
        products = self.first.T @ counts @ second
        lengths = np.multiply.outer((self.first**2).sum(axis=0), (second**2).sum(axis=-2))
        lengths = np.moveaxis(lengths, 0, -2)
        variances = table.units + table.variance * lengths
        return np.asarray(
            (self.weights * table.units / variances * products**2 / variances).sum(axis=(-2, -1))
        )


def _positive(shares: Floats, least: float) -> Floats:
    raised = np.maximum(shares, least)
    return np.asarray(raised / raised.sum(axis=-1, keepdims=True))


def independence_test(
    table: AnsweredTable,
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Callable[[float], None] | None = None,
    *,
    more: Sequence[AnsweredTable] = (),
) -> SimulatedTest:
    """Test whether the sides are independent; the p-value is at least 1/(replicates + 1).

    ``more`` are tables of the same sides and of other units, with other cells: statistics add up.
    """
    parts = [(each, _Statistic(each)) for each in (table, *more)]
    found = float(sum(statistic.of(own.counts) for own, statistic in parts))
    candidates = list(zip(*(own.plausible_columns() for own, _ in parts), strict=True))

    def drawn(rng: np.random.Generator, count: int) -> list[tuple[Floats, Floats]]:
        noises = [own.draw_noise(rng, count) for own, _ in parts]
        made = []
        for shares in candidates:
            values = np.zeros(count)
            for (own, statistic), share, noise in zip(parts, shares, noises, strict=True):
                values += statistic.of(own.drawn(share, noise, rng, count))
            # Equal tables differ in the last digits: a hair's breadth below counts as a tie.
            made.append((values * (1 + 1e-9) if table.noise == 0 else values, values))
        return made

    numbers = sum(own.counts.size for own, _ in parts)
    null = simulated_null(drawn, len(candidates), replicates, seed, numbers=numbers, progress=progress)
    return SimulatedTest.of(found, null)


def tables_with_margins(rows: Integers, columns: Integers, rng: np.random.Generator, count: int) -> Floats:
    """Draw tables of independent sides with both margins, (count, k, l): cell by cell, hypergeometric.

    ``rows`` (k,), or of each table its own, (count, k); ``columns`` (l,).
    """
    sizes = np.broadcast_to(rows, (count, rows.shape[-1]))
    left = np.tile(columns, (count, 1))
    drawn = np.zeros((*sizes.shape, len(columns)))
    for row in range(sizes.shape[1] - 1):
        wanted = sizes[:, row]
        beyond = left.sum(axis=1)
        for column in range(len(columns) - 1):
            beyond = beyond - left[:, column]
            taken = rng.hypergeometric(left[:, column], beyond, wanted)
            drawn[:, row, column] = taken
            left[:, column] -= taken
            wanted = wanted - taken
        drawn[:, row, -1] = wanted
        left[:, -1] -= wanted
    drawn[:, -1] = left
    return drawn


@dataclass(frozen=True)
class SeveralAnswers:
    """Units by the answers of several sides, (k_1, ..., k_m), and by the cells of one more beside them.

    ``answered`` are exact. ``counts`` (k_1, ..., k_m, l) have the sum of ``summed`` Laplace noises of scale
    ``noise``; None where nobody counts beside the answers. ``kept`` is each side's retention, 1 of who
    counts, and ``ordered`` says whether its cells have an order.
    """

    answered: Integers
    counts: Floats | None
    kept: tuple[float, ...]
    ordered: tuple[bool, ...]
    noise: float
    summed: int = 1

    @property
    def units(self) -> int:
        """Number of units."""
        return int(self.answered.sum())

    @property
    def margins(self) -> list[Integers]:
        """The numbers of each side's answers, (k_i,), known exactly."""
        sides = range(self.answered.ndim)
        return [self.answered.sum(axis=tuple(s for s in sides if s != side)) for side in sides]

    @property
    def last(self) -> Floats:
        """The noisy numbers of the last side's cells, (l,); none where nobody counts."""
        return np.zeros(0) if self.counts is None else self.counts.sum(axis=tuple(range(self.answered.ndim)))

    @property
    def shape(self) -> tuple[int, ...]:
        """All sides' numbers of cells."""
        return self.answered.shape if self.counts is None else self.counts.shape

    @property
    def noisy(self) -> Floats | None:
        """The counts as one of several tables, (1, k_1, ..., k_m, l)."""
        return None if self.counts is None else self.counts[None]

    @property
    def variance(self) -> float:
        """Variance of the noise on a count."""
        return self._law.variance

    @property
    def _law(self) -> CellNoise:
        return CellNoise("laplace", self.noise, self.summed)

    # What their null draws.

    def plausible_last(self) -> Sequence[Floats]:
        """Return shares of the last side's cells, and the sparsest and most even ones within reach."""
        if self.counts is None:
            return [np.zeros(0)]
        variance = self.answered.size * self._law.variance / self.units**2
        return plausible(onto_simplex(self.last / self.units), variance, self.units)

    def permuted(self, rng: np.random.Generator, count: int) -> Floats:
        """Draw tables of answers with the same margins, (count, k_1, ..., k_m)."""
        margins = self.margins
        drawn: Floats = np.tile(margins[0], (count, 1))
        for margin in margins[1:]:
            drawn = tables_with_margins(drawn.astype(np.int64), margin, rng, count).reshape(count, -1)
        return drawn.reshape(count, *self.answered.shape)

    def draw_noise(self, rng: np.random.Generator, count: int) -> Floats | None:
        """Draw the noise of so many tables."""
        if self.counts is None:
            return None
        return self._law.draw(rng, (count, *self.counts.shape))

    def beside(
        self, rows: Floats, shares: Floats, noise: Floats | None, rng: np.random.Generator
    ) -> Floats | None:
        """Draw the last side's cells beside tables of answers, and add noise; None where nobody counts."""
        if noise is None:
            return None
        return rng.multinomial(rows.astype(np.int64), shares) + noise


ONE_PRODUCT, ALL_PRODUCTS = 0.8, 0.4
"""What part of a square's variance is no chance: where one product alone depends, and where all
do, of the one of most weight."""

FURTHER_COLUMN = 0.5
"""How likely it is that a product of one column more is what depends, all such together: three
that depend together alone are not lost among pairs, nor pairs among the many products of many columns."""


def _mixed(squares: Floats, weights: Floats, likely: Floats) -> Floats:
    """Return the logarithm of two alternatives' likelihood over the null's, (c,), from squares (c, j).

    Each is normal around 0: of one product, which may be any as ``likely`` (j,) says, or of all, with
    variances that grow with their weights, (c, j); both are as likely.
    """
    one = logsumexp(ONE_PRODUCT * squares / 2, axis=1, b=likely)
    parts = ALL_PRODUCTS * weights / weights.max(axis=-1, keepdims=True)
    together = (parts * squares + np.log1p(-parts)).sum(axis=1) / 2
    return np.asarray(np.logaddexp(one + math.log1p(-ONE_PRODUCT) / 2, together))


@dataclass(frozen=True)
class _Products:
    """Products of contrasts of joint tables with the margins of one.

    ``bases`` are those of all sides' contrasts. Products have a side's contrasts along each axis, the
    constant one first.
    """

    table: SeveralAnswers
    bases: Sequence[Floats]
    contrasts: list[Floats] = field(init=False)

    def __post_init__(self) -> None:
        own = []
        for margin, basis in zip(self.table.margins, self.bases, strict=False):
            shares = _positive(margin / self.table.units, 1 / self.table.units)
            own.append(np.concatenate([np.ones((len(shares), 1)), contrasts(shares, basis)], axis=1))
        object.__setattr__(self, "contrasts", own)

    @property
    def shape(self) -> tuple[int, ...]:
        """The numbers of all sides' contrasts, with the constant one."""
        return tuple(len(basis) for basis in self.bases)

    def places(self, *, ordered: bool) -> Integers:
        """Return of how many columns each product is, or where ordered its order: sides' orders add up."""
        own = [np.arange(size) for size in self.shape]
        alike = [not (ordered and kind) for kind in self.table.ordered]
        orders = [np.minimum(place, 1) if flat else place for place, flat in zip(own, alike, strict=True)]
        return np.asarray(reduce(np.add.outer, orders))

    def of(self, answered: Floats, counts: Floats | None) -> tuple[Floats, Floats]:
        """Return products over their standard deviations, and their signal, (c, ...) each.

        ``answered`` are (c, k_1, ..., k_m), ``counts`` (c, k_1, ..., k_m, l). The signal is in units: their
        number, times what answers keep of a square and what part of its variance is no noise.
        """
        units, sides = self.table.units, len(self.contrasts)
        kept = _outer(
            [
                np.where(np.arange(s) > 0, own**2, 1.0)
                for s, own in zip(self.shape, self.table.kept, strict=True)
            ]
        )
        signed = self._transformed(answered) / math.sqrt(units)
        if counts is None:
            return signed, np.broadcast_to(units * kept, signed.shape)
        cells = answered[0].size
        least = (1 + math.sqrt(self.table.variance * cells)) / units
        shares = _positive(counts.sum(axis=tuple(range(1, sides + 1))) / units, least)
        second = contrasts(shares, self.bases[-1])
        products = np.einsum("cb...,cbv->c...v", self._transformed(counts), second)
        lengths = np.multiply.outer(_outer([(own**2).sum(axis=0) for own in self.contrasts]), np.ones(1))
        squared = (second**2).sum(axis=1).reshape(len(second), *(1,) * sides, -1)
        variances = units + self.table.variance * lengths * squared
        signal = np.concatenate(
            [
                np.broadcast_to(units * kept[..., :1], (*signed.shape, 1)),
                units * kept[..., 1:] * units / variances,
            ],
            axis=-1,
        )
        return np.concatenate([signed[..., None], products / np.sqrt(variances)], axis=-1), signal

    def _transformed(self, counts: Floats) -> Floats:
        # Every step takes the first of the sides left and puts its contrasts last.
        for own in self.contrasts:
            counts = np.tensordot(counts, own, axes=(1, 0))
        return counts


@dataclass(frozen=True)
class _Squares:
    """The statistic of joint tables of several parts of the units, with the margins of these.

    The first part has the most contrasts, and the others' are the first of each column's: products of the
    same contrasts are added up over the parts, each by its signal.
    """

    tables: Sequence[SeveralAnswers]
    parts: list[_Products] = field(init=False)

    def __post_init__(self) -> None:
        bases = []
        for side, ordered in enumerate(self.tables[0].ordered):
            own = [np.asarray([*table.margins, table.last][side], dtype=np.float64) for table in self.tables]
            # Cells that are the same in all parts are in the same order.
            alike = len({len(margin) for margin in own}) == 1
            whole = reduce(np.add, own) if alike else None
            bases.append([contrast_basis(m if whole is None else whole, ordered=ordered) for m in own])
        made = [
            _Products(table, own) for table, own in zip(self.tables, zip(*bases, strict=True), strict=True)
        ]
        object.__setattr__(self, "parts", made)

    def of(self, drawn: Sequence[tuple[Floats, Floats | None]]) -> Floats:
        """Return the statistic of each of (c, k_1, ..., k_m) and (c, k_1, ..., k_m, l) of all parts, (c,)."""
        first, units = self.parts[0], sum(table.units for table in self.tables)
        signed, signal = first.of(*drawn[0])
        squares = signed**2
        if len(self.parts) > 1:
            added, signal = signed * np.sqrt(signal), signal.copy()
            for part, own in zip(self.parts[1:], drawn[1:], strict=True):
                places = (slice(None), *(slice(size) for size in part.shape))
                more, its = part.of(*own)
                added[places] += more * np.sqrt(its)
                signal[places] += its
            squares = added**2 / signal
        columns = first.places(ordered=False)
        several = columns > 1
        smooth, columns = SMOOTHNESS ** (first.places(ordered=True)[several] - 2.0), columns[several]
        squares, weights = squares[:, several], np.sqrt(signal[:, several] / units) * smooth
        likely = FURTHER_COLUMN**columns * smooth
        for count in set(columns.tolist()):
            likely[columns == count] /= smooth[columns == count].sum()
        return _mixed(squares, weights, likely / likely.sum())


def _outer(vectors: list[Floats]) -> Floats:
    return np.asarray(reduce(np.multiply.outer, vectors))


def mutual_test(
    tables: Sequence[SeveralAnswers],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Callable[[float], None] | None = None,
) -> SimulatedTest:
    """Test whether all sides are independent; the p-value is at least 1/(replicates + 1).

    ``tables`` are of disjoint parts of the units, in which the same sides may have other cells; the first has
    the most. The statistic is of the squares of all products of two or more sides' contrasts, and large where
    one product depends as well as where all do. Its null keeps the answers' margins in
    each part, which permuting each side's answers there does, and draws the last side given them.
    """
    statistic = _Squares(tables)
    found = float(
        statistic.of([(table.answered[None].astype(np.float64), table.noisy) for table in tables])[0]
    )
    numbers = sum(math.prod(table.shape) for table in tables)
    exact = all(table.counts is None for table in tables)
    candidates = list(zip(*(table.plausible_last() for table in tables), strict=True))

    def drawn(rng: np.random.Generator, count: int) -> list[tuple[Floats, Floats]]:
        rows = [table.permuted(rng, count) for table in tables]
        added = [table.draw_noise(rng, count) for table in tables]
        made = []
        for shares in candidates:
            own = [each.beside(rows[p], shares[p], added[p], rng) for p, each in enumerate(tables)]
            values = statistic.of(list(zip(rows, own, strict=True)))
            # Equal tables differ in the last digits: a hair's breadth below counts as a tie.
            made.append((values + 1e-9 * (1 + np.abs(values)) if exact else values, values))
        return made

    null = simulated_null(drawn, len(candidates), replicates, seed, numbers=numbers, progress=progress)
    return SimulatedTest.of(found, null)


@dataclass(frozen=True)
class StatedEstimate:
    """An estimate with its interval."""

    value: float
    lower: float
    upper: float


@dataclass(frozen=True)
class TableEstimates:
    """What the cells' debiased joint shares (k, l) say; None where a side's cells are lost in the noise.

    ``joined`` says, of each side, for each cell which one it was joined with.
    """

    shares: Floats
    joined: tuple[Integers, Integers]
    distance_correlation: StatedEstimate | None = None
    cramers_v: StatedEstimate | None = None
    correlation: StatedEstimate | None = None


def table_estimates(table: AnsweredTable, coverage: float) -> TableEstimates:
    """Return the debiased table, and measures of dependence with intervals of that coverage.

    Intervals count sampling, both sides' randomisation and the noise.
    """
    n, (k, size) = table.units, table.counts.shape
    # The rows' sums are known: what they differ by is noise.
    counts = table.counts - (table.counts.sum(axis=1) - table.rows)[:, None] / size
    answered = counts / n
    cells = onto_simplex(answered.ravel())
    covariance = (np.diag(cells) - np.outer(cells, cells)) / n
    centred = np.eye(size) - 1 / size
    covariance += np.kron(np.eye(k), centred) * table.variance / n**2
    inverse = [unmixing(length, kept) for length, kept in zip((k, size), table.kept, strict=True)]
    shares = inverse[0] @ answered @ inverse[1].T
    spread = np.kron(*inverse)
    return joint_estimates(shares, spread @ covariance @ spread.T, table.ordered, coverage)


def joint_estimates(
    shares: Floats, covariance: Floats, ordered: tuple[bool, bool], coverage: float
) -> TableEstimates:
    """Return measures of dependence of estimated joint shares (k, l), with intervals of that coverage.

    ``covariance`` (kl, kl) is that of their errors; ``ordered`` says of each side whether its cells have an
    order.
    """
    joined = tuple(_joined(shares, covariance, side) for side in (0, 1))
    pools = [np.eye(int(own.max()) + 1)[own].T for own in joined]
    found = TableEstimates(shares, (joined[0], joined[1]))
    if min(len(pool) for pool in pools) < 2:
        return found
    pooled, pooling = pools[0] @ shares @ pools[1].T, np.kron(*pools)
    own = _Joint(pooled, pooling @ covariance @ pooling.T, coverage)
    measured = [flag or len(pool) == 2 for flag, pool in zip(ordered, pools, strict=True)]
    return TableEstimates(
        shares,
        found.joined,
        distance_correlation=own.root(
            *(_distances(len(p), ordered=o) for p, o in zip(pools, measured, strict=True))
        ),
        cramers_v=own.root(None, None),
        correlation=own.correlation() if all(ordered) else None,
    )


def _joined(shares: Floats, covariance: Floats, side: int) -> Integers:
    """Return which cell each cell of a side counts as, (k,), numbered from 0: rare ones join a neighbour."""
    length = shares.shape[side]
    own = np.eye(length)
    other = np.ones((1, shares.shape[1 - side]))
    adding = np.kron(own, other) if side == 0 else np.kron(other, own)
    # Where nearly all units are in one cell, the others' variance is 0 but for rounding.
    variance = np.maximum(np.diag(adding @ covariance @ adding.T), 0.0)
    seen = adding @ shares.ravel() > DEVIATIONS_SEEN * np.sqrt(variance)
    return np.asarray(np.maximum(np.cumsum(seen) - 1, 0))


def _distances(length: int, *, ordered: bool) -> Floats:
    if ordered:
        return np.asarray(np.abs(np.subtract.outer(np.arange(length), np.arange(length))) / (length - 1))
    return 1 - np.eye(length)


@dataclass(frozen=True)
class _Joint:
    """Joint shares (k, l) with the covariance of their errors, (kl, kl)."""

    shares: Floats
    covariance: Floats
    coverage: float

    def root(self, first: Floats | None, second: Floats | None) -> StatedEstimate | None:
        """Return the distance correlation for these distances; without them Cramer's V."""
        shape = self.shares.shape
        gradient = _gradient(lambda p: _squared(p, first, second), self.shares)
        value = float(np.real(_squared(self.shares, first, second)))
        # Of the quadratic form in what is beyond independence, with its scale held fixed.
        p, q = self.shares.sum(axis=1), self.shares.sum(axis=0)
        ones = [np.ones((length, length)) for length in shape]
        centring = (
            np.eye(self.shares.size)
            - np.kron(np.eye(shape[0]), ones[1] * q[:, None])
            - np.kron(ones[0] * p[:, None], np.eye(shape[1]))
        )
        errors = centring @ self.covariance @ centring.T
        form = _form(p, q, first, second)
        product = form @ errors
        bias, base = float(np.trace(product)), 2 * float(np.trace(product @ product))
        variance = float(gradient @ self.covariance @ gradient)
        if not (value > 0 and math.isfinite(value) and base > 0):
            return None
        return _rooted(value - bias, base, variance / value, self.coverage)

    def correlation(self) -> StatedEstimate | None:
        """Return the rank correlation of the cells, ties at their middle."""
        value = float(np.real(_rank_correlation(self.shares)))
        gradient = _gradient(_rank_correlation, self.shares)
        variance = float(gradient @ self.covariance @ gradient)
        if not (math.isfinite(value) and variance > 0):
            return None
        reach = float(ndtri((1 + self.coverage) / 2)) * math.sqrt(variance)
        cut = min(1.0, max(-1.0, value))
        return StatedEstimate(cut, max(-1.0, min(cut, value - reach)), min(1.0, max(cut, value + reach)))


def _rooted(value: float, base: float, slope: float, coverage: float) -> StatedEstimate:
    """Return the root of an estimate whose variance at a true D is base + slope D, with its interval.

    Its law is taken to be that of s (chi-squared with v degrees and noncentrality D/s, less v), which has
    this mean and variance where s = slope/4 and v = 8 base/slope^2: a square's skewness is in it.
    """
    unit, degrees, tail = slope / 4, 8 * base / slope**2, (1 - coverage) / 2
    seen = value / unit + degrees
    lower = unit * _noncentrality(seen, degrees, 1 - tail)
    # An estimate below 0 says no more than one of 0: else the interval would be a point.
    upper = unit * _noncentrality(max(seen, degrees), degrees, tail)
    stated, low, high = (math.sqrt(min(1.0, max(0.0, end))) for end in (value, lower, upper))
    return StatedEstimate(stated, min(low, stated), max(stated, high))


def _noncentrality(seen: float, degrees: float, below: float) -> float:
    """Return the noncentrality at which chi-squared lies below ``seen`` with probability ``below``, or 0."""
    if seen <= 0 or chndtr(seen, degrees, 0.0) <= below:
        return 0.0
    if seen + degrees > NORMAL_FROM:
        reach = float(ndtri(below))
        linear = seen - degrees + 2 * reach**2
        return linear - math.copysign(
            math.sqrt(max(0.0, linear**2 - (seen - degrees) ** 2 + 2 * reach**2 * degrees)), reach
        )
    low, high = 0.0, 2 * seen + 100.0
    for _ in range(NONCENTRALITY_STEPS):
        middle = (low + high) / 2
        low, high = (middle, high) if chndtr(seen, degrees, middle) > below else (low, middle)
    return high


NORMAL_FROM = 5000.0
"""From such a sum on, a noncentral chi-squared is taken for normal."""

NONCENTRALITY_STEPS = 60
"""Halvings in which it is found."""


def _form(p: Floats, q: Floats, first: Floats | None, second: Floats | None) -> Floats:
    if first is None or second is None:
        return np.diag(1 / np.outer(p, q).ravel()) / (min(len(p), len(q)) - 1)
    scale = math.sqrt(float(_distance_variance(p, first) * _distance_variance(q, second)))
    return np.asarray(np.kron(first, second) / scale)


def _distance_variance(
    shares: npt.NDArray[np.complex128] | Floats, distances: Floats
) -> npt.NDArray[np.complex128]:
    """Return the squared distance variance of a margin (..., k)."""
    single = np.einsum("...a,ab->...b", shares, distances)
    squares = np.einsum("...a,ab,...b->...", shares, distances**2, shares)
    mean = np.einsum("...a,...a->...", single, shares)
    return np.asarray(squares - 2 * np.einsum("...a,...a->...", single**2, shares) + mean**2)


def _squared(
    shares: npt.NDArray[np.complex128] | Floats, first: Floats | None, second: Floats | None
) -> npt.NDArray[np.complex128]:
    """Return the squared measure of joint shares (..., k, l)."""
    p, q = shares.sum(axis=-1), shares.sum(axis=-2)
    beyond = shares - p[..., :, None] * q[..., None, :]
    if first is None or second is None:
        ratio = beyond**2 / (p[..., :, None] * q[..., None, :])
        return np.asarray(ratio.sum(axis=(-2, -1)) / (min(shares.shape[-2:]) - 1))
    covariance = np.einsum("...ab,ac,bd,...cd->...", beyond, first, second, beyond)
    return np.asarray(covariance / np.sqrt(_distance_variance(p, first) * _distance_variance(q, second)))


def _rank_correlation(shares: npt.NDArray[np.complex128] | Floats) -> npt.NDArray[np.complex128]:
    p, q = shares.sum(axis=-1), shares.sum(axis=-2)
    beyond = shares - p[..., :, None] * q[..., None, :]
    ranks = [np.cumsum(margin, axis=-1) - margin / 2 for margin in (p, q)]
    spread = [
        (margin * rank**2).sum(axis=-1) - (margin * rank).sum(axis=-1) ** 2
        for margin, rank in zip((p, q), ranks, strict=True)
    ]
    covariance = np.einsum("...a,...ab,...b->...", ranks[0], beyond, ranks[1])
    return np.asarray(covariance / np.sqrt(spread[0] * spread[1]))


COMPLEX_STEP = 1e-30
"""Of the derivative along the imaginary axis, which loses no digit."""


def _gradient(
    function: Callable[[npt.NDArray[np.complex128]], npt.NDArray[np.complex128]], at: Floats
) -> Floats:
    steps = np.eye(at.size).reshape(at.size, *at.shape)
    return np.asarray(np.imag(function(at + 1j * COMPLEX_STEP * steps)) / COMPLEX_STEP)


def cell_distance_correlation(shares: Floats) -> float:
    """Return the distance correlation of ordered cells with these joint shares, (k, l)."""
    distances = [_distances(length, ordered=True) for length in shares.shape]
    return math.sqrt(max(0.0, float(np.real(_squared(shares, *distances)))))


def cell_cramers_v(shares: Floats) -> float:
    """Return Cramer's V of cells with these joint shares, (k, l)."""
    return math.sqrt(float(np.real(_squared(shares, None, None))))


def cell_rank_correlation(shares: Floats) -> float:
    """Return the rank correlation of ordered cells with these joint shares, (k, l), ties at their middle."""
    return float(np.real(_rank_correlation(shares)))
