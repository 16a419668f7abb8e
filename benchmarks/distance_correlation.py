"""Distance correlation between two owners: estimates, the law of their error, level and power.

    python -m benchmarks.distance_correlation      # everything; continues where it stopped
    python -m benchmarks.distance_correlation --runs 0.02 --cells power --folder /tmp/glance

Every run is ``tacit.local.distance_correlation``: the services' own procedure, with OpenDP's noise. PNC at
more units than a release may hold goes through the procedure's parts, with simulated noise. Run number r of
a law at n draws the same rows for every method.
"""

import functools
import math

import numpy as np

import tacit.local
from benchmarks.dependence import (
    KINDS,
    draw,
    generator,
    kept_covariance_sqr,
    kept_population_scale,
    kept_population_value,
    population_value,
    without_dependence,
)
from benchmarks.distance_correlation_page import (
    DELTA,
    EPSILONS,
    LEVELS,
    UNITS,
    VARIANCE_LAWS,
    VARIANCE_UNITS,
    level_question,
    text,
)
from benchmarks.resumable import Answers, Cell, main
from tacit.results import DistanceCorrelationResult
from tacit_protocol.features.aligned_sums import ProjectionRelease, RowProjections
from tacit_protocol.numerics.distance_covariance import distance_covariance_sqr
from tacit_protocol.privacy.gaussian_mechanism import gaussian_guarantee
from tacit_protocol.privacy.guarantee import COORDINATES_MAX, Budget, GaussianEvent
from tacit_protocol.procedures.distance_correlation.statistic import (
    NoisyProjections,
    Permutations,
    projected_test,
)

FREQUENCIES = 4
"""The procedure's default for one column."""

PERMUTATIONS = 199
"""At which the levels .05 and .01 are met exactly."""

FIRST_INTERVAL_RUN = 1_000_000

INTERVAL_RUNS, VARIANCE_RUNS, LEVEL_RUNS, PNC_RUNS, LARGEST_RUNS = 300, 200, 1000, 100, 30

ESTIMATE_RUNS = {"independent": 1000, "linear": 300, "quadratic": 300, "circular": 300}
"""Under independence the estimate is skewed, so that more runs are needed for a mean that is near normal."""

ESTIMATED = ("independent", "linear", "quadratic", "circular")
POWER_LAWS = ("linear", "quadratic")
LARGEST = 500_000

LEVEL_UNITS = {"sketch": (100, 1000, 20_000), "pnc": (200, 2000), "pnc-disjoint": (200,)}
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
    error = found.distance_covariance_sqr - kept
    return {
        "exact": exact,
        "kept": kept,
        "error": error,
        "error squared": error**2,
        **_rejections("sketch", found.pvalue),
    }


def interval_run(law: str, n: int, run: int) -> Answers:
    """See whether the stated intervals hold the law's own values; other runs' rows than the estimates'."""
    x, y = draw(law, n, FIRST_INTERVAL_RUN + run)
    found = answer(x, y, [(0, 1), (0, 1)], run)
    truth, whole = kept_population_value(law, FREQUENCIES), population_value(law)
    lower, upper = found.verdict["covariance_lower"], found.verdict["covariance_upper"]
    assert found.truncation is not None
    answers: dict[str, float] = {
        "covariance covered": lower <= truth <= upper,
        "whole covariance covered": lower <= whole <= upper + found.truncation,
        "truncation bound": found.truncation,
        "width": upper - lower,
        "correlation stated": found.interval is not None,
    }
    if found.interval is not None:
        scale = kept_population_scale(law, FREQUENCIES)
        answers["correlation covered"] = found.interval[0] <= math.sqrt(truth / scale) <= found.interval[1]
    return answers


def variance_run(law: str, n: int, run: int) -> Answers:
    """Estimate one law's distance covariance at every epsilon, on the same rows."""
    x, y = draw(law, n, run)
    answers: dict[str, float] = {}
    for epsilon in EPSILONS:
        found = answer(x, y, [(0, 1), (0, 1)], run, epsilon).distance_covariance_sqr - population_value(law)
        answers |= {f"error | {epsilon:g}": found, f"error squared | {epsilon:g}": found**2}
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


def projection_noise(epsilon: float) -> float:
    """Return the deviation of the noise on every projection of one column, as the procedure lays it out."""
    event = gaussian_guarantee(Budget.of(epsilon, DELTA)).events[0]
    assert isinstance(event, GaussianEvent)
    part = ProjectionRelease(RowProjections(np.ones((1, 1))), disjoint=False).parts(1)[0]
    return part.sensitivity * event.noise_multiplier


def level_run(kind: str, n: int, method: str, run: int) -> Answers:
    """Test independent columns, at every epsilon of this n on the same rows."""
    x, y, bounds = without_dependence(kind, n, generator(kind, n, run))
    answers: dict[str, float] = {}
    for epsilon in LEVEL_EPSILONS[n]:
        pvalue = answer(x, y, bounds, run, epsilon, method).pvalue
        answers |= {level_question(method, epsilon, level): pvalue <= level for level in LEVELS}
    return answers


def _rejections(method: str, pvalue: float) -> dict[str, float]:
    return {f"{method} rejects | {level:g}": pvalue <= level for level in LEVELS}


def cells() -> list[Cell]:
    """List the cells: cheap ones first."""
    part = functools.partial
    made = [
        Cell(f"estimate {law} n={n}", ESTIMATE_RUNS[law], part(estimate_run, law, n))
        for n in UNITS
        for law in ESTIMATED
    ]
    made += [
        Cell(f"interval {law} n={n}", INTERVAL_RUNS, part(interval_run, law, n))
        for n in UNITS
        for law in ESTIMATED
    ]
    made += [
        Cell(f"variance {law} n={n}", VARIANCE_RUNS, part(variance_run, law, n))
        for n in VARIANCE_UNITS
        for law in VARIANCE_LAWS
    ]
    for method, sizes in LEVEL_UNITS.items():
        kinds = {"sketch": KINDS, "pnc": ("uniform", "vectors"), "pnc-disjoint": ("vectors",)}[method]
        made += [
            Cell(f"level {kind} {method} n={n}", LEVEL_RUNS, part(level_run, kind, n, method))
            for n in sizes
            for kind in kinds
        ]
    made += [Cell(f"pnc {law} n={n}", PNC_RUNS, part(pnc_run, law, n)) for n in UNITS for law in POWER_LAWS]
    made += [
        Cell(f"estimate {law} n={LARGEST}", LARGEST_RUNS, part(estimate_run, law, LARGEST))
        for law in POWER_LAWS
    ]
    return made + [
        Cell(f"pnc {law} n={LARGEST}", LARGEST_RUNS, part(pnc_run, law, LARGEST)) for law in POWER_LAWS
    ]


if __name__ == "__main__":
    main(__doc__, "distance-correlation", cells(), text)
