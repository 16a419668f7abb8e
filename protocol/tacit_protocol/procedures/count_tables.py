"""What procedures on noisy counts share: the cells, the mechanism, the release, and reading it again."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field, ValidationError

from tacit_protocol.domain.columns import ColumnName
from tacit_protocol.domain.table import Table
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.privacy.dyadic import grid_bits
from tacit_protocol.privacy.gaussian_sums import LayoutError, SensitivityError
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.privacy.noisy_counts import (
    COUNTS,
    check_counts,
    count_noise,
    gaussian_count_guarantee,
    laplace_count_guarantee,
    noisy_counts,
)
from tacit_protocol.privacy.vector import NoisyVector
from tacit_protocol.procedures.base import ReleaseError, StudyError, parse_parameters
from tacit_protocol.statistics.cell_counts import CellCounts, CellGrid, CountError, GridError, sum_cells
from tacit_protocol.statistics.contingency import IndependenceOutcome
from tacit_protocol.statistics.homogeneity import HomogeneityTest
from tacit_protocol.statistics.noisy_tables import CellNoise, NoisyTable
from tacit_protocol.strict import StrictModel

SUMS = "sums_of_"
"""Name of a vector of sums of cells of a finer table, with how many cells each sum has: no owner sends it."""

FINER = "an owner's earlier release must count the same columns, with the same cells"


REPLICATES_MIN, REPLICATES_DEFAULT, REPLICATES_MAX = 999, 1999, 100_000
"""Simulated null statistics: p-values down to 5e-4 by default."""

WORK_MAX = 2 * 10**9
"""Most simulated cells of one verdict: some minutes of one processor."""

DECIMALS = 3
"""Digits after the point of a noisy count in a verdict: far below the noise, and a third of the size."""

COUNT_WRITTEN_MAX = 1e13
"""Largest count that a verdict states: above all units with their noise, so that an owner that sends other
numbers cannot make a verdict too long to be sent."""

CELLS_SHOWN = 10
"""Most cells that a verdict names."""

HOPELESS = "Hopeless: "
"""What a warning starts with where the study should not be run as planned."""


TABLE_NUMBERS_MAX = 10_000
"""Most noisy counts that a test's verdict shows beside its findings."""


class CellFinding(StrictModel):
    """A cell that stands out: its label by column, its p-value adjusted for all cells, and noisy shares."""

    labels: dict[str, str]
    pvalue: float
    reject: bool
    shares: dict[str, float]


class CountParameters(StrictModel):
    """How an owner counts; every choice is public.

    ``noise``: ``laplace`` costs epsilon alone, ``gaussian`` needs a delta. ``rho``: Gaussian noise of
    variance 1/rho on each cell, which is rho-zCDP, where that fits the budget; by default the whole budget
    is used. ``cuts``: each numeric column's inner edges. ``unlisted``: values that are not among a column's
    levels, and missing ones, have ``cells`` of their own, two for each column, or count with the ``last``
    level: fewer cells, and less noise in all, where the levels are complete.
    """

    noise: Literal["laplace", "gaussian"] = "laplace"
    rho: Annotated[float, Field(gt=0, le=5000)] | None = None
    unlisted: Literal["cells", "last"] = "cells"
    cuts: dict[ColumnName, Annotated[tuple[float, ...], Field(min_length=1, max_length=1000)]] = Field(
        default_factory=dict
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
        try:
            return sum_cells(table, self.grid)
        except CountError as error:
            raise StudyError(str(error)) from None

    def privatise(self, counts: CellCounts, noise: NoiseSource) -> Release:
        """Add the noise that the guarantee states."""
        try:
            vector = noisy_counts(counts.steps, counts.bits, self.guarantee, noise)
        except SensitivityError as error:
            raise StudyError(str(error)) from None
        return Release(units=counts.units, guarantee=self.guarantee, vectors={COUNTS: vector})

    def check(self, release: Release) -> None:
        """Raise ReleaseError where an owner's own release is not as the study fixes."""
        if set(release.vectors) != {COUNTS} or release.decision is not None:
            raise ReleaseError("the release has not the vectors that the study asks for")
        try:
            bits = grid_bits(release.units, products=False)
            check_counts(release.vectors[COUNTS], release.guarantee, self.grid.size, bits, self.guarantee)
        except (LayoutError, ValueError) as error:
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
        """Return an owner's release for a study of noisy counts as this study expects it.

        Cells of a finer table are added up; the vector's name then tells how many noises each sum has.
        """
        if source.procedure not in COUNTING:
            raise StudyError("the earlier study did not release noisy counts")
        theirs = count_plan(source, parse_parameters(CountParameters, _counting_part(source)))
        index = self.grid.within(theirs.grid)
        if index is None:
            raise StudyError(FINER)
        summed = theirs.grid.size // self.grid.size
        name = COUNTS if summed == 1 else f"{SUMS}{summed}"
        coarser = _add_cells(release.vectors[COUNTS], index, self.grid.size)
        return Release(units=release.units, guarantee=release.guarantee, vectors={name: coarser})


COUNTING = ("noisy_counts", "homogeneity", "independence_table")
"""Procedures whose releases are noisy counts in one vector, and so can be read again."""


def count_plan(study: Study, parameters: CountParameters) -> CountPlan:
    """Return what a study on noisy counts fixes.

    Raises:
        StudyError: the columns have no such cells, or the budget does not suit the noise.
    """
    if parameters.rho is not None and parameters.noise != "gaussian":
        raise StudyError("parameter rho has no effect with Laplace noise; leave it out")
    try:
        grid = CellGrid.of(study.domain, cuts=parameters.cuts, folded=parameters.unlisted == "last")
        if parameters.noise == "laplace":
            return CountPlan(grid, laplace_count_guarantee(study.budget))
        return CountPlan(grid, gaussian_count_guarantee(study.budget, parameters.rho))
    except (GridError, SensitivityError) as error:
        raise StudyError(str(error)) from None


def noise_warnings(plan: CountPlan, units: Mapping[str, int]) -> tuple[str, ...]:
    """Say which owners' tables will be mostly noise at these numbers of units."""
    advice = "ask for more units, a larger epsilon, or fewer cells"
    deviation = plan.noise.variance**0.5
    drowned = [name for name, count in units.items() if deviation * plan.grid.size > count]
    if drowned and len(drowned) == len(units):
        return (f"{HOPELESS}noise exceeds the count of an average cell at every owner; {advice}",)
    if drowned:
        return (f"noise exceeds the count of an average cell at {', '.join(drowned)}; {advice}",)
    return ()


def require_work(cells: int, replicates: int) -> None:
    """Raise StudyError where a verdict would simulate more than WORK_MAX cells."""
    if cells * replicates > WORK_MAX:
        raise StudyError("the verdict would take too long; use fewer replicates, owners or cells")


def shown_counts(tables: Mapping[str, NoisyTable]) -> dict[str, tuple[float, ...]] | None:
    """Return tables' noisy counts for a verdict; None where there are too many to show."""
    if sum(len(table.counts) for table in tables.values()) > TABLE_NUMBERS_MAX:
        return None
    return {name: written_counts(table) for name, table in tables.items()}


def written_counts(table: NoisyTable) -> tuple[float, ...]:
    """Return a table's noisy counts as verdicts state them."""
    counts = np.clip(table.counts, -COUNT_WRITTEN_MAX, COUNT_WRITTEN_MAX)
    return tuple(round(float(count), DECIMALS) for count in counts)


def striking_cells(
    grid: CellGrid,
    test: HomogeneityTest | IndependenceOutcome,
    shares: Mapping[str, npt.NDArray[np.float64]],
    level: float,
) -> tuple[CellFinding, ...]:
    """Return the cells with the smallest adjusted p-values, with up to CELLS_SHOWN owners' shares."""
    shown = dict(list(shares.items())[:CELLS_SHOWN])
    pvalues = test.cells
    order = np.argsort(-test.ratios, kind="stable")[:CELLS_SHOWN]
    return tuple(
        CellFinding(
            labels=dict(zip(grid.names, grid.label(int(cell)), strict=True)),
            pvalue=float(pvalues[cell]),
            reject=bool(pvalues[cell] <= level),
            shares={name: float(values[cell]) for name, values in shown.items()},
        )
        for cell in order
    )


def _counting_part(source: Study) -> Study:
    """Keep of another procedure's parameters those that say how it counts."""
    known = {
        name: source.parameters[name] for name in CountParameters.model_fields if name in source.parameters
    }
    return source.model_copy(update={"parameters": known})


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
