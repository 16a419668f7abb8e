"""The studies of ``joint_independence`` whose decisions are audited, and their worst neighbours.

All units but two lie at one point, those two at another that no kernel value connects with it; the replaced
unit is one of the two and goes to the others. Permutations that give each of the two the other's second value
leave the statistic at 4/n before, and at nearly nothing after: nearly all that the bound allows, while the
observed one loses half of as much.
"""

from collections.abc import Mapping
from typing import Any

import numpy as np
from kernel_two_sample_cases import many_row_units, one_row_units
from neighbour_search import Rows
from release_audit import FixedTable, Neighbours, ReleaseCase

from tacit_protocol.domain.columns import CategoricalColumn, Domain, NumericColumn
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.guarantee import Budget

NARROW = 0.02
"""Bandwidth at which the two ends of a column have nothing in common."""


def domain(columns: int, categories: bool = False) -> Domain:
    if categories:
        return Domain(columns=tuple(CategoricalColumn(name=f"c{i}", levels=("a",)) for i in range(columns)))
    return Domain(columns=tuple(NumericColumn(name=f"x{i}", lower=0.0, upper=1.0) for i in range(columns)))


def study(
    columns: Domain, parameters: Mapping[str, Any], epsilon: float, delta: float = 0.0, level: float = 0.05
) -> Study:
    keys = [f"{i:064x}" for i in range(3)]
    return Study(
        title="audit",
        procedure="joint_independence",
        parameters=dict(parameters),
        domain=columns,
        owners=(Owner(name="owner", key=keys[0], data_set="data"),),
        tester=Party(name="tester", key=keys[1]),
        analyst=Party(name="analyst", key=keys[2]),
        budget=Budget.of(epsilon, delta),
        level=level,
        created_at=0,
        deadline=1,
        seed="00" * 16,
    )


def at(columns: Domain, value: int, count: int) -> Rows:
    """Rows at the lower (0) or upper (1) end of every column."""
    numeric = np.full((count, len(columns.numeric)), float(value))
    return Rows(numeric, np.full((count, len(columns.categorical)), value, dtype=np.int32))


def stacked(*parts: Rows) -> Rows:
    return Rows(np.concatenate([p.numeric for p in parts]), np.concatenate([p.categorical for p in parts]))


def worst_neighbours(asked: Study, apart: int, units: int, index: int, rows: int = 1) -> Neighbours:
    """Tables of ``units`` units, ``apart`` (or one fewer) of them at the upper end, the rest at the lower."""
    columns = asked.domain
    others = stacked(at(columns, 1, apart - 1), at(columns, 0, units - apart + index))

    def table(value: int) -> FixedTable:
        build = one_row_units if rows == 1 else many_row_units
        return build(columns, others, at(columns, value, rows))

    return table(0), table(1)


def case(asked: Study, apart: int = 2, units: int = 12, **parts: Any) -> ReleaseCase:
    rows = parts.pop("rows", 1)
    return ReleaseCase(
        asked,
        lambda index: worst_neighbours(asked, apart, units, index, rows),
        tables=3,
        **parts,
    )


WIDE_LEVEL = 0.3
"""Of studies for the black-box audit: decisions to reject are then common enough to be counted."""

CASES = {
    "2 variables": case(study(domain(2), {"bandwidth": NARROW}, 1.0), reached=0.8),
    "2 variables, delta": case(study(domain(2), {"bandwidth": NARROW}, 1.0, 1e-5), reached=0.8),
    "2 categories": case(study(domain(2, categories=True), {}, 1.0), reached=0.8),
    "2 variables, Laplacian": case(
        study(domain(2), {"bandwidth": NARROW, "kernel": "laplacian"}, 1.0), reached=0.8
    ),
    "2 variables, units of 4 rows": case(study(domain(2), {"bandwidth": NARROW}, 1.0), rows=4, reached=0.8),
    "3 variables": case(study(domain(3), {"bandwidth": NARROW}, 1.0), reached=0.5),
    "2 variables, distances": case(study(domain(2), {"kernel": "distance"}, 1.0), reached=0.8),
    "3 variables, distances": case(study(domain(3), {"kernel": "distance"}, 1.0), reached=0.5),
    "2 categories, distances": case(
        study(domain(2, categories=True), {"kernel": "distance"}, 1.0), reached=0.8
    ),
    "2 groups of 2": case(
        study(domain(4), {"bandwidth": NARROW, "groups": [["x0", "x1"], ["x2", "x3"]]}, 1.0), reached=0.8
    ),
    "2 variables, one unit apart": case(
        study(domain(2), {"bandwidth": NARROW, "permutations": 99}, 4.0, level=WIDE_LEVEL),
        apart=1,
        units=4,
        black_box=True,
    ),
}
