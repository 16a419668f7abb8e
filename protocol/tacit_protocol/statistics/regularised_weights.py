"""Regularised weights on public points: P2's Theorem 8, solved to a certified duality gap.

P2 (Balog, Tolstikhin and Schölkopf, *Differentially private database release via kernel mean embeddings*),
Theorem 8: min |m - Psi'u|^2 over |u|_1 <= C, where row j of Psi is the feature vector of point j. Weights may
be negative. With C at least 1 the set holds every population on the points, so that the bound costs no
consistency; and for any C, |E_u f| <= C max |f|, whatever the noise. Frank and Wolfe's gap at u,
g'u + C max |g| with g the gradient, bounds how far the objective is above its smallest, whatever made u. All
of this is post-processing: it can change accuracy, never privacy.
"""

from dataclasses import dataclass

import numpy as np

from tacit_protocol.statistics.simplex_weights import (
    GAP_SHARE,
    Floats,
    descend,
    duality_gap,
    project_on_simplex,
    solve_simplex,
)


@dataclass(frozen=True)
class CrossPolytope:
    """Weights with an L1 norm of at most ``radius``, positive."""

    radius: float

    def project(self, values: Floats) -> Floats:
        """Return the nearest members: (J,), or each column of (J, targets)."""
        size = np.abs(values)
        inside = size.sum(axis=0) <= self.radius
        shrunk = np.sign(values) * self.radius * project_on_simplex(size / self.radius)
        return np.asarray(np.where(inside, values, shrunk))

    def lowest(self, gradient: Floats) -> Floats:
        """Return the smallest u'g over the members: all weight against the largest entry."""
        return np.asarray(-self.radius * np.abs(gradient).max(axis=0))


@dataclass(frozen=True)
class RegularisedFit:
    """Weights (J,) of either sign, whose L1 norm is at most ``l1_max``.

    They match the mean up to ``squared_distance``, which is within ``gap`` of the smallest possible.
    """

    weights: Floats
    squared_distance: float
    l1_max: float
    gap: float


def fit_regularised(features: Floats, target: Floats, noise_error: float, l1_max: float) -> RegularisedFit:
    """Fit weights to a noisy mean.

    Args:
        features: the points' feature vectors, (J, dimension).
        target: the noisy mean, (dimension,).
        noise_error: root mean square of the norm of its noise, positive; the gap is ``GAP_SHARE`` of its
            square, unless the steps run out: the one reached is reported in any case.
        l1_max: C, positive; at least 1 to hold every population on the points.

    Raises ValueError where ``l1_max`` is not positive and finite.
    """
    _require_positive(l1_max)
    # The ball's corners are +C and -C at a point: weights in it are mixtures of them, and of 0.
    corners = l1_max * np.concatenate([features, -features, np.zeros((1, features.shape[1]))])
    mixture = solve_simplex(corners @ corners.T, corners @ target, GAP_SHARE * noise_error**2)
    weights = l1_max * (mixture[: len(features)] - mixture[len(features) : -1])
    residual = target - features.T @ weights
    gap = duality_gap(features @ features.T, features @ target, weights, CrossPolytope(l1_max))
    return RegularisedFit(weights, float(residual @ residual), l1_max, gap)


def refit_regularised(features: Floats, targets: Floats, l1_max: float, gap: float, start: Floats) -> Floats:
    """Return weights, (J, targets), of many means (dimension, targets), each to that duality gap.

    ``start`` (J,) is where all begin; ``REFIT_STEPS_MAX`` gradient steps are the most. Raises
    ValueError where ``l1_max`` is not positive and finite.
    """
    _require_positive(l1_max)
    gram = features @ features.T
    largest, ball = float(np.linalg.eigvalsh(gram)[-1]), CrossPolytope(l1_max)
    begun = np.repeat(start[:, None], targets.shape[1], axis=1)
    return descend(gram, features @ targets, largest, begun, gap, members=ball)


def _require_positive(l1_max: float) -> None:
    if not 0 < l1_max < np.inf:
        raise ValueError("the bound on the weights' L1 norm must be positive and finite")
