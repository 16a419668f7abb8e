"""The studies of ``association`` whose releases are audited, and their worst neighbours."""

from functools import cache, partial

import numpy as np
from audited_studies import TWO_OWNERS, farthest_units, neighbours, random_rows, study
from neighbour_search import Matrix, Rows
from release_audit import Neighbours, ReleaseCase

from tacit_protocol.domain import CategoricalColumn, Column, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.association.release import HISTOGRAM_WEIGHT, Grades, plan_of

SICK = CategoricalColumn(name="s", levels=("no", "yes"))
STAGE = CategoricalColumn(name="w", levels=("i", "ii", "iii"))
AGE, SCORE = (NumericColumn(name=name, lower=0.0, upper=1.0) for name in ("age", "score"))

OTHERS = 400
"""Units beside the one that is replaced: so many that grades come near -1 and 1 at the bounds."""


def asked(columns: tuple[Column, ...], epsilon: float = 1.0) -> Study:
    return study("association", columns, {}, epsilon, owners=TWO_OWNERS)


STUDIES = {
    "two numbers": asked((AGE, SCORE)),
    "numbers and categories": asked((AGE, SCORE, SICK, STAGE)),
    "two categories, epsilon 4": asked((SICK, STAGE), 4.0),
}


class WholeMap:
    """A unit's part of the histograms and of the scores, by grades of units that are spread evenly."""

    def __init__(self, name: str) -> None:
        self._cells = plan_of(STUDIES[name]).histograms
        even = [
            Grades.of(cells, [1000] * cells.size, 1000 * cells.size, 0.0) for cells in self._cells.columns
        ]
        self._scores = plan_of(STUDIES[name]).scores(even)

    def __call__(self, rows: Rows) -> Matrix:
        histograms = np.sqrt(HISTOGRAM_WEIGHT) * self._cells.indicators(rows)
        return np.hstack([histograms, self._scores(rows)])


@cache
def worst_units(name: str, rows_per_unit: int) -> tuple[Rows, Rows]:
    """The two units that histograms and scores tell apart most."""
    return farthest_units(WholeMap(name), STUDIES[name].domain, rows_per_unit)


def worst_neighbours(name: str, rows: int, index: int) -> Neighbours:
    columns = STUDIES[name].domain
    return neighbours(columns, random_rows(columns, index, OTHERS), *worst_units(name, rows))


def case(name: str, rows: int = 1, reached: float = 0.9, *, black_box: bool = False) -> ReleaseCase:
    found = partial(worst_neighbours, name, rows)
    return ReleaseCase(STUDIES[name], found, tables=4, reached=reached, black_box=black_box, adaptive=True)


CASES = {
    "two numbers": case("two numbers"),
    "numbers and categories": case("numbers and categories", reached=0.75),
    "two numbers, units of 3 rows": case("two numbers", 3),
    "two categories, epsilon 4": case("two categories, epsilon 4", reached=0.68, black_box=True),
}
