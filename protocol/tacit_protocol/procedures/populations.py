"""Populations that simulated studies draw from, with the effect that a study should find, or without any.

A procedure names the one that it is planned with. All of it is made up, or drawn from a public sample:
nothing here sees an owner's data.
"""

import math
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any, ClassVar, Literal, Protocol, runtime_checkable

import numpy as np
import numpy.typing as npt
from scipy.special import ndtr

from tacit_protocol.domain import CategoricalColumn, Column, Domain, NumericColumn
from tacit_protocol.messages.study import Study

STAND_IN_SPREAD = 6.0
"""Without a public sample numeric columns are normal, their bounds six standard deviations apart."""

Measure = Literal["power", "error"]
Shape = Literal["linear", "quadratic"]
Amounts = float | Mapping[str, float]
Floats = npt.NDArray[np.float64]

Columns = Mapping[str, npt.NDArray[Any]]
"""Rows by column, (n,) each: numbers as float64, levels as text, and None where one is missing."""

Held = Columns | npt.NDArray[np.int64]
"""What a simulated owner holds: rows; or, where its procedure counts, units by cell of the study, (k,)."""


class EffectError(ValueError):
    """A study cannot be planned with this effect; the message says what to change."""


HAZARD_RATIO_MEDIUM = 1.5
"""The effect that times are planned with where none is stated."""


def require_hazard_ratio(size: float) -> None:
    """Raise EffectError where a size is no hazard ratio."""
    if not 0.01 <= size <= 100:
        raise EffectError("an effect is a hazard ratio between 0.01 and 100: 1 is none at all")


@dataclass(frozen=True)
class SoughtEffect:
    """What a study should find.

    Attributes:
        size: standard deviations by which the last owner's first column is shifted; the correlation of the
            dependent pair; or a total variation distance. None for the medium effect of the procedure.
        shift: amount added to the last owner's numeric columns, in their own units, in the place of ``size``;
            one number or by column.
        scale: factor of their spread about the public mean; one number or by column.
        shape: of a dependence: "linear", a bivariate normal's; or "quadratic", without any correlation.
        other: what cells' probabilities are in truth, in the place of a distance: of the last owner, or of
            the table.
    """

    size: float | None = None
    shift: Amounts | None = None
    scale: Amounts | None = None
    shape: Shape = "linear"
    other: Any = None


@dataclass(frozen=True)
class SimulationModel:
    """What the owners of simulated studies hold.

    Attributes:
        study: the study; its budget and seed may be any.
        effect: what it should find.
        public: a public sample that rows are drawn from, or None for stand-ins.

    Raises:
        EffectError: there is no such effect, or it does not fit the study.
    """

    study: Study
    effect: SoughtEffect
    public: Columns | None

    measure: ClassVar[Measure] = "power"
    """What a simulated study answers: whether it found the effect, or the error of what it released."""
    counted: ClassVar[bool] = False
    """Whether owners hold counts of cells, and not rows."""
    medium: ClassVar[float] = 0.0
    """The effect's size by default: Cohen's medium one (*A power primer*, 1992) where he names it."""
    taken: ClassVar[frozenset[str]] = frozenset({"size"})
    """Which of an effect's fields mean something here."""
    off: ClassVar[str] = ""
    """Of a release, how its error is told; ``{}`` stands for a percentage."""

    def __post_init__(self) -> None:
        self.check()

    def check(self) -> None:
        """Raise EffectError where the effect does not fit the study."""
        effect = self.effect
        if "shift" not in self.taken and (effect.shift is not None or effect.scale is not None):
            raise EffectError("shift and scale are of two-sample tests: give effect instead")
        if effect.shape not in ("linear", "quadratic"):
            raise EffectError('shape must be "linear" or "quadratic"')
        if effect.shape != "linear" and "shape" not in self.taken:
            raise EffectError("shape is of dependences alone")
        if effect.other is not None and "other" not in self.taken:
            raise EffectError("other is of tests on counts alone")
        if effect.size is not None and "size" not in self.taken:
            raise EffectError("this procedure tests nothing: it is planned by its error, without an effect")
        if isinstance(self.size, bool) or not isinstance(self.size, int | float):
            raise EffectError("an effect must be a finite number")
        if not abs(self.size) < float("inf"):
            raise EffectError("an effect must be a finite number")

    @property
    def measures(self) -> Measure:
        """What this study answers: of most procedures, what each of theirs does."""
        return self.measure

    @property
    def size(self) -> float:
        """The effect's size, the medium one by default."""
        return self.medium if self.effect.size is None else self.effect.size

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[Held]:
        """Draw what the owners hold, so many units of each in the study's order.

        Raises:
            EffectError: so many units cannot be drawn.
        """
        raise NotImplementedError

    def words(self) -> str:
        """Say in plain words what a study should find."""
        raise NotImplementedError

    def answer(self, result: Any, held: Sequence[Held]) -> float:  # noqa: ARG002
        """Return 1 or 0, whether a study found the effect; or the error of what it released.

        Args:
            result: the study's result.
            held: what was drawn for its owners.
        """
        return float(result.reject)


NULL_DRAWS_MIN, NULL_DRAWS_MAX = 999, 99_999
"""Draws of a null distribution that simulated studies share: ten beyond the critical value, between these."""


def null_draws(level: float, replicates: int) -> int:
    """Return how many draws a shared null distribution has: a study's own number at most."""
    return min(replicates, NULL_DRAWS_MAX, max(NULL_DRAWS_MIN, math.ceil(10 / level) - 1))


def fresh_seed(rng: np.random.Generator) -> np.random.SeedSequence:
    """Draw a seed."""
    return np.random.SeedSequence([int(word) for word in rng.integers(2**32, size=4)])


@runtime_checkable
class SimulatedAtOnce(Protocol):
    """A plan of a study, of which many are simulated at once, by their statistics alone."""

    def rejections(
        self,
        laws: Sequence[Floats],
        units: Sequence[int],
        lots: Sequence[int],
        rng: np.random.Generator,
    ) -> Floats | None:
        """Return 1 or 0 of each study, whether it rejects; None where whole studies have to be played.

        Args:
            laws: the probabilities of each owner's cells, (k,) each.
            units: each owner's number of units.
            lots: how many studies share one simulated null distribution, in turn.
            rng: draws counts, noise and null distributions.
        """


def shared_rejections(
    drawn: Callable[[int], Floats],
    null: Callable[[], Floats],
    lots: Sequence[int],
    level: float,
) -> Floats:
    """Return 1 or 0 of each study: those of a lot are held against one null distribution.

    ``drawn`` draws statistics (n,), larger where more is to be seen; ``null`` those of a null distribution,
    (draws,), or (values, draws) where it has values that nobody knows: the largest of the p-values counts.
    """
    found = []
    for size in lots:
        statistics, simulated = drawn(size), np.sort(np.atleast_2d(null()))
        draws = simulated.shape[-1]
        below = np.min([np.searchsorted(own, statistics, side="left") for own in simulated], axis=0)
        found.append((1 + draws - below) / (draws + 1) <= level)
    return np.concatenate(found).astype(np.float64)


class UntestedRows(SimulationModel):
    """Rows of which something is released that tests nothing."""

    measure: ClassVar[Measure] = "error"
    taken: ClassVar[frozenset[str]] = frozenset()

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[Held]:
        return [draw_rows(self.public, self.study.domain, size, rng) for size in sizes]

    def words(self) -> str:
        return "nothing: numbers are released"


class Difference(SimulationModel):
    """Rows of owners of whom the last one's are shifted, or spread otherwise."""

    medium: ClassVar[float] = 0.5
    taken: ClassVar[frozenset[str]] = frozenset({"size", "shift", "scale"})

    def check(self) -> None:
        """Raise EffectError where the effect does not fit the columns."""
        super().check()
        if self._moves and self.effect.size is not None:
            raise EffectError("give effect, in standard deviations, or shift and scale; not both")
        by_column(self._scale, self.study.domain, 1.0)
        by_column(self._shift, self.study.domain, 0.0)

    @property
    def others(self) -> Sequence[int]:
        """Places of the owners with the effect: the last one."""
        return [len(self.study.owners) - 1]

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[Held]:
        domain, public = self.study.domain, self.public
        drawn = [draw_rows(public, domain, size, rng) for size in sizes]
        for place in self.others:
            if self._moves:
                drawn[place] = with_effect(drawn[place], public, domain, self._shift, self._scale)
            else:
                drawn[place] = with_standard_effect(drawn[place], public, domain, self.size, rng)
        return drawn

    def words(self) -> str:
        """Say by how much which columns differ."""
        if not self._moves:
            name = first_column(self.study.domain).name
            return f"a shift of {self.size:.3g} standard deviations in {name}"
        said = []
        for amounts, words in ((self.effect.shift, "a shift of"), (self.effect.scale, "a spread times")):
            if isinstance(amounts, Mapping):
                said += [f"{words} {amount:g} in {name}" for name, amount in amounts.items()]
            elif amounts is not None:
                said.append(f"{words} {amounts:g} in every numeric column")
        return " and ".join(said)

    @property
    def _moves(self) -> bool:
        return self.effect.shift is not None or self.effect.scale is not None

    @property
    def _shift(self) -> Amounts:
        return 0.0 if self.effect.shift is None else self.effect.shift

    @property
    def _scale(self) -> Amounts:
        return 1.0 if self.effect.scale is None else self.effect.scale


class Dependence(SimulationModel):
    """Rows of which one pair of columns depend on each other.

    They are the first columns of both sides: of the parameter ``groups``, of two owners with columns of their
    own, or of the study.
    """

    medium: ClassVar[float] = 0.3
    taken: ClassVar[frozenset[str]] = frozenset({"size", "shape"})

    def check(self) -> None:
        """Raise EffectError where there is no such correlation."""
        super().check()
        if not abs(self.size) <= 1:
            raise EffectError("a correlation lies between -1 and 1")

    @cached_property
    def pair(self) -> tuple[str, str]:
        """The pair of columns that depend on each other."""
        groups = self.study.parameters.get("groups")
        if groups is None:
            held = [owner.columns for owner in self.study.owners if owner.columns is not None]
            groups = held if len(held) >= 2 else [[column.name] for column in self.study.domain.columns]
        return groups[0][0], groups[1][0]

    def draw(self, sizes: Sequence[int], rng: np.random.Generator) -> Sequence[Held]:
        """Draw the owners' rows: the same ones, where each holds columns of its own."""
        study = self.study
        aligned = study.columns_apart
        if aligned and len(set(sizes)) > 1:
            raise EffectError("owners of different columns hold the same units: give one number")
        drawn = [self._rows(sizes[0], rng)] * len(sizes) if aligned else [self._rows(n, rng) for n in sizes]
        return [
            {column.name: rows[column.name] for column in study.domain_of(owner).columns}
            for owner, rows in zip(study.owners, drawn, strict=True)
        ]

    def words(self) -> str:
        """Say how strongly which columns depend on each other."""
        pair = " and ".join(self.pair)
        if self._as_given:
            return f"the dependence between {pair} that the public sample has"
        what = "correlation" if self.effect.shape == "linear" else "quadratic dependence"
        return f"a {what} of {self.size:.3g} between {pair}"

    @property
    def _as_given(self) -> bool:
        """Whether the effect is the dependence that the public sample itself has."""
        return self.public is not None and self.effect.size is None

    def _rows(self, size: int, rng: np.random.Generator) -> Columns:
        domain = self.study.domain
        if self._as_given:
            return draw_rows(self.public, domain, size, rng)
        return dependent_rows(
            self.public,
            domain,
            size,
            rng,
            pair=self.pair,
            correlation=self.size,
            shape=self.effect.shape,
        )


def draw_rows(public: Columns | None, domain: Domain, size: int, rng: np.random.Generator) -> Columns:
    """Draw rows of a public sample with replacement, or of independent stand-ins."""
    if public is not None:
        rows = rng.integers(0, rows_of(public), size)
        return {name: values[rows] for name, values in public.items()}
    return {column.name: values_of(None, column, rng.standard_normal(size)) for column in domain.columns}


def rows_of(columns: Columns) -> int:
    """Return the number of rows."""
    return len(next(iter(columns.values())))


def values_of(public: Columns | None, column: Column, latent: Floats) -> npt.NDArray[Any]:
    """Return a column's values, (n,), increasing in latent numbers (n,), which are standard normal."""
    if public is not None:
        held = keys = public[column.name]
        if isinstance(column, CategoricalColumn):
            place = {level: number for number, level in enumerate(column.levels)}
            keys = np.array([place.get(str(value), len(place)) for value in held])
        ordered, rows = held[np.argsort(keys, kind="stable")], len(held)
        return np.asarray(ordered[np.minimum((ndtr(latent) * rows).astype(int), rows - 1)])
    if isinstance(column, NumericColumn):
        return np.asarray(column.lower / 2 + column.upper / 2 + latent * stand_in_deviation(column))
    levels = np.array(column.levels, dtype=object)
    return np.asarray(levels[np.minimum((ndtr(latent) * len(levels)).astype(int), len(levels) - 1)])


def stand_in_deviation(column: NumericColumn) -> float:
    """Return the standard deviation of a numeric column's stand-in."""
    return (column.upper - column.lower) / STAND_IN_SPREAD


def dependent_rows(
    public: Columns | None,
    domain: Domain,
    size: int,
    rng: np.random.Generator,
    *,
    pair: tuple[str, str],
    correlation: float,
    shape: Shape,
) -> Columns:
    """Draw rows whose columns are independent, but for one pair.

    The pair are increasing functions of normal numbers of that correlation; or, of shape "quadratic", of x
    and of correlation * (x^2 - 1) / sqrt(2) + sqrt(1 - correlation^2) * noise. Every column has the
    distribution of its stand-in, or of the public sample.
    """
    latent = {column.name: rng.standard_normal(size) for column in domain.columns}
    first, rest = latent[pair[0]], latent[pair[1]]
    carried = first if shape == "linear" else (first**2 - 1) / np.sqrt(2)
    latent[pair[1]] = correlation * carried + np.sqrt(1 - correlation**2) * rest
    return {column.name: values_of(public, column, latent[column.name]) for column in domain.columns}


def by_column(effect: Amounts, domain: Domain, neutral: float) -> dict[str, float]:
    """Return the effect on each numeric column; raises EffectError where it names what is none."""
    numeric = [column.name for column in domain.numeric]
    if not isinstance(effect, Mapping):
        return dict.fromkeys(numeric, float(effect))
    unknown = [name for name in effect if name not in numeric]
    if unknown:
        raise EffectError(f"an effect names {', '.join(map(repr, unknown))}, which is no numeric column")
    return {name: float(effect.get(name, neutral)) for name in numeric}


def with_effect(
    drawn: Columns, public: Columns | None, domain: Domain, shift: Amounts, scale: Amounts
) -> Columns:
    """Return the rows drawn with an effect on numeric columns, about the public sample's means.

    Values become ``centre + scale * (x - centre) + shift``.

    Raises:
        EffectError: an effect names what is no numeric column.
    """
    shifts, scales = by_column(shift, domain, 0.0), by_column(scale, domain, 1.0)
    columns = dict(drawn)
    for column in domain.numeric:
        centre = column.lower / 2 + column.upper / 2
        if public is not None:
            centre = float(np.nanmean(public[column.name]))
        values = drawn[column.name]
        columns[column.name] = centre + scales[column.name] * (values - centre) + shifts[column.name]
    return columns


def first_column(domain: Domain) -> Column:
    """Return the column that a standard effect is on: the first numeric one, or else the first."""
    return domain.numeric[0] if domain.numeric else domain.columns[0]


def with_standard_effect(
    drawn: Columns, public: Columns | None, domain: Domain, size: float, rng: np.random.Generator
) -> Columns:
    """Return the rows with one column shifted by so many of its standard deviations.

    Without a numeric column the first one's levels are drawn as cuts of a normal number that is shifted.
    """
    column = first_column(domain)
    if isinstance(column, NumericColumn):
        deviation = stand_in_deviation(column)
        if public is not None:
            deviation = float(np.nanstd(public[column.name]))
        return with_effect(drawn, public, domain, {column.name: size * deviation}, 1.0)
    moved = values_of(public, column, rng.standard_normal(rows_of(drawn)) + size)
    return {**drawn, column.name: moved}
