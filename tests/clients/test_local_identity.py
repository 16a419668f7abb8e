"""Identity in one process: every method, every mistake told, typed results."""

import math
from typing import Any

import numpy as np
import pytest

from tacit.errors import InputError, StudyRefusedError
from tacit.local import DecisionResult, IdentityResult, identity

SKEWED = [0.5, 0.3, 0.15, 0.05]
FAR = [500, 500, 500, 8500]


@pytest.mark.parametrize("method", ["mcgof", "zcdp-gof", "privit-laplace"])
def test_another_distribution_is_seen_with_a_pvalue(method: Any) -> None:
    result = identity(FAR, SKEWED, 1.0, method, delta=1e-6, seed=1)
    assert isinstance(result, IdentityResult)
    statistic, pvalue = result
    assert result.reject
    assert 0 < pvalue <= 0.001
    assert math.isfinite(statistic)
    assert (result.epsilon, dict(result.n), result.cells) == (1.0, {"owner": 10_000}, 4)
    assert "another distribution" in str(result)


@pytest.mark.parametrize("method", ["privit", "repetition"])
def test_decisions_have_nothing_finer(method: Any) -> None:
    # A blind coin accepts with probability at most .17: all of ten do below 1e-7.
    results = [identity(FAR, SKEWED, 4.0, method, alpha=0.33, distance=0.8, seed=1) for _ in range(10)]
    assert all(isinstance(result, DecisionResult) for result in results)
    assert any(result.reject for result in results)
    assert not {"statistic", "pvalue"} & set(results[0].verdict)


@pytest.mark.sweep(3)
@pytest.mark.parametrize("cells", [2, 3, 17, 1002, 1003, 2500])
def test_any_number_of_cells_is_counted_where_it_belongs(cells: int) -> None:
    q = np.full(cells, 1 / cells)
    counts = np.full(cells, 40)
    found = identity(counts, q, 50.0, seed=1)
    assert isinstance(found, IdentityResult)
    # What rounding up adds, a cell of probability zero, has the square of its noise in standard deviations:
    # above 1000 with a chance below 1e-9. Counts of 40 that went there would make it half a million.
    assert found.statistic < 1000
    counts[-1] += 40 * cells
    assert identity(counts, q, 50.0, seed=1).reject


@pytest.mark.parametrize(
    ("counts", "q", "message"),
    [
        ([1, 2], [0.5, 0.25, 0.25], "one length"),
        ([3], [1.0], "at least 2"),
        ([1.5, 2], [0.5, 0.5], "whole numbers"),
        ([-1, 2], [0.5, 0.5], "none negative"),
        ([0, 0], [0.5, 0.5], "at least one"),
        ([1, math.nan], [0.5, 0.5], "finite"),
        ([1, math.inf], [0.5, 0.5], "finite"),
        (["a", "b"], [0.5, 0.5], "finite numbers"),
        ([1, 1j], [0.5, 0.5], "finite numbers"),
        ([[1], [2, 3]], [0.5, 0.5], "one length"),
        ([1e300, 2], [0.5, 0.5], "units at most"),
        ([2**62, 2**62], [0.5, 0.5], "units at most"),
        ([], [], "at least one of them positive"),
        (np.ones(40_000), np.full(40_000, 1 / 40_000), "fewer cells"),
        ([1, 2], [math.nan, 0.5], "probabilities"),
        ([1, 2], ["x", 0.5], "probabilities"),
        ([1, 2], [1.5, -0.5], "probabilities"),
    ],
)
def test_mistakes_are_told(counts: Any, q: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        identity(counts, q, 1.0)


def test_what_the_procedure_refuses_is_told() -> None:
    with pytest.raises(StudyRefusedError, match="would not be private"):
        identity([50, 50], [0.5, 0.5], 1.0, "privit")
    with pytest.raises(StudyRefusedError, match="add up to 1"):
        identity([50, 50], [0.5, 0.4], 1.0)
    with pytest.raises(StudyRefusedError, match="delta"):
        identity([50, 50], [0.5, 0.5], 1.0, "zcdp-gof")
