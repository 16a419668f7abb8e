"""Two owners or more with columns of the same units: whose table it is, and public draws."""

import math
from collections.abc import Mapping
from typing import Any

import numpy as np

from tacit_protocol.domain import Domain
from tacit_protocol.messages.study import Owner, Release, Study
from tacit_protocol.procedures.base import (
    Fields,
    ReleaseError,
    Releases,
    StudyError,
    public_seed,
)
from tacit_protocol.procedures.plan import Plan
from tacit_protocol.procedures.relay import MATCHED_BY_ORDER
from tacit_protocol.verdicts.presentation import Meaning, decision_sentence, names_of

PERMUTATIONS_DEFAULT = 999
"""P-values down to 1e-3."""

DIRECTIONS_STREAM, DESIGN_STREAM, NULL_STREAM, ROWS_STREAM = 1, 2, 3, 4
"""Spawn keys under the study's seed; the last of the row that counts of a unit with several."""

SIGNAL_HOPELESS = 6.0
"""Noncentrality of columns that are equal, or of groups as unlike as can be: with less even they are found in
less than half of all studies."""


def require_two_sides(study: Study) -> None:
    """Raise StudyError unless two owners, without a curator, hold all of the columns, each its own."""
    if study.curator is not None:
        raise StudyError("owners send their own releases here; leave the curator out")
    if len(study.owners) != 2:
        raise StudyError("distance correlation is between two owners")
    held = [_names(owner) for owner in study.owners]
    everything = {column.name for column in study.domain.columns}
    if held[0] & held[1] or held[0] | held[1] != everything:
        raise StudyError("give each owner its own columns; every column belongs to one owner")


class ColumnsApart(Plan):
    """Owners hold different columns of the same units: what each releases depends on its place."""

    def layout(self, side: int, units: int) -> Any:
        """Lay out one owner's release of so many units; raises PublicRuleError where there can be none."""
        raise NotImplementedError

    def check_side(self, side: int, release: Release) -> None:
        """Raise ReleaseError where a release has not the shape and the noise of that owner's."""
        raise NotImplementedError

    def require_same_units(self) -> None:
        """Raise StudyError where owners plan for other units than each other, or than a release can hold."""
        study = self.study
        if study.unit_column is not None and study.alignment is None:
            raise StudyError("with a unit column, name the digest of the owners' alignment of their units")
        expected = {owner.units for owner in study.owners if owner.units is not None}
        if len(expected) > 1:
            raise StudyError("both owners hold the same units, so their numbers must agree")
        for units in expected:
            self.layout(0, units)
            self.layout(1, units)

    def check_units(self, units: Mapping[str, int]) -> None:
        for side, owner in enumerate(self.study.owners):
            if owner.name in units:
                self.layout(side, units[owner.name])

    def place(self, name: str) -> int:
        """Return the place, among the owners, of the one of that name."""
        return [owner.name for owner in self.study.owners].index(name)

    def check_received(self, name: str, release: Release) -> None:
        self.check_side(self.place(name), release)

    def checked(self, releases: Releases) -> list[Release]:
        """Return the releases in the owners' order; raises ReleaseError where they do not fit each other."""
        own = [releases[owner.name] for owner in self.study.owners]
        for side, release in enumerate(own):
            self.check_side(side, release)
        if len({release.units for release in own}) > 1:
            raise ReleaseError("the owners counted different numbers of units: their rows are not aligned")
        return own

    @property
    def matched(self) -> tuple[str, ...]:
        """What a verdict says of how the owners' rows were matched."""
        return () if self.study.alignment is not None else (MATCHED_BY_ORDER,)


def dependence_meaning(study: Study, verdict: Fields) -> Meaning:
    """Say what a test of dependence between two owners' columns means."""
    between = f"columns at {names_of(study)}"
    return decision_sentence(
        study,
        verdict,
        f"The {between} depend on each other, linearly or not",
        f"No dependence between the {between} was shown: they may be independent",
    )


def few_permutations(level: float, permutations: int, tests: int = 1) -> tuple[str, ...]:
    """Warn where so few permutations, or simulations, of each of so many tests cannot reject at the level."""
    if tests / (permutations + 1) <= level:
        return ()
    return (
        "with so few permutations nothing can be rejected at this level; ask for at least "
        f"{math.ceil(tests / level) - 1} permutations, which cost no privacy",
    )


def side_of(study: Study, domain: Domain) -> int:
    """Return the place in the study of the owner who holds these columns; raises StudyError for neither."""
    for side, owner in enumerate(study.owners):
        if study.domain_of(owner) == domain:
            return side
    raise StudyError("the table's columns are not those of either owner")


def public_generator(study: Study, *stream: int) -> np.random.Generator:
    """Return the study's public randomness of one stream."""
    return np.random.default_rng(public_seed(study, *stream))


def _names(owner: Owner) -> set[str]:
    if owner.columns is None:
        raise StudyError("say which columns each owner holds")
    return set(owner.columns)
