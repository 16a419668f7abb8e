"""Rows a second that an agent reads from each kind of source: two columns of numbers and one of text.

    python -m benchmarks.sources [mariadb://root@localhost/test?unix_socket=...]

A line for each source, in millions of rows a second of this process's own time. A table ``speed`` of the
MariaDB database is made anew.
"""

import sys
import tempfile
import time
from pathlib import Path

import duckdb
import numpy as np
import openpyxl
import pandas as pd
import pyarrow as pa
import pyarrow.csv as pa_csv
import pyreadstat
import sqlalchemy as sa

from tacit_protocol.arrow_columns import numbers, text
from tacit_services.agent.data.opening import open_source
from tacit_services.agent.data.source import Columns, Source

ROWS, SHEET_ROWS = 500_000, 100_000


def make(folder: Path, server: str | None) -> dict[str, Source]:
    """Write the same rows everywhere."""
    rows = pd.DataFrame(
        {"x": np.arange(ROWS) * 1.0, "y": np.arange(ROWS) / 7, "s": [f"p{i % 50}" for i in range(ROWS)]}
    )
    pa_csv.write_csv(pa.Table.from_pandas(rows), folder / "t.csv")
    pyreadstat.write_sav(rows, str(folder / "t.sav"))
    pyreadstat.write_dta(rows, str(folder / "t.dta"))
    pyreadstat.write_xport(rows, str(folder / "t.xpt"))
    book = openpyxl.Workbook(write_only=True)
    sheet = book.create_sheet()
    sheet.append(list(rows.columns))
    for row in rows[:SHEET_ROWS].itertuples(index=False):
        sheet.append(list(row))
    book.save(folder / "t.xlsx")
    with duckdb.connect(str(folder / "t.duckdb")) as connection:
        connection.register("rows", rows)
        connection.execute("CREATE TABLE speed AS SELECT * FROM rows")
    urls = {"SQLite": f"sqlite:///{folder}/t.sqlite3"} | ({} if server is None else {"MariaDB": server})
    for url in urls.values():
        engine = sa.create_engine(url.replace("mariadb:", "mariadb+pymysql:"))
        rows.to_sql("speed", engine, index=False, if_exists="replace", chunksize=5000, method="multi")
        engine.dispose()
    files = {
        name: open_source(file, None, folder)
        for name, file in (
            ("CSV", "t.csv"),
            ("SPSS", "t.sav"),
            ("Stata", "t.dta"),
            ("SAS", "t.xpt"),
            ("Excel", "t.xlsx"),
        )
    }
    urls["DuckDB"] = "duckdb:///t.duckdb"
    return files | {name: open_source(url, "SELECT * FROM speed", folder) for name, url in urls.items()}


def rows_a_second(source: Source) -> float:
    """Read all rows as a study would."""
    started, rows = time.process_time(), 0
    for batch in source.batches(Columns(("x", "y"), ("s",)), 65_536):
        numbers("x", batch.column("x"))
        numbers("y", batch.column("y"))
        text(batch.column("s"))
        rows += batch.num_rows
    return rows / (time.process_time() - started)


def main() -> None:
    """Print a line for each source."""
    with tempfile.TemporaryDirectory() as folder:
        for name, source in make(Path(folder), sys.argv[1] if len(sys.argv) > 1 else None).items():
            print(f"{name}: {rows_a_second(source) / 1e6:.2f} million rows a second")


if __name__ == "__main__":
    main()
