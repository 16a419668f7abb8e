"""The fewest units, or the smallest budget, at which a test finds what is looked for: what such plans share.

A search gallops and halves. Where it ends, more studies are simulated, and a curve is fitted to all those
nearby: the place is the least at which the fit reaches the target, and lies above the target less
:data:`SHORT_MAX` with confidence :data:`SURE`. What is then said of it comes from fresh studies, whatever
they show: numbers by which a place was chosen are flattered by the choice (docs/mathematics/planning.md).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr, ndtri

from tacit.errors import InputError
from tacit.planning.simulation import Interval, exact_interval
from tacit_protocol.features.cell_counts import CELLS_MAX
from tacit_protocol.messages.study import LEVEL_MIN
from tacit_protocol.numerics import noisy_tables
from tacit_protocol.numerics.noisy_tables import paninski, total_variation
from tacit_protocol.privacy.guarantee import EPSILON_MAX
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.identity.simulate import BATCH_NUMBERS

Floats = npt.NDArray[np.float64]

Power = Callable[[int, int, int, np.random.SeedSequence], int | None]
"""Counts the rejections of simulated studies of so many units, with so many null distributions; None where
the method does not take so few units."""

Scores = Callable[[int, np.random.Generator], Floats]
"""Draws so many statistics, (n,), larger where more is to be seen; of a null distribution (values, n)."""

RUNS = 400
"""Simulated studies of each number of units."""

REFINEMENTS, REFINED, CONFIRMED = 3, 2, 4
"""After the search so many places near the target are simulated, with so many times the runs each; and the
place found, once more, with so many times the runs."""

SHORT_MAX, SURE = 0.02, 0.9
"""How far the power at the place found may fall short of the target, and how sure it is that it does not."""

SHORT_PART = 0.05
"""The same of errors that are not to be exceeded, as a part of the target."""

WINDOW = 5.0
"""Steps to either side within which a curve is fitted."""

STEP = 0.05
"""Logarithm of the steps in which numbers of units are tried."""

UNITS_MAX = 10**9
"""Largest number of units that is tried."""

STEP_MAX = math.floor(math.log(UNITS_MAX) / STEP)

DRAWS_MIN, DRAWS_MAX = 999, 99_999
"""Simulations of a null distribution: ten beyond the critical value where that is between these."""

NULL_PART, STUDIES_MAX = 0.2, 50
"""Of the variance of a share of rejections, what null distributions add that its studies have in common; and
most studies that have one in common: a study draws it from its own noisy table."""

NULLS_SEARCHED = 2
"""Null distributions of each number of units that a search tries."""

NOWHERE = "not even 10^9 units are enough: ask for a larger epsilon, distance or error"


@dataclass(frozen=True)
class SampleSizePlan:
    """The fewest units at which a test finds what is looked for often enough.

    Attributes:
        units: the number, good to about 3 %.
        power: the simulated power at that number, of fresh studies that the search did not use.
        interval: of confidence .95 for the power.
        found: how many of those studies found it.
        runs: how many studies those are.
        method: of the procedure.
        cells: number of cells.
        distance: total variation distance of the alternative.
        epsilon: what the owner would spend.
        delta: what the owner would spend.
        alpha: level of the test, its first error.
    """

    units: int
    power: float
    interval: Interval
    found: int
    runs: int
    method: str
    cells: int
    distance: float
    epsilon: float
    delta: float
    alpha: float


@dataclass(frozen=True)
class Trial:
    """What studies of one setting answered on average.

    ``runs`` are how many independent studies that is worth. ``variation`` is the squared coefficient of
    variation of errors, and None of shares of rejections.
    """

    mean: float
    runs: float
    variation: float | None = None


@dataclass
class Search:
    """Looks for the least step at which ``target`` is reached: a power, or an error not to be exceeded.

    ``simulate`` takes a step, how many times the usual runs, and returns None where the procedure refuses.
    """

    simulate: Callable[[float, int], Trial | None]
    target: float
    falling: bool = False
    trials: dict[float, Trial] = field(default_factory=dict)
    refused: set[float] = field(default_factory=set)

    def least(self, start: int, largest: int, lowest: int, nowhere: str) -> float:
        """Return the step. Raises InputError, with the words ``nowhere``, where not even the largest does."""
        found = smallest_step(self._enough, start, largest, lowest=lowest, nowhere=nowhere)
        if found == lowest:
            return found
        place = float(found)
        for _ in range(REFINEMENTS):
            place = self._fitted(place)
            self._try(place, REFINED)
        return self._fitted(place)

    def _enough(self, step: int) -> bool:
        if step not in self.trials and step not in self.refused:
            self._try(step, 1)
        if step in self.refused:
            return False
        mean = self.trials[step].mean
        return mean <= self.target if self.falling else mean >= self.target

    def _try(self, step: float, times: int) -> None:
        trial = self.simulate(step, times)
        if trial is None:
            self.refused.add(step)
        elif (before := self.trials.get(step)) is None:
            self.trials[step] = trial
        else:
            runs = before.runs + trial.runs
            mean = (before.mean * before.runs + trial.mean * trial.runs) / runs
            self.trials[step] = Trial(mean, runs, trial.variation)

    def _fitted(self, near: float) -> float:
        """Return the least place that reaches the target by the fit, and surely nearly; else ``near``."""
        steps = sorted(step for step in self.trials if abs(step - near) <= WINDOW)
        first = min(step for step in self.trials if step > max(self.refused, default=-math.inf))
        if len(steps) < 2:
            return max(near, first)
        line = Line.through([self.trials[step] for step in steps], np.array(steps) - near)
        if line is None:
            return max(near, first)
        short = self.target * (1 + SHORT_PART) if self.falling else max(self.target - SHORT_MAX, 0.0)
        offsets = np.arange(-10 * WINDOW, 10 * WINDOW + 1) / 10
        height, error = line.at(offsets)
        reached = height >= _height(self.target, self.falling)
        surely = height - float(ndtri(SURE)) * error >= _height(short, self.falling)
        good = offsets[reached & surely] if (reached & surely).any() else offsets[reached]
        return max(near + float(good[0]), first) if len(good) else max(near, first)


@dataclass(frozen=True)
class Line:
    """Power, on the scale of normal quantiles, or the logarithm of an error, downward: linear in the step."""

    coefficients: Floats
    covariance: Floats

    @classmethod
    def through(cls, trials: "list[Trial]", steps: Floats) -> "Line | None":
        """Fit by Fisher's scoring, to the maximum of the likelihood; None where nothing rises."""
        falling = trials[0].variation is not None
        runs = np.array([trial.runs for trial in trials])
        means = np.array([trial.mean for trial in trials])
        # Half a study more or less: a share of none, or of all, has no quantile.
        means = np.maximum(means, 1e-12) if falling else np.clip(means, 0.5 / runs, 1 - 0.5 / runs)
        variation = float(np.mean([trial.variation or 0.0 for trial in trials])) or 1e-6
        design = np.stack([np.ones_like(steps), steps], axis=1)
        heights = np.array([_height(mean, falling) for mean in means])
        for _ in range(30):
            if falling:
                expected = np.exp(-heights)
                slopes, variances = -expected, expected**2 * variation / runs
            else:
                heights = np.clip(heights, -4.0, 4.0)
                expected = ndtr(heights)
                slopes = np.exp(-(heights**2) / 2) / math.sqrt(2 * math.pi)
                variances = expected * (1 - expected) / runs
            weights = slopes**2 / variances
            information = design.T @ (design * weights[:, None])
            working = heights + (means - expected) / slopes
            try:
                covariance = np.linalg.inv(information)
            except np.linalg.LinAlgError:
                return None
            coefficients = covariance @ (design.T @ (weights * working))
            heights = design @ coefficients
        rises = bool(np.all(np.isfinite(coefficients))) and coefficients[1] > 0
        return cls(coefficients, covariance) if rises else None

    def at(self, steps: Floats) -> tuple[Floats, Floats]:
        """Return heights and their standard errors."""
        design = np.stack([np.ones_like(steps), steps], axis=1)
        return design @ self.coefficients, np.sqrt(np.einsum("ij,jk,ik->i", design, self.covariance, design))


def _height(mean: float, falling: bool) -> float:
    return -math.log(mean) if falling else float(ndtri(mean))


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

    @property
    def draws(self) -> int:
        """Simulations of a null distribution."""
        return min(DRAWS_MAX, max(DRAWS_MIN, math.ceil(10 / self.alpha) - 1))

    def nulls(self, runs: int) -> int:
        """Return how many null distributions so many studies need, so that these say what is theirs.

        An error e of a test's level moves its power by e phi(z_miss)/phi(z_alpha).
        """
        moved = math.exp((float(ndtri(self.alpha)) ** 2 - float(ndtri(self.miss)) ** 2) / 2)
        of_null = moved**2 * self.alpha * (1 - self.alpha) / self.draws
        needed = of_null * runs / (NULL_PART * self.miss * (1 - self.miss))
        return math.ceil(max(needed, runs / STUDIES_MAX))

    def rejections(self, null: Scores, drawn: Scores, runs: int, nulls: int, rng: np.random.Generator) -> int:
        """Count rejections at the level: the studies share so many simulated null distributions."""
        rejected = 0
        for part in np.array_split(np.arange(runs), min(runs, nulls)):
            statistics = drawn(len(part), rng)
            # Where a null distribution has values that nobody knows, the largest of their p-values counts.
            within = [
                np.searchsorted(own, statistics, side="left")
                for own in np.sort(np.atleast_2d(null(self.draws, rng)))
            ]
            larger = self.draws - np.min(within, axis=0)
            rejected += int(np.sum((1 + larger) / (self.draws + 1) <= self.alpha))
        return rejected

    def plan(
        self, method: str, pair: tuple[Floats, Floats], power: Power, start: float, progress: Progress | None
    ) -> SampleSizePlan:
        """Find the fewest units, starting a search at about ``start``.

        ``pair`` is the null distribution and the alternative, (k,) each. Raises InputError where no number of
        units up to 10^9 is enough.
        """
        if self.alpha * (self.draws + 1) < 1:
            raise InputError(f"alpha: no test simulates null distributions for levels below {1e-5:g}")

        def simulate(step: float, times: int) -> Trial | None:
            units, runs = units_at(step), times * self.runs
            if progress is not None:
                progress(1 - 0.8 ** (len(search.trials) + 1), f"simulating {units} units")
            # What few null distributions add is about as much as the studies' own variance.
            nulls = NULLS_SEARCHED if times == 1 else self.nulls(runs)
            found = power(units, runs, nulls, np.random.SeedSequence([self.seed or 0, times, units]))
            return None if found is None else Trial(found / runs, runs / 2 if times == 1 else runs)

        search = Search(simulate, 1 - self.miss)
        units = units_at(search.least(round(math.log(max(start, 10.0)) / STEP), STEP_MAX, 1, NOWHERE))
        runs = CONFIRMED * self.runs
        fresh = np.random.SeedSequence([self.seed or 0, CONFIRMED, units])
        found = power(units, runs, self.nulls(runs), fresh) or 0
        return SampleSizePlan(
            units=units,
            power=found / runs,
            interval=exact_interval(found, runs),
            found=found,
            runs=runs,
            method=method,
            cells=len(pair[0]),
            distance=total_variation(*pair),
            epsilon=self.epsilon,
            delta=self.delta,
            alpha=self.alpha,
        )


def units_at(step: float) -> int:
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


def seed_from(rng: np.random.Generator) -> np.random.SeedSequence:
    """Draw a seed."""
    return np.random.SeedSequence([int(word) for word in rng.integers(2**32, size=4)])


def in_batches(some: Scores, numbers: int) -> Scores:
    """Return what draws in batches, each statistic of so many numbers, which are not held all at once."""
    batch = max(1, BATCH_NUMBERS // numbers)

    def drawn(count: int, rng: np.random.Generator) -> Floats:
        sizes = [min(batch, count - done) for done in range(0, count, batch)]
        return np.concatenate([some(size, rng) for size in sizes])

    return drawn


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
        return noisy_tables.distribution(values)
    except noisy_tables.DistributionError as error:
        raise InputError(str(error)) from None
