"""Independence of categories: whether the columns of a private contingency table are independent.

Every owner releases noisy counts of the cross product of its columns (or an earlier release is read again,
for nothing). The tester adds the owners' tables up and tests independence in the units of all of them by a
chi-square statistic whose null distribution counts sampling and noise. Of more than two columns it tests
mutual independence, and every pair in its margin. Derivations: docs/mathematics/categorical.md.
"""

from collections.abc import Mapping
from typing import Annotated, ClassVar

import numpy as np
from pydantic import BaseModel, Field

from tacit_protocol.domain.table import Table
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import (
    Progress,
    StudyError,
    parse_parameters,
    require_shared_columns,
    reuse_warnings,
)
from tacit_protocol.procedures.count_tables import (
    REPLICATES_DEFAULT,
    REPLICATES_MAX,
    REPLICATES_MIN,
    CellFinding,
    CountParameters,
    CountPlan,
    count_plan,
    noise_warnings,
    require_work,
    shown_counts,
    striking_cells,
)
from tacit_protocol.statistics.cell_counts import CellCounts
from tacit_protocol.statistics.contingency import (
    IndependenceOutcome,
    PairOutcome,
    compare_columns,
    independence_test,
    margin_table,
)
from tacit_protocol.statistics.cramers_v import DRAWS, LINE, Association, cramers_v
from tacit_protocol.statistics.noisy_tables import NoisyTable, add_tables
from tacit_protocol.strict import StrictModel

COLUMNS_MAX = 6
"""Most columns: 15 pairs, and tables whose margins still hold more than noise."""

TEST_STREAM, PAIRS_STREAM, ASSOCIATION_STREAM = 1, 2, 3
"""Spawn keys under the study's seed."""


class IndependenceTableParameters(CountParameters):
    """How owners count, and how many null statistics are simulated."""

    replicates: Annotated[int, Field(ge=REPLICATES_MIN, le=REPLICATES_MAX)] = REPLICATES_DEFAULT


class ColumnsCompared(StrictModel):
    """Two columns: p-value adjusted for all pairs, and Cramér's V with its interval."""

    first: str
    second: str
    statistic: float
    pvalue: float
    reject: bool
    cramers_v: float
    lower: float
    upper: float


class IndependenceTableVerdict(StrictModel):
    """Whether the columns are independent, among the units of all owners, and how strongly they depend.

    ``cramers_v`` and its interval are of two columns, and None of more; ``pairs`` has them for each pair.
    Intervals are for one pair, not for all together. ``cells`` are those with the smallest p-values,
    adjusted for all cells; ``counts`` are the noisy tables themselves, None where they are large.
    """

    method: str
    statistic: float
    pvalue: float
    reject: bool
    level: float
    units: dict[str, int]
    epsilon: float
    delta: float
    columns: tuple[str, ...]
    shape: tuple[int, ...]
    counts: dict[str, tuple[float, ...]] | None
    cramers_v: float | None
    lower: float | None
    upper: float | None
    pairs: tuple[ColumnsCompared, ...]
    cells: tuple[CellFinding, ...]
    warnings: tuple[str, ...]


class IndependenceTable:
    """See the module. Registered as ``independence_table``."""

    name: ClassVar[str] = "independence_table"
    title: ClassVar[str] = "Are these categories independent of each other?"
    Parameters: ClassVar[type[BaseModel]] = IndependenceTableParameters
    Verdict: ClassVar[type[BaseModel]] = IndependenceTableVerdict

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; leave the curator out")
        parameters, plan = _parameters(study), _plan(study)
        columns = len(plan.grid.axes)
        if not 2 <= columns <= COLUMNS_MAX:
            raise StudyError(f"a contingency table has 2 to {COLUMNS_MAX} columns")
        pairs = columns * (columns - 1) // 2
        simulated = len(study.owners) + (pairs if columns > 2 else 0)
        require_work(plan.grid.size * simulated, parameters.replicates)
        require_work(plan.grid.size * pairs * len(LINE), DRAWS)

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
        """Return the same cells of an earlier release of counts, or sums of a finer table's."""
        return _plan(study).reread(source, release)

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> IndependenceTableVerdict:
        """Compute the verdict: post-processing alone, the same for everyone."""
        plan, parameters = _plan(study), _parameters(study)
        tables = {owner.name: plan.read_owner(owner, releases) for owner in study.owners}
        table, report = add_tables(list(tables.values())), progress if progress is not None else _silent
        test = independence_test(
            table,
            plan.grid.shape,
            parameters.replicates,
            _seed(study, TEST_STREAM),
            lambda part: report(0.5 * part, "simulating the null"),
        )
        pairs = _pairs(study, plan, table, test, report)
        only = pairs[0] if len(pairs) == 1 else None
        units = {name: own.units for name, own in tables.items()}
        return IndependenceTableVerdict(
            method=f"chi-square test of independence in a table of {' x '.join(map(str, plan.grid.shape))} "
            f"cells with {plan.noise.kind} noise in its null, {parameters.replicates} replicates",
            statistic=test.statistic,
            pvalue=test.pvalue,
            reject=test.pvalue <= study.level,
            level=study.level,
            units=units,
            epsilon=study.budget.epsilon,
            delta=study.budget.delta,
            columns=plan.grid.names,
            shape=plan.grid.shape,
            counts=shown_counts(tables),
            cramers_v=None if only is None else only.cramers_v,
            lower=None if only is None else only.lower,
            upper=None if only is None else only.upper,
            pairs=pairs,
            cells=striking_cells(plan.grid, test, {"all": table.counts / table.units}, study.level),
            warnings=self.warnings(study, units) + reuse_warnings(study),
        )


def _pairs(
    study: Study, plan: CountPlan, table: NoisyTable, overall: IndependenceOutcome, report: Progress
) -> tuple[ColumnsCompared, ...]:
    shape, names = plan.grid.shape, plan.grid.names
    if len(shape) == 2:
        tests: tuple[PairOutcome, ...] = (PairOutcome(0, 1, overall.statistic, overall.pvalue),)
    else:
        tests = compare_columns(
            table,
            shape,
            _parameters(study).replicates,
            _seed(study, PAIRS_STREAM),
            lambda part: report(0.5 + 0.4 * part, "comparing pairs of columns"),
        )
    seeds = _seed(study, ASSOCIATION_STREAM).spawn(len(tests))
    found = []
    for done, (test, seed) in enumerate(zip(tests, seeds, strict=True)):
        report(0.9 + 0.1 * done / len(tests), "measuring association")
        strength = _association(study, plan, table, (test.first, test.second), seed)
        found.append(
            ColumnsCompared(
                first=names[test.first],
                second=names[test.second],
                statistic=test.statistic,
                pvalue=test.pvalue,
                reject=test.pvalue <= study.level,
                cramers_v=strength.value,
                lower=strength.lower,
                upper=strength.upper,
            )
        )
    return tuple(found)


def _association(
    study: Study, plan: CountPlan, table: NoisyTable, pair: tuple[int, int], seed: np.random.SeedSequence
) -> Association:
    margin, shape = margin_table(table, plan.grid.shape, pair)
    levels = min(plan.grid.axes[axis].listed for axis in pair)
    return cramers_v(margin, shape, max(2, levels), study.level, seed)


def _parameters(study: Study) -> IndependenceTableParameters:
    return parse_parameters(IndependenceTableParameters, study)


def _plan(study: Study) -> CountPlan:
    return count_plan(study, _parameters(study))


def _seed(study: Study, stream: int) -> np.random.SeedSequence:
    return np.random.SeedSequence(int(study.seed, 16), spawn_key=(stream,))


def _silent(part: float, step: str) -> None:
    """Report progress to nobody."""
