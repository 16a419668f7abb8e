"""Stratified tables: whether groups differ in an outcome *within* owners, and by how much.

Every owner, and each combination of further columns in it, is a stratum of its own, so that what differs
between hospitals, wards or years neither makes a difference nor hides one (Simpson, 1951). From noisy counts,
own or read again, follow a generalised Cochran-Mantel-Haenszel test and Mantel and Haenszel's effects, whose
null and intervals count sampling and noise. Derivations: docs/mathematics/stratified.md.

Stratum s has noisy counts X (R, C) with row sums x, column sums y, sum n; T = X - x y'/n has in orthonormal
contrasts H, with rho = H x/n, gamma = H y/n and noise of variance v on a cell, under independence the
covariance

    n (H (diag r - r r') H') x (H (diag c - c c') H') + v (I + R rho rho') x (I + C gamma gamma').

Strata add up with weights sampling/(sampling + noise), the traces of both terms; the statistic is t' V^-1 t
of t = sum w H T H', its null a parametric bootstrap as for tables. Effects of two groups and an event, x =
(a, b, c, d), are Mantel and Haenszel's (:mod:`tacit_protocol.numerics.inference`). Levels and coverage:
docs/benchmarks/stratified.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field

from tacit_protocol.domain import CategoricalColumn, ColumnName
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.inference import Score
from tacit_protocol.numerics.noisy_tables import (
    NoisyTable,
    SimulatedTest,
)
from tacit_protocol.privacy.randomised_response import mixing, unmixing
from tacit_protocol.procedures.base import (
    CELL_WORK,
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
    CountProcedure,
    CountsShift,
    CountTestParameters,
    CountTestPlan,
    TablesVerdict,
    require_near,
)
from tacit_protocol.procedures.counts.release import CountsByAnswer, OwnCounts, require_own_releases
from tacit_protocol.procedures.counts.stratified import (
    CONTRASTS_MAX,
    SCORES,
    Strata,
    fourfold,
    heterogeneity,
    stratified_test,
)
from tacit_protocol.procedures.populations import Floats, SimulationModel
from tacit_protocol.verdicts.base import (
    EFFECTS,
    EFFECTS_BY_OWNER,
    HETEROGENEITY,
    BaseVerdict,
    Effect,
    Interval,
    PvalueVerdict,
    ShownTable,
    effects_of,
    effects_table,
    forest,
    parts_frame,
)
from tacit_protocol.verdicts.presentation import (
    CHI_SQUARED,
    Citation,
    Meaning,
    RowsPanel,
    joined,
)


def by_answer(kind: str, groups: int, kept: float, pair: tuple[int, int]) -> Score:
    """Return an effect's score of two groups from (..., S, 2 ``groups``) events and others of each answer."""
    inverse: Floats = np.kron(unmixing(groups, kept)[list(pair)], np.eye(2)).astype(np.float64)
    mixed: Floats = np.kron(mixing(groups, kept)[:, list(pair)], np.eye(2)).astype(np.float64)
    return SCORES[kind].by_answer(inverse, mixed)


TEST_STREAM, HETEROGENEITY_STREAM = 1, 2
"""Spawn keys under the study's seed."""


EFFECTS_MAX = 24
"""Most comparisons of a group with the first one whose effects a verdict states; of each owner, half."""

MANTEL = Citation(
    "mantel1959statistical",
    "article",
    ("Nathan Mantel", "William Haenszel"),
    "Statistical Aspects of the Analysis of Data From Retrospective Studies of Disease",
    "Journal of the National Cancer Institute 22(4)",
    1959,
)


class StratifiedTableParameters(CountTestParameters):
    """What is compared; every further column of the study stratifies within owners."""

    group: ColumnName | None = Field(None, description="The column of the groups; by default the first one.")
    outcome: ColumnName | None = Field(
        None, description="The column that groups may differ in; by default the first of the others."
    )
    event: str | None = Field(
        None,
        description=(
            "The outcome's level whose risk is compared; by default the last one of two, and each of more."
        ),
    )


class StratifiedTableResult(PvalueVerdict, TablesVerdict):
    """Whether groups differ in an outcome within owners, and by how much. Unpacks into ``statistic, pvalue``.

    Groups are compared with the first one listed. Units whose group or outcome is not listed count in no
    effect. Intervals are each of confidence 1 - alpha, and count sampling and noise.

    Attributes:
        effects: what all strata have in common: risk difference, risk ratio and odds ratio.
        effects_by_owner: the risk differences and odds ratios of every owner's own strata.
        heterogeneity_pvalue: of one odds ratio in all strata, of two groups and two outcomes; or None.
        tables: every owner's noisy counts, or None where they are too large to be shown.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue", "heterogeneity_pvalue")

    effects: Annotated[tuple[Effect, ...], EFFECTS]
    effects_by_owner: Annotated[tuple[Effect, ...], EFFECTS_BY_OWNER]
    heterogeneity_pvalue: Annotated[float | None, HETEROGENEITY]

    @property
    def odds_ratio(self) -> float | None:
        """The common odds ratio of the first comparison; None where the counts cannot tell it."""
        return self._odds.estimate

    @property
    def interval(self) -> Interval | None:
        """Of the odds ratio; None where it has not two ends."""
        return self._odds.interval

    @property
    def _odds(self) -> Effect:
        return next(effect for effect in self.effects if effect.kind == "odds ratio")

    def to_pandas(self) -> Any:
        """Return the effects as a pandas frame: one row each, those of all owners first."""
        return parts_frame((*self.effects, *self.effects_by_owner), self.source.drawn_by.frame)

    def __str__(self) -> str:
        decision = "the groups differ within owners" if self.reject else "no difference shown"
        return self._told(f"{self._decided(decision)}; {self._odds.words}")

    def fields(self) -> dict[str, Any]:
        """Return what the command lists beside the common fields."""
        return super().fields() | {
            "effects": [effect.model_dump() for effect in self.effects],
            "effects_by_owner": [effect.model_dump() for effect in self.effects_by_owner],
            "tables": None if self.tables is None else self.tables.fields(),
        }

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        finding = "the groups DIFFER within owners" if self.reject else "no difference within owners shown"
        common = self.heterogeneity_pvalue
        return (
            self._finding(finding),
            f"  statistic {self.statistic:.5g}; {self.method}",
            effects_table(self.effects),
            *(() if common is None else (f"  one odds ratio everywhere: p = {common:.3g}",)),
        )

    def details(self) -> Sequence[str | ShownTable]:
        return (effects_table(self.effects_by_owner),) if len(self.units) > 1 else ()


class RiskDifference(CountsShift):
    """Counts of groups of which all but the first have the event more often, in every stratum."""

    medium: ClassVar[float] = 0.1
    taken: ClassVar[frozenset[str]] = frozenset({"size"})

    @cached_property
    def cells(self) -> tuple[Floats, Floats]:
        layout, null = StrataLayout(self.study, self.grid.shape), self.null
        split = null[layout.cells]
        split = split.sum(axis=2, keepdims=True) * split.sum(axis=1, keepdims=True)
        held = null[layout.cells].sum(axis=(1, 2), keepdims=True)
        split = np.divide(split, held, out=np.zeros_like(split), where=held > 0)
        without = null.copy()
        without[layout.cells] = split
        event = layout.events[0]
        others = [place for place in range(split.shape[2]) if place != event]
        rows = split.sum(axis=2)
        room = split[:, :, others].sum(axis=2) if self.size >= 0 else split[:, :, event]
        held_rows = rows[:, 1:] > 0
        largest = float(np.min(room[:, 1:][held_rows] / rows[:, 1:][held_rows], initial=1.0))
        require_near(abs(self.size), largest)
        moved, amount = split.copy(), self.size * rows[:, 1:]
        rest = np.maximum(split[:, 1:, others].sum(axis=2, keepdims=True), 1e-300)
        moved[:, 1:, others] -= amount[..., None] * split[:, 1:, others] / rest
        moved[:, 1:, event] += amount
        with_effect = null.copy()
        with_effect[layout.cells] = np.maximum(moved, 0.0)
        return without, with_effect

    def check(self) -> None:
        """Raise EffectError where no risks differ by so much."""
        SimulationModel.check(self)
        self.cells  # noqa: B018 (raises where there are none)

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[np.ndarray[Any, Any]]:
        shares = self.cells[1] / self.cells[1].sum()
        return [rng.multinomial(size, shares).astype(np.int64) for size in sizes]

    def words(self) -> str:
        """Say by how much the risks differ."""
        return f"a risk difference of {self.size:.3g}"


class StrataLayout:
    """Where a study's groups, outcomes and strata are among the cells of an owner's table.

    Attributes:
        cells: (S, R, C) places in the table: strata, listed groups, listed outcomes.
        events: the outcomes whose risk is compared, by place.
    """

    def __init__(self, study: Study, shape: tuple[int, ...]) -> None:
        parameters = parse_parameters(StratifiedTableParameters, study)
        columns = list(study.domain.columns)
        names = [column.name for column in columns]
        group = parameters.group or names[0]
        outcome = parameters.outcome or next((name for name in names if name != group), group)
        if group not in names or outcome not in names or group == outcome:
            raise StudyError("parameters group and outcome must name two columns of the study")
        pair = [columns[names.index(name)] for name in (group, outcome)]
        if not all(isinstance(column, CategoricalColumn) and len(column.levels) > 1 for column in pair):
            raise StudyError("group and outcome must be categorical columns with two levels or more")
        self.group, self.outcome = (column for column in pair if isinstance(column, CategoricalColumn))
        levels = self.outcome.levels
        if parameters.event is not None and parameters.event not in levels:
            raise StudyError("parameter event must be a level of the outcome")
        named = levels[-1] if parameters.event is None and len(levels) == 2 else parameters.event
        self.events = tuple(range(len(levels))) if named is None else (levels.index(named),)
        axes = [names.index(group), names.index(outcome)]
        places = np.moveaxis(np.arange(int(np.prod(shape))).reshape(shape), axes, [-2, -1])
        listed = places[..., : len(self.group.levels), : len(levels)]
        self.cells = listed.reshape(-1, *listed.shape[-2:])

    def strata(self, table: NoisyTable) -> Strata:
        """Return an owner's strata."""
        return Strata(table, self.cells)

    @property
    def comparisons(self) -> list[tuple[int, int]]:
        """Pairs of a group, compared with the first, and an outcome: EFFECTS_MAX at most."""
        groups = range(1, len(self.group.levels))
        return [(place, event) for place in groups for event in self.events][:EFFECTS_MAX]

    def effects(
        self,
        counts: Floats,
        variances: Floats,
        kinds: Sequence[str],
        level: float,
        owner: str | None = None,
        *,
        kept: float | None = None,
    ) -> list[Effect]:
        """Return the effects of noisy strata (S, R, C) with noise variances (S,).

        ``kept`` is the retention of answers where rows are another owner's.
        """
        found, groups = [], len(self.group.levels)
        comparisons = self.comparisons if owner is None else self.comparisons[: EFFECTS_MAX // 2]
        for place, event in comparisons:
            rows = (place, 0) if kept is None else range(groups)
            tables, noise = fourfold(counts, variances, rows, event)
            for kind in kinds:
                score = SCORES[kind] if kept is None else by_answer(kind, groups, kept, (place, 0))
                estimated = score.estimate(tables, noise, level)
                found.append(
                    Effect(
                        column=self.outcome.name,
                        kind=kind,
                        groups=(self.group.levels[place], self.group.levels[0]),
                        estimate=estimated.value,
                        lower=estimated.lower,
                        upper=estimated.upper,
                        unit="" if SCORES[kind].ratio else "share of units",
                        level=self.outcome.levels[event],
                        owner=owner,
                    )
                )
        return found


class StratifiedTablePlan(CountTestPlan):
    """Groups compared within all strata of the tables that can be read."""

    simulated_null: ClassVar[str] = "tables that are independent within strata"
    ratios: ClassVar[tuple[str, ...]] = ("odds ratio",)

    def __init__(self, study: Study, parameters: StratifiedTableParameters) -> None:
        super().__init__(study, parameters)
        if len(self.grid.axes) < 2:
            raise StudyError("a stratified table has a group and an outcome: two columns or more")
        self.layout = StrataLayout(study, self.grid.shape)
        self.require_group(self.layout.group.name)
        strata, groups, levels = self.layout.cells.shape
        contrasts = (groups - 1) * (levels - 1)
        if contrasts > CONTRASTS_MAX:
            raise StudyError(f"at most {CONTRASTS_MAX} contrasts of groups and outcomes: use fewer levels")
        cells = len(study.owners) * (self.grid.size + strata * contrasts * contrasts)
        require_work(CELL_WORK * cells, parameters.replicates)

    def listed_alone(self) -> tuple[str, ...]:
        """Name group and outcome: units of other groups or outcomes are in no stratum."""
        return self.layout.group.name, self.layout.outcome.name

    def describe_request(self) -> tuple[str, ...]:
        """Say who is compared in what, within which strata."""
        group, outcome = self.layout.group, self.layout.outcome
        others = [c.name for c in self.study.domain.columns if c not in (group, outcome)]
        within = f" and {joined(others, 4)}" if others else ""
        return (f"compares {outcome.name} between {group.name}, within owners{within}",)

    def meaning(self, verdict: Fields) -> Meaning:
        shown = effects_of(verdict.get("effects", ()))
        outcome = shown[0].column if shown else "the outcome"
        return self.decision(
            verdict,
            f"The groups differ in {outcome}, within owners",
            f"No difference between the groups in {outcome}, within owners, was shown: they may be alike",
        )

    def test(
        self,
        tables: Sequence[NoisyTable],
        replicates: int,
        progress: Callable[[float], None] | None = None,
    ) -> SimulatedTest:
        """Test whether group and outcome are independent within all strata."""
        owners, seed = [self.layout.strata(table) for table in tables], public_seed(self.study, TEST_STREAM)
        return stratified_test(owners, replicates, seed, progress)

    def panels(self, verdict: Fields, releases: Releases) -> list[RowsPanel]:  # noqa: ARG002
        """Return forest plots: the owners' effects, and those that they have in common."""
        stated = [*verdict["effects_by_owner"], *verdict["effects"]]
        kinds = ("risk difference", "odds ratio")
        shown = [effect for effect in effects_of(stated) if effect.kind in kinds]
        return forest(shown, self.study.level)

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        progress: Progress | None = None,
    ) -> StratifiedTableResult:
        layout, kept = self.layout, self.kept(releases)
        tables = self.tables(releases)
        owners = {name: layout.strata(table) for name, table in tables.items()}
        simulating = step(progress, "simulating the null", 0.0, 0.7)
        test = self.test(list(tables.values()), self.replicates, simulating)
        step(progress, "estimating effects")(0.7)
        strata, groups, levels = layout.cells.shape
        return StratifiedTableResult(
            method=f"generalised Cochran-Mantel-Haenszel test of {groups} x {levels} tables in "
            f"{len(owners) * strata} strata, with {self.noise.kind} noise in its null, "
            f"{self.replicates} replicates",
            **decided(self.study, test.statistic, test.pvalue),
            **self.shown(tables, releases),
            effects=tuple(
                layout.effects(
                    np.concatenate([own.counts for own in owners.values()]),
                    np.concatenate([own.variances for own in owners.values()]),
                    tuple(SCORES),
                    self.study.level,
                    kept=kept,
                )
            ),
            effects_by_owner=tuple(self.effects_by_owner(owners)),
            heterogeneity_pvalue=self.heterogeneity(list(owners.values())),
        )

    def effects_by_owner(self, owners: Mapping[str, Strata]) -> Iterator[Effect]:
        """Yield the risk differences and odds ratios of every owner's own strata."""
        kinds = ("risk difference", "odds ratio")
        for name, own in owners.items():
            yield from self.layout.effects(own.counts, own.variances, kinds, self.study.level, name)

    def heterogeneity(self, owners: Sequence[Strata]) -> float | None:
        """Return the p-value of one odds ratio in all strata."""
        return heterogeneity(owners, self.replicates, public_seed(self.study, HETEROGENEITY_STREAM))


class OwnStratifiedTable(StratifiedTablePlan, OwnCounts):
    """Every owner counts its own groups and outcomes."""


class AnsweredStratifiedTable(StratifiedTablePlan, CountsByAnswer):
    """Groups are another owner's, of which it released randomised answers."""

    def effects_by_owner(self, owners: Mapping[str, Strata]) -> Iterator[Effect]:  # noqa: ARG002
        """Yield none: of one effect at two owners none is an owner's."""
        return iter(())

    def heterogeneity(self, owners: Sequence[Strata]) -> None:  # noqa: ARG002
        """Return none: ratios of answers differ where strata differ."""
        return


class StratifiedTable(CountProcedure):
    """See the module. Registered as ``stratified_table``."""

    name: ClassVar[str] = "stratified_table"
    title: ClassVar[str] = "Do groups differ in an outcome, within every owner?"
    Parameters: ClassVar[type[BaseModel]] = StratifiedTableParameters
    Verdict: ClassVar[type[BaseVerdict]] = StratifiedTableResult
    RelayedVerdict: ClassVar[type[BaseVerdict]] = StratifiedTableResult
    cited: ClassVar[tuple[Citation, ...]] = (MANTEL, CHI_SQUARED)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Do groups differ in an outcome within every owner (an odds ratio)?",
        r"odds|risk|strat|mantel|within (every|each|the)|treated|exposed",
        "one or more",
        rank=5,
        categories=True,
        pure=True,
    )
    population: ClassVar[type[SimulationModel] | None] = RiskDifference

    def plan(self, study: Study) -> StratifiedTablePlan:
        parameters = parse_parameters(StratifiedTableParameters, study)
        if study.columns_apart:
            return AnsweredStratifiedTable(study, parameters)
        require_own_releases(study)
        return OwnStratifiedTable(study, parameters)
