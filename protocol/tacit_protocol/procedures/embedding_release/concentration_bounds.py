"""The squared distance of two means that carry privacy noise: its null law, and what is proved of it.

Both are means of features |psi| <= 1; d = m_x - m_y = delta + s + noise, a = 1/n_x + 1/n_y. With the units'
spectrum taken from points that stand for the population or from a table at hand, |d|^2 is nearly a weighted
sum of chi-squares with weights a lambda_j + b, b the variance of both noises. :class:`ProvedDistance` assumes
no spectrum: it bounds |delta + s| by McDiarmid (1989) and Klein and Rio (2005), or for normal s by Cirelson,
Ibragimov and Sudakov (1976) and Szekely and Bakirov (2003). Derivations:
docs/mathematics/database-release.md.
"""

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

import numpy as np
from scipy.special import gammaincc
from scipy.stats import chi2, ncx2

from tacit_protocol.numerics.quadratic_forms import TINY, survival
from tacit_protocol.procedures.means.private_means import FloatMatrix, FloatVector, Moments, PrivateMeans

SLACK = 2.0
"""Standard deviations by which |mu|^2 is rounded down, for the noise and the sampling in it."""

DRAWS = 9999
"""Draws of a null that has no closed form: its p-values are 1e-4 or more."""

DRAWS_AT_ONCE = 1000
"""Draws held in memory together."""

SEED = 31
"""Of these draws: the same question gets the same answer."""


@dataclass(frozen=True)
class Noise:
    """Noise on each coordinate of a mean: its standard deviation and its law."""

    scale: float
    law: Literal["gaussian", "laplace"] = "gaussian"


@dataclass(frozen=True)
class Spread:
    """What is known of the units' covariance: spectra (dimension,), one of which is no more favourable."""

    spectra: tuple[FloatVector, ...]

    @property
    def moments(self) -> Moments:
        """Trace, energy and largest eigenvalue: the largest of each over the spectra."""
        traces = [float(s.sum()) for s in self.spectra]
        energies = [float(s @ s) for s in self.spectra]
        return Moments(max(traces), max(energies), max(float(s.max()) for s in self.spectra))


def noisy_trace_bound(means: PrivateMeans) -> float:
    """Bound the trace of the units' covariance: 1 - |mu|^2, with |mu|^2 rounded down by ``SLACK`` errors."""
    pooled, noise = means.pooled(), means.pooled_noise()
    units, dimension = float(means.units.sum()), means.dimension
    energy = float(np.clip(pooled @ pooled - dimension * noise**2 - 1 / units, 0.0, 1.0))
    error = np.sqrt(4 * energy * (noise**2 + 1 / units) + 2 * dimension * noise**4)
    return float(np.clip(1.0 - energy + SLACK * error, 1e-9, 1.0))


def bounded_spread(means: PrivateMeans) -> Spread:
    """Return spectra that share the largest trace allowed by the means among 1, 4, 16, ... eigenvalues."""
    trace, dimension = noisy_trace_bound(means), means.dimension
    counts = sorted({min(4**power, dimension) for power in range(dimension.bit_length() + 1)})
    spectra = []
    for count in counts:
        spectrum = np.zeros(dimension)
        spectrum[:count] = trace / count
        spectra.append(spectrum)
    return Spread(tuple(spectra))


def database_spread(features: FloatMatrix, weights: FloatVector, means: PrivateMeans) -> Spread:
    """Return the spectrum of points with probability weights, scaled up to the largest trace allowed.

    ``features`` is (points, dimension), ``weights`` (points,).
    """
    mean = features.T @ weights
    covariance = (features * weights[:, None]).T @ features - np.outer(mean, mean)
    spectrum = np.maximum(np.linalg.eigvalsh(covariance), 0.0)
    total = float(spectrum.sum())
    if total <= 1e-12:
        return bounded_spread(means)
    return Spread((np.asarray(spectrum * max(1.0, noisy_trace_bound(means) / total)),))


def sample_spread(covariance: FloatMatrix, rows: int) -> Spread:
    """Return the spectrum of a sample's covariance, its trace rounded up by its standard error.

    ``covariance`` is (dimension, dimension), from ``rows`` rows.
    """
    spectrum = np.maximum(np.linalg.eigvalsh((covariance + covariance.T) / 2), 0.0)
    total = float(spectrum.sum())
    if total <= 1e-12:
        return Spread((np.full(len(spectrum), 1e-12),))
    error = float(np.sqrt(2 * float(spectrum @ spectrum) / rows)) / total
    return Spread((np.asarray(spectrum * (1 + error)),))


def distance_pvalue(
    statistic: float, share: float, noises: tuple[Noise, ...], spread: Spread, dimension: int
) -> float:
    """Return the probability of a squared distance at least as large, under one population.

    Args:
        statistic: |d|^2.
        share: a = 1/n_x + 1/n_y.
        noises: of each mean that has any.
        spread: of the units.
        dimension: number of coordinates.
    """
    variance = sum(noise.scale**2 for noise in noises)
    if all(noise.law == "gaussian" for noise in noises):
        return max(_exact(statistic, share * spectrum + variance) for spectrum in spread.spectra)
    return max(_simulated(statistic, share * spectrum, noises, dimension) for spectrum in spread.spectra)


def _exact(statistic: float, values: FloatVector) -> float:
    weights, degrees = np.unique(values, return_counts=True)
    return survival(statistic, weights, degrees=degrees)


def _simulated(statistic: float, variances: FloatVector, noises: tuple[Noise, ...], dimension: int) -> float:
    above = sum(int(np.sum(norms >= statistic)) for norms in _squared_norms(noises, dimension, variances))
    return (1 + above) / (DRAWS + 1)


def noise_norms(noises: tuple[Noise, ...], dimension: int) -> FloatVector:
    """Simulate the norm of the sum of the noises ``DRAWS`` times, in rising order."""
    return np.sort(np.sqrt(np.concatenate(list(_squared_norms(noises, dimension, np.zeros(dimension))))))


def _squared_norms(
    noises: tuple[Noise, ...], dimension: int, variances: FloatVector
) -> Iterator[FloatVector]:
    """Yield ``DRAWS`` squared norms of normal vectors with these variances (dimension,) plus the noises."""
    rng, left = np.random.default_rng(SEED), DRAWS
    while left > 0:
        count = min(left, DRAWS_AT_ONCE)
        drawn = rng.standard_normal((count, dimension)) * np.sqrt(variances)
        for noise in noises:
            if noise.law == "gaussian":
                drawn += noise.scale * rng.standard_normal((count, dimension))
            else:
                drawn += rng.laplace(0.0, noise.scale / np.sqrt(2), (count, dimension))
        yield np.sum(drawn**2, axis=1)
        left -= count


GRID = 1000
"""Steps of a length; sums over them are rounded up."""

BEYOND = 9.0
"""Deviations of the noise, beyond its norm, to which lengths are followed: the rest counts in full."""

TRACE_SHARE = 0.1
"""Part of an error probability that goes to the bounds on the units' spread."""

HALVINGS = 45
"""Of an interval in which a root is sought."""

EXPONENT_MAX = 690.0
"""Of a tail bound: what is smaller is 0 to a float."""

TRACE_MIN = 1e-12
"""Least bound on a trace: what floating point leaves of it."""

NEGLIGIBLE = 1e4
"""Noise whose deviation is smaller than the distance by this factor: its norm alone is used."""

DEGREES_MAX, EXCESS_MIN = 200, 1.05
"""From 1.05 times the mean on no more than 200 equal eigenvalues are the worst; below, the bound is 1."""

Sampling = Literal["any", "normal"]


@dataclass(frozen=True)
class ReleasedMean:
    """A noisy mean of features with norm at most 1: m (dimension,), its units, and noise on a coordinate."""

    mean: FloatVector
    units: float
    noise: Noise


@dataclass(frozen=True)
class ProvedDistance:
    """Two released means of the same features, of diameter ``diameter``: what is proved of their distance.

    ``sampling``: for ``any`` population and number of units, or of ``normal`` sampling errors, as many units
    have. The bounds on the units' spread hold for any population in both cases.
    """

    first: ReleasedMean
    second: ReleasedMean
    diameter: float
    sampling: Sampling = "any"

    @cached_property
    def statistic(self) -> float:
        """|m_x - m_y|^2."""
        difference = self.first.mean - self.second.mean
        return float(difference @ difference)

    def pvalue(self) -> float:
        """Bound the probability of so large a distance, were both of one population: valid at every level.

        The p with P(d; trace bounds that fail with probability p/10) = 9p/10.
        """

        def excess(log_p: float) -> float:
            p = float(np.exp(log_p))
            return self._above(0.0, self._variances(TRACE_SHARE * p)) - (1 - TRACE_SHARE) * p

        if excess(0.0) >= 0:
            return 1.0
        return max(TINY, float(np.exp(_falling_root(excess, -EXPONENT_MAX, 0.0)[1])))

    def interval(self, confidence: float) -> tuple[float, float]:
        """Return an interval that holds |mu_x - mu_y|^2 with that probability at least, in (0, 1)."""
        error = 1 - confidence
        variances = self._variances(TRACE_SHARE * error)
        side = (1 - TRACE_SHARE) * error / 2
        low = high = 0.0
        if self._above(0.0, variances) < side:
            low = _falling_root(lambda x: side - self._above(x, variances), 0.0, self.diameter)[0]
        if self._below(self.diameter, variances) > side:
            high = self.diameter
        elif self._below(0.0, variances) > side:
            high = _falling_root(lambda x: self._below(x, variances) - side, 0.0, self.diameter)[1]
        return low**2, max(low, high) ** 2

    def _variances(self, error: float) -> tuple[float, float]:
        """V and W, both right but with probability ``error`` at most: each mean's trace takes one half."""
        means = (self.first, self.second)
        traces = [trace_bound(mean, self.diameter, error / 2) for mean in means]
        # A feature's projection lies in an interval of length D: its variance is at most D^2/4 (Popoviciu).
        total = sum(trace / mean.units for trace, mean in zip(traces, means, strict=True))
        largest = sum(
            min(trace, self.diameter**2 / 4) / mean.units for trace, mean in zip(traces, means, strict=True)
        )
        return total, largest

    @cached_property
    def _lengths(self) -> FloatVector:
        """Lengths |delta + s| that are told apart, from 0 to where noise cannot bring them back to |d|."""
        scale = float(np.hypot(self.first.noise.scale, self.second.noise.scale))
        beyond = (BEYOND + float(np.sqrt(len(self.first.mean)))) * scale
        return np.linspace(0.0, float(np.sqrt(self.statistic)) + beyond, GRID + 1)

    @cached_property
    def _reached(self) -> tuple[FloatVector, FloatVector]:
        """For each of these lengths, bounds on P(|d|^2 >= statistic) and P(|d|^2 <= statistic)."""
        noises, dimension = (self.first.noise, self.second.noise), len(self.first.mean)
        # Without any noise the norm is 0 as good as exactly.
        variance = max(sum(noise.scale**2 for noise in noises), 1e-30 * self.statistic, 1e-300)
        apart = np.sqrt(self.statistic) - self._lengths
        if any(noise.law != "gaussian" for noise in noises):
            norms = noise_norms(noises, dimension)

            def at_least(length: FloatVector) -> FloatVector:
                smaller = np.searchsorted(norms, length, side="left")
                return np.minimum(1.0, (1 + DRAWS - smaller) / (DRAWS + 1))

            return at_least(apart), at_least(-apart)
        if self.statistic > NEGLIGIBLE**2 * variance:
            squares = np.maximum(apart, 0.0) ** 2 / variance, np.maximum(-apart, 0.0) ** 2 / variance
            return np.asarray(chi2.sf(squares[0], dimension)), np.asarray(chi2.sf(squares[1], dimension))
        given = self.statistic / variance, dimension, self._lengths**2 / variance
        return np.asarray(ncx2.sf(*given)), np.asarray(ncx2.cdf(*given))

    def _above(self, distance: float, variances: tuple[float, float]) -> float:
        """Bound P(|d|^2 >= statistic) where |delta| = ``distance``."""
        y, (reached, _) = self._lengths, self._reached
        root = float(np.sqrt(variances[0]))
        tail = self._concentration(y - np.hypot(distance, root), variances)
        if self.sampling == "any":
            tail = np.minimum(tail, self._klein_rio(y - distance - root, variances))
        elif distance == 0:
            tail = np.minimum(tail, _worst_spectrum(y**2 / variances[0], len(self.first.mean)))
        return float((tail[:-1] - tail[1:]) @ reached[1:] + tail[-1] + (1 - tail[0]) * reached[0])

    def _below(self, distance: float, variances: tuple[float, float]) -> float:
        """Bound P(|d|^2 <= statistic) where |delta| = ``distance``."""
        y, (_, reached) = self._lengths, self._reached
        tail = self._concentration(distance - y, variances)
        if self.sampling == "any":
            root = float(np.sqrt(variances[0]))
            tail = np.minimum(tail, self._klein_rio(distance - y - root, variances))
        steps = tail[1:] - tail[:-1]
        return float(tail[0] * reached[0] + steps @ reached[:-1] + (1 - tail[-1]) * reached[-1])

    def _concentration(self, beyond: FloatVector, variances: tuple[float, float]) -> FloatVector:
        """Bound the probability that |delta + s| is so far above or below its mean: exp(-r^2 / 2 W)."""
        if self.sampling == "normal":
            spread = variances[1]
        else:
            spread = (1 / self.first.units + 1 / self.second.units) * self.diameter**2 / 4
        return _tail(np.maximum(beyond, 0.0) ** 2 / (2 * spread))

    def _klein_rio(self, beyond: FloatVector, variances: tuple[float, float]) -> FloatVector:
        total, largest = variances
        c = self.diameter / min(self.first.units, self.second.units)
        r = np.maximum(beyond, 0.0)
        return _tail(r**2 / (2 * largest + 4 * c * np.sqrt(total) + 3 * c * r))


def trace_bound(mean: ReleasedMean, diameter: float, error: float) -> float:
    """Bound tr Sigma = E|psi|^2 - |mu|^2 from a released mean; fails with probability ``error`` at most.

    Half of that goes to the noise in |m|^2, half to sampling: |mean of psi| exceeds its expectation, which is
    at most sqrt(|mu|^2 + 1/n), by sqrt(D^2 x / 2n) with probability exp(-x) (McDiarmid). Never more than
    min(1, D^2/2).
    """
    x = float(np.log(2 / error))
    length = float(np.sqrt(_energy(mean, error / 2))) - diameter * float(np.sqrt(x / (2 * mean.units)))
    energy = max(0.0, length) ** 2 - 1 / mean.units
    return max(TRACE_MIN, min(1.0, diameter**2 / 2, 1.0 - energy))


def _energy(mean: ReleasedMean, error: float) -> float:
    """Bound the squared norm of a mean without its noise from below, but for a probability of ``error``."""
    variance, dimension = mean.noise.scale**2, len(mean.mean)
    if variance == 0:
        return float(mean.mean @ mean.mean)
    observed = float(mean.mean @ mean.mean) / variance
    if mean.noise.law == "gaussian":
        # Birge (2001): a noncentral chi-squared is at most d + e + 2 sqrt((d + 2e) x) + 2x; solved for e.
        root = float(np.sqrt(max(0.0, 2 * observed - dimension))) - 2 * float(np.sqrt(np.log(1 / error)))
        return variance * max(0.0, (max(0.0, root) ** 2 - dimension) / 2)
    # Cantelli, with the variance 4 e b + 5 d b^2 of the squared norm under Laplace noise, and e <= 1.
    spread = float(np.sqrt((1 / error - 1) * (4 / variance + 5 * dimension)))
    return variance * max(0.0, observed - dimension - spread)


def _worst_spectrum(excess: FloatVector, dimension: int) -> FloatVector:
    """Return the largest P(Q >= excess) over quadratic forms Q of ``dimension`` normals with E Q = 1."""
    worst = np.where(excess >= EXCESS_MIN, gammaincc(0.5, excess / 2), 1.0)
    # From 1.5364 on one eigenvalue is the worst; nearer to the mean, several.
    between = (excess >= EXCESS_MIN) & (excess < 1.54)
    degrees = np.arange(1, min(dimension, DEGREES_MAX) + 1)[:, None]
    if between.any():
        worst[between] = gammaincc(degrees / 2, degrees * excess[between] / 2).max(axis=0)
    return np.asarray(worst)


def _tail(exponent: FloatVector) -> FloatVector:
    return np.asarray(np.where(exponent > EXPONENT_MAX, 0.0, np.exp(-np.minimum(exponent, EXPONENT_MAX))))


def _falling_root(function: Callable[[float], float], low: float, high: float) -> tuple[float, float]:
    """Return two neighbours between which a falling function, positive at ``low``, crosses 0."""
    for _ in range(HALVINGS):
        middle = (low + high) / 2
        if function(middle) > 0:
            low = middle
        else:
            high = middle
    return low, high
