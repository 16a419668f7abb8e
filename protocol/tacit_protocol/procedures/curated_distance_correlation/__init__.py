"""Distance covariance and correlation of data in one place: at a curator, or at one owner that holds all.

Three roots leave in one Gaussian release, dCov, dVar X and dVar Y, with the sharpest sensitivities that are
proved here (P4, Vepakomma, Pushpita and Raskar, allows three times as much for a variance), and one private
decision of a permutation test of independence. Distances are over a public diameter.
Derivations: docs/mathematics/curated-distance-correlation.md. By methods ``aggregate`` and ``table`` it is
``joint_independence`` of two variables, by blocks tested with distances or by a table of cells.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel
from scipy.special import ndtri

from tacit_protocol.domain import PooledTable, Table, Workers, workers_of
from tacit_protocol.features.unit_gram import UnitRows, gather_units
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import check_layout, release_sums, require_drawable
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseError, NoiseSource
from tacit_protocol.privacy.permutation_test import decision_xi, permutation_decision
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Holder,
    Procedure,
    Progress,
    QuestionTemplate,
    ReleaseError,
    Releases,
    StudyError,
    common_fields,
    public_seed,
    require_noise,
    require_shared_columns,
    row_warnings,
    step,
    units_declared,
)
from tacit_protocol.procedures.curated_distance_correlation.release import (
    COVARIANCE,
    FIRST,
    PAIRED_UNITS_MAX,
    PERMUTATIONS_STREAM,
    SECOND,
    CuratedDistanceCorrelationParameters,
    DistancePlan,
    DistanceRoots,
    column_roots,
    covariance_sensitivity,
    joint_study,
    paired_roots,
    plan_of,
)
from tacit_protocol.procedures.distance_correlation.statistic import correlation_words
from tacit_protocol.procedures.joint_independence import JointIndependence, JointSummary
from tacit_protocol.procedures.permutation.statistic import permuted_feature_statistics
from tacit_protocol.procedures.populations import Dependence, SimulationModel
from tacit_protocol.verdicts.base import (
    COVARIANCE_ESTIMATE,
    BaseVerdict,
    ShownTable,
    estimate_shown,
    interval_of,
    stated,
    unbiased_shown,
)
from tacit_protocol.verdicts.presentation import (
    DISTANCE,
    PERMUTATION,
    TWO_PARTIES,
    Citation,
    Meaning,
    Null,
    RowsPanel,
    Shown,
    decision_sentence,
)

Floats = npt.NDArray[np.float64]

# What noisy roots tell of a distance covariance and correlation, with intervals, and a test without more. T
# and the S's are V-statistics of n independent units: besides the noise there is their sampling error, of
# which only bounds are used, so that intervals cover more often than they say.

ROOT_MAX = 0.5
"""Largest T and S: of distances in [0, 1] the distance variance is 1/4 at most."""

COVARIANCE_PART = 0.8
"""Of an interval's error probability, for the covariance; the rest in halves for the two deviations."""

NOISE_PART = 0.1
"""Of the test's level, for the noise; the rest for the sampling error."""

Interval = tuple[float, float]


@dataclass(frozen=True)
class NoisyRoots:
    """Noisy T, S_x, S_y with the standard deviations of their noise.

    ``line`` is whether a side is a single numeric column.
    ``mean_distances`` bound E d(X, X') and E d(Y, Y') over all laws: :func:`mean_distance_max`.
    """

    units: int
    values: tuple[float, float, float]
    noise: tuple[float, float, float]
    mean_distances: tuple[float, float]
    line: bool


@dataclass(frozen=True)
class CuratedDistance:
    """Estimates. ``covariance_sqr`` is unbiased for the units' own V-statistic, and may be negative.

    ``covariance`` and ``correlation`` are intervals for the population, ``held`` for the correlation of the
    units that are held, counting the noise alone. Those of a correlation are None where a deviation is lost
    in its noise.
    """

    covariance_sqr: float
    covariance: Interval
    variances: tuple[float, float]
    correlation_value: float | None
    correlation: Interval | None
    held: Interval | None
    bias_max: float


def mean_distance_max(numeric: int, categorical: int) -> float:
    """Bound E d(Z, Z') over all laws, d averaging columns: 1/2 for one number, 1/sqrt 2 for several.

    >>> mean_distance_max(1, 0), mean_distance_max(0, 2)
    (0.5, 1.0)
    """
    numbers = 0.5 if numeric == 1 else math.sqrt(0.5)
    return (numeric * numbers + categorical) / (numeric + categorical)


def estimate(found: NoisyRoots, level: float) -> CuratedDistance:
    """Estimate from noisy roots; intervals cover with probability 1 - ``level`` in large samples, or more."""
    n = found.units
    boxes = _boxes(found, level, sampling=True)
    biases = [2 * min(found.mean_distances) / n, *(2 * mean / n for mean in found.mean_distances)]
    covariance, *deviations = (_population(box, bias, n) for box, bias in zip(boxes, biases, strict=True))
    held = [(low**2, high**2) for low, high in _boxes(found, level, sampling=False)]
    squares = [value * abs(value) - noise**2 for value, noise in zip(found.values, found.noise, strict=True)]
    # Where the noise alone could hide a deviation, a quotient by it says nothing.
    known = all(low > 0 for low, _ in held[1:]) and min(squares[1:]) > 0
    return CuratedDistance(
        covariance_sqr=squares[0],
        covariance=covariance,
        variances=(max(0.0, squares[1]), max(0.0, squares[2])),
        correlation_value=_quotient(squares[0], squares[1], squares[2]) if known else None,
        correlation=_correlations(covariance, deviations) if known else None,
        held=_correlations(held[0], held[1:]) if known else None,
        bias_max=biases[0],
    )


def rejects(found: NoisyRoots, level: float) -> bool:
    """Test independence by the noisy T alone; the level holds at every n.

    Under independence E T^2 = (n - 1)/n^2 E d(X, X') E d(Y, Y'), and T exceeds E T by t with probability at
    most exp(-2 t^2/(n c^2)), c its sensitivity (McDiarmid).
    """
    n = found.units
    expected = math.sqrt((n - 1) * math.prod(found.mean_distances)) / n
    sampling = math.log(1 / ((1 - NOISE_PART) * level))
    above = covariance_sensitivity(n, found.line) * math.sqrt(n * sampling / 2)
    return found.values[0] > expected + above + _z(NOISE_PART * level) * found.noise[0]


def _boxes(found: NoisyRoots, level: float, *, sampling: bool) -> list[Interval]:
    """Return intervals of T, S_x and S_y that hold together, for their expectations or for what is held.

    The asymptotic variance of T is at most 2 min(S_x, S_y)/n, that of an S at most 2 S/n.
    """
    rest = (1 - COVARIANCE_PART) * level / 2
    upper = [
        min(ROOT_MAX, max(0.0, value) + _z(rest) * noise)
        for value, noise in zip(found.values[1:], found.noise[1:], strict=True)
    ]
    spreads = [2 * deviation / found.units for deviation in (min(upper), *upper)]
    boxes = []
    for value, noise, spread, part in zip(
        found.values, found.noise, spreads, (COVARIANCE_PART * level, rest, rest), strict=True
    ):
        reach = _z(part / 2) * math.sqrt(noise**2 + (spread if sampling else 0.0))
        low, high = value - reach, value + reach
        boxes.append((min(ROOT_MAX, max(0.0, low)), min(ROOT_MAX, max(0.0, high))))
    return boxes


def _population(box: Interval, bias: float, units: int) -> Interval:
    """Return what a root's interval says of the population's square D.

    The expected square of a V-statistic lies between (1 - 1/n)^2 D and that plus the bias.
    """
    shrinking = (1 - 1 / units) ** 2
    return max(0.0, box[0] ** 2 - bias) / shrinking, min(ROOT_MAX**2, box[1] ** 2 / shrinking)


def _correlations(covariance: Interval, variances: list[Interval]) -> Interval:
    low = _quotient(covariance[0], variances[0][1], variances[1][1])
    smallest = (variances[0][0], variances[1][0])
    return low, _quotient(covariance[1], *smallest) if min(smallest) > 0 else 1.0


def _quotient(covariance: float, first: float, second: float) -> float:
    scale = math.sqrt(first * second)
    return math.sqrt(min(1.0, max(0.0, covariance) / scale)) if scale > 0 else 0.0


def _z(part: float) -> float:
    return -float(ndtri(part))


class CuratedDistanceCorrelationResult(BaseVerdict):
    """Whether X and Y depend on each other, and how strongly. Distances are over a public diameter.

    It cannot be unpacked: the decision has no p-value. ``statistic`` is the noisy dCov; every interval
        contains its estimate.

    Attributes:
        distance_covariance_sqr: squared distance covariance of the units, cut to [0, 1/4].
        distance_covariance_sqr_unbiased: the same before it is cut: what to average over studies. It is
            unbiased for the units' own V-statistic, whose mean exceeds the population's by ``bias_max`` at
            most.
        covariance_interval: covers the population's with probability 1 - alpha or more in large samples.
        distance_variances: squared distance variances of X and of Y.
        distance_correlation: in [0, 1], or None where a side hardly varies.
        interval: covers the population's distance correlation with probability 1 - alpha or more in large
            samples, or None.
        held_interval: covers that of the units held, counting the noise alone, or None.
    """

    private_decision: ClassVar[bool] = True
    listed: ClassVar[tuple[str, ...]] = (
        "distance_covariance_sqr",
        "distance_covariance_sqr_unbiased",
        "covariance_interval",
        "distance_variances",
        "distance_correlation",
        "interval",
        "held_interval",
    )

    statistic: Annotated[float, Shown("statistic", "test")]
    variables: tuple[tuple[str, ...], tuple[str, ...]]
    distance_covariance_sqr: Annotated[float, COVARIANCE_ESTIMATE]
    distance_covariance_sqr_unbiased: Annotated[float, unbiased_shown("squared distance covariance")]
    covariance_lower: float
    covariance_upper: float
    distance_variances: tuple[float, float]
    distance_correlation: Annotated[float | None, estimate_shown("distance correlation")]
    lower: float | None
    upper: float | None
    held_lower: Annotated[float | None, Shown("of the units held: at least")]
    held_upper: Annotated[float | None, Shown("of the units held: at most")]
    bias_max: Annotated[float, Shown("bias at most")]

    @property
    def covariance_interval(self) -> Interval:
        """That of the squared distance covariance."""
        return self.covariance_lower, self.covariance_upper

    @property
    def interval(self) -> Interval | None:
        """That of the population's distance correlation, or None."""
        return interval_of(self.lower, self.upper)

    @property
    def held_interval(self) -> Interval | None:
        """That of the distance correlation of the units held, or None."""
        return interval_of(self.held_lower, self.held_upper)

    def __str__(self) -> str:
        decision = "dependent" if self.reject else "no dependence shown"
        correlation = "unknown" if self.distance_correlation is None else f"{self.distance_correlation:.3f}"
        return self._told(
            f"{decision} at level {self.alpha:g}: distance correlation {correlation}, squared distance "
            f"covariance {self.distance_covariance_sqr:.4g}"
        )

    def summary(self) -> Sequence[str | ShownTable]:
        """Return what the command shows first."""
        finding = "the columns depend on each other" if self.reject else "no dependence of the columns shown"
        low, high = self.covariance_interval
        return (
            f"Verdict: {finding} (level {self.alpha:g}; the decision has no p-value)",
            f"  {self.method}",
            f"  squared distance covariance {self.distance_covariance_sqr:.4g}, [{low:.4g}, {high:.4g}]",
            *correlation_words(self.distance_correlation, self.interval),
        )


JOINT = JointIndependence()
"""Answers studies by blocks and tables."""


@dataclass(frozen=True)
class DistanceSummary:
    """Exact roots and, for the test, statistics with the observed one first. They never leave the holder."""

    roots: DistanceRoots
    units_by_owner: Mapping[str, int]
    statistics: Floats | None = field(repr=False)


class CuratedDistanceCorrelation(Procedure):
    """See the module. Registered as ``curated_distance_correlation``."""

    name: ClassVar[str] = "curated_distance_correlation"
    title: ClassVar[str] = "How strongly do columns that are in one place depend on each other?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure", "approximate"))
    decides: ClassVar[bool] = True
    Parameters: ClassVar[type[BaseModel]] = CuratedDistanceCorrelationParameters
    Verdict: ClassVar[type[BaseVerdict]] = CuratedDistanceCorrelationResult
    released: ClassVar[str] = (
        "the roots of the distance covariance and of both distance variances, "
        "and the decision of a permutation test"
    )
    cited: ClassVar[tuple[Citation, ...]] = (TWO_PARTIES, PERMUTATION, DISTANCE)
    question: ClassVar[QuestionTemplate | None] = QuestionTemplate(
        "How strongly do columns in one place depend on each other?",
        r"how strong|strength",
        "one or more",
        rank=8,
        relates=True,
    )
    held_by: ClassVar[frozenset[Holder]] = frozenset({"curator"})
    population: ClassVar[type[SimulationModel] | None] = Dependence
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = tuple(
        {"test_share": share} for share in (0.2, 0.5, 0.8)
    )
    pairwise: ClassVar[bool] = True

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        joint = joint_study(study)
        if joint is not None:
            JOINT.check(joint)
            return
        require_shared_columns(study)
        if study.curator is None and len(study.owners) != 1:
            raise StudyError("all columns must be in one place: name one owner, or a curator of several")
        plan_of(study)
        self.check_units(study, units_declared(study))

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where all owners together have too few units, or too many to compare."""
        joint = joint_study(study)
        if joint is not None:
            JOINT.check_units(joint, units)
            return
        if all(owner.name in units for owner in study.owners):
            plan = plan_of(study)
            layout = plan.layout(sum(units[owner.name] for owner in study.owners))
            require_noise(lambda: require_drawable(layout, plan.estimates))

    def cost(self, study: Study) -> Guarantee:
        """Return what every owner spends: the study's whole budget, on the estimates and the decision."""
        joint = joint_study(study)
        return plan_of(study).guarantee if joint is None else JOINT.cost(joint)

    def verdict_type(self, study: Study) -> type[BaseVerdict]:
        """Return what a study's verdict is: joint independence's, of blocks and tables."""
        joint = joint_study(study)
        return self.Verdict if joint is None else JOINT.verdict_type(joint)

    def what_is_released(self, study: Study) -> str:
        """Name the roots and the decision, or the count, or the table."""
        joint = joint_study(study)
        return self.released if joint is None else JOINT.what_is_released(joint)

    def release_size(self, study: Study) -> int:
        """Return 3, or 4 with the decision; of blocks and tables as joint independence."""
        joint = joint_study(study)
        if joint is not None:
            return JOINT.release_size(joint)
        return 3 if plan_of(study).decision is None else 4

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where noise hides even the strongest dependence, T = 1/2, and what averages do."""
        joint = joint_study(study)
        if joint is not None:
            return JOINT.warnings(joint, units)
        plan = plan_of(study)
        if any(owner.name not in units for owner in study.owners):
            return row_warnings(study)
        total = sum(units.values())
        try:
            covariance = plan.layout(total)[0]
        except StudyError as error:
            return (f"{HOPELESS}{error}",)
        found = list(row_warnings(study))
        if plan.decision is not None:
            scale = sum(plan.sensitivities(total)) / decision_xi(plan.decision)
            # With T at most M, noise of that scale lets the test reject with probability level exp(M/scale).
            if math.log(2 * study.level) + ROOT_MAX / scale < 0:
                found.append(
                    f"{HOPELESS}even complete dependence would be missed more often than not; ask for more "
                    "units, or a larger epsilon"
                )
        if covariance.scale(plan.mu) > ROOT_MAX / 4:
            found.append(f"{HOPELESS}the noise is as large as any distance covariance; ask for more units")
        return tuple(found)

    def summarise(
        self,
        study: Study,
        table: Table,
        progress: Progress | None = None,
        order: np.random.Generator | None = None,
    ) -> DistanceSummary | JointSummary:
        """Compute roots and permuted statistics, exactly. They never leave the holder.

        Units are put in a secret random order first, so that it does not matter in which order a table yields
        them; ``order`` fixes it, for audits and simulations alone. Raises StudyError where there are too many
        units, or fewer than two.
        """
        joint = joint_study(study)
        if joint is not None:
            return JOINT.summarise(joint, table, progress, order)
        plan = plan_of(study)
        plan.layout(table.units)
        chunks = list(table.chunks())
        columns = plan.columns and all(chunk.unit is None for chunk in chunks)
        if not columns:
            plan.check_units(table.units, PAIRED_UNITS_MAX)
        rows = gather_units(chunks)
        rows = rows.reordered((order or np.random.default_rng()).permutation(rows.units))
        workers = workers_of(table)
        roots = _roots(plan, rows, columns, workers, progress)
        by_owner = table.units_by_owner if isinstance(table, PooledTable) else {}
        return DistanceSummary(roots, by_owner, _statistics(plan, study, rows, workers, progress))

    def privatise(self, study: Study, summary: DistanceSummary | JointSummary, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states to the roots, and decide; or to the blocks or the table."""
        joint = joint_study(study)
        if joint is not None and not isinstance(summary, DistanceSummary):
            return JOINT.privatise(joint, summary, noise)
        if not isinstance(summary, DistanceSummary):
            raise TypeError("the summary is of another method than the study's")
        plan, units = plan_of(study), summary.roots.units
        try:
            vectors = release_sums(plan.layout(units, summary.roots), plan.estimates, noise)
        except NoiseError as error:
            raise StudyError(str(error)) from None
        decision = None
        if plan.decision is not None:
            if summary.statistics is None:
                raise TypeError("the summary is of a study without a test")
            observed, permuted = plan.sensitivities(units)
            decision = permutation_decision(
                summary.statistics,
                observed,
                study.level,
                plan.decision,
                noise,
                permuted_sensitivity=permuted,
            )
        return Release(
            units=units,
            units_by_owner=dict(summary.units_by_owner),
            guarantee=plan.guarantee,
            vectors=vectors,
            decision=decision,
        )

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        joint = joint_study(study)
        if joint is not None:
            JOINT.check_release(joint, release)
            return
        plan = plan_of(study)
        owners = {owner.name for owner in study.owners} if study.curator is not None else set()
        if set(release.units_by_owner) != owners:
            raise ReleaseError("the release must state the units of every owner whose data it used")
        if (release.decision is None) != (plan.decision is None):
            raise ReleaseError("the release holds a decision where the study asks for none, or the reverse")
        try:
            check_layout(release.vectors, release.guarantee, plan.layout(release.units), plan.guarantee)
        except StudyError as error:
            raise ReleaseError(str(error)) from None

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        first, second = (" with ".join(group) for group in verdict.get("variables") or (("x",), ("y",)))
        return decision_sentence(
            study,
            verdict,
            f"{first} and {second} depend on each other, linearly or not",
            f"No dependence between {first} and {second} was shown: they may be independent",
        )

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> BaseVerdict:
        """Compute the verdict: post-processing alone, the same for everyone."""
        joint = joint_study(study)
        if joint is not None:
            return JOINT.assemble(joint, releases, progress)
        plan, sender = plan_of(study), study.senders[0].name
        release = releases[sender]
        self.check_release(study, release)
        noisy = _noisy(plan, release)
        found = estimate(noisy, study.level)
        if progress is not None:
            progress(1.0, "estimating")
        units = dict(release.units_by_owner) or {sender: release.units}
        covariance = stated(found.covariance_sqr, found.covariance, ROOT_MAX**2)
        correlation = _containing(found.correlation_value, found.correlation)
        held = _containing(found.correlation_value, found.held)
        lost = "no distance correlation is stated: a side's own variance is zero, or lost in its noise"
        return CuratedDistanceCorrelationResult(
            method=_method(plan),
            statistic=noisy.values[0],
            reject=rejects(noisy, study.level) if release.decision is None else release.decision,
            **common_fields(study, units),
            variables=(plan.sides[0].names, plan.sides[1].names),
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
            warnings=self.warnings(study, units) + ((lost,) if correlation is None else ()),
        )

    def null(self, study: Study, verdict: Fields, releases: Releases) -> Null | None:
        """Return the law of blocks that reject, or of a table's statistic; None beside a decision."""
        joint = joint_study(study)
        return None if joint is None else JOINT.null(joint, verdict, releases)

    def panels(self, study: Study, verdict: Fields, releases: Releases) -> Sequence[RowsPanel]:
        """Return rows of the estimates of a table."""
        joint = joint_study(study)
        return () if joint is None else JOINT.panels(joint, verdict, releases)


def _containing(value: float | None, interval: Interval | None) -> Interval | None:
    """Return an interval of a correlation that has the estimate in it."""
    if value is None or interval is None:
        return None
    own = stated(value, interval, 1.0)
    return own.lower, own.upper


def _roots(
    plan: DistancePlan, rows: UnitRows, columns: bool, workers: Workers, progress: Progress | None
) -> DistanceRoots:
    if columns:
        x, y = (rows.numeric[:, side.numeric[0]] for side in plan.sides)
        return column_roots(x, y)
    first, second = (side.gram(rows, not plan.rows_are_units) for side in plan.sides)
    return paired_roots(first, second, workers, step(progress, "comparing pairs"))


def _statistics(
    plan: DistancePlan, study: Study, rows: UnitRows, workers: Workers, progress: Progress | None
) -> Floats | None:
    if plan.decision is None:
        return None
    return permuted_feature_statistics(
        [side.factor(rows) for side in plan.sides],
        plan.parameters.permutations,
        public_seed(study, PERMUTATIONS_STREAM),
        workers=workers,
        progress=step(progress, "permuting"),
    )


def _noisy(plan: DistancePlan, release: Release) -> NoisyRoots:
    vectors = [release.vectors[name] for name in (COVARIANCE, FIRST, SECOND)]
    one, two, three = (float(vector.mean(1)[0]) for vector in vectors)
    first, second = (mean_distance_max(len(side.numeric), len(side.categorical)) for side in plan.sides)
    return NoisyRoots(
        release.units,
        (one, two, three),
        (vectors[0].scale, vectors[1].scale, vectors[2].scale),
        (first, second),
        plan.line,
    )


def _method(plan: DistancePlan) -> str:
    tested = (
        "a bound on what independence allows"
        if plan.decision is None
        else f"the private decision of {plan.parameters.permutations} permutations"
    )
    return f"distance covariance and deviations with one draw of noise, tested by {tested}"
