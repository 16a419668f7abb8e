"""What the tester finds in the two releases of a distance correlation: test, estimates and intervals.

Derivations: docs/mathematics/distance-correlation.md.
"""

from dataclasses import dataclass
from functools import partial

import numpy as np
import numpy.typing as npt

from tacit_protocol.features.brownian import BrownianFeatures
from tacit_protocol.features.row_projections import PROJECTIONS
from tacit_protocol.features.sketch_release import BucketDesign, SketchRelease
from tacit_protocol.messages.release import Release
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.distance_correlation_plan import NULL_STREAM, Plan, blocks_of, public_generator
from tacit_protocol.statistics.intervals import stated
from tacit_protocol.statistics.projected_correlation import NoisyProjections, projected_test, raw_correlation
from tacit_protocol.statistics.sketched_covariance import (
    IndependenceTest,
    Permutations,
    Side,
    correlation_estimate,
    covariance_estimate,
    permutation_test,
    truncation_bound,
    variance_estimate,
)
from tacit_protocol.verdicts.base import Interval

COVARIANCE_SQR_MAX = 0.25
"""Of distances in [0, 1]: at most the root of both distance variances, each at most 1/4."""


def correlation_words(value: float | None, interval: Interval | None) -> tuple[str, ...]:
    """Return the command's line of a distance correlation with its interval; none where there is none."""
    if value is None or interval is None:
        return ()
    return (f"  distance correlation {value:.3f}, [{interval[0]:.3f}, {interval[1]:.3f}]",)


@dataclass(frozen=True)
class Found:
    """What either method finds; None where it does not have it."""

    method: str
    test: IndependenceTest
    covariance_sqr: float
    """Unbiased, and so negative at times."""
    correlation_sqr: float | None
    covariance_interval: tuple[float | None, float | None] = (None, None)
    correlation_interval: tuple[float, float] | None = None
    truncation: float | None = None
    attenuation: float | None = None
    buckets: int | None = None
    caveats: tuple[str, ...] = ()


def _permutations(
    plan: Plan, study: Study, report: partial[None], blocks: npt.NDArray[np.int64] | None = None
) -> Permutations:
    return Permutations(plan.parameters.permutations, public_generator(study, NULL_STREAM), blocks, report)


def sketched(plan: Plan, study: Study, own: list[Release], report: partial[None]) -> Found:
    """Estimate and test from two sketches, in the study's order of owners."""
    design, count = plan.design(own[0].units), plan.parameters.permutations
    first, second = (read_side(sketch, design, each) for sketch, each in zip(plan.sketches, own, strict=True))
    covariance = covariance_estimate(first, second)
    shown = stated(covariance.value, covariance.interval(1 - study.level), COVARIANCE_SQR_MAX)
    variances = (variance_estimate(first), variance_estimate(second))
    correlation = correlation_estimate(covariance, variances, 1 - study.level)
    truncation = truncation_bound(first, second)
    drawn = any(count > 1 for count in plan.columns)
    caveats = [resolution_caveat(truncation, drawn=drawn)]
    if correlation is None:
        caveats.append(
            "no distance correlation is stated: a side's own variance is zero, or lost in its noise"
        )
    return Found(
        method=f"sketched distance covariance, {design.buckets} buckets of {design.bucket_units} units, "
        f"{count} permutations",
        test=permutation_test(first, second, _permutations(plan, study, report)),
        covariance_sqr=covariance.value,
        correlation_sqr=None if correlation is None else correlation.value,
        covariance_interval=(shown.lower, shown.upper),
        correlation_interval=None if correlation is None else (correlation.lower, correlation.upper),
        truncation=truncation,
        buckets=design.buckets,
        caveats=tuple(caveats),
    )


def resolution_caveat(truncation: float, *, drawn: bool) -> str:
    """Say what the intervals of a sketch cover, and how much of the squared covariance may lie beyond it."""
    directions = " and directions drawn" if drawn else ""
    return (
        f"estimates and intervals are of the frequencies kept{directions}: finer dependence may add up to "
        f"{truncation:.2g} to the squared distance covariance, which no interval counts"
    )


def read_side(sketch: SketchRelease, design: BucketDesign, release: Release) -> Side:
    """Read one owner's sketch as statistics take it."""
    read = sketch.read(release.vectors, design)
    features = sketch.features
    left_out = features.left_out if isinstance(features, BrownianFeatures) else 0.0
    return Side(
        read.buckets,
        read.bucket_noise,
        read.covariance,
        read.covariance_noise,
        features.norm,
        left_out,
        release.units,
        read.mean,
        read.mean_noise,
    )


def projected(plan: Plan, study: Study, own: list[Release], report: partial[None]) -> Found:
    """Estimate and test from both owners' noisy projections, in the study's order of owners."""
    first, second = (read_projections(plan, study, side, release) for side, release in enumerate(own))
    return from_projections(plan, study, first, second, report)


def read_projections(plan: Plan, study: Study, side: int, release: Release) -> NoisyProjections:
    """Read one owner's noisy projections as statistics take them."""
    vector = release.vectors[PROJECTIONS]
    values = plan.projections[side].read(vector, release.units)
    return NoisyProjections(values, vector.scale / 2, len(study.domain_of(study.owners[side]).columns))


def from_projections(
    plan: Plan, study: Study, first: NoisyProjections, second: NoisyProjections, report: partial[None]
) -> Found:
    """Estimate and test from two owners' projections; the second one's rows are permuted."""
    disjoint, count = plan.parameters.method == "pnc-disjoint", plan.parameters.permutations
    blocks = blocks_of(plan, study, len(first.values)) if disjoint else None
    raw = raw_correlation(first, second, blocks)
    return Found(
        method=f"{plan.parameters.method}, {plan.directions} projections, {count} permutations",
        test=projected_test(first, second, _permutations(plan, study, report, blocks)),
        covariance_sqr=raw.covariance_sqr,
        correlation_sqr=raw.correlation_sqr,
        attenuation=raw.attenuation,
        caveats=(
            "the distance covariance and correlation are those of the noisy projections, far smaller than "
            "the data's: see attenuation",
        ),
    )
