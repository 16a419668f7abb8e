"""`tacit data describe` knows names and types alone; what it leaves blank no agent takes."""

import json
import sqlite3
import tomllib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import duckdb
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyreadstat
import pytest

from tacit.errors import InputError
from tacit.setup.column_description import columns_of
from tacit_services.agent.settings import DataSetSettings

NAMES = "patient_id,age,sex,BMI,dose"
VALUE = "4711"
"""A value that must not be seen anywhere."""

Run = Callable[..., tuple[int, str, str]]


def csv_file(folder: Path, header: str = NAMES) -> Path:
    file = folder / "north.csv"
    file.write_text(f"{header}\n{VALUE},{VALUE},{VALUE},{VALUE},{VALUE}\n", "utf-8")
    return file


def settings(columns: list[Any]) -> DataSetSettings:
    """Read columns as an agent reads them."""
    fields = {"name": "patients", "source": "a.csv", "epsilon": 1.0, "delta": 0.0, "columns": columns}
    return DataSetSettings.model_validate(fields)


def test_it_proposes_by_names_warns_and_leaves_blanks(tacit: Run, tmp_path: Path) -> None:
    code, out, err = tacit("data", "describe", str(csv_file(tmp_path)))
    assert code == 0
    assert VALUE not in out + err
    assert "WARNING" in err
    assert "NEVER look at the data" in " ".join(err.split())
    assert "Fill in: dose" in err
    columns = tomllib.loads(out)["columns"]
    assert [column["name"] for column in columns] == ["age", "sex", "BMI", "dose"]
    assert columns[0] == {"kind": "numeric", "name": "age", "lower": 0, "upper": 120}
    assert columns[2] == {"kind": "numeric", "name": "BMI", "lower": 10, "upper": 80}
    assert "patient_id: looks like an identifier" in out
    settings(columns[:3])


def test_types_of_parquet_are_read_and_no_value(tacit: Run, tmp_path: Path) -> None:
    file = tmp_path / "north.parquet"
    table = pa.table(
        {
            "age": pa.array([4711.0]),
            "sex": pa.array([4711]),
            "ward": pa.array([VALUE]).dictionary_encode(),
            "dose": pa.array([4711]),
            "ill": pa.array([True]),
            "seen": pa.array([4711], pa.timestamp("s")),
        }
    )
    pq.write_table(table, file)
    code, out, err = tacit("data", "describe", str(file), "--json")
    assert (code, err) == (0, "")
    assert VALUE not in out
    shown = json.loads(out)
    assert shown["read"] == "the names and types"
    assert {column["name"]: column["type"] for column in shown["columns"]} == {
        "age": "number", "sex": "number", "ward": "text", "dose": "number", "ill": "yes or no",
        "seen": "other",
    }  # fmt: skip
    # Numbers for sexes are codes that only the owner knows.
    assert shown["fill_in"] == ["sex", "ward", "dose"]
    assert "NEVER" in shown["caution"]
    by_name = {column["name"]: column["fields"] for column in shown["columns"]}
    assert by_name["ill"]["levels"] == ["false", "true"]
    assert by_name["seen"] is None


def test_columns_of_a_table_are_read(tacit: Run, tmp_path: Path) -> None:
    connection = sqlite3.connect(tmp_path / "db")
    connection.execute("CREATE TABLE visits (age INTEGER, ward TEXT, ok BOOLEAN, at DATE, weight_kg REAL)")
    connection.execute(f"INSERT INTO visits VALUES ({VALUE}, {VALUE}, 1, {VALUE}, {VALUE})")  # noqa: S608
    connection.commit()
    connection.close()
    url = f"sqlite:///{tmp_path / 'db'}"
    code, out, err = tacit("data", "describe", url, "--table", "visits")
    assert code == 0
    assert VALUE not in out + err
    assert str(tmp_path) not in out
    assert tomllib.loads(out)["columns"][0]["upper"] == 120
    assert tacit("data", "describe", url)[0] == 2
    assert "no table" in tacit("data", "describe", url, "--table", "nothing")[2]
    told = tacit("data", "describe", "postgresql://me:hunter2@127.0.0.1:1/x", "--table", "visits")[2]
    assert "hunter2" not in told


def test_a_folder_is_described_by_its_first_file_and_its_keys(tacit: Run, tmp_path: Path) -> None:
    for value in (VALUE, "9"):
        folder = tmp_path / "visits" / f"sex={value}" / f"place%2Fof={value}"
        folder.mkdir(parents=True)
        pq.write_table(pa.table({"age": [4711.0]}), folder / f"{value}.parquet")
    (tmp_path / "visits" / "_SUCCESS").write_text("")
    for name in ("visits", "visits/"):
        code, out, err = tacit("data", "describe", f"{tmp_path}/{name}", "--json")
        assert (code, err) == (0, "")
        shown = json.loads(out)
        assert [column["name"] for column in shown["columns"]] == ["age", "sex", "place/of"]
        assert VALUE not in out.replace(str(tmp_path), "")
    (tmp_path / "visits" / f"sex={VALUE}" / f"place%2Fof={VALUE}" / f"{VALUE}.parquet").write_bytes(b"PAR1")
    with pytest.raises(InputError, match="cannot be read") as caught:
        columns_of(str(tmp_path / "visits"))
    assert VALUE not in str(caught.value).replace(str(tmp_path), "")
    (tmp_path / "empty").mkdir()
    with pytest.raises(InputError, match=r"no folder of \.parquet files"):
        columns_of(str(tmp_path / "empty"))


def test_names_and_types_of_other_files_are_read_and_no_value(tacit: Run, tmp_path: Path) -> None:
    frame = pd.DataFrame({"age": [4711.0], "name": [VALUE], "dose": [4711.0]})
    pyreadstat.write_sav(frame, str(tmp_path / "n.sav"))
    pyreadstat.write_dta(frame, str(tmp_path / "n.dta"))
    book = openpyxl.Workbook()
    book.active.append(["age", "name", "dose"])
    book.active.append([4711, VALUE, 4711])
    book.save(tmp_path / "n.xlsx")
    with duckdb.connect(str(tmp_path / "n.duckdb")) as connection:
        connection.execute("CREATE TABLE t AS SELECT 4711 AS age, '4711' AS name, 47.11 AS dose")
    for source in ("n.sav", "n.dta", "n.xlsx", "n.duckdb"):
        place = f"duckdb:///{tmp_path}/{source}" if source == "n.duckdb" else str(tmp_path / source)
        arguments = ["--table", "t"] if source == "n.duckdb" else []
        code, out, err = tacit("data", "describe", place, *arguments)
        assert code == 0, err
        assert VALUE not in out + err
        assert "Fill in: name, dose" in err or "Fill in: dose" in err, source
        assert tomllib.loads(out)["columns"][0] == {
            "kind": "numeric",
            "name": "age",
            "lower": 0,
            "upper": 120,
        }
        assert [column.name for column in columns_of(place, "t" if arguments else None)] == [
            "age",
            "name",
            "dose",
        ]


@pytest.mark.parametrize("name", ["n.sav", "n.dta", "n.sas7bdat", "n.xlsx"])
def test_another_file_that_is_none_is_said_without_its_content(tacit: Run, tmp_path: Path, name: str) -> None:
    for content in (b"", VALUE.encode() * 99):
        (tmp_path / name).write_bytes(content)
        code, out, err = tacit("data", "describe", str(tmp_path / name))
        assert code != 0
        assert VALUE not in out + err
    assert tacit("data", "describe", str(tmp_path / f"absent-{name}"))[0] != 0
