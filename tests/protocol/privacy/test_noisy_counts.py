"""Noise on counts: its scale, its guarantee and the refusal of anything else."""

import math

import numpy as np
import pytest

from tacit_protocol.privacy.accounting import epsilon_spent
from tacit_protocol.privacy.gaussian_mechanism import SensitivityError
from tacit_protocol.privacy.guarantee import Budget, GaussianEvent
from tacit_protocol.privacy.noise import OpenDPNoise
from tacit_protocol.privacy.noisy_counts import (
    count_noise,
    gaussian_count_guarantee,
    gaussian_counts,
    laplace_count_guarantee,
    laplace_counts,
    largest_rho,
)

STEPS = np.array([5, 0, 7], dtype=np.int64) << 20


def test_laplace_noise_has_scale_two_over_epsilon_and_costs_pure_epsilon() -> None:
    guarantee = laplace_count_guarantee(Budget.of(0.5, 0))
    kind, scale = count_noise(guarantee)
    assert kind == "laplace"
    assert scale == pytest.approx(4.0, rel=1e-8)
    assert scale >= 2 / 0.5
    assert epsilon_spent(guarantee.events, 0.0) == 0.5


def test_gaussian_noise_has_deviation_root_two_over_mu() -> None:
    guarantee = gaussian_count_guarantee(Budget.of(1, 1e-5))
    event = guarantee.events[0]
    assert isinstance(event, GaussianEvent)
    kind, scale = count_noise(guarantee)
    assert kind == "gaussian"
    assert scale == pytest.approx(math.sqrt(2) * event.noise_multiplier, rel=1e-9)
    assert scale >= math.sqrt(2) * event.noise_multiplier


def test_rho_gives_a_variance_of_one_over_rho() -> None:
    guarantee = gaussian_count_guarantee(Budget.of(2, 1e-5), rho=0.02)
    assert count_noise(guarantee)[1] ** 2 == pytest.approx(1 / 0.02, rel=1e-9)
    assert epsilon_spent(guarantee.events, 1e-5) < 2


def test_the_largest_rho_fits_and_more_is_refused() -> None:
    budget = Budget.of(1, 1e-5)
    rho = largest_rho(budget)
    assert gaussian_count_guarantee(budget, rho).events
    with pytest.raises(SensitivityError, match="rho costs more"):
        gaussian_count_guarantee(budget, rho * 1.001)


def test_gaussian_noise_needs_delta() -> None:
    for rho in (None, 0.1):
        with pytest.raises(SensitivityError, match="delta above 0"):
            gaussian_count_guarantee(Budget.of(1, 0), rho)


def test_a_guarantee_of_the_other_noise_is_refused() -> None:
    laplace, gaussian = (
        laplace_count_guarantee(Budget.of(1, 0)),
        gaussian_count_guarantee(Budget.of(1, 1e-5)),
    )
    with pytest.raises(SensitivityError):
        laplace_counts(STEPS, 20, gaussian, OpenDPNoise())
    with pytest.raises(SensitivityError):
        gaussian_counts(STEPS, 20, laplace, OpenDPNoise())
