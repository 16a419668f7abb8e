"""The squared MMD: unbiased, and its interval covers at least as often as it says."""

from typing import Any

import numpy as np
import pytest
from planted import with_mistake
from scipy import stats

from tacit_protocol.procedures.means import private_means
from tacit_protocol.procedures.means.private_means import FloatVector, Moments, PrivateMeans, estimate_mmd

SPECTRUM = 0.6 * np.arange(1, 13) ** -1.5 / np.sum(np.arange(1, 13) ** -1.5)
MOMENTS = Moments(float(SPECTRUM.sum()), float(SPECTRUM @ SPECTRUM), float(SPECTRUM.max()))
UNITS, NOISE = np.array([400.0, 1500.0]), np.array([0.02, 0.006])


def draw(shift: FloatVector, rng: np.random.Generator) -> PrivateMeans:
    sampling = rng.standard_normal((2, 12)) * np.sqrt(SPECTRUM) / np.sqrt(UNITS)[:, None]
    noisy = sampling + rng.standard_normal((2, 12)) * NOISE[:, None]
    noisy[0] += shift
    return PrivateMeans(noisy, UNITS, NOISE)


def shift_of(length: float, direction: str) -> FloatVector:
    vector = np.ones(12) if direction == "spread" else np.eye(12)[0]
    return np.asarray(length * vector / np.linalg.norm(vector))


def estimates(module: Any, length: float, direction: str, runs: int, confidence: float = 0.95) -> Any:
    rng = np.random.default_rng(1)
    shift = shift_of(length, direction)
    found = [module.estimate_mmd(draw(shift, rng), MOMENTS, confidence) for _ in range(runs)]
    return np.array([[e.squared_mmd, e.lower, e.upper] for e in found]).T


CASES = [(length, direction) for length in (0.0, 0.05, 0.2, 1.0) for direction in ("spread", "first")]


@pytest.mark.parametrize(("length", "direction"), CASES)
def test_the_estimate_is_unbiased(length: float, direction: str) -> None:
    values = estimates(private_means, length, direction, 4000)[0]
    assert abs(values.mean() - length**2) < 5.5 * values.std() / np.sqrt(4000)


@pytest.mark.parametrize("wrong", ["", " - a * moments.trace"])
def test_forgetting_a_term_is_seen(wrong: str) -> None:
    planted = with_mistake(private_means, " - a * moments.trace - b * dimension", wrong)
    values = estimates(planted, 0.05, "spread", 1000)[0]
    assert abs(values.mean() - 0.05**2) > 5.5 * values.std() / np.sqrt(1000)


@pytest.mark.sweep(4)
@pytest.mark.parametrize("confidence", [0.9, 0.95, 0.99])
@pytest.mark.parametrize(("length", "direction"), CASES)
def test_the_interval_covers(length: float, direction: str, confidence: float) -> None:
    runs = 2000
    _, lower, upper = estimates(private_means, length, direction, runs, confidence)
    covered = int(np.sum((lower <= length**2) & (length**2 <= upper)))
    assert covered >= stats.binom.ppf(1e-7, runs, confidence)


def test_a_normal_interval_would_leave_out_the_skewness() -> None:
    planted = with_mistake(private_means, "(estimate, skewed, constant", "(estimate, normal, constant")
    _, lower, _ = estimates(planted, 0.05, "first", 4000, 0.99)
    assert np.sum(lower > 0.05**2) > stats.binom.isf(1e-6, 4000, 0.01)


@pytest.mark.parametrize("dimension", [1, 2, 6])
def test_the_interval_covers_under_the_null_with_few_coordinates(dimension: int) -> None:
    """One coordinate is chi-squared with one degree: the most skewed there is, and covered exactly."""
    rng, runs = np.random.default_rng(3), 4000
    found = []
    for _ in range(runs):
        spread = np.sqrt(0.2 / UNITS[:, None] + NOISE[:, None] ** 2)
        means = PrivateMeans(rng.standard_normal((2, dimension)) * spread, UNITS, NOISE)
        moments = Moments(0.2 * dimension, 0.04 * dimension, 0.2)
        found.append(estimate_mmd(means, moments, 0.99))
    missed = sum(e.lower > 0 for e in found)
    assert missed <= stats.binom.isf(1e-7, runs, 0.005)


def test_an_interval_without_the_noise_does_not_cover() -> None:
    planted = with_mistake(private_means, "b = float(np.sum(means.noise**2))", "b = 0.0")
    _, lower, upper = estimates(planted, 0.05, "spread", 2000)
    covered = int(np.sum((lower <= 0.05**2) & (upper >= 0.05**2)))
    assert covered < stats.binom.ppf(1e-6, 2000, 0.945)
