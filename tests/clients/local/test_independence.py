"""Joint independence in one process, and one row a unit in every test of dependence."""

import math
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.errors import DataWarning, InputError
from tacit.local import (
    CellsTableResult,
    DecisionResult,
    distance_correlation,
    independence_table,
    joint_independence,
    kernel_two_sample,
    screening,
)

ROWS = 400
# At epsilon 50 and 400 rows a copy of a variable is missed with a chance far below 1e-6: the observed
# statistic lies thousands of noise scales above every permuted one.
SURE: dict[str, Any] = {
    "epsilon": 50.0,
    "n_permutations": 99,
    "alpha": 0.02,
    "seed": 3,
    "method": "permutation",
}


def numbers(seed: int = 1) -> Any:
    return np.random.default_rng(seed).uniform(0, 1, ROWS)


def test_a_copy_is_seen_and_the_result_is_a_decision_alone() -> None:
    x = numbers()
    result = joint_independence(x, x, bounds=(0, 1), **SURE)
    assert isinstance(result, DecisionResult)
    assert result.reject
    assert (result.alpha, result.epsilon, result.delta, dict(result.n)) == (0.02, 50.0, 0.0, {"owner": 400})
    assert not {"statistic", "pvalue"} & set(result.verdict)
    assert "not jointly independent" in str(result)


@pytest.mark.parametrize("gap", [math.nan, math.inf])
def test_a_missing_number_is_refused_unless_it_is_to_be_encoded(gap: float) -> None:
    x, y = numbers(), numbers(2)
    y[5] = gap
    with pytest.raises(InputError, match=r"of column 'x2' is missing .*missing=\"encode\""):
        joint_independence(x, y, bounds=(0, 1), **SURE)
    with pytest.warns(DataWarning, match=r"0\.25 % of column 'x2' is missing, and each is read as 0\.5"):
        found = joint_independence(x, y, bounds=(0, 1), missing="encode", **SURE)
    assert isinstance(found, DecisionResult)


@pytest.mark.parametrize(
    ("variables", "changed", "message"),
    [
        ((), {}, "at least two variables"),
        ((np.zeros(5), np.zeros(6)), {}, "x2 has 6 rows and x1 has 5"),
        ((np.zeros(5), np.zeros(5)), {"bounds": None}, "bounds must be public"),
        ((np.zeros(5), np.zeros(5)), {"bounds": [(0, 1)] * 3}, "3 items for 2 variables"),
        ((np.zeros(5), np.zeros(5)), {"names": ["a"]}, "names holds 1 names for 2"),
        ((np.zeros(5), np.zeros(5)), {"epsilon": 0}, "epsilon"),
        ((np.zeros(5), np.zeros(5)), {"units": np.zeros(4)}, "units must name one unit"),
    ],
)
def test_a_mistake_in_the_input_is_told(
    variables: tuple[Any, ...], changed: dict[str, Any], message: str
) -> None:
    with pytest.raises(InputError, match=message):
        joint_independence(*variables, **({"epsilon": 1.0, "bounds": (0, 1)} | changed))


UNITS = 500
RNG = np.random.default_rng(1)
IDS = np.repeat(np.arange(UNITS), RNG.choice([1, 20], UNITS))
X = RNG.random(len(IDS))
LETTERS = np.where(X < 0.5, "a", "b")

TESTS: dict[str, Callable[..., Any]] = {
    "distance_correlation": lambda **chosen: distance_correlation(
        X, X, epsilon=20, delta=1e-5, bounds=(0, 1), **chosen
    ),
    "aligned": lambda units, **chosen: distance_correlation(
        X, X, epsilon=20, delta=1e-5, bounds=(0, 1), units=None if units is None else (units, units), **chosen
    ),
    "curator": lambda **chosen: distance_correlation(
        X, X, epsilon=20, delta=1e-5, bounds=(0, 1), mode="curator", **chosen
    ),
    "screening": lambda **chosen: screening(X, X, epsilon=20, delta=1e-5, bounds=(0, 1), **chosen),
    "joint_independence": lambda **chosen: joint_independence(X, X, epsilon=20, bounds=(0, 1), **chosen),
    "independence_table": lambda **chosen: independence_table(
        LETTERS, LETTERS, epsilon=20, bounds=[["a", "b"]] * 2, **chosen
    ),
}


@pytest.mark.parametrize("name", TESTS)
def test_every_test_of_dependence_takes_one_row_a_unit(name: str) -> None:
    result = TESTS[name](units=IDS, unit_rows="one", seed=1)
    assert set(dict(result.n).values()) == {UNITS}
    assert not any("average" in warning for warning in result.warnings)
    for chosen, message in (
        ({"unit_rows": "first", "units": IDS}, "must be"),
        ({"units": None}, "needs units"),
    ):
        with pytest.raises(InputError, match=message):
            TESTS[name](**({"unit_rows": "one"} | chosen))


def test_a_table_and_auto_have_a_p_value_and_estimates() -> None:
    """At 800 rows auto takes the table; dependence so strong is missed with probability below 1e-9."""
    rng = np.random.default_rng(0)
    x = rng.random(800)
    for method in ("table", "auto"):
        result = joint_independence(
            x, x + 0.1 * rng.random(800), epsilon=1, bounds=(0, 1.1), method=method, seed=1
        )
        assert isinstance(result, CellsTableResult)
        assert result.reject
        statistic, pvalue = result
        assert statistic > 0
        assert pvalue <= 0.05
        (pair,) = result.pairs
        assert pair.correlation_interval[0] > 0.3
        assert "rank correlation" in result.to_svg()


def test_blocks_and_tables_serve_one_party_of_two_sides_and_of_two_samples() -> None:
    rng = np.random.default_rng(0)
    x = rng.random(800)
    for method in ("aggregate", "table"):
        found = distance_correlation(x, x, epsilon=2, bounds=(0, 1), mode="curator", method=method, seed=1)
        assert found.pvalue < 0.05
        compared = kernel_two_sample(
            x, x**3, epsilon=2, delta=0, bounds=(0, 1), setting="curator", release=method, seed=1
        )
        assert compared.pvalue < 0.05
