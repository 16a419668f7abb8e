"""The plans of joint independence: a decision on permutations, blocks that vote, and a table of cells."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Annotated, Any, Literal

import numpy as np
import numpy.typing as npt
from pydantic import Field

from tacit_protocol.domain import ColumnName, Table, Workers, workers_of
from tacit_protocol.features.kernels import BANDWIDTH_MAX
from tacit_protocol.features.private_cells import QUANTILE_CELLS_MAX
from tacit_protocol.features.unit_gram import UnitRows
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.privacy.permutation_test import (
    decision_guarantee,
    decision_xi,
    permutation_decision,
    rank_max,
)
from tacit_protocol.procedures.aggregation import BLOCK_PERMUTATIONS, BLOCKS_MAX
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Progress,
    ReleaseError,
    Releases,
    StudyError,
    parse_parameters,
    public_seed,
    step,
)
from tacit_protocol.procedures.independence.plan import (
    DISTANCES,
    BlocksTested,
    JointPlan,
    KernelPlan,
    TableTested,
    UnitKernel,
    Variables,
    is_favoured,
    of_variables,
    require_all_columns,
    table_layout,
)
from tacit_protocol.procedures.independence.verdict import JointIndependenceDecision
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
    statistic_max,
    units_max,
)
from tacit_protocol.verdicts.presentation import Meaning, decision_sentence

__all__ = ["PERMUTATIONS_MIN", "JointIndependenceParameters", "PermutedStatistics", "joint_plan"]

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

GRAPH_BLOCK_UNITS_MIN = 40
"""Fewest units of a block where functions are fitted first."""

PERMUTATIONS_STREAM = 3
"""Spawn key under the study's seed of the permutations of all units."""

AGGREGATE_EPSILON_MAX = 1.0
"""Largest epsilon at which auto takes aggregation where no table can be, or a kernel is named."""

GRAPH_CAVEAT = (
    "the level is not kept exactly: residuals are of fitted functions, which are never quite the true ones"
)
"""What verdicts on a graph say."""

Bandwidth = Annotated[float, Field(ge=BANDWIDTH_SMALLEST, le=BANDWIDTH_MAX)]
Group = Annotated[tuple[ColumnName, ...], Field(min_length=1)]
Method = Literal["auto", "permutation", "aggregate", "table"]


class JointIndependenceParameters(MaskedParameters):
    """What a study of this procedure may choose; every choice is public."""

    method: Method = Field(
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


class PermutedDecision(KernelPlan):
    """One bit: whether the data's statistic is among the largest of permuted data's, with noise on all."""

    verdict_type = JointIndependenceDecision
    release_size = 1
    units_min = 2

    def __init__(self, study: Study, variables: Variables, kernel: UnitKernel, permutations: int) -> None:
        self.study, self.variables, self.kernel, self.permutations = study, variables, kernel, permutations
        self.guarantee = decision_guarantee(study.budget)
        self.units_max = units_max(len(variables), permutations, study.averages_rows)

    def sensitivities(self, units: int) -> tuple[float, float]:
        """Return what one unit moves the computed observed statistic by, and the computed permuted ones."""
        variables = len(self.variables)
        numeric = {column.name for column in self.study.domain.numeric}
        counts = [len(numeric.intersection(names)) for names in self.variables]
        kernel_error = max(self.kernel.of(count).error(count) for count in counts)
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
            self.permutations,
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
        method = f"dHSIC, {self.kernel.shape} kernel, {self.permutations} permutations, private decision"
        return {"method": f"joint independence test: {method}", "reject": release.decision}


class GraphTested(BlocksTested):
    """The same of the residuals of a causal graph, in the place of its children."""

    of = " of a graph's residuals"
    block_units_min = GRAPH_BLOCK_UNITS_MIN

    def __init__(
        self,
        study: Study,
        variables: Variables,
        kernel: UnitKernel,
        blocks: int | None,
        masked: MaskedParameters,
        *,
        graph: Mapping[str, tuple[str, ...]],
    ) -> None:
        if any(len(group) > 1 for group in variables):
            raise StudyError("parameter graph: every column is a variable by itself; leave groups out")
        if study.averages_rows:
            raise StudyError("parameter graph: functions are fitted to rows; ask for one row a unit")
        try:
            require_graph(graph, *_names(study))
        except GraphError as error:
            raise StudyError(str(error)) from None
        super().__init__(study, variables, kernel, blocks, masked)
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
        of = of_variables(verdict)
        return decision_sentence(
            self.study,
            verdict,
            f"The graph does not fit{of}: its roots and its children's noises depend on each other",
            f"Nothing was shown against the graph{of}: its noises may be independent",
        )


def joint_plan(study: Study) -> JointPlan:
    """Return the plan of a study, wherever its columns are; raises StudyError where it cannot be run."""
    asked = parse_parameters(JointIndependenceParameters, study)
    variables = asked.groups or tuple((column.name,) for column in study.domain.columns)
    if not 2 <= len(variables) <= VARIABLES_MAX:
        raise StudyError(f"the test takes 2 to {VARIABLES_MAX} variables; put columns together in groups")
    require_all_columns(study, variables)
    kernel = UnitKernel(asked.kernel, asked.bandwidth, asked.category_similarity)
    method = asked.method
    if method == "auto":
        method, kernel = _chosen(asked, study, variables, kernel)
    if method == "permutation" and rank_max(study.level, asked.permutations + 1) < 1:
        raise StudyError("the level is below 1 / (permutations + 1): ask for more permutations")
    if not kernel.has_bandwidth and (kernel.bandwidth or kernel.category_similarity):
        raise StudyError(
            f"the {kernel.shape} kernel has neither bandwidth nor category_similarity; leave them out"
        )
    if method != "aggregate" and (asked.blocks or asked.graph):
        raise StudyError("parameters blocks and graph are of method aggregate; leave them out")
    if method != "aggregate" and (asked.aggregation == "masked" or asked.colluders is not None):
        raise StudyError(
            'parameters aggregation and colluders are of method "aggregate": ask for it, or leave them out'
        )
    if method == "table":
        if kernel != UnitKernel():
            raise StudyError(
                "method table has no kernel: leave kernel, bandwidth and category_similarity out, or ask for "
                "method permutation or aggregate"
            )
        layout = table_layout(study, variables, asked.categories)
        return TableTested(study, variables, layout, asked.permutations)
    if asked.categories is not None:
        raise StudyError("parameter categories is of method table; leave it out")
    if method == "permutation":
        return PermutedDecision(study, variables, kernel, asked.permutations)
    if asked.graph is not None:
        return GraphTested(study, variables, kernel, asked.blocks, asked, graph=asked.graph)
    return BlocksTested(study, variables, kernel, asked.blocks, asked)


def _chosen(
    asked: JointIndependenceParameters, study: Study, variables: Variables, kernel: UnitKernel
) -> tuple[Method, UnitKernel]:
    """Return the method that auto stands for, and its kernel: a function of the study alone.

    A table where it is favoured, otherwise blocks, tested with distances. Whoever asks for a graph, blocks or
    masks asks for blocks, and for cells for a table. Whoever names a kernel asks for one: blocks where
    several owners have no curator, or of three variables and more at small epsilon, else permutations.
    """
    several = study.curator is None and len(study.owners) > 1
    masks = asked.aggregation == "masked" or asked.colluders is not None
    if asked.graph is not None or asked.blocks is not None or masks:
        return "aggregate", kernel
    small = study.budget.epsilon <= AGGREGATE_EPSILON_MAX
    if kernel != UnitKernel():
        return "aggregate" if several or (len(variables) >= 3 and small) else "permutation", kernel
    try:
        layout = table_layout(study, variables, asked.categories)
    except StudyError:
        return ("aggregate", DISTANCES) if several or small else ("permutation", kernel)
    return ("table", kernel) if is_favoured(layout, study) else ("aggregate", DISTANCES)


def _names(study: Study) -> tuple[list[str], list[str]]:
    """Return the names of the numeric columns and of the categorical ones."""
    domain = study.domain
    return [column.name for column in domain.numeric], [column.name for column in domain.categorical]
