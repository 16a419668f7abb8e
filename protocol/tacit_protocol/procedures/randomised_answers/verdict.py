"""What is concluded from randomised answers: test, debiased table, estimates at its resolution, and words."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar

from pydantic import Field

from tacit_protocol.numerics.randomised_tables import TableEstimates, independence_test, table_estimates
from tacit_protocol.procedures.base import (
    Fields,
    Progress,
    Releases,
    common_fields,
    decided,
    public_seed,
    step,
)
from tacit_protocol.procedures.randomised_answers.answers import PairedAnswers
from tacit_protocol.procedures.randomised_answers.sides import NULL_STREAM, dependence_meaning
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import (
    PVALUE,
    REJECTED,
    BaseVerdict,
    Interval,
    PvalueVerdict,
    ShownTable,
    compared_shown,
    estimate_shown,
    interval_of,
)
from tacit_protocol.verdicts.presentation import (
    HeatPanel,
    Meaning,
    Null,
    Row,
    RowsPanel,
    Shown,
    affordable,
    from_draws,
)


class MeasuresOfCells(StrictModel):
    """How strongly two columns' cells depend on each other, with intervals; None where it is not known."""

    distance_correlation: Annotated[float | None, estimate_shown("distance correlation")]
    lower: float | None
    upper: float | None
    cramers_v: Annotated[float | None, estimate_shown("Cramér's V", "cramers_v_lower", "cramers_v_upper")]
    cramers_v_lower: float | None
    cramers_v_upper: float | None
    correlation: Annotated[
        float | None, estimate_shown("rank correlation", "correlation_lower", "correlation_upper")
    ]
    correlation_lower: float | None
    correlation_upper: float | None

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


def measures_of(found: TableEstimates) -> dict[str, Any]:
    """Return the fields of ``MeasuresOfCells``."""
    fields: dict[str, Any] = {}
    for name, own in (
        ("distance_correlation", found.distance_correlation),
        ("cramers_v", found.cramers_v),
        ("correlation", found.correlation),
    ):
        ends = "" if name == "distance_correlation" else f"{name}_"
        fields[name] = None if own is None else own.value
        fields[f"{ends}lower"] = None if own is None else own.lower
        fields[f"{ends}upper"] = None if own is None else own.upper
    return fields


class AnsweredPair(StrictModel):
    """One of several pairs of columns, with its p-value times the number of pairs, at most 1."""

    first: str
    second: str
    pvalue: Annotated[float, PVALUE]
    reject: Annotated[bool, REJECTED]


class AnsweredCorrelationResult(MeasuresOfCells, PvalueVerdict):
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

    cramers_v: Annotated[float | None, Shown("Cramér's V", "effects")]
    correlation: Annotated[float | None, Shown("rank correlation", "effects")]
    columns: Annotated[tuple[str, str], Shown("")]
    labels: Annotated[tuple[tuple[str, ...], tuple[str, ...]], Shown("")]
    shares: Annotated[tuple[tuple[float, ...], ...], Shown("")]
    retention: Annotated[tuple[float, float], Shown("probability that an answer is the true one")]
    pairs: Annotated[tuple[AnsweredPair, ...], compared_shown("pairs")] = Field(default=())
    aligned: Annotated[bool, Shown("records aligned")]

    def __str__(self) -> str:
        return self._told(self._decided("dependent" if self.reject else "no dependence shown"))

    def summary(self) -> Sequence[str | ShownTable]:
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


@dataclass(eq=False)
class AnsweredCorrelation(PairedAnswers):
    """Whether two owners' columns depend on each other, by randomised answers."""

    verdict_type: ClassVar[type[BaseVerdict]] = AnsweredCorrelationResult

    @property
    def tests(self) -> int:  # type: ignore[override]
        """One of each pair of columns."""
        return len(self.pairs)

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> AnsweredCorrelationResult:
        counted = {owner.name: releases[owner.name].units for owner in self.study.owners}
        return self.verdict(releases, self.warnings(counted) + self.matched, progress)

    def verdict(
        self, releases: Releases, warnings: tuple[str, ...], progress: Progress | None
    ) -> AnsweredCorrelationResult:
        """Return the verdict with these warnings, and what limits its estimates."""
        study, tables, found = self.study, self.tables(releases), []
        for place, pair in enumerate(tables):
            report = step(progress, "simulating", place / len(tables), (place + 1) / len(tables))
            test = independence_test(
                pair.table, self.simulations, public_seed(study, NULL_STREAM, place), report
            )
            found.append((min(1.0, test.pvalue * len(tables)), pair, test))
        found.sort(key=lambda each: each[0])
        pvalue, pair, test = found[0]
        estimates = table_estimates(pair.table, 1 - study.level)
        shares = estimates.shares.T if pair.swapped else estimates.shares
        sizes = " by ".join(str(len(labels)) for labels in pair.labels)
        caveats = [
            f"estimates and intervals are of the {sizes} cells: dependence within a cell is in none of them"
        ]
        if any(len(own) != int(own.max()) + 1 for own in estimates.joined):
            caveats.append(
                "cells too rare to be told from noise were joined with their neighbours for estimates"
            )
        if estimates.distance_correlation is None:
            caveats.append("no correlation is stated: a column's cells are lost in the noise, or all in one")
        return AnsweredCorrelationResult(
            method=self._method(sizes),
            **decided(study, test.statistic, pvalue),
            **common_fields(study, {name: release.units for name, release in releases.items()}),
            **measures_of(estimates),
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

    def _method(self, cells: str) -> str:
        if self.last is None:
            what = "one round: randomised answers of both owners"
        else:
            sender = self.study.owners[self.first].name
            what = (
                f"two rounds: randomised answers of {sender}, and the other owner's noisy counts beside them"
            )
        aligned = ", aligned units" if self.study.alignment is not None else ""
        return f"{what}, {cells} cells, {self.simulations} simulations{aligned}"

    def meaning(self, verdict: Fields) -> Meaning:
        return dependence_meaning(self.study, verdict)

    def null(self, verdict: Fields, releases: Releases) -> Null | None:
        if any(owner.name not in releases for owner in self.study.owners):
            return None
        tables = self.tables(releases)
        place = next(n for n, own in enumerate(tables) if list(own.columns) == list(verdict["columns"]))
        table = tables[place].table
        count = affordable(self.simulations, 3 * table.counts.size)
        if count is None:
            return None
        test = independence_test(table, count, public_seed(self.study, NULL_STREAM, place))
        words = "the statistic of independent columns, simulated with all noise"
        # Of several pairs a p-value is multiplied by their number.
        return from_draws(words, test.simulated, self.study.level / len(tables))

    def panels(self, verdict: Fields, releases: Releases) -> Sequence[RowsPanel | HeatPanel]:  # noqa: ARG002
        return answered_panels(verdict)


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
