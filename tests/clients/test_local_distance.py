"""Distance correlation in one process: numbers, tables and groups in, a typed result out, mistakes told."""

import re
from typing import Any

import numpy as np
import pandas as pd
import pytest
from local_noise import seeded_noise

from tacit.errors import InputError, StudyRefusedError
from tacit.local import DistanceCorrelationResult, distance_correlation

ROWS = 3000
X = np.random.default_rng(1).random((ROWS, 2))
COMMON: dict[str, Any] = {"epsilon": 20, "delta": 1e-5, "bounds": (0, 1), "seed": 1}


def test_a_copy_is_seen_and_the_result_unpacks() -> None:
    """At epsilon 20 the statistic lies dozens of standard deviations above its null.

    The noise has a seed: one interval in some ten thousand ends more than .05 below 1.
    """
    with seeded_noise(1):
        result = distance_correlation(X[:, 0], X[:, 0], epsilon=20, delta=1e-5, bounds=(0, 1), seed=1)
    assert isinstance(result, DistanceCorrelationResult)
    statistic, pvalue = result
    assert (result.reject, pvalue) == (True, 0.001)
    assert statistic > 5
    assert result.interval is not None
    assert result.interval[0] <= 1 <= result.interval[1] + 0.05
    assert dict(result.n) == {"x-owner": ROWS, "y-owner": ROWS}
    assert "dependent" in str(result)


def test_a_table_and_a_group_are_two_owners_columns() -> None:
    group = np.where(X[:, 0] > 0.5, "high", "low")
    table = pd.DataFrame({"age": 100 * X[:, 0], "dose": X[:, 1]})
    result = distance_correlation(
        table, group, epsilon=20, delta=1e-5, bounds={"age": (0, 100), "dose": (0, 1), "y": ["high", "low"]}
    )
    assert result.reject


MISSING = np.where(np.arange(ROWS) == 7, np.nan, X[:, 0])


@pytest.mark.parametrize(
    ("x", "y", "changed", "message"),
    [
        (X[:, 0], X[:9, 0], {}, "y has 9 rows and x has 3000"),
        (X.reshape(3, -1, 2), X, {}, "x has 3 dimensions"),
        (X, X.reshape(3, -1, 2), {}, "y has 3 dimensions"),
        (X, X[:0], {}, "y is empty"),
        (X, X + 1j, {}, "y holds complex numbers"),
        (X, [[1.0, 2.0], [3.0]], {}, "y has rows of several lengths"),
        (X, np.arange(ROWS).astype("datetime64[s]"), {}, "y holds dates or times"),
        (None, X, {}, "x is a NoneType"),
        (MISSING, X, {}, "x holds missing values"),
        (X, np.full(ROWS, np.inf), {}, "y holds missing values"),
        (X, X[:, 0], {"bounds": [(0, 1), None]}, "y has no bounds"),
        (X, X[:, 0], {"bounds": [(0, 1), (1, 0)]}, "bounds of 'y': lower must be less than upper"),
        (X, X[:, 0], {"bounds": {"x.1": (0, 1), "y": (0, 1)}}, "no bounds for 'x.2'"),
        (X, np.where(X[:, 0] > 0.5, "a", "b"), {}, "column 'y' holds values that are not numbers"),
        (pd.DataFrame({"a": X[:, 0]}), pd.DataFrame({"a": X[:, 1]}), {}, "x and y both have a column"),
        (X, X, {"epsilon": 0}, "epsilon must lie between"),
        (X, X, {"epsilon": None}, "epsilon and delta must be numbers"),
        (X, X, {"delta": -1e-5}, "delta must be at least 0"),
        (X, X, {"alpha": 0.7}, "alpha: Input should be less than 0.5"),
        (X, X, {"mode": "agent"}, 'mode must be "tester", "peer" or "curator"'),
        (X, X, {"missing": "drop"}, "missing must be"),
        (np.zeros((ROWS, 1001)), X, {}, "1003 columns, where a study takes 1000 at most"),
    ],
)  # fmt: skip
def test_mistakes_are_told_in_the_callers_words(
    x: Any, y: Any, changed: dict[str, Any], message: str
) -> None:
    options: dict[str, Any] = {"epsilon": 1, "delta": 1e-5, "bounds": (0, 1)} | changed
    with pytest.raises(InputError, match=re.escape(message)):
        distance_correlation(x, y, **options)


@pytest.mark.parametrize(
    ("rows", "changed", "message"),
    [
        (ROWS, {"delta": 0}, "delta above 0"),
        (31, {}, "at least 32"),
        (ROWS, {"n_permutations": 0}, "n_permutations: Input should be greater than or equal to 99"),
        (ROWS, {"n_permutations": 10**9}, "n_permutations: Input should be less than or equal to 9999"),
        (ROWS, {"n_projections": 10**6}, "n_projections: Input should be less than or equal to 1024"),
        (ROWS, {"n_features": 65}, "n_features: Input should be less than or equal to 64"),
        (ROWS, {"method": "exact"}, "parameter method"),
        (ROWS, {"bogus": 1}, "unknown parameter"),
    ],
)
def test_what_the_procedure_does_not_take_is_refused(
    rows: int, changed: dict[str, Any], message: str
) -> None:
    options: dict[str, Any] = {"epsilon": 1, "delta": 1e-5, "bounds": (0, 1)} | changed
    with pytest.raises(StudyRefusedError, match=message):
        distance_correlation(X[:rows], X[:rows, 0], **options)


@pytest.mark.parametrize("constant", [0.0, 0.5, 7.0])
def test_a_constant_column_is_taken(constant: float) -> None:
    """Outside of its bounds it is clipped; its own variance is 0, or what noise makes of it."""
    result = distance_correlation(np.full(ROWS, constant), X[:, 0], **COMMON)
    assert 0 < result.pvalue <= 1
    unknown = result.distance_correlation is None
    assert (result.interval is None) == unknown
    assert any("variance is zero, or lost" in warning for warning in result.warnings) == unknown


def test_a_level_that_permutations_cannot_reach_is_told() -> None:
    few = distance_correlation(X[:, 0], X[:, 0], alpha=1e-4, **COMMON)
    assert not few.reject
    assert any("at least 9999 permutations" in warning for warning in few.warnings)
    enough = distance_correlation(X[:, 0], X[:, 0], alpha=1e-3, **COMMON)
    assert enough.reject
    assert not any("permutations" in warning for warning in enough.warnings)
