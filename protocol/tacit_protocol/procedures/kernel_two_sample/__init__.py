"""The kernel two-sample test between 2..k owners who trust no one.

P0 is Raj, Law, Sejdinovic and Park, *A differentially private kernel two-sample test*; what is corrected and
sharpened is derived in docs/mathematics/features.md and docs/mathematics/kernel-two-sample.md.

Every owner releases the noisy mean of bounded features of its units (and, for the ME and SCF features, their
noisy second moment) in one joint Gaussian release; the tester asks whether one distribution explains all.
By default it asks by the max form (means/max_form.py: chi-squared laws and Sidak's correction); the others
are in means/private_means.py.
"""

from collections.abc import Mapping
from functools import partial
from typing import Any, ClassVar

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from tacit_protocol.domain import Table
from tacit_protocol.features.additive import AdditiveFeatures, AdditiveRelease, AdditiveSums
from tacit_protocol.features.cell_means import CellFeatures, CellRelease
from tacit_protocol.features.moments import DIAGONAL, MEAN, FeatureSums, MomentRelease, read_second_moment
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.procedures.base import (
    HOPELESS,
    Fields,
    Procedure,
    Progress,
    QuestionTemplate,
    ReleaseError,
    Releases,
    StudyError,
    common_fields,
    decided,
    public_seed,
    require_noise,
    require_shared_columns,
    require_work,
    reuse_warnings,
    step,
    units_declared,
)
from tacit_protocol.procedures.means.effects import OWNERS_COMPARED_MAX, Samples, effects_by_column
from tacit_protocol.procedures.means.max_form import additive_families, max_null, named_groups
from tacit_protocol.procedures.means.private_means import (
    PrivateMeans,
    mmd_law,
    noise_aware_test,
    simulated_test_work,
)
from tacit_protocol.procedures.populations import Difference, SimulationModel
from tacit_protocol.procedures.two_sample.release import (
    KernelTwoSampleParameters,
    TwoSamplePlan,
    cells_by_default,
    fitting_noise,
    leaves_noise,
    plan_of,
    require_same_release,
)
from tacit_protocol.procedures.two_sample.statistic import (
    DETECTABLE_MAX,
    Finding,
    LocationComparison,
    MeanEmbedding,
    PairFinding,
    PrivateMoments,
    TwoSampleTest,
    detectable_difference,
    detectable_squared_mmd,
    locations_of_owners,
    published_law,
)
from tacit_protocol.procedures.two_sample.verdict import (
    FEATURE_CHOICES,
    ONE_POPULATION,
    PairComparison,
    TwoSampleResult,
    effect_panels,
    two_sample_meaning,
)
from tacit_protocol.verdicts.base import BaseVerdict, JointEffect, Stated, Summary, stated
from tacit_protocol.verdicts.presentation import (
    DRAWN_MAX,
    KERNEL,
    SIMULATED,
    WEIGHTED,
    Citation,
    Meaning,
    Null,
    RowsPanel,
    chi_square,
    from_draws,
    quadratic,
)

NULL_STREAM = 2
"""Spawn key under the study's seed of simulated null distributions; public choices have another."""


class KernelTwoSample(Procedure):
    """See the module. Registered as ``kernel_two_sample``."""

    name: ClassVar[str] = "kernel_two_sample"
    title: ClassVar[str] = "Do the owners' records come from one population?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure"))
    divided_for: ClassVar[frozenset[Family] | None] = frozenset(("gaussian",))
    Parameters: ClassVar[type[BaseModel]] = KernelTwoSampleParameters
    Verdict: ClassVar[type[BaseVerdict]] = TwoSampleResult
    released: ClassVar[str] = "the mean of bounded features of its units"
    cited: ClassVar[tuple[Citation, ...]] = (KERNEL,)
    question: ClassVar[QuestionTemplate | None] = ONE_POPULATION
    population: ClassVar[type[SimulationModel] | None] = Difference
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = FEATURE_CHOICES

    def defaults(self, study: Study, units: Mapping[str, int] | None = None) -> Mapping[str, Any]:
        """Return the noise and features that suit numbers of units, where the study leaves both.

        Without ``units`` it is K-norm noise where there is no delta, of the units if all owners declare them.
        """
        given, declared = study.parameters, units_declared(study)
        known = min(declared.values()) if len(declared) == len(study.owners) else None
        if units is not None and leaves_noise(study):
            fitting = fitting_noise(study, min(units.values()))
            if fitting:
                return fitting
        if given.get("noise") == "k-norm":
            return cells_by_default(study, known)
        if study.budget.delta_pico == 0 and leaves_noise(study):
            if known is not None:
                return fitting_noise(study, known)
            return {"noise": "k-norm", **cells_by_default(study, None)}
        return {}

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        if study.curator is not None:
            raise StudyError("owners send their own releases here; with a curator use curated_two_sample")
        if len(study.owners) < 2:
            raise StudyError("a two-sample test needs at least two owners")
        plan, owners = plan_of(study), len(study.owners)
        if plan.form == "noise-aware" and isinstance(plan.release, MomentRelease):
            pairs = owners * (owners - 1) // 2 if 2 < owners <= OWNERS_COMPARED_MAX else 0
            one = simulated_test_work(owners, plan.release.features.dimension)
            pair = simulated_test_work(2, plan.release.features.dimension)
            require_work(one + pairs * pair, plan.parameters.replicates)
        # Noise is widest, in grid steps, of the fewest units: their grid is the finest.
        require_noise(lambda: plan.require_drawable(1))

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where the noise of so many units cannot be drawn."""
        plan = plan_of(study)
        for count in units.values():
            require_noise(partial(plan.require_drawable, count))

    def cost(self, study: Study) -> Guarantee:
        """Return what each owner spends: the study's whole budget, in one joint Gaussian release."""
        return plan_of(study).guarantee

    def release_size(self, study: Study) -> int:
        """Return how many noisy numbers one owner sends."""
        return plan_of(study).release.numbers

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say what differences the study could not see at these numbers of units, by owner."""
        if len(units) < 2:
            return ()
        plan = plan_of(study)
        owners = sorted(units, key=lambda owner: units[owner], reverse=True)
        detectable = [_detectable(plan, study, (units[owners[0]], units[owner])) for owner in owners[1:]]
        advice = "ask for more units, a larger epsilon, or fewer columns"
        if detectable[0] >= 1:
            return (
                f"{HOPELESS}even its two largest owners could differ greatly and not be told apart; {advice}",
            )
        blind = [owner for owner, value in zip(owners[1:], detectable, strict=True) if value >= 1]
        if not blind:
            return ()
        return (f"differences of {', '.join(blind)} from the largest owner will not be seen; {advice}",)

    def summarise(self, study: Study, table: Table) -> FeatureSums | AdditiveSums:
        """Sum the units' features, exactly. The sums never leave the owner."""
        return plan_of(study).release.sum(table)

    def privatise(self, study: Study, summary: FeatureSums | AdditiveSums, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states, jointly, to the sums."""
        plan = plan_of(study)
        vectors = plan.privatise(summary, noise)
        return Release(units=summary.units, guarantee=plan.guarantee, vectors=vectors)

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        plan_of(study).check(release.vectors, release.guarantee, release.units)

    def reread(self, study: Study, owner: Owner, source: Study, release: Release) -> Release:  # noqa: ARG002
        """Return a release as it is, where it was made for the same columns, features and noise.

        A database release is a mean without a second moment, with less noise: the MMD form takes it
        (``EmbeddingRelease.check_borrower``).

        Raises:
            StudyError: it was not; says which of them to make the same.
        """
        if source.procedure == self.name:
            require_same_release(study, source)
        else:
            raise StudyError(f"{self.name} reads releases of {self.name} and embedding_release, no others")
        return release

    def check_reread(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where a release that is read again is not the study's, or its mean alone."""
        if set(release.vectors) != {MEAN} or not isinstance(plan_of(study).release, MomentRelease):
            self.check_release(study, release)
            return
        vector, dimension = release.vectors[MEAN], plan_of(study).release.features.dimension
        if len(vector.values) != dimension or vector.noise != "gaussian":
            raise ReleaseError(
                "the earlier mean has not one coordinate with Gaussian noise for each location"
            )

    def describe_request(self, study: Study) -> tuple[str, ...]:
        """Say which noise is asked for and why, where it is none on many features."""
        plan = plan_of(study)
        if not isinstance(plan.release, CellRelease):
            return ()
        why = "there is no delta" if study.budget.delta_pico == 0 else "so few numbers carry less noise so"
        cells = plan.release.features.cells
        found = (
            f"releases {cells.body.dimension} numbers, counts of cells of columns"
            f"{' and of their pairs' * cells.pairs} and means, in "
            f"noise of pure epsilon that fits them (k-norm): {why}",
        )
        if not cells.fine:
            return found
        return (
            *found,
            f"releases {cells.fine} counts of fine cells of numeric columns, in Laplace noise of a fifth of "
            "epsilon: they show differences of data that lie close together",
        )

    def what_is_released(self, study: Study) -> str:
        """Name cells, or features."""
        release = plan_of(study).release
        if not isinstance(release, CellRelease):
            return self.released
        fine = ", and counts of fine cells" * bool(release.features.cells.fine)
        return f"counts of cells of the columns, and means of numbers within them{fine}"

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        return two_sample_meaning(study, verdict)

    def panels(self, study: Study, verdict: Fields, releases: Releases) -> list[RowsPanel]:  # noqa: ARG002
        """Return forest plots of the differences in the columns that differ, or in the first ones."""
        return effect_panels(study, verdict)

    def null(self, study: Study, verdict: Fields, releases: Releases) -> Null | None:
        """Work out the null distribution again; simulations are the verdict's, or the first of them."""
        plan, statistic = plan_of(study), float(verdict["statistic"])
        features, owners = plan.release.features, len(verdict["units"])
        if isinstance(features, CellFeatures):
            return None
        if plan.form == "max" and isinstance(features, AdditiveFeatures):
            return max_null(features, owners, statistic, study.level)
        if plan.form == "asymptotic":
            return chi_square(features.dimension, statistic, study.level)
        return _kernel_moments(study, plan, releases, statistic) if releases else None

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> TwoSampleResult:
        """Compute the verdict: post-processing alone, the same for everyone."""
        plan = plan_of(study)
        report = step(progress, "testing all owners together")
        names = [owner.name for owner in study.owners]
        evidence = evidence_of(plan, [releases[name] for name in names])
        test = planned_test(plan, study)
        report(0.05)
        overall = test.run(evidence, progress=step(progress, "simulating the null", 0.05, 0.5))
        compared = step(progress, "comparing pairs of owners", 0.5)
        compared(0.0)
        pairs = tuple(
            _compared(names, found, study.level)
            for found in test.compare_pairs(
                evidence,
                overall,
                # Bonferroni over the pairs, so that their average is covered too.
                1 - study.level / max(1, len(names) * (len(names) - 1) // 2),
                compared,
            )
        )
        units = {name: releases[name].units for name in names}
        average = _average(pairs)
        effects, summaries = _effects(plan, study, _samples(plan, names, evidence), overall)
        return TwoSampleResult(
            method=_method(plan),
            **decided(study, overall.statistic, overall.pvalue),
            **common_fields(study, units),
            squared_mmd=None if average is None else average.value,
            squared_mmd_unbiased=None if average is None else average.unbiased,
            lower=None if average is None else average.lower,
            upper=None if average is None else average.upper,
            pairs=pairs,
            columns=named_groups(study.domain, overall.groups, study.level),
            locations=_named_locations(plan, study, evidence),
            effects=effects,
            summaries=summaries,
            warnings=self.warnings(study, units) + _caveats(plan) + reuse_warnings(study),
        )


def _effects(
    plan: TwoSamplePlan, study: Study, samples: Samples, overall: Finding
) -> tuple[tuple[JointEffect, ...], tuple[Summary, ...]]:
    """Return the effects and summaries that the features can tell; none of kernel features."""
    features = plan.release.features
    if not isinstance(features, AdditiveFeatures):
        return (), ()
    return effects_by_column(study.domain, features, samples, study.level, overall.groups)


def _samples(plan: TwoSamplePlan, names: list[str], evidence: PrivateMoments) -> Samples:
    law = plan.release.features.cells.law if isinstance(plan.release, CellRelease) else None
    return Samples.of_owners(names, evidence.means, law)


def _compared(names: list[str], found: PairFinding, level: float) -> PairComparison:
    mmd = None if found.mmd is None else stated(found.mmd.squared_mmd, (found.mmd.lower, found.mmd.upper))
    return PairComparison(
        first=names[found.first],
        second=names[found.second],
        pvalue=found.pvalue,
        reject=found.pvalue <= level,
        squared_mmd=None if mmd is None else mmd.value,
        squared_mmd_unbiased=None if mmd is None else mmd.unbiased,
        lower=None if mmd is None else mmd.lower,
        upper=None if mmd is None else mmd.upper,
    )


def _average(pairs: tuple[PairComparison, ...]) -> Stated | None:
    """Average over pairs of owners: of unbiased estimates, whose mean is unbiased too."""
    told = [(pair.squared_mmd_unbiased, pair.lower, pair.upper) for pair in pairs]
    if not told or told[0][0] is None:
        return None
    estimate, lower, upper = np.array(told, dtype=np.float64).mean(axis=0).tolist()
    return stated(estimate, (lower, upper))


def planned_test(plan: TwoSamplePlan, study: Study) -> TwoSampleTest:
    """Return the test that a study plans."""
    features = plan.release.features if isinstance(plan.release, AdditiveRelease) else None
    return TwoSampleTest(
        form=plan.form,
        features=features,
        families=()
        if features is None or isinstance(features, CellFeatures)
        else additive_families(features),
        replicates=plan.parameters.replicates,
        regularisation=plan.parameters.regularisation,
        seed=public_seed(study, NULL_STREAM),
        trace_max=plan.release.features.norm**2,
    )


def _named_locations(
    plan: TwoSamplePlan, study: Study, evidence: PrivateMoments
) -> tuple[LocationComparison, ...]:
    features = plan.release.features
    if not isinstance(features, MeanEmbedding):
        return ()
    names = [owner.name for owner in study.owners]
    return locations_of_owners(study.domain, features, names, evidence, study.level)


def evidence_of(plan: TwoSamplePlan, releases: list[Release]) -> PrivateMoments:
    """Read the releases of a study, in the order of its owners."""
    units = np.array([release.units for release in releases], dtype=np.float64)
    read = [plan.release.read(release.vectors, release.units) for release in releases]
    means = PrivateMeans(np.stack([mean for mean, _ in read]), units, np.array([noise for _, noise in read]))
    if isinstance(plan.release, CellRelease) and plan.release.features.cells.fine:
        found = [plan.release.read_fine(release.vectors, release.units) for release in releases]
        shares, noise = np.stack([own for own, _ in found]), np.array([scale for _, scale in found])
        return PrivateMoments(means, fine=PrivateMeans(shares, units, noise))
    if isinstance(plan.release, AdditiveRelease):
        return PrivateMoments(means)
    moments = np.stack([_second_moment(release, means.dimension) for release in releases])
    scales = [r.vectors[DIAGONAL].scale if DIAGONAL in r.vectors else np.inf for r in releases]
    return PrivateMoments(means, moments, np.array(scales) / units)


def _second_moment(release: Release, dimension: int) -> npt.NDArray[np.float64]:
    """Return a release's second moment, (J, J); zeros of a database, whose noise counts as infinite."""
    if DIAGONAL not in release.vectors:
        return np.zeros((dimension, dimension))
    return read_second_moment(release.vectors, release.units)


def _detectable(plan: TwoSamplePlan, study: Study, units: tuple[int, int]) -> float:
    """Return the detectable difference between two owners, relative to the one that is called hopeless."""
    noise = (plan.mean_noise(units[0]), plan.mean_noise(units[1]))
    features = plan.release.features
    if not isinstance(features, AdditiveFeatures):
        return detectable_squared_mmd(noise, features.dimension, study.level) / features.norm**2
    block = features.column_wise
    weight = max(own.scale for own in block.coordinates if own.part not in ("cell", "contrast"))
    tested = features.cells.body.dimension if isinstance(features, CellFeatures) else block.dimension
    level = study.level * (1.0 - features.choice.pair_share) / tested
    return detectable_difference(noise, units, weight, level) / DETECTABLE_MAX


def _method(plan: TwoSamplePlan) -> str:
    forms = {
        "max": "max form",
        "mmd": "MMD form, exact weighted chi-squared null",
        "noise-aware": "noise-aware form, simulated null",
        "weighted": "P0's statistic, weighted chi-squared null",
        "asymptotic": "P0's statistic, chi-squared null",
    }
    features = {
        "auto": "column-wise and pairwise features",
        "columns": "column-wise features",
        "me": "mean-embedding features",
        "scf": "smooth characteristic features",
    }
    raw = ", P0's calibration" if plan.parameters.calibration == "paper" else ""
    if isinstance(plan.release, CellRelease):
        of = "columns and pairs" if plan.release.features.cells.pairs else "columns"
        return f"two-sample test: largest contrast of cells, {of}, K-norm noise in its null"
    return f"kernel two-sample test: {forms[plan.form]}, {features[plan.parameters.features]}{raw}"


def _caveats(plan: TwoSamplePlan) -> tuple[str, ...]:
    if plan.form not in ("weighted", "asymptotic"):
        return ()
    return (
        "this null distribution treats the noisy covariance as exact: its level is not kept under privacy",
    )


def _kernel_moments(study: Study, plan: TwoSamplePlan, releases: Releases, statistic: float) -> Null | None:
    evidence = evidence_of(plan, [releases[owner.name] for owner in study.owners])
    covariance, test = evidence.covariance(), planned_test(plan, study)
    if plan.form == "mmd":
        _, law = mmd_law(evidence.means, covariance, test.trace_max)
        return quadratic(WEIGHTED, (law,), statistic, study.level)
    if covariance is None:
        return None
    if plan.form == "weighted":
        _, law = published_law(evidence.means, covariance, test.regularisation)
        words = "a weighted sum of chi-squared values, in which the noisy covariance counts as exact"
        return quadratic(words, (law,), statistic, study.level)
    # The verdict's own seed: the first test of the study has number 0.
    seed = np.random.SeedSequence(test.seed.entropy, spawn_key=(*test.seed.spawn_key, 0))
    replicates = min(DRAWN_MAX, test.replicates)
    _, _, draws = noise_aware_test(evidence.means, covariance, replicates, seed, trace_max=test.trace_max)
    return from_draws(SIMULATED, draws, study.level)
