"""Independence of categories: whether the columns of a private contingency table are independent.

Every owner releases noisy counts of the cross product of its columns (or an earlier release is read again,
for nothing). The tester adds the owners' tables up and, given the units whose values are all listed, tests
independence by a chi-square statistic whose null distribution counts sampling and noise. Of more than two
columns it tests mutual independence, and every pair in its margin. Of several owners every pair is also
tested within them (:mod:`tacit_protocol.procedures.stratified_table`): adding tables up can make dependence,
hide it or turn it round (Simpson, 1951), and a verdict says where it does. Derivations:
docs/mathematics/categorical.md.

With m the product of the projected margins, v_i = m_i (1 - sum_a m_i/r_a + (d - 1) m_i)/n and s^2 g_i what
noise of standard deviation s on a share adds, the statistic is sum_i ((p_i - m_i)^2 - v_i - s^2 g_i) /
(max(m_i, 1/n)/n + s^2). Its null is a parametric bootstrap, tables and noise drawn anew and everything
estimated again, at the distribution at hand and at a sparser and a more even one that noise cannot tell from
it; the largest p-value counts.

*Cramér's V*, V^2 = phi^2/(levels - 1) of the units whose values are listed, less what sampling and noise add.
Its interval inverts simulated tests along two lines of tables from independence through the table itself:
with the projected margins, and with margins of a deviation of their noise at least (coverage:
docs/benchmarks/categorical.md).
"""

import math
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property, partial
from itertools import combinations
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from tacit_protocol.features.cell_counts import CellGrid, compared_places
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.inference import holm
from tacit_protocol.numerics.noisy_tables import (
    ComparedShares,
    NoisyTable,
    NuisanceNull,
    PairTest,
    TableTest,
    add_tables,
    compare_each,
    onto_simplex,
    plausible,
    simulated_null,
    total_variation,
)
from tacit_protocol.numerics.randomised_tables import AnsweredTable, table_estimates
from tacit_protocol.procedures.base import (
    CELL_WORK,
    WORK_MAX,
    Fields,
    Progress,
    QuestionTemplate,
    Releases,
    StudyError,
    decided,
    parse_parameters,
    public_seed,
    require_work,
    step,
)
from tacit_protocol.procedures.counts.base import (
    ComparedPair,
    CountProcedure,
    CountsShift,
    CountsTestResult,
    CountTestParameters,
    SimulatedCountTest,
    require_near,
    residual_panel,
    striking_cells,
)
from tacit_protocol.procedures.counts.release import (
    CountsByAnswer,
    OwnCounts,
    margin_table,
    product,
    require_own_releases,
)
from tacit_protocol.procedures.counts.stratified import CONTRASTS_MAX, Strata, stratified_test
from tacit_protocol.procedures.masking import MaskedParameters
from tacit_protocol.procedures.populations import Floats, SimulationModel
from tacit_protocol.procedures.randomised_answers.answered_column import AnswerCounts
from tacit_protocol.verdicts.base import (
    BaseVerdict,
    Interval,
    ShownTable,
    compared_shown,
    estimate_shown,
    interval_of,
)
from tacit_protocol.verdicts.presentation import (
    CHI_SQUARED,
    NEW_CLASS,
    Citation,
    Meaning,
    RowsPanel,
    decision_sentence,
    joined,
)

TOLD = 4
"""Most pairs of which the sentence tells what holds within owners."""

COLUMNS_MAX = 6
"""Most columns: 15 pairs, and tables whose margins still hold more than noise."""

TEST_STREAM, PAIRS_STREAM, ASSOCIATION_STREAM, WITHIN_STREAM = 1, 2, 3, 4
"""Spawn keys under the study's seed."""


@dataclass(frozen=True)
class Residuals:
    """Tables' cells (..., k): probabilities if independent, squared residuals, and what explains them."""

    fitted: Floats
    squared: Floats
    explained: Floats
    scale: Floats

    @property
    def statistics(self) -> Floats:
        """The sums over cells, (...), of what is not explained, on the scale of its spread."""
        return np.asarray(np.sum((self.squared - self.explained) / self.scale, axis=-1))

    @property
    def ratios(self) -> Floats:
        """Each cell's squared residual over its scale, to compare cells with each other."""
        return self.squared / self.scale


def residuals(
    shares: Floats, shape: tuple[int, ...], units: int | Floats, noise_variance: float | Floats
) -> Residuals:
    """Compare noisy shares (..., k) of tables of that shape with the products of their margins.

    ``noise_variance`` is that of a share; it and ``units`` are numbers, or (..., 1) of each table.
    """
    margins = margins_of(shares, shape)
    fitted = product(margins)
    cells = shares.shape[-1]
    total, noise = np.zeros_like(fitted), np.ones_like(fitted)
    for axis, size in enumerate(shape):
        # m_i over the share of this column's category: the product of the other margins.
        weight = product([*margins[:axis], np.ones_like(margins[axis]), *margins[axis + 1 :]])
        total += weight
        noise += (1 - 1 / size) * (weight**2 * (cells / size) - 2 * weight)
    sampling = fitted * (1 - total + (len(shape) - 1) * fitted) / units
    scale = np.maximum(fitted, 1 / units) / units + noise_variance
    return Residuals(fitted, (shares - fitted) ** 2, sampling + noise_variance * noise, scale)


def compared_residuals(found: ComparedShares, shape: tuple[int, ...]) -> Residuals:
    """Compare the shares of tables of that shape with the products of their margins."""
    return residuals(found.shares, shape, found.units, found.variance)


def margins_of(shares: Floats, shape: tuple[int, ...]) -> list[Floats]:
    """Return each column's shares, (..., size), as probabilities."""
    lead = shares.shape[:-1]
    tables = shares.reshape(*lead, *shape)
    places = range(len(lead), tables.ndim)
    return [onto_simplex(tables.sum(axis=tuple(o for o in places if o != place))) for place in places]


def independence_test(
    table: NoisyTable,
    shape: tuple[int, ...],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Callable[[float], None] | None = None,
) -> TableTest:
    """Test whether the columns of a table are independent, whose compared cells (k,) are of that shape.

    The p-value is the largest, over plausible margins, of (1 + simulated statistics at least as large) /
    (replicates + 1).
    """
    own = compared_residuals(table.held, shape)
    null = independence_null(table, shape, replicates, seed, progress)
    return TableTest.of_cells(float(own.statistics), own.ratios, null)


def independence_null(
    table: NoisyTable,
    shape: tuple[int, ...],
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Callable[[float], None] | None = None,
) -> NuisanceNull:
    """Simulate the null distribution at plausible margins; all have the same noise and seeds."""
    values = plausible_margins(table, shape)

    def draw(rng: np.random.Generator, count: int) -> Iterator[tuple[Floats, Floats]]:
        noise = table.draw_noise(rng, count)
        for probabilities in values:
            drawn = compared_residuals(table.draw(probabilities, rng, count, noise), shape)
            yield drawn.statistics, drawn.ratios.max(axis=-1)

    return simulated_null(draw, len(values), replicates, seed, numbers=len(table.counts), progress=progress)


def plausible_margins(table: NoisyTable, shape: tuple[int, ...]) -> tuple[Floats, ...]:
    """Return tables (k,) of independent columns: of the margins at hand, of sparser, and of more even ones.

    Each margin is moved by up to REACH standard deviations of itself, sampling and noise together.
    """
    held = table.held
    cells, units, variance = len(held.shares), float(held.units[0]), float(held.variance[0])
    moved = [
        plausible(margin, cells / len(margin) * variance, units) for margin in margins_of(held.shares, shape)
    ]
    return tuple(product(list(margins)) for margins in zip(*moved, strict=True))


def compared_margin(
    table: NoisyTable, grid: CellGrid, axes: tuple[int, int]
) -> tuple[NoisyTable, tuple[int, int]]:
    """Return the table of two of a grid's columns, and the shape of the cells that are compared."""
    margin, shape = margin_table(table, grid.shape, axes)
    first, second = (grid.compared_shape[axis] for axis in axes)
    if (first, second) != shape:
        margin = replace(margin, compared=compared_places(shape, (first, second)))
    return margin, (first, second)


def compare_columns(
    table: NoisyTable,
    grid: CellGrid,
    replicates: int,
    seed: np.random.SeedSequence,
    progress: Callable[[float], None] | None = None,
) -> tuple[PairTest, ...]:
    """Test every pair of columns in its own margin of the table, with Holm's adjustment for all of them."""
    return compare_each(
        len(grid.axes),
        lambda pair, child: independence_test(*compared_margin(table, grid, pair), replicates, child),
        seed,
        progress,
    )


DRAWS = 399
"""Simulated estimates at each table of a line: tail probabilities to .01."""

LINE = (*np.linspace(0, 1, 11).tolist(), 1.15, 1.3, 1.5, 1.75, 2.0, 2.5, 3.0, 5.0, 10.0, 30.0, 100.0)
"""Tables of a line: 0 is independence, 1 the projected table."""

HALVINGS = 4
"""How often the step of the line in which the interval ends is halved, at either end."""

TABLES_MAX = 2 * (len(LINE) + 2 * HALVINGS)
"""Most tables at which estimates are simulated."""


@dataclass(frozen=True)
class CramersV:
    """Cramér's V in [0, 1], and an interval."""

    value: float
    lower: float
    upper: float


def cramers_v(
    table: NoisyTable,
    shape: tuple[int, int],
    level: float,
    seed: np.random.SeedSequence,
) -> CramersV:
    """Estimate Cramér's V of a table of two columns, whose compared cells are of that shape.

    Its interval has confidence 1 - level.
    """
    own = _ComparedCells(table, shape)
    estimate = float(own.phi_squared(own.shares))
    ends = [
        _ends(own, margins, estimate, level, np.random.default_rng(child))
        for margins, child in zip(own.margins, seed.spawn(2), strict=True)
    ]
    value, lower, upper = (
        math.sqrt(min(1.0, max(0.0, squared) / (min(shape) - 1)))
        for squared in (estimate, min(low for low, _ in ends), max(high for _, high in ends))
    )
    return CramersV(value, min(lower, value), max(upper, value))


Association = Callable[[NoisyTable, tuple[int, int], np.random.SeedSequence], CramersV]


class _ComparedCells:
    """The compared cells of a noisy table, whose ``shares`` (k,) are of all units: estimates of phi^2."""

    def __init__(self, table: NoisyTable, shape: tuple[int, int]) -> None:
        self._table, self.shape = table, shape
        self._kept = np.arange(len(table.counts)) if table.compared is None else table.compared
        self.shares = table.counts[self._kept] / table.units
        self._variance = table.noise_variance / table.units**2
        self._least = 1 / table.units + math.sqrt(self.shares.size * self._variance)
        part = max(float(self.shares.sum()), self._least)
        self._part, within = min(part, 1.0), self.shares / part
        self._direction = onto_simplex(within) - product(margins_of(within, shape))
        self._floor = (1 / table.units + math.sqrt(self._variance)) / self._part

    @property
    def margins(self) -> tuple[list[Floats], list[Floats]]:
        """The projected margins, and the same with a deviation of their noise at least."""
        found = margins_of(self.shares / max(float(self.shares.sum()), self._least), self.shape)
        spread = [math.sqrt(self._variance * size) / self._part for size in reversed(self.shape)]
        raised = [np.maximum(margin, least) for margin, least in zip(found, spread, strict=True)]
        return found, [margin / margin.sum() for margin in raised]

    def phi_squared(self, shares: Floats) -> Floats:
        """Estimate phi^2 of the listed units from shares (..., k) of all units.

        A cell weighs at least a unit and a deviation of noise.
        """
        part = np.maximum(shares.sum(axis=-1, keepdims=True), self._least)
        units, variance = self._table.units * part, self._variance / part**2
        found = residuals(shares / part, self.shape, units, variance)
        floor = 1 / units + np.sqrt(variance)
        return np.asarray(
            np.sum((found.squared - found.explained) / np.maximum(found.fitted, floor), axis=-1)
        )

    def at(self, margins: list[Floats], step: float) -> Floats:
        """Return the table so far along the line from independence with these margins, (k,)."""
        moved = np.maximum(product(margins) + step * self._direction, 0.0)
        return np.asarray(moved / moved.sum())

    def labels(self, probabilities: Floats) -> tuple[float, float]:
        """Return a table's phi^2, with floored denominators and as it is."""
        rows = probabilities.reshape(self.shape)
        fitted = np.outer(rows.sum(axis=1), rows.sum(axis=0))
        squared = (rows - fitted) ** 2
        exact = np.divide(squared, fitted, out=np.zeros_like(fitted), where=fitted > 0)
        return float(np.sum(squared / np.maximum(fitted, self._floor))), float(np.sum(exact))

    def simulate(self, probabilities: Floats, rng: np.random.Generator) -> Floats:
        """Draw noisy shares of as many units, (DRAWS, k), of which as many are listed as here."""
        everything = np.append(probabilities * self._part, max(0.0, 1 - self._part))
        drawn = rng.multinomial(self._table.units, everything / everything.sum(), size=DRAWS)[:, :-1]
        noise = self._table.draw_noise(rng, DRAWS)[:, self._kept]
        return np.asarray((drawn + noise) / self._table.units)


def _ends(
    own: _ComparedCells, margins: list[Floats], estimate: float, level: float, rng: np.random.Generator
) -> tuple[float, float]:
    """Return the smallest and the largest phi^2 that one line's tests do not reject."""

    def tail(step: float) -> tuple[bool, bool]:
        """Say whether a table is kept, and whether it is too strong where it is not."""
        drawn = own.phi_squared(own.simulate(own.at(margins, step), rng))
        below, above = 1 + int(np.sum(drawn <= estimate)), 1 + int(np.sum(drawn >= estimate))
        return 2 * min(below, above) > level * (DRAWS + 1), below < above

    def outside(inner: float, outer: float) -> float:
        """Return a step that is not kept, nearer to one that is."""
        for _ in range(HALVINGS):
            middle = (inner + outer) / 2
            inner, outer = (middle, outer) if tail(middle)[0] else (inner, middle)
        return outer

    found = [tail(step) for step in LINE]
    kept = [place for place, (inside, _) in enumerate(found) if inside]
    if kept:
        first, last = kept[0], kept[-1]
        low = LINE[first] if first == 0 else outside(LINE[first], LINE[first - 1])
        high = None if last + 1 == len(LINE) else outside(LINE[last], LINE[last + 1])
    else:
        # The estimate lies between two tables of the line: the last too weak one and the first too strong.
        strong = next((place for place, (_, strong) in enumerate(found) if strong), len(LINE))
        low = LINE[max(0, strong - 1)]
        high = LINE[strong] if strong < len(LINE) else None
    largest = math.inf if high is None else max(own.labels(own.at(margins, high)))
    # Independence itself has phi^2 = 0, whatever its computed margins say.
    return 0.0 if low == 0 else min(own.labels(own.at(margins, low))), largest


class IndependenceTableParameters(CountTestParameters, MaskedParameters):
    """How owners count, and how the null is simulated."""


class ColumnsCompared(ComparedPair):
    """Two columns: p-value adjusted for all pairs, and Cramér's V with its interval."""

    cramers_v: Annotated[float, estimate_shown("Cramér's V")]
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
        within_owners: the same pairs, tested within owners; empty of one owner, and where it was not asked.
        cells: those with the smallest p-values, adjusted for all cells.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue", "cramers_v", "interval")
    tabulated: ClassVar[tuple[str, ...]] = ("pairs",)

    cramers_v: Annotated[float | None, estimate_shown("Cramér's V")]
    lower: float | None
    upper: float | None
    pairs: Annotated[tuple[ColumnsCompared, ...], compared_shown("pairs")]
    within_owners: Annotated[tuple[ComparedPair, ...], compared_shown("the same pairs within owners")] = ()

    @property
    def interval(self) -> Interval | None:
        """Of Cramér's V; counts the noise. None for more columns than two."""
        return interval_of(self.lower, self.upper)

    def __str__(self) -> str:
        decision = "the columns depend on each other" if self.reject else "no dependence shown"
        strength = "" if self.cramers_v is None else f", Cramér's V {self.cramers_v:.3f}"
        return self._told(f"{self._decided(decision)}{strength}")

    def fields(self) -> dict[str, Any]:
        shown = ("names", "pvalue", "reject", "cramers_v", "interval")
        within = {"within_owners": [pair.model_dump() for pair in self.within_owners]}
        return (
            super().fields()
            | {"pairs": [{n: getattr(pair, n) for n in shown} for pair in self.pairs]}
            | (within if self.within_owners else {})
        )

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
        within = tuple(
            (" and ".join(pair.names), f"{pair.pvalue:.3g}", "depend" if pair.reject else "not shown")
            for pair in self.within_owners
        )
        return self._shown(
            finding,
            ShownTable(("Columns", "p (Holm)", "Cramér's V"), rows),
            *([ShownTable(("Within owners", "p (Holm)", ""), within)] if within else []),
        )


class DependentCells(CountsShift):
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


class IndependencePlan(SimulatedCountTest):
    """Independence of the columns in the sum of the tables that can be read."""

    simulated_null: ClassVar[str] = "tables of independent columns"

    def __init__(self, study: Study, parameters: IndependenceTableParameters) -> None:
        super().__init__(study, parameters)
        columns = len(self.grid.axes)
        if not 2 <= columns <= COLUMNS_MAX:
            raise StudyError(f"a contingency table has 2 to {COLUMNS_MAX} columns")
        if min(self.grid.compared_shape) < 2:
            raise StudyError("a column with a single cell depends on nothing: leave it out")
        pairs = columns * (columns - 1) // 2
        simulated = len(study.owners) + (pairs if columns > 2 else 0)
        require_work(CELL_WORK * self.grid.size * simulated, parameters.replicates)
        require_work(CELL_WORK * self.grid.size * pairs * TABLES_MAX, DRAWS)

    def meaning(self, verdict: Fields) -> Meaning:
        columns = joined(list(verdict.get("columns") or [c.name for c in self.study.domain.columns]), 6)
        said = decision_sentence(
            self.study,
            verdict,
            f"The categories {columns} depend on each other, among the units of all owners",
            f"No dependence of the categories {columns} was shown: they may be independent",
        )
        pairs = [ComparedPair.model_validate(own, strict=False) for own in verdict.get("within_owners") or ()]
        told = "; ".join(_told_within(pair, len(pairs) == 1) for pair in pairs[:TOLD])
        return Meaning(f"{said.sentence} {told}." if told else said.sentence, said.care)

    def tested(self, tables: Sequence[NoisyTable]) -> list[NoisyTable]:
        """Return the sum of the tables."""
        return [add_tables(tables)]

    def test(
        self,
        tables: Sequence[NoisyTable],
        replicates: int,
        progress: Callable[[float], None] | None = None,
    ) -> TableTest:
        """Test whether the columns of the one table are independent."""
        (table,), seed = tables, public_seed(self.study, TEST_STREAM)
        return independence_test(table, self.grid.compared_shape, replicates, seed, progress)

    def statistics(self, tables: Sequence[NoisyTable]) -> Floats:
        """Return the statistics of the one table."""
        (table,) = tables
        return compared_residuals(table.held, self.grid.compared_shape).statistics

    def null_of(self, tables: Sequence[NoisyTable], draws: int, seed: np.random.SeedSequence) -> NuisanceNull:
        """Simulate the null at plausible margins."""
        (table,) = tables
        return independence_null(table, self.grid.compared_shape, draws, seed)

    def panels(self, verdict: Fields, releases: Releases) -> list[RowsPanel]:
        """Return the cells with the largest residuals; none where the tables are not at hand."""
        tables = self.known_tables(verdict, releases)
        if tables is None:
            return []
        grid = self.grid
        found = from_independence(add_tables(tables), grid.compared_shape)
        return residual_panel("Cells against independence", grid, {"": found}, verdict, grid.compared)

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> IndependenceTableResult:
        association, tables = self.association(releases), self.tables(releases)
        (table,) = self.tested(list(tables.values()))
        test = self.test([table], self.replicates, step(progress, "simulating the null", 0.0, 0.5))
        pairs = self._pairs(table, test, association, progress)
        within, misled = self.within(list(tables.values()), pairs)
        only = pairs[0] if len(pairs) == 1 else None
        return IndependenceTableResult(
            method="chi-square test of independence in a table of "
            f"{' x '.join(map(str, self.grid.compared_shape))} cells with {self.noise.kind} noise in its "
            f"null, {self.replicates} replicates",
            **decided(self.study, test.statistic, test.pvalue),
            **self.shown(tables, releases, misled),
            cramers_v=None if only is None else only.cramers_v,
            lower=None if only is None else only.lower,
            upper=None if only is None else only.upper,
            pairs=pairs,
            within_owners=within,
            cells=striking_cells(self.grid, test, {"all": table.held.shares}, self.study.level),
        )

    def _pairs(
        self, table: NoisyTable, overall: TableTest, association: Association, progress: Progress | None
    ) -> tuple[ColumnsCompared, ...]:
        names = self.grid.names
        if len(names) == 2:
            tests: tuple[PairTest, ...] = (PairTest(0, 1, overall.statistic, overall.pvalue),)
        else:
            tests = compare_columns(
                table,
                self.grid,
                self.replicates,
                public_seed(self.study, PAIRS_STREAM),
                step(progress, "comparing pairs of columns", 0.5, 0.9),
            )
        seeds = public_seed(self.study, ASSOCIATION_STREAM).spawn(len(tests))
        measured, found = step(progress, "measuring association", 0.9), []
        for done, (test, seed) in enumerate(zip(tests, seeds, strict=True)):
            measured(done / len(tests))
            strength = association(table, (test.first, test.second), seed)
            found.append(
                ColumnsCompared(
                    first=names[test.first],
                    second=names[test.second],
                    **decided(self.study, test.statistic, test.pvalue),
                    cramers_v=strength.value,
                    lower=strength.lower,
                    upper=strength.upper,
                )
            )
        return tuple(found)

    def association(self, releases: Releases) -> Association:  # noqa: ARG002
        """Return what estimates Cramér's V of two columns from a table and a seed."""
        return self.of_columns

    def of_columns(self, table: NoisyTable, pair: tuple[int, int], seed: np.random.SeedSequence) -> CramersV:
        """Estimate Cramér's V of two columns of one table."""
        return cramers_v(*compared_margin(table, self.grid, pair), self.study.level, seed)

    def within(
        self,
        tables: Sequence[NoisyTable],  # noqa: ARG002
        pairs: Sequence[ComparedPair],  # noqa: ARG002
    ) -> tuple[tuple[ComparedPair, ...], tuple[str, ...]]:
        """Test every pair within owners, and say where that contradicts what their sum shows; or nothing."""
        return (), ()


class SummedIndependence(IndependencePlan, OwnCounts):
    """The owners' own tables, added up, or masked.

    Attributes:
        within_owners: whether pairs are also tested within owners: of several, where it can be done.
    """

    def __init__(self, study: Study, parameters: IndependenceTableParameters) -> None:
        super().__init__(study, parameters)
        owners = len(study.owners)
        sizes = [(size - 1) * (other - 1) for size, other in combinations(self.grid.shape, 2)]
        work = sum(3 * owners * (contrasts + 1) ** 2 for contrasts in sizes)
        fits = CELL_WORK * work * parameters.replicates <= WORK_MAX
        several = owners > 1 and self.shared is None
        self.within_owners = several and max(sizes, default=0) <= CONTRASTS_MAX and fits

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where noise drowns an average cell, and before the study what adding tables up may do."""
        found = self.drowned(units)
        if not self.within_owners:
            return found
        return (
            *found,
            f"the tables of {len(self.study.owners)} owners are added up: where owners differ in both "
            "columns, these depend on each other in the sum though they do not within owners, and the other "
            "way round; stratified_table asks within owners",
        )

    def within(
        self, tables: Sequence[NoisyTable], pairs: Sequence[ComparedPair]
    ) -> tuple[tuple[ComparedPair, ...], tuple[str, ...]]:
        """Test every pair within owners where it can be done, and say where their sum misleads."""
        if not self.within_owners:
            return (), ()
        places = list(combinations(range(len(self.grid.shape)), 2))
        seeds = public_seed(self.study, WITHIN_STREAM).spawn(len(places))
        tests, turned = [], []
        for axes, seed in zip(places, seeds, strict=True):
            owners = []
            for table in tables:
                margin, (first, second) = compared_margin(table, self.grid, axes)
                cells = np.arange(len(margin.counts)) if margin.compared is None else margin.compared
                owners.append(Strata(margin, cells.reshape(1, first, second)))
            tests.append(stratified_test(owners, self.replicates, seed))
            away = [_away(own.counts[0]) for own in owners]
            sum_away = _away(np.sum([own.counts[0] for own in owners], axis=0))
            turned.append(float(np.sum(sum_away * np.sum(away, axis=0))) < 0)
        adjusted = holm(np.array([test.pvalue for test in tests]))
        within = tuple(
            ComparedPair(
                first=pair.first, second=pair.second, **decided(self.study, test.statistic, float(pvalue))
            )
            for pair, test, pvalue in zip(pairs, tests, adjusted, strict=True)
        )
        misled = [
            _misled(pair, own)
            for pair, own, other_way in zip(pairs, within, turned, strict=True)
            if pair.reject != own.reject or (own.reject and other_way)
        ]
        return within, tuple(misled)


class AnsweredIndependence(IndependencePlan, CountsByAnswer):
    """One column is another owner's, of which it released randomised answers."""

    def association(self, releases: Releases) -> Association:
        return partial(self.beside_answers, self.known(releases))

    def beside_answers(
        self, known: AnswerCounts, table: NoisyTable, pair: tuple[int, int], seed: np.random.SeedSequence
    ) -> CramersV:
        """Estimate Cramér's V of two columns, one of which may be the answered one."""
        answered = next((place for place, axis in enumerate(pair) if self.grid.axes[axis].answered), None)
        if answered is None:
            return self.of_columns(table, pair, seed)
        margin, shape = margin_table(table, self.grid.shape, pair)
        counts = margin.counts.reshape(shape)
        own = AnsweredTable(
            counts=counts if answered == 0 else counts.T,
            rows=known.answers,
            kept=(known.kept, 1.0),
            ordered=(False, False),
            noise=math.sqrt(margin.noise_variance / 2),
        )
        strength = table_estimates(own, 1 - self.study.level).cramers_v
        if strength is None:  # a column's cells are lost in the noise
            return CramersV(0.0, 0.0, 1.0)
        return CramersV(strength.value, strength.lower, strength.upper)


class IndependenceTable(CountProcedure):
    """See the module. Registered as ``independence_table``."""

    name: ClassVar[str] = "independence_table"
    title: ClassVar[str] = "Are these categories independent of each other?"
    Parameters: ClassVar[type[BaseModel]] = IndependenceTableParameters
    Verdict: ClassVar[type[BaseVerdict]] = IndependenceTableResult
    RelayedVerdict: ClassVar[type[BaseVerdict]] = IndependenceTableResult
    cited: ClassVar[tuple[Citation, ...]] = (CHI_SQUARED, NEW_CLASS)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Are these categories independent of each other?",
        r"categor.*independen|contingenc|table|chi.?square",
        "one or more",
        rank=6,
        categories=True,
        pure=True,
        relates=True,
    )
    population: ClassVar[type[SimulationModel] | None] = DependentCells

    def plan(self, study: Study) -> IndependencePlan:
        parameters = parse_parameters(IndependenceTableParameters, study)
        if study.columns_apart:
            return AnsweredIndependence(study, parameters)
        require_own_releases(study)
        return SummedIndependence(study, parameters)


def _away(counts: Floats) -> Floats:
    """Return by how much counts (R, C) are away from independence, in units."""
    units = max(1.0, float(counts.sum()))
    return np.asarray(counts - np.outer(counts.sum(axis=1), counts.sum(axis=0)) / units)


def _misled(pair: ComparedPair, within: ComparedPair) -> str:
    names = " and ".join(pair.names)
    if not within.reject:
        return (
            f"{names} depend on each other in the sum of the tables, and no dependence within owners was "
            "shown: that owners differ in both may be all there is to it; ask stratified_table"
        )
    if not pair.reject:
        return (
            f"{names} depend on each other within owners (p = {within.pvalue:.3g}), which adding tables up "
            "hides; ask stratified_table"
        )
    return (
        f"{names} depend on each other within owners (p = {within.pvalue:.3g}) in another direction than in "
        "the sum of the tables (Simpson's paradox); ask stratified_table"
    )


def _told_within(pair: ComparedPair, alone: bool) -> str:
    what, of = ("they", "") if alone else (" and ".join(pair.names), f" of {' and '.join(pair.names)}")
    found = f"{what} depend on each other" if pair.reject else f"no dependence{of} was shown"
    return f"Within owners {found} (p = {pair.pvalue:.3g})"


def from_independence(table: NoisyTable, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """Return every compared cell's residual, (k,), from the product of the table's margins."""
    held = table.held
    found = compared_residuals(held, shape)
    floor = 1 / held.units**2  # where nothing is expected, one unit is the least that can be seen
    return np.asarray((held.shares - found.fitted) / np.sqrt(np.maximum(found.explained, floor)))


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
