"""Tests that people know, made private by aggregation: blocks of units vote, and their noisy sum is released.

Every owner puts its units into a secret random order, cuts it into disjoint blocks, and lets a test of a
closed public list (:mod:`~tacit_protocol.procedures.aggregated_test.statistic`) reject in each at a level
that is the same for all: towards one side or the other where the test has a direction. One unit changes one
vote, whatever the test does inside a block, so that any test is private so, in pure epsilon; sums of several
owners add up with no curator, and what differs between owners makes no difference.
Derivations: docs/mathematics/aggregated-tests.md.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, Field
from scipy.special import ndtri

from tacit_protocol.domain import CategoricalColumn, Column, ColumnName, Domain, NumericColumn, Table
from tacit_protocol.features.unit_gram import UnitRows, gather_units
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.names import folded
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import same_guarantee
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.laplace_mechanism import laplace_sum_guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.aggregated_test.statistic import (
    TESTS,
    BlockTest,
    Regression,
    RegressionUnavailableError,
    UnitBlock,
    require_regression,
    statistics_of,
)
from tacit_protocol.procedures.aggregation import (
    BLOCK_LEVEL,
    BLOCKS_MAX,
    REJECTIONS,
    SumsOfVotes,
    Vote,
    VotesLaw,
    block_places,
    drawn_law,
    epsilon_of_noise,
    shared_in_votes,
    sum_of_votes,
)
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Procedure,
    Progress,
    PublicRuleError,
    QuestionTemplate,
    ReleaseError,
    Releases,
    RequiredParameter,
    StudyError,
    common_fields,
    decided,
    parse_parameters,
    planned_once,
    require_shared_columns,
)
from tacit_protocol.procedures.masking import MaskedParameters, SharedNoise
from tacit_protocol.procedures.populations import (
    HAZARD_RATIO_MEDIUM,
    Columns,
    EffectError,
    Held,
    SimulationModel,
    dependent_rows,
    draw_rows,
    require_hazard_ratio,
    rows_of,
    values_of,
    with_standard_effect,
)
from tacit_protocol.procedures.within_owners.verdict import WITHIN_ALONE
from tacit_protocol.verdicts.base import BaseVerdict, PvalueVerdict, ShownTable
from tacit_protocol.verdicts.presentation import (
    Citation,
    Meaning,
    Null,
    Row,
    RowsPanel,
    Shown,
    decision_sentence,
)

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


class AggregatedTestResult(PvalueVerdict):
    """Whether blocks of units reject more often than they would by chance, and towards which side.

    Unpacks into ``statistic, pvalue``.

    Attributes:
        statistic: the owners' noisy sums of votes, added up; of a test with a direction how far from 0.
        pvalue: probability under the null hypothesis of a statistic at least as large; of a test with a
            direction, of both sides.
        test: which test blocks took.
        votes: the sum itself: with a direction, blocks that reject upwards less those that reject downwards.
        direction: "up" or "down", where the test has a direction and rejects; else None.
        finding: what was shown, or that nothing was, in words.
        blocks: how many blocks were tested, all owners together.
        expected: the sum to be expected under the null hypothesis.
        deviation: its standard deviation under the null hypothesis, noise and all.
        votes_by_owner: every owner's noisy sum; nobody's where they were masked.
        blocks_by_owner: every owner's number of blocks.
    """

    listed: ClassVar[tuple[str, ...]] = (
        "statistic",
        "pvalue",
        "votes",
        "direction",
        "blocks",
        "expected",
        "deviation",
        "votes_by_owner",
    )

    test: str
    votes: Annotated[float, Shown("votes of blocks", "test")]
    direction: Annotated[Literal["up", "down"] | None, Shown("direction", "effects")]
    finding: Annotated[str, Shown("finding", "effects")]
    blocks: int
    expected: Annotated[float, Shown("votes expected under the null hypothesis", "test")]
    deviation: Annotated[float, Shown("their standard deviation", "test")]
    votes_by_owner: dict[str, float]
    blocks_by_owner: dict[str, int]

    def __str__(self) -> str:
        return self._told(self._decided(self.finding))

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        rows = tuple(
            (name, f"{votes:.4g}", str(self.blocks_by_owner[name]))
            for name, votes in self.votes_by_owner.items()
        )
        return (
            self._finding(self.finding),
            f"  votes {self.votes:.4g} of {self.blocks} blocks, noise included; {self.expected:.4g} are "
            f"expected, with standard deviation {self.deviation:.3g}",
            f"  {self.method}",
            *([ShownTable(("Owner", "Votes", "Blocks"), rows)] if len(rows) > 1 else []),
        )


@dataclass(frozen=True)
class Votes:
    """The exact sum of an owner's blocks' votes. It never leaves the owner."""

    units: int
    votes: int = field(repr=False)


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


@dataclass(frozen=True)
class _Plan:
    """What a study fixes before any data."""

    parameters: AggregatedTestParameters
    test: BlockTest
    roles: Roles
    guarantee: Guarantee
    """What each owner spends: where they mask its own, by which it draws its share of the noise."""
    shared: SharedNoise | None

    @property
    def vote(self) -> Vote:
        """How blocks vote."""
        return Vote(self.parameters.block_level, self.test.directed)

    @property
    def units_min(self) -> int:
        """Fewest units of an owner: a block."""
        return FITTED_UNITS_MIN if self.test.takes == "given" else UNITS_MIN

    def blocks(self, units: int) -> int:
        """Return in how many blocks an owner's units are tested."""
        # Fitted functions need large blocks, whatever the direction.
        counting = REJECTIONS if self.test.takes == "given" else self.vote
        epsilon = epsilon_of_noise(self.guarantee)
        return counting.blocks(units, epsilon, self.parameters.blocks, self.units_min)

    def law(self, units: Sequence[int]) -> VotesLaw:
        """Return the null law of the sum of owners' votes, of so many units each."""
        return self.vote.law([self.blocks(count) for count in units], self.guarantee)

    def says(self, way: str | None) -> str:
        """Say what a rejection shows: upwards, downwards, or without a direction."""
        words = self.test.down if way == "down" and self.test.down is not None else self.test.up
        groups = getattr(self.roles.second, "levels", ("", ""))
        level = f"{self.roles.first.name} = {getattr(self.roles.first, 'levels', ('',))[-1]}"
        names = {"first": self.roles.first.name, "second": self.roles.second.name, "level": level}
        return words.format(**names, a=groups[0], b=groups[-1])


class TestedEffect(SimulationModel):
    """Rows of owners in all of whom a test should find its effect, of a size that fits what it takes."""

    medium: ClassVar[float] = 0.5

    @property
    def plan(self) -> _Plan:
        """The study's plan."""
        try:
            return plan_of(self.study)
        except StudyError as error:
            raise EffectError(str(error)) from None

    @property
    def size(self) -> float:
        """The effect's size: by default .5, of correlations .3, of shares .2, of hazards a ratio of 1.5."""
        if self.effect.size is not None:
            return self.effect.size
        medium = {"pair": 0.3, "given": 0.3, "table": 0.2, "times": HAZARD_RATIO_MEDIUM}
        return medium.get(self.plan.test.takes, self.medium)

    def check(self) -> None:
        """Raise EffectError where there is no such effect."""
        super().check()
        takes = self.plan.test.takes
        if takes in ("pair", "given", "table") and not abs(self.size) <= 1:
            raise EffectError("a correlation, or a difference of shares, lies between -1 and 1")
        if takes == "times":
            require_hazard_ratio(self.size)

    def words(self) -> str:
        """Say what the test should find."""
        roles, size = self.plan.roles, f"{self.size:.3g}"
        first, second = roles.first.name, roles.second.name
        levels = getattr(roles.second, "levels", ("", ""))
        return {
            "groups": f"{first} larger by {size} standard deviations in {levels[-1]} than in {levels[0]}",
            "paired": f"{second} larger than {first} by {size} standard deviations",
            "pair": f"a correlation of {size} between {first} and {second}",
            "given": f"a correlation of {size} between {first} and {second}, the others independent of both",
            "table": f"a difference of {size} in the share of {first} between {levels[-1]} and {levels[0]}",
            "times": f"a hazard ratio of {size} of {levels[-1]} to {levels[0]}",
        }[self.plan.test.takes]

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[Held]:
        """Draw every owner's rows."""
        return [self._rows(size, rng) for size in sizes]

    def _rows(self, size: int, rng: np.random.Generator) -> Columns:
        plan, domain = self.plan, self.study.domain
        first, second = plan.roles.first, plan.roles.second
        if plan.test.takes in ("pair", "given"):
            pair = (first.name, second.name)
            asked: dict[str, Any] = {"pair": pair, "correlation": self.size, "shape": "linear"}
            return dependent_rows(self.public, domain, size, rng, **asked)
        # Every column by itself: in a public sample they may depend on each other.
        names = [column.name for column in domain.columns]
        rows = {name: draw_rows(self.public, domain, size, rng)[name] for name in names}
        if plan.test.takes == "paired":
            only = Domain(columns=(second,))
            return with_standard_effect(rows, self.public, only, self.size, rng)
        levels: Sequence[str] = getattr(second, "levels", ())
        place = {level: code / (len(levels) - 1) for code, level in enumerate(levels)}
        along = np.array([place.get(str(value), 0.0) for value in rows[second.name]])
        if plan.test.takes == "table":
            return rows | {first.name: self._shares(first, rows[first.name], along, rng)}
        if plan.test.takes == "times":
            left = rng.random(rows_of(rows)) ** (1 / self.size**along)
            return rows | {first.name: values_of(self.public, first, -ndtri(left))}
        moved = with_standard_effect(rows, self.public, Domain(columns=(first,)), 1.0, rng)[first.name]
        return rows | {first.name: rows[first.name] + self.size * along * (moved - rows[first.name])}

    def _shares(self, column: Column, values: Any, along: Any, rng: np.random.Generator) -> Any:
        """Return the outcome with its last level's share changed by so much, along the groups."""
        levels: Sequence[str] = getattr(column, "levels", ())
        last = np.array([str(value) == levels[-1] for value in values])
        share = float(last.mean())
        room = max(1 - share if self.size > 0 else share, 1e-9)
        changed = rng.random(len(last)) < np.abs(self.size) * along / room
        found = np.asarray(values, dtype=object).copy()
        found[changed & (last != (self.size > 0))] = levels[-1] if self.size > 0 else levels[0]
        return found


class AggregatedTest(SumsOfVotes, Procedure):
    """See the module. Registered as ``aggregated_test``."""

    name: ClassVar[str] = "aggregated_test"
    title: ClassVar[str] = "Does a test that you know reject, within every owner?"
    families: ClassVar[frozenset[Family]] = frozenset(("pure", "gaussian"))
    divided_for: ClassVar[frozenset[Family] | None] = frozenset(("pure",))
    Parameters: ClassVar[type[BaseModel]] = AggregatedTestParameters
    Verdict: ClassVar[type[BaseVerdict]] = AggregatedTestResult
    released: ClassVar[str] = "the sum of the votes of blocks of its units, each of which takes the test"
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Does a test that I know (t, Mann-Whitney, Wilcoxon, Kendall, log-rank and more) reject?",
        r"t.test|mann.whitney|wilcoxon|kruskal|kolmogorov|jonckheere|kendall|spearman|fisher|conditional",
        "one or more",
        rank=2,
        pure=True,
        relates=True,
    )
    population: ClassVar[type[SimulationModel] | None] = TestedEffect
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        *({"blocks": blocks} for blocks in (10, 20, 50, 100, 200)),
        {"block_level": 0.2},
        {"block_level": 0.5},
    )

    def needs(self, columns: Sequence[Column]) -> tuple[RequiredParameter, ...]:
        """Return how the test is asked for: of those that take such columns."""
        names = [name for name, test in TESTS.items() if _takes(test, columns)] or list(TESTS)
        return (
            RequiredParameter("test", "which test", f"The test ({', '.join(names)})", _test_named, names[0]),
        )

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; leave the curator out")
        if study.averages_rows:
            raise StudyError('tests are of units of one row: ask for unit_rows "one"')
        plan_of(study)
        self.check_units(
            study, {owner.name: owner.units for owner in study.owners if owner.units is not None}
        )

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where an owner has too few units, or too many for its blocks."""
        plan = plan_of(study)
        for count in units.values():
            if count < plan.units_min:
                raise PublicRuleError(
                    "too-few-units", f"the test needs at least {plan.units_min} units of each owner"
                )
            if count > plan.blocks(count) * BLOCK_UNITS_MAX:
                raise PublicRuleError(
                    "too-many-units", f"a block takes {BLOCK_UNITS_MAX} units at most: ask for more blocks"
                )

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends, on one sum: epsilon; where masked, what holds whoever colludes."""
        return plan_of(study).guarantee

    def shared_noise(self, study: Study) -> SharedNoise | None:
        """Return the noise of masked sums; None where every owner's is read by itself, in pure epsilon."""
        return plan_of(study).shared

    def release_size(self, study: Study) -> int:  # noqa: ARG002
        """Return 1: one noisy sum."""
        return 1

    def describe_request(self, study: Study) -> tuple[str, ...]:
        """Say which test is taken of what."""
        plan = plan_of(study)
        asked = f"{plan.test.words} of {plan.roles.first.name} and {plan.roles.second.name}, by blocks"
        return (asked, *self.asked_of_masks(study))

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where, though every block voted alike, the study would miss it more often than not."""
        plan = plan_of(study)
        if any(owner.name not in units for owner in study.owners):
            return ()
        caveats = (APPROXIMATE,) if plan.test.takes == "given" else ()
        few = [name for name, count in units.items() if count < plan.units_min]
        if few:
            needed = f"a block needs at least {plan.units_min} units: {', '.join(few)} has fewer"
            return (f"{HOPELESS}{needed}", *caveats)
        law = plan.law(list(units.values()))
        # The noise is symmetric: with every block rejecting, the sum is above their number half of the time.
        if law.pvalue(law.blocks) <= study.level:
            return caveats
        return (
            f"{HOPELESS}even if every block rejected, it would be missed more often than not; ask for more "
            "units or a larger epsilon",
            *caveats,
        )

    def summarise(
        self,
        study: Study,
        table: Table,
        progress: Progress | None = None,
        order: np.random.Generator | None = None,
    ) -> Votes:
        """Let the blocks vote. The sum never leaves the owner as it is.

        Units are put in a secret random order first, so that it does not matter in which order a table yields
        them; ``order`` fixes it, for audits and simulations alone.
        """
        plan = plan_of(study)
        self.check_units(study, {"": table.units})
        try:
            require_regression(plan.parameters.regression)
        except RegressionUnavailableError as error:
            raise StudyError(str(error)) from None
        rows = gather_units(list(table.chunks()))
        if len(rows.numeric) != rows.units:
            raise StudyError('tests are of units of one row: ask for unit_rows "one"')
        order = order or np.random.default_rng()
        rows = rows.reordered(order.permutation(rows.units))
        blocks, votes = plan.blocks(rows.units), 0
        lots = order.random(blocks)
        for number, place in enumerate(block_places(rows.units, blocks)):
            tested = rows.reordered(np.arange(rows.units)[place])
            seed = np.random.SeedSequence(int(study.seed, 16), spawn_key=(BLOCKS_STREAM, number))
            block = plan.roles.block(study.domain, tested, plan.parameters.regression, plan.test.takes)
            statistics = statistics_of(plan.test, block, np.random.default_rng(seed))
            votes += plan.vote.of(statistics, lots[number])
            if progress is not None:
                progress((number + 1) / blocks, "testing blocks")
        return Votes(rows.units, votes)

    def privatise(self, study: Study, summary: Votes, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states to the sum."""
        plan = plan_of(study)
        blocks = plan.blocks(summary.units)
        vector = plan.vote.release(summary.votes, blocks, plan.guarantee, noise)
        return Release(units=summary.units, guarantee=plan.guarantee, vectors={plan.vote.name: vector})

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release is not one sum, with the noise that the study fixes."""
        plan = plan_of(study)
        if not same_guarantee(release.guarantee, plan.guarantee):
            raise ReleaseError("the release states another guarantee than the study")
        try:
            self.check_units(study, {"": release.units})
        except PublicRuleError as error:
            raise ReleaseError(str(error)) from None
        if set(release.vectors) != {plan.vote.name} or release.decision is not None:
            raise ReleaseError("the release must hold a sum of votes and nothing else")
        if not plan.vote.fits(release.vectors[plan.vote.name], plan.blocks(release.units), plan.guarantee):
            raise ReleaseError("the sum of votes has not the grid and the noise that the study fixes")

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> AggregatedTestResult:
        """Conclude from the owners' sums, added up: post-processing alone, the same for everyone."""
        plan, names = plan_of(study), [owner.name for owner in study.owners]
        if progress is not None:
            progress(1.0, "adding up votes")
        units = {name: releases[name].units for name in names}
        law = plan.law(list(units.values()))
        sent, shared = {name: releases[name] for name in names}, plan.shared
        votes = sum_of_votes(sent, plan.vote, shared)
        caveats = () if shared is None else shared.caveats(self.masked_numbers, WITHIN_ALONE)
        statistic = abs(votes) if plan.test.directed else votes
        found = decided(study, statistic, law.pvalue(statistic))
        way = ("up" if votes > 0 else "down") if plan.test.directed and found["reject"] else None
        shown = plan.says(way) if found["reject"] else f"nothing shown by the {plan.test.words}"
        return AggregatedTestResult.model_validate(
            {
                "method": f"{plan.test.words} by aggregation: blocks rejecting at level "
                f"{plan.parameters.block_level:g}{' of either side' if plan.test.directed else ''}, "
                "noisy sum of their votes",
                **found,
                **common_fields(study, units, None if shared is None else shared.own),
                "warnings": self.warnings(study, units) + caveats,
                "test": plan.parameters.test,
                "votes": votes,
                "direction": way,
                "finding": shown,
                "blocks": law.blocks,
                "expected": law.mean,
                "deviation": law.deviation,
                "votes_by_owner": {name: sum_of_votes({name: own}, plan.vote) for name, own in sent.items()}
                if shared is None
                else {},
                "blocks_by_owner": {name: plan.blocks(count) for name, count in units.items()},
            }
        )

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        plan = plan_of(study)
        of = f"{plan.roles.first.name} and {plan.roles.second.name}"
        sought = "dependence" if plan.test.takes in ("pair", "given") else "difference"
        return decision_sentence(
            study,
            verdict,
            f"Within owners, {plan.says(verdict.get('direction'))}",
            f"No {sought} was shown by the {plan.test.words} of {of}, within owners",
        )

    def works(self, study: Study) -> tuple[Citation, ...]:
        """Return the works that the study's method comes from."""
        given = plan_of(study).test.takes == "given"
        return (SAMPLE_AND_AGGREGATE, HARDNESS) if given else (SAMPLE_AND_AGGREGATE,)

    def null(self, study: Study, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        """Return the law of the statistic: of a sum of votes with its noise."""
        law = plan_of(study).law(list(verdict["units"].values()))
        words = "a sum of blocks' votes, with the noise"
        return drawn_law(law, study.level, float(verdict["statistic"]), words)

    def panels(self, study: Study, verdict: Fields, releases: Releases) -> list[RowsPanel]:  # noqa: ARG002
        """Return every owner's votes and those of all, a block, over what is expected."""
        plan, units = plan_of(study), verdict["units"]
        rows = [
            _row(name, float(votes), plan.law([units[name]]), study.level)
            for name, votes in verdict["votes_by_owner"].items()
        ]
        if len(rows) != 1:
            law = plan.law(list(units.values()))
            rows.append(_row("all", float(verdict["votes"]), law, study.level))
        title = "Votes of a block, on average" if plan.test.directed else "Votes of a block over the expected"
        return [RowsPanel(title, "votes", tuple(rows))]


def _row(label: str, votes: float, law: VotesLaw, level: float) -> Row:
    """Return the mean vote of blocks with its interval, which counts sampling and noise."""
    mean = (votes - law.mean) / law.blocks
    # Votes lie in [0, 1] or [-1, 1]: their variance is a quarter of the squared range at most.
    variance = (law.vote.sensitivity / 2) ** 2 / law.blocks + law.noise_variance / law.blocks**2
    half = -float(ndtri(level / 2)) * variance**0.5
    return Row(label, mean, mean - half, mean + half, abs(mean) > half)


@planned_once
def plan_of(study: Study) -> _Plan:
    """Return what a study fixes; raises StudyError where it cannot be run as written."""
    parameters = parse_parameters(AggregatedTestParameters, study)
    test = TESTS[parameters.test]
    roles = _roles(parameters, test, study.domain)
    shared = shared_in_votes(study, parameters, Vote(parameters.block_level, test.directed))
    guarantee = laplace_sum_guarantee(study.budget) if shared is None else shared.own
    return _Plan(parameters, test, roles, guarantee, shared)


WANTED: Mapping[str, tuple[int, int]] = {
    "paired": (2, 0),
    "pair": (2, 0),
    "groups": (1, 1),
    "table": (0, 2),
    "times": (1, 2),
}
"""How many numeric and categorical columns a test takes, by what it takes."""


def _roles(parameters: AggregatedTestParameters, test: BlockTest, domain: Domain) -> Roles:
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


def _takes(test: BlockTest, columns: Sequence[Column]) -> bool:
    """Say whether a test takes such columns."""
    try:
        _roles(AggregatedTestParameters(test=_named(test)), test, Domain(columns=tuple(columns)))
    except (StudyError, ValueError):
        return False
    return True


def _named(test: BlockTest) -> Any:
    return next(name for name, found in TESTS.items() if found is test)


def _test_named(answer: str) -> str:
    """Read a test's name; raises ValueError where there is none of it."""
    name = folded(answer.strip()).replace("-", "_").replace(" ", "_")
    if name not in TESTS:
        raise ValueError(f"no such test; known: {', '.join(TESTS)}")
    return name
