"""Reads a data set as an agent does, apart: ``read_child.py FILE numeric|categorical [written-out]``.

Prints JSON: the outcome, the rows read, and the growth of the peak of memory in bytes. ``written-out`` plants
a mistake: dictionaries are decoded into one text per row.
"""

import json
import sys
from pathlib import Path

import pyarrow as pa
from hostile_child import peak_bytes

from tacit_protocol.domain.columns import CategoricalColumn, Column, Domain, NumericColumn
from tacit_services.agent.data import reader, table
from tacit_services.agent.data.arrow_columns import numbers
from tacit_services.agent.data.source import DataError
from tacit_services.agent.settings import open_source


def read(path: Path, column: Column) -> tuple[str, int]:
    try:
        source = table.SourceTable(open_source(path.name, None, path.parent), Domain(columns=(column,)))
        return "read", sum(chunk.rows for chunk in source.chunks())
    except DataError as error:
        return str(error), 0


def written_out(name: str, column: pa.Array) -> object:
    return numbers(name, column.dictionary_decode() if pa.types.is_dictionary(column.type) else column)


if __name__ == "__main__":
    asked: Column = NumericColumn(name="x", lower=0.0, upper=1.0)
    if sys.argv[2] == "categorical":
        asked = CategoricalColumn(name="x", levels=("a",))
    if len(sys.argv) > 3:
        reader.numbers = written_out  # type: ignore[attr-defined]
    before = peak_bytes()
    outcome, rows = read(Path(sys.argv[1]), asked)
    report = {"outcome": outcome, "rows": rows, "growth_bytes": peak_bytes() - before}
    sys.stdout.write(json.dumps(report) + "\n")
