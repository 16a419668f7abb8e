"""What a check says of an owner's rows: shares, causes, and where it fails."""

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyarrow import parquet

from tacit_protocol.domain import CategoricalColumn, Column, DataError, NumericColumn, VectorColumn
from tacit_services.agent.data.column_facts import column_facts, data_findings
from tacit_services.agent.data.opening import open_source

AGE = NumericColumn(name="age", lower=0, upper=120)
SEX = CategoricalColumn(name="sex", levels=("F", "M"))
CODE = CategoricalColumn(name="sex", levels=("0", "1"))
POINT = VectorColumn(name="age", length=2, norm=1.0)


def found_in(folder: Path, content: str | bytes, *columns: Column | VectorColumn) -> list[dict[str, Any]]:
    data = content if isinstance(content, bytes) else content.encode()
    (folder / "a.csv").write_bytes(data)
    return data_findings(open_source("a.csv", None, folder), columns)


@pytest.mark.parametrize(
    ("rows", "state", "words"),
    [
        (["50"] * 200, "ok", "100 % can be read as numbers; 100 % lies within 0 to 120; 0 % is missing"),
        (["50"] * 199 + ["121"], "ok", "99.5 % lies within"),
        (["50"] * 1999 + ["121"], "ok", "99.9 % lies within"),
        (["50"] * 90 + ["700"] * 10, "warning", "90 % lies within"),
        (["50"] * 40 + ["700"] * 60, "failed", "40 % lies within"),
        (["50"] * 50 + [""] * 50, "warning", "50 % is missing, and would be read as 60"),
        (["inf", "NaN", ""], "failed", "no row has a value"),
        (['"78,2"'] * 60 + ["70"] * 40, "failed", "40 % can be read as numbers"),
        (['"78,2"'] * 60 + ["70"] * 40, "failed", "they have decimal commas: write them with points"),
        (["78 kg"] * 60 + ["70"] * 40, "failed", "a unit or mark stands beside the number"),
        (["<5"] * 2 + ["70"] * 40, "warning", "a unit or mark stands beside the number"),
        (['"1,200.5"'] * 60 + ["70"] * 40, "failed", "commas between thousands"),
        (["unknown"] * 5 + ["70"] * 95, "warning", "they are words"),
    ],
)
def test_shares_of_numbers_are_told_with_the_cause(
    tmp_path: Path, rows: list[str], state: str, words: str
) -> None:
    (found,) = found_in(tmp_path, "\n".join(["id,age", *(f"1,{row}" for row in rows)]) + "\n", AGE)
    assert words in found["words"]
    assert found["state"] == state


@pytest.mark.parametrize(
    ("rows", "column", "state", "words"),
    [
        (["F", "M"] * 50, SEX, "ok", "100 % is listed; 0 % is missing"),
        (
            ["f", "m"] * 50,
            SEX,
            "failed",
            "0 % is listed, and no row has level F or M; they are listed",
        ),
        (
            ["F ", "M"] * 50,
            SEX,
            "warning",
            "50 % is listed, and no row has level F; they are listed",
        ),
        (["1", "2"] * 50, SEX, "failed", "0 % is listed, and no row has level F or M; 0 % is missing"),
        (["0.0", "01"] * 50, CODE, "failed", "written as other numbers are"),
        (["F", ""] * 50, SEX, "warning", "50 % is missing"),
        (["", ""] * 50, SEX, "failed", "no row has a value"),
        (["F", "M", "D"] * 50, SEX, "warning", "66.7 % is listed"),
    ],
)
def test_shares_of_levels_are_told_with_the_cause(
    tmp_path: Path, rows: list[str], column: Column, state: str, words: str
) -> None:
    (found,) = found_in(tmp_path, "\n".join(["id,sex", *(f"1,{row}" for row in rows)]) + "\n", column)
    assert words in found["words"]
    assert found["state"] == state


def test_no_value_is_repeated(tmp_path: Path) -> None:
    (found,) = found_in(tmp_path, "age\n" + "secret\n" * 9, AGE)
    assert "secret" not in str(found)


PLAIN = "age,sex\n50,F\n"


@pytest.mark.parametrize(
    ("content", "cause"),
    [
        (PLAIN.replace("age,", "age, ").encode(), "it has ' sex', with blanks: take them out of the header"),
        (PLAIN.replace("sex", "Sex").encode(), "it has 'Sex': capitals count"),
        (PLAIN.encode("utf-16"), "it is UTF-16, or no text: save the file as CSV in UTF-8"),
        (PLAIN.encode("utf-16-le"), "it is UTF-16, or no text"),
        (
            "age,sex,größe\n50,F,1\n".encode("latin-1"),
            "perhaps Latin-1 or Windows-1252: save the file",
        ),
        (PLAIN.replace("\n", "\r").encode(), "its lines end in carriage returns alone"),
        (PLAIN.replace(",", ";").encode(), "separated by semicolons"),
    ],
    ids=["blank", "capitals", "UTF-16", "UTF-16 without a mark", "Latin-1", "CR", "semicolons"],
)
def test_a_file_that_cannot_be_read_says_why(tmp_path: Path, content: bytes, cause: str) -> None:
    with pytest.raises(DataError, match=cause):
        found_in(tmp_path, content, AGE, SEX)


@pytest.mark.parametrize(
    ("rows", "state", "words"),
    [
        ("50,F,\n" * 60, "failed", "100 % of the rows do not have the header's values"),
        ("50,F,\n" * 60, "failed", "they end in a comma more than the header: take it away"),
        ("50,F\n" * 99 + '"5\n', "warning", "1 % of the rows"),
        ("50,F\n" * 99 + '"5\n', "warning", "set quoted_line_breaks = true"),
    ],
)
def test_rows_of_another_width_are_told_first(tmp_path: Path, rows: str, state: str, words: str) -> None:
    found, *_ = found_in(tmp_path, "age,sex\n" + rows, AGE, SEX)
    assert (found["name"], found["state"]) == ("rows", state)
    assert words in found["words"]


@pytest.mark.parametrize(
    ("values", "column", "state", "words"),
    [
        (lambda: pa.array([1.0, None, float("nan"), 200.0]), AGE, "warning", "50 % is missing"),
        (lambda: pa.array([50, None, 60, 70]), AGE, "warning", "25 % is missing, and would be read as 60"),
        (lambda: pa.array([[1.0], [2.0]]), AGE, "failed", "cannot be read as numbers"),
        (lambda: pa.array([True, False]), AGE, "ok", "100 % lies within"),
        (lambda: pa.array([[0.6, 0.8], [1.0], None]), POINT, "failed", "50 % can be read as vectors of 2"),
        (lambda: pa.array(["50", "7,5"]).dictionary_encode(), AGE, "failed", "decimal commas"),
    ],
)
def test_shares_of_typed_columns_are_told(
    tmp_path: Path, values: Callable[[], pa.Array], column: Column | VectorColumn, state: str, words: str
) -> None:
    parquet.write_table(pa.table({"age": values()}), tmp_path / "a.parquet")
    (found,) = column_facts(open_source("a.parquet", None, tmp_path), [column])
    assert words in found.words
    assert found.state == state
