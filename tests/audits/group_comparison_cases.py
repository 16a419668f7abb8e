"""The studies of ``group_comparison`` whose releases are audited, and their worst neighbours."""

from functools import cache, partial

import numpy as np
from kernel_two_sample_cases import many_row_units, one_row_units, space_of
from neighbour_search import Effort, Rows, largest_change
from noisy_counts_cases import study
from release_audit import Neighbours, ReleaseCase

from tacit_protocol.domain.columns import CategoricalColumn, Column, NumericColumn
from tacit_protocol.messages.study import Study
from tacit_protocol.privacy.guarantee import Budget
from tacit_protocol.procedures.group_comparison.release import plan_of

GROUP = CategoricalColumn(name="g", levels=("a", "b"))
THREE = CategoricalColumn(name="g", levels=("a", "b", "c"))
WARD = CategoricalColumn(name="w", levels=("x", "y", "z"))
SICK = CategoricalColumn(name="s", levels=("no", "yes"))
AGE, SCORE = (NumericColumn(name=name, lower=0.0, upper=1.0) for name in ("age", "score"))


def asked(columns: tuple[Column, ...], epsilon: float = 1.0) -> Study:
    made = study("group_comparison", columns, {"group": "g"}, epsilon)
    return made.model_copy(update={"budget": Budget.of(epsilon, 1e-5)})


STUDIES = {
    "a number": asked((GROUP, AGE)),
    "numbers and categories": asked((THREE, AGE, SCORE, WARD)),
    "categories, epsilon 4": asked((GROUP, SICK), 4.0),
}


@cache
def worst_units(name: str, rows_per_unit: int) -> tuple[Rows, Rows]:
    """The two units that the study's features tell apart most."""
    found = largest_change(
        plan_of(STUDIES[name]).features,
        space_of(STUDIES[name]),
        seed=3,
        rows_per_unit=rows_per_unit,
        effort=Effort(200, 4, 2),
    )
    return found.unit, found.other


def worst_neighbours(name: str, rows: int, index: int) -> Neighbours:
    domain = STUDIES[name].domain
    others = space_of(STUDIES[name]).random(np.random.default_rng(index), 1 + 7 * index)
    build = one_row_units if rows == 1 else many_row_units
    unit, other = worst_units(name, rows)
    return build(domain, others, unit), build(domain, others, other)


def case(name: str, rows: int = 1, reached: float = 0.995, *, black_box: bool = False) -> ReleaseCase:
    neighbours = partial(worst_neighbours, name, rows)
    return ReleaseCase(STUDIES[name], neighbours, reached=reached, black_box=black_box)


CASES = {
    "a number": case("a number"),
    "numbers and categories": case("numbers and categories"),
    "a number, units of 3 rows": case("a number", 3, 0.9),
    "categories, epsilon 4": case("categories, epsilon 4", black_box=True),
}
