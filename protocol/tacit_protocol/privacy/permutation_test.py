"""A private permutation test: the decision leaves, and nothing else. docs/mathematics/permutation-tests.md.

Kim and Schrab, *Differentially private permutation tests* (2023), add Laplace noise to the statistic of the
data and to those of the permuted data, and compare. Where replacing one privacy unit moves the observed
statistic by at most Delta and no permuted one by more than Delta', noise of scale (Delta + Delta') / xi on
all of them makes the decision xi-differentially private, whatever the number of permutations; with xi =
epsilon - log(1 - delta) it is (epsilon, delta)-differentially private. (They take Delta' = Delta.)
Noisy statistics, their ranks and the p-value are not private at that price: the module hands out one bit.
"""

import math
from dataclasses import dataclass, field
from fractions import Fraction

import numpy as np
import numpy.typing as npt

from tacit_protocol.privacy.guarantee import ApproximateEvent, Budget, Guarantee
from tacit_protocol.privacy.noise import NoiseSource, scale_fits

SENSITIVITY_BITS = 24
"""A sensitivity is 2**24 to 2**25 grid steps: rounding to the grid then adds less than 1e-7 of the noise, and
statistics of up to 10**10 sensitivities still fit 62 bits with their noise."""

XI_SLACK = 1e-12
"""Relative part of xi given away for the rounding of a logarithm, a sum and a division."""

STATISTIC_STEPS_MAX = 2**60
"""Statistics beyond it, in grid steps, count as it, which moves no two of them further apart."""


def decision_guarantee(budget: Budget) -> Guarantee:
    """Return the guarantee of one decision that uses the whole budget; delta may be 0."""
    event = ApproximateEvent(epsilon=budget.epsilon, delta=budget.delta)
    return Guarantee(budget=budget, events=(event,))


def decision_xi(budget: Budget) -> float:
    """Return xi, the pure epsilon whose decisions are (epsilon, delta)-private; rounded down."""
    return (budget.epsilon - math.log1p(-budget.delta)) * (1 - XI_SLACK)


def rank_max(level: float, statistics: int) -> int:
    """Return the largest rank of the observed statistic, among all of them, at which the test rejects.

    The rank is 1 + the number of permuted statistics that are at least as large; rejecting where rank /
    statistics <= level. The level stands for the decimal that it is written as. 0: the test never rejects.

    >>> rank_max(0.05, 1000), rank_max(0.29, 100), rank_max(0.01, 99)
    (50, 29, 0)
    """
    return math.floor(Fraction(str(level)) * statistics)


def permutation_decision(
    statistics: npt.NDArray[np.float64],
    sensitivity: float,
    level: float,
    budget: Budget,
    noise: NoiseSource,
    *,
    permuted_sensitivity: float | None = None,
) -> bool:
    """Decide whether the observed statistic is large among the permuted ones, privately.

    ``statistics`` is (B + 1,) float64: the observed one first, then those of B random permutations drawn
    without looking at the data. ``sensitivity`` bounds what replacing one privacy unit moves the observed
    one by, and ``permuted_sensitivity`` (None: the same) every other one, with the permutations held fixed
    and every error of evaluation included. Under the null hypothesis (the B + 1 statistics are exchangeable)
    the test rejects with probability at most ``level``, for any B; ties count against rejection.

    Returns whether to reject. No other function of the noisy statistics may leave the owner.

    Raises ValueError where the level is below 1 / (B + 1), or a sensitivity is not positive and finite: of
    public numbers. Whatever the statistics are, there is a decision.
    """
    comparison = prepare_comparison(
        statistics, sensitivity, level, budget, permuted_sensitivity=permuted_sensitivity
    )
    return bool(comparison.rejects(noise.laplace(comparison.steps, comparison.scale)))


@dataclass(frozen=True)
class NoisyComparison:
    """What noise is added to, and which noisy statistics reject: the two parts of a decision."""

    steps: npt.NDArray[np.int64] = field(repr=False)
    """Statistics in grid steps, (B + 1,)."""
    scale: float
    """Of the Laplace noise that each needs, in grid steps."""
    rank: int
    """The largest rank of the observed statistic that rejects."""

    def rejects(self, noisy: npt.NDArray[np.int64]) -> npt.NDArray[np.bool_]:
        """Say whether noisy statistics, (..., B + 1), reject, (...)."""
        larger = np.count_nonzero(noisy[..., 1:] >= noisy[..., :1], axis=-1)
        return np.asarray(1 + larger <= self.rank)


def prepare_comparison(
    statistics: npt.NDArray[np.float64],
    sensitivity: float,
    level: float,
    budget: Budget,
    *,
    permuted_sensitivity: float | None = None,
) -> NoisyComparison:
    """Return what :func:`permutation_decision` adds noise to and compares; arguments and errors are its."""
    rank = rank_max(level, len(statistics))
    if rank < 1:
        raise ValueError("the level is below 1 / (permutations + 1): the test could never reject")
    permuted = sensitivity if permuted_sensitivity is None else permuted_sensitivity
    exponent, xi = _grid_exponent(min(sensitivity, permuted)), decision_xi(budget)

    def scale() -> float:
        moved = _steps_moved(sensitivity, exponent) + _steps_moved(permuted, exponent)
        return math.nextafter(moved / xi, math.inf)

    while not scale_fits(scale()):  # on a coarser grid it is fewer steps
        exponent -= 1
    return NoisyComparison(_on_grid(statistics, exponent), scale(), rank)


def _grid_exponent(sensitivity: float) -> int:
    """Return e such that the grid has steps of 2**-e."""
    if not (math.isfinite(sensitivity) and sensitivity > 0):
        raise ValueError("the sensitivity must be positive and finite")
    return SENSITIVITY_BITS + 1 - math.frexp(sensitivity)[1]


def _on_grid(statistics: npt.NDArray[np.float64], exponent: int) -> npt.NDArray[np.int64]:
    """Return the statistics in grid steps, rounded; scaling by a power of two is exact."""
    if statistics.ndim != 1:
        raise ValueError("the statistics must be a vector of numbers")
    with np.errstate(over="ignore"):
        scaled = np.nan_to_num(np.rint(np.ldexp(np.asarray(statistics, dtype=np.float64), exponent)))
    return np.asarray(np.clip(scaled, -STATISTIC_STEPS_MAX, STATISTIC_STEPS_MAX).astype(np.int64))


def _steps_moved(sensitivity: float, exponent: int) -> int:
    """Return how many steps apart two numbers may round that are ``sensitivity`` apart."""
    if not (math.isfinite(sensitivity) and sensitivity > 0):
        raise ValueError("the sensitivity must be positive and finite")
    return math.floor(math.ldexp(sensitivity, exponent)) + 1
