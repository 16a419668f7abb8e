"""How many units an identity test needs, by simulation. Public inputs only; spends nothing."""

import math
from collections.abc import Callable
from dataclasses import dataclass
from typing import Literal

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit_protocol.privacy.calibration import gaussian_mu
from tacit_protocol.procedures.base import Progress
from tacit_protocol.statistics.identity_power import PlannedIdentity, first_guess, paninski
from tacit_protocol.statistics.privit import PrivitRefusedError
from tacit_protocol.statistics.repetition import RepetitionRefusedError

Floats = npt.NDArray[np.float64]

RUNS, DRAWS = 400, 999
"""Simulated studies of each number of units, and of a null distribution."""

STEP = 0.05
"""Logarithm of the steps in which numbers of units are tried."""

UNITS_MAX = 10**9
"""Largest number of units that is tried."""

Method = Literal["privit", "privit-laplace", "mcgof", "zcdp-gof", "repetition"]


@dataclass(frozen=True)
class SampleSizePlan:
    """The fewest units at which a test finds what is looked for often enough.

    Attributes:
        units: the number, good to about 5 %.
        power: the simulated power at that number.
        standard_error: of ``power``.
        runs: simulated studies behind it.
        method: of the procedure.
        cells: number of cells.
        distance: total variation distance of the alternative.
        epsilon: what the owner would spend.
        delta: what the owner would spend.
        alpha: level of the test, its first error.
    """

    units: int
    power: float
    standard_error: float
    runs: int
    method: str
    cells: int
    distance: float
    epsilon: float
    delta: float
    alpha: float


def plan_identity(
    q: int | npt.ArrayLike,
    *,
    epsilon: float,
    distance: float = 0.1,
    other: npt.ArrayLike | None = None,
    delta: float = 0.0,
    alpha: float = 0.05,
    miss: float = 0.2,
    method: Method = "mcgof",
    rho: float | None = None,
    runs: int = RUNS,
    seed: int | None = None,
    progress: Progress | None = None,
) -> SampleSizePlan:
    """Find the fewest units at which an identity test misses an alternative ``miss`` of the time at most.

    Args:
        q: the known distribution, (k,), or a number of equally likely cells.
        epsilon: what the owner would spend.
        distance: total variation distance of the alternative, which makes cells larger and smaller in turn.
        other: the alternative itself, (k,), in the place of ``distance``.
        delta: what the owner would spend; zcdp-gof needs it.
        alpha: level of the test: the first error.
        miss: the second error.
        method: of the procedure.
        rho: zCDP of zcdp-gof; by default the largest that epsilon and delta allow.
        runs: simulated studies for each number of units that is tried.
        seed: fixes the simulations.
        progress: called with the part done, in [0, 1], and the number of units that was tried.

    Raises:
        InputError: the inputs do not fit together, or no number of units up to 10^9 is enough.
    """
    known, alternative = _pair(q, distance, other)
    apart = float(np.abs(known - alternative).sum() / 2)
    if not (0 < alpha < 0.5 and 0 < miss < 1 and epsilon > 0 and runs >= 1):
        raise InputError("alpha must lie in (0, 0.5), miss in (0, 1); epsilon and runs must be positive")
    if method == "zcdp-gof" and rho is None:
        if not 0 < delta < 1:
            raise InputError("zcdp-gof needs a delta above 0, such as 1e-6, or rho")
        rho = gaussian_mu(epsilon, delta) ** 2 / 2

    def power(units: int, label: int) -> float:
        plan = PlannedIdentity(
            method, known, units, epsilon, alpha, delta=delta, rho=rho, distance=min(1.0, apart)
        )
        try:
            return plan.rates(alternative, runs, DRAWS, np.random.SeedSequence([seed or 0, label])).true
        except (PrivitRefusedError, RepetitionRefusedError):
            return 0.0

    tries = 0

    def enough(step: int) -> bool:
        nonlocal tries
        tries += 1
        if progress is not None:
            progress(1 - 0.8**tries, f"simulating {units_at(step)} units")
        return power(units_at(step), step) >= 1 - miss

    guess = first_guess(method, len(known), max(apart, 1e-6), epsilon, rho or 1.0)
    found = smallest_step(enough, round(math.log(max(guess, 10.0)) / STEP))
    reached = power(units_at(found), found)
    error = math.sqrt(reached * (1 - reached) / runs)
    return SampleSizePlan(
        units_at(found), reached, error, runs, method, len(known), apart, epsilon, delta, alpha
    )


def units_at(step: int) -> int:
    """Return the number of units that a step stands for."""
    return math.ceil(math.exp(STEP * step))


def smallest_step(enough: Callable[[int], bool], start: int) -> int:
    """Return the smallest step that is enough: gallop from a start, then halve."""
    largest = math.floor(math.log(UNITS_MAX) / STEP)
    low, high, step, stride = 0, None, min(start, largest), 4
    while high is None:
        if enough(step):
            high = step
        elif step == largest:
            raise InputError("not even 10^9 units are enough: ask for a larger epsilon, distance or error")
        else:
            low, step, stride = step, min(step + stride, largest), 2 * stride
    step, stride = high - 4, 8
    while step > low and enough(step):
        high, step, stride = step, step - stride, 2 * stride
    low = max(low, step)
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (low, middle) if enough(middle) else (middle, high)
    return high


def _pair(q: int | npt.ArrayLike, distance: float, other: npt.ArrayLike | None) -> tuple[Floats, Floats]:
    if isinstance(q, int):
        if q < 2:
            raise InputError("a distribution needs at least two cells")
        known = np.full(q, 1 / q)
    else:
        known = distribution(q)
    if other is not None:
        alternative = distribution(other)
        if alternative.shape != known.shape or np.allclose(alternative, known):
            raise InputError("other must be another distribution on the same cells")
        return known, alternative
    whole = float(np.abs(paninski(known, 1.0) - known).sum() / 2)
    if not 0 < distance <= whole:
        raise InputError(f"distance must lie between 0 and {whole:.3g} here; or pass other")
    return known, paninski(known, distance / whole)


def distribution(values: npt.ArrayLike) -> Floats:
    """Return probabilities (k,); raises InputError where they are none."""
    found = np.asarray(values, dtype=np.float64)
    if found.ndim != 1 or len(found) < 2 or not np.all(found >= 0) or abs(found.sum() - 1) > 1e-6:
        raise InputError("a distribution is a vector of at least two probabilities that add up to 1")
    return np.asarray(found / found.sum())
