"""What a plan is about: a study, as it would be run, and what is true of the population that it draws."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np

from tacit.array_table import ArrayTable
from tacit.errors import InputError, StudyRefusedError
from tacit.frames import Sample
from tacit.planning.cells import (
    cells_of,
    dependent,
    draw_counts,
    moved,
    null_probabilities,
    probabilities_of,
)
from tacit.planning.effects import KINDS, Effect, Kind
from tacit.planning.errors_of_releases import count_error, database_error
from tacit.planning.rows import (
    by_column,
    dependent_rows,
    draw_rows,
    first_column,
    with_effect,
    with_standard_effect,
)
from tacit.planning.sizes import Floats, total_variation
from tacit.results import DatabaseResult, NoisyCountsResult, Result, ScreeningResult
from tacit_protocol.domain.table import Table
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.base import Procedure, StudyError
from tacit_protocol.procedures.registry import procedure_named
from tacit_protocol.statistics.contingency import margins_of, product

COUNTING = ("noisy_counts", "homogeneity", "independence_table", "identity")
"""Procedures that see counts of cells alone: tables are drawn as counts, not as rows."""

Measure = Literal["power", "error"]

Drawn = tuple[Sequence[Table], Sequence[Any]]
"""Each owner's table; and what a release's error is taken against, of each."""


@dataclass(frozen=True)
class Question:
    """A study and what it should find. ``study`` is a template: n, budget and seed change.

    ``public`` is a public sample that rows are drawn from, or None for stand-ins.
    """

    study: Study
    effect: Effect
    public: Sample | None = None

    def __post_init__(self) -> None:
        if self.study.procedure not in KINDS:
            raise InputError(f"{self.study.procedure} cannot be planned; these can: {', '.join(KINDS)}")
        self.effect.require_fits(self.kind)
        if self.study.parameters.get("mode") == "peer":
            raise InputError("in peer mode the receiver alone learns the result: plan mode tester instead")
        if self.public is not None and self.public.rows < 2:
            raise InputError("a public sample needs at least two rows")
        try:
            self.procedure.check(self.study)
        except StudyError as error:
            raise StudyRefusedError(str(error)) from error
        self._draw  # noqa: B018 (raises where the effect does not fit the columns)

    @property
    def procedure(self) -> Procedure:
        """The procedure."""
        return procedure_named(self.study.procedure)

    @property
    def kind(self) -> Kind:
        """What the procedure looks for."""
        return KINDS[self.study.procedure]

    @property
    def measures_error(self) -> bool:
        """Whether the study is planned by the error of what it releases, because it tests nothing."""
        return self.kind == "release"

    @property
    def measure(self) -> Measure:
        """What a simulated study answers: whether it found the effect, or its error."""
        return "error" if self.measures_error else "power"

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Drawn:
        """Draw what the owners hold, units of each in the study's order."""
        return self._draw(sizes, rng)

    def answer(self, result: Result, truth: Sequence[Any]) -> float:
        """Return 1 or 0, whether a study found the effect; or the error of what it released."""
        if isinstance(result, NoisyCountsResult):
            return count_error(result, truth)
        if isinstance(result, DatabaseResult):
            return database_error(result, self.study, truth)
        if isinstance(result, ScreeningResult):
            pair = set(self.pair)
            return float(any({found.column, found.outcome} == pair for found in result.found))
        return float(result.reject)

    @cached_property
    def pair(self) -> tuple[str, str]:
        """The pair of columns that depend on each other."""
        study = self.study
        groups = study.parameters.get("groups")
        if groups is None:
            held = [owner.columns for owner in study.owners if owner.columns is not None]
            groups = held if len(held) >= 2 else [[column.name] for column in study.domain.columns]
        return groups[0][0], groups[1][0]

    @cached_property
    def cells(self) -> tuple[Floats, Floats]:
        """The cells' probabilities without the effect and with it, (k,) each."""
        study, effect, grid = self.study, self.effect, cells_of(self.study)
        null = null_probabilities(study, grid, self.public)
        if effect.other is not None:
            other = probabilities_of(grid, effect.other)
            if study.procedure == "independence_table":
                null = np.asarray(product(margins_of(other, grid.shape))).ravel()
            return null, other
        distance = effect.sized(self.kind)
        if study.procedure == "independence_table":
            return null, null if self._as_given else dependent(null, grid.shape, distance)
        return null, null if self.kind == "release" else moved(null, distance)

    @property
    def distance(self) -> float:
        """Total variation distance of the cells' probabilities with the effect from those without it."""
        return total_variation(*self.cells)

    @property
    def _as_given(self) -> bool:
        """Whether the effect is the dependence that the public sample itself has."""
        return self.public is not None and self.effect.size is None

    @cached_property
    def _draw(self) -> Callable[[Sequence[int], np.random.Generator], Drawn]:
        if self.study.procedure in COUNTING:
            self.cells  # noqa: B018 (raises where there are none)
            return self._draw_counts
        if self.kind == "dependence":
            self.effect.sized(self.kind)
            return self._draw_dependent
        if self.kind == "difference":
            by_column(1.0 if self.effect.scale is None else self.effect.scale, self.study.domain, 1.0)
            by_column(0.0 if self.effect.shift is None else self.effect.shift, self.study.domain, 0.0)
            self.effect.sized(self.kind)
        return self._draw_samples

    def _draw_counts(self, sizes: Sequence[int], rng: np.random.Generator) -> Drawn:
        null, other = self.cells
        tables = []
        for place, size in enumerate(sizes, 1):
            drawn = other if place == len(sizes) else null
            tables.append(draw_counts(drawn, self.study.domain, size, rng))
        return tables, [table.counted for table in tables]

    def _draw_samples(self, sizes: Sequence[int], rng: np.random.Generator) -> Drawn:
        domain, public, effect = self.study.domain, self.public, self.effect
        samples = [draw_rows(public, domain, size, rng) for size in sizes]
        if self.kind == "difference":
            for place in self._last:
                if effect.shift is None and effect.scale is None:
                    size = effect.sized(self.kind)
                    samples[place] = with_standard_effect(samples[place], public, domain, size, rng)
                else:
                    shift = 0.0 if effect.shift is None else effect.shift
                    scale = 1.0 if effect.scale is None else effect.scale
                    samples[place] = with_effect(samples[place], public, domain, shift, scale)
        return [ArrayTable.of(sample, domain) for sample in samples], samples

    @property
    def _last(self) -> Sequence[int]:
        """Places of the owners with the effect: the last one, or all of a curator's second sample."""
        named = self.study.parameters.get("samples")
        if named is None:
            return [len(self.study.owners) - 1]
        return [place for place, owner in enumerate(self.study.owners) if owner.name in named[1]]

    def _draw_dependent(self, sizes: Sequence[int], rng: np.random.Generator) -> Drawn:
        study, effect = self.study, self.effect
        aligned = any(owner.columns is not None for owner in study.owners)
        if aligned and len(set(sizes)) > 1:
            raise InputError("owners of different columns hold the same units: give one number")

        def rows(size: int) -> Sample:
            if self._as_given:
                return draw_rows(self.public, study.domain, size, rng)
            correlation = effect.sized(self.kind)
            return dependent_rows(
                self.public,
                study.domain,
                size,
                rng,
                pair=self.pair,
                correlation=correlation,
                shape=effect.shape,
            )

        drawn = [rows(sizes[0])] * len(sizes) if aligned else [rows(size) for size in sizes]
        tables = []
        for owner, sample in zip(study.owners, drawn, strict=True):
            domain = study.domain_of(owner)
            held = {column.name: sample.columns[column.name] for column in domain.columns}
            tables.append(ArrayTable.of(Sample(held), domain))
        return tables, drawn

    def effect_words(self) -> str:
        """Say in plain words what a study should find."""
        effect, size = self.effect, self.effect.sized(self.kind)
        if self.kind == "release":
            return "nothing: numbers are released"
        if self.kind == "cells":
            what = "a dependence" if self.study.procedure == "independence_table" else "a difference"
            return f"{what} of {self.distance:.3g} in total variation"
        if self.kind == "dependence":
            pair = " and ".join(self.pair)
            if self._as_given:
                return f"the dependence between {pair} that the public sample has"
            what = "correlation" if effect.shape == "linear" else "quadratic dependence"
            return f"a {what} of {size:.3g} between {pair}"
        if effect.shift is None and effect.scale is None:
            name = first_column(self.study.domain).name
            return f"a shift of {size:.3g} standard deviations in {name}"
        return _moves(effect.shift, "a shift of", effect.scale, "a spread times")


def _moves(shift: Any, shifted: str, scale: Any, scaled: str) -> str:
    said = []
    for amounts, words in ((shift, shifted), (scale, scaled)):
        if isinstance(amounts, Mapping):
            said += [f"{words} {amount:g} in {name}" for name, amount in amounts.items()]
        elif amounts is not None:
            said.append(f"{words} {amounts:g} in every numeric column")
    return " and ".join(said)
