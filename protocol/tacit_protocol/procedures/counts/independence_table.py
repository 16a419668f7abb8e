"""Independence of categories: whether the columns of a private contingency table are independent.

Every owner releases noisy counts of the cross product of its columns (or an earlier release is read again,
for nothing). The tester adds the owners' tables up and tests independence in the units of all of them by a
chi-square statistic whose null distribution counts sampling and noise. Of more than two columns it tests
mutual independence, and every pair in its margin. Derivations: docs/mathematics/categorical.md.
"""

from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt

from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.noisy_tables import NoisyTable, add_tables, total_variation
from tacit_protocol.procedures.base import (
    Fields,
    Progress,
    Question,
    Releases,
    StudyError,
    decided,
    public_seed,
    step,
)
from tacit_protocol.procedures.counts.base import (
    Cells,
    ComparedPair,
    CountsTestResult,
    CountTest,
    require_near,
    require_work,
    residual_panel,
    striking_cells,
    tables_of,
)
from tacit_protocol.procedures.counts.release import CountPlan
from tacit_protocol.procedures.counts.statistic import (
    DRAWS,
    TABLES_MAX,
    Association,
    PairTest,
    TableTest,
    compare_columns,
    cramers_v,
    independence_test,
    margin_table,
    margins_of,
    product,
)
from tacit_protocol.procedures.counts.statistic import residuals as table_residuals
from tacit_protocol.procedures.populations import Floats, Population
from tacit_protocol.verdicts.base import BaseVerdict, Interval, ShownTable, interval_of
from tacit_protocol.verdicts.panels import RowsPanel
from tacit_protocol.verdicts.words import CHI_SQUARED, NEW_CLASS, Meaning, Work, either, joined

COLUMNS_MAX = 6
"""Most columns: 15 pairs, and tables whose margins still hold more than noise."""

TEST_STREAM, PAIRS_STREAM, ASSOCIATION_STREAM = 1, 2, 3
"""Spawn keys under the study's seed."""


class ColumnsCompared(ComparedPair):
    """Two columns: p-value adjusted for all pairs, and Cramér's V with its interval."""

    cramers_v: float
    lower: float
    upper: float

    @property
    def interval(self) -> Interval:
        """Of Cramér's V."""
        return self.lower, self.upper


class IndependenceTableResult(CountsTestResult):
    """Whether the columns are independent, among the units of all owners, and how strongly they depend.

    Intervals are for one pair, not for all together.

    Attributes:
        cramers_v: strength of the association of two columns, in [0, 1], among the units whose values in both
            are listed; None for more columns.
        interval: of Cramér's V; counts the noise. None for more columns.
        pairs: columns compared with each other, with Cramér's V.
        cells: those with the smallest p-values, adjusted for all cells.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue", "cramers_v", "interval")

    cramers_v: float | None
    lower: float | None
    upper: float | None
    pairs: tuple[ColumnsCompared, ...]

    @property
    def interval(self) -> Interval | None:
        """Of Cramér's V; counts the noise. None for more columns than two."""
        return interval_of(self.lower, self.upper)

    def __str__(self) -> str:
        decision = "the columns depend on each other" if self.reject else "no dependence shown"
        strength = "" if self.cramers_v is None else f", Cramér's V {self.cramers_v:.3f}"
        return self._told(f"{self._decided(decision)}{strength}")

    def fields(self) -> dict[str, Any]:
        """Return what the command lists beside the common fields."""
        shown = ("names", "pvalue", "reject", "cramers_v", "interval")
        return super().fields() | {"pairs": [{n: getattr(pair, n) for n in shown} for pair in self.pairs]}

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        rows = tuple(
            (
                " and ".join(pair.names),
                f"{pair.pvalue:.3g}",
                f"{pair.cramers_v:.3f}, {pair.lower:.3f} to {pair.upper:.3f}",
            )
            for pair in self.pairs
        )
        finding = "the columns DEPEND on each other" if self.reject else "no dependence shown"
        return self._shown(finding, ShownTable(("Columns", "p (Holm)", "Cramér's V"), rows))


class DependentCells(Cells):
    """Counts of a table whose first two columns depend on each other."""

    @cached_property
    def cells(self) -> tuple[Floats, Floats]:
        """The cells' probabilities of independent columns and of dependent ones, (k,) each."""
        shape = self.grid.shape
        if self.effect.other is not None:
            other = self.probabilities(self.effect.other)
            return np.asarray(product(margins_of(other, shape))).ravel(), other
        null = self.null
        as_given = self.public is not None and self.effect.size is None
        return null, null if as_given else dependent(null, shape, self.size)

    def words(self) -> str:
        """Say how far the table is from independence."""
        return f"a dependence of {total_variation(*self.cells):.3g} in total variation"


class IndependenceTable(CountTest):
    """See the module. Registered as ``independence_table``."""

    name: ClassVar[str] = "independence_table"
    title: ClassVar[str] = "Are these categories independent of each other?"
    Verdict: ClassVar[type[BaseVerdict]] = IndependenceTableResult
    cited: ClassVar[tuple[Work, ...]] = (CHI_SQUARED, NEW_CLASS)
    simulated: ClassVar[str] = "tables of independent columns"
    added: ClassVar[bool] = True
    question: ClassVar[Question | None] = Question(
        "Are these categories independent of each other?",
        r"categor.*independen|contingenc|table|chi.?square",
        "one or more",
        rank=6,
        categories=True,
        pure=True,
        relates=True,
    )
    population: ClassVar[type[Population] | None] = DependentCells

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        super().check(study)
        parameters, plan = self.parameters(study), self.plan(study)
        columns = len(plan.grid.axes)
        if not 2 <= columns <= COLUMNS_MAX:
            raise StudyError(f"a contingency table has 2 to {COLUMNS_MAX} columns")
        if min(plan.grid.shape) < 2:
            raise StudyError("a column with a single cell depends on nothing: leave it out")
        pairs = columns * (columns - 1) // 2
        simulated = len(study.owners) + (pairs if columns > 2 else 0)
        require_work(plan.grid.size * simulated, parameters.replicates)
        require_work(plan.grid.size * pairs * TABLES_MAX, DRAWS)

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        columns = joined(list(verdict.get("columns") or [c.name for c in study.domain.columns]), 6)
        return either(
            study,
            verdict,
            f"The categories {columns} depend on each other, among the units of all owners",
            f"No dependence of the categories {columns} was shown: they may be independent",
        )

    def test(
        self,
        study: Study,
        tables: Sequence[NoisyTable],
        replicates: int,
        progress: Callable[[float], None] | None = None,
    ) -> TableTest:
        """Test whether the columns of the tables, added up, are independent."""
        seed, shape = public_seed(study, TEST_STREAM), self.plan(study).grid.shape
        return independence_test(add_tables(tables), shape, replicates, seed, progress)

    def panels(self, study: Study, verdict: Fields, releases: Releases) -> list[RowsPanel]:
        """Return the cells with the largest residuals; none where the tables are not at hand."""
        grid = self.plan(study).grid
        tables = tables_of(self.plan(study), study, verdict, releases)
        if tables is None:
            return []
        found = from_independence(add_tables(tables), grid.shape)
        return residual_panel("Cells against independence", grid, {"": found}, verdict)

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> IndependenceTableResult:
        """Compute the verdict: post-processing alone, the same for everyone."""
        plan, parameters = self.plan(study), self.parameters(study)
        tables = {owner.name: plan.read_owner(owner, releases) for owner in study.owners}
        table = add_tables(list(tables.values()))
        simulating = step(progress, "simulating the null", 0.0, 0.5)
        test = self.test(study, [table], parameters.replicates, simulating)
        pairs = _pairs(study, plan, table, test, replicates=parameters.replicates, progress=progress)
        only = pairs[0] if len(pairs) == 1 else None
        return IndependenceTableResult(
            method=f"chi-square test of independence in a table of {' x '.join(map(str, plan.grid.shape))} "
            f"cells with {plan.noise.kind} noise in its null, {parameters.replicates} replicates",
            **decided(study, test.statistic, test.pvalue),
            **self.shown(study, tables),
            cramers_v=None if only is None else only.cramers_v,
            lower=None if only is None else only.lower,
            upper=None if only is None else only.upper,
            pairs=pairs,
            cells=striking_cells(plan.grid, test, {"all": table.counts / table.units}, study.level),
        )


def _pairs(
    study: Study,
    plan: CountPlan,
    table: NoisyTable,
    overall: TableTest,
    *,
    replicates: int,
    progress: Progress | None,
) -> tuple[ColumnsCompared, ...]:
    shape, names = plan.grid.shape, plan.grid.names
    if len(shape) == 2:
        tests: tuple[PairTest, ...] = (PairTest(0, 1, overall.statistic, overall.pvalue),)
    else:
        tests = compare_columns(
            table,
            shape,
            replicates,
            public_seed(study, PAIRS_STREAM),
            step(progress, "comparing pairs of columns", 0.5, 0.9),
        )
    seeds = public_seed(study, ASSOCIATION_STREAM).spawn(len(tests))
    measured, found = step(progress, "measuring association", 0.9), []
    for done, (test, seed) in enumerate(zip(tests, seeds, strict=True)):
        measured(done / len(tests))
        strength = _association(study, plan, table, (test.first, test.second), seed)
        found.append(
            ColumnsCompared(
                first=names[test.first],
                second=names[test.second],
                **decided(study, test.statistic, test.pvalue),
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
    first, second = (plan.grid.axes[axis].listed for axis in pair)
    return cramers_v(margin, (shape[0], shape[1]), (first, second), study.level, seed)


def from_independence(table: NoisyTable, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return every cell's residual, (k,), from the product of the table's margins."""
    shares = table.counts / table.units
    found = table_residuals(shares, shape, table.units, table.noise_variance / table.units**2)
    floor = 1 / table.units**2  # where nothing is expected, one unit is the least that can be seen
    return np.asarray((shares - found.fitted) / np.sqrt(np.maximum(found.explained, floor)))


def dependent(probabilities: Floats, shape: tuple[int, ...], distance: float) -> Floats:
    """Return the joint distribution (k,) at a total variation distance from independent columns.

    In the first two columns, cells whose levels are both even or both odd in number are larger, the others
    smaller, with both columns' own distributions kept. Raises EffectError where it cannot be so far away.
    """
    table = probabilities.reshape(shape)
    signs = []
    for axis in (0, 1):
        own = table.sum(axis=tuple(other for other in range(table.ndim) if other != axis))
        turns = np.where(np.cumsum(own > 0) % 2 == 1, 1.0, -1.0) * (own > 0)
        signs.append((turns - own @ turns) * (own > 0))
    pattern = np.multiply.outer(*signs).reshape(shape[:2] + (1,) * (table.ndim - 2)) * table
    unit = float(np.abs(pattern).sum() / 2)
    shrinking = pattern < 0
    largest = unit * float(np.min(table[shrinking] / -pattern[shrinking], initial=np.inf)) if unit else 0.0
    require_near(distance, largest)
    joint = table + pattern * (min(distance, largest) / unit if unit else 0.0)
    return np.asarray(np.maximum(joint, 0.0).ravel())
