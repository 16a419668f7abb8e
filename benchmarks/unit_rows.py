"""Tests of independence where units have 1 or 20 rows: averages of rows, and one row drawn a unit.

    python -m benchmarks.unit_rows --runs 400 > docs/benchmarks/unit-rows.md

Columns are independent of each other and of everything. Each run goes through ``tacit.local`` at level .05.
"""

import argparse
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import tacit.local
from benchmarks.resumable import table

Floats = npt.NDArray[np.float64]

HEAD = """# Units of several rows: averages, and one row drawn

How often tests of independence reject at level .05 where columns are independent of each other and of
everything, and half the units have 20 rows each, the others one. By averages of rows, and by
[one row drawn a unit](../data-sources.md#several-rows-of-one-unit). ε = 20, {runs} runs a cell: the standard
error is {error:.3f} at .05. Made by

    python -m benchmarks.unit_rows --runs {runs}

"""


def numbers(rng: np.random.Generator, rows: int) -> tuple[Floats, Floats]:
    """Draw two uniform columns, (rows,) each."""
    return rng.random(rows), rng.random(rows)


def marks(rng: np.random.Generator, rows: int) -> tuple[Floats, Floats]:
    """Draw two columns of 0 and 1, (rows,) each."""
    return rng.integers(0, 2, rows).astype(float), rng.integers(0, 2, rows).astype(float)


def curated(x: Floats, y: Floats, **chosen: Any) -> bool:
    """Test as a curator does, with most of the budget for the decision."""
    return tacit.local.distance_correlation(
        x,
        y,
        epsilon=20,
        delta=1e-5,
        bounds=(0, 1),
        mode="curator",
        n_permutations=199,
        test_share=0.9,
        **chosen,
    ).reject


def joint(x: Floats, y: Floats, **chosen: Any) -> bool:
    """Test at one owner."""
    return tacit.local.joint_independence(
        x, y, epsilon=20, bounds=(0, 1), n_permutations=199, **chosen
    ).reject


def counted(x: Floats, y: Floats, **chosen: Any) -> bool:
    """Test a table of counts."""
    names = [["no" if value == 0 else "yes" for value in column] for column in (x, y)]
    levels = [["no", "yes"]] * 2
    return tacit.local.independence_table(
        *names, epsilon=20, bounds=levels, unlisted="last", n_replicates=999, **chosen
    ).reject


def sketched(x: Floats, y: Floats, **chosen: Any) -> bool:
    """Test as two owners do whose rows are matched by id."""
    ids = chosen.pop("units")
    return tacit.local.distance_correlation(
        x, y, epsilon=20, delta=1e-5, bounds=(0, 1), n_permutations=199, units=(ids, ids), **chosen
    ).reject


CELLS: dict[str, tuple[Callable[..., bool], Callable[..., tuple[Floats, Floats]], int]] = {
    "`curated_distance_correlation`, numbers, 100 units": (curated, numbers, 100),
    "`curated_distance_correlation`, 0 and 1, 100 units": (curated, marks, 100),
    "`curated_distance_correlation`, numbers, 300 units": (curated, numbers, 300),
    "`joint_independence`, numbers, 300 units": (joint, numbers, 300),
    "`independence_table`, 0 and 1, 300 units": (counted, marks, 300),
    "`distance_correlation`, sketch, numbers, 2000 units": (sketched, numbers, 2000),
}


def rate(
    cell: tuple[Callable[..., bool], Callable[..., tuple[Floats, Floats]], int], rows: str, runs: int
) -> float:
    """Return the share of runs that reject."""
    test, columns, units = cell
    found = 0
    for run in range(runs):
        rng = np.random.default_rng([units, run])
        ids = np.repeat(np.arange(units), rng.choice([1, 20], units))
        x, y = columns(rng, len(ids))
        found += test(x, y, units=ids, unit_rows=rows, seed=run)
    return found / runs


def main() -> None:
    """Measure, and print the page."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--runs", type=int, default=400)
    runs = parser.parse_args().runs
    rows = {
        name: {
            label: f"{rate(cell, kind, runs):.3f}"
            for label, kind in (("averages", "average"), ("one row", "one"))
        }
        for name, cell in CELLS.items()
    }
    print(HEAD.format(runs=runs, error=np.sqrt(0.05 * 0.95 / runs)) + table(rows, "test").rstrip())


if __name__ == "__main__":
    main()
