"""Are several variables, or groups of columns, jointly independent? A private decision, or a count of blocks.

``permutation`` (dpdHSIC): *Differentially private joint independence test* on Kim and Schrab, *Differentially
private permutation tests* (2023), with sharper sensitivities: docs/mathematics/joint-independence.md and
permutation-tests.md. The rows must be in one place: at one owner's agent, or at a curator, which pools the
units of its owners. The statistic of the data is compared with those of permuted data, with noise on all; one
bit leaves.

``aggregate``: every owner, or the curator, tests blocks of its units and releases the noisy number of those
that reject: pure epsilon and an exact p-value, and owners' counts add up (aggregation.py). It may test the
residuals of a causal graph in the place of columns (additive_noise.py).

``table``: every owner, or the curator, releases one noisy table of the columns' cells, between private
quantiles: pure epsilon, a p-value and estimates with intervals; several owners are strata
(procedures/quantile_tables, docs/mathematics/quantile-tables.md).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from tacit_protocol.domain import ColumnName, Domain, PooledTable, Table, Workers, workers_of
from tacit_protocol.features.fixed_rank import features_of
from tacit_protocol.features.kernels import (
    BANDWIDTH_MAX,
    DistanceKernel,
    KernelMixture,
    LinearKernel,
    ProductKernel,
)
from tacit_protocol.features.private_cells import QUANTILE_CELLS_MAX
from tacit_protocol.features.unit_gram import EvaluatedKernel, UnitGram, UnitRows, gather_units
from tacit_protocol.messages.study import UNITS_MAX, Release, Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import same_guarantee
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.laplace_mechanism import StatisticError, laplace_sum_guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.privacy.permutation_test import (
    decision_guarantee,
    decision_xi,
    permutation_decision,
    rank_max,
)
from tacit_protocol.procedures.aggregation import (
    BLOCK_LEVEL,
    BLOCK_PERMUTATIONS,
    BLOCK_UNITS_MIN,
    BLOCKS_MAX,
    REJECTIONS,
    SumsOfVotes,
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
    Holder,
    Procedure,
    Progress,
    PublicRuleError,
    QuestionTemplate,
    ReleaseError,
    Releases,
    StudyError,
    common_fields,
    parse_parameters,
    planned_once,
    public_seed,
    require_shared_columns,
    require_work,
    row_warnings,
    units_declared,
)
from tacit_protocol.procedures.masking import MaskedParameters, SharedNoise
from tacit_protocol.procedures.permutation.additive_noise import (
    AdditiveNoise,
    GraphError,
    require_graph,
)
from tacit_protocol.procedures.permutation.statistic import (
    evaluation_error,
    observed_sensitivity,
    permuted_sensitivity,
    permuted_statistics,
    squared_statistic,
    squared_statistics,
    statistic_max,
    units_max,
)
from tacit_protocol.procedures.populations import Dependence, SimulationModel
from tacit_protocol.procedures.quantile_tables.release import UNITS_MIN, HeldUnits, TablePlan
from tacit_protocol.procedures.quantile_tables.verdict import (
    CellsTableResult,
    pair_panels,
    table_fields,
    table_null,
    table_warnings,
)
from tacit_protocol.procedures.within_owners.verdict import WITHIN_ALONE
from tacit_protocol.verdicts.base import BaseVerdict, DecisionResult, PvalueVerdict, ShownTable
from tacit_protocol.verdicts.presentation import (
    JOINT,
    PERMUTATION,
    Citation,
    Meaning,
    Null,
    RowsPanel,
    Shown,
    decision_sentence,
    joined,
)

PERMUTATIONS_DEFAULT = 999
PERMUTATIONS_MIN, PERMUTATIONS_MAX = 99, 9999
"""Fewer than 99 cannot reject at level .01; more than some thousands gain nothing under the noise."""

VARIABLES_MAX = 32
"""Most variables: the noise grows with their number, and with so many nothing is left to see."""

BANDWIDTH_SMALLEST = 1e-3
"""Columns are scaled to [0, 1]; a narrower kernel sees equal values alone."""

BANDWIDTHS_MAX = 8
"""Most bandwidths that one kernel averages over."""

BANDWIDTH_PER_COLUMN = 0.12
"""Default bandwidth, times the root of the number of numeric columns of a variable. Public bounds are usually
wider than the data: this serves data whose standard deviation is a twentieth to a quarter of the range
(docs/procedures/joint_independence.md has the table)."""

EXTREME = 4.0
"""Standard deviations from a block's mean at which its numeric columns are clipped before they are scaled to
[0, 1], where no bandwidth is given: the default bandwidth suits them, however wide the public bounds are."""

BLOCK_BANDWIDTH_PER_COLUMN = 0.8 / (2 * EXTREME)
"""Default bandwidth of a block so scaled: eight tenths of a standard deviation."""

GRAPH_BLOCK_UNITS_MIN = 40
"""Fewest units of a block where functions are fitted first."""

PERMUTATIONS_STREAM, BLOCKS_STREAM = 3, 4
"""Spawn keys under the study's seed of the permutations, of all units and of each block's."""

AGGREGATE_EPSILON_MAX = 1.0
"""Largest epsilon at which auto takes aggregation where no table can be, or a kernel is named."""

AUTO_UNITS = 1000
AUTO_NOISE = (1.5, 5.0)
"""How much variance, over n, auto lets the noise on a table of two cells a column have, of fewer units than
AUTO_UNITS and of so many or more: weak dependence of many is what tables see, strong dependence of few what
blocks do (docs/benchmarks/quantile-tables.md). Of variables of several columns, whose dependence is spread
over many contrasts, it counts times the square of the columns a variable."""

KERNEL_BY_DEFAULT = ("gaussian", None, 0.0)
"""Kernel, bandwidth and category_similarity where a study names none."""

TABLE_RELEASED = (
    "private quantiles of every numeric column, and noisy counts of the units in the cells between them and "
    "of the categories, crossed"
)
"""What leaves by method table, in words."""

GRAPH_CAVEAT = (
    "the level is not kept exactly: residuals are of fitted functions, which are never quite the true ones"
)
"""What verdicts on a graph say."""

Bandwidth = Annotated[float, Field(ge=BANDWIDTH_SMALLEST, le=BANDWIDTH_MAX)]
Group = Annotated[tuple[ColumnName, ...], Field(min_length=1)]


class JointIndependenceParameters(MaskedParameters):
    """What a study of this procedure may choose; every choice is public."""

    method: Literal["auto", "permutation", "aggregate", "table"] = Field(
        "auto",
        description=(
            "Whichever the study's public numbers favour of these: one private decision on all units; the "
            "noisy number of blocks of units that reject, with a p-value; a noisy table of cells between "
            "private quantiles, with a p-value and estimates."
        ),
    )
    categories: Annotated[int, Field(ge=2, le=QUANTILE_CELLS_MAX)] | None = Field(
        None,
        description=(
            "Cells of every numeric column, of method table; by default 2 to 4, by the number of units (of "
            "several owners, as the study declares them)."
        ),
    )
    blocks: Annotated[int, Field(ge=1, le=BLOCKS_MAX)] | None = Field(
        None, description="Blocks of each owner's units, of method aggregate; by default 5 + 12/epsilon."
    )
    graph: dict[ColumnName, Annotated[tuple[ColumnName, ...], Field(min_length=1)]] | None = Field(
        None,
        description=(
            "Each child's parents: residuals of children are tested in their place, by method aggregate."
        ),
    )
    groups: Annotated[tuple[Group, ...], Field(min_length=2, max_length=VARIABLES_MAX)] | None = Field(
        None,
        description=(
            "The variables, as lists of columns; every column of the study in one of them. "
            "By default every column by itself."
        ),
    )
    kernel: Literal["gaussian", "laplacian", "distance", "linear"] = Field(
        "gaussian",
        description=(
            "Kernel of numeric columns; distance gives a test of distance covariance, linear one of "
            "covariances, as of genotype counts."
        ),
    )
    bandwidth: (
        Bandwidth | Annotated[tuple[Bandwidth, ...], Field(min_length=1, max_length=BANDWIDTHS_MAX)] | None
    ) = Field(
        None, description="In units of the scaled columns; a list averages kernels of several bandwidths."
    )
    category_similarity: Annotated[float, Field(ge=0, lt=1)] = Field(
        0.0, description="Kernel value of two rows that differ in one category."
    )
    permutations: Annotated[int, Field(ge=PERMUTATIONS_MIN, le=PERMUTATIONS_MAX)] = Field(
        PERMUTATIONS_DEFAULT,
        description=(
            "Permutations of method permutation, or simulations of method table, at least 1/level - 1; they "
            "cost no privacy."
        ),
    )


class JointIndependenceDecision(DecisionResult):
    """Whether the variables were found dependent. Nothing finer is private, so nothing finer is here."""

    if_rejected: ClassVar[str] = "the columns are not jointly independent"
    if_not_rejected: ClassVar[str] = "no dependence of the columns shown"

    variables: tuple[tuple[str, ...], ...] = ()
    """Columns that count as one stand together."""

    def _of(self) -> Sequence[str]:
        words = (names[0] if len(names) == 1 else f"({', '.join(names)})" for names in self.variables)
        return (f"  of {', '.join(words)}",) if self.variables else ()


class JointIndependenceResult(PvalueVerdict):
    """Whether the variables were found dependent, from noisy numbers of blocks of units that reject.

    Attributes:
        statistic: the owners' noisy numbers of rejecting blocks, added up.
        pvalue: probability under the null hypothesis of a sum at least as large, exactly.
        variables: the variables; columns that count as one stand together.
        blocks: how many blocks were tested, all owners together.
        expected: rejecting blocks to be expected under the null hypothesis.
        deviation: standard deviation of the statistic under the null hypothesis, noise and all.
    """

    listed: ClassVar[tuple[str, ...]] = ("statistic", "pvalue", "blocks", "expected", "deviation")
    if_rejected: ClassVar[str] = "the columns are not jointly independent"

    variables: tuple[tuple[str, ...], ...]
    blocks: int
    expected: Annotated[float, Shown("rejecting blocks expected under the null hypothesis", "test")]
    deviation: Annotated[float, Shown("their standard deviation", "test")]

    def __str__(self) -> str:
        return self._told(self._decided("dependent" if self.reject else "no dependence shown"))

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        found = self.if_rejected if self.reject else "no dependence shown"
        return (
            self._finding(found),
            f"  {self.statistic:.4g} of {self.blocks} blocks reject, noise included; {self.expected:.4g} are "
            f"expected, with standard deviation {self.deviation:.3g}",
            f"  {self.method}",
        )


@dataclass(frozen=True)
class PermutedStatistics:
    """Exact statistics, (permutations + 1,) with the observed one first. They never leave the holder."""

    units: int
    units_by_owner: Mapping[str, int]
    values: npt.NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True)
class RejectingBlocks:
    """The exact number of blocks that reject. It never leaves the holder."""

    units: int
    units_by_owner: Mapping[str, int]
    blocks: int
    rejecting: int = field(repr=False)


JointSummary = PermutedStatistics | RejectingBlocks | HeldUnits
"""What is computed exactly, by method."""


@dataclass(frozen=True)
class _JointPlan:
    """What a study fixes before any data."""

    parameters: JointIndependenceParameters
    variables: tuple[tuple[str, ...], ...]
    several_rows: bool
    aggregates: bool
    guarantee: Guarantee
    table: TablePlan | None = None
    """What method table fixes."""
    shared: SharedNoise | None = None
    """The noise that owners who mask share: ``guarantee`` is then one owner's own."""

    @property
    def units_min(self) -> int:
        """Fewest units that the test takes of a sender."""
        if self.table is not None:
            return UNITS_MIN
        if not self.aggregates:
            return 2
        return BLOCK_UNITS_MIN if self.parameters.graph is None else GRAPH_BLOCK_UNITS_MIN

    @property
    def units_max(self) -> int:
        """Most units that the test takes of a sender."""
        if self.table is not None:
            return UNITS_MAX
        permutations = BLOCK_PERMUTATIONS if self.aggregates else self.parameters.permutations
        return units_max(len(self.variables), permutations, self.several_rows)

    def blocks(self, units: int) -> int:
        """Return in how many blocks a sender's units are tested."""
        epsilon = epsilon_of_noise(self.guarantee)
        return REJECTIONS.blocks(units, epsilon, self.parameters.blocks, self.units_min)

    def law(self, units: Sequence[int]) -> VotesLaw:
        """Return the null law of the sum of senders' counts, of so many units each."""
        return REJECTIONS.law([self.blocks(count) for count in units], self.guarantee)


class JointIndependence(SumsOfVotes, Procedure):
    """See the module. Registered as ``joint_independence``."""

    name: ClassVar[str] = "joint_independence"
    title: ClassVar[str] = "Are these columns, or groups of columns, independent of each other?"
    families: ClassVar[frozenset[Family]] = frozenset(("pure", "approximate", "gaussian"))
    divided_for: ClassVar[frozenset[Family] | None] = frozenset(("pure", "approximate"))
    masked_numbers: ClassVar[str] = "numbers of rejecting blocks"
    decides: ClassVar[bool] = True
    Parameters: ClassVar[type[BaseModel]] = JointIndependenceParameters
    Verdict: ClassVar[type[BaseVerdict]] = JointIndependenceResult
    released: ClassVar[str] = "the decision of a permutation test of the d-variable Hilbert-Schmidt criterion"
    cited: ClassVar[tuple[Citation, ...]] = (JOINT, PERMUTATION)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "Do these columns depend on each other?",
        r"depend|relat|correlat|associat|link|connect|effect of|influence",
        "one",
        rank=9,
        pure=True,
        relates=True,
    )
    held_by: ClassVar[frozenset[Holder]] = frozenset({"agents", "curator"})
    population: ClassVar[type[SimulationModel] | None] = Dependence
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        {"method": "permutation"},
        *({"bandwidth": width} for width in (0.03, 0.1, 0.3, 1.0)),
        {"kernel": "distance"},
        {"method": "aggregate"},
    )
    pairwise: ClassVar[bool] = True

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        plan = _plan(study)
        if study.curator is None and len(study.owners) != 1 and not (plan.aggregates or plan.table):
            raise StudyError(
                "all columns must be in one place: name one owner, or a curator of several, or ask for "
                "method aggregate or table"
            )
        if plan.table is not None:
            require_work(plan.table.work * len(study.owners), plan.parameters.permutations)
        self.check_units(study, units_declared(study))

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where a sender has too few units, or too many to compare."""
        plan = _plan(study)
        for count in _by_sender(
            study, {owner.name: units.get(owner.name) for owner in study.owners}
        ).values():
            if count is not None:
                _check_units(plan, count)

    def verdict_type(self, study: Study) -> type[BaseVerdict]:
        """Return what a study's verdict is: a decision alone, or a test."""
        plan = _plan(study)
        if plan.table is not None:
            return CellsTableResult
        return JointIndependenceResult if plan.aggregates else JointIndependenceDecision

    def what_is_released(self, study: Study) -> str:
        """Name the decision, the count, or the table."""
        plan = _plan(study)
        if plan.table is not None:
            return TABLE_RELEASED
        if not plan.aggregates:
            return self.released
        return (
            "the number of blocks of units in which a permutation test of the d-variable Hilbert-Schmidt "
            "criterion rejects"
        )

    def cost(self, study: Study) -> Guarantee:
        """Return what every owner spends: the study's whole budget, on one decision; epsilon on a count.

        On a masked count, what holds whoever colludes.
        """
        return _plan(study).guarantee

    def shared_noise(self, study: Study) -> SharedNoise | None:
        """Return the noise of masked counts; None where every owner's is read by itself, in pure epsilon."""
        return _plan(study).shared

    def describe_request(self, study: Study) -> tuple[str, ...]:
        """Say of masked counts what is gained and hidden, and what it costs."""
        return self.asked_of_masks(study)

    def release_size(self, study: Study) -> int:
        """Return 1: one bit leaves, or one noisy count; of a table its counts and cuts."""
        plan = _plan(study)
        if plan.table is None:
            return 1
        known = [count for count in _by_sender(study, _declared(study)).values() if count is not None]
        return plan.table.numbers(max(known, default=UNITS_MAX))

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where no data whatever could be rejected with probability one half, and what averages do.

        With noise of scale c on all statistics and T at most M, the probability to reject is at most level *
        exp(M / c): raising the observed statistic by M changes the density of its noise by no more.
        """
        plan, found = _plan(study), row_warnings(study)
        variables = len(plan.variables)
        if plan.parameters.graph is not None:
            found = (*found, GRAPH_CAVEAT)
        if any(owner.name not in units for owner in study.owners):
            return found
        if plan.table is not None:
            senders = [count or 0 for count in _by_sender(study, units).values()]
            return table_warnings(plan.table, study, senders, plan.parameters.permutations)
        if plan.aggregates:
            return _aggregate_hopes(plan, study, units) + found
        total = sum(units.values())
        if total < 2:
            return (f"{HOPELESS}a test needs at least two units", *found)
        scale = sum(_sensitivities(plan, study, total)) / decision_xi(study.budget)
        if math.log(2 * study.level) + statistic_max(variables) / scale >= 0:
            return found
        return (
            f"{HOPELESS}even complete dependence would be missed more often than not; ask for more units, "
            "a larger epsilon, or fewer variables",
            *found,
        )

    def summarise(
        self,
        study: Study,
        table: Table,
        progress: Progress | None = None,
        order: np.random.Generator | None = None,
    ) -> JointSummary:
        """Compute the statistics of the data and of its permutations, or test the blocks. None ever leaves.

        Of method table one row of every unit is read.

        Units are put in a secret random order first, so that it does not matter in which order a table yields
        them; ``order`` fixes it, for audits and simulations alone. Raises StudyError where the table has too
        many units to compare all pairs of them, or fewer than two.
        """
        plan = _plan(study)
        _check_units(plan, table.units)
        order = order or np.random.default_rng()
        if plan.table is not None:
            return plan.table.read(table, order)
        rows = gather_units(list(table.chunks()))
        rows = rows.reordered(order.permutation(rows.units))
        by_owner = table.units_by_owner if isinstance(table, PooledTable) else {}
        report = None if progress is None else lambda part: progress(part, "permuting")
        if plan.aggregates:
            blocks = plan.blocks(rows.units)
            rejecting = _rejecting_blocks(plan, study, rows, order, workers=workers_of(table), report=report)
            return RejectingBlocks(rows.units, by_owner, blocks, rejecting)
        values = permuted_statistics(
            [_gram(plan, study, names, rows) for names in plan.variables],
            plan.parameters.permutations,
            public_seed(study, PERMUTATIONS_STREAM),
            workers=workers_of(table),
            progress=report,
        )
        return PermutedStatistics(rows.units, by_owner, values)

    def privatise(self, study: Study, summary: JointSummary, noise: NoiseSource) -> Release:
        """Decide with the noise that ``cost`` states, or add it to the number of blocks, or to a table."""
        plan = _plan(study)
        if isinstance(summary, HeldUnits):
            return _required(plan.table).release(summary, noise)
        if isinstance(summary, RejectingBlocks):
            try:
                count = REJECTIONS.release(summary.rejecting, summary.blocks, plan.guarantee, noise)
            except StatisticError as error:
                raise StudyError(str(error)) from None
            return Release(
                units=summary.units,
                units_by_owner=dict(summary.units_by_owner),
                guarantee=plan.guarantee,
                vectors={REJECTIONS.name: count},
            )
        observed, permuted = _sensitivities(plan, study, summary.units)
        reject = permutation_decision(
            summary.values, observed, study.level, study.budget, noise, permuted_sensitivity=permuted
        )
        return Release(
            units=summary.units,
            units_by_owner=dict(summary.units_by_owner),
            guarantee=plan.guarantee,
            decision=reject,
        )

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release is not one decision, count or table at the study's budget."""
        plan = _plan(study)
        if not same_guarantee(release.guarantee, plan.guarantee):
            raise ReleaseError("the release states another guarantee than the study")
        owners = {owner.name for owner in study.owners} if study.curator is not None else set()
        if set(release.units_by_owner) != owners:
            raise ReleaseError("the release must state the units of every owner whose data it used")
        if not plan.units_min <= release.units <= plan.units_max:
            raise ReleaseError("the release states a number of units that the test does not take")
        if plan.table is not None:
            plan.table.check_release(release)
            return
        if not plan.aggregates:
            if release.vectors or release.decision is None:
                raise ReleaseError("the release must hold a decision and nothing else")
            return
        if set(release.vectors) != {REJECTIONS.name} or release.decision is not None:
            raise ReleaseError("the release must hold a number of blocks and nothing else")
        if not REJECTIONS.fits(release.vectors[REJECTIONS.name], plan.blocks(release.units), plan.guarantee):
            raise ReleaseError("the number of blocks has not the grid and the noise that the study fixes")

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        variables = [" with ".join(group) for group in verdict.get("variables") or ()]
        of = f" {joined(variables, 6)}" if variables else " the columns"
        if study.parameters.get("graph"):
            return decision_sentence(
                study,
                verdict,
                f"The graph does not fit{of}: its roots and its children's noises depend on each other",
                f"Nothing was shown against the graph{of}: its noises may be independent",
            )
        return decision_sentence(
            study,
            verdict,
            f"The columns depend on each other:{of} are not jointly independent",
            f"No dependence of the columns was shown:{of} may be independent",
        )

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> BaseVerdict:
        """State the decision, or the p-value of the owners' counts added up: post-processing alone."""
        plan = _plan(study)
        if progress is not None and plan.table is None:
            progress(1.0, "reading the decision")
        sent = {sender.name: releases[sender.name] for sender in study.senders}
        units = {
            owner: count
            for sender, release in sent.items()
            for owner, count in (release.units_by_owner or {sender: release.units}).items()
        }
        shared = plan.shared
        caveats = () if shared is None else shared.caveats(self.masked_numbers, WITHIN_ALONE)
        common: dict[str, Any] = {
            **common_fields(study, units, None if shared is None else shared.own),
            "warnings": self.warnings(study, units) + caveats,
        }
        if plan.table is not None:
            for release in sent.values():
                self.check_release(study, release)
            found = table_fields(
                plan.table, study, sent, plan.parameters.permutations, self.warnings(study, units), progress
            )
            return self.verdict_type(study)(**common | found)
        return self.verdict_type(study)(
            method=_method(plan), **common, **{"variables": plan.variables} | _found(plan, study, sent)
        )

    def panels(self, study: Study, verdict: Fields, releases: Releases) -> Sequence[RowsPanel]:  # noqa: ARG002
        """Return rows of the estimates of a table."""
        return pair_panels(verdict.get("pairs", ()))

    def null(self, study: Study, verdict: Fields, releases: Releases) -> Null | None:
        """Return the law of a sum of noisy counts, or of a table's statistic; None of a decision."""
        plan = _plan(study)
        if plan.table is not None:
            return table_null(plan.table, study, releases, plan.parameters.permutations)
        if not plan.aggregates:
            return None
        law = plan.law([count or 0 for count in _by_sender(study, verdict["units"]).values()])
        words = "a binomial number of rejecting blocks, with the noise"
        return drawn_law(law, study.level, float(verdict["statistic"]), words)


def _found(plan: _JointPlan, study: Study, sent: Mapping[str, Release]) -> dict[str, Any]:
    """Return what the releases tell, by field of the verdict."""
    if not plan.aggregates:
        (release,) = sent.values()
        if release.decision is None:
            raise ReleaseError("the release must hold a decision and nothing else")
        return {"reject": release.decision}
    law = plan.law([release.units for release in sent.values()])
    statistic = sum_of_votes(sent, REJECTIONS, plan.shared)
    pvalue = law.tail(statistic)
    return {
        "statistic": statistic,
        "pvalue": pvalue,
        "reject": pvalue <= study.level,
        "blocks": law.blocks,
        "expected": law.mean,
        "deviation": law.deviation,
    }


def _by_sender(study: Study, units: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return how many units each sender tests; None where not all are known."""
    if study.curator is None:
        return {owner.name: units[owner.name] for owner in study.owners}
    counts = [units[owner.name] for owner in study.owners]
    known = [count for count in counts if count is not None]
    return {study.curator.name: sum(known) if len(known) == len(counts) else None}


@planned_once
def _plan(study: Study) -> _JointPlan:
    asked = parse_parameters(JointIndependenceParameters, study)
    names = [column.name for column in study.domain.columns]
    groups = asked.groups if asked.groups is not None else tuple((name,) for name in names)
    if not 2 <= len(groups) <= VARIABLES_MAX:
        raise StudyError(f"the test takes 2 to {VARIABLES_MAX} variables; put columns together in groups")
    grouped = [name for group in groups for name in group]
    if len(set(grouped)) != len(grouped):
        raise StudyError("parameter groups: a column may be in one group only")
    if set(grouped) != set(names):
        raise StudyError("parameter groups: the groups together must name the study's columns, all of them")
    parameters = _chosen(asked, study, groups) if asked.method == "auto" else asked
    aggregates = parameters.method == "aggregate"
    if parameters.method == "permutation" and rank_max(study.level, parameters.permutations + 1) < 1:
        raise StudyError("the level is below 1 / (permutations + 1): ask for more permutations")
    without_width = parameters.kernel in ("distance", "linear")
    if without_width and (parameters.bandwidth or parameters.category_similarity):
        raise StudyError(
            f"the {parameters.kernel} kernel has neither bandwidth nor category_similarity; leave them out"
        )
    if not aggregates and (parameters.blocks or parameters.graph):
        raise StudyError("parameters blocks and graph are of method aggregate; leave them out")
    if parameters.graph is not None:
        _check_graph(parameters, study)
    if not aggregates and (parameters.aggregation == "masked" or parameters.colluders is not None):
        raise StudyError(
            'parameters aggregation and colluders are of method "aggregate": ask for it, or leave them out'
        )
    if parameters.method == "table":
        table = _table_plan(parameters, study, groups)
        return _JointPlan(parameters, groups, study.averages_rows, False, table.guarantee, table)
    if parameters.categories is not None:
        raise StudyError("parameter categories is of method table; leave it out")
    if (shared := shared_in_votes(study, parameters, REJECTIONS)) is not None:
        return _JointPlan(parameters, groups, study.averages_rows, aggregates, shared.own, shared=shared)
    guarantee = laplace_sum_guarantee(study.budget) if aggregates else decision_guarantee(study.budget)
    return _JointPlan(parameters, groups, study.averages_rows, aggregates, guarantee)


def _chosen(
    asked: JointIndependenceParameters, study: Study, groups: tuple[tuple[str, ...], ...]
) -> JointIndependenceParameters:
    """Return what auto stands for: a function of the study alone, units as far as it declares them.

    A table where its noise is not above AUTO_NOISE, otherwise blocks, tested with distances. Whoever asks for
    a graph, blocks or masks asks for blocks, and for cells for a table. Whoever names a
    kernel asks for one: blocks where several owners have no curator, or of three variables and more at small
    epsilon, else permutations.
    """
    several = study.curator is None and len(study.owners) > 1
    blocks = asked.model_copy(update={"method": "aggregate"})
    masks = asked.aggregation == "masked" or asked.colluders is not None
    if asked.graph is not None or asked.blocks is not None or masks:
        return blocks
    if (asked.kernel, asked.bandwidth, asked.category_similarity) != KERNEL_BY_DEFAULT:
        small = len(groups) >= 3 and study.budget.epsilon <= AGGREGATE_EPSILON_MAX
        return blocks if several or small else asked.model_copy(update={"method": "permutation"})
    table = asked.model_copy(update={"method": "table"})
    try:
        plan = _table_plan(table, study, groups)
    except StudyError:
        plan = None
    if plan is not None:
        declared = [count for count in _by_sender(study, _declared(study)).values() if count is not None]
        if len(declared) < len(study.senders):
            return table
        units = sum(declared) / len(declared)
        cells = math.prod(replace(plan, categories=2).shape(0))
        share = plan.noise.variance * cells / units if units else math.inf
        share *= (len(plan.names) / len(groups)) ** 2
        if share <= AUTO_NOISE[units >= AUTO_UNITS] or asked.categories is not None:
            return table
    elif not several and study.budget.epsilon > AGGREGATE_EPSILON_MAX:
        return asked.model_copy(update={"method": "permutation"})
    return blocks.model_copy(update={"kernel": "distance"})


def _table_plan(
    parameters: JointIndependenceParameters, study: Study, groups: tuple[tuple[str, ...], ...]
) -> TablePlan:
    """Return what a table fixes; raises StudyError where the study's columns make none."""
    if (parameters.kernel, parameters.bandwidth, parameters.category_similarity) != KERNEL_BY_DEFAULT:
        raise StudyError(
            "method table has no kernel: leave kernel, bandwidth and category_similarity out, or ask for "
            "method permutation or aggregate"
        )
    units = None
    if study.curator is None and len(study.owners) > 1:
        declared = [owner.units for owner in study.owners if owner.units is not None]
        whole = len(declared) == len(study.owners)
        units = sum(declared) // len(declared) if whole else UNITS_MIN
    plan = TablePlan(study.domain, groups, study.budget, parameters.categories, units)
    plan.check()
    return plan


def as_joint_study(study: Study, parameters: Mapping[str, Any], domain: Domain | None = None) -> Study:
    """Return the study of joint independence whose blocks or table another procedure's study asks for.

    Parameters that are None are left out; ``domain`` is the study's own by default.
    """
    given = {name: value for name, value in parameters.items() if value is not None}
    own = {"procedure": JointIndependence.name, "parameters": given, "domain": domain or study.domain}
    return study.model_copy(update=own)


def _required(table: TablePlan | None) -> TablePlan:
    if table is None:
        raise TypeError("the summary is of another method than the study's")
    return table


def _declared(study: Study) -> dict[str, int | None]:
    return {owner.name: owner.units for owner in study.owners}


def _check_graph(parameters: JointIndependenceParameters, study: Study) -> None:
    if parameters.groups is not None and any(len(group) > 1 for group in parameters.groups):
        raise StudyError("parameter graph: every column is a variable by itself; leave groups out")
    if study.averages_rows:
        raise StudyError("parameter graph: functions are fitted to rows; ask for one row a unit")
    try:
        require_graph(parameters.graph or {}, *_names(study))
    except GraphError as error:
        raise StudyError(str(error)) from None


def _names(study: Study) -> tuple[list[str], list[str]]:
    """Return the names of the numeric columns and of the categorical ones."""
    domain = study.domain
    return [column.name for column in domain.numeric], [column.name for column in domain.categorical]


def _sensitivities(plan: _JointPlan, study: Study, units: int) -> tuple[float, float]:
    """Return what one unit moves the computed observed statistic by, and the computed permuted ones."""
    variables = len(plan.variables)
    numeric = {column.name for column in study.domain.numeric}
    counts = [len(numeric.intersection(names)) for names in plan.variables]
    kernel_error = max(_kernel(plan.parameters, count).error(count) for count in counts)
    error = 2 * evaluation_error(units, variables, kernel_error)
    return (
        observed_sensitivity(units, variables) + error,
        permuted_sensitivity(units, variables) + error,
    )


def _rejecting_blocks(
    plan: _JointPlan,
    study: Study,
    rows: UnitRows,
    order: np.random.Generator,
    *,
    workers: Workers,
    report: Callable[[float], None] | None,
) -> int:
    """Return how many blocks of units in random order reject; nothing of a block may be asked of another."""
    blocks, rejecting = plan.blocks(rows.units), 0
    lots = order.random(blocks)
    for block, place in enumerate(block_places(rows.units, blocks)):
        tested = rows.reordered(np.arange(rows.units)[place])
        seed = np.random.SeedSequence(int(study.seed, 16), spawn_key=(BLOCKS_STREAM, block))
        if plan.parameters.graph is None:
            grams = _block_grams(plan, study, tested)
            squares = squared_statistics(grams, BLOCK_PERMUTATIONS, seed, workers)
        else:
            categories = [column.categories for column in study.domain.categorical]
            model = AdditiveNoise.of(plan.parameters.graph, *_names(study), categories)
            made = model.replicates(tested, BLOCK_PERMUTATIONS, np.random.default_rng(seed))
            read = [model.residuals(tested), *made]
            squares = np.array([squared_statistic(_block_grams(plan, study, each)) for each in read])
        rejecting += REJECTIONS.of(squares, lots[block])
        if report is not None:
            report((block + 1) / blocks)
    return rejecting


def _block_grams(plan: _JointPlan, study: Study, rows: UnitRows) -> list[UnitGram]:
    if plan.parameters.bandwidth is not None or plan.parameters.kernel in ("distance", "linear"):
        return [_gram(plan, study, names, rows) for names in plan.variables]
    scaled = _scaled(rows)
    return [_gram(plan, study, names, scaled, BLOCK_BANDWIDTH_PER_COLUMN) for names in plan.variables]


def _scaled(rows: UnitRows) -> UnitRows:
    """Return a block's rows with every numeric column scaled by its own mean and standard deviation.

    Inside a block the data may choose the scale: it is the same for every permutation, and costs nothing.
    """
    spread = rows.numeric.std(axis=0)
    scaled = (rows.numeric - rows.numeric.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    clipped = np.clip(scaled, -EXTREME, EXTREME) / (2 * EXTREME) + 0.5
    return UnitRows(clipped, rows.categorical, rows.starts)


def _aggregate_hopes(plan: _JointPlan, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
    """Say where, though every block rejected, the study would miss it more often than not."""
    senders = {name: count or 0 for name, count in _by_sender(study, units).items()}
    few = [name for name, count in senders.items() if count < plan.units_min]
    if few:
        return (f"{HOPELESS}a block needs at least {plan.units_min} units: {', '.join(few)} has fewer",)
    law = plan.law(list(senders.values()))
    # The noise is symmetric: with every block rejecting, the sum is above their number half of the time.
    if law.tail(law.blocks) > study.level:
        return (
            f"{HOPELESS}even if every block rejected, it would be missed more often than not; ask for more "
            "units or a larger epsilon",
        )
    return ()


def _check_units(plan: _JointPlan, units: int) -> None:
    if units < 2:
        raise PublicRuleError("too-few-units", "the test needs at least two units")
    if units < plan.units_min:
        raise PublicRuleError(
            "too-few-units", f"the test needs at least {plan.units_min} units of each owner"
        )
    if units > plan.units_max:
        advice = "or one row a unit" if plan.several_rows else "fewer variables or fewer permutations"
        raise PublicRuleError(
            "too-many-units",
            f"too many units: all pairs of them are compared, {plan.units_max} units at most; use a subset, "
            f"{advice}",
        )


def _gram(
    plan: _JointPlan,
    study: Study,
    names: tuple[str, ...],
    rows: UnitRows,
    bandwidth_per_column: float = BANDWIDTH_PER_COLUMN,
) -> UnitGram:
    """Return the kernel matrix of one variable."""
    domain = study.domain
    numeric = [i for i, column in enumerate(domain.numeric) if column.name in names]
    categorical = [i for i, column in enumerate(domain.categorical) if column.name in names]
    kernel = _kernel(plan.parameters, len(numeric), bandwidth_per_column)
    features = features_of(kernel, len(numeric), [domain.categorical[i].categories for i in categorical])
    own = rows.columns(numeric, categorical)
    return UnitGram(kernel, own, features, several_rows=plan.several_rows)


def _kernel(
    parameters: JointIndependenceParameters,
    numeric_columns: int,
    bandwidth_per_column: float = BANDWIDTH_PER_COLUMN,
) -> EvaluatedKernel:
    if parameters.kernel == "distance":
        return DistanceKernel()
    if parameters.kernel == "linear":
        return LinearKernel()
    bandwidth = parameters.bandwidth
    if bandwidth is None:
        bandwidth = bandwidth_per_column * math.sqrt(max(1, numeric_columns))
    bandwidths = bandwidth if isinstance(bandwidth, tuple) else (bandwidth,)
    shape = parameters.kernel
    kernels = tuple(ProductKernel(shape, value, parameters.category_similarity) for value in bandwidths)
    return KernelMixture(kernels, (1 / len(kernels),) * len(kernels))


def _method(plan: _JointPlan) -> str:
    kernel = plan.parameters.kernel
    if not plan.aggregates:
        permutations = plan.parameters.permutations
        return (
            f"joint independence test: dHSIC, {kernel} kernel, {permutations} permutations, private decision"
        )
    of = "" if plan.parameters.graph is None else " of a graph's residuals"
    return (
        f"joint independence test{of} by aggregation: dHSIC, {kernel} kernel, blocks tested at level "
        f"{BLOCK_LEVEL:g}, noisy count"
    )
