"""The studies of ``curated_distance_correlation`` whose releases are audited, and their worst neighbours.

All units but one lie at one corner; the last one lies at the opposite corner in both variables and joins
them, or leaves in one variable alone. Both distance deviations then fall from 2 (n - 1)/n^2, all of their
bound, to nothing, and the covariance with them: with a single numeric column on a side the whole bound of the
release is reached. Where there is a test, neighbours of ``joint_independence`` move its permuted statistics.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from joint_independence_cases import worst_neighbours
from kernel_two_sample_cases import many_row_units, one_row_units
from neighbour_search import Rows
from release_audit import FixedTable, Neighbours, ReleaseCase

from tacit_protocol.domain.columns import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.guarantee import Budget


def domain(numeric: int, categorical: int = 0) -> Domain:
    numbers = [NumericColumn(name=f"x{i}", lower=0.0, upper=1.0) for i in range(numeric)]
    categories = [CategoricalColumn(name=f"c{i}", levels=("a", "b")) for i in range(categorical)]
    return Domain(columns=(*numbers, *categories))


def study(columns: Domain, parameters: Mapping[str, Any], epsilon: float = 1.0) -> Study:
    keys = [f"{i:064x}" for i in range(3)]
    return Study(
        title="audit",
        procedure="curated_distance_correlation",
        parameters=dict(parameters),
        domain=columns,
        owners=(Owner(name="owner", key=keys[0], data_set="data"),),
        tester=Party(name="tester", key=keys[1]),
        analyst=Party(name="analyst", key=keys[2]),
        budget=Budget.of(epsilon, 1e-5),
        level=0.05,
        created_at=0,
        deadline=1,
        seed="00" * 16,
    )


def at_corner(columns: Domain, value: int, count: int) -> Rows:
    numeric = np.full((count, len(columns.numeric)), float(value))
    return Rows(numeric, np.full((count, len(columns.categorical)), value, dtype=np.int32))


def lone_unit(asked: Study, units: int, index: int, rows: int) -> Neighbours:
    """The lone unit joins the others (0), or does so in the first of all columns only (1)."""
    others = at_corner(asked.domain, 0, units - 1)
    alone, joined = at_corner(asked.domain, 1, rows), at_corner(asked.domain, 0, rows)
    if index == 1:
        joined = Rows(alone.numeric.copy(), alone.categorical.copy())
        if asked.domain.numeric:
            joined.numeric[:, 0] = 0.0
        else:
            joined.categorical[:, 0] = 0
    build = one_row_units if rows == 1 else many_row_units

    def table(unit: Rows) -> FixedTable:
        return build(asked.domain, others, unit)

    return table(alone), table(joined)


def case(asked: Study, units: int = 12, rows: int = 1, **parts: Any) -> ReleaseCase:
    def neighbours(index: int) -> Neighbours:
        if index < 2:
            return lone_unit(asked, units, index, rows)
        return worst_neighbours(asked, 2, units, index - 2, rows)

    return ReleaseCase(asked, neighbours, tables=5, **parts)


FOUR = {"groups": [["x0", "x1"], ["x2", "c0"]]}
ESTIMATES = {"test": False}

CASES = {
    "2 numbers": case(study(domain(2), ESTIMATES), reached=0.999, black_box=True),
    "2 numbers, 3000 units": case(study(domain(2), ESTIMATES), units=3000, reached=0.99),
    "2 numbers, units of 4 rows": case(study(domain(2), ESTIMATES), rows=4, reached=0.999),
    "a number and a category": case(study(domain(1, 1), ESTIMATES), reached=0.999),
    "2 categories": case(study(domain(0, 2), ESTIMATES), reached=0.85),
    "2 groups of 2": case(study(domain(3, 1), ESTIMATES | FOUR), reached=0.85),
    "2 numbers, with the test": case(study(domain(2), {}), reached=0.99),
    "2 categories, with the test": case(study(domain(0, 2), {"test_share": 0.7}), reached=0.85),
    "2 groups of 2, with the test": case(study(domain(3, 1), FOUR), reached=0.85),
}
