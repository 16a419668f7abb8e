"""The power of a study as its analyst drafts it, before anything is sent."""

from collections.abc import Sequence

from tacit.errors import InputError
from tacit.in_process.runner import local_study
from tacit.in_process.samples import Sample
from tacit.planning.questions import Question
from tacit.planning.simulation import Plan, Setting, simulate, sizes_of
from tacit.studies.draft import StudyDraft
from tacit_protocol.domain.columns import Domain
from tacit_protocol.procedures.base import Progress
from tacit_protocol.procedures.populations import Effect

DRAFT_RUNS = 40
"""Simulated studies of a dry run: a standard error of at most .08, in about a second."""


def question_of_draft(
    draft: StudyDraft, effect: Effect | None = None, public: Sample | None = None
) -> Question:
    """Return what a draft asks, and what it should find: the medium effect of its procedure by default.

    Earlier releases that the draft reuses are planned as if they were made anew with the draft's budget, and
    every row as a unit of its own.

    Raises:
        InputError: the effect does not fit the draft.
        StudyRefusedError: the procedure does not take the draft.
    """
    study = local_study(
        draft.procedure,
        Domain(columns=draft.columns),
        [owner.name for owner in draft.owners],
        draft.parameters,
        epsilon=draft.epsilon,
        delta=draft.delta,
        alpha=draft.level,
        seed="0" * 32,
        curated=draft.curator is not None,
        columns=[owner.columns for owner in draft.owners],
    )
    return Question(study, Effect() if effect is None else effect, public)


def units_of_draft(draft: StudyDraft) -> list[int]:
    """Return how many units the draft says that each owner holds.

    Raises:
        InputError: it does not say so of each.
    """
    unknown = [owner.name for owner in draft.owners if owner.units is None]
    if unknown:
        raise InputError(f"the draft does not say how many units {', '.join(unknown)} holds: give n")
    return [owner.units for owner in draft.owners if owner.units is not None]


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
    question = question_of_draft(draft, Effect(size=effect))
    sizes = sizes_of(units_of_draft(draft) if n_per_owner is None else n_per_owner, question)
    setting = Setting(sizes, draft.epsilon, draft.delta, draft.level)
    return simulate(question, setting, runs=runs, seed=seed, progress=progress).plan()
