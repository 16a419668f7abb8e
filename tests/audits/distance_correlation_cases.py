"""The studies of ``distance_correlation`` whose releases are audited, and their worst neighbours.

The replaced unit goes from one end of every column to the other: the bounds are those of the domain's
diameter.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from kernel_two_sample_cases import many_row_units, one_row_units
from neighbour_search import Rows
from release_audit import FixedTable, Neighbours, ReleaseCase

from tacit_protocol.domain.columns import CategoricalColumn, Column, Domain, NumericColumn
from tacit_protocol.messages.study import Owner, Party, Study
from tacit_protocol.privacy.guarantee import Budget

UNITS = 60


def study(
    numeric: int, parameters: Mapping[str, Any], epsilon: float = 1.0, *, categories: bool = False
) -> Study:
    """The audited owner holds the x columns (or the categories); the other owner holds one column, y."""
    held: list[Column] = [NumericColumn(name=f"x{i}", lower=0.0, upper=1.0) for i in range(numeric)]
    if categories:
        held.append(CategoricalColumn(name="group", levels=("a", "b")))
    key = [f"{i:064x}" for i in range(4)]
    return Study(
        title="audit",
        procedure="distance_correlation",
        parameters=dict(parameters),
        domain=Domain(columns=(*held, NumericColumn(name="y", lower=0.0, upper=1.0))),
        owners=(
            Owner(name="x-owner", key=key[0], data_set="data", columns=tuple(c.name for c in held)),
            Owner(name="y-owner", key=key[1], data_set="data", columns=("y",)),
        ),
        tester=Party(name="tester", key=key[2]),
        analyst=Party(name="analyst", key=key[3]),
        budget=Budget.of(epsilon, 1e-5),
        level=0.05,
        created_at=0,
        deadline=1,
        seed="00" * 16,
    )


def worst_neighbours(asked: Study, units: int, rows: tuple[int, int], index: int) -> Neighbours:
    domain = asked.domain_of(asked.owners[0])
    width, codes = len(domain.numeric), len(domain.categorical)
    rng = np.random.default_rng(index)

    def at(value: int, rows: int) -> Rows:
        # Away from the middle along the diagonal, or along a random one of the cube's.
        signs = np.ones(width, bool) if index == 0 else rng.integers(0, 2, width).astype(bool)
        ends = np.where(signs, value, 1 - value).astype(np.float64)
        return Rows(np.tile(ends, (rows, 1)), np.full((rows, codes), value, dtype=np.int32))

    state = rng.bit_generator.state
    one = at(0, rows[0])
    rng.bit_generator.state = state
    other = at(1, rows[1])
    others = Rows(rng.random((units - 1, width)), rng.integers(0, 3, (units - 1, codes), dtype=np.int32))
    build = one_row_units if rows == (1, 1) else many_row_units
    return build(domain, others, one), build(domain, others, other)


def aligned_neighbours(asked: Study, units: int, rows: tuple[int, int], index: int) -> Neighbours:
    """Every unit has a place of its own, by its id; the replaced unit has other values and the same id."""
    places = np.random.default_rng(100 + index).permutation(units)
    one, other = (
        FixedTable(table.domain, tuple(replace(part, positions=places) for part in table.parts))
        for table in worst_neighbours(asked, units, rows, index)
    )
    return one, other


def case(
    asked: Study, *, units: int = UNITS, rows: tuple[int, int] = (1, 1), aligned: bool = False, **parts: Any
) -> ReleaseCase:
    """``rows`` are those that the replaced unit has in one table and in the other."""
    neighbours = aligned_neighbours if aligned else worst_neighbours
    return ReleaseCase(asked, partial(neighbours, asked, units, rows), tables=6, **parts)


CASES = {
    "sketch, 1 number": case(study(1, {}), reached=0.95),
    "sketch, 1 number, 20 frequencies": case(study(1, {"n_features": 20}), reached=0.98),
    "sketch, 3 numbers": case(study(3, {}), reached=0.7),
    "sketch, units of 4 rows": case(study(1, {}), rows=(4, 4), reached=0.95),
    "sketch, aligned, a unit of 1 row or of 5": case(study(1, {}), rows=(1, 5), aligned=True, reached=0.95),
    "sketch, aligned, categories, units of 3 rows": case(
        study(0, {}, categories=True), rows=(3, 3), aligned=True, reached=0.99
    ),
    "pnc, aligned, units of 3 rows": case(
        study(3, {"method": "pnc", "n_projections": 5}), rows=(3, 3), aligned=True, reached=0.6
    ),
    "pnc-disjoint, aligned, a unit of 4 rows or of 1": case(
        study(1, {"method": "pnc-disjoint"}), rows=(4, 1), aligned=True, reached=0.99
    ),
    "sketch, categories": case(study(0, {}, categories=True), reached=0.99),
    "sketch, mixed": case(study(2, {}, categories=True), reached=0.7),
    "pnc, 1 number": case(study(1, {"method": "pnc"}), reached=0.99),
    "pnc, 3 numbers": case(study(3, {"method": "pnc", "n_projections": 5}), reached=0.6),
    "pnc-disjoint, 3 numbers": case(study(3, {"method": "pnc-disjoint", "n_projections": 5}), reached=0.3),
    "sketch, 1 frequency": case(study(1, {"n_features": 1}, 4.0), units=32, reached=0.8, black_box=True),
    "pnc-disjoint, 1 number": case(
        study(1, {"method": "pnc-disjoint"}, 4.0), units=4, reached=0.99, black_box=True
    ),
}
