"""The null distribution of a verdict's statistic, worked out again from its study and releases.

A decision has no statistic, a screening has one for every pair, and tables and databases test nothing: there
is nothing of theirs to draw. Simulations are those of the verdict, or the first of them.
"""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from tacit_protocol.features.additive import AdditiveFeatures
from tacit_protocol.features.curated_release import CuratedAdditiveRelease, CuratedMomentRelease
from tacit_protocol.features.moment_release import MEAN, read_second_moment
from tacit_protocol.features.paired_release import PairedRelease
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.curated_two_sample import means_of, null_seed
from tacit_protocol.procedures.curated_two_sample_plan import Plan as CuratedPlan
from tacit_protocol.procedures.curated_two_sample_plan import plan_of as curated_plan_of
from tacit_protocol.procedures.kernel_two_sample import evidence_of, planned_test
from tacit_protocol.procedures.kernel_two_sample_plan import Plan as KernelPlan
from tacit_protocol.procedures.kernel_two_sample_plan import plan_of as kernel_plan_of
from tacit_protocol.reporting.null import (
    Critical,
    Null,
    chi_square,
    chi_square_quantile,
    from_draws,
    largest_of,
    quadratic,
)
from tacit_protocol.reporting.simulated_nulls import (
    DRAWN_MAX,
    counts_null,
    identity_null,
    independence_null,
    permuted_null,
)
from tacit_protocol.statistics.curated_choice import PAPER_REGULARISATION
from tacit_protocol.statistics.curated_means import curated_covariance
from tacit_protocol.statistics.mmd_form import mmd_law
from tacit_protocol.statistics.named_groups import additive_families
from tacit_protocol.statistics.noise_aware import noise_aware_test
from tacit_protocol.statistics.paired import paired_law
from tacit_protocol.statistics.private_statistic import RidgeRelease
from tacit_protocol.statistics.published import published_law
from tacit_protocol.statistics.ridge import ridge_laws

Releases = Mapping[str, Release]
Verdict = Mapping[str, Any]

WEIGHTED = "a weighted sum of chi-squared values, which counts sampling and privacy noise"
SIMULATED = "simulated statistics, which count sampling and privacy noise"


def null_of(study: Study, verdict: Verdict, releases: Releases) -> Null | None:
    """Return the null distribution of a verdict's statistic, or None where there is none to draw.

    ``verdict`` is the procedure's, as plain values; ``releases`` are by owner as the study reads them, or
    empty where they are not at hand: then few nulls are known.
    """
    known = NULLS.get(study.procedure)
    if known is None or verdict.get("statistic") is None or verdict.get("pvalue") is None:
        return None
    return known(study, verdict, releases)


def _kernel(study: Study, verdict: Verdict, releases: Releases) -> Null | None:
    plan, statistic = kernel_plan_of(study), float(verdict["statistic"])
    features, owners = plan.release.features, len(verdict["units"])
    if plan.form == "max" and isinstance(features, AdditiveFeatures):
        return _max_null(features, owners, statistic, study.level)
    if plan.form == "asymptotic":
        return chi_square(features.dimension, statistic, study.level)
    return _kernel_moments(study, plan, releases, statistic) if releases else None


def _kernel_moments(study: Study, plan: KernelPlan, releases: Releases, statistic: float) -> Null | None:
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


def _max_null(features: AdditiveFeatures, owners: int, statistic: float, level: float) -> Null:
    """Return the null of the max form; each family of coordinates has its own part of the level."""
    families, criticals = additive_families(features), []
    for family in families:
        count = family.groups[-1][2] - family.groups[0][1]
        each = -np.expm1(np.log1p(-level * family.share) / count)
        of = f"{family.name}s" if len(families) > 1 else ""
        criticals.append(Critical(chi_square_quantile(owners - 1, each), of))
    return largest_of(features.dimension, owners - 1, statistic, tuple(criticals))


def _curated(study: Study, verdict: Verdict, releases: Releases) -> Null | None:
    plan, statistic = curated_plan_of(study), float(verdict["statistic"])
    release = plan.release
    if isinstance(release, CuratedAdditiveRelease):
        return _max_null(release.features, 2, statistic, study.level)
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
    _, _, draws = noise_aware_test(means, covariance, replicates, null_seed(study), trace_max=trace_max)
    return from_draws(SIMULATED, draws, study.level)


NULLS: dict[str, Callable[[Study, Verdict, Releases], Null | None]] = {
    "kernel_two_sample": _kernel,
    "curated_two_sample": _curated,
    "distance_correlation": permuted_null,
    "homogeneity": counts_null,
    "independence_table": independence_null,
    "identity": identity_null,
}
"""By procedure; the others have no single statistic with a p-value."""
