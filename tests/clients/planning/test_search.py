"""Searches for the least place: its power is what was asked for, and what is claimed is not flattered."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import ndtr

from tacit.local import plan_power, plan_smallest
from tacit.planning import PowerPlan
from tacit.planning.questions import Question
from tacit.planning.search import STEP, UNITS_MAX, Search, Trial

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

    place = Search(simulate, 0.8).least(90, int(math.log(UNITS_MAX) / STEP), 1, "nowhere")
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


TABLES: dict[str, dict[str, Any]] = {
    "independence": {"procedure": "independence_table", "cells": (2, 3), "other": TABLE, "delta": 0.0},
    "homogeneity": {"procedure": "homogeneity", "cells": 10, "effect": 0.1, "delta": 0.0},
    "homogeneity, Gaussian": {
        "procedure": "homogeneity",
        "cells": 10,
        "effect": 0.2,
        "noise": "gaussian",
        "delta": 1e-6,
    },
    **{
        f"identity, {method}": {
            "procedure": "identity",
            "cells": 10,
            "effect": 0.2,
            "method": method,
            "delta": 1e-6,
        }
        for method in ("mcgof", "privit-laplace", "zcdp-gof", "repetition")
    },
}
"""Questions on counts whose studies are simulated at once."""

PLACES = {"independence": 155, "homogeneity": 1080, "homogeneity, Gaussian": 700, "identity, mcgof": 250}
PLACES |= {"identity, privit-laplace": 244, "identity, zcdp-gof": 409, "identity, repetition": 4000}


@pytest.mark.long
@pytest.mark.parametrize("asked", ["independence", "homogeneity"])
def test_plans_claim_what_fresh_studies_found(asked: str) -> None:
    """Not the number by which the place was chosen, which is at or above the target in every plan."""
    plans = [plan_smallest("n", epsilon=0.5, seed=seed, runs=400, **TABLES[asked]) for seed in range(5)]
    claims = [one.plan.power for one in plans if isinstance(one.plan, PowerPlan)]
    assert min(claims) < 0.8 < max(claims)
    assert np.mean(claims) == pytest.approx(0.8, abs=0.02)
    assert {one.plan.runs for one in plans} == {1600}
    units = [one.smallest for one in plans]
    assert max(units) / min(units) < 1.15
    assert np.mean(units) == pytest.approx(PLACES[asked], rel=0.04)


@pytest.mark.sweep(2)
@pytest.mark.parametrize("asked", TABLES)
def test_studies_simulated_at_once_find_what_whole_studies_find(
    asked: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of 150 studies each way, shares differ by more than .28 with probability 1e-6 at most."""
    terms: dict[str, Any] = {"epsilon": 0.5, "seed": 1, "runs": 150} | TABLES[asked]
    if terms["procedure"] != "identity":
        terms["replicates"] = 999
    at_once = plan_power(PLACES[asked], **terms)
    monkeypatch.setattr(Question, "rejections", lambda *_: None)
    whole = plan_power(PLACES[asked], **terms)
    assert isinstance(at_once, PowerPlan)
    assert isinstance(whole, PowerPlan)
    assert 0.5 < at_once.power < 0.95
    assert abs(at_once.power - whole.power) < 0.28
