"""Explicit features of kernels, of a rank that the kernel has over its whole domain, whatever the rows.

A factor of a kernel matrix between units would have about as many rows as the units have distinct values,
and the time that it takes would tell how many. So it is the kernel that is factorised here: a smooth one
between public points, a column at a time; one of categories between their codes; products of both. What
features leave out is bounded over the domain (docs/mathematics/joint-independence.md, "Features of a fixed
rank").
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import lru_cache
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
from scipy.linalg import solve_triangular

from tacit_protocol.domain import linear_algebra
from tacit_protocol.features.kernels import (
    DistanceKernel,
    FloatMatrix,
    KernelMixture,
    LinearKernel,
    ProductKernel,
    Rows,
)

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

RANK_MAX = 400
"""Highest rank: beyond, sums over pairs of units take less time."""

LEFT_OUT = 5e-14
"""Bound on what features leave out of a kernel value: half of it, where there are several numeric columns,
for products of their features that are dropped."""

POLYNOMIAL_ERROR = 1e-9
"""How far a kernel function is, by the kernel's own norm, from a polynomial of its place."""

POINTS_PER_DEGREE = 4
"""Public points for each degree of that polynomial."""

BETWEEN = 1 / math.cos(math.pi / (2 * POINTS_PER_DEGREE))
"""How much larger than at the points a polynomial may be between them."""

DEGREE_MAX = 1024
"""Highest degree: a kernel that needs a higher one has a rank far above RANK_MAX."""

RESIDUAL_MAX = 1e-15
"""Where factorising between the points stops: entries are then as good as their evaluation."""

COLUMNS_AT_ONCE = 4096
"""Rows of a table whose features are solved for at once."""


def features_of(kernel: object, numeric: int, categories: Sequence[int]) -> "Features | None":
    """Return features of a kernel: so many numeric columns in [0, 1], categorical ones of so many codes.

    None of a kernel without a finite rank, or with one above RANK_MAX: what is decided here is public.
    """
    return _features_of(kernel, numeric, tuple(categories))


@lru_cache(maxsize=256)
def _features_of(kernel: object, numeric: int, categories: tuple[int, ...]) -> "Features | None":
    if isinstance(kernel, LinearKernel) or (isinstance(kernel, DistanceKernel) and not numeric):
        return _within_rank(Coordinates(numeric, categories))
    mixture = KernelMixture((kernel,), (1.0,)) if isinstance(kernel, ProductKernel) else kernel
    if not isinstance(mixture, KernelMixture):
        return None
    if numeric and any(each.shape != "gaussian" for each in mixture.kernels):
        return None
    # One thread in linear algebra: its results may depend on its own.
    with linear_algebra().limit(limits=1, user_api="blas"):
        similarities = {each.similarity for each in mixture.kernels}
        if numeric <= 1 and len(similarities) == 1:
            return _product(mixture, numeric, categories)
        found = [_product(KernelMixture((each,), (1.0,)), numeric, categories) for each in mixture.kernels]
    parts = tuple(part for part in found if part is not None)
    return _within_rank(Weighted(parts, mixture.weights)) if len(parts) == len(found) else None


class Directions(NamedTuple):
    """Cells of a column's values, equally wide, in each of which features have few directions."""

    each: Floats
    """Of every cell its directions, orthonormal, (cells, rank, directions)."""

    def places(self, values: Floats) -> Integers:
        """Return the cells of values, (n,)."""
        cells = len(self.each)
        return np.clip(np.floor(values * cells), 0, cells - 1).astype(np.int64)


class Features:
    """Features whose inner products are a kernel's values, to within LEFT_OUT and rounding."""

    dimension: int

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, dimension)."""
        raise NotImplementedError

    def cells(self, number: int, error: float) -> Directions | None:
        """Cut the domain into cells whose directions miss features by ``error`` at most, by norm; or None."""


def _within_rank(features: Features) -> Features | None:
    return features if features.dimension <= RANK_MAX else None


class Coordinates(Features):
    """Features of the linear kernel, and of distances between categories: numbers and indicators."""

    def __init__(self, numeric: int, categories: tuple[int, ...]) -> None:
        self._numeric, self._categories = numeric, categories
        self.dimension = numeric + sum(categories)

    def __call__(self, rows: Rows) -> FloatMatrix:
        found = [rows.numeric] + [
            (codes[:, None] == np.arange(count)).astype(np.float64)
            for codes, count in zip(rows.categorical.T, self._categories, strict=True)
        ]
        return np.concatenate(found, axis=1) / math.sqrt(self._numeric + len(self._categories))


class Weighted(Features):
    """Features of a weighted sum of kernels, side by side."""

    def __init__(self, parts: Sequence[Features], weights: Sequence[float]) -> None:
        self._parts, self._weights = parts, weights
        self.dimension = sum(part.dimension for part in parts)

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, dimension)."""
        found = [math.sqrt(w) * part(rows) for part, w in zip(self._parts, self._weights, strict=True)]
        return np.concatenate(found, axis=1)


class _Part(NamedTuple):
    """A factor of a product kernel: the features of one column, and what their squares are at most."""

    place: int
    """The column, among the numeric ones or among the categorical ones."""

    own: "SmoothColumn | Floats"
    """The features of a numeric column; or of each code of a categorical one, (codes, features)."""

    squares: Floats

    def of(self, rows: Rows) -> FloatMatrix:
        """Return the column's features, (rows, features)."""
        if isinstance(self.own, SmoothColumn):
            return self.own(rows.numeric[:, self.place])
        return self.own[rows.categorical[:, self.place]]


class Products(Features):
    """Features of a product of kernels of single columns: products of theirs, but for the smallest."""

    def __init__(self, parts: Sequence[_Part], kept: Integers, line: "SmoothColumn | None") -> None:
        self._parts, self._kept, self._line = parts, kept, line
        self.dimension = len(kept)

    def __call__(self, rows: Rows) -> FloatMatrix:
        product = np.ones((len(rows.numeric), 1))
        for index, part in enumerate(self._parts):
            found = part.of(rows)[:, self._kept[:, index]]
            product = found if not index else product * found
        return product

    def cells(self, number: int, error: float) -> Directions | None:
        """Cut one numeric column's domain into cells; None where there are other columns."""
        return None if self._line is None else self._line.cells(number, error)


def _product(kernel: KernelMixture, numeric: int, categories: tuple[int, ...]) -> Features | None:
    """Return features of Gaussian kernels times agreements of categories; one kernel for several columns."""
    parts, line = list[_Part](), None
    if math.prod(categories) > RANK_MAX:
        return None
    if numeric:
        several = numeric > 1
        line = SmoothColumn.of(kernel, LEFT_OUT / (2 * numeric if several else 1))
        if line is None:
            return None
        parts += [_Part(index, line, line.squares) for index in range(numeric)]
    similarity = kernel.kernels[0].similarity
    for index, count in enumerate(categories):
        shared = [np.full((count, 1), math.sqrt(similarity))] if similarity else []
        factor = np.concatenate([math.sqrt(1 - similarity) * np.eye(count), *shared], axis=1)
        parts.append(_Part(index, factor, np.square(factor).max(axis=0)))
    kept = _kept([part.squares for part in parts], LEFT_OUT / 2 if numeric > 1 else 0.0)
    if kept is None:
        return None
    return Products(parts, kept, line if len(parts) == numeric == 1 else None)


def _kept(squares: Sequence[Floats], left_out: float) -> Integers | None:
    """Return which products of features stay, (rank, parts); those that go add up to ``left_out`` at most.

    None where more than RANK_MAX stay.
    """
    indices, sizes = np.zeros((1, 0), np.int64), np.ones(1)
    for number, own in enumerate(squares):
        # What goes here goes with all features of the parts that follow.
        rest = math.prod(float(each.sum()) for each in squares[number + 1 :])
        products = np.multiply.outer(sizes, own).ravel()
        order = np.argsort(products, kind="stable")
        gone = int(np.sum(np.cumsum(products[order]) * rest <= left_out / len(squares)))
        stay = np.sort(order[gone:])
        if len(stay) > RANK_MAX:
            return None
        before, last = np.divmod(stay, len(own))
        indices, sizes = np.column_stack([indices[before], last]), products[stay]
    return indices


@dataclass(frozen=True, repr=False)
class SmoothColumn:
    """Features of a Gaussian kernel, or a mixture of them, of one column of values in [0, 1]."""

    kernel: KernelMixture
    pivots: Floats
    """Public points between which the kernel is factorised, (pivots,)."""

    factor: Floats
    """Its Cholesky factor there, lower triangular, (pivots, pivots)."""

    basis: Floats
    """Directions of what the factor gives, (pivots, rank), by their size over the domain."""

    squares: Floats
    """What the features' squares are at most, (rank,)."""

    @classmethod
    def of(cls, kernel: KernelMixture, left_out: float) -> "SmoothColumn | None":
        """Return features that leave out at most so much of any kernel value; None of a rank too high."""
        narrowest = min(each.bandwidth for each in kernel.kernels)
        points = _points(narrowest)
        if points is None:
            return None
        found = _pivoted(kernel, points)
        if found is None:
            return None
        pivots, values, residual = found
        basis = np.linalg.svd(values, full_matrices=False)[0]
        coordinates = np.square(basis.T @ values)
        dropped = np.cumsum(coordinates[::-1], axis=0)[::-1] + residual
        rank = 1 + int(np.sum(dropped.max(axis=1)[1:] > _at_points(math.sqrt(left_out)) ** 2))
        squares = _between(np.sqrt(coordinates[:rank].max(axis=1))) ** 2
        return cls(kernel, points[pivots], np.tril(values[:, pivots].T), basis[:, :rank], squares)

    def __call__(self, values: Floats) -> FloatMatrix:
        """Return the features of values, (n,): (n, rank)."""
        found = np.empty((len(values), self.basis.shape[1]))
        for start in range(0, len(values), COLUMNS_AT_ONCE):
            own = values[start : start + COLUMNS_AT_ONCE]
            solved = solve_triangular(self.factor, _matrix(self.kernel, self.pivots, own), lower=True)
            found[start : start + COLUMNS_AT_ONCE] = solved.T @ self.basis
        return found

    def cells(self, number: int, error: float) -> Directions | None:
        """Cut [0, 1] into cells; of each the same number of directions."""
        own = _points(number * min(each.bandwidth for each in self.kernel.kernels))
        if own is None:
            return None
        places = [self((cell + own) / number).T for cell in range(number)]
        with linear_algebra().limit(limits=1, user_api="blas"):
            directions = [np.linalg.svd(found, full_matrices=False)[0] for found in places]
        missed = [
            np.cumsum(np.square(basis.T @ found)[::-1], axis=0)[::-1].max(axis=1)
            for basis, found in zip(directions, places, strict=True)
        ]
        kept = max(1 + int(np.sum(each[1:] > _at_points(error) ** 2)) for each in missed)
        return Directions(np.stack([basis[:, :kept] for basis in directions]))


def _between(at_points: Floats) -> Floats:
    """Bound a norm over the domain that is so large at the points."""
    return BETWEEN * (at_points + POLYNOMIAL_ERROR) + POLYNOMIAL_ERROR


def _at_points(bound: float) -> float:
    """Return how large a norm may be at the points, so as to be at most ``bound`` over the domain."""
    return (bound - POLYNOMIAL_ERROR) / BETWEEN - POLYNOMIAL_ERROR


def _points(bandwidth: float) -> Floats | None:
    """Return Chebyshev points of [0, 1], POINTS_PER_DEGREE for each degree of the polynomial; or None.

    The degree is that at which, for some ellipse around [0, 1] of size r,
    2 exp((r - 1/r)^2 / (16 bandwidth^2)) r^-degree / (r - 1) is at most POLYNOMIAL_ERROR.
    """
    sizes = np.exp(np.geomspace(1e-4, 4, 2000))
    logarithm = math.log(2) + (sizes - 1 / sizes) ** 2 / (16 * bandwidth**2) - np.log(sizes - 1)
    degree = float(np.min(np.ceil((logarithm - math.log(POLYNOMIAL_ERROR)) / np.log(sizes))))
    if degree > DEGREE_MAX:
        return None
    count = POINTS_PER_DEGREE * max(1, int(degree))
    return np.asarray(0.5 + 0.5 * np.cos(np.pi * (np.arange(count) + 0.5) / count))


def _matrix(kernel: KernelMixture, points: Floats, values: Floats) -> FloatMatrix:
    """Return kernel values, (points, values), each from the squared difference itself."""
    squared = np.square(points[:, None] - values)
    weighted = [
        weight * np.exp(squared / (-2 * each.bandwidth**2))
        for each, weight in zip(kernel.kernels, kernel.weights, strict=True)
    ]
    return np.asarray(sum(weighted[1:], start=weighted[0]))


def _pivoted(kernel: KernelMixture, points: Floats) -> tuple[Integers, Floats, Floats] | None:
    """Return the pivots' places, the factor at all points, (pivots, points), and what is left, (points,).

    None where there are more than RANK_MAX pivots.
    """
    residual, rows, pivots = np.ones(len(points)), np.empty((RANK_MAX, len(points))), list[int]()
    for rank in range(RANK_MAX):
        pivot = int(np.argmax(residual))
        if residual[pivot] <= RESIDUAL_MAX:
            return np.array(pivots), rows[:rank].copy(), np.maximum(residual, 0.0)
        row = _matrix(kernel, points[pivot : pivot + 1], points)[0] - rows[:rank, pivot] @ rows[:rank]
        rows[rank] = row / math.sqrt(residual[pivot])
        residual -= rows[rank] ** 2
        pivots.append(pivot)
        residual[pivots] = 0.0
    return None
