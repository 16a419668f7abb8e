"""What is concluded from randomised answers: test, debiased table, estimates at its resolution, and words."""

import math
from collections.abc import Mapping, Sequence
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tacit_protocol.messages.study import Release
from tacit_protocol.numerics.noisy_tables import SimulatedTest
from tacit_protocol.numerics.randomised_tables import StatedEstimate, independence_test, table_estimates
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Progress,
    Releases,
    common_fields,
    decided,
    public_seed,
    step,
)
from tacit_protocol.procedures.randomised_answers.answers import AnswersPlan, PairTable
from tacit_protocol.procedures.randomised_answers.sides import NULL_STREAM
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import (
    PVALUE,
    REJECTED,
    Interval,
    PvalueVerdict,
    ShownTable,
    compared_shown,
    estimate_shown,
    interval_of,
)
from tacit_protocol.verdicts.presentation import (
    HeatPanel,
    Null,
    Row,
    RowsPanel,
    Shown,
    affordable,
    from_draws,
)

SIGNAL_HOPELESS = 6.0
"""Of two equal columns: with less of noncentrality even they are found in less than half of all studies."""


class AnsweredPair(StrictModel):
    """One of several pairs of columns, with its p-value times the number of pairs, at most 1."""

    first: str
    second: str
    pvalue: Annotated[float, PVALUE]
    reject: Annotated[bool, REJECTED]


class AnsweredCorrelationResult(PvalueVerdict):
    """Whether the owners' columns depend on each other, by randomised answers, and how strongly.

    Estimates are of the columns as they were cut into cells, whose distances are those of the cells' places
    (1 between different levels): dependence within cells is in none of them. Intervals cover them with
    probability 1 - alpha in large samples, and count sampling, randomisation and noise. Of several pairs of
    columns they are of the pair with the smallest p-value, chosen by it.

    Attributes:
        statistic: the test statistic, from private releases alone.
        pvalue: probability under independence of a statistic at least as large; of several pairs, the
            smallest times their number.
        distance_correlation: of the cells, in [0, 1]; None where a column's cells are lost in the noise.
        interval: covers it, or None.
        cramers_v: Cramer's V of the cells, in [0, 1], or None; ``cramers_v_interval`` covers it.
        correlation: the rank correlation of the cells, or None where a column has no order;
            ``correlation_interval`` covers it.
        columns: the pair of columns.
        labels: either column's cells.
        shares: estimated joint shares, a row for each cell of the first column. They are unbiased and add up
            to 1, so that some may lie below 0.
        retention: of either column, the probability that an answer is the unit's own cell and not drawn
            blindly; 1 where the cells were counted with noise.
        pairs: of several pairs of columns, all, in the order of their p-values.
        aligned: whether either owner checked, before it spent anything, that both hold the same units.
    """

    tabulated: ClassVar[tuple[str, ...]] = ("pairs",)
    listed: ClassVar[tuple[str, ...]] = (
        "statistic",
        "pvalue",
        "distance_correlation",
        "interval",
        "cramers_v",
        "cramers_v_interval",
        "correlation",
        "correlation_interval",
        "columns",
        "labels",
        "shares",
        "retention",
        "pairs",
        "aligned",
    )

    distance_correlation: Annotated[float | None, estimate_shown("distance correlation")]
    lower: float | None
    upper: float | None
    cramers_v: Annotated[float | None, Shown("Cramér's V", "effects")]
    cramers_v_lower: float | None
    cramers_v_upper: float | None
    correlation: Annotated[float | None, Shown("rank correlation", "effects")]
    correlation_lower: float | None
    correlation_upper: float | None
    columns: Annotated[tuple[str, str], Shown("")]
    labels: Annotated[tuple[tuple[str, ...], tuple[str, ...]], Shown("")]
    shares: Annotated[tuple[tuple[float, ...], ...], Shown("")]
    retention: Annotated[tuple[float, float], Shown("probability that an answer is the true one")]
    pairs: Annotated[tuple[AnsweredPair, ...], compared_shown("pairs")] = Field(default=())
    aligned: Annotated[bool, Shown("records aligned")]

    @property
    def interval(self) -> Interval | None:
        """That of the distance correlation, or None."""
        return interval_of(self.lower, self.upper)

    @property
    def cramers_v_interval(self) -> Interval | None:
        """That of Cramer's V, or None."""
        return interval_of(self.cramers_v_lower, self.cramers_v_upper)

    @property
    def correlation_interval(self) -> Interval | None:
        """That of the rank correlation, or None."""
        return interval_of(self.correlation_lower, self.correlation_upper)

    def __str__(self) -> str:
        return self._told(self._decided("dependent" if self.reject else "no dependence shown"))

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        finding = "the columns depend on each other" if self.reject else "no dependence of the columns shown"
        return self._finding(finding), f"  {self.method}", *self._estimates()

    def _estimates(self) -> list[str]:
        found = []
        for words, value, interval in (
            ("distance correlation", self.distance_correlation, self.interval),
            ("Cramér's V", self.cramers_v, self.cramers_v_interval),
            ("rank correlation", self.correlation, self.correlation_interval),
        ):
            if value is not None and interval is not None:
                found.append(f"  {words} {value:.3f}, [{interval[0]:.3f}, {interval[1]:.3f}]")
        sizes = " by ".join(str(len(labels)) for labels in self.labels)
        between = " and ".join(self.columns)
        return [*found, f"  of {between}, cut into {sizes} cells"] if found else found

    def details(self) -> Sequence[str | ShownTable]:
        """Return the debiased table, and all pairs where there are several."""
        first, second = self.columns
        cells = tuple(
            (label, *(f"{100 * share:.1f} %" for share in row))
            for label, row in zip(self.labels[0], self.shares, strict=True)
        )
        table = ShownTable((f"{first} \\ {second}", *self.labels[1]), cells)
        shown: list[str | ShownTable] = ["  estimated joint shares, which may lie below 0:", table]
        if self.pairs:
            rows = tuple((pair.first, pair.second, f"{pair.pvalue:.3g}") for pair in self.pairs)
            shown.append(ShownTable(("first", "second", "adjusted p"), rows))
        return shown


def tested(
    plan: AnswersPlan, releases: Releases, progress: Progress | None
) -> list[tuple[float, PairTable, SimulatedTest]]:
    """Return each pair's adjusted p-value, table and test, the smallest p-value first."""
    tables, found = plan.tables(releases), []
    for place, pair in enumerate(tables):
        report = step(progress, "simulating", place / len(tables), (place + 1) / len(tables))
        seed = public_seed(plan.study, NULL_STREAM, place)
        test = independence_test(pair.table, plan.simulations, seed, report)
        found.append((min(1.0, test.pvalue * len(tables)), pair, test))
    return sorted(found, key=lambda each: each[0])


def answered_verdict(
    plan: AnswersPlan, releases: Mapping[str, Release], warnings: tuple[str, ...], progress: Progress | None
) -> AnsweredCorrelationResult:
    """Compute the verdict: post-processing alone, the same for everyone."""
    study, found = plan.study, tested(plan, releases, progress)
    pvalue, pair, test = found[0]
    estimates = table_estimates(pair.table, 1 - study.level)
    shares = estimates.shares.T if pair.swapped else estimates.shares
    measures = {
        "": estimates.distance_correlation,
        "cramers_v_": estimates.cramers_v,
        "correlation_": estimates.correlation,
    }
    ends: dict[str, Any] = {}
    for name, own in measures.items():
        ends[f"{name}lower"] = None if own is None else own.lower
        ends[f"{name}upper"] = None if own is None else own.upper
    caveats = [resolution_words(pair)]
    if any(len(own) != int(own.max()) + 1 for own in estimates.joined):
        caveats.append("cells too rare to be told from noise were joined with their neighbours for estimates")
    if estimates.distance_correlation is None:
        caveats.append("no correlation is stated: a column's cells are lost in the noise, or all in one")
    return AnsweredCorrelationResult(
        method=_method(plan, pair),
        **decided(study, test.statistic, pvalue),
        **common_fields(study, {name: release.units for name, release in releases.items()}),
        distance_correlation=_value(estimates.distance_correlation),
        cramers_v=_value(estimates.cramers_v),
        correlation=_value(estimates.correlation),
        **ends,
        columns=pair.columns,
        labels=pair.labels,
        shares=tuple(tuple(float(share) for share in row) for row in shares),
        retention=pair.kept,
        pairs=tuple(
            AnsweredPair(first=own.columns[0], second=own.columns[1], pvalue=p, reject=p <= study.level)
            for p, own, _ in found
        )
        if len(found) > 1
        else (),
        aligned=study.alignment is not None,
        warnings=(*warnings, *caveats),
    )


def _value(estimate: StatedEstimate | None) -> float | None:
    return None if estimate is None else estimate.value


def _method(plan: AnswersPlan, pair: PairTable) -> str:
    cells = " by ".join(str(len(labels)) for labels in pair.labels)
    if plan.one_round:
        what = "randomised answers of both owners"
    else:
        sender = plan.study.owners[plan.first].name
        what = f"randomised answers of {sender}, and the other owner's noisy counts beside them"
    rounds = "one round" if plan.one_round else "two rounds"
    aligned = ", aligned units" if plan.study.alignment is not None else ""
    return f"{rounds}: {what}, {cells} cells, {plan.simulations} simulations{aligned}"


def resolution_words(pair: PairTable) -> str:
    """Say what estimates are of."""
    sizes = " by ".join(str(len(labels)) for labels in pair.labels)
    return f"estimates and intervals are of the {sizes} cells: dependence within a cell is in none of them"


def answers_warnings(plan: AnswersPlan, units: Mapping[str, int]) -> tuple[str, ...]:
    """Say what the study could not see, at these numbers of units or with so few simulations."""
    found: list[str] = []
    if len(plan.pairs) / (plan.simulations + 1) > plan.study.level:
        needed = math.ceil(len(plan.pairs) / plan.study.level) - 1
        found.append(
            "with so few permutations nothing can be rejected at this level; ask for at least "
            f"{needed} permutations, which cost no privacy"
        )
    if units and plan.signal(min(units.values())) < SIGNAL_HOPELESS:
        found.append(
            f"{HOPELESS}even equal columns would hardly be told from independent ones; ask for more units"
        )
    return tuple(found)


def answered_null(plan: AnswersPlan, verdict: Fields, releases: Releases) -> Null | None:
    """Work out the null distribution of the pair shown again."""
    if any(owner.name not in releases for owner in plan.study.owners):
        return None
    tables = plan.tables(releases)
    place = next(n for n, own in enumerate(tables) if list(own.columns) == list(verdict["columns"]))
    table = tables[place].table
    count = affordable(plan.simulations, 3 * table.counts.size)
    if count is None:
        return None
    test = independence_test(table, count, public_seed(plan.study, NULL_STREAM, place))
    # Of several pairs a p-value is multiplied by their number.
    level = plan.study.level / len(tables)
    return from_draws("the statistic of independent columns, simulated with all noise", test.simulated, level)


def answered_panels(verdict: Fields) -> Sequence[RowsPanel | HeatPanel]:
    """Return the debiased table as a heat map, and the rank correlation where there is one."""
    shares = [[float(share) for share in row] for row in verdict["shares"]]
    rows, columns = [sum(row) for row in shares], [sum(column) for column in zip(*shares, strict=True)]
    beyond = tuple(
        tuple(share - rows[i] * columns[j] for j, share in enumerate(row)) for i, row in enumerate(shares)
    )
    first, second = verdict["columns"]
    heat = HeatPanel(
        f"Estimated joint shares of {first} and {second}",
        "percent of all units (and beyond independence: blue more, red less)",
        (first, second),
        tuple(verdict["labels"][0]),
        tuple(verdict["labels"][1]),
        beyond,
        tuple(tuple(row) for row in shares),
    )
    if verdict.get("correlation") is None:
        return (heat,)
    ends = (verdict["correlation_lower"], verdict["correlation_upper"])
    row = Row("all", float(verdict["correlation"]), *ends, False)
    return heat, RowsPanel("rank correlation of the cells", "rank correlation", (row,))
