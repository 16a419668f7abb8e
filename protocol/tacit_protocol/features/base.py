"""What a feature map is: a bounded vector of a row, and how far replacing the row can move it."""

import math
from typing import Protocol

import numpy as np
import numpy.typing as npt

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
