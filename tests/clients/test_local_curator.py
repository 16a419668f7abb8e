"""The two-sample test at a curator, in one process: every release, and what belongs to the curator alone."""

from typing import Any

import numpy as np
import pytest

from tacit.errors import InputError, StudyRefusedError
from tacit.local import DecisionResult, TwoSampleResult, kernel_two_sample, plan_power

# A shift of two standard deviations at n = 2000 is hundreds of noise scales: missing it has a chance far
# below 1e-6 with every release here.
CURATED: dict[str, Any] = {"epsilon": 4.0, "delta": 1e-5, "bounds": (-5, 5), "setting": "curator", "seed": 1}


def samples(shift: float = 2.0) -> tuple[Any, Any]:
    rng = np.random.default_rng(5)
    return rng.normal(0, 1, (2000, 2)), rng.normal([shift, 0], 1, (2000, 2))


@pytest.mark.parametrize(
    "choice",
    [
        {},
        {"release": "mean-covariance", "features": "columns"},
        {"release": "mean-covariance", "features": "me", "n_features": 10},
        {"release": "statistic"},
    ],
)
def test_releases_of_figures_unpack(choice: dict[str, Any]) -> None:
    result = kernel_two_sample(*samples(), **CURATED, **choice)
    assert isinstance(result, TwoSampleResult)
    statistic, pvalue = result
    assert result.reject
    assert pvalue < 0.05
    assert statistic == result.statistic
    assert dict(result.n) == {"sample-1": 2000, "sample-2": 2000}


@pytest.mark.parametrize("features", ["auto", "kernel"])
def test_a_permutation_test_decides_and_no_more(features: Any) -> None:
    choice = {"release": "permutation", "n_permutations": 99, "features": features}
    result = kernel_two_sample(*samples(), **CURATED, **choice)
    assert isinstance(result, DecisionResult)
    assert result.reject
    assert not {"statistic", "pvalue"} & set(result.verdict)


def test_owners_are_pooled_two_by_two() -> None:
    x, y = samples()
    pooled = {"names": ["a", "b", "c", "d"], "samples": [["a", "c"], ["b", "d"]]}
    result = kernel_two_sample(x[:1000], y[:1000], x[1000:], y[1000:], **CURATED, **pooled)
    assert result.reject
    assert dict(result.n) == dict.fromkeys("abcd", 1000)


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"setting": "cloud"}, "setting must be"),
        ({"setting": "owners", "release": "statistic"}, "choice of the curator"),
        ({"epsilon": -1}, "epsilon"),
    ],
)
def test_a_mistake_is_told(changed: dict[str, Any], message: str) -> None:
    with pytest.raises(InputError, match=message):
        kernel_two_sample(*samples(), **(CURATED | changed))


@pytest.mark.parametrize(
    "changed", [{"release": "rows"}, {"null": "weighted"}, {"n_permutations": 99}, {"delta": 0.0}]
)
def test_what_the_procedure_does_not_take_is_refused(changed: dict[str, Any]) -> None:
    with pytest.raises(StudyRefusedError):
        kernel_two_sample(*samples(), **(CURATED | changed))


@pytest.mark.parametrize("release", [{}, {"release": "permutation", "permutations": 99}])
def test_power_at_a_curator_is_planned(release: dict[str, Any]) -> None:
    planned = {"bounds": {"a": (0, 1)}, "epsilon": 4.0, "delta": 1e-5, "setting": "curator", "seed": 3}
    # A shift of 1.8 standard deviations at n = 1500 is far beyond the noise: all four runs see it.
    plan = plan_power(1500, shift=0.3, runs=4, **planned, **release)
    assert plan.power == 1.0
    assert plan.n == (1500, 1500)
