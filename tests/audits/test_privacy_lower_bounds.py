"""What an attacker with many runs can prove about epsilon stays below what is claimed.

``make audit`` makes 200 000 runs per neighbour of everything, and two million of the Gaussian mechanism at
epsilon 1; the others fewer. Right noise is called wrong with probability below 1e-9 (see lower_bound.py).
"""

import numpy as np
import pytest
from audited_procedures import CASES
from long_runs import LONG
from lower_bound import Audited, audit, clopper_pearson, epsilon_of_mu, exceeds
from mechanism_cases import CASES as MECHANISM_CASES
from mechanism_cases import MechanismCase, TooNarrow
from release_audit import promised, release, scored_runs
from scipy.special import ndtr

from tacit_protocol.privacy.accounting import gaussian_delta
from tacit_protocol.privacy.noise import NoiseSource, OpenDPNoise

pytestmark = pytest.mark.timeout(1800)

MECHANISM_RUNS = 200_000 if LONG else 50_000
PLANTED_RUNS = 200_000 if LONG else 80_000
"""Of a mechanism whose noise is too narrow."""

RELEASE_RUNS = 200_000 if LONG else 10_000
DECISION_SHARE = 10
"""Decisions, choices and K-norm noise are run as often divided by this: each is drawn by itself."""

FINE_RUNS = 2_000_000
"""Runs that tell a mu of 0.268 apart to 2 %: what a 5 % excess at epsilon 1 needs."""

BLACK_BOX = [name for name, case in CASES.items() if case.black_box]


class NormalShift:
    """Scores of the standard normal against one shifted by mu, exactly: the audit's own test bench."""

    def __init__(self, mu: float) -> None:
        self._mu, self._rng = mu, np.random.default_rng(12)

    def scores(self, other: bool, runs: int) -> np.typing.NDArray[np.float64]:
        return self._rng.standard_normal(runs) + (self._mu if other else 0.0)


def mechanism_exceeds(case: MechanismCase, noise: NoiseSource, runs: int) -> bool:
    return exceeds(
        case.runs(noise), runs=runs, pilot=runs // 4, delta=case.delta, epsilon=case.epsilon, mu=case.mu
    )


def release_exceeds(name: str, noise: NoiseSource, runs: int) -> bool:
    case = CASES[name]
    budget = case.study.budget
    released = release(case.study, case.neighbours(0)[0])
    mu = promised(released).gaussian or None
    singly = not released.vectors or any(v.noise == "k-norm" for v in released.vectors.values())
    runs = runs // DECISION_SHARE if singly else runs
    scored = scored_runs(case, noise)
    return exceeds(scored, runs=runs, pilot=runs // 4, delta=budget.delta, epsilon=budget.epsilon, mu=mu)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("name", MECHANISM_CASES)
def test_no_attack_proves_more_than_a_mechanism_claims(name: str) -> None:
    assert not mechanism_exceeds(MECHANISM_CASES[name], OpenDPNoise(), MECHANISM_RUNS)


@pytest.mark.long
def test_a_gaussian_mechanism_with_noise_five_percent_too_narrow_is_flagged() -> None:
    case = MECHANISM_CASES["gaussian, epsilon 10"]
    assert mechanism_exceeds(case, TooNarrow(OpenDPNoise(), 0.95), PLANTED_RUNS)


@pytest.mark.long
def test_a_laplace_mechanism_with_noise_too_narrow_is_flagged() -> None:
    """Five percent by the 200 000 runs of ``make audit``, ten by those of the other tiers."""
    planted = TooNarrow(OpenDPNoise(), 0.95 if LONG else 0.9)
    assert mechanism_exceeds(MECHANISM_CASES["laplace, epsilon 2"], planted, PLANTED_RUNS)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("name", BLACK_BOX)
def test_no_attack_proves_more_than_a_release_claims(name: str) -> None:
    assert not release_exceeds(name, OpenDPNoise(), RELEASE_RUNS)


def test_a_release_with_noise_a_fifth_too_narrow_is_flagged() -> None:
    assert release_exceeds(BLACK_BOX[0], TooNarrow(OpenDPNoise(), 0.8), RELEASE_RUNS)


@pytest.mark.long
def test_k_norm_noise_a_quarter_as_wide_as_stated_is_flagged() -> None:
    assert release_exceeds(
        "kernel_two_sample: K-norm, 1 number", TooNarrow(OpenDPNoise(), 0.25), RELEASE_RUNS
    )


@pytest.mark.skipif(not LONG, reason="needs 200 000 runs per neighbour: make audit")
def test_a_release_with_noise_five_percent_too_narrow_is_flagged() -> None:
    assert release_exceeds(BLACK_BOX[0], TooNarrow(OpenDPNoise(), 0.95), 200_000)


@pytest.mark.slow
@pytest.mark.skipif(not LONG, reason="needs two million runs per neighbour: make audit")
def test_at_epsilon_one_two_million_runs_flag_noise_five_percent_too_narrow() -> None:
    case = MECHANISM_CASES["gaussian, epsilon 1"]
    assert mechanism_exceeds(case, TooNarrow(OpenDPNoise(), 0.95), FINE_RUNS)
    assert not mechanism_exceeds(case, OpenDPNoise(), FINE_RUNS)


def test_the_audit_finds_nearly_all_of_a_known_mu() -> None:
    found = audit(NormalShift(1.0), 1e-5, runs=200_000, pilot=50_000)
    assert 0.96 < found.mu <= 1.0
    assert found.epsilon < epsilon_of_mu(1.0, 1e-5)


def test_events_that_are_never_seen_prove_nothing() -> None:
    found = audit(NormalShift(0.0), 1e-5, runs=10_000, pilot=2_000)
    assert found == Audited(10_000, 0.0, 0.0)


@pytest.mark.parametrize("count", [0, 1, 37, 999, 1000])
def test_the_intervals_are_exact(count: int) -> None:
    """At each end of the interval, a count so large or so small has just the stated probability."""
    lower, upper = clopper_pearson(count, 1000, 0.01)
    rng = np.random.default_rng(count)
    if count:
        assert np.mean(rng.binomial(1000, lower, 400_000) >= count) == pytest.approx(0.01, abs=1e-3)
    if count < 1000:
        assert np.mean(rng.binomial(1000, upper, 400_000) <= count) == pytest.approx(0.01, abs=1e-3)


def test_mu_and_epsilon_are_the_same_claim() -> None:
    for mu in (0.1, 1.0, 2.5):
        assert gaussian_delta(epsilon_of_mu(mu, 1e-5), mu) == pytest.approx(1e-5, rel=1e-6)
    assert ndtr(0.0) == 0.5
