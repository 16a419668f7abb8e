"""The studies of ``group_comparison`` whose releases are audited, and their worst neighbours.

Beside another owner's answers the replaced unit goes from one end of every column to the other.
"""

from functools import cache, partial
from typing import Any

import numpy as np
from audited_studies import TWO_OWNERS, farthest_units, neighbours, random_rows, rows_at, study
from release_audit import Neighbours, ReleaseCase

from tacit.testing.neighbour_search import EncodedRows as Rows
from tacit_protocol.domain import CategoricalColumn, Column, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.group_comparison.plan import separate_plan

GROUP = CategoricalColumn(name="g", levels=("a", "b"))
THREE = CategoricalColumn(name="g", levels=("a", "b", "c"))
WARD = CategoricalColumn(name="w", levels=("x", "y", "z"))
SICK = CategoricalColumn(name="s", levels=("no", "yes"))
AGE, SCORE = (NumericColumn(name=name, lower=0.0, upper=1.0) for name in ("age", "score"))


def asked(columns: tuple[Column, ...], epsilon: float = 1.0) -> Study:
    return study("group_comparison", columns, {"group": "g"}, epsilon, owners=TWO_OWNERS)


STUDIES = {
    "a number": asked((GROUP, AGE)),
    "numbers and categories": asked((THREE, AGE, SCORE, WARD)),
    "categories, epsilon 4": asked((GROUP, SICK), 4.0),
}


@cache
def worst_units(name: str, rows_per_unit: int) -> tuple[Rows, Rows]:
    """The two units that the study's features tell apart most."""
    return farthest_units(separate_plan(STUDIES[name]).features, STUDIES[name].domain, rows_per_unit)


def worst_neighbours(name: str, rows: int, index: int) -> Neighbours:
    columns = STUDIES[name].domain
    return neighbours(columns, random_rows(columns, index, 1 + 7 * index), *worst_units(name, rows))


def case(name: str, rows: int = 1, reached: float = 0.995, *, black_box: bool = False) -> ReleaseCase:
    neighbours = partial(worst_neighbours, name, rows)
    return ReleaseCase(STUDIES[name], neighbours, reached=reached, black_box=black_box)


def beside(*columns: Column, epsilon: float = 1.0, rows: int = 1, **parts: Any) -> ReleaseCase:
    """The audited owner holds the columns, another the group, whose answers are fixed."""
    names = tuple(column.name for column in columns)
    asked = study(
        "group_comparison", (THREE, *columns), {}, epsilon, owners={"groups": ("g",), "outcomes": names}
    )
    return ReleaseCase(asked, partial(ends, asked, rows), **parts)


def ends(asked: Study, rows: int, index: int) -> Neighbours:
    """Units at the two ends of all columns, or of a random corner's diagonal."""
    own, rng = asked.domain_of(asked.owners[1]), np.random.default_rng(index)
    one, other = rows_at(own, 0, rows), rows_at(own, 1, rows)
    if index:
        one.numeric[:] = rng.integers(0, 2, one.numeric.shape[1])
        other.numeric[:] = 1 - one.numeric
    return neighbours(own, random_rows(own, index, 24 + 7 * index), one, other)


BESIDE = {
    "beside answers, a number": beside(AGE, epsilon=4.0, reached=0.999, black_box=True),
    "beside answers, numbers and categories": beside(AGE, SCORE, WARD, SICK, reached=0.999),
    "beside answers, a category, units of 3 rows": beside(WARD, rows=3, reached=0.999),
}


def soft(
    *columns: Column, epsilon: float = 1.0, rows: int = 1, units: int | None = None, **parts: Any
) -> ReleaseCase:
    """In pure epsilon the replaced unit goes to another group, at any values, or across its own."""
    chosen = {"group": "g", "noise": "laplace"}
    asked = study("group_comparison", columns, chosen, epsilon, 0.0, owners=TWO_OWNERS)
    owners = tuple(owner.model_copy(update={"units": units}) for owner in asked.owners)
    asked = asked.model_copy(update={"owners": owners})
    return ReleaseCase(asked, partial(far_apart, asked, rows), **parts)


def far_apart(asked: Study, rows: int, index: int) -> Neighbours:
    """Units of two groups, of one group at the ends of its columns, or of no group and one."""
    columns, rng = asked.domain, np.random.default_rng(index)
    one, other = rows_at(columns, 0, rows), rows_at(columns, 1, 1 + index % 2)
    place = columns.categorical.index(next(c for c in columns.categorical if c.name == "g"))
    if index % 3:
        one.numeric[:], other.numeric[:] = rng.random(one.numeric.shape), rng.random(other.numeric.shape)
    else:
        other.categorical[:, place] = 0
    if index == 4:
        other.categorical[:, place] = len(columns.categorical[place].levels)
    return neighbours(columns, random_rows(columns, index, 20 + 7 * index), one, other)


SOFT = {
    "soft cells, a number": soft(GROUP, AGE, epsilon=4.0, reached=0.999, black_box=True),
    "soft cells, numbers and categories": soft(THREE, AGE, SCORE, WARD, SICK, reached=0.999),
    "four soft cells, numbers and a category": soft(THREE, AGE, SCORE, WARD, units=30, reached=0.999),
    "soft cells, a number and a category, units of 3 rows": soft(GROUP, AGE, WARD, rows=3, reached=0.99),
}


def masked(*columns: Column, epsilon: float = 1.0, **parts: Any) -> ReleaseCase:
    """One of two owners who mask: its share of the noise is all that nobody else knows."""
    chosen = {"group": "g", "aggregation": "masked", "colluders": 0}
    asked = study("group_comparison", columns, chosen, epsilon, owners=TWO_OWNERS)
    return ReleaseCase(asked, partial(within, asked), tables=len(WITHIN), **parts)


WITHIN = (
    (2000, 60, 1, 1),
    (4000, 25, 1, 1),
    (800, 0, 1, 2),
    (300, 300, 0, 1),
    (60, 1500, 0, 0),
    (0, 1, 1, 1),
)
"""Other units of either group, all at the lower end of every column, and the groups of the replaced unit, who
goes from the upper end of every column to the lower one."""


def within(asked: Study, index: int) -> Neighbours:
    columns, (first, second, before, after) = asked.domain, WITHIN[index]
    place = columns.categorical.index(next(c for c in columns.categorical if c.name == "g"))
    others, one, other = (
        rows_at(columns, end, count) for end, count in ((0, first + second), (1, 1), (0, 1))
    )
    others.categorical[:, place] = np.repeat([0, 1], [first, second])
    one.categorical[:, place], other.categorical[:, place] = before, after
    return neighbours(columns, others, one, other)


MASKED = {
    "masked, a number": masked(GROUP, AGE, reached=0.94),
    "masked, numbers and categories": masked(GROUP, AGE, SCORE, WARD, SICK, reached=0.9),
    "masked, a category": masked(GROUP, SICK, epsilon=4.0, reached=0.94, black_box=True),
}

CASES = {
    "a number": case("a number"),
    "numbers and categories": case("numbers and categories"),
    "a number, units of 3 rows": case("a number", 3, 0.9),
    "categories, epsilon 4": case("categories, epsilon 4", black_box=True),
    **BESIDE,
    **SOFT,
    **MASKED,
}
