"""Column-wise characteristic features: an additive kernel that says which columns differ.

A numeric column scaled to u in [0, 1] contributes sqrt(w_f / W) [cos(2 pi f u), sin(2 pi f u)] for its cycles
f with weights w_f, W = sum w_f; a categorical column contributes the indicators of its categories. Each
column's part has norm 1; the D parts are divided by sqrt D.

Replacing a row moves a numeric part by sqrt(sum_f (w_f / W)(2 - 2 cos 2 pi f t)), t = |u - u'| in [0, 1], and
a categorical part by at most sqrt 2. All columns of a row may change at once, so the squared diameter is the
average over columns of these squared maxima.

Where both f and 2f are among the cycles the variances of the f coordinates follow from released means alone:
cos^2 a = (1 + cos 2a) / 2 and sin^2 a = (1 - cos 2a) / 2.
"""

from dataclasses import dataclass
from functools import cached_property, lru_cache

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.base import FloatMatrix, Rows
from tacit_protocol.features.waves import Harmonics

SHIFTS = 4096
"""Points at which the largest movement of a numeric part is sought; a curvature bound covers the gaps."""

MOVEMENTS_KEPT = 64
"""Largest movements remembered, by cycles and weights: most studies use the default ones, and every check of
a release asks for two."""


@lru_cache(MOVEMENTS_KEPT)
def squared_movement_max(cycles: tuple[float, ...], weights: tuple[float, ...]) -> float:
    """Bound max over t in [0, 1] of sum_f (w_f / W)(2 - 2 cos 2 pi f t), from above.

    Between grid points the function exceeds the larger neighbour by at most curvature * step^2 / 8.
    """
    turns = 2 * np.pi * np.asarray(cycles)
    shares = np.asarray(weights) / np.sum(weights)
    shifts = np.linspace(0.0, 1.0, SHIFTS + 1)
    movement = 2 - 2 * np.cos(shifts[:, None] * turns) @ shares
    curvature = float(2 * shares @ turns**2)
    return float(min(4.0, movement.max() + curvature / SHIFTS**2 / 8))


def column_parts(
    rows: Rows,
    harmonics: Harmonics,
    scales: npt.NDArray[np.float64],
    categories: tuple[int, ...],
    indicator: float,
) -> FloatMatrix:
    """Return every column's part side by side, (rows, parts' widths together).

    Numeric columns have, by cycle, its cosine and sine times its scale, categorical ones ``indicator`` at the
    row's category. A coordinate's values lie one after the other in memory, as an encoded column's do.
    """
    count, numeric = rows.numeric.shape
    start = 2 * numeric * len(scales)
    parts = np.empty((start + sum(categories), count))
    waves = parts[:start].reshape(numeric, len(scales), 2, count)
    if numeric:
        for index, wave in harmonics.at(rows.numeric):
            np.multiply(wave.cosines.T, scales[index], out=waves[:, index, 0])
            np.multiply(wave.sines.T, scales[index], out=waves[:, index, 1])
    parts[start:] = 0.0
    for index, number in enumerate(categories):
        parts[start + rows.categorical[:, index], np.arange(count)] = indicator
        start += number
    return parts.T


@dataclass(frozen=True)
class Coordinate:
    """What one coordinate of a column-wise vector is: for variances, and for naming columns."""

    column: int
    """Index of the column among the domain's numeric columns, then its categorical ones."""
    part: str
    """``cos``, ``sin`` or ``category``."""
    cycles: float
    """The frequency; 0 for a category."""
    scale: float
    """The coordinate is ``scale`` times the cosine, sine or indicator."""


class ColumnWise:
    """Column-wise characteristic features of ``numeric`` columns and of columns with ``categories``.

    ``cycles`` and ``weights`` are public and serve every numeric column.
    """

    def __init__(
        self,
        numeric: int,
        categories: tuple[int, ...],
        cycles: tuple[float, ...],
        weights: tuple[float, ...],
    ) -> None:
        self.columns = numeric + len(categories)
        self._numeric = numeric
        self._categories = categories
        self._harmonics = Harmonics(cycles)
        self._scales = np.sqrt(np.asarray(weights) / np.sum(weights) / self.columns)
        self._movement = squared_movement_max(cycles, weights)
        self._cycles = cycles

    @cached_property
    def coordinates(self) -> tuple[Coordinate, ...]:
        """What every coordinate is, in their order."""
        described = []
        for column in range(self._numeric):
            for cycle, scale in zip(self._cycles, self._scales, strict=True):
                described += [Coordinate(column, part, cycle, float(scale)) for part in ("cos", "sin")]
        scale = float(1 / np.sqrt(self.columns))
        for index, categories in enumerate(self._categories):
            described += [Coordinate(self._numeric + index, "category", 0.0, scale)] * categories
        return tuple(described)

    @property
    def dimension(self) -> int:
        """Two coordinates per numeric column and cycle, one per category."""
        return 2 * self._numeric * len(self._cycles) + sum(self._categories)

    @property
    def norm(self) -> float:
        """1, attained by every row."""
        return 1.0

    @property
    def diameter(self) -> float:
        """The square root of the columns' average squared movement."""
        total = self._numeric * self._movement + 2.0 * len(self._categories)
        return float(np.sqrt(total / self.columns))

    @property
    def second_moment_diameter(self) -> float:
        """The square root of 2, for vectors in the unit ball."""
        return float(np.sqrt(2))

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return the features, (rows, dimension), in the order of ``coordinates``."""
        indicator = float(1 / np.sqrt(self.columns))
        return column_parts(rows, self._harmonics, self._scales, self._categories, indicator)
