"""Two owners or more with columns of the same units: whose table it is, and public draws."""

from typing import Protocol

import numpy as np

from tacit_protocol.domain import Domain
from tacit_protocol.messages.study import Owner, Study
from tacit_protocol.procedures.base import (
    StudyError,
    public_seed,
)

PERMUTATIONS_DEFAULT = 999
"""P-values down to 1e-3."""


DIRECTIONS_STREAM, DESIGN_STREAM, NULL_STREAM = 1, 2, 3
"""Spawn keys under the study's seed."""


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


class LaidOut(Protocol):
    """What a study fixes of either owner's release for a number of units."""

    def layout(self, side: int, units: int) -> object:
        """Lay out one owner's release of so many units; raises StudyError where there can be none."""


def require_same_units(study: Study, plan: LaidOut) -> None:
    """Raise StudyError where owners plan for other units than each other, or than a release can hold."""
    if study.unit_column is not None and study.alignment is None:
        raise StudyError("with a unit column, name the digest of the owners' alignment of their units")
    expected = {owner.units for owner in study.owners if owner.units is not None}
    if len(expected) > 1:
        raise StudyError("both owners hold the same units, so their numbers must agree")
    for units in expected:
        plan.layout(0, units)
        plan.layout(1, units)


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
