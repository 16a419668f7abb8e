"""Counts of simulated studies: the cells of a study on counts, what is in them, and tables drawn from it."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar

import numpy as np

from tacit_protocol.domain.columns import Domain
from tacit_protocol.domain.table import EncodedChunk, encode
from tacit_protocol.features.cell_counts import CellGrid, count_cells
from tacit_protocol.numerics.noisy_tables import (
    DistributionError,
    cell_probabilities,
    distribution,
    paninski,
    total_variation,
)
from tacit_protocol.procedures.base import StudyError
from tacit_protocol.procedures.counts.release import counted_part, grid_of
from tacit_protocol.procedures.populations import (
    Columns,
    EffectError,
    Floats,
    Held,
    Population,
    rows_of,
)


class Cells(Population):
    """Counts of owners of whom the last one's cells are larger and smaller in turn."""

    counted: ClassVar[bool] = True
    medium: ClassVar[float] = 0.15
    taken: ClassVar[frozenset[str]] = frozenset({"size", "other"})

    def check(self) -> None:
        """Raise EffectError where no cells are so far from these."""
        super().check()
        if not 0 <= self.size <= 1:
            raise EffectError("a distance lies between 0 and 1")
        self.cells  # noqa: B018 (raises where there are none)

    @cached_property
    def grid(self) -> CellGrid:
        """The cells that the study has."""
        try:
            return grid_of(self.study, counted_part(self.study))
        except StudyError as error:
            raise EffectError(str(error)) from None

    @cached_property
    def cells(self) -> tuple[Floats, Floats]:
        """The cells' probabilities without the effect and with it, (k,) each."""
        null = self.null
        if self.effect.other is not None:
            return null, self.probabilities(self.effect.other)
        return null, moved(null, self.size)

    @cached_property
    def null(self) -> Floats:
        """The cells' probabilities without an effect, (k,): the public sample's, or equal ones."""
        if self.public is not None:
            counts = count_cells(_Rows(self.study.domain, self.public), self.grid)
            return np.asarray(counts / counts.sum())
        levels = int(np.prod([axis.listed for axis in self.grid.axes]))
        return self.probabilities(np.full(levels, 1 / levels))

    def probabilities(self, stated: Any) -> Floats:
        """Return stated probabilities for the cells, those left out 0; raises EffectError."""
        try:
            return cell_probabilities(self.grid, distribution(np.ravel(stated)).tolist())
        except DistributionError as error:
            raise EffectError(
                str(error).replace("parameter probabilities", "probabilities of cells")
            ) from None

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[Held]:
        """Draw every owner's counts."""
        null, other = self.cells
        return [
            _drawn(other if place == len(sizes) else null, size, rng) for place, size in enumerate(sizes, 1)
        ]

    def words(self) -> str:
        """Say how far the cells are from what they would be."""
        return f"a difference of {total_variation(*self.cells):.3g} in total variation"


@dataclass(frozen=True)
class _Rows:
    """A public sample as a table, every row a unit."""

    domain: Domain
    columns: Columns

    @property
    def units(self) -> int:
        return rows_of(self.columns)

    def chunks(self) -> Iterator[EncodedChunk]:
        yield encode(self.domain, dict(self.columns))


def _drawn(probabilities: Floats, units: int, rng: np.random.Generator) -> Held:
    return rng.multinomial(units, probabilities / probabilities.sum()).astype(np.int64)


def moved(probabilities: Floats, distance: float) -> Floats:
    """Return the distribution at a total variation distance whose cells are larger and smaller in turn.

    Cells that no unit is in stay so. Raises EffectError where no such distribution is so far away.
    """
    held = np.flatnonzero(probabilities)
    if len(held) < 2:
        raise EffectError("at least two cells need units in them")
    # Cells of nearly equal size are paired, so that a distance is not cut short by the smallest of all.
    held = held[np.argsort(-probabilities[held], kind="stable")]
    found = probabilities.copy()
    largest = total_variation(paninski(probabilities[held], 1.0), probabilities[held])
    require_near(distance, largest)
    found[held] = paninski(probabilities[held], min(1.0, distance / largest))
    return found


def require_near(distance: float, largest: float) -> None:
    """Raise EffectError where a total variation distance is larger than any."""
    if not 0 <= distance <= largest * (1 + 1e-9):
        raise EffectError(f"distance must lie between 0 and {largest:.3g} here")
