"""Reads a PostgreSQL query apart, in one way after the other: ``sql_child.py URL QUERY READ_BYTES``.

Prints JSON: for each way the rows read, and the growth of the peak of memory since the start, in bytes. The
last way plants a mistake: the driver fetches the whole result before the first row is handed out.
"""

import json
import sys
from collections.abc import Iterator
from typing import Any

import sqlalchemy as sa
from hostile_child import peak_bytes

from tacit_services.agent.data import sql_source
from tacit_services.agent.data.source import Columns
from tacit_services.agent.data.sql_source import SqlSource

ROWS_MAX = 65_536


def all_at_once(
    connection: sa.Connection, query: sa.Select[Any], columns: Columns, _rows: int, _bytes: int
) -> Iterator[Any]:
    yield sql_source.batch_of(columns, connection.execute(query).fetchall())


if __name__ == "__main__":
    _, url, query, read_bytes = sys.argv
    source = SqlSource(url, query).reading_within(int(read_bytes))
    columns = Columns(numbers=("x", "y"), text=("s",))
    next(iter(source.batches(columns, 10)))  # loads the driver, and Arrow
    before = peak_bytes()
    report = {}
    for way in ("copy", "all at once"):
        if way == "all at once":
            sql_source.read_by_copy = all_at_once  # type: ignore[assignment]
        rows = sum(batch.num_rows for batch in source.batches(columns, ROWS_MAX))
        report[way] = {"rows": rows, "growth_bytes": peak_bytes() - before}
    sys.stdout.write(json.dumps(report) + "\n")
