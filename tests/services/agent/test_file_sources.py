"""Excel, SPSS, Stata and SAS: a row is a row, read by itself, and no text of an error quotes a value."""

# ruff: noqa: DTZ001 (files know no zones)

import datetime
import math
import subprocess
import sys
import zipfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import openpyxl
import pandas as pd
import pyreadstat
import pytest
from columns_read import numbers_of, texts_of
from openpyxl.cell import WriteOnlyCell

from tacit_protocol.domain import CategoricalColumn, DataError, Domain, NumericColumn
from tacit_services.agent.data import file_source
from tacit_services.agent.data.opening import SourceSettings, open_source
from tacit_services.agent.data.source import Source
from tacit_services.agent.data.table import SourceTable

CANARY = "Xc4nary7"


def workbook(path: Path, rows: Sequence[Sequence[object]], sheet: str = "Visits") -> Path:
    book = openpyxl.Workbook()
    book.active.title = sheet
    for row in rows:
        book.active.append(row)
    book.save(path)
    return path


def changed(path: Path, part: str, before: bytes, after: bytes) -> None:
    """Replace bytes in a part of a workbook, as no spreadsheet would write them."""
    with zipfile.ZipFile(path) as archive:
        parts = {name: archive.read(name) for name in archive.namelist()}
    # openpyxl writes by lxml where that is installed.
    parts[part] = parts[part].replace(b"<v></v>", b"<v />").replace(b"<v/>", b"<v />")
    assert before in parts[part]
    parts[part] = parts[part].replace(before, after)
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in parts.items():
            archive.writestr(name, content)


SHEET = "xl/worksheets/sheet1.xml"

HELD: list[tuple[object, float | None, str | None]] = [
    (5, 5.0, "5"),
    (5.0, 5.0, "5"),
    (2.5, 2.5, "2.5"),
    (" 7 ", 7.0, " 7 "),
    ("seven", None, "seven"),
    ("01", 1.0, "01"),
    (True, 1.0, "true"),
    (datetime.datetime(2024, 2, 29), None, "2024-02-29T00:00:00"),
    (datetime.time(10, 30), None, "10:30:00"),
    (None, None, None),
    ("", None, None),
    ("#N/A", None, None),
    ("é😀", None, "é😀"),
    (10**30, 1e30, "1000000000000000019884624838656"),
    ("x" * 9000, None, "x" * 4096),
]


def test_cells_of_a_sheet_as_numbers_and_as_categories(tmp_path: Path) -> None:
    workbook(tmp_path / "t.xlsx", [["u", "v", None], *([i, value] for i, (value, _, _) in enumerate(HELD))])
    source = open_source("t.xlsx", None, tmp_path)
    assert source.column_names() == ("u", "v")
    assert numbers_of(source, "v") == [number for _, number, _ in HELD]
    assert texts_of(source, "v") == [words for _, _, words in HELD]
    assert SourceTable(
        source, Domain(columns=(NumericColumn(name="v", lower=0, upper=9),)), "u"
    ).units == len(HELD)


def test_a_formula_has_the_value_it_was_saved_with_and_none_where_it_never_was(tmp_path: Path) -> None:
    path = workbook(tmp_path / "t.xlsx", [["v"], ["=1+1"], ["=1/0"], [4]])
    assert numbers_of(open_source("t.xlsx", None, tmp_path), "v") == [None, None, 4.0]
    changed(path, SHEET, b"<f>1+1</f><v />", b"<f>1+1</f><v>2</v>")
    changed(path, SHEET, b'<c r="A3"><f>1/0</f><v />', b'<c r="A3" t="e"><f>1/0</f><v>#DIV/0!</v>')
    assert numbers_of(open_source("t.xlsx", None, tmp_path), "v") == [2.0, None, 4.0]
    assert texts_of(open_source("t.xlsx", None, tmp_path), "v") == ["2", None, "4"]


def test_rows_that_a_sheet_leaves_out_are_rows(tmp_path: Path) -> None:
    """Whose cells are all empty: were they dropped, their values would change n."""
    book = openpyxl.Workbook()
    book.active["A1"], book.active["B1"], book.active["A3"], book.active["B5"], book.active["Z6"] = (
        "u",
        "x",
        1,
        2,
        3,
    )
    book.save(tmp_path / "t.xlsx")
    source = open_source("t.xlsx", None, tmp_path)
    assert numbers_of(source, "x") == [None, None, None, 2.0, None]
    assert numbers_of(source, "u") == [None, 1.0, None, None, None]


def test_a_sheet_is_named_or_is_the_first(tmp_path: Path) -> None:
    book = openpyxl.Workbook()
    book.active.append(["a"])
    book.create_sheet("More").append(["b"])
    book.save(tmp_path / "t.xlsx")
    assert open_source("t.xlsx", None, tmp_path).column_names() == ("a",)
    assert open_source("t.xlsx", None, tmp_path, sheet="More").column_names() == ("b",)
    with pytest.raises(DataError, match="no sheet of that name"):
        open_source("t.xlsx", None, tmp_path, sheet="Moar").column_names()


def odd_date(path: Path) -> None:
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.append(["v"])
    cell = WriteOnlyCell(sheet, 1e300)
    cell.number_format = "yyyy-mm-dd"
    sheet.append([cell])
    sheet.append([3])
    book.save(path)


def test_a_date_beyond_all_calendars_is_missing_and_said_nowhere(
    tmp_path: Path, recwarn: pytest.WarningsRecorder, capfd: pytest.CaptureFixture[str]
) -> None:
    odd_date(tmp_path / "t.xlsx")
    assert texts_of(open_source("t.xlsx", None, tmp_path), "v") == [None, "3"]
    assert not recwarn.list
    assert capfd.readouterr() == ("", "")


FRAME = pd.DataFrame(
    {
        "id": [1.0, 2.0, 3.0, 4.0],
        "sex": [1.0, 2.0, 9.0, math.nan],
        "age": [30.5, math.nan, 999.0, 40.0],
        "name": ["é", "b", "", "QQQQ"],
        "d": [datetime.date(2024, 2, 29), None, datetime.date(1, 1, 1), datetime.date(9999, 12, 31)],
    }
)
MOMENTS = [datetime.datetime(2024, 2, 29, 3, 4, 5), None, None, datetime.datetime(1901, 1, 1)]
LABELS = {"sex": {1: "male", 2: "female"}}


def written(path: Path) -> Source:
    """Write the frame, with a text that is no UTF-8 in its last row, as one would plant it."""
    if path.suffix in {".sav", ".zsav"}:
        missing: Any = {"sex": [9], "age": [{"lo": 990, "hi": 999}]}
        pyreadstat.write_sav(
            FRAME.assign(t=MOMENTS),
            str(path),
            compress=path.suffix == ".zsav",
            variable_value_labels=LABELS,
            missing_ranges=missing,
        )
    elif path.suffix == ".dta":
        pyreadstat.write_dta(FRAME.assign(t=MOMENTS), str(path), variable_value_labels=LABELS)
    else:
        pyreadstat.write_xport(FRAME, str(path))
    if path.suffix != ".zsav":
        content = path.read_bytes()
        assert content.count(b"QQQQ") == 1
        path.write_bytes(content.replace(b"QQQQ", b"\xff\xfeQQ"))
    return open_source(path.name, None, path.parent)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("suffix", [".sav", ".zsav", ".dta", ".xpt"])
def test_a_statistics_file_reads_as_any_other_source(tmp_path: Path, suffix: str) -> None:
    source = written(tmp_path / f"t{suffix}")
    assert source.column_names()[:5] == ("id", "sex", "age", "name", "d")
    declared = suffix in {".sav", ".zsav"}
    assert numbers_of(source, "id") == [1.0, 2.0, 3.0, 4.0]
    assert numbers_of(source, "sex") == [1.0, 2.0, None if declared else 9.0, None]
    assert texts_of(source, "sex") == ["1", "2", None if declared else "9", None]
    assert numbers_of(source, "age") == [30.5, None, None if declared else 999.0, 40.0]
    odd = "QQQQ" if suffix == ".zsav" else "\udcff\udcfeQQ"
    assert texts_of(source, "name") == ["é", "b", None, odd]
    assert numbers_of(source, "name") == [None] * 4
    assert texts_of(source, "d") == ["2024-02-29", None, "0001-01-01", "9999-12-31"]
    with pytest.raises(DataError, match="'d' has a type that cannot be read as numbers"):
        numbers_of(source, "d")
    if suffix != ".xpt":
        assert texts_of(source, "t") == ["2024-02-29T03:04:05", None, None, "1901-01-01T00:00:00"]
    table = SourceTable(source, Domain(columns=(CategoricalColumn(name="sex", levels=("1", "2")),)), "name")
    assert (table.rows, table.units) == (4, 4)


@pytest.mark.sweep(1)
@pytest.mark.parametrize("suffix", [".sav", ".dta"])
def test_labels_are_categories_where_the_owner_says_so(tmp_path: Path, suffix: str) -> None:
    written(tmp_path / f"t{suffix}")
    source = open_source(f"t{suffix}", None, tmp_path, value_labels=True)
    assert texts_of(source, "sex") == ["male", "female", None if suffix == ".sav" else "9", None]
    assert numbers_of(source, "sex")[:2] == [1.0, 2.0]


def test_pieces_of_a_file_hold_every_row_once(tmp_path: Path) -> None:
    rows = 5000
    frame = pd.DataFrame({"x": range(rows), "s": "abc"})
    pyreadstat.write_sav(frame, str(tmp_path / "t.sav"))
    pyreadstat.write_dta(frame, str(tmp_path / "t.dta"))
    pyreadstat.write_xport(frame, str(tmp_path / "t.xpt"))
    for name in ("t.sav", "t.dta", "t.xpt"):
        source = open_source(name, None, tmp_path)
        for bytes_max in (132 * 1000, 132 * 2500, 132 * 5000, 10**5, 10**9):
            assert isinstance(source, file_source.StatisticsSource)
            piece = source.reading_within(bytes_max)
            assert numbers_of(piece, "x", 700) == list(range(rows))
        assert source.rows() == (None if name == "t.xpt" else rows)


@pytest.mark.parametrize("last", ["c", ""])
def test_what_the_last_row_holds_changes_no_number_of_rows(tmp_path: Path, last: str) -> None:
    """In version 5 of SAS's transport files an empty last row of texts is as if it were not there."""
    frame = pd.DataFrame({"s": ["a", "b", last], "x": [1.0, 2.0, math.nan]})
    for version, columns in ((5, ["s", "x"]), (8, ["s"]), (8, ["s", "x"])):
        pyreadstat.write_xport(frame[columns], str(tmp_path / "t.xpt"), file_format_version=version)
        assert texts_of(open_source("t.xpt", None, tmp_path), "s") == ["a", "b", last or None]
    pyreadstat.write_xport(frame[["s"]], str(tmp_path / "t.xpt"), file_format_version=5)
    with pytest.raises(DataError, match="version 5"):
        open_source("t.xpt", None, tmp_path).column_names()


@pytest.mark.sweep(1)
@pytest.mark.parametrize("values", [[1e300, -1e300, 5e11, 3.0], [math.nan, 253402300800.0, -6e10, 0.0]])
@pytest.mark.parametrize("form", ["DATE11", "DATETIME20"])
def test_days_beyond_all_calendars_are_missing(tmp_path: Path, form: str, values: list[float]) -> None:
    path = tmp_path / "t.sav"
    pyreadstat.write_sav(pd.DataFrame({"d": values}), str(path), variable_format={"d": form})
    found = texts_of(open_source("t.sav", None, tmp_path), "d")
    assert found[:2] == [None, None] or found[0] is None
    assert found[3] is not None
    assert found[3].startswith("1582-10-14")


@pytest.mark.long
def test_it_reads_where_pandas_is_not_installed(tmp_path: Path) -> None:
    written(tmp_path / "t.sav")
    workbook(tmp_path / "t.xlsx", [["x"], [1]])
    program = """
import sys
class Absent:
    def find_spec(self, name, *_):
        if name.partition(".")[0] in {"pandas", "polars"}:
            raise ModuleNotFoundError(name)
sys.meta_path.insert(0, Absent())
from pathlib import Path
from tacit_services.agent.data.source import Columns
from tacit_services.agent.data.opening import open_source
folder = Path(sys.argv[1])
for name, column in (("t.sav", "sex"), ("t.xlsx", "x")):
    print(sum(batch.num_rows for batch in open_source(name, None, folder).batches(Columns((column,)), 9)))
"""
    command = [sys.executable, "-c", program, str(tmp_path)]
    child = subprocess.run(command, capture_output=True, text=True, timeout=300, check=False)
    assert child.stdout.split() == ["4", "1"], child.stderr


def test_what_is_not_installed_is_said_with_the_way_to_install_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    written(tmp_path / "t.sav")
    workbook(tmp_path / "t.xlsx", [["x"], [1]])
    (tmp_path / "t.duckdb").touch()
    for library in ("pyreadstat", "openpyxl", "openpyxl.reader.excel", "duckdb", "pymysql"):
        monkeypatch.setitem(sys.modules, library, None)
    for name, query, extra in (
        ("t.sav", None, "files"),
        ("t.xlsx", None, "files"),
        ("duckdb:///t.duckdb", "SELECT 1", "duckdb"),
        ("mariadb://localhost/t", "SELECT 1", "mysql"),
    ):
        with pytest.raises(DataError, match=rf'pip install "tacit\[{extra}\]"'):
            open_source(name, query, tmp_path).column_names()


@pytest.mark.parametrize(
    "fields",
    [
        {"source": "a.csv", "sheet": "x"},
        {"source": "a.xlsx", "value_labels": True},
        {"source": "sqlite:///a", "query": "SELECT 1", "sheet": "x"},
    ],
)
def test_a_setting_of_another_kind_of_file_is_refused(fields: dict[str, Any]) -> None:
    with pytest.raises(ValueError, match="is of"):
        SourceSettings.model_validate(fields)
