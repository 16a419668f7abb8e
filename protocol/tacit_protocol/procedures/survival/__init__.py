"""Time to event: survival curves, and whether groups differ in them, from noisy counts.

Every owner releases noisy counts of its units by interval of time, event or censored, group and any further
columns, or an earlier release of such counts is read again, for nothing. From them follow curves with
intervals and bands, medians and restricted means; and, where there are groups, a log-rank test stratified by
owner and by the further columns, and hazard ratios. Derivations: docs/mathematics/survival.md.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import cached_property
from typing import Any, ClassVar

import numpy as np
from pydantic import BaseModel, Field

from tacit_protocol.domain.columns import CategoricalColumn, ColumnName, NumericColumn
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.numerics.noisy_tables import NoisyTable, SimulatedTest
from tacit_protocol.procedures.base import (
    Fields,
    Progress,
    Question,
    Releases,
    StudyError,
    parse_parameters,
    public_seed,
    step,
)
from tacit_protocol.procedures.counts.base import (
    Cells,
    CountTest,
    CountTestParameters,
    TablesVerdict,
    require_work,
)
from tacit_protocol.procedures.counts.release import grid_of
from tacit_protocol.procedures.populations import EffectError, Floats, Held, Measure, Population
from tacit_protocol.procedures.survival.statistic import (
    DRAWS,
    CurveEstimate,
    Times,
    curve,
    curves,
    hazard_ratio,
    hazards,
    log_rank_test,
    with_hazard,
)
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import BaseVerdict, Interval, ShownTable
from tacit_protocol.verdicts.effects import (
    Effect,
    effects_frame,
    effects_of,
    effects_table,
    forest,
    number,
    told_between,
)
from tacit_protocol.verdicts.panels import CurvesPanel, DrawnCurve, RowsPanel
from tacit_protocol.verdicts.words import CHI_SQUARED, Meaning, Work, either, names_of

TEST_STREAM, CURVES_STREAM = 1, 2
"""Spawn keys under the study's seed."""

GROUPS_MAX, INTERVALS_MAX = 8, 100

MANTEL = Work(
    "mantel1966evaluation",
    "article",
    ("Nathan Mantel",),
    "Evaluation of Survival Data and Two New Rank Order Statistics Arising in Its Consideration",
    "Cancer Chemotherapy Reports 50(3)",
    1966,
)
KAPLAN = Work(
    "kaplan1958nonparametric",
    "article",
    ("Edward L. Kaplan", "Paul Meier"),
    "Nonparametric Estimation from Incomplete Observations",
    "Journal of the American Statistical Association 53(282)",
    1958,
)


class SurvivalParameters(CountTestParameters):
    """What is followed in time; further columns of the study stratify within owners."""

    time: ColumnName | None = Field(
        None, description="The column of times, numeric and with cuts; by default the first such one."
    )
    event: ColumnName | None = Field(
        None,
        description=(
            "The column that says how a time ended, of two levels; by default the first categorical one that "
            "is not the group."
        ),
    )
    event_level: str | None = Field(
        None, description="Its level that means the event, not censored; by default the last."
    )
    group: ColumnName | None = Field(
        None, description="The column of the groups that are compared; without it, one curve of all units."
    )


class SurvivalCurve(StrictModel):
    """The share of a group's units without the event, at the end of every interval of time.

    Attributes:
        group: the group, or "all".
        times: ends of the intervals, (m,).
        survival: estimated shares, (m,), which never rise.
        lower: lower ends of the intervals, of confidence 1 - alpha each, (m,).
        upper: upper ends.
        band_lower: lower ends of the band that holds all of the curve at confidence 1 - alpha, (m,).
        band_upper: its upper ends.
        median: when the curve falls to one half; None where it does not.
        median_lower: lower end of its interval, or None.
        median_upper: upper end, None where half may never have had the event.
        restricted_mean: mean time without the event, up to the end of the last interval.
        restricted_mean_lower: lower end of its interval.
        restricted_mean_upper: upper end.
    """

    group: str
    times: tuple[float, ...]
    survival: tuple[float, ...]
    lower: tuple[float, ...]
    upper: tuple[float, ...]
    band_lower: tuple[float, ...]
    band_upper: tuple[float, ...]
    median: float | None
    median_lower: float | None
    median_upper: float | None
    restricted_mean: float
    restricted_mean_lower: float
    restricted_mean_upper: float


class SurvivalResult(TablesVerdict):
    """Curves of time to event and, where groups are compared, a stratified log-rank test.

    With groups it unpacks into ``statistic, pvalue``. Curves are of all owners' units together; the test and
    the hazard ratios are within owners, and within the further columns. Groups are compared with the first
    one listed.

    Attributes:
        curves: one for each group.
        statistic: the log-rank statistic, or None without groups.
        pvalue: its simulated p-value, or None without groups.
        effects: hazard ratios, and differences of restricted means, each with its interval.
        effects_by_owner: the hazard ratios of every owner's own units.
        tables: every owner's noisy counts, or None where they are too large to be shown.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue")

    statistic: float | None
    pvalue: float | None
    curves: tuple[SurvivalCurve, ...]
    effects: tuple[Effect, ...]
    effects_by_owner: tuple[Effect, ...]

    def __iter__(self) -> Iterator[float]:  # type: ignore[override]
        if self.statistic is None or self.pvalue is None:
            raise TypeError("one curve tests nothing: there is no p-value to unpack")
        yield self.statistic
        yield self.pvalue

    @property
    def hazard_ratio(self) -> float | None:
        """Of the second group to the first; None without groups, or where the counts cannot tell it."""
        return self.effects[0].estimate if self.effects else None

    @property
    def interval(self) -> Interval | None:
        """Of the hazard ratio; None where it has not two ends."""
        return self.effects[0].interval if self.effects else None

    def to_pandas(self) -> Any:
        """Return the curves as a pandas frame: one row for each group and time."""
        of_times = ("times", "survival", "lower", "upper", "band_lower", "band_upper")
        columns: dict[str, list[Any]] = {"group": [c.group for c in self.curves for _ in c.times]}
        for name in of_times:
            columns[name] = [value for curve in self.curves for value in getattr(curve, name)]
        return self.source.drawn_by.frame(columns)

    def effects_to_pandas(self) -> Any:
        """Return the effects as a pandas frame: one row each, those of all owners first."""
        return effects_frame((*self.effects, *self.effects_by_owner), self.source.drawn_by.frame)

    def hypotheses(self) -> Mapping[str, float]:
        """Return the p-value, where groups are compared."""
        return {} if self.pvalue is None else {"": self.pvalue}

    def __str__(self) -> str:
        if self.pvalue is None:
            return self._told(f"median {number(self.curves[0].median, 'not reached')}")
        decision = "the groups' times differ" if self.reject else "no difference shown"
        return self._told(
            f"{decision}: p = {self.pvalue:.3g} at level {self.alpha:g}; {self.effects[0].words}"
        )

    def fields(self) -> dict[str, Any]:
        """Return what the command lists beside the common fields."""
        return super().fields() | {
            "curves": [curve.model_dump() for curve in self.curves],
            "effects": [effect.model_dump() for effect in self.effects],
            "effects_by_owner": [effect.model_dump() for effect in self.effects_by_owner],
        }

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        rows = tuple(
            (
                curve.group,
                f"{number(curve.median, 'not reached')} "
                f"({number(curve.median_lower, 'no end')} to {number(curve.median_upper, 'no end')})",
                f"{curve.restricted_mean:.4g} "
                f"({curve.restricted_mean_lower:.4g} to {curve.restricted_mean_upper:.4g})",
                f"{curve.survival[-1]:.3f} ({curve.lower[-1]:.3f} to {curve.upper[-1]:.3f})",
            )
            for curve in self.curves
        )
        end = f"without the event at {self.curves[0].times[-1]:g}"
        shown = ShownTable(("Group", "Median", "Restricted mean", end), rows)
        if self.pvalue is None:
            return (f"Survival: {self.method}", shown)
        decision = "the groups' times to the event DIFFER" if self.reject else "no difference shown"
        return (
            f"Verdict: {decision} (p = {self.pvalue:.3g}, level {self.alpha:g})",
            f"  statistic {self.statistic:.5g}; {self.method}",
            shown,
            effects_table(self.effects),
        )

    def details(self) -> Sequence[str | ShownTable]:
        """Return what the command shows after the cost."""
        return (effects_table(self.effects_by_owner),) if len(self.units) > 1 and self.effects else ()


class Layout:
    """Where groups, intervals, events and strata are among the cells of an owner's table.

    Attributes:
        cells: (S, G, m, 2) places in the table: strata, listed groups, intervals, events then censored.
        groups: the groups' names.
        edges: (m + 1,) ends of the intervals.
    """

    def __init__(self, study: Study) -> None:
        parameters = parse_parameters(SurvivalParameters, study)
        grid = grid_of(study, parameters)
        columns = {column.name: column for column in study.domain.columns}
        names = list(columns)
        time = parameters.time or next((c.name for c in study.domain.numeric), "")
        event = parameters.event or next(
            (c.name for c in study.domain.categorical if c.name != parameters.group), ""
        )
        followed, ended = columns.get(time), columns.get(event)
        if not isinstance(followed, NumericColumn):
            raise StudyError("parameter time must name a numeric column of the study, with cuts")
        if not isinstance(ended, CategoricalColumn) or len(ended.levels) != 2 or event == parameters.group:
            raise StudyError("parameter event must name a column of two levels that is not the group")
        level = ended.levels[-1] if parameters.event_level is None else parameters.event_level
        if level not in ended.levels:
            raise StudyError("parameter event_level must be a level of the event's column")
        axes = [names.index(time), names.index(event)]
        self.groups: tuple[str, ...] = ("all",)
        if parameters.group is not None:
            group = columns.get(parameters.group)
            if not isinstance(group, CategoricalColumn) or len(group.levels) < 2:
                raise StudyError("parameter group must name a categorical column of two levels or more")
            axes, self.groups = [names.index(group.name), *axes], group.levels
        self.time, self.event, self.group = time, event, parameters.group
        self.edges: Floats = np.array([followed.lower, *parameters.cuts.get(time, ()), followed.upper])
        places = np.moveaxis(np.arange(grid.size).reshape(grid.shape), axes, range(-len(axes), 0))
        if parameters.group is None:
            places = places[..., None, :, :]
        at = ended.levels.index(level)
        listed = places[..., : len(self.groups), :, [at, 1 - at]]
        self.cells = listed.reshape(-1, *listed.shape[-3:])

    def of(self, table: NoisyTable) -> Times:
        """Return an owner's counts by time."""
        return Times(table, self.cells)


class HazardRatio(Cells):
    """Counts of groups of which all but the first have a larger hazard, by so much of the first one's."""

    medium: ClassVar[float] = 0.5
    taken: ClassVar[frozenset[str]] = frozenset({"size"})
    off: ClassVar[str] = "the curve is off by {} where it is furthest off"

    @property
    def measures(self) -> Measure:
        """The error of a single curve, the power where groups are compared."""
        return "error" if self.layout.group is None else "power"

    @cached_property
    def layout(self) -> "Layout":
        """Where the study's groups, intervals and events are."""
        try:
            return Layout(self.study)
        except StudyError as error:
            raise EffectError(str(error)) from None

    def answer(self, result: Any, held: Sequence[Held]) -> float:
        """Return whether the groups were found to differ; of one curve, how far it is off at most."""
        if self.layout.group is not None:
            return float(result.reject)
        counts = np.sum([np.asarray(own)[self.layout.cells].sum(axis=(0, 1)) for own in held], axis=0)
        return float(np.abs(np.array(result.curves[0].survival) - curve(counts.astype(np.float64))).max())

    def check(self) -> None:
        """Raise EffectError where there is no such hazard ratio."""
        Population.check(self)
        if not -0.99 <= self.size <= 99:
            raise EffectError("an effect is the hazard ratio less 1: between -0.99 and 99")
        self.cells  # noqa: B018 (raises where there are none)

    @cached_property
    def cells(self) -> tuple[Floats, Floats]:
        """The cells' probabilities with one hazard for all groups, and with the ratio, (k,) each."""
        layout = self.layout
        null, without, changed = self.null, self.null.copy(), self.null.copy()
        for cells in layout.cells:
            own = null[cells]
            if own.sum() > 0:
                hazard = hazards(own.sum(axis=0))
                other = 1 - (1 - hazard) ** (1 + self.size)
                without[cells] = [with_hazard(group, hazard) for group in own]
                changed[cells] = [
                    with_hazard(group, other if place else hazard) for place, group in enumerate(own)
                ]
        return without, changed

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[np.ndarray[Any, Any]]:
        """Draw every owner's counts."""
        shares = self.cells[1] / self.cells[1].sum()
        return [rng.multinomial(size, shares).astype(np.int64) for size in sizes]

    def words(self) -> str:
        """Say how much earlier the event is."""
        if self.layout.group is None:
            return "nothing: a curve is released"
        return f"a hazard ratio of {1 + self.size:.3g}"


class Survival(CountTest):
    """See the module. Registered as ``survival``."""

    name: ClassVar[str] = "survival"
    title: ClassVar[str] = "How long until the event, and do groups differ in it?"
    Parameters: ClassVar[type[BaseModel]] = SurvivalParameters
    Verdict: ClassVar[type[BaseVerdict]] = SurvivalResult
    population: ClassVar[type[Population] | None] = HazardRatio
    simulated: ClassVar[str] = "groups with one hazard"
    question: ClassVar[Question | None] = Question(
        "How long until an event, and do groups differ in it?",
        r"surviv|time to|hazard|kaplan|log.?rank|until",
        "one or more",
        rank=2,
        pure=True,
    )

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        super().check(study)
        strata, groups, m, _ = Layout(study).cells.shape
        if groups > GROUPS_MAX or m > INTERVALS_MAX:
            raise StudyError(f"at most {GROUPS_MAX} groups and {INTERVALS_MAX} intervals of time")
        if m < 2:
            raise StudyError("time needs two intervals or more: parameter cuts")
        cells = len(study.owners) * (self.plan(study).grid.size + strata * groups * groups * m)
        require_work(3 * cells, self.parameters(study).replicates + DRAWS)

    def asks(self, study: Study) -> tuple[str, ...]:
        """Say what is followed, and who is compared."""
        layout = Layout(study)
        compared = "" if layout.group is None else f", and compares {layout.group} within owners"
        return (f"follows {layout.time} until {layout.event}{compared}",)

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        if verdict.get("pvalue") is None:
            return Meaning(
                f"The time to the event of {names_of(study)}'s units is shown.",
                f"Intervals have confidence {1 - study.level:g}, and count the noise.",
                tests=False,
            )
        said = either(
            study,
            verdict,
            "The groups' times to the event differ, within owners",
            "No difference in the groups' times to the event was shown, within owners",
        )
        told = ". ".join(told_between(effects_of(verdict.get("effects", ())), ratios=("hazard ratio",)))
        return Meaning(f"{said.sentence} In {told}." if told else said.sentence, said.care)

    def works(self, study: Study) -> tuple[Work, ...]:
        """Return the works that the study's method comes from."""
        return (
            (KAPLAN, CHI_SQUARED)
            if parse_parameters(SurvivalParameters, study).group is None
            else (KAPLAN, MANTEL, CHI_SQUARED)
        )

    def test(
        self,
        study: Study,
        tables: Sequence[NoisyTable],
        replicates: int,
        progress: Callable[[float], None] | None = None,
    ) -> SimulatedTest:
        """Test whether groups have the same hazards within all strata."""
        owners, seed = [Layout(study).of(table) for table in tables], public_seed(study, TEST_STREAM)
        return log_rank_test(owners, replicates, seed, progress)

    def panels(
        self,
        study: Study,
        verdict: Fields,
        releases: Releases,  # noqa: ARG002
    ) -> list[RowsPanel | CurvesPanel]:
        """Return the curves, and the hazard ratios of every owner and of all."""
        layout = Layout(study)
        drawn = tuple(
            DrawnCurve(
                curve["group"],
                (float(layout.edges[0]), *curve["times"]),
                (1.0, *curve["survival"]),
                (1.0, *curve["lower"]),
                (1.0, *curve["upper"]),
            )
            for curve in verdict["curves"]
        )
        title = f"Without the event, with {100 * (1 - study.level):g} % intervals"
        stated = effects_of([*verdict["effects_by_owner"], *verdict["effects"]])
        return [CurvesPanel(title, layout.time, drawn), *forest(stated, study.level)]

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> SurvivalResult:
        """Compute the verdict: post-processing alone, the same for everyone."""
        plan, parameters, layout = self.plan(study), self.parameters(study), Layout(study)
        tables = {owner.name: plan.read_owner(owner, releases) for owner in study.owners}
        owners = {name: layout.of(table) for name, table in tables.items()}
        held, test = list(owners.values()), None
        if layout.group is not None:
            simulating = step(progress, "simulating the null", 0.0, 0.7)
            test = self.test(study, list(tables.values()), parameters.replicates, simulating)
        step(progress, "drawing curves")(0.7)
        found = curves(held, layout.edges, study.level, public_seed(study, CURVES_STREAM))
        strata, groups, m, _ = layout.cells.shape
        what = f"stratified log-rank test of {groups} groups and curves" if test else "curves"
        return SurvivalResult(
            method=f"{what} from noisy counts in {m} intervals of time and {len(held) * strata} strata, "
            f"{plan.noise.kind} noise counted, {parameters.replicates} replicates",
            statistic=None if test is None else test.statistic,
            pvalue=None if test is None else test.pvalue,
            reject=test is not None and test.pvalue <= study.level,
            **self.shown(study, tables),
            curves=tuple(_stated(layout, place, one) for place, one in enumerate(found)),
            effects=_effects(layout, held, found, study.level),
            effects_by_owner=tuple(
                effect
                for name, own in owners.items()
                for effect in _hazard_ratios(layout, [own], study.level, name)
            ),
        )


def _stated(layout: Layout, place: int, found: CurveEstimate) -> SurvivalCurve:
    middle, low, high = found.median
    mean, mean_low, mean_high = found.restricted_mean
    listed = {
        name: tuple(round(float(value), 6) for value in getattr(found, name))
        for name in ("survival", "lower", "upper", "band_lower", "band_upper")
    }
    return SurvivalCurve(
        group=layout.groups[place],
        times=tuple(float(edge) for edge in layout.edges[1:]),
        **listed,
        median=middle,
        median_lower=low,
        median_upper=high,
        restricted_mean=mean,
        restricted_mean_lower=mean_low,
        restricted_mean_upper=mean_high,
    )


def _hazard_ratios(
    layout: Layout, owners: Sequence[Times], level: float, owner: str | None = None
) -> list[Effect]:
    counts = np.concatenate([own.counts for own in owners])
    variances = np.concatenate([own.variances for own in owners])
    found = []
    for place in range(1, len(layout.groups)):
        ratio = hazard_ratio(counts, variances, (place, 0), level)
        ends = (ratio.value, ratio.lower, ratio.upper)
        found.append(_effect(layout, place, "hazard ratio", ends, owner))
    return found


def _effects(
    layout: Layout, owners: Sequence[Times], found: Sequence[CurveEstimate], level: float
) -> tuple[Effect, ...]:
    """Return hazard ratios, and differences of restricted means of groups, whose units are different."""
    effects = _hazard_ratios(layout, owners, level)
    first = found[0].restricted_mean
    for place, other in enumerate(found[1:], 1):
        value = other.restricted_mean[0] - first[0]
        below, above = (
            float(np.hypot(mean[0] - mean[1], against[2] - against[0]))
            for mean, against in ((other.restricted_mean, first), (first, other.restricted_mean))
        )
        ends = (value, value - below, value + above)
        effects.append(_effect(layout, place, "restricted mean difference", ends))
    return tuple(effects)


def _effect(
    layout: Layout,
    place: int,
    kind: str,
    ends: tuple[float | None, float | None, float | None],
    owner: str | None = None,
) -> Effect:
    return Effect(
        column=layout.time,
        kind=kind,
        groups=(layout.groups[place], layout.groups[0]),
        estimate=ends[0],
        lower=ends[1],
        upper=ends[2],
        unit=f"units of {layout.time}" if kind.endswith("difference") else "",
        owner=owner,
    )
