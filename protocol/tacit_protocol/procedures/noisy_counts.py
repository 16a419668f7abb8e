"""Noisy counts: every owner releases one private table, from which anything may then be computed for nothing.

One table answers many questions: tests of homogeneity and of independence, and of identity with a known
distribution, read it again without spending. Laplace noise of scale 2/epsilon on each cell (pure epsilon),
or Gaussian noise, also by rho (zCDP); all for the replacement of one privacy unit.
Derivations: docs/mathematics/categorical.md.
"""

from collections.abc import Mapping
from typing import ClassVar, Literal

from pydantic import BaseModel

from tacit_protocol.domain.table import Table
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.privacy.vector import COORDINATES_MAX
from tacit_protocol.procedures.base import (
    Progress,
    StudyError,
    parse_parameters,
    require_shared_columns,
    reuse_warnings,
)
from tacit_protocol.procedures.count_tables import (
    CountParameters,
    CountPlan,
    count_plan,
    noise_warnings,
    written_counts,
)
from tacit_protocol.statistics.cell_counts import CellCounts
from tacit_protocol.strict import StrictModel


class NoisyCountsVerdict(StrictModel):
    """Every owner's noisy table, cells in row-major order of ``shape``; labels follow from the study.

    A count in the data lies within ``half_width`` of the noisy one with probability 1 - level; all counts of
    an owner together do within ``half_width_all``. ``reject`` is always false: a table tests nothing.
    """

    method: str
    reject: Literal[False]
    level: float
    units: dict[str, int]
    epsilon: float
    delta: float
    columns: tuple[str, ...]
    shape: tuple[int, ...]
    counts: dict[str, tuple[float, ...]]
    noise: str
    scale: float
    half_width: float
    half_width_all: float
    warnings: tuple[str, ...]


class NoisyCounts:
    """See the module. Registered as ``noisy_counts``."""

    name: ClassVar[str] = "noisy_counts"
    title: ClassVar[str] = "How many units are in each cell?"
    Parameters: ClassVar[type[BaseModel]] = CountParameters
    Verdict: ClassVar[type[BaseModel]] = NoisyCountsVerdict

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; leave the curator out")
        plan = _plan(study)
        if plan.grid.size * len(study.owners) > COORDINATES_MAX:
            raise StudyError(f"all owners' tables have more than {COORDINATES_MAX} cells; use fewer")

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: the study's whole budget, or rho of it, in one release."""
        return _plan(study).guarantee

    def numbers_released(self, study: Study) -> int:
        """Return how many noisy numbers one owner sends: one a cell."""
        return _plan(study).grid.size

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where the noise on a cell exceeds the count that an average cell has."""
        return noise_warnings(_plan(study), units)

    def summarise(self, study: Study, table: Table) -> CellCounts:
        """Count one owner's units exactly. The counts never leave the owner."""
        return _plan(study).summarise(table)

    def privatise(self, study: Study, summary: CellCounts, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states."""
        return _plan(study).privatise(summary, noise)

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        _plan(study).check(release)

    def check_reread(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where an earlier release, read again, has not this study's cells."""
        _plan(study).read(release)

    def reread(
        self,
        study: Study,
        owner: Owner,  # noqa: ARG002 (every owner's release is read alike)
        source: Study,
        release: Release,
    ) -> Release:
        """Return the same cells of an earlier release, or sums of them: a finer table's margins."""
        return _plan(study).reread(source, release)

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> NoisyCountsVerdict:
        """Compute the verdict: post-processing alone, the same for everyone."""
        if progress is not None:
            progress(0.5, "reading tables")
        plan = _plan(study)
        tables = {owner.name: plan.read_owner(owner, releases) for owner in study.owners}
        units = {name: table.units for name, table in tables.items()}
        widest = max((table.noises[0] for table in tables.values()), key=lambda noise: noise.variance)
        size = plan.grid.size
        return NoisyCountsVerdict(
            method=f"noisy counts of {size} cells, {plan.noise.kind} noise",
            reject=False,
            level=study.level,
            units=units,
            epsilon=study.budget.epsilon,
            delta=study.budget.delta,
            columns=plan.grid.names,
            shape=plan.grid.shape,
            counts={name: written_counts(table) for name, table in tables.items()},
            noise=widest.kind,
            scale=widest.scale,
            half_width=widest.half_width(study.level),
            half_width_all=widest.half_width(study.level / size),
            warnings=self.warnings(study, units) + reuse_warnings(study),
        )


def _plan(study: Study) -> CountPlan:
    return count_plan(study, parse_parameters(CountParameters, study))
