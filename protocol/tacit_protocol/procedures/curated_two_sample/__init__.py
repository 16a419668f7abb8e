"""The kernel two-sample test at a trusted curator, who holds both samples and adds noise once.

Three releases (docs/mathematics/trusted-curator.md): ``mean-covariance``, the private difference of the
samples' mean features with what its null distribution needs (P0's TCMC, sharpened); ``statistic``, one noisy
statistic (P0's TCS with a sensitivity that holds), kept for history; ``permutation``, the private decision of
a permutation test (dpMMD of Kim and Schrab). P0 is Raj, Law, Sejdinovic and Park, *A differentially private
kernel two-sample test*. Replacing one individual replaces one unit of one sample.

``aggregate`` and ``table`` are ``joint_independence`` of the sample, a public column, and the columns: the
noisy number of blocks that reject, and a noisy table of cells, both in pure epsilon.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, ClassVar, cast

import numpy as np
import numpy.typing as npt
from pydantic import BaseModel

from tacit_protocol.domain import PooledTable, Table, Workers, workers_of
from tacit_protocol.features.moments import MEAN, read_second_moment
from tacit_protocol.messages.study import Release, Study
from tacit_protocol.privacy.accounting import Family
from tacit_protocol.privacy.gaussian_mechanism import check_layout, release_sums
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.privacy.noise import NoiseError, NoiseSource
from tacit_protocol.privacy.permutation_test import permutation_decision
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
    decided,
    public_seed,
    require_shared_columns,
    require_work,
    step,
    units_declared,
)
from tacit_protocol.procedures.curated_two_sample.permuted_means import draw_choices
from tacit_protocol.procedures.curated_two_sample.plan import (
    NULL_STREAM,
    PAPER_REGULARISATION,
    CuratedPlan,
    CuratedTwoSampleParameters,
    Exact,
    Permuted,
    joint_study,
    method_of,
    parameters_of,
    plan_of,
    with_samples,
)
from tacit_protocol.procedures.curated_two_sample.release import (
    STATISTIC,
    CuratedAdditiveRelease,
    CuratedMomentRelease,
    PairedRelease,
    RidgeRelease,
    ridge_laws,
    ridge_pvalue,
)
from tacit_protocol.procedures.curated_two_sample.statistic import (
    CuratedFinding,
    CuratedMeans,
    MomentTest,
    additive_finding,
    curated_covariance,
    paired_law,
)
from tacit_protocol.procedures.joint_independence import (
    JointIndependence,
    JointIndependenceResult,
    JointSummary,
)
from tacit_protocol.procedures.means.effects import Samples, effects_by_column
from tacit_protocol.procedures.means.max_form import max_null, named_groups
from tacit_protocol.procedures.means.private_means import mmd_law, noise_aware_test, simulated_test_work
from tacit_protocol.procedures.populations import Difference, SimulationModel
from tacit_protocol.procedures.quantile_tables.verdict import CellsTableResult
from tacit_protocol.procedures.two_sample.statistic import (
    LocationComparison,
    MeanEmbedding,
    location_differences,
)
from tacit_protocol.procedures.two_sample.verdict import (
    FEATURE_CHOICES,
    ONE_POPULATION,
    TwoSampleResult,
    effect_panels,
    two_sample_meaning,
)
from tacit_protocol.verdicts.base import BaseVerdict, DecisionResult, stated
from tacit_protocol.verdicts.presentation import (
    DRAWN_MAX,
    KERNEL,
    PERMUTATION,
    SIMULATED,
    WEIGHTED,
    Citation,
    Meaning,
    Null,
    RowsPanel,
    from_draws,
    quadratic,
)


class CuratedTwoSampleDecision(DecisionResult):
    """Whether the two samples were found to differ: what the permutation release says, and nothing finer."""

    if_rejected: ClassVar[str] = "the owners' records differ"
    if_not_rejected: ClassVar[str] = "no difference between the owners' records shown"


class CuratedTwoSampleBlocks(JointIndependenceResult):
    """Whether the two samples differ, from the noisy number of blocks of units that reject."""

    if_rejected: ClassVar[str] = CuratedTwoSampleDecision.if_rejected


class CuratedTwoSampleTable(CellsTableResult):
    """Whether the two samples differ, from a noisy table of the sample and the columns' cells.

    ``pairs`` says of every column how strongly its cells depend on the sample: a positive correlation means
    larger values in the second one.
    """

    if_rejected: ClassVar[str] = CuratedTwoSampleDecision.if_rejected
    if_not_rejected: ClassVar[str] = CuratedTwoSampleDecision.if_not_rejected


JOINT = JointIndependence()
"""Answers studies by blocks and tables."""


class CuratedTwoSampleResult(TwoSampleResult):
    """Whether the two samples come from one distribution and, as far as the release tells, by how much.

    A field that the release does not allow is absent: ``statistic`` has none below ``warnings`` but
    ``statistic`` and ``pvalue``.
    """


BY_PERMUTATION = ("permutation", "aggregate", "auto")
"""Releases of permutation tests."""

KEPT_FOR_HISTORY = (
    "release 'statistic' is kept for history, and no plan chooses it: mean-covariance sees much more for the "
    "same budget"
)
"""Said before a study is run; a verdict has said it in other words since there were verdicts."""


@dataclass(frozen=True)
class CuratedSummary:
    """Exact numbers, with the public counts. They never leave the curator."""

    units_by_owner: Mapping[str, int]
    exact: Exact = field(repr=False)


class SampleDifference(Difference):
    """Rows of owners of whom all of the second sample's are shifted, or spread otherwise."""

    @property
    def others(self) -> Sequence[int]:
        """Places of the second sample's owners."""
        named = self.study.parameters.get("samples")
        if named is None:
            return super().others
        return [place for place, owner in enumerate(self.study.owners) if owner.name in named[1]]


class CuratedTwoSample(Procedure):
    """See the module. Registered as ``curated_two_sample``."""

    name: ClassVar[str] = "curated_two_sample"
    title: ClassVar[str] = "Do two samples that a curator holds come from one population?"
    families: ClassVar[frozenset[Family]] = frozenset(("gaussian", "pure", "approximate"))
    decides: ClassVar[bool] = True
    Parameters: ClassVar[type[BaseModel]] = CuratedTwoSampleParameters
    Verdict: ClassVar[type[BaseVerdict]] = CuratedTwoSampleResult
    released: ClassVar[str] = "what the two-sample statistic needs of the features of both samples"
    question: ClassVar[QuestionTemplate | None] = ONE_POPULATION
    held_by: ClassVar[frozenset[Holder]] = frozenset({"curator"})
    population: ClassVar[type[SimulationModel] | None] = SampleDifference
    choices: ClassVar[tuple[Mapping[str, Any], ...]] = (
        {},
        *({"release": "mean-covariance"} | dict(choice) for choice in FEATURE_CHOICES),
    )

    def check(self, study: Study) -> None:
        """Raise StudyError where the study cannot be run as written."""
        require_shared_columns(study)
        if study.curator is None:
            raise StudyError("this procedure needs a curator; without one use kernel_two_sample")
        joint = joint_study(study)
        if joint is not None:
            JOINT.check(joint)
            return
        plan = plan_of(study)
        if plan.form == "noise-aware" and isinstance(plan.release, CuratedMomentRelease):
            work = simulated_test_work(2, plan.release.features.dimension)
            require_work(work, plan.parameters.replicates)
        self.check_units(study, units_declared(study))

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where samples of these sizes cannot be paired, or not be permuted."""
        joint = joint_study(study)
        if joint is not None:
            JOINT.check_units(joint, units)
            return
        plan = plan_of(study)
        if all(name in units for names in plan.samples for name in names):
            plan.check_units(plan.units(units))

    def verdict_type(self, study: Study) -> type[BaseVerdict]:
        """Return what a study's verdict is: a test, or a decision alone."""
        joint = joint_study(study)
        if joint is not None:
            tables = issubclass(JOINT.verdict_type(joint), CellsTableResult)
            return CuratedTwoSampleTable if tables else CuratedTwoSampleBlocks
        release = parameters_of(study).release
        return CuratedTwoSampleDecision if release == "permutation" else CuratedTwoSampleResult

    def cost(self, study: Study) -> Guarantee:
        """Return what every owner spends: the study's whole budget, in one release for all of them."""
        joint = joint_study(study)
        return plan_of(study).guarantee if joint is None else JOINT.cost(joint)

    def what_is_released(self, study: Study) -> str:
        """Name what the two-sample statistic needs, or the count of blocks, or the table."""
        joint = joint_study(study)
        return self.released if joint is None else JOINT.what_is_released(joint)

    def release_size(self, study: Study) -> int:
        """Return how many noisy numbers the curator sends; 1 for a decision."""
        joint = joint_study(study)
        if joint is not None:
            return JOINT.release_size(joint)
        release = plan_of(study).release
        return 1 if isinstance(release, Permuted) else release.numbers

    def warnings(self, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where a study asks for the weak release, or could not see even a great difference.

        ``units`` are by owner; without them nothing is said.
        """
        joint = joint_study(study)
        if joint is not None:
            return JOINT.warnings(joint, units)
        plan = plan_of(study)
        history = (KEPT_FOR_HISTORY,) if units and plan.form == "ridge" else ()
        return _hopeless(plan, study, units) + history

    def summarise(
        self,
        study: Study,
        table: Table,
        progress: Progress | None = None,
        order: np.random.Generator | None = None,
    ) -> CuratedSummary | JointSummary:
        """Compute what the release needs, exactly. It never leaves the curator.

        Permutations and pairs are drawn afresh and in secret, so that it does not matter in which order a
        table yields its units; ``order`` fixes them, for audits and simulations alone. Raises StudyError
        where the table is not the owners' pooled one, has too many units, or has samples of two sizes that
        are to be paired.
        """
        if not isinstance(table, PooledTable) or set(table.parts) != {owner.name for owner in study.owners}:
            raise StudyError("the curator must hold the data sets of all owners of the study")
        joint = joint_study(study)
        if joint is not None:
            return JOINT.summarise(joint, with_samples(study, joint, table), progress, order)
        plan = plan_of(study)
        order = order if order is not None else np.random.default_rng()
        exact = _exact(plan, plan.tables(table), order, progress, workers_of(table))
        return CuratedSummary(table.units_by_owner, exact)

    def privatise(self, study: Study, summary: CuratedSummary | JointSummary, noise: NoiseSource) -> Release:
        """Add the noise that ``cost`` states."""
        joint = joint_study(study)
        if joint is not None and not isinstance(summary, CuratedSummary):
            return JOINT.privatise(joint, summary, noise)
        if not isinstance(summary, CuratedSummary):
            raise TypeError("the summary is of another release than the study's")
        plan = plan_of(study)
        units = plan.units(summary.units_by_owner)
        counts = dict(summary.units_by_owner)
        if isinstance(plan.release, Permuted):
            statistics = cast(npt.NDArray[np.float64], summary.exact)
            sensitivity = plan.release.sensitivity(units)
            reject = permutation_decision(statistics, sensitivity, study.level, study.budget, noise)
            return Release(units=sum(units), units_by_owner=counts, guarantee=plan.guarantee, decision=reject)
        try:
            vectors = release_sums(plan.layout(units, summary.exact), plan.guarantee, noise)
        except (NoiseError, ReleaseError) as error:
            raise StudyError(str(error)) from None
        return Release(units=sum(units), units_by_owner=counts, guarantee=plan.guarantee, vectors=vectors)

    def check_release(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where the release has not the shape and the noise that the study fixes."""
        joint = joint_study(study)
        if joint is not None:
            JOINT.check_release(joint, release)
            return
        plan = plan_of(study)
        if set(release.units_by_owner) != {owner.name for owner in study.owners}:
            raise ReleaseError("the release must state the units of every owner whose data it used")
        decides = isinstance(plan.release, Permuted)
        if (release.decision is not None) != decides or bool(release.vectors) == decides:
            raise ReleaseError(
                "the release holds a decision where the study asks for numbers, or the reverse"
            )
        if decides:
            if release.guarantee != plan.guarantee:
                raise ReleaseError("the release states another guarantee than the study")
            return
        layout = plan.layout(plan.units(release.units_by_owner))
        check_layout(release.vectors, release.guarantee, layout, plan.guarantee)

    def meaning(self, study: Study, verdict: Fields) -> Meaning:
        """Say what a verdict means, in sentences."""
        return two_sample_meaning(study, verdict)

    def panels(self, study: Study, verdict: Fields, releases: Releases) -> list[RowsPanel]:
        """Return forest plots of the differences in the columns that differ, or in the first ones."""
        joint = joint_study(study)
        if joint is not None:
            return list(JOINT.panels(joint, verdict, releases))
        return effect_panels(study, verdict)

    def works(self, study: Study) -> tuple[Citation, ...]:
        """Return the works that the study's method comes from."""
        return (PERMUTATION if parameters_of(study).release in BY_PERMUTATION else KERNEL,)

    def null(self, study: Study, verdict: Fields, releases: Releases) -> Null | None:
        """Work out the null distribution again; simulations are the verdict's, or the first of them."""
        joint = joint_study(study)
        if joint is not None:
            return JOINT.null(joint, verdict, releases)
        plan, statistic = plan_of(study), float(verdict["statistic"])
        release = plan.release
        if isinstance(release, CuratedAdditiveRelease):
            return max_null(release.features, 2, statistic, study.level)
        units = plan.units(verdict["units"])
        if isinstance(release, RidgeRelease):
            if not releases:
                return None
            noise = next(iter(releases[study.senders[0].name].vectors.values())).scale
            features = release.features
            laws = ridge_laws(
                sum(units), features.dimension, release.regularisation, norm=features.norm, noise=noise
            )
            words = "the heaviest weighted chi-squared law of its kind, with the noise"
            return quadratic(words, laws, statistic, study.level)
        return _curated_moments(study, plan, units, releases, statistic) if releases else None

    def assemble(
        self, study: Study, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> BaseVerdict:
        """Compute the verdict: post-processing alone, the same for everyone."""
        joint = joint_study(study)
        if joint is not None:
            verdict = JOINT.assemble(joint, releases, progress)
            own: dict[str, Any] = {name: getattr(verdict, name) for name in type(verdict).model_fields}
            own["method"] = f"two-sample test at a curator: {verdict.method}"
            return self.verdict_type(study)(**own)
        plan = plan_of(study)
        release = releases[study.senders[0].name]
        report = step(progress, "testing the samples")
        report(0.05)
        found = _verdict_fields(plan, study, release, progress)
        report(1.0)
        return self.verdict_type(study)(
            method=method_of(plan.parameters, plan.form),
            **common_fields(
                study, {owner.name: release.units_by_owner[owner.name] for owner in study.owners}
            ),
            warnings=_hopeless(plan, study, release.units_by_owner) + plan.caveats,
            **found,
        )


def _hopeless(plan: CuratedPlan, study: Study, units: Mapping[str, int]) -> tuple[str, ...]:
    if any(name not in units for names in plan.samples for name in names):
        return ()
    if plan.hopes(study, plan.units(units)):
        return ()
    return (
        f"{HOPELESS}even samples that differ greatly could not be told apart; ask for more units, "
        "a larger epsilon, or fewer columns",
    )


def _exact(
    plan: CuratedPlan,
    tables: tuple[PooledTable, PooledTable],
    order: np.random.Generator,
    progress: Progress | None,
    workers: Workers,
) -> Exact:
    release = plan.release
    if isinstance(release, Permuted):
        seed = np.random.SeedSequence(order.integers(2**32, size=8).tolist())
        units = tables[0].units, tables[1].units
        choices = draw_choices(units, plan.parameters.permutations, seed)
        return release.distances(tables, choices, step(progress, "permuting"), workers)
    if isinstance(release, PairedRelease):
        return release.sum(*tables, order)
    return release.sum(*tables)


def _verdict_fields(
    plan: CuratedPlan, study: Study, release: Release, progress: Progress | None
) -> dict[str, Any]:
    """Return what the release tells of the samples, by field of the verdict."""
    if plan.form == "permutation":
        return {"reject": release.decision}
    units = plan.units(release.units_by_owner)
    if isinstance(plan.release, PairedRelease):
        mean = release.vectors[MEAN]
        moment = read_second_moment(release.vectors, units[0])
        gamma = plan.parameters.regularisation or PAPER_REGULARISATION
        statistic, law = paired_law(mean.mean(units[0]), moment, units[0], mean.scale / units[0], gamma)
        return decided(study, statistic, law.pvalue(statistic))
    if isinstance(plan.release, RidgeRelease):
        noisy, features = release.vectors[STATISTIC], plan.release.features
        statistic = float(noisy.mean(1)[0])
        pvalue = ridge_pvalue(
            statistic,
            sum(units),
            features.dimension,
            plan.release.regularisation,
            norm=features.norm,
            noise=noisy.scale,
        )
        return decided(study, statistic, pvalue)
    found = _finding(plan, study, release, progress)
    named: tuple[LocationComparison, ...] = ()
    embedding = getattr(plan.release, "features", None)
    if found.witness is not None and isinstance(embedding, MeanEmbedding):
        names = ["+".join(names) for names in plan.samples]
        named = location_differences(study.domain, embedding, names, {(0, 1): found.witness}, study.level)
    mmd = stated(found.mmd.squared_mmd, (found.mmd.lower, found.mmd.upper))
    return decided(study, found.statistic, found.pvalue) | {
        "squared_mmd": mmd.value,
        "squared_mmd_unbiased": mmd.unbiased,
        "lower": mmd.lower,
        "upper": mmd.upper,
        "columns": named_groups(study.domain, found.groups, study.level),
        "locations": named,
        **_effects(plan, study, release, found),
    }


def _effects(
    plan: CuratedPlan, study: Study, release: Release, found: CuratedFinding
) -> dict[str, tuple[Any, ...]]:
    """Return effects and summaries by field, where the features can tell them."""
    if not isinstance(plan.release, CuratedAdditiveRelease):
        return {}
    means = means_of(plan.release, release, plan.units(release.units_by_owner))
    names = ("+".join(plan.samples[0]), "+".join(plan.samples[1]))
    samples = Samples(names, means.means, means.units, means.mean_covariance)
    effects, summaries = effects_by_column(
        study.domain, plan.release.features, samples, study.level, found.groups
    )
    return {"effects": effects, "summaries": summaries}


def _finding(plan: CuratedPlan, study: Study, release: Release, progress: Progress | None) -> CuratedFinding:
    units = plan.units(release.units_by_owner)
    confidence = 1 - study.level
    if isinstance(plan.release, CuratedAdditiveRelease):
        means = means_of(plan.release, release, units)
        return additive_finding(plan.release.features, means, confidence)
    if not isinstance(plan.release, CuratedMomentRelease):
        raise TypeError("the release is not one of means")
    means = means_of(plan.release, release, units)
    test = MomentTest(
        "noise-aware" if plan.form == "noise-aware" else "mmd",
        plan.release.features,
        plan.parameters.replicates,
        public_seed(study, NULL_STREAM),
    )
    moment = plan.release.read_moment(release.vectors, units)
    return test.run(means, moment, confidence, step(progress, "simulating the null", 0.05, 0.95))


def means_of(
    layout: CuratedAdditiveRelease | CuratedMomentRelease, release: Release, units: tuple[int, int]
) -> CuratedMeans:
    """Read both samples' private means; ``units`` are the samples'."""
    read = layout.read(release.vectors, units)
    noise = read.difference_noise, read.centre_noise
    return CuratedMeans.of(read.difference, read.centre, units, noise, read.weights)


def _curated_moments(
    study: Study, plan: CuratedPlan, units: tuple[int, int], releases: Releases, statistic: float
) -> Null | None:
    sent, release = releases[study.senders[0].name], plan.release
    if isinstance(release, PairedRelease):
        mean, gamma = sent.vectors[MEAN], plan.parameters.regularisation or PAPER_REGULARISATION
        moment = read_second_moment(sent.vectors, units[0])
        _, law = paired_law(mean.mean(units[0]), moment, units[0], mean.scale / units[0], gamma)
        words = "a weighted sum of chi-squared values, in which the noisy covariance counts as exact"
        return quadratic(words, (law,), statistic, study.level)
    if not isinstance(release, CuratedMomentRelease):
        return None
    means = means_of(release, sent, units)
    covariance = curated_covariance(means, *release.read_moment(sent.vectors, units))
    if plan.form != "noise-aware":
        _, law = mmd_law(means, covariance, release.features.norm**2)
        return quadratic(WEIGHTED, (law,), statistic, study.level)
    replicates = min(DRAWN_MAX, plan.parameters.replicates)
    trace_max = release.features.norm**2
    _, _, draws = noise_aware_test(
        means, covariance, replicates, public_seed(study, NULL_STREAM), trace_max=trace_max
    )
    return from_draws(SIMULATED, draws, study.level)
