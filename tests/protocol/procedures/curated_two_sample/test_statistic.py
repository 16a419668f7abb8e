"""Two samples rebuilt from a difference and a centre: what the forms see, covariances, estimates."""

import numpy as np
import pytest

from tacit_protocol.procedures.curated_two_sample.release import balance
from tacit_protocol.procedures.curated_two_sample.statistic import (
    CuratedMeans,
    curated_covariance,
    estimate_moments,
)
from tacit_protocol.procedures.means.private_means import mmd_test

UNITS = (400, 900)
DIMENSION = 5
SPECTRUM = np.array([0.3, 0.1, 0.05, 0.02, 0.01])
THETA = np.array([0.4, 0.2, 0.0, 0.1, 0.0])


def draw(
    rng: np.random.Generator, mu: float, shift: float = 0.0, tau: float = 0.0
) -> tuple[CuratedMeans, np.ndarray]:
    """Normal features of one covariance, with the noise that a curator adds; their noisy second moment."""
    balanced = balance(UNITS, 0.1)
    noise = balanced.difference / mu, balanced.centre / mu
    rows = [rng.standard_normal((n, DIMENSION)) * np.sqrt(SPECTRUM) + THETA for n in UNITS]
    rows[0][:, 0] += shift
    means = [r.mean(axis=0) for r in rows]
    difference = means[0] - means[1] + noise[0] * rng.standard_normal(DIMENSION)
    centre = balanced.weights[0] * means[0] + balanced.weights[1] * means[1]
    centre = centre + noise[1] * rng.standard_normal(DIMENSION)
    stacked = np.concatenate(rows)
    symmetric = rng.standard_normal((DIMENSION, DIMENSION)) * tau / np.sqrt(2)
    symmetric = (
        np.triu(symmetric, 1) + np.triu(symmetric, 1).T + np.diag(rng.standard_normal(DIMENSION) * tau)
    )
    moment = stacked.T @ stacked / len(stacked) + symmetric
    return CuratedMeans.of(difference, centre, UNITS, noise, balanced.weights), moment


def test_the_covariance_within_samples_is_unbiased_also_where_they_differ() -> None:
    """2000 draws: each entry's average within six standard errors of the truth."""
    rng = np.random.default_rng(2)
    draws = []
    for _ in range(2000):
        means, moment = draw(rng, 0.02, shift=0.5, tau=0.01)
        draws.append(curated_covariance(means, moment, 0.01).matrix)
    error = np.std(draws, axis=0) / np.sqrt(len(draws))
    truth = np.diag(SPECTRUM) * (1 - 2 / sum(UNITS))
    assert np.all(np.abs(np.mean(draws, axis=0) - truth) < 6 * error)
    forgotten = np.mean(draws, axis=0) - float(np.mean(means.mean_variances)) * np.eye(DIMENSION)
    assert np.any(np.abs(forgotten - truth) > 6 * error), "a forgotten correction would be seen"


def test_the_stated_noise_covers_that_of_the_centre() -> None:
    """The trace's deviation beyond sampling, over 3000 draws, against root J times the stated noise."""
    rng = np.random.default_rng(3)
    mu = 0.02
    with_noise, stated = [], []
    for _ in range(3000):
        means, moment = draw(rng, mu, tau=0.02)
        covariance = curated_covariance(means, moment, 0.02)
        with_noise.append(float(np.trace(covariance.matrix)))
        stated.append(covariance.noise)
    sampling = 2 * float(np.sum(SPECTRUM**2)) / sum(UNITS)
    spread = np.sqrt(np.var(with_noise) - sampling)
    assert spread == pytest.approx(np.sqrt(DIMENSION) * np.mean(stated), rel=0.1)
    assert np.mean(stated) > 1.2 * 0.02


@pytest.mark.long
def test_noise_taken_for_half_would_break_the_level() -> None:
    rng = np.random.default_rng(5)
    rejected = 0
    for _ in range(600):
        means, moment = draw(rng, 0.01, tau=0.005)
        half = (np.sqrt(means.difference_variance / 2), means.centre_noise)
        wrong = CuratedMeans.of(means.means[0] - means.means[1], means.centre, UNITS, half, means.weights)
        rejected += mmd_test(wrong, curated_covariance(wrong, moment, 0.005))[1] <= 0.05
    assert rejected > 100


@pytest.mark.long
def test_the_estimate_is_unbiased_and_its_interval_covers() -> None:
    """Coverage .9 at 800 draws: fewer than 660 would have probability below 1e-9."""
    rng = np.random.default_rng(6)
    shift, found = 0.15, []
    for _ in range(800):
        means, moment = draw(rng, 0.2, shift=shift, tau=0.005)
        found.append(estimate_moments(means, curated_covariance(means, moment, 0.005), 1.0, 0.9))
    estimates = np.array([estimate.squared_mmd for estimate in found])
    assert abs(estimates.mean() - shift**2) < 5 * estimates.std() / np.sqrt(800)
    assert sum(estimate.lower <= shift**2 <= estimate.upper for estimate in found) >= 660
