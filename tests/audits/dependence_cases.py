"""The audited studies of dependence: ``joint_independence``, both distance correlations, ``screening``; and
``aggregated_test``.

Of ``joint_independence`` all units but two lie at one point, those two at another that no kernel value
connects with it; the replaced unit is one of the two and goes to the others. Permutations that give each of
the two the other's second value leave the statistic at 4/n before, and at nearly nothing after: nearly all
that the bound allows, while the observed one loses half of as much.

Of ``curated_distance_correlation`` all units but one lie at one corner; the last one lies at the opposite
corner in both variables and joins them, or leaves in one variable alone. Both distance deviations then fall
from 2 (n - 1)/n^2, all of their bound, to nothing, and the covariance with them.

Of votes, random units are replaced by random ones and by corners until a block votes for the other side.

Between owners the replaced unit goes from one end of every column to the other: the bounds are those of the
domain's diameter.
"""

from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from typing import Any

import numpy as np
from audited_studies import TWO_OWNERS, domain, neighbours, random_rows, rows_at, stacked, study
from release_audit import FixedTable, Neighbours, ReleaseCase, release

from tacit.testing.neighbour_search import EncodedRows as Rows
from tacit_protocol.domain import CategoricalColumn, Column, NumericColumn
from tacit_protocol.messages.study import Study

# joint_independence.

NARROW: dict[str, Any] = {"bandwidth": 0.02}
"""Bandwidth at which the two ends of a column have nothing in common."""

DISTANCE = {"kernel": "distance"}
TWO_CATEGORIES = domain(0, "a", "a")


def joint_neighbours(asked: Study, apart: int, units: int, rows: int, index: int) -> Neighbours:
    """Tables of ``units`` units, ``apart`` (or one fewer) of them at the upper end, the rest at the lower."""
    at = partial(rows_at, asked.domain)
    others = stacked(at(1, apart - 1), at(0, units - apart + index))
    return neighbours(asked.domain, others, at(0, rows), at(1, rows))


def joint(
    columns: Any,
    parameters: Mapping[str, Any],
    epsilon: float = 1.0,
    delta: float = 0.0,
    *,
    level: float = 0.05,
    apart: int = 2,
    units: int = 12,
    rows: int = 1,
    **parts: Any,
) -> ReleaseCase:
    chosen = {"method": "permutation"} | parameters
    asked = study("joint_independence", columns, chosen, epsilon, delta, level=level, rows=rows)
    return ReleaseCase(asked, partial(joint_neighbours, asked, apart, units, rows), tables=3, **parts)


# Votes of blocks.


def vote(asked: Study, found: FixedTable) -> int:
    """The exact sum of votes, in steps of the release's grid."""
    (vector,) = release(asked, found).vectors.values()
    return vector.values[0]


def voting_neighbours(asked: Study, units: int, index: int) -> Neighbours:
    """Of 40 random tables and replaced units, those whose votes are farthest apart."""
    rng, best = np.random.default_rng(index), (-1, None)
    for attempt in range(40):
        others = random_rows(asked.domain, 1000 * index + attempt, units - 1)
        others.numeric[:] = 0.5 + 0.1 * (others.numeric - 0.5) * rng.choice([0.0, 1.0])
        one, two = (
            rows_at(asked.domain, int(rng.integers(2)), 1)
            if rng.random() < 0.5
            else random_rows(asked.domain, int(rng.integers(2**31)), 1)
            for _ in range(2)
        )
        pair = neighbours(asked.domain, others, one, two)
        moved = abs(vote(asked, pair[0]) - vote(asked, pair[1]))
        if moved > best[0]:
            best = (moved, pair)
    assert best[1] is not None
    return best[1]


def voting(
    columns: Any,
    parameters: Mapping[str, Any],
    procedure: str = "aggregated_test",
    units: int = 24,
    **parts: Any,
) -> ReleaseCase:
    epsilon = parts.pop("epsilon", 1.0)
    # One of two owners who mask: its share of the noise is all that nobody else knows.
    masks = {"delta": 1e-5, "owners": TWO_OWNERS} if "aggregation" in parameters else {"delta": 0.0}
    asked = study(procedure, columns, parameters, epsilon, **masks)
    return ReleaseCase(asked, partial(voting_neighbours, asked, units), tables=3, reached=0.99, **parts)


MASKS = {"aggregation": "masked", "colluders": 0}
AB = CategoricalColumn(name="g", levels=("a", "b"))

AGGREGATED_TEST = {
    "paired, with a direction": voting(domain(2), {"test": "paired_t", "block_level": 0.5}, black_box=True),
    "two groups, with a direction": voting(
        (AB, NumericColumn(name="x", lower=0.0, upper=1.0)), {"test": "mann_whitney", "block_level": 0.5}
    ),
    "a table, without one": voting(
        (AB, CategoricalColumn(name="o", levels=("x", "y", "z"))), {"test": "chi_squared"}, epsilon=4.0
    ),
    "masked, with a direction": voting(domain(2), {"test": "paired_t", "block_level": 0.5} | MASKS),
    "given others": voting(
        domain(3), {"test": "conditional_independence", "block_level": 0.5, "blocks": 2}, units=80
    ),
}


JOINT_INDEPENDENCE = {
    "2 variables": joint(domain(2), NARROW, reached=0.8),
    "2 variables, delta": joint(domain(2), NARROW, delta=1e-5, reached=0.8),
    "2 categories": joint(TWO_CATEGORIES, {}, reached=0.8),
    "2 variables, Laplacian": joint(domain(2), NARROW | {"kernel": "laplacian"}, reached=0.8),
    "2 variables, units of 4 rows": joint(domain(2), NARROW, rows=4, reached=0.8),
    "3 variables": joint(domain(3), NARROW, reached=0.5),
    "2 variables, distances": joint(domain(2), DISTANCE, reached=0.8),
    "3 variables, distances": joint(domain(3), DISTANCE, reached=0.5),
    "2 categories, distances": joint(TWO_CATEGORIES, DISTANCE, reached=0.8),
    "2 groups of 2": joint(domain(4), NARROW | {"groups": [["x0", "x1"], ["x2", "x3"]]}, reached=0.8),
    "aggregated": voting(domain(2), {"method": "aggregate"}, "joint_independence"),
    "aggregated, masked": voting(domain(2), {"method": "aggregate"} | MASKS, "joint_independence"),
    # At such a level decisions to reject are common enough to be counted by the black-box audit.
    "2 variables, one unit apart": joint(
        domain(2), NARROW | {"permutations": 99}, 4.0, level=0.3, apart=1, units=4, black_box=True
    ),
}

TABLE: dict[str, Any] = {"method": "table"}


def cut_neighbours(asked: Study, units: int, rows: int, index: int) -> Neighbours:
    """All units but one lie just above the lowest place for cuts; that one goes from one end to the other.

    Nearly every list of cuts then gains one in its loss, and the lowest one loses one.
    """
    grid = 128
    others = rows_at(asked.domain, 0, units - 1)
    others.numeric[:] = (1 + (index + 0.5) / 4) / grid
    return neighbours(asked.domain, others, rows_at(asked.domain, 0, rows), rows_at(asked.domain, 1, rows))


def tabled(
    columns: Any, parameters: Mapping[str, Any], epsilon: float = 1.0, rows: int = 1, **parts: Any
) -> ReleaseCase:
    asked = study("joint_independence", columns, TABLE | parameters, epsilon, 0.0, rows=rows)
    return ReleaseCase(asked, partial(cut_neighbours, asked, 30, rows), tables=3, adaptive=True, **parts)


JOINT_INDEPENDENCE |= {
    "table, 2 categories": tabled(domain(0, "ab", "abc"), {}, 4.0, reached=0.999, black_box=True),
    "table, 2 numbers": tabled(domain(2), {"categories": 2}, reached=0.95),
    "table, 2 numbers, 3 cells, units of 4 rows": tabled(domain(2), {"categories": 3}, rows=4, reached=0.6),
    "table, 3 numbers and a category": tabled(domain(3, "ab"), {}, reached=0.95),
}


# curated_distance_correlation.


def curated_neighbours(asked: Study, units: int, rows: int, index: int) -> Neighbours:
    """The lone unit joins the others (0), or in the first of all columns only (1); else as for a test."""
    if index >= 2:
        return joint_neighbours(asked, 2, units, 1, index - 2)
    others, alone = rows_at(asked.domain, 0, units - 1), rows_at(asked.domain, 1, rows)
    joined = rows_at(asked.domain, 0, rows)
    if index == 1:
        joined = rows_at(asked.domain, 1, rows)
        (joined.numeric if asked.domain.numeric else joined.categorical)[:, 0] = 0
    return neighbours(asked.domain, others, alone, joined)


def curated(
    columns: Any, parameters: Mapping[str, Any], units: int = 12, rows: int = 1, **parts: Any
) -> ReleaseCase:
    asked = study("curated_distance_correlation", columns, parameters, rows=rows)
    return ReleaseCase(asked, partial(curated_neighbours, asked, units, rows), tables=5, **parts)


FOUR = {"groups": [["x0", "x1"], ["x2", "c0"]]}
ESTIMATES: dict[str, Any] = {"test": False}

CURATED_DISTANCE_CORRELATION = {
    "2 numbers": curated(domain(2), ESTIMATES, reached=0.999, black_box=True),
    "2 numbers, 3000 units": curated(domain(2), ESTIMATES, units=3000, reached=0.99),
    "2 numbers, units of 4 rows": curated(domain(2), ESTIMATES, rows=4, reached=0.999),
    "a number and a category": curated(domain(1, "ab"), ESTIMATES, reached=0.999),
    "2 categories": curated(domain(0, "ab", "ab"), ESTIMATES, reached=0.85),
    "2 groups of 2": curated(domain(3, "ab"), ESTIMATES | FOUR, reached=0.85),
    "2 numbers, with the test": curated(domain(2), {}, reached=0.99),
    "2 categories, with the test": curated(domain(0, "ab", "ab"), {"test_share": 0.7}, reached=0.85),
    "2 groups of 2, with the test": curated(domain(3, "ab"), FOUR, reached=0.85),
}

CURATED_DISTANCE_CORRELATION |= {
    "table, 2 numbers": replace(
        JOINT_INDEPENDENCE["table, 2 numbers"],
        study=study("curated_distance_correlation", domain(2), TABLE | {"categories": 2}, 1.0, 0.0),
    ),
}


# distance_correlation and screening: two owners.


def held_neighbours(asked: Study, units: int, rows: tuple[int, int], aligned: bool, index: int) -> Neighbours:
    """The unit is far from the middle along the diagonal, or along a random one of the cube's.

    Where owners are aligned, every unit has a place of its own, by its id; the replaced unit has other values
    and the same id.
    """
    columns = asked.domain_of(asked.owners[0])
    width, codes = len(columns.numeric), len(columns.categorical)
    rng = np.random.default_rng(index)
    ends = np.zeros(width) if index == 0 else 1.0 - rng.integers(0, 2, width)
    one, other = (
        Rows(np.tile(at, (count, 1)), np.full((count, codes), value, dtype=np.int32))
        for value, at, count in ((0, ends, rows[0]), (1, 1 - ends, rows[1]))
    )
    others = Rows(rng.random((units - 1, width)), rng.integers(0, 3, (units - 1, codes), dtype=np.int32))
    tables = neighbours(columns, others, one, other)
    if not aligned:
        return tables
    places = np.random.default_rng(100 + index).permutation(units)
    first, second = (
        FixedTable(table.domain, tuple(replace(part, positions=places) for part in table.parts))
        for table in tables
    )
    return first, second


def held(
    procedure: str,
    numeric: int,
    parameters: Mapping[str, Any],
    epsilon: float = 1.0,
    *,
    delta: float = 1e-5,
    groups: int = 0,
    units: int = 60,
    rows: tuple[int, int] = (1, 1),
    aligned: bool = False,
    **parts: Any,
) -> ReleaseCase:
    """The audited owner holds the x columns (and groups); the other owner holds one column, y.

    ``rows`` are those that the replaced unit has in one table and in the other.
    """
    own: list[Column] = [NumericColumn(name=f"x{i}", lower=0.0, upper=1.0) for i in range(numeric)]
    own += [CategoricalColumn(name=f"group{i}", levels=("a", "b")) for i in range(groups)]
    asked = study(
        procedure,
        (*own, NumericColumn(name="y", lower=0.0, upper=1.0)),
        parameters,
        epsilon,
        delta,
        owners={"x-owner": tuple(column.name for column in own), "y-owner": ("y",)},
    )
    return ReleaseCase(asked, partial(held_neighbours, asked, units, rows, aligned), tables=6, **parts)


correlation = partial(held, "distance_correlation")
PNC: dict[str, Any] = {"method": "pnc"}
DISJOINT: dict[str, Any] = {"method": "pnc-disjoint"}
FIVE = {"n_projections": 5}

DISTANCE_CORRELATION = {
    "sketch, 1 number": correlation(1, {}, reached=0.95),
    "sketch, 1 number, 20 frequencies": correlation(1, {"n_features": 20}, reached=0.98),
    "sketch, 3 numbers": correlation(3, {}, reached=0.7),
    "sketch, units of 4 rows": correlation(1, {}, rows=(4, 4), reached=0.95),
    "sketch, aligned, a unit of 1 row or of 5": correlation(1, {}, rows=(1, 5), aligned=True, reached=0.95),
    "sketch, aligned, categories, units of 3 rows": correlation(
        0, {}, groups=1, rows=(3, 3), aligned=True, reached=0.99
    ),
    "pnc, aligned, units of 3 rows": correlation(3, PNC | FIVE, rows=(3, 3), aligned=True, reached=0.6),
    "pnc-disjoint, aligned, a unit of 4 rows or of 1": correlation(
        1, DISJOINT, rows=(4, 1), aligned=True, reached=0.99
    ),
    "sketch, categories": correlation(0, {}, groups=1, reached=0.99),
    "sketch, mixed": correlation(2, {}, groups=1, reached=0.7),
    "pnc, 1 number": correlation(1, PNC, reached=0.99),
    "pnc, 3 numbers": correlation(3, PNC | FIVE, reached=0.6),
    "pnc-disjoint, 3 numbers": correlation(3, DISJOINT | FIVE, reached=0.3),
    "sketch, 1 frequency": correlation(1, {"n_features": 1}, 4.0, units=32, reached=0.8, black_box=True),
    "pnc-disjoint, 1 number": correlation(1, DISJOINT, 4.0, units=4, reached=0.99, black_box=True),
}

screening = partial(held, "screening")
MATRIX: dict[str, Any] = {"matrix": True}
ANSWERED: dict[str, Any] = {"categories": 2, "outcome": "y-owner"}

SCREENING = {
    "sketch, 1 column": screening(1, MATRIX, reached=0.95),
    "sketch, 3 columns": screening(3, MATRIX, reached=0.95),
    "sketch, 20 columns": screening(20, MATRIX, reached=0.95),
    "sketch, 70 columns, few frequencies": screening(70, MATRIX, reached=0.9),
    "sketch, 3 columns, units of 4 rows": screening(3, MATRIX, rows=(4, 4), reached=0.95),
    "sketch, 3 columns, aligned, a unit of 1 row or of 5": screening(
        3, MATRIX, rows=(1, 5), aligned=True, reached=0.95
    ),
    "sketch, groups": screening(0, MATRIX, groups=1, reached=0.97),
    "sketch, mixed": screening(2, MATRIX, groups=1, reached=0.95),
    "sketch, 1 group": screening(0, MATRIX, 4.0, groups=1, units=32, reached=0.8, black_box=True),
    "beside answers, 1 group": screening(0, ANSWERED, 4.0, groups=1, reached=0.99, black_box=True),
    "beside answers, 20 groups": screening(0, ANSWERED, delta=0.0, groups=20, units=400, reached=0.99),
    "beside answers, private cuts": screening(3, ANSWERED, reached=0.8, adaptive=True),
    "beside answers, mixed, units of 4 rows": screening(
        2, ANSWERED, groups=1, rows=(4, 4), reached=0.8, adaptive=True
    ),
    "beside answers, 20 groups, Gaussian": screening(0, ANSWERED, groups=20, units=400, reached=0.99),
    "beside answers, private cuts, Gaussian": screening(6, ANSWERED, units=120, reached=0.8, adaptive=True),
}


HALVES = {"categories": None}


def beside_two(
    parameters: Mapping[str, Any], epsilon: float = 1.0, *, units: int = 60, **parts: Any
) -> ReleaseCase:
    """The audited owner counts its column x beside the answers of two others."""
    columns = [NumericColumn(name=name, lower=0.0, upper=1.0) for name in ("x", "y", "z")]
    asked = study(
        "mutual_independence",
        columns,
        {"receiver": "x-owner", "categories": 2} | parameters,
        epsilon,
        0.0,
        owners={f"{column.name}-owner": (column.name,) for column in columns},
    )
    return ReleaseCase(asked, partial(held_neighbours, asked, units, (1, 1), False), tables=6, **parts)


MUTUAL_INDEPENDENCE = {
    "beside two owners' answers": beside_two({"cuts": "even"}, 4.0, reached=0.99, black_box=True),
    "beside two owners' answers, dealt cuts": beside_two({}, 4.0, reached=0.8, adaptive=True),
    "beside two owners' answers, halves": beside_two(HALVES, 2.0, units=700, reached=0.8, adaptive=True),
}
