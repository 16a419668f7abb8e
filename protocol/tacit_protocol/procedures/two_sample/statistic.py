"""The forms of the two-sample test of owners who trust no one, P0's own statistic, and where owners differ.

P0's s = n_x n_y / (n_x + n_y) d' (Sigma + gamma I)^-1 d (Raj, Law, Sejdinovic and Park) against sum_j
lambda_j chi2_1 or chi2_J treats the noisy Sigma as fixed, which is why its level fails. The witness of x
against y at t, w(t) = E k(X, t) - E k(Y, t), is w(T_j) = (R d)_j at the test locations, R = (K_T + lambda
I)^(1/2): with S the sampling covariance of d and b the variance of its noise, Var w(T_j) = r_j' S r_j + b
|r_j|^2; S is known through noise, so the first term is rounded up by one of its deviations, and by RARE_UNITS
(docs/mathematics/test-locations.md).
"""

import itertools
import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Annotated, Literal

import numpy as np
from scipy.special import chdtrc, chdtri, chndtr, ndtr, ndtri

from tacit_protocol.domain import Domain
from tacit_protocol.features.cell_means import CellFeatures
from tacit_protocol.features.mean_embedding import RawMeanEmbedding, WhitenedMeanEmbedding, decode_locations
from tacit_protocol.features.moments import AdditiveFeatures
from tacit_protocol.numerics.inference import PVALUE_MIN, RARE_UNITS, holm
from tacit_protocol.numerics.quadratic_forms import QuadraticLaw
from tacit_protocol.procedures.means.effects import OWNERS_COMPARED_MAX, squared_lengths
from tacit_protocol.procedures.means.private_means import (
    CoordinateFamily,
    FloatVector,
    GroupResult,
    MmdEstimate,
    Moments,
    PrivateCovariance,
    PrivateMeans,
    additive_variances,
    cells_test,
    covariance_moments,
    estimate_mmd,
    max_test,
    mmd_test,
    noise_aware_test,
    pool_covariance,
)
from tacit_protocol.strict import StrictModel
from tacit_protocol.verdicts.base import PVALUE, REJECTED
from tacit_protocol.verdicts.presentation import Shown

DETECTABLE_MAX = 1.0
"""A test that cannot see this difference is called hopeless: half of an owner's units moved from one end of a
coordinate to the other (a mean of a cosine or an indicator moving by 1, of the 2 or 1 that it can)."""

POWER = 0.8
"""The chance of seeing the detectable difference."""


def detectable_difference(
    noise: tuple[float, float], units: tuple[int, int], scale: float, level: float
) -> float:
    """Smallest difference of a coordinate's raw means that two owners see with probability POWER.

    ``noise`` are the standard deviations on the owners' means, ``scale`` the coordinate's weight, ``level``
    the level left to it after correction for the other coordinates.
    """
    variance = (noise[0] ** 2 + noise[1] ** 2) / scale**2 + 0.5 / units[0] + 0.5 / units[1]
    quantile = float(ndtri(POWER) - ndtri(level / 2))
    return quantile * math.sqrt(variance)


def detectable_squared_mmd(noise: tuple[float, float], dimension: int, level: float) -> float:
    """Smallest squared MMD that the MMD form sees with probability POWER, from privacy noise alone."""
    energy = noise[0] ** 2 + noise[1] ** 2
    critical = float(chdtri(dimension, level)) * energy
    low, high = 0.0, 16.0 * (critical + energy)
    for _ in range(60):
        middle = (low + high) / 2
        seen = 1 - float(chndtr(critical / energy, dimension, middle / energy))
        low, high = (low, middle) if seen >= POWER else (middle, high)
    return high


def published_test(
    means: PrivateMeans,
    covariance: PrivateCovariance,
    regularisation: float,
    null: Literal["weighted", "asymptotic"],
) -> tuple[float, float]:
    """Return P0's statistic and p-value. ``means`` has two owners; ``regularisation`` gamma > 0."""
    statistic, law = published_law(means, covariance, regularisation)
    if null == "asymptotic":
        return statistic, max(PVALUE_MIN, float(chdtrc(means.dimension, statistic)))
    return statistic, law.pvalue(statistic)


def published_law(
    means: PrivateMeans, covariance: PrivateCovariance, regularisation: float
) -> tuple[float, QuadraticLaw]:
    """Return P0's statistic and the weighted one of its null laws."""
    x, y = means.units
    harmonic = float(x * y / (x + y))
    values, vectors = np.linalg.eigh(covariance.positive_part())
    values = np.maximum(values, 0.0)
    difference = (means.means[0] - means.means[1]) @ vectors
    statistic = float(harmonic * np.sum(difference**2 / (values + regularisation)))
    spread = values * (1 / x + 1 / y) + float(np.sum(means.noise**2))
    return statistic, QuadraticLaw(harmonic * spread / (values + regularisation))


Progress = Callable[[float], None]
Form = Literal["max", "mmd", "noise-aware", "weighted", "asymptotic"]


@dataclass(frozen=True)
class PrivateMoments:
    """All owners' private means and, for ME and SCF features, second moments (k, J, J), noise (k,).

    The noise of a second moment that an owner has not released is infinite. ``fine`` are the shares of fine
    cells, column after column, where they were released.
    """

    means: PrivateMeans
    second_moments: np.typing.NDArray[np.float64] | None = None
    second_noise: FloatVector | None = None
    fine: PrivateMeans | None = None

    def select(self, owners: tuple[int, ...]) -> "PrivateMoments":
        """Keep some of the owners."""
        if self.second_moments is None or self.second_noise is None:
            fine = None if self.fine is None else self.fine.select(owners)
            return PrivateMoments(self.means.select(owners), fine=fine)
        index = list(owners)
        return PrivateMoments(self.means.select(owners), self.second_moments[index], self.second_noise[index])

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
    """Two owners compared: p-value adjusted for all pairs (Holm), and the squared MMD between them.

    Few features are no kernel of the records, so that they tell no MMD.
    """

    first: int
    second: int
    pvalue: float
    mmd: MmdEstimate | None


@dataclass(frozen=True)
class TwoSampleTest:
    """One form of the test, ready to be applied to all owners or to two of them.

    ``families`` and ``features`` serve the max form; ``replicates`` and ``seed`` the simulated null;
    ``regularisation`` P0's statistic. ``trace_max``, the squared norm of the features, bounds the trace of
    their covariance.
    """

    form: Form
    features: AdditiveFeatures | None
    families: tuple[CoordinateFamily, ...]
    replicates: int
    regularisation: float
    seed: np.random.SeedSequence
    trace_max: float = 1.0

    def run(self, evidence: PrivateMoments, purpose: int = 0, progress: Progress | None = None) -> Finding:
        """Test whether one distribution explains all owners in ``evidence``.

        ``purpose`` numbers the tests of one study, so that each simulates with its own random numbers.
        """
        if self.form == "max":
            if self.features is None:
                raise TypeError("the max form needs additive features")
            if isinstance(self.features, CellFeatures):
                return Finding(*cells_test(evidence.means, self.features.cells, evidence.fine))
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
        self, evidence: PrivateMoments, overall: Finding, confidence: float, progress: Progress | None = None
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
        kernel = not isinstance(self.features, CellFeatures)
        return tuple(
            PairFinding(
                a, b, float(p), self.estimate(evidence.select((a, b)), confidence) if kernel else None
            )
            for (a, b), p in zip(pairs, adjusted, strict=True)
        )

    def estimate(self, evidence: PrivateMoments, confidence: float) -> MmdEstimate:
        """Estimate the squared MMD between two owners, with an interval of that coverage."""
        means = evidence.means
        if evidence.second_moments is None or evidence.second_noise is None or not evidence.complete:
            # The trace is the mean squared norm, 1 without P1 and P2, less |mean|^2; it bounds the rest.
            energy = np.sum(means.means**2, axis=1) - means.dimension * means.noise**2
            lengths = 1.0 if self.features is None else squared_lengths(self.features, means.means)
            traces = np.clip(lengths - energy, 0.0, self.trace_max)
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


LOCATIONS_NAMED_MAX = 10
"""Most locations that a verdict names, the strongest first: a person reads them."""

SCORE_DECIMALS = 6
"""Scores are rounded before they are ranked: processors that round differently rank equal ones alike."""

KERNEL_VARIANCE_MAX = 0.25
"""Of a variable in [0, 1]."""

MeanEmbedding = WhitenedMeanEmbedding | RawMeanEmbedding


class LocationComparison(StrictModel):
    """A test location at which two owners differ: ``values`` by column, in the columns' own units.

    ``difference`` is the witness there, in [-1, 1] up to noise: above 0 where ``first`` has more records near
    the location than ``second``. ``standard_error`` counts sampling and privacy noise, of this location
    alone: those named are the strongest of all J, so that intervals for them need the multiplier under which
    all J hold together (3.2 for .95 at J = 40, after Bonferroni). ``pvalue`` is adjusted after Holm for all
    locations and pairs of owners.
    """

    first: str
    second: str
    values: Annotated[dict[str, float | str | None], Shown("place")]
    difference: float
    standard_error: float
    pvalue: Annotated[float, PVALUE]
    reject: Annotated[bool, REJECTED]

    @property
    def names(self) -> tuple[str, str]:
        """The two owners."""
        return self.first, self.second

    def __str__(self) -> str:
        place = ", ".join(f"{name} {_value_text(value)}" for name, value in self.values.items())
        more = self.first if self.difference > 0 else self.second
        return f"near {place}: more of {more} (p = {self.pvalue:.3g})"


def _value_text(value: float | str | None) -> str:
    if value is None:
        return "missing"
    return value if isinstance(value, str) else f"{value:.4g}"


@dataclass(frozen=True)
class Witness:
    """The witness at every location, (J,), and its standard errors, (J,)."""

    differences: FloatVector
    standard_errors: FloatVector

    @property
    def scores(self) -> FloatVector:
        """Absolute z-scores, (J,), to SCORE_DECIMALS."""
        return np.asarray(np.round(np.abs(self.differences) / self.standard_errors, SCORE_DECIMALS))

    @property
    def pvalues(self) -> FloatVector:
        """Two-sided normal p-values, (J,), not adjusted."""
        tails = 2 * ndtr(-np.abs(self.differences) / self.standard_errors)
        return np.asarray(np.maximum(tails, PVALUE_MIN))


def witness_at_locations(
    features: MeanEmbedding,
    difference: FloatVector,
    covariance: PrivateCovariance,
    units: FloatVector,
    noise: float,
) -> Witness:
    """Return the witness from a private mean difference, (J,), of two samples.

    ``covariance`` is a private covariance of one unit's features, both samples' pooled; ``units`` (2,) the
    samples' sizes; ``noise`` the standard deviation of the noise on a coordinate of ``difference``.
    """
    root = features.unwhitener
    lengths = np.sum(root**2, axis=0)
    sampling = np.einsum("ji,jk,ki->i", root, covariance.matrix, root) + covariance.noise * lengths
    sampling = np.clip(sampling, 0.0, KERNEL_VARIANCE_MAX) * np.sum(1 / units)
    variances = sampling + RARE_UNITS * np.sum(1 / units**2) + noise**2 * lengths
    return Witness(root @ difference, np.sqrt(variances))


def location_differences(
    domain: Domain,
    features: MeanEmbedding,
    names: Sequence[str],
    witnesses: Mapping[tuple[int, int], Witness],
    level: float,
) -> tuple[LocationComparison, ...]:
    """Name where pairs of owners differ most, at most LOCATIONS_NAMED_MAX, the strongest first.

    ``witnesses`` holds the witness of each pair of positions in ``names``.
    """
    if not witnesses:
        return ()
    values = decode_locations(domain, features.locations)
    pairs = list(witnesses)
    adjusted = holm(np.concatenate([witnesses[pair].pvalues for pair in pairs]))
    scores = np.concatenate([witnesses[pair].scores for pair in pairs])
    found = []
    for index in np.argsort(-scores, kind="stable")[:LOCATIONS_NAMED_MAX]:
        number, location = divmod(int(index), len(values))
        first, second = pairs[number]
        witness = witnesses[first, second]
        found.append(
            LocationComparison(
                first=names[first],
                second=names[second],
                values=values[location],
                difference=float(witness.differences[location]),
                standard_error=float(witness.standard_errors[location]),
                pvalue=float(adjusted[index]),
                reject=bool(adjusted[index] <= level),
            )
        )
    return tuple(found)


def locations_of_owners(
    domain: Domain, features: MeanEmbedding, names: Sequence[str], evidence: PrivateMoments, level: float
) -> tuple[LocationComparison, ...]:
    """Name where owners differ most, from their own releases; none above OWNERS_COMPARED_MAX owners."""
    if len(names) > OWNERS_COMPARED_MAX or evidence.second_moments is None or evidence.second_noise is None:
        return ()
    witnesses = {}
    for pair in itertools.combinations(range(len(names)), 2):
        chosen = evidence.select(pair)
        if chosen.second_moments is None or chosen.second_noise is None:
            raise TypeError("the witness needs second moments")
        means = chosen.means
        # A Sigma stands for Sigma_x / n_x + Sigma_y / n_y, where the two differ.
        covariance = pool_covariance(means, chosen.second_moments, chosen.second_noise, 1 / means.units)
        noise = float(np.linalg.norm(means.noise))
        difference = means.means[0] - means.means[1]
        witnesses[pair] = witness_at_locations(features, difference, covariance, means.units, noise)
    return location_differences(domain, features, names, witnesses, level)
