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

Floats = npt.NDArray[np.float64]

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


def smallest_step(
    enough: Callable[[int], bool],
    start: int,
    largest: int,
    *,
    lowest: int,
    nowhere: str,
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
