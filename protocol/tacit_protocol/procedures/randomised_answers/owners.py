"""Owners of different columns of the same units, who release randomised answers of them.

In two rounds all owners but one release randomised answers; the last, to whom these are public, counts its
own cells beside them, and releases noisy tables. In one round all release answers. Of two owners or more.
"""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property

from tacit_protocol.domain import Table
from tacit_protocol.features.private_cells import SingleRows, read_units
from tacit_protocol.messages.study import Release
from tacit_protocol.privacy.guarantee import Guarantee
from tacit_protocol.procedures.base import HOPELESS, Releases, StudyError
from tacit_protocol.procedures.plan import Combined, Relay
from tacit_protocol.procedures.randomised_answers.sides import (
    ROWS_STREAM,
    SIGNAL_HOPELESS,
    ColumnsApart,
    few_permutations,
    public_generator,
    side_of,
)


@dataclass(frozen=True)
class OwnUnits:
    """One owner's rows, which never leave it, and what the others sent it, by name."""

    side: int
    rows: SingleRows
    received: Releases


class AnswersOfOwners(ColumnsApart):
    """A study by randomised answers.

    Attributes:
        names: each owner's columns, in the study's order of owners.
        last: the place, among the owners, of the one who counts beside the answers; None in one round.
        simulations: how many a test has.
        tests: by how many of them p-values are multiplied.
        whose: which units answer, in words.
        costs: what each owner spends, by name, where they do not spend alike.
    """

    names: tuple[tuple[str, ...], ...]
    last: int | None
    simulations: int
    tests: int = 1
    whose: str = "unit"
    costs: Mapping[str, Guarantee] = {}

    def numbers_sent(self, side: int) -> int:
        """Return how many noisy numbers an owner sends, at most: it depends on the number of units."""
        raise NotImplementedError

    def signal(self, units: int) -> float:
        """Return the noncentrality that two equal columns would have, about."""
        raise NotImplementedError

    def answers_at(self, side: int) -> bool:
        """Whether that owner's columns are randomised."""
        return side != self.last

    @cached_property
    def order(self) -> tuple[int, ...]:
        """The owners' places, whoever counts last."""
        return tuple(sorted(range(len(self.names)), key=lambda place: place == self.last))

    @cached_property
    def release_size(self) -> int:  # type: ignore[override]
        """How many noisy numbers the first owner sends, at most."""
        return self.numbers_sent(self.order[0])

    @cached_property
    def relay(self) -> Relay | None:  # type: ignore[override]
        """Who sends answers to whom; None in one round."""
        if self.last is None:
            return None
        first, *more = (self.study.owners[place] for place in self.order[:-1])
        return Relay(
            first,
            self.study.owners[self.last],
            publishes=True,
            sealed=False,
            numbers=self.numbers_sent(self.last),
            sends=self.answer_words("its owner's column" if more else self.answered(self.order[0])),
            costs=self.costs,
            more=tuple(more),
        )

    def warnings(self, units: Mapping[str, int]) -> tuple[str, ...]:
        found = few_permutations(self.study.level, self.simulations, self.tests)
        if units and self.signal(min(units.values())) < SIGNAL_HOPELESS:
            hidden = "even equal columns would hardly be told from independent ones; ask for more units"
            found = (*found, f"{HOPELESS}{hidden}")
        return found

    def answered(self, side: int) -> str:
        """Name the columns that an owner's answers are about."""
        return ", ".join(self.names[side])

    def answer_words(self, column: str) -> str:
        """Say what randomised answers are, who sees them, and what they change, for a steward."""
        odds = math.exp(self.study.budget.epsilon)
        known, seen = ("owner", "the other owner") if len(self.names) == 2 else ("owners", "them")
        return (
            f"of every {self.whose}, one randomised answer to which cell of {column} it is in. It is a "
            f"record of a person, who is known to the other {known}, and is seen by {seen}, the tester and "
            "the analyst. It may be false: whatever else is known, it changes nobody's odds of being in one "
            f"cell or another by more than a factor of {odds:.3g}"
        )

    def record_of(self, name: str) -> str:
        return "" if self.last is not None else self.answer_words(self.answered(self.place(name)))

    def summarise(self, table: Table, order: object = None) -> OwnUnits:  # noqa: ARG002
        return self.read(table, {})

    def combine(self, received: Releases, table: Table) -> Combined:
        return Combined(summary=self.read(table, received))

    def read(self, table: Table, received: Releases) -> OwnUnits:
        """Read one row of every unit, exactly; the table's columns tell which owner it is.

        Units have the places that the table gives them, the same at all owners.

        Raises:
            StudyError: the owners count different numbers of units.
        """
        side = side_of(self.study, table.domain)
        self.layout(side, table.units)
        if any(release.units != table.units for release in received.values()):
            raise StudyError("the owners counted different numbers of units: their rows are not aligned")
        return OwnUnits(side, read_units(table, public_generator(self.study, ROWS_STREAM)), received)

    def check_release(self, release: Release) -> None:
        if self.last is not None:
            self.check_side(self.last, release)
            return
        sides = [side for side, own in enumerate(self.names) if set(own) & set(release.answers)]
        self.check_side(sides[0] if sides else 0, release)
