"""Compare reading by ``pyarrow.dataset`` with the agent's own sources: peak memory, time, hostile files.

    python -m benchmarks.arrow_datasets

Each reading is a process of its own, whose peak resident memory is told beside the time. The figures are in
docs/decisions/0021-own-readers-of-files.md.
"""

import argparse
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pyarrow as pa
import pyarrow.dataset as ds
import pyarrow.parquet as pq

from tacit_services.agent.data.csv_source import CsvSource
from tacit_services.agent.data.parquet_source import ParquetFolder
from tacit_services.agent.data.source import Columns, Source

ROWS, CHUNK_ROWS = 20_000_000, 65_536
LINES = 1_000_000


def own(path: Path) -> Iterator[pa.RecordBatch]:
    """Read column x as an agent does."""
    source: Source = CsvSource(path) if path.suffix == ".csv" else ParquetFolder(path)
    return source.batches(Columns(numbers=("x",)), CHUNK_ROWS)


def dataset(path: Path) -> Iterator[pa.RecordBatch]:
    """Read column x by pyarrow.dataset, with as little ahead as it can be told."""
    kind = "csv" if path.suffix == ".csv" else "parquet"
    found = ds.dataset(path, format=kind, partitioning=None if kind == "csv" else "hive")
    return found.to_batches(
        columns=["x"], batch_size=CHUNK_ROWS, batch_readahead=1, fragment_readahead=1, use_threads=False
    )


READERS = {"agent": own, "pyarrow.dataset": dataset}


def make(folder: Path) -> dict[str, Path]:
    """Write the files; returns what each is of."""
    values = np.random.default_rng(0).random(ROWS)
    (folder / "one").mkdir()
    pq.write_table(pa.table({"x": values}), folder / "one" / "a.parquet", row_group_size=ROWS)
    (folder / "many").mkdir()
    pq.write_table(pa.table({"x": values}), folder / "many" / "a.parquet", row_group_size=ROWS // 100)
    lines = [f"{place},text" for place in range(LINES)]
    names = {"plain": {}, "a stray quote": {5: '5,"text'}, "a value too many": {LINES // 2: "1,2,3"}}
    for name, changed in names.items():
        written = [changed.get(place, line) for place, line in enumerate(lines)]
        (folder / f"{name}.csv").write_text("x,y\n" + "\n".join(written) + "\n")
    parquet = {"Parquet, one row group": folder / "one", "Parquet, 100 row groups": folder / "many"}
    return parquet | {f"CSV, {name}": folder / f"{name}.csv" for name in names}


def read(reader: str, path: Path) -> str:
    """Read a file in this process; says what came of it."""
    started_s, rows = time.perf_counter(), 0
    try:
        for batch in READERS[reader](path):
            rows += batch.num_rows
        told = f"{rows} rows"
    except pa.ArrowException as error:
        told = f"{type(error).__name__} after {rows} rows"
    status = Path("/proc/self/status").read_text("ascii")
    peak = int(status.partition("VmHWM:")[2].split()[0]) // 1024
    return f"{told}, {time.perf_counter() - started_s:.2f} s, {peak} MiB"


def main() -> None:
    """Run every reading, or one."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--read", nargs=2, metavar=("READER", "PATH"))
    chosen = parser.parse_args()
    if chosen.read:
        print(read(chosen.read[0], Path(chosen.read[1])))
        return
    with tempfile.TemporaryDirectory() as folder:
        for name, path in make(Path(folder)).items():
            for reader in READERS:
                command = [sys.executable, "-m", "benchmarks.arrow_datasets", "--read", reader, str(path)]
                found = subprocess.run(command, capture_output=True, text=True, check=True).stdout
                print(f"| {name} | {reader} | {found.strip()} |")


if __name__ == "__main__":
    main()
