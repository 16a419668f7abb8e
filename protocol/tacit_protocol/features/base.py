"""What a feature map is: a bounded vector of a row, and how far replacing the row can move it."""

from typing import Protocol

import numpy as np
import numpy.typing as npt

FloatMatrix = npt.NDArray[np.float64]
CodeMatrix = npt.NDArray[np.int32]

EVALUATION_ERROR = 1e-9
"""Bound on the L2 distance between a feature vector as computed in float64 and as defined.

The sines, exponentials and inverse square roots in this package lose at most a few units in the last place
times the conditioning they allow (1e4 for the whitening); the tests compare them with 50-digit arithmetic.
"""


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
