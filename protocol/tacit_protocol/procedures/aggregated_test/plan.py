"""The plans of a test by aggregation: which test blocks take, of which columns, and what is said of it."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import Field
from scipy.special import ndtri

from tacit_protocol.domain import CategoricalColumn, Column, ColumnName, Domain, NumericColumn, Table
from tacit_protocol.features.unit_gram import UnitRows, gather_units
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.procedures.aggregated_test.statistic import (
    TESTS,
    BlockTest,
    Regression,
    RegressionUnavailableError,
    UnitBlock,
    require_regression,
    statistics_of,
)
from tacit_protocol.procedures.aggregated_test.verdict import AggregatedTestResult
from tacit_protocol.procedures.aggregation import (
    BLOCK_LEVEL,
    BLOCKS_MAX,
    REJECTIONS,
    Floats,
    Vote,
    VotePlan,
    Votes,
    VotesLaw,
    drawn_law,
    sum_of_votes,
)
from tacit_protocol.procedures.base import (
    Fields,
    Progress,
    PublicRuleError,
    ReleaseError,
    Releases,
    StudyError,
    common_fields,
    decided,
    parse_parameters,
    public_seed,
    step,
)
from tacit_protocol.procedures.masking import MaskedParameters
from tacit_protocol.verdicts.presentation import (
    Citation,
    Meaning,
    Null,
    Row,
    RowsPanel,
    decision_sentence,
)

__all__ = ["WANTED", "AggregatedTestParameters", "TestName", "aggregated_plan", "roles_of"]

UNITS_MIN, FITTED_UNITS_MIN = 10, 40
"""Fewest units of a block; and where functions are fitted first."""

BLOCK_UNITS_MAX = 100_000
"""Most units of a block: 80 MB for each array of its permutations."""

BLOCKS_STREAM = 1
"""Spawn key under the study's seed of each block's permutations."""

APPROXIMATE = (
    "the level is not kept exactly: residuals are of fitted functions, and what these miss of the given "
    "columns counts as dependence"
)
"""What verdicts on conditional independence say."""

SAMPLE_AND_AGGREGATE = Citation(
    "nissim2007smooth",
    "inproceedings",
    ("Kobbi Nissim", "Sofya Raskhodnikova", "Adam Smith"),
    "Smooth Sensitivity and Sampling in Private Data Analysis",
    "Proceedings of the 39th ACM Symposium on Theory of Computing",
    2007,
)
HARDNESS = Citation(
    "shah2020hardness",
    "article",
    ("Rajen D. Shah", "Jonas Peters"),
    "The Hardness of Conditional Independence Testing and the Generalised Covariance Measure",
    "The Annals of Statistics 48(3)",
    2020,
)

TestName = Literal[
    "t",
    "welch",
    "mann_whitney",
    "brunner_munzel",
    "kolmogorov_smirnov",
    "anova",
    "kruskal_wallis",
    "jonckheere",
    "paired_t",
    "wilcoxon",
    "sign",
    "pearson",
    "spearman",
    "kendall",
    "fisher",
    "cochran_armitage",
    "chi_squared",
    "log_rank",
    "conditional_independence",
]


class AggregatedTestParameters(MaskedParameters):
    """Which test blocks take, of which columns, and whether owners' sums are read or their sum alone."""

    test: TestName = Field(description="The test that every block of units takes.")
    group: ColumnName | None = Field(
        None,
        description="The column of the groups, or the ordered one; by default the first categorical column.",
    )
    event: ColumnName | None = Field(
        None,
        description=(
            "Of log_rank: the column that says how a time ended, of two levels; by default the first "
            "categorical one that is not the group."
        ),
    )
    event_level: str | None = Field(
        None, description="Its level that means the event, not censored; by default the last."
    )
    blocks: Annotated[int, Field(ge=1, le=BLOCKS_MAX)] | None = Field(
        None,
        description=(
            "Blocks of each owner's units; by default 5 + 40/epsilon^2 of a test with a direction, and "
            "5 + 12/epsilon of others and of conditional_independence."
        ),
    )
    block_level: Annotated[float, Field(ge=0.05, le=0.5)] = Field(
        BLOCK_LEVEL,
        description="Level at which a block rejects, towards each side of a test with a direction.",
    )
    regression: Regression = Field(
        "polynomial",
        description=(
            "Of conditional_independence: what is fitted to the given columns in each block; forest and "
            "boosting are scikit-learn's."
        ),
    )


@dataclass(frozen=True)
class Roles:
    """Which columns of a study play which part; places are among its numeric, or its categorical ones.

    ``first`` and ``second`` are a block's; of a test of times ``event`` is the level that is one.
    """

    first: Column
    second: Column
    event: CategoricalColumn | None = None
    event_code: int = 0

    def block(self, domain: Domain, rows: UnitRows, regression: Regression, takes: str) -> UnitBlock:
        """Return a block of units, without those whose group, outcome or event is missing or not listed."""
        numeric, categorical = list(domain.numeric), list(domain.categorical)

        def values(column: Column) -> np.ndarray[Any, np.dtype[np.float64]]:
            if isinstance(column, NumericColumn):
                return rows.numeric[:, numeric.index(column)]
            return rows.categorical[:, categorical.index(column)].astype(np.float64)

        known = np.ones(rows.units, dtype=bool)
        played = [self.first, self.second, *([] if self.event is None else [self.event])]
        for column in played:
            if isinstance(column, CategoricalColumn):
                known &= values(column) < len(column.levels)
        event = None if self.event is None else (values(self.event) == self.event_code)[known] * 1.0
        given, categories = None, tuple[int, ...]()
        if takes == "given":
            kept = [place for place, column in enumerate(numeric) if column not in played]
            levels = [place for place, column in enumerate(categorical) if column not in played]
            given = (rows.numeric[known][:, kept], rows.categorical[known][:, levels])
            categories = tuple(categorical[place].categories for place in levels)
        first, second = (len(getattr(column, "levels", ())) for column in played[:2])
        return UnitBlock(
            values(self.first)[known],
            values(self.second)[known],
            event,
            given,
            regression,
            (first, second),
            categories,
        )


class AggregatedTestPlan(VotePlan):
    """One test of the list, taken by every block."""

    block_units_min: ClassVar[int] = UNITS_MIN
    """Fewest units of a block, and so of an owner."""
    caution: ClassVar[tuple[str, ...]] = ()
    """What limits the test, whatever the units."""
    sought: ClassVar[str] = "difference"
    """What a test that does not reject has not shown."""

    def __init__(
        self, study: Study, parameters: AggregatedTestParameters, test: BlockTest, roles: Roles
    ) -> None:
        vote = Vote(parameters.block_level, test.directed)
        super().__init__(study, parameters, vote, parameters.blocks, self.block_units_min)
        self.parameters, self.test, self.roles = parameters, test, roles

    def check_units(self, units: Mapping[str, int]) -> None:
        for count in units.values():
            if count < self.units_min:
                raise PublicRuleError(
                    "too-few-units", f"the test needs at least {self.units_min} units of each owner"
                )
            if count > self.blocks(count) * BLOCK_UNITS_MAX:
                raise PublicRuleError(
                    "too-many-units", f"a block takes {BLOCK_UNITS_MAX} units at most: ask for more blocks"
                )

    def check_sender(self, release: Release) -> None:
        try:
            self.check_units({"": release.units})
        except PublicRuleError as error:
            raise ReleaseError(str(error)) from None

    def describe_request(self) -> tuple[str, ...]:
        first, second = self.roles.first.name, self.roles.second.name
        return (f"{self.test.words} of {first} and {second}, by blocks", *super().describe_request())

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        if any(owner.name not in units for owner in self.study.owners):
            return ()
        return self.hopes(units) + self.caution

    def summarise(
        self, table: Table, order: np.random.Generator | None = None, progress: Progress | None = None
    ) -> Votes:
        # In a secret random order, so that it does not matter in which order a table yields the units.
        self.check_units({"": table.units})
        try:
            require_regression(self.parameters.regression)
        except RegressionUnavailableError as error:
            raise StudyError(str(error)) from None
        rows = gather_units(list(table.chunks()))
        if len(rows.numeric) != rows.units:
            raise StudyError('tests are of units of one row: ask for unit_rows "one"')
        order = order or np.random.default_rng()
        rows = rows.reordered(order.permutation(rows.units))
        votes = self.voted(rows, order, self.statistics, step(progress, "testing blocks"))
        return Votes(rows.units, votes)

    def statistics(self, rows: UnitRows, number: int) -> Floats:
        """Return the test's statistics of the block of that number, (B + 1,), the observed one first."""
        rng = np.random.default_rng(public_seed(self.study, BLOCKS_STREAM, number))
        block = self.roles.block(self.study.domain, rows, self.parameters.regression, self.test.takes)
        return statistics_of(self.test, block, rng)

    def conclude(
        self, releases: Releases, units: Mapping[str, int], progress: Progress | None = None
    ) -> AggregatedTestResult:
        study, names = self.study, [owner.name for owner in self.study.owners]
        if progress is not None:
            progress(1.0, "adding up votes")
        units = {name: releases[name].units for name in names}
        law = self.law(units.values())
        sent, shared = {name: releases[name] for name in names}, self.shared
        votes = sum_of_votes(sent, self.vote, shared)
        statistic = abs(votes) if self.test.directed else votes
        found = decided(study, statistic, law.pvalue(statistic))
        way = ("up" if votes > 0 else "down") if self.test.directed and found["reject"] else None
        shown = self.says(way) if found["reject"] else f"nothing shown by the {self.test.words}"
        return AggregatedTestResult.model_validate(
            {
                "method": f"{self.test.words} by aggregation: blocks rejecting at level "
                f"{self.parameters.block_level:g}{' of either side' if self.test.directed else ''}, "
                "noisy sum of their votes",
                **found,
                **common_fields(study, units, None if shared is None else shared.own),
                "warnings": self.warnings(units) + self.masks_caveats,
                "test": self.parameters.test,
                "votes": votes,
                "direction": way,
                "finding": shown,
                "blocks": law.blocks,
                "expected": law.mean,
                "deviation": law.deviation,
                "votes_by_owner": {name: sum_of_votes({name: own}, self.vote) for name, own in sent.items()}
                if shared is None
                else {},
                "blocks_by_owner": {name: self.blocks(count) for name, count in units.items()},
            }
        )

    def says(self, way: str | None) -> str:
        """Say what a rejection shows: upwards, downwards, or without a direction."""
        words = self.test.down if way == "down" and self.test.down is not None else self.test.up
        groups = getattr(self.roles.second, "levels", ("", ""))
        level = f"{self.roles.first.name} = {getattr(self.roles.first, 'levels', ('',))[-1]}"
        names = {"first": self.roles.first.name, "second": self.roles.second.name, "level": level}
        return words.format(**names, a=groups[0], b=groups[-1])

    def meaning(self, verdict: Fields) -> Meaning:
        of = f"{self.roles.first.name} and {self.roles.second.name}"
        return decision_sentence(
            self.study,
            verdict,
            f"Within owners, {self.says(verdict.get('direction'))}",
            f"No {self.sought} was shown by the {self.test.words} of {of}, within owners",
        )

    def null(self, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        law = self.law(verdict["units"].values())
        words = "a sum of blocks' votes, with the noise"
        return drawn_law(law, self.study.level, float(verdict["statistic"]), words)

    def panels(self, verdict: Fields, releases: Releases) -> list[RowsPanel]:  # noqa: ARG002
        units, level = verdict["units"], self.study.level
        rows = [
            _row(name, float(votes), self.law([units[name]]), level)
            for name, votes in verdict["votes_by_owner"].items()
        ]
        if len(rows) != 1:
            rows.append(_row("all", float(verdict["votes"]), self.law(units.values()), level))
        title = "Votes of a block, on average" if self.test.directed else "Votes of a block over the expected"
        return [RowsPanel(title, "votes", tuple(rows))]


class PairTestPlan(AggregatedTestPlan):
    """A test of two numbers of a unit, whose rejection is a dependence."""

    sought = "dependence"


class ConditionalTestPlan(PairTestPlan):
    """A test of the residuals of functions that are fitted to given columns in each block."""

    block_units_min = FITTED_UNITS_MIN
    caution = (APPROXIMATE,)

    @property
    def counting(self) -> Vote:
        # Fitted functions need large blocks, whatever the direction.
        return REJECTIONS

    @property
    def cited(self) -> tuple[Citation, ...]:
        return (SAMPLE_AND_AGGREGATE, HARDNESS)


def aggregated_plan(study: Study) -> AggregatedTestPlan:
    """Return the plan of a study, whoever its owners are; raises StudyError where it cannot be run."""
    parameters = parse_parameters(AggregatedTestParameters, study)
    test = TESTS[parameters.test]
    roles = roles_of(parameters, test, study.domain)
    kinds = {"given": ConditionalTestPlan, "pair": PairTestPlan}
    return kinds.get(test.takes, AggregatedTestPlan)(study, parameters, test, roles)


def _row(label: str, votes: float, law: VotesLaw, level: float) -> Row:
    """Return the mean vote of blocks with its interval, which counts sampling and noise."""
    mean = (votes - law.mean) / law.blocks
    # Votes lie in [0, 1] or [-1, 1]: their variance is a quarter of the squared range at most.
    variance = (law.vote.sensitivity / 2) ** 2 / law.blocks + law.noise_variance / law.blocks**2
    half = -float(ndtri(level / 2)) * variance**0.5
    return Row(label, mean, mean - half, mean + half, abs(mean) > half)


WANTED: Mapping[str, tuple[int, int]] = {
    "paired": (2, 0),
    "pair": (2, 0),
    "groups": (1, 1),
    "table": (0, 2),
    "times": (1, 2),
}
"""How many numeric and categorical columns a test takes, by what it takes."""


def roles_of(parameters: AggregatedTestParameters, test: BlockTest, domain: Domain) -> Roles:
    """Give every column its part; raises StudyError where the columns or the parameters do not suit."""
    if test.takes not in ("groups", "table", "times") and parameters.group is not None:
        raise StudyError(f"parameter group: {parameters.test} compares no groups; leave it out")
    if test.takes != "times" and (parameters.event is not None or parameters.event_level is not None):
        raise StudyError("parameters event and event_level are of log_rank; leave them out")
    if test.takes == "given":
        return _first_two(parameters, domain)
    numeric, categorical = domain.numeric, domain.categorical
    wanted = WANTED[test.takes]
    if (len(numeric), len(categorical)) != wanted:
        raise StudyError(
            f"{parameters.test} takes {wanted[0]} numeric and {wanted[1]} categorical columns, no others"
        )
    if categorical:
        return _grouped(parameters, test, numeric, categorical)
    first, second = numeric
    if test.takes == "paired" and (first.lower, first.upper) != (second.lower, second.upper):
        raise StudyError("before and after need the same bounds")
    return Roles(first, second)


def _first_two(parameters: AggregatedTestParameters, domain: Domain) -> Roles:
    if len(domain.columns) < 3:
        raise StudyError(f"{parameters.test} takes two columns and, after them, those that are given")
    first, second = domain.columns[:2]
    for column in (first, second):
        if isinstance(column, CategoricalColumn) and len(column.levels) != 2:
            raise StudyError("the first two columns must be numeric, or have two levels")
    return Roles(first, second)


def _grouped(
    parameters: AggregatedTestParameters,
    test: BlockTest,
    numeric: Sequence[NumericColumn],
    categorical: Sequence[CategoricalColumn],
) -> Roles:
    """Give the parts of a group and an outcome, or of a group, times and events."""
    name = parameters.group or next(c.name for c in categorical if c.name != parameters.event)
    group = next((column for column in categorical if column.name == name), None)
    if group is None or not test.groups[0] <= len(group.levels) <= test.groups[1]:
        raise StudyError(
            f"parameter group must name a categorical column of {test.groups[0]} to {test.groups[1]} levels"
        )
    if test.takes == "groups":
        return Roles(numeric[0], group)
    other = next(column for column in categorical if column != group)
    if not test.levels[0] <= len(other.levels) <= test.levels[1]:
        raise StudyError(
            f"the column that is not the group must have {test.levels[0]} to {test.levels[1]} levels"
        )
    if test.takes == "table":
        return Roles(other, group)
    if parameters.event not in (None, other.name):
        raise StudyError("parameter event must name the categorical column that is not the group")
    level = other.levels[-1] if parameters.event_level is None else parameters.event_level
    if level not in other.levels:
        raise StudyError("parameter event_level must be a level of the event's column")
    return Roles(numeric[0], group, other, other.levels.index(level))
