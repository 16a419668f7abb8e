"""The kernel induced by distances over a public diameter: joint independence becomes distance covariance.

k(z, z') = d(z, o) + d(z', o) - d(z, z'), with d in [0, 1] of negative type and o the middle of the domain
(Sejdinovic, Sriperumbudur, Gretton, Fukumizu 2013, with twice their kernel). The squared distance of two
features is 2 d. Derivations: docs/mathematics/curated-distance-correlation.md.
"""

import math
from dataclasses import dataclass

import numpy as np

from tacit_protocol.features.base import FloatMatrix, Rows

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

    def diagonal(self, rows: Rows) -> FloatMatrix:
        """Return [k(x_i, x_i)], (rows,)."""
        numeric, categorical = rows.numeric.shape[1], rows.categorical.shape[1]
        values = np.full(len(rows.numeric), float(categorical))
        if numeric:
            values += math.sqrt(numeric) * 2 * _from_middle(rows.numeric)
        values /= numeric + categorical
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
