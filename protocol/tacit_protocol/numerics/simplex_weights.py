"""Weights on public points that match a noisy mean embedding m: probabilities, or of bounded L1 norm.

Row j of Psi is the feature vector of point j. Probabilities are the smoothest within the noise (Morozov's
discrepancy principle): min |m - Psi'u|^2 + tau |u|^2 over u >= 0 with sum u = 1, tau as large as the noise's
norm allows. Regularised weights are Theorem 8's of P2 (Balog, Tolstikhin and Schölkopf, *Differentially
private database release via kernel mean embeddings*): min |m - Psi'u|^2 over |u|_1 <= C, to a certified
duality gap. All of this is post-processing (docs/mathematics/database-release.md).
"""

from dataclasses import dataclass
from typing import Protocol

import numpy as np
import numpy.typing as npt

NEWTON_STEPS_MAX = 100
"""Most steps of one fit, of which some twenty are usual; the gap that was reached is reported in any case."""

REFIT_STEPS_MAX = 1000
"""Most gradient steps of many refits at once, which say how much weights vary, and are nobody's answer."""

GAP_CHECKED_EVERY = 20
"""Steps between two looks at the gap, which costs as much as a step."""

GAP_SHARE = 1e-3
"""Part of the noise's square at which a fit counts as solved."""

SMOOTHING_STEPS = 40
"""Values of tau, each half of the one before it: from 1 down to 2e-12, below which rounding takes over."""

TO_THE_BOUNDARY = 0.995
"""Part of the way to the nearest zero weight that a step may go."""

Floats = npt.NDArray[np.float64]


class WeightSet(Protocol):
    """A convex set of weights; arrays are (J,), or (J, targets) with one vector of weights a column."""

    def project(self, values: Floats) -> Floats:
        """Return the nearest members, of the same shape."""

    def lowest(self, gradient: Floats) -> Floats:
        """Return the smallest u'g over the members u, for each column g."""


class Simplex:
    """Probability vectors: non-negative, with sum 1."""

    def project(self, values: Floats) -> Floats:
        """Return the probability vectors nearest to ``values``."""
        return project_on_simplex(values)

    def lowest(self, gradient: Floats) -> Floats:
        """Return the smallest u'g: all weight at the smallest entry."""
        return np.asarray(gradient.min(axis=0))


SIMPLEX = Simplex()


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
    gram, linear, share = features @ features.T, features @ target, GAP_SHARE * noise_error**2

    def fit(halvings: int) -> SimplexFit:
        smoothing = 0.5**halvings
        penalised = gram + smoothing * np.eye(len(gram))
        weights = solve_simplex(penalised, linear, share)
        residual = target - features.T @ weights
        gap = duality_gap(penalised, linear, weights)
        return SimplexFit(weights, float(residual @ residual), smoothing, gap)

    # The distance falls with tau: look for the first tau that is near enough by halving the range.
    best, low, high = fit(SMOOTHING_STEPS - 1), -1, SMOOTHING_STEPS - 1
    wanted = max(noise_error**2, best.squared_distance + share)
    while high - low > 1:
        middle = (low + high) // 2
        found = fit(middle)
        if found.squared_distance <= wanted:
            best, high = found, middle
        else:
            low = middle
    return best


def solve_simplex(gram: Floats, linear: Floats, gap: float) -> Floats:
    """Return probability weights, (J,), whose u'Gu - 2b'u is within ``gap`` of the smallest.

    Mehrotra's predictor and corrector on the optimality conditions Gu - b - z + y = 0, uz = 0, sum u = 1:
    some twenty Newton steps, however badly conditioned G is. ``gram`` is (J, J), ``linear`` (J,).
    """
    count = len(linear)
    weights, total = np.full(count, 1.0 / count), 0.0
    slopes = gram @ weights - linear
    level = -float(slopes.min()) + float(np.abs(slopes).max()) + 1e-12
    duals = slopes + level
    best, smallest = weights, np.inf
    for _ in range(NEWTON_STEPS_MAX):
        reached = duality_gap(gram, linear, weights / weights.sum())
        if reached < smallest:
            best, smallest = weights / weights.sum(), reached
        if reached <= gap or not np.all(np.isfinite(weights)):
            break
        system = gram + np.diag(duals / weights)
        residual = gram @ weights - linear - duals + level
        total = float(weights.sum()) - 1
        centre = float(weights @ duals) / count
        products = -weights * duals
        step, shift, slack = _newton(system, residual, products, weights=weights, duals=duals, total=total)
        length = _length(weights, step, duals, slack)
        after = float((weights + length * step) @ (duals + length * slack)) / count
        products += (after / centre) ** 3 * centre - step * slack
        step, shift, slack = _newton(system, residual, products, weights=weights, duals=duals, total=total)
        length = TO_THE_BOUNDARY * _length(weights, step, duals, slack)
        weights, level, duals = weights + length * step, level + length * shift, duals + length * slack
    return best


def _newton(
    system: Floats, residual: Floats, products: Floats, *, weights: Floats, duals: Floats, total: float
) -> tuple[Floats, float, Floats]:
    """Return the steps of the weights, of the multiplier of their sum, and of their dual variables."""
    sides = np.stack([products / weights - residual, np.ones(len(weights))], axis=1)
    free, ones = np.linalg.solve(system, sides).T
    shift = (float(free.sum()) + total) / float(ones.sum())
    step = free - shift * ones
    return step, shift, (products - duals * step) / weights


def _length(weights: Floats, step: Floats, duals: Floats, slack: Floats) -> float:
    """Return the longest step, at most 1, that leaves weights and duals non-negative."""
    falls = np.concatenate([-step / weights, -slack / duals])
    return 1.0 / max(1.0, float(falls.max()))


def refit(features: Floats, targets: Floats, smoothing: float, gap: float, start: Floats) -> Floats:
    """Return probability weights, (J, targets), of many means (dimension, targets) at one tau.

    ``gap`` is the duality gap to be reached by every column, in ``REFIT_STEPS_MAX`` steps at most, and
    ``start`` (J,) where all begin.
    """
    gram = features @ features.T + smoothing * np.eye(len(features))
    begun = np.repeat(start[:, None], targets.shape[1], axis=1)
    largest = float(np.linalg.eigvalsh(gram)[-1])
    return descend(gram, features @ targets, largest, begun, gap)


def descend(
    gram: Floats,
    linear: Floats,
    largest: float,
    weights: Floats,
    gap: float,
    *,
    members: WeightSet = SIMPLEX,
    steps_max: int = REFIT_STEPS_MAX,
) -> Floats:
    """Minimise u'Gu - 2b'u over a set of weights, by accelerated projected gradients.

    Args:
        gram: G, (J, J), positive semidefinite.
        linear: b, (J,) or (J, targets), each column a problem of its own.
        largest: the largest eigenvalue of G, or more.
        weights: where to start, of the shape of ``linear``.
        gap: stops where every duality gap is at most this.
        members: the set.
        steps_max: most steps.
    """
    ahead, momentum = weights, 1.0
    for count in range(steps_max):
        if count % GAP_CHECKED_EVERY == 0 and duality_gap(gram, linear, weights, members) <= gap:
            break
        new = members.project(ahead - (gram @ ahead - linear) / largest)
        if float(np.sum((ahead - new) * (new - weights))) > 0:  # it overshot: start the acceleration again
            momentum = 1.0
        following = (1 + float(np.sqrt(1 + 4 * momentum**2))) / 2
        ahead = new + (momentum - 1) / following * (new - weights)
        weights, momentum = new, following
    return weights


def duality_gap(gram: Floats, linear: Floats, weights: Floats, members: WeightSet = SIMPLEX) -> float:
    """Bound how far u'Gu - 2b'u at these weights is above its smallest: Frank and Wolfe's gap.

    Of several columns, the largest gap.
    """
    gradient = 2 * (gram @ weights - linear)
    return max(0.0, float(np.max(np.sum(gradient * weights, axis=0) - members.lowest(gradient))))


def project_on_simplex(values: Floats) -> Floats:
    """Return the probability vector nearest to ``values``, (J,) or each column of (J, targets)."""
    columns = values.reshape(len(values), -1)
    ordered = -np.sort(-columns, axis=0)
    excess = (np.cumsum(ordered, axis=0) - 1) / np.arange(1, len(values) + 1)[:, None]
    kept = len(values) - 1 - np.argmax((ordered > excess)[::-1], axis=0)
    nearest = np.maximum(columns - excess[kept, np.arange(columns.shape[1])], 0.0)
    return np.asarray(nearest.reshape(values.shape))


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
