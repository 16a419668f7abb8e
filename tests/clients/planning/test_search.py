"""Searches for the least place: its power is what was asked for, and what is claimed is not flattered."""

import math

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.planning.counts import plan_homogeneity, plan_independence
from tacit.planning.sizes import STEP, STEP_MAX, Search, Trial

TABLE = [[0.3, 0.1, 0.1], [0.1, 0.2, 0.2]]


def power(step: float, growth: float) -> float:
    """Return a power that grows with so high a power of n, and is .8 at n = 1000."""
    return float(ndtr(2.4865 * (math.exp(STEP * step) / 1000) ** growth - 1.6449))


def searched(seed: int, growth: float, runs: int) -> tuple[float, float]:
    """Return the true power at the place found, and the one by which a search alone would have taken it."""
    rng, lucky = np.random.default_rng(seed), dict[float, float]()

    def simulate(step: float, times: int) -> Trial:
        share = rng.binomial(times * runs, power(step, growth)) / (times * runs)
        if times == 1:
            lucky[step] = share
        return Trial(share, times * runs)

    place = Search(simulate, 0.8).least(90, STEP_MAX, 1, "nowhere")
    alone = min(step for step, share in lucky.items() if share >= 0.8)
    return power(place, growth), lucky[alone] - power(alone, growth)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("growth", [0.5, 1.0])
def test_nine_places_of_ten_have_the_power_asked_for_less_a_fiftieth(growth: float) -> None:
    """60 seeds, which are fixed, so that this never varies."""
    found = [searched(seed, growth, 100) for seed in range(60)]
    true, flattered = np.array(found).T
    assert np.sum(true >= 0.78) >= 0.9 * 60 - 4
    assert 0.79 < true.mean() < 0.83
    # The number by which a search alone takes a place is too high: what is claimed needs fresh studies.
    assert flattered.mean() > 0.008


@pytest.mark.long
@pytest.mark.parametrize("plan", [plan_independence, plan_homogeneity])
def test_plans_claim_what_fresh_studies_found(plan: object) -> None:
    """Not the number by which the place was chosen, which is at or above the target in every plan."""
    if plan is plan_independence:
        plans = [plan_independence(TABLE, epsilon=0.5, seed=seed) for seed in range(5)]
    else:
        plans = [plan_homogeneity(10, epsilon=0.5, distance=0.1, seed=seed) for seed in range(5)]
    claims = [one.power for one in plans]
    assert min(claims) < 0.8 < max(claims)
    assert np.mean(claims) == pytest.approx(0.8, abs=0.02)
    assert {one.runs for one in plans} == {1600}
    units = [one.units for one in plans]
    assert max(units) / min(units) < 1.15
