"""Screening in one process: columns ranked, a correlation matrix, mistakes told; what a terminal shows."""

import numpy as np
import pandas as pd
import pytest
from local_noise import seeded_noise

from tacit.correlations import nearest_correlation
from tacit.errors import InputError
from tacit.local import ScreeningResult, screening

ROWS = 4000
RNG = np.random.default_rng(1)
X = RNG.random((ROWS, 3))
AGE = 40 + 30 * X[:, 0] + 10 * RNG.random(ROWS)
TABLE = pd.DataFrame({"age": AGE, "dose": X[:, 1], "group": np.where(X[:, 2] > 0.5, "b", "a")})
BOUNDS = {"age": (40, 80), "dose": (0, 1), "group": ["a", "b"], "score": (0, 1)}
SCORE = pd.Series(1 - X[:, 0], name="score")


@pytest.fixture(scope="module")
def result() -> ScreeningResult:
    """At epsilon 30 the one dependence is dozens of standard deviations from its null.

    The noise has a seed: fresh noise may by design have another column found, in up to one run of a hundred.
    """
    with seeded_noise(1):
        return screening(TABLE, SCORE, epsilon=30, delta=1e-5, bounds=BOUNDS, matrix=True, alpha=0.01, seed=1)


def test_columns_are_ranked(result: ScreeningResult) -> None:
    assert [pair.column for pair in result.found] == ["age"]
    assert len(result) == 3
    best, *others = result
    assert (best.outcome, best.column, best.sign) == ("score", "age", -1)
    assert 0.5 < best.interval[0] <= best.distance_correlation <= best.interval[1]
    assert not any(pair.reject for pair in others)
    assert "1 of 3 pairs" in str(result)
    assert dict(result.n) == {"columns-owner": ROWS, "outcome-owner": ROWS}


def test_the_correlation_matrix_is_one(result: ScreeningResult) -> None:
    for normal in (False, True):
        matrix = result.correlation_matrix(normal=normal)
        assert matrix.columns == ("age", "dose", "group", "score")
        np.testing.assert_allclose(np.diagonal(matrix.values), 1)
        np.testing.assert_allclose(matrix.values, matrix.values.T)
        assert np.linalg.eigvalsh(matrix.values)[0] > -1e-9
        frame = matrix.to_pandas()
        assert frame.loc["age", "score"] < -0.7


def test_mistakes_are_told(result: ScreeningResult) -> None:
    with pytest.raises(InputError, match="same rows"):
        screening(X, X[:9, 0], epsilon=1, delta=1e-5, bounds=(0, 1))
    without = screening(X, X[:, 0], epsilon=1, bounds=(0, 1), n_permutations=99)
    with pytest.raises(InputError, match="matrix = true"):
        without.correlation_matrix()
    with seeded_noise(1):  # fresh noise lifts a constant column's variance above its error in 2 of 100 runs
        constant = screening(
            np.full((500, 2), 0.5), X[:500, 0], epsilon=1, delta=1e-5, bounds=(0, 1), matrix=True, seed=1
        )
    with pytest.raises(InputError, match="unknown=0"):
        constant.correlation_matrix()
    np.testing.assert_array_equal(constant.correlation_matrix(unknown=0.0).values, np.eye(3))


def test_the_nearest_correlation_matrix_is_higham_s() -> None:
    """His example: the nearest to this indefinite matrix has .7607 and .1573 (Higham 2002, section 4)."""
    matrix = np.array([[1, 1, 0], [1, 1, 1], [0, 1, 1]], dtype=np.float64)
    found = nearest_correlation(matrix)
    np.testing.assert_allclose(found[0], [1, 0.7607, 0.1573], atol=1e-4)
    assert np.linalg.eigvalsh(found)[0] > -1e-9
    fine = np.array([[1, 0.3], [0.3, 1]])
    np.testing.assert_allclose(nearest_correlation(fine), fine)
