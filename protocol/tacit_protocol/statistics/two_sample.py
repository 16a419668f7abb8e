"""Two-sample and k-sample findings from private means: overall, between owners, and how large."""

import itertools
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np

from tacit_protocol.features.additive import AdditiveFeatures
from tacit_protocol.statistics.coordinate_variances import additive_variances
from tacit_protocol.statistics.max_form import Family, GroupResult, max_test
from tacit_protocol.statistics.mmd_estimate import MmdEstimate, Moments, estimate_mmd
from tacit_protocol.statistics.mmd_form import covariance_moments, mmd_test
from tacit_protocol.statistics.multiplicity import holm
from tacit_protocol.statistics.noise_aware import noise_aware_test
from tacit_protocol.statistics.private_means import (
    FloatVector,
    PrivateCovariance,
    PrivateMeans,
    pool_covariance,
)
from tacit_protocol.statistics.published import published_test

Progress = Callable[[float], None]
Form = Literal["max", "mmd", "noise-aware", "weighted", "asymptotic"]

OWNERS_COMPARED_MAX = 32
"""Above this many owners (496 pairs) the pairs are not compared: the verdict speaks of all together."""


@dataclass(frozen=True)
class Evidence:
    """All owners' private means and, for ME and SCF features, second moments (k, J, J), noise (k,).

    The noise of a second moment that an owner has not released is infinite.
    """

    means: PrivateMeans
    second_moments: np.typing.NDArray[np.float64] | None = None
    second_noise: FloatVector | None = None

    def select(self, owners: tuple[int, ...]) -> "Evidence":
        """Keep some of the owners."""
        if self.second_moments is None or self.second_noise is None:
            return Evidence(self.means.select(owners))
        index = list(owners)
        return Evidence(self.means.select(owners), self.second_moments[index], self.second_noise[index])

    def covariance(self) -> PrivateCovariance | None:
        """Pool the covariances of the owners that released second moments; None where nobody did.

        Under the null hypothesis all owners have one covariance, so that some owners' stands for all.
        """
        if self.second_noise is None:
            return None
        known = self.select(tuple(np.flatnonzero(np.isfinite(self.second_noise)).tolist()))
        if known.second_moments is None or known.second_noise is None or not known.means.owners:
            return None
        return pool_covariance(known.means, known.second_moments, known.second_noise)

    @property
    def complete(self) -> bool:
        """Whether every owner released a second moment."""
        return self.second_noise is not None and bool(np.all(np.isfinite(self.second_noise)))


@dataclass(frozen=True)
class Finding:
    """One test: its statistic, its p-value, and the groups of coordinates it names (max form alone)."""

    statistic: float
    pvalue: float
    groups: tuple[GroupResult, ...] = ()


@dataclass(frozen=True)
class PairFinding:
    """Two owners compared: p-value adjusted for all pairs (Holm), and the squared MMD between them."""

    first: int
    second: int
    pvalue: float
    mmd: MmdEstimate


@dataclass(frozen=True)
class TwoSampleTest:
    """One of the forms of section 3, ready to be applied to all owners or to two of them.

    ``families`` and ``features`` serve the max form; ``replicates`` and ``seed`` the simulated null;
    ``regularisation`` P0's statistic. ``trace_max``, the squared norm of the features, bounds the trace of
    their covariance.
    """

    form: Form
    features: AdditiveFeatures | None
    families: tuple[Family, ...]
    replicates: int
    regularisation: float
    seed: np.random.SeedSequence
    trace_max: float = 1.0

    def run(self, evidence: Evidence, purpose: int = 0, progress: Progress | None = None) -> Finding:
        """Test whether one distribution explains all owners in ``evidence``.

        ``purpose`` numbers the tests of one study, so that each simulates with its own random numbers.
        """
        if self.form == "max":
            if self.features is None:
                raise TypeError("the max form needs additive features")
            variances = additive_variances(self.features, evidence.means)
            return Finding(*max_test(evidence.means, variances, self.families))
        if evidence.second_moments is None or evidence.second_noise is None:
            raise TypeError("this form needs second moments")
        covariance = evidence.covariance()
        if self.form == "mmd":
            return Finding(*mmd_test(evidence.means, covariance, self.trace_max))
        if covariance is None or not evidence.complete:
            raise TypeError("this form needs every owner's second moment")
        if self.form == "noise-aware":
            child = np.random.SeedSequence(self.seed.entropy, spawn_key=(*self.seed.spawn_key, purpose))
            statistic, pvalue, _ = noise_aware_test(
                evidence.means, covariance, self.replicates, child, progress, trace_max=self.trace_max
            )
            return Finding(statistic, pvalue)
        return Finding(*published_test(evidence.means, covariance, self.regularisation, self.form))

    def compare_pairs(
        self, evidence: Evidence, overall: Finding, confidence: float, progress: Progress | None = None
    ) -> tuple[PairFinding, ...]:
        """Compare every two owners; none where there are more than OWNERS_COMPARED_MAX.

        ``overall`` is the finding on all owners: where there are two, it is the finding on the pair.
        """
        owners = evidence.means.owners
        if owners > OWNERS_COMPARED_MAX:
            return ()
        pairs = list(itertools.combinations(range(owners), 2))
        findings = []
        for number, pair in enumerate(pairs):
            found = overall if owners == 2 else self.run(evidence.select(pair), purpose=1 + number)
            findings.append(found.pvalue)
            if progress is not None:
                progress((number + 1) / len(pairs))
        adjusted = holm(np.array(findings))
        return tuple(
            PairFinding(a, b, float(p), self.estimate(evidence.select((a, b)), confidence))
            for (a, b), p in zip(pairs, adjusted, strict=True)
        )

    def estimate(self, evidence: Evidence, confidence: float) -> MmdEstimate:
        """Estimate the squared MMD between two owners, with an interval of that coverage."""
        means = evidence.means
        if evidence.second_moments is None or evidence.second_noise is None or not evidence.complete:
            # Additive features have norm 1: the trace is 1 - |mean|^2, and bounds the rest.
            energy = np.sum(means.means**2, axis=1) - means.dimension * means.noise**2
            traces = np.clip(1.0 - energy, 0.0, 1.0)
            trace = float(np.sum(traces / means.units) / np.sum(1 / means.units))
            found = estimate_mmd(means, Moments(trace, trace**2, trace), confidence)
            if evidence.second_moments is None:
                return found
            # ME features have norm 1 at most: what is subtracted for the trace may be too much by all of it.
            most = trace * float(np.sum(1 / means.units))
            return MmdEstimate(found.squared_mmd, found.lower, found.upper + most)
        # Under the alternative the covariances differ: a Sigma stands for Sigma_x / n_x + Sigma_y / n_y.
        covariance = pool_covariance(means, evidence.second_moments, evidence.second_noise, 1 / means.units)
        bounds = covariance_moments(covariance, self.trace_max)
        trace = max(0.0, float(np.trace(covariance.matrix)))
        return estimate_mmd(means, Moments(trace, bounds.energy, bounds.largest), confidence)
