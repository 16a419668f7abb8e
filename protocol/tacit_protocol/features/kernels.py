"""What a feature map is, kernels on mixed tables, and their random Fourier features.

A feature map gives every row a bounded vector, and says how far replacing the row can move it.

The product kernel is Gaussian or Laplacian over numeric columns times agreement of categories. The distance
kernel, k(z, z') = d(z, o) + d(z', o) - d(z, z') with d in [0, 1] of negative type and o the middle of the
domain (Sejdinovic, Sriperumbudur, Gretton, Fukumizu 2013, with twice their kernel), makes joint independence
distance covariance (docs/mathematics/curated-distance-correlation.md).

The linear kernel is the average over columns of products of scaled numbers, and of agreements of categories:
for genotype counts 0, 1 and 2, whose covariance it compares.

Random Fourier features are phi(x) = F^(-1/2) [r_f(x) cos w_f'u, r_f(x) sin w_f'u]_f, u the scaled numeric
columns, w_f drawn from the kernel's spectrum, and r_f(x) a product over categorical columns c of random
signs, one for all categories with probability s. Their expected inner product is the kernel and their norm 1
for every draw, where sqrt(2/F) cos(w'x + b) passes it by a third (docs/errata.md). Diameter:
docs/mathematics/database-release.md.
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Literal, Protocol

import numpy as np
import numpy.typing as npt

from tacit_protocol.numerics.sincos import wave

FloatMatrix = npt.NDArray[np.float64]
CodeMatrix = npt.NDArray[np.int32]

EVALUATION_ERROR = 1e-9
"""Bound on the L2 distance between a feature vector as computed in float64 and its value under an exact map
that satisfies the norm and the diameter stated by the class.

The exact map is the definition, but for whitening, where it is the definition with the eigensolver's backward
error in the Gram matrix; its regularisation absorbs that error (docs/mathematics/features.md, which derives
both halves). The tests compare with 50-digit arithmetic, for duplicate and nearly duplicate locations too.
"""

PRODUCT_ROWS = 512
"""Rows multiplied at once, always this many: BLAS picks its code by the shape of a product, and other code
rounds otherwise. With one shape, a row's features are the same bits whatever rows stand beside it, so that
replacing a unit of 3 rows by one of 4 changes nobody else's contribution. Small enough to stay in cache."""


class Rows(Protocol):
    """Encoded rows: ``numeric`` (rows, numeric columns) in [0, 1], ``categorical`` (rows, columns) codes."""

    @property
    def numeric(self) -> FloatMatrix:
        """Scaled numeric values."""

    @property
    def categorical(self) -> CodeMatrix:
        """Category codes."""


class FeatureMap(Protocol):
    """A map f from rows to vectors of ``dimension`` coordinates, bounded over the whole domain."""

    @property
    def dimension(self) -> int:
        """Number of coordinates J."""

    @property
    def norm(self) -> float:
        """Bound on the L2 norm of f(x) over the domain."""

    @property
    def diameter(self) -> float:
        """Bound on the L2 norm of f(x) - f(x') over the domain: the sensitivity of a sum over units.

        A unit that owns several rows contributes their average, which lies in the convex hull of the
        features; a set and its convex hull have the same diameter.
        """

    @property
    def second_moment_diameter(self) -> float:
        """Bound on the Frobenius norm of f f' - g g' for f, g in the convex hull of the features."""

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, dimension) float64."""


class InBall:
    """A feature map whose vectors lie in the ball of its norm."""

    @property
    def norm(self) -> float:
        """Bound on the L2 norm of f(x) over the domain."""
        raise NotImplementedError

    @property
    def second_moment_diameter(self) -> float:
        """The square root of 2 times the squared norm: |f|^4 + |g|^4 - 2 (f'g)^2 is at most 2 norm^4."""
        return math.sqrt(2) * self.norm**2


class OnUnitSphere(InBall):
    """A feature map whose vectors have norm 1 for every row: outer products lie sqrt 2 apart at most."""

    @property
    def norm(self) -> float:
        """1, attained by every row."""
        return 1.0


def row_products(x: FloatMatrix, matrix: FloatMatrix) -> FloatMatrix:
    """Return ``x @ matrix``, (rows, columns of ``matrix``); a row's result does not depend on its neighbours.

    ``x`` is (rows, inner) and ``matrix`` (inner, columns).
    """
    x = np.ascontiguousarray(x)
    count = x.shape[0]
    products = np.empty((count, matrix.shape[1]))
    whole = count - count % PRODUCT_ROWS
    for start in range(0, whole, PRODUCT_ROWS):
        np.matmul(x[start : start + PRODUCT_ROWS], matrix, out=products[start : start + PRODUCT_ROWS])
    if whole < count:
        padded = np.zeros((PRODUCT_ROWS, x.shape[1]))
        padded[: count - whole] = x[whole:]
        products[whole:] = (padded @ matrix)[: count - whole]
    return products


BANDWIDTH_MIN = 1e-6
BANDWIDTH_MAX = 1e6
"""Columns are scaled to [0, 1]: outside this range a kernel tells rows apart only by equality, or not at all,
and squares of the bandwidth would leave the range in which float64 is accurate."""

EXPANSION_MAX = 64.0
"""Largest columns / bandwidth^2 at which |x - t|^2 is computed as |x|^2 - 2 x't + |t|^2, one matrix product.

The three terms cancel, which costs about 1e-16 columns / bandwidth^2 in the exponent, and whitening can make
that 1e4 times larger. Narrower kernels sum squared differences instead: slower, and accurate always.
"""


@dataclass(frozen=True)
class ProductKernel:
    """k(x, y) = k_numeric(x, y) * similarity^(number of categorical columns that differ).

    ``shape`` is ``gaussian``: exp(-|x - y|_2^2 / (2 bandwidth^2)), or ``laplacian``:
    exp(-|x - y|_1 / bandwidth), on columns scaled to [0, 1]. ``similarity`` in [0, 1) is the kernel's value
    at two different categories of one column; 0 is plain equality. Each factor is positive semidefinite, so
    their product is; 0 <= k <= 1 and k(x, x) = 1 (docs/mathematics/features.md).

    Raises ValueError where the bandwidth lies outside [``BANDWIDTH_MIN``, ``BANDWIDTH_MAX``] or the
    similarity outside [0, 1).
    """

    shape: Literal["gaussian", "laplacian"]
    bandwidth: float
    similarity: float = 0.0

    def __post_init__(self) -> None:
        if not BANDWIDTH_MIN <= self.bandwidth <= BANDWIDTH_MAX:
            raise ValueError(f"the bandwidth must lie in [{BANDWIDTH_MIN}, {BANDWIDTH_MAX}]")
        if not 0 <= self.similarity < 1:
            raise ValueError("the similarity of different categories must lie in [0, 1)")

    def gram(self, rows: Rows, locations: Rows) -> FloatMatrix:
        """Return [k(x_i, t_j)], (rows, locations) float64."""
        values = self._numeric_gram(np.ascontiguousarray(rows.numeric), locations.numeric)
        if rows.categorical.shape[1]:
            values *= self._categorical_gram(rows.categorical, locations.categorical)
        return values

    def minimum(self, numeric_columns: int, categorical_columns: int) -> float:
        """Smallest value over the domain: what two rows at opposite corners still share."""
        return math.exp(self._log_minimum(numeric_columns, categorical_columns))

    def distance_max(self, numeric_columns: int, categorical_columns: int) -> float:
        """Largest distance |k(x, .) - k(y, .)| = sqrt(2 - 2 k(x, y)) over the domain, at most sqrt 2.

        Accurate where the bandwidth is so wide that the minimum rounds to 1.
        """
        return math.sqrt(-2 * math.expm1(self._log_minimum(numeric_columns, categorical_columns)))

    def product_distance_max(self, numeric_columns: int, categorical_columns: int) -> float:
        """Largest distance of h (x) h and h' (x) h' with h = k(x, .), h' = k(y, .): sqrt(2 - 2 k(x, y)^2)."""
        return math.sqrt(-2 * math.expm1(2 * self._log_minimum(numeric_columns, categorical_columns)))

    def _log_minimum(self, numeric_columns: int, categorical_columns: int) -> float:
        farthest = {
            "gaussian": numeric_columns / (2 * self.bandwidth**2),
            "laplacian": numeric_columns / self.bandwidth,
        }[self.shape]
        if not categorical_columns:
            return -farthest
        if self.similarity == 0:
            return -math.inf
        return -farthest + categorical_columns * math.log(self.similarity)

    def _numeric_gram(self, x: FloatMatrix, t: FloatMatrix) -> FloatMatrix:
        if self.shape == "laplacian":
            return _exponential(_sum_over_columns(np.abs, x, t), -self.bandwidth)
        if x.shape[1] / self.bandwidth**2 > EXPANSION_MAX:
            return _exponential(_sum_over_columns(np.square, x, t), -2 * self.bandwidth**2)
        return self._expanded_gaussian((x - 0.5) / self.bandwidth, (t - 0.5) / self.bandwidth)

    @staticmethod
    def _expanded_gaussian(x: FloatMatrix, t: FloatMatrix) -> FloatMatrix:
        exponent = row_products(x, t.T)
        exponent -= np.einsum("ij,ij->i", x, x)[:, None] / 2
        exponent -= np.einsum("ij,ij->i", t, t)[None, :] / 2
        np.minimum(exponent, 0.0, out=exponent)
        return np.exp(exponent, out=exponent)

    def _categorical_gram(self, x: CodeMatrix, t: CodeMatrix) -> FloatMatrix:
        product = np.ones((x.shape[0], t.shape[0]))
        for column in range(x.shape[1]):
            product *= np.where(x[:, column, None] == t[None, :, column], 1.0, self.similarity)
        return product


def _sum_over_columns(term: np.ufunc, x: FloatMatrix, t: FloatMatrix) -> FloatMatrix:
    """Return [sum over columns c of term(x_ic - t_jc)], (rows, locations)."""
    total: FloatMatrix | None = None
    for column in range(x.shape[1]):
        difference = x[:, column, None] - t[None, :, column]
        term(difference, out=difference)
        total = difference if total is None else np.add(total, difference, out=total)
    return np.zeros((x.shape[0], t.shape[0])) if total is None else total


def _exponential(total: FloatMatrix, scale: float) -> FloatMatrix:
    """Return exp(total / scale), in the place of ``total``."""
    total /= scale
    return np.exp(total, out=total)


ROUNDINGS = 32
"""Roundings of a kernel value besides the sum over columns: roots, weights, three terms, unit averages."""


@dataclass(frozen=True)
class DistanceKernel:
    """Induced kernel of columns, numeric in [0, 1] and categorical: 0 <= k(z, z') <= 1.

    d is an average over columns: the p numeric ones together count p times, with Euclidean distance over the
    diameter sqrt p; two categories of a column are 1 apart. o has every number at 1/2, and is 1/2 from every
    category. Then d(z, o) <= 1/2, so that k <= 1; and k >= 0 by the triangle inequality.
    """

    def gram(self, rows: Rows, locations: Rows) -> FloatMatrix:
        """Return [k(x_i, t_j)], (rows, locations) float64."""
        x, t = rows.numeric, locations.numeric
        columns, numeric = x.shape[1] + rows.categorical.shape[1], x.shape[1]
        values = np.zeros((len(x), len(t)))
        for column in range(rows.categorical.shape[1]):
            values += rows.categorical[:, column, None] == locations.categorical[None, :, column]
        if numeric:
            values += math.sqrt(numeric) * self._induced(x, t)
        values /= columns
        return values

    @staticmethod
    def error(numeric_columns: int) -> float:
        """Bound |computed k - k| over the domain, for so many numeric columns, by the rules of rounding."""
        return 3 * (numeric_columns + ROUNDINGS) * 2.0**-53

    @staticmethod
    def _induced(x: FloatMatrix, t: FloatMatrix) -> FloatMatrix:
        """Return |x - o| + |t - o| - |x - t|, which is at most the root of the number of columns."""
        if x.shape[1] == 1:
            between = np.abs(x - t.T)
        else:
            between = np.zeros((len(x), len(t)))
            for column in range(x.shape[1]):
                difference = x[:, column, None] - t[None, :, column]
                difference *= difference
                between += difference
            np.sqrt(between, out=between)
        np.subtract(_from_middle(x)[:, None], between, out=between)
        between += _from_middle(t)[None, :]
        return between


def _from_middle(x: FloatMatrix) -> FloatMatrix:
    if x.shape[1] == 1:
        return np.abs(x[:, 0] - 0.5)
    # Column by column: a row's value must not depend on the rows beside it.
    total = np.zeros(len(x))
    for column in range(x.shape[1]):
        total += (x[:, column] - 0.5) ** 2
    return np.asarray(np.sqrt(total))


@dataclass(frozen=True)
class LinearKernel:
    """k(x, t) = (x't + categorical columns that agree) / columns, of numbers in [0, 1]: 0 <= k <= 1."""

    def gram(self, rows: Rows, locations: Rows) -> FloatMatrix:
        """Return [k(x_i, t_j)], (rows, locations) float64."""
        values = row_products(np.ascontiguousarray(rows.numeric), locations.numeric.T)
        for column in range(rows.categorical.shape[1]):
            values += rows.categorical[:, column, None] == locations.categorical[None, :, column]
        values /= rows.numeric.shape[1] + rows.categorical.shape[1]
        return values

    @staticmethod
    def error(numeric_columns: int) -> float:
        """Bound |computed k - k| over the domain, for so many numeric columns, by the rules of rounding."""
        return (numeric_columns + ROUNDINGS) * 2.0**-53


Signs = npt.NDArray[np.float64]

GRID_POINTS = 4096
"""Points at most of the grid on which the smallest inner product is looked for: some milliseconds."""

PATTERNS_MAX = 150
"""Most pairs of cells of the categories for which it is looked for; of more the bound is the plain 2."""

ROUNDING = 1e-9
"""Allowance for the rounding of an average of cosines, far above what it is."""


@dataclass(frozen=True)
class RandomFourier(OnUnitSphere):
    """Pairs at ``frequencies`` (F, numeric columns), in radians per unit of the scaled columns.

    ``signs`` has (F, categories) of +1 and -1 for each categorical column. Without numeric columns the sines
    are left out: they are all 0.
    """

    frequencies: FloatMatrix
    signs: tuple[Signs, ...] = ()

    @classmethod
    def draw(
        cls,
        kernel: ProductKernel,
        numeric: int,
        categories: Sequence[int],
        count: int,
        rng: np.random.Generator,
    ) -> "RandomFourier":
        """Draw ``count`` frequencies of the kernel, and signs for columns of so many categories."""
        shape = (count, numeric)
        drawn = rng.standard_normal(shape) if kernel.shape == "gaussian" else rng.standard_cauchy(shape)
        signs = []
        for number in categories:
            table = 2.0 * rng.integers(0, 2, (count, number)) - 1.0
            alike = rng.random(count) < kernel.similarity
            signs.append(np.where(alike[:, None], table[:, :1], table))
        return cls(drawn / kernel.bandwidth, tuple(signs))

    @property
    def count(self) -> int:
        """F, the number of frequencies."""
        return len(self.frequencies)

    @property
    def dimension(self) -> int:
        """2 F, or F where there are no numeric columns."""
        return self.count * (2 if self.frequencies.shape[1] else 1)

    @cached_property
    def diameter(self) -> float:
        """At most 2; less where a grid shows that inner products stay above -1."""
        return min(2.0, math.sqrt(2 - 2 * self.smallest_product()))

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return phi, (rows, dimension): all cosines, then all sines."""
        signs = self._signs_of(rows)
        if not self.frequencies.shape[1]:
            return np.full((len(rows.numeric), self.count), 1.0) * signs
        waves = wave(row_products(rows.numeric, self._turns.T))
        features = np.empty((len(rows.numeric), self.dimension))
        np.multiply(waves.cosines, signs, out=features[:, : self.count])
        np.multiply(waves.sines, signs, out=features[:, self.count :])
        return features

    def _signs_of(self, rows: Rows) -> FloatMatrix | float:
        """Return each row's signs over the root of F, (rows, F); of no categories one number."""
        scale = 1 / math.sqrt(self.count)
        if not self.signs:
            return scale
        signs = self.signs[0].T[rows.categorical[:, 0]] * scale
        for column, table in enumerate(self.signs[1:], 1):
            signs *= table.T[rows.categorical[:, column]]
        return signs

    @cached_property
    def _turns(self) -> FloatMatrix:
        """The frequencies in turns."""
        return self.frequencies / (2 * math.pi)

    def smallest_product(self) -> float:
        """Bound the inner product of two rows' features from below, in [-1, 1], over the whole domain.

        Between points of a grid of step d on [-1, 1]^D the average of cosines exceeds its minimum by at most
        L D (d/2)^2 / 2, L the largest eigenvalue of (1/F) sum w w' (docs/mathematics/database-release.md).
        """
        patterns = self._patterns()
        columns = self.frequencies.shape[1]
        if patterns is None:
            return -1.0
        if not columns:
            return max(-1.0, float(patterns.mean(axis=1).min()) - ROUNDING)
        side = int(GRID_POINTS ** (1 / columns))
        if side < 2:
            return -1.0
        steps = np.linspace(-1.0, 1.0, side)
        grid = np.array(list(itertools.product(steps, repeat=columns)))
        products = np.cos(grid @ self.frequencies.T) @ patterns.T / self.count
        curvature = float(np.linalg.eigvalsh(self.frequencies.T @ self.frequencies / self.count)[-1])
        between = curvature * columns * (1 / (side - 1)) ** 2 / 2
        return max(-1.0, float(products.min()) - float(between) - ROUNDING)

    def _patterns(self) -> Signs | None:
        """Return the products of two rows' signs, (pairs, F), each once; None where they are too many."""
        cells: Signs = np.ones((1, self.count))
        for table in self.signs:
            if len(cells) * table.shape[1] > PATTERNS_MAX:
                return None
            cells = (cells[:, None, :] * table.T[None, :, :]).reshape(-1, self.count)
        pairs = list(itertools.combinations_with_replacement(range(len(cells)), 2))
        if len(pairs) > PATTERNS_MAX:
            return None
        return np.unique(np.array([cells[a] * cells[b] for a, b in pairs]), axis=0)


@dataclass(frozen=True)
class KernelMixture:
    """A weighted average of product kernels: sees structure at several scales. Weights are public.

    ``kernels`` and ``weights`` have the same length of at least 1; weights are positive and add up to 1.
    """

    kernels: tuple[ProductKernel, ...]
    weights: tuple[float, ...]

    def gram(self, rows: Rows, locations: Rows) -> FloatMatrix:
        """Return [k(x_i, t_j)], (rows, locations) float64."""
        total = self.kernels[0].gram(rows, locations)
        if len(self.kernels) == 1:
            return total
        total *= self.weights[0]
        for kernel, weight in zip(self.kernels[1:], self.weights[1:], strict=True):
            total += weight * kernel.gram(rows, locations)
        return total

    def error(self, numeric_columns: int) -> float:
        """Bound |computed k - k| over the domain, for so many numeric columns, by the rules of rounding.

        A sum over m columns has a relative error of m units of 2^-53; expanded exponents have terms that
        cancel.
        """
        largest = 0.0
        for kernel in self.kernels:
            expanded = numeric_columns / kernel.bandwidth**2
            terms = expanded / 2 if kernel.shape == "gaussian" and expanded <= EXPANSION_MAX else 0.0
            largest = max(largest, 1 + terms)
        return (numeric_columns + ROUNDINGS) * 2.0**-53 * largest
