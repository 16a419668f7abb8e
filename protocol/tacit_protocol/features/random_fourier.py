"""Random Fourier features of the product kernel: pairs [cos, sin] at public random frequencies.

phi(x) = F^(-1/2) [r_f(x) cos w_f'u, r_f(x) sin w_f'u]_f, u the scaled numeric columns. w_f is drawn from the
kernel's spectrum, and r_f(x) = prod_c r_fc(x_c) from signs: r_fc is one sign for all categories of column c
with probability s, else an independent sign for each, so that E r_fc(a) r_fc(b) = s for a != b. The expected
inner product is the kernel of kernels.py, and |phi(x)|^2 = (1/F) sum_f (cos^2 + sin^2) = 1 for every draw.
The map sqrt(2/F) cos(w'x + b) has that norm on average alone, and passes it by a third (docs/errata.md).

|phi(x) - phi(x')|^2 = 2 - 2 q, where q = (1/F) sum_f r_f(x) r_f(x') cos w_f'(u - u') is the kernel's estimate
and may be negative: 2 bounds the diameter, and a bound on q from below, found by a grid, may be smaller
(docs/mathematics/database-release.md).
"""

import itertools
import math
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.base import FloatMatrix, Rows, row_products
from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.waves import wave

Signs = npt.NDArray[np.float64]

GRID_POINTS = 4096
"""Points at most of the grid on which the smallest inner product is looked for: some milliseconds."""

PATTERNS_MAX = 150
"""Most pairs of cells of the categories for which it is looked for; of more the bound is the plain 2."""

ROUNDING = 1e-9
"""Allowance for the rounding of an average of cosines, far above what it is."""


@dataclass(frozen=True)
class RandomFourier:
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

    @property
    def norm(self) -> float:
        """1, whatever was drawn."""
        return 1.0

    @cached_property
    def diameter(self) -> float:
        """At most 2; less where a grid shows that inner products stay above -1."""
        return min(2.0, math.sqrt(2 - 2 * self.smallest_product()))

    @property
    def second_moment_diameter(self) -> float:
        """The square root of 2: vectors in the unit ball."""
        return math.sqrt(2)

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
        L D (d/2)^2 / 2, L the largest eigenvalue of (1/F) sum w w': its first derivative vanishes there in
        every coordinate but those at an end, which the grid holds.
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
