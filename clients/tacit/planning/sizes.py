"""The fewest units at which a test finds what is looked for: what plans of sample sizes share."""

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit_protocol.messages.study import LEVEL_MIN
from tacit_protocol.privacy.guarantee import EPSILON_MAX
from tacit_protocol.procedures.base import Progress
from tacit_protocol.statistics.cell_counts import CELLS_MAX
from tacit_protocol.statistics.identity_power import paninski

Floats = npt.NDArray[np.float64]

Power = Callable[[int, np.random.SeedSequence], float]
"""Simulates the power of a test of so many units."""

RUNS = 400
"""Simulated studies of each number of units."""

STEP = 0.05
"""Logarithm of the steps in which numbers of units are tried."""

UNITS_MAX = 10**9
"""Largest number of units that is tried."""

STEP_MAX = math.floor(math.log(UNITS_MAX) / STEP)

NOWHERE = "not even 10^9 units are enough: ask for a larger epsilon, distance or error"


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


@dataclass(frozen=True)
class Goal:
    """What a plan has to reach: the first error ``alpha``, the second ``miss``, by ``runs`` simulations.

    Raises InputError where they make no sense.
    """

    epsilon: float
    delta: float
    alpha: float
    miss: float
    runs: int
    seed: int | None

    def __post_init__(self) -> None:
        if not (LEVEL_MIN <= self.alpha < 0.5 and 0 < self.miss < 1):
            raise InputError(f"alpha must lie in (0, 0.5), and be {LEVEL_MIN:g} at least; miss in (0, 1)")
        if not (0 < self.epsilon <= EPSILON_MAX and self.runs > 0):
            raise InputError(f"epsilon and runs must be positive and finite, epsilon {EPSILON_MAX} at most")
        if not 0 <= self.delta < 1:
            raise InputError("delta must lie in [0, 1)")
        if self.seed is not None and self.seed < 0:
            raise InputError("seed must be a whole number, not negative")

    def plan(
        self, method: str, pair: tuple[Floats, Floats], power: Power, start: float, progress: Progress | None
    ) -> SampleSizePlan:
        """Find the fewest units, starting a search at about ``start``.

        ``pair`` is the null distribution and the alternative, (k,) each. Raises InputError where no number of
        units up to 10^9 is enough.
        """
        tried: dict[int, float] = {}

        def enough(step: int) -> bool:
            if progress is not None:
                progress(1 - 0.8 ** (len(tried) + 1), f"simulating {units_at(step)} units")
            if step not in tried:
                tried[step] = power(units_at(step), np.random.SeedSequence([self.seed or 0, step]))
            return tried[step] >= 1 - self.miss

        found = smallest_step(enough, round(math.log(max(start, 10.0)) / STEP))
        enough(found)
        reached = tried[found]
        return SampleSizePlan(
            units=units_at(found),
            power=reached,
            standard_error=math.sqrt(reached * (1 - reached) / self.runs),
            runs=self.runs,
            method=method,
            cells=len(pair[0]),
            distance=total_variation(*pair),
            epsilon=self.epsilon,
            delta=self.delta,
            alpha=self.alpha,
        )


def units_at(step: int) -> int:
    """Return the number of units that a step stands for."""
    return math.ceil(math.exp(STEP * step))


def smallest_step(
    enough: Callable[[int], bool],
    start: int,
    largest: int = STEP_MAX,
    *,
    lowest: int = 1,
    nowhere: str = NOWHERE,
) -> int:
    """Return the smallest step, from ``lowest`` to ``largest``, that is enough: gallop, then halve.

    Raises:
        InputError: not even the largest is; the message is ``nowhere``.
    """
    low, high, step, stride = lowest - 1, None, min(max(start, lowest), largest), 4
    while high is None:
        if enough(step):
            high = step
        elif step == largest:
            raise InputError(nowhere)
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


def total_variation(one: Floats, other: Floats) -> float:
    """Return the total variation distance of two distributions, (k,) each."""
    return float(np.abs(one - other).sum() / 2)


def distributions(
    q: int | npt.ArrayLike, distance: float, other: npt.ArrayLike | None
) -> tuple[Floats, Floats]:
    """Return a known distribution, by default of ``q`` equal cells, and its alternative, (k,) each.

    The alternative is ``other``, or at that total variation distance, more and less in cells in turn. Raises
    InputError where they are none, or the same.
    """
    known = _uniform(q) if isinstance(q, int) else distribution(q)
    if other is not None:
        alternative = distribution(other)
        if alternative.shape != known.shape or np.allclose(alternative, known):
            raise InputError("other must be another distribution on the same cells")
        return known, alternative
    whole = total_variation(paninski(known, 1.0), known)
    if not 0 < distance <= whole:
        raise InputError(f"distance must lie between 0 and {whole:.3g} here; or pass other")
    return known, paninski(known, distance / whole)


def _uniform(cells: int) -> Floats:
    if not 2 <= cells <= CELLS_MAX:
        raise InputError(f"a distribution needs at least two cells, and has {CELLS_MAX} at most")
    return np.full(cells, 1 / cells)


def distribution(values: npt.ArrayLike) -> Floats:
    """Return probabilities (k,); raises InputError where they are none."""
    try:
        found = np.asarray(values, dtype=np.float64)
    except (TypeError, ValueError):
        raise InputError("a distribution is a vector of numbers") from None
    if found.ndim != 1 or len(found) < 2 or not np.all(found >= 0) or not abs(found.sum() - 1) <= 1e-6:
        raise InputError("a distribution is a vector of at least two probabilities that add up to 1")
    if len(found) > CELLS_MAX:
        raise InputError(f"a distribution has {CELLS_MAX} cells at most")
    return np.asarray(found / found.sum())
