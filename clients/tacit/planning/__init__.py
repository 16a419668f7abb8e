"""Plans: how much budget and how many rows a question needs, by simulation. Spends nothing, sends nothing.

Everything here draws from public or synthetic rows. A sample that is passed as public gets no protection.
"""

from collections.abc import Mapping, Sequence
from typing import Any

from tacit.errors import InputError
from tacit.in_process.runner import Setting as Where
from tacit.planning.curve import CurvePoint, Over, PowerCurve, simulate_curve
from tacit.planning.questions import PlanRequest, Question, question_of_draft, units_of_draft
from tacit.planning.search import TARGET, ChoicePlan, SmallestPlan, choose, smallest
from tacit.planning.simulation import RUNS, ErrorPlan, Plan, PowerPlan, Setting, simulate, sizes_of
from tacit.studies.draft import StudyDraft
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.populations import Amounts, Shape, SoughtEffect

__all__ = [
    "ChoicePlan",
    "CurvePoint",
    "Effect",
    "ErrorPlan",
    "Plan",
    "PowerCurve",
    "PowerPlan",
    "SmallestPlan",
    "plan_choice",
    "plan_curve",
    "plan_error",
    "plan_power",
    "plan_smallest",
    "power_of_draft",
]


EFFECTS = ("effect", "shift", "scale", "shape", "other")
ABOUT = ("procedure", "bounds", "columns", "public", "cells", "setting")
"""Arguments of plan_power about the effect, and about the study; others are the procedure's parameters."""


DRAFT_RUNS = 40
"""Simulated studies of a dry run: a standard error of at most .08, in about a second."""


def plan_power(
    n: int | Sequence[int],
    *,
    epsilon: float,
    delta: float = 1e-5,
    procedure: str | None = None,
    bounds: Any = None,
    columns: Sequence[str] | None = None,
    cells: int | Sequence[int] | None = None,
    public: Any = None,
    effect: float | None = None,
    shift: Amounts | None = None,
    scale: Amounts | None = None,
    shape: Shape = "linear",
    other: Any = None,
    alpha: float = 0.05,
    runs: int = RUNS,
    seed: int | None = None,
    progress: Progress | None = None,
    setting: Where = "owners",
    real_noise: bool = False,
    **parameters: Any,
) -> PowerPlan:
    """Estimate the power of a test for an effect, by running whole simulated studies.

    Samples are drawn from the public sample with replacement, or, without one, from independent columns:
    normal within the bounds, levels equally often. Tests on counts draw counts.

    Args:
        n: one number stands for two owners where the procedure compares owners.
        bounds: tests of dependence have two columns in [0, 1] by default; tests on counts may have ``cells``
            instead.
        columns: names of the columns, where neither ``public`` nor ``bounds`` gives them.
        cells: of tests on counts without bounds: number of cells, or of a table's rows and columns.
        public: a public sample. It gets no protection: never a sample of the study itself.
        effect: two-sample tests: standard deviations by which the last owner's first numeric column is
            shifted (.5 by default). Dependences: the correlation of the first columns of both sides (.3;
            with ``public``, by default, the sample's own dependence). Counts: the total variation distance
            (.15).
        shift: amount added to the last owner's numeric columns, in their own units, in the place of
            ``effect``; one number or by column.
        scale: factor of the last owner's spread about the public mean; one number or by column.
        shape: of a dependence: "linear", or "quadratic", which has no correlation.
        other: of tests on counts, the true probabilities of the cells, (k,) or a table, in the place of
            ``effect``.
        setting: of two-sample tests: "owners", who trust no one, or "curator", who holds both samples.
        parameters: such as ``n_features``, a curator's ``release``, or ``groups``, the columns of each side.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A frozen plan; ``words()`` says it in a sentence.

    Example:
        >>> import tacit.local
        >>> plan = tacit.local.plan_power(
        ...     4000, procedure="homogeneity", cells=10, epsilon=1, effect=0.2, runs=20, seed=1
        ... )
        >>> plan.power > 0.9
        True
    """
    found = SoughtEffect(effect, shift, scale, shape, other)
    asked = PlanRequest(procedure, bounds, columns, public, cells, found, setting, parameters)
    there = _at(asked, n, epsilon, delta, alpha)
    plan = simulate(*there, runs=runs, seed=seed, progress=progress, real_noise=real_noise).plan()
    if not isinstance(plan, PowerPlan):
        raise InputError(f"{plan.procedure} tests nothing: plan_error says how exact it is")
    return plan


def plan_error(
    n: int | Sequence[int],
    *,
    procedure: str,
    epsilon: float,
    delta: float = 1e-5,
    runs: int = RUNS,
    seed: int | None = None,
    progress: Progress | None = None,
    real_noise: bool = False,
    **question: Any,
) -> ErrorPlan:
    """Estimate how exact a release is that tests nothing: ``noisy_counts`` or ``embedding_release``.

    Arguments are those of :func:`plan_power`, without those about effects. The error is that of the release
    about what the owner holds, without sampling: see :class:`ErrorPlan`.

    Example:
        >>> import tacit.local
        >>> plan = tacit.local.plan_error(1000, procedure="noisy_counts", cells=10, epsilon=1, runs=20)
        >>> plan.error < 0.02
        True
    """
    there = _at(_read_question({"procedure": procedure, **question}), n, epsilon, delta, 0.05)
    plan = simulate(*there, runs=runs, seed=seed, progress=progress, real_noise=real_noise).plan()
    if not isinstance(plan, ErrorPlan):
        raise InputError(f"{plan.procedure} is a test: use plan_power")
    return plan


def plan_curve(
    over: Over,
    values: Sequence[float] | None = None,
    *,
    n: int | Sequence[int] = 1000,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    alpha: float = 0.05,
    runs: int = RUNS,
    seed: int | None = None,
    target: float | None = None,
    progress: Progress | None = None,
    **question: Any,
) -> PowerCurve:
    """Simulate how power, or a release's error, changes with epsilon or with the number of units.

    Args:
        over: "epsilon" or "n".
        values: where; by default seven epsilons from .1 to 10, or numbers of units from 200 to 20 000 (from
            100 to 2000 for procedures whose time grows with their square).
        n: where the curve is over epsilon.
        epsilon: where the curve is over n.
        runs: of each point. All points have the same luck, so that they differ less.
        target: a power, or an error, to be reached: where no ``values`` are given, up to four more points are
            simulated beyond the end behind which it lies, and where it is reached.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A frozen curve; ``words()`` says it, and ``svg()`` draws it.
    """
    found, setting = _at(_read_question(question), n, epsilon, delta, alpha)
    return simulate_curve(
        found, over, setting, values=values, runs=runs, seed=seed, target=target, progress=progress
    )


def plan_smallest(
    over: Over,
    *,
    target: float = TARGET,
    n: int | Sequence[int] = 1000,
    epsilon: float = 1.0,
    delta: float = 1e-5,
    alpha: float = 0.05,
    runs: int = RUNS,
    seed: int | None = None,
    progress: Progress | None = None,
    **question: Any,
) -> SmallestPlan:
    """Find the smallest epsilon, or the fewest units of each owner, that reach a target, by simulation.

    Args:
        over: "epsilon" or "n".
        target: the power to be reached; of a release that tests nothing, the error not to be exceeded.
        n: where epsilon is searched.
        epsilon: where n is searched.
        runs: of each value that is tried; four times as many of the plan at the one found.

    Other arguments: :mod:`tacit.local`.

    Returns:
        A frozen plan: by the fit its power is short of the target by .02 at most, with confidence .9.

    Raises:
        InputError: the inputs do not fit together, or nothing up to epsilon 100, or up to two million units
            (10^9 of counts), reaches the target.
    """
    found, setting = _at(_read_question(question), n, epsilon, delta, alpha)
    return smallest(found, over, setting, target=target, runs=runs, seed=seed, progress=progress)


def plan_choice(
    n: int | Sequence[int],
    *,
    epsilon: float,
    delta: float = 1e-5,
    alpha: float = 0.05,
    candidates: Sequence[Mapping[str, Any]] | None = None,
    runs: int = RUNS,
    seed: int | None = None,
    progress: Progress | None = None,
    **question: Any,
) -> ChoicePlan:
    """Find the features, bandwidth or method that are best for an effect, by simulation.

    Args:
        candidates: parameters of the procedure to try, such as ``[{}, {"bandwidth": 0.3}]``; by default
            numbers of features and bandwidths, or methods, beside the procedure's own defaults.
        runs: of each candidate, and again of the winner; all candidates see the same samples.

    Other arguments: :mod:`tacit.local`.

    Raises:
        InputError: no candidate is taken at this size and budget.
    """
    found, setting = _at(_read_question(question), n, epsilon, delta, alpha)
    return choose(found, setting, candidates=candidates, runs=runs, seed=seed, progress=progress)


def _at(
    asked: PlanRequest, n: int | Sequence[int], epsilon: float, delta: float, alpha: float
) -> tuple[Question, Setting]:
    question = asked.question(n, epsilon, delta, alpha)
    return question, Setting(sizes_of(n, question), epsilon, delta, alpha)


def _read_question(question: Mapping[str, Any]) -> PlanRequest:
    """Read what a question is about: arguments of :func:`plan_power`, and parameters of the procedure."""
    effects = {name: question[name] for name in EFFECTS if name in question}
    if "effect" in effects:
        effects["size"] = effects.pop("effect")
    about = {name: question[name] for name in ABOUT if name in question}
    rest = {name: value for name, value in question.items() if name not in (*EFFECTS, *ABOUT)}
    return PlanRequest(effect=SoughtEffect(**effects), parameters=rest, **about)


def power_of_draft(
    draft: StudyDraft,
    *,
    n_per_owner: int | Sequence[int] | None = None,
    effect: float | None = None,
    runs: int = DRAFT_RUNS,
    seed: int = 0,
    progress: Progress | None = None,
) -> Plan:
    """Estimate how often the study of a draft would find an effect, on synthetic data; nothing is sent.

    Args:
        draft: the study as an analyst writes it.
        n_per_owner: units of each owner, one number for all of them or one for each; by default what the
            draft says.
        effect: what it should find. Two-sample tests: standard deviations by which the last owner's first
            numeric column is shifted (.5). Dependences: the correlation of one pair of columns (.3). Counts:
            a total variation distance (.15). In brackets the medium effects of Cohen (1992), the defaults.
        runs: simulated studies, at least 1.
        seed: fixes the simulated samples, noise and public choices.
        progress: called with the part done, in [0, 1], and the step.

    Returns:
        A :class:`PowerPlan`, or for a procedure that tests nothing an :class:`ErrorPlan`. ``words()`` says it
        in one sentence.

    Raises:
        InputError: the draft does not say how many units its owners hold, the effect does not fit it, or it
            cannot be planned (peer mode).
        StudyRefusedError: the procedure does not take the draft, or so few or so many units.
    """
    question = question_of_draft(draft, SoughtEffect(size=effect))
    sizes = sizes_of(units_of_draft(draft) if n_per_owner is None else n_per_owner, question)
    setting = Setting(sizes, draft.epsilon, draft.delta, draft.level)
    return simulate(question, setting, runs=runs, seed=seed, progress=progress).plan()
