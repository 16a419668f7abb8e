"""The best features, or method, for an effect: compared by simulation, and the winner measured afresh."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from tacit.errors import InputError, StudyRefusedError
from tacit.planning.questions import Question
from tacit.planning.simulation import Plan, Setting, fresh_seed, simulate
from tacit.planning.words import Interval
from tacit_protocol.procedures.base import Progress

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
            tried = simulate(_with(question, candidate), setting, runs=runs, seed=seed, progress=report)
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
    fresh = simulate(_with(question, best.parameters), setting, runs=runs, seed=seed + 1)
    return ChoicePlan(best.parameters, fresh.plan(), tuple(choices))


def _with(question: Question, parameters: Parameters) -> Question:
    study = question.study
    changed = study.model_copy(update={"parameters": {**study.parameters, **parameters}})
    return replace(question, study=changed)
