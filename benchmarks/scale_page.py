"""The page of ``benchmarks.scale``: ratios of cells measured in one run, and how time grows with the rows."""

import json
import math
from itertools import pairwise
from pathlib import Path
from typing import Any

from benchmarks.scale import FEATURES, KINDS

Row = dict[str, Any]

INTRODUCTION = """\
# Sums over a hundred million rows

One owner's summary for the kernel two-sample test, 20 numeric columns in one Parquet file of row groups of
2^20 rows. "Bare" is plain NumPy: it computes the same features of rows that lie in memory already scaled, in
slices that fit the cache, and adds them up in floating point; "maps" is the same with Tacit's own feature
maps. The agent reads, clips, scales, rounds to the grid and adds exactly. `columns` are column-wise means,
`auto` (the default) adds the products of all pairs of columns, `me` 40 mean embeddings with their second
moment. Dask has worker processes of one thread on the same machine, which read the file themselves. Files lie
in the system's cache: storage is not measured.

    python -m benchmarks.scale

Seconds are the least of the repeats; memory is the peak of the agent's process (with Dask without its
workers'). Above 10^7 rows bare and maps are not run: they repeat one slice in memory, in linear time by make.
Throughput is bare seconds over the agent's, with as many threads; in brackets that of the maps.
"""

HEADER = (
    "| features | rows | workers | bare, s | maps, s | agent, s | throughput | agent, CPU s | agent, peak MB "
    "| Dask, s | Dask / threads |\n|---|---|---|---|---|---|---|---|---|---|---|\n"
)


def write_page(rows_file: Path, page: Path) -> None:
    """Write the page from all rows measured so far."""
    rows = [json.loads(line) for line in rows_file.read_text().splitlines()]
    page.write_text(INTRODUCTION + "\n" + table(rows) + "\n" + growth(rows))


def table(rows: list[Row]) -> str:
    """Return a line for every file, features and number of workers."""
    cells = sorted(
        {(FEATURES_ORDER[row["which"]], row["rows"], row["workers"], row["which"]) for row in rows}
    )
    lines = []
    for _, count, workers, which in cells:
        found = {kind: best(rows, which, count, workers, kind) for kind in KINDS}
        bare, maps, ours, dask = (found[kind] for kind in KINDS)
        lines.append(
            f"| {which} | {count:,} | {workers} | {seconds(bare)} | {seconds(maps)} | {seconds(ours)} "
            f"| {ratios(bare, maps, ours)} "
            f"| {'' if ours is None else format(ours['cpu_seconds'], '.1f')} "
            f"| {'' if ours is None else format(ours['peak_mb'], '.0f')} "
            f"| {seconds(dask)} | {ratio(dask, ours)} |"
        )
    return HEADER + "\n".join(lines) + "\n"


FEATURES_ORDER = {which: place for place, which in enumerate(FEATURES)}


def best(rows: list[Row], which: str, count: int, workers: int, kind: str) -> Row | None:
    """Return the fastest of the repeats of a cell, with the largest peak; None where there are none."""
    cell = (which, count, workers, kind)
    found = [row for row in rows if (row["which"], row["rows"], row["workers"], row["kind"]) == cell]
    if not found:
        return None
    fastest: Row = min(found, key=lambda row: row["seconds"])
    return fastest | {"peak_mb": max(row["peak_mb"] for row in found)}


def seconds(row: Row | None) -> str:
    """Return the seconds of a cell."""
    return "" if row is None else f"{row['seconds']:.2f}"


def ratio(one: Row | None, other: Row | None) -> str:
    """Return the ratio of two cells' seconds."""
    return "" if one is None or other is None else f"{one['seconds'] / other['seconds']:.2f}"


def ratios(bare: Row | None, maps: Row | None, ours: Row | None) -> str:
    """Return the throughput against bare NumPy and, in brackets, the maps."""
    against = ratio(bare, ours)
    return f"{against} ({ratio(maps, ours)})" if against else ""


def growth(rows: list[Row]) -> str:
    """Return the exponent of time in the number of rows, and of memory, over the largest two sizes."""
    lines = ["| features | workers | rows | exponent of time | exponent of CPU | memory ratio |"]
    lines.append("|---|---|---|---|---|---|")
    for which in FEATURES:
        for workers in (1, 2):
            sizes = sorted({row["rows"] for row in rows if row["kind"] == "threads"})
            found = [(size, best(rows, which, size, workers, "threads")) for size in sizes]
            known = [(size, row) for size, row in found if row is not None]
            for (small, first), (large, second) in pairwise(known):
                step = math.log(large / small)
                time = math.log(second["seconds"] / first["seconds"]) / step
                cpu = math.log(second["cpu_seconds"] / first["cpu_seconds"]) / step
                memory = second["peak_mb"] / first["peak_mb"]
                span = f"{small:,} to {large:,}"
                lines.append(f"| {which} | {workers} | {span} | {time:.2f} | {cpu:.2f} | {memory:.2f} |")
    return (
        "Growth with the number of rows; 1 is linear time, and a memory ratio of 1 is flat.\n\n"
        + "\n".join([*lines, ""])
    )
