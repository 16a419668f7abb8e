"""Gaussian copulas of private correlations and margins: dependence and margins come back, errors are told."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pandas as pd
import polars as pl
import pytest
from scipy.special import ndtr

import tacit.local
from tacit.correlations import normal_distance_correlation, symmetric
from tacit.errors import InputError
from tacit.local.synthetic import normal_scores_correlations
from tacit_protocol.numerics.distance_covariance import distance_covariance_sqr, distance_variance_sqr

FLAT = tacit.local.Margin.of_cells([1.0], 0.0, [0.0, 1.0])
SKEWED = tacit.local.Margin.of_cells([0.7, 0.2, 0.1], 0.0, [0.0, 1.0, 5.0, 50.0])


def distance_correlation(x: npt.NDArray[np.float64], y: npt.NDArray[np.float64]) -> float:
    squared = distance_covariance_sqr(x, y) / np.sqrt(distance_variance_sqr(x) * distance_variance_sqr(y))
    return float(np.sqrt(max(0.0, squared)))


@pytest.mark.parametrize("rho", [0.1, 0.5, 0.8, 0.95, -0.5])
def test_of_normal_margins_the_closed_form_is_found(rho: float) -> None:
    edges = np.linspace(-4, 4, 401)
    normal = tacit.local.Margin.of_cells(np.diff(ndtr(edges)), 0.0, edges)
    signed = np.sign(rho) * float(normal_distance_correlation(rho))
    found = normal_scores_correlations(symmetric([signed], 2), [normal, normal])
    assert found[1, 0] == pytest.approx(rho, abs=0.01)


@pytest.mark.parametrize(("first", "second"), [(FLAT, FLAT), (FLAT, SKEWED), (SKEWED, SKEWED)])
def test_rows_have_the_distance_correlation_that_was_asked_for(
    first: tacit.local.Margin, second: tacit.local.Margin
) -> None:
    """Measured errors are .006 to .026; a sample of 20 000 rows errs by less than .01."""
    scores = normal_scores_correlations(symmetric([0.5], 2), [first, second])
    matrix = tacit.local.CorrelationMatrix(("a", "b"), scores)
    rows = tacit.local.copula_sample(matrix, {"a": first, "b": second}, 20_000, seed=1).columns
    assert distance_correlation(rows["a"], rows["b"]) == pytest.approx(0.5, abs=0.04)


def test_margins_are_those_given_and_noise_below_0_is_taken_off() -> None:
    noisy = tacit.local.Margin.of_cells([0.8, -0.1, 0.3], 0.05, [0.0, 1.0, 2.0, 3.0])
    assert noisy.shares == pytest.approx([0.75, 0.0, 0.25])
    grades = tacit.local.Margin.of_levels([0.5, 0.3, 0.2], 0.01, ["a", "b", None])
    matrix = tacit.local.CorrelationMatrix(("x", "grade"), np.eye(2))
    sample = tacit.local.copula_sample(matrix, {"x": noisy, "grade": grades}, 40_000, seed=3)
    counted, _ = np.histogram(sample.columns["x"], [0, 1, 2, 3])
    # Six standard errors of a share of 40 000 rows.
    assert counted / 40_000 == pytest.approx([0.75, 0.0, 0.25], abs=0.015)
    assert np.mean(sample.columns["grade"] == "a") == pytest.approx(0.5, abs=0.015)
    assert sum(value is None for value in sample.columns["grade"]) / 40_000 == pytest.approx(0.2, abs=0.015)
    assert sample.margin_noise == {"x": 0.05, "grade": 0.01}


def test_what_is_no_correlation_matrix_is_moved_and_it_is_said_how_far() -> None:
    wished = tacit.local.CorrelationMatrix(("a", "b", "c"), symmetric([0.9, -0.9, 0.9], 3))
    margins = dict.fromkeys("abc", FLAT)
    sample = tacit.local.copula_sample(wished, margins, 1000, seed=1)
    assert np.linalg.eigvalsh(sample.correlations.values).min() > -1e-9
    assert sample.moved == pytest.approx(0.4, abs=0.01)
    again = tacit.local.copula_sample(wished, margins, 1000, seed=1)
    assert all(np.array_equal(sample.columns[name], again.columns[name]) for name in "abc")
    with pytest.raises(InputError, match="no margin is given of c"):
        tacit.local.copula_sample(wished, {"a": FLAT, "b": FLAT}, 10)
    with pytest.raises(InputError, match="n must lie"):
        tacit.local.copula_sample(wished, margins, 0)


@pytest.mark.parametrize("released", ["counts", "database"])
def test_from_private_releases_to_rows(released: str) -> None:
    """20 000 rows, epsilon 20: noise and sampling move a share by less than .01, a correlation by some .1."""
    rng = np.random.default_rng(5)
    scores = rng.multivariate_normal(np.zeros(3), symmetric([0.8, 0.0, 0.0], 3), 20_000)
    table = pl.DataFrame({"age": 100 * ndtr(scores[:, 0]), "income": 10 * ndtr(scores[:, 1]) ** 3})
    score = pl.DataFrame({"score": ndtr(scores[:, 2])})
    bounds = {"age": (0, 100), "income": (0, 10), "score": (0, 1)}
    budget = {"epsilon": 20.0, "delta": 1e-5}
    screened = tacit.local.screening(table, score, **budget, bounds=bounds, matrix=True, seed=2)
    own = {name: bounds[name] for name in ("age", "income")}
    other = tacit.local.noisy_counts(
        score, epsilon=20, bounds={"score": (0, 1)}, cuts={"score": [0.25, 0.5, 0.75]}
    )
    if released == "counts":
        cuts = {"age": [25.0, 50.0, 75.0], "income": [0.1, 1.0, 2.0, 5.0]}
        first: tacit.local.NoisyCountsResult | tacit.local.ReleasedDatabase = tacit.local.noisy_counts(
            table, epsilon=20, bounds=own, cuts=cuts
        )
    else:
        first = tacit.local.release_database(table, **budget, bounds=own, n_points=100, seed=4)
    sample = tacit.local.copula_sample(screened, [first, other], 20_000, seed=6)
    assert list(sample.columns) == ["age", "income", "score"]
    truth = distance_correlation(table["age"].to_numpy(), table["income"].to_numpy())
    made = distance_correlation(sample.columns["age"], sample.columns["income"])
    assert made == pytest.approx(truth, abs=0.15)
    assert distance_correlation(sample.columns["age"], sample.columns["score"]) < 0.2
    assert np.mean(sample.columns["age"] < 50) == pytest.approx(0.5, abs=0.03)
    assert np.mean(sample.columns["income"] < 1) == pytest.approx(
        np.mean(table["income"].to_numpy() < 1), abs=0.05
    )
    assert all(0 < noise < 0.01 for noise in sample.margin_noise.values())
    assert sample.unknown == ()


@pytest.mark.parametrize("table", [pd.DataFrame, pl.DataFrame])
def test_correlations_may_be_a_table(table: Any) -> None:
    margins = {"a": FLAT, "b": FLAT}
    rows = tacit.local.copula_sample(table({"a": [1.0, 0.9], "b": [0.9, 1.0]}), margins, 10_000, seed=1)
    assert np.corrcoef(rows.columns["a"], rows.columns["b"])[0, 1] == pytest.approx(0.9, abs=0.03)
    for wrong in (
        {"a": [1.0, 0.9], "b": [0.2, 1.0]},
        {"a": [1.0], "b": [0.9]},
        {"a": [1.0, None], "b": [None, 1.0]},
    ):
        with pytest.raises(InputError, match="symmetric table of numbers"):
            tacit.local.copula_sample(table(wrong), margins, 10)
    with pytest.raises(InputError, match="names no columns"):
        tacit.local.copula_sample(np.eye(2), margins, 10)


def test_a_screening_without_a_matrix_makes_no_rows() -> None:
    x = np.random.default_rng(1).random((3000, 2))
    screened = tacit.local.screening(x, x[:, 0], epsilon=4, delta=1e-5, bounds=(0, 1), seed=1)
    with pytest.raises(InputError, match="matrix = true"):
        tacit.local.copula_sample(screened, dict.fromkeys(("x.1", "x.2", "y"), FLAT), 10)
