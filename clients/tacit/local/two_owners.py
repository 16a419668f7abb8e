"""What two owners of different columns hold, in one process: their columns, and their units in one order.

Where each side has ids of its own, units are put in order as agents do it: by the keyed hash of an id, in the
form in which two systems compare it. The key is drawn afresh and forgotten.
"""

import secrets
from collections.abc import Sequence
from copy import deepcopy
from dataclasses import dataclass
from datetime import date
from decimal import Decimal
from typing import Any, cast

import narwhals.stable.v1 as nw
import numpy as np
import numpy.typing as npt

from tacit.errors import InputError
from tacit.in_process.runner import Aligned
from tacit.in_process.samples import ArrayTable, Sample, drawing
from tacit.local.inputs import Missing, Variables, read_variables
from tacit_protocol.messages.alignment import KEY_BYTES, AlignmentError, UnitHashes, UnitKey, canonical_id
from tacit_protocol.messages.study import Study, UnitRows

Ids = npt.ArrayLike
Units = Ids | tuple[Ids, Ids]
"""(n,), the unit of each row of both owners; or, of each owner, (rows,), the ids of the units of its rows."""

NAMES = ("x", "y")
"""What callers know the two owners' columns by."""

UNIT_COLUMN = "unit"
"""Name of the column of ids, with as many underscores as it takes to be no other column's."""

FLOAT_EXACT_MAX = 2.0**53
"""Whole floating numbers up to this one are distinct integers; larger ones may be several ids in one."""

NO_ID = "every row needs an id"
WRONG_KIND = "ids are text, whole numbers or dates"


@dataclass(frozen=True)
class TwoOwners:
    """Two owners' columns; the unit of each of their rows, or None; and how units were aligned, if at all.

    ``draws`` draw one row of each unit: the same for both sides where they hold the same rows.
    """

    variables: Variables
    units: tuple[Ids | None, Ids | None]
    aligned: Aligned | None
    draws: tuple[np.random.Generator | None, np.random.Generator | None]

    def tables(self, study: Study) -> list[ArrayTable]:
        """Return each owner's table, in the study's order."""
        found = []
        for owner, units, draw in zip(study.owners, self.units, self.draws, strict=True):
            domain = study.domain_of(owner)
            held = {column.name: self.variables.sample.columns[column.name] for column in domain.columns}
            found.append(ArrayTable.of(Sample(held), domain, units, draw))
        return found


def read_two_owners(
    x: Any, y: Any, bounds: Any, missing: Missing, units: Units | None, *, unit_rows: UnitRows = "average"
) -> TwoOwners:
    """Read both owners' columns and units.

    Raises:
        InputError: they cannot be used, or the ids of the two sides are not of the same units.
    """
    pair, draw = _pair(units), drawing(unit_rows, units)
    read = read_variables((x, y), bounds, None, missing, arguments=NAMES, same_rows=pair is None)
    if pair is None:
        shared = cast("Ids | None", units)
        return TwoOwners(read, (shared, shared), None, (draw, deepcopy(draw)))
    key = UnitKey(secrets.token_bytes(KEY_BYTES))
    first, second = (
        _hashes(key, ids, len(read.sample.columns[group[0]]), name)
        for ids, group, name in zip(pair, read.groups, NAMES, strict=True)
    )
    column = UNIT_COLUMN
    while column in read.sample.columns:
        column += "_"
    aligned = Aligned(column, _digest(key, first, second))
    return TwoOwners(read, (first, second), aligned, (draw, draw))


def one_for_both(units: Units | None) -> Ids | None:
    """Return the units of rows that are the same for both sides.

    Raises:
        InputError: each side has ids of its own.
    """
    if _pair(units) is not None:
        raise InputError("one party holds both sides' columns in the same rows: pass one array of units")
    return cast("Ids | None", units)


def _pair(units: Units | None) -> tuple[Any, Any] | None:
    """Return both sides' ids where each has its own; an array of units has scalars in their place."""
    if isinstance(units, tuple | list) and len(units) == 2 and not all(np.isscalar(part) for part in units):
        return units[0], units[1]
    return None


def _digest(key: UnitKey, first: UnitHashes, second: UnitHashes) -> str:
    """Return the digest of the units that both sides hold; raises InputError where they differ."""
    own, other = np.unique(first), np.unique(second)
    lacking = len(np.setdiff1d(own, other)), len(np.setdiff1d(other, own))
    if any(lacking):
        raise InputError(
            f"x and y are not of the same units: {lacking[0]} of x's {len(own)} ids are not among y's, and "
            f"{lacking[1]} of y's {len(other)} not among x's; restrict both to the units that both have"
        )
    return key.digest(own)


def _hashes(key: UnitKey, ids: Any, rows: int, name: str) -> UnitHashes:
    values = _listed(ids, name)
    if len(values) != rows:
        raise InputError(f"units of {name}: {len(values)} ids for {rows} rows; pass one for each row")
    try:
        return key.hashes(_canonical(value) for value in values)
    except AlignmentError as error:
        raise InputError(f"units of {name}: {error}") from None


def _listed(ids: Any, name: str) -> Sequence[Any]:
    if isinstance(ids, list | tuple):
        return ids
    if isinstance(ids, np.ndarray):
        if ids.ndim != 1 or ids.dtype.kind not in "iufUO":
            raise InputError(f"units of {name}: pass a flat array; {WRONG_KIND}")
        return list(ids.tolist())
    try:
        return list(nw.from_native(ids, series_only=True).to_list())
    except TypeError:
        raise InputError(f"units of {name}: pass an array or a column of ids") from None


def _canonical(value: Any) -> str:
    """Return an id as two systems compare it: ``7``, ``7.0`` and ``"7"`` are one, ``"07"`` is another."""
    if value is None or value != value:  # noqa: PLR0124 (NaN is the value that differs from itself)
        raise AlignmentError(NO_ID)
    if isinstance(value, str):
        form = canonical_id(value)
        if form is None:
            raise AlignmentError(NO_ID)
        return form
    if isinstance(value, date):
        return value.isoformat()
    if _whole(value):
        return str(int(value))
    raise AlignmentError(WRONG_KIND)


def _whole(value: Any) -> bool:
    """Say whether a value is a whole number, and as floating one still no other's neighbour."""
    if isinstance(value, bool | np.bool_):
        return False
    if isinstance(value, int | np.integer):
        return True
    if isinstance(value, Decimal):
        return value.is_finite() and value == value.to_integral_value()
    if not isinstance(value, float | np.floating):
        return False
    return abs(float(value)) <= FLOAT_EXACT_MAX and float(value).is_integer()
