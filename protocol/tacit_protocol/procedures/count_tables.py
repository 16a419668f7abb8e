"""What procedures on noisy counts share: the owner's part, reading releases again, and what verdicts show."""

from collections.abc import Mapping
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from tacit_protocol.domain.table import Table
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import Procedure, StudyError, parse_parameters, require_shared_columns
from tacit_protocol.procedures.count_plan import CountParameters, CountPlan, count_plan
from tacit_protocol.statistics.cell_counts import CellCounts, CellGrid
from tacit_protocol.statistics.contingency import IndependenceOutcome
from tacit_protocol.statistics.homogeneity import HomogeneityTest
from tacit_protocol.statistics.noisy_tables import NoisyTable
from tacit_protocol.strict import StrictModel

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


class CountTestParameters(CountParameters):
    """How owners count, and how many null statistics are simulated."""

    replicates: Annotated[int, Field(ge=REPLICATES_MIN, le=REPLICATES_MAX)] = Field(
        REPLICATES_DEFAULT,
        description="Simulated null statistics; the smallest p-value is 1/(replicates + 1).",
    )


class CountProcedure(Procedure):
    """Every owner releases one table of noisy counts; what is made of the tables is each procedure's own."""

    Parameters: ClassVar[type[BaseModel]] = CountParameters
    released: ClassVar[str] = "the number of units in each public cell"
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = ({"noise": "laplace"}, {"noise": "gaussian"})

    def parameters(self, study: Study) -> CountParameters:
        """Read the study's parameters. Raises StudyError where they are none of this procedure's."""
        return parse_parameters(CountParameters, study)

    def plan(self, study: Study) -> CountPlan:
        """Return what the study fixes before any data. Raises StudyError where it cannot be run."""
        return count_plan(study, self.parameters(study))

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; leave the curator out")
        self.plan(study)

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: the study's whole budget, or rho of it, in one release."""
        return self.plan(study).guarantee

    def numbers_released(self, study: Study) -> int:
        """Return how many noisy numbers one owner sends: one a cell."""
        return self.plan(study).grid.size

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where the noise on a cell exceeds the count that an average cell has."""
        return noise_warnings(self.plan(study), units)

    def summarise(self, study: Study, table: Table) -> CellCounts:
        """Count one owner's units exactly. The counts never leave the owner."""
        return self.plan(study).summarise(table)

    def privatise(self, study: Study, summary: CellCounts, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states."""
        return self.plan(study).privatise(summary, noise)

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        self.plan(study).check(release)

    def check_reread(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where an earlier release, read again, has not this study's cells."""
        self.plan(study).read(release)

    def reread(
        self,
        study: Study,
        owner: Owner,  # noqa: ARG002 (every owner's release is read alike)
        source: Study,
        release: Release,
    ) -> Release:
        """Return the same cells of an earlier release, or sums of them: a finer table's margins."""
        return self.plan(study).reread(source, release)


class CountTest(CountProcedure):
    """A test on the owners' tables, whose null distribution is simulated."""

    Parameters: ClassVar[type[BaseModel]] = CountTestParameters

    def parameters(self, study: Study) -> CountTestParameters:
        """Read the study's parameters. Raises StudyError where they are none of a test's."""
        return parse_parameters(CountTestParameters, study)


def simulation_seed(study: Study, stream: int) -> np.random.SeedSequence:
    """Return the public seed of one of a study's simulations."""
    return np.random.SeedSequence(int(study.seed, 16), spawn_key=(stream,))


def silent(part: float, step: str) -> None:
    """Report progress to nobody."""


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
