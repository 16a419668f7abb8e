"""Pairs of columns: the tensor products of two columns' characteristic features, for pure interactions.

For columns c < c' with unit-norm parts phi_c, phi_c' (cosines and sines of a numeric column, indicators of a
categorical one), the pair contributes phi_c (x) phi_c', whose inner product is k_c k_c'. With P pairs, each
divided by sqrt P, the kernel is the average of k_c k_c' over pairs: the second-order term of an ANOVA kernel.

Replacing a row moves it by at most sqrt(2 - 2 m), m the smallest average over pairs of k_c k_c'. Each k_c
lies in [-a, 1] for a numeric column (a = -min_t of its kernel) and in {0, 1} for a categorical one, and the
sum is linear in every single k_c, so its minimum is at the ends: with p numeric columns at 1, q at -a and r
categories that agree, the sum is ((p + r - q a)^2 - (p + r + q a^2)) / 2. All (p, r) are tried.
"""

import itertools
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.base import FloatMatrix, Rows
from tacit_protocol.features.column_wise import column_parts, squared_movement_max
from tacit_protocol.features.waves import Harmonics


def smallest_pair_average(numeric: int, categorical: int, lowest: float) -> float:
    """Smallest average over pairs of k_c k_c', with numeric kernels in [-``lowest``, 1]."""
    sums = []
    for p, r in itertools.product(range(numeric + 1), range(categorical + 1)):
        q = numeric - p
        total = p + r - q * lowest
        sums.append((total**2 - (p + r + q * lowest**2)) / 2)
    columns = numeric + categorical
    return min(sums) / (columns * (columns - 1) / 2)


class Pairwise:
    """Features of every pair of columns; the pairs' order is that of ``pairs``."""

    def __init__(
        self,
        numeric: int,
        categories: tuple[int, ...],
        cycles: tuple[float, ...],
        weights: tuple[float, ...],
    ) -> None:
        self._numeric = numeric
        self._categories = categories
        self._harmonics = Harmonics(cycles)
        self._scales = np.sqrt(np.asarray(weights) / np.sum(weights))
        self.part_widths = [2 * len(cycles)] * numeric + list(categories)
        self.pairs = tuple(itertools.combinations(range(len(self.part_widths)), 2))
        if not self.pairs:
            raise ValueError("pairs need at least two columns")
        self.widths = tuple(self.part_widths[a] * self.part_widths[b] for a, b in self.pairs)
        lowest = max(0.0, squared_movement_max(cycles, weights) / 2 - 1)
        average = smallest_pair_average(numeric, len(categories), lowest)
        self._diameter = float(np.sqrt(2 - 2 * average))

    @property
    def dimension(self) -> int:
        """Sum over pairs of the product of the two columns' widths."""
        return sum(self.widths)

    @property
    def norm(self) -> float:
        """1, attained by every row."""
        return 1.0

    @property
    def diameter(self) -> float:
        """The square root of 2 - 2 m: see the module's derivation."""
        return self._diameter

    @property
    def second_moment_diameter(self) -> float:
        """The square root of 2, for vectors in the unit ball."""
        return float(np.sqrt(2))

    def parts(self, rows: Rows) -> FloatMatrix:
        """Return every column's part side by side, (rows, sum of ``part_widths``), each of norm 1."""
        return column_parts(rows, self._harmonics, self._scales, self._categories, 1.0)

    @cached_property
    def factors(self) -> tuple[npt.NDArray[np.intp], npt.NDArray[np.intp]]:
        """Positions in ``parts`` of the two factors of every coordinate, (dimension,) each."""
        starts = np.cumsum([0, *self.part_widths])
        left, right = [], []
        for a, b in self.pairs:
            grid = np.meshgrid(
                np.arange(starts[a], starts[a + 1]), np.arange(starts[b], starts[b + 1]), indexing="ij"
            )
            left.append(grid[0].ravel())
            right.append(grid[1].ravel())
        return np.concatenate(left), np.concatenate(right)

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, dimension), pair after pair."""
        parts = self.parts(rows).T
        starts = np.cumsum([0, *self.part_widths])
        features = np.empty((self.dimension, parts.shape[1]))
        start, scale = 0, 1 / np.sqrt(len(self.pairs))
        for (a, b), width in zip(self.pairs, self.widths, strict=True):
            first, second = parts[starts[a] : starts[a + 1]], parts[starts[b] : starts[b + 1]]
            block = features[start : start + width].reshape(len(first), len(second), -1)
            np.multiply(first[:, None], second[None], out=block)
            block *= scale
            start += width
        return features.T
