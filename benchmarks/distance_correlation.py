"""Distance correlation: estimates, the law of their error, intervals, level and power, in either setting.

    python -m benchmarks.distance_correlation      # both pages; continues where it stopped
    python -m benchmarks.distance_correlation --page curated-distance --runs 0.02 --folder /tmp/glance

Every run is ``tacit.local.distance_correlation``: the services' own procedures, with OpenDP's noise. PNC at
more units than a release may hold goes through the procedure's parts, with simulated noise. Run number r of
a law at n draws the same rows for every method. A curator is asked twice of the same rows, with the decision
of the permutation test and without.
"""

import functools
import math
from collections.abc import Iterable
from dataclasses import dataclass
from itertools import product

import numpy as np
from scipy.special import ndtri

import tacit.local
from benchmarks.harness import (
    Answers,
    Benchmark,
    Cell,
    Counts,
    Floats,
    cells_of,
    extent,
    grid,
    level_statement,
    main,
    named,
    question,
    table,
    with_square,
)
from benchmarks.problems import (
    KINDS,
    dependent,
    draw,
    generator,
    kept_covariance_sqr,
    population_value,
    quantiles,
    without_dependence,
)
from tacit.results import DistanceCorrelationResult
from tacit_protocol.features.aligned_sums import ProjectionRelease, RowProjections
from tacit_protocol.numerics.distance_covariance import distance_correlation_sqr, distance_covariance_sqr
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Budget, GaussianEvent
from tacit_protocol.procedures.distance_covariance.statistic import (
    NoisyProjections,
    Permutations,
    projected_test,
)

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

FREQUENCIES = 4
"""The procedure's default for one column."""

PERMUTATIONS = 199
"""At which the levels .05 and .01 are met exactly."""

VARIANCE_RUNS, LEVEL_RUNS, PNC_RUNS, LARGEST_RUNS = 200, 1000, 100, 30

ESTIMATE_RUNS = {"independent": 1000, "linear": 300, "quadratic": 300, "circular": 300}
"""Under independence the estimate is skewed, so that more runs are needed for a mean that is near normal."""

ESTIMATED = ("independent", "linear", "quadratic", "circular")
POWER_LAWS = ("linear", "quadratic")

LEVELS_OF = {
    "sketch": ((100, 1000, 20_000), KINDS),
    "pnc": ((200, 2000), ("uniform", "vectors")),
    "pnc-disjoint": ((200,), ("vectors",)),
}
"""Numbers of units, and kinds of columns, by method."""

LEVEL_EPSILONS = {100: (1.0, 10.0), 200: (1.0, 10.0), 1000: (1.0, 10.0), 2000: (1.0,), 20_000: (1.0,)}


def answer(
    x: object, y: object, bounds: object, seed: int, epsilon: float = 1.0, method: str = "sketch"
) -> DistanceCorrelationResult:
    """Ask the procedure."""
    return tacit.local.distance_correlation(
        x,
        y,
        epsilon=epsilon,
        delta=DELTA,
        method=method,  # type: ignore[arg-type]
        bounds=bounds,
        n_permutations=PERMUTATIONS,
        seed=seed,
    )


def estimate_run(law: str, n: int, run: int) -> Answers:
    """Estimate the distance covariance, and test; the rows' own value, whole and in what is kept, beside."""
    x, y = draw(law, n, run)
    found = answer(x, y, [(0, 1), (0, 1)], run)
    exact, kept = distance_covariance_sqr(x, y), kept_covariance_sqr(x, y, FREQUENCIES)
    error = with_square("error", found.distance_covariance_sqr - kept)
    return {"exact": exact, "kept": kept} | error | _rejections("sketch", found.pvalue)


def variance_run(law: str, n: int, run: int) -> Answers:
    """Estimate one law's distance covariance at every epsilon, on the same rows."""
    x, y = draw(law, n, run)
    answers: dict[str, float] = {}
    for epsilon in EPSILONS:
        found = answer(x, y, [(0, 1), (0, 1)], run, epsilon).distance_covariance_sqr
        answers |= with_square(f"error | {epsilon:g}", found - population_value(law))
    return answers


def pnc_run(law: str, n: int, run: int) -> Answers:
    """Test by P4's projections."""
    x, y = draw(law, n, run)
    if n <= COORDINATES_MAX:
        return _rejections("pnc", answer(x, y, [(0, 1), (0, 1)], run, method="pnc").pvalue)
    rng, scale = generator(f"noise of {law}", n, run), projection_noise(1.0)
    # One column: z = 2 x - 1 and noise, halved as a reader does.
    first, second = (
        NoisyProjections((2 * column[:, None] - 1 + scale * rng.standard_normal((n, 1))) / 2, scale / 2, 1)
        for column in (x, y)
    )
    return _rejections("pnc", projected_test(first, second, Permutations(PERMUTATIONS, rng)).pvalue)


def noise_multiplier(epsilon: float) -> float:
    """Return the deviation of a Gaussian mechanism of sensitivity 1 with (epsilon, DELTA)."""
    event = gaussian_guarantee(Budget.of(epsilon, DELTA)).events[0]
    assert isinstance(event, GaussianEvent)
    return event.noise_multiplier


def projection_noise(epsilon: float) -> float:
    """Return the deviation of the noise on every projection of one column, as the procedure lays it out."""
    part = ProjectionRelease(RowProjections(np.ones((1, 1))), disjoint=False).parts(1)[0]
    return part.sensitivity * noise_multiplier(epsilon)


def level_run(kind: str, method: str, n: int, run: int) -> Answers:
    """Test independent columns, at every epsilon of this n on the same rows."""
    x, y, bounds = without_dependence(kind, n, generator(kind, n, run))
    answers: dict[str, float] = {}
    for epsilon in LEVEL_EPSILONS[n]:
        pvalue = answer(x, y, bounds, run, epsilon, method).pvalue
        answers |= {question(method, epsilon, level): pvalue <= level for level in LEVELS}
    return answers


def _rejections(method: str, pvalue: float) -> dict[str, float]:
    return {f"{method} rejects | {level:g}": pvalue <= level for level in LEVELS}


def cells() -> list[Cell]:
    """List the cells: cheap ones first."""
    made: list[Cell] = []
    for n, law in product(UNITS, ESTIMATED):
        made += cells_of("estimate {} n={}", ESTIMATE_RUNS[law], estimate_run, [law], [n])
    for n in VARIANCE_UNITS:
        made += cells_of("variance {} n={}", VARIANCE_RUNS, variance_run, VARIANCE_LAWS, [n])
    for method, (sizes, kinds) in LEVELS_OF.items():
        for n in sizes:
            made += cells_of("level {} {} n={}", LEVEL_RUNS, level_run, kinds, [method], [n])
    for n in UNITS:
        made += cells_of("pnc {} n={}", PNC_RUNS, pnc_run, POWER_LAWS, [n])
    made += cells_of("estimate {} n={}", LARGEST_RUNS, estimate_run, POWER_LAWS, [LARGEST])
    return made + cells_of("pnc {} n={}", LARGEST_RUNS, pnc_run, POWER_LAWS, [LARGEST])


def _errors(counts: Counts, cell: str) -> tuple[float, float, float]:
    """Return the mean error against what is kept, its standard error, and the errors' deviation."""
    found = counts.spread(cell, "error")
    assert found is not None
    return found[0], found[1] / math.sqrt(counts.runs[cell]), found[1]


def parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    estimated = [(law, n, f"estimate {law} n={n}") for law, n in product(ESTIMATED, (*UNITS, LARGEST))]
    estimated = [one for one in estimated if counts.runs.get(one[2], 0) > 1]
    scores = [mean / error for mean, error, _ in (_errors(counts, cell) for *_, cell in estimated)]
    found = {
        "runs": extent(counts.runs[cell] for _, n, cell in estimated if n != LARGEST),
        "estimates": _estimates(counts, estimated),
        "bias": (
            f"The largest of {len(scores)} is {max(scores, key=abs, default=0):+.2f} standard errors; "
            f"their squares add up to {sum(score**2 for score in scores):.1f}, where {len(scores)} is "
            "expected of an unbiased estimate."
        ),
        "statement": level_statement(counts),
        "levels": _levels(counts),
        "powers": _powers(counts),
    }
    for law in VARIANCE_LAWS:
        found[law] = _deviations(counts, law) + "\n" + _fits(counts, law, estimated)
    return found


def _estimates(counts: Counts, estimated: list[tuple[str, int, str]]) -> str:
    rows: dict[str, dict[str, str]] = {}
    for law, n, cell in estimated:
        mean, error, deviation = _errors(counts, cell)
        exact, kept = counts.rate(cell, "exact") or 0.0, counts.rate(cell, "kept") or 0.0
        rows[f"{law}, n={n}"] = {
            "runs": str(counts.runs[cell]),
            "rows": f"{exact:.5f}",
            "kept": f"{kept:.5f}",
            "private, mean": f"{kept + mean:.5f}",
            "mean − kept": f"{mean:.5f} ± {error:.5f}",
            "in standard errors": f"{mean / error:+.2f}",
            "one estimate's deviation": f"{deviation:.5f}",
            "cut": f"{exact - kept:.5f}",
        }
    return table(rows, "law")


def _deviation(counts: Counts, law: str, n: int, epsilon: float) -> tuple[float, float] | None:
    """Return the estimates' standard deviation about their mean, and its own relative standard error."""
    cell = f"variance {law} n={n}"
    found = counts.spread(cell, f"error | {epsilon:g}")
    if found is None or counts.runs[cell] < 4:
        return None
    return found[1], 1 / math.sqrt(2 * counts.runs[cell])


def _deviations(counts: Counts, law: str) -> str:
    def shown(n: int, epsilon: float) -> str:
        found = _deviation(counts, law, n, epsilon)
        return "" if found is None else f"{found[0]:.5f}"

    rows = [(f"n={n}, {counts.runs.get(f'variance {law} n={n}', 0)} runs", n) for n in VARIANCE_UNITS]
    return grid(law, rows, named("ε={:g}", EPSILONS), shown)


Points = list[tuple[float, float, float]]
"""x, a deviation there, and its relative standard error."""


@dataclass(frozen=True)
class Fit:
    """A fitted exponent with its standard error, and chi-square of the fit with its degrees of freedom."""

    exponent: float
    error: float
    chi_square: float
    freedom: int

    def __str__(self) -> str:
        return f"{self.exponent:+.3f} ± {self.error:.3f} (χ² {self.chi_square:.1f} on {self.freedom})"


def fit_exponent(points: Points) -> Fit | None:
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


def _fits(counts: Counts, law: str, estimated: list[tuple[str, int, str]]) -> str:
    def points(cells: Iterable[tuple[float, int, float]]) -> Points:
        found = [(x, _deviation(counts, law, n, epsilon)) for x, n, epsilon in cells]
        return [(x, *deviation) for x, deviation in found if deviation is not None]

    in_n, in_mu = ("−.5", "−1") if law == "linear" else ("−1", "−2")
    own: Points = [
        (float(n), _errors(counts, cell)[2], 1 / math.sqrt(2 * counts.runs[cell]))
        for kind, n, cell in estimated
        if kind == law
    ]
    fits = [("n, at ε = 1, from the estimates above", in_n, own)]
    for epsilon in (1.0, 4.0):
        fits.append((f"n, at ε = {epsilon:g}", in_n, points((n, n, epsilon) for n in VARIANCE_UNITS)))
    for n, (name, scale) in product(
        (20_000, 200_000), (("μ", lambda e: 1 / noise_multiplier(e)), ("ε", float))
    ):
        fits.append((f"{name}, at n = {n}", in_mu, points((scale(e), n, e) for e in EPSILONS)))
    rows = {
        name: {"expected": expected, "fitted": str(fit)}
        for name, expected, found in fits
        if (fit := fit_exponent(found)) is not None
    }
    return table(rows, "exponent in")


def _levels(counts: Counts) -> str:
    cells = sorted(
        (cell for cell in counts.runs if cell.startswith("level")),
        key=lambda cell: (cell.split()[2] != "sketch", KINDS.index(cell.split()[1])),
    )
    rows = {}
    for cell in cells:
        _, kind, method, size = cell.split()
        rows[f"{method}, {kind}, {size}"] = {"runs": str(counts.runs[cell])} | {
            f"ε={epsilon:g}, level {level:g}": counts.shown(cell, question(method, epsilon, level))
            for epsilon, level in product((1.0, 10.0), LEVELS)
        }
    return table(rows, "test, columns")


def _powers(counts: Counts) -> str:
    def shown(row: tuple[str, str], n: int) -> str:
        law, method = row
        cell = f"{'estimate' if method == 'sketch' else 'pnc'} {law} n={n}"
        found = [counts.shown(cell, f"{method} rejects | {level:g}", ".2f") for level in LEVELS]
        known = REFERENCE.get((method, law, n))
        texts = [f"{found[0]} ({found[1]}), {counts.runs[cell]} runs"] if found[0] else []
        return "; ".join(texts + ([] if known is None else [f"reference {known}"]))

    rows = [
        (f"{method}, {law} (dCov² {population_value(law):.4f})", (law, method))
        for law, method in product(POWER_LAWS, ("sketch", "pnc"))
    ]
    return grid("method, law", rows, named("n={}", (*UNITS, LARGEST)), shown)


EPSILON, LEVEL = 1.0, 0.05
CURATED_UNITS = (500, 1000, 5000)
CURATED_RUNS = {500: 100, 1000: 100, 5000: 60}
DEPENDENCES = ("independent", "linear", "quadratic")
SKETCH_UNITS, SKETCH_RUNS = 5000, 60

CURATED_GRID = 500
"""Quantiles of each of the two numbers that a law is made of, for its own distance covariance."""


SPREADS = {"linear": 0.13, "quadratic": 0.1}


def second_column(kind: str, x: Floats, part: Floats) -> Floats:
    """Return y, (n,), given x and another independent uniform number, (n,) each."""
    return part if kind == "independent" else dependent(kind, x, ndtri(part), SPREADS[kind])


def pair(kind: str, units: int, run: int) -> tuple[Floats, Floats]:
    """Draw both columns."""
    rng = np.random.default_rng([units, run])
    x, part = rng.random(units), 1 - rng.random(units)
    return x, second_column(kind, x, part)


@functools.cache
def truth(kind: str) -> tuple[float, float]:
    """Return the population's squared distance covariance and its distance correlation, to about 1e-5."""
    if kind == "independent":
        return 0.0, 0.0
    x, part = quantiles(CURATED_GRID)
    y = second_column(kind, x, part)
    return distance_covariance_sqr(x, y, "biased"), math.sqrt(distance_correlation_sqr(x, y))


def curated_run(kind: str, units: int, run: int) -> Answers:
    """Ask a curator, with the permutation test and without."""
    x, y = pair(kind, units, run)
    tested, free = (
        tacit.local.distance_correlation(
            x,
            y,
            epsilon=EPSILON,
            delta=DELTA,
            bounds=(0, 1),
            alpha=LEVEL,
            mode="curator",
            seed=run,
            test=test,
        )
        for test in (True, False)
    )
    covariance, correlation = truth(kind)
    low, high = tested.covariance_interval
    found = with_square("covariance", tested.distance_covariance_sqr)
    found |= {
        "power": tested.reject,
        "power without": free.reject,
        "covariance covered": low <= covariance <= high,
    }
    found["stated"] = tested.distance_correlation is not None
    if tested.distance_correlation is not None and tested.interval is not None:
        found |= with_square("correlation", tested.distance_correlation)
        found["correlation covered"] = tested.interval[0] <= correlation <= tested.interval[1]
    return found


def sketch_run(kind: str, units: int, run: int) -> Answers:
    """Ask two owners who trust nobody, of the same rows."""
    x, y = pair(kind, units, run)
    result = tacit.local.distance_correlation(
        x, y, epsilon=EPSILON, delta=DELTA, bounds=(0, 1), alpha=LEVEL, method="sketch", seed=run
    )
    return with_square("covariance", result.distance_covariance_sqr) | {"power": result.reject}


def curated_cells() -> list[Cell]:
    """List the cells: the curator's, then the sketch of the largest number of units."""
    made: list[Cell] = []
    for units in CURATED_UNITS:
        made += cells_of("curator {} n={}", CURATED_RUNS[units], curated_run, DEPENDENCES, [units])
    return made + cells_of("sketch {} n={}", SKETCH_RUNS, sketch_run, DEPENDENCES, [SKETCH_UNITS])


def _spread(counts: Counts, cell: str, asked: str, digits: int) -> str:
    found = counts.spread(cell, asked)
    if found is None:
        return "none stated"
    return f"{round(found[0], digits) + 0.0:.{digits}f} ± {found[1]:.{digits}f}"  # no negative zero


def curated_parts(counts: Counts) -> dict[str, str]:
    """Write the tables of the page."""
    curator, sketch = {}, {}
    for cell, runs in ((cell, runs) for cell, runs in counts.runs.items() if runs):
        where, kind, units = cell.split()
        row = {"runs": str(runs), "squared covariance": _spread(counts, cell, "covariance", 4)}
        if where == "sketch":
            shown = {"power": "power"}
            sketch[f"{units.removeprefix('n=')}, {kind}"] = row
        else:
            shown = {"power with the test": "power", "without": "power without"}
            row["covered"] = counts.shown(cell, "covariance covered", ".2f")
            row["correlation"] = _spread(counts, cell, "correlation", 2)
            row["stated"] = counts.shown(cell, "stated", ".2f")
            row["of these covered"] = counts.shown(cell, "correlation covered", ".2f")
            curator[f"{units.removeprefix('n=')}, {kind}"] = row
        row |= {head: counts.shown(cell, asked, ".2f") for head, asked in shown.items()}
    corner = "units, dependence"
    return {"curator": table(curator, corner), "two owners": table(sketch, corner)}


BENCHMARKS = (
    Benchmark("distance-correlation", cells, parts),
    Benchmark("curated-distance", curated_cells, curated_parts),
)

if __name__ == "__main__":
    main(__doc__, *BENCHMARKS)
