"""The page on distance correlation's estimates, error law, level and power, from the counts."""

import math
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

import numpy as np

from benchmarks.dependence import KINDS, population_value
from benchmarks.resumable import Counts, level_statement, table
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee
from tacit_protocol.privacy.guarantee import Budget, GaussianEvent

DELTA = 1e-5
LEVELS = (0.05, 0.01)
UNITS = (5000, 20_000, 100_000)
EPSILONS = (0.25, 0.5, 1.0, 2.0, 4.0)
VARIANCE_UNITS = (5000, 10_000, 20_000, 50_000, 100_000, 200_000)
VARIANCE_LAWS = ("linear", "independent")
LARGEST = 500_000

REFERENCE = {
    ("pnc", "linear", 20_000): ".07",
    ("pnc", "quadratic", 20_000): ".13",
    ("pnc", "linear", 100_000): ".25",
    ("pnc", "quadratic", 100_000): ".00",
    ("sketch", "linear", 20_000): ".80",
    ("sketch", "quadratic", 20_000): ".35",
    ("sketch", "linear", 100_000): "1.0",
    ("sketch", "quadratic", 100_000): "1.0",
    ("sketch", "linear", LARGEST): "1.0",
    ("sketch", "quadratic", LARGEST): "1.0",
}
"""What the methods reference's own programs reached: power at level .05."""

HEAD = """# Distance correlation: estimates, error, level and power

What `distance_correlation` finds between two owners of one column each (vectors and categories: under
*level*), δ = 1e-5 at each owner, both sides private. Made by

    python -m benchmarks.distance_correlation

and continued by the same command. Every run draws rows, and calls `tacit.local.distance_correlation` (199
permutations, OpenDP's noise).

Laws, u uniform and e normal: *independent*; *linear*, y = u + .17 e; *quadratic*, y = (2u − 1)² + .03 e;
*circular*, a circle of radius ½ with .05 e on y; clipped to [0, 1]. Linear and quadratic have the distance
covariances of the methods reference's table, .0340 and .0109.

On P4's data sets: [the eight data sets](p4-data-sets.md). A million rows through agents and a tester:
[two owners](two-owners.md).

"""

ESTIMATES = """## Unbiased

{runs} runs a cell, ε = 1. *Rows* is the unbiased squared distance covariance of the same rows without
privacy, by `numerics/distance_covariance.py`, which agrees with dcor 0.7 to twelve digits (500, 5000 and
20 000 rows of the quadratic law). *Kept* is the part of it in the four frequencies of the sketch, computed
without privacy too, and *cut* what is left out, rows less kept. The private estimate's mean must be that of
*kept* within three standard errors.

"""

INTERVALS = """## Intervals

{runs} runs a cell of other rows, ε = 1, 95 %: how often the interval of the squared distance covariance holds
the law's own value in the kept frequencies, and that of the distance correlation, where one is stated.
*Whole* is how often the law's whole value lies in the interval raised by the stated `truncation` at its
upper end.

"""

ERROR_LAW = """## How the error falls

Standard deviation of the estimate about the law's own value, and exponents fitted by weighted least squares
on logarithms, with their standard errors (widened where the fit is poor). Under dependence the theory has
1/(μ√n) once n μ² is large, and under independence 1/(μ² n)
([derivation](../mathematics/distance-correlation.md#the-sketch)). μ is the Gaussian parameter of
(ε, δ): {mus}.

"""

POWER = """## Power

Part of the runs that reject at level .05 (at .01 in brackets), ε = 1; *reference* is what the methods
reference's own programs reached with other tests and noise of the data that it does not state. Sketch and PNC
have the same rows, run by run; PNC ran on the first ones. PNC at 100 000 units and more is beyond what a
release may hold, and went through the procedure's parts alone.

"""


def level_question(method: str, epsilon: float, level: float) -> str:
    """Name what one run of one method under independence answers."""
    return f"{method} | {epsilon:g} | {level:g}"


def text(counts: Counts) -> str:
    """Write the page."""
    mus = ", ".join(f"{mu_of(epsilon):.3f} at ε = {epsilon:g}" for epsilon in EPSILONS)
    parts = [
        HEAD,
        ESTIMATES.format(runs=_runs(counts, "estimate", [f"n={n}" for n in UNITS])),
        _estimates(counts),
        "\n",
        _bias_statement(counts),
        INTERVALS.format(runs=_runs(counts, "interval", [f"n={n}" for n in UNITS])),
        _intervals(counts),
        "\n",
        ERROR_LAW.format(mus=mus),
    ]
    for law in VARIANCE_LAWS:
        parts += [f"### {law.capitalize()}\n\n", _errors(counts, law), "\n", _fits(counts, law), "\n"]
    parts += ["## Level\n\n", level_statement(counts), _levels(counts), "\n", POWER, _powers(counts)]
    return "".join(parts).rstrip() + "\n"


def mu_of(epsilon: float) -> float:
    """Return the Gaussian parameter that (epsilon, DELTA) buys."""
    event = gaussian_guarantee(Budget.of(epsilon, DELTA)).events[0]
    assert isinstance(event, GaussianEvent)
    return 1 / event.noise_multiplier


def _runs(counts: Counts, kind: str, ends: Sequence[str]) -> str:
    runs = [
        count for cell, count in counts.runs.items() if cell.startswith(kind) and cell.split()[-1] in ends
    ]
    if not runs:
        return "no"
    return f"{min(runs)}" if min(runs) == max(runs) else f"{min(runs)} to {max(runs)}"


def _estimate_cells(counts: Counts) -> Iterable[tuple[str, int, str]]:
    for law in ("independent", "linear", "quadratic", "circular"):
        for n in (*UNITS, LARGEST):
            cell = f"estimate {law} n={n}"
            if counts.runs.get(cell, 0) > 1:
                yield law, n, cell


def _mean_error(counts: Counts, cell: str) -> tuple[float, float, float]:
    """Return the mean error against what is kept, its standard error, and the errors' deviation."""
    mean, square = counts.rate(cell, "error"), counts.rate(cell, "error squared")
    assert mean is not None
    assert square is not None
    deviation = math.sqrt(max(0.0, square - mean**2))
    return mean, deviation / math.sqrt(counts.runs[cell]), deviation


def _estimates(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {}
    for law, n, cell in _estimate_cells(counts):
        mean, error, deviation = _mean_error(counts, cell)
        exact, kept = counts.rate(cell, "exact") or 0.0, counts.rate(cell, "kept") or 0.0
        rows[f"{law}, n={n}"] = {
            "runs": str(counts.runs[cell]),
            "rows": _small(exact),
            "kept": _small(kept),
            "private, mean": _small(kept + mean),
            "mean − kept": f"{_small(mean)} ± {_small(error)}",
            "in standard errors": f"{mean / error:+.2f}",
            "one estimate's deviation": _small(deviation),
            "cut": _small(exact - kept),
        }
    return table(rows, "law")


def _bias_statement(counts: Counts) -> str:
    scores = [
        mean / error for mean, error, _ in (_mean_error(counts, c) for *_, c in _estimate_cells(counts))
    ]
    if not scores:
        return ""
    largest, squares = max(scores, key=abs), sum(score**2 for score in scores)
    return (
        f"The largest of {len(scores)} is {largest:+.2f} standard errors; their squares add up to "
        f"{squares:.1f}, where {len(scores)} is expected of an unbiased estimate.\n"
        "Under independence the estimate is skewed to the right, and the mean of some hundreds of runs\n"
        "lies three of its own standard errors low more often than a normal mean: those cells go on to\n"
        "1000 runs.\n\n"
    )


def _intervals(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {}
    for law in ("independent", "linear", "quadratic", "circular"):
        for n in UNITS:
            cell = f"interval {law} n={n}"
            if not counts.runs.get(cell):
                continue
            shown = {
                "covariance": "covariance covered",
                "whole": "whole covariance covered",
                "correlation stated": "correlation stated",
                "correlation": "correlation covered",
            }
            row = {name: counts.rate(cell, asked) for name, asked in shown.items()}
            rows[f"{law}, n={n}"] = {
                name: "" if rate is None else f"{rate:.3f}" for name, rate in row.items()
            } | {
                "mean width": _small(counts.rate(cell, "width") or 0.0),
                "mean truncation bound": _small(counts.rate(cell, "truncation bound") or 0.0),
            }
    return table(rows, "law")


def _small(value: float) -> str:
    return f"{value:.5f}"


def _deviation(counts: Counts, law: str, n: int, epsilon: float) -> tuple[float, float] | None:
    """Return the estimates' standard deviation about their mean, and its own relative standard error."""
    cell = f"variance {law} n={n}"
    mean = counts.rate(cell, f"error | {epsilon:g}")
    square = counts.rate(cell, f"error squared | {epsilon:g}")
    if mean is None or square is None or counts.runs[cell] < 4:
        return None
    return math.sqrt(max(0.0, square - mean**2)), 1 / math.sqrt(2 * counts.runs[cell])


def _errors(counts: Counts, law: str) -> str:
    rows: dict[str, dict[str, str]] = {}
    for n in VARIANCE_UNITS:
        found = {epsilon: _deviation(counts, law, n, epsilon) for epsilon in EPSILONS}
        if any(found.values()):
            rows[f"n={n}, {counts.runs[f'variance {law} n={n}']} runs"] = {
                f"ε={epsilon:g}": "" if one is None else _small(one[0]) for epsilon, one in found.items()
            }
    return table(rows, law) if rows else "Not yet run.\n"


@dataclass(frozen=True)
class Fit:
    """A fitted exponent with its standard error, and chi-square of the fit with its degrees of freedom."""

    exponent: float
    error: float
    chi_square: float
    freedom: int

    def __str__(self) -> str:
        return f"{self.exponent:+.3f} ± {self.error:.3f} (χ² {self.chi_square:.1f} on {self.freedom})"


def fit_exponent(points: Sequence[tuple[float, float, float]]) -> Fit | None:
    """Fit deviation = c x^exponent to (x, deviation, relative error); None with fewer than three points."""
    if len(points) < 3:
        return None
    x, y, error = (np.array(column) for column in zip(*points, strict=True))
    design = np.stack([np.ones(len(x)), np.log(x)], axis=1) / error[:, None]
    target = np.log(y) / error
    solution, *_ = np.linalg.lstsq(design, target, rcond=None)
    covariance = np.linalg.inv(design.T @ design)
    chi_square, freedom = float(np.sum((target - design @ solution) ** 2)), len(x) - 2
    widened = math.sqrt(covariance[1, 1] * max(1.0, chi_square / freedom))
    return Fit(float(solution[1]), widened, chi_square, freedom)


def _points(
    counts: Counts, law: str, cells: Iterable[tuple[float, int, float]]
) -> list[tuple[float, float, float]]:
    found = [(x, _deviation(counts, law, n, epsilon)) for x, n, epsilon in cells]
    return [(x, *deviation) for x, deviation in found if deviation is not None]


def _fits(counts: Counts, law: str) -> str:
    rows: dict[str, dict[str, str]] = {}
    expected = ("−.5", "−1") if law == "linear" else ("−1", "−2")
    estimated = [
        (float(n), _mean_error(counts, cell)[2], 1 / math.sqrt(2 * counts.runs[cell]))
        for found, n, cell in _estimate_cells(counts)
        if found == law
    ]
    fit = fit_exponent(estimated)
    rows["n, at ε = 1, from the estimates above"] = {"expected": expected[0], "fitted": str(fit or "")}
    for epsilon in (1.0, 4.0):
        fit = fit_exponent(_points(counts, law, ((n, n, epsilon) for n in VARIANCE_UNITS)))
        if fit is not None:
            rows[f"n, at ε = {epsilon:g}"] = {"expected": expected[0], "fitted": str(fit)}
    for n in (20_000, 200_000):
        for name, scale in (("μ", mu_of), ("ε", float)):
            fit = fit_exponent(_points(counts, law, ((scale(e), n, e) for e in EPSILONS)))
            if fit is not None:
                rows[f"{name}, at n = {n}"] = {"expected": expected[1], "fitted": str(fit)}
    return table(rows, "exponent in")


def _levels(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {}
    for cell, runs in counts.runs.items():
        if not cell.startswith("level"):
            continue
        _, kind, method, size = cell.split()
        row = rows.setdefault(f"{method}, {kind}, {size}", {"runs": str(runs)})
        for epsilon in (1.0, 10.0):
            for level in LEVELS:
                rate = counts.rate(cell, level_question(method, epsilon, level))
                row[f"ε={epsilon:g}, level {level:g}"] = "" if rate is None else f"{rate:.3f}"
    order = {kind: place for place, kind in enumerate(KINDS)}
    ordered = sorted(rows, key=lambda name: (name.split(", ")[0] != "sketch", order[name.split(", ")[1]]))
    return table({name: rows[name] for name in ordered}, "test, columns")


def _powers(counts: Counts) -> str:
    rows: dict[str, dict[str, str]] = {}
    for law in ("linear", "quadratic"):
        for method, kind in (("sketch", "estimate"), ("pnc", "pnc")):
            row = rows.setdefault(f"{method}, {law} (dCov² {population_value(law):.4f})", {})
            for n in (*UNITS, LARGEST):
                cell = f"{kind} {law} n={n}"
                found = [counts.rate(cell, f"{method} rejects | {level:g}") for level in LEVELS]
                shown = (
                    ""
                    if found[0] is None
                    else f"{found[0]:.2f} ({found[1] or 0:.2f}), {counts.runs[cell]} runs"
                )
                known = REFERENCE.get((method, law, n))
                parts = [shown, "" if known is None else f"reference {known}"]
                row[f"n={n}"] = "; ".join(part for part in parts if part)
    return table(rows, "method, law")
