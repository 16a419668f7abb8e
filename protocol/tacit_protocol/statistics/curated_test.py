"""The forms of the two-sample test on what a curator released: statistic, p-value, estimate, names."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit_protocol.features.additive import AdditiveFeatures
from tacit_protocol.features.base import FeatureMap
from tacit_protocol.statistics.coordinate_variances import additive_variances
from tacit_protocol.statistics.curated_means import (
    CuratedMeans,
    curated_covariance,
    estimate_additive,
    estimate_moments,
)
from tacit_protocol.statistics.max_form import GroupResult, max_test
from tacit_protocol.statistics.mmd_estimate import MmdEstimate
from tacit_protocol.statistics.mmd_form import mmd_test
from tacit_protocol.statistics.named_groups import additive_families
from tacit_protocol.statistics.noise_aware import noise_aware_test
from tacit_protocol.statistics.private_means import FloatMatrix
from tacit_protocol.statistics.witness import MeanEmbedding, Witness, witness_at_locations

Progress = Callable[[float], None]


@dataclass(frozen=True)
class CuratedFinding:
    """A test of two samples, with the estimate of the squared MMD, and what it names."""

    statistic: float
    pvalue: float
    mmd: MmdEstimate
    groups: tuple[GroupResult, ...] = ()
    witness: Witness | None = None


def additive_finding(features: AdditiveFeatures, means: CuratedMeans, confidence: float) -> CuratedFinding:
    """Test by the max form, which names columns and pairs of columns."""
    variances = additive_variances(features, means)
    statistic, pvalue, groups = max_test(means, variances, additive_families(features))
    return CuratedFinding(statistic, pvalue, estimate_additive(means, features, confidence), groups)


@dataclass(frozen=True)
class MomentTest:
    """The MMD or the noise-aware form, on features with a second moment."""

    form: Literal["mmd", "noise-aware"]
    features: FeatureMap
    replicates: int
    seed: np.random.SeedSequence

    def run(
        self,
        means: CuratedMeans,
        second_moment: tuple[FloatMatrix, float],
        confidence: float,
        progress: Progress | None = None,
    ) -> CuratedFinding:
        """Test; ``second_moment`` is both samples' noisy one, and the noise on its diagonal."""
        trace_max = self.features.norm**2
        covariance = curated_covariance(means, *second_moment)
        if self.form == "mmd":
            statistic, pvalue = mmd_test(means, covariance, trace_max)
        else:
            statistic, pvalue, _ = noise_aware_test(
                means, covariance, self.replicates, self.seed, progress, trace_max=trace_max
            )
        witness = None
        if isinstance(self.features, MeanEmbedding):
            difference = means.means[0] - means.means[1]
            noise = float(np.sqrt(means.difference_variance))
            witness = witness_at_locations(self.features, difference, covariance, means.units, noise)
        mmd = estimate_moments(means, covariance, trace_max, confidence)
        return CuratedFinding(statistic, pvalue, mmd, witness=witness)
