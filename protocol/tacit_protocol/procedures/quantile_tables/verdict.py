"""What is concluded from tables of cells: a test of joint independence, estimates of pairs, and words."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from tacit_protocol.domain import ColumnName
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.numerics.noisy_tables import SimulatedTest
from tacit_protocol.procedures.base import (
    HOPELESS,
    Progress,
    Releases,
    decided,
    public_seed,
    step,
)
from tacit_protocol.procedures.quantile_tables.release import UNITS_MIN, TablePlan
from tacit_protocol.procedures.quantile_tables.statistic import (
    Statistic,
    Variable,
    independence_test,
    pair_estimates,
)
from tacit_protocol.procedures.randomised_answers.owners import SIGNAL_HOPELESS
from tacit_protocol.procedures.randomised_answers.verdict import measures_of
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import Interval, PvalueVerdict, ShownTable, estimate_shown, interval_of
from tacit_protocol.verdicts.presentation import Null, Row, RowsPanel, Shown, affordable, from_draws

CELLS_CAVEAT = "estimates and intervals are of cells: dependence within a cell is in none of them"

JOINED_CAVEAT = (
    "cells too rare to be told from noise were joined with their neighbours for estimates, or none is stated"
)

TEST_STREAM = 5
"""Spawn key under the study's seed."""


class PairOfVariables(StrictModel):
    """Two columns of different variables: how strongly their cells depend on each other.

    None where a column's cells are lost in the noise, or have no order. Intervals cover with probability
    1 - alpha each, in large samples, and count sampling and noise.

    Attributes:
        correlation: the rank correlation of the cells, in [-1, 1].
        cramers_v: Cramer's V of the cells, in [0, 1].
        distance_correlation: of the cells' places, in [0, 1].
    """

    first: ColumnName
    second: ColumnName
    correlation: Annotated[float | None, Shown("rank correlation", "effects")]
    correlation_lower: float | None
    correlation_upper: float | None
    cramers_v: Annotated[float | None, Shown("Cramér's V", "effects")]
    cramers_v_lower: float | None
    cramers_v_upper: float | None
    distance_correlation: Annotated[float | None, estimate_shown("distance correlation")]
    lower: float | None
    upper: float | None

    @property
    def interval(self) -> Interval | None:
        """That of the distance correlation, or None."""
        return interval_of(self.lower, self.upper)

    @property
    def correlation_interval(self) -> Interval | None:
        """That of the rank correlation, or None."""
        return interval_of(self.correlation_lower, self.correlation_upper)

    @property
    def cramers_v_interval(self) -> Interval | None:
        """That of Cramer's V, or None."""
        return interval_of(self.cramers_v_lower, self.cramers_v_upper)


class CellsTableResult(PvalueVerdict):
    """Whether variables are jointly independent, from noisy tables of cells between private quantiles.

    Of several owners independence is tested within owners, and estimates are of dependence within owners.

    Attributes:
        statistic: the test statistic, from private releases alone.
        pvalue: probability under independence of a statistic at least as large.
        variables: the variables; columns that count as one stand together.
        pairs: every two columns of different variables, with measures of dependence of their cells and
            intervals: dependence within a cell is in none of them.
        labels: each sender's cells, by column.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue", "pairs", "labels")
    tabulated: ClassVar[tuple[str, ...]] = ("pairs",)

    if_rejected: ClassVar[str] = "the columns are not jointly independent"
    if_not_rejected: ClassVar[str] = "no dependence shown"

    variables: tuple[tuple[str, ...], ...]
    pairs: Annotated[tuple[PairOfVariables, ...], Shown("pairs of columns", "effects")]
    labels: Annotated[dict[str, dict[str, tuple[str, ...]]], Shown("cells of each column")]

    def __str__(self) -> str:
        return self._told(self._decided(self._found))

    @property
    def _found(self) -> str:
        return self.if_rejected if self.reject else self.if_not_rejected

    def fields(self) -> dict[str, Any]:
        """Return what the command lists beside the common fields."""
        return super().fields() | {"pairs": [pair.model_dump() for pair in self.pairs]}

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        rows = tuple(
            (
                f"{pair.first} and {pair.second}",
                _stated(pair.correlation, pair.correlation_interval),
                _stated(pair.cramers_v, pair.cramers_v_interval),
            )
            for pair in self.pairs
        )
        return (
            self._finding(self._found),
            f"  {self.method}",
            ShownTable(("Columns", "rank correlation", "Cramér's V"), rows),
        )

    def details(self) -> Sequence[str | ShownTable]:
        """Return the cells."""
        rows = tuple(
            (sender, column, ", ".join(labels))
            for sender, columns in self.labels.items()
            for column, labels in columns.items()
        )
        return (ShownTable(("Holder", "column", "cells"), rows),)


def _stated(value: float | None, interval: Interval | None) -> str:
    if value is None or interval is None:
        return "not stated"
    return f"{value:.3f}, {interval[0]:.3f} to {interval[1]:.3f}"


def table_fields(  # noqa: PLR0917
    plan: TablePlan,
    study: Study,
    sent: Mapping[str, Release],
    replicates: int,
    warnings: tuple[str, ...],
    progress: Progress | None = None,
) -> dict[str, Any]:
    """Return the verdict's own fields from the releases by sender: post-processing alone."""
    test = simulated_test(plan, study, list(sent.values()), replicates, progress)
    step(progress, "estimating")(0.9)
    pairs, joined = estimated_pairs(plan, study, list(sent.values()))
    caveats = [CELLS_CAVEAT, JOINED_CAVEAT] if joined else [CELLS_CAVEAT]
    return {
        "method": method_words(plan, list(sent.values()), replicates),
        **decided(study, test.statistic, test.pvalue),
        "variables": plan.groups,
        "pairs": pairs,
        "labels": {sender: plan.cell_labels(release) for sender, release in sent.items()},
        "warnings": (*warnings, *caveats),
    }


def simulated_test(
    plan: TablePlan,
    study: Study,
    releases: Sequence[Release],
    replicates: int,
    progress: Progress | None = None,
) -> SimulatedTest:
    """Test whether the variables are independent at every sender."""
    tables = [plan.table(release) for release in releases]
    cells = iter(plan.cells(releases[0].units))
    variables = []
    for group in plan.groups:
        own = [next(cells) for _ in group]
        variables.append(Variable.of([each.cells for each in own], [each.ordered for each in own]))
    seed, report = public_seed(study, TEST_STREAM), step(progress, "simulating the null", 0.0, 0.9)
    statistic = Statistic(tuple(variables))
    return independence_test(statistic, tables, replicates, seed, report)


def estimated_pairs(
    plan: TablePlan, study: Study, releases: Sequence[Release]
) -> tuple[tuple[PairOfVariables, ...], bool]:
    """Return the measures of every two columns of different variables, and whether cells were joined."""
    tables, units = [plan.table(release) for release in releases], releases[0].units
    cells, shape = plan.cells(units), plan.shape(units)
    group_of = [number for number, group in enumerate(plan.groups) for _ in group]
    found, joined = [], False
    for i, first in enumerate(cells):
        for j, second in enumerate(cells[i + 1 :], start=i + 1):
            if group_of[i] == group_of[j]:
                continue
            ordered = (first.ordered, second.ordered)
            measured = pair_estimates(tables, shape, (i, j), ordered, 1 - study.level)
            joined = joined or any(len(own) != int(own.max()) + 1 for own in measured.joined)
            measures = measures_of(measured)
            found.append(PairOfVariables(first=first.column.name, second=second.column.name, **measures))
    return tuple(found), joined


def method_words(plan: TablePlan, releases: Sequence[Release], replicates: int) -> str:
    """Say what was computed."""
    shape = " x ".join(str(size) for size in plan.shape(releases[0].units))
    within = "" if len(releases) == 1 else f", {len(releases)} owners as strata"
    cuts = " between private quantiles" if plan.bought else ""
    return (
        f"noisy table of {shape} cells{cuts}, mixed likelihood ratios of contrasts of two and more "
        f"variables{within}, {replicates} simulations"
    )


def table_warnings(plan: TablePlan, study: Study, units: Sequence[int], replicates: int) -> tuple[str, ...]:
    """Say what the study could not see, with so many units at its senders and so few simulations."""
    if 1 / (replicates + 1) > study.level:
        return (
            f"with so few permutations nothing can be rejected at this level; ask for at least "
            f"{math.ceil(1 / study.level) - 1}",
        )
    if min(units) < UNITS_MIN:
        return (f"{HOPELESS}a table needs at least {UNITS_MIN} units of each sender",)
    if plan.signal(units) < SIGNAL_HOPELESS:
        return (
            f"{HOPELESS}even equal columns would hardly be told from independent ones; ask for more units, a "
            "larger epsilon, or fewer columns",
        )
    return ()


def table_null(plan: TablePlan, study: Study, releases: Releases, replicates: int) -> Null | None:
    """Work out the null distribution again; None where the releases are not at hand."""
    if any(sender.name not in releases for sender in study.senders):
        return None
    sent = [releases[sender.name] for sender in study.senders]
    numbers = sum(len(plan.table(release).counts) for release in sent)
    count = affordable(replicates, 3 * numbers)
    if count is None:
        return None
    words = "the statistic of independent columns, simulated with all noise"
    return from_draws(words, simulated_test(plan, study, sent, count).simulated, study.level)


def pair_panels(pairs: Sequence[Mapping[str, Any]]) -> Sequence[RowsPanel]:
    """Return rows of the pairs' rank correlations and Cramer's V, as a verdict states them."""
    found = []
    for name, words in (("correlation", "rank correlation"), ("cramers_v", "Cramér's V")):
        rows = [
            Row(
                f"{pair['first']} · {pair['second']}",
                float(pair[name]),
                pair[f"{name}_lower"],
                pair[f"{name}_upper"],
                False,
            )
            for pair in pairs
            if pair.get(name) is not None
        ]
        if rows:
            found.append(RowsPanel(f"Cells of two columns: {words}", words, tuple(rows)))
    return tuple(found)
