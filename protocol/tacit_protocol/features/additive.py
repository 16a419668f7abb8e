"""The default features: column-wise and pairwise blocks as one direct sum, chosen by the domain alone.

Few columns can afford many frequencies: the noise on a coordinate grows with the root of their number.
"""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.base import FeatureMap, FloatMatrix
from tacit_protocol.features.column_wise import ColumnWise
from tacit_protocol.features.direct_sum import DirectSum
from tacit_protocol.features.pairwise import Pairwise

BASE_CYCLES = 0.8125
"""Lowest frequency, in turns over a column's bounds: less than one turn tells the two bounds apart.

A dyadic number, so that doubled frequencies are equal to the last bit.
"""

FEW_COLUMNS = 3
"""Up to here every multiple of the base frequency up to the sixth is used, to see fine structure."""

SOME_COLUMNS = 6
"""Up to here pairs of columns carry two frequencies each, above it one."""

PAIR_COORDINATES_MAX = 5_000
"""Above this many pairwise coordinates the default looks at columns alone: noise would drown the pairs."""


@dataclass(frozen=True)
class AdditiveChoice:
    """Public settings of the additive features.

    ``cycles`` with ``weights`` serve the columns, ``pair_cycles`` (all among ``cycles``) the pairs;
    ``pair_share`` in [0, 1) is the squared weight of the pairwise block, 0 for none.
    """

    cycles: tuple[float, ...]
    weights: tuple[float, ...]
    pair_cycles: tuple[float, ...]
    pair_share: float


def default_choice(numeric: int, categories: tuple[int, ...], pair_share: float) -> AdditiveChoice:
    """Choose frequencies for a domain of ``numeric`` columns and columns with ``categories``."""
    columns = numeric + len(categories)
    multiples: tuple[int, ...]
    weights: tuple[float, ...]
    pair_multiples: tuple[int, ...]
    if columns <= FEW_COLUMNS:
        multiples, weights, pair_multiples = (1, 2, 3, 4, 5, 6), (1.0, 1.0, 0.5, 0.5, 0.5, 0.5), (1, 2, 3, 4)
    else:
        multiples, weights = (1, 2, 4), (1.0, 1.0, 0.4)
        pair_multiples = (1, 2) if columns <= SOME_COLUMNS else (2,)
    widths = [2 * len(pair_multiples)] * numeric + list(categories)
    coordinates = (sum(widths) ** 2 - sum(width**2 for width in widths)) // 2
    with_pairs = columns > 1 and coordinates <= PAIR_COORDINATES_MAX
    return AdditiveChoice(
        tuple(BASE_CYCLES * m for m in multiples),
        weights,
        tuple(BASE_CYCLES * m for m in pair_multiples),
        pair_share if with_pairs else 0.0,
    )


class AdditiveFeatures(DirectSum):
    """Column-wise features and, where ``choice.pair_share`` is positive, pairwise ones."""

    def __init__(self, numeric: int, categories: tuple[int, ...], choice: AdditiveChoice) -> None:
        self.choice = choice
        self.numeric = numeric
        self.column_wise = ColumnWise(numeric, categories, choice.cycles, choice.weights)
        self.pairwise: Pairwise | None = None
        blocks: tuple[FeatureMap, ...] = (self.column_wise,)
        shares: tuple[float, ...] = (1.0,)
        if choice.pair_share > 0:
            weights = (1.0,) * len(choice.pair_cycles)
            self.pairwise = Pairwise(numeric, categories, choice.pair_cycles, weights)
            blocks += (self.pairwise,)
            shares = (1.0 - choice.pair_share, choice.pair_share)
        super().__init__(blocks, shares)

    @cached_property
    def _pair_factors(self) -> tuple[npt.NDArray[np.intp], FloatMatrix]:
        """Which of the columns' coordinates the pairs' parts are, and times what, (coordinates, 1)."""
        coordinates, cycles = self.column_wise.coordinates, self.choice.pair_cycles
        waves = {
            (coordinate.column, coordinate.cycles, coordinate.part): place
            for place, coordinate in enumerate(coordinates)
        }
        numeric = [
            waves[column, cycle, part]
            for column in range(self.numeric)
            for cycle in cycles
            for part in ("cos", "sin")
        ]
        places = numeric + [place for place, found in enumerate(coordinates) if found.part == "category"]
        scales = np.array([coordinates[place].scale for place in places])
        wanted = np.where(np.arange(len(places)) < len(numeric), 1 / np.sqrt(len(cycles)), 1.0)
        return np.array(places), (wanted / scales)[:, None]

    def pair_parts(self, features: FloatMatrix) -> FloatMatrix:
        """Return the pairs' parts of rows, as :meth:`Pairwise.parts`, from their column-wise features.

        No cosine is computed twice: pairs' cycles are among the columns'.
        """
        places, factors = self._pair_factors
        parts = features.T[places]
        parts *= factors
        return parts.T

    @property
    def column_groups(self) -> tuple[tuple[int, int], ...]:
        """First coordinate, and one past the last, of every column."""
        owners = [coordinate.column for coordinate in self.column_wise.coordinates]
        return tuple(
            (owners.index(column), len(owners) - owners[::-1].index(column))
            for column in range(self.column_wise.columns)
        )

    @property
    def pair_groups(self) -> tuple[tuple[int, int, int, int], ...]:
        """(column, column, first coordinate, one past the last) of every pair."""
        if self.pairwise is None:
            return ()
        starts = self.column_wise.dimension + np.cumsum([0, *self.pairwise.widths])
        return tuple(
            (a, b, int(start), int(stop))
            for (a, b), start, stop in zip(self.pairwise.pairs, starts[:-1], starts[1:], strict=True)
        )
