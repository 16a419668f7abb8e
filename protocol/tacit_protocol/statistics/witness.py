"""Where two distributions differ: the witness function at the test locations, with its standard error.

The witness of x against y at t is w(t) = E k(X, t) - E k(Y, t): above 0 where x has more mass near t. ME
features are psi = R^-1 [k(x, T_1) ... k(x, T_J)]' with R = (K_T + lambda I)^(1/2), so that w(T_j) = (R d)_j
for the difference d of the mean features: no inverse, and nothing lost by whitening. With S the sampling
covariance of d and noise of variance b on each of its coordinates,

    Var w(T_j) = r_j' S r_j + b |r_j|^2,        r_j the j-th column of R,        |r_j|^2 = 1 + lambda.

b is known exactly. S is known through noise of standard deviation tau on its diagonal and tau / sqrt 2 beside
it, which moves r_j' S r_j by a normal of standard deviation tau |r_j|^2: it is rounded up by one, and by the
weight of two of each owner's own units (RARE_UNITS). k lies in [0, 1], so that its variance is at most 1/4
(docs/mathematics/test-locations.md).
"""

import itertools
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

import numpy as np
from scipy.special import ndtr

from tacit_protocol.domain.columns import Domain
from tacit_protocol.features.mean_embedding import RawMeanEmbedding, WhitenedMeanEmbedding
from tacit_protocol.features.public_choices import decode_locations
from tacit_protocol.statistics.multiplicity import PVALUE_MIN, holm
from tacit_protocol.statistics.private_means import (
    RARE_UNITS,
    FloatVector,
    PrivateCovariance,
    pool_covariance,
)
from tacit_protocol.statistics.two_sample import OWNERS_COMPARED_MAX, Evidence
from tacit_protocol.strict import StrictModel

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
    values: dict[str, float | str | None]
    difference: float
    standard_error: float
    pvalue: float
    reject: bool

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
    domain: Domain, features: MeanEmbedding, names: Sequence[str], evidence: Evidence, level: float
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
