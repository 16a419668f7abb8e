"""The least budget, the fewest units, or the best of several choices for an effect, by simulation.

A search gallops and halves. Where it ends, more studies are simulated, and a curve is fitted to all those
nearby: the place is the least at which the fit reaches the target, and lies above the target less
:data:`SHORT_MAX` with confidence :data:`SURE`. What is then said of it comes from fresh studies, whatever
they show: numbers by which a place was chosen are flattered by the choice (docs/mathematics/planning.md).
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from scipy.special import ndtr, ndtri

from tacit.errors import InputError, StudyRefusedError
from tacit.planning.curve import Over, at
from tacit.planning.questions import Question
from tacit.planning.simulation import (
    ErrorPlan,
    Floats,
    Interval,
    Plan,
    Setting,
    SimulatedAnswers,
    fresh_seed,
    number,
    or_nothing,
    percent,
    simulate,
)
from tacit_protocol.privacy.guarantee import EPSILON_MAX
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.populations import Measure

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


TARGET = 0.8
"""Power that studies are commonly planned for."""

EPSILON_MIN = 1e-3
"""Smallest epsilon that is tried."""

UNITS_TRIED_MAX = 2_000_000
"""Most units that are tried with rows drawn; counts are drawn up to 10^9."""

UNITS_START, EPSILON_START = 1000, 1.0
"""Where a search starts."""

TRIES = 14.0
"""About how many settings a search tries; its progress slows down after that."""


@dataclass(frozen=True)
class SmallestPlan:
    """The smallest epsilon, or the fewest units, that reach a target.

    Attributes:
        over: "epsilon" or "n".
        smallest: the value; of n the units of each owner, a whole number.
        or_below: whether this is the least that is tried, so that less might do as well.
        target: the power that had to be reached, or the error.
        plan: the plan there, from fresh simulated studies that the search did not use.
        tried: every value tried with its simulated power (or error), in order; a study that is refused has
            none.
    """

    over: Over
    smallest: float | int
    or_below: bool
    target: float
    plan: Plan
    tried: tuple[tuple[float, float], ...]

    def words(self) -> str:
        """Say the plan in plain sentences."""
        what = "epsilon" if self.over == "epsilon" else "units each" if len(self.plan.n) > 1 else "units"
        value = f"{what} {self.smallest:.3g}" if self.over == "epsilon" else f"{number(self.smallest)} {what}"
        is_error = isinstance(self.plan, ErrorPlan)
        aim = f"an error of {percent(self.target)}" if is_error else f"a power of {self.target:g}"
        about = f"{value} or less" if self.or_below else f"about {value}"
        return f"{about[0].upper()}{about[1:]} for {aim}. {self.plan.words()}"


def require_target(target: float, measure: Measure) -> None:
    """Raise InputError where a target is no power, or no error."""
    if not 0 < target < (math.inf if measure == "error" else 1):
        raise InputError("target must be a power in (0, 1), or an error above 0 of what tests nothing")


def smallest(
    question: Question,
    over: Over,
    setting: Setting,
    *,
    target: float,
    runs: int,
    seed: int | None,
    progress: Progress | None = None,
) -> SmallestPlan:
    """Gallop from a start, then halve, in steps of 5 %; then refine, and confirm by fresh studies.

    As :func:`tacit.planning.plan_smallest`; what ``setting`` says of ``over`` is not used.

    Raises:
        InputError: the inputs do not fit together, or nothing that is tried reaches the target.
    """
    require_target(target, question.measure)
    if seed is None:
        seed = fresh_seed()
    tried: dict[float, SimulatedAnswers] = {}
    lowest, start, largest = _range(question, over)

    def simulate(step: float, times: int) -> Trial | None:
        place = _place(step, over)

        def report(part: float, words: str) -> None:
            if progress is not None:
                progress(1 - 0.5 ** ((len(tried) + part) * 3 / TRIES), f"{over} = {place:g}: {words}")

        there = at(question, setting, over, place)
        # Every place has luck of its own: the fit takes their studies for independent.
        luck = _seed(seed, len(tried), times)
        found = or_nothing(question, there, runs=times * runs, seed=luck, progress=report, rough=times == 1)
        tried[place] = tried[place].with_more(found) if place in tried else found
        if found.refused:
            return None
        if not question.measures_error:
            return Trial(found.mean, found.independent * len(found.values))
        return Trial(found.mean, len(found.values), float(found.values.var() / max(found.mean, 1e-12) ** 2))

    nowhere = f"not even {over} = {_place(largest, over):g} is enough: ask for a larger effect, or budget"
    search = Search(simulate, target, falling=question.measures_error)
    step = search.least(start, largest, lowest, nowhere)
    value = _place(step, over)
    confirmed = at(question, setting, over, value)
    fresh = or_nothing(question, confirmed, runs=CONFIRMED * runs, seed=_seed(seed, len(tried), CONFIRMED))
    values = tuple((place, tried[place].mean) for place in sorted(tried))
    return SmallestPlan(over, value, step == lowest, target, fresh.plan(), values)


def _seed(seed: int, place: int, times: int) -> int:
    return int(np.random.SeedSequence([seed, place, times]).generate_state(1)[0])


def _place(step: float, over: Over) -> float | int:
    value = math.exp(STEP * step)
    return math.ceil(value) if over == "n" else float(f"{value:.4g}")


def _range(question: Question, over: Over) -> tuple[int, int, int]:
    """Return the least step that is tried, the one where a search starts, and the largest."""
    if over == "epsilon":
        least, start, most = EPSILON_MIN, EPSILON_START, EPSILON_MAX
    else:
        least, start, most = 2, UNITS_START, UNITS_MAX if question.population.counted else UNITS_TRIED_MAX
    steps = [math.log(value) / STEP for value in (least, start, most)]
    return math.ceil(steps[0]), round(steps[1]), math.floor(steps[2])


Parameters = Mapping[str, Any]

CANDIDATES_MAX = 100


@dataclass(frozen=True)
class TriedChoice:
    """Parameters, and the power (or error) that the first simulated studies gave with its interval.

    ``value`` is None where the procedure refuses them.
    """

    parameters: Parameters
    value: float | None
    interval: Interval | None = None


@dataclass(frozen=True)
class ChoicePlan:
    """The best of several candidates.

    Attributes:
        best: the best candidate's parameters.
        plan: its plan, from fresh simulated studies: the number by which it won is flattered by the choice.
        tried: every candidate, the best first.
    """

    best: Parameters
    plan: Plan
    tried: tuple[TriedChoice, ...]

    def words(self) -> str:
        """Say the plan in plain sentences."""
        return f"Best of {len(self.tried)} choices: {parameters_words(self.best)}. {self.plan.words()}"


def parameters_words(parameters: Parameters) -> str:
    """Write parameters in a line."""
    return ", ".join(f"{name} = {value}" for name, value in parameters.items()) or "the procedure's defaults"


def choose(
    question: Question,
    setting: Setting,
    *,
    candidates: Sequence[Parameters] | None,
    runs: int,
    seed: int | None,
    progress: Progress | None = None,
) -> ChoicePlan:
    """Compare candidates on the same simulated studies; the first of equals wins.

    As :func:`tacit.planning.plan_choice`; a candidate's parameters replace the study's.

    Raises:
        InputError: the inputs do not fit together, or the procedure refuses every candidate.
    """
    listed = list(question.procedure.choices if candidates is None else candidates)
    if not 1 <= len(listed) <= CANDIDATES_MAX:
        raise InputError(f"give 1 to {CANDIDATES_MAX} candidates")
    choices: list[TriedChoice] = []
    refused = ""
    seed = fresh_seed() if seed is None else seed
    for index, candidate in enumerate(listed):

        def report(part: float, step: str, index: int = index) -> None:
            if progress is not None:
                progress((index + part) / (len(listed) + 1), step)

        try:
            tried = simulate(_changed(question, candidate), setting, runs=runs, seed=seed, progress=report)
        except StudyRefusedError as error:
            choices.append(TriedChoice(candidate, None))
            refused = str(error)
            continue
        choices.append(TriedChoice(candidate, tried.mean, tried.interval))
    sign = 1.0 if question.measures_error else -1.0
    choices.sort(key=lambda choice: math.inf if choice.value is None else sign * choice.value)
    best = choices[0]
    if best.value is None:
        raise InputError(f"the procedure takes none of these candidates at this size and budget: {refused}")
    fresh = simulate(_changed(question, best.parameters), setting, runs=runs, seed=seed + 1)
    return ChoicePlan(best.parameters, fresh.plan(), tuple(choices))


def _changed(question: Question, parameters: Parameters) -> Question:
    study = question.study
    changed = study.model_copy(update={"parameters": {**study.parameters, **parameters}})
    return replace(question, study=changed)
