"""What `tacit plan` reads: amounts by column, and a public sample."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

from tacit.errors import InputError


def amounts(texts: Sequence[str]) -> dict[str, float]:
    """Read ``column=number`` flags."""
    read = {}
    for text in texts:
        name, _, number = text.rpartition("=")
        try:
            read[name] = float(number)
        except ValueError:
            raise InputError(f"{text}: write column=number") from None
    return read


def read_public(path: Path, columns: Sequence[str]) -> Any:
    """Read a public sample's columns as an Arrow table; NA and empty cells are missing."""
    # Loads only where a file is given.
    from pyarrow import ArrowInvalid, csv, parquet  # noqa: PLC0415

    try:
        if path.suffix == ".parquet":
            return parquet.read_table(path, columns=list(columns))
        options = csv.ConvertOptions(
            include_columns=list(columns), null_values=["", "NA"], strings_can_be_null=True
        )
        return csv.read_csv(path, convert_options=options)
    except (OSError, KeyError, ArrowInvalid) as error:
        raise InputError(f"cannot read the columns {', '.join(columns)} of {path}") from error
