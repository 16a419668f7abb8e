"""The plans of joint independence: a decision on permutations, blocks that vote, and a table of cells."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.domain import ColumnName, PooledTable, Table, Workers, workers_of
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
from tacit_protocol.privacy.gaussian_mechanism import same_guarantee
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
    VotePlan,
    Votes,
    drawn_law,
    sum_of_votes,
)
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Progress,
    PublicRuleError,
    ReleaseError,
    Releases,
    StudyError,
    common_fields,
    parse_parameters,
    public_seed,
    row_warnings,
    step,
)
from tacit_protocol.procedures.joint_independence.verdict import (
    JointIndependenceDecision,
    JointIndependenceResult,
)
from tacit_protocol.procedures.masking import MaskedParameters
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
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.procedures.quantile_tables.release import UNITS_MIN, HeldUnits, TablePlan
from tacit_protocol.procedures.quantile_tables.verdict import (
    CellsTableResult,
    pair_panels,
    table_fields,
    table_null,
    table_warnings,
)
from tacit_protocol.verdicts.base import BaseVerdict
from tacit_protocol.verdicts.presentation import (
    Meaning,
    Null,
    RowsPanel,
    decision_sentence,
    joined,
)

__all__ = ["BANDWIDTH_PER_COLUMN", "PERMUTATIONS_MIN", "JointIndependenceParameters", "joint_plan"]

Floats = npt.NDArray[np.float64]

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


@dataclass(frozen=True)
class PermutedStatistics:
    """Exact statistics, (permutations + 1,) with the observed one first. They never leave the holder."""

    units: int
    units_by_owner: Mapping[str, int]
    values: npt.NDArray[np.float64] = field(repr=False)


JointSummary = PermutedStatistics | Votes | HeldUnits
"""What is computed exactly, by method."""


class JointPlan(Plan):
    """Variables of units that a sender holds all of: what every method has in common."""

    units_min: int
    """Fewest units that the test takes of a sender."""
    units_max: int
    """Most units that the test takes of a sender."""

    def __init__(
        self, study: Study, parameters: JointIndependenceParameters, variables: tuple[tuple[str, ...], ...]
    ) -> None:
        self.study, self.parameters, self.variables = study, parameters, variables

    def summarise(
        self, table: Table, order: np.random.Generator | None = None, progress: Progress | None = None
    ) -> JointSummary:
        """Compute what the method privatises; ``progress`` is told how far it is."""
        raise NotImplementedError

    def found(self, sent: Releases, units: Mapping[str, int], progress: Progress | None) -> dict[str, Any]:
        """Return a verdict's fields that the releases tell, by sender; ``units`` are by owner."""
        raise NotImplementedError

    def limits(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say what limits the study with so many units, of all owners."""
        raise NotImplementedError

    @property
    def cautions(self) -> tuple[str, ...]:
        """What limits the study whatever the units."""
        return row_warnings(self.study)

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a verdict adds."""
        return ()

    def check_units(self, units: Mapping[str, int]) -> None:
        known = {owner.name: units.get(owner.name) for owner in self.study.owners}
        for count in _by_sender(self.study, known).values():
            if count is not None:
                self.check_count(count)

    def check_count(self, units: int) -> None:
        """Raise PublicRuleError where a sender has too few units, or too many to compare."""
        if units < 2:
            raise PublicRuleError("too-few-units", "the test needs at least two units")
        if units < self.units_min:
            raise PublicRuleError(
                "too-few-units", f"the test needs at least {self.units_min} units of each owner"
            )
        if units > self.units_max:
            rows = self.study.averages_rows
            advice = "or one row a unit" if rows else "fewer variables or fewer permutations"
            raise PublicRuleError(
                "too-many-units",
                f"too many units: all pairs of them are compared, {self.units_max} units at most; use a "
                f"subset, {advice}",
            )

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        if any(owner.name not in units for owner in self.study.owners):
            return self.cautions
        return self.limits(units)

    def check_sender(self, release: Release) -> None:
        """Raise ReleaseError where a release states units of others, or as many as the test does not take."""
        study = self.study
        owners = {owner.name for owner in study.owners} if study.curator is not None else set()
        if set(release.units_by_owner) != owners:
            raise ReleaseError("the release must state the units of every owner whose data it used")
        if not self.units_min <= release.units <= self.units_max:
            raise ReleaseError("the release states a number of units that the test does not take")

    def check_stated(self, release: Release) -> None:
        """Raise ReleaseError where a release states another guarantee or other units than the study."""
        if not same_guarantee(release.guarantee, self.guarantee):
            raise ReleaseError("the release states another guarantee than the study")
        self.check_sender(release)

    def conclude(
        self, releases: Releases, units: Mapping[str, int], progress: Progress | None = None
    ) -> BaseVerdict:
        study, shared = self.study, self.shared
        sent = {sender.name: releases[sender.name] for sender in study.senders}
        units = {
            owner: count
            for sender, release in sent.items()
            for owner, count in (release.units_by_owner or {sender: release.units}).items()
        }
        common: dict[str, Any] = {
            **common_fields(study, units, None if shared is None else shared.own),
            "warnings": self.warnings(units) + self.caveats,
            "variables": self.variables,
        }
        return (self.verdict_type or JointIndependenceResult)(**common | self.found(sent, units, progress))

    def meaning(self, verdict: Fields) -> Meaning:
        of = _of_variables(verdict)
        return decision_sentence(
            self.study,
            verdict,
            f"The columns depend on each other:{of} are not jointly independent",
            f"No dependence of the columns was shown:{of} may be independent",
        )

    def panels(self, verdict: Fields, releases: Releases) -> Sequence[RowsPanel]:  # noqa: ARG002
        return pair_panels(verdict.get("pairs", ()))


class KernelPlan(JointPlan):
    """A permutation test of the d-variable Hilbert-Schmidt criterion, of all units or of blocks."""

    def gathered(self, table: Table, order: np.random.Generator) -> tuple[UnitRows, Mapping[str, int]]:
        """Return all units in a secret random order, whatever the table's, and a curator's by owner."""
        self.check_count(table.units)
        rows = gather_units(list(table.chunks()))
        by_owner = table.units_by_owner if isinstance(table, PooledTable) else {}
        return rows.reordered(order.permutation(rows.units)), by_owner

    def gram(
        self, names: tuple[str, ...], rows: UnitRows, bandwidth_per_column: float = BANDWIDTH_PER_COLUMN
    ) -> UnitGram:
        """Return the kernel matrix of one variable."""
        domain = self.study.domain
        numeric = [i for i, column in enumerate(domain.numeric) if column.name in names]
        categorical = [i for i, column in enumerate(domain.categorical) if column.name in names]
        kernel = _kernel(self.parameters, len(numeric), bandwidth_per_column)
        features = features_of(kernel, len(numeric), [domain.categorical[i].categories for i in categorical])
        own = rows.columns(numeric, categorical)
        return UnitGram(kernel, own, features, several_rows=self.study.averages_rows)


class PermutedDecision(KernelPlan):
    """One bit: whether the data's statistic is among the largest of permuted data's, with noise on all."""

    verdict_type = JointIndependenceDecision
    release_size = 1
    units_min = 2

    def __init__(
        self, study: Study, parameters: JointIndependenceParameters, variables: tuple[tuple[str, ...], ...]
    ) -> None:
        super().__init__(study, parameters, variables)
        self.guarantee = decision_guarantee(study.budget)
        self.units_max = units_max(len(variables), parameters.permutations, study.averages_rows)

    def sensitivities(self, units: int) -> tuple[float, float]:
        """Return what one unit moves the computed observed statistic by, and the computed permuted ones."""
        variables = len(self.variables)
        numeric = {column.name for column in self.study.domain.numeric}
        counts = [len(numeric.intersection(names)) for names in self.variables]
        kernel_error = max(_kernel(self.parameters, count).error(count) for count in counts)
        error = 2 * evaluation_error(units, variables, kernel_error)
        return (
            observed_sensitivity(units, variables) + error,
            permuted_sensitivity(units, variables) + error,
        )

    def limits(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where no data whatever could be rejected with probability one half.

        With noise of scale c on all statistics and T at most M, the probability to reject is at most level *
        exp(M / c): raising the observed statistic by M changes the density of its noise by no more.
        """
        total, level = sum(units.values()), self.study.level
        if total < 2:
            return (f"{HOPELESS}a test needs at least two units", *self.cautions)
        scale = sum(self.sensitivities(total)) / decision_xi(self.study.budget)
        if math.log(2 * level) + statistic_max(len(self.variables)) / scale >= 0:
            return self.cautions
        return (
            f"{HOPELESS}even complete dependence would be missed more often than not; ask for more units, "
            "a larger epsilon, or fewer variables",
            *self.cautions,
        )

    def summarise(
        self, table: Table, order: np.random.Generator | None = None, progress: Progress | None = None
    ) -> PermutedStatistics:
        rows, by_owner = self.gathered(table, order or np.random.default_rng())
        values = permuted_statistics(
            [self.gram(names, rows) for names in self.variables],
            self.parameters.permutations,
            public_seed(self.study, PERMUTATIONS_STREAM),
            workers=workers_of(table),
            progress=None if progress is None else step(progress, "permuting"),
        )
        return PermutedStatistics(rows.units, by_owner, values)

    def privatise(self, summary: PermutedStatistics, noise: NoiseSource) -> Release:
        observed, permuted = self.sensitivities(summary.units)
        level, budget = self.study.level, self.study.budget
        reject = permutation_decision(
            summary.values, observed, level, budget, noise, permuted_sensitivity=permuted
        )
        return Release(
            units=summary.units,
            units_by_owner=dict(summary.units_by_owner),
            guarantee=self.guarantee,
            decision=reject,
        )

    def check_release(self, release: Release) -> None:
        self.check_stated(release)
        if release.vectors or release.decision is None:
            raise ReleaseError("the release must hold a decision and nothing else")

    def found(self, sent: Releases, units: Mapping[str, int], progress: Progress | None) -> dict[str, Any]:  # noqa: ARG002
        if progress is not None:
            progress(1.0, "reading the decision")
        (release,) = sent.values()
        if release.decision is None:
            raise ReleaseError("the release must hold a decision and nothing else")
        kernel, permutations = self.parameters.kernel, self.parameters.permutations
        method = f"dHSIC, {kernel} kernel, {permutations} permutations, private decision"
        return {"method": f"joint independence test: {method}", "reject": release.decision}


class BlocksTested(KernelPlan, VotePlan):
    """The noisy number of blocks of units that reject."""

    masked_numbers = "numbers of rejecting blocks"
    number = "number of blocks"
    of: ClassVar[str] = ""
    """What is tested in the place of columns, in words."""

    def __init__(
        self,
        study: Study,
        parameters: JointIndependenceParameters,
        variables: tuple[tuple[str, ...], ...],
        block_units_min: int = BLOCK_UNITS_MIN,
    ) -> None:
        VotePlan.__init__(self, study, parameters, REJECTIONS, parameters.blocks, block_units_min)
        self.parameters, self.variables = parameters, variables
        self.units_max = units_max(len(variables), BLOCK_PERMUTATIONS, study.averages_rows)

    @property
    def released(self) -> str:
        return (
            "the number of blocks of units in which a permutation test of the d-variable Hilbert-Schmidt "
            "criterion rejects"
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        return self.masks_caveats

    def limits(self, units: Mapping[str, int]) -> tuple[str, ...]:
        senders = {name: count or 0 for name, count in _by_sender(self.study, units).items()}
        return self.hopes(senders) + self.cautions

    def summarise(
        self, table: Table, order: np.random.Generator | None = None, progress: Progress | None = None
    ) -> Votes:
        order = order or np.random.default_rng()
        rows, by_owner = self.gathered(table, order)
        workers = workers_of(table)

        def squares(block: UnitRows, number: int) -> Floats:
            return self.squares(block, public_seed(self.study, BLOCKS_STREAM, number), workers)

        votes = self.voted(rows, order, squares, step(progress, "permuting"))
        return Votes(rows.units, votes, by_owner)

    def squares(self, rows: UnitRows, seed: np.random.SeedSequence, workers: Workers) -> Floats:
        """Return a block's squared statistics, (B + 1,), the observed one first."""
        return squared_statistics(self.grams(rows), BLOCK_PERMUTATIONS, seed, workers)

    def grams(self, rows: UnitRows) -> list[UnitGram]:
        """Return the kernel matrices of a block's variables."""
        if self.parameters.bandwidth is not None or self.parameters.kernel in ("distance", "linear"):
            return [self.gram(names, rows) for names in self.variables]
        scaled = _scaled(rows)
        return [self.gram(names, scaled, BLOCK_BANDWIDTH_PER_COLUMN) for names in self.variables]

    def found(self, sent: Releases, units: Mapping[str, int], progress: Progress | None) -> dict[str, Any]:  # noqa: ARG002
        if progress is not None:
            progress(1.0, "reading the decision")
        law = self.law([release.units for release in sent.values()])
        statistic = sum_of_votes(sent, self.vote, self.shared)
        pvalue = law.tail(statistic)
        return {
            "method": f"joint independence test{self.of} by aggregation: dHSIC, {self.parameters.kernel} "
            f"kernel, blocks tested at level {BLOCK_LEVEL:g}, noisy count",
            "statistic": statistic,
            "pvalue": pvalue,
            "reject": pvalue <= self.study.level,
            "blocks": law.blocks,
            "expected": law.mean,
            "deviation": law.deviation,
        }

    def null(self, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        law = self.law([count or 0 for count in _by_sender(self.study, verdict["units"]).values()])
        words = "a binomial number of rejecting blocks, with the noise"
        return drawn_law(law, self.study.level, float(verdict["statistic"]), words)


class GraphTested(BlocksTested):
    """The same of the residuals of a causal graph, in the place of its children."""

    of = " of a graph's residuals"

    def __init__(
        self,
        study: Study,
        parameters: JointIndependenceParameters,
        variables: tuple[tuple[str, ...], ...],
        graph: Mapping[str, tuple[str, ...]],
    ) -> None:
        super().__init__(study, parameters, variables, GRAPH_BLOCK_UNITS_MIN)
        self.graph = graph

    @property
    def cautions(self) -> tuple[str, ...]:
        return (*super().cautions, GRAPH_CAVEAT)

    def squares(self, rows: UnitRows, seed: np.random.SeedSequence, workers: Workers) -> Floats:  # noqa: ARG002
        categories = [column.categories for column in self.study.domain.categorical]
        model = AdditiveNoise.of(self.graph, *_names(self.study), categories)
        made = model.replicates(rows, BLOCK_PERMUTATIONS, np.random.default_rng(seed))
        read = [model.residuals(rows), *made]
        return np.array([squared_statistic(self.grams(each)) for each in read])

    def meaning(self, verdict: Fields) -> Meaning:
        of = _of_variables(verdict)
        return decision_sentence(
            self.study,
            verdict,
            f"The graph does not fit{of}: its roots and its children's noises depend on each other",
            f"Nothing was shown against the graph{of}: its noises may be independent",
        )


class TableTested(JointPlan):
    """One noisy table of the columns' cells, between private quantiles; several owners are strata."""

    verdict_type = CellsTableResult
    released = TABLE_RELEASED
    units_min, units_max = UNITS_MIN, UNITS_MAX

    def __init__(
        self,
        study: Study,
        parameters: JointIndependenceParameters,
        variables: tuple[tuple[str, ...], ...],
        table: TablePlan,
    ) -> None:
        super().__init__(study, parameters, variables)
        self.table, self.guarantee = table, table.guarantee
        known = [count for count in _by_sender(study, _declared(study)).values() if count is not None]
        self.release_size = table.numbers(max(known, default=UNITS_MAX))

    def limits(self, units: Mapping[str, int]) -> tuple[str, ...]:
        senders = [count or 0 for count in _by_sender(self.study, units).values()]
        return table_warnings(self.table, self.study, senders, self.parameters.permutations)

    def summarise(
        self,
        table: Table,
        order: np.random.Generator | None = None,
        progress: Progress | None = None,  # noqa: ARG002
    ) -> HeldUnits:
        self.check_count(table.units)
        return self.table.read(table, order or np.random.default_rng())

    def privatise(self, summary: HeldUnits, noise: NoiseSource) -> Release:
        return self.table.release(summary, noise)

    def check_release(self, release: Release) -> None:
        self.check_stated(release)
        self.table.check_release(release)

    def found(self, sent: Releases, units: Mapping[str, int], progress: Progress | None) -> dict[str, Any]:
        for release in sent.values():
            self.check_release(release)
        replicates, warnings = self.parameters.permutations, self.warnings(units)
        return table_fields(self.table, self.study, sent, replicates, warnings, progress)

    def null(self, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        return table_null(self.table, self.study, releases, self.parameters.permutations)


def _of_variables(verdict: Fields) -> str:
    variables = [" with ".join(group) for group in verdict.get("variables") or ()]
    return f" {joined(variables, 6)}" if variables else " the columns"


def _by_sender(study: Study, units: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return how many units each sender tests; None where not all are known."""
    if study.curator is None:
        return {owner.name: units[owner.name] for owner in study.owners}
    counts = [units[owner.name] for owner in study.owners]
    known = [count for count in counts if count is not None]
    return {study.curator.name: sum(known) if len(known) == len(counts) else None}


def joint_plan(study: Study) -> JointPlan:
    """Return the plan of a study, wherever its columns are; raises StudyError where it cannot be run."""
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
        return TableTested(study, parameters, groups, _table_plan(parameters, study, groups))
    if parameters.categories is not None:
        raise StudyError("parameter categories is of method table; leave it out")
    if not aggregates:
        return PermutedDecision(study, parameters, groups)
    if parameters.graph is not None:
        return GraphTested(study, parameters, groups, parameters.graph)
    return BlocksTested(study, parameters, groups)


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


def _scaled(rows: UnitRows) -> UnitRows:
    """Return a block's rows with every numeric column scaled by its own mean and standard deviation.

    Inside a block the data may choose the scale: it is the same for every permutation, and costs nothing.
    """
    spread = rows.numeric.std(axis=0)
    scaled = (rows.numeric - rows.numeric.mean(axis=0)) / np.where(spread > 0, spread, 1.0)
    clipped = np.clip(scaled, -EXTREME, EXTREME) / (2 * EXTREME) + 0.5
    return UnitRows(clipped, rows.categorical, rows.starts)


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
