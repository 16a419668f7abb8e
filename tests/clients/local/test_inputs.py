"""Samples and bounds as users write them: what is taken, and what each mistake is told."""

import inspect
import math
import re
from collections.abc import Callable
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

import tacit.local
from tacit.errors import DataWarning, InputError
from tacit.in_process.samples import ArrayTable, Sample, domain_of, read_samples, read_variables

VALUES = {"age": [30.0, None, 50.0], "sex": ["F", None, "M"], "visits": [1, 2, 3]}


def pandas_frame() -> Any:
    return pd.DataFrame(VALUES)


def polars_frame() -> Any:
    return pl.DataFrame(VALUES)


def arrow_table() -> Any:
    return pa.table(VALUES)


@pytest.mark.parametrize("make", [pandas_frame, polars_frame, arrow_table])
def test_every_kind_of_table_reads_alike(make: Any) -> None:
    sample = read_samples([make()], None)[0]
    assert list(sample.columns) == ["age", "sex", "visits"]
    np.testing.assert_array_equal(sample.numeric("age"), [30.0, math.nan, 50.0])
    assert sample.categorical("sex").tolist() == ["F", None, "M"]
    assert sample.categorical("visits").tolist() == ["1", "2", "3"]
    assert sample.numeric("visits").tolist() == [1.0, 2.0, 3.0]


@pytest.mark.parametrize(
    ("sample", "message"),
    [
        (pd.DataFrame(), "is empty"),
        (np.zeros((2, 2), dtype=complex), "complex"),
        ("a file name", "pass a NumPy array"),
        (None, "is a NoneType: pass"),
        ({"age": [1, 2]}, "is a dict: pass"),
        (pl.LazyFrame(VALUES), "call its collect"),
        ([[1, 2], [3]], "rows of one length"),
        (pd.DataFrame([[1, 2]], columns=["a", "a"]), "several columns of one name"),
    ],
)
def test_what_is_no_sample_is_told(sample: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_samples([sample], None)


COLUMNS: list[Callable[[Any], Any]] = [
    np.asarray,
    list,
    pd.Series,
    pl.Series,
    pa.array,
    lambda values: pa.chunked_array([list(values)]),
    lambda values: pd.Series(values, dtype="Int64"),
    lambda values: pd.DataFrame({"x1": values}),
    lambda values: pl.DataFrame({"x1": values}),
]


@pytest.mark.parametrize("make", COLUMNS)
def test_every_kind_of_column_is_taken_wherever_an_array_is(make: Callable[[Any], Any]) -> None:
    ages, units = np.arange(20, 80), np.arange(60) // 2
    read = read_samples([make(ages)], None)[0]
    assert read.numeric("x1").tolist() == ages.tolist()
    domain = domain_of((0, 120), ["x1"])
    assert ArrayTable.of(read, domain, make(units)).units == 30
    assert read_variables([make(ages), ages[::-1]], (0, 120), None, "refuse").groups == (("x1",), ("x2",))
    spent = {"epsilon": 1, "bounds": (0, 120), "seed": 1}
    database = tacit.local.release_database(make(ages), delta=1e-6, public=make(ages[:20]), **spent)
    assert database.points["x1"].tolist() == pytest.approx(ages[:20].tolist())
    released = tacit.local.randomise_column(make(ages), epsilon=1, bounds=(0, 120))
    assert len(released) == 60
    assert tacit.local.kernel_two_sample(
        make(ages), ages, delta=1e-5, units=[make(units), units], **spent
    ).n == {
        "sample-1": 30,
        "sample-2": 30,
    }
    assert tacit.local.identity(make([900, 50, 50]), make([1, 0, 0]), epsilon=1, seed=1).n == {"owner": 1000}


def test_a_columns_own_name_is_kept_and_columns_gives_another() -> None:
    ages = [61, 54, 70]
    for column in (pd.Series(ages, name="age"), pl.Series("age", ages)):
        assert list(read_samples([column], None)[0].columns) == ["age"]
        assert list(read_samples([column, ages], ["years"])[1].columns) == ["years"]
        read = read_variables([column, ages], (0, 120), None, "refuse")
        assert read.groups == (("age",), ("x2",))
    frame = pd.DataFrame(np.ones((3, 2)))
    assert list(read_samples([frame], None)[0].columns) == ["0", "1"]
    with pytest.raises(InputError, match="sample 2 has other columns than sample 1"):
        read_samples([pd.Series(ages, name="age"), pl.Series("alter", ages)], None)


@pytest.mark.parametrize(
    "missing",
    [
        [None, "F"],
        [math.nan, "F"],
        pd.Series([None, "F"]),
        pd.Series([None, "F"], dtype="string"),
        pd.Series([pd.NA, "F"], dtype=object),
        pd.Series([None, "F"], dtype="category"),
        pl.Series([None, "F"]),
        pa.array([None, "F"]),
    ],
)
def test_every_kind_of_missing_value_is_one(missing: Any) -> None:
    assert read_samples([missing], None)[0].categorical("x1").tolist() == [None, "F"]
    sample = Sample({"age": np.array([1.0, 2.0])})
    with pytest.raises(InputError, match="units hold missing values: give every row a unit"):
        ArrayTable.of(sample, domain_of((0, 120), ["age"]), missing)
    with pytest.raises(InputError, match="is missing"):
        read_variables([missing, [1, 2]], [["F", "M"], (0, 120)], None, "refuse")


def test_a_number_beside_text_stays_one() -> None:
    rows = [[61, "F"], [pd.NA, None]]
    for sample in (rows, pd.DataFrame(rows, columns=["x1", "x2"], dtype=object)):
        read = read_samples([sample], None)[0]
        np.testing.assert_array_equal(read.numeric("x1"), [61.0, math.nan])
        assert read.categorical("x2").tolist() == ["F", None]


def test_lengths_that_differ_and_counts_with_gaps_are_told() -> None:
    with pytest.raises(InputError, match="x2 has 2 rows and x1 has 3"):
        read_variables([pd.Series([1, 2, 3]), pl.Series([1, 2])], (0, 3), None, "refuse")
    sample = Sample({"age": np.array([1.0, 2.0])})
    with pytest.raises(InputError, match="one unit for each of the 2 rows"):
        ArrayTable.of(sample, domain_of((0, 120), ["age"]), pl.Series([1, 2, 3]))
    for counts in (
        pd.Series([1, None, 2], dtype="Int64"),
        pl.Series([1, None, 2]),
        [1, None, 2],
        pd.Series(["a"]),
    ):
        with pytest.raises(InputError, match="counts must be finite numbers"):
            tacit.local.identity(counts, [0.2, 0.3, 0.5], epsilon=1)
    with pytest.raises(InputError, match="q must be probabilities"):
        tacit.local.identity([1, 2, 3], pd.Series([0.2, None, 0.5], dtype="Float64"), epsilon=1)
    mixed = pl.DataFrame({"sex": ["F", None], "age": [61.0, None]})
    domain = domain_of({"age": (0, 120), "sex": ["F", "M"]}, ["age", "sex"])
    assert read_samples([mixed], ["age", "sex"])[0].points(domain) == [[61.0, "F"], [None, None]]


def test_text_in_a_numeric_column_asks_for_levels_and_quotes_no_value() -> None:
    sample = read_samples([pd.DataFrame({"sex": ["secret", "F"]})], None)[0]
    with pytest.raises(InputError, match="give its levels") as caught:
        sample.numeric("sex")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize(
    ("bounds", "message"),
    [
        (None, "bounds must be public"),
        ({"a": (0, 1)}, "no bounds for 'b'"),
        ({"a": (0, 1), "b": (0, 1), "c": (0, 1)}, "'c', which the samples do not have"),
        ({"a": (0, math.nan), "b": (0, 1)}, "bounds of 'a' must be finite"),
        ({"a": (1, 0), "b": (0, 1)}, "bounds of 'a': lower must be less than upper"),
        ({"a": (0, 1, 2), "b": (0, 1)}, "must be a .lower, upper. pair"),
        ({"a": ["F", "F"], "b": (0, 1)}, "levels must be distinct"),
    ],
)
def test_a_mistake_in_bounds_is_told(bounds: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        domain_of(bounds, ["a", "b"])


def test_units_are_never_cut_between_chunks() -> None:
    rng = np.random.default_rng(7)
    unit = rng.integers(0, 40, 500)
    values = unit.astype(float)
    sample = Sample({"a": values})
    whole = ArrayTable.of(sample, domain_of((0, 40), ["a"]), unit)
    table = ArrayTable(whole.domain, whole.units, whole.columns, whole.starts, chunk_rows=30)
    seen: list[float] = []
    rows = 0
    for chunk in table.chunks():
        assert chunk.unit is not None
        rows += chunk.rows
        for index in range(chunk.units):
            contents = np.unique(chunk.numeric[chunk.unit == index, 0])
            assert len(contents) == 1
            seen.append(float(contents[0]))
    assert rows == 500
    assert len(seen) == len(set(seen)) == table.units == len(np.unique(unit))


DIED = pd.DataFrame({"months": [2.0, 5.0, 9.0] * 200, "died": [1, 2, 1] * 200})
PEOPLE = pd.DataFrame({"smoker": ["yes", "no"] * 300, "age": np.linspace(20, 80, 600)})
SPENT = {"epsilon": 1, "delta": 1e-6, "seed": 1}


@pytest.mark.parametrize(
    ("ask", "message"),
    [
        (
            lambda: tacit.local.survival(
                DIED,
                time="months",
                event="died",
                intervals=[0, 4, 8, 12],
                bounds={"died": ["0", "1"]},
                **SPENT,
            ),
            "33.3 % of column 'died' is none of the levels 0, 1, which are compared letter by letter",
        ),
        (
            lambda: tacit.local.independence_table(
                PEOPLE["smoker"], PEOPLE["age"] > 50, bounds=[["Yes", "No"], ["false", "true"]], **SPENT
            ),
            "100 % of column 'smoker' is none of the levels Yes, No",
        ),
        (
            lambda: tacit.local.group_comparison(
                PEOPLE, group="smoker", bounds={"smoker": ["yes", "no"], "age": (0, 1)}, **SPENT
            ),
            "100 % of column 'age' lies outside 0 to 1, and each such value counts as the nearer bound",
        ),
        (
            lambda: tacit.local.kernel_two_sample(
                PEOPLE["age"],
                PEOPLE["age"].where(PEOPLE["age"] > 50),
                bounds=(0, 120),
                missing="encode",
                **SPENT,
            ),
            "50 % of column 'age' of sample-2 is missing, and each is read as 60, the middle of its bounds",
        ),
    ],
)
def test_codes_bounds_and_gaps_that_do_not_fit_are_warned_of(ask: Callable[[], Any], message: str) -> None:
    with pytest.warns(DataWarning, match=re.escape(message)):
        result = ask()
    assert not any(message in warning for warning in result.warnings)  # exact shares are in no result


def test_every_function_refuses_missing_values_unless_told() -> None:
    """Each public function that reads rows has the argument, with the same default."""
    read = 0
    for name in tacit.local.__all__:
        function = getattr(tacit.local, name)
        parameters = inspect.signature(function).parameters if inspect.isfunction(function) else {}
        if "bounds" in parameters and name not in NOT_OF_ROWS:
            assert "asked" in parameters or parameters["missing"].default == "refuse", name
            read += 1
    assert read > 10


NOT_OF_ROWS = {"optimise_locations", "plan_power"}
"""What they read are public samples."""


def test_bounds_choose_a_tables_columns_and_epsilon_is_looked_at_first() -> None:
    people = PEOPLE.assign(patient_id=range(600))
    bounds = {"smoker": ["yes", "no"], "age": (0, 120)}
    found = tacit.local.group_comparison(people, group="smoker", bounds=bounds, **SPENT)
    assert {column.name for column in found.source.study.domain.columns} == {"smoker", "age"}
    with pytest.raises(InputError, match=r"no column 'agee': it has 'smoker', 'age', 'patient_id'"):
        tacit.local.kernel_two_sample(people, people, bounds={"agee": (0, 120)}, **SPENT)
    for ask in (
        lambda: tacit.local.kernel_two_sample("no", "data", epsilon=0, delta=0),
        lambda: tacit.local.joint_independence([1], epsilon=math.nan, delta=0),
        lambda: tacit.local.noisy_counts(epsilon=-1),
        lambda: tacit.local.association(people, epsilon=0, bounds={}),
    ):
        with pytest.raises(InputError, match=r"^epsilon"):
            ask()
