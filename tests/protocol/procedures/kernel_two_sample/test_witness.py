"""The witness at test locations: what it is, how sure it is, and which locations a verdict names."""

from typing import Any

import numpy as np
import pytest
from two_sample_cases import SeededNoise, domain_of, numbers, study_of, verdict_of

from tacit_protocol.features.kernels import ProductKernel
from tacit_protocol.features.mean_embedding import Locations, RawMeanEmbedding, WhitenedMeanEmbedding
from tacit_protocol.procedures.means.private_means import FloatMatrix, PrivateCovariance
from tacit_protocol.procedures.two_sample import statistic as witnesses
from tacit_protocol.procedures.two_sample.statistic import Witness, witness_at_locations

LOCATIONS = [[0.2, 0.3], [0.5, 0.5], [0.7, 0.6], [0.52, 0.5]]


def sample(seed: int, n: int, mean: float = 0.5) -> FloatMatrix:
    return np.clip(mean + 0.15 * np.random.default_rng(seed).standard_normal((n, 2)), 0, 1)


def kernel_means(x: FloatMatrix, y: FloatMatrix) -> FloatMatrix:
    """Differences of mean kernel values at LOCATIONS, straight from the definition."""
    squares = [np.sum((rows[:, None, :] - np.array(LOCATIONS)) ** 2, axis=2) for rows in (x, y)]
    means = [np.exp(-one / (2 * 0.2**2)).mean(axis=0) for one in squares]
    return np.asarray(means[0] - means[1])


@pytest.mark.parametrize("build", [WhitenedMeanEmbedding, RawMeanEmbedding])
def test_the_unwhitener_turns_mean_features_back_into_mean_kernels(build: Any) -> None:
    kernel = ProductKernel("gaussian", 0.2)
    locations = Locations(np.array(LOCATIONS), np.zeros((4, 0), np.int32))
    features = build(kernel, locations)
    x, y = sample(1, 50), sample(2, 60)
    tables = [numbers(domain_of(2), rows) for rows in (x, y)]
    means = [features(next(table.chunks())).mean(axis=0) for table in tables]
    assert features.locations is locations
    assert np.allclose(features.unwhitener @ (means[0] - means[1]), kernel_means(x, y), atol=1e-10)


def test_standard_errors_are_those_of_noise_and_of_sampling() -> None:
    kernel = ProductKernel("gaussian", 0.3)
    locations = Locations(np.random.default_rng(0).random((5, 2)), np.zeros((5, 0), np.int32))
    features = WhitenedMeanEmbedding(kernel, locations)
    rows = numbers(domain_of(2), sample(3, 4000))
    values = features(next(rows.chunks()))
    units = np.array([400.0, 600.0])
    covariance = PrivateCovariance(np.cov(values.T), 0.0, 1000.0)
    found = witness_at_locations(features, np.zeros(5), covariance, units, noise=0.02)
    raw = kernel.gram(next(rows.chunks()), locations)
    expected = raw.var(axis=0) * np.sum(1 / units) + 2 * np.sum(1 / units**2) + 0.02**2
    assert np.allclose(found.standard_errors**2, expected, rtol=1e-3)
    # Noise in the covariance rounds up, but never above the variance of a fair coin.
    noisy = PrivateCovariance(covariance.matrix, 0.01, 1000.0)
    rounded = witness_at_locations(features, np.zeros(5), noisy, units, noise=0.02)
    assert np.allclose(rounded.standard_errors**2 - expected, 0.01 * np.sum(1 / units), rtol=0.05)
    absurd = PrivateCovariance(1000 * np.eye(5), 5.0, 1000.0)
    bounded = witness_at_locations(features, np.zeros(5), absurd, units, noise=0.02)
    limit = 0.25 * np.sum(1 / units) + 2 * np.sum(1 / units**2) + 0.02**2
    assert np.allclose(bounded.standard_errors**2, limit, rtol=1e-6)


def false_names(runs: int, n: tuple[int, int], epsilon: float) -> int:
    """In how many of so many studies of one population a verdict names a location, at level .05."""
    domain, named = domain_of(2), 0
    for run in range(runs):
        study = study_of(domain, {"features": "me", "n_features": 8}, epsilon=epsilon, level=0.05, seed=run)
        tables = [numbers(domain, sample(2 * run + owner, size)) for owner, size in enumerate(n)]
        named += any(one.reject for one in verdict_of(study, tables, SeededNoise(run)).locations)
    return named


@pytest.mark.sweep(1)
@pytest.mark.parametrize(("n", "epsilon"), [((300, 300), 1.0), ((100, 1000), 10.0), ((400, 400), 50.0)])
def test_one_population_is_named_no_more_often_than_the_level(n: tuple[int, int], epsilon: float) -> None:
    # P(Binomial(300, .05) > 38) < 3e-7; three cases.
    assert false_names(300, n, epsilon) <= 38


@pytest.mark.long
def test_standard_errors_that_forget_the_noise_are_caught(monkeypatch: pytest.MonkeyPatch) -> None:
    honest = witnesses.witness_at_locations

    def forgetful(*arguments: Any) -> Witness:
        return honest(*arguments[:-1], 0.0)

    monkeypatch.setattr(witnesses, "witness_at_locations", forgetful)
    assert false_names(300, (300, 300), 1.0) > 38
