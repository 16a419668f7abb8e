"""Are several variables, or groups of columns, jointly independent? A private decision (dpdHSIC).

*Differentially private joint independence test* on Kim and Schrab, *Differentially private permutation tests*
(2023), with sharper sensitivities: docs/mathematics/joint-independence.md and permutation-tests.md.

The rows must be in one place: at one owner's agent, or at a curator, which pools the units of its owners. The
statistic of the data is compared with those of permuted data, with noise on all; one bit leaves.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel, Field

from tacit_protocol.domain.columns import ColumnName
from tacit_protocol.domain.table import PooledTable, Table
from tacit_protocol.features.kernels import BANDWIDTH_MAX, DistanceKernel, ProductKernel
from tacit_protocol.features.unit_gram import EvaluatedKernel, KernelMixture, UnitGram, UnitRows, gather_units
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.privacy.permutation_test import (
    decision_guarantee,
    decision_xi,
    permutation_decision,
    rank_max,
)
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Holder,
    Procedure,
    Progress,
    PublicRuleError,
    Question,
    ReleaseError,
    StudyError,
    common_fields,
    parse_parameters,
    public_seed,
    require_shared_columns,
    row_warnings,
    step,
    units_declared,
)
from tacit_protocol.procedures.joint_independence.sensitivity import (
    evaluation_error,
    observed_sensitivity,
    permuted_sensitivity,
    statistic_max,
)
from tacit_protocol.procedures.joint_independence.statistic import permuted_statistics, units_max
from tacit_protocol.procedures.populations import Dependence, Population
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import BaseVerdict, DecisionResult
from tacit_protocol.verdicts.words import JOINT, PERMUTATION, Meaning, Work, either, joined
from tacit_protocol.workers import workers_of

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

PERMUTATIONS_STREAM = 3
"""Spawn key under the study's seed of the permutations."""

Bandwidth = Annotated[float, Field(ge=BANDWIDTH_SMALLEST, le=BANDWIDTH_MAX)]
Group = Annotated[tuple[ColumnName, ...], Field(min_length=1)]


class JointIndependenceParameters(StrictModel):
    """What a study of this procedure may choose; every choice is public."""

    groups: Annotated[tuple[Group, ...], Field(min_length=2, max_length=VARIABLES_MAX)] | None = Field(
        None,
        description=(
            "The variables, as lists of columns; every column of the study in one of them. "
            "By default every column by itself."
        ),
    )
    kernel: Literal["gaussian", "laplacian", "distance"] = Field(
        "gaussian", description="Kernel of numeric columns; distance gives a test of distance covariance."
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
        description="Permutations of the test, at least 1/level - 1; they cost no privacy.",
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


@dataclass(frozen=True)
class PermutedStatistics:
    """Exact statistics, (permutations + 1,) with the observed one first. They never leave the holder."""

    units: int
    units_by_owner: Mapping[str, int]
    values: npt.NDArray[np.float64] = field(repr=False)


@dataclass(frozen=True)
class _Plan:
    """What a study fixes before any data."""

    parameters: JointIndependenceParameters
    variables: tuple[tuple[str, ...], ...]
    several_rows: bool

    @property
    def units_max(self) -> int:
        """Most units that the test takes."""
        return units_max(len(self.variables), self.parameters.permutations, self.several_rows)


class JointIndependence(Procedure):
    """See the module. Registered as ``joint_independence``."""

    name: ClassVar[str] = "joint_independence"
    title: ClassVar[str] = "Are these columns, or groups of columns, independent of each other?"
    families: ClassVar[frozenset[Family]] = frozenset(("pure", "approximate"))
    decides: ClassVar[bool] = True
    Parameters: ClassVar[type[BaseModel]] = JointIndependenceParameters
    Verdict: ClassVar[type[BaseVerdict]] = JointIndependenceDecision
    released: ClassVar[str] = "the decision of a permutation test of the d-variable Hilbert-Schmidt criterion"
    cited: ClassVar[tuple[Work, ...]] = (JOINT, PERMUTATION)
    question: ClassVar[Question | None] = Question(
        "Do these columns depend on each other?",
        r"depend|relat|correlat|associat|link|connect|effect of|influence",
        "one",
        rank=9,
        pure=True,
        relates=True,
    )
    held_by: ClassVar[frozenset[Holder]] = frozenset({"agents", "curator"})
    population: ClassVar[type[Population] | None] = Dependence
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        *({"bandwidth": width} for width in (0.03, 0.1, 0.3, 1.0)),
        {"kernel": "distance"},
    )
    pairwise: ClassVar[bool] = True

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        if study.curator is None and len(study.owners) != 1:
            raise StudyError("all columns must be in one place: name one owner, or a curator of several")
        _plan(study)
        self.check_units(study, units_declared(study))

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where all owners together have too few units, or too many to compare."""
        if all(owner.name in units for owner in study.owners):
            _check_units(_plan(study), sum(units[owner.name] for owner in study.owners))

    def cost(self, study: Study) -> Guarantee:
        """Return what every owner spends: the study's whole budget, on one decision."""
        _plan(study)
        return decision_guarantee(study.budget)

    def numbers_released(self, study: Study) -> int:
        """Return 1: one bit leaves."""
        _plan(study)
        return 1

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where no data whatever could be rejected with probability one half, and what averages do.

        With noise of scale c on all statistics and T at most M, the probability to reject is at most level *
        exp(M / c): raising the observed statistic by M changes the density of its noise by no more.
        """
        variables, found = len(_plan(study).variables), row_warnings(study)
        if any(owner.name not in units for owner in study.owners):
            return found
        total = sum(units.values())
        if total < 2:
            return (f"{HOPELESS}a test needs at least two units", *found)
        scale = sum(_sensitivities(_plan(study), study, total)) / decision_xi(study.budget)
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
    ) -> PermutedStatistics:
        """Compute the statistics of the data and of its permutations. They never leave the holder.

        Units are put in a secret random order first, so that it does not matter in which order a table yields
        them; ``order`` fixes it, for audits and simulations alone. Raises StudyError where the table has too
        many units to compare all pairs of them, or fewer than two.
        """
        plan = _plan(study)
        _check_units(plan, table.units)
        rows = gather_units(list(table.chunks()))
        rows = rows.reordered((order or np.random.default_rng()).permutation(rows.units))
        values = permuted_statistics(
            [_gram(plan, study, names, rows) for names in plan.variables],
            plan.parameters.permutations,
            public_seed(study, PERMUTATIONS_STREAM),
            workers=workers_of(table),
            progress=step(progress, "permuting"),
        )
        by_owner = table.units_by_owner if isinstance(table, PooledTable) else {}
        return PermutedStatistics(rows.units, by_owner, values)

    def privatise(self, study: Study, summary: PermutedStatistics, noise: NoiseSource) -> Release:
        """Decide with the noise that ``cost`` states; the decision alone is released."""
        observed, permuted = _sensitivities(_plan(study), study, summary.units)
        reject = permutation_decision(
            summary.values, observed, study.level, study.budget, noise, permuted_sensitivity=permuted
        )
        return Release(
            units=summary.units,
            units_by_owner=dict(summary.units_by_owner),
            guarantee=decision_guarantee(study.budget),
            decision=reject,
        )

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release is not one decision at the study's budget."""
        plan = _plan(study)
        if release.guarantee != decision_guarantee(study.budget):
            raise ReleaseError("the release states another guarantee than the study")
        if release.vectors or release.decision is None:
            raise ReleaseError("the release must hold a decision and nothing else")
        owners = {owner.name for owner in study.owners} if study.curator is not None else set()
        if set(release.units_by_owner) != owners:
            raise ReleaseError("the release must state the units of every owner whose data it used")
        if not 2 <= release.units <= plan.units_max:
            raise ReleaseError("the release states a number of units that the test does not take")

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        variables = [" with ".join(group) for group in verdict.get("variables") or ()]
        of = f" {joined(variables, 6)}" if variables else " the columns"
        return either(
            study,
            verdict,
            f"The columns depend on each other:{of} are not jointly independent",
            f"No dependence of the columns was shown:{of} may be independent",
        )

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> JointIndependenceDecision:
        """State the decision: there is nothing to compute."""
        plan = _plan(study)
        sender = study.senders[0].name
        release = releases[sender]
        if release.decision is None:
            raise ReleaseError("the release must hold a decision and nothing else")
        if progress is not None:
            progress(1.0, "reading the decision")
        units = dict(release.units_by_owner) or {sender: release.units}
        return JointIndependenceDecision(
            method=_method(plan.parameters),
            reject=release.decision,
            **common_fields(study, units),
            variables=plan.variables,
            warnings=self.warnings(study, units),
        )


def _plan(study: Study) -> _Plan:
    parameters = parse_parameters(JointIndependenceParameters, study)
    if rank_max(study.level, parameters.permutations + 1) < 1:
        raise StudyError("the level is below 1 / (permutations + 1): ask for more permutations")
    if parameters.kernel == "distance" and (parameters.bandwidth or parameters.category_similarity):
        raise StudyError("the distance kernel has neither bandwidth nor category_similarity; leave them out")
    names = [column.name for column in study.domain.columns]
    groups = parameters.groups if parameters.groups is not None else tuple((name,) for name in names)
    if not 2 <= len(groups) <= VARIABLES_MAX:
        raise StudyError(f"the test takes 2 to {VARIABLES_MAX} variables; put columns together in groups")
    grouped = [name for group in groups for name in group]
    if len(set(grouped)) != len(grouped):
        raise StudyError("parameter groups: a column may be in one group only")
    if set(grouped) != set(names):
        raise StudyError("parameter groups: the groups together must name the study's columns, all of them")
    return _Plan(parameters, groups, study.averages_rows)


def _sensitivities(plan: _Plan, study: Study, units: int) -> tuple[float, float]:
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


def _check_units(plan: _Plan, units: int) -> None:
    if units < 2:
        raise PublicRuleError("too-few-units", "the test needs at least two units")
    if units > plan.units_max:
        advice = "or one row a unit" if plan.several_rows else "fewer variables or fewer permutations"
        raise PublicRuleError(
            "too-many-units",
            f"too many units: all pairs of them are compared, {plan.units_max} units at most; use a subset, "
            f"{advice}",
        )


def _gram(plan: _Plan, study: Study, names: tuple[str, ...], rows: UnitRows) -> UnitGram:
    """Return the kernel matrix of one variable."""
    numeric = [i for i, column in enumerate(study.domain.numeric) if column.name in names]
    categorical = [i for i, column in enumerate(study.domain.categorical) if column.name in names]
    return UnitGram(_kernel(plan.parameters, len(numeric)), rows.columns(numeric, categorical))


def _kernel(parameters: JointIndependenceParameters, numeric_columns: int) -> EvaluatedKernel:
    if parameters.kernel == "distance":
        return DistanceKernel()
    bandwidth = parameters.bandwidth
    if bandwidth is None:
        bandwidth = BANDWIDTH_PER_COLUMN * math.sqrt(max(1, numeric_columns))
    bandwidths = bandwidth if isinstance(bandwidth, tuple) else (bandwidth,)
    shape = parameters.kernel
    kernels = tuple(ProductKernel(shape, value, parameters.category_similarity) for value in bandwidths)
    return KernelMixture(kernels, (1 / len(kernels),) * len(kernels))


def _method(parameters: JointIndependenceParameters) -> str:
    return (
        f"joint independence test: dHSIC, {parameters.kernel} kernel, "
        f"{parameters.permutations} permutations, private decision"
    )
