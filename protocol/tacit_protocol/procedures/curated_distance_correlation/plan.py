"""Plans of distance correlation in one place: three noisy roots, and a decision beside them."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import PooledTable, Table, Workers, workers_of
from tacit_protocol.features.kernels import DistanceKernel
from tacit_protocol.features.unit_gram import UnitRows, gather_units
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.gaussian_mechanism import (
    SumPart,
    check_layout,
    gaussian_guarantee,
    mu_of,
    release_sums,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import Budget, Guarantee
from tacit_protocol.privacy.noise import NoiseError, NoiseSource
from tacit_protocol.privacy.permutation_test import (
    decision_guarantee,
    decision_xi,
    permutation_decision,
    rank_max,
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
    public_seed,
    require_noise,
    row_warnings,
    step,
)
from tacit_protocol.procedures.curated_distance_correlation.release import (
    COLUMN_UNITS_MAX,
    COVARIANCE,
    FEATURE_BYTES_MAX,
    FIRST,
    PAIRED_UNITS_MAX,
    PERMUTATIONS_STREAM,
    SECOND,
    TEST_ERROR,
    TEST_SHARE,
    CuratedDistanceCorrelationParameters,
    DistanceRoots,
    SideColumns,
    column_roots,
    covariance_sensitivity,
    groups_of,
    paired_roots,
    release_parts,
    side_of,
)
from tacit_protocol.procedures.curated_distance_correlation.statistic import (
    ROOT_MAX,
    Interval,
    NoisyRoots,
    estimate,
    mean_distance_max,
    rejects,
)
from tacit_protocol.procedures.curated_distance_correlation.verdict import CuratedDistanceCorrelationResult
from tacit_protocol.procedures.independence.plan import (
    DISTANCES,
    BlocksTested,
    JointPlan,
    TableTested,
    table_or_blocks,
)
from tacit_protocol.procedures.masking import MaskedParameters
from tacit_protocol.procedures.permutation.statistic import (
    TENSOR_ENTRIES_MAX,
    permuted_feature_statistics,
    permuted_sensitivity,
)
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.verdicts.base import stated
from tacit_protocol.verdicts.presentation import Meaning, decision_sentence

Floats = npt.NDArray[np.float64]


class DependencePlan(Plan):
    """Whether X and Y depend on each other."""

    def meaning(self, verdict: Fields) -> Meaning:
        first, second = (" with ".join(group) for group in verdict.get("variables") or (("x",), ("y",)))
        return decision_sentence(
            self.study,
            verdict,
            f"{first} and {second} depend on each other, linearly or not",
            f"No dependence between {first} and {second} was shown: they may be independent",
        )


class DependenceByBlocks(DependencePlan, BlocksTested):
    """Method ``aggregate``."""


class DependenceByTable(DependencePlan, TableTested):
    """Method ``table``."""


@dataclass(frozen=True)
class DistanceSummary:
    """Exact roots and, for the test, statistics with the observed one first. They never leave the holder."""

    roots: DistanceRoots
    units_by_owner: Mapping[str, int]
    statistics: Floats | None = field(repr=False)


@dataclass(eq=False)
class RootsPlan(DependencePlan):
    """Three noisy roots, one of which decides: independence is rejected where it leaves no other choice."""

    study: Study
    parameters: CuratedDistanceCorrelationParameters
    sides: tuple[SideColumns, SideColumns]
    estimates: Guarantee
    release_size: int = 3

    def __post_init__(self) -> None:
        self.guarantee = self.estimates

    @property
    def rows_are_units(self) -> bool:
        """Whether no unit is an average of rows."""
        return not self.study.averages_rows

    @property
    def columns(self) -> bool:
        """Whether both sides are one numeric column of units of one row, for which there is a faster way."""
        return self.rows_are_units and all(side.single for side in self.sides)

    @property
    def line(self) -> bool:
        """Whether a side is one numeric column, for which there is a sharper bound."""
        return any(side.single for side in self.sides)

    def layout(self, units: int, roots: DistanceRoots | None = None) -> tuple[SumPart, ...]:
        """Lay out the release of the roots; raises PublicRuleError for fewer than two units, or too many."""
        self.require_units(units, COLUMN_UNITS_MAX if self.columns else PAIRED_UNITS_MAX)
        error = max(DistanceKernel.error(len(side.numeric)) for side in self.sides)
        return release_parts(units, self.line, error, roots)

    @property
    def mu(self) -> float:
        """The Gaussian privacy of the estimates."""
        return mu_of(self.estimates)

    def require_units(self, units: int, largest: int) -> None:
        """Raise PublicRuleError where the estimates cannot take so many units."""
        if units < 2:
            raise PublicRuleError("too-few-units", "the study needs at least two units")
        if units > largest:
            raise PublicRuleError(
                "too-many-units",
                f"pairs of units are compared, {largest} units at most; use a subset of them, or one numeric "
                "column a side and one row a unit",
            )

    def check_units(self, units: Mapping[str, int]) -> None:
        if all(owner.name in units for owner in self.study.owners):
            layout = self.layout(sum(units[owner.name] for owner in self.study.owners))
            require_noise(lambda: require_drawable(layout, self.estimates))

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where noise hides even the strongest dependence, T = 1/2, and what averages do."""
        if any(owner.name not in units for owner in self.study.owners):
            return row_warnings(self.study)
        total = sum(units.values())
        try:
            covariance = self.layout(total)[0]
        except StudyError as error:
            return (f"{HOPELESS}{error}",)
        found = row_warnings(self.study) + self.missed(total)
        if covariance.scale(self.mu) <= ROOT_MAX / 4:
            return found
        hidden = "the noise is as large as any distance covariance; ask for more units"
        return (*found, f"{HOPELESS}{hidden}")

    def missed(self, units: int) -> tuple[str, ...]:  # noqa: ARG002
        """Say where the test would miss complete dependence."""
        return ()

    def summarise(
        self, table: Table, order: np.random.Generator | None = None, progress: Progress | None = None
    ) -> DistanceSummary:
        """Compute roots and permuted statistics, exactly. They never leave the holder.

        Units are put in a secret random order first, so that it does not matter in which order a table yields
        them. Raises StudyError where there are too many units, or fewer than two.
        """
        self.layout(table.units)
        chunks = list(table.chunks())
        columns = self.columns and all(chunk.unit is None for chunk in chunks)
        if not columns:
            self.require_units(table.units, PAIRED_UNITS_MAX)
        rows = gather_units(chunks)
        rows = rows.reordered((order or np.random.default_rng()).permutation(rows.units))
        workers = workers_of(table)
        roots = self._roots(rows, columns, workers, progress)
        by_owner = table.units_by_owner if isinstance(table, PooledTable) else {}
        return DistanceSummary(roots, by_owner, self.statistics(rows, workers, progress))

    def _roots(
        self, rows: UnitRows, columns: bool, workers: Workers, progress: Progress | None
    ) -> DistanceRoots:
        if columns:
            x, y = (rows.numeric[:, side.numeric[0]] for side in self.sides)
            return column_roots(x, y)
        first, second = (side.gram(rows, not self.rows_are_units) for side in self.sides)
        return paired_roots(first, second, workers, step(progress, "comparing pairs"))

    def statistics(self, rows: UnitRows, workers: Workers, progress: Progress | None) -> Floats | None:  # noqa: ARG002
        """Return what a decision is made of; None where none is."""
        return None

    def privatise(self, summary: DistanceSummary, noise: NoiseSource) -> Release:
        units = summary.roots.units
        try:
            vectors = release_sums(self.layout(units, summary.roots), self.estimates, noise)
        except NoiseError as error:
            raise StudyError(str(error)) from None
        return Release(
            units=units,
            units_by_owner=dict(summary.units_by_owner),
            guarantee=self.guarantee,
            vectors=vectors,
            decision=self.decide(summary, noise),
        )

    def decide(self, summary: DistanceSummary, noise: NoiseSource) -> bool | None:  # noqa: ARG002
        """Return the private decision; None where none is made."""
        return None

    def check_release(self, release: Release) -> None:
        owners = {owner.name for owner in self.study.owners} if self.study.curator is not None else set()
        if set(release.units_by_owner) != owners:
            raise ReleaseError("the release must state the units of every owner whose data it used")
        if (release.decision is not None) != self.decides:
            raise ReleaseError("the release holds a decision where the study asks for none, or the reverse")
        try:
            check_layout(release.vectors, release.guarantee, self.layout(release.units), self.guarantee)
        except StudyError as error:
            raise ReleaseError(str(error)) from None

    @property
    def decides(self) -> bool:
        """Whether a private decision stands beside the roots."""
        return False

    @property
    def tested(self) -> str:
        """How independence is tested, in words."""
        return "a bound on what independence allows"

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (the release states them)
        progress: Progress | None = None,
    ) -> CuratedDistanceCorrelationResult:
        study, sender = self.study, self.study.senders[0].name
        release = releases[sender]
        self.check_release(release)
        noisy = self._noisy(release)
        found = estimate(noisy, study.level)
        if progress is not None:
            progress(1.0, "estimating")
        counted = dict(release.units_by_owner) or {sender: release.units}
        covariance = stated(found.covariance_sqr, found.covariance, ROOT_MAX**2)
        correlation = _containing(found.correlation_value, found.correlation)
        held = _containing(found.correlation_value, found.held)
        lost = "no distance correlation is stated: a side's own variance is zero, or lost in its noise"
        return CuratedDistanceCorrelationResult(
            method=(f"distance covariance and deviations with one draw of noise, tested by {self.tested}"),
            statistic=noisy.values[0],
            reject=rejects(noisy, study.level) if release.decision is None else release.decision,
            **common_fields(study, counted),
            variables=(self.sides[0].names, self.sides[1].names),
            distance_covariance_sqr=covariance.value,
            distance_covariance_sqr_unbiased=covariance.unbiased,
            covariance_lower=covariance.lower,
            covariance_upper=covariance.upper,
            distance_variances=found.variances,
            distance_correlation=found.correlation_value,
            lower=None if correlation is None else correlation[0],
            upper=None if correlation is None else correlation[1],
            held_lower=None if held is None else held[0],
            held_upper=None if held is None else held[1],
            bias_max=found.bias_max,
            warnings=self.warnings(counted) + ((lost,) if correlation is None else ()),
        )

    def _noisy(self, release: Release) -> NoisyRoots:
        vectors = [release.vectors[name] for name in (COVARIANCE, FIRST, SECOND)]
        one, two, three = (float(vector.mean(1)[0]) for vector in vectors)
        first, second = (mean_distance_max(len(side.numeric), len(side.categorical)) for side in self.sides)
        return NoisyRoots(
            release.units,
            (one, two, three),
            (vectors[0].scale, vectors[1].scale, vectors[2].scale),
            (first, second),
            self.line,
        )


@dataclass(eq=False)
class DecidedRootsPlan(RootsPlan):
    """The roots, and the private decision of a permutation test, which a part of epsilon buys."""

    decision: Budget = field(kw_only=True)
    release_size: int = 4

    def __post_init__(self) -> None:
        budget = Budget(
            epsilon_micro=self.estimates.budget.epsilon_micro + self.decision.epsilon_micro,
            delta_pico=self.estimates.budget.delta_pico,
        )
        events = (*self.estimates.events, *decision_guarantee(self.decision).events)
        self.guarantee = Guarantee(budget=budget, events=events)

    @property
    def decides(self) -> bool:
        return True

    @property
    def tested(self) -> str:
        return f"the private decision of {self.parameters.permutations} permutations"

    def require_units(self, units: int, largest: int) -> None:
        super().require_units(units, largest)
        width = sum(side.features.dimension for side in self.sides)
        if 8 * width * units > FEATURE_BYTES_MAX:
            raise PublicRuleError(
                "too-many-units", "too many units to permute; use a subset of them, or leave the test out"
            )

    def sensitivities(self, units: int) -> tuple[float, float]:
        """Return what one unit moves the test's observed statistic by, and the permuted ones."""
        reach = math.prod(side.features.diameter for side in self.sides)
        error = 2 * (TEST_ERROR + 4 * (units + 32) * 2.0**-53)
        return (
            reach * covariance_sensitivity(units, self.line) + error,
            reach * permuted_sensitivity(units, 2) + error,
        )

    def missed(self, units: int) -> tuple[str, ...]:
        scale = sum(self.sensitivities(units)) / decision_xi(self.decision)
        # With T at most M, noise of that scale lets the test reject with probability level exp(M/scale).
        if math.log(2 * self.study.level) + ROOT_MAX / scale >= 0:
            return ()
        return (
            f"{HOPELESS}even complete dependence would be missed more often than not; ask for more units, or "
            "a larger epsilon",
        )

    def statistics(self, rows: UnitRows, workers: Workers, progress: Progress | None) -> Floats:
        """Return the permuted statistics, (permutations + 1,), the observed one first."""
        return permuted_feature_statistics(
            [side.factor(rows) for side in self.sides],
            self.parameters.permutations,
            public_seed(self.study, PERMUTATIONS_STREAM),
            workers=workers,
            progress=step(progress, "permuting"),
        )

    def decide(self, summary: DistanceSummary, noise: NoiseSource) -> bool:
        if summary.statistics is None:
            raise TypeError("the summary is of a study without a test")
        observed, permuted = self.sensitivities(summary.roots.units)
        return permutation_decision(
            summary.statistics,
            observed,
            self.study.level,
            self.decision,
            noise,
            permuted_sensitivity=permuted,
        )


def _containing(value: float | None, interval: Interval | None) -> Interval | None:
    """Return an interval of a correlation that has the estimate in it."""
    if value is None or interval is None:
        return None
    own = stated(value, interval, 1.0)
    return own.lower, own.upper


def roots_plan(study: Study, parameters: CuratedDistanceCorrelationParameters) -> RootsPlan:
    """Return the plan of method permutation; raises StudyError where the study cannot be run as written."""
    first, second = (
        side_of(study, index, names) for index, names in enumerate(groups_of(study, parameters.groups))
    )
    decided = round(study.budget.epsilon_micro * parameters.test_share) if parameters.test else 0
    if parameters.test and rank_max(study.level, parameters.permutations + 1) < 1:
        raise StudyError("the level is below 1 / (permutations + 1): ask for more permutations")
    if parameters.test and not 0 < decided < study.budget.epsilon_micro:
        raise StudyError("the budget is too small to be shared out; give the study a larger epsilon")
    if parameters.test and first.features.dimension * second.features.dimension > TENSOR_ENTRIES_MAX:
        raise StudyError("too many columns or levels to permute; use fewer, or leave the test out")
    estimates = study.budget.model_copy(update={"epsilon_micro": study.budget.epsilon_micro - decided})
    guarantee = gaussian_guarantee(estimates)
    if not parameters.test:
        return RootsPlan(study, parameters, (first, second), guarantee)
    decision = Budget(epsilon_micro=decided, delta_pico=0)
    return DecidedRootsPlan(study, parameters, (first, second), guarantee, decision=decision)


def pure_plan(study: Study, parameters: CuratedDistanceCorrelationParameters) -> JointPlan:
    """Return the plan of methods aggregate and table.

    Raises:
        StudyError: the study states what is of permutations alone, or cannot be run as written.
    """
    if not parameters.test or parameters.test_share != TEST_SHARE:
        raise StudyError("parameters test and test_share are of method permutation; leave them out")
    sides, blocks = groups_of(study, parameters.groups), parameters.blocks
    layout = table_or_blocks(study, sides, parameters.method, blocks, parameters.categories)
    if layout is None:
        return DependenceByBlocks(study, sides, DISTANCES, blocks, MaskedParameters())
    return DependenceByTable(study, sides, layout, parameters.permutations)
