"""Questions of plans, from plain arguments or from a draft, and the population that they draw from."""

import difflib
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, get_args

import numpy as np
import numpy.typing as npt

from tacit.errors import InputError, StudyRefusedError
from tacit.in_process.runner import CountedTable, as_run, declaring, local_study, two_sample_procedure
from tacit.in_process.runner import Setting as Where
from tacit.in_process.samples import ArrayTable, Sample, domain_of, read_samples
from tacit.results import Result
from tacit.studies.draft import StudyDraft
from tacit_protocol.domain import LEVELS_MAX, CategoricalColumn, Domain, Table
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import Procedure, StudyError, planned
from tacit_protocol.procedures.base import QuestionTemplate as Kind
from tacit_protocol.procedures.counts.base import CountsShift
from tacit_protocol.procedures.discovery import PROCEDURES, answered_questions
from tacit_protocol.procedures.populations import (
    EffectError,
    Held,
    Measure,
    SimulatedAtOnce,
    SimulationModel,
    SoughtEffect,
)
from tacit_protocol.procedures.relay import relay_of
from tacit_protocol.procedures.within_owners.verdict import WIDE
from tacit_protocol.verdicts.presentation import joined


def population_of(procedure: str) -> type[SimulationModel]:
    """Return what simulated studies of a procedure draw from.

    Raises:
        InputError: there is no such procedure, or it cannot be planned.
    """
    found = PROCEDURES[procedure].population if procedure in PROCEDURES else None
    if found is None:
        known = [name for name, one in PROCEDURES.items() if one.population is not None]
        near = [] if procedure in PROCEDURES else difflib.get_close_matches(procedure, known, 1)
        meant = f"did you mean {near[0]}? " if near else ""
        raise InputError(f"{procedure} cannot be planned: {meant}procedure must be one of {', '.join(known)}")
    return found


@dataclass(frozen=True)
class Question:
    """A study and what it should find. ``study`` is a template: n, budget and seed change.

    It says what was asked for; what it leaves is chosen for each n and budget, as for a call of
    ``tacit.local``, or ``in_services`` as for a study that is sent. ``public`` is a public sample that rows
    are drawn from, or None for stand-ins.
    """

    study: Study
    effect: SoughtEffect
    public: Sample | None = None
    in_services: bool = False

    def __post_init__(self) -> None:
        population_of(self.study.procedure)
        if self.public is not None and self.public.rows < 2:
            raise InputError("a public sample needs at least two rows")
        try:
            stated = self.procedure.with_defaults(self.study)
            relay = relay_of(self.procedure, stated)
            if relay is not None and (relay.sealed or not self.procedure.plans_two_rounds):
                raise InputError(
                    "in peer mode the receiver alone learns the result: plan mode tester instead"
                    if relay.sealed
                    else "studies of two rounds are not planned: try made-up rows with tacit.local"
                )
            self.procedure.check(stated)
        except StudyError as error:
            raise StudyRefusedError(str(error)) from error
        self.population  # noqa: B018 (raises where the effect does not fit the columns)

    @property
    def procedure(self) -> Procedure:
        """The procedure."""
        return PROCEDURES[self.study.procedure]

    def of_units(self, study: Study, units: Sequence[int]) -> Study:
        """Return a study of the template, its budget set, as it is run with so many units of each owner."""
        if self.in_services:
            return self.procedure.with_defaults(declaring(study, units))
        return as_run(self.procedure, study, units)

    @cached_property
    def population(self) -> SimulationModel:
        """What simulated studies draw from."""
        public = None if self.public is None else self.public.within(self.study.domain)
        study = self.procedure.with_defaults(self.study)
        try:
            return population_of(study.procedure)(study, self.effect, public)
        except EffectError as error:
            raise InputError(str(error)) from None

    @property
    def measure(self) -> Measure:
        """What a simulated study answers: whether it found the effect, or its error."""
        return self.population.measures

    @property
    def measures_error(self) -> bool:
        """Whether the study is planned by the error of what it releases, because it tests nothing."""
        return self.measure == "error"

    @cached_property
    def by_ranks(self) -> tuple[str, ...]:
        """Propose blocks of ranks where the public sample is skewed, or its bounds are much wider than it."""
        test = self.procedure.test_of_ranks(self.study)
        if self.public is None or test is None:
            return ()
        rows, found = self.public.within(self.study.domain), list[str]()
        for column in self.study.domain.numeric:
            values = np.asarray(rows[column.name], dtype=np.float64)
            values = np.clip(values[np.isfinite(values)], column.lower, column.upper)
            spread = float(values.std()) if len(values) else 0.0
            if spread * WIDE < column.upper - column.lower:
                found.append(f"the bounds of {column.name} are much wider than its values are spread")
            elif abs(float(np.mean((values - values.mean()) ** 3))) > SKEWED * spread**3:
                found.append(f"{column.name} is skewed")
        if not found:
            return ()
        return (
            f"{joined(found, 3)}: with ranks in blocks more may be found; plan "
            f'aggregated_test, test "{test}", beside it',
        )

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[Held]:
        """Draw what the owners hold, units of each in the study's order."""
        try:
            return self.population.draw(sizes, rng)
        except EffectError as error:
            raise InputError(str(error)) from None

    def rejections(
        self, study: Study, units: Sequence[int], lots: Sequence[int], rng: np.random.Generator
    ) -> npt.NDArray[np.float64] | None:
        """Return 1 or 0 of each study, whether it rejects, simulated at once; None where that cannot be.

        ``lots`` are how many studies share one simulated null distribution, in turn. Raises StudyRefusedError
        where the procedure does not take the study.
        """
        population = self.population
        if not isinstance(population, CountsShift):
            return None
        try:
            plan = planned(self.procedure, study)
            if not isinstance(plan, SimulatedAtOnce):
                return None
            return plan.rejections(population.laws, units, lots, rng)
        except StudyError as error:
            raise StudyRefusedError(str(error)) from error

    def tables(self, held: Sequence[Held]) -> list[Table]:
        """Return what was drawn as the owners' tables."""
        domains = [self.study.domain_of(owner) for owner in self.study.owners]
        return [
            CountedTable(domain, part, np.arange(len(part)))
            if isinstance(part, np.ndarray)
            else ArrayTable.of(Sample(part), domain)
            for domain, part in zip(domains, held, strict=True)
        ]

    def answer(self, result: Result, held: Sequence[Held]) -> float:
        """Return 1 or 0, whether a study found the effect; or the error of what it released."""
        return self.population.answer(result, held)

    def effect_words(self) -> str:
        """Say in plain words what a study should find."""
        return self.population.words()


UNIT_INTERVAL = (0.0, 1.0)

SKEWED = 2.0
"""Skewness of an exponential number, from which ranks are proposed for a public sample."""


@dataclass(frozen=True)
class PlanRequest:
    """A question as a caller states it; see :func:`tacit.local.plan_power`."""

    procedure: str | None = None
    bounds: Any = None
    columns: Sequence[str] | None = None
    public: Any = None
    cells: int | Sequence[int] | None = None
    effect: SoughtEffect = field(default_factory=SoughtEffect)
    setting: Where = "owners"
    parameters: Mapping[str, Any] = field(default_factory=dict)

    @property
    def name(self) -> str:
        """The procedure's name. Raises InputError where there is no such procedure."""
        if self.setting not in get_args(Where):
            raise InputError('setting must be "owners" or "curator"')
        if self.procedure is None:
            return two_sample_procedure(self.setting)
        population_of(self.procedure)
        if self.setting == "curator":
            question = PROCEDURES[self.procedure].question
            curated = {one.question: one.curator for one in answered_questions()}
            return (curated.get(question) if question else None) or self.procedure
        return self.procedure

    @property
    def kind(self) -> Kind:
        """The question that the procedure answers. Raises InputError where it says none."""
        found = self._procedure.question
        if found is None:
            raise InputError(f"{self.name} says no question: plan a draft of its study")
        return found

    @property
    def _procedure(self) -> Procedure:
        return PROCEDURES[self.name]

    def owners(self, n: int | Sequence[int]) -> int:
        """Return how many owners the study has."""
        if not isinstance(n, int | Sequence):
            raise InputError("n must be a whole number, or one for each owner")
        asked = self.kind.owners
        masked = self.parameters.get("aggregation") == "masked"
        if (asked in ("one", "two") and not masked) or isinstance(n, int):
            return 1 if asked.startswith("one") else 2
        return len(n)

    def question(self, n: int | Sequence[int], epsilon: float, delta: float, alpha: float) -> Question:
        """Return the question.

        Raises:
            InputError: the parts do not fit together; the message says what to change.
            StudyRefusedError: the procedure does not take them.
        """
        name, parameters = self.name, dict(self.parameters)
        owners = self.owners(n)
        if self.kind.owners == "two or more" and owners < 2:
            raise InputError("n must be one positive number, or at least two")
        sample = None if self.public is None else read_samples([self.public], self.columns)[0]
        domain = self._domain(sample, parameters)
        held: list[tuple[str, ...] | None] = [None] * owners
        if self.kind.owners == "three or more":
            held = [(column.name,) for column in domain.columns]
        elif self.kind.apart:
            held = list(_sides(domain, parameters.pop("groups", None), outcome=self.kind.outcome))
        names = [f"owner-{number}" for number in range(1, len(held) + 1)]
        if self.kind.outcome:
            parameters.setdefault("outcome", names[1])
        study = local_study(
            name,
            domain,
            names,
            parameters,
            epsilon=epsilon,
            delta=delta,
            alpha=alpha,
            seed="0" * 32,
            curated="agents" not in self._procedure.held_by,
            columns=held,
        )
        return Question(study, self.effect, sample)

    def _domain(self, sample: Sample | None, parameters: dict[str, Any]) -> Domain:
        if self.bounds is None and population_of(self.name).counted:
            return self._cells(parameters)
        if self.cells is not None:
            raise InputError("cells are of procedures on counts, without bounds")
        names, bounds = _column_names(sample, self.bounds, self.columns), self.bounds
        if bounds is None and self.kind.relates and sample is None:
            bounds = UNIT_INTERVAL
            names = names or ["x1", "x2", "x3"][: 3 if self.kind.owners == "three or more" else 2]
        if not names:
            raise InputError("name the columns: pass columns=[...], or bounds by name")
        domain = domain_of(bounds, names)
        for needed in self._procedure.needs(domain.columns):
            if needed.name not in parameters:
                raise InputError(f"say {needed.words}: pass {needed.name}=[...]")
        return domain

    def _cells(self, parameters: dict[str, Any]) -> Domain:
        """Return columns of so many levels each, all of which count, and no other."""
        parameters.setdefault("unlisted", "last")
        stated = parameters.get("probabilities")
        shape = [self.cells] if isinstance(self.cells, int) else list(self.cells or ())
        if not shape and stated is not None:
            shape = [len(stated)]
        if not shape and self.effect.other is not None:
            shape = list(np.shape(self.effect.other))
        if not shape or not all(isinstance(size, int) and 2 <= size <= LEVELS_MAX for size in shape):
            raise InputError(
                f"say how many cells there are: cells=20, or (4, 5) of a table, 2 to {LEVELS_MAX} a column"
            )
        columns = tuple(
            CategoricalColumn(name=f"x{axis}", levels=tuple(str(level) for level in range(size)))
            for axis, size in enumerate(shape, 1)
        )
        for needed in self._procedure.needs(columns):
            parameters.setdefault(needed.name, needed.read(needed.default))
        return Domain(columns=columns)


def _sides(domain: Domain, groups: Any, outcome: bool) -> tuple[tuple[str, ...], tuple[str, ...]]:
    """Return both owners' columns; by default the second has the last one, or all but the first."""
    names = [column.name for column in domain.columns]
    if groups is None:
        cut = len(names) - 1 if outcome else 1
        groups = (names[:cut], names[cut:])
    if len(groups) != 2 or not all(groups):
        raise InputError("groups must be two lists of columns, one for each owner; two columns at least")
    return tuple(groups[0]), tuple(groups[1])


def _column_names(sample: Sample | None, bounds: Any, columns: Sequence[str] | None) -> list[str]:
    if sample is not None:
        return list(sample.columns)
    if columns is not None:
        return list(columns)
    if isinstance(bounds, Domain):
        return [column.name for column in bounds.columns]
    if isinstance(bounds, Mapping):
        return [str(name) for name in bounds]
    pairs = [] if bounds is None else np.ndim(bounds) == 2 and list(bounds)
    return [f"x{index}" for index in range(1, len(pairs or []) + 1)]


def question_of_draft(
    draft: StudyDraft, effect: SoughtEffect | None = None, public: Sample | None = None
) -> Question:
    """Return what a draft asks, and what it should find: the medium effect of its procedure by default.

    Earlier releases that the draft reuses are planned as if they were made anew with the draft's budget, and
    every row as a unit of its own.

    Raises:
        InputError: the effect does not fit the draft.
        StudyRefusedError: the procedure does not take the draft.
    """
    population_of(draft.procedure)
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
    return Question(study, SoughtEffect() if effect is None else effect, public, in_services=True)


def units_of_draft(draft: StudyDraft) -> list[int]:
    """Return how many units the draft says that each owner holds.

    Raises:
        InputError: it does not say so of each.
    """
    unknown = [owner.name for owner in draft.owners if owner.units is None]
    if unknown:
        raise InputError(f"the draft does not say how many units {', '.join(unknown)} holds: give n")
    return [owner.units for owner in draft.owners if owner.units is not None]
