"""Plans of the two-sample test at a curator: each is one release of both samples, and the test made of it.

The difference that a hopeless study could not see is a very large one: half of a sample's units moved across
a column, or a squared MMD of the squared norm of the features.
"""

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from scipy.special import ndtri

from tacit_protocol.domain import (
    CategoricalColumn,
    Domain,
    EncodedChunk,
    PooledTable,
    Table,
    Workers,
    workers_of,
)
from tacit_protocol.features.mean_embedding import additive_features
from tacit_protocol.features.moments import (
    MEAN,
    AdditiveRelease,
    FeatureSums,
    MomentRelease,
    MomentShares,
    read_second_moment,
)
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.gaussian_mechanism import (
    SumPart,
    check_layout,
    gaussian_guarantee,
    halved_guarantee,
    mu_of,
    noise_scales,
    release_sums,
    require_drawable,
)
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Guarantee
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
    decided,
    public_seed,
    require_noise,
    require_work,
    step,
)
from tacit_protocol.procedures.curated_two_sample.parameters import (
    FEATURE_WORDS,
    LOCATIONS_STREAM,
    NULL_STREAM,
    PAPER_REGULARISATION,
    STATISTIC_REGULARISATION,
    CuratedTwoSampleParameters,
    Form,
    Permuted,
    features_of,
    permuted_of,
    ridge_features,
)
from tacit_protocol.procedures.curated_two_sample.permuted_means import (
    PermutationSizeError,
    PermutedKernel,
    check_choices,
    check_kernel,
    draw_choices,
)
from tacit_protocol.procedures.curated_two_sample.release import (
    MOMENT_CENTRE_SHARE,
    STATISTIC,
    CuratedAdditiveRelease,
    CuratedMomentRelease,
    CuratedSums,
    ExactStatistic,
    PairedRelease,
    RidgeRelease,
    UnequalSamplesError,
    centre_share,
    require_equal,
    ridge_laws,
    ridge_pvalue,
)
from tacit_protocol.procedures.curated_two_sample.statistic import (
    CuratedFinding,
    CuratedMeans,
    additive_finding,
    curated_covariance,
    moment_finding,
    paired_law,
)
from tacit_protocol.procedures.curated_two_sample.verdict import (
    CuratedTwoSampleBlocks,
    CuratedTwoSampleDecision,
    CuratedTwoSampleResult,
    CuratedTwoSampleTable,
)
from tacit_protocol.procedures.independence.plan import (
    DISTANCES,
    BlocksTested,
    JointPlan,
    TableTested,
    table_or_blocks,
)
from tacit_protocol.procedures.masking import MaskedParameters
from tacit_protocol.procedures.means.effects import Samples, effects_by_column
from tacit_protocol.procedures.means.private_means import (
    PrivateCovariance,
    max_null,
    mmd_law,
    mmd_test,
    named_groups,
    noise_aware_test,
    simulated_test_work,
)
from tacit_protocol.procedures.plan import Panel, Plan
from tacit_protocol.procedures.two_sample.statistic import (
    DETECTABLE_MAX,
    POWER,
    LocationComparison,
    MeanEmbedding,
    detectable_difference,
    detectable_squared_mmd,
    location_differences,
)
from tacit_protocol.procedures.two_sample.verdict import effect_panels, two_sample_meaning
from tacit_protocol.verdicts.base import BaseVerdict, stated
from tacit_protocol.verdicts.presentation import (
    DRAWN_MAX,
    KERNEL,
    PERMUTATION,
    SIMULATED,
    WEIGHTED,
    Citation,
    Meaning,
    Null,
    from_draws,
    quadratic,
)

Floats = npt.NDArray[np.float64]
Units = tuple[int, int]
Names = tuple[tuple[str, ...], tuple[str, ...]]

KEPT_FOR_HISTORY = (
    "release 'statistic' is kept for history, and no plan chooses it: mean-covariance sees much more for the "
    "same budget"
)
"""Said before a study is run; a verdict has said it in other words since there were verdicts."""

Exact = CuratedSums | FeatureSums | ExactStatistic | Floats
"""The exact numbers of a release: of a permutation test its statistics."""


@dataclass(frozen=True)
class CuratedSummary:
    """Exact numbers, with the public counts. They never leave the curator."""

    units_by_owner: Mapping[str, int]
    exact: Exact = field(repr=False)


def pooled(study: Study, table: Table) -> PooledTable:
    """Return a curator's table; raises StudyError where it is not of all owners of the study."""
    if not isinstance(table, PooledTable) or set(table.parts) != {owner.name for owner in study.owners}:
        raise StudyError("the curator must hold the data sets of all owners of the study")
    return table


@dataclass(eq=False)
class CuratedPlan(Plan):
    """A release of both samples at once, with noise that is added once."""

    study: Study
    parameters: CuratedTwoSampleParameters
    samples: Names
    guarantee: Guarantee
    release: Any
    cited: ClassVar[tuple[Citation, ...]] = (KERNEL,)
    decides: ClassVar[bool] = False
    caveats: ClassVar[tuple[str, ...]] = ()
    """What limits a verdict, in words."""

    @property
    def method(self) -> str:
        """What is computed, in words."""
        raise NotImplementedError

    def check_sizes(self, units: Units) -> None:
        """Raise PublicRuleError where samples of these sizes cannot be released."""
        raise NotImplementedError

    def hopes(self, units: Units) -> bool:
        """Say whether a great difference could be seen at these numbers of units."""
        raise NotImplementedError

    def exact(
        self,
        tables: tuple[PooledTable, PooledTable],
        order: np.random.Generator,
        progress: Progress | None,
        workers: Workers,
    ) -> Exact:
        """Compute what is released, exactly."""
        raise NotImplementedError

    def found(self, release: Release, progress: Progress | None) -> dict[str, Any]:
        """Return what the release tells of the samples, by field of the verdict."""
        raise NotImplementedError

    def units(self, by_owner: Mapping[str, int]) -> Units:
        """Return the samples' numbers of units."""
        first, second = (sum(by_owner[name] for name in names) for names in self.samples)
        return first, second

    def check_units(self, units: Mapping[str, int]) -> None:
        if all(name in units for names in self.samples for name in names):
            self.check_sizes(self.units(units))

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where even a great difference could not be seen; without all units nothing is said."""
        if any(name not in units for names in self.samples for name in names):
            return ()
        if self.hopes(self.units(units)):
            return ()
        return (
            f"{HOPELESS}even samples that differ greatly could not be told apart; ask for more units, "
            "a larger epsilon, or fewer columns",
        )

    def summarise(
        self, table: Table, order: np.random.Generator | None = None, progress: Progress | None = None
    ) -> CuratedSummary:
        """Compute what the release needs, exactly. It never leaves the curator.

        Permutations and pairs are drawn afresh and in secret, so that it does not matter in which order a
        table yields its units. Raises StudyError where the table is not the owners' pooled one, has too many
        units, or has samples of two sizes that are to be paired.
        """
        table = pooled(self.study, table)
        first, second = (
            PooledTable(table.domain, {name: table.parts[name] for name in names}) for names in self.samples
        )
        order = order if order is not None else np.random.default_rng()
        return CuratedSummary(
            table.units_by_owner, self.exact((first, second), order, progress, workers_of(table))
        )

    def check_release(self, release: Release) -> None:
        if set(release.units_by_owner) != {owner.name for owner in self.study.owners}:
            raise ReleaseError("the release must state the units of every owner whose data it used")
        if (release.decision is not None) != self.decides or bool(release.vectors) == self.decides:
            raise ReleaseError(
                "the release holds a decision where the study asks for numbers, or the reverse"
            )

    def meaning(self, verdict: Fields) -> Meaning:
        return two_sample_meaning(self.study, verdict)

    def panels(self, verdict: Fields, releases: Releases) -> Sequence[Panel]:  # noqa: ARG002
        return effect_panels(self.study, verdict)

    def conclude(
        self,
        releases: Releases,
        units: Mapping[str, int],  # noqa: ARG002 (the release states them)
        progress: Progress | None = None,
    ) -> BaseVerdict:
        study, release = self.study, releases[self.study.senders[0].name]
        report = step(progress, "testing the samples")
        report(0.05)
        found = self.found(release, progress)
        report(1.0)
        made = self.verdict_type or CuratedTwoSampleResult
        return made(
            method=f"two-sample test at a curator: {self.method}",
            **common_fields(
                study, {owner.name: release.units_by_owner[owner.name] for owner in study.owners}
            ),
            warnings=CuratedPlan.warnings(self, release.units_by_owner) + self.caveats,
            **found,
        )


@dataclass(eq=False)
class PermutedPlan(CuratedPlan):
    """``permutation``: the private decision of a permutation test."""

    release: Permuted
    release_size: int = 1
    verdict_type: ClassVar[type[BaseVerdict]] = CuratedTwoSampleDecision
    cited: ClassVar[tuple[Citation, ...]] = (PERMUTATION,)
    decides: ClassVar[bool] = True

    @property
    def method(self) -> str:
        kernel = f"{self.parameters.kernel} product kernel"
        features = FEATURE_WORDS.get(self.parameters.features, kernel)
        return f"private decision of {self.parameters.permutations} permutations, {features}"

    def check_sizes(self, units: Units) -> None:
        try:
            check_choices(units, self.parameters.permutations)
            if isinstance(self.release, PermutedKernel):
                check_kernel(units)
        except PermutationSizeError as error:
            raise PublicRuleError("too-many-units", str(error)) from None

    def hopes(self, units: Units) -> bool:
        """Say whether the decision could reject with probability one half.

        Raising the observed statistic by M changes the density of its noise by exp(M / scale) at most.
        """
        scale = 2 * self.release.sensitivity(units) / decision_xi(self.study.budget)
        return math.log(2 * self.study.level) + self.release.norm / scale >= 0

    def exact(
        self,
        tables: tuple[PooledTable, PooledTable],
        order: np.random.Generator,
        progress: Progress | None,
        workers: Workers,
    ) -> Exact:
        seed = np.random.SeedSequence(order.integers(2**32, size=8).tolist())
        units = tables[0].units, tables[1].units
        choices = draw_choices(units, self.parameters.permutations, seed)
        return self.release.distances(tables, choices, step(progress, "permuting"), workers)

    def privatise(self, summary: CuratedSummary, noise: NoiseSource) -> Release:
        if not isinstance(summary.exact, np.ndarray):
            raise TypeError("the summary is of another release than the study's")
        units, counts = self.units(summary.units_by_owner), dict(summary.units_by_owner)
        sensitivity = self.release.sensitivity(units)
        reject = permutation_decision(summary.exact, sensitivity, self.study.level, self.study.budget, noise)
        return Release(units=sum(units), units_by_owner=counts, guarantee=self.guarantee, decision=reject)

    def check_release(self, release: Release) -> None:
        super().check_release(release)
        if release.guarantee != self.guarantee:
            raise ReleaseError("the release states another guarantee than the study")

    def found(self, release: Release, progress: Progress | None) -> dict[str, Any]:  # noqa: ARG002
        return {"reject": release.decision}


class VectorsPlan(CuratedPlan):
    """Noisy vectors of both samples."""

    form: ClassVar[str]
    """What is released and computed, in words."""

    def __post_init__(self) -> None:
        self.release_size = int(self.release.numbers)
        if self.release_size > COORDINATES_MAX:
            raise StudyError("the study asks for too many numbers; use fewer columns, levels or features")

    @property
    def method(self) -> str:
        return f"{self.form}, {FEATURE_WORDS[self.parameters.features]}"

    def layout(self, units: Units, exact: Exact | None = None) -> tuple[SumPart, ...]:
        """Lay the release out; without ``exact`` the values are zeros. Raises ReleaseError."""
        try:
            # summarise and privatise read one study, so that the exact numbers are of the release's type.
            parts: tuple[SumPart, ...] = self.release.parts(units, exact)
        except ValueError as error:
            raise ReleaseError(str(error)) from None
        return parts

    def check_sizes(self, units: Units) -> None:
        require_noise(lambda: require_drawable(self.layout(units), self.guarantee))

    def hopes(self, units: Units) -> bool:
        try:
            scales = noise_scales(self.layout(units), self.guarantee)
        except ReleaseError:
            # Samples of two sizes, planned to be paired: the curator refuses them, whatever could be seen.
            return True
        return self.shows(units, next(iter(scales.values())))

    def shows(self, units: Units, noise: float) -> bool:  # noqa: ARG002
        """Say whether they could with that noise on the first of them."""
        split = noise / math.sqrt(2), noise / math.sqrt(2)
        features = self.release.features
        return bool(detectable_squared_mmd(split, features.dimension, self.study.level) < features.norm**2)

    def exact(
        self,
        tables: tuple[PooledTable, PooledTable],
        order: np.random.Generator,  # noqa: ARG002
        progress: Progress | None,  # noqa: ARG002
        workers: Workers,  # noqa: ARG002
    ) -> Exact:
        found: Exact = self.release.sum(*tables)
        return found

    def privatise(self, summary: CuratedSummary, noise: NoiseSource) -> Release:
        units, counts = self.units(summary.units_by_owner), dict(summary.units_by_owner)
        try:
            vectors = release_sums(self.layout(units, summary.exact), self.guarantee, noise)
        except (NoiseError, ReleaseError) as error:
            raise StudyError(str(error)) from None
        return Release(units=sum(units), units_by_owner=counts, guarantee=self.guarantee, vectors=vectors)

    def check_release(self, release: Release) -> None:
        super().check_release(release)
        layout = self.layout(self.units(release.units_by_owner))
        check_layout(release.vectors, release.guarantee, layout, self.guarantee)

    def sent(self, releases: Releases) -> Release | None:
        """Return the curator's release; None where it is not at hand."""
        return releases[self.study.senders[0].name] if releases else None


class MeansPlan(VectorsPlan):
    """What tells of the samples' means: a test with estimates, and an interval of the squared MMD."""

    def means(self, release: Release) -> CuratedMeans:
        """Read both samples' private means."""
        units = self.units(release.units_by_owner)
        read = self.release.read(release.vectors, units)
        noise = read.difference_noise, read.centre_noise
        return CuratedMeans.of(read.difference, read.centre, units, noise, read.weights)

    def finding(self, release: Release, progress: Progress | None) -> CuratedFinding:
        """Test and estimate."""
        raise NotImplementedError

    def effects(self, release: Release, found: CuratedFinding) -> dict[str, tuple[Any, ...]]:  # noqa: ARG002
        """Return effects and summaries by field, where the features can tell them."""
        return {}

    def found(self, release: Release, progress: Progress | None) -> dict[str, Any]:
        study = self.study
        found = self.finding(release, progress)
        named: tuple[LocationComparison, ...] = ()
        embedding = self.release.features
        if found.witness is not None and isinstance(embedding, MeanEmbedding):
            names = ["+".join(names) for names in self.samples]
            named = location_differences(study.domain, embedding, names, {(0, 1): found.witness}, study.level)
        mmd = stated(found.mmd.squared_mmd, (found.mmd.lower, found.mmd.upper))
        return decided(study, found.statistic, found.pvalue) | {
            "squared_mmd": mmd.value,
            "squared_mmd_unbiased": mmd.unbiased,
            "lower": mmd.lower,
            "upper": mmd.upper,
            "columns": named_groups(study.domain, found.groups, study.level),
            "locations": named,
            **self.effects(release, found),
        }


@dataclass(eq=False)
class AdditivePlan(MeansPlan):
    """Means of column-wise features, with or without pairs of columns; the max form."""

    release: CuratedAdditiveRelease
    form: ClassVar[str] = "private means, max form"

    def shows(self, units: Units, noise: float) -> bool:
        """Say whether half of a sample's units, moved across a column, could be seen."""
        split = noise / math.sqrt(2), noise / math.sqrt(2)
        block = self.release.features.column_wise
        weight = max(coordinate.scale for coordinate in block.coordinates)
        share = self.study.level * (1.0 - self.release.features.choice.pair_share) / block.dimension
        return detectable_difference(split, units, weight, share) < DETECTABLE_MAX

    def finding(self, release: Release, progress: Progress | None) -> CuratedFinding:  # noqa: ARG002
        return additive_finding(self.release.features, self.means(release), 1 - self.study.level)

    def effects(self, release: Release, found: CuratedFinding) -> dict[str, tuple[Any, ...]]:
        means, names = self.means(release), ("+".join(self.samples[0]), "+".join(self.samples[1]))
        samples = Samples(names, means.means, means.units, means.mean_covariance)
        effects, summaries = effects_by_column(
            self.study.domain, self.release.features, samples, self.study.level, found.groups
        )
        return {"effects": effects, "summaries": summaries}

    def null(self, verdict: Fields, releases: Releases) -> Null | None:  # noqa: ARG002
        return max_null(self.release.features, 2, float(verdict["statistic"]), self.study.level)


@dataclass(eq=False)
class MomentsPlan(MeansPlan):
    """Means of kernel features and their pooled covariance; the MMD form."""

    release: CuratedMomentRelease
    form: ClassVar[str] = "private means and covariance, MMD form"

    @property
    def trace_max(self) -> float:
        """The most that a sample's covariances may add up to."""
        return float(self.release.features.norm**2)

    def covariance(self, means: CuratedMeans, release: Release) -> PrivateCovariance:
        """Return the noisy pooled covariance."""
        moment = self.release.read_moment(release.vectors, self.units(release.units_by_owner))
        return curated_covariance(means, *moment)

    def tested(
        self,
        means: CuratedMeans,
        covariance: PrivateCovariance,
        progress: Progress | None,  # noqa: ARG002
    ) -> tuple[float, float]:
        """Return the statistic and its p-value."""
        return mmd_test(means, covariance, self.trace_max)

    def finding(self, release: Release, progress: Progress | None) -> CuratedFinding:
        means = self.means(release)
        covariance = self.covariance(means, release)
        tested = self.tested(means, covariance, progress)
        return moment_finding(self.release.features, means, covariance, tested, 1 - self.study.level)

    def null(self, verdict: Fields, releases: Releases) -> Null | None:
        if (sent := self.sent(releases)) is None:
            return None
        means = self.means(sent)
        return self.law(means, self.covariance(means, sent), float(verdict["statistic"]))

    def law(self, means: CuratedMeans, covariance: PrivateCovariance, statistic: float) -> Null | None:
        """Return the law of a weighted sum of chi-squared values."""
        _, law = mmd_law(means, covariance, self.trace_max)
        return quadratic(WEIGHTED, (law,), statistic, self.study.level)


@dataclass(eq=False)
class NoiseAwarePlan(MomentsPlan):
    """The same in the noise-aware form, with a simulated null."""

    form: ClassVar[str] = "private means and covariance, noise-aware form, simulated null"

    def __post_init__(self) -> None:
        super().__post_init__()
        require_work(simulated_test_work(2, self.release.features.dimension), self.parameters.replicates)

    def tested(
        self, means: CuratedMeans, covariance: PrivateCovariance, progress: Progress | None
    ) -> tuple[float, float]:
        report = step(progress, "simulating the null", 0.05, 0.95)
        seed, replicates = public_seed(self.study, NULL_STREAM), self.parameters.replicates
        statistic, pvalue, _ = noise_aware_test(
            means, covariance, replicates, seed, report, trace_max=self.trace_max
        )
        return statistic, pvalue

    def law(self, means: CuratedMeans, covariance: PrivateCovariance, statistic: float) -> Null | None:  # noqa: ARG002
        seed, replicates = public_seed(self.study, NULL_STREAM), min(DRAWN_MAX, self.parameters.replicates)
        _, _, draws = noise_aware_test(means, covariance, replicates, seed, trace_max=self.trace_max)
        return from_draws(SIMULATED, draws, self.study.level)


@dataclass(eq=False)
class PairedPlan(VectorsPlan):
    """P0's release of paired differences, with its statistic and null."""

    release: PairedRelease
    form: ClassVar[str] = "private mean and covariance of paired differences, P0's statistic and null"
    caveats: ClassVar[tuple[str, ...]] = (
        "this null distribution treats the noisy covariance as exact: its level is not kept under privacy",
    )

    @property
    def method(self) -> str:
        return f"{super().method}, P0's calibration"

    def check_sizes(self, units: Units) -> None:
        try:
            require_equal(units)
        except UnequalSamplesError as error:
            raise PublicRuleError("unequal-sizes", str(error)) from None
        super().check_sizes(units)

    def shows(self, units: Units, noise: float) -> bool:
        return super().shows(units, noise / units[0])

    def exact(
        self,
        tables: tuple[PooledTable, PooledTable],
        order: np.random.Generator,
        progress: Progress | None,  # noqa: ARG002
        workers: Workers,  # noqa: ARG002
    ) -> Exact:
        return self.release.sum(*tables, order)

    def _law(self, release: Release) -> Any:
        mean, (units, _) = release.vectors[MEAN], self.units(release.units_by_owner)
        moment = read_second_moment(release.vectors, units)
        gamma = self.parameters.regularisation or PAPER_REGULARISATION
        return paired_law(mean.mean(units), moment, units, mean.scale / units, gamma)

    def found(self, release: Release, progress: Progress | None) -> dict[str, Any]:  # noqa: ARG002
        statistic, law = self._law(release)
        return decided(self.study, statistic, law.pvalue(statistic))

    def null(self, verdict: Fields, releases: Releases) -> Null | None:
        if (sent := self.sent(releases)) is None:
            return None
        words = "a weighted sum of chi-squared values, in which the noisy covariance counts as exact"
        return quadratic(words, (self._law(sent)[1],), float(verdict["statistic"]), self.study.level)


@dataclass(eq=False)
class RidgePlan(VectorsPlan):
    """``statistic``: one noisy ridge statistic."""

    release: RidgeRelease
    form: ClassVar[str] = "private ridge statistic"
    caveats: ClassVar[tuple[str, ...]] = (
        "one noisy statistic is a weak release by nature: mean-covariance sees much more",
    )

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        return super().warnings(units) + ((KEPT_FOR_HISTORY,) if units else ())

    def shows(self, units: Units, noise: float) -> bool:
        """Say whether the statistic of samples at opposite ends would be above its noise."""
        energy, gamma = self.release.features.norm**2, self.release.regularisation
        eigenvalue = energy / self.release.features.dimension
        null = self.release.features.dimension * eigenvalue / (eigenvalue + gamma)
        seen = null + noise * float(ndtri(POWER) - ndtri(self.study.level))
        return units[0] * units[1] / sum(units) * energy / (energy / 2 + gamma) >= seen

    def found(self, release: Release, progress: Progress | None) -> dict[str, Any]:  # noqa: ARG002
        noisy, features = release.vectors[STATISTIC], self.release.features
        statistic = float(noisy.mean(1)[0])
        units, gamma = sum(self.units(release.units_by_owner)), self.release.regularisation
        pvalue = ridge_pvalue(
            statistic, units, features.dimension, gamma, norm=features.norm, noise=noisy.scale
        )
        return decided(self.study, statistic, pvalue)

    def null(self, verdict: Fields, releases: Releases) -> Null | None:
        if (sent := self.sent(releases)) is None:
            return None
        units, features = sum(self.units(verdict["units"])), self.release.features
        noise = next(iter(sent.vectors.values())).scale
        gamma = self.release.regularisation
        laws = ridge_laws(units, features.dimension, gamma, norm=features.norm, noise=noise)
        words = "the heaviest weighted chi-squared law of its kind, with the noise"
        return quadratic(words, laws, float(verdict["statistic"]), self.study.level)


def curated_plan(
    study: Study, parameters: CuratedTwoSampleParameters, samples: Names, form: Form
) -> CuratedPlan:
    """Return the plan of a study's form; raises StudyError where it cannot be run as written."""
    domain, rng = study.domain, np.random.default_rng(public_seed(study, LOCATIONS_STREAM))
    if form == "permutation":
        if rank_max(study.level, parameters.permutations + 1) < 1:
            raise StudyError("the level is below 1 / (permutations + 1): ask for more permutations")
        permuted = permuted_of(domain, parameters, rng)
        return PermutedPlan(study, parameters, samples, decision_guarantee(study.budget), permuted)
    guarantee = (halved_guarantee if form == "paired" else gaussian_guarantee)(study.budget)
    plan: VectorsPlan
    if form == "max":
        features = additive_features(domain, parameters, pairs=parameters.features == "auto")
        weight = max(coordinate.scale for coordinate in features.column_wise.coordinates)
        weight *= math.sqrt(1 - features.choice.pair_share)
        share = centre_share(weight, features.diameter, mu_of(guarantee))
        release = CuratedAdditiveRelease(AdditiveRelease(features), share)
        plan = AdditivePlan(study, parameters, samples, guarantee, release)
    elif form == "ridge":
        gamma = parameters.regularisation or STATISTIC_REGULARISATION
        ridge = RidgeRelease(ridge_features(domain, parameters, rng), gamma)
        plan = RidgePlan(study, parameters, samples, guarantee, ridge)
    elif form == "paired":
        paired = PairedRelease(features_of(domain, parameters, rng, raw=True))
        plan = PairedPlan(study, parameters, samples, guarantee, paired)
    else:
        shares = MomentShares(parameters.mean_share, 1 - parameters.mean_share)
        embedded = MomentRelease(features_of(domain, parameters, rng), shares)
        moments = CuratedMomentRelease(embedded, MOMENT_CENTRE_SHARE)
        kind = NoiseAwarePlan if form == "noise-aware" else MomentsPlan
        plan = kind(study, parameters, samples, guarantee, moments)
    return plan


SAMPLE = "sample"
"""Name of the column that says which sample a unit is in."""


@dataclass(frozen=True)
class OfSample:
    """An owner's table with a last categorical column: which of two samples its units are in."""

    own: Table
    domain: Domain
    sample: int

    @property
    def units(self) -> int:
        """Number of privacy units."""
        return self.own.units

    def chunks(self) -> Iterator[EncodedChunk]:
        """Yield the chunks, each row with its sample."""
        for chunk in self.own.chunks():
            codes = np.full((chunk.rows, 1), self.sample, dtype=np.int32)
            yield replace(chunk, categorical=np.concatenate([chunk.categorical, codes], axis=1))


class SamplesPlan(JointPlan):
    """Whether the sample, a public column, and the columns of units that are pooled are independent."""

    samples: Names

    def __init__(self, samples: Names, *given: Any) -> None:
        super().__init__(*given)
        self.samples = samples

    def summarise(
        self, table: Table, order: np.random.Generator | None = None, progress: Progress | None = None
    ) -> Any:
        table, domain = pooled(self.study, table), self.study.domain
        parts = {
            name: OfSample(table.parts[name], domain, place)
            for place, names in enumerate(self.samples)
            for name in names
        }
        ordered = {owner.name: parts[owner.name] for owner in self.study.owners}
        return super().summarise(PooledTable(domain, ordered), order, progress)

    def found(self, sent: Releases, units: Mapping[str, int], progress: Progress | None) -> dict[str, Any]:
        found = super().found(sent, units, progress)
        return found | {"method": f"two-sample test at a curator: {found['method']}"}

    def meaning(self, verdict: Fields) -> Meaning:
        return two_sample_meaning(self.study, verdict)


class SamplesByBlocks(SamplesPlan, BlocksTested):
    """``aggregate``: how many blocks of units reject."""

    verdict_type = CuratedTwoSampleBlocks
    cited = (PERMUTATION,)


class SamplesByTable(SamplesPlan, TableTested):
    """``table``: a noisy table of the sample and the columns' cells."""

    verdict_type = CuratedTwoSampleTable
    cited = (KERNEL,)


def pure_plan(study: Study, parameters: CuratedTwoSampleParameters, samples: Names) -> JointPlan:
    """Return the plan of a study by blocks or a table: the sample is the last column of its domain."""
    names, name = [column.name for column in study.domain.columns], SAMPLE
    while name in names:
        name += "_"
    sample = CategoricalColumn(name=name, levels=("first", "second"))
    study = study.model_copy(update={"domain": Domain(columns=(*study.domain.columns, sample))})
    variables, blocks = ((name,), tuple(names)), parameters.blocks
    layout = table_or_blocks(study, variables, parameters.release, blocks, parameters.categories)
    if layout is None:
        return SamplesByBlocks(samples, study, variables, DISTANCES, blocks, MaskedParameters())
    return SamplesByTable(samples, study, variables, layout, parameters.permutations)
