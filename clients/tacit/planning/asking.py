"""Questions from plain arguments: what `tacit.local.plan_*` and `tacit plan` are given."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, get_args

import numpy as np

from tacit.errors import InputError
from tacit.in_process.runner import Setting as Where
from tacit.in_process.runner import local_study, two_sample_procedure
from tacit.in_process.samples import Sample, domain_of, read_samples
from tacit.planning.questions import Question, population_of
from tacit.studies.catalogue import answered_questions
from tacit_protocol.domain.columns import LEVELS_MAX, CategoricalColumn, Domain
from tacit_protocol.procedures.base import Procedure
from tacit_protocol.procedures.base import Question as Kind
from tacit_protocol.procedures.discovery import PROCEDURES
from tacit_protocol.procedures.populations import Effect

UNIT_INTERVAL = (0.0, 1.0)


@dataclass(frozen=True)
class Asked:
    """A question as a caller states it; see :func:`tacit.local.plan_power`."""

    procedure: str | None = None
    bounds: Any = None
    columns: Sequence[str] | None = None
    public: Any = None
    cells: int | Sequence[int] | None = None
    effect: Effect = field(default_factory=Effect)
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
        if asked in ("one", "two") or isinstance(n, int):
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
        if self.kind.apart:
            held = list(_sides(domain, parameters.pop("groups", None), outcome=self.kind.outcome))
        names = [f"owner-{number}" for number in range(1, owners + 1)]
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
            names = names or ["x1", "x2"]
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
