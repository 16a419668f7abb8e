"""What is read in process is what an agent reads from the same data as Parquet, whatever their type."""

import datetime
from collections.abc import Callable, Sequence
from decimal import Decimal
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pyarrow as pa
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import tacit.local
from tacit.errors import DataWarning, InputError
from tacit.in_process.samples import ArrayTable, domain_of, read_samples
from tacit_protocol.arrow_columns import numbers, text
from tacit_services.agent.data.parquet_source import ParquetSource
from tacit_services.agent.data.source import Columns

LONG_CODES = st.integers(10**17, 10**18)
FLOATS = st.floats(allow_nan=False, allow_infinity=False, width=32)
MOMENTS = st.datetimes(datetime.datetime(1800, 1, 1), datetime.datetime(2200, 1, 1))  # noqa: DTZ001
ZONE = datetime.UTC
DECIMALS = st.decimals(-1000, 1000, places=3)
WORDS = st.text(st.characters(exclude_categories=("Cs",)), max_size=4)
DAYS = st.dates()
TIMES = st.times()

Make = Callable[[Sequence[Any]], Any]


def pandas_of(dtype: str) -> Make:
    return lambda values: pd.DataFrame({"x": pd.Series(values, dtype=dtype)})


def pandas_moments(values: Sequence[Any]) -> Any:
    return pd.DataFrame({"x": pd.Series(pd.array(values, dtype="datetime64[us]"))})


def polars_of(dtype: Any) -> Make:
    return lambda values: pl.DataFrame({"x": pl.Series(values, dtype=dtype)})


def arrow_of(kind: pa.DataType) -> Make:
    return lambda values: pa.table({"x": pa.array(values, kind)})


KINDS: dict[str, tuple[Make, st.SearchStrategy[Any]]] = {
    "pandas objects of truth": (pandas_of("object"), st.booleans()),
    "pandas boolean": (pandas_of("boolean"), st.booleans()),
    "pandas bool[pyarrow]": (pandas_of("bool[pyarrow]"), st.booleans()),
    "pandas Int64": (pandas_of("Int64"), LONG_CODES),
    "pandas UInt8": (pandas_of("UInt8"), st.integers(0, 255)),
    "pandas int64[pyarrow]": (pandas_of("int64[pyarrow]"), LONG_CODES),
    "pandas float64": (pandas_of("float64"), FLOATS),
    "pandas float32": (pandas_of("float32"), FLOATS),
    "pandas Float64": (pandas_of("Float64"), FLOATS),
    "pandas Float32": (pandas_of("Float32"), FLOATS),
    "pandas str": (pandas_of("object"), WORDS),
    "pandas string": (pandas_of("string"), WORDS),
    "pandas string[pyarrow]": (pandas_of("string[pyarrow]"), WORDS),
    "pandas category": (pandas_of("category"), WORDS),
    "pandas category of numbers": (pandas_of("category"), st.integers(0, 9)),
    "pandas Decimal": (pandas_of("object"), DECIMALS),
    "pandas dates": (pandas_of("object"), DAYS),
    "pandas times": (pandas_of("object"), TIMES),
    "pandas datetime64": (pandas_moments, MOMENTS),
    "pandas bytes": (pandas_of("object"), st.binary(max_size=4)),
    "polars Boolean": (polars_of(pl.Boolean), st.booleans()),
    "polars Int64": (polars_of(pl.Int64), LONG_CODES),
    "polars Float32": (polars_of(pl.Float32), FLOATS),
    "polars Float64": (polars_of(pl.Float64), FLOATS),
    "polars String": (polars_of(pl.String), WORDS),
    "polars Categorical": (polars_of(pl.Categorical), WORDS),
    "polars Decimal": (polars_of(pl.Decimal(20, 3)), DECIMALS),
    "polars Date": (polars_of(pl.Date), DAYS),
    "polars Time": (polars_of(pl.Time), TIMES),
    "polars Datetime": (polars_of(pl.Datetime("us")), MOMENTS),
    "polars Datetime, UTC": (
        polars_of(pl.Datetime("us", "UTC")),
        MOMENTS.map(lambda moment: moment.replace(tzinfo=ZONE)),
    ),
    "polars Binary": (polars_of(pl.Binary), st.binary(max_size=4)),
    "arrow bool": (arrow_of(pa.bool_()), st.booleans()),
    "arrow int64": (arrow_of(pa.int64()), LONG_CODES),
    "arrow float32": (arrow_of(pa.float32()), FLOATS),
    "arrow double": (arrow_of(pa.float64()), FLOATS),
    "arrow decimal": (arrow_of(pa.decimal128(20, 3)), DECIMALS),
    "arrow string": (arrow_of(pa.string()), WORDS),
    "arrow date32": (arrow_of(pa.date32()), DAYS),
    "arrow time64": (arrow_of(pa.time64("us")), TIMES),
    "arrow timestamp": (arrow_of(pa.timestamp("us")), MOMENTS),
    "arrow binary": (arrow_of(pa.binary()), st.binary(max_size=4)),
}


def write(frame: Any, path: Path) -> None:
    if isinstance(frame, pd.DataFrame):
        frame.to_parquet(path, index=False)
    elif isinstance(frame, pl.DataFrame):
        frame.write_parquet(path)
    else:
        pa.parquet.write_table(frame, path)


def read_by_agent(path: Path, columns: Columns) -> Any:
    (batch,) = ParquetSource(path).batches(columns, 1000)
    return batch.column("x")


@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=12, deadline=None, derandomize=True)
@given(data=st.data())
def test_every_type_reads_as_from_parquet(
    kind: str, tmp_path_factory: pytest.TempPathFactory, data: st.DataObject
) -> None:
    make, values = KINDS[kind]
    gaps = data.draw(st.booleans())
    held = data.draw(st.lists(st.none() | values if gaps else values, min_size=1, max_size=8))
    frame, path = make(held), tmp_path_factory.mktemp("read") / "x.parquet"
    write(frame, path)
    sample = read_samples([frame], None)[0]
    found = text(read_by_agent(path, Columns(text=("x",))))
    assert sample.categorical("x").tolist() == [
        None if place < 0 else found.distinct[place] for place in found.indices
    ]
    try:
        of_numbers = sample.numeric("x")
    except InputError:
        return  # where an agent reads a value that is no number as missing, a caller is told
    np.testing.assert_array_equal(of_numbers, numbers("x", read_by_agent(path, Columns(numbers=("x",)))))


def test_one_missing_value_changes_no_other_row() -> None:
    frame = pd.DataFrame({"x": pd.array([None] + [True] * 999, dtype="boolean")})
    sample = read_samples([frame], None)[0]
    assert sample.categorical("x").tolist() == [None] + ["true"] * 999
    spent = {"epsilon": 1, "bounds": {"x": ["false", "true"]}}
    with pytest.raises(InputError, match=r"0\.1 % of column 'x' is missing"):
        tacit.local.noisy_counts(frame, **spent)
    with pytest.warns(DataWarning, match=r"0\.1 % of column 'x' is missing, and each is counted as a level"):
        counted = tacit.local.noisy_counts(frame, missing="encode", **spent)
    # Noise of scale 2: it passes 100 with a probability below 1e-21.
    assert counted.counts["sample-1"][1] == pytest.approx(999, abs=100)


def test_long_codes_of_an_arrow_table_are_levels() -> None:
    codes = [123456789012345678, 123456789012345679]
    table = pa.table({"x": codes * 300})
    counted = tacit.local.noisy_counts(table, epsilon=1, bounds={"x": [str(code) for code in codes]})
    assert [round(count / 300) for count in counted.counts["sample-1"][:2]] == [1, 1]


@pytest.mark.parametrize(
    "ids",
    [
        pd.array([2**60 + place for place in range(1000)] + [1], dtype="Int64"),
        pl.Series([2**60 + place for place in range(1000)] + [1]),
        pa.array([2**60 + place for place in range(1000)] + [1]),
        [f"p{place}" for place in range(1001)],
    ],
)
def test_long_ids_stay_different(ids: Any) -> None:
    sample = read_samples([np.zeros(1001)], None)[0]
    assert ArrayTable.of(sample, domain_of((0, 1), ["x1"]), ids).units == 1001


def test_ids_that_floats_cannot_tell_apart_are_refused() -> None:
    ids = np.array([2.0**60, 2.0**60 + 1, 1.0])
    sample = read_samples([np.zeros(3)], None)[0]
    with pytest.raises(InputError, match=r"above 2\^53, where several ids are one number"):
        ArrayTable.of(sample, domain_of((0, 1), ["x1"]), ids)


def test_numbers_in_text_and_decimals_are_read_strictly() -> None:
    read = read_samples([pd.DataFrame({"x": ["1.5", " 2e1 ", None]})], None)[0]
    np.testing.assert_array_equal(read.numeric("x"), [1.5, 20, np.nan])
    read = read_samples([pd.DataFrame({"x": [Decimal("1.5"), None]})], None)[0]
    np.testing.assert_array_equal(read.numeric("x"), [1.5, np.nan])
    for odd in ("1_0", "78,2", "nought"):
        with pytest.raises(InputError, match="holds values that are not numbers"):
            read_samples([pd.DataFrame({"x": ["1", odd]})], None)[0].numeric("x")
