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
    Guarantee,
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
    Procedure,
    Progress,
    PublicRuleError,
    ReleaseError,
    StudyError,
    public_seed,
    require_noise,
)
from tacit_protocol.procedures.plan import Combined, Relay
from tacit_protocol.procedures.relay import MATCHED_BY_ORDER
from tacit_protocol.verdicts.base import BaseVerdict

Integers = npt.NDArray[np.int64]
Floats = npt.NDArray[np.float64]

ROWS_STREAM = 4
"""Spawn key, under the study's seed, of the row that counts of a unit with several."""

UNITS_MIN = 20
"""Fewest units that answer."""

SIGNAL_HOPELESS = 6.0
"""Noncentrality of two groups that are as unlike as can be: below it even they are found in less than half of
all studies."""


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


@dataclass(frozen=True)
class AnsweredColumnPlan:
    """What such a study fixes before any data.

    Attributes:
        column: the sender's only column.
        own: the receiver's columns.
        sums: what the receiver sums.
    """

    study: Study
    sender: Owner
    receiver: Owner
    column: CategoricalColumn
    own: Domain
    sums: AnsweredSums = field(repr=False)

    @property
    def codes(self) -> int:
        """How many answers there are: one of each listed level. Others, and missing ones, answer blindly."""
        return answered_categories(self.column)

    @property
    def costs(self) -> Mapping[str, Guarantee]:
        """What each owner spends: all of epsilon, and no delta."""
        budget = self.study.budget
        return {
            self.sender.name: choice_guarantee(budget),
            self.receiver.name: laplace_sum_guarantee(budget),
        }

    # What leaves.

    def read(self, table: Table, received: Release | None = None) -> OwnCodes | OwnSums:
        """Read one row of every unit of an owner's table, exactly; ``received`` makes it the receiver's.

        Raises:
            StudyError: the owners count different numbers of units.
        """
        require_countable(self.codes, table.units)
        owner = self.sender if received is None else self.receiver
        if table.domain != self.study.domain_of(owner):
            raise StudyError(
                f"{self.receiver.name} reads its rows beside the answers of {self.sender.name}, who holds "
                f"{self.column.name} alone"
            )
        if received is not None and received.units != table.units:
            raise StudyError("the owners counted different numbers of units: their rows are not aligned")
        rows = read_units(table, np.random.default_rng(public_seed(self.study, ROWS_STREAM)))
        if received is None:
            cells = ColumnCells(self.column, 0, self.codes, bought=False)
            return OwnCodes(cells.codes(rows.numeric, rows.categorical, ()))
        return OwnSums(table.units, self.sums.part(table.units, self.answers_in(received).values(), rows))

    def require_drawable(self, units: int) -> None:
        """Raise SensitivityError or ValueError where the noise on so many units' sums cannot be drawn."""
        require_laplace(self.sums.part(units), self.costs[self.receiver.name])

    def release(self, summary: OwnCodes | OwnSums, noise: NoiseSource) -> Release:
        """Draw answers, or the noise of the sums beside the other owner's answers."""
        if isinstance(summary, OwnSums):
            guarantee = self.costs[self.receiver.name]
            vector = release_laplace_sums(summary.part, guarantee, noise)
            return Release(units=summary.units, guarantee=guarantee, vectors={summary.part.name: vector})
        if not isinstance(noise, UniformSource):
            raise TypeError("this noise source draws numbers alone, and the study asks for answers")
        answers = randomise(summary.codes, self.codes, self.study.budget.epsilon_micro, noise)
        return Release(
            units=len(summary.codes),
            guarantee=self.costs[self.sender.name],
            answers={self.column.name: answers},
        )

    # What is checked, and read.

    def check_answers(self, release: Release) -> None:
        """Raise ReleaseError where a release is not the sender's answers; of one read again, by its shape."""
        fresh = self.sender.reuses is None
        try:
            require_countable(self.codes, release.units)
            if fresh and release.guarantee != self.costs[self.sender.name]:
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

    def check_sums(self, release: Release) -> None:
        """Raise ReleaseError where a release is not the receiver's noisy sums."""
        try:
            require_countable(self.codes, release.units)
            part = self.sums.part(release.units)
            if set(release.vectors) != {part.name} or release.answers or release.cuts:
                raise LayoutError("the release has not the sums of the second round, and nothing else")
            fixed = self.costs[self.receiver.name]
            check_laplace_sums(release.vectors[part.name], release.guarantee, part, fixed)
        except (StudyError, ValueError) as error:
            raise ReleaseError(str(error)) from None

    def reread(self, source: Study, release: Release) -> Release:
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
        self.check_answers(sent)
        self.check_sums(answer)
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

    # What is said of it.

    def numbers_sent(self) -> int:
        """Return how many answers the sender sends, at most: it depends on the number of units."""
        known = [owner.units for owner in self.study.owners if owner.units is not None]
        return known[0] if known else COORDINATES_MAX

    @property
    def relay(self) -> Relay:
        """Return who sends what to whom."""
        odds = math.exp(self.study.budget.epsilon)
        return Relay(
            self.sender,
            self.receiver,
            publishes=True,
            sealed=False,
            numbers=len(self.sums.part(UNITS_MIN).sums),
            sends=(
                f"of every unit, one randomised answer to which level of {self.column.name} it has. It is a "
                f"record of a person, who is known to the other owner, and is seen by {self.receiver.name}, "
                "the tester and the analyst. It may be false: whatever else is known, it changes nobody's "
                f"odds of having one level or another by more than a factor of {odds:.3g}"
            ),
            costs=self.costs,
        )

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        """Say where no difference between levels could be seen, at these numbers of units."""
        kept = retention(self.study.budget.epsilon_micro, self.codes)
        if units and min(units.values()) * kept**2 / self.codes < SIGNAL_HOPELESS:
            return (
                f"{HOPELESS}randomised answers of so few units hide whatever goes with "
                f"{self.column.name}; ask for more units, fewer levels, or a larger epsilon",
            )
        return ()

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


class BesideAnswers(Procedure):
    """A procedure one of whose columns may be another owner's, of which it released randomised answers."""

    RelayedVerdict: ClassVar[type[BaseVerdict]]
    """Of such a study."""

    def beside(self, study: Study) -> AnsweredColumnPlan | None:
        """Return what such a study fixes; None where every owner holds all columns."""
        raise NotImplementedError

    def conclude_beside(
        self, plan: AnsweredColumnPlan, releases: Mapping[str, Release], progress: Progress | None = None
    ) -> BaseVerdict:
        """Compute the verdict from the answers and the sums beside them."""
        raise NotImplementedError

    def check_units(self, study: Study, units: Mapping[str, int]) -> None:
        """Raise PublicRuleError where the study cannot be run with these numbers of units, by owner."""
        if (plan := self.beside(study)) is not None:
            for count in units.values():
                require_countable(plan.codes, count)
                require_noise(partial(plan.require_drawable, count))

    def relay(self, study: Study) -> Relay | None:
        """Return who sends answers to whom; None where every owner holds all columns."""
        plan = self.beside(study)
        return None if plan is None else plan.relay

    def check_received(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where a sender's release has not the shape and the noise of the study's."""
        self._plan_beside(study).check_answers(release)

    def combine(self, study: Study, received: Release, table: Table) -> Combined:
        """Sum the receiver's own rows by the sender's answers, exactly."""
        return Combined(summary=self._plan_beside(study).read(table, received))

    def conclude(
        self,
        study: Study,
        units: Mapping[str, int],  # noqa: ARG002 (releases state them)
        releases: Mapping[str, Release],
        progress: Progress | None = None,
    ) -> BaseVerdict:
        """Compute the verdict of two rounds: post-processing alone, the same for everyone."""
        return self.conclude_beside(self._plan_beside(study), releases, progress)

    def check_reread(self, study: Study, release: Release) -> None:
        """Raise ReleaseError where an earlier release, read again, cannot be read for the study."""
        if (plan := self.beside(study)) is not None:
            plan.check_answers(release)
        else:
            self.check_release(study, release)

    def _plan_beside(self, study: Study) -> AnsweredColumnPlan:
        plan = self.beside(study)
        if plan is None:
            raise StudyError("every owner holds all columns: nobody receives another's release")
        return plan
