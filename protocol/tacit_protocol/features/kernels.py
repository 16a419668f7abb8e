"""Kernels on mixed tables: Gaussian or Laplacian over numeric columns times agreement of categories."""

from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit_protocol.features.base import CodeMatrix, FloatMatrix, Rows


@dataclass(frozen=True)
class ProductKernel:
    """k(x, y) = k_numeric(x, y) * similarity^(number of categorical columns that differ).

    ``shape`` is ``gaussian``: exp(-|x - y|_2^2 / (2 bandwidth^2)), or ``laplacian``:
    exp(-|x - y|_1 / bandwidth), on columns scaled to [0, 1]. ``similarity`` in [0, 1) is the kernel's value
    at two different categories of one column; 0 is plain equality. Each factor is positive definite, so
    their product is; 0 <= k <= 1 and k(x, x) = 1.
    """

    shape: Literal["gaussian", "laplacian"]
    bandwidth: float
    similarity: float = 0.0

    def gram(self, rows: Rows, locations: Rows) -> FloatMatrix:
        """Return [k(x_i, t_j)], (rows, locations) float64."""
        values = self._numeric_gram(rows.numeric, locations.numeric)
        if rows.categorical.shape[1]:
            values *= self._categorical_gram(rows.categorical, locations.categorical)
        return values

    def minimum(self, numeric_columns: int, categorical_columns: int) -> float:
        """Smallest value over the domain: what two rows at opposite corners still share."""
        farthest = {
            "gaussian": numeric_columns / (2 * self.bandwidth**2),
            "laplacian": numeric_columns / self.bandwidth,
        }[self.shape]
        return float(np.exp(-farthest) * self.similarity**categorical_columns)

    def _numeric_gram(self, x: FloatMatrix, t: FloatMatrix) -> FloatMatrix:
        if self.shape == "gaussian":
            exponent = x @ (t.T / self.bandwidth**2)
            exponent -= np.einsum("ij,ij->i", x, x)[:, None] / (2 * self.bandwidth**2)
            exponent -= np.einsum("ij,ij->i", t, t)[None, :] / (2 * self.bandwidth**2)
            np.minimum(exponent, 0.0, out=exponent)
            return np.exp(exponent, out=exponent)
        distance = np.zeros((x.shape[0], t.shape[0]))
        for column in range(x.shape[1]):
            distance += np.abs(x[:, column, None] - t[None, :, column])
        return np.asarray(np.exp(-distance / self.bandwidth))

    def _categorical_gram(self, x: CodeMatrix, t: CodeMatrix) -> FloatMatrix:
        product = np.ones((x.shape[0], t.shape[0]))
        for column in range(x.shape[1]):
            product *= np.where(x[:, column, None] == t[None, :, column], 1.0, self.similarity)
        return product
