"""The private permutation test: rank rule, noise, privacy of the bit, level."""

import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from planted import with_mistake

from tacit_protocol.privacy import permutation_test
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import OpenDPNoise, scale_fits
from tacit_protocol.privacy.permutation_test import (
    decision_xi,
    permutation_decision,
    prepare_comparison,
    rank_max,
)

Integers = np.typing.NDArray[np.int64]


@dataclass
class FixedNoise:
    """Adds integers that are given, and remembers the scale that was asked for."""

    noise: Integers
    scale: float = 0.0
    seen: Integers = field(default_factory=lambda: np.zeros(0, dtype=np.int64))

    def laplace(self, values: Integers, scale: float) -> Integers:
        self.scale, self.seen = scale, values
        return values + self.noise

    def gaussian(self, values: Integers, scale: float) -> Integers:
        raise AssertionError("a decision uses Laplace noise")


def none(count: int) -> FixedNoise:
    return FixedNoise(np.zeros(count, dtype=np.int64))


@pytest.mark.parametrize(
    ("observed", "reject"), [(17.5, True), (18.5, True), (16.5, False), (17.0, False), (-1.0, False)]
)
def test_the_test_rejects_where_the_rank_is_at_most_level_times_statistics(
    observed: float, reject: bool
) -> None:
    """Of 20 statistics at level .1 the observed one must be among the two largest; ties do not help it."""
    values = np.array([observed, *range(19)], dtype=np.float64)
    assert permutation_decision(values, 1.0, 0.1, Budget.of(1, 0), none(20)) is reject


@pytest.mark.parametrize(("level", "count"), [(0.05, 1000), (0.07, 100), (0.29, 100), (0.01, 100), (0.3, 10)])
def test_the_level_is_the_decimal_that_is_written(level: float, count: int) -> None:
    """.29 * 100 is below 29 in double precision, and .07 * 100 above 7."""
    assert rank_max(level, count) == round(level * count)


@pytest.mark.parametrize(("epsilon", "delta"), [(1.0, 0.0), (0.1, 1e-5), (5.0, 0.3), (1e-6, 0.0)])
def test_noise_has_the_scale_of_both_sensitivities_over_xi(epsilon: float, delta: float) -> None:
    budget = Budget.of(epsilon, delta)
    noise = none(20)
    permutation_decision(np.zeros(20), 0.003, 0.1, budget, noise, permuted_sensitivity=0.005)
    steps = 0.008 * 2.0 ** (25 - math.frexp(0.003)[1])
    xi = epsilon - math.log1p(-delta)
    assert 1 <= noise.scale / (steps / xi) < 1 + 1e-6


def test_xi_gives_the_budget_and_no_more_could_be_had() -> None:
    """The worst decision has p' = (1 - p) exp(-xi) or p' = p exp(xi): delta is spent where p is near 1."""
    budget = Budget.of(1.0, 0.1)
    xi = decision_xi(budget)
    p = np.linspace(0, 1, 100_001)
    lowest = np.maximum(p * math.exp(-xi), 1 - (1 - p) * math.exp(xi))
    excess = float(np.max(p - math.exp(budget.epsilon) * lowest))
    assert excess <= budget.delta
    wider = xi + 0.2
    lowest = np.maximum(p * math.exp(-wider), 1 - (1 - p) * math.exp(wider))
    assert float(np.max(p - math.exp(budget.epsilon) * lowest)) > budget.delta


def unsafe_shifts(module: object, tries: int, seed: int) -> int:
    """Count neighbours whose bit differs though the noise on the observed one made good the threshold's move.

    With the same noise on permuted statistics, and the noise on the observed one raised by scale * xi
    (rounded down), whoever is rejected must be rejected at every neighbour: the whole privacy proof.
    """
    rng = np.random.default_rng(seed)
    budget, unsafe = Budget.of(0.7, 0), 0
    decide = vars(module)["permutation_decision"]
    for _ in range(tries):
        observed, permuted = rng.choice([1e-3, 0.01, 0.3, 0.7]), rng.choice([2e-3, 0.02, 0.3])
        values = rng.normal(0, 1, 6) * rng.choice([1e-6, 0.01, 1.0])
        bound = np.array([observed, *[permuted] * 5])
        others = values + bound * rng.choice([-1.0, 1.0, 0.0], 6)
        source = FixedNoise(rng.integers(-5, 5, 6))
        decide(values, observed, 0.4, budget, source, permuted_sensitivity=permuted)
        # The threshold: the least noise on the observed one at which the first table is rejected.
        noisy = source.seen[1:] + source.noise[1:]
        threshold = int(np.sort(noisy)[-2]) + 1 - int(source.seen[0])
        source.noise[0] = threshold
        assert decide(values, observed, 0.4, budget, source, permuted_sensitivity=permuted)
        source.noise[0] = threshold - 1
        assert not decide(values, observed, 0.4, budget, source, permuted_sensitivity=permuted)
        source.noise[0] = threshold + math.floor(source.scale * 0.7)
        unsafe += not decide(others, observed, 0.4, budget, source, permuted_sensitivity=permuted)
    return unsafe


def test_a_neighbour_moves_the_threshold_by_no_more_than_the_noise_is_made_for() -> None:
    assert unsafe_shifts(permutation_test, 3000, 1) == 0


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        (
            "_steps_moved(sensitivity, exponent) + _steps_moved(permuted, exponent)",
            "_steps_moved(permuted, exponent)",
        ),
        (
            "math.floor(math.ldexp(sensitivity, exponent)) + 1",
            "math.floor(math.ldexp(sensitivity, exponent))",
        ),
    ],
)
def test_noise_for_one_side_alone_or_without_its_rounding_is_caught(right: str, wrong: str) -> None:
    assert unsafe_shifts(with_mistake(permutation_test, right, wrong), 3000, 1) > 0


def test_equal_statistics_are_rejected_at_the_level_exactly() -> None:
    """The worst data: nothing but noise. 3000 decisions; false alarm below 1e-7 (5.3 standard deviations)."""
    noise, budget = OpenDPNoise(), Budget.of(1, 0)
    rejected = sum(permutation_decision(np.zeros(10), 0.01, 0.2, budget, noise) for _ in range(3000))
    assert abs(rejected / 3000 - 0.2) < 5.4 * math.sqrt(0.16 / 3000)


def test_what_cannot_be_decided_privately_is_refused() -> None:
    budget = Budget.of(1, 0)
    with pytest.raises(ValueError, match="could never reject"):
        permutation_decision(np.zeros(19), 1.0, 0.05, budget, none(19))
    for sensitivity in (0.0, -1.0, math.nan, math.inf):
        with pytest.raises(ValueError, match="positive and finite"):
            permutation_decision(np.zeros(20), sensitivity, 0.1, budget, none(20))
        with pytest.raises(ValueError, match="positive and finite"):
            permutation_decision(np.zeros(20), 1.0, 0.1, budget, none(20), permuted_sensitivity=sensitivity)


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, 1e12, 1e300])
def test_whatever_the_statistics_there_is_a_decision(value: float) -> None:
    budget = Budget.of(1, 0)
    # Ties count against rejection, and no permuted statistic beats one that is out of range above.
    assert permutation_decision(np.full(20, value), 1.0, 0.1, budget, none(20)) is False
    observed = np.concatenate([[value], np.zeros(19)])
    assert permutation_decision(observed, 1.0, 0.1, budget, none(20)) is (value > 0)


@pytest.mark.parametrize(("observed", "permuted"), [(1.0, 1e-12), (1e-12, 1.0), (1e12, 1e-12)])
def test_a_coarser_grid_has_room_where_sensitivities_lie_far_apart(observed: float, permuted: float) -> None:
    budget = Budget.of("0.000001", 0)
    found = prepare_comparison(np.zeros(20), observed, 0.1, budget, permuted_sensitivity=permuted)
    assert scale_fits(found.scale)
    assert found.scale > 2.0**24
    OpenDPNoise().laplace(found.steps, found.scale)
