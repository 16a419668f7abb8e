"""The exponential mechanism: its exact law, its sensitivity in steps, and what it refuses."""

import math

import numpy as np
import pytest
from scipy.stats import chi2

from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.laplace_mechanism import ChoiceSource, ExponentialChoice, choice_guarantee
from tacit_protocol.privacy.noise import NoiseError, OpenDPNoise

LOSSES = np.array([0.0, 0.1, 0.2, 0.5])
CHOICE = ExponentialChoice(sensitivity=0.1, largest=2.0, epsilon=1.0)

DRAWS = 3000

FALSE_ALARM = 1e-9
"""Probability that exact draws fail the chi-square test; it is the only thing here that noise can decide."""


def law(losses: np.ndarray, scale: float) -> np.ndarray:
    weights = np.exp(-losses / scale)
    return weights / weights.sum()


def misses(counts: np.ndarray, expected: np.ndarray) -> bool:
    """Whether the chi-square test tells the counts from the law."""
    total = counts.sum()
    statistic = float(np.sum((counts - total * expected) ** 2 / (total * expected)))
    return bool(chi2.sf(statistic, len(counts) - 1) < FALSE_ALARM)


def test_draws_have_the_mechanisms_law_and_no_other() -> None:
    """Permute-and-flip, which OpenDP draws where it accounts in pure privacy, is told apart: at these losses
    its first probability is .44 where the exponential mechanism's is .33."""
    source = OpenDPNoise()
    assert isinstance(source, ChoiceSource)
    drawn = [CHOICE.choose(LOSSES, source) for _ in range(DRAWS)]
    counts = np.bincount(drawn, minlength=len(LOSSES))
    expected = law(LOSSES, 2 * 0.1 / 1.0)
    assert not misses(counts, expected)
    flipped = np.random.default_rng(1).choice(4, DRAWS, p=permute_and_flip(LOSSES, 0.2))
    wrong = np.bincount(flipped, minlength=4)
    assert misses(wrong, expected), "a test that cannot tell the two apart says nothing"
    assert misses(counts, law(LOSSES, 0.1)), "nor one that cannot see half the scale"


def permute_and_flip(losses: np.ndarray, scale: float) -> np.ndarray:
    """The law of the largest of minus the losses with exponential noise (McKenna and Sheldon 2020)."""
    flips = np.exp(-(losses - losses.min()) / scale)
    found = np.zeros(len(losses))
    for winner in range(len(losses)):
        others = np.delete(flips, winner)
        for chosen in range(2 ** len(others)):
            subset = others[[bool(chosen >> bit & 1) for bit in range(len(others))]]
            found[winner] += (-1) ** len(subset) * math.prod(subset) / (len(subset) + 1)
    return flips * found


def test_the_scale_is_twice_the_sensitivity_over_epsilon() -> None:
    assert CHOICE.scale == pytest.approx(0.2, rel=1e-6)
    assert CHOICE.scale >= 0.2
    assert CHOICE.excess(4, 0.05) == pytest.approx(0.2 * math.log(80), rel=1e-6)


def test_no_loss_that_moves_by_the_sensitivity_moves_a_log_probability_by_more_than_epsilon() -> None:
    rng = np.random.default_rng(7)
    largest, steps = 0.0, abs(int(CHOICE.scores(np.array([1.0]))[0]))
    for _ in range(2000):
        losses = rng.random(5) * rng.choice([0.01, 0.3, 1.9])
        moved = np.clip(losses + 0.1 * rng.choice([-1.0, 1.0], 5), 0, None)
        logs = [CHOICE.scores(given) / (steps * CHOICE.scale) for given in (losses, moved)]
        first, second = (values - np.logaddexp.reduce(values) for values in logs)
        largest = max(largest, float(abs(first - second).max()))
    assert 0.7 < largest <= 1.0


def test_losses_that_are_none_are_refused() -> None:
    for losses in (np.array([]), np.array([-1.0, 0.0]), np.array([np.nan]), np.zeros((2, 2))):
        with pytest.raises(ValueError, match="losses must be"):
            CHOICE.scores(losses)


def test_losses_beyond_the_largest_count_as_it() -> None:
    scores = CHOICE.scores(np.array([2.0, 7.0, math.inf]))
    assert len(set(scores.tolist())) == 1


def test_the_source_refuses_what_would_not_be_the_law() -> None:
    for scores, scale in (
        (np.array([2**61], dtype=np.int64), 2.0**60),
        (np.array([1.5, 2.5]), 1.0),
        (np.array([1, 2], dtype=np.int64), 0.0),
        (np.array([], dtype=np.int64), 1.0),
    ):
        with pytest.raises(NoiseError):
            OpenDPNoise().choose(scores, scale)


def test_the_guarantee_is_pure() -> None:
    (event,) = choice_guarantee(Budget.of(0.7, 1e-5)).events
    assert event.mechanism == "approximate"
    assert (event.epsilon, event.delta) == (0.7, 0.0)
