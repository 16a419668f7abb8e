"""The studies of ``association`` whose releases are audited, and their worst neighbours."""

from functools import cache, partial
from typing import Any

import numpy as np
from audited_studies import TWO_OWNERS, farthest_units, neighbours, random_rows, rows_at, study
from release_audit import Neighbours, ReleaseCase

from tacit.testing.neighbour_search import EncodedRows as Rows
from tacit.testing.neighbour_search import Matrix
from tacit_protocol.domain import CategoricalColumn, Column, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.procedures.association.plan import separate_plan
from tacit_protocol.procedures.association.release import HISTOGRAM_WEIGHT, RankTransform

SICK = CategoricalColumn(name="s", levels=("no", "yes"))
STAGE = CategoricalColumn(name="w", levels=("i", "ii", "iii"))
AGE, SCORE, DOSE = (NumericColumn(name=name, lower=0.0, upper=1.0) for name in ("age", "score", "dose"))

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
        self._cells = separate_plan(STUDIES[name]).histograms(OTHERS)
        even = [
            RankTransform.of(cells, [1000] * cells.size, 1000 * cells.size, 0.0)
            for cells in self._cells.columns
        ]
        self._scores = separate_plan(STUDIES[name]).scores(even, OTHERS)

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


NEAR = (0.4375, 0.5, 0.42, 0.48)
"""What numbers of a unit at the upper bounds become: about where the movement is largest."""


def pure(
    *columns: Column, others: int = OTHERS, epsilon: float = 1.0, rows: int = 1, **parts: Any
) -> ReleaseCase:
    """In pure epsilon; of few units, for epsilon and the columns, by the middle of the bounds alone."""
    asked = study("association", columns, {"noise": "laplace"}, epsilon, 0.0, owners=TWO_OWNERS)
    found = partial(from_the_top, asked, others, rows)
    return ReleaseCase(asked, found, tables=len(NEAR), adaptive=True, **parts)


def from_the_top(asked: Study, others: int, rows: int, index: int) -> Neighbours:
    """A unit at the upper ends of all columns, and one near the middle of each."""
    one, other = rows_at(asked.domain, 1, rows), rows_at(asked.domain, 0, rows)
    other.numeric[:] = NEAR[index]
    return neighbours(asked.domain, random_rows(asked.domain, index, others), one, other)


PURE = {
    "pure, two numbers": pure(AGE, SCORE, reached=0.93),
    "pure, two numbers, few units": pure(AGE, SCORE, others=60, epsilon=4.0, reached=0.9, black_box=True),
    "pure, three numbers, units of 3 rows": pure(AGE, SCORE, DOSE, epsilon=2.0, rows=3, reached=0.88),
    "pure, numbers and categories": pure(AGE, SCORE, SICK, STAGE, reached=0.45),
}


def masked(*columns: Column, epsilon: float = 1.0, **parts: Any) -> ReleaseCase:
    """One of two owners who mask: its share of the noise is all that nobody else knows."""
    chosen = {"aggregation": "masked", "colluders": 0}
    asked = study("association", columns, chosen, epsilon, owners=TWO_OWNERS)
    return ReleaseCase(asked, partial(from_the_others, asked), tables=4, **parts)


def from_the_others(asked: Study, index: int) -> Neighbours:
    """Others all at one end of every column, a unit at the other end, and one like the others."""
    end, count = index % 2, (4000, 400)[index // 2]
    others = rows_at(asked.domain, end, count)
    one, other = (rows_at(asked.domain, at, 1) for at in (1 - end, end))
    return neighbours(asked.domain, others, one, other)


MASKED = {
    "masked, two numbers": masked(AGE, SCORE, reached=0.89),
    "masked, numbers and categories": masked(AGE, SCORE, SICK, epsilon=4.0, reached=0.89),
}

ILL = CategoricalColumn(name="i", levels=("no", "yes"))


def of_two_levels(*columns: Column, delta: float = 1e-6, **parts: Any) -> ReleaseCase:
    """All columns have two levels; the first changes its own, which changes all of its products."""
    noise = {"noise": "gaussian" if delta else "laplace"}
    asked = study("association", columns, noise, 1.0, delta, owners=TWO_OWNERS)
    return ReleaseCase(asked, partial(of_another_level, asked), tables=4, adaptive=True, **parts)


def of_another_level(asked: Study, index: int) -> Neighbours:
    one, other = rows_at(asked.domain, 1, 1), rows_at(asked.domain, 1, 1)
    other.categorical[:, 0] = 0
    return neighbours(asked.domain, random_rows(asked.domain, index, OTHERS), one, other)


TWO_LEVELS = {
    "two levels": of_two_levels(SICK, ILL, reached=0.95, black_box=True),
    "pure, two levels": of_two_levels(SICK, ILL, delta=0.0, reached=0.93, black_box=True),
}

CASES = {
    **PURE,
    **TWO_LEVELS,
    **MASKED,
    "two numbers": case("two numbers"),
    "numbers and categories": case("numbers and categories", reached=0.75),
    "two numbers, units of 3 rows": case("two numbers", 3),
    "two categories, epsilon 4": case("two categories, epsilon 4", reached=0.68, black_box=True),
}
