"""The studies of ``group_comparison`` whose releases are audited, and their worst neighbours."""

from functools import cache, partial

from audited_studies import TWO_OWNERS, farthest_units, neighbours, random_rows, study
from neighbour_search import Rows
from release_audit import Neighbours, ReleaseCase

from tacit_protocol.domain import CategoricalColumn, Column, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.group_comparison.release import plan_of

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
    return farthest_units(plan_of(STUDIES[name]).features, STUDIES[name].domain, rows_per_unit)


def worst_neighbours(name: str, rows: int, index: int) -> Neighbours:
    columns = STUDIES[name].domain
    return neighbours(columns, random_rows(columns, index, 1 + 7 * index), *worst_units(name, rows))


def case(name: str, rows: int = 1, reached: float = 0.995, *, black_box: bool = False) -> ReleaseCase:
    neighbours = partial(worst_neighbours, name, rows)
    return ReleaseCase(STUDIES[name], neighbours, reached=reached, black_box=black_box)


CASES = {
    "a number": case("a number"),
    "numbers and categories": case("numbers and categories"),
    "a number, units of 3 rows": case("a number", 3, 0.9),
    "categories, epsilon 4": case("categories, epsilon 4", black_box=True),
}
