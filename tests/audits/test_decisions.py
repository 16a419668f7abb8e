"""What an attacker with many runs can prove about a private decision, and what its noise has to hide.

The neighbours of the first test are the worst that the sensitivities allow: the observed statistic rises by
all that it may while the permuted ones fall by all that they may. Right noise is called wrong with
probability below 1e-9 (lower_bound.py).
"""

from dataclasses import dataclass

import numpy as np
import pytest
from long_runs import LONG
from lower_bound import audit, exceeds
from mechanism_cases import TooNarrow

from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise
from tacit_protocol.privacy.permutation_test import permutation_decision, prepare_comparison

pytestmark = pytest.mark.timeout(1800)

RUNS = 200_000 if LONG else 20_000

RUNS_OF_PLANTED = 2_000_000 if LONG else 60_000
"""With noise five percent too narrow 800 000 runs prove 2.017, give or take 0.011: too little; two million
prove 2.034, give or take 0.007. With noise a quarter too narrow 60 000 prove 2.38, give or take 0.06."""

RUNS_OF_RIGHT = 2_000_000 if LONG else 60_000
"""They prove 1.796, give or take 0.038, of a log ratio of 1.957; the long run 1.927, give or take 0.007."""

OBSERVED, PERMUTED = 0.002, 0.005
"""Sensitivities of the observed statistic and of the permuted ones."""

AWAY = OBSERVED + PERMUTED
"""Two scales of the noise at epsilon 2: far enough that the tails of the noise decide, where it says most."""

LEVEL = 0.4
"""Of three statistics the observed one has to be the largest: three draws a run."""


@dataclass
class WorstDecisions:
    """Decisions on the two neighbours: (0, Delta', Delta') and (Delta, 0, 0), AWAY added to permuted ones."""

    budget: Budget
    noise: NoiseSource

    def scores(self, other: bool, runs: int) -> np.typing.NDArray[np.float64]:
        """Decide as ``permutation_decision`` does, with the noise of all runs drawn at once.

        OpenDP draws each number of a vector by itself, which test_noise_law.py tests.
        """
        values = np.array([OBSERVED, AWAY, AWAY] if other else [0.0, PERMUTED + AWAY, PERMUTED + AWAY])
        compared = prepare_comparison(values, OBSERVED, LEVEL, self.budget, permuted_sensitivity=PERMUTED)
        noisy = self.noise.laplace(np.tile(compared.steps, runs), compared.scale)
        return compared.rejects(noisy.reshape(runs, -1)).astype(np.float64)


@dataclass
class Drawn:
    """Noise that has been drawn."""

    noise: np.typing.NDArray[np.int64]

    def laplace(self, values: np.typing.NDArray[np.int64], scale: float) -> np.typing.NDArray[np.int64]:
        return values + self.noise

    def gaussian(self, values: np.typing.NDArray[np.int64], scale: float) -> np.typing.NDArray[np.int64]:
        raise AssertionError("decisions use Laplace noise alone")


def decision_exceeds(budget: Budget, noise: NoiseSource, runs: int = RUNS) -> bool:
    return exceeds(
        WorstDecisions(budget, noise),
        runs=runs,
        pilot=runs // 4,
        delta=budget.delta,
        epsilon=budget.epsilon,
        mu=None,
    )


@pytest.mark.parametrize("delta", [0.0, 0.05])
def test_no_attack_proves_more_than_a_decision_claims(delta: float) -> None:
    assert not decision_exceeds(Budget.of(2, delta), OpenDPNoise())


@pytest.mark.long
def test_a_decision_with_noise_too_narrow_is_flagged() -> None:
    """Five percent by the two million runs of ``make audit``, a quarter by those of the other tiers."""
    narrow = TooNarrow(OpenDPNoise(), 0.95 if LONG else 0.75)
    assert decision_exceeds(Budget.of(2, 0), narrow, RUNS_OF_PLANTED)


@pytest.mark.long
def test_nearly_all_of_the_claim_can_be_proved() -> None:
    """The noise is not larger than the proof needs: right noise fails with a chance below 1e-7."""
    decisions = WorstDecisions(Budget.of(2, 0), OpenDPNoise())
    found = audit(decisions, 0.0, runs=RUNS_OF_RIGHT, pilot=RUNS_OF_RIGHT // 4)
    assert found.epsilon > (1.85 if LONG else 1.6)


def test_a_decision_is_that_of_the_comparison_that_the_attacks_repeat() -> None:
    """With the same noise, ``permutation_decision`` and one run of the attack decide alike."""
    values = np.array([OBSERVED, AWAY, AWAY])
    drawn = OpenDPNoise().laplace(np.zeros(600, dtype=np.int64), 2.0**26).reshape(200, 3)
    compared = prepare_comparison(values, OBSERVED, LEVEL, Budget.of(2, 0), permuted_sensitivity=PERMUTED)
    for noise in drawn:
        one = permutation_decision(
            values, OBSERVED, LEVEL, Budget.of(2, 0), Drawn(noise), permuted_sensitivity=PERMUTED
        )
        assert one == bool(compared.rejects(compared.steps + noise))
