"""One row a unit in one process: every test of dependence takes it, and rows of one unit stay together."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from tacit.errors import InputError
from tacit.in_process.samples import ArrayTable, Sample, drawing
from tacit.local import distance_correlation, independence_table, joint_independence, screening
from tacit.local.two_owners import read_two_owners
from tacit_protocol.domain.columns import Domain, NumericColumn

UNITS = 500
RNG = np.random.default_rng(1)
IDS = np.repeat(np.arange(UNITS), RNG.choice([1, 20], UNITS))
X = RNG.random(len(IDS))
LETTERS = np.where(X < 0.5, "a", "b")
DOMAIN = Domain(columns=(NumericColumn(name="x", lower=0.0, upper=1.0),))

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


def test_counts_have_no_rows_to_draw_from() -> None:
    for rows, message in (("one", "needs units"), ("first", "must be")):
        chosen: Any = {"unit_rows": rows}
        with pytest.raises(InputError, match=message):
            independence_table([[40, 10], [10, 40]], epsilon=1, **chosen)


def test_verdicts_on_averages_of_aligned_units_warn() -> None:
    result = TESTS["aligned"](units=IDS, seed=1)
    assert any("unit_rows" in warning for warning in result.warnings)


def test_one_row_of_each_unit_is_kept() -> None:
    table = ArrayTable.of(Sample({"x": X}), DOMAIN, IDS, drawing("one", IDS))
    (chunk,) = table.chunks()
    assert (chunk.unit, chunk.units, table.units) == (None, UNITS, UNITS)
    for unit, value in enumerate(chunk.numeric[:, 0]):
        assert value in X[unit == IDS]


def test_both_sides_of_the_same_rows_keep_the_same_ones() -> None:
    held = read_two_owners(X, X, (0, 1), "refuse", IDS, unit_rows="one")
    drawn = []
    for units, draw in zip(held.units, held.draws, strict=True):
        (chunk,) = ArrayTable.of(Sample({"x": X}), DOMAIN, units, draw).chunks()
        drawn.append(chunk.numeric)
    assert np.array_equal(*drawn)
