"""What `tacit plan` reads: columns with their bounds, amounts by column, and a public sample."""
# ruff: noqa: PLC0415 (pyarrow loads only where a file is given)

import math
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tacit.command.draft_flags import parse_column
from tacit.errors import InputError
from tacit.whole_files import reason_of

if TYPE_CHECKING:
    import pyarrow as pa


CSV = "CSV: a line of names, and as many cells in every line"
"""What a file should be."""


def bounds_of(texts: Sequence[str]) -> dict[str, Any]:
    """Read ``name:lower:upper`` and ``name=level,level`` flags: levels or a pair by column."""
    read: dict[str, Any] = {}
    for text in texts:
        column = parse_column(text)
        if column["name"] in read:
            raise InputError(f"--column names {column['name']} twice: name each column once")
        read[column["name"]] = column.get("levels") or (column["lower"], column["upper"])
    return read


def amounts(texts: Sequence[str]) -> dict[str, float]:
    """Read ``column=number`` flags; each column once, each number finite."""
    read: dict[str, float] = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            amount = float(number)
        except ValueError:
            raise InputError(f"{text}: write column=number") from None
        if not name or not math.isfinite(amount):
            raise InputError(f"{text}: write column=number, a finite number")
        if name in read:
            raise InputError(f"{text}: {name} has an amount already; give each column one")
        read[name] = amount
    return read


def read_public(path: Path, columns: Sequence[str]) -> Any:
    """Read a public sample's columns as an Arrow table; NA and empty cells are missing.

    Raises:
        InputError: the file cannot be read, lacks a column or has it twice, or holds infinite numbers.
    """
    import pyarrow as pa

    read, kind = (_parquet, "Parquet") if path.suffix.lower() == ".parquet" else (_csv, CSV)
    try:
        with path.open("rb") as file:
            table = read(path, file, columns)
    except pa.ArrowException as error:
        raise InputError(f"{path} is not {kind}") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {reason_of(error)}") from error
    for name in columns:
        _require_plain(path, name, table.column(name))
    return table


def _require_once(path: Path, columns: Sequence[str], names: Sequence[str]) -> None:
    for name in columns:
        if (times := names.count(name)) != 1:
            raise InputError(f"{path} has {'no' if times == 0 else 'more than one'} column {name}")


def _csv(path: Path, file: BinaryIO, columns: Sequence[str]) -> "pa.Table":
    from pyarrow import csv

    options = csv.ConvertOptions(null_values=["", "NA"], strings_can_be_null=True)
    table = csv.read_csv(file, convert_options=options)
    _require_once(path, columns, table.column_names)
    return table.select(list(columns))


def _parquet(path: Path, file: BinaryIO, columns: Sequence[str]) -> "pa.Table":
    from pyarrow import parquet

    _require_once(path, columns, parquet.read_schema(file).names)
    return parquet.read_table(file, columns=list(columns))


def _require_plain(path: Path, name: str, values: "pa.ChunkedArray") -> None:
    from pyarrow import compute, types

    if types.is_binary(values.type) or types.is_large_binary(values.type):
        raise InputError(f"column {name} of {path} is not UTF-8: write the file in it")
    if types.is_floating(values.type) and compute.any(compute.is_inf(values)).as_py():
        raise InputError(f"column {name} of {path} has an infinite number: correct it, or leave its row out")
