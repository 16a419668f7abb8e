"""Probability weights on public points that match a noisy mean embedding as well as its noise deserves.

P2 (Balog, Tolstikhin and Schölkopf, *Differentially private database release via kernel mean embeddings*),
Theorem 8, bounds the weights' L1 norm; here they are a probability vector, the part of that ball in which
every event has a probability. Of all such weights whose embedding is within the noise of the released one,
the smoothest are taken (Morozov's discrepancy principle): min |m - Psi'u|^2 + tau |u|^2 over u >= 0 with
sum u = 1, where row j of Psi is the feature vector of point j, with the largest tau for which |m - Psi'u| is
at most the root mean square of the noise's norm. The best match alone would put all weight on a few points,
and follow the noise. All of this is post-processing: it can change accuracy, never privacy.
"""

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

ITERATIONS_MAX = 20_000
"""Most gradient steps for one tau; the gap that was reached is reported in any case."""

GAP_CHECKED_EVERY = 20
"""Steps between two looks at the gap, which costs as much as a step."""

GAP_SHARE = 1e-3
"""Part of the noise's square at which a fit counts as solved."""

SMOOTHING_STEPS = 60
"""Values of tau that are tried, each half of the one before it: from 1 down to 1e-18."""

Floats = npt.NDArray[np.float64]


@dataclass(frozen=True)
class SimplexFit:
    """Weights (J,), non-negative with sum 1, which match the mean up to ``squared_distance``.

    The penalised objective, with ``smoothing`` for tau, is within ``gap`` of the smallest possible.
    """

    weights: Floats
    squared_distance: float
    smoothing: float
    gap: float


def fit_simplex(features: Floats, target: Floats, noise_error: float) -> SimplexFit:
    """Fit the smoothest weights that match within the noise, or else the best that were found.

    Args:
        features: the points' feature vectors, (J, dimension).
        target: the noisy mean, (dimension,).
        noise_error: root mean square of the norm of its noise, positive.
    """
    gram, linear = features @ features.T, features @ target
    largest = float(np.linalg.eigvalsh(gram)[-1])
    weights = np.full(len(features), 1.0 / len(features))
    best: SimplexFit | None = None
    for halvings in range(SMOOTHING_STEPS):
        smoothing = 0.5**halvings
        penalised = gram + smoothing * np.eye(len(gram))
        weights = _descend(penalised, linear, largest + smoothing, weights, GAP_SHARE * noise_error**2)
        residual = target - features.T @ weights
        fit = SimplexFit(
            weights, float(residual @ residual), smoothing, duality_gap(penalised, linear, weights)
        )
        if best is not None and fit.squared_distance > best.squared_distance - GAP_SHARE * noise_error**2:
            return best  # halving tau no longer helps: the points cannot come nearer
        best = fit
        if fit.squared_distance <= noise_error**2:
            return fit
    if best is None:
        raise ValueError("at least one value of tau must be tried")
    return best


def _descend(gram: Floats, linear: Floats, largest: float, weights: Floats, gap: float) -> Floats:
    """Return weights whose duality gap is at most ``gap``, by accelerated projected gradients."""
    ahead, momentum = weights, 1.0
    for count in range(ITERATIONS_MAX):
        if count % GAP_CHECKED_EVERY == 0 and duality_gap(gram, linear, weights) <= gap:
            break
        new = project_on_simplex(ahead - (gram @ ahead - linear) / largest)
        if float((ahead - new) @ (new - weights)) > 0:  # it overshot: start the acceleration again
            momentum = 1.0
        following = (1 + float(np.sqrt(1 + 4 * momentum**2))) / 2
        ahead = new + (momentum - 1) / following * (new - weights)
        weights, momentum = new, following
    return weights


def duality_gap(gram: Floats, linear: Floats, weights: Floats) -> float:
    """Bound how far u'Gu - 2b'u at these weights is above its smallest: Frank and Wolfe's gap."""
    gradient = 2 * (gram @ weights - linear)
    return max(0.0, float(gradient @ weights - gradient.min()))


def project_on_simplex(values: Floats) -> Floats:
    """Return the probability vector nearest to ``values``."""
    ordered = np.sort(values)[::-1]
    excess = (np.cumsum(ordered) - 1) / np.arange(1, len(values) + 1)
    kept = int(np.flatnonzero(ordered > excess)[-1])
    return np.asarray(np.maximum(values - excess[kept], 0.0))
