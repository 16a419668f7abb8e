"""The private statistic: P0's bound is false, ours holds and is attained; its value, its error, its null."""

import itertools
from collections.abc import Callable, Iterator

import mpmath
import numpy as np
import numpy.typing as npt
import pytest
from scipy.optimize import minimize

from tacit_protocol.numerics.quadratic_forms import quantile, survival
from tacit_protocol.procedures.curated_two_sample.release import (
    contribution_norm,
    evaluation_error,
    ridge_pvalue,
    ridge_sensitivity,
    ridge_statistic,
)

Floats = npt.NDArray[np.float64]

P0_BOUND = {1: 4.0, 2: 16.1}
"""P0's Theorem 1 at J = 1, n = 1000, gamma = 1e-3, by kappa."""


def p0_statistic(z: Floats, gamma: float) -> float:
    """w'(Sigma + gamma I)^-1 w with the covariance of z, (n,): P0's statistic without its factor n."""
    return float(z.mean() ** 2 / (z.var() + gamma))


def test_p0s_theorem_1_is_false() -> None:
    """One z of a thousand ones changes to 0; both lie within kappa = 1."""
    ones, changed = np.ones(1000), np.ones(1000)
    changed[0] = 0.0
    moved = abs(p0_statistic(ones, 1e-3) - p0_statistic(changed, 1e-3))
    assert moved == pytest.approx(500.7, abs=0.1)
    assert 1000 * moved == pytest.approx(5.0e5, rel=2e-2)
    assert all(moved > 30 * bound for bound in P0_BOUND.values())


def signed_statistic(z: Floats, gamma: float) -> Floats:
    """n w'(Lambda + gamma I)^-1 w of signed features z = t f, (batch, n, J); t = 1 or -1."""
    n, dimension = z.shape[1:]
    mean = z.mean(axis=1)
    second = np.einsum("bni,bnj->bij", z, z) / n + gamma * np.eye(dimension)
    solved = np.linalg.solve(second, mean[:, :, None])[:, :, 0]
    return np.asarray(n * np.einsum("bi,bi->b", mean, solved))


def in_ball(rng: np.random.Generator, shape: tuple[int, ...], gamma: float) -> Floats:
    """Points of the unit ball: on few lines, with the lengths of the proof's worst case, or anywhere."""
    points = rng.standard_normal(shape)
    lines = rng.integers(0, 3)
    if lines < 2:
        points = np.eye(shape[-1])[rng.integers(0, lines + 1, shape[:-1]) % shape[-1]]
        points *= rng.choice([-1.0, 1.0], (*shape[:-1], 1), p=[0.2, 0.8])
    lengths = np.linalg.norm(points, axis=-1, keepdims=True)
    special = np.minimum(1.0, np.array([0.0, 0.5, 1.0, 2.0]) * np.sqrt(gamma))
    radii = np.where(
        rng.random(lengths.shape) < 0.7, rng.choice(special, lengths.shape), rng.random(lengths.shape) ** 0.3
    )
    return np.asarray(points / np.maximum(lengths, 1e-12) * radii)


def neighbours(count: int) -> Iterator[tuple[Floats, Floats, float]]:
    """Batches of pairs of data sets that differ in one signed feature, and their gamma."""
    rng = np.random.default_rng(4)
    grid = itertools.cycle(itertools.product((2, 4, 10, 40), (1, 2, 3), (1e-3, 0.03, 0.1, 0.5, 1.0)))
    done = 0
    while done < count:
        n, dimension, gamma = next(grid)
        batch = 1000
        z = in_ball(rng, (batch, n, dimension), gamma)
        if rng.random() < 0.5:
            # The worst case: everybody else at one point.
            z[:, 1:] = z[:, 1:2]
        other = z.copy()
        other[:, 0] = in_ball(rng, (batch, dimension), gamma)
        yield z, other, gamma
        done += batch


def largest_part(count: int, bound: Callable[[float], float]) -> float:
    """The largest movement found, of the bound for that gamma."""
    parts = []
    for z, other, gamma in neighbours(count):
        moved = np.abs(signed_statistic(z, gamma) - signed_statistic(other, gamma)).max()
        parts.append(float(moved) / bound(gamma))
    return max(parts)


def stated(gamma: float) -> float:
    """The bound for so many units that its minimum with N does not matter."""
    return ridge_sensitivity(1.0, gamma, (10**9, 10**9))


def test_no_neighbour_of_120000_moves_the_statistic_by_more_than_the_bound() -> None:
    part = largest_part(120_000, stated)
    assert 0.85 < part <= 1


@pytest.mark.parametrize("wrong", [lambda g: (0.8 + 1 / (2 * g**0.5)) ** 2, lambda g: 1 / (4 * g)])
def test_a_bound_that_is_too_small_is_caught(wrong: Callable[[float], float]) -> None:
    assert largest_part(60_000, wrong) > 1


@pytest.mark.parametrize("gamma", [0.01, 0.1, 0.25])
def test_optimised_neighbours_come_to_the_bound_and_no_farther(gamma: float) -> None:
    """n - 1 equal points: the optimum over their place and over the two replaced ones."""
    n = 100_000

    def moved(place: Floats) -> float:
        common, first, second = np.tanh(place)

        def statistic(own: float) -> float:
            mean = ((n - 1) * common + own) / n
            return float(n * mean**2 / (((n - 1) * common**2 + own**2) / n + gamma))

        return -abs(statistic(first) - statistic(second))

    starts = itertools.product((0.1, 0.3, 0.6), (-2.0, 0.5), (0.0, 0.5, 2.0))
    best = max(-minimize(moved, np.array(start), method="Nelder-Mead").fun for start in starts)
    bound = ridge_sensitivity(1.0, gamma, (n, n))
    assert 0.995 * bound < best <= bound


def test_unequal_samples_move_by_their_own_bound() -> None:
    """20 000 neighbours with the replaced unit in the smaller sample."""
    rng = np.random.default_rng(5)
    parts = []
    for (x, y), gamma in itertools.product(((1, 3), (2, 10), (3, 60)), (0.03, 0.3)):
        labels = np.concatenate([np.full(x, np.sqrt(y / x)), np.full(y, -np.sqrt(x / y))])
        features = in_ball(rng, (3000, x + y, 2), gamma)
        features[:, x:] = features[:, x : x + 1]
        other = features.copy()
        other[:, 0] = in_ball(rng, (3000, 2), gamma)
        values = []
        for f in (features, other):
            signal = np.einsum("n,bni->bi", labels, f) / (x + y)
            second = np.einsum("bni,bnj->bij", f, f) / (x + y) + gamma * np.eye(2)
            solved = np.linalg.solve(second, signal[:, :, None])[:, :, 0]
            values.append((x + y) * np.einsum("bi,bi->b", signal, solved))
        parts.append(np.abs(values[0] - values[1]).max() / ridge_sensitivity(1.0, gamma, (x, y)))
    assert 0.3 < max(parts) <= 1


def test_the_statistic_is_the_labels_explained_by_a_ridge_regression() -> None:
    """Against the regression itself, by least squares on stacked rows."""
    rng = np.random.default_rng(6)
    x, y, gamma, dimension = 30, 50, 0.2, 4
    features = rng.random((x + y, dimension)) / 2
    labels = np.concatenate([np.full(x, np.sqrt(y / x)), np.full(y, -np.sqrt(x / y))])
    stacked = np.vstack([features, np.sqrt((x + y) * gamma) * np.eye(dimension)])
    targets = np.concatenate([labels, np.zeros(dimension)])
    _, residual, _, _ = np.linalg.lstsq(stacked, targets)
    means = features[:x].mean(axis=0), features[x:].mean(axis=0)
    found = ridge_statistic(means, features.T @ features / (x + y), (x, y), gamma)
    assert found == pytest.approx(x + y - float(residual[0]), rel=1e-10)


@pytest.mark.parametrize(("dimension", "gamma"), [(3, 1e-4), (12, 0.03), (12, 10.0)])
def test_the_evaluation_error_is_bounded(dimension: int, gamma: float) -> None:
    """Against 50 digits, for features that nearly agree in all but one direction."""
    rng = np.random.default_rng(7)
    x, y = 400, 600
    rows = rng.standard_normal((x + y, dimension)) * 1e-6
    rows[:, 0] += 0.6
    rows[:x, 1] += 0.3
    means = rows[:x].mean(axis=0), rows[x:].mean(axis=0)
    second = rows.T @ rows / (x + y)
    with mpmath.workdps(50):
        signal = mpmath.matrix((means[0] - means[1]).tolist()) * mpmath.sqrt(mpmath.mpf(x * y)) / (x + y)
        matrix = mpmath.matrix(second.tolist()) + mpmath.mpf(gamma) * mpmath.eye(dimension)
        exact = (x + y) * (signal.T * mpmath.lu_solve(matrix, signal))[0]
        error = abs(float(exact - ridge_statistic(means, second, (x, y), gamma)))
    assert error <= evaluation_error(1.0, gamma, x + y, dimension)
    assert evaluation_error(1.0, gamma, x + y, dimension) < 1e-3 * ridge_sensitivity(1.0, gamma, (x, y))


def test_the_sensitivity_counts_the_grid_and_never_passes_the_number_of_units() -> None:
    assert contribution_norm(1.0, 100, 20) > 1.0
    assert ridge_sensitivity(1.0, 1e-4, (5, 5)) == 10
    assert ridge_sensitivity(1.0, 0.25, (100, 100)) == pytest.approx(4.0)
    assert ridge_sensitivity(1.0, 0.25, (100, 400)) == pytest.approx(9.0)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("noise", [0.5, 10.0, 100.0])
@pytest.mark.parametrize("dimension", [1, 5, 40])
def test_the_null_is_the_heaviest_of_the_spectra_tried(dimension: int, noise: float) -> None:
    """Random, geometric and two-level spectra with the largest trace, at p-values of .3 to 1e-4."""
    rng = np.random.default_rng(8)
    gamma, total = 0.03, 10_000
    for p in (0.3, 0.05, 0.01, 1e-4):
        start = 1 / dimension / (1 / dimension + gamma)
        t = quantile(p, [start], noise, [dimension])
        stated = ridge_pvalue(t, total, dimension, gamma, norm=1.0, noise=noise)
        spectra = [rng.dirichlet(np.full(dimension, a)) for a in (0.1, 0.5, 2.0)]
        spectra.append(0.5 ** np.arange(dimension) / np.sum(0.5 ** np.arange(dimension)))
        for spectrum in spectra:
            kept = spectrum[spectrum > 1e-9]
            weights = total / (total - 1) * kept / (kept + gamma)
            assert survival(t, weights, noise) <= stated * (1 + 1e-6)


def test_a_null_of_one_spectrum_alone_would_be_too_light() -> None:
    """Forty equal eigenvalues under wide noise shift the mean; one large eigenvalue does not."""
    gamma, noise, dimension = 0.03, 10.0, 40
    weight = 1 / dimension / (1 / dimension + gamma)
    t = quantile(0.01, [weight], noise, [dimension])
    assert survival(t, [1 / (1 + gamma)], noise) < 0.005
    assert ridge_pvalue(t, 10_000, dimension, gamma, norm=1.0, noise=noise) >= 0.01
