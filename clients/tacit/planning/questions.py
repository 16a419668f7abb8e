"""What a plan is about: a study, as it would be run, and the population that it draws from."""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np

from tacit.errors import InputError, StudyRefusedError
from tacit.in_process.samples import ArrayTable, Sample
from tacit.results import Result
from tacit_protocol.domain.table import Table
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import Procedure, StudyError
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.populations import Effect, EffectError, Held, Measure, Population
from tacit_protocol.procedures.relay import relay_of


def population_of(procedure: str) -> type[Population]:
    """Return what simulated studies of a procedure draw from.

    Raises:
        InputError: there is no such procedure, or it cannot be planned.
    """
    found = PROCEDURES[procedure].population if procedure in PROCEDURES else None
    if found is None:
        known = [name for name, one in PROCEDURES.items() if one.population is not None]
        raise InputError(f"{procedure} cannot be planned: procedure must be one of {', '.join(known)}")
    return found


@dataclass(frozen=True)
class Question:
    """A study and what it should find. ``study`` is a template: n, budget and seed change.

    ``public`` is a public sample that rows are drawn from, or None for stand-ins.
    """

    study: Study
    effect: Effect
    public: Sample | None = None

    def __post_init__(self) -> None:
        population_of(self.study.procedure)
        if self.public is not None and self.public.rows < 2:
            raise InputError("a public sample needs at least two rows")
        try:
            if relay_of(self.procedure, self.study) is not None:
                raise InputError(
                    "in peer mode the receiver alone learns the result: plan mode tester instead"
                )
            self.procedure.check(self.study)
        except StudyError as error:
            raise StudyRefusedError(str(error)) from error
        self.population  # noqa: B018 (raises where the effect does not fit the columns)

    @property
    def procedure(self) -> Procedure:
        """The procedure."""
        return PROCEDURES[self.study.procedure]

    @cached_property
    def population(self) -> Population:
        """What simulated studies draw from."""
        public = None if self.public is None else self.public.within(self.study.domain)
        try:
            return population_of(self.study.procedure)(self.study, self.effect, public)
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

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[Held]:
        """Draw what the owners hold, units of each in the study's order."""
        try:
            return self.population.draw(sizes, rng)
        except EffectError as error:
            raise InputError(str(error)) from None

    def tables(self, held: Sequence[Held]) -> list[Table]:
        """Return what was drawn as the owners' tables."""
        # tacit.local offers what is here, and so imports it.
        from tacit.in_process.samples import CountedTable  # noqa: PLC0415

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
