"""Rows of every odd kind in every source: ``odd_rows.py FOLDER POSTGRES_URL [without-pandas]``.

Prints JSON: how each odd row reads, in a table of three rows with an ordinary one before it and one behind,
``[[rows, units], first, odd, last]``, where a row is its number and its category as they are encoded, or the
words of the error. Without pandas, its import fails as where it is not installed.
"""

import json
import sqlite3
import sys
from collections.abc import Callable, Iterator
from importlib.abc import MetaPathFinder
from pathlib import Path
from typing import Any

if sys.argv[3:] == ["without-pandas"]:

    class NoPandas(MetaPathFinder):
        """Says of pandas that it is not there."""

        def find_spec(self, name: str, *_: Any) -> None:
            if name.partition(".")[0] == "pandas":
                raise ModuleNotFoundError(name)

    sys.meta_path.insert(0, NoPandas())

import numpy as np
import psycopg
import pyarrow as pa
import pyarrow.parquet as pq

from tacit_protocol.domain import CategoricalColumn, Domain, NumericColumn
from tacit_services.agent.data.opening import open_source
from tacit_services.agent.data.source import Source
from tacit_services.agent.data.table import SourceTable

NUMBER = NumericColumn(name="x", lower=0.0, upper=10.0, missing=2.0)
CATEGORY = CategoricalColumn(name="c", levels=("f", "m", "2024-01-02"))
F, M, OTHER, MISSING = 0, 1, 3, 4

HUGE = 2**63 - 1

CSV: dict[str, bytes] = {
    "a value too many": b"2,7,m,x",
    "a value too few": b"2,7",
    "nothing": b"",
    "a quote that opens and never closes": b'2,7,"m',
    "a quote within a value": b'2,7,m"',
    "a value behind a quoted one": b'2,7,"m"x',
    "a lone carriage return": b"2,7,m\rm",
    "bytes that are no UTF-8": b"2,\xff7,m\xfe",
    "NUL bytes": b"2,7\0,\0m",
    "a number of 400 digits": b"2," + b"9" * 400 + b",f",
    "a number beyond floating point": b"2,1e999,f",
    "an infinity": b"2,-inf,f",
    "no number": b"2,seven,f",
    "a record of 3 MB": b"2,7," + b"m" * 3_000_000,
    "a record of 3 MB with quotes": b'2,7,"' + b'""' * 1_500_000 + b'"',
    "only commas": b"," * 50,
    "a byte order mark": b"\xef\xbb\xbf2,7,m",
}

PARQUET: dict[str, tuple[pa.DataType, int]] = {
    "a date": (pa.date32(), 2**31 - 1),
    "a date of milliseconds": (pa.date64(), HUGE),
    # Parquet has no seconds: a writer makes milliseconds of them.
    "a timestamp in s": (pa.timestamp("s"), HUGE // 1000),
    **{f"a timestamp in {unit}": (pa.timestamp(unit), HUGE) for unit in ("ms", "us", "ns")},
    **{
        f"a timestamp in {unit} of a zone": (pa.timestamp(unit, "Asia/Kolkata"), HUGE)
        for unit in ("us", "ns")
    },
    "a timestamp of an unknown zone": (pa.timestamp("us", "No/Where"), -HUGE),
    **{f"a duration in {unit}": (pa.duration(unit), -HUGE) for unit in ("s", "ms", "us", "ns")},
    "a time of milliseconds": (pa.time32("ms"), 2**31 - 1),
    "a time of nanoseconds": (pa.time64("ns"), HUGE),
    "a large integer": (pa.uint64(), HUGE),
}
"""Types of Parquet and a whole number that stands for a value beyond what Python's own types hold."""

BYTES: dict[str, tuple[pa.DataType, bytes]] = {
    "text that is no UTF-8": (pa.string(), b"\xff\0"),
    "large text that is no UTF-8": (pa.large_string(), b"\xff\0"),
    "bytes": (pa.binary(), b"\xff\0"),
    "bytes of fixed length": (pa.binary(2), b"\xff\0"),
}

SQLITE: dict[str, tuple[object, object]] = {
    "text that is no UTF-8": ("CAST(x'37ff' AS TEXT)", "CAST(x'ff00' AS TEXT)"),
    "bytes": ("x'ff00'", "x'6d'"),
    "an infinity": ("9e999", "-9e999"),
    "text among numbers": ("'seven'", "''"),
    "a huge integer": (str(HUGE), str(-HUGE)),
    "a NUL byte": ("CAST(x'3700' AS TEXT)", "CAST(x'6d00' AS TEXT)"),
    "a text of 3 MB": ("printf('%.3000000c', '7')", "printf('%.3000000c', 'm')"),
}

POSTGRES: dict[str, tuple[str, str]] = {
    "date": ("date", "'infinity'"),
    "a date before our era": ("date", "'4713-01-01 BC'"),
    "a date beyond year 9999": ("date", "'5874897-12-31'"),
    "timestamp": ("timestamp", "'-infinity'"),
    "a timestamp beyond year 9999": ("timestamp", "'294276-12-31 23:59:59.999999'"),
    "timestamptz": ("timestamptz", "'infinity'"),
    "time": ("time", "'24:00:00'"),
    "timetz": ("timetz", "'24:00:00-15:59'"),
    "interval": ("interval", "'178000000 years'"),
    "numeric": ("numeric", "1e100000"),
    "no number among numerics": ("numeric", "'NaN'"),
    "float8": ("float8", "'Infinity'"),
    "the least float8": ("float8", "5e-324"),
    "bytea": ("bytea", "'\\xff00'"),
    "json": ("json", "'{\"a\": 1e999}'"),
    "jsonb": ("jsonb", "'[1e99999]'"),
    "uuid": ("uuid", "'00000000-0000-0000-0000-000000000000'"),
    "money": ("money", "'-92233720368547758.08'"),
    "an array of dates": ("date[]", "'{infinity}'"),
    "a range of timestamps": ("tsrange", "'[-infinity,infinity)'"),
    "inet": ("inet", "'::ffff:1.2.3.4/128'"),
    "a bit string": ("varbit", "B'101'"),
    "xid": ("xid", "'4294967295'"),
    "a record": ("record", "ROW(1, 'x')"),
    "text": ("text", "repeat('m', 3000000)"),
}
"""Types and values that a driver which makes Python's values of them cannot make, or makes otherwise."""


def whole(column: pa.DataType, values: list[int | None]) -> pa.Array:
    stored = pa.int32() if column.bit_width == 32 else pa.int64()
    return pa.array(values, stored).view(column)


def in_parquet(folder: Path, values: pa.Array) -> Source:
    table = pa.table({"u": [1, 2, 3], "x": [5.0, 7.0, 5.0], "c": values})
    pq.write_table(table, folder / "t.parquet")
    return open_source("t.parquet", None, folder)


def in_csv(folder: Path, odd: bytes) -> Source:
    (folder / "t.csv").write_bytes(b"u,x,c\n1,5,f\n" + odd + b"\n3,5,m\n")
    return open_source("t.csv", None, folder)


def in_sqlite(folder: Path, x: object, c: object) -> Source:
    (folder / "t.sqlite3").unlink(missing_ok=True)
    with sqlite3.connect(folder / "t.sqlite3") as connection:
        connection.execute("CREATE TABLE t (u, x, c)")
        connection.execute(f"INSERT INTO t VALUES (1, 5, 'f'), (2, {x}, {c}), (3, 5, 'm')")  # noqa: S608
    connection.close()
    return open_source("sqlite:///t.sqlite3", "SELECT u, x, c FROM t ORDER BY u", folder)


def in_postgresql(url: str, kind: str, value: str) -> Source:
    typed = value if kind == "record" else f"{value}::{kind}"
    rows = f"(1, NULL), (2, {typed}), (3, NULL)"
    query = f"SELECT u, CASE WHEN u = 2 THEN 7 ELSE 5 END AS x, c FROM (VALUES {rows}) AS t (u, c) ORDER BY u"  # noqa: S608
    return open_source(url, query, Path())


def reading(source: Source) -> list[Any]:
    """Return how three rows read: by rows, by units, and in a study of the category as a number too."""
    both = Domain(columns=(NUMBER, CATEGORY))
    table = SourceTable(source, both)
    rows = [
        [float(number), int(code)]
        for chunk in table.chunks()
        for number, code in zip(chunk.numeric[:, 0], chunk.categorical[:, 0], strict=True)
    ]
    by_unit = SourceTable(source, both, "u")
    in_units = sum(chunk.units for chunk in by_unit.chunks())
    assert in_units == by_unit.units
    return [[table.units, by_unit.units], *rows]


def sources(folder: Path, url: str) -> Iterator[tuple[str, Callable[[], Source]]]:
    for name, line in CSV.items():
        yield f"csv: {name}", lambda line=line: in_csv(folder, line)  # type: ignore[misc]
    for name, (kind, number) in PARQUET.items():
        yield f"parquet: {name}", lambda k=kind, v=number: in_parquet(folder, whole(k, [None, v, None]))  # type: ignore[misc]
    for name, (kind, content) in BYTES.items():
        stored = pa.binary(2) if kind == pa.binary(2) else pa.binary()
        if pa.types.is_large_string(kind):
            stored = pa.large_binary()
        values = pa.array([b"f ", content, b"m "], stored)
        values = values if kind == stored else values.view(kind)
        yield f"parquet: {name}", lambda v=values: in_parquet(folder, v)  # type: ignore[misc]
    for name, (x, c) in SQLITE.items():
        yield f"sqlite: {name}", lambda x=x, c=c: in_sqlite(folder, x, c)  # type: ignore[misc]
    for name, (sql, value) in POSTGRES.items():
        yield f"postgresql: {name}", lambda k=sql, v=value: in_postgresql(url, k, v)  # type: ignore[misc]


def readings(folder: Path, url: str) -> dict[str, Any]:
    found: dict[str, Any] = {}
    for name, make in sources(folder, url):
        try:
            found[name] = reading(make())
        except Exception as error:
            found[name] = f"{type(error).__name__}: {error}"
    return found


if __name__ == "__main__":
    np.seterr(all="raise")
    psycopg.connect(sys.argv[2]).close()
    sys.stdout.write(json.dumps(readings(Path(sys.argv[1]), sys.argv[2])) + "\n")
