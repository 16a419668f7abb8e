"""One owner's category beside what another owner holds of the same units: randomised answers, then sums.

In round one the owner of a categorical column, the sender, releases one randomised answer a unit. In round
two the receiver, to whom these answers are public, sums numbers of its own rows by answer, and releases the
noisy sums. With the answers fixed, a replaced unit of the receiver stays at its answer: it moves the sums of
one answer alone, by what its own numbers can move. Both releases are pure, each at the whole of epsilon.

What a procedure sums, and concludes, is its own: here are the columns, both releases and what is checked.
Derivations: docs/mathematics/randomised-columns.md.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import partial
from typing import ClassVar, Protocol

import numpy as np
import numpy.typing as npt

from tacit_protocol.domain import CategoricalColumn, Domain, Table
from tacit_protocol.features.private_cells import ColumnCells, SingleRows, answered_categories, read_units
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.privacy.gaussian_mechanism import LayoutError, SumPart
from tacit_protocol.privacy.guarantee import (
    ANSWER_BYTES_MAX,
    CODES_MAX,
    COORDINATES_MAX,
    RandomisedAnswers,
    answer_bits,
)
from tacit_protocol.privacy.laplace_mechanism import (
    check_laplace_sums,
    choice_guarantee,
    laplace_sum_guarantee,
    release_laplace_sums,
    require_laplace,
    sums_scale,
)
from tacit_protocol.privacy.noise import NoiseSource
from tacit_protocol.privacy.randomised_response import UniformSource, randomise, retention
from tacit_protocol.procedures.base import (
    HOPELESS,
    PublicRuleError,
    ReleaseError,
    StudyError,
    require_noise,
    units_declared,
)
from tacit_protocol.procedures.plan import Combined, Plan, Relay, Releases
from tacit_protocol.procedures.randomised_answers.sides import (
    ROWS_STREAM,
    SIGNAL_HOPELESS,
    public_generator,
)
from tacit_protocol.procedures.relay import MATCHED_BY_ORDER

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

UNITS_MIN = 20
"""Fewest units that answer."""


class AnsweredSums(Protocol):
    """What a receiver sums of its rows, by answer."""

    def part(self, units: int, answers: Integers | None = None, rows: SingleRows | None = None) -> SumPart:
        """Return the sums, answer after answer, with their L1 sensitivity; zeros where no rows are given."""


@dataclass(frozen=True)
class OwnCodes:
    """The sender's exact cells, (n,), or NO_CELL. They never leave the owner."""

    codes: Integers = field(repr=False)


@dataclass(frozen=True)
class OwnSums:
    """The receiver's exact sums. They never leave the owner."""

    units: int
    part: SumPart = field(repr=False)


class AnsweredColumnPlan(Plan):
    """Randomised answers of one owner's only column, and sums of another's rows by them.

    A subclass concludes. It is made of what :func:`beside` returns.

    Attributes:
        column: the sender's only column.
        own: the receiver's columns.
        sums: what the receiver sums.
        codes: how many answers there are: one of each listed level. Others, and missing ones, answer blindly.
        costs: what each owner spends, by name: all of epsilon, and no delta.
    """

    rereads: ClassVar[bool] = True
    relay: Relay

    def __init__(
        self, study: Study, between: tuple[Owner, Owner, CategoricalColumn, Domain], sums: AnsweredSums
    ) -> None:
        self.study, self.sums = study, sums
        self.sender, self.receiver, self.column, self.own = sender, receiver, column, _ = between
        self.codes = answered_categories(column)
        self.guarantee = choice_guarantee(study.budget)
        self.costs = {sender.name: self.guarantee, receiver.name: laplace_sum_guarantee(study.budget)}
        # One answer a unit: without their number, at most.
        self.release_size = next(iter(units_declared(study).values()), COORDINATES_MAX)
        odds = math.exp(study.budget.epsilon)
        self.relay = Relay(
            sender,
            receiver,
            publishes=True,
            sealed=False,
            numbers=len(sums.part(UNITS_MIN).sums),
            sends=(
                f"of every unit, one randomised answer to which level of {column.name} it has. It is a "
                f"record of a person, who is known to the other owner, and is seen by {receiver.name}, "
                "the tester and the analyst. It may be false: whatever else is known, it changes nobody's "
                f"odds of having one level or another by more than a factor of {odds:.3g}"
            ),
            costs=self.costs,
        )

    def check_units(self, units: Mapping[str, int]) -> None:
        for count in units.values():
            require_countable(self.codes, count)
            require_noise(partial(self._require_drawable, count))

    def _require_drawable(self, units: int) -> None:
        require_laplace(self.sums.part(units), self.costs[self.receiver.name])

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where no difference between levels could be seen, at these numbers of units."""
        kept = retention(self.study.budget.epsilon_micro, self.codes)
        if units and min(units.values()) * kept**2 / self.codes < SIGNAL_HOPELESS:
            return (
                f"{HOPELESS}randomised answers of so few units hide whatever goes with "
                f"{self.column.name}; ask for more units, fewer levels, or a larger epsilon",
            )
        return ()

    # What leaves.

    def summarise(self, table: Table, order: np.random.Generator | None = None) -> OwnCodes:  # noqa: ARG002
        self._require_held(self.sender, table)
        rows = self._rows(table)
        cells = ColumnCells(self.column, 0, self.codes, bought=False)
        return OwnCodes(cells.codes(rows.numeric, rows.categorical, ()))

    def combine(self, received: Releases, table: Table) -> Combined:
        """Sum one row of every unit of the receiver's table by the sender's answers, exactly.

        Raises:
            StudyError: the owners count different numbers of units.
        """
        (sent,) = received.values()
        self._require_held(self.receiver, table)
        if sent.units != table.units:
            raise StudyError("the owners counted different numbers of units: their rows are not aligned")
        rows = self._rows(table)
        return Combined(
            summary=OwnSums(table.units, self.sums.part(table.units, self.answers_in(sent).values(), rows))
        )

    def _require_held(self, owner: Owner, table: Table) -> None:
        require_countable(self.codes, table.units)
        if table.domain != self.study.domain_of(owner):
            raise StudyError(
                f"{self.receiver.name} reads its rows beside the answers of {self.sender.name}, who holds "
                f"{self.column.name} alone"
            )

    def _rows(self, table: Table) -> SingleRows:
        return read_units(table, public_generator(self.study, ROWS_STREAM))

    def privatise(self, summary: OwnCodes | OwnSums, noise: NoiseSource) -> Release:
        if isinstance(summary, OwnSums):
            guarantee = self.costs[self.receiver.name]
            vector = release_laplace_sums(summary.part, guarantee, noise)
            return Release(units=summary.units, guarantee=guarantee, vectors={summary.part.name: vector})
        if not isinstance(noise, UniformSource):
            raise TypeError("this noise source draws numbers alone, and the study asks for answers")
        answers = randomise(summary.codes, self.codes, self.study.budget.epsilon_micro, noise)
        return Release(
            units=len(summary.codes), guarantee=self.guarantee, answers={self.column.name: answers}
        )

    # What is checked, and read.

    def check_received(self, name: str, release: Release) -> None:  # noqa: ARG002
        self.check_reread(release)

    def check_reread(self, release: Release) -> None:
        """Raise ReleaseError where a release is not the sender's answers; of one read again, by its shape."""
        fresh = self.sender.reuses is None
        try:
            require_countable(self.codes, release.units)
            if fresh and release.guarantee != self.guarantee:
                raise LayoutError("the release states another guarantee than the study")
            if set(release.answers) != {self.column.name} or release.vectors or release.cuts:
                raise LayoutError("the release has not one answer of every unit, and nothing else")
            own = self.answers_in(release)
            if (own.codes, own.units) != (self.codes, release.units) or own.values().max() >= own.codes:
                raise LayoutError("the answers have not the shape that the study fixes")
            if fresh and own.retention != retention(self.study.budget.epsilon_micro, self.codes):
                raise LayoutError("the answers are not randomised as the study fixes")
        except (StudyError, ValueError) as error:
            raise ReleaseError(str(error)) from None

    def check_release(self, release: Release) -> None:
        try:
            require_countable(self.codes, release.units)
            part = self.sums.part(release.units)
            if set(release.vectors) != {part.name} or release.answers or release.cuts:
                raise LayoutError("the release has not the sums of the second round, and nothing else")
            fixed = self.costs[self.receiver.name]
            check_laplace_sums(release.vectors[part.name], release.guarantee, part, fixed)
        except (StudyError, ValueError) as error:
            raise ReleaseError(str(error)) from None

    def reread(self, owner: Owner, source: Study, release: Release) -> Release:  # noqa: ARG002
        """Return the sender's answers for an earlier study as this one expects them.

        Raises:
            StudyError: it released no answers of the same column.
        """
        if self.column not in source.domain.columns or self.column.name not in release.answers:
            raise StudyError("the earlier study released no answers of this column, with these levels")
        answers = {self.column.name: self.answers_in(release)}
        return Release(units=release.units, guarantee=release.guarantee, answers=answers)

    def answers_in(self, release: Release) -> RandomisedAnswers:
        """Return the answers in the sender's release."""
        return release.answers[self.column.name]

    def known(self, releases: Mapping[str, Release]) -> "AnswerCounts":
        """Return what everybody reads; raises ReleaseError where releases do not fit."""
        sent, answer = releases[self.sender.name], releases[self.receiver.name]
        self.check_reread(sent)
        self.check_release(answer)
        if sent.units != answer.units:
            raise ReleaseError("the owners counted different numbers of units: their rows are not aligned")
        part = self.sums.part(answer.units)
        answers = self.answers_in(sent)
        return AnswerCounts(
            np.bincount(answers.values(), minlength=self.codes).astype(np.int64),
            answer.vectors[part.name].mean(1),
            answers.retention,
            sums_scale(part, self.costs[self.receiver.name]),
        )

    @property
    def caveats(self) -> tuple[str, ...]:
        """What a verdict says of how the owners' rows were matched."""
        return () if self.study.alignment is not None else (MATCHED_BY_ORDER,)


@dataclass(frozen=True)
class AnswerCounts:
    """What everybody knows: exact numbers of answers (k,), and noisy sums, as the receiver laid them out.

    ``kept`` is the answers' retention, ``noise`` the Laplace scale on every sum.
    """

    answers: Integers
    sums: Floats
    kept: float
    noise: float

    @property
    def units(self) -> int:
        """Number of units."""
        return int(self.answers.sum())


def require_countable(codes: int, units: int) -> None:
    """Raise PublicRuleError where so many units cannot be answered for: too few, or too many."""
    if units < UNITS_MIN:
        raise PublicRuleError("too-few-units", f"answers need {UNITS_MIN} units or more")
    if units * answer_bits(codes) // 8 > ANSWER_BYTES_MAX:
        raise PublicRuleError("too-many-units", "so many units' answers do not fit one release")


def beside(study: Study, wanted: str | None = None) -> tuple[Owner, Owner, CategoricalColumn, Domain]:
    """Return sender, receiver, the one's column, the other's columns; ``wanted`` names the column.

    By default the first owner that holds a single categorical column sends it.

    Raises:
        StudyError: the study is not between two such owners.
    """
    if study.curator is not None or len(study.owners) != 2:
        raise StudyError("columns of different owners are asked about between two owners, without a curator")
    held = [study.domain_of(owner) for owner in study.owners]
    names = [{column.name for column in domain.columns} for domain in held]
    if not all(owner.columns for owner in study.owners) or names[0] & names[1]:
        raise StudyError("give each owner its own columns; every column belongs to one owner")
    if names[0] | names[1] != {column.name for column in study.domain.columns}:
        raise StudyError("give each owner its own columns; every column belongs to one owner")
    if study.unit_column is not None and study.alignment is None:
        raise StudyError("with a unit column, name the digest of the owners' alignment of their units")
    if len({owner.units for owner in study.owners} - {None}) > 1:
        raise StudyError("both owners hold the same units, so their numbers must agree")
    for place, domain in enumerate(held):
        column = domain.columns[0]
        if len(domain.columns) > 1 or not isinstance(column, CategoricalColumn):
            continue
        if wanted in (None, column.name):
            if not 2 <= len(column.levels) <= CODES_MAX:
                raise StudyError(f"a randomised column has 2 to {CODES_MAX} levels")
            return study.owners[place], study.owners[1 - place], column, held[1 - place]
    raise StudyError(
        "one of two owners of different columns must hold a single categorical column, of which it releases "
        "randomised answers" + (f": {wanted}" if wanted else "")
    )
