"""Kernels on mixed tables: Gaussian or Laplacian over numeric columns times agreement of categories."""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit_protocol.features.base import CodeMatrix, FloatMatrix, Rows, row_products

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

    def diagonal(self, rows: Rows) -> FloatMatrix:
        """Return [k(x_i, x_i)], (rows,): all 1."""
        return np.ones(len(rows.numeric))

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
