"""Tests of independence where units have 1 or 20 rows: averages of rows, and one row drawn a unit.

    python -m benchmarks.unit_rows --runs 200

Columns are independent of each other and of everything. Each run goes through ``tacit.local`` at level .05.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

import tacit.local
from benchmarks.harness import grid, options, write_page

Floats = npt.NDArray[np.float64]


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
    return found / max(1, runs)


def main() -> None:
    """Measure, and write the page."""
    chosen = options(__doc__, runs=200)
    found = grid(
        "test",
        list(CELLS.items()),
        [("averages", "average"), ("one row", "one")],
        lambda cell, rows: f"{rate(cell, rows, chosen.runs):.3f}",
    )
    error = np.sqrt(0.05 * 0.95 / max(1, chosen.runs))
    write_page(
        "unit-rows", {"runs": str(chosen.runs), "error": f"{error:.3f}", "rates": found}, chosen.folder
    )


if __name__ == "__main__":
    main()
