"""Bounds on what the sketch leaves out and on the sampling error of a distance variance, searched against."""

from collections.abc import Iterable, Iterator
from dataclasses import replace

import numpy as np
import pytest
from definitions import Rows

from tacit_protocol.features.brownian import BrownianFeatures
from tacit_protocol.procedures.distance_covariance.statistic import (
    NoisyEstimate,
    Permutations,
    Side,
    permutation_test,
    truncation_bound,
    variance_estimate,
)

Floats = np.typing.NDArray[np.float64]

FEATURES = BrownianFeatures(np.ones((1, 1)), 4)


def features_of(places: Floats) -> Floats:
    return FEATURES(Rows(places[:, None], np.zeros((len(places), 0), np.int32)))


def doubly_centred(places: Floats, weights: Floats) -> Floats:
    distances = np.abs(places[:, None] - places)
    means = distances @ weights
    return np.asarray(distances - means - means[:, None] + weights @ means)


def side_of(places: Floats, weights: Floats, left_out: float, units: int = 1000) -> Side:
    """What a tester would read of a law, without noise."""
    values = features_of(places)
    centred = values - weights @ values
    covariance = (centred * weights[:, None]).T @ centred
    mean = weights @ values
    return Side(np.zeros((16, 4)), 0.0, covariance, 0.0, FEATURES.norm, left_out, units, mean, 0.0)


def left_out_of(x: Floats, y: Floats, weights: Floats) -> float:
    """Squared distance covariance of a discrete law, less what the kept features have of it."""
    whole = weights @ (doubly_centred(x, weights) * doubly_centred(y, weights)) @ weights
    f, g = features_of(x), features_of(y)
    cross = ((f - weights @ f) * weights[:, None]).T @ g
    return float(whole - 4 * np.sum(cross**2))


def worst_ratio(left_out: float, seed: int) -> float:
    """Climb over joint laws on five places: the largest part of the bound that is really left out."""
    rng, best = np.random.default_rng(seed), 0.0
    for _ in range(4):
        x, y, weights, found = rng.random(5), rng.random(5), rng.dirichlet(np.ones(5)), 0.0
        for step in np.geomspace(0.3, 0.003, 800):
            a, b = (np.clip(v + step * rng.standard_normal(5) * (rng.random(5) < 0.4), 0, 1) for v in (x, y))
            w = np.abs(weights + 0.3 * step * rng.standard_normal(5))
            w /= w.sum()
            bound = truncation_bound(side_of(a, w, left_out), side_of(b, w, left_out))
            if (ratio := left_out_of(a, b, w) / bound) > found:
                x, y, weights, found = a, b, w, ratio
        best = max(best, found)
    return best


def test_no_joint_law_leaves_out_more_than_the_bound() -> None:
    assert 0.5 < worst_ratio(FEATURES.left_out, seed=1) <= 1


def test_a_bound_from_half_the_variance_is_refuted() -> None:
    assert worst_ratio(FEATURES.left_out / 2.5, seed=1) > 1


@pytest.mark.sweep(4)
@pytest.mark.parametrize("seed", range(20))
def test_the_sampling_error_of_a_distance_variance_is_within_its_bound(seed: int) -> None:
    """To first order the error is that of the mean of z'S z; its variance is bounded, for any law."""
    rng = np.random.default_rng(seed)
    places, weights = rng.random(6), rng.dirichlet(np.full(6, 0.5))
    side = side_of(places, weights, 0.0)
    values = features_of(places)
    centred, norm = values - weights @ values, np.linalg.norm(side.covariance)
    forms = np.einsum("ij,jk,ik->i", centred, side.covariance / norm, centred)
    true = float(weights @ forms**2 - (weights @ forms) ** 2)
    estimate = variance_estimate(side)
    # The variance of 4 |V|^2 is 16 times 4 |V|^2 times that of |V|.
    stated = estimate.variance * side.units / (16 * 4 * norm**2)
    assert true <= stated <= FEATURES.norm**4


NOISE_RUNS = 20_000


def noisy_sides(column: Floats, second_noise: float, mean_noise: float) -> Iterator[Side]:
    """What a tester reads of one law, with the noise of both moments, again and again."""
    weights = np.full(len(column), 1 / len(column))
    exact, rng = side_of(column, weights, 0.0, units=10**9), np.random.default_rng(3)
    size = len(exact.mean)
    for _ in range(NOISE_RUNS):
        above = np.triu(rng.standard_normal((size, size)), 1) * np.sqrt(0.5)
        noise = second_noise * (above + above.T + np.diag(rng.standard_normal(size)))
        moved = mean_noise * rng.standard_normal(size)
        second = exact.covariance + np.outer(exact.mean, exact.mean) + noise
        mean = exact.mean + moved
        covariance = second - np.outer(mean, mean) + mean_noise**2 * np.eye(size)
        yield replace(
            exact, covariance=covariance, covariance_noise=second_noise, mean=mean, mean_noise=mean_noise
        )


def uncounted_value(side: Side) -> NoisyEstimate:
    """The planted mistake: as if the mean had no noise."""
    return variance_estimate(replace(side, mean=np.zeros_like(side.mean), mean_noise=0.0))


def test_a_distance_variance_counts_the_noise_of_the_mean() -> None:
    """Unbiased, and within the variance that it states; seeded, so that nothing here fails by chance."""
    column = 0.6 + 0.7 * (np.arange(8) / 7 - 0.5)
    truth = variance_estimate(side_of(column, np.full(8, 1 / 8), 0.0, units=10**9)).value
    sides = list(noisy_sides(column, 0.01, 0.02))
    found = [variance_estimate(side) for side in sides]
    values, planted = (
        np.array([each.value for each in made]) for made in (found, map(uncounted_value, sides))
    )
    error = 6 * values.std() / np.sqrt(NOISE_RUNS)
    assert abs(values.mean() - truth) < error
    assert planted.mean() - truth > 2 * error
    assert 0.9 < np.mean([each.variance for each in found]) / values.var() < 2


def test_a_constant_column_has_no_stated_variance() -> None:
    """Two standard errors: the noise's energy is skewed, so that its tail is longer than a normal one."""
    sides = list(noisy_sides(np.full(8, 0.95), 0.02, 0.04))

    def stated(estimates: Iterable[NoisyEstimate]) -> float:
        return float(np.mean([each.value > 2 * np.sqrt(each.variance) for each in estimates]))

    assert stated(map(variance_estimate, sides)) < 0.05
    assert stated(map(uncounted_value, sides)) > 0.3


def test_axes_of_different_blocks_have_no_score_whatever_rounding_makes_of_their_zeros() -> None:
    # The widest block of one side is the narrowest of the other: the leading covariances are exactly 0.
    blocks = np.repeat(np.arange(2), 100)
    rows = np.random.default_rng(8).standard_normal((2, 2, 100))
    rows -= rows.mean(axis=2, keepdims=True)

    def side(values: Floats, turned: float) -> Side:
        turn = np.array([[np.cos(turned), -np.sin(turned)], [np.sin(turned), np.cos(turned)]])
        buckets = np.concatenate([values[0][:, None] * [1, 0], values[1][:, None] * [0, 1]]) @ turn
        return Side(buckets, 1e-9, buckets.T @ buckets / 200, 0.0, 1.0, 0.0, 200, np.zeros(2), 0.0)

    tests = [
        permutation_test(
            side(rows[0] * [[1.0], [0.1]], turned),  # the same rows in other coordinates: other rounding
            side(rows[1] * [[0.1], [1.0]], turned),
            Permutations(99, np.random.default_rng(9), blocks),
        )
        for turned in (0.0, 0.3, 1.1, 2.0)
    ]
    assert {test.pvalue for test in tests} == {tests[0].pvalue}
    assert [test.statistic for test in tests] == pytest.approx([tests[0].statistic] * 4, rel=1e-9)
