"""P4's release (PNC), made to protect a person: every unit's projections on public directions, with noise.

P4 (Vepakomma, Pushpita, Raskar) calibrates K projections of all rows for a change of one attribute. Here a
unit is replaced as a whole: rows z lie in the unit ball, so K projections of one move by |U (z - z')| <=
2 |U|_op, and one projection by 2. ``disjoint`` deals the units out to the directions, one each.
"""

import math
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain.table import Table
from tacit_protocol.features.base import FloatMatrix, Rows, row_products
from tacit_protocol.features.brownian import operator_norm
from tacit_protocol.features.placed_units import sum_placed
from tacit_protocol.privacy.dyadic import GRID_BITS_MAX, round_to_grid, rounding_sensitivity
from tacit_protocol.privacy.gaussian_sums import SumPart
from tacit_protocol.privacy.vector import NoisyVector

PROJECTIONS = "projections"


@dataclass(frozen=True)
class RowProjections:
    """Projections of rows, scaled into the unit ball, on ``directions`` (K, columns), unit rows."""

    directions: FloatMatrix

    @property
    def dimension(self) -> int:
        """Number of directions K."""
        return len(self.directions)

    @property
    def norm(self) -> float:
        """The operator norm of the directions."""
        return 1.0 if self.dimension == 1 else operator_norm(self.directions)

    @property
    def diameter(self) -> float:
        """Twice the norm: two points of the unit ball lie at most 2 apart."""
        return 2 * self.norm

    @property
    def second_moment_diameter(self) -> float:
        """Sqrt 2 times the squared norm."""
        return math.sqrt(2) * self.norm**2

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return u_k'z, (rows, K) in [-1, 1]."""
        ball = (2 * rows.numeric - 1) / math.sqrt(rows.numeric.shape[1])
        return np.clip(row_products(ball, self.directions.T), -1.0, 1.0)


@dataclass(frozen=True)
class ProjectedUnits:
    """Integer projections of all units in the aligned order, in steps of 2**-20."""

    units: int
    values: npt.NDArray[np.int64]


class _PlacedRows:
    """Rounded rows with their places, to be put together in the end."""

    def __init__(self) -> None:
        self.parts: list[tuple[FloatMatrix, npt.NDArray[np.int64]]] = []

    def add(self, rows: FloatMatrix, places: npt.NDArray[np.int64]) -> None:
        self.parts.append((round_to_grid(rows, GRID_BITS_MAX), places))

    def merge(self, other: "_PlacedRows") -> None:
        self.parts += other.parts


@dataclass(frozen=True)
class ProjectionRelease:
    """All K projections of every unit, or one each where ``disjoint``."""

    features: RowProjections
    disjoint: bool

    def numbers(self, units: int) -> int:
        """How many noisy numbers one owner sends."""
        return units * (1 if self.disjoint else self.features.dimension)

    def project(self, table: Table, blocks: npt.NDArray[np.int64]) -> ProjectedUnits:
        """Project the units; ``blocks`` (units,) is each one's direction where ``disjoint``.

        Raises UnitCountError where the units are not as many as declared.
        """
        found = sum_placed(self.features, table, GRID_BITS_MAX, _PlacedRows)
        projected = np.zeros((table.units, self.features.dimension))
        for rows, places in found.parts:
            projected[places] = rows
        if self.disjoint:
            projected = np.take_along_axis(projected, self._own(blocks)[:, None], axis=1)
        return ProjectedUnits(table.units, np.ldexp(projected, GRID_BITS_MAX).astype(np.int64).ravel())

    def parts(self, units: int, projected: ProjectedUnits | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``projected`` the values are zeros."""
        values = np.zeros(self.numbers(units), dtype=np.int64) if projected is None else projected.values
        moved = 2.0 if self.disjoint else self.features.diameter
        coordinates = 1 if self.disjoint else self.features.dimension
        sensitivity = moved + rounding_sensitivity(coordinates, GRID_BITS_MAX)
        return (SumPart(PROJECTIONS, values, -GRID_BITS_MAX, sensitivity, 1.0),)

    def read(self, vector: NoisyVector, units: int) -> FloatMatrix:
        """Return half the noisy projections, (units, K) or (units, 1): the ball then has diameter 1."""
        return vector.mean(2).reshape(units, -1)

    def _own(self, blocks: npt.NDArray[np.int64]) -> npt.NDArray[np.int64]:
        # An owner with one column has one direction for all blocks.
        return np.minimum(blocks, self.features.dimension - 1)


def deal_out(units: int, count: int, rng: np.random.Generator) -> npt.NDArray[np.int64]:
    """Return each unit's direction, (units,) in 0..count - 1, as evenly as can be, at random."""
    return rng.permutation(units) % count
