"""Distance correlation in one process: numbers, tables and groups in, a typed result out, mistakes told."""

import numpy as np
import pandas as pd
import pytest

from tacit.errors import InputError, StudyRefusedError
from tacit.local import DistanceCorrelationResult, distance_correlation

ROWS = 3000
X = np.random.default_rng(1).random((ROWS, 2))


def test_a_copy_is_seen_and_the_result_unpacks() -> None:
    """At epsilon 20 the statistic lies dozens of standard deviations above its null."""
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
        table, group, epsilon=20, delta=1e-5, bounds={"age": (0, 100), "dose": (0, 1), "x2": ["high", "low"]}
    )
    assert result.reject


def test_p4s_projections_come_without_an_interval() -> None:
    result = distance_correlation(X, X[:, 1], epsilon=3, delta=1e-5, bounds=(0, 1), method="pnc-disjoint")
    assert result.interval is None
    assert result.attenuation is not None


def test_mistakes_are_told() -> None:
    with pytest.raises(InputError, match="same rows"):
        distance_correlation(X[:, 0], X[:9, 0], epsilon=1, delta=1e-5, bounds=(0, 1))
    with pytest.raises(StudyRefusedError, match="delta above 0"):
        distance_correlation(X[:, 0], X[:, 1], epsilon=1, delta=0, bounds=(0, 1))
    with pytest.raises(StudyRefusedError, match="at least 32"):
        distance_correlation(X[:9, 0], X[:9, 1], epsilon=1, delta=1e-5, bounds=(0, 1))
