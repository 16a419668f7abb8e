"""Joint independence of variables from noisy tables of their cells, one of each owner.

With contrasts of every variable that are orthonormal under its noisy shares, a table's products of contrasts
of two or more variables have mean 0 under independence, but for the shares' own errors, and a variance of n
and what the noise adds. Owners' products add up, each in proportion to n over its variance: owners are
strata. The statistic is the sum of the logarithms of their mixed likelihood ratios, smooth ones and the part
of them that is no noise counting more; its null is a parametric bootstrap of tables,
noise and all steps: docs/mathematics/quantile-tables.md.
"""

import math
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from functools import reduce

import numpy as np
import numpy.typing as npt

from tacit_protocol.numerics.noisy_tables import (
    NoisyTable,
    SimulatedTest,
    onto_simplex,
    plausible,
    simulated_null,
)
from tacit_protocol.numerics.randomised_tables import (
    SMOOTHNESS,
    TableEstimates,
    contrast_basis,
    joint_estimates,
)
from tacit_protocol.procedures.counts.release import margin_table, product

Floats = npt.NDArray[np.float64]

MIXED = 0.3
"""Chance that a product of two smooth contrasts is taken to be dependent at all: three pairs that are weakly
dependent, and one that is strongly, are then both found (docs/benchmarks/quantile-tables.md)."""

MIXED_VARIANCE = 10.0
"""Variance of a dependent product in its standard deviations, where no noise is in it."""

EXPONENT_MAX = 300.0
"""Largest exponent of a likelihood ratio: beyond it no simulated one is."""


@dataclass(frozen=True)
class Variable:
    """A variable's cells, those of one column or combinations of several columns' cells in row-major order.

    ``basis`` (K, K) begins with a constant column; ``weights`` (K,) are those of the contrasts made of its
    other columns, smooth ones weighing more; the constant's is not used.
    """

    basis: Floats
    weights: Floats

    @classmethod
    def of(cls, cells: Sequence[int], ordered: Sequence[bool]) -> "Variable":
        """Return the variable of columns with so many cells each, those of numbers ordered."""
        bases, degrees = [], []
        for count, own in zip(cells, ordered, strict=True):
            bases.append(contrast_basis(np.arange(count, 0, -1.0), ordered=own))
            degrees.append(np.arange(count) if own else np.minimum(np.arange(count), 1))
        basis = reduce(lambda one, other: np.asarray(np.kron(one, other)), bases)
        degree = reduce(lambda one, other: np.add.outer(one, other).ravel(), degrees)
        order = np.argsort(degree, kind="stable")
        return cls(basis[:, order], SMOOTHNESS ** np.maximum(degree[order] - 1.0, 0.0))

    @property
    def size(self) -> int:
        """Number of cells."""
        return len(self.basis)

    def contrasts(self, shares: Floats) -> Floats:
        """Return 1 and the contrasts orthonormal under shares (..., K), (..., K, K), their signs fixed."""
        root = np.sqrt(shares)[..., None]
        orthogonal, upper = np.linalg.qr(root * self.basis)
        signs = np.sign(np.diagonal(upper, axis1=-2, axis2=-1))
        return np.asarray(orthogonal * signs[..., None, :] / root)


@dataclass(frozen=True)
class Statistic:
    """The statistic of owners' tables of the same variables: the logarithm of mixed likelihood ratios."""

    variables: tuple[Variable, ...]

    @property
    def shape(self) -> tuple[int, ...]:
        """The variables' numbers of cells."""
        return tuple(variable.size for variable in self.variables)

    @property
    def weights(self) -> Floats:
        """Weight of every product of contrasts, 0 where fewer than two variables' take part, (K_1, ...)."""
        weights = product([variable.weights for variable in self.variables]).reshape(self.shape)
        return np.where(np.count_nonzero(np.indices(self.shape), axis=0) >= 2, weights, 0.0)

    def of(self, counts: Sequence[Floats], tables: Sequence[NoisyTable]) -> Floats:
        """Return the statistic (...) of every owner's counts (..., k), with its table's units and noise."""
        products: Floats = np.zeros(1)
        precisions: Floats = np.zeros(1)
        for own, table in zip(counts, tables, strict=True):
            found, variances = self._products(own, table)
            products = products + table.units / variances * found
            precisions = precisions + table.units**2 / variances
        units = sum(table.units for table in tables)
        axes = tuple(range(-len(self.variables), 0))
        prior = MIXED_VARIANCE * precisions / units
        exponents = np.square(products) / precisions * prior / (1 + prior) / 2
        ratios = np.exp(np.minimum(exponents, EXPONENT_MAX)) / np.sqrt(1 + prior)
        return np.asarray(np.log1p(MIXED * self.weights**2 * (ratios - 1)).sum(axis=axes))

    def _products(self, counts: Floats, table: NoisyTable) -> tuple[Floats, Floats]:
        """Return the sums of all products of contrasts, and their variances, (..., K_1, ...) both."""
        lead, shape = counts.shape[:-1], self.shape
        found = counts.reshape(*lead, *shape)
        noisy: Floats = np.ones(lead)
        for axis, variable in enumerate(self.variables):
            own = variable.contrasts(self._shares(counts, table, axis))
            place = len(lead) + axis
            last = np.moveaxis(found, place, -1)
            crossed = last.reshape(*lead, -1, variable.size) @ own
            found = np.moveaxis(crossed.reshape(last.shape), -1, place)
            noisy = noisy[..., None] * np.square(own).sum(axis=-2)[(..., *(None,) * axis, slice(None))]
        return found, table.units + table.noise_variance * noisy

    def _shares(self, counts: Floats, table: NoisyTable, axis: int) -> Floats:
        """Return a variable's shares, (..., K), each of a unit and a deviation of the noise at least."""
        lead, size = counts.ndim - 1, self.shape[axis]
        others = tuple(lead + other for other in range(len(self.shape)) if other != axis)
        summed = counts.reshape(*counts.shape[:-1], *self.shape).sum(axis=others)
        noise = math.sqrt(table.noise_variance * counts.shape[-1] / size)
        raised = np.maximum(summed, 1 + noise)
        return np.asarray(raised / raised.sum(axis=-1, keepdims=True))

    def nulls(self, table: NoisyTable) -> tuple[Floats, Floats, Floats]:
        """Return probabilities (k,) of independent variables: as at hand, sparser, and more even."""
        cells, found = len(table.counts), []
        for axis, size in enumerate(self.shape):
            others = tuple(other for other in range(len(self.shape)) if other != axis)
            margin = onto_simplex(table.counts.reshape(self.shape).sum(axis=others) / table.units)
            found.append(plausible(margin, cells / size * table.noise_variance / table.units**2, table.units))
        first, sparse, even = (product(list(margins)) for margins in zip(*found, strict=True))
        return first, sparse, even


def independence_test(
    statistic: Statistic,
    tables: Sequence[NoisyTable],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Callable[[float], None] | None = None,
) -> SimulatedTest:
    """Test whether the variables are independent at every owner; p-values are 1/(replicates + 1) or more.

    The p-value is the largest over plausible shares, sparser or more even at all owners at once.
    """
    nulls = [statistic.nulls(table) for table in tables]

    def draw(rng: np.random.Generator, count: int) -> Iterator[tuple[Floats, Floats]]:
        noises = [table.draw_noise(rng, count) for table in tables]
        for place in range(3):
            counts = [
                rng.multinomial(table.units, null[place], size=count) + noise
                for table, null, noise in zip(tables, nulls, noises, strict=True)
            ]
            found = statistic.of(counts, tables)
            yield found, found

    numbers = sum(len(table.counts) for table in tables)
    null = simulated_null(draw, 3, replicates, seed, numbers=numbers, progress=progress)
    return SimulatedTest.of(float(statistic.of([table.counts for table in tables], tables)), null)


def pair_estimates(
    tables: Sequence[NoisyTable],
    shape: tuple[int, ...],
    pair: tuple[int, int],
    ordered: tuple[bool, bool],
    coverage: float,
) -> TableEstimates:
    """Return what owners' tables say of two of their axes: of several owners, of dependence within owners.

    Of several owners the joint shares are the average ones' margins crossed, and the owners' differences from
    their own margins crossed, averaged by units: what differs between owners is in no measure.
    """
    total = sum(table.units for table in tables)
    margins = [margin_table(table, shape, pair) for table in tables]
    size = margins[0][1]
    own, errors = [], []
    for table, _ in margins:
        shares = table.counts / table.units
        cells = onto_simplex(shares)
        # All shares together are 1: what they differ from it by is noise.
        own.append((shares + (1 - shares.sum()) / shares.size).reshape(size))
        sampled = (np.diag(cells) - np.outer(cells, cells)) / table.units
        errors.append(sampled + (np.eye(cells.size) - 1 / cells.size) * table.noise_variance / table.units**2)
    weights = [table.units / total for table, _ in margins]
    mean = sum((w * shares for w, shares in zip(weights, own, strict=True)), np.zeros(size))
    found, covariance = _crossed(mean), np.zeros((mean.size, mean.size))
    for weight, shares, error in zip(weights, own, errors, strict=True):
        found = found + weight * (shares - _crossed(shares))
        slope = weight * (np.eye(mean.size) - _crossing(shares) + _crossing(mean))
        covariance += slope @ error @ slope.T
    return joint_estimates(found, covariance, ordered, coverage)


def _crossed(shares: Floats) -> Floats:
    return np.outer(shares.sum(axis=1), shares.sum(axis=0))


def _crossing(shares: Floats) -> Floats:
    """Return the derivative of the crossed margins (k, l) by the shares, (kl, kl)."""
    k, size = shares.shape
    rows, columns = shares.sum(axis=1), shares.sum(axis=0)
    return np.asarray(
        np.kron(np.eye(k), np.ones((size, size)) * columns[:, None])
        + np.kron(np.ones((k, k)) * rows[:, None], np.eye(size))
    )
