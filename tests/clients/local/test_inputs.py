"""Samples and bounds as users write them: what is taken, and what each mistake is told."""

import math
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest

from tacit.errors import InputError
from tacit.in_process.samples import ArrayTable, Sample, domain_of, read_samples

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
    ],
)
def test_what_is_no_sample_is_told(sample: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        read_samples([sample], None)


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
