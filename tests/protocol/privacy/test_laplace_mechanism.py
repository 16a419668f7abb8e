"""Laplace noise on sums and statistics, and the exponential mechanism: laws, sensitivities, refusals."""

import math
from fractions import Fraction

import numpy as np
import pytest
from made_studies import NoNoise
from scipy.stats import chi2

from tacit_protocol.features.mean_embedding import SmoothCharacteristic
from tacit_protocol.features.moments import sum_sensitivity
from tacit_protocol.privacy.gaussian_mechanism import SumPart
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.laplace_mechanism import (
    ChoiceSource,
    ExponentialChoice,
    LaplaceStatistic,
    l1_sensitivity,
    of_event,
    shared_laplace_guarantee,
    sums_scale,
)
from tacit_protocol.privacy.noise import NoiseError, OpenDPNoise


def part(coordinates: int, sensitivity: float = math.sqrt(2)) -> SumPart:
    return SumPart("mean", np.zeros(coordinates, dtype=np.int64), -20, sensitivity, 1.0)


@pytest.mark.parametrize("coordinates", [1, 2, 7, 400])
def test_the_worst_direction_is_the_diagonal_and_the_bound_holds_there(coordinates: int) -> None:
    diagonal = np.full(coordinates, math.sqrt(2 / coordinates))
    assert np.linalg.norm(diagonal) == pytest.approx(math.sqrt(2))
    assert np.abs(diagonal).sum() <= l1_sensitivity(part(coordinates)) <= np.abs(diagonal).sum() * (1 + 1e-12)


def test_rounding_is_counted_in_every_coordinate() -> None:
    """Two neighbours' contributions may each be rounded by 17/16 of a step in all J coordinates."""
    features = SmoothCharacteristic(np.ones((50, 1)))
    step, given = 2.0**-8, part(100, sum_sensitivity(SmoothCharacteristic(np.ones((50, 1))), 8))
    worst = math.sqrt(100) * features.diameter + 2 * 100 * (17 / 16) * step
    assert l1_sensitivity(given) == pytest.approx(worst)
    assert l1_sensitivity(given) >= worst * (1 - 1e-12)


def spent(shares: tuple[float, float], epsilon: float) -> Fraction:
    """What two releases that share epsilon spend together at most, exactly, by the noise that each has."""
    shared = shared_laplace_guarantee(Budget.of(epsilon, 0), shares)
    parts = (
        SumPart("histograms", np.zeros(3, dtype=np.int64), -20, math.sqrt(6), shares[0], l1=6.0),
        part(7),
    )
    scales = [sums_scale(each, of_event(shared, place)) for place, each in enumerate(parts)]
    return sum(
        (Fraction(l1_sensitivity(each)) / Fraction(scale) for each, scale in zip(parts, scales, strict=True)),
        Fraction(0),
    )


@pytest.mark.parametrize("epsilon", [0.001, 0.1, 0.3, 1.0, 7.7, 20.0])
def test_releases_that_share_epsilon_spend_no_more_than_it(epsilon: float) -> None:
    for share in np.random.default_rng(4).uniform(0.01, 0.99, 200).tolist():
        assert spent((share, 1 - share), epsilon) <= Fraction(str(epsilon))
    assert spent((0.25, 0.76), epsilon) > Fraction(str(epsilon)), "shares beyond the whole would be seen"


class Recorder:
    """Adds nothing and keeps what it was asked."""

    def laplace(self, values: np.ndarray, scale: float) -> np.ndarray:
        self.values, self.scale = values.copy(), scale
        return values

    def gaussian(self, values: np.ndarray, scale: float) -> np.ndarray:
        raise AssertionError("Laplace noise alone")


@pytest.mark.parametrize("sensitivity", [1e-6, 0.3, 1.0, 1e3, 1e9])
def test_numbers_a_sensitivity_apart_stay_within_epsilon(sensitivity: float) -> None:
    released, recorder = LaplaceStatistic(sensitivity, 1e4 * sensitivity, 0.5), Recorder()
    rng = np.random.default_rng(1)
    for value in rng.uniform(-100, 100, 50) * sensitivity:
        released.release(value, recorder)
        one = int(recorder.values[0])
        released.release(value + sensitivity, recorder)
        assert abs(int(recorder.values[0]) - one) / recorder.scale <= 1 / 0.5
        assert recorder.scale == pytest.approx(math.ldexp(released.scale, released.bits))
    assert released.scale == pytest.approx(sensitivity * 0.5, rel=1e-6)


@pytest.mark.parametrize(
    ("value", "counted"), [(math.nan, 0.0), (math.inf, 10.0), (-math.inf, -10.0), (-11.0, -10.0)]
)
def test_a_value_outside_its_bounds_counts_as_the_bound(value: float, counted: float) -> None:
    statistic = LaplaceStatistic(1.0, 10.0, 1.0)
    released = statistic.release(value, NoNoise())
    assert released.values == (round(math.ldexp(counted, statistic.bits)),)


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
    for losses in (np.array([]), np.zeros((2, 2))):
        with pytest.raises(ValueError, match="losses must be"):
            CHOICE.scores(losses)


def test_whatever_the_losses_each_has_a_score_between_the_bounds() -> None:
    wrong = np.array([-1.0, -math.inf, 0.0, CHOICE.largest, math.inf, math.nan])
    lowest, highest = CHOICE.scores(np.array([CHOICE.largest, 0.0]))
    assert CHOICE.scores(wrong).tolist() == [highest, highest, highest, lowest, lowest, lowest]


def test_the_source_refuses_what_would_not_be_the_law() -> None:
    for scores, scale in (
        (np.array([2**61], dtype=np.int64), 2.0**60),
        (np.array([1.5, 2.5]), 1.0),
        (np.array([1, 2], dtype=np.int64), 0.0),
        (np.array([], dtype=np.int64), 1.0),
    ):
        with pytest.raises(NoiseError):
            OpenDPNoise().choose(scores, scale)
