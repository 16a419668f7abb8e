"""What a study on noisy counts fixes before any data: its cells, its mechanism, and what it reads again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from tacit_protocol.domain.columns import ColumnName
from tacit_protocol.domain.table import Table
from tacit_protocol.features.cell_counts import CellCounts, CellGrid, sum_cells
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.numerics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.privacy.exact_sums import grid_bits
from tacit_protocol.privacy.guarantee import Guarantee, NoisyVector
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.privacy.noisy_counts import (
    COUNTS,
    check_counts,
    count_noise,
    gaussian_count_guarantee,
    laplace_count_guarantee,
    noisy_counts,
)
from tacit_protocol.procedures.base import ReleaseError, StudyError, parse_parameters
from tacit_protocol.strict import StrictModel

SUMS = "sums_of_"
"""Name of a vector of sums of cells of a finer table, with how many cells each sum has: no owner sends it."""

FINER = (
    "an owner's earlier release must count the same columns, with the same cells, and other and missing "
    "values alike (parameter unlisted)"
)


class CellParameters(StrictModel):
    """What is counted.

    Cells of their own for other and missing values are two for each column; without them there are fewer
    cells, and less noise in all, where the levels are complete.
    """

    unlisted: Literal["cells", "last"] = Field(
        "cells",
        description="Whether other and missing values have cells of their own, or count with the last level.",
    )
    cuts: dict[ColumnName, Annotated[tuple[float, ...], Field(min_length=1, max_length=1000)]] = Field(
        default_factory=dict,
        description=(
            "Inner edges of each numeric column, by its name, increasing and strictly within its bounds."
        ),
    )


class CountParameters(CellParameters):
    """How an owner counts; every choice is public."""

    noise: Literal["laplace", "gaussian"] = Field(
        "laplace", description="Laplace noise costs epsilon alone; gaussian needs a delta."
    )
    rho: Annotated[float, Field(gt=0, le=5000)] | None = Field(
        None,
        description=(
            "zCDP of Gaussian noise (variance 1/rho on each cell); by default all that the budget allows."
        ),
    )


@dataclass(frozen=True)
class CountPlan:
    """What a study fixes before any data: the cells and the guarantee."""

    grid: CellGrid
    guarantee: Guarantee

    @property
    def noise(self) -> CellNoise:
        """The noise on every cell of a release of this study."""
        kind, scale = count_noise(self.guarantee)
        return CellNoise("laplace" if kind == "laplace" else "gaussian", scale)

    def summarise(self, table: Table) -> CellCounts:
        """Count one owner's units exactly. The counts never leave the owner."""
        return sum_cells(table, self.grid)

    def privatise(self, counts: CellCounts, noise: NoiseSource) -> Release:
        """Add the noise that the guarantee states."""
        vector = noisy_counts(counts.steps, counts.bits, self.guarantee, noise)
        return Release(units=counts.units, guarantee=self.guarantee, vectors={COUNTS: vector})

    def check(self, release: Release) -> None:
        """Raise ReleaseError where an owner's own release is not as the study fixes."""
        if set(release.vectors) != {COUNTS} or release.decision is not None:
            raise ReleaseError("the release has not the vectors that the study asks for")
        try:
            bits = grid_bits(release.units, products=False)
            check_counts(release.vectors[COUNTS], release.guarantee, self.grid.size, bits, self.guarantee)
        except ValueError as error:
            raise ReleaseError(str(error)) from None

    def read_owner(self, owner: Owner, releases: Mapping[str, Release]) -> NoisyTable:
        """Return an owner's noisy table; a release of its own must be as the study fixes."""
        release = releases[owner.name]
        if owner.reuses is None:
            self.check(release)
        return self.read(release)

    def read(self, release: Release) -> NoisyTable:
        """Return the noisy table of a release, or of one read again.

        Raises ReleaseError where it is not one vector of this study's cells.
        """
        if len(release.vectors) != 1 or release.decision is not None:
            raise ReleaseError("the release has not the vectors that the study asks for")
        name, vector = next(iter(release.vectors.items()))
        summed = 1 if name == COUNTS else _summed(name)
        if len(vector.values) != self.grid.size:
            raise ReleaseError(f"vector {COUNTS} has not the shape that the study fixes")
        return NoisyTable(vector.mean(1), release.units, (CellNoise(vector.noise, vector.scale, summed),))

    def reread(self, source: Study, release: Release) -> Release:
        """Return an owner's release for an earlier study, of noisy counts, as this study expects it.

        Cells of a finer table are added up; the vector's name then tells how many noises each sum has.
        """
        counts = release.vectors.get(COUNTS)
        if counts is None:
            raise StudyError("the earlier study did not release noisy counts")
        theirs = grid_of(source, counted_part(source))
        if len(counts.values) != theirs.size:
            raise StudyError("the earlier study did not release noisy counts of its columns' cells")
        index = self.grid.within(theirs)
        if index is None:
            raise StudyError(FINER)
        summed = theirs.size // self.grid.size
        name = COUNTS if summed == 1 else f"{SUMS}{summed}"
        coarser = _add_cells(counts, index, self.grid.size)
        return Release(units=release.units, guarantee=release.guarantee, vectors={name: coarser})


def count_plan(study: Study, parameters: CountParameters) -> CountPlan:
    """Return what a study on noisy counts fixes.

    Raises:
        StudyError: the columns have no such cells, or the budget does not suit the noise.
    """
    if parameters.rho is not None and parameters.noise != "gaussian":
        raise StudyError("parameter rho has no effect with Laplace noise; leave it out")
    grid = grid_of(study, parameters)
    if parameters.noise == "laplace":
        return CountPlan(grid, laplace_count_guarantee(study.budget))
    return CountPlan(grid, gaussian_count_guarantee(study.budget, parameters.rho))


def grid_of(study: Study, parameters: CellParameters) -> CellGrid:
    """Return the cells of a study. Raises StudyError where its columns have none such."""
    return CellGrid.of(study.domain, cuts=parameters.cuts, folded=parameters.unlisted == "last")


def counted_part(study: Study) -> CellParameters:
    """Read of a study's parameters, whatever its procedure, those that say what is counted."""
    known = {name: study.parameters[name] for name in CellParameters.model_fields if name in study.parameters}
    return parse_parameters(CellParameters, study.model_copy(update={"parameters": known}))


def _add_cells(vector: NoisyVector, index: npt.NDArray[np.int64], cells: int) -> NoisyVector:
    """Add up the cells of a vector that ``index`` maps to the same cell: integers of any size, exactly."""
    sums = [0] * cells
    for cell, value in zip(index.tolist(), vector.values, strict=True):
        sums[cell] += value
    try:
        return NoisyVector(
            values=tuple(sums), exponent=vector.exponent, noise=vector.noise, scale=vector.scale
        )
    except ValidationError:
        raise StudyError("the earlier release's counts are too large to be added up") from None


def _summed(name: str) -> int:
    number = name.removeprefix(SUMS)
    if not name.startswith(SUMS) or not number.isascii() or not number.isdigit() or len(number) > 5:
        raise ReleaseError("the release has not the vectors that the study asks for")
    if int(number) < 1:
        raise ReleaseError("the release has not the vectors that the study asks for")
    return int(number)
