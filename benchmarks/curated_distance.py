"""Distance covariance of columns in one place: error, power and intervals by number of units.

    python benchmarks/curated_distance.py --units 1000 --runs 100

One numeric column each in [0, 1], epsilon 1, delta 1e-5, level .05. Linear: y = x + .13 noise; quadratic:
y = (2x - 1)^2 + .1 noise; clipped to [0, 1]. Prints the rows of the table in the page of the procedure.
"""

import argparse

import numpy as np
import numpy.typing as npt

import tacit.local

Floats = npt.NDArray[np.float64]
KINDS = ("independent", "linear", "quadratic")


def pair(kind: str, units: int, rng: np.random.Generator) -> tuple[Floats, Floats]:
    """Draw both columns."""
    x, noise = rng.random(units), rng.standard_normal(units)
    if kind == "independent":
        return x, rng.random(units)
    y = x + 0.13 * noise if kind == "linear" else (2 * x - 1) ** 2 + 0.1 * noise
    return x, np.clip(y, 0, 1)


def row(kind: str, units: int, runs: int) -> str:
    """Run one cell and return its row."""
    rng = np.random.default_rng(units)
    estimates, rejected, free = [], 0, 0
    for index in range(runs):
        x, y = pair(kind, units, rng)
        with_test, without = (
            tacit.local.distance_correlation(
                x, y, epsilon=1, delta=1e-5, bounds=(0, 1), mode="curator", seed=index, test=test
            )
            for test in (True, False)
        )
        rejected, free = rejected + with_test.reject, free + without.reject
        found = with_test.distance_correlation
        estimates.append((with_test.distance_covariance_sqr, np.nan if found is None else found))
    mean, spread = np.nanmean(estimates, axis=0), np.nanstd(estimates, axis=0)
    unknown = int(np.isnan(np.array(estimates)[:, 1]).sum())
    return (
        f"| {units} | {kind} | {mean[0]:.4f} ± {spread[0]:.4f} | {mean[1]:.2f} ± {spread[1]:.2f} "
        f"({unknown} unknown) | {rejected / runs:.2f} | {free / runs:.2f} |"
    )


def main() -> None:
    """Print the rows."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--units", type=int, nargs="+", default=[500, 1000, 5000])
    parser.add_argument("--runs", type=int, default=100)
    options = parser.parse_args()
    for units in options.units:
        for kind in KINDS:
            print(row(kind, units, options.runs), flush=True)


if __name__ == "__main__":
    main()
