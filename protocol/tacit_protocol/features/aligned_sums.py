"""Contributions of units with their places among all n: what two owners sum or send unit by unit.

A place depends on the unit's id or on the order of the rows, never on a value. P4's release (PNC; Vepakomma,
Pushpita, Raskar) is every unit's K projections on public directions. It is calibrated for a change of one
attribute there; here a unit is replaced as a whole: rows z lie in the unit ball, so K projections of one move
by |U (z - z')| <= 2 |U|_op, and one projection by 2. ``disjoint`` deals the units out, one direction each.
"""

import math
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Generic, Protocol, Self, TypeVar

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import EncodedChunk, Table, reduce_table
from tacit_protocol.features.brownian import operator_norm
from tacit_protocol.features.kernels import FeatureMap, FloatMatrix, InBall, Rows, row_products
from tacit_protocol.features.moments import UnitCountError, contributions
from tacit_protocol.privacy.exact_sums import GRID_BITS_MAX, round_to_grid, rounding_sensitivity
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.privacy.guarantee import NoisyVector

CHANGED = "the data changed while they were read"

Integers = npt.NDArray[np.int64]


class TakenPlaces:
    """Which of the places 0..n - 1 have been taken; each may be taken once."""

    def __init__(self, units: int) -> None:
        self._taken = np.zeros(units, dtype=np.bool_)
        self._done = 0

    def take(
        self, features: FeatureMap, chunk: EncodedChunk, bits: int
    ) -> Iterator[tuple[FloatMatrix, Integers]]:
        """Yield a chunk's contributions, (units, dimension) each, and the units' places, (units,).

        Raises UnitCountError for a place that there is not, or that is taken.
        """
        places = _places(chunk, self._done)
        for rows in contributions(features, chunk, bits):
            own, places = places[: len(rows)], places[len(rows) :]
            if (
                len(own) != len(rows)
                or own.min() < 0
                or own.max() >= len(self._taken)
                or self._taken[own].any()
            ):
                raise UnitCountError(CHANGED)
            self._taken[own] = True
            yield rows, own
        self._done += chunk.units

    def merge(self, other: "TakenPlaces") -> None:
        """Take what another part of the table took; raises UnitCountError where a place is taken twice."""
        if len(other._taken) != len(self._taken) or (self._taken & other._taken).any():
            raise UnitCountError(CHANGED)
        self._taken |= other._taken
        self._done += other._done

    def require_all(self) -> None:
        """Raise UnitCountError unless every place is taken once."""
        if self._done != len(self._taken) or not self._taken.all():
            raise UnitCountError(CHANGED)

    def __getstate__(self) -> tuple[int, int, npt.NDArray[np.uint8]]:
        return len(self._taken), self._done, np.packbits(self._taken)

    def __setstate__(self, state: tuple[int, int, npt.NDArray[np.uint8]]) -> None:
        units, self._done, packed = state
        self._taken = np.unpackbits(packed, count=units).view(np.bool_)


class PlacedSums(Protocol):
    """What is summed exactly over placed units."""

    def add(self, rows: FloatMatrix, places: Integers) -> None:
        """Add contributions, (units, dimension), of the units at those places, (units,)."""

    def merge(self, other: Self) -> None:
        """Add the sums over another part of the table."""


SumsT = TypeVar("SumsT", bound=PlacedSums)


@dataclass
class _Placed(Generic[SumsT]):
    sums: SumsT
    taken: TakenPlaces


@dataclass(frozen=True)
class _PlacedReduction(Generic[SumsT]):
    features: FeatureMap
    units: int
    bits: int
    empty: Callable[[], SumsT]

    def start(self) -> _Placed[SumsT]:
        return _Placed(self.empty(), TakenPlaces(self.units))

    def add(self, partial: _Placed[SumsT], chunk: EncodedChunk) -> None:
        for rows, places in partial.taken.take(self.features, chunk, self.bits):
            partial.sums.add(rows, places)

    def merge(self, partial: _Placed[SumsT], other: _Placed[SumsT]) -> None:
        partial.taken.merge(other.taken)
        partial.sums.merge(other.sums)


def sum_placed(features: FeatureMap, table: Table, bits: int, empty: Callable[[], SumsT]) -> SumsT:
    """Sum a table's placed contributions; ``empty``, which is picklable, makes the sums over no unit.

    How the table is cut into chunks, and in which order they come, changes no unit's place where chunks give
    positions. Raises UnitCountError unless every place is taken once.
    """
    found = reduce_table(table, _PlacedReduction(features, table.units, bits, empty))
    found.taken.require_all()
    return found.sums


def _places(chunk: EncodedChunk, done: int) -> Integers:
    if chunk.positions is not None:
        return chunk.positions
    return np.arange(done, done + chunk.units, dtype=np.int64)


PROJECTIONS = "projections"


@dataclass(frozen=True)
class RowProjections(InBall):
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

    def __call__(self, rows: Rows) -> FloatMatrix:
        """Return u_k'z, (rows, K) in [-1, 1]."""
        ball = (2 * rows.numeric - 1) / math.sqrt(rows.numeric.shape[1])
        return np.clip(row_products(ball, self.directions.T), -1.0, 1.0)


@dataclass(frozen=True)
class ProjectedUnits:
    """Integer projections of all units in the aligned order, in steps of 2**-20."""

    units: int
    values: npt.NDArray[np.int64] = field(repr=False)


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
