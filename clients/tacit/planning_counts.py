"""How many units tests on noisy counts need, by simulation. Public inputs only; spends nothing."""

import math
from collections.abc import Callable

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit.planning_identity import (
    STEP,
    UNITS_MAX,
    SampleSizePlan,
    distribution,
    smallest_step,
    units_at,
)
from tacit_protocol.privacy.gaussian_sums import SensitivityError
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.privacy.noisy_counts import (
    count_noise,
    gaussian_count_guarantee,
    laplace_count_guarantee,
)
from tacit_protocol.procedures.base import Progress
from tacit_protocol.statistics.contingency import margins_of, product, residuals
from tacit_protocol.statistics.homogeneity import Weights
from tacit_protocol.statistics.identity_power import paninski
from tacit_protocol.statistics.noisy_tables import CellNoise

Floats = npt.NDArray[np.float64]

RUNS = 400
"""Simulated studies of each number of units, and of its null distribution."""


def plan_homogeneity(
    q: int | npt.ArrayLike,
    *,
    epsilon: float,
    distance: float = 0.1,
    other: npt.ArrayLike | None = None,
    delta: float = 0.0,
    rho: float | None = None,
    gaussian: bool = False,
    alpha: float = 0.05,
    miss: float = 0.2,
    runs: int = RUNS,
    seed: int | None = None,
    progress: Progress | None = None,
) -> SampleSizePlan:
    """Find the fewest units of each of two owners at which homogeneity misses a difference seldom enough.

    Args:
        q: the first owner's distribution, (k,), or a number of equally likely cells. Count the cells of other
            and missing values where the study has them.
        epsilon: what every owner would spend.
        distance: total variation distance of the second owner's, which has more and less in cells in turn.
        other: the second owner's distribution, (k,), in the place of ``distance``.
        delta: what every owner would spend.
        rho: zCDP of Gaussian noise.
        gaussian: whether the noise is Gaussian.
        alpha: level of the test: the first error.
        miss: the second error.
        runs: simulated studies for each number of units that is tried.
        seed: fixes the simulations.
        progress: called with the part done, in [0, 1], and the number of units that was tried.

    Raises:
        InputError: the inputs do not fit together, or no number of units up to 10^9 is enough.
    """
    one = np.full(q, 1 / q) if isinstance(q, int) and q >= 2 else distribution(np.asarray(q, dtype=float))
    two = distribution(other) if other is not None else _apart(one, distance)
    if two.shape != one.shape or np.allclose(one, two):
        raise InputError("other must be another distribution on the same cells")
    noise = _noise(epsilon, delta, rho, gaussian)

    def simulate(first: Floats, second: Floats, units: int, rng: np.random.Generator) -> Floats:
        weights = Weights.of(np.full(2, float(units)), np.full(2, noise.variance), len(first))
        shares = np.stack([_shares(each, units, noise, runs, rng) for each in (first, second)], axis=1)
        return np.asarray(weights.cells(shares)[1].sum(axis=-1))

    def power(units: int, rng: np.random.Generator) -> float:
        pooled = (one + two) / 2
        critical = np.quantile(simulate(pooled, pooled, units, rng), 1 - alpha)
        return float(np.mean(simulate(one, two, units, rng) > critical))

    found, reached = _fewest(power, (alpha, miss, epsilon, runs), seed, progress)
    return SampleSizePlan(
        units=found,
        power=reached,
        standard_error=math.sqrt(reached * (1 - reached) / runs),
        runs=runs,
        method=f"homogeneity of two owners, {noise.kind} noise",
        cells=len(one),
        distance=float(np.abs(one - two).sum() / 2),
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
    )


def plan_independence(
    table: npt.ArrayLike,
    *,
    epsilon: float,
    delta: float = 0.0,
    rho: float | None = None,
    gaussian: bool = False,
    alpha: float = 0.05,
    miss: float = 0.2,
    runs: int = RUNS,
    seed: int | None = None,
    progress: Progress | None = None,
) -> SampleSizePlan:
    """Find the fewest units at which independence_table misses a given dependence seldom enough.

    Args:
        table: the joint distribution that should be found, an axis for each column. Add cells of probability
            0 for other and missing values where the study has them.
        epsilon: what the owner would spend.
        delta: what the owner would spend.
        rho: zCDP of Gaussian noise.
        gaussian: whether the noise is Gaussian.
        alpha: level of the test: the first error.
        miss: the second error.
        runs: simulated studies for each number of units that is tried.
        seed: fixes the simulations.
        progress: called with the part done, in [0, 1], and the number of units that was tried.

    Raises:
        InputError: the inputs do not fit together, or no number of units up to 10^9 is enough.
    """
    given = np.asarray(table, dtype=np.float64)
    if given.ndim < 2 or min(given.shape) < 2:
        raise InputError("a table has at least two axes, each of at least two cells")
    joint, shape = distribution(given.ravel()), given.shape
    independent = product(margins_of(joint, shape))
    if np.allclose(joint, independent):
        raise InputError("the columns of the table are independent: there is nothing to be found")
    noise = _noise(epsilon, delta, rho, gaussian)

    def simulate(probabilities: Floats, units: int, rng: np.random.Generator) -> Floats:
        shares = _shares(probabilities, units, noise, runs, rng)
        return residuals(shares, shape, units, noise.variance / units**2).statistics

    def power(units: int, rng: np.random.Generator) -> float:
        critical = np.quantile(simulate(independent, units, rng), 1 - alpha)
        return float(np.mean(simulate(joint, units, rng) > critical))

    found, reached = _fewest(power, (alpha, miss, epsilon, runs), seed, progress)
    return SampleSizePlan(
        units=found,
        power=reached,
        standard_error=math.sqrt(reached * (1 - reached) / runs),
        runs=runs,
        method=f"independence_table, {noise.kind} noise",
        cells=len(joint),
        distance=float(np.abs(joint - independent).sum() / 2),
        epsilon=epsilon,
        delta=delta,
        alpha=alpha,
    )


def _fewest(
    power: Callable[[int, np.random.Generator], float],
    asked: tuple[float, float, float, int],
    seed: int | None,
    progress: Progress | None,
) -> tuple[int, float]:
    """Return the fewest units that are enough, and their power."""
    alpha, miss, epsilon, runs = asked
    if not (0 < alpha < 0.5 and 0 < miss < 1 and epsilon > 0 and runs >= 1):
        raise InputError("alpha must lie in (0, 0.5), miss in (0, 1); epsilon and runs must be positive")
    tried: dict[int, float] = {}

    def enough(step: int) -> bool:
        if progress is not None:
            progress(1 - 0.8 ** (len(tried) + 1), f"simulating {units_at(step)} units")
        if step not in tried:
            rng = np.random.default_rng(np.random.SeedSequence([seed or 0, step]))
            tried[step] = power(units_at(step), rng)
        return tried[step] >= 1 - miss

    found = smallest_step(enough, min(round(math.log(1000) / STEP), math.floor(math.log(UNITS_MAX) / STEP)))
    enough(found)
    return units_at(found), tried[found]


def _apart(one: Floats, distance: float) -> Floats:
    whole = float(np.abs(paninski(one, 1.0) - one).sum() / 2)
    if not 0 < distance <= whole:
        raise InputError(f"distance must lie between 0 and {whole:.3g} here; or pass other")
    return paninski(one, distance / whole)


def _noise(epsilon: float, delta: float, rho: float | None, gaussian: bool) -> CellNoise:
    try:
        budget = Budget.of(epsilon, delta)
        if gaussian or rho is not None:
            return CellNoise("gaussian", count_noise(gaussian_count_guarantee(budget, rho))[1])
        return CellNoise("laplace", count_noise(laplace_count_guarantee(budget))[1])
    except (ValueError, ArithmeticError, SensitivityError) as error:
        raise InputError(f"epsilon and delta: {error}") from None


def _shares(
    probabilities: Floats, units: int, noise: CellNoise, runs: int, rng: np.random.Generator
) -> Floats:
    counts = rng.multinomial(units, probabilities, size=runs)
    return np.asarray((counts + noise.draw(rng, counts.shape)) / units)
