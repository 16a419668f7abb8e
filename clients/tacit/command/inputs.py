"""Inputs of `tacit plan` and `tacit release`: columns, public samples, transcripts and files."""

# ruff: noqa: PLC0415 (pyarrow loads only where a file is given)

from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO

from tacit.atomic_write import reason_of
from tacit.command import connect
from tacit.command.output import progress
from tacit.errors import InputError
from tacit_protocol.decimals import read_number

if TYPE_CHECKING:
    import pyarrow as pa

    from tacit.database.released import ReleasedDatabase

CSV = "CSV: a line of names, and as many cells in every line"
"""What a file should be."""


def amounts(texts: Sequence[str]) -> dict[str, float]:
    """Read ``column=number`` flags; each column once, each number finite."""
    read: dict[str, float] = {}
    for text in texts:
        name, _, written = text.rpartition("=")
        try:
            amount = read_number(written)
        except ValueError as error:
            raise InputError(f"{text}: write column=number; {error}") from None
        if not name:
            raise InputError(f"{text}: write column=number")
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


STARTS = 3
"""Starts of points that are moved."""


def read_release(
    source: str,
    owner: str | None,
    party: Path,
    *,
    weights: str = "simplex",
    move: bool = False,
    quiet: bool = False,
) -> "ReleasedDatabase":
    """Return the database in a file, or of the study whose digest starts so, with weights of that kind.

    ``move`` says whether points are moved to match the release.

    Raises:
        InputError: there is no such file or study, or no database of that owner in it.
    """
    from tacit.database.files import load_database

    with progress("recomputing the release", quiet=quiet) as report:
        if not _looks_like_digest(source) or Path(source).exists():
            database = load_database(source, owner=owner, progress=report)
        else:
            database = _of_study(source, owner, party, report)
    if move:
        with progress("moving the points", quiet=quiet) as report:
            database = database.reduced(
                len(database), starts=STARTS, seed=0, progress=lambda part: report(part, "")
            )
    if weights == "simplex":
        return database
    return database.with_weights(weights)  # type: ignore[arg-type]


def _of_study(beginning: str, owner: str | None, party: Path, report: Any) -> "ReleasedDatabase":
    from tacit.database.files import database_of_transcript

    with connect.party_client(party) as client:
        digest = connect.whole_digest(beginning, client)
        data = client.transcript(digest)
    return database_of_transcript(data, digest=digest, owner=owner, progress=report)


def _looks_like_digest(text: str) -> bool:
    return 4 <= len(text) <= 64 and all(character in "0123456789abcdef" for character in text)


def read_other(source: str, owner: str | None, party: Path, database: "ReleasedDatabase") -> Any:
    """Return another release, or a table of one's own (.csv or .parquet) with the database's columns."""
    path = Path(source)
    if path.suffix.lower() == ".csv":
        return read_public(path, [column.name for column in database.domain.columns])
    if path.suffix.lower() == ".parquet" and not _holds_release(path):
        return read_public(path, [column.name for column in database.domain.columns])
    return read_release(source, owner, party, quiet=True)


def _holds_release(path: Path) -> bool:
    import pyarrow as pa
    from pyarrow import parquet

    from tacit.database.tables import METADATA_KEY

    try:
        with path.open("rb") as file:
            return METADATA_KEY in (parquet.read_schema(file).metadata or {})
    except pa.ArrowException as error:
        raise InputError(f"{path} is not Parquet") from error
    except OSError as error:
        raise InputError(f"cannot read {path}: {reason_of(error)}") from error
