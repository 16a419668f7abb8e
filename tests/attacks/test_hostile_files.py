"""Data files that are out to break an agent: refused from their footer, or read within a memory limit."""

import gzip
import json
import zipfile
from collections.abc import Callable, Iterable
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pyarrow as pa
import pyarrow.parquet as pq
import pyreadstat
import pytest
from forked_python import forked_python
from long_runs import choose

from tacit_protocol.domain import CategoricalColumn, DataError, Domain, NumericColumn
from tacit_services.agent.data.opening import open_source
from tacit_services.agent.data.table import SourceTable

GROWTH_BYTES_MAX = 256 * 10**6
"""Memory that reading any file may take."""

CHILD = Path(__file__).parents[1] / "support" / "hostile_child.py"
CANARY = "Xc4nary7"


def repeated_text(path: Path, length: int, rows: int, stored: bool = True) -> None:
    indices = pa.array(np.zeros(rows, dtype=np.int32))
    column = pa.DictionaryArray.from_arrays(indices, pa.array(["x" * length]))
    pq.write_table(pa.table({"x": column}), path, compression="zstd", store_schema=stored)


def compressed_csv(path: Path, piece: bytes, times: int) -> None:
    with gzip.open(path, "wb", 1) as file:
        file.write(b"x\n")
        for _ in range(times):
            file.write(piece)


SHEET_NAMESPACE = b'xmlns="http://schemas.openxmlformats.org/spreadsheetml/2006/main"'


def workbook(path: Path, rows: Iterable[bytes], strings: Iterable[bytes] = ()) -> None:
    """Write a workbook of one sheet, below the header ``x``, of whatever these pieces are."""
    types = "http://schemas.openxmlformats.org/package/2006/content-types"
    kind = "application/vnd.openxmlformats-officedocument.spreadsheetml"
    relations = "http://schemas.openxmlformats.org/officeDocument/2006/relationships"
    parts = {
        "[Content_Types].xml": [
            f'<Types xmlns="{types}"><Override PartName="/b.xml" ContentType="{kind}.sheet.main+xml"/>'
            f'<Override PartName="/t.xml" ContentType="{kind}.sharedStrings+xml"/></Types>'.encode()
        ],
        "b.xml": [
            b"<workbook " + SHEET_NAMESPACE + f' xmlns:r="{relations}"><sheets>'.encode(),
            b'<sheet name="s" sheetId="1" r:id="r1"/></sheets></workbook>',
        ],
        "_rels/b.xml.rels": [
            b'<Relationships xmlns="http://schemas.openxmlformats.org/package/2006/relationships">'
            + f'<Relationship Id="r1" Type="{relations}/worksheet" Target="s.xml"/></Relationships>'.encode()
        ],
        "t.xml": [b"<sst " + SHEET_NAMESPACE + b">", *strings, b"</sst>"],
        "s.xml": [
            b"<worksheet " + SHEET_NAMESPACE + b'><sheetData><row><c t="str"><v>x</v></c></row>',
            *rows,
            b"</sheetData></worksheet>",
        ],
    }
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED, compresslevel=1) as archive:
        for name, pieces in parts.items():
            with archive.open(name, "w", force_zip64=True) as part:
                for piece in pieces:
                    part.write(piece)


def repeated(piece: bytes, times: int) -> Iterable[bytes]:
    block = piece * (10**6 // len(piece) + 1)
    whole, rest = divmod(times, 10**6 // len(piece) + 1)
    return [*[block] * whole, piece * rest]


BOMBS: dict[str, Callable[[Path], None]] = {
    "a text of 5 MB in every row.parquet": lambda p: repeated_text(p, 5 * 10**6, 100_000),
    "the same, plain.parquet": lambda p: repeated_text(p, 5 * 10**6, 100_000, stored=False),
    "a cell of 300 MB.xlsx": lambda p: workbook(
        p, [b'<row><c t="str"><v>', *[b"x" * 10**6] * 300, b"</v></c></row>"]
    ),
    "texts of 100 MB.parquet": lambda p: repeated_text(p, 10**8, 1000),
    "20 million zeros.parquet": lambda p: pq.write_table(
        pa.table({"x": np.zeros(20_000_000)}), p, compression="zstd", row_group_size=20_000_000
    ),
    "10 million rows.csv.gz": lambda p: compressed_csv(p, b"1\n" * 500_000, 20),
    "a line of 300 MB.csv.gz": lambda p: compressed_csv(p, b"1" * 10**6, 300),
    "a million rows.xlsx": lambda p: workbook(p, repeated(b"<row><c><v>1</v></c></row>", 10**6)),
    "too many rows.xlsx": lambda p: workbook(p, repeated(b"<row/>", 3 * 10**6)),
    "a row far away.xlsx": lambda p: workbook(p, [b'<row r="2000000000"/>']),
    "rows with heights.xlsx": lambda p: workbook(p, repeated(b'<row ht="9" s="1" hidden="0"/>', 10**6)),
    "300 MB without a row.xlsx": lambda p: workbook(p, [b"<x>", *[b"x" * 10**6] * 300, b"</x>"]),
    "texts of 300 MB.xlsx": lambda p: workbook(p, [], [b"<si><t>", *[b"x" * 10**6] * 300, b"</t></si>"]),
    "six million texts.xlsx": lambda p: workbook(p, [], repeated(b"<si/>", 6 * 10**6)),
}
"""What is read, or refused before it fills the memory."""

REFUSED = {
    *("texts of 100 MB.parquet", "too many rows.xlsx", "a row far away.xlsx", "a cell of 300 MB.xlsx"),
    *("300 MB without a row.xlsx", "texts of 300 MB.xlsx", "six million texts.xlsx"),
}


ROWS = {"a text of 5 MB in every row.parquet": 10**5, "the same, plain.parquet": 10**5}
"""What is read of some of those that are."""


def read_apart(path: Path, kind: str, *planted: str) -> dict[str, Any]:
    child = forked_python().run([str(CHILD), "read", str(path), kind, *planted], timeout_s=900)
    assert child.returncode == 0, child.stderr
    report: dict[str, Any] = json.loads(child.stdout)
    return report


@pytest.mark.sweep(5)
@pytest.mark.parametrize(
    ("name", "kind"), [("the same, plain.parquet", "categorical"), *((name, "numeric") for name in BOMBS)]
)
def test_bombs_are_refused_or_read_within_the_memory_limit(tmp_path: Path, name: str, kind: str) -> None:
    path = tmp_path / name
    BOMBS[name](path)
    assert path.stat().st_size < 5 * 10**6
    report = read_apart(path, kind)
    assert report["growth_bytes"] < GROWTH_BYTES_MAX, report
    if name in REFUSED:
        assert report["rows"] == 0
        assert report["outcome"] != "read"
    else:
        assert report["outcome"] == "read"
        assert report["rows"] == ROWS.get(name, report["rows"])


@pytest.mark.long
def test_a_reader_that_writes_dictionaries_out_would_be_caught(tmp_path: Path) -> None:
    path = tmp_path / "a.parquet"
    repeated_text(path, 8_000, 100_000)
    assert read_apart(path, "numeric")["growth_bytes"] < GROWTH_BYTES_MAX
    assert read_apart(path, "numeric", "written-out")["growth_bytes"] > GROWTH_BYTES_MAX


def _declare_more_rows(path: Path) -> None:
    pq.write_table(pa.table({"x": np.zeros(1000)}), path)
    data = path.read_bytes()
    length = int.from_bytes(data[-8:-4], "little")
    path.write_bytes(data[: -8 - length] + bytes(255 - byte for byte in data[-8 - length : -8]) + data[-8:])


def _footer_of_two_gigabytes(path: Path) -> None:
    path.write_bytes(b"PAR1" + (2**31 - 1).to_bytes(4, "little") + b"PAR1")


def _cut_short(path: Path) -> None:
    pq.write_table(pa.table({"x": np.random.default_rng(0).normal(size=100_000)}), path)
    data = path.read_bytes()
    path.write_bytes(data[:5000] + bytes(len(data) - 15_000) + data[-10_000:])


def statistics_file(path: Path, kept: slice, name: str = "x") -> None:
    """Write a file of SPSS or Stata, of which a part is lost."""
    write = pyreadstat.write_sav if path.suffix == ".sav" else pyreadstat.write_dta
    write(pd.DataFrame({name: np.random.default_rng(0).normal(size=1000)}), str(path))
    path.write_bytes(path.read_bytes()[kept])


DAMAGED: dict[str, Callable[[Path], object]] = {
    "a footer that lies.parquet": _declare_more_rows,
    "a footer of 2 GB.parquet": _footer_of_two_gigabytes,
    "pages of zeros.parquet": _cut_short,
    "text.parquet": lambda p: p.write_text(CANARY),
    "empty.parquet": lambda p: p.write_bytes(b""),
    "a list.parquet": lambda p: pq.write_table(pa.table({"x": [[1.0], [2.0]]}), p),
    "dates.parquet": lambda p: pq.write_table(pa.table({"x": pa.array([0, 1], pa.date32())}), p),
    "another column.parquet": lambda p: pq.write_table(pa.table({CANARY: [1.0]}), p),
    "empty.csv": lambda p: p.write_bytes(b""),
    "a header alone.csv": lambda p: p.write_text("x\n"),
    "utf-16.csv": lambda p: p.write_text(f"x\n1\n{CANARY}\n", encoding="utf-16"),
    "twice the same column.csv": lambda p: p.write_text("x,x\n1,2\n"),
    "no gzip.csv.gz": lambda p: p.write_text(f"x\n{CANARY}\n"),
    "text.xlsx": lambda p: p.write_text(CANARY),
    "a sheet of something else.xlsx": lambda p: workbook(p, [f"<row><c><v>{CANARY}</v></c></row>".encode()]),
    "a text that is not there.xlsx": lambda p: workbook(p, [b'<row><c t="s"><v>7</v></c></row>']),
    "an entity.xlsx": lambda p: workbook(
        p, [b"<row/>"], [b'<!DOCTYPE a [<!ENTITY b SYSTEM "file:///etc/passwd">]><si><t>&b;</t></si>']
    ),
    "a workbook cut short.xlsx": lambda p: (
        workbook(p, [b"<row/>"] * 99),
        p.write_bytes(p.read_bytes()[:-99]),
    ),
    "a header alone.xlsx": lambda p: workbook(p, []),
    "text.sav": lambda p: p.write_text(CANARY),
    "text.dta": lambda p: p.write_text(CANARY),
    "text.sas7bdat": lambda p: p.write_text(CANARY),
    "text.xpt": lambda p: p.write_text(CANARY),
    "cut short.sav": lambda p: statistics_file(p, slice(0, -3000)),
    "zeros.dta": lambda p: statistics_file(p, slice(0, 3000)),
    "another variable.sav": lambda p: statistics_file(p, slice(None), CANARY),
    "gzip cut short.csv.gz": lambda p: p.write_bytes(gzip.compress(b"x\n" + b"1\n" * 10**6)[:-1000]),
}


@pytest.mark.parametrize("name", DAMAGED)
def test_damaged_files_are_refused_with_texts_that_quote_nothing(tmp_path: Path, name: str) -> None:
    path = tmp_path / name
    DAMAGED[name](path)
    domain = Domain(columns=(NumericColumn(name="x", lower=0.0, upper=1.0),))
    with pytest.raises(DataError) as refused:
        list(SourceTable(open_source(path.name, None, tmp_path), domain).chunks())
    assert CANARY not in str(refused.value)
    assert str(tmp_path) not in str(refused.value)


MUTATIONS = choose(150, 5000)


@pytest.mark.parametrize("suffix", [".sav", ".zsav", ".dta", ".xpt", ".sas7bdat"])
def test_mutated_statistics_files_are_read_or_refused_and_end_no_process(tmp_path: Path, suffix: str) -> None:
    """Truncated, with huge counts, odd encodings and names, parts twice: seeded, all outcomes are words."""
    child = forked_python().run(
        [str(CHILD), "mutated", str(tmp_path), suffix, "7", str(MUTATIONS)], timeout_s=900
    )
    assert child.returncode == 0, (child.stderr[-2000:], (tmp_path / "number").read_text())
    report = json.loads(child.stdout)
    assert sum(report["outcomes"].values()) == MUTATIONS
    assert len(report["outcomes"]) > 1, "mutations reach more than the first check"
    assert "rows that are not there" not in report["outcomes"]
    assert CANARY not in child.stdout
    assert str(tmp_path) not in child.stdout
    assert report["growth_bytes"] < GROWTH_BYTES_MAX


def test_values_of_every_odd_kind_become_missing_or_other_and_never_an_error(tmp_path: Path) -> None:
    odd = [
        "1",
        " 2 ",
        "1e400",
        "NaN",
        "-inf",
        "0x10",
        "\uff11",
        "",
        "NA",
        '"=1+1"',
        "1_000",
        "\u202e3",
        CANARY,
    ]
    odd.append("9" * 400)
    (tmp_path / "odd.csv").write_text("x\n" + "\n".join(odd) + "\n", encoding="utf-8")
    for column in (
        NumericColumn(name="x", lower=0.0, upper=10.0),
        CategoricalColumn(name="x", levels=("1",)),
    ):
        table = SourceTable(open_source("odd.csv", None, tmp_path), Domain(columns=(column,)))
        (chunk,) = table.chunks()
        assert chunk.rows == table.units
        assert np.isfinite(chunk.numeric).all()
        assert ((chunk.numeric >= 0) & (chunk.numeric <= 1)).all()


def test_text_columns_of_several_row_groups_keep_their_values(tmp_path: Path) -> None:
    values = [f"v{i % 7}" if i % 5 else None for i in range(1000)]
    pq.write_table(pa.table({"x": values}), tmp_path / "a.parquet", row_group_size=90)
    domain = Domain(columns=(CategoricalColumn(name="x", levels=tuple(f"v{i}" for i in range(6))),))
    chunks = list(SourceTable(open_source("a.parquet", None, tmp_path), domain).chunks())
    codes = np.concatenate([chunk.categorical[:, 0] for chunk in chunks])
    expected = [7 if value is None else int(value[1:]) for value in values]
    assert codes.tolist() == expected
