"""The least budget, the fewest units, or the best of several choices for an effect, by simulation."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from tacit.errors import InputError, StudyRefusedError
from tacit.planning.curve import Over, at
from tacit.planning.questions import Question
from tacit.planning.simulation import (
    ErrorPlan,
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
from tacit.planning.sizes import CONFIRMED, STEP, STEP_MAX, Search, Trial
from tacit_protocol.privacy.guarantee import EPSILON_MAX
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.populations import Measure

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

    Args:
        question: the study and what it should find.
        over: what is searched.
        setting: all the rest; what it says of ``over`` is not used.
        target: power in (0, 1) to be reached, or error above 0 not to be exceeded.
        runs: simulated studies of each setting that is tried; four times as many of the one found.
        seed: fixes the simulations.
        progress: called with the part done, in [0, 1], and the step.

    Raises:
        InputError: the inputs do not fit together, or nothing that is tried reaches the target.
    """
    require_target(target, question.measure)
    if seed is None:
        seed = fresh_seed()
    tried: dict[float, SimulatedAnswers] = {}
    start, largest = _range(question, over)
    lowest = _lowest(over)

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
        return None if found.refused else _trial(found)

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


def _trial(found: SimulatedAnswers) -> Trial:
    if not found.question.measures_error:
        return Trial(found.mean, found.independent * len(found.values))
    return Trial(found.mean, len(found.values), float(found.values.var() / max(found.mean, 1e-12) ** 2))


def _place(step: float, over: Over) -> float | int:
    value = math.exp(STEP * step)
    return math.ceil(value) if over == "n" else float(f"{value:.4g}")


def _range(question: Question, over: Over) -> tuple[int, int]:
    """Return the step where a search starts, and the largest."""
    if over == "epsilon":
        return round(math.log(EPSILON_START) / STEP), math.floor(math.log(EPSILON_MAX) / STEP)
    rows_max = math.floor(math.log(UNITS_TRIED_MAX) / STEP)
    return round(math.log(UNITS_START) / STEP), STEP_MAX if question.population.counted else rows_max


def _lowest(over: Over) -> int:
    return math.ceil(math.log(EPSILON_MIN if over == "epsilon" else 2) / STEP)


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

    Args:
        question: the study and what it should find. A candidate's parameters replace the study's.
        setting: units, budget, level.
        candidates: parameters to try; by default several numbers of features and bandwidths, or methods.
        runs: simulated studies of each candidate, and of the confirmation.
        seed: fixes the simulations.
        progress: called with the part done, in [0, 1], and the step.

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
