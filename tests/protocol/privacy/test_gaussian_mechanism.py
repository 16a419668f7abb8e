"""The joint Gaussian release: what it spends, its isometry, and what it refuses."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from planted import with_mistake
from two_sample_cases import NoNoise

from tacit_protocol.features import moments
from tacit_protocol.features.moments import (
    DIAGONAL,
    MEAN,
    OFF_DIAGONAL,
    ColumnWise,
    FeatureSums,
    MomentShares,
    moment_parts,
    read_second_moment,
    release_size,
)
from tacit_protocol.privacy import gaussian_mechanism
from tacit_protocol.privacy.accounting import gaussian_delta_bound
from tacit_protocol.privacy.gaussian_mechanism import (
    DISCRETISATION_SHARE,
    SensitivityError,
    SumPart,
    gaussian_guarantee,
    halved_guarantee,
    noise_scales,
    release_sums,
)
from tacit_protocol.privacy.guarantee import ApproximateEvent, Budget, GaussianEvent, Guarantee

BUDGET = Budget.of(1, "1e-5")
FEATURES = ColumnWise(2, (), (1.0, 2.0), (1.0, 1.0))


def mu_of(guarantee: Guarantee) -> float:
    event = guarantee.events[0]
    assert isinstance(event, GaussianEvent)
    return 1 / event.noise_multiplier


@settings(max_examples=40, deadline=None)
@given(st.floats(0.01, 20), st.floats(1e-9, 0.1))
def test_the_guarantee_spends_the_budget_and_no_more(epsilon: float, delta: float) -> None:
    budget = Budget.of(epsilon, f"{delta:.12f}")
    guarantee = gaussian_guarantee(budget)
    gaussian, reserve = guarantee.events
    assert isinstance(gaussian, GaussianEvent)
    assert isinstance(reserve, ApproximateEvent)
    spent = gaussian_delta_bound(budget.epsilon, 1 / gaussian.noise_multiplier) + reserve.delta
    assert 0.99 * budget.delta <= spent <= budget.delta
    assert (reserve.epsilon, reserve.delta) == (0.0, budget.delta * DISCRETISATION_SHARE)
    assert guarantee.budget == budget


def test_no_gaussian_guarantee_with_delta_zero() -> None:
    with pytest.raises(SensitivityError, match="delta"):
        gaussian_guarantee(Budget.of(1, 0))
    with pytest.raises(SensitivityError, match="delta"):
        halved_guarantee(Budget(epsilon_micro=10**6, delta_pico=1))


@settings(max_examples=40, deadline=None)
@given(st.integers(2, 10**8), st.integers(2, 10**11))
def test_the_halves_stay_within_the_budget(epsilon_micro: int, delta_pico: int) -> None:
    budget = Budget(epsilon_micro=epsilon_micro, delta_pico=delta_pico)
    first, second, *reserves = halved_guarantee(budget).events
    assert first == second
    assert isinstance(first, GaussianEvent)
    # Basic composition of two halves: epsilons and deltas add up.
    half_epsilon = (epsilon_micro // 2) / 10**6
    assert 2 * (epsilon_micro // 2) <= epsilon_micro
    spent = 2 * gaussian_delta_bound(half_epsilon, 1 / first.noise_multiplier)
    spent += sum(event.delta for event in reserves if isinstance(event, ApproximateEvent))
    assert spent <= budget.delta


def worst_squared_change(module: Any, shares: MomentShares, seed: int) -> float:
    """Largest sum over parts of |change / noise|^2 found, over mu^2: at most 1 if the release is mu-private.

    A neighbour may move the mean by its sensitivity in any direction and the second moment by its own in any
    symmetric direction; the standardised changes of all entries add up by squares.
    """
    rng = np.random.default_rng(seed)
    dimension = FEATURES.dimension
    parts = {p.name: p for p in module.moment_parts(FEATURES, shares, 15)}
    guarantee = gaussian_guarantee(BUDGET)
    scales = noise_scales(tuple(parts.values()), guarantee)
    worst = 0.0
    for _ in range(200):
        mean = rng.standard_normal(dimension)
        mean *= parts[MEAN].sensitivity / np.linalg.norm(mean)
        moment = rng.standard_normal((dimension, dimension))
        if rng.random() < 0.5:
            moment[np.diag_indices(dimension)] *= 1e-3  # nearly all of it off the diagonal
        moment = moment + moment.T
        moment *= parts[DIAGONAL].sensitivity / np.linalg.norm(moment)
        squared = np.sum((mean / scales[MEAN]) ** 2) + np.sum((np.diag(moment) / scales[DIAGONAL]) ** 2)
        upper = moment[np.triu_indices(dimension, 1)]
        squared += np.sum((upper / scales[OFF_DIAGONAL]) ** 2)
        worst = max(worst, float(squared))
    return worst / mu_of(guarantee) ** 2


@pytest.mark.parametrize("mean_share", [0.1, 0.8, 0.99])
def test_standardised_changes_of_all_parts_stay_within_mu(mean_share: float) -> None:
    worst = worst_squared_change(moments, MomentShares(mean_share, 1 - mean_share), 1)
    assert 1 - 1e-9 < worst <= 1


@pytest.mark.parametrize(
    ("right", "wrong"),
    [
        ("isometry=float(np.sqrt(0.5))", "isometry=0.5"),
        ("sensitivity, shares.second, isometry", "sensitivity, 1.0, isometry"),
        ("sum_sensitivity(features, bits), shares.mean", "sum_sensitivity(features, bits), 1.0"),
    ],
)
def test_a_wrong_isometry_or_share_is_seen(right: str, wrong: str) -> None:
    assert worst_squared_change(with_mistake(moments, right, wrong), MomentShares(0.8, 0.2), 1) > 1


def test_a_grid_too_coarse_for_the_noise_is_refused() -> None:
    fine = SumPart("sum", np.zeros(5, np.int64), -20, 1.0, 1.0)
    coarse = SumPart("sum", np.zeros(5, np.int64), -1, 1.0, 1.0)
    guarantee = gaussian_guarantee(BUDGET)
    assert release_sums((fine,), guarantee, NoNoise())["sum"].values == (0,) * 5
    with pytest.raises(SensitivityError, match="grid"):
        release_sums((coarse,), guarantee, NoNoise())
    planted = with_mistake(gaussian_mechanism, "if extra >", "if 0 * extra >")
    assert planted.release_sums((coarse,), guarantee, NoNoise())["sum"].values == (0,) * 5


def part(values: npt.NDArray[np.int64], share: float = 1.0, sensitivity: float = 1.0) -> SumPart:
    return SumPart("sum", values, -20, sensitivity, share)


def test_a_guarantee_without_a_gaussian_event_is_refused() -> None:
    guarantee = Guarantee(budget=BUDGET, events=(ApproximateEvent(epsilon=1.0),))
    with pytest.raises(SensitivityError, match="Gaussian"):
        release_sums((part(np.zeros(2, np.int64)),), guarantee, NoNoise())


def sums(dimension: int) -> FeatureSums:
    rng = np.random.default_rng(3)
    matrix = rng.integers(-(2**30), 2**30, (dimension, dimension))
    total = rng.integers(-(2**25), 2**25, dimension)
    return FeatureSums(1000, 15, total, 1.0, matrix + matrix.T, 1.0)


def test_a_release_reads_back_as_the_moments_it_holds() -> None:
    exact = sums(8)
    parts = moment_parts(FEATURES, MomentShares(0.8, 0.2), 15, exact)
    vectors = release_sums(parts, gaussian_guarantee(BUDGET), NoNoise())
    np.testing.assert_array_equal(vectors[MEAN].mean(1000), exact.total * 2.0**-15 / 1000)
    np.testing.assert_array_equal(read_second_moment(vectors, 1000), exact.second * 2.0**-30 / 1000)
    counted = sum(len(vector.values) for vector in vectors.values())
    assert counted == release_size(FEATURES, MomentShares(0.8, 0.2)) == 8 + 36
    assert release_size(FEATURES, MomentShares(1.0, 0.0)) == 8
